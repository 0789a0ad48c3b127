/* profiler.c - one sample in every form there is, each made from the file and timed. */
#include <penstock/profile.h>

#include <math.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "codec/pixel_code.h"
#include "engine/pack.h"
#include "engine/run.h"
#include "ops/jpeg_cut.h"
#include "source/names.h"
#include "source/source.h"

enum {
    RUNS = 2,        /* the first finds cold caches */
    CUT_ROOM = 4096, /* a cut of nearly all is a little longer than the file */
};

/* A block that grows. */
typedef struct room {
    uint8_t *data;
    size_t cap;
} room;

struct pen_profiler {
    pen_dataset *ds;
    pen_pipeline *pipe;
    pen__decoder *dec;
    pen__jpeg_cutter *cutter;
    pen__packer *packer;
    room file, scratch, made;
    size_t n_points;
    pen_profile_point points[PEN_PROFILE_MAX_POINTS];
    /* the present sample */
    pen_key key;
    size_t len;
    pen_image_info info;
    pen_params params[PEN_PIPELINE_MAX_OPS];
    pen__plan plan, part;
};

const char *pen_profile_form_name(pen_profile_form form)
{
    static const char *const names[PEN_PROFILE_FORM_COUNT] = {"file", "JPEG cut", "pixels",
                                                              "coded pixels", "tensor"};
    return (unsigned)form < PEN_PROFILE_FORM_COUNT ? names[form] : "unknown";
}

/* ---- life ---- */

static void add_point(pen_profiler *p, pen_profile_form form, size_t n_ops, size_t op)
{
    p->points[p->n_points++] = (pen_profile_point){form, n_ops, op};
}

static void list_points(pen_profiler *p)
{
    const pen_pipeline *pipe = p->pipe;
    add_point(p, PEN_PROFILE_FILE, 0, 0);
    add_point(p, PEN_PROFILE_JPEG_CUT, 0, 0);
    for (size_t i = 0; i < pipe->n_image_ops; i = pipe->end[i]) {
        add_point(p, PEN_PROFILE_PIXELS, pipe->end[i], i);
        add_point(p, PEN_PROFILE_CODED, pipe->end[i], i);
    }
    add_point(p, PEN_PROFILE_TENSOR, pipe->n_ops, pipe->n_ops - 1);
}

int pen_profiler_create(pen_profiler **out, pen_dataset *ds, pen_pipeline *pipe, pen_error *err)
{
    *out = NULL;
    pen_profiler *p = pen__calloc(1, sizeof *p);
    if (!p)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    p->ds = pen_dataset_ref(ds);
    p->pipe = pen_pipeline_ref(pipe);
    list_points(p);
    if (pen__decoder_create(&p->dec, NULL) || pen__jpeg_cutter_create(&p->cutter) ||
        pen__packer_create(&p->packer, NULL)) {
        pen_profiler_free(p);
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    }
    *out = p;
    return 0;
}

void pen_profiler_free(pen_profiler *p)
{
    if (!p)
        return;
    pen__decoder_free(p->dec);
    pen__jpeg_cutter_free(p->cutter);
    pen__packer_free(p->packer);
    pen__free(p->file.data);
    pen__free(p->scratch.data);
    pen__free(p->made.data);
    pen_pipeline_unref(p->pipe);
    pen_dataset_unref(p->ds);
    pen__free(p);
}

size_t pen_profiler_count(const pen_profiler *p)
{
    return p->n_points;
}

pen_profile_point pen_profiler_point(const pen_profiler *p, size_t i)
{
    return i < p->n_points ? p->points[i] : (pen_profile_point){PEN_PROFILE_FORM_COUNT, 0, 0};
}

/* ---- one sample ---- */

static int reserve(room *r, size_t bytes, pen_error *err)
{
    if (r->data && r->cap >= bytes)
        return 0;
    pen__free(r->data);
    r->data = pen__aligned(PEN__ALIGN, pen__align_up(bytes > 0 ? bytes : 1));
    r->cap = r->data ? bytes : 0;
    return r->data ? 0 : pen__fail(err, PEN_ENOMEM, -1, "out of memory for %zu bytes", bytes);
}

static double cpu_now_s(void)
{
    return (double)pen__thread_cpu_ns() * 1e-9;
}

static double since(double begin_s, double best_s)
{
    return fmin(cpu_now_s() - begin_s, best_s);
}

/* File to plan. */
static int prepare(pen_profiler *p, const pen_key *key, pen_error *err)
{
    const int64_t len = pen_dataset_length(p->ds, key->sample);
    if (len < 0)
        return pen__fail(err, PEN_EINVAL, -1, "no such sample");
    int rc = reserve(&p->file, (size_t)len, err);
    const int64_t n =
        rc ? rc : pen_dataset_read(p->ds, key->sample, p->file.data, (size_t)len, err);
    if (n < 0)
        return (int)n;
    p->key = *key;
    p->len = (size_t)len;
    rc = pen_image_probe(p->file.data, p->len, &p->info, err);
    if (rc == 0)
        rc = pen_pipeline_draw(p->pipe, key, &p->info, p->params, PEN_PIPELINE_MAX_OPS, err);
    if (rc == 0)
        pen__plan_build(&p->plan, p->pipe, &p->info, p->params);
    return rc;
}

static int measure_cut(pen_profiler *p, pen_profile_figure *out, pen_error *err)
{
    pen__rect kept;
    int64_t n = 0;
    double best_s = INFINITY;
    int rc = reserve(&p->made, p->len + CUT_ROOM, err);
    if (rc || p->info.format != PEN_FORMAT_JPEG)
        return rc;
    for (int i = 0; i < RUNS; i++) {
        const double begin_s = cpu_now_s();
        n = pen__jpeg_cut(p->cutter, p->file.data, p->len, p->plan.window, NULL, 0, p->made.data,
                          p->len + CUT_ROOM, &kept);
        best_s = since(begin_s, best_s);
    }
    if (n > 0)
        *out = (pen_profile_figure){(double)n, best_s};
    return 0;
}

/* The image at a cut of the line, plain and coded. */
static int measure_pixels(pen_profiler *p, int at, pen_profile_figure *plain,
                          pen_profile_figure *coded, pen_error *err)
{
    const pen__plan_cut *cut = &p->plan.cuts[at];
    const size_t coder_bytes = pen__align_up(pen__pixels_scratch(cut->w, cut->h, cut->ch));
    const size_t bound = pen__pixels_bound(cut->w, cut->h, cut->ch);
    const pen__input in = pen__input_of_file(&p->plan, &p->info, p->file.data, p->len);
    pen__image image = {0};
    int64_t n = 0;
    double plain_s = INFINITY, coded_s = INFINITY;
    p->part = p->plan;
    pen__plan_keep(&p->part, -1, at);
    const size_t run_bytes = pen__align_up(p->part.scratch_bytes);
    int rc = reserve(&p->scratch, run_bytes + coder_bytes + bound, err);
    for (int i = 0; rc == 0 && i < RUNS; i++) {
        uint8_t *rest = p->scratch.data + run_bytes;
        const double begin_s = cpu_now_s();
        rc = pen__run_to_cut(&p->part, p->dec, &in, p->scratch.data, &image, err);
        plain_s = since(begin_s, plain_s);
        if (rc == 0)
            n = pen__pixels_encode(image.px, image.w, image.h, image.ch, rest, rest + coder_bytes,
                                   bound);
        coded_s = since(begin_s, coded_s);
    }
    if (rc == 0) {
        *plain = (pen_profile_figure){(double)pen__image_bytes(&image), plain_s};
        *coded = (pen_profile_figure){(double)n, coded_s};
    }
    return rc;
}

static int measure_tensor(pen_profiler *p, pen_profile_figure *out, pen_error *err)
{
    const pen__input in = pen__input_of_file(&p->plan, &p->info, p->file.data, p->len);
    double best_s = INFINITY;
    int rc = reserve(&p->scratch, p->plan.scratch_bytes, err);
    if (rc == 0)
        rc = reserve(&p->made, p->pipe->shape.bytes, err);
    for (int i = 0; rc == 0 && i < RUNS; i++) {
        const double begin_s = cpu_now_s();
        rc = pen__run(p->pipe, &p->plan, p->params, &p->key, p->dec, &in, p->scratch.data,
                      p->made.data, NULL, err);
        best_s = since(begin_s, best_s);
    }
    if (rc == 0)
        *out = (pen_profile_figure){(double)p->pipe->shape.bytes, best_s};
    return rc;
}

/* As a storage node does it that may do everything. */
static int measure_sent(pen_profiler *p, pen_profile_figure *out, pen_error *err)
{
    const pen__pack_order order = {.pipe = p->pipe,
                                   .key = p->key,
                                   .max_cut = (int)p->pipe->n_image_ops,
                                   .forms = PEN__FORMS_ALL};
    const size_t bound = pen__parcel_bound(p->pipe, p->len);
    int64_t n = reserve(&p->made, bound, err);
    double best_s = INFINITY;
    for (int i = 0; n >= 0 && i < RUNS; i++) {
        const double begin_s = cpu_now_s();
        n = pen__pack(p->packer, &order, p->file.data, p->len, NULL, 0, p->made.data, bound, err);
        best_s = since(begin_s, best_s);
    }
    if (n < 0)
        return (int)n;
    *out = (pen_profile_figure){(double)n - PEN__PARCEL_HEAD, best_s};
    return 0;
}

/* The same by the node that has it, whose processor may be another. */
static int ask_node(pen_profiler *p, double *cpu_s, pen_error *err)
{
    const size_t cap = pen__parcel_bound(p->pipe, p->len) + PEN__SOURCE_PARCEL_ROOM;
    const pen__source *source = p->ds->source;
    int64_t node_ns = -1; /* not told */
    const pen__wanted wanted = {
        p->pipe, p->key, {(int)p->pipe->n_image_ops, PEN__FORMS_ALL}, &node_ns, true};
    if (!source->fetch)
        return 0;
    int64_t n = reserve(&p->made, cap, err);
    for (int i = 0; n >= 0 && i < RUNS; i++) {
        n = source->fetch(p->ds, &wanted, p->made.data, cap, NULL, err);
        if (n >= 0 && node_ns >= 0)
            *cpu_s = fmin(*cpu_s, (double)node_ns * 1e-9); /* of NaN and a number, the number */
    }
    return n < 0 ? (int)n : 0;
}

static int measure(pen_profiler *p, pen_profile_sample *out, pen_error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->n_points; i++) {
        pen_profile_figure *figure = &out->points[i];
        const pen_profile_point *point = &p->points[i];
        const int at = pen__plan_find_cut(&p->plan, (int)point->n_ops);
        if (point->form == PEN_PROFILE_FILE)
            *figure = (pen_profile_figure){(double)p->len, 0};
        else if (point->form == PEN_PROFILE_JPEG_CUT)
            rc = measure_cut(p, figure, err);
        else if (point->form == PEN_PROFILE_TENSOR)
            rc = measure_tensor(p, figure, err);
        else if (point->form == PEN_PROFILE_PIXELS && at >= 0 &&
                 p->plan.cuts[at].n_ops == (int)point->n_ops)
            rc = measure_pixels(p, at, figure, figure + 1, err); /* the coded ones come next */
    }
    if (rc == 0)
        rc = measure_sent(p, &out->sent, err);
    return rc ? rc : ask_node(p, &out->node_cpu_s, err);
}

int pen_profiler_measure(pen_profiler *p, const pen_key *key, pen_profile_sample *out,
                         pen_error *err)
{
    char name[PEN_KEY_MAX];
    pen__shown shown;
    const pen_profile_figure none = {NAN, NAN};
    for (size_t i = 0; i < p->n_points; i++)
        out->points[i] = none;
    out->sent = none;
    out->node_cpu_s = NAN;
    int rc = prepare(p, key, err);
    const bool is_named = rc == PEN_EIO && p->ds->source->is_patient; /* by who did not bring it */
    if (rc == 0)
        rc = measure(p, out, err);
    if (rc == 0)
        return 0;
    if (err)
        err->sample = key->sample;
    const int64_t n = pen_dataset_key(p->ds, key->sample, name, sizeof name);
    if (n > 0 && !is_named)
        pen__fail_prefix(err, "sample '%s'", pen__show(&shown, name, (size_t)n));
    return rc;
}
