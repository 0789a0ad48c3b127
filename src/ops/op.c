/* op.c - names and defaults of operations. */
#include <penstock/op.h>

#include <string.h>

const char *pen_op_name(pen_op_kind kind)
{
    static const char *const names[] = {
#define NAME(kind, name) name,
        PEN_OPS(NAME)
#undef NAME
    };
    return (unsigned)kind < PEN_OP_COUNT ? names[kind] : "unknown";
}

const char *pen_augment_name(pen_augment kind)
{
    static const char *const names[] = {
#define NAME(kind, name) name,
        PEN_AUGMENTS(NAME)
#undef NAME
    };
    return (unsigned)kind < PEN_AUGMENT_COUNT ? names[kind] : "unknown";
}

bool pen_op_is_group(pen_op_kind kind)
{
    return kind == PEN_OP_RANDOM_APPLY || kind == PEN_OP_RANDOM_CHOICE ||
           kind == PEN_OP_RANDOM_ORDER || kind == PEN_OP_COMPOSE;
}

/* Every byte is defined, also padding: operations are compared and hashed. */
static pen_op blank(pen_op_kind kind)
{
    pen_op op;
    memset(&op, 0, sizeof op);
    op.kind = kind;
    return op;
}

pen_op pen_op_decode(void)
{
    pen_op op = blank(PEN_OP_DECODE);
    op.decode.channels = 3;
    return op;
}

pen_op pen_op_resize(int32_t shorter_side)
{
    pen_op op = blank(PEN_OP_RESIZE);
    op.resize.h = shorter_side;
    op.resize.filter = PEN_FILTER_BILINEAR;
    return op;
}

pen_op pen_op_center_crop(int32_t h, int32_t w)
{
    pen_op op = blank(PEN_OP_CENTER_CROP);
    op.crop.h = h;
    op.crop.w = w;
    return op;
}

pen_op pen_op_random_crop(int32_t h, int32_t w)
{
    pen_op op = pen_op_center_crop(h, w);
    op.kind = PEN_OP_RANDOM_CROP;
    return op;
}

pen_op pen_op_random_resized_crop(int32_t h, int32_t w)
{
    pen_op op = blank(PEN_OP_RANDOM_RESIZED_CROP);
    op.area.h = h;
    op.area.w = w;
    op.area.scale_min = 0.08F;
    op.area.scale_max = 1.0F;
    op.area.ratio_min = 3.0F / 4.0F;
    op.area.ratio_max = 4.0F / 3.0F;
    op.area.filter = PEN_FILTER_BILINEAR;
    return op;
}

static pen_op by_chance(pen_op_kind kind, float p)
{
    pen_op op = blank(kind);
    op.chance.p = p;
    return op;
}

pen_op pen_op_hflip(float p)
{
    return by_chance(PEN_OP_HFLIP, p);
}

pen_op pen_op_vflip(float p)
{
    return by_chance(PEN_OP_VFLIP, p);
}

static void around_one(float range[2], float spread)
{
    range[0] = spread < 1.0F ? 1.0F - spread : 0.0F;
    range[1] = 1.0F + spread;
}

pen_op pen_op_color_jitter(float brightness, float contrast, float saturation, float hue)
{
    pen_op op = blank(PEN_OP_COLOR_JITTER);
    around_one(op.jitter.brightness, brightness);
    around_one(op.jitter.contrast, contrast);
    around_one(op.jitter.saturation, saturation);
    op.jitter.hue[0] = -hue;
    op.jitter.hue[1] = hue;
    return op;
}

pen_op pen_op_grayscale(int channels)
{
    pen_op op = blank(PEN_OP_GRAYSCALE);
    op.grayscale.channels = channels;
    return op;
}

pen_op pen_op_to_tensor(void)
{
    return blank(PEN_OP_TO_TENSOR);
}

pen_op pen_op_normalize(const float *mean, const float *std, int n_channels)
{
    pen_op op = blank(PEN_OP_NORMALIZE);
    for (int c = 0; c < PEN_MAX_CHANNELS; c++) { /* one value serves every channel, as in torch */
        int from = c < n_channels ? c : 0;
        op.normalize.mean[c] = mean[from];
        op.normalize.std[c] = std[from];
    }
    return op;
}

pen_op pen_op_random_erasing(float p)
{
    pen_op op = blank(PEN_OP_RANDOM_ERASING);
    op.area.p = p;
    op.area.scale_min = 0.02F;
    op.area.scale_max = 0.33F;
    op.area.ratio_min = 0.3F;
    op.area.ratio_max = 3.3F;
    op.area.fill_mode = PEN_FILL_VALUE;
    return op;
}

pen_op pen_op_pad(int32_t each_side)
{
    pen_op op = blank(PEN_OP_PAD);
    for (int i = 0; i < 4; i++)
        op.crop.pad[i] = each_side;
    return op;
}

pen_op pen_op_random_grayscale(float p)
{
    return by_chance(PEN_OP_RANDOM_GRAYSCALE, p);
}

pen_op pen_op_random_invert(float p)
{
    return by_chance(PEN_OP_RANDOM_INVERT, p);
}

pen_op pen_op_random_posterize(int32_t bits, float p)
{
    pen_op op = by_chance(PEN_OP_RANDOM_POSTERIZE, p);
    op.chance.bits = bits;
    return op;
}

pen_op pen_op_random_solarize(float threshold, float p)
{
    pen_op op = by_chance(PEN_OP_RANDOM_SOLARIZE, p);
    op.chance.threshold = threshold;
    return op;
}

pen_op pen_op_random_sharpness(float factor, float p)
{
    pen_op op = by_chance(PEN_OP_RANDOM_SHARPNESS, p);
    op.chance.factor = factor;
    return op;
}

pen_op pen_op_random_autocontrast(float p)
{
    return by_chance(PEN_OP_RANDOM_AUTOCONTRAST, p);
}

pen_op pen_op_random_equalize(float p)
{
    return by_chance(PEN_OP_RANDOM_EQUALIZE, p);
}

/* ---- warps and blur ------------------------------------------------------------ */

pen_op pen_op_random_rotation(float degrees)
{
    pen_op op = blank(PEN_OP_RANDOM_ROTATION);
    op.warp.degrees[0] = -degrees;
    op.warp.degrees[1] = degrees;
    op.warp.scale[0] = op.warp.scale[1] = 1.0F;
    return op;
}

pen_op pen_op_random_affine(float degrees)
{
    pen_op op = pen_op_random_rotation(degrees);
    op.kind = PEN_OP_RANDOM_AFFINE;
    return op;
}

pen_op pen_op_random_perspective(double distortion_scale, double p)
{
    pen_op op = blank(PEN_OP_RANDOM_PERSPECTIVE);
    op.warp.distortion_scale = distortion_scale;
    op.warp.p = p;
    op.warp.filter = PEN_FILTER_BILINEAR;
    return op;
}

pen_op pen_op_gaussian_blur(int32_t kernel_w, int32_t kernel_h)
{
    pen_op op = blank(PEN_OP_GAUSSIAN_BLUR);
    op.blur.kernel_w = kernel_w;
    op.blur.kernel_h = kernel_h;
    op.blur.sigma[0] = 0.1F;
    op.blur.sigma[1] = 2.0F;
    return op;
}

/* ---- AutoAugment and its relatives ----------------------------------------------- */

pen_op pen_op_auto_augment(pen_policy policy)
{
    pen_op op = blank(PEN_OP_AUTO_AUGMENT);
    op.augment.policy = policy;
    return op;
}

pen_op pen_op_rand_augment(int32_t num_ops, int32_t magnitude)
{
    pen_op op = blank(PEN_OP_RAND_AUGMENT);
    op.augment.num_ops = num_ops;
    op.augment.magnitude = magnitude;
    op.augment.num_magnitude_bins = 31;
    return op;
}

pen_op pen_op_trivial_augment(void)
{
    pen_op op = blank(PEN_OP_TRIVIAL_AUGMENT);
    op.augment.num_magnitude_bins = 31;
    return op;
}

pen_op pen_op_aug_mix(void)
{
    pen_op op = blank(PEN_OP_AUG_MIX);
    op.augment.severity = 3;
    op.augment.mixture_width = 3;
    op.augment.chain_depth = -1;
    op.augment.alpha = 1.0F;
    op.augment.all_ops = true;
    op.augment.filter = PEN_FILTER_BILINEAR;
    return op;
}

/* ---- groups -------------------------------------------------------------------- */

static pen_op group_of(pen_op_kind kind, int32_t n_members)
{
    pen_op op = blank(kind);
    op.group.n = n_members;
    return op;
}

pen_op pen_op_random_apply(float p, int32_t n_members)
{
    pen_op op = group_of(PEN_OP_RANDOM_APPLY, n_members);
    op.group.p = p;
    return op;
}

pen_op pen_op_random_choice(int32_t n_members, const float *weights)
{
    pen_op op = group_of(PEN_OP_RANDOM_CHOICE, n_members);
    for (int32_t i = 0; i < n_members && i < PEN_MAX_MEMBERS; i++)
        op.group.weights[i] = weights ? weights[i] : 1.0F;
    return op;
}

pen_op pen_op_random_order(int32_t n_members)
{
    return group_of(PEN_OP_RANDOM_ORDER, n_members);
}

pen_op pen_op_compose(int32_t n_members)
{
    return group_of(PEN_OP_COMPOSE, n_members);
}
