/* unpack.c - what became of a sample on its way, turned back into something a plan runs on. */
#include "engine/unpack.h"

#include "base/fail.h"
#include "base/mem.h"
#include "codec/pixel_code.h"

static bool is_same_image(const pen_image_info *a, const pen_image_info *b)
{
    return a->format == b->format && a->width == b->width && a->height == b->height &&
           a->channels == b->channels && a->bits == b->bits && a->orientation == b->orientation &&
           a->is_progressive == b->is_progressive && a->is_grey == b->is_grey &&
           a->is_animated == b->is_animated && a->sampling_h == b->sampling_h &&
           a->sampling_v == b->sampling_v;
}

/* A JPEG file of a part of the image: does it hold what the plan decodes? */
static int plan_cut_file(pen__unpacking *u, pen__plan *plan, pen_error *err)
{
    const pen__parcel *p = &u->parcel;
    const pen__rect window = plan->window, kept = p->kept;
    int rc = pen_image_probe(p->data, p->len, &u->cut_info, err);
    if (rc)
        return rc;
    const bool is_inside = window.x >= kept.x && window.y >= kept.y &&
                           window.x + window.w <= kept.x + kept.w &&
                           window.y + window.h <= kept.y + kept.h;
    const bool is_alike = u->cut_info.format == PEN_FORMAT_JPEG && u->cut_info.width == kept.w &&
                          u->cut_info.height == kept.h && u->cut_info.is_grey == p->info.is_grey;
    if (!is_inside || !is_alike)
        return pen__fail(err, PEN_ECORRUPT, -1, "a part of a JPEG file that is not the one needed");
    u->in = (pen__input){.kind = PEN__INPUT_FILE,
                         .src = p->data,
                         .len = p->len,
                         .info = &u->cut_info,
                         .window = {window.x - kept.x, window.y - kept.y, window.w, window.h}};
    plan->library_bytes = pen__decode_memory(&u->cut_info, u->in.window);
    return 0;
}

/* Grey pixels may have come with three equal channels; plans take one. */
static bool has_channels(const pen__parcel *p, int channels)
{
    return p->channels == channels ||
           (p->form == PEN__FORM_PIXELS && channels == 1 && p->channels == 3);
}

static void drop_equal_channels(pen__image *im, int channels)
{
    const size_t n = (size_t)im->w * (size_t)im->h * (size_t)im->ch;
    for (size_t i = 0; i < n && channels > im->ch; i++)
        im->px[i] = im->px[(size_t)channels * i];
}

static int plan_pixels(pen__unpacking *u, uint8_t *px, pen__plan *plan, pen_error *err)
{
    const pen__parcel *p = &u->parcel;
    const int at = pen__plan_find_cut(plan, p->cut);
    const pen__plan_cut *cut = at >= 0 ? &plan->cuts[at] : NULL;
    if (!cut || cut->n_ops != p->cut || cut->w != p->kept.w || cut->h != p->kept.h ||
        !has_channels(p, cut->ch))
        return pen__fail(err, PEN_ECORRUPT, -1, "pixels that are not those at a cut of the line");
    pen__plan_keep(plan, at, plan->n_cuts - 1);
    u->in = (pen__input){.kind = PEN__INPUT_PIXELS, .pixels = {px, cut->w, cut->h, cut->ch}};
    if (p->form == PEN__FORM_PIXELS_CODED) {
        u->in.kind = PEN__INPUT_CODED;
        u->in.src = p->data;
        u->in.len = p->len;
        pen__plan_add_scratch(plan, pen__pixels_scratch(cut->w, cut->h, cut->ch));
    }
    return 0;
}

/* The file itself, as it is or coded: with its bytes comes its place. */
static void plan_file(pen__unpacking *u, pen__plan *plan)
{
    const pen__parcel *p = &u->parcel;
    u->in = pen__input_of_file(plan, &u->cut_info, p->data, p->len);
    if (p->form == PEN__FORM_RAW)
        return;
    u->file_bytes = pen__align_up(p->raw_len);
    plan->scratch_bytes += u->file_bytes;
    plan->library_bytes += p->form == PEN__FORM_ZSTD ? PEN__BYTES_ZSTD_MEMORY : 0;
}

int pen__unpack_plan(pen__unpacking *u, const pen_pipeline *pipe, const pen_key *key, uint8_t *src,
                     size_t len, size_t raw_len, pen_params *params, pen__plan *plan,
                     pen_error *err)
{
    const pen__parcel *p = &u->parcel;
    u->file_bytes = 0;
    int rc = pen__parcel_read(&u->parcel, src, len, err);
    if (rc == 0 && p->raw_len != raw_len)
        rc = pen__fail(err, PEN_ECORRUPT, -1, "a parcel of a file with %zu bytes instead of %zu",
                       p->raw_len, raw_len);
    u->cut_info = p->info;
    if (rc == 0 && p->form == PEN__FORM_RAW) /* the bytes know better */
        rc = pen_image_probe(p->data, p->len, &u->cut_info, err);
    if (rc == 0)
        rc = pen_pipeline_draw(pipe, key, &u->cut_info, params, PEN_PIPELINE_MAX_OPS, err);
    if (rc)
        return rc;
    pen__plan_build(plan, pipe, &u->cut_info, params);
    switch (p->form) {
    case PEN__FORM_JPEG_CUT:
        return plan_cut_file(u, plan, err);
    case PEN__FORM_PIXELS:
    case PEN__FORM_PIXELS_CODED:
        return plan_pixels(u, src + PEN__PARCEL_HEAD, plan, err);
    default:
        plan_file(u, plan);
        return 0;
    }
}

int pen__unpack_open(pen__unpacking *u, pen__bytes_coder **coder, uint8_t **scratch, pen_error *err)
{
    const pen__parcel *p = &u->parcel;
    if (u->in.kind == PEN__INPUT_PIXELS)
        drop_equal_channels(&u->in.pixels, p->channels);
    if (!u->file_bytes)
        return 0;
    uint8_t *file = *scratch;
    *scratch += u->file_bytes;
    if (!*coder && pen__bytes_coder_create(coder) != 0)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    pen__bytes_codec codec = PEN__BYTES_ZSTD;
    pen__form_codec(p->form, &codec);
    int rc = pen__bytes_decode(*coder, codec, p->data, p->len, file, p->raw_len, err);
    pen_image_info found;
    if (rc == 0)
        rc = pen_image_probe(file, p->raw_len, &found, err);
    if (rc == 0 && !is_same_image(&found, &p->info)) /* the plan was made of what the head says */
        rc = pen__fail(err, PEN_ECORRUPT, -1, "a file that is not the image its parcel claims");
    u->in.src = file;
    u->in.len = p->raw_len;
    return rc;
}

int pen__unpack_run(const pen_pipeline *pipe, const pen_key *key, uint8_t *src, size_t len,
                    size_t raw_len, void *dst, pen_error *err)
{
    typedef struct tools {
        pen__unpacking u;
        pen_params params[PEN_PIPELINE_MAX_OPS];
        pen__plan plan;
    } tools;
    tools *t = pen__malloc(sizeof *t);
    if (!t)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    pen__decoder *dec = NULL;
    pen__bytes_coder *coder = NULL;
    uint8_t *scratch = NULL;
    int rc = pen__unpack_plan(&t->u, pipe, key, src, len, raw_len, t->params, &t->plan, err);
    if (rc == 0) {
        uint8_t *rest = scratch = pen__aligned(PEN__ALIGN, t->plan.scratch_bytes);
        if (!scratch || pen__decoder_create(&dec, NULL))
            rc = pen__fail(err, PEN_ENOMEM, -1, "out of memory");
        else
            rc = pen__unpack_open(&t->u, &coder, &rest, err);
        if (rc == 0)
            rc = pen__run(pipe, &t->plan, t->params, key, dec, &t->u.in, rest, dst, NULL, err);
    }
    pen__decoder_free(dec);
    pen__bytes_coder_free(coder);
    pen__free(scratch);
    pen__free(t);
    return rc;
}
