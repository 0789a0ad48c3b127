/* test_remote_fields.c - fields beside images, from a storage node to its clients: what is asked,
 * what is answered, and threads and memory for sanitizers to watch.  Bad servers are
 * tests/python/test_remote_fields.py's. */
#include "trees.h"

#include <pthread.h>
#include <sys/wait.h>

#include "asking.h"
#include "base/mem.h"
#include "engine/field_parcel.h"
#include "remote/remote_part.h"

enum { N_SAMPLES = 40, N_THREADS = 6, MAX_FIELD = 1 << 17 };

static struct world {
    pen_node *node;
    pen_dataset *ds;
    int port;
} world;

/* Each combination of fields, from nothing to more than a packet; sample 5's txt is empty. */
static void put_tar(const char *path)
{
    static char text[MAX_FIELD];
    tar_maker tar = {0};
    char name[64];
    for (int i = 0; i < N_SAMPLES; i++) {
        snprintf(name, sizeof name, "d/%03d.jpg", i);
        tar_text(&tar, name, name);
        snprintf(name, sizeof name, "d/%03d.cls", i);
        if (i & 1)
            tar_text(&tar, name, i & 8 ? "3\n" : "12");
        for (size_t k = 0; k < sizeof text; k++)
            text[k] = "{\"a\": [1, 2, 3]}, "[(k + k / (size_t)(i + 1)) % 18];
        snprintf(name, sizeof name, "d/%03d.json", i);
        if (i & 2)
            tar_add(&tar, '0', name, text, (size_t)(i * i * 60));
        snprintf(name, sizeof name, "d/%03d.txt", i);
        if (i & 4)
            tar_add(&tar, '0', name, "\xff\xfe no text \0 at all", i == 5 ? 0 : 19);
    }
    tar_end(&tar);
    tar_put(&tar, path);
}

static int world_setup(void **state)
{
    tree_setup(state);
    setenv("PENSTOCK_REMOTE_TIMEOUT", "20", 1);
    put_tar("d.tar");
    pen_dataset_opts opts = tree_opts(false);
    world.ds = open_ok(in_tree("d.tar"), &opts);
    pen_node_opts node;
    pen_node_opts_init(&node);
    node.listen = "127.0.0.1:0";
    node.cpus = 2;
    pen_error err = {0};
    if (pen_node_create(&world.node, &node, &err) ||
        pen_node_add(world.node, "data", in_tree("d.tar"), &opts, &err) ||
        pen_node_start(world.node, &err))
        fail_msg("%s", err.text);
    world.port = port_of(world.node);
    return 0;
}

static int world_teardown(void **state)
{
    pen_node_free(world.node);
    pen_dataset_unref(world.ds);
    return tree_teardown(state);
}

static const char *address(void)
{
    static char text[64];
    snprintf(text, sizeof text, "penstock://127.0.0.1:%d/data", world.port);
    return text;
}

/* ---- a node's answers ---- */

static void a_field_is_got_by_its_name(void **state)
{
    (void)state;
    static uint8_t want[MAX_FIELD];
    char path[64];
    size_t len;
    for (int64_t id = 0; id < N_SAMPLES; id++)
        for (int field = 1; field < PEN_FIELD_COUNT; field++) {
            const int64_t n =
                pen_dataset_field_read(world.ds, id, (pen_field)field, want, sizeof want, NULL);
            snprintf(path, sizeof path, "/v1/data/data/samples/%lld/%s", (long long)id,
                     pen_field_name((pen_field)field));
            assert_int_equal(get(world.port, path), n == PEN_ENOTFOUND ? 404 : 200);
            const char *body = body_of_answer(&len);
            if (n == PEN_ENOTFOUND) {
                assert_non_null(strstr(body, "has no such field"));
                continue;
            }
            assert_int_equal(len, n);
            assert_memory_equal(body, want, len);
        }
    assert_int_equal(ask(world.port, "GET /v1/data/data/samples/7/txt", "Range: bytes=2-4\r\n", ""),
                     206);
    assert_memory_equal(body_of_answer(&len), " no", 3);
    assert_int_equal(get(world.port, "/v1/data/data/samples/40/txt"), 404);
    assert_non_null(strstr(body_of_answer(&len), "no such sample"));
    assert_int_equal(get(world.port, "/v1/data/data/samples/7/image"), 404);
    assert_int_equal(ask(world.port, "POST /v1/data/data/samples/7/txt", "", "x"), 405);
}

/* The frame of an item alone; its status and its body. */
static int frame_of(const char *item, const uint8_t **body, size_t *len)
{
    char items[64];
    sent_frame frame;
    snprintf(items, sizeof items, "[%s]", item);
    assert_int_equal(post(world.port, NULL, items), 200);
    assert_int_equal(read_frames(&frame, 1), 1);
    *body = frame.body;
    *len = frame.len;
    return frame.status;
}

static void a_frame_has_the_smallest_form_that_is_allowed(void **state)
{
    (void)state;
    const uint8_t *body;
    size_t len;
    pen__bytes_coder *coder;
    static uint8_t want[MAX_FIELD], got[MAX_FIELD];
    const int64_t n = pen_dataset_field_read(world.ds, 10, PEN_FIELD_JSON, want, sizeof want, NULL);
    assert_int_equal(n, 6000);
    assert_int_equal(pen__bytes_coder_create(&coder), 0);
    for (int form = 0; form < PEN__FORM_COUNT; form++) {
        char item[64];
        snprintf(item, sizeof item, "[10,\"json\",%u]", 1U << form);
        assert_int_equal(frame_of(item, &body, &len), 0);
        const bool is_coded = form >= PEN__FORM_ZSTD;
        assert_int_equal(body[1], is_coded ? form : PEN__FORM_RAW);
        assert_int_equal(pen__field_check(body, len, PEN_FIELD_JSON, 1U << form, (size_t)n, NULL),
                         0);
        if (is_coded)
            assert_int_equal(pen__field_unpack(coder, body, body + 8, len - 8, got, 6000, NULL), 0);
        assert_memory_equal(is_coded ? got : body + 8, want, (size_t)n);
    }
    assert_int_equal(frame_of("[1,\"cls\",113]", &body, &len), 0);
    assert_int_equal(len, 8 + 2); /* tiny: as it is */
    assert_int_equal(frame_of("[0,\"json\",113]", &body, &len), PEN_ENOTFOUND);
    assert_non_null(memmem(body, len, "has no such field", 17));
    assert_int_equal(frame_of("[40,\"json\",113]", &body, &len), PEN_EINVAL);
    assert_non_null(memmem(body, len, "no sample 40", 12));
    pen__bytes_coder_free(coder);
}

/* ---- a client ---- */

static void fields_are_those_of_the_local_path(const pen_dataset *ds, int64_t at)
{
    static uint8_t got[MAX_FIELD], want[MAX_FIELD];
    for (int64_t i = 0; i < N_SAMPLES; i++)
        for (int field = 1; field < PEN_FIELD_COUNT; field++) {
            pen_error err = {0};
            const int64_t n =
                pen_dataset_field_read(world.ds, i, (pen_field)field, want, sizeof want, NULL);
            assert_int_equal(pen_dataset_field_length(ds, at + i, (pen_field)field), n);
            if (n > 0)
                assert_int_equal(
                    pen_dataset_field_read(ds, at + i, (pen_field)field, got, (size_t)n - 1, &err),
                    PEN_ENOSPC);
            if (pen_dataset_field_read(ds, at + i, (pen_field)field, got, sizeof got, &err) != n)
                fail_msg("sample %lld: %s", (long long)i, err.text);
            if (n > 0)
                assert_memory_equal(got, want, (size_t)n);
        }
}

static void a_remote_dataset_has_the_fields(void **state)
{
    (void)state;
    pen_dataset *ds = open_ok(address(), NULL);
    assert_string_equal(pen_dataset_hash(ds), pen_dataset_hash(world.ds));
    fields_are_those_of_the_local_path(ds, 0);
    pen_dataset_unref(ds);
}

static void shards_and_replicas_have_them(void **state)
{
    (void)state;
    char spec[128];
    for (int i = 0; i < 2; i++) {
        snprintf(spec, sizeof spec, "penstock://127.0.0.1:%d%clocalhost:%d/data", world.port,
                 "+,"[i], world.port);
        pen_dataset *ds = open_ok(spec, NULL);
        assert_int_equal(pen_dataset_count(ds), i == 0 ? 2 * N_SAMPLES : N_SAMPLES);
        fields_are_those_of_the_local_path(ds, i == 0 ? N_SAMPLES : 0);
        pen_dataset_unref(ds);
    }
}

/* All samples' field together, in any order and some twice; freed by the next. */
typedef struct together {
    int64_t ids[3 * N_SAMPLES];
    uint8_t *dst[3 * N_SAMPLES];
} together;

static void prepare(together *t, const pen_dataset *ds, pen_field field)
{
    for (int i = 0; i < 3 * N_SAMPLES; i++) {
        t->ids[i] = i * 7 % N_SAMPLES;
        const int64_t n = pen_dataset_field_length(ds, t->ids[i], field);
        t->dst[i] = n < 0 ? NULL : malloc(n > 0 ? (size_t)n : 1);
    }
}

static int finish(together *t, pen_field field, bool is_right)
{
    int n_wrong = 0;
    uint8_t *want = malloc(MAX_FIELD);
    for (int i = 0; i < 3 * N_SAMPLES; i++) {
        const int64_t n = pen_dataset_field_read(world.ds, t->ids[i], field, want, MAX_FIELD, NULL);
        n_wrong += t->dst[i] ? n < 0 || memcmp(t->dst[i], want, (size_t)n) != 0 : n >= 0;
        free(t->dst[i]);
    }
    free(want);
    return is_right ? n_wrong : 0;
}

static int read_together(const pen_dataset *ds, pen_field field)
{
    together *t = malloc(sizeof *t);
    pen_error err = {0};
    prepare(t, ds, field);
    const int rc = pen_dataset_fields_read(ds, t->ids, 3 * N_SAMPLES, field, t->dst, &err);
    const int n_wrong = finish(t, field, rc == 0);
    free(t);
    return rc ? rc : n_wrong;
}

typedef struct reader {
    pthread_t thread;
    pen_dataset *ds;
    int n_wrong;
} reader;

static void *read_often(void *arg)
{
    reader *r = arg;
    for (int i = 0; i < 9; i++)
        r->n_wrong += read_together(r->ds, (pen_field)(1 + i % 3)) != 0;
    return NULL;
}

static void many_are_read_together_by_many(void **state)
{
    (void)state;
    pen_dataset *ds = open_ok(address(), NULL);
    for (int field = 1; field < PEN_FIELD_COUNT; field++) {
        assert_int_equal(read_together(ds, (pen_field)field), 0);
        assert_int_equal(read_together(world.ds, (pen_field)field), 0); /* and of a tar */
    }
    reader readers[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        readers[i] = (reader){.ds = ds};
        pthread_create(&readers[i].thread, NULL, read_often, &readers[i]);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(readers[i].thread, NULL);
        assert_int_equal(readers[i].n_wrong, 0);
    }
    int64_t ids[] = {2, 999};
    uint8_t room[8192], *dst[] = {room, room};
    pen_error err;
    assert_int_equal(pen_dataset_fields_read(ds, ids, 2, PEN_FIELD_JSON, dst, &err), PEN_EINVAL);
    ids[1] = 0; /* has none */
    assert_int_equal(pen_dataset_fields_read(ds, ids, 2, PEN_FIELD_JSON, dst, &err), PEN_ENOTFOUND);
    dst[1] = NULL;
    assert_int_equal(pen_dataset_fields_read(ds, ids, 2, PEN_FIELD_JSON, dst, &err), 0);
    assert_int_equal(pen_dataset_fields_read(ds, ids, 0, PEN_FIELD_JSON, dst, &err), 0);
    pen_dataset_unref(ds);
}

static int leave(void *ctx)
{
    return ++*(int *)ctx == 2;
}

static void who_waits_for_fields_may_leave(void **state)
{
    (void)state;
    int n_calls = 0;
    pen_dataset_opts opts = tree_opts(false);
    opts.waiting = leave;
    opts.waiting_ctx = &n_calls;
    pen_dataset *ds = open_ok(address(), &opts);
    pen_node_free(world.node); /* nobody is there any more */
    world.node = NULL;
    assert_int_equal(read_together(ds, PEN_FIELD_JSON), PEN_ECANCELED);
    assert_int_equal(n_calls, 2);
    pen_dataset_unref(ds);
}

static void time_runs_out_for_all_of_them_at_once(void **state)
{
    (void)state;
    setenv("PENSTOCK_REMOTE_TIMEOUT", "0.3", 1);
    pen_dataset *ds = open_ok(address(), NULL);
    pen_node_free(world.node);
    world.node = NULL;
    uint8_t room[8192];
    pen_error err = {0};
    assert_int_equal(read_together(ds, PEN_FIELD_JSON), PEN_EIO);
    assert_int_equal(pen_dataset_field_read(ds, 2, PEN_FIELD_JSON, room, sizeof room, &err),
                     PEN_EIO);
    assert_non_null(strstr(err.text, "sample 'd/002': its json: could not be had in"));
    pen_dataset_unref(ds);
}

static void a_child_of_a_fork_is_told_so(void **state)
{
    (void)state;
    pen_dataset *ds = open_ok(address(), NULL);
    assert_int_equal(read_together(ds, PEN_FIELD_TXT), 0);
    pid_t child = fork();
    if (child == 0) {
        uint8_t room[64];
        _exit(pen_dataset_field_read(ds, 7, PEN_FIELD_TXT, room, 64, NULL) == PEN_EFORK ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    pen_dataset_unref(ds);
}

static void places_of_fields_are_no_ids(void **state)
{
    (void)state;
    for (int field = 1; field < PEN_FIELD_COUNT; field++) {
        const uint32_t block = pen__part_field_block((pen_field)field);
        assert_true(block > PEN__PART_MAX_SAMPLES);
        assert_int_equal(pen__part_block_field(block), field);
    }
    assert_int_equal(pen__part_block_field(0), PEN_FIELD_IMAGE);
    assert_int_equal(pen__part_block_field(1), PEN_FIELD_IMAGE);
    assert_int_equal(pen__part_block_field(PEN__PART_MAX_SAMPLES), PEN_FIELD_IMAGE);
}

#define WORLD_TEST(test) cmocka_unit_test_setup_teardown(test, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(a_field_is_got_by_its_name),
        WORLD_TEST(a_frame_has_the_smallest_form_that_is_allowed),
        WORLD_TEST(a_remote_dataset_has_the_fields),
        WORLD_TEST(shards_and_replicas_have_them),
        WORLD_TEST(many_are_read_together_by_many),
        WORLD_TEST(who_waits_for_fields_may_leave),
        WORLD_TEST(time_runs_out_for_all_of_them_at_once),
        WORLD_TEST(a_child_of_a_fork_is_told_so),
        cmocka_unit_test(places_of_fields_are_no_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
