/* run.c - carry one sample from bytes to its place in the batch.
 *
 * Images alternate between two scratch buffers (AugMix keeps a third and a sum); the last step
 * writes straight into the destination as a tensor, so nothing is stacked or copied afterwards.
 */
#include "engine/run.h"

#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "codec/pixel_code.h"
#include "ops/augmix_ops.h"
#include "ops/color.h"
#include "ops/geometry.h"
#include "ops/tone.h"

/* Random fills start here in an operation's stream, far behind its parameters. */
enum { FILL_DRAW = 4096 };

/* AugMix's steps that stay where they are. */
static void run_mix(const pen__step *step, const pen__buffers *buffers, pen__image *im)
{
    const size_t bytes = pen__image_bytes(im);
    switch (step->action) {
    case PEN__ACT_MIX_BEGIN:
        memcpy(buffers->kept, im->px, bytes);
        memset(buffers->mix, 0, bytes * sizeof *buffers->mix);
        pen__tensor_path_add(buffers->mix, im, (float)step->value);
        break;
    case PEN__ACT_MIX_ADD:
        pen__tensor_path_add(buffers->mix, im, (float)step->value);
        memcpy(im->px, buffers->kept, bytes);
        break;
    case PEN__ACT_MIX_END:
        pen__tensor_path_finish(buffers->mix, im);
        break;
    case PEN__ACT_TENSOR_BRIGHTNESS:
        pen__tensor_path_brightness(im, step->value);
        break;
    case PEN__ACT_TENSOR_CONTRAST:
        pen__tensor_path_contrast(im, step->value, step->is_rgb);
        break;
    case PEN__ACT_TENSOR_SATURATION:
        pen__tensor_path_saturation(im, step->value, step->is_rgb);
        break;
    case PEN__ACT_TENSOR_SHARPNESS:
        pen__tensor_path_sharpness(im, step->value, buffers->kernel);
        break;
    case PEN__ACT_TENSOR_AUTOCONTRAST:
        pen__tensor_path_autocontrast(im);
        break;
    default:
        break;
    }
}

/* Steps that change values where they stand. */
static void run_tone(const pen__step *step, const pen__buffers *buffers, pen__image *im)
{
    switch (step->action) {
    case PEN__ACT_HFLIP:
        pen__hflip(im);
        break;
    case PEN__ACT_VFLIP:
        pen__vflip(im);
        break;
    case PEN__ACT_BRIGHTNESS:
        pen__brightness(im, (float)step->value);
        break;
    case PEN__ACT_CONTRAST:
        pen__contrast(im, (float)step->value);
        break;
    case PEN__ACT_SATURATION:
        pen__saturation(im, (float)step->value);
        break;
    case PEN__ACT_HUE:
        pen__hue(im, (float)step->value);
        break;
    case PEN__ACT_SHARPNESS:
        pen__sharpness(im, (float)step->value, buffers->kernel);
        break;
    case PEN__ACT_POSTERIZE:
        pen__posterize(im, (int)step->value);
        break;
    case PEN__ACT_SOLARIZE:
        pen__solarize(im, (float)step->value);
        break;
    case PEN__ACT_INVERT:
        pen__invert(im);
        break;
    case PEN__ACT_AUTOCONTRAST:
        pen__autocontrast(im);
        break;
    case PEN__ACT_EQUALIZE:
        pen__equalize(im);
        break;
    default:
        run_mix(step, buffers, im);
        break;
    }
}

/* Run one step on `im`; returns true if the result is in `other`. */
static bool run_step(const pen__step *step, const pen__buffers *buffers, pen__image *im,
                     pen__image *other, const atomic_bool *cancel)
{
    switch (step->action) {
    case PEN__ACT_ORIENT:
        pen__orient(im, (int)step->value, other);
        return true;
    case PEN__ACT_GREY: {
        pen__image grey = {.px = im->px};
        pen__to_grey(im, &grey);
        *im = grey;
        return false;
    }
    case PEN__ACT_SPREAD:
        pen__spread(im, other);
        return true;
    case PEN__ACT_RESIZE:
        pen__resize(&step->resize.spec, im, step->resize.have, other, buffers->kernel);
        return true;
    case PEN__ACT_CROP:
        pen__crop(im, step->crop.box, step->crop.mode, step->crop.fill, other);
        return true;
    case PEN__ACT_WARP:
        pen__warp(im, &step->warp, other);
        return true;
    case PEN__ACT_ROTATE:
        pen__rotate(im, step->rotate.angle, step->rotate.expand,
                    step->rotate.has_center ? step->rotate.center : NULL, step->rotate.filter,
                    step->rotate.fill, other);
        return true;
    case PEN__ACT_TENSOR_AFFINE:
        pen__tensor_path_affine(im, step->warp.m, step->warp.filter, other);
        return true;
    case PEN__ACT_BLUR:
        pen__gaussian_blur(im, &step->blur, other, buffers->kernel, cancel);
        return true;
    default:
        run_tone(step, buffers, im);
        return false;
    }
}

static void erase(const pen_pipeline *pipe, size_t i, const pen_params *p, const pen_key *key,
                  void *dst)
{
    const pen_op *op = &pipe->ops[i];
    pen_op norms[PEN_PIPELINE_MAX_OPS];
    int n_norms = pen__pipeline_norms(pipe, i, norms);
    pen__rng rng;
    pen__rng_init(&rng, key->seed, PEN__RNG_OP, key->sample, key->epoch, key->occurrence, (int)i);
    rng.counter[1] += (uint32_t)FILL_DRAW << 8;
    pen__erase(dst, &pipe->shape, (pen__rect){p->x, p->y, p->w, p->h}, op->area.value,
               op->area.fill_mode == PEN_FILL_RANDOM ? &rng : NULL, norms, n_norms);
}

static void write_tensor(const pen_pipeline *pipe, const pen_params *params, const pen_key *key,
                         const pen__image *im, void *dst)
{
    pen__to_tensor(&pipe->table, im, pipe->shape.layout, dst);
    for (size_t i = pipe->n_image_ops; i < pipe->n_ops; i++)
        if (pipe->ops[i].kind == PEN_OP_RANDOM_ERASING && params[i].applied)
            erase(pipe, i, &params[i], key, dst);
}

static void take_rows(void *ctx, int32_t y, const uint8_t *rows, size_t stride, int32_t n_rows)
{
    pen__resize_flow_rows(ctx, y, rows, stride, n_rows);
}

/* Decode and the resize after it, row by row. */
static int decode_in_flow(const pen__plan *plan, pen__decoder *dec, const pen__input *in,
                          pen__image *im, void *scratch, pen_error *err)
{
    const pen__step *step = &plan->steps[0];
    pen__resize_flow flow;
    const pen__row_sink sink = {take_rows, &flow};
    pen__resize_flow_begin(&flow, &step->resize.spec, step->resize.have, plan->window_ch, im,
                           scratch);
    return pen__decode_rows(dec, in->src, in->len, in->info, in->window, &sink, err);
}

/* The image that the plan's first step finds. */
static int begin(const pen__plan *plan, pen__decoder *dec, const pen__input *in,
                 const pen__buffers *buffers, pen__image *im, pen_error *err)
{
    *im = (pen__image){.px = buffers->images[0]};
    if (in->kind == PEN__INPUT_PIXELS) {
        *im = in->pixels; /* where they are: the next image goes to the other buffer anyway */
        return 0;
    }
    if (in->kind == PEN__INPUT_CODED) {
        *im = (pen__image){im->px, in->pixels.w, in->pixels.h, in->pixels.ch};
        return pen__pixels_decode(in->src, in->len, im->w, im->h, im->ch, buffers->kernel, im->px,
                                  err);
    }
    return plan->starts_in_flow ? decode_in_flow(plan, dec, in, im, buffers->kernel, err)
                                : pen__decode(dec, in->src, in->len, in->info, in->window, im, err);
}

/* Leave the present stage, after `ns` in it, and enter another; -1: none.  The time now. */
static int64_t change_stage(pen__stage_ns *times, int64_t ns, int next)
{
    if (times->share >= 0)
        pen__shares_leave(times->shares, times->share, ns);
    bool has_permit = times->shares && next >= 0 && pen__shares_enter(times->shares, next);
    times->share = has_permit ? next : -1;
    return pen__now_ns();
}

/* The steps after decoding.  PEN_ECANCELED. */
static int run_steps(const pen__plan *plan, const pen__buffers *buffers, const atomic_bool *cancel,
                     pen__image *im, pen_error *err)
{
    int current = 0;
    for (int i = plan->first_step + plan->starts_in_flow; i < plan->n_steps; i++) {
        pen__image other = {.px = buffers->images[!current]};
        if (run_step(&plan->steps[i], buffers, im, &other, cancel)) {
            *im = other;
            current = !current;
        }
        if (cancel && atomic_load_explicit(cancel, memory_order_relaxed))
            return pen__fail(err, PEN_ECANCELED, -1, "cancelled");
    }
    return 0;
}

int pen__run(const pen_pipeline *pipe, const pen__plan *plan, const pen_params *params,
             const pen_key *key, pen__decoder *dec, const pen__input *in, void *scratch, void *dst,
             pen__stage_ns *times, pen_error *err)
{
    pen__stage_ns unmeasured = {.share = -1};
    times = times ? times : &unmeasured;
    int64_t asked = pen__now_ns(), t0 = change_stage(times, 0, PEN__SHARE_DECODE);
    const pen__buffers buffers = pen__plan_buffers(plan, scratch);
    pen__image im;
    int rc = begin(plan, dec, in, &buffers, &im, err);
    int64_t t1 = pen__now_ns();
    int64_t t2 = change_stage(times, t1 - t0, rc ? -1 : PEN__SHARE_AUGMENT);
    times->wait += t0 - asked + t2 - t1;
    times->decode += t1 - t0;
    times->decode_at = t0;
    if (rc)
        return rc;
    rc = run_steps(plan, &buffers, pen__decoder_cancel(dec), &im, err);
    int64_t t3 = pen__now_ns();
    int64_t t4 = change_stage(times, t3 - t2, rc ? -1 : PEN__SHARE_TRANSFER);
    times->wait += t4 - t3;
    times->augment += t3 - t2;
    times->augment_at = t2;
    if (rc)
        return rc;
    write_tensor(pipe, params, key, &im, dst);
    int64_t t5 = pen__now_ns();
    change_stage(times, t5 - t4, -1);
    times->tensor += t5 - t4;
    times->tensor_at = t4;
    return 0;
}

int pen__run_to_cut(const pen__plan *plan, pen__decoder *dec, const pen__input *in, void *scratch,
                    pen__image *out, pen_error *err)
{
    const pen__buffers buffers = pen__plan_buffers(plan, scratch);
    int rc = begin(plan, dec, in, &buffers, out, err);
    return rc ? rc : run_steps(plan, &buffers, pen__decoder_cancel(dec), out, err);
}

/* Probe, draw or check, plan, allocate, run: the slow path of the public calls. */
static int run_once(const pen_pipeline *pipe, const pen_key *key, const pen_params *given, size_t n,
                    const uint8_t *src, size_t len, void *dst, size_t dst_cap, pen_error *err)
{
    if (dst_cap < pipe->shape.bytes)
        return pen__fail(err, PEN_ENOSPC, -1, "room for %zu bytes, %zu needed", dst_cap,
                         pipe->shape.bytes);
    pen_image_info info;
    pen_params drawn[PEN_PIPELINE_MAX_OPS];
    const pen_params *params = given ? given : drawn;
    int rc = pen_image_probe(src, len, &info, err);
    if (rc == 0)
        rc = given ? pen__params_check(pipe, &info, given, n, err)
                   : pen_pipeline_draw(pipe, key, &info, drawn, PEN_PIPELINE_MAX_OPS, err);
    if (rc)
        return rc;
    pen__plan *plan = pen__malloc(sizeof *plan);
    if (!plan)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    pen__plan_build(plan, pipe, &info, params);
    pen__decoder *dec = NULL;
    pen__input in = pen__input_of_file(plan, &info, src, len);
    void *scratch = pen__aligned(PEN__ALIGN, plan->scratch_bytes);
    if (!scratch || pen__decoder_create(&dec, NULL))
        rc = pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    else
        rc = pen__run(pipe, plan, params, key, dec, &in, scratch, dst, NULL, err);
    pen__decoder_free(dec);
    pen__free(scratch);
    pen__free(plan);
    return rc;
}

int pen_pipeline_run(const pen_pipeline *pipe, const pen_key *key, const uint8_t *src, size_t len,
                     void *dst, size_t dst_cap, pen_error *err)
{
    return run_once(pipe, key, NULL, 0, src, len, dst, dst_cap, err);
}

int pen_pipeline_run_params(const pen_pipeline *pipe, const pen_key *key, const pen_params *params,
                            size_t n, const uint8_t *src, size_t len, void *dst, size_t dst_cap,
                            pen_error *err)
{
    if (!params)
        return pen__fail(err, PEN_EINVAL, -1, "no parameters given");
    return run_once(pipe, key, params, n, src, len, dst, dst_cap, err);
}
