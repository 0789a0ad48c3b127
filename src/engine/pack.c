/* pack.c - find the smallest exact form of a sample.
 *
 * Candidates are tried with the length of the best so far as their limit, so that whoever cannot
 * win gives up early, or is not tried at all where that can be guessed (may_win_coded, try_all):
 *
 *     raw            costs nothing
 *     cut            of a JPEG file: parses what the window needs, copies bits
 *     pixels         decodes, from the cut if there is one, and runs the line up to where the
 *                    image is smallest; plain, or coded where that is smaller
 *     coded bytes    of a file that is not compressed by itself: the first of zstd, lz4 and snappy
 *                    that may be sent
 *
 * The winner's payload is always behind the head in dst, or the winner is raw.
 *
 * Where an index is wanted, the marks of a JPEG file are made before anything is made of it, since
 * with AVX-512 making them and cutting with them takes less time than cutting without, and without
 * AVX-512 the second time pays for the first (docs/near-storage.md).
 */
#include "engine/pack.h"

#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "codec/bytes.h"
#include "codec/pixel_code.h"
#include "engine/run.h"
#include "ops/geometry.h"
#include "ops/jpeg_cut.h"

enum {
    KEEP_BYTES = 4 << 20,  /* scratch that is kept from one file to the next */
    MAX_BYTES = 256 << 20, /* what a file may take; a larger image travels raw */
};

struct pen__packer {
    pen__decoder *dec;
    pen__jpeg_cutter *cutter;
    pen__bytes_coder *coder;
    pen__jpeg_indexer *indexer; /* once somebody wanted an index, or NULL */
    pen__jpeg_indexed indexed;  /* the last file's marks */
    uint8_t *scratch;
    size_t scratch_cap;
    pen_params params[PEN_PIPELINE_MAX_OPS];
    pen__plan plan;
};

/* One file's way. */
typedef struct packing {
    pen__packer *packer;
    const pen__pack_order *order;
    const uint8_t *src;
    size_t len;
    const void *marks;
    size_t n_marks;
    bool has_looked; /* for marks that were not given */
    uint8_t *dst;    /* the payload's place */
    size_t dst_cap;
    pen__parcel best;
} packing;

int pen__packer_create(pen__packer **out, const atomic_bool *cancel)
{
    *out = NULL;
    pen__packer *packer = pen__calloc(1, sizeof *packer);
    if (!packer)
        return PEN_ENOMEM;
    if (pen__decoder_create(&packer->dec, cancel) || pen__jpeg_cutter_create(&packer->cutter) ||
        pen__bytes_coder_create(&packer->coder)) {
        pen__packer_free(packer);
        return PEN_ENOMEM;
    }
    *out = packer;
    return 0;
}

void pen__packer_free(pen__packer *packer)
{
    if (!packer)
        return;
    pen__decoder_free(packer->dec);
    pen__jpeg_cutter_free(packer->cutter);
    pen__bytes_coder_free(packer->coder);
    pen__jpeg_indexer_free(packer->indexer);
    pen__free(packer->scratch);
    pen__free(packer);
}

static uint8_t *scratch_of(pen__packer *packer, size_t bytes)
{
    if (bytes > MAX_BYTES)
        return NULL;
    if (packer->scratch_cap < bytes) {
        pen__free(packer->scratch);
        packer->scratch = pen__aligned(PEN__ALIGN, pen__align_up(bytes));
        packer->scratch_cap = packer->scratch ? bytes : 0;
    }
    return packer->scratch;
}

static void trim_scratch(pen__packer *packer)
{
    if (packer->scratch_cap <= KEEP_BYTES)
        return;
    pen__free(packer->scratch);
    packer->scratch = NULL;
    packer->scratch_cap = 0;
}

static bool may_be(const packing *job, pen__form form)
{
    return job->order->forms >> form & 1;
}

/* The longest payload that would be the best so far; 0: none. */
static size_t limit_of(const packing *job)
{
    if (job->best.form == PEN__FORM_RAW && !may_be(job, PEN__FORM_RAW))
        return job->dst_cap;
    return job->best.len > 0 ? job->best.len - 1 : 0;
}

/* ---- guesses: nothing depends on them but time ------------------------------------------ */

static size_t pixel_bytes(const pen__plan_cut *cut)
{
    return (size_t)cut->w * (size_t)cut->h * (size_t)cut->ch;
}

/* Bytes that coded pixels take.  What a JPEG file spends on a pixel says how much there is to code:
 * the share of the pixels' bytes that is left goes with its square root.  Measured on 860 crops of
 * photographs, resized to 224 x 224: 0.6 of it in the middle, a quarter more or less for most. */
static double guess_coded(double bytes_a_pixel, const pen__plan_cut *cut)
{
    const double share = 0.6 * sqrt(bytes_a_pixel), most = 2.0 / 3;
    return (double)pixel_bytes(cut) * (share < most ? share : most);
}

/* Bytes of JPEG or PNG file that go to a pixel: of the part that is needed where it was cut out. */
static double bytes_a_pixel(const packing *job)
{
    const pen__rect window = job->packer->plan.window;
    if (job->best.form == PEN__FORM_JPEG_CUT)
        return (double)job->best.len / ((double)window.w * window.h);
    return (double)job->len / ((double)job->best.info.width * job->best.info.height);
}

/* Is it possible that coded pixels are the smallest form?  With three quarters of the guess, what
 * is missed makes the whole a thousandth larger. */
static bool may_win_coded(const packing *job, const pen__plan_cut *cut)
{
    return may_be(job, PEN__FORM_PIXELS_CODED) &&
           0.75 * guess_coded(bytes_a_pixel(job), cut) <= (double)limit_of(job);
}

/* About what the JPEG cut takes, before it was made. */
static double guess_cut(const packing *job)
{
    const pen__rect window = job->packer->plan.window;
    return bytes_a_pixel(job) * ((double)window.w * window.h);
}

/* ---- marks ---------------------------------------------------------------------------- */

/* Something is about to be made of the file: find its marks, once, if an index is wanted. */
static void find_marks(packing *job)
{
    pen__packer *packer = job->packer;
    if (!job->order->wants_index || job->has_looked || job->best.info.format != PEN_FORMAT_JPEG)
        return;
    job->has_looked = true;
    if (!packer->indexer &&
        pen__jpeg_indexer_create(&packer->indexer, pen__decoder_cancel(packer->dec)) != 0)
        return; /* does without */
    packer->indexed =
        pen__jpeg_index(packer->indexer, job->src, job->len, job->marks, job->n_marks);
    job->marks = packer->indexed.marks ? packer->indexed.marks->bytes : NULL;
    job->n_marks = packer->indexed.n_bytes;
}

/* ---- a part of a JPEG file ------------------------------------------------------------ */

static int64_t cut_file(packing *job, uint8_t *to, size_t limit, pen__rect *kept)
{
    pen__packer *packer = job->packer;
    find_marks(job);
    if (packer->indexed.marks)
        return pen__jpeg_cut_known(packer->cutter, job->src, job->len, packer->plan.window,
                                   packer->indexed.marks, to, limit, kept);
    return pen__jpeg_cut(packer->cutter, job->src, job->len, packer->plan.window, job->marks,
                         job->n_marks, to, limit, kept);
}

static void try_cut(packing *job)
{
    pen__rect kept;
    const pen_image_info info = job->best.info;
    if (!may_be(job, PEN__FORM_JPEG_CUT) || info.format != PEN_FORMAT_JPEG)
        return;
    const size_t limit = limit_of(job);
    uint8_t *to = job->best.form == PEN__FORM_RAW ? job->dst : scratch_of(job->packer, limit);
    int64_t n = to ? cut_file(job, to, limit, &kept) : 0;
    if (n <= 0)
        return;
    if (to != job->dst)
        memcpy(job->dst, to, (size_t)n);
    job->best = (pen__parcel){.form = PEN__FORM_JPEG_CUT,
                              .info = info,
                              .kept = kept,
                              .raw_len = job->len,
                              .len = (size_t)n};
}

/* ---- pixels --------------------------------------------------------------------------- */

/* Where the image is smallest, the earliest of equals: that is least work here.  -1: nowhere. */
static int choose_cut(const packing *job)
{
    const pen__plan *plan = &job->packer->plan;
    const int last = pen__plan_find_cut(plan, job->order->max_cut);
    if (job->order->forms & PEN__FORMS_AT_FURTHEST)
        return last;
    int best = last < 0 ? -1 : 0;
    for (int i = 1; i <= last; i++)
        if (pixel_bytes(&plan->cuts[i]) < pixel_bytes(&plan->cuts[best]))
            best = i;
    return best;
}

/* What to decode: the cut where there is one, as its window is found sooner.  `cut_info` is the
 * place for what is said of it. */
static pen__input input_of(const packing *job, pen_image_info *cut_info)
{
    const pen__plan *plan = &job->packer->plan;
    const pen__rect kept = job->best.kept;
    pen__input in = pen__input_of_file(plan, &job->best.info, job->src, job->len);
    if (job->best.form != PEN__FORM_JPEG_CUT ||
        pen_image_probe(job->dst, job->best.len, cut_info, NULL) != 0)
        return in;
    in.src = job->dst;
    in.len = job->best.len;
    in.info = cut_info;
    in.window.x -= kept.x;
    in.window.y -= kept.y;
    return in;
}

/* Would it take more than a second or so?  A line may blur huge images with huge kernels: that is
 * for whoever wants it. */
static bool is_endless(const pen__plan *plan)
{
    const double most = 1e10, a_step = 16;
    double work = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        const pen__step *step = &plan->steps[i];
        const double kernel = (double)step->blur.kernel_w * step->blur.kernel_h;
        work += (double)plan->needs.image_bytes *
                (step->action == PEN__ACT_BLUR && kernel > a_step ? kernel : a_step);
    }
    return work > most;
}

/* Run the line up to the cut; the image is at the front of the scratch memory, in which `spare`
 * bytes are left for others: *rest. */
static bool make_pixels(packing *job, int cut, size_t spare, pen__image *out, uint8_t **rest)
{
    pen__packer *packer = job->packer;
    pen__plan *plan = &packer->plan;
    pen_image_info cut_info;
    pen__plan_keep(plan, -1, cut);
    const pen__input in = input_of(job, &cut_info);
    uint8_t *scratch = scratch_of(packer, plan->scratch_bytes + spare);
    if (!scratch || pen__decode_memory(in.info, in.window) > MAX_BYTES || is_endless(plan))
        return false;
    *rest = scratch + plan->scratch_bytes;
    if (in.src == job->src)
        find_marks(job);
    if (in.src == job->src && job->n_marks > 0)
        pen__decoder_give_marks(packer->dec, job->marks, job->n_marks);
    return pen__run_to_cut(plan, packer->dec, &in, scratch, out, NULL) == 0;
}

/* They are at dst. */
static void take_pixels(packing *job, pen__form form, const pen__plan_cut *cut, int channels,
                        size_t len)
{
    job->best.form = form;
    job->best.cut = cut->n_ops;
    job->best.kept = (pen__rect){0, 0, cut->w, cut->h};
    job->best.channels = channels;
    job->best.len = len;
}

/* The image at the cut as plain pixels have it on the wire. */
static pen__plan_cut plain_cut(const packing *job, pen__plan_cut cut)
{
    const int32_t all = job->order->pipe->shape.channels;
    if (job->order->forms & PEN__FORMS_AT_FURTHEST && cut.ch < all)
        cut.ch = all;
    return cut;
}

static void take_plain(packing *job, const pen__plan_cut *plain, const pen__image *image)
{
    pen__image out = {.px = job->dst};
    if (plain->ch > image->ch)
        pen__spread(image, &out);
    else
        memcpy(job->dst, image->px, pixel_bytes(plain));
    take_pixels(job, PEN__FORM_PIXELS, plain, plain->ch, pixel_bytes(plain));
}

static void try_pixels(packing *job, int at)
{
    if (at < 0)
        return;
    const pen__plan_cut cut = job->packer->plan.cuts[at];
    const pen__plan_cut plain = plain_cut(job, cut);
    const size_t limit = limit_of(job), bytes = pixel_bytes(&plain);
    const bool is_plain = may_be(job, PEN__FORM_PIXELS) && bytes <= limit;
    const bool is_coded = may_win_coded(job, &cut);
    if (!is_plain && !is_coded)
        return;
    const size_t coder_bytes =
        is_coded ? pen__align_up(pen__pixels_scratch(cut.w, cut.h, cut.ch)) : 0;
    const size_t bound = is_coded ? pen__pixels_bound(cut.w, cut.h, cut.ch) : 0;
    pen__image image;
    uint8_t *rest;
    if (!make_pixels(job, at, coder_bytes + bound, &image, &rest))
        return;
    const size_t most = is_plain ? bytes - 1 : limit;
    uint8_t *coded = rest + coder_bytes;
    int64_t n = is_coded ? pen__pixels_encode(image.px, image.w, image.h, image.ch, rest, coded,
                                              most < bound ? most : bound)
                         : 0;
    if (n > 0) {
        memcpy(job->dst, coded, (size_t)n);
        take_pixels(job, PEN__FORM_PIXELS_CODED, &cut, cut.ch, (size_t)n);
    } else if (is_plain) {
        take_plain(job, &plain, &image);
    }
}

/* ---- coded bytes ---------------------------------------------------------------------- */

/* The first that may be sent, as they come: hardly ever is a later one smaller.  Raw: none may. */
static pen__form choose_codec(const packing *job, pen__bytes_codec *codec)
{
    for (int form = 0; form < PEN__FORM_COUNT; form++)
        if (may_be(job, (pen__form)form) && pen__form_codec((pen__form)form, codec))
            return (pen__form)form;
    return PEN__FORM_RAW;
}

static void try_bytes(packing *job)
{
    pen__packer *packer = job->packer;
    pen__bytes_codec codec;
    const pen__form form = choose_codec(job, &codec);
    if (form == PEN__FORM_RAW || !pen__bytes_look_loose(packer->coder, job->src, job->len))
        return;
    const size_t limit = limit_of(job);
    uint8_t *scratch = scratch_of(packer, limit);
    size_t n =
        scratch ? pen__bytes_encode(packer->coder, codec, job->src, job->len, scratch, limit) : 0;
    if (n == 0)
        return;
    memcpy(job->dst, scratch, n);
    job->best = (pen__parcel){.form = form, .info = job->best.info, .raw_len = job->len, .len = n};
}

/* ---- all of it ------------------------------------------------------------------------ */

/* Header to plan.  False: the file travels raw. */
static bool plan_file(packing *job)
{
    const pen__pack_order *order = job->order;
    pen__packer *packer = job->packer;
    pen_image_info info;
    if (pen_image_probe(job->src, job->len, &info, NULL) != 0 || !pen__parcel_takes(&info))
        return false;
    job->best.info = info;
    if (!order->pipe || job->len == 0 ||
        pen_pipeline_draw(order->pipe, &order->key, &info, packer->params, PEN_PIPELINE_MAX_OPS,
                          NULL) != 0)
        return false;
    pen__plan_build(&packer->plan, order->pipe, &info, packer->params);
    return true;
}

/* The JPEG cut comes first, as it is cheap and pixels come out of it sooner; unless it is so large
 * that coded pixels will be smaller: then it is made only if they disappoint. */
static void try_all(packing *job)
{
    const atomic_bool *cancel = pen__decoder_cancel(job->packer->dec);
    const int at = choose_cut(job);
    const double cut_bytes = guess_cut(job);
    const bool is_large =
        at >= 0 && may_be(job, PEN__FORM_PIXELS_CODED) &&
        cut_bytes > 1.5 * guess_coded(bytes_a_pixel(job), &job->packer->plan.cuts[at]);
    if (!is_large)
        try_cut(job);
    try_pixels(job, at);
    if (cancel && atomic_load_explicit(cancel, memory_order_relaxed))
        return;
    if (is_large && (double)job->best.len > cut_bytes)
        try_cut(job);
    try_bytes(job);
}

int64_t pen__pack(pen__packer *packer, const pen__pack_order *order, const uint8_t *src, size_t len,
                  const void *marks, size_t n_marks, uint8_t *dst, size_t dst_cap, pen_error *err)
{
    if (dst_cap < PEN__PARCEL_HEAD || dst_cap - PEN__PARCEL_HEAD < len)
        return pen__fail(err, PEN_ENOSPC, -1, "no room for a parcel of %zu bytes", len);
    packing job = {.packer = packer,
                   .order = order,
                   .src = src,
                   .len = len,
                   .marks = marks,
                   .n_marks = n_marks,
                   .dst = dst + PEN__PARCEL_HEAD,
                   .dst_cap = dst_cap - PEN__PARCEL_HEAD,
                   .best = {.form = PEN__FORM_RAW, .raw_len = len, .len = len}};
    packer->indexed = (pen__jpeg_indexed){.state = PEN__INDEX_NONE};
    if (plan_file(&job)) {
        try_all(&job);
        trim_scratch(packer);
    }
    if (job.best.form == PEN__FORM_RAW && len > 0)
        memcpy(job.dst, src, len);
    pen__parcel_write_head(&job.best, dst);
    return (int64_t)(PEN__PARCEL_HEAD + job.best.len);
}

pen__jpeg_indexed pen__packer_indexed(const pen__packer *packer)
{
    return packer->indexed;
}
