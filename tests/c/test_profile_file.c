/* test_profile_file.c - what was learned comes back, and nothing else does. */
#include "testing.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include <penstock/profile.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "engine/profile_file.h"
#include "lines.h"
#include "trees.h"

enum { N = 40, CHECKSUM_AT = 28, SUMMED_AT = 32, HEAD = 232 };

static const char dataset[] = "0123456789abcdef0123456789abcdef";
static const char line[] = "ffeeddccbbaa99887766554433221100";

/* Somebody's knowledge. */
typedef struct mind {
    pen__headers headers;
    pen__traits traits;
    pen__typical typical;
    pen__learned learned;
} mind;

static mind *new_mind(void)
{
    mind *m = calloc(1, sizeof *m);
    assert_int_equal(pen__headers_init(&m->headers, N), 0);
    assert_int_equal(pen__traits_init(&m->traits, N), 0);
    m->typical.bytes_per_pixel = 0.5;
    m->learned = (pen__learned){&m->headers, &m->traits, &m->typical, line};
    return m;
}

static void drop(mind *m)
{
    pen__headers_fini(&m->headers);
    pen__traits_fini(&m->traits);
    free(m);
}

/* Every second sample is known. */
static mind *learn(void)
{
    mind *m = new_mind();
    for (int i = 0; i < N; i += 2) {
        const pen_image_info info = photo(100 + i, 200 + i);
        pen__headers_put(&m->headers, i, &info);
        pen__traits_note(&m->traits, i, PEN__TRAIT_CPU, 1 + i / 10.0);
    }
    m->typical = (pen__typical){
        .info = photo(640, 480), .bytes_per_pixel = 0.75, .corrections = {.both_cpu = 1.5}};
    m->typical.corrections.bytes[PEN__FORM_JPEG_CUT] = 0.8;
    return m;
}

static void assert_same(const mind *a, const mind *b)
{
    for (int i = 0; i < N; i++) {
        assert_true(pen__headers_word(&a->headers, i) == pen__headers_word(&b->headers, i));
        assert_int_equal(pen__traits_word(&a->traits, i), pen__traits_word(&b->traits, i));
    }
    assert_true(a->typical.bytes_per_pixel == b->typical.bytes_per_pixel);
    assert_int_equal(a->typical.info.width, b->typical.info.width);
    assert_memory_equal(&a->typical.corrections, &b->typical.corrections,
                        sizeof a->typical.corrections);
}

static void assert_empty(mind *m)
{
    mind *none = new_mind();
    assert_same(m, none);
    drop(none);
}

static uint8_t *written(size_t *len)
{
    mind *m = learn();
    uint8_t *bytes = pen__profile_write(&m->learned, dataset, len);
    assert_non_null(bytes);
    drop(m);
    return bytes;
}

static void seal(uint8_t *bytes, size_t len)
{
    const uint32_t crc = pen__crc32c(0, bytes + SUMMED_AT, len - SUMMED_AT);
    memcpy(bytes + CHECKSUM_AT, &crc, sizeof crc);
}

/* ---- bytes ---- */

static void what_was_learned_comes_back(void **state)
{
    (void)state;
    size_t len;
    uint8_t *bytes = written(&len);
    mind *before = learn(), *after = new_mind();
    assert_int_equal(len, pen__profile_bytes(N));
    assert_int_equal(len, HEAD + N * 12);
    assert_int_equal(pen__profile_parse(&after->learned, dataset, bytes, len), PEN__PROFILE_ALL);
    assert_same(before, after);
    drop(before), drop(after);
    pen__free(bytes);
}

static void another_pipeline_has_the_same_headers(void **state)
{
    (void)state;
    size_t len;
    uint8_t *bytes = written(&len);
    mind *m = new_mind();
    m->learned.pipeline = "00000000000000000000000000000000";
    assert_int_equal(pen__profile_parse(&m->learned, dataset, bytes, len), PEN__PROFILE_HEADERS);
    assert_true(pen__headers_word(&m->headers, 2) != 0);
    assert_int_equal(pen__traits_word(&m->traits, 2), 0);
    assert_true(m->typical.bytes_per_pixel == 0.5 && m->typical.corrections.both_cpu == 0);
    drop(m);
    pen__free(bytes);
}

static void what_is_known_already_stays(void **state)
{
    (void)state;
    size_t len;
    uint8_t *bytes = written(&len);
    mind *m = new_mind();
    pen_image_info mine = photo(7, 7), got;
    pen__headers_put(&m->headers, 2, &mine);
    m->learned.typical = NULL; /* of all, nothing is wanted */
    assert_int_equal(pen__profile_parse(&m->learned, dataset, bytes, len), PEN__PROFILE_ALL);
    assert_true(pen__headers_get(&m->headers, 2, &got) && got.width == 7);
    assert_true(pen__headers_get(&m->headers, 4, &got) && got.width == 104);
    assert_true(m->typical.bytes_per_pixel == 0.5);
    drop(m);
    pen__free(bytes);
}

static void refuse_file(const uint8_t *bytes, size_t len, const char *of)
{
    mind *m = new_mind();
    uint8_t *exact = malloc(len > 0 ? len : 1); /* a sanitizer sees a byte past it */
    memcpy(exact, bytes, len);
    assert_int_equal(pen__profile_parse(&m->learned, of, exact, len), PEN__PROFILE_NONE);
    assert_empty(m);
    free(exact);
    drop(m);
}

static void damage_and_strangers_are_refused(void **state)
{
    (void)state;
    size_t len;
    uint8_t *bytes = written(&len);
    for (size_t n = 0; n < len; n++)
        refuse_file(bytes, n, dataset);
    for (size_t i = 0; i < len; i++) {
        bytes[i] ^= (uint8_t)(1U << i % 8);
        refuse_file(bytes, len, dataset);
        bytes[i] ^= (uint8_t)(1U << i % 8);
    }
    refuse_file(bytes, len, "1123456789abcdef0123456789abcdef");
    for (size_t i = 0; i < CHECKSUM_AT; i++) { /* whatever the checksum says */
        bytes[i] ^= 0x80;
        seal(bytes, len);
        refuse_file(bytes, len, dataset);
        bytes[i] ^= 0x80;
    }
    pen__free(bytes);
}

static void a_forged_file_says_nothing_that_could_not_be(void **state)
{
    (void)state;
    size_t len;
    uint8_t *bytes = written(&len);
    uint64_t dice = 1;
    for (int round = 0; round < 2000; round++) {
        for (size_t i = SUMMED_AT + 64; i < len; i++) {
            dice = dice * 6364136223846793005u + 1442695040888963407u;
            bytes[i] = round % 2 ? (uint8_t)(dice >> 56) : bytes[i] ^ (dice >> 62 == 0);
        }
        seal(bytes, len);
        mind *m = new_mind();
        assert_int_equal(pen__profile_parse(&m->learned, dataset, bytes, len), PEN__PROFILE_ALL);
        for (int i = 0; i < N; i++) {
            pen_image_info info;
            assert_true(!pen__headers_get(&m->headers, i, &info) || pen__parcel_takes(&info));
            const double factor = pen__traits_factor(&m->traits, i, PEN__TRAIT_CPU);
            assert_true(factor > 0.2 && factor < 5);
        }
        const double detail = m->typical.bytes_per_pixel, ratio = m->typical.corrections.both_cpu;
        assert_true(detail >= PEN__LEAST_DETAIL && detail <= PEN__MOST_DETAIL);
        assert_true(ratio == 0 ||
                    (ratio >= PEN__LEAST_CORRECTION && ratio <= PEN__MOST_CORRECTION));
        drop(m);
    }
    pen__free(bytes);
}

/* ---- files ---- */

static pen_dataset ds;

static int make_place(void **state)
{
    memset(&ds, 0, sizeof ds);
    memcpy(ds.hash, dataset, sizeof dataset);
    if (tree_setup(state))
        return -1;
    ds.cache = strdup(in_tree("deep/er"));
    return 0;
}

static int drop_place(void **state)
{
    free(ds.cache);
    return tree_teardown(state);
}

static const char *path_of_file(void)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s.profile", ds.cache, dataset);
    return path;
}

static void put_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_true(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static int n_files(void)
{
    int n = 0;
    DIR *dir = opendir(ds.cache);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        n += e->d_name[0] != '.' && !strstr(e->d_name, ".lock");
    closedir(dir);
    return n;
}

static void a_run_begins_where_the_last_one_ended(void **state)
{
    (void)state;
    mind *before = learn(), *after = new_mind();
    pen_error err;
    assert_int_equal(pen__profile_load(&after->learned, &ds), PEN__PROFILE_NONE);
    assert_int_equal(pen__profile_save(&before->learned, &ds, &err), 0);
    assert_int_equal(pen__profile_load(&after->learned, &ds), PEN__PROFILE_ALL);
    assert_same(before, after);
    assert_int_equal(n_files(), 1); /* nothing is left behind */
    drop(before), drop(after);
}

static void runs_that_save_by_turns_add_up(void **state)
{
    (void)state;
    mind *first = learn(), *second = new_mind(), *both = new_mind();
    pen_image_info info = photo(9, 9);
    pen__headers_put(&second->headers, 1, &info);
    assert_int_equal(pen__profile_save(&first->learned, &ds, NULL), 0);
    assert_int_equal(pen__profile_save(&second->learned, &ds, NULL), 0);
    assert_int_equal(pen__profile_load(&both->learned, &ds), PEN__PROFILE_ALL);
    assert_true(pen__headers_get(&both->headers, 1, &info) && info.width == 9);
    assert_true(pen__headers_get(&both->headers, 2, &info) && info.width == 102);
    drop(first), drop(second), drop(both);
}

/* Killed while they wrote, in a container where all have this number. */
static void what_writers_left_is_in_nobodys_way(void **state)
{
    (void)state;
    mind *m = learn();
    char path[PATH_MAX + 64];
    assert_int_equal(pen__profile_save(&m->learned, &ds, NULL), 0);
    for (int i = 0; i < 30; i++) {
        snprintf(path, sizeof path, "%s.%ld-%d", path_of_file(), (long)getpid(), i);
        put_file(path, "half a file");
    }
    snprintf(path, sizeof path, "%s.%ld", path_of_file(), (long)getpid()); /* somebody else's */
    put_file(path, "something");
    assert_int_equal(pen__profile_save(&m->learned, &ds, NULL), 0);
    assert_int_equal(n_files(), 2);
    assert_int_equal(unlink(path), 0);
    drop(m);
}

static void only_an_own_file_is_read(void **state)
{
    (void)state;
    mind *before = learn(), *after = new_mind();
    assert_int_equal(pen__profile_save(&before->learned, &ds, NULL), 0);
    assert_int_equal(chmod(path_of_file(), 0666), 0);
    assert_int_equal(pen__profile_load(&after->learned, &ds), PEN__PROFILE_NONE);
    assert_int_equal(chmod(path_of_file(), 0644), 0);
    assert_int_equal(rename(path_of_file(), in_tree("other")), 0);
    assert_int_equal(symlink(in_tree("other"), path_of_file()), 0);
    assert_int_equal(pen__profile_load(&after->learned, &ds), PEN__PROFILE_NONE);
    assert_int_equal(unlink(path_of_file()), 0);
    assert_int_equal(mkfifo(path_of_file(), 0600), 0); /* and it does not wait for a writer */
    assert_int_equal(pen__profile_load(&after->learned, &ds), PEN__PROFILE_NONE);
    assert_empty(after);
    drop(before), drop(after);
}

static void where_nothing_can_be_written_the_reason_is_told(void **state)
{
    (void)state;
    mind *m = learn();
    pen_error err = {0};
    put_text("deep", "a file where a directory should be");
    assert_int_equal(pen__profile_save(&m->learned, &ds, &err), PEN_EIO);
    assert_non_null(strstr(err.text, "deep/er"));
    free(ds.cache);
    ds.cache = NULL; /* nobody wants it kept */
    assert_int_equal(pen__profile_save(&m->learned, &ds, &err), 0);
    assert_int_equal(pen__profile_load(&m->learned, &ds), PEN__PROFILE_NONE);
    drop(m);
}

static void a_full_disk_leaves_the_old_file_as_it_was(void **state)
{
    (void)state;
    mind *before = learn(), *more = learn(), *after = new_mind();
    pen_error err = {0};
    const pen_image_info info = photo(9, 9);
    struct rlimit usual, small;
    pen__headers_put(&more->headers, 1, &info);
    assert_int_equal(pen__profile_save(&before->learned, &ds, NULL), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    small = usual;
    small.rlim_cur = 300; /* half of the file */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const int rc = pen__profile_save(&more->learned, &ds, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    assert_int_equal(rc, PEN_EIO);
    assert_non_null(strstr(err.text, ".profile"));
    assert_int_equal(n_files(), 1);
    assert_int_equal(pen__profile_load(&after->learned, &ds), PEN__PROFILE_ALL);
    assert_same(before, after);
    drop(before), drop(more), drop(after);
}

static void without_memory_nothing_happens(void **state)
{
    (void)state;
    mind *m = learn(), *after = new_mind();
    assert_int_equal(pen__profile_save(&m->learned, &ds, NULL), 0);
    const int64_t live = pen__mem_live();
    pen__mem_fail_at(1);
    assert_int_equal(pen__profile_load(&after->learned, &ds), PEN__PROFILE_NONE);
    pen__mem_fail_at(2);
    assert_int_equal(pen__profile_save(&m->learned, &ds, NULL), PEN_ENOMEM);
    pen__mem_fail_at(0);
    assert_int_equal(pen__mem_live(), live);
    drop(m), drop(after);
}

static void what_is_kept_is_counted_for_people(void **state)
{
    (void)state;
    mind *m = learn();
    pen_profile_kept kept = {.bytes = 1, .n_headers = 1};
    pen_error err;
    pen_op ops[] = {pen_op_random_resized_crop(224, 224)};
    pen_pipeline *pipe = make(ops, 1);
    ds.index.n = N;
    assert_int_equal(pen_profile_find_kept(&kept, &ds, pipe, &err), 0);
    assert_true(kept.bytes == 0 && kept.n_headers == 0); /* nothing yet */
    const pen_image_info info = photo(9, 9);
    pen__headers_put(&m->headers, 1, &info); /* one of which the ratios are not known */
    assert_int_equal(pen__profile_save(&m->learned, &ds, NULL), 0);
    assert_int_equal(pen_profile_find_kept(&kept, &ds, pipe, &err), 0);
    assert_int_equal(kept.bytes, pen__profile_bytes(N));
    assert_int_equal(kept.n_headers, N / 2 + 1);
    assert_int_equal(kept.n_ratios, N / 2); /* another pipeline's, and there all the same */
    assert_false(kept.is_this_pipeline);
    m->learned.pipeline = pen_pipeline_hash(pipe);
    assert_int_equal(pen__profile_save(&m->learned, &ds, NULL), 0);
    assert_int_equal(pen_profile_find_kept(&kept, &ds, pipe, &err), 0);
    assert_int_equal(kept.n_ratios, N / 2);
    assert_true(kept.is_this_pipeline);
    const int64_t live = pen__mem_live();
    for (int i = 2; i <= 3; i++) { /* of what it takes to count */
        pen__mem_fail_at(i);
        assert_int_equal(pen_profile_find_kept(&kept, &ds, pipe, &err), PEN_ENOMEM);
        assert_int_equal(kept.bytes, 0);
    }
    pen__mem_fail_at(0);
    assert_int_equal(pen__mem_live(), live);
    put_file(path_of_file(), "damaged");
    assert_int_equal(pen_profile_find_kept(&kept, &ds, pipe, &err), 0);
    assert_int_equal(kept.bytes, 0);
    pen_pipeline_unref(pipe);
    drop(m);
}

#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, drop_place)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_learned_comes_back),
        cmocka_unit_test(another_pipeline_has_the_same_headers),
        cmocka_unit_test(what_is_known_already_stays),
        cmocka_unit_test(damage_and_strangers_are_refused),
        cmocka_unit_test(a_forged_file_says_nothing_that_could_not_be),
        IN_PLACE(a_run_begins_where_the_last_one_ended),
        IN_PLACE(runs_that_save_by_turns_add_up),
        IN_PLACE(what_writers_left_is_in_nobodys_way),
        IN_PLACE(only_an_own_file_is_read),
        IN_PLACE(where_nothing_can_be_written_the_reason_is_told),
        IN_PLACE(a_full_disk_leaves_the_old_file_as_it_was),
        IN_PLACE(without_memory_nothing_happens),
        IN_PLACE(what_is_kept_is_counted_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
