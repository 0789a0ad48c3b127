/* plan_augment.c - warps, and the primitives of AutoAugment and its relatives, as steps.
 *
 * What torchvision's functional.affine, rotate and perspective and its _apply_op
 * make of their arguments before Pillow is called, with the same double arithmetic.
 * AugMix alone turns its image into a tensor first, so its primitives are those of
 * torchvision's tensor functions.
 */
#include "engine/plan.h"

#include <string.h>

/* ---- warps ---------------------------------------------------------------------- */

static pen__warp_spec *add_warp(pen__cursor *at, pen__warp_kind kind, pen_filter filter,
                                const uint8_t fill[PEN_MAX_CHANNELS])
{
    pen__plan_widen_for(at, fill);
    pen__warp_spec *warp = &pen__plan_add(at, PEN__ACT_WARP, at->w, at->h, at->ch)->warp;
    warp->kind = kind;
    warp->filter = filter;
    memcpy(warp->fill, fill, sizeof warp->fill);
    warp->out_w = at->w;
    warp->out_h = at->h;
    return warp;
}

/* `center` may be NULL: the middle. */
static void add_rotation(pen__cursor *at, double angle, bool expand, const double *center,
                         pen_filter filter, const uint8_t fill[PEN_MAX_CHANNELS])
{
    int32_t w, h;
    pen__plan_widen_for(at, fill);
    pen__rotate_size(at->w, at->h, angle, expand, center, &w, &h);
    pen__step *step = pen__plan_add(at, PEN__ACT_ROTATE, w, h, at->ch);
    step->rotate.angle = angle;
    step->rotate.expand = expand;
    step->rotate.filter = filter;
    memcpy(step->rotate.fill, fill, sizeof step->rotate.fill);
    step->rotate.has_center = center;
    if (center)
        memcpy(step->rotate.center, center, sizeof step->rotate.center);
}

void pen__plan_add_warp(pen__cursor *at, const pen_op *op, const pen_params *p)
{
    if (op->kind == PEN_OP_RANDOM_ROTATION) {
        add_rotation(at, (double)p->warp.angle, op->warp.expand,
                     op->warp.has_center ? op->warp.center : NULL, op->warp.filter, op->warp.fill);
        return;
    }
    if (op->kind == PEN_OP_RANDOM_PERSPECTIVE) {
        const int32_t right = at->w - 1, bottom = at->h - 1;
        const int32_t corners[8] = {0, 0, right, 0, right, bottom, 0, bottom};
        pen__warp_spec *warp = add_warp(at, PEN__WARP_PERSPECTIVE, op->warp.filter, op->warp.fill);
        pen__perspective_coeffs(warp->m, corners, p->perspective.points);
        return;
    }
    const double middle[2] = {at->w * 0.5, at->h * 0.5};
    const double shift[2] = {p->warp.translate[0], p->warp.translate[1]};
    const double shear[2] = {(double)p->warp.shear[0], (double)p->warp.shear[1]};
    pen__warp_spec *warp = add_warp(at, PEN__WARP_AFFINE, op->warp.filter, op->warp.fill);
    pen__affine_matrix(warp->m, op->warp.has_center ? op->warp.center : middle,
                       (double)p->warp.angle, shift, (double)p->warp.scale, shear);
}

/* ---- primitives ------------------------------------------------------------------- */

static void add_shear(pen__cursor *at, const pen_op *op, double x, double y)
{
    static const double corner[2] = {0, 0}, no_shift[2] = {0, 0};
    const double shear[2] = {pen__shear_degrees(x), pen__shear_degrees(y)};
    pen__warp_spec *warp = add_warp(at, PEN__WARP_AFFINE, op->augment.filter, op->augment.fill);
    pen__affine_matrix(warp->m, corner, 0.0, no_shift, 1.0, shear);
}

static void add_translation(pen__cursor *at, const pen_op *op, int32_t x, int32_t y)
{
    static const double no_shear[2] = {0, 0};
    const double middle[2] = {at->w * 0.5, at->h * 0.5}, shift[2] = {x, y};
    pen__warp_spec *warp = add_warp(at, PEN__WARP_AFFINE, op->augment.filter, op->augment.fill);
    pen__affine_matrix(warp->m, middle, 0.0, shift, 1.0, no_shear);
}

static void add_primitive(pen__cursor *at, const pen_op *op, const pen_augment_step *step)
{
    const float magnitude = step->magnitude;
    const double factor = 1.0 + (double)magnitude;
    switch (step->kind) {
    case PEN_AUGMENT_SHEAR_X:
        add_shear(at, op, (double)magnitude, 0);
        break;
    case PEN_AUGMENT_SHEAR_Y:
        add_shear(at, op, 0, (double)magnitude);
        break;
    case PEN_AUGMENT_TRANSLATE_X:
        add_translation(at, op, (int32_t)magnitude, 0);
        break;
    case PEN_AUGMENT_TRANSLATE_Y:
        add_translation(at, op, 0, (int32_t)magnitude);
        break;
    case PEN_AUGMENT_ROTATE:
        add_rotation(at, (double)magnitude, false, NULL, op->augment.filter, op->augment.fill);
        break;
    case PEN_AUGMENT_BRIGHTNESS:
        pen__plan_add_tone(at, PEN__ACT_BRIGHTNESS, factor);
        break;
    case PEN_AUGMENT_COLOR:
        pen__plan_add_tone(at, PEN__ACT_SATURATION, factor);
        break;
    case PEN_AUGMENT_CONTRAST:
        pen__plan_add_tone(at, PEN__ACT_CONTRAST, factor);
        break;
    case PEN_AUGMENT_SHARPNESS:
        pen__plan_add_tone(at, PEN__ACT_SHARPNESS, factor);
        break;
    case PEN_AUGMENT_POSTERIZE:
        pen__plan_add_tone(at, PEN__ACT_POSTERIZE, (double)magnitude);
        break;
    case PEN_AUGMENT_SOLARIZE:
        pen__plan_add_tone(at, PEN__ACT_SOLARIZE, (double)magnitude);
        break;
    case PEN_AUGMENT_AUTO_CONTRAST:
        pen__plan_add_tone(at, PEN__ACT_AUTOCONTRAST, 0);
        break;
    case PEN_AUGMENT_EQUALIZE:
        pen__plan_add_tone(at, PEN__ACT_EQUALIZE, 0);
        break;
    case PEN_AUGMENT_INVERT:
        pen__plan_add_tone(at, PEN__ACT_INVERT, 0);
        break;
    default: /* Identity */
        break;
    }
}

/* ---- AugMix ----------------------------------------------------------------------- */

/* functional.affine and rotate on a tensor: centres count from the middle. */
static void add_tensor_warp(pen__cursor *at, const pen_op *op, const pen_augment_step *step)
{
    const double magnitude = (double)step->magnitude;
    const bool is_shear = step->kind == PEN_AUGMENT_SHEAR_X || step->kind == PEN_AUGMENT_SHEAR_Y;
    double angle = 0, shift[2] = {0, 0}, shear[2] = {0, 0};
    const double center[2] = {is_shear ? -(at->w * 0.5) : 0, is_shear ? -(at->h * 0.5) : 0};
    if (step->kind == PEN_AUGMENT_ROTATE)
        angle = -magnitude;
    else if (is_shear)
        shear[step->kind == PEN_AUGMENT_SHEAR_Y] = pen__shear_degrees(magnitude);
    else
        shift[step->kind == PEN_AUGMENT_TRANSLATE_Y] = (int32_t)magnitude;
    pen__warp_spec *warp = &pen__plan_add(at, PEN__ACT_TENSOR_AFFINE, at->w, at->h, at->ch)->warp;
    warp->filter = op->augment.filter;
    pen__affine_matrix(warp->m, center, angle, shift, 1.0, shear);
}

static void add_tensor_primitive(pen__cursor *at, const pen_op *op, const pen_augment_step *step)
{
    static const pen__action actions[PEN_AUGMENT_COUNT] = {
        [PEN_AUGMENT_BRIGHTNESS] = PEN__ACT_TENSOR_BRIGHTNESS,
        [PEN_AUGMENT_COLOR] = PEN__ACT_TENSOR_SATURATION,
        [PEN_AUGMENT_CONTRAST] = PEN__ACT_TENSOR_CONTRAST,
        [PEN_AUGMENT_SHARPNESS] = PEN__ACT_TENSOR_SHARPNESS,
        [PEN_AUGMENT_AUTO_CONTRAST] = PEN__ACT_TENSOR_AUTOCONTRAST,
    };
    if (step->kind >= PEN_AUGMENT_SHEAR_X && step->kind <= PEN_AUGMENT_ROTATE)
        add_tensor_warp(at, op, step);
    else if (actions[step->kind])
        pen__plan_add_tone(at, actions[step->kind], 1.0 + (double)step->magnitude);
    else /* the same on both ways */
        add_primitive(at, op, step);
}

static void add_mixture(pen__cursor *at, const pen_op *op, const pen_params *p)
{
    const pen_augment_step *step = p->augment.steps;
    const size_t bytes = (size_t)at->w * (size_t)at->h * (size_t)at->ch;
    if (bytes > at->needs.mix_bytes)
        at->needs.mix_bytes = bytes;
    pen__plan_add_tone(at, PEN__ACT_MIX_BEGIN, (double)p->augment.weights[0]);
    for (int chain = 0; chain < p->augment.n_chains; chain++) {
        for (int i = 0; i < p->augment.depth[chain]; i++)
            add_tensor_primitive(at, op, step++);
        pen__plan_add_tone(at, PEN__ACT_MIX_ADD, (double)p->augment.weights[chain + 1]);
    }
    pen__plan_add_tone(at, PEN__ACT_MIX_END, 0);
}

void pen__plan_add_augments(pen__cursor *at, const pen_op *op, const pen_params *p)
{
    if (op->kind == PEN_OP_AUG_MIX) {
        add_mixture(at, op, p);
        return;
    }
    for (int i = 0; i < p->augment.n_steps; i++)
        add_primitive(at, op, &p->augment.steps[i]);
}
