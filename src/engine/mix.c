/* mix.c - a batch mixed with itself, rolled by one, in place.
 *
 * Rows are done from the last to the first: row i needs row i - 1 as it was.  Row 0 needs
 * the last one as it was, hence the extra row behind the slots (the ghost).
 *
 * torchvision computes rolled * (1 - lam) + own * lam: two products, each rounded to
 * float32, and a rounded sum.  The loops below are that, and compilers make vectors of
 * them; the build forbids FMA, which would round once less.
 */
#include "engine/mix.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/fmath.h"
#include "base/gamma.h"

enum { MAX_CLASSES = 1 << 24 };
/* Beta(1e-6, 1e-6) is 0 or 1 already; the logarithms of still smaller ones overflow. */
static const double min_alpha = 1e-6, max_alpha = 1e6, max_weight = 1e6;

static int check_labels(const pen_dataset *ds, int32_t n_classes, pen_error *err)
{
    char key[256];
    for (int64_t id = 0; id < pen_dataset_count(ds); id++) {
        int64_t label = pen_dataset_label(ds, id);
        if (label >= 0 && label < n_classes)
            continue;
        if (pen_dataset_key(ds, id, key, sizeof key) < 0)
            snprintf(key, sizeof key, "id %lld", (long long)id);
        return pen__fail(err, PEN_EINVAL, -1,
                         "MixUp and CutMix have %d classes, and sample '%s' has the label %lld",
                         n_classes, key, (long long)label);
    }
    return 0;
}

int pen__mixer_init(pen__mixer *mixer, const pen_loader_opts *opts, const pen_shape *shape,
                    const pen_dataset *ds, pen_error *err)
{
    *mixer = (pen__mixer){0};
    if (opts->n_mixes == 0)
        return 0;
    if (opts->n_mixes < 0 || opts->n_mixes > PEN_MIX_MAX || !opts->mixes)
        return pen__fail(err, PEN_EINVAL, -1, "a batch has at most %d operations", PEN_MIX_MAX);
    if (opts->num_classes < 1 || opts->num_classes > MAX_CLASSES)
        return pen__fail(err, PEN_EINVAL, -1, "num_classes must be 1 to %d", MAX_CLASSES);
    if (shape->dtype != PEN_DTYPE_FLOAT32)
        return pen__fail(err, PEN_EINVAL, -1,
                         "MixUp and CutMix need float32 images: end the operations with ToTensor "
                         "and leave dtype alone");
    double sum = 0;
    for (int i = 0; i < opts->n_mixes; i++) {
        const pen_mix *mix = &opts->mixes[i];
        if ((unsigned)mix->kind > PEN_MIX_CUTMIX)
            return pen__fail(err, PEN_EINVAL, -1, "operation %d of a batch is unknown", i);
        if (!(mix->alpha >= min_alpha && mix->alpha <= max_alpha))
            return pen__fail(err, PEN_EINVAL, -1,
                             "operation %d of a batch: alpha must be within [%g, %g]", i, min_alpha,
                             max_alpha);
        if (!(mix->weight >= 0 && mix->weight <= max_weight))
            return pen__fail(err, PEN_EINVAL, -1,
                             "operation %d of a batch: weight must be within [0, %g]", i,
                             max_weight);
        sum += mix->weight;
    }
    if (!(sum > 0))
        return pen__fail(err, PEN_EINVAL, -1, "every operation of a batch has the weight 0");
    memcpy(mixer->mixes, opts->mixes, (size_t)opts->n_mixes * sizeof mixer->mixes[0]);
    mixer->n = opts->n_mixes;
    mixer->n_classes = opts->num_classes;
    return check_labels(ds, mixer->n_classes, err);
}

void pen__mixer_digest(const pen__mixer *mixer, char out[PEN__DIGEST_TEXT])
{
    char text[PEN_MIX_MAX * 64 + 32];
    int len = snprintf(text, sizeof text, "penstock mix 1 %d", mixer->n_classes);
    for (int i = 0; i < mixer->n; i++) {
        uint64_t alpha, weight; /* as bits: how a locale writes numbers must not matter */
        memcpy(&alpha, &mixer->mixes[i].alpha, sizeof alpha);
        memcpy(&weight, &mixer->mixes[i].weight, sizeof weight);
        len += snprintf(text + len, sizeof text - (size_t)len, " %d %llx %llx",
                        (int)mixer->mixes[i].kind, (unsigned long long)alpha,
                        (unsigned long long)weight);
    }
    pen__digest(text, (size_t)len, out);
}

/* ---- parameters ---- */

static const pen_mix *pick(const pen__mixer *mixer, double unit)
{
    double sum = 0;
    for (int i = 0; i < mixer->n; i++)
        sum += mixer->mixes[i].weight;
    const pen_mix *picked = NULL;
    double at = unit * sum;
    for (int i = 0; i < mixer->n && !(picked && at < 0); i++) {
        if (mixer->mixes[i].weight > 0)
            picked = &mixer->mixes[i];
        at -= mixer->mixes[i].weight;
    }
    return picked;
}

/* A box around (x, y) of the size that `lam` leaves, cut at the edges; what it takes in
 * fact is the label's share. */
static void place_box(pen_mix_params *p, int32_t x, int32_t y, int32_t w, int32_t h)
{
    double r = 0.5 * pen__sqrt(1.0 - p->lam);
    int32_t half_w = (int32_t)(r * w), half_h = (int32_t)(r * h);
    p->x1 = x > half_w ? x - half_w : 0;
    p->y1 = y > half_h ? y - half_h : 0;
    p->x2 = x + half_w < w ? x + half_w : w;
    p->y2 = y + half_h < h ? y + half_h : h;
    int64_t taken = (int64_t)(p->x2 - p->x1) * (p->y2 - p->y1);
    p->lam = 1.0 - (double)taken / (double)((int64_t)w * h);
}

void pen__mix_draw(const pen__mixer *mixer, uint64_t seed, int64_t epoch, int64_t batch,
                   const pen_shape *shape, pen_mix_params *out)
{
    /* Beta takes as many numbers as it likes, so it gets a stream of its own. */
    enum { FIXED, SHARE };
    pen__rng fixed, share;
    pen__rng_init(&fixed, seed, PEN__RNG_BATCH, batch, epoch, 0, FIXED);
    pen__rng_init(&share, seed, PEN__RNG_BATCH, batch, epoch, 0, SHARE);
    const pen_mix *mix = pick(mixer, pen__rng_unit(&fixed));
    *out =
        (pen_mix_params){.kind = mix->kind, .lam = pen__rng_beta(&share, mix->alpha, mix->alpha)};
    int32_t x = (int32_t)pen__rng_below(&fixed, (uint32_t)shape->width);
    int32_t y = (int32_t)pen__rng_below(&fixed, (uint32_t)shape->height);
    if (mix->kind == PEN_MIX_CUTMIX)
        place_box(out, x, y, shape->width, shape->height);
}

/* ---- pixels and labels ---- */

static void blend(float *restrict own, const float *restrict before, size_t n, float own_share,
                  float before_share)
{
    for (size_t i = 0; i < n; i++) {
        float a = before[i] * before_share, b = own[i] * own_share;
        own[i] = a + b;
    }
}

static void paste(float *own, const float *before, const pen_shape *shape, const pen_mix_params *p)
{
    bool is_planar = shape->layout == PEN_LAYOUT_NCHW;
    size_t planes = is_planar ? (size_t)shape->channels : 1;
    size_t values = is_planar ? 1 : (size_t)shape->channels; /* a pixel */
    size_t row = (size_t)shape->width * values, height = (size_t)shape->height;
    size_t first = (size_t)p->x1 * values, n = (size_t)(p->x2 - p->x1) * values;
    for (size_t plane = 0; plane < planes; plane++)
        for (int32_t y = p->y1; y < p->y2; y++) {
            size_t at = (plane * height + (size_t)y) * row + first;
            memcpy(own + at, before + at, n * sizeof *own);
        }
}

/* One-hot rows and their mixture, written at once. */
static void mix_labels(pen_batch *batch, int64_t ghost, float own_share, float before_share)
{
    size_t n_classes = (size_t)batch->n_classes;
    memset(batch->mixed, 0, (size_t)batch->count * n_classes * sizeof *batch->mixed);
    for (int32_t i = 0; i < batch->count; i++) {
        float *row = batch->mixed + (size_t)i * n_classes;
        row[i > 0 ? batch->labels[i - 1] : ghost] = before_share;
        row[batch->labels[i]] += own_share;
    }
}

static float *row_of(const pen_batch *batch, int32_t i)
{
    return (float *)(void *)(batch->data + (size_t)i * batch->shape.bytes);
}

void pen__mix_batch(pen_batch *batch, const pen_mix_params *params, bool is_closed)
{
    if (batch->count == 0)
        return;
    int32_t ghost = batch->n_slots;
    if (is_closed) {
        memcpy(row_of(batch, ghost), row_of(batch, batch->count - 1), batch->shape.bytes);
        batch->labels[ghost] = batch->labels[batch->count - 1];
    }
    /* torch keeps both shares as doubles, and rounds each to the tensor's type. */
    float own_share = (float)params->lam, before_share = (float)(1.0 - params->lam);
    for (int32_t i = batch->count - 1; i >= 0; i--) {
        const float *before = row_of(batch, i > 0 ? i - 1 : ghost);
        if (params->kind == PEN_MIX_CUTMIX)
            paste(row_of(batch, i), before, &batch->shape, params);
        else
            blend(row_of(batch, i), before, batch->shape.bytes / sizeof(float), own_share,
                  before_share);
    }
    mix_labels(batch, batch->labels[ghost], own_share, before_share);
}
