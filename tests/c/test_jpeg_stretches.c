/* test_jpeg_stretches.c - stretches between marks in lanes, against scans of the same. */
#include "testing.h"

#include "base/cpu.h"
#include "images.h"
#include "ops/jpeg_stretches.h"

enum { GUARD = 4096, MAX_MCUS = 8 };

typedef struct bench {
    pen__jpeg_tables tables;
    pen__jpeg_lane_tables lane_tables;
    pen__jpeg_frame frame;
    pen__jpeg_scan scan;
    uint8_t chunk[PEN__JPEG_CHUNK_BYTES + PEN__JPEG_CHUNK_SLACK];
    pen__jpeg_stretches all;
    /* vectors are stored unseen by sanitizers */
    uint8_t before[GUARD];
    pen__jpeg_stretch_room room;
    uint8_t behind[GUARD];
} bench;

static bool is_guarded(const bench *b)
{
    bool is_whole = true;
    for (int i = 0; i < GUARD; i++)
        is_whole &= b->before[i] == 0xA5 && b->behind[i] == 0xA5;
    return is_whole;
}

static bool start(bench *b, file f)
{
    if (!pen__jpeg_frame_read(&b->frame, f.data, f.len) ||
        !pen__jpeg_scan_start(&b->scan, &b->frame, &b->tables, f.data, f.len, b->chunk) ||
        !pen__jpeg_stretches_start(&b->all, &b->frame, &b->lane_tables, f.data, f.len, &b->room))
        return false;
    b->scan.is_zigzag = true;
    return true;
}

static file picture_file(const jpeg_kind *kind, int w, int h, int quality, bool is_noisy)
{
    uint64_t dice = (uint64_t)(w * h + quality);
    uint8_t *px = make_picture(w, h, kind->channels, dice);
    for (int i = 0; is_noisy && i < w * h * kind->channels; i++)
        px[i] = roll(&dice) % 2 ? (uint8_t)roll(&dice) : (uint8_t)(roll(&dice) % 2 * 255);
    file f = encode_jpeg(kind, px, w, h, quality);
    free(px);
    return f;
}

/* Marks every few MCUs, one to MAX_MCUS of them. */
typedef struct plan {
    int n;
    int n_mcus[4096];
    int64_t first_mcu[4096];
    pen__jpeg_mark marks[4097];
} plan;

static plan *make_plan(bench *b, file f, uint64_t seed)
{
    plan *p = calloc(1, sizeof *p);
    int columns = (b->frame.width + 8 * b->frame.mcu_h - 1) / (8 * b->frame.mcu_h);
    int rows = (b->frame.height + 8 * b->frame.mcu_v - 1) / (8 * b->frame.mcu_v);
    assert_true(start(b, f));
    const pen__jpeg_mark first = pen__jpeg_first_mark(&b->frame);
    assert_true(pen__jpeg_scan_seek(&b->scan, &first, 0, PEN__JPEG_CHUNK_BYTES));
    for (int64_t at = 0, end = (int64_t)columns * rows; at < end; at += p->n_mcus[p->n++]) {
        int n = roll_between(&seed, 1, MAX_MCUS);
        p->n_mcus[p->n] = end - at < n ? (int)(end - at) : n;
        p->first_mcu[p->n] = at;
        assert_true(pen__jpeg_scan_tell(&b->scan, &p->marks[p->n]));
        assert_true(pen__jpeg_scan_skip(&b->scan, p->n_mcus[p->n]));
    }
    assert_true(pen__jpeg_scan_tell(&b->scan, &p->marks[p->n]));
    return p;
}

static bool is_same_mark(const pen__jpeg_mark *a, const pen__jpeg_mark *b)
{
    return a->at == b->at && a->n_bits == b->n_bits && memcmp(a->dc, b->dc, sizeof a->dc) == 0;
}

/* Whether a scan goes from mark i to the next.  Where it does, and coefficients are given, they
 * must be the same. */
static bool scan_stretch(bench *b, const plan *p, int i, const int16_t *coefs,
                         const uint8_t *n_coefs)
{
    static int16_t blocks[PEN__JPEG_MAX_BLOCKS * 64 + PEN__JPEG_BLOCK_SLACK];
    uint8_t counts[PEN__JPEG_MAX_BLOCKS];
    pen__jpeg_mark arrived;
    size_t n_bytes = p->marks[i + 1].at - p->marks[i].at + 1;
    bool is_same = true;
    if (!pen__jpeg_scan_seek(&b->scan, &p->marks[i], p->first_mcu[i], n_bytes))
        return false;
    for (int m = 0; m < p->n_mcus[i]; m++) {
        if (!pen__jpeg_scan_mcu(&b->scan, blocks, counts))
            return false;
        for (int k = 0; coefs && k < b->scan.n_blocks; k++, coefs += 64, n_coefs++) {
            is_same &= memcmp(coefs, blocks + 64 * k, 64 * sizeof *coefs) == 0;
            is_same &= *n_coefs <= counts[k] && (*n_coefs == 1 || coefs[*n_coefs - 1] != 0);
            for (int c = *n_coefs; c < 64; c++)
                is_same &= coefs[c] == 0;
        }
    }
    if (!pen__jpeg_scan_tell(&b->scan, &arrived) || !is_same_mark(&arrived, &p->marks[i + 1]))
        return false;
    assert_true(is_same);
    return true;
}

/* As many stretches as fit from number `first` on.  Returns the next one, or -1 if they are not
 * sound: then scans must find a flaw, too, and else not. */
static int check_stretches(bench *b, const plan *p, int first)
{
    int next = first, rc = 1;
    pen__jpeg_stretches_clear(&b->all);
    while (next < p->n &&
           (rc = pen__jpeg_stretches_add(&b->all, &p->marks[next], &p->marks[next + 1],
                                         p->n_mcus[next], false)) > 0)
        next++;
    bool is_sound = rc >= 0 && pen__jpeg_stretches_decode(&b->all);
    assert_true(is_guarded(b));
    int last = rc < 0 ? next + 1 : next, n_flawed = 0;
    for (int i = first; i < last; i++) {
        const pen__jpeg_stretch *s = &b->all.list[i - first];
        n_flawed += !scan_stretch(b, p, i, is_sound ? b->room.coefs + s->first_coef : NULL,
                                  b->room.n_coefs + s->first_coef / 64);
    }
    assert_int_equal(is_sound, n_flawed == 0);
    assert_true(next > first || !is_sound);
    return is_sound ? next : -1;
}

static void skip_without_lanes(void)
{
    if (!(pen__cpu_flags() & PEN__CPU_AVX512))
        skip();
}

static void stretches_have_the_coefficients_of_scans(void **state)
{
    static const int qualities[] = {1, 20, 50, 75, 90, 97, 100};
    bench *b = *state;
    skip_without_lanes();
    for (int k = 0; k < N_SAMPLED_KINDS; k++)
        for (int i = 0; i < 14; i++) {
            file f =
                picture_file(&sampled_kinds[k], 150 + 31 * i, 90 + 8 * k, qualities[i / 2], i % 2);
            assert_true(start(b, f));
            plan *p = make_plan(b, f, (uint64_t)(i + k));
            for (int at = 0; at < p->n;) {
                at = check_stretches(b, p, at);
                assert_true(at > 0);
            }
            free(p), free(f.data);
        }
}

/* The first MCUs of a stretch, and what comes behind them is not looked at. */
static void stretches_can_be_cut(void **state)
{
    bench *b = *state;
    skip_without_lanes();
    file f = picture_file(&sampled_kinds[4], 300, 120, 85, true);
    assert_true(start(b, f));
    plan *p = make_plan(b, f, 3);
    for (int first = 0; first < p->n; first += b->all.n) {
        pen__jpeg_stretches_clear(&b->all);
        for (int i = first; i < p->n; i++)
            if (pen__jpeg_stretches_add(&b->all, &p->marks[i], &p->marks[i + 1],
                                        1 + i % p->n_mcus[i], true) <= 0)
                break;
        assert_true(b->all.n > 0 && pen__jpeg_stretches_decode(&b->all));
        for (int i = 0; i < b->all.n; i++) {
            int16_t blocks[PEN__JPEG_MAX_BLOCKS * 64 + PEN__JPEG_BLOCK_SLACK];
            uint8_t n_coefs[PEN__JPEG_MAX_BLOCKS];
            uint32_t at = b->all.list[i].first_coef, end = at + b->all.list[i].n_coefs;
            assert_true(pen__jpeg_scan_seek(&b->scan, &p->marks[first + i], p->first_mcu[first + i],
                                            PEN__JPEG_CHUNK_BYTES));
            for (; at < end; at += 64 * 6) {
                assert_true(pen__jpeg_scan_mcu(&b->scan, blocks, n_coefs));
                assert_memory_equal(b->room.coefs + at, blocks, 64 * 6 * sizeof *blocks);
            }
        }
    }
    /* more MCUs than there are bits for */
    pen__jpeg_stretches_clear(&b->all);
    assert_int_equal(pen__jpeg_stretches_add(&b->all, &p->marks[0], &p->marks[1], 50, true), 1);
    assert_false(pen__jpeg_stretches_decode(&b->all));
    assert_true(is_guarded(b));
    free(p), free(f.data);
}

/* Bits changed between the marks. */
static void damage_is_found_where_scans_find_it(void **state)
{
    bench *b = *state;
    uint64_t dice = 5;
    int n_found = 0, n_sound = 0;
    skip_without_lanes();
    for (int i = 0; i < 3000; i++) {
        file f = picture_file(&sampled_kinds[i % N_SAMPLED_KINDS], 96, 64, 30 + i % 70, i % 4 == 0);
        assert_true(start(b, f));
        plan *p = make_plan(b, f, (uint64_t)i);
        size_t from = b->frame.scan_at, n_bytes = f.len - 2 - from;
        for (int n = roll_between(&dice, 0, 2); n > 0; n--) {
            uint8_t *at = &f.data[from + roll(&dice) % n_bytes];
            *at = (uint8_t)(roll(&dice) % 4 ? *at ^ 1U << roll(&dice) % 8 : roll(&dice));
            /* no new markers: scans look for them further ahead */
            for (size_t j = from; j < f.len - 2; j++)
                if (f.data[j] == 0xFF && f.data[j + 1] != 0)
                    f.data[j] = 0xFE;
        }
        for (int at = 0; at >= 0 && at < p->n;) {
            at = check_stretches(b, p, at);
            n_found += at < 0;
            n_sound += at > 0;
        }
        free(p), free(f.data);
    }
    assert_true(n_found > 500 && n_sound > 500);
}

/* What follows a wrong mark may well lead to the next one: if so, for scans, too. */
static void marks_that_lie_do_no_harm(void **state)
{
    bench *b = *state;
    uint64_t dice = 8;
    skip_without_lanes();
    file f = picture_file(&sampled_kinds[5], 200, 100, 80, true);
    assert_true(start(b, f));
    plan *p = make_plan(b, f, 1), *bad = malloc(sizeof *bad);
    for (int i = 0; i < 3000; i++) {
        memcpy(bad, p, sizeof *bad);
        for (int n = roll_between(&dice, 1, 3); n > 0; n--) {
            pen__jpeg_mark *mark = &bad->marks[roll_between(&dice, 0, bad->n)];
            if (roll(&dice) % 3 == 0)
                mark->n_bits = roll_between(&dice, 0, 7);
            else if (roll(&dice) % 2)
                mark->at = b->frame.scan_at + roll(&dice) % (f.len - b->frame.scan_at + 8);
            else
                mark->dc[roll(&dice) % 3] = roll_between(&dice, INT16_MIN, INT16_MAX);
        }
        for (int at = 0; at >= 0 && at < bad->n;)
            at = check_stretches(b, bad, at);
    }
    free(p), free(bad), free(f.data);
}

/* Symbols of 12 bits by the hundred: no encoder's choice, and more than there is room for. */
static void codes_with_too_many_long_ones_are_not_for_lanes(void **state)
{
    bench *b = *state;
    skip_without_lanes();
    uint8_t code[16 + 200] = {0};
    code[11] = 200;
    for (int i = 0; i < 200; i++)
        code[16 + i] = (uint8_t)(i / 10 << 4 | (1 + i % 10));
    file f = picture_file(&sampled_kinds[0], 64, 64, 50, false);
    assert_true(start(b, f));
    pen__jpeg_frame frame = b->frame;
    frame.components[0].ac = (pen__jpeg_code){code, 200};
    assert_false(
        pen__jpeg_stretches_start(&b->all, &frame, &b->lane_tables, f.data, f.len, &b->room));
    code[11] = 20; /* these have room, and all of them are long */
    frame.components[0].ac.n_symbols = 20;
    assert_true(
        pen__jpeg_stretches_start(&b->all, &frame, &b->lane_tables, f.data, f.len, &b->room));
    code[0] = 3; /* not a code */
    assert_false(
        pen__jpeg_stretches_start(&b->all, &frame, &b->lane_tables, f.data, f.len, &b->room));
    free(f.data);
}

static void files_with_restarts_and_plain_processors_are_left_to_scans(void **state)
{
    bench *b = *state;
    jpeg_kind kind = sampled_kinds[4];
    kind.restart_mcus = 5;
    file f = picture_file(&kind, 64, 64, 50, false),
         g = picture_file(&sampled_kinds[4], 64, 64, 50, false);
    assert_false(start(b, f));
    pen__cpu_mask(PEN__CPU_AVX2);
    assert_false(start(b, g));
    pen__cpu_mask(~0U);
    free(f.data), free(g.data);
}

static int set_up(void **state)
{
    bench *b = aligned_alloc(64, (sizeof(bench) + 63) / 64 * 64);
    if (b) {
        memset(b, 0, sizeof *b);
        memset(b->before, 0xA5, GUARD);
        memset(b->behind, 0xA5, GUARD);
    }
    *state = b;
    return b ? 0 : -1;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stretches_have_the_coefficients_of_scans),
        cmocka_unit_test(stretches_can_be_cut),
        cmocka_unit_test(damage_is_found_where_scans_find_it),
        cmocka_unit_test(marks_that_lie_do_no_harm),
        cmocka_unit_test(codes_with_too_many_long_ones_are_not_for_lanes),
        cmocka_unit_test(files_with_restarts_and_plain_processors_are_left_to_scans),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
