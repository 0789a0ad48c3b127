/* test_control.c - the thread that asks the policy: the stream stays, the log can be replayed. */
#include "testing.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "loading.h"
#include "policy/policies.h"

enum { LINES = 25 };

static pen_loader_opts controlled(const char *policy, const char *log)
{
    pen_loader_opts o = options(-1);
    o.policy = pen_policy_find(policy);
    o.period_ms = 2;
    o.decision_log = log;
    return o;
}

static uint64_t epoch_hash(pen_loader *loader, int64_t epoch)
{
    uint64_t hash = 0;
    assert_int_equal(pen_loader_seek(loader, epoch, 0, NULL), 0);
    assert_int_equal(take(loader, 1000, &hash), BATCHES);
    return hash;
}

static uint64_t inline_hash(void)
{
    pen_loader_opts o = options(0);
    pen_loader *loader = open_loader(&o);
    uint64_t hash = epoch_hash(loader, 3);
    pen_loader_free(loader);
    return hash;
}

static int count_lines(const char *path)
{
    FILE *f = fopen(path, "r");
    int n = 0;
    for (int c; f && (c = fgetc(f)) != EOF;)
        n += c == '\n';
    if (f)
        fclose(f);
    return n;
}

/* Epochs until the policy was asked often. */
static void make_log(const char *policy, const char *path)
{
    const uint64_t want = inline_hash();
    pen_loader_opts o = controlled(policy, path);
    pen_loader *loader = open_loader(&o);
    while (count_lines(path) < LINES)
        assert_true(epoch_hash(loader, 3) == want);
    assert_string_equal(pen_loader_policy(loader), policy);
    pen_loader_free(loader);
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_non_null(value);
    return json_is_null(value) ? NAN : json_number_value(value);
}

static void read_state(const json_t *object, pen_policy_state *state)
{
    int n;
    const pen_state_field *fields = pen_policy_fields(&n);
    assert_int_equal(json_object_size(object), n);
    for (int i = 0; i < n; i++)
        *(double *)(void *)((char *)state + fields[i].offset) = number(object, fields[i].name);
}

static void read_knobs(const json_t *object, pen_knobs *knobs, const pen_knob_info *table)
{
    pen_knobs_init(knobs);
    for (int i = 0; i < PEN_KNOB_COUNT; i++)
        knobs->value[i] = number(object, table[i].name);
}

static void read_table(const json_t *line, const pen_loader *loader, pen_knob_info *table)
{
    const json_t *limits = json_object_get(line, "limits"), *pin;
    for (int i = 0; i < PEN_KNOB_COUNT; i++) {
        assert_int_equal(pen_loader_knob(loader, i, &table[i]), 0); /* for the names */
        const json_t *range = json_object_get(limits, table[i].name);
        table[i].min = json_number_value(json_array_get(range, 0));
        table[i].max = json_number_value(json_array_get(range, 1));
        table[i].is_pinned = false;
        size_t k;
        json_array_foreach(json_object_get(line, "pinned"), k, pin) table[i].is_pinned |=
            strcmp(json_string_value(pin), table[i].name) == 0;
    }
}

/* Put every line of the log through the policy again. */
static int replay(const char *path)
{
    pen_loader_opts o = options(0);
    pen_loader *loader = open_loader(&o);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    static char text[1 << 16], memory[1 << 12];
    int n = 0;
    while (fgets(text, sizeof text, f)) {
        json_t *line = json_loads(text, 0, NULL);
        assert_non_null(line);
        assert_int_equal(json_integer_value(json_object_get(line, "v")), 1);
        assert_int_equal(json_integer_value(json_object_get(line, "period")), n + 1);
        const char *name = json_string_value(json_object_get(line, "policy"));
        const pen_knob_policy *policy = pen_policy_find(name);
        assert_non_null(policy);
        pen_policy_state state;
        pen_knob_info table[PEN_KNOB_COUNT];
        pen_knobs knobs, wanted;
        char reason[PEN_REASON_CAP] = "";
        read_state(json_object_get(line, "state"), &state);
        read_table(line, loader, table);
        read_knobs(json_object_get(line, "knobs"), &knobs, table);
        read_knobs(json_object_get(line, "wanted"), &wanted, table);
        if (json_is_true(json_object_get(line, "fresh")))
            memset(memory, 0, sizeof memory);
        if (policy->decide)
            policy->decide(memory, &state, table, &knobs, reason);
        assert_memory_equal(knobs.value, wanted.value, sizeof knobs.value);
        assert_string_equal(json_string_value(json_object_get(line, "reason")), reason);
        assert_non_null(json_object_get(json_object_get(line, "outcome"), "samples_per_s"));
        json_decref(line);
        n++;
    }
    fclose(f);
    pen_loader_free(loader);
    return n;
}

static void a_log_put_through_its_policy_gives_the_same_decisions(void **state)
{
    (void)state;
    static const char *const names[] = {"fixed", "rules", "hillclimb", "model"};
    char path[128];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s.log", dir);
        unlink(path);
        make_log(names[i], path);
        assert_true(replay(path) >= LINES);
        unlink(path);
    }
}

static void switching_policies_changes_no_byte_and_leaves_nothing(void **state)
{
    (void)state;
    const uint64_t want = inline_hash();
    int64_t live = pen__mem_live();
    char path[128];
    snprintf(path, sizeof path, "%s.log", dir);
    unlink(path);
    pen_loader_opts o = controlled("fixed", path);
    pen_loader *loader = open_loader(&o);
    for (int i = 0; i < 60 || count_lines(path) < LINES; i++) {
        assert_int_equal(pen_loader_set_policy(loader, pen_policy_at(i % 5), NULL), 0);
        assert_string_equal(pen_loader_policy(loader),
                            i % 5 < 4 ? pen_policy_at(i % 5)->name : "fixed");
        assert_true(epoch_hash(loader, 3) == want);
    }
    char reason[PEN_REASON_CAP];
    assert_true(pen_loader_reason(loader, reason, sizeof reason) >= 0);
    pen_loader_free(loader);
    replay(path);
    unlink(path);
    assert_int_equal(pen__mem_live(), live);
}

static _Atomic int n_asked;

/* Turns everything to an end of its range, and asks for what is not allowed. */
static void decide_wildly(void *memory, const pen_policy_state *s, const pen_knob_info *table,
                          pen_knobs *knobs, char *reason)
{
    int *turn = memory;
    (void)s;
    ++*turn;
    for (int i = 0; i < PEN_KNOB_COUNT; i++)
        knobs->value[i] = (*turn + i) % 2 ? fmin(table[i].max, 40) * 1.5 : -1;
    snprintf(reason, PEN_REASON_CAP, "turn %d", *turn);
    atomic_fetch_add(&n_asked, 1);
}

static void a_policy_of_ones_own_is_clamped_and_pins_are_kept(void **state)
{
    (void)state;
    const pen_knob_policy wild = {
        .name = "wild", .memory_bytes = sizeof(int), .decide = decide_wildly};
    const uint64_t want = inline_hash();
    pen_loader_opts o = options(2); /* named: pinned */
    o.policy = &wild;
    o.period_ms = 1;
    pen_loader *loader = open_loader(&o);
    while (atomic_load(&n_asked) < 50) {
        assert_true(epoch_hash(loader, 3) == want);
        pen_knobs knobs;
        assert_int_equal(pen_loader_get_knobs(loader, &knobs), 0);
        assert_true(knobs.value[PEN_KNOB_WORKERS] == 2);
        for (int i = 0; i < PEN_KNOB_COUNT; i++) {
            pen_knob_info info;
            pen_loader_knob(loader, i, &info);
            assert_true(knobs.value[i] >= info.min && knobs.value[i] <= info.max);
        }
        assert_true(knobs.value[PEN_KNOB_SHARE_DECODE] == 0); /* they never summed to 1 */
    }
    pen_loader_free(loader);
}

/* The disk was full, or the power went: what follows is lines again, each with its loader. */
static void a_line_that_was_cut_off_spoils_no_other(void **state)
{
    (void)state;
    static char text[1 << 16];
    char path[128], names[2][64] = {"", ""};
    snprintf(path, sizeof path, "%s.log", dir);
    FILE *f = fopen(path, "w");
    assert_true(fputs("{\"v\":1,\"per", f) >= 0 && fclose(f) == 0);
    make_log("fixed", path);
    const int n_first = count_lines(path);
    pen_loader_opts o = controlled("fixed", path);
    pen_loader *loader = open_loader(&o);
    while (count_lines(path) == n_first)
        epoch_hash(loader, 3);
    pen_loader_free(loader);
    f = fopen(path, "r");
    for (int i = 0; fgets(text, sizeof text, f); i++) {
        json_t *line = json_loads(text, 0, NULL);
        assert_int_equal(line != NULL, i > 0);
        if (line)
            snprintf(names[i >= n_first], sizeof names[0], "%s",
                     json_string_value(json_object_get(line, "loader")));
        json_decref(line);
    }
    fclose(f);
    unlink(path);
    assert_string_not_equal(names[0], names[1]);
}

static void a_log_that_cannot_be_opened_is_an_error(void **state)
{
    (void)state;
    pen_loader_opts o = controlled("model", "/nowhere/at/all");
    pen_loader *loader;
    pen_error err;
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), PEN_EIO);
    assert_non_null(strstr(err.text, "decision log"));
    assert_null(loader);
    o = options(1);
    o.period_ms = 0;
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), PEN_EINVAL);
}

static void stats_add_up(void **state)
{
    (void)state;
    pen_loader_opts o = options(2);
    pen_loader *loader = open_loader(&o);
    uint64_t hash = 0;
    assert_int_equal(take(loader, 1000, &hash), BATCHES);
    pen_pipeline_stats s = PEN_PIPELINE_STATS_INIT;
    assert_int_equal(pen_loader_get_pipeline_stats(loader, &s), 0);
    assert_int_equal(s.batches, BATCHES);
    assert_int_equal(s.samples, PICTURES);
    assert_int_equal(s.bytes_out, PICTURES * (int64_t)pen_pipeline_shape(pipe_).bytes);
    assert_true(s.bytes_in >= pen_dataset_bytes(ds));
    assert_int_equal(s.stages[PEN_STAGE_WAIT].count, BATCHES);
    assert_int_equal(s.stages[PEN_STAGE_STEP].count, BATCHES - 1);
    for (int i = PEN_STAGE_READ; i <= PEN_STAGE_TENSOR; i++) {
        const pen_stage_stats *t = &s.stages[i];
        assert_true(t->count >= PICTURES);
        assert_true(t->p50_s <= t->p95_s && t->p95_s <= t->p99_s);
        assert_true(t->mean_s > 0 && fabs(t->mean_s * (double)t->count - t->total_s) < 1e-9);
    }
    assert_true(s.stages[PEN_STAGE_BATCH].count >= BATCHES);
    assert_int_equal(s.ahead_samples, 128);
    assert_true(s.ahead_bytes > 0 && s.ahead_cost_s > 0);
    s.struct_size = sizeof s + 8;
    assert_int_equal(pen_loader_get_pipeline_stats(loader, &s), PEN_EINVAL);
    s.struct_size = offsetof(pen_pipeline_stats, bytes_in); /* an older caller */
    s.bytes_in = -77;
    assert_int_equal(pen_loader_get_pipeline_stats(loader, &s), 0);
    assert_int_equal(s.bytes_in, -77);
    s.struct_size = offsetof(pen_pipeline_stats, cache_hits); /* of the version before */
    s.cache_hits = -77;
    assert_int_equal(pen_loader_get_pipeline_stats(loader, &s), 0);
    assert_int_equal(s.cache_hits, -77);
    char line[PEN_VERDICT_MAX];
    assert_true(pen_loader_verdict(loader, line, sizeof line) > 0);
    assert_non_null(strstr(line, "training waits"));
    assert_int_equal(pen_loader_verdict(loader, line, 5), PEN_ENOSPC);
    pen_loader_free(loader);
}

/* A policy that always has something to say. */
static atomic_int n_said;

static void talk(void *memory, const pen_policy_state *seen, const pen_knob_info *table,
                 pen_knobs *knobs, char *reason)
{
    (void)memory, (void)seen, (void)table, (void)knobs;
    snprintf(reason, PEN_REASON_CAP, "as before");
    atomic_fetch_add(&n_said, 1);
}

static void why_a_log_was_given_up_is_said_from_then_on(void **state)
{
    (void)state;
    static const pen_knob_policy talker = {.name = "talker", .decide = talk};
    pen_loader_opts o = controlled("fixed", "/dev/full");
    o.policy = &talker;
    pen_loader *loader = open_loader(&o);
    uint64_t hash = 0;
    take(loader, 1, &hash);
    for (int said = atomic_load(&n_said); atomic_load(&n_said) < said + 3;)
        usleep(1000);
    char reason[PEN_REASON_CAP];
    assert_true(pen_loader_reason(loader, reason, sizeof reason) > 0);
    const char *want = "the decision log cannot be written: No space left on device; as before";
    assert_string_equal(reason, want);
    assert_int_equal(pen_loader_reason(loader, reason, 10), PEN_ENOSPC);
    pen_loader_free(loader);
}

/* When a policy was first asked, and about how long. */
static _Atomic int64_t asked_ns;
static _Atomic double first_period_s;

static void note_period(void *memory, const pen_policy_state *seen, const pen_knob_info *table,
                        pen_knobs *knobs, char *reason)
{
    (void)memory, (void)table, (void)knobs, (void)reason;
    if (atomic_load(&asked_ns))
        return;
    atomic_store(&first_period_s, seen->period_s);
    atomic_store(&asked_ns, pen__now_ns());
}

/* Else its first state would be the mean of an hour. */
static void a_policy_is_told_nothing_of_the_time_before_it(void **state)
{
    (void)state;
    static const pen_knob_policy noter = {.name = "noter", .decide = note_period};
    pen_loader_opts o = controlled("model", NULL);
    pen_loader *loader = open_loader(&o);
    uint64_t hash = 0;
    take(loader, 1, &hash);
    assert_int_equal(pen_loader_set_policy(loader, NULL, NULL), 0);
    usleep(50000);
    const int64_t begin_ns = pen__now_ns();
    assert_int_equal(pen_loader_set_policy(loader, &noter, NULL), 0);
    while (!atomic_load(&asked_ns))
        usleep(1000);
    assert_true(atomic_load(&first_period_s) <= (double)(asked_ns - begin_ns) * 1e-9);
    pen_loader_free(loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_log_put_through_its_policy_gives_the_same_decisions),
        cmocka_unit_test(switching_policies_changes_no_byte_and_leaves_nothing),
        cmocka_unit_test(a_policy_of_ones_own_is_clamped_and_pins_are_kept),
        cmocka_unit_test(a_line_that_was_cut_off_spoils_no_other),
        cmocka_unit_test(a_log_that_cannot_be_opened_is_an_error),
        cmocka_unit_test(why_a_log_was_given_up_is_said_from_then_on),
        cmocka_unit_test(a_policy_is_told_nothing_of_the_time_before_it),
        cmocka_unit_test(stats_add_up),
    };
    return cmocka_run_group_tests(tests, make_world, unmake_world);
}
