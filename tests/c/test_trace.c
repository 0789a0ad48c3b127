/* test_trace.c - traces: valid JSON, spans that nest, nothing lost or left. */
#include "testing.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/mem.h"
#include "engine/loader_impl.h"
#include "loading.h"

enum { MAX_SPANS = 4096, MAX_DEPTH = 8 };

typedef struct span {
    const char *name;
    long long thread;
    double from, to;
    json_t *args;
} span;

static char path[128];

static int by_thread_and_time(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->thread != y->thread)
        return x->thread < y->thread ? -1 : 1;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->to > y->to ? -1 : x->to < y->to; /* the outer one first */
}

static double number(const json_t *object, const char *key)
{
    assert_true(json_is_number(json_object_get(object, key)));
    return json_number_value(json_object_get(object, key));
}

/* Spans of a file in order; the tree stays for their names. */
static int read_spans(json_t **tree, span *spans)
{
    json_t *event;
    size_t i;
    int n = 0;
    *tree = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(*tree);
    json_array_foreach(json_object_get(*tree, "traceEvents"), i, event)
    {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        assert_true(json_is_string(json_object_get(event, "name")));
        assert_int_equal(number(event, "pid"), getpid());
        if (strcmp(phase, "X") != 0) {
            assert_non_null(strstr("Mbe", phase));
            continue;
        }
        assert_true(n < MAX_SPANS && number(event, "dur") >= 0);
        spans[n++] =
            (span){json_string_value(json_object_get(event, "name")),
                   (long long)number(event, "tid"), number(event, "ts"),
                   number(event, "ts") + number(event, "dur"), json_object_get(event, "args")};
    }
    qsort(spans, (size_t)n, sizeof *spans, by_thread_and_time);
    return n;
}

static bool is_stage(const char *name)
{
    return strcmp(name, "sample") != 0 && strcmp(name, "wait") != 0 && strcmp(name, "mix") != 0;
}

/* On each thread a span lies within the one around it, or after it; times are rounded to 1 ns. */
static void check_nesting(const span *spans, int n)
{
    const double slack = 0.0021;
    const span *open[MAX_DEPTH];
    int depth = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && spans[i].thread != spans[i - 1].thread)
            depth = 0;
        while (depth > 0 && open[depth - 1]->to <= spans[i].from + slack)
            depth--;
        if (depth > 0) {
            assert_true(spans[i].to <= open[depth - 1]->to + slack);
            assert_false(is_stage(open[depth - 1]->name)); /* stages hold nothing */
            if (is_stage(spans[i].name) && strcmp(open[depth - 1]->name, "sample") == 0)
                assert_true(number(spans[i].args, "sample") ==
                            number(open[depth - 1]->args, "sample"));
        }
        assert_true(depth < MAX_DEPTH);
        open[depth++] = &spans[i];
    }
}

static int count(const span *spans, int n, const char *name)
{
    int found = 0;
    for (int i = 0; i < n; i++)
        found += strcmp(spans[i].name, name) == 0;
    return found;
}

/* Epochs with a number of workers, traced from their beginning. */
static void check_trace(int workers, int epochs)
{
    static span spans[MAX_SPANS];
    json_t *tree;
    pen_loader_opts o = options(workers);
    o.ready_batches = 1;
    pen_loader *loader = open_loader(&o);
    uint64_t hash = 0;
    assert_int_equal(pen_loader_trace_start(loader, 0, NULL), 0);
    for (int i = 0; i < epochs; i++)
        assert_int_equal(take(loader, 1000, &hash), BATCHES);
    int64_t n = pen_loader_trace_stop(loader, path, NULL);
    assert_true(n > 0);
    pen_loader_free(loader);
    int found = read_spans(&tree, spans);
    assert_true(found < n); /* batches are no thread's */
    check_nesting(spans, found);
    static const char *const stages[] = {"sample", "read", "decode", "augment", "tensor"};
    for (int i = 0; i < 5; i++) /* what was prefetched is there, too */
        assert_true(count(spans, found, stages[i]) >= epochs * PICTURES);
    assert_true(count(spans, found, "wait") >= epochs * BATCHES);
    assert_int_equal(number(json_object_get(tree, "otherData"), "spans_lost"), 0);
    json_decref(tree);
    unlink(path);
}

static void spans_nest_on_every_thread(void **state)
{
    (void)state;
    check_trace(0, 2);
    check_trace(1, 2);
    check_trace(3, 5);
}

static void tracing_changes_no_byte(void **state)
{
    (void)state;
    uint64_t want = 0, hash = 0;
    pen_loader_opts o = options(2);
    pen_loader *plain = open_loader(&o), *traced = open_loader(&o);
    assert_int_equal(pen_loader_trace_start(traced, 0, NULL), 0);
    take(plain, BATCHES, &want);
    take(traced, BATCHES, &hash);
    assert_true(hash == want);
    pen_loader_free(plain);
    pen_loader_free(traced); /* while it is on */
}

static void a_trace_is_bounded_and_says_what_it_lost(void **state)
{
    (void)state;
    static span spans[MAX_SPANS];
    json_t *tree;
    uint64_t hash = 0;
    pen_loader_opts o = options(2);
    pen_loader *loader = open_loader(&o);
    assert_int_equal(pen_loader_trace_start(loader, 10, NULL), 0);
    take(loader, BATCHES, &hash);
    assert_int_equal(pen_loader_trace_stop(loader, path, NULL), 10);
    assert_true(read_spans(&tree, spans) <= 10);
    assert_true(number(json_object_get(tree, "otherData"), "spans_lost") > 0);
    json_decref(tree);
    unlink(path);
    pen_loader_free(loader);
}

static void misuse_is_refused(void **state)
{
    (void)state;
    int64_t live = pen__mem_live();
    pen_loader_opts o = options(0);
    pen_loader *loader = open_loader(&o);
    pen_error err;
    assert_int_equal(pen_loader_trace_stop(loader, path, &err), PEN_EINVAL);
    assert_int_equal(pen_loader_trace_start(loader, -1, &err), PEN_EINVAL);
    assert_int_equal(pen_loader_trace_start(loader, PEN_TRACE_MAX_SPANS + 1, &err), PEN_EINVAL);
    assert_int_equal(pen_loader_trace_start(loader, 100, &err), 0);
    assert_int_equal(pen_loader_trace_start(loader, 100, &err), PEN_EINVAL);
    assert_int_equal(pen_loader_trace_stop(loader, "/nowhere/at/all.json", &err), PEN_EIO);
    assert_int_equal(pen_loader_trace_start(loader, 100, &err), 0); /* the other one is gone */
    assert_int_equal(pen_loader_trace_stop(loader, NULL, &err), 0);
    pen_loader_free(loader);
    assert_int_equal(pen__mem_live(), live);
}

static _Atomic int is_done;

static void *start_and_stop(void *loader)
{
    for (int i = 0; i < 300; i++) {
        assert_int_equal(pen_loader_trace_start(loader, i % 50, NULL), 0);
        assert_true(pen_loader_trace_stop(loader, NULL, NULL) >= 0);
    }
    is_done = 1;
    return NULL;
}

static void it_begins_and_ends_while_workers_are_at_it(void **state)
{
    (void)state;
    uint64_t hash = 0;
    pen_loader_opts o = options(3);
    pen_loader *loader = open_loader(&o);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, start_and_stop, loader), 0);
    while (!is_done)
        take(loader, BATCHES, &hash);
    pthread_join(thread, NULL);
    pen_loader_free(loader);
}

static int set_up(void **state)
{
    int rc = make_world(state);
    snprintf(path, sizeof path, "%s.trace.json", dir);
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_nest_on_every_thread),
        cmocka_unit_test(tracing_changes_no_byte),
        cmocka_unit_test(a_trace_is_bounded_and_says_what_it_lost),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(it_begins_and_ends_while_workers_are_at_it),
    };
    return cmocka_run_group_tests(tests, set_up, unmake_world);
}
