/* test_tensor.c - tables, narrow floats, layouts, erasing. */
#include "pixels.h"

#include <math.h>

#include "ops/tensor.h"

static const pen_op imagenet = {.kind = PEN_OP_NORMALIZE,
                                .normalize = {{0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}}};
static const pen_dtype dtypes[4] = {PEN_DTYPE_UINT8, PEN_DTYPE_FLOAT32, PEN_DTYPE_FLOAT16,
                                    PEN_DTYPE_BFLOAT16};

static size_t size_of(pen_dtype dtype)
{
    return dtype == PEN_DTYPE_UINT8 ? 1 : dtype == PEN_DTYPE_FLOAT32 ? 4 : 2;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void the_table_divides_subtracts_and_divides(void **state)
{
    (void)state;
    static pen__tensor_table table;
    pen__tensor_table_init(&table, PEN_DTYPE_FLOAT32, 3, PEN_SCALING_DIVIDE, &imagenet, 1);
    for (int v = 0; v < 256; v++) {
        volatile float x = (float)v / 255.0F; /* volatile: each step is rounded */
        volatile float shifted = x - 0.456F;
        assert_int_equal(bits_of(table.f32[1][v]), bits_of(shifted / 0.224F));
    }
    pen_op twice[2] = {imagenet, imagenet};
    pen__tensor_table_init(&table, PEN_DTYPE_FLOAT32, 3, PEN_SCALING_DIVIDE, twice, 2);
    volatile float once = (1.0F - 0.485F) / 0.229F;
    assert_int_equal(bits_of(table.f32[0][255]), bits_of((once - 0.485F) / 0.229F));
    pen__tensor_table_init(&table, PEN_DTYPE_FLOAT32, 1, PEN_SCALING_DIVIDE, NULL, 0);
    assert_true(table.f32[0][255] == 1.0F && table.f32[0][0] == 0.0F);
    assert_int_equal(bits_of(table.f32[0][51]), bits_of(0.2F));
}

static void the_table_can_multiply_or_leave_the_value_as_it_is(void **state)
{
    (void)state;
    static pen__tensor_table table, divided;
    pen__tensor_table_init(&divided, PEN_DTYPE_FLOAT32, 1, PEN_SCALING_DIVIDE, NULL, 0);
    pen__tensor_table_init(&table, PEN_DTYPE_FLOAT32, 1, PEN_SCALING_MULTIPLY, NULL, 0);
    int differing = 0;
    for (int v = 0; v < 256; v++) {
        volatile float inverse = 1.0F / 255.0F;
        assert_int_equal(bits_of(table.f32[0][v]), bits_of((float)v * inverse));
        differing += bits_of(table.f32[0][v]) != bits_of(divided.f32[0][v]);
    }
    assert_true(differing > 0); /* else one of the two would do */
    pen__tensor_table_init(&table, PEN_DTYPE_FLOAT32, 1, PEN_SCALING_NONE, NULL, 0);
    for (int v = 0; v < 256; v++)
        assert_true(table.f32[0][v] == (float)v);
}

/* One element of a tensor, as bytes, by the definition. */
static void expect_element(const pen__tensor_table *table, const uint8_t *element, int c,
                           uint8_t value)
{
    if (table->dtype == PEN_DTYPE_UINT8)
        assert_int_equal(*element, value);
    else if (table->dtype == PEN_DTYPE_FLOAT32)
        assert_memory_equal(element, &table->f32[c][value], 4);
    else
        assert_memory_equal(element, &table->f16[c][value], 2);
}

static void check_tensor(const pen__tensor_table *table, int32_t w, int32_t h, int ch,
                         pen_layout layout, size_t offset)
{
    size_t n = (size_t)(w * h), n_ch = (size_t)table->channels, size = size_of(table->dtype);
    block px = noise_block(n * (size_t)ch, offset % 7, (uint32_t)(w * 31 + h));
    block out = block_new(n * n_ch * size, offset * size);
    pen__image src = {px.at, w, h, ch};
    pen__to_tensor(table, &src, layout, out.at);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < n_ch; c++) {
            size_t at = layout == PEN_LAYOUT_NCHW ? c * n + i : i * n_ch + c;
            expect_element(table, out.at + at * size, (int)c,
                           px.at[i * (size_t)ch + (ch == 1 ? 0 : c)]);
        }
    block_free(px);
    block_free(out);
}

static void check_all_tensors(void)
{
    static const int32_t sizes[][2] = {{1, 1},  {3, 1},   {9, 1},   {10, 1}, {1, 18}, {8, 8},
                                       {31, 3}, {16, 16}, {57, 13}, {47, 1}, {5, 7}};
    static pen__tensor_table table;
    for (int d = 0; d < 4; d++)
        for (int n_norms = 0; n_norms < 3; n_norms++) {
            pen_op norms[2] = {imagenet, imagenet};
            for (int channels = 1; channels <= 3; channels += 2) {
                pen_scaling scaling = (pen_scaling)((d + n_norms) % 3);
                pen__tensor_table_init(&table, dtypes[d], channels, scaling, norms, n_norms);
                for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
                    for (int k = 0; k < 8; k++) {
                        int ch = channels == 3 && (k & 1) ? 3 : 1;
                        check_tensor(&table, sizes[i][0], sizes[i][1], ch,
                                     k & 2 ? PEN_LAYOUT_NHWC : PEN_LAYOUT_NCHW, k & 4 ? 3 : 0);
                    }
            }
        }
}

static void every_dtype_layout_and_size_equals_the_table(void **state)
{
    (void)state;
    scalar_only();
    check_all_tensors();
    for (int level = 0; level < N_LEVELS; level++) {
        pen__cpu_mask(levels[level]);
        check_all_tensors();
    }
}

/* The formula is only a faster way to the table; one that cannot hit every bit is not used. */
static void a_formula_counts_only_where_it_is_exact(void **state)
{
    (void)state;
    static pen__tensor_table table;
    scalar_only();
    pen__tensor_table_init(&table, PEN_DTYPE_FLOAT32, 3, PEN_SCALING_DIVIDE, &imagenet, 1);
    assert_false(table.formula.is_exact); /* nothing to check it with */
    all_features();
    pen__tensor_table_init(&table, PEN_DTYPE_FLOAT32, 3, PEN_SCALING_DIVIDE, &imagenet, 1);
    assert_int_equal(table.formula.is_exact, (pen__cpu_flags() & PEN__CPU_AVX2) != 0);
    pen__tensor_table_init(&table, PEN_DTYPE_FLOAT32, 3, PEN_SCALING_MULTIPLY, &imagenet, 1);
    assert_int_equal(table.formula.is_exact, (pen__cpu_flags() & PEN__CPU_AVX2) != 0);
    pen_op odd = imagenet;
    odd.normalize.std[1] = 0.0F; /* infinities and a NaN at least in the table */
    odd.normalize.mean[1] = 0.0F;
    pen__tensor_table_init(&table, PEN_DTYPE_FLOAT32, 3, PEN_SCALING_DIVIDE, &odd, 1);
    check_tensor(&table, 40, 4, 3, PEN_LAYOUT_NCHW, 0);
    pen_op twice[2] = {imagenet, imagenet};
    pen__tensor_table_init(&table, PEN_DTYPE_FLOAT32, 3, PEN_SCALING_DIVIDE, twice, 2);
    assert_false(table.formula.is_exact);
}

static void half_floats_round_to_nearest_even(void **state)
{
    (void)state;
    static const struct {
        float in;
        uint16_t want;
    } cases[] = {
        {0.0F, 0x0000},
        {-0.0F, 0x8000},
        {1.0F, 0x3C00},
        {-2.0F, 0xC000},
        {65504.0F, 0x7BFF},
        {65519.9F, 0x7BFF},
        {65520.0F, 0x7C00},
        {1e30F, 0x7C00},
        {-1e30F, 0xFC00},
        {0x1.002p0F, 0x3C00},
        {0x1.006p0F, 0x3C02},
        {0x1.0021p0F, 0x3C01},
        {0x1p-14F, 0x0400},
        {0x1.ff8p-15F, 0x03FF},
        {0x1.ffcp-15F, 0x0400},
        {0x1.ffbp-15F, 0x03FF},
        {0x1p-24F, 0x0001},
        {0x1p-25F, 0x0000},
        {0x1.000002p-25F, 0x0001},
        {0x1.8p-24F, 0x0002},
        {1e-30F, 0x0000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(pen__f32_to_f16(cases[i].in), cases[i].want);
    assert_int_equal(pen__f32_to_f16(INFINITY), 0x7C00);
    uint16_t nan = pen__f32_to_f16(from_bits(0x7F800001));
    assert_true((nan & 0x7C00) == 0x7C00 && (nan & 0x0200));
}

static void brain_floats_round_to_nearest_even(void **state)
{
    (void)state;
    assert_int_equal(pen__f32_to_bf16(1.0F), 0x3F80);
    assert_int_equal(pen__f32_to_bf16(from_bits(0x3F808000)), 0x3F80); /* tie, even below */
    assert_int_equal(pen__f32_to_bf16(from_bits(0x3F818000)), 0x3F82); /* tie, even above */
    assert_int_equal(pen__f32_to_bf16(from_bits(0x3F808001)), 0x3F81);
    assert_int_equal(pen__f32_to_bf16(from_bits(0x7F7FFFFF)), 0x7F80); /* to infinity */
    assert_int_equal(pen__f32_to_bf16(from_bits(0x00008001)), 0x0001); /* subnormal */
    assert_int_equal(pen__f32_to_bf16(from_bits(0x7F800001)), 0x7FC0); /* NaN stays NaN */
    assert_int_equal(pen__f32_to_bf16(-INFINITY), 0xFF80);
}

static void erasing_changes_the_box_alone(void **state)
{
    (void)state;
    const float value[3] = {0.5F, 1.0F, 0.0F};
    for (int layout = 0; layout < 2; layout++) {
        float tensor[3 * 5 * 7];
        for (int i = 0; i < 3 * 5 * 7; i++)
            tensor[i] = 9.0F;
        pen_shape shape = {3, 5, 7, PEN_DTYPE_FLOAT32, (pen_layout)layout, sizeof tensor};
        pen__erase(tensor, &shape, (pen__rect){2, 1, 4, 3}, value, NULL, &imagenet, 1);
        for (int c = 0; c < 3; c++)
            for (int y = 0; y < 5; y++)
                for (int x = 0; x < 7; x++) {
                    bool inside = x >= 2 && x < 6 && y >= 1 && y < 4;
                    float norm =
                        (value[c] - imagenet.normalize.mean[c]) / imagenet.normalize.std[c];
                    int at = layout == PEN_LAYOUT_NCHW ? (c * 5 + y) * 7 + x : (y * 7 + x) * 3 + c;
                    assert_true(tensor[at] == (inside ? norm : 9.0F));
                }
    }
}

static void random_erasing_draws_in_channel_row_column_order(void **state)
{
    (void)state;
    pen__rng rng, same;
    pen__rng_init(&rng, 5, PEN__RNG_OP, 1, 2, 0, 3);
    same = rng;
    uint16_t tensor[3 * 4 * 4] = {0};
    pen_shape shape = {3, 4, 4, PEN_DTYPE_FLOAT16, PEN_LAYOUT_NHWC, sizeof tensor};
    pen__erase(tensor, &shape, (pen__rect){0, 1, 3, 3}, NULL, &rng, NULL, 0);
    float pair[2];
    for (int i = 0; i < 3 * 3 * 3; i++) {
        if (i % 2 == 0)
            pen__rng_normal2(&same, pair);
        int c = i / 9, y = 1 + i / 3 % 3, x = i % 3;
        assert_int_equal(tensor[(y * 4 + x) * 3 + c], pen__f32_to_f16(pair[i % 2]));
    }
}

static void erasing_bytes_clips_to_their_range(void **state)
{
    (void)state;
    uint8_t tensor[3] = {1, 2, 3};
    const float value[3] = {-4.0F, 300.0F, 12.9F};
    pen_shape shape = {3, 1, 1, PEN_DTYPE_UINT8, PEN_LAYOUT_NCHW, 3};
    pen__erase(tensor, &shape, (pen__rect){0, 0, 1, 1}, value, NULL, NULL, 0);
    assert_int_equal(tensor[0], 0);
    assert_int_equal(tensor[1], 255);
    assert_int_equal(tensor[2], 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_divides_subtracts_and_divides),
        cmocka_unit_test(the_table_can_multiply_or_leave_the_value_as_it_is),
        cmocka_unit_test(every_dtype_layout_and_size_equals_the_table),
        cmocka_unit_test(a_formula_counts_only_where_it_is_exact),
        cmocka_unit_test(half_floats_round_to_nearest_even),
        cmocka_unit_test(brain_floats_round_to_nearest_even),
        cmocka_unit_test(erasing_changes_the_box_alone),
        cmocka_unit_test(random_erasing_draws_in_channel_row_column_order),
        cmocka_unit_test(erasing_bytes_clips_to_their_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
