/* test_jpeg_guess.c - marks found at guessed places, against those of scans. */
#include "testing.h"

#include "../fuzz/guess_check.h"
#include "base/cpu.h"
#include "images.h"
#include "ops/decode.h"

typedef bool counter(pen__jpeg_count_job *job);

/* The scalar twin, or the vector twin where there is one. */
static counter *twin(int i)
{
#if defined(__x86_64__)
    if (i > 0 && pen__cpu_flags() & PEN__CPU_AVX512)
        return pen__jpeg_count_avx512;
#endif
    return i > 0 ? NULL : pen__jpeg_count_c;
}

static file picture_file(const jpeg_kind *kind, int w, int h, int quality, int noise)
{
    uint64_t dice = (uint64_t)(w * h + quality);
    uint8_t *px = make_picture(w, h, kind->channels, dice);
    for (int i = 0; noise == 1 && i < w * h * kind->channels; i++)
        px[i] = roll(&dice) % 2 ? (uint8_t)roll(&dice) : (uint8_t)(roll(&dice) % 2 * 255);
    if (noise == 2)
        memset(px, 77, (size_t)w * (size_t)h * (size_t)kind->channels);
    file f = encode_jpeg(kind, px, w, h, quality);
    free(px);
    return f;
}

static int32_t rows_of(const pen__jpeg_frame *frame)
{
    return (frame->height + 8 * frame->mcu_v - 1) / (8 * frame->mcu_v);
}

/* Of all rows of the file, with both twins.  Returns the rows found by the second. */
static int32_t check(guess_bench *b, file f, int32_t step, uint32_t min_piece, int32_t n_rows)
{
    pen__jpeg_frame frame;
    int32_t n_found = 0;
    assert_true(pen__jpeg_frame_read(&frame, f.data, f.len));
    for (int i = 0; i < 2; i++) {
        if (i > 0 && !twin(i))
            continue;
        int32_t n = n_rows < rows_of(&frame) ? n_rows : rows_of(&frame);
        assert_true(guess_is_true(b, &frame, f.data, f.len, step, min_piece, n, twin(i)));
        n_found = b->by_guess.n_rows;
    }
    return n_found;
}

static void marks_are_those_of_scans(void **state)
{
    static const int qualities[] = {1, 20, 50, 75, 90, 97, 100};
    guess_bench *b = *state;
    int64_t n_found = 0, n_all = 0;
    for (int k = 0; k < N_SAMPLED_KINDS; k++)
        for (int i = 0; i < 14; i++) {
            int h = 150 + 8 * k + i;
            file f = picture_file(&sampled_kinds[k], 200 + 31 * i, h, qualities[i / 2], i % 2);
            n_found += check(b, f, 1 + i % 5, 48 + 16 * (uint32_t)i, 1000);
            n_all += b->by_guess.grid.n_rows;
            check(b, f, 4, 128, 1 + i);
            free(f.data);
        }
    assert_true(n_found > n_all / 2); /* short pieces often do not meet in time */
}

/* More than one round, and the sizes that are in use. */
static void large_files_take_rounds(void **state)
{
    guess_bench *b = *state;
    for (int k = 0; k < N_SAMPLED_KINDS; k++) {
        file f = picture_file(&sampled_kinds[k], 1200, 900, 93, 0);
        assert_true(f.len > 2 * PEN__JPEG_STRETCH_BYTES);
        int32_t n_found = check(b, f, 8, PEN__JPEG_GUESS_MIN_PIECE, 1000);
        assert_int_equal(n_found, b->by_guess.grid.n_rows);
        assert_true(b->by_guess.is_complete);
        free(f.data);
    }
}

/* One colour: the same few bits again and again, in which wrong places can look right for ever. */
static void flat_pictures_lead_nowhere_wrong(void **state)
{
    guess_bench *b = *state;
    for (int k = 0; k < N_SAMPLED_KINDS; k++)
        for (int size = 100; size < 1600; size += 300) {
            file f = picture_file(&sampled_kinds[k], size, size, 80, 2);
            check(b, f, 3, 24, 1000);
            free(f.data);
        }
}

/* Bits changed, bytes cut off or put in: nothing is found behind the flaw. */
static void damage_is_not_passed(void **state)
{
    guess_bench *b = *state;
    uint64_t dice = 11;
    int n_short = 0, n_found = 0;
    for (int i = 0; i < 1500; i++) {
        file f =
            picture_file(&sampled_kinds[i % N_SAMPLED_KINDS], 128, 96, 30 + i % 70, i % 4 == 0);
        pen__jpeg_frame frame;
        assert_true(pen__jpeg_frame_read(&frame, f.data, f.len));
        size_t from = frame.scan_at, n_bytes = f.len - from;
        for (int n = roll_between(&dice, 1, 3); n > 0; n--) {
            uint8_t *at = &f.data[from + roll(&dice) % n_bytes];
            *at = (uint8_t)(roll(&dice) % 4 ? *at ^ 1U << roll(&dice) % 8 : roll(&dice) % 3 * 127);
        }
        if (i % 5 == 0)
            f.len -= roll(&dice) % n_bytes;
        check(b, f, 1 + i % 4, 16 + (uint32_t)(i % 50), 1000);
        n_short += b->by_guess.n_rows < b->by_guess.grid.n_rows;
        n_found += b->by_guess.n_rows > 0;
        free(f.data);
    }
    assert_true(n_short > 300 && n_found > 300);
}

static void files_with_restarts_are_left_to_scans(void **state)
{
    guess_bench *b = *state;
    jpeg_kind kind = sampled_kinds[4];
    kind.restart_mcus = 5;
    file f = picture_file(&kind, 300, 300, 80, 0);
    assert_int_equal(check(b, f, 4, 128, 1000), 0);
    free(f.data);
}

/* --- DCs that leave their 16 bits --- */

enum { MCUS = 80, UP = 2047 /* as far as one difference goes */ };

typedef struct writer {
    file f;
    unsigned bits;
    int n_bits;
} writer;

static void put_bits(writer *w, unsigned value, int n)
{
    while (n-- > 0) {
        w->bits = w->bits << 1 | (value >> n & 1);
        if (++w->n_bits % 8 > 0)
            continue;
        w->f.data[w->f.len++] = (uint8_t)w->bits;
        if ((uint8_t)w->bits == 0xFF)
            w->f.data[w->f.len++] = 0;
    }
}

/* With the usual tables: a difference of 0, UP or -UP, some small ACs, and the end. */
static void put_block(writer *w, int difference, uint64_t *dice)
{
    put_bits(w, difference == 0 ? 0 : 0x1FE, difference == 0 ? 2 : 9);
    if (difference != 0)
        put_bits(w, difference > 0 ? UP : 0, 11);
    for (int n = roll_between(dice, 0, 11); n > 0; n--)
        if (roll(dice) % 2)
            put_bits(w, roll(dice) % 2, 3); /* 00 and a bit */
        else
            put_bits(w, 4 << 3 | roll(dice) % 8, 6); /* 100 and three */
    put_bits(w, 0xA, 4);
}

/* A grey file of MCUS x MCUS, in whose middle row the DC goes n_up times up and n_down times down.
 * No encoder writes that. */
static file file_with_hill(int n_up, int n_down)
{
    enum { MOST_BYTES = 32 }; /* of a block */
    uint64_t dice = 5;
    file flat = picture_file(&sampled_kinds[0], 8 * MCUS, 8 * MCUS, 80, 2);
    pen__jpeg_frame frame;
    assert_true(pen__jpeg_frame_read(&frame, flat.data, flat.len));
    writer w = {.f = {malloc(frame.scan_at + MCUS * MCUS * MOST_BYTES), frame.scan_at}};
    memcpy(w.f.data, flat.data, frame.scan_at);
    free(flat.data);
    for (int i = 0; i < MCUS * MCUS; i++) {
        int at = i - MCUS / 2 * MCUS;
        put_block(&w, at < 0 || at >= n_up + n_down ? 0 : at < n_up ? UP : -UP, &dice);
    }
    put_bits(&w, 0x7F, (8 - w.n_bits % 8) % 8);
    w.f.data[w.f.len++] = 0xFF, w.f.data[w.f.len++] = 0xD9;
    return w.f;
}

static int n_rounds;

static bool count_rounds(pen__jpeg_count_job *job)
{
    n_rounds++;
    return pen__jpeg_count_c(job);
}

/* With a mark a row, none of which is on a hill that ends in its row. */
static void nothing_is_found_behind_a_dc_that_leaves_its_range(void **state)
{
    guess_bench *b = *state;
    static const struct {
        int n_up, n_down, n_rows;
    } hills[] = {{12, 12, MCUS}, {17, 17, MCUS / 2}, {40, 40, MCUS / 2}, {17, 0, MCUS / 2}};
    for (int i = 0; i < 4; i++) {
        file f = file_with_hill(hills[i].n_up, hills[i].n_down);
        pen__jpeg_frame frame;
        assert_true(pen__jpeg_frame_read(&frame, f.data, f.len));
        assert_int_equal(check(b, f, MCUS, 256, 1000), hills[i].n_rows);
        n_rounds = 0;
        assert_true(guess_is_true(b, &frame, f.data, f.len, MCUS, 256, MCUS, count_rounds));
        assert_int_equal(n_rounds, 1); /* what was parsed is not parsed again */
        check(b, f, 3, 128, 1000);
        free(f.data);
    }
}

static void a_cancelled_guess_parses_nothing(void **state)
{
    guess_bench *b = *state;
    file f = picture_file(&sampled_kinds[4], 600, 600, 90, 0);
    pen__jpeg_frame frame;
    assert_true(pen__jpeg_frame_read(&frame, f.data, f.len));
    for (int i = 0; i < 2; i++) {
        atomic_bool cancel = i == 1;
        const pen__jpeg_guess_job job = {.frame = &frame,
                                         .src = f.data,
                                         .len = f.len,
                                         .room = &b->room,
                                         .tables = &b->count_tables,
                                         .cancel = &cancel,
                                         .count = count_rounds,
                                         .n_rows = rows_of(&frame),
                                         .min_piece = 128};
        guess_begin(&b->by_guess, &frame, f.len, 4);
        n_rounds = 0;
        pen__jpeg_guess(&job, &b->by_guess);
        assert_true(cancel ? n_rounds == 0 : n_rounds > 0);
        assert_true(cancel ? b->by_guess.n_marks == 0 : b->by_guess.n_marks > 0);
    }
    free(f.data);
}

/* Decode the lower part of a picture: an entry of marks, the caller's. */
static size_t gather(file f, pen__rect window, bool has_lanes, uint8_t **entry, int64_t *n_guessed)
{
    pen__decoder *dec;
    pen_image_info info;
    const void *found;
    pen__image image = {.px = malloc((size_t)window.w * (size_t)window.h * 3)};
    pen__cpu_mask(has_lanes ? ~0U : PEN__CPU_AVX2);
    assert_int_equal(pen__decoder_create(&dec, NULL), 0);
    assert_int_equal(pen_image_probe(f.data, f.len, &info, NULL), 0);
    pen__decoder_give_marks(dec, NULL, 0);
    assert_int_equal(pen__decode(dec, f.data, f.len, &info, window, &image, NULL), 0);
    size_t len = pen__decoder_take_marks(dec, &found);
    *entry = malloc(len);
    memcpy(*entry, found, len);
    *n_guessed = pen__decoder_jpeg_counts(dec).n_guessed;
    pen__decoder_free(dec);
    pen__cpu_mask(~0U);
    free(image.px);
    return len;
}

/* What goes into the index does not depend on who found it. */
static void entries_are_the_same_either_way(void **state)
{
    (void)state;
    if (!(pen__cpu_flags() & PEN__CPU_AVX512))
        skip();
    file f = picture_file(&sampled_kinds[5], 900, 700, 85, 0);
    for (int h = 150; h <= 700; h += 110) {
        uint8_t *entry[2];
        int64_t n_guessed[2];
        pen__rect window = {100, h == 700 ? 0 : 20, 300, h};
        size_t len[2];
        for (int i = 0; i < 2; i++)
            len[i] = gather(f, window, i == 1, &entry[i], &n_guessed[i]);
        assert_true(n_guessed[0] == 0 && n_guessed[1] == 1);
        assert_true(len[0] > 0 && len[0] == len[1]);
        assert_memory_equal(entry[0], entry[1], len[0]);
        free(entry[0]), free(entry[1]);
    }
    free(f.data);
}

/* Tables for guessing do not take what lanes need. */
static void places_are_guessed_where_there_is_room_for_tables(void **state)
{
    (void)state;
    if (!(pen__cpu_flags() & PEN__CPU_AVX512))
        skip();
    enum { SIZE = 900 };
    file f = picture_file(&sampled_kinds[5], SIZE, SIZE, 85, 0);
    for (int i = 0; i < 2; i++) {
        pen__decoder *dec;
        pen_image_info info;
        pen__image image = {.px = malloc((size_t)SIZE * SIZE * 3)};
        size_t room = sizeof(pen__jpeg_stretch_room) + (i ? sizeof(pen__jpeg_count_tables) : 0);
        assert_int_equal(pen__decoder_create(&dec, NULL), 0);
        pen__decoder_set_keep(dec, 2 * room);
        assert_int_equal(pen_image_probe(f.data, f.len, &info, NULL), 0);
        pen__rect all = {0, 0, SIZE, SIZE};
        assert_int_equal(pen__decode(dec, f.data, f.len, &info, all, &image, NULL), 0);
        assert_int_equal(pen__decoder_jpeg_counts(dec).n_guessed, i);
        pen__decoder_free(dec);
        free(image.px);
    }
    free(f.data);
}

static int set_up(void **state)
{
    *state = guess_bench_new();
    return *state ? 0 : -1;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_are_those_of_scans),
        cmocka_unit_test(large_files_take_rounds),
        cmocka_unit_test(flat_pictures_lead_nowhere_wrong),
        cmocka_unit_test(damage_is_not_passed),
        cmocka_unit_test(files_with_restarts_are_left_to_scans),
        cmocka_unit_test(nothing_is_found_behind_a_dc_that_leaves_its_range),
        cmocka_unit_test(a_cancelled_guess_parses_nothing),
        cmocka_unit_test(entries_are_the_same_either_way),
        cmocka_unit_test(places_are_guessed_where_there_is_room_for_tables),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
