/* allow.c - see allow.h. */
#include "engine/allow.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "engine/pipeline.h"
#include "source/names.h"

enum {
    PROFILE = 64,
    THRESHOLD_EVERY = 32,
    MAX_GUESSED_SIDE = 16384,
    SETTLED = 128,     /* samples until it is known what is usual, and so what is not */
    WORTH_SAVING = 64, /* one that came among so many */
};

#define PEN_OFFLOAD_NAME(id, name, text) name,
static const char *const names[PEN_OFFLOAD_COUNT] = {PEN_OFFLOADS(PEN_OFFLOAD_NAME)};

int pen_offload_find(const char *name)
{
    for (int i = 0; i < PEN_OFFLOAD_COUNT; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

const char *pen_offload_name(int offload)
{
    return offload >= 0 && offload < PEN_OFFLOAD_COUNT ? names[offload] : NULL;
}

int pen__allow_kind(int kind, pen_offload *out, pen_error *err)
{
    *out = PEN_OFFLOAD_AUTO;
    if (!pen_offload_name(kind))
        return pen__fail(err, PEN_EINVAL, -1, "unknown offload");
    const char *text = getenv("PENSTOCK_OFFLOAD");
    if (kind == PEN_OFFLOAD_DEFAULT && text && *text) {
        kind = pen_offload_find(text);
        pen__shown shown;
        if (kind < 0)
            return pen__fail(err, PEN_EINVAL, -1,
                             "PENSTOCK_OFFLOAD is '%s': give 'auto', 'none', 'all', 'resize', "
                             "'fastflow' or 'sophon'",
                             pen__show(&shown, text, strlen(text)));
    }
    if (kind != PEN_OFFLOAD_DEFAULT)
        *out = (pen_offload)kind;
    return 0;
}

int pen__allow_init(pen__allow *a, pen_offload kind, const pen_pipeline *pipe, int64_t n_samples)
{
    a->kind = kind;
    a->pipe = pipe;
    a->share = 1;
    a->bounds = pen__allow_widest(a);
    a->typical.bytes_per_pixel = 0.5;
    a->typical.info = (pen_image_info){.format = PEN_FORMAT_JPEG,
                                       .width = 4,
                                       .height = 3,
                                       .channels = 3,
                                       .bits = 8,
                                       .orientation = 1,
                                       .sampling_h = 2,
                                       .sampling_v = 2};
    pthread_mutex_init(&a->lock, NULL);
    a->is_ready = true;
    int rc = pen__headers_init(&a->headers, n_samples);
    return rc ? rc : pen__traits_init(&a->traits, n_samples);
}

void pen__allow_fini(pen__allow *a)
{
    if (a->is_ready)
        pthread_mutex_destroy(&a->lock);
    a->is_ready = false;
    pen__headers_fini(&a->headers);
    pen__traits_fini(&a->traits);
}

int64_t pen__allow_memory(int64_t n)
{
    return pen__headers_memory(n) + n * (int64_t)sizeof(uint32_t) + pen__profile_bytes(n);
}

bool pen__allow_has_share(const pen__allow *a)
{
    return a->kind == PEN_OFFLOAD_AUTO || a->kind == PEN_OFFLOAD_SOPHON;
}

/* With the lock held. */
static void set_threshold(pen__allow *a)
{
    const bool is_empty = !(a->ranking.n_samples > 0) && a->share > 0 && a->share < 1;
    if (!is_empty || a->threshold == 0 || isinf(a->threshold))
        a->threshold = pen__ranking_threshold(&a->ranking, a->share);
    a->n_until_threshold = THRESHOLD_EVERY;
}

void pen__allow_set_share(pen__allow *a, double share)
{
    pthread_mutex_lock(&a->lock);
    a->share = share;
    set_threshold(a);
    pthread_mutex_unlock(&a->lock);
}

bool pen__allow_has_bounds(const pen__allow *a)
{
    return a->kind == PEN_OFFLOAD_AUTO;
}

/* What was offered within other bounds says nothing of these; the worth that was asked for does,
 * until there is something to rank. */
void pen__allow_set_bounds(pen__allow *a, const pen__allow_bounds *bounds)
{
    pthread_mutex_lock(&a->lock);
    if (bounds->cut_wire != a->bounds.cut_wire || bounds->codec != a->bounds.codec) {
        a->bounds = *bounds;
        a->ranking = (pen__ranking){0};
        a->n_until_threshold = THRESHOLD_EVERY;
    }
    pthread_mutex_unlock(&a->lock);
}

/* ---- choices ---- */

static pen__choice nothing(void)
{
    return (pen__choice){.max_cut = 0, .forms = 1U << PEN__FORM_RAW};
}

/* Plain pixels after this many operations, whatever they weigh. */
static pen__choice pixels_at(size_t n_ops)
{
    return (pen__choice){.max_cut = (int)n_ops,
                         .forms = 1U << PEN__FORM_PIXELS | PEN__FORMS_AT_FURTHEST};
}

/* The operations up to the last that crops or resizes every sample. */
static size_t resize_cut(const pen_pipeline *pipe)
{
    size_t n_ops = 1;
    for (size_t i = 1; i < pipe->n_image_ops; i = pipe->end[i]) {
        const pen_op_kind kind = pipe->ops[i].kind;
        if (kind == PEN_OP_RESIZE || kind == PEN_OP_CENTER_CROP || kind == PEN_OP_RANDOM_CROP ||
            kind == PEN_OP_RANDOM_RESIZED_CROP)
            n_ops = i + 1;
    }
    return n_ops;
}

pen__allow_bounds pen__allow_widest(const pen__allow *a)
{
    switch (a->kind) {
    case PEN_OFFLOAD_AUTO:
        return (pen__allow_bounds){(int)a->pipe->n_image_ops, PEN_CODEC_PIXELS};
    case PEN_OFFLOAD_ALL:
    case PEN_OFFLOAD_FASTFLOW:
        return (pen__allow_bounds){(int)a->pipe->n_image_ops, PEN_CODEC_NONE};
    case PEN_OFFLOAD_SOPHON:
    case PEN_OFFLOAD_RESIZE:
        return (pen__allow_bounds){(int)resize_cut(a->pipe), PEN_CODEC_NONE};
    default:
        return (pen__allow_bounds){0, PEN_CODEC_NONE};
    }
}

/* The forms within bounds. */
static uint32_t forms_within(const pen__allow_bounds *bounds)
{
    const uint32_t coded_pixels = 1U << PEN__FORM_PIXELS_CODED;
    uint32_t forms = PEN__FORMS_ALL;
    if (bounds->codec < PEN_CODEC_BYTES)
        forms &= ~PEN__FORMS_CODED_BYTES;
    if (bounds->codec < PEN_CODEC_PIXELS)
        forms &= ~coded_pixels;
    if (bounds->cut_wire == 0)
        forms &= ~(1U << PEN__FORM_PIXELS | coded_pixels);
    return forms;
}

/* As far as the policy goes now.  SOPHON knows whole operations alone: decoding gives the whole
 * image, and a random crop is over when it is resized.  So a crop that is decoded and not yet
 * resized, which may have fewer pixels, is nothing that it could send.  The lock is held. */
static pen__choice furthest(const pen__allow *a)
{
    const int cut = a->bounds.cut_wire;
    switch (a->kind) {
    case PEN_OFFLOAD_AUTO:
        return (pen__choice){cut, forms_within(&a->bounds)};
    case PEN_OFFLOAD_SOPHON:
        return (pen__choice){cut,
                             1U << PEN__FORM_RAW | 1U << PEN__FORM_PIXELS | PEN__FORMS_AT_FURTHEST};
    case PEN_OFFLOAD_NONE:
        return nothing();
    default:
        return pixels_at((size_t)cut);
    }
}

/* A header that the sample might have.  The lock is held. */
static pen_image_info guess_header(const pen__allow *a, size_t len)
{
    pen_image_info info = a->typical.info;
    const double had = (double)info.width * info.height;
    const double factor = sqrt((double)len / a->typical.bytes_per_pixel / had);
    info.width = (int32_t)fmin(fmax(info.width * factor, 8), MAX_GUESSED_SIDE);
    info.height = (int32_t)fmin(fmax(info.height * factor, 8), MAX_GUESSED_SIDE);
    return info;
}

static bool estimate(pen__allow *a, const pen_key *key, size_t len, const pen__choice *choice,
                     pen__estimate *out)
{
    pen_params params[PEN_PIPELINE_MAX_OPS];
    pen__plan plan;
    pen_image_info info;
    const bool is_known = pen__headers_get(&a->headers, key->sample, &info);
    pthread_mutex_lock(&a->lock);
    const pen__corrections corrections = a->typical.corrections;
    if (!is_known)
        info = guess_header(a, len);
    pthread_mutex_unlock(&a->lock);
    if (pen_pipeline_draw(a->pipe, key, &info, params, PEN_PIPELINE_MAX_OPS, NULL) != 0)
        return false;
    pen__plan_build(&plan, a->pipe, &info, params);
    const bool is_furthest = choice->forms & PEN__FORMS_AT_FURTHEST;
    pen__estimate_sample(out, &plan, &info, len, choice->max_cut,
                         is_furthest ? a->pipe->shape.channels : 0, &corrections);
    return true;
}

/* All that is foreseen or nothing, by what the first samples would weigh; until then nothing.  The
 * lock is held. */
static pen__choice choose_fastflow(pen__allow *a, size_t len, const pen__foreseen *foreseen)
{
    if (a->n_profiled < PROFILE && foreseen->is_estimated) {
        a->n_profiled++;
        a->profiled_raw += (double)len;
        a->profiled_sent += foreseen->estimate.of[PEN__FORM_PIXELS].bytes;
    }
    const bool pays = a->n_profiled >= PROFILE && a->profiled_sent < a->profiled_raw;
    return pays ? foreseen->choice : nothing();
}

/* Of what is foreseen, the steps that are worth enough.  The lock is held. */
static pen__choice choose_by_worth(pen__allow *a, int64_t sample, const pen__foreseen *foreseen)
{
    pen__offer offers[PEN__MAX_OFFERS];
    pen__estimate own;
    const pen__choice all = foreseen->choice;
    pen__choice choice = nothing();
    if (!foreseen->is_estimated) /* who knows what is in there */
        return a->threshold > 0 ? choice : all;
    own = foreseen->estimate;
    pen__estimate_adjust(&own, pen__traits_factor(&a->traits, sample, PEN__TRAIT_CUT_BYTES),
                         pen__traits_factor(&a->traits, sample, PEN__TRAIT_CODED_BYTES),
                         pen__traits_factor(&a->traits, sample, PEN__TRAIT_CPU));
    const int n = pen__estimate_offers(&own, all.forms, offers);
    pen__ranking_add(&a->ranking, own.of[PEN__FORM_RAW].bytes, offers, n);
    if (--a->n_until_threshold <= 0)
        set_threshold(a);
    if (!(a->threshold > 0))
        return all;
    for (int i = 0; i < n && pen__offer_worth(&offers[i]) >= a->threshold; i++)
        choice = (pen__choice){all.max_cut, offers[i].forms};
    return choice;
}

void pen__allow_choose(pen__allow *a, const pen_key *key, size_t len, pen__foreseen *out)
{
    const bool is_weighed = pen__allow_has_share(a) || a->kind == PEN_OFFLOAD_FASTFLOW;
    pthread_mutex_lock(&a->lock);
    out->choice = furthest(a);
    pthread_mutex_unlock(&a->lock);
    out->is_estimated =
        is_weighed && len > 0 && estimate(a, key, len, &out->choice, &out->estimate);
    if (!is_weighed)
        return;
    pthread_mutex_lock(&a->lock);
    out->choice = a->kind == PEN_OFFLOAD_FASTFLOW ? choose_fastflow(a, len, out)
                                                  : choose_by_worth(a, key->sample, out);
    pthread_mutex_unlock(&a->lock);
}

int64_t pen__foreseen_ns(const pen__foreseen *foreseen)
{
    if (!foreseen->is_estimated)
        return 0;
    return (int64_t)(pen__estimate_cost(&foreseen->estimate, foreseen->choice.forms) * 1e9);
}

/* ---- learning ---- */

/* How it differs from what is usual; as long as that is not known, it says nothing.  The lock is
 * held. */
static void note_traits(pen__allow *a, int64_t sample, const pen__foreseen *foreseen,
                        const pen__parcel *parcel, double cpu_s)
{
    const pen__estimate *usual = &foreseen->estimate;
    const double ratio = (double)parcel->len / usual->of[parcel->form].bytes;
    if (a->n_learned < SETTLED)
        return;
    if (parcel->form == PEN__FORM_JPEG_CUT)
        pen__traits_note(&a->traits, sample, PEN__TRAIT_CUT_BYTES, ratio);
    else if (parcel->form == PEN__FORM_PIXELS_CODED)
        pen__traits_note(&a->traits, sample, PEN__TRAIT_CODED_BYTES, ratio);
    if (foreseen->choice.forms != 1U << PEN__FORM_RAW)
        pen__traits_note(&a->traits, sample, PEN__TRAIT_CPU,
                         cpu_s / pen__estimate_cost(usual, foreseen->choice.forms));
}

void pen__allow_learn(pen__allow *a, int64_t sample, const pen__foreseen *foreseen,
                      const pen__parcel *parcel, double cpu_s)
{
    const pen_image_info *info = &parcel->info;
    const double pixels = (double)info->width * info->height;
    const bool is_image = info->format != PEN_FORMAT_UNKNOWN && pixels > 0;
    if (is_image)
        pen__headers_put(&a->headers, sample, info);
    pthread_mutex_lock(&a->lock);
    if (is_image) {
        const double detail = (double)parcel->raw_len / pixels;
        a->typical.info = *info;
        a->typical.bytes_per_pixel +=
            (fmin(fmax(detail, PEN__LEAST_DETAIL), PEN__MOST_DETAIL) - a->typical.bytes_per_pixel) /
            32;
    }
    if (foreseen->is_estimated) {
        const pen__estimate *e = &foreseen->estimate;
        pen__corrections *usual = &a->typical.corrections;
        pen__estimate_learn_bytes(usual, e, parcel->form, (double)parcel->len);
        pen__estimate_learn_cpu(usual, &a->usual_costs, e, foreseen->choice.forms, cpu_s);
        note_traits(a, sample, foreseen, parcel, cpu_s);
    }
    a->n_learned++;
    a->n_unsaved++;
    pthread_mutex_unlock(&a->lock);
}

pen__weight pen__allow_raw(pen__allow *a)
{
    pthread_mutex_lock(&a->lock);
    const double bytes = pen__ranking_raw_bytes(&a->ranking);
    const pen__weight raw = {bytes, pen__estimate_file_s(bytes, &a->typical.corrections)};
    pthread_mutex_unlock(&a->lock);
    return raw;
}

pen__gain pen__allow_gain(pen__allow *a, double share)
{
    pthread_mutex_lock(&a->lock);
    const pen__gain gain = pen__ranking_gain(&a->ranking, share);
    pthread_mutex_unlock(&a->lock);
    return gain;
}

/* ---- from run to run ---- */

void pen__allow_keep(pen__allow *a, const pen_dataset *ds)
{
    const pen__learned learned = {&a->headers, &a->traits, &a->typical, a->pipe->hash};
    a->kept_for = ds;
    pthread_mutex_lock(&a->lock);
    if (pen__profile_load(&learned, ds) == PEN__PROFILE_ALL)
        a->n_learned = SETTLED;
    pthread_mutex_unlock(&a->lock);
}

bool pen__allow_has_news(pen__allow *a)
{
    if (!a->kept_for)
        return false;
    pthread_mutex_lock(&a->lock);
    const int64_t n = a->n_unsaved;
    pthread_mutex_unlock(&a->lock);
    return n > 0 && n >= a->headers.n / WORTH_SAVING;
}

void pen__allow_save(pen__allow *a)
{
    pen_error err = {0};
    pen__shown shown; /* paths may hold anything */
    if (!pen__allow_has_news(a))
        return;
    pthread_mutex_lock(&a->lock);
    pen__typical typical = a->typical;
    a->n_unsaved = 0;
    pthread_mutex_unlock(&a->lock);
    const pen__learned learned = {&a->headers, &a->traits, &typical, a->pipe->hash};
    if (pen__profile_save(&learned, a->kept_for, &err) == 0)
        return;
    pthread_mutex_lock(&a->lock);
    if (!a->has_warned)
        snprintf(a->warning, sizeof a->warning,
                 "what was learned of the dataset is not kept for the next run: %s",
                 pen__show(&shown, err.text, strlen(err.text)));
    a->has_warned = true;
    pthread_mutex_unlock(&a->lock);
}

void pen__allow_warning(pen__allow *a, char *dst, size_t dst_cap)
{
    pthread_mutex_lock(&a->lock);
    snprintf(dst, dst_cap, "%s", a->warning);
    a->warning[0] = '\0';
    pthread_mutex_unlock(&a->lock);
}
