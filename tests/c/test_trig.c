/* test_trig.c - sine, cosine and tangent against values computed with 300 bits. */
#include "testing.h"

#include <math.h>

#include "base/trig.h"

static void results_are_the_nearest_doubles(void **state)
{
    (void)state;
    /* round degrees, arguments next to multiples of pi/2, a large one, and five that common
     * libraries round the wrong way */
    static const struct {
        double x, sine, cosine, tangent;
    } cases[] = {
        {0x1.0c152382d7365p-1, 0x1.fffffffffffffp-2, 0x1.bb67ae8584cabp-1, 0x1.279a74590331cp-1},
        {-0x1.921fb54442d18p-1, -0x1.6a09e667f3bccp-1, 0x1.6a09e667f3bcdp-1, -0x1.fffffffffffffp-1},
        {0x1.921fb54442d18p+0, 0x1.0000000000000p+0, 0x1.1a62633145c07p-54, 0x1.d02967c31cdb5p+53},
        {0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53, -0x1.0000000000000p+0,
         -0x1.1a62633145c07p-53},
        {0x1.2d97c7f3321d2p+2, -0x1.0000000000000p+0, -0x1.a79394c9e8a0ap-53,
         0x1.3570efd768923p+52},
        {-0x1.921fb54442d18p+2, 0x1.1a62633145c07p-52, 0x1.0000000000000p+0, 0x1.1a62633145c07p-52},
        {0x1.921fb256a5d67p+0, 0x1.fffffffffff77p-1, 0x1.76ce7d8a34c2bp-23, 0x1.5db4a7cb4681ap+22},
        {0x1.353045f82ed33p-2, 0x1.308309fb43cc5p-2, 0x1.e8d66852bc127p-1, 0x1.3ef0c387721a2p-2},
        {0x1.330aa445be654p-36, 0x1.330aa445be654p-36, 0x1.0000000000000p+0, 0x1.330aa445be654p-36},
        {0x1.58bcc8770d8cbp+4, 0x1.b8d7e6a56d473p-2, -0x1.ce1fa88c445bcp-1, -0x1.e86c4627b91d4p-2},
        {0x1.f6ce084714436p+19, -0x1.491b7523e9d16p-1, 0x1.8836fa2cd3159p-1, -0x1.ad9e778455e54p-1},
        {-0x1.a69c538552d70p+1, 0x1.4664145735b39p-3, -0x1.f974bf21ccedep-1, -0x1.4a9dd9a1e77e6p-3},
        {0x1.1d54e24f92ac0p-1, 0x1.0eca3c9c9419ap-1, 0x1.b287d0e868919p-1, 0x1.3f1139144a6e8p-1},
        {-0x1.a378fd484a82cp+0, -0x1.fed322c833a63p-1, -0x1.155e1f2392dc4p-4, 0x1.d778e09f7ca9fp+3},
        {0x1.4f34589256a04p+0, 0x1.ee9b3d0f8776fp-1, 0x1.08a3b27fc0121p-2, 0x1.de759da289bd3p+1},
        {0x1.9585fe63ccafcp+0, 0x1.fff471760a15dp-1, -0x1.b321499f2df06p-7, -0x1.2d32c6801c78fp+6},
        {0x1.5a5f7b106868cp-1, 0x1.408cef3eb6893p-1, 0x1.8f3d0cbfb568bp-1, 0x1.9b1659a0834c3p-1},
        {-0x1.12333bb33f5bep+1, -0x1.aeab11446b41cp-1, -0x1.14e435e8d12fbp-1, 0x1.8e2ca115e2e1fp+0},
        {0x1.a73729791d67cp+0, 0x1.fe436530f03a9p-1, -0x1.51158f2843777p-4, -0x1.838583d2df913p+3},
        {0x1.7ba89724bd096p+1, 0x1.659a315237db3p-3, -0x1.f8226ad987c61p-1, -0x1.6b2e81768ad4ap-3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(pen__sin(cases[i].x) == cases[i].sine);
        assert_true(pen__cos(cases[i].x) == cases[i].cosine);
        assert_true(pen__tan(cases[i].x) == cases[i].tangent);
    }
}

static void all_angles_are_near_libm(void **state)
{
    (void)state;
    for (double x = -7.0; x < 7.0; x += 0.00071) {
        assert_true(fabs(pen__sin(x) - sin(x)) <= 0x1p-52 * fabs(sin(x)));
        assert_true(fabs(pen__cos(x) - cos(x)) <= 0x1p-52 * fabs(cos(x)));
        assert_true(fabs(pen__tan(x) - tan(x)) <= 0x1p-51 * fabs(tan(x)));
    }
}

static void atan_gives_back_the_slope(void **state)
{
    (void)state;
    /* also from 300 bits; the third is one that common libraries round the wrong way */
    static const double cases[][2] = {
        {0x1.3333333333333p-2, 0x1.2a73a661eaf06p-2},
        {0x1.0000000000000p+0, 0x1.921fb54442d18p-1},
        {0x1.37514c9309028p-2, 0x1.2e39a3cfc641ap-2},
        {0x0.0p+0, 0x0.0p+0},
        {0x1.87e92154ef7acp-665, 0x1.87e92154ef7acp-665},
        {0x1.1400000000000p+4, 0x1.834cc45a7c241p+0},
        {0x1.7e43c8800759cp+996, 0x1.921fb54442d18p+0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(pen__atan(cases[i][0]) == cases[i][1]);
        assert_true(pen__atan(-cases[i][0]) == -cases[i][1]);
    }
    for (double x = -60.0; x < 60.0; x += 0.0137)
        assert_true(fabs(pen__atan(x) - atan(x)) <= 0x1p-52 * fabs(atan(x)));
}

static void nothing_turns_into_nothing(void **state)
{
    (void)state;
    assert_true(pen__sin(0.0) == 0.0 && pen__cos(0.0) == 1.0 && pen__tan(0.0) == 0.0);
    assert_true(pen__sin(-1.25) == -pen__sin(1.25) && pen__cos(-1.25) == pen__cos(1.25));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_the_nearest_doubles),
        cmocka_unit_test(all_angles_are_near_libm),
        cmocka_unit_test(atan_gives_back_the_slope),
        cmocka_unit_test(nothing_turns_into_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
