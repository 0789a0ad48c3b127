/* draw_augment.c - AutoAugment, RandAugment, TrivialAugmentWide and AugMix: which
 * primitives, how strongly.
 *
 * Magnitudes are torchvision's to the bit: torch.linspace's float32 values, so that
 * what is drawn can be handed to its _apply_op.
 */
#include "engine/draw.h"

#include "base/fmath.h"
#include "base/gamma.h"

/* ---- how strong a primitive is ---------------------------------------------------- */

/* The i-th of n points from lo to hi as torch.linspace has them: from the nearer end, a
 * float32 step, and one rounding for product and sum (torch's builds fuse them). */
static float linspace(float lo, float hi, int n, int i)
{
    double step = (double)((hi - lo) / (float)(n - 1));
    return (float)(i < n / 2 ? (double)lo + step * i : (double)hi - step * (n - 1 - i));
}

/* Where the scales of a family of operations end; they begin at 0. */
typedef struct space {
    float shear, translate_x, translate_y, rotate, enhance;
    int bits, bits_less; /* posterize: from so many bits, down to so many less */
} space;

static space space_of(const pen_op *op, int32_t w, int32_t h)
{
    if (op->kind == PEN_OP_TRIVIAL_AUGMENT)
        return (space){0.99F, 32.0F, 32.0F, 135.0F, 0.99F, 8, 6};
    if (op->kind == PEN_OP_AUG_MIX)
        return (space){0.3F, (float)(w / 3.0), (float)(h / 3.0), 30.0F, 0.9F, 4, 4};
    return (space){0.3F, (float)(150.0 / 331.0 * w), (float)(150.0 / 331.0 * h), 30.0F, 0.9F, 8, 4};
}

static bool is_signed(pen_augment kind)
{
    return kind >= PEN_AUGMENT_SHEAR_X && kind <= PEN_AUGMENT_SHARPNESS;
}

/* The magnitude in bin `i` of n, without its sign. */
static float magnitude_of(const space *s, pen_augment kind, int n, int i)
{
    switch (kind) {
    case PEN_AUGMENT_SHEAR_X:
    case PEN_AUGMENT_SHEAR_Y:
        return linspace(0, s->shear, n, i);
    case PEN_AUGMENT_TRANSLATE_X:
        return linspace(0, s->translate_x, n, i);
    case PEN_AUGMENT_TRANSLATE_Y:
        return linspace(0, s->translate_y, n, i);
    case PEN_AUGMENT_ROTATE:
        return linspace(0, s->rotate, n, i);
    case PEN_AUGMENT_BRIGHTNESS:
    case PEN_AUGMENT_COLOR:
    case PEN_AUGMENT_CONTRAST:
    case PEN_AUGMENT_SHARPNESS:
        return linspace(0, s->enhance, n, i);
    case PEN_AUGMENT_POSTERIZE: {
        float width = (float)((n - 1) / (double)s->bits_less);
        return (float)(s->bits - pen__round_even((double)((float)i / width)));
    }
    case PEN_AUGMENT_SOLARIZE:
        return linspace(255.0F, 0.0F, n, i);
    default:
        return 0;
    }
}

static void add_step(pen_params *out, pen_augment kind, float magnitude, bool is_negative)
{
    pen_augment_step *step = &out->augment.steps[out->augment.n_steps++];
    step->kind = kind;
    step->magnitude = is_signed(kind) && is_negative ? -magnitude : magnitude;
}

/* ---- AutoAugment -------------------------------------------------------------------- */

enum { POLICIES = 25, POLICY_BINS = 10 };

typedef struct choice {
    uint8_t kind, tenths; /* happens with a probability of so many tenths */
    uint8_t bin;
} choice;

/* short names for the table */
enum {
    SHEAR_X = PEN_AUGMENT_SHEAR_X,
    SHEAR_Y = PEN_AUGMENT_SHEAR_Y,
    TRANSLATE_X = PEN_AUGMENT_TRANSLATE_X,
    TRANSLATE_Y = PEN_AUGMENT_TRANSLATE_Y,
    ROTATE = PEN_AUGMENT_ROTATE,
    BRIGHTNESS = PEN_AUGMENT_BRIGHTNESS,
    COLOR = PEN_AUGMENT_COLOR,
    CONTRAST = PEN_AUGMENT_CONTRAST,
    SHARPNESS = PEN_AUGMENT_SHARPNESS,
    POSTERIZE = PEN_AUGMENT_POSTERIZE,
    SOLARIZE = PEN_AUGMENT_SOLARIZE,
    AUTO_CONTRAST = PEN_AUGMENT_AUTO_CONTRAST,
    EQUALIZE = PEN_AUGMENT_EQUALIZE,
    INVERT = PEN_AUGMENT_INVERT,
};

/* As published (Cubuk et al., 2019), in torchvision's order. */
/* clang-format off */
static const choice policies[3][POLICIES][2] = {
    [PEN_POLICY_IMAGENET] = {
        {{POSTERIZE, 4, 8}, {ROTATE, 6, 9}},
        {{SOLARIZE, 6, 5}, {AUTO_CONTRAST, 6, 0}},
        {{EQUALIZE, 8, 0}, {EQUALIZE, 6, 0}},
        {{POSTERIZE, 6, 7}, {POSTERIZE, 6, 6}},
        {{EQUALIZE, 4, 0}, {SOLARIZE, 2, 4}},
        {{EQUALIZE, 4, 0}, {ROTATE, 8, 8}},
        {{SOLARIZE, 6, 3}, {EQUALIZE, 6, 0}},
        {{POSTERIZE, 8, 5}, {EQUALIZE, 10, 0}},
        {{ROTATE, 2, 3}, {SOLARIZE, 6, 8}},
        {{EQUALIZE, 6, 0}, {POSTERIZE, 4, 6}},
        {{ROTATE, 8, 8}, {COLOR, 4, 0}},
        {{ROTATE, 4, 9}, {EQUALIZE, 6, 0}},
        {{EQUALIZE, 0, 0}, {EQUALIZE, 8, 0}},
        {{INVERT, 6, 0}, {EQUALIZE, 10, 0}},
        {{COLOR, 6, 4}, {CONTRAST, 10, 8}},
        {{ROTATE, 8, 8}, {COLOR, 10, 2}},
        {{COLOR, 8, 8}, {SOLARIZE, 8, 7}},
        {{SHARPNESS, 4, 7}, {INVERT, 6, 0}},
        {{SHEAR_X, 6, 5}, {EQUALIZE, 10, 0}},
        {{COLOR, 4, 0}, {EQUALIZE, 6, 0}},
        {{EQUALIZE, 4, 0}, {SOLARIZE, 2, 4}},
        {{SOLARIZE, 6, 5}, {AUTO_CONTRAST, 6, 0}},
        {{INVERT, 6, 0}, {EQUALIZE, 10, 0}},
        {{COLOR, 6, 4}, {CONTRAST, 10, 8}},
        {{EQUALIZE, 8, 0}, {EQUALIZE, 6, 0}},
    },
    [PEN_POLICY_CIFAR10] = {
        {{INVERT, 1, 0}, {CONTRAST, 2, 6}},
        {{ROTATE, 7, 2}, {TRANSLATE_X, 3, 9}},
        {{SHARPNESS, 8, 1}, {SHARPNESS, 9, 3}},
        {{SHEAR_Y, 5, 8}, {TRANSLATE_Y, 7, 9}},
        {{AUTO_CONTRAST, 5, 0}, {EQUALIZE, 9, 0}},
        {{SHEAR_Y, 2, 7}, {POSTERIZE, 3, 7}},
        {{COLOR, 4, 3}, {BRIGHTNESS, 6, 7}},
        {{SHARPNESS, 3, 9}, {BRIGHTNESS, 7, 9}},
        {{EQUALIZE, 6, 0}, {EQUALIZE, 5, 0}},
        {{CONTRAST, 6, 7}, {SHARPNESS, 6, 5}},
        {{COLOR, 7, 7}, {TRANSLATE_X, 5, 8}},
        {{EQUALIZE, 3, 0}, {AUTO_CONTRAST, 4, 0}},
        {{TRANSLATE_Y, 4, 3}, {SHARPNESS, 2, 6}},
        {{BRIGHTNESS, 9, 6}, {COLOR, 2, 8}},
        {{SOLARIZE, 5, 2}, {INVERT, 0, 0}},
        {{EQUALIZE, 2, 0}, {AUTO_CONTRAST, 6, 0}},
        {{EQUALIZE, 2, 0}, {EQUALIZE, 6, 0}},
        {{COLOR, 9, 9}, {EQUALIZE, 6, 0}},
        {{AUTO_CONTRAST, 8, 0}, {SOLARIZE, 2, 8}},
        {{BRIGHTNESS, 1, 3}, {COLOR, 7, 0}},
        {{SOLARIZE, 4, 5}, {AUTO_CONTRAST, 9, 0}},
        {{TRANSLATE_Y, 9, 9}, {TRANSLATE_Y, 7, 9}},
        {{AUTO_CONTRAST, 9, 0}, {SOLARIZE, 8, 3}},
        {{EQUALIZE, 8, 0}, {INVERT, 1, 0}},
        {{TRANSLATE_Y, 7, 9}, {AUTO_CONTRAST, 9, 0}},
    },
    [PEN_POLICY_SVHN] = {
        {{SHEAR_X, 9, 4}, {INVERT, 2, 0}},
        {{SHEAR_Y, 9, 8}, {INVERT, 7, 0}},
        {{EQUALIZE, 6, 0}, {SOLARIZE, 6, 6}},
        {{INVERT, 9, 0}, {EQUALIZE, 6, 0}},
        {{EQUALIZE, 6, 0}, {ROTATE, 9, 3}},
        {{SHEAR_X, 9, 4}, {AUTO_CONTRAST, 8, 0}},
        {{SHEAR_Y, 9, 8}, {INVERT, 4, 0}},
        {{SHEAR_Y, 9, 5}, {SOLARIZE, 2, 6}},
        {{INVERT, 9, 0}, {AUTO_CONTRAST, 8, 0}},
        {{EQUALIZE, 6, 0}, {ROTATE, 9, 3}},
        {{SHEAR_X, 9, 4}, {SOLARIZE, 3, 3}},
        {{SHEAR_Y, 8, 8}, {INVERT, 7, 0}},
        {{EQUALIZE, 9, 0}, {TRANSLATE_Y, 6, 6}},
        {{INVERT, 9, 0}, {EQUALIZE, 6, 0}},
        {{CONTRAST, 3, 3}, {ROTATE, 8, 4}},
        {{INVERT, 8, 0}, {TRANSLATE_Y, 0, 2}},
        {{SHEAR_Y, 7, 6}, {SOLARIZE, 4, 8}},
        {{INVERT, 6, 0}, {ROTATE, 8, 4}},
        {{SHEAR_Y, 3, 7}, {TRANSLATE_X, 9, 3}},
        {{SHEAR_X, 1, 6}, {INVERT, 6, 0}},
        {{SOLARIZE, 7, 2}, {TRANSLATE_Y, 6, 7}},
        {{SHEAR_Y, 8, 4}, {INVERT, 8, 0}},
        {{SHEAR_X, 7, 9}, {TRANSLATE_Y, 8, 3}},
        {{SHEAR_Y, 8, 5}, {AUTO_CONTRAST, 7, 0}},
        {{SHEAR_X, 7, 2}, {INVERT, 1, 0}},
    },
};
/* clang-format on */

static void draw_auto_augment(const pen_op *op, pen__rng *rng, const space *s, pen_params *out)
{
    const choice *pair = policies[op->augment.policy][pen__rng_below(rng, POLICIES)];
    for (int i = 0; i < 2; i++) {
        bool happens = pen__rng_unit(rng) < pair[i].tenths / 10.0;
        bool is_negative = pen__rng_below(rng, 2);
        if (happens)
            add_step(out, (pen_augment)pair[i].kind,
                     magnitude_of(s, (pen_augment)pair[i].kind, POLICY_BINS, pair[i].bin),
                     is_negative);
    }
}

/* ---- its relatives ------------------------------------------------------------------ */

/* RandAugment and TrivialAugmentWide choose among all but Invert. */
static void draw_uniform(const pen_op *op, pen__rng *rng, const space *s, pen_params *out)
{
    const int n_bins = op->augment.num_magnitude_bins;
    const bool is_trivial = op->kind == PEN_OP_TRIVIAL_AUGMENT;
    for (int i = 0; i < (is_trivial ? 1 : op->augment.num_ops); i++) {
        pen_augment kind = (pen_augment)pen__rng_below(rng, PEN_AUGMENT_INVERT);
        int bin = is_trivial ? (int)pen__rng_below(rng, (uint32_t)n_bins) : op->augment.magnitude;
        add_step(out, kind, magnitude_of(s, kind, n_bins, bin), pen__rng_below(rng, 2));
    }
}

/* n weights that sum to 1: Dirichlet with n equal parameters. */
static void draw_weights(pen__rng *rng, double alpha, int n, double *out)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += out[i] = pen__rng_gamma(rng, alpha);
    for (int i = 0; i < n; i++)
        out[i] /= sum;
}

static void draw_chain(const pen_op *op, pen__rng *rng, const space *s, pen_params *out)
{
    static const uint8_t kinds[] = {SHEAR_X,   SHEAR_Y,  TRANSLATE_X,   TRANSLATE_Y, ROTATE,
                                    POSTERIZE, SOLARIZE, AUTO_CONTRAST, EQUALIZE,    BRIGHTNESS,
                                    COLOR,     CONTRAST, SHARPNESS};
    enum { N_ALL = sizeof kinds, N_BASIC = N_ALL - 4, BINS = 10 };
    int depth =
        op->augment.chain_depth > 0 ? op->augment.chain_depth : 1 + (int)pen__rng_below(rng, 3);
    for (int i = 0; i < depth; i++) {
        pen_augment kind =
            (pen_augment)kinds[pen__rng_below(rng, op->augment.all_ops ? N_ALL : N_BASIC)];
        int bin = (int)pen__rng_below(rng, (uint32_t)op->augment.severity);
        add_step(out, kind, magnitude_of(s, kind, BINS, bin), pen__rng_below(rng, 2));
    }
    out->augment.depth[out->augment.n_chains++] = (uint8_t)depth;
}

static void draw_aug_mix(const pen_op *op, pen__rng *rng, const space *s, pen_params *out)
{
    const double alpha = (double)op->augment.alpha;
    const int width = op->augment.mixture_width;
    double share[2], mixture[PEN_MAX_CHAINS]; /* of the image and the mixture; of the chains */
    draw_weights(rng, alpha, 2, share);
    draw_weights(rng, alpha, width, mixture);
    out->augment.weights[0] = (float)share[0];
    for (int i = 0; i < width; i++) {
        out->augment.weights[i + 1] = (float)mixture[i] * (float)share[1];
        draw_chain(op, rng, s, out);
    }
}

void pen__draw_augment(const pen_op *op, pen__rng *rng, pen_params *out)
{
    const space s = space_of(op, out->in_w, out->in_h);
    if (op->kind == PEN_OP_AUTO_AUGMENT)
        draw_auto_augment(op, rng, &s, out);
    else if (op->kind == PEN_OP_AUG_MIX)
        draw_aug_mix(op, rng, &s, out);
    else
        draw_uniform(op, rng, &s, out);
}
