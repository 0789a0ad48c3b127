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

static int bad_state(pen_error *err, const char *why)
{
    return pen__fail(err, PEN_EINVAL, -1, "this is not the state of a loader: %s", why);
}

/* Texts and numbers are there; do they mean something? */
static const char *check_values(const pen__state *s, int order, int tail, int on_error)
{
    return s->epoch < 0   ? "its epoch is negative"
           : s->batch < 0 ? "its batch is negative"
           : s->n_bad < 0 ? "its bad is negative"
           : order < 0    ? "its order is unknown"
           : tail < 0     ? "its tail is unknown"
           : on_error < 0 ? "its on_error is unknown"
                          : NULL;
}

static int copy_hash(char dst[33], const char *text, const char *why, pen_error *err)
{
    if (strlen(text) >= 33)
        return bad_state(err, why);
    snprintf(dst, 33, "%s", text);
    return 0;
}

static int fill(pen__state *s, json_t *json, pen_error *err)
{
    int format, is_tail_auto;
    json_int_t epoch, batch, bad, global_batch;
    const char *seed, *order, *tail, *on_error, *dataset, *pipeline, *mix = "";
    json_error_t why;
    if (json_unpack_ex(
            json, &why, 0, "{s:i,s:I,s:I,s:I,s:s,s:I,s:s,s:i,s:i,s:s,s:b,s:s,s:i,s:s,s:s,s?:s}",
            "penstock", &format, "epoch", &epoch, "batch", &batch, "bad", &bad, "seed", &seed,
            "global_batch", &global_batch, "order", &order, "block", &s->block, "window",
            &s->window, "tail", &tail, "tail_auto", &is_tail_auto, "on_error", &on_error,
            "numerics", &s->numerics, "dataset", &dataset, "pipeline", &pipeline, "mix", &mix) != 0)
        return bad_state(err, why.text);
    if (format != STATE_FORMAT)
        return bad_state(err, "its format is of another version");
    if (!parse_seed(seed, &s->seed))
        return bad_state(err, "its seed is no number");
    s->epoch = epoch;
    s->batch = batch;
    s->n_bad = bad;
    s->global_batch = global_batch;
    s->is_tail_auto = is_tail_auto;
    int order_index = find_name(order, order_names, 4), tail_index = find_name(tail, tail_names, 5);
    int on_error_index = find_name(on_error, on_error_names, 3);
    const char *wrong = check_values(s, order_index, tail_index, on_error_index);
    if (wrong)
        return bad_state(err, wrong);
    s->order = (pen_order_kind)order_index;
    s->tail = (pen_tail)tail_index;
    s->on_error = (pen_on_error)on_error_index;
    int rc = copy_hash(s->dataset, dataset, "its dataset is no hash", err);
    if (rc == 0)
        rc = copy_hash(s->pipeline, pipeline, "its pipeline is no hash", err);
    return rc ? rc : copy_hash(s->mix, mix, "its mix is no hash", err);
}

int pen__state_parse(pen__state *state, const char *text, pen_error *err)
{
    memset(state, 0, sizeof *state);
    if (strlen(text) > PEN_STATE_MAX)
        return bad_state(err, "it is too long");
    json_error_t why;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    int rc = json ? fill(state, json, err) : bad_state(err, "it is no JSON");
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
