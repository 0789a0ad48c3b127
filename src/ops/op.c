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

pen_op pen_op_hflip(float p)
{
    pen_op op = blank(PEN_OP_HFLIP);
    op.flip.p = p;
    return op;
}

pen_op pen_op_vflip(float p)
{
    pen_op op = blank(PEN_OP_VFLIP);
    op.flip.p = p;
    return op;
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
