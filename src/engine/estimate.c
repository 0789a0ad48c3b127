/* estimate.c - see estimate.h.
 *
 * Where the figures come from: `make bench-forms` over photographs of 0.2 and 1.1 megapixels
 * (docs/near-storage.md, "The forms"); for sending, a node at 60 Mbit/s (remote/node_sending.h).
 * They need not be good: the order of samples depends on their ratios, and ratios are corrected.
 */
#include "engine/estimate.h"

#include <math.h>

/* Seconds of one core. */
static const double scan_s = 5.2e-9;    /* a byte of a JPEG file that a cut goes through */
static const double decode_s = 3.5e-9;  /* the same when it is decoded, */
static const double jpeg_px_s = 0.8e-9; /* and a pixel of the window */
static const double other_px_s = 25e-9; /* a pixel of a whole PNG or WebP file: a guess */
static const double step_px_s = 3.1e-9; /* a pixel of an image that a step makes */
static const double code_byte_s = 5e-9; /* a byte of pixels that is coded */
static const double sample_s = 95e-6;   /* whatever is done: parsing heads, drawing, sending */
static const double file_s = 1e-9;      /* a byte of a file that is read and sent as it is */

static const double cut_head_bytes = 650; /* tables and markers of a cut file */

/* Coded pixels over plain ones grow with the file's own bytes a pixel: both see detail. */
static const double coded_base = 0.2, coded_slope = 0.34, coded_least = 0.1, coded_most = 0.8;

/* The smaller of what is expected is surpassed a little by the smaller of what is found. */
static const double surpassed = 0.98;

enum { MARGIN = 1 }; /* pixels that the cut needs beside the window, where chroma is coarser */

static double pixels_of(double w, double h)
{
    return w * h;
}

/* The MCUs that a window needs, as a part of the image's. */
static double kept_share(const pen_image_info *info, pen__rect window)
{
    const int mcu_w = 8 * (info->sampling_h ? info->sampling_h : 1);
    const int mcu_h = 8 * (info->sampling_v ? info->sampling_v : 1);
    const int margin = mcu_w > 8 || mcu_h > 8 ? MARGIN : 0;
    const double left = floor(fmax(window.x - margin, 0) / mcu_w);
    const double top = floor(fmax(window.y - margin, 0) / mcu_h);
    const double right = ceil(fmin(window.x + window.w + margin, info->width) / mcu_w);
    const double bottom = ceil(fmin(window.y + window.h + margin, info->height) / mcu_h);
    const double all = ceil((double)info->width / mcu_w) * ceil((double)info->height / mcu_h);
    return fmin(pixels_of(right - left, bottom - top) / all, 1);
}

/* Bytes from the file's beginning to the window's last row: who wants it goes through them. */
static double bytes_to(const pen_image_info *info, pen__rect window, double len)
{
    return len * fmin((double)(window.y + window.h) / info->height, 1);
}

static bool can_be_cut(const pen_image_info *info)
{
    return info->format == PEN_FORMAT_JPEG && !info->is_progressive && info->bits == 8 &&
           (info->channels == 3 || info->channels == 1);
}

static pen__weight weigh_cut(const pen__plan *plan, const pen_image_info *info, double len)
{
    if (!can_be_cut(info))
        return (pen__weight){INFINITY, INFINITY};
    const double share = kept_share(info, plan->window);
    return (pen__weight){cut_head_bytes + fmax(len - cut_head_bytes, 0) * share,
                         sample_s + scan_s * bytes_to(info, plan->window, len)};
}

/* Decoding what the plan needs. */
static double decode_time(const pen__plan *plan, const pen_image_info *info, double len)
{
    if (info->format != PEN_FORMAT_JPEG)
        return other_px_s * pixels_of(info->width, info->height);
    const pen__rect seen =
        info->is_progressive ? (pen__rect){0, 0, info->width, info->height} : plan->window;
    return decode_s * bytes_to(info, seen, len) + jpeg_px_s * pixels_of(seen.w, seen.h);
}

static double cut_bytes(const pen__plan_cut *cut)
{
    return pixels_of(cut->w, cut->h) * cut->ch;
}

/* The place that the node takes: as choose_cut() in pack.c. */
static int find_place(const pen__plan *plan, int max_cut, bool is_furthest)
{
    const int last = pen__plan_find_cut(plan, max_cut);
    int best = is_furthest || last < 0 ? last : 0;
    for (int i = 1; i <= last && !is_furthest; i++)
        if (cut_bytes(&plan->cuts[i]) < cut_bytes(&plan->cuts[best]))
            best = i;
    return best;
}

static pen__weight weigh_pixels(const pen__plan *plan, const pen_image_info *info, double len,
                                int place, int full_ch)
{
    if (place < 0)
        return (pen__weight){INFINITY, INFINITY};
    double cpu_s = sample_s + decode_time(plan, info, len);
    for (int i = 1; i <= place; i++)
        cpu_s += step_px_s * pixels_of(plan->cuts[i].w, plan->cuts[i].h);
    const pen__plan_cut *cut = &plan->cuts[place];
    return (pen__weight){pixels_of(cut->w, cut->h) * fmax(cut->ch, full_ch), cpu_s};
}

static pen__weight weigh_coded(const pen__weight *pixels, const pen_image_info *info, double len)
{
    const double detail = len / pixels_of(info->width, info->height);
    const double ratio = fmin(fmax(coded_base + coded_slope * detail, coded_least), coded_most);
    return (pen__weight){pixels->bytes * ratio, pixels->cpu_s + code_byte_s * pixels->bytes};
}

/* The cut first, then pixels that are decoded from it and coded. */
static pen__weight weigh_both(const pen__estimate *e, const pen__plan *plan,
                              const pen_image_info *info, double len)
{
    const pen__weight *cut = &e->of[PEN__FORM_JPEG_CUT], *coded = &e->of[PEN__FORM_PIXELS_CODED];
    if (isinf(cut->bytes) || isinf(coded->bytes))
        return (pen__weight){INFINITY, INFINITY};
    return (pen__weight){surpassed * fmin(cut->bytes, coded->bytes),
                         cut->cpu_s + coded->cpu_s - sample_s +
                             decode_s * (cut->bytes - bytes_to(info, plan->window, len))};
}

static double corrected(double value, double ratio)
{
    return ratio > 0 ? value * ratio : value;
}

/* How much the constants are off of a form, or of both together: `own`, if it ever came.  Otherwise
 * as much as of others that did, as that is a matter of the node's processor, first of all.  Files
 * as they are say nothing of work: they take the network's time. */
static double time_ratio(const pen__corrections *c, double own)
{
    static const pen__form others[] = {PEN__FORM_PIXELS_CODED, PEN__FORM_PIXELS,
                                       PEN__FORM_JPEG_CUT};
    if (own > 0)
        return own;
    double ratio = c->both_cpu;
    for (size_t i = 0; !(ratio > 0) && i < sizeof others / sizeof *others; i++)
        ratio = c->cpu[others[i]];
    return ratio > 0 ? ratio : 1;
}

double pen__estimate_file_s(double len, const pen__corrections *corrections)
{
    return (sample_s + file_s * len) * time_ratio(corrections, corrections->cpu[PEN__FORM_RAW]);
}

void pen__estimate_sample(pen__estimate *out, const pen__plan *plan, const pen_image_info *info,
                          size_t len, int max_cut, int full_ch, const pen__corrections *corrections)
{
    for (int i = 0; i < PEN__FORM_COUNT; i++)
        out->of[i] = (pen__weight){INFINITY, INFINITY};
    out->of[PEN__FORM_JPEG_CUT] = weigh_cut(plan, info, (double)len);
    const pen__weight pixels =
        weigh_pixels(plan, info, (double)len, find_place(plan, max_cut, full_ch > 0), full_ch);
    out->of[PEN__FORM_PIXELS] = pixels;
    if (!isinf(pixels.bytes))
        out->of[PEN__FORM_PIXELS_CODED] = weigh_coded(&pixels, info, (double)len);
    const double both_s = weigh_both(out, plan, info, (double)len).cpu_s;
    for (int i = 0; i < PEN__FORM_COUNT; i++) {
        out->of[i].bytes = corrected(out->of[i].bytes, corrections->bytes[i]);
        out->of[i].cpu_s *= time_ratio(corrections, corrections->cpu[i]);
    }
    out->both = weigh_both(out, plan, info, (double)len);
    out->both.cpu_s = both_s * time_ratio(corrections, corrections->both_cpu);
    out->of[PEN__FORM_RAW].cpu_s = pen__estimate_file_s((double)len, corrections);
    /* known, not estimated */
    out->of[PEN__FORM_RAW].bytes = (double)len;
    out->of[PEN__FORM_PIXELS].bytes = pixels.bytes;
}

void pen__estimate_adjust(pen__estimate *e, double cut_bytes, double coded_bytes, double cpu)
{
    pen__weight *cut = &e->of[PEN__FORM_JPEG_CUT], *coded = &e->of[PEN__FORM_PIXELS_CODED];
    cut->bytes *= cut_bytes;
    coded->bytes *= coded_bytes;
    for (int i = 0; i < PEN__FORM_COUNT; i++)
        if (i != PEN__FORM_RAW) /* there is little to differ in */
            e->of[i].cpu_s *= cpu;
    e->both.cpu_s *= cpu;
    if (!isinf(e->both.bytes))
        e->both.bytes = surpassed * fmin(cut->bytes, coded->bytes);
}

/* ---- learning ---- */

static const double gain = 1.0 / 64; /* a running mean of about 64 samples */
static const double before = 8;      /* samples that what was known at the beginning counts for */

static bool is_told(double expected, double came)
{
    return expected > 0 && !isinf(expected) && came >= 0;
}

/* Of what came over what the constants alone say; `now` is what is known. */
static double followed(double now, double expected, double came, double weight)
{
    const double told = fmin(fmax(came / expected, 0.05), 20) * now; /* one sample says so much */
    return fmin(fmax(now + weight * (told - now), PEN__LEAST_CORRECTION), PEN__MOST_CORRECTION);
}

/* Sums of times are planned with, so what is expected to take long counts for more: the mean of
 * plain ratios would be what is usual for small samples.  The first samples say more, as what was
 * known may be of another node. */
static void follow_sum(double *ratio, double now, pen__usual_cost *usual, double expected,
                       double came)
{
    const double most = 4; /* one large sample does not decide */
    const double base = expected / now;
    if (!is_told(expected, came))
        return;
    usual->s = usual->n > 0 ? usual->s + gain * (base - usual->s) : base;
    usual->n++;
    *ratio = followed(now, expected, came,
                      fmin(base / usual->s, most) * fmax(gain, 1 / (before + usual->n)));
}

void pen__estimate_learn_bytes(pen__corrections *corrections, const pen__estimate *estimate,
                               pen__form form, double bytes)
{
    const double expected = estimate->of[form].bytes;
    double *ratio = &corrections->bytes[form];
    const bool is_open = form == PEN__FORM_JPEG_CUT || form == PEN__FORM_PIXELS_CODED;
    if (is_open && is_told(expected, bytes)) /* others are known */
        *ratio = followed(*ratio > 0 ? *ratio : 1, expected, bytes, gain);
}

static bool tries_both(const pen__estimate *estimate, uint32_t forms)
{
    const uint32_t both = 1U << PEN__FORM_JPEG_CUT | 1U << PEN__FORM_PIXELS_CODED;
    return (forms & both) == both && !isinf(estimate->both.bytes);
}

/* The file, where nothing else may be sent. */
static int find_dearest(const pen__estimate *estimate, uint32_t forms)
{
    int dearest = PEN__FORM_RAW;
    for (int i = 0; i < PEN__FORM_COUNT; i++) {
        const double now = estimate->of[i].cpu_s;
        if (i == PEN__FORM_RAW || !(forms >> i & 1) || isinf(now))
            continue;
        if (dearest == PEN__FORM_RAW || now > estimate->of[dearest].cpu_s)
            dearest = i;
    }
    return dearest;
}

double pen__estimate_cost(const pen__estimate *estimate, uint32_t forms)
{
    return tries_both(estimate, forms) ? estimate->both.cpu_s
                                       : estimate->of[find_dearest(estimate, forms)].cpu_s;
}

void pen__estimate_learn_cpu(pen__corrections *corrections, pen__usual_costs *usual,
                             const pen__estimate *estimate, uint32_t forms, double cpu_s)
{
    const int dearest = find_dearest(estimate, forms);
    const bool is_both = tries_both(estimate, forms);
    double *ratio = is_both ? &corrections->both_cpu : &corrections->cpu[dearest];
    follow_sum(ratio, time_ratio(corrections, *ratio), is_both ? &usual->both : &usual->of[dearest],
               is_both ? estimate->both.cpu_s : estimate->of[dearest].cpu_s, cpu_s);
}

/* ---- offers ---- */

typedef struct point {
    double bytes, cpu_s;
    uint32_t forms;
} point;

static void add(point *points, int *n, const pen__weight *w, uint32_t forms)
{
    if (isinf(w->bytes))
        return;
    int at = (*n)++;
    for (; at > 0 && points[at - 1].cpu_s > w->cpu_s; at--) /* the cheapest first */
        points[at] = points[at - 1];
    points[at] = (point){w->bytes, w->cpu_s, forms};
}

/* Where one may go from the file.  Each form is asked for alone, as trying costs as well; but
 * whether a file that cannot be cut shrinks by coding its bytes shows in a piece of it. */
static int gather(const pen__estimate *e, uint32_t forms, point out[PEN__MAX_OFFERS])
{
    const bool can_be_cut = !isinf(e->of[PEN__FORM_JPEG_CUT].bytes);
    const uint32_t file = 1U << PEN__FORM_RAW | (forms & ~PEN__FORMS_ALL) |
                          (can_be_cut ? 0 : forms & PEN__FORMS_CODED_BYTES);
    const uint32_t cut = forms & 1U << PEN__FORM_JPEG_CUT;
    const uint32_t pixels = forms & 1U << PEN__FORM_PIXELS;
    const uint32_t coded = forms & 1U << PEN__FORM_PIXELS_CODED;
    int n = 0;
    if (cut)
        add(out, &n, &e->of[PEN__FORM_JPEG_CUT], file | cut);
    if (pixels)
        add(out, &n, &e->of[PEN__FORM_PIXELS], file | pixels);
    if (coded)
        add(out, &n, &e->of[PEN__FORM_PIXELS_CODED], file | pixels | coded);
    if (cut && coded)
        add(out, &n, &e->both, forms);
    return n;
}

int pen__estimate_offers(const pen__estimate *estimate, uint32_t forms,
                         pen__offer out[PEN__MAX_OFFERS])
{
    point points[PEN__MAX_OFFERS];
    const int n_points = gather(estimate, forms, points);
    double bytes = estimate->of[PEN__FORM_RAW].bytes, cpu_s = estimate->of[PEN__FORM_RAW].cpu_s;
    int n = 0, from = 0;
    while (from < n_points) { /* always to the point that is worth most from here */
        int best = -1;
        pen__offer offer = {0};
        for (int i = from; i < n_points; i++) {
            const pen__offer one = {points[i].forms, bytes - points[i].bytes,
                                    fmax(points[i].cpu_s - cpu_s, 0)};
            if (one.saved_bytes > 0 &&
                (best < 0 || pen__offer_worth(&one) > pen__offer_worth(&offer))) {
                best = i;
                offer = one;
            }
        }
        if (best < 0)
            break;
        out[n++] = offer;
        bytes = points[best].bytes;
        cpu_s = points[best].cpu_s;
        from = best + 1;
    }
    return n;
}
