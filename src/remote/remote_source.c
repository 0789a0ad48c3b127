/* remote_source.c - a dataset on storage nodes, as a source among others.
 *
 * Fields beside images are asked for in whatever form is smallest.  One that comes coded stands
 * where the field is to stand, for it is shorter, and is moved away to be decoded.  Bytes that are
 * intact and cannot be decoded are a server's fault: those fields are asked for once more, as they
 * are stored.
 */
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "engine/field_parcel.h"
#include "remote/remote_courier.h"
#include "remote/remote_open.h"
#include "remote/remote_part.h"
#include "source/names.h"
#include "source/source.h"

typedef struct remote_state {
    pen__courier *courier;
    int (*waiting)(void *ctx); /* of the options */
    void *waiting_ctx;
} remote_state;

static int fill(pen_dataset *ds, const char *spec, pen__remote_route *route,
                const pen_dataset_opts *opts, pen_error *err)
{
    remote_state *state = ds->state;
    pen__http http;
    int rc = pen__remote_url_parse(&route->url, spec, err);
    if (rc)
        return rc;
    route->max_bytes = pen__parts_max_bytes();
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
    pen__remote_route *route = pen__calloc(1, sizeof *route);
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

/* Whose fault it is, in front of the reason. */
static void name_sample(const pen_dataset *ds, const pen__entry *entry, pen_error *err)
{
    char key[PEN_KEY_MAX];
    pen__shown shown;
    const size_t n =
        pen__index_path(&ds->index, entry, pen__index_key_part(&ds->index, entry), key);
    pen__fail_prefix(err, "sample '%s'", pen__show(&shown, key, n));
}

/* ---- fields beside images ---- */

/* What it takes to read some of them. */
typedef struct fields_job {
    const pen_dataset *ds;
    const pen__field_read *reads;
    int n, at[PEN__FIELD_READS]; /* those that are still to come */
    pen__call *calls;            // (n)
    uint8_t (*heads)[PEN__FIELD_HEAD];
    pen__bytes_coder *coder;
    uint8_t *coded;
    size_t coded_cap;
} fields_job;

static int job_init(fields_job *job, const pen_dataset *ds, const pen__field_read *reads, int n)
{
    *job = (fields_job){.ds = ds, .reads = reads, .n = n};
    job->calls = pen__calloc((size_t)n, sizeof *job->calls);
    job->heads = pen__calloc((size_t)n, sizeof *job->heads);
    for (int i = 0; i < n; i++)
        job->at[i] = i;
    return job->calls && job->heads ? 0 : PEN_ENOMEM;
}

static void job_fini(fields_job *job)
{
    pen__free(job->calls);
    pen__free(job->heads);
    pen__free(job->coded);
    pen__bytes_coder_free(job->coder);
}

/* All that are still to come; of a failure, whose it is. */
static int bring_fields(fields_job *job, uint32_t forms, pen_error *err)
{
    const remote_state *state = job->ds->state;
    for (int i = 0; i < job->n; i++) {
        const pen__field_read *read = &job->reads[job->at[i]];
        job->calls[i] = call_for(state, read->entry, read->dst, read->at.length, true);
        job->calls[i].field = pen__part_block_field(read->at.block);
        job->calls[i].raw_len = read->at.length;
        job->calls[i].head = job->heads[i];
        job->calls[i].choice.forms = forms;
    }
    const int rc = pen__courier_bring_all(state->courier, job->calls, job->n, err);
    for (int i = 0; rc == PEN_EIO && i < job->n; i++)
        if (job->calls[i].result == PEN_EIO) {
            pen__fail_prefix(err, "its %s", pen_field_name(job->calls[i].field));
            name_sample(job->ds, job->reads[job->at[i]].entry, err);
            break;
        }
    return rc;
}

/* One that came coded, where it is to stand. */
static int decode_field(fields_job *job, int i, pen_error *err)
{
    const pen__call *call = &job->calls[i];
    const size_t n = (size_t)call->result - PEN__FIELD_HEAD;
    if (!job->coder && pen__bytes_coder_create(&job->coder) != 0)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    if (n > job->coded_cap) {
        pen__free(job->coded);
        job->coded = pen__malloc(n);
        job->coded_cap = job->coded ? n : 0;
    }
    if (!job->coded)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    memcpy(job->coded, call->dst, n);
    return pen__field_unpack(job->coder, call->head, job->coded, n, call->dst, call->raw_len, err);
}

/* What came; those that cannot be decoded are still to come then. */
static int decode_fields(fields_job *job, pen_error *err)
{
    int n_left = 0;
    for (int i = 0; i < job->n; i++) {
        int rc = pen__field_is_raw(job->heads[i]) ? 0 : decode_field(job, i, err);
        if (rc == PEN_ECORRUPT)
            job->at[n_left++] = job->at[i];
        else if (rc)
            return rc;
    }
    job->n = n_left;
    return 0;
}

static int remote_read_many(const pen_dataset *ds, const pen__field_read *reads, int n,
                            pen_error *err)
{
    fields_job job;
    int rc = job_init(&job, ds, reads, n);
    if (rc)
        pen__fail(err, rc, -1, "out of memory");
    uint32_t forms = PEN__FIELD_FORMS;
    while (rc == 0 && job.n > 0) {
        rc = bring_fields(&job, forms, err);
        if (rc == 0)
            rc = decode_fields(&job, err);
        forms = 1U << PEN__FORM_RAW; /* which there is nothing to decode of */
    }
    job_fini(&job);
    return rc;
}

/* ---- images ---- */

static int remote_read(const pen_dataset *ds, const pen__entry *entry, uint32_t block, uint8_t *dst,
                       size_t len, pen_error *err)
{
    const remote_state *state = ds->state;
    uint8_t head[PEN__PARCEL_HEAD];
    if (pen__part_block_field(block) != PEN_FIELD_IMAGE) {
        const pen__field_read read = {entry, {block, (uint32_t)len}, dst};
        return remote_read_many(ds, &read, 1, err);
    }
    pen__call call = call_for(state, entry, dst, len, true);
    call.head = head;
    call.choice.forms = 1U << PEN__FORM_RAW;
    int64_t n = pen__courier_bring(state->courier, &call, err);
    if (n == PEN_EIO)
        name_sample(ds, entry, err);
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

static void remote_warning(const pen_dataset *ds, const pen_pipeline *pipe, char *dst,
                           size_t dst_cap)
{
    const remote_state *state = ds->state;
    pen__courier_warning(state->courier, pipe, dst, dst_cap);
}

const pen__source pen__source_remote = {
    .name = "remote",
    .open = remote_open,
    .read = remote_read,
    .read_many = remote_read_many,
    .fetch = remote_fetch,
    .cores = remote_cores,
    .warning = remote_warning,
    .close = remote_close,
    .is_patient = true,
};
