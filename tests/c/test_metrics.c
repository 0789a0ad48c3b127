/* test_metrics.c - a loader as OpenMetrics and as JSON. */
#include "testing.h"

#include <jansson.h>
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "commas.h"
#include "engine/loader_impl.h"
#include "engine/recent.h"
#include "engine/views.h"
#include "loading.h"
#include "openmetrics.h"

static char text[PEN_METRICS_MAX];
static om_text parsed;

static const char *series(const pen_loader *loader, const char *name, const char *labels)
{
    static char out[256];
    snprintf(out, sizeof out, "%s{loader=\"%lld\"%s}", name, (long long)loader->number, labels);
    return out;
}

static double value(const pen_loader *loader, const char *name, const char *labels)
{
    return om_value(&parsed, series(loader, name, labels));
}

static double number(const json_t *object, const char *key)
{
    assert_true(json_is_number(json_object_get(object, key)));
    return json_number_value(json_object_get(object, key));
}

static pen_loader *loader_after(int batches, const pen_loader_opts *o)
{
    pen_loader *loader = open_loader(o);
    uint64_t hash = 0;
    assert_int_equal(take(loader, batches, &hash), batches);
    return loader;
}

static void metrics_say_what_the_statistics_say(void **state)
{
    (void)state;
    pen_loader_opts o = options(0);
    pen_loader *loader = loader_after(3, &o);
    int64_t n = pen_loader_metrics(loader, text, sizeof text);
    assert_true(n > 0 && (size_t)n == strlen(text));
    om_parse(text, &parsed);
    pen_loader_stats totals;
    pen_pipeline_stats pipe = PEN_PIPELINE_STATS_INIT;
    pen_loader_get_stats(loader, &totals);
    assert_int_equal(pen_loader_get_pipeline_stats(loader, &pipe), 0);
    assert_true(value(loader, "penstock_batches_total", "") == 3);
    assert_true(value(loader, "penstock_samples_total", "") == 3 * BATCH);
    assert_true(value(loader, "penstock_input_bytes_total", "") == (double)pipe.bytes_in);
    assert_true(value(loader, "penstock_budget_bytes", "") == (double)pipe.budget_bytes);
    assert_true(fabs(value(loader, "penstock_wait_seconds_total", "") -
                     (double)totals.wait_ns * 1e-9) < 1e-6);
    for (int i = 0; i < PEN_STAGE_COUNT; i++) {
        char labels[64];
        snprintf(labels, sizeof labels, ",stage=\"%s\"", pen_stage_name(i));
        assert_true(value(loader, "penstock_stage_seconds_count", labels) ==
                    (double)pipe.stages[i].count);
        assert_true(fabs(value(loader, "penstock_stage_variation", labels) -
                         pipe.stages[i].variation) < 1e-6);
    }
    assert_true(value(loader, "penstock_stage_seconds", ",stage=\"decode\",quantile=\"0.99\"") > 0);
    assert_true(value(loader, "penstock_knob_pinned", ",knob=\"workers\"") == 1);
    assert_true(value(loader, "penstock_knob", ",knob=\"ready_batches\"") == 2);
    assert_true(value(loader, "penstock_policy_info", ",policy=\"fixed\"") == 1);
    pen_loader_free(loader);
}

static void both_views_tell_how_many_files_had_an_entry(void **state)
{
    (void)state;
    pen_loader_opts o = options(0);
    o.use_index = true;
    pen_loader *loader = loader_after(BATCHES, &o);
    pen_loader_stats totals;
    pen_loader_get_stats(loader, &totals);
    assert_true(totals.jpeg_indexed + totals.jpeg_plain > 0);
    assert_true(pen_loader_metrics(loader, text, sizeof text) > 0);
    om_parse(text, &parsed);
    assert_true(value(loader, "penstock_cache_hits_total", "") == (double)totals.jpeg_indexed);
    assert_true(value(loader, "penstock_cache_misses_total", "") == (double)totals.jpeg_plain);
    assert_true(pen_loader_status(loader, text, sizeof text) > 0);
    json_t *status = json_loads(text, 0, NULL);
    assert_true(number(status, "cache_hits") == (double)totals.jpeg_indexed);
    assert_true(number(status, "cache_misses") == (double)totals.jpeg_plain);
    json_decref(status);
    pen_loader_free(loader);
}

static void a_loader_that_has_not_begun_is_legal_text(void **state)
{
    (void)state;
    pen_loader_opts o = options(1);
    o.order = PEN_ORDER_FED; /* what comes is not known, and left out */
    pen_loader *loader = open_loader(&o);
    assert_true(pen_loader_metrics(loader, text, sizeof text) > 0);
    assert_null(strstr(text, "\npenstock_ahead_bytes{"));
    assert_null(strstr(text, "quantile"));
    om_parse(text, &parsed);
    assert_true(pen_loader_status(loader, text, sizeof text) > 0);
    json_t *status = json_loads(text, 0, NULL);
    assert_true(json_is_null(json_object_get(status, "ahead_bytes")));
    assert_int_equal(json_array_size(json_object_get(status, "wait_shares")), 0);
    json_decref(status);
    pen_loader_free(loader);
}

static void say_something(void *memory, const pen_policy_state *s, const pen_knob_info *table,
                          pen_knobs *knobs, char *reason)
{
    (void)memory, (void)s, (void)table, (void)knobs;
    snprintf(reason, PEN_REASON_CAP, "because\n\"so\"");
}

static void names_are_escaped(void **state)
{
    (void)state;
    const pen_knob_policy odd = {.name = "a\"b\\c\nd", .decide = say_something};
    pen_loader_opts o = options(1);
    o.policy = &odd;
    pen_loader *loader = open_loader(&o);
    assert_true(pen_loader_metrics(loader, text, sizeof text) > 0);
    om_parse(text, &parsed);
    assert_true(value(loader, "penstock_policy_info", ",policy=\"a\\\"b\\\\c\\nd\"") == 1);
    assert_true(pen_loader_status(loader, text, sizeof text) > 0);
    json_t *status = json_loads(text, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(status, "policy")), odd.name);
    json_decref(status);
    pen_loader_free(loader);
}

static void several_loaders_make_one_document(void **state)
{
    (void)state;
    pen_loader_opts o = options(0);
    pen_loader *loaders[3];
    for (int i = 0; i < 3; i++)
        loaders[i] = loader_after(i + 1, &o);
    pen__text out = {0};
    assert_int_equal(pen__metrics_write((const pen_loader *const *)loaders, 3, &out), 0);
    om_parse(out.data, &parsed);
    for (int i = 0; i < 3; i++)
        assert_true(value(loaders[i], "penstock_batches_total", "") == i + 1);
    pen__text_fini(&out);
    assert_int_equal(pen__metrics_write(NULL, 0, &out), 0);
    om_parse(out.data, &parsed);
    assert_int_equal(parsed.n_samples, 0);
    pen__text_fini(&out);
    for (int i = 0; i < 3; i++)
        pen_loader_free(loaders[i]);
}

static void the_status_is_complete(void **state)
{
    (void)state;
    pen_loader_opts o = options(1);
    pen_loader *loader = loader_after(3, &o);
    assert_true(pen_loader_status(loader, text, sizeof text) > 0);
    json_t *status = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(status);
    assert_true(number(status, "batches") == 3);
    assert_true(number(status, "budget_used") <= number(status, "budget_bytes"));
    for (int i = 0; i < PEN_STAGE_COUNT; i++) {
        const json_t *stage = json_object_get(json_object_get(status, "stages"), pen_stage_name(i));
        assert_true(number(stage, "variation") >= 0);
        assert_true(number(stage, "p99_s") >= number(stage, "p50_s"));
    }
    json_t *knobs = json_object_get(status, "knobs");
    assert_int_equal(json_object_size(knobs), PEN_KNOB_COUNT);
    assert_true(number(json_object_get(knobs, "workers"), "value") == 1);
    assert_true(json_is_true(json_object_get(json_object_get(knobs, "workers"), "pinned")));
    assert_string_equal(json_string_value(json_object_get(status, "policy")), "fixed");
    assert_true(json_string_length(json_object_get(status, "verdict")) > 0);
    assert_true(json_is_array(json_object_get(status, "decisions")));
    json_decref(status);
    pen_loader_free(loader);
}

/* The way from numbers to text is one for metrics, status, decisions and traces. */
static void numbers_do_not_follow_the_locale(void **state)
{
    (void)state;
    pen_loader_opts o = options(1);
    pen_loader *loader = loader_after(3, &o);
    if (!use_commas()) {
        pen_loader_free(loader);
        skip(); /* no locale with a decimal comma on this machine */
    }
    char number_here[16], number_after[16];
    pen__text plain = {0};
    snprintf(number_here, sizeof number_here, "%.1f", 0.5);
    pen__text_add_number(&plain, 0.5);
    int64_t n = pen_loader_status(loader, text, sizeof text);
    snprintf(number_after, sizeof number_after, "%.1f", 0.5);
    json_t *status = n > 0 ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    n = pen_loader_metrics(loader, text, sizeof text);
    setlocale(LC_ALL, "C");
    assert_string_equal(number_here, "0,5");
    assert_string_equal(number_after, "0,5"); /* the program keeps its own */
    assert_string_equal(plain.data, "0.5");
    assert_non_null(status);
    assert_true(n > 0);
    om_parse(text, &parsed);
    assert_true(value(loader, "penstock_stage_seconds_sum", ",stage=\"decode\"") > 0);
    json_decref(status);
    pen__text_fini(&plain);
    pen_loader_free(loader);
}

static void small_buffers_are_refused(void **state)
{
    (void)state;
    int64_t live = pen__mem_live();
    pen_loader_opts o = options(0);
    pen_loader *loader = open_loader(&o);
    int64_t n = pen_loader_metrics(loader, text, sizeof text);
    assert_int_equal(pen_loader_metrics(loader, text, (size_t)n), PEN_ENOSPC);
    assert_int_equal(pen_loader_metrics(loader, text, (size_t)n + 1), n);
    assert_int_equal(pen_loader_metrics(loader, text, 0), PEN_ENOSPC);
    assert_int_equal(pen_loader_status(loader, text, 10), PEN_ENOSPC);
    assert_int_equal(pen_loader_address(loader, text, sizeof text), 0);
    pen_loader_free(loader);
    assert_int_equal(pen__mem_live(), live);
}

static void a_child_gets_an_error(void **state)
{
    (void)state;
    pen_loader_opts o = options(0);
    pen_loader *loader = open_loader(&o);
    pid_t child = fork();
    if (child == 0)
        _exit(!(pen_loader_metrics(loader, text, sizeof text) == PEN_EFORK &&
                pen_loader_status(loader, text, sizeof text) == PEN_EFORK));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    pen_loader_free(loader);
}

/* One line of the ring: a decision with a reason, that turns a knob or none. */
static void decide(pen__recent *recent, int period, const char *reason, double before, double after)
{
    pen_knobs from = {0}, to = {0};
    from.value[PEN_KNOB_WORKERS] = before;
    to.value[PEN_KNOB_WORKERS] = after;
    const pen__decision d = {.period = period,
                             .policy = "rules",
                             .before = &from,
                             .wanted = &to,
                             .after = &to,
                             .reason = reason};
    pen__recent_add(recent, &d);
}

static void recent_decisions_are_those_that_say_something(void **state)
{
    (void)state;
    pen__recent recent = {0};
    decide(&recent, 1, "", 2, 2);
    decide(&recent, 2, "more", 2, 3);
    decide(&recent, 3, "wait", 3, 3);
    decide(&recent, 4, "wait", 3, 3);
    decide(&recent, 5, "", 3, 3);
    decide(&recent, 6, "wait", 3, 4);
    pen__text out = {0};
    pen__recent_write(&recent, &out);
    json_t *list = json_loads(out.data, 0, NULL), *line;
    static const int want[] = {2, 3, 6};
    size_t i;
    assert_int_equal(json_array_size(list), 3);
    json_array_foreach(list, i, line)
        assert_int_equal(json_integer_value(json_object_get(line, "period")), want[i]);
    const json_t *change =
        json_object_get(json_object_get(json_array_get(list, 0), "changed"), "workers");
    assert_true(json_number_value(json_array_get(change, 1)) == 3);
    json_decref(list);
    pen__text_fini(&out);
    for (int k = 0; k < 100; k++)
        decide(&recent, 10 + k, "x", k, k + 1);
    pen__recent_write(&recent, &out);
    list = json_loads(out.data, 0, NULL);
    assert_int_equal(json_array_size(list), PEN__RECENT);
    line = json_array_get(list, PEN__RECENT - 1);
    assert_int_equal(json_integer_value(json_object_get(line, "period")), 109);
    json_decref(list);
    pen__text_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_say_what_the_statistics_say),
        cmocka_unit_test(both_views_tell_how_many_files_had_an_entry),
        cmocka_unit_test(a_loader_that_has_not_begun_is_legal_text),
        cmocka_unit_test(names_are_escaped),
        cmocka_unit_test(several_loaders_make_one_document),
        cmocka_unit_test(the_status_is_complete),
        cmocka_unit_test(numbers_do_not_follow_the_locale),
        cmocka_unit_test(small_buffers_are_refused),
        cmocka_unit_test(a_child_gets_an_error),
        cmocka_unit_test(recent_decisions_are_those_that_say_something),
    };
    return cmocka_run_group_tests(tests, make_world, unmake_world);
}
