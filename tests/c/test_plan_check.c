/* test_plan_check.c - drawn parameters are possible, foreign ones are looked at, and plans keep
 * to the memory they asked for. */
#include "lines.h"

#include <math.h>
#include <stddef.h>

#include "base/mem.h"
#include "engine/plan.h"
#include "pictures.h"

static const pen_image_info *picture(void)
{
    static pen_image_info info;
    info = image(100, 80);
    return &info;
}

static int check(const pen_pipeline *pipe, const pen_params *params)
{
    return pen__params_check(pipe, picture(), params, pen_pipeline_op_count(pipe), NULL);
}

static void what_is_drawn_is_possible(void **state)
{
    (void)state;
    pen_op ops[PEN_PIPELINE_MAX_OPS];
    pen_pipeline *pipe = make(ops, everything(ops));
    pen__plan *plan = malloc(sizeof *plan);
    for (int i = 0; i < 2000; i++) {
        pen_params p[PEN_PIPELINE_MAX_OPS];
        pen_key key = {1, i, 0, 0};
        assert_int_equal(pen_pipeline_draw(pipe, &key, picture(), p, COUNT(p), NULL), 0);
        assert_int_equal(check(pipe, p), 0);
        pen__plan_build(plan, pipe, picture(), p);
        assert_true(plan->n_steps <= pen__plan_bound(pipe));
    }
    free(plan);
    pen_pipeline_unref(pipe);
}

/* A line of one operation after nothing, its parameters, and ways to spoil them. */
typedef struct subject {
    pen_pipeline *pipe;
    pen_params p[4], drawn[4];
} subject;

static void prepare(subject *s, pen_op op)
{
    pen_op ops[] = {op, pen_op_center_crop(8, 8)};
    s->pipe = make(ops, 2);
    pen_key key = {1, 1, 1, 0};
    assert_int_equal(pen_pipeline_draw(s->pipe, &key, picture(), s->drawn, 4, NULL), 0);
    memcpy(s->p, s->drawn, sizeof s->p);
    assert_int_equal(check(s->pipe, s->p), 0);
}

/* The changed parameters are refused; then they are as drawn again. */
static void expect_refusal(subject *s, int line)
{
    if (check(s->pipe, s->p) != PEN_EINVAL)
        fail_msg("line %d: parameters were accepted", line);
    memcpy(s->p, s->drawn, sizeof s->p);
}

#define SPOILED(s, member, value)    \
    do {                             \
        (s)->p[1].member = (value);  \
        expect_refusal(s, __LINE__); \
    } while (0)

static void boxes_and_sizes_must_fit(void **state)
{
    (void)state;
    subject s;
    prepare(&s, pen_op_random_resized_crop(8, 8));
    assert_int_equal(pen__params_check(s.pipe, picture(), s.p, 2, NULL), PEN_EINVAL);
    static const int32_t boxes[][4] = {
        {-1, 0, 5, 5}, {0, 0, 101, 5}, {0, 0, 0, 5}, {99, 0, 2, 2}, {INT32_MAX, 0, INT32_MAX, 1}};
    for (size_t i = 0; i < COUNT(boxes); i++) {
        s.p[1].x = boxes[i][0];
        s.p[1].y = boxes[i][1];
        s.p[1].w = boxes[i][2];
        s.p[1].h = boxes[i][3];
        expect_refusal(&s, __LINE__);
    }
    SPOILED(&s, in_w, 99);
    SPOILED(&s, out_h, 9);
    SPOILED(&s, kind, PEN_OP_PAD);
    SPOILED(&s, applied, false);
    s.p[0].in_w = 4;
    expect_refusal(&s, __LINE__);
    pen_pipeline_unref(s.pipe);
    prepare(&s, pen_op_pad(2));
    SPOILED(&s, x, -3);
    SPOILED(&s, w, 103);
    SPOILED(&s, out_w, 103);
    pen_pipeline_unref(s.pipe);
}

/* Reflected, and far outside where padding is constant: what is drawn can be given back, also
 * where other draws would see further than a mirror does. */
static void crops_may_lie_in_their_padding(void **state)
{
    (void)state;
    pen_op crop = pen_op_random_crop(8, 8);
    for (int i = 0; i < 4; i++)
        crop.crop.pad[i] = 400;
    for (int mode = PEN_PADDING_CONSTANT; mode <= PEN_PADDING_SYMMETRIC; mode++) {
        crop.crop.padding_mode = (pen_padding)mode;
        pen_op ops[] = {pen_op_hflip(0), crop};
        pen_pipeline *pipe = make(ops, 2);
        int n_outside = 0, n_too_far = 0;
        for (int i = 0; i < 1000; i++) {
            pen_params p[3];
            pen_key key = {1, i, 1, 0};
            if (pen_pipeline_draw(pipe, &key, picture(), p, 3, NULL)) {
                n_too_far++;
                continue;
            }
            n_outside += p[2].x <= -8;
            assert_int_equal(check(pipe, p), 0);
        }
        assert_true(n_outside > 0);
        assert_int_equal(n_too_far > 0, mode >= PEN_PADDING_REFLECT);
        pen_pipeline_unref(pipe);
    }
    for (int i = 0; i < 4; i++)
        crop.crop.pad[i] = 60;
    crop.crop.padding_mode = PEN_PADDING_REFLECT;
    subject s;
    prepare(&s, crop);
    SPOILED(&s, x, -100);
    SPOILED(&s, x, INT32_MAX);
    SPOILED(&s, y, INT32_MIN);
    SPOILED(&s, w, INT32_MIN);
    SPOILED(&s, h, 9);
    pen_pipeline_unref(s.pipe);
}

static void an_erased_box_must_fit_though_it_be_empty(void **state)
{
    (void)state;
    pen_op ops[] = {pen_op_center_crop(8, 8), pen_op_to_tensor(), pen_op_random_erasing(1)};
    pen_pipeline *pipe = make(ops, 3);
    pen_params p[4];
    pen_key key = {1, 1, 1, 0};
    assert_int_equal(pen_pipeline_draw(pipe, &key, picture(), p, 4, NULL), 0);
    static const int32_t boxes[][4] = {{0, 0, 0, 9},  {9, 0, 0, 0},
                                       {0, -1, 0, 1}, {0, INT32_MAX, 0, INT32_MAX},
                                       {1, 1, 8, 0},  {INT32_MIN, 0, 0, 0}};
    for (size_t i = 0; i < COUNT(boxes); i++) {
        p[3].applied = true;
        p[3].x = boxes[i][0];
        p[3].y = boxes[i][1];
        p[3].w = boxes[i][2];
        p[3].h = boxes[i][3];
        assert_int_equal(check(pipe, p), PEN_EINVAL);
    }
    p[3].x = p[3].y = 8;
    p[3].w = p[3].h = 0;
    assert_int_equal(check(pipe, p), 0);
    pen_pipeline_unref(pipe);
}

static void jitter_and_warps_must_be_sane(void **state)
{
    (void)state;
    subject s;
    prepare(&s, pen_op_color_jitter(0.4F, 0, 0, 0));
    SPOILED(&s, jitter.order[0], 9);
    SPOILED(&s, jitter.factor[1], -1);
    SPOILED(&s, jitter.factor[3], NAN);
    pen_pipeline_unref(s.pipe);
    prepare(&s, pen_op_random_rotation(10));
    SPOILED(&s, warp.angle, NAN);
    SPOILED(&s, warp.angle, 1e20F);
    pen_pipeline_unref(s.pipe);
    pen_op expand = pen_op_random_rotation(10);
    expand.warp.expand = true;
    prepare(&s, expand);
    SPOILED(&s, warp.angle, 45); /* would need another size */
    pen_pipeline_unref(s.pipe);
    prepare(&s, pen_op_random_affine(10));
    SPOILED(&s, warp.angle, INFINITY);
    SPOILED(&s, warp.translate[1], INT32_MIN);
    SPOILED(&s, warp.scale, 0);
    SPOILED(&s, warp.scale, NAN);
    SPOILED(&s, warp.shear[0], NAN);
    pen_pipeline_unref(s.pipe);
    prepare(&s, pen_op_random_perspective(0.5, 1));
    SPOILED(&s, perspective.points[0], -1);
    SPOILED(&s, perspective.points[3], 80);
    memset(&s.p[1].perspective, 0, sizeof s.p[1].perspective); /* all corners in one */
    expect_refusal(&s, __LINE__);
    pen_pipeline_unref(s.pipe);
    prepare(&s, pen_op_gaussian_blur(3, 3));
    SPOILED(&s, blur.sigma, 0);
    SPOILED(&s, blur.sigma, NAN);
    pen_pipeline_unref(s.pipe);
}

static void primitives_must_be_sane(void **state)
{
    (void)state;
    subject s;
    prepare(&s, pen_op_rand_augment(2, 9));
    SPOILED(&s, augment.n_steps, 3);
    SPOILED(&s, augment.n_steps, 255);
    SPOILED(&s, augment.steps[0].kind, PEN_AUGMENT_COUNT);
    static const struct {
        pen_augment kind;
        float magnitude;
    } steps[] = {{PEN_AUGMENT_SHEAR_X, 1.5F},     {PEN_AUGMENT_SHEAR_Y, NAN},
                 {PEN_AUGMENT_TRANSLATE_X, 1e9F}, {PEN_AUGMENT_ROTATE, INFINITY},
                 {PEN_AUGMENT_BRIGHTNESS, -2},    {PEN_AUGMENT_POSTERIZE, 9},
                 {PEN_AUGMENT_POSTERIZE, -1},     {PEN_AUGMENT_SOLARIZE, NAN}};
    for (size_t i = 0; i < COUNT(steps); i++) {
        s.p[1].augment.steps[1] = (pen_augment_step){steps[i].kind, steps[i].magnitude};
        expect_refusal(&s, __LINE__);
    }
    pen_pipeline_unref(s.pipe);
    prepare(&s, pen_op_aug_mix());
    SPOILED(&s, augment.n_chains, 2);
    SPOILED(&s, augment.n_chains, 200);
    SPOILED(&s, augment.depth[0], 9);
    SPOILED(&s, augment.weights[1], -0.5F);
    SPOILED(&s, augment.weights[0], NAN);
    SPOILED(&s, augment.weights[0], 1.5F);
    pen_pipeline_unref(s.pipe);
}

static void groups_must_take_what_they_have(void **state)
{
    (void)state;
    static const pen_op_kind kinds[] = {PEN_OP_RANDOM_APPLY, PEN_OP_RANDOM_CHOICE,
                                        PEN_OP_RANDOM_ORDER, PEN_OP_COMPOSE};
    for (size_t k = 0; k < COUNT(kinds); k++) {
        pen_op group = pen_op_random_choice(2, NULL);
        group.kind = kinds[k];
        if (kinds[k] == PEN_OP_RANDOM_APPLY)
            group.group.p = 1;
        pen_op ops[] = {group, pen_op_hflip(1), pen_op_pad(1), pen_op_center_crop(8, 8)};
        subject s = {.pipe = make(ops, 4)};
        pen_params p[5], bad[5];
        pen_key key = {1, 1, 1, 0};
        assert_int_equal(pen_pipeline_draw(s.pipe, &key, picture(), p, 5, NULL), 0);
        assert_int_equal(check(s.pipe, p), 0);
        const struct {
            bool applied;
            uint8_t n_taken, order[2];
        } wrong[] = {{true, 3, {0, 1}}, {true, 255, {0, 1}}, {true, 2, {0, 0}},
                     {true, 2, {0, 7}}, {false, 2, {0, 1}},  {true, 0, {0, 0}}};
        for (size_t i = 0; i < COUNT(wrong); i++) {
            memcpy(bad, p, sizeof p);
            bad[1].applied = wrong[i].applied;
            bad[1].group.n_taken = wrong[i].n_taken;
            memcpy(bad[1].group.order, wrong[i].order, 2);
            if (check(s.pipe, bad) != PEN_EINVAL)
                fail_msg("%s: case %zu was accepted", pen_op_name(kinds[k]), i);
        }
        memcpy(bad, p, sizeof p);
        bad[1].out_w++;
        assert_int_equal(check(s.pipe, bad), PEN_EINVAL);
        pen_pipeline_unref(s.pipe);
    }
}

static void another_way_through_a_group_may_be_chosen(void **state)
{
    (void)state;
    pen_op ops[] = {pen_op_random_choice(2, NULL), pen_op_pad(1), pen_op_pad(2),
                    pen_op_center_crop(8, 8)};
    pen_pipeline *pipe = make(ops, 4);
    pen_params ways[2][5];
    for (int i = 0, seen = 0; seen != 3; i++) {
        pen_params p[5];
        pen_key key = {1, i, 1, 0};
        assert_int_equal(pen_pipeline_draw(pipe, &key, picture(), p, 5, NULL), 0);
        int way = p[1].group.order[0];
        memcpy(ways[way], p, sizeof p);
        seen |= 1 << way;
    }
    assert_int_equal(ways[0][1].out_w, 102);
    assert_int_equal(ways[1][1].out_w, 104);
    assert_int_equal(check(pipe, ways[0]), 0);
    assert_int_equal(check(pipe, ways[1]), 0);
    ways[0][4].in_w = 104; /* the crop must start where the chosen way ended */
    assert_int_equal(check(pipe, ways[0]), PEN_EINVAL);
    pen_pipeline_unref(pipe);
}

/* The bytes of a small picture; the caller frees. */
static uint8_t *read_picture(size_t *len, bool is_png)
{
    char path[] = "/tmp/penstock-plan-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (is_png ? write_png : write_jpeg)(path, 60, 50, 7);
    uint8_t *bytes = malloc(100000);
    ssize_t n = pread(fd, bytes, 100000, 0);
    assert_true(n > 0 && n < 100000);
    *len = (size_t)n;
    close(fd);
    unlink(path);
    return bytes;
}

/* Under the address sanitizer, any step that goes beyond its plan's memory is found here. */
static void given_parameters_give_what_drawn_ones_gave(void **state)
{
    (void)state;
    pen_op ops[PEN_PIPELINE_MAX_OPS];
    pen_pipeline *pipe = make(ops, everything(ops));
    const size_t n = pen_pipeline_op_count(pipe), bytes = pen_pipeline_shape(pipe).bytes;
    size_t len;
    uint8_t *src = read_picture(&len, false), *a = malloc(bytes), *b = malloc(bytes);
    pen_image_info info;
    assert_int_equal(pen_image_probe(src, len, &info, NULL), 0);
    for (int i = 0; i < 200; i++) {
        pen_params p[PEN_PIPELINE_MAX_OPS];
        pen_key key = {2, i, 0, 0};
        assert_int_equal(pen_pipeline_draw(pipe, &key, &info, p, COUNT(p), NULL), 0);
        assert_int_equal(pen_pipeline_run(pipe, &key, src, len, a, bytes, NULL), 0);
        assert_int_equal(pen_pipeline_run_params(pipe, &key, p, n, src, len, b, bytes, NULL), 0);
        assert_memory_equal(a, b, bytes);
    }
    free(src);
    free(a);
    free(b);
    pen_pipeline_unref(pipe);
}

/* Overwrite some of what stands behind `applied`: sizes, box, and all that is drawn. */
static void spoil(pen_params *p, uint32_t *seed)
{
    static const int32_t wild[] = {0,
                                   1,
                                   -1,
                                   7,
                                   60,
                                   50,
                                   65536,
                                   INT32_MAX,
                                   INT32_MIN,
                                   0x3F800000 /* 1.0F */,
                                   0x7FC00000 /* NaN */,
                                   0x7F800000 /* infinity */,
                                   0x7149F2CA /* 1e30F */,
                                   0x02020202};
    const size_t first = offsetof(pen_params, in_w), n_words = (sizeof *p - first) / 4;
    for (int i = 0; i < 2; i++) {
        *seed = *seed * 1664525 + 1013904223;
        size_t word = (*seed >> 8) % (i ? n_words : 16); /* most of a union's members begin there */
        memcpy((char *)p + first + 4 * word, &wild[(*seed >> 24) % COUNT(wild)], 4);
    }
}

/* What is refused is refused, and what is not stays inside its memory. */
static void spoiled_parameters_do_no_harm(void **state)
{
    (void)state;
    pen_op ops[PEN_PIPELINE_MAX_OPS];
    pen_pipeline *pipe = make(ops, everything(ops));
    const size_t n = pen_pipeline_op_count(pipe), bytes = pen_pipeline_shape(pipe).bytes;
    size_t len;
    uint8_t *src = read_picture(&len, false), *dst = malloc(bytes);
    pen_image_info info;
    assert_int_equal(pen_image_probe(src, len, &info, NULL), 0);
    int n_refused = 0, n_run = 0;
    uint32_t seed = 1;
    for (int i = 0; i < 100; i++) {
        pen_params drawn[PEN_PIPELINE_MAX_OPS], p[PEN_PIPELINE_MAX_OPS];
        pen_key key = {3, i, 0, 0};
        assert_int_equal(pen_pipeline_draw(pipe, &key, &info, drawn, COUNT(drawn), NULL), 0);
        for (size_t op = 0; op < n; op++) {
            memcpy(p, drawn, sizeof p);
            spoil(&p[op], &seed);
            int rc = pen_pipeline_run_params(pipe, &key, p, n, src, len, dst, bytes, NULL);
            assert_true(rc == 0 || rc == PEN_EINVAL);
            n_refused += rc != 0;
            n_run += rc == 0;
        }
    }
    assert_true(n_refused > 500 && n_run > 100);
    free(src);
    free(dst);
    pen_pipeline_unref(pipe);
}

static void a_run_without_memory_leaves_nothing_behind(void **state)
{
    (void)state;
    pen_op ops[PEN_PIPELINE_MAX_OPS];
    pen_pipeline *pipe = make(ops, everything(ops));
    const size_t bytes = pen_pipeline_shape(pipe).bytes;
    size_t len;
    uint8_t *src = read_picture(&len, true), *dst = malloc(bytes);
    pen_key key = {2, 0, 0, 0};
    int64_t before = pen__mem_live();
    int rc = PEN_ENOMEM;
    for (int n = 1; rc == PEN_ENOMEM && n < 100; n++) {
        pen__mem_fail_at(n);
        rc = pen_pipeline_run(pipe, &key, src, len, dst, bytes, NULL);
        pen__mem_fail_at(0);
        assert_int_equal(pen__mem_live(), before);
    }
    assert_int_equal(rc, 0);
    free(src);
    free(dst);
    pen_pipeline_unref(pipe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_drawn_is_possible),
        cmocka_unit_test(boxes_and_sizes_must_fit),
        cmocka_unit_test(crops_may_lie_in_their_padding),
        cmocka_unit_test(an_erased_box_must_fit_though_it_be_empty),
        cmocka_unit_test(jitter_and_warps_must_be_sane),
        cmocka_unit_test(primitives_must_be_sane),
        cmocka_unit_test(groups_must_take_what_they_have),
        cmocka_unit_test(another_way_through_a_group_may_be_chosen),
        cmocka_unit_test(given_parameters_give_what_drawn_ones_gave),
        cmocka_unit_test(spoiled_parameters_do_no_harm),
        cmocka_unit_test(a_run_without_memory_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
