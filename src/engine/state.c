/* state.c - write, parse and compare states. */
#include "engine/state.h"

#include <penstock/version.h>

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"

static const char *const order_names[] = {"sequential", "shuffle", "block", "fed"};
static const char *const tail_names[] = {"auto", "short", "drop", "pad", "wrap"};
static const char *const on_error_names[] = {"raise", "skip", "replace"};

enum { STATE_FORMAT = 1 };

int64_t pen__state_write(const pen__state *s, char *dst, size_t dst_cap)
{
    /* The seed as text: JSON readers disagree about integers past 2^53. */
    int n =
        snprintf(dst, dst_cap,
                 "{\"penstock\":%d,\"epoch\":%lld,\"batch\":%lld,\"bad\":%lld,\"seed\":\"%llu\","
                 "\"global_batch\":%lld,\"order\":\"%s\",\"block\":%d,\"window\":%d,"
                 "\"tail\":\"%s\",\"tail_auto\":%s,\"on_error\":\"%s\",\"numerics\":%d,\"dataset\":"
                 "\"%s\",\"pipeline\":\"%s\"%s%s%s}",
                 STATE_FORMAT, (long long)s->epoch, (long long)s->batch, (long long)s->n_bad,
                 (unsigned long long)s->seed, (long long)s->global_batch, order_names[s->order],
                 s->block, s->window, tail_names[s->tail], s->is_tail_auto ? "true" : "false",
                 on_error_names[s->on_error], s->numerics, s->dataset, s->pipeline,
                 *s->mix ? ",\"mix\":\"" : "", s->mix, *s->mix ? "\"" : "");
    return n < 0 || (size_t)n >= dst_cap ? PEN_ENOSPC : n;
}

static int find_name(const char *name, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

static bool parse_seed(const char *text, uint64_t *seed)
{
    *seed = 0;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9' || *seed > (UINT64_MAX - (uint64_t)(*p - '0')) / 10)
            return false;
        *seed = *seed * 10 + (uint64_t)(*p - '0');
    }
    return *text != '\0';
}

static int bad_state(pen_error *err, const char *what, const char *is_wrong)
{
    return pen__fail(err, PEN_EINVAL, -1, "this is not the state of a loader: '%s' %s", what,
                     is_wrong);
}

/* Is everything there, and of its type? */
static int check_types(const json_t *json, pen_error *err)
{
    static const char *const integers[] = {"penstock",     "epoch", "batch",  "bad",
                                           "global_batch", "block", "window", "numerics"};
    static const char *const texts[] = {"seed", "order", "tail", "on_error", "dataset", "pipeline"};
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++)
        if (!json_is_integer(json_object_get(json, integers[i])))
            return bad_state(err, integers[i], "is missing or no integer");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (!json_is_string(json_object_get(json, texts[i])))
            return bad_state(err, texts[i], "is missing or no text");
    if (!json_is_boolean(json_object_get(json, "tail_auto")))
        return bad_state(err, "tail_auto", "is missing or neither true nor false");
    const json_t *mix = json_object_get(json, "mix");
    return mix && !json_is_string(mix) ? bad_state(err, "mix", "is no text") : 0;
}

static int64_t number_of(const json_t *json, const char *name)
{
    return json_integer_value(json_object_get(json, name));
}

static const char *text_of(const json_t *json, const char *name)
{
    const char *text = json_string_value(json_object_get(json, name));
    return text ? text : "";
}

/* The index of a member's text among `names`. */
static int find_member(const json_t *json, const char *name, const char *const *names, int n,
                       int *out, pen_error *err)
{
    *out = find_name(text_of(json, name), names, n);
    return *out < 0 ? bad_state(err, name, "is unknown") : 0;
}

static int fill_numbers(pen__state *s, const json_t *json, pen_error *err)
{
    if (number_of(json, "penstock") != STATE_FORMAT)
        return bad_state(err, "penstock", "is another version of the format");
    if (!parse_seed(text_of(json, "seed"), &s->seed))
        return bad_state(err, "seed", "is no number");
    s->epoch = number_of(json, "epoch");
    s->batch = number_of(json, "batch");
    s->n_bad = number_of(json, "bad");
    s->global_batch = number_of(json, "global_batch");
    s->block = (int32_t)number_of(json, "block");
    s->window = (int32_t)number_of(json, "window");
    s->numerics = (int)number_of(json, "numerics");
    s->is_tail_auto = json_is_true(json_object_get(json, "tail_auto"));
    const char *negative = s->epoch < 0   ? "epoch"
                           : s->batch < 0 ? "batch"
                           : s->n_bad < 0 ? "bad"
                                          : NULL;
    return negative ? bad_state(err, negative, "is negative") : 0;
}

static int copy_hash(char dst[33], const json_t *json, const char *name, pen_error *err)
{
    const char *text = text_of(json, name);
    if (strlen(text) >= 33)
        return bad_state(err, name, "is no hash");
    snprintf(dst, 33, "%s", text);
    return 0;
}

static int fill(pen__state *s, const json_t *json, pen_error *err)
{
    int order = 0, tail = 0, on_error = 0, rc = check_types(json, err);
    if (rc == 0)
        rc = fill_numbers(s, json, err);
    if (rc == 0)
        rc = find_member(json, "order", order_names, 4, &order, err);
    if (rc == 0)
        rc = find_member(json, "tail", tail_names, 5, &tail, err);
    if (rc == 0)
        rc = find_member(json, "on_error", on_error_names, 3, &on_error, err);
    if (rc == 0)
        rc = copy_hash(s->dataset, json, "dataset", err);
    if (rc == 0)
        rc = copy_hash(s->pipeline, json, "pipeline", err);
    if (rc == 0)
        rc = copy_hash(s->mix, json, "mix", err);
    s->order = (pen_order_kind)order;
    s->tail = (pen_tail)tail;
    s->on_error = (pen_on_error)on_error;
    return rc;
}

int pen__state_parse(pen__state *state, const char *text, pen_error *err)
{
    memset(state, 0, sizeof *state);
    json_error_t why;
    json_t *json =
        strlen(text) <= PEN_STATE_MAX ? json_loads(text, JSON_REJECT_DUPLICATES, &why) : NULL;
    int rc = json ? fill(state, json, err)
                  : pen__fail(err, PEN_EINVAL, -1,
                              "this is not the state of a loader: no JSON, or too long");
    json_decref(json);
    return rc;
}

int pen__state_match(const pen__state *saved, const pen__state *here, pen_error *err)
{
    const char *what = NULL;
    if (strcmp(saved->dataset, here->dataset) != 0)
        what = "dataset";
    else if (saved->numerics != here->numerics) /* before the pipeline, whose hash covers it */
        what = "numerics version";
    else if (strcmp(saved->pipeline, here->pipeline) != 0)
        what = "pipeline";
    else if (strcmp(saved->mix, here->mix) != 0)
        what = "mix (MixUp, CutMix)";
    else if (saved->seed != here->seed)
        what = "seed";
    else if (saved->order != here->order || saved->block != here->block ||
             saved->window != here->window)
        what = "order";
    else if (saved->tail != here->tail && !(saved->is_tail_auto && here->is_tail_auto))
        what = "tail";
    else if (saved->on_error != here->on_error && saved->on_error != PEN_ON_ERROR_RAISE &&
             here->on_error != PEN_ON_ERROR_RAISE)
        what = "on_error";
    if (what)
        return pen__fail(err, PEN_ESTATE, -1, "the state was saved with another %s", what);
    if (saved->global_batch != here->global_batch)
        return pen__fail(err, PEN_ESTATE, -1,
                         "the state was saved with a global batch of %lld, here it is %lld (batch "
                         "size times ranks)",
                         (long long)saved->global_batch, (long long)here->global_batch);
    return 0;
}
