/* remote_source.c - a dataset on storage nodes, as a source among others. */
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "engine/parcel.h"
#include "remote/remote_courier.h"
#include "remote/remote_open.h"
#include "source/names.h"
#include "source/source.h"

typedef struct remote_state {
    pen__courier *courier;
    int (*waiting)(void *ctx); /* of the options */
    void *waiting_ctx;
} remote_state;

static int fill(pen_dataset *ds, const char *spec, pen__route *route, const pen_dataset_opts *opts,
                pen_error *err)
{
    remote_state *state = ds->state;
    pen__http http;
    int rc = pen__remote_url_parse(&route->url, spec, err);
    if (rc)
        return rc;
    rc = pen__http_init(&http, err);
    if (rc == 0)
        rc = pen__remote_fill(ds, route, &http, opts, err);
    if (rc == 0)
        return pen__courier_create(&state->courier, route, &http, err);
    pen__http_fini(&http);
    return rc;
}

static int remote_open(pen_dataset *ds, const char *spec, const pen_dataset_opts *opts,
                       pen_error *err)
{
    remote_state *state = ds->state = pen__calloc(1, sizeof(remote_state));
    pen__route *route = pen__calloc(1, sizeof *route);
    if (state) {
        state->waiting = opts->waiting;
        state->waiting_ctx = opts->waiting_ctx;
    }
    int rc = state && route ? fill(ds, spec, route, opts, err)
                            : pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    if (rc == 0)
        ds->state_bytes = sizeof *state + pen__courier_bytes(state->courier);
    pen__free(route);
    return rc;
}

static void remote_close(pen_dataset *ds)
{
    remote_state *state = ds->state;
    if (state)
        pen__courier_free(state->courier);
    pen__free(state);
}

/* is_callers: who waits may be told by the program to leave. */
static pen__call call_for(const remote_state *state, const pen__entry *entry, uint8_t *dst,
                          size_t cap, bool is_callers)
{
    return (pen__call){.shard = (int)entry->shard,
                       .id = entry->block,
                       .raw_len = entry->length,
                       .dst = dst,
                       .cap = cap,
                       .waiting = is_callers ? state->waiting : NULL,
                       .waiting_ctx = state->waiting_ctx};
}

static int remote_read(const pen_dataset *ds, const pen__entry *entry, uint32_t block, uint8_t *dst,
                       size_t len, pen_error *err)
{
    (void)block;
    const remote_state *state = ds->state;
    uint8_t head[PEN__PARCEL_HEAD];
    pen__call call = call_for(state, entry, dst, len, true);
    call.head = head;
    call.choice.forms = 1U << PEN__FORM_RAW;
    int64_t n = pen__courier_bring(state->courier, &call, err);
    if (n == PEN_EIO) {
        char key[PEN_KEY_MAX];
        pen__shown shown;
        const size_t n_key =
            pen__index_path(&ds->index, entry, pen__index_key_part(&ds->index, entry), key);
        pen__fail_prefix(err, "sample '%s'", pen__show(&shown, key, n_key));
    }
    return n < 0 ? (int)n : 0;
}

static int64_t remote_fetch(const pen_dataset *ds, const pen__wanted *wanted, uint8_t *dst,
                            size_t dst_cap, const atomic_bool *cancel, pen_error *err)
{
    const remote_state *state = ds->state;
    int64_t id = wanted->key.sample;
    if (id < 0 || id >= (int64_t)ds->index.n)
        return pen__fail(err, PEN_EINVAL, -1, "no sample %lld: there are %zu", (long long)id,
                         ds->index.n);
    pen__call call = call_for(state, &ds->index.entries[id], dst, dst_cap, wanted->is_callers);
    call.pipe = wanted->pipe;
    call.key = wanted->key;
    call.cancel = cancel;
    call.choice = wanted->choice;
    const int64_t n = pen__courier_bring(state->courier, &call, err);
    if (n >= 0 && wanted->node_ns)
        *wanted->node_ns = call.node_ns;
    return n;
}

static double remote_cores(const pen_dataset *ds, const pen_pipeline *pipe)
{
    const remote_state *state = ds->state;
    return pen__courier_cores(state->courier, pipe);
}

const pen__source pen__source_remote = {
    .name = "remote",
    .open = remote_open,
    .read = remote_read,
    .fetch = remote_fetch,
    .cores = remote_cores,
    .close = remote_close,
    .is_patient = true,
};
