/* test_pipeline_check.c - settings and groups: what is refused, and what is known of the output. */
#include "lines.h"

#include <math.h>

#include "engine/plan.h"

/* Refused after a crop that fixes the size. */
static void refuse_op(pen_op op, const char *word)
{
    refuse((pen_op[]){pen_op_center_crop(8, 8), op}, 2, PEN_DTYPE_AUTO, word);
}

static void impossible_settings_are_refused_with_a_reason(void **state)
{
    (void)state;
    pen_op op = pen_op_pad(-1);
    refuse_op(op, "padding");
    refuse_op(pen_op_pad(16000), "size");
    op = pen_op_pad(1);
    op.crop.padding_mode = (pen_padding)9;
    refuse_op(op, "padding_mode");
    op = pen_op_center_crop(8, 8);
    op.crop.padding_mode = PEN_PADDING_EDGE;
    refuse_op(op, "padding");
    op = pen_op_center_crop(8, 8);
    op.crop.fill[1] = 7;
    refuse_op(op, "padding");
    refuse_op(pen_op_random_invert(-0.1F), "p must");
    refuse_op(pen_op_random_equalize(NAN), "p must");
    refuse_op(pen_op_random_posterize(9, 0.5F), "bits");
    refuse_op(pen_op_random_solarize(INFINITY, 0.5F), "threshold");
    refuse_op(pen_op_random_sharpness(-1, 0.5F), "sharpness_factor");
    refuse_op(pen_op_random_rotation(-3), "degrees"); /* from 3 to -3 */
    refuse_op(pen_op_random_rotation(1e9F), "degrees");
    op = pen_op_random_rotation(3);
    op.warp.filter = PEN_FILTER_LANCZOS;
    refuse_op(op, "interpolation");
    op = pen_op_random_rotation(3);
    op.warp.has_center = true;
    op.warp.center[1] = (double)NAN;
    refuse_op(op, "center");
    op = pen_op_random_affine(3);
    op.warp.translate[1] = 1.5;
    refuse_op(op, "translate");
    op = pen_op_random_affine(3);
    op.warp.scale[0] = 0;
    refuse_op(op, "scale");
    op = pen_op_random_affine(3);
    op.warp.shear[2] = 1;
    refuse_op(op, "shear");
    refuse_op(pen_op_random_perspective(1.1, 0.5), "distortion_scale");
    refuse_op(pen_op_random_perspective(0.5, 2), "p must");
    refuse_op(pen_op_gaussian_blur(4, 3), "kernel_size");
    refuse_op(pen_op_gaussian_blur(3, 513), "kernel_size");
    op = pen_op_gaussian_blur(3, 3);
    op.blur.sigma[0] = 0;
    refuse_op(op, "sigma");
}

static void impossible_augments_are_refused_with_a_reason(void **state)
{
    (void)state;
    refuse_op(pen_op_auto_augment((pen_policy)3), "policy");
    refuse_op(pen_op_rand_augment(0, 9), "num_ops");
    refuse_op(pen_op_rand_augment(33, 9), "num_ops");
    refuse_op(pen_op_rand_augment(2, 31), "magnitude");
    pen_op op = pen_op_trivial_augment();
    op.augment.num_magnitude_bins = 1;
    refuse_op(op, "num_magnitude_bins");
    op = pen_op_aug_mix();
    op.augment.severity = 11;
    refuse_op(op, "severity");
    op = pen_op_aug_mix();
    op.augment.mixture_width = 9;
    refuse_op(op, "mixture_width");
    op = pen_op_aug_mix();
    op.augment.chain_depth = 11;
    refuse_op(op, "chain_depth");
    op = pen_op_aug_mix();
    op.augment.alpha = NAN;
    refuse_op(op, "alpha");
    op = pen_op_aug_mix();
    op.augment.filter = PEN_FILTER_BOX;
    refuse_op(op, "interpolation");
}

static void impossible_groups_are_refused_with_a_reason(void **state)
{
    (void)state;
    const pen_op crop = pen_op_center_crop(8, 8), flip = pen_op_hflip(0.5F);
    const float nothing[2] = {0, 0}, negative[2] = {2, -1};
    refuse((pen_op[]){crop, pen_op_random_apply(0.5F, 2), flip}, 3, PEN_DTYPE_AUTO, "fewer");
    refuse((pen_op[]){crop, pen_op_random_apply(0.5F, 0), flip}, 3, PEN_DTYPE_AUTO, "members");
    refuse((pen_op[]){crop, pen_op_random_order(33), flip}, 3, PEN_DTYPE_AUTO, "members");
    refuse((pen_op[]){crop, pen_op_compose(-1), flip}, 3, PEN_DTYPE_AUTO, "members");
    refuse((pen_op[]){crop, pen_op_random_apply(1.5F, 1), flip}, 3, PEN_DTYPE_AUTO, "p must");
    refuse((pen_op[]){crop, pen_op_random_choice(2, nothing), flip, flip}, 4, PEN_DTYPE_AUTO,
           "weight");
    refuse((pen_op[]){crop, pen_op_random_choice(2, negative), flip, flip}, 4, PEN_DTYPE_AUTO,
           "weights");
    refuse((pen_op[]){crop, pen_op_compose(1), pen_op_to_tensor()}, 3, PEN_DTYPE_AUTO,
           "cannot be in a group");
    refuse((pen_op[]){crop, pen_op_random_apply(1, 1), pen_op_random_erasing(1)}, 3, PEN_DTYPE_AUTO,
           "cannot be in a group");
    refuse((pen_op[]){crop, pen_op_to_tensor(), pen_op_compose(1), flip}, 4, PEN_DTYPE_AUTO,
           "before ToTensor");
    refuse((pen_op[]){crop, pen_op_compose(1), pen_op_decode()}, 3, PEN_DTYPE_AUTO, "first");
    refuse((pen_op[]){crop, pen_op_compose(2), flip, pen_op_hflip(7)}, 4, PEN_DTYPE_AUTO,
           "operation 4");
}

static void chance_must_not_decide_the_channels(void **state)
{
    (void)state;
    const pen_op crop = pen_op_center_crop(8, 8), grey = pen_op_grayscale(1);
    refuse((pen_op[]){crop, pen_op_random_apply(0.5F, 1), grey}, 3, PEN_DTYPE_AUTO, "channels");
    refuse((pen_op[]){crop, pen_op_random_choice(1, NULL), grey}, 3, PEN_DTYPE_AUTO, "channels");
    refuse((pen_op[]){crop, pen_op_random_order(1), grey}, 3, PEN_DTYPE_AUTO, "channels");
    pen_pipeline *pipe = make((pen_op[]){crop, pen_op_compose(1), grey}, 3);
    assert_int_equal(pen_pipeline_shape(pipe).channels, 1);
    pen_pipeline_unref(pipe);
    pen_pipeline_unref(make((pen_op[]){crop, pen_op_random_order(1), pen_op_grayscale(3)}, 3));
}

static void deep_nesting_and_long_lines_are_refused(void **state)
{
    (void)state;
    pen_op deep[11] = {pen_op_center_crop(8, 8)}, wide[8] = {pen_op_center_crop(8, 8)};
    for (int i = 1; i < 10; i++)
        deep[i] = pen_op_random_order(1);
    deep[10] = pen_op_hflip(0.5F);
    refuse(deep, 11, PEN_DTYPE_AUTO, "deep");
    deep[2] = deep[0];
    pen_pipeline_unref(make(deep + 2, 9)); /* eight groups */
    for (int i = 1; i < 8; i++)
        wide[i] = pen_op_rand_augment(32, 9);
    pen_pipeline_unref(make(wide, 7));
    pen_op longer[12];
    for (int i = 0; i < 12; i++)
        longer[i] = i ? pen_op_rand_augment(32, 9) : wide[0];
    refuse(longer, 12, PEN_DTYPE_AUTO, "steps");
}

/* The size after crop 20x20 and `ops`; 0: it depends on the image. */
static int32_t width_after(const pen_op *ops, size_t n)
{
    pen_op line[12] = {pen_op_center_crop(20, 20)};
    memcpy(line + 1, ops, n * sizeof *ops);
    pen_pipeline *pipe;
    if (pen_pipeline_create(&pipe, line, n + 1, PEN_DTYPE_AUTO, PEN_LAYOUT_NCHW, NULL))
        return 0;
    int32_t w = pen_pipeline_shape(pipe).width;
    pen_pipeline_unref(pipe);
    return w;
}

#define WIDTH_AFTER(...) \
    width_after((const pen_op[]){__VA_ARGS__}, COUNT(((const pen_op[]){__VA_ARGS__})))

static void the_size_is_known_where_every_way_ends_in_the_same(void **state)
{
    (void)state;
    const pen_op ten = pen_op_center_crop(10, 10), five = pen_op_center_crop(5, 5);
    const pen_op flip = pen_op_hflip(0.5F), pad = pen_op_pad(4),
                 twenty = pen_op_random_crop(20, 20);
    const pen_op choice = pen_op_random_choice(2, NULL), order = pen_op_random_order(2);
    const pen_op apply = pen_op_random_apply(0.5F, 1), both = pen_op_compose(2);
    assert_int_equal(WIDTH_AFTER(pad), 28);
    assert_int_equal(WIDTH_AFTER(apply, flip), 20);
    assert_int_equal(WIDTH_AFTER(apply, ten), 0);
    assert_int_equal(WIDTH_AFTER(apply, twenty), 20);
    assert_int_equal(WIDTH_AFTER(apply, ten, five), 5); /* fixed behind the group */
    assert_int_equal(WIDTH_AFTER(choice, ten, ten), 10);
    assert_int_equal(WIDTH_AFTER(choice, ten, five), 0);
    assert_int_equal(WIDTH_AFTER(choice, flip, ten), 0);
    assert_int_equal(WIDTH_AFTER(choice, both, pad, ten, both, five, ten), 10);
    assert_int_equal(WIDTH_AFTER(order, flip, ten), 10);
    assert_int_equal(WIDTH_AFTER(order, flip, pad), 28);
    assert_int_equal(WIDTH_AFTER(order, ten, five), 0);
    assert_int_equal(WIDTH_AFTER(order, pad, pen_op_center_crop(28, 28)), 0); /* may be 36 */
    pen_op expand = pen_op_random_rotation(10);
    expand.warp.expand = true;
    assert_int_equal(WIDTH_AFTER(expand), 0);
    assert_int_equal(WIDTH_AFTER(expand, ten), 10);
    assert_int_equal(WIDTH_AFTER(pen_op_random_rotation(10)), 20);
}

static void a_description_nests_as_the_line_does(void **state)
{
    (void)state;
    const pen_op crop = pen_op_center_crop(8, 8), flip = pen_op_hflip(0.25F);
    pen_pipeline *flat = make((pen_op[]){crop, pen_op_compose(1), flip, flip}, 4);
    pen_pipeline *deep = make((pen_op[]){crop, pen_op_compose(2), flip, flip}, 4);
    assert_non_null(
        strstr(pen_pipeline_describe(deep),
               "{\"op\":\"Compose\",\"ops\":[{\"op\":\"RandomHorizontalFlip\",\"p\":0.25},"
               "{\"op\":\"RandomHorizontalFlip\",\"p\":0.25}]}]}"));
    assert_string_not_equal(pen_pipeline_hash(flat), pen_pipeline_hash(deep));
    pen_pipeline_unref(flat);
    pen_pipeline_unref(deep);
}

/* Every setting that can change a byte is in the hash. */
static void the_hash_follows_the_settings_of_every_operation(void **state)
{
    (void)state;
    pen_op ops[PEN_PIPELINE_MAX_OPS];
    const size_t n = everything(ops);
    pen_pipeline *before = make(ops, n);
    for (size_t i = 0; i < n; i++) {
        pen_op keep = ops[i];
        switch (ops[i].kind) {
        case PEN_OP_PAD:
            ops[i].crop.padding_mode = PEN_PADDING_EDGE;
            break;
        case PEN_OP_RANDOM_POSTERIZE:
            ops[i].chance.bits = 4;
            break;
        case PEN_OP_RANDOM_SOLARIZE:
            ops[i].chance.threshold = 99;
            break;
        case PEN_OP_RANDOM_SHARPNESS:
            ops[i].chance.factor = 3;
            break;
        case PEN_OP_RANDOM_ROTATION:
            ops[i].warp.has_center = true;
            break;
        case PEN_OP_RANDOM_AFFINE:
            ops[i].warp.shear[3] = 8;
            break;
        case PEN_OP_RANDOM_PERSPECTIVE:
            ops[i].warp.distortion_scale = 0.49;
            break;
        case PEN_OP_GAUSSIAN_BLUR:
            ops[i].blur.kernel_w = 5;
            break;
        case PEN_OP_AUTO_AUGMENT:
            ops[i].augment.policy = PEN_POLICY_CIFAR10;
            break;
        case PEN_OP_RAND_AUGMENT:
            ops[i].augment.magnitude = 8;
            break;
        case PEN_OP_TRIVIAL_AUGMENT:
            ops[i].augment.fill[2] = 1;
            break;
        case PEN_OP_AUG_MIX:
            ops[i].augment.all_ops = false;
            break;
        case PEN_OP_RANDOM_APPLY:
            ops[i].group.p = 0.7F;
            break;
        case PEN_OP_RANDOM_CHOICE:
            ops[i].group.weights[2] = 4;
            break;
        case PEN_OP_COMPOSE:
            ops[i].kind = PEN_OP_RANDOM_ORDER;
            break;
        case PEN_OP_RANDOM_ORDER:
            ops[i].kind = PEN_OP_COMPOSE;
            break;
        case PEN_OP_COLOR_JITTER:
            ops[i].jitter.hue[1] = 0.2F;
            break;
        case PEN_OP_RANDOM_RESIZED_CROP:
            ops[i].area.scale_min = 0.1F;
            break;
        default:
            ops[i].chance.p = 0.125F;
            break;
        }
        pen_pipeline *after = make(ops, n);
        if (strcmp(pen_pipeline_hash(before), pen_pipeline_hash(after)) == 0)
            fail_msg("the hash does not follow %s", pen_op_name(keep.kind));
        pen_pipeline_unref(after);
        ops[i] = keep;
    }
    pen_pipeline_unref(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_settings_are_refused_with_a_reason),
        cmocka_unit_test(impossible_augments_are_refused_with_a_reason),
        cmocka_unit_test(impossible_groups_are_refused_with_a_reason),
        cmocka_unit_test(chance_must_not_decide_the_channels),
        cmocka_unit_test(deep_nesting_and_long_lines_are_refused),
        cmocka_unit_test(the_size_is_known_where_every_way_ends_in_the_same),
        cmocka_unit_test(a_description_nests_as_the_line_does),
        cmocka_unit_test(the_hash_follows_the_settings_of_every_operation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
