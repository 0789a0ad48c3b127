/* test_gamma.c - gamma draws: their moments and their distribution. */
#include "testing.h"

#include <math.h>

#include "base/gamma.h"

enum { N = 40000 };

static void gamma_draws_have_the_mean_and_variance_of_their_shape(void **state)
{
    (void)state;
    static const double shapes[] = {0.05, 0.3, 0.999, 1.0, 1.5, 4.0, 90.0};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        pen__rng rng;
        pen__rng_init(&rng, 3, PEN__RNG_OP, (int64_t)s, 0, 0, 0);
        double sum = 0, squares = 0, shape = shapes[s];
        for (int i = 0; i < N; i++) {
            double x = pen__rng_gamma(&rng, shape);
            assert_true(x > 0 && isfinite(x));
            sum += x;
            squares += x * x;
        }
        double mean = sum / N, variance = squares / N - mean * mean;
        /* Both are `shape`; five standard errors of each. */
        assert_true(fabs(mean - shape) < 5 * sqrt(shape / N));
        assert_true(fabs(variance - shape) < 5 * sqrt((2 * shape * shape + 6 * shape) / N));
    }
}

static void an_exponential_is_a_gamma_of_shape_one(void **state)
{
    (void)state;
    pen__rng rng;
    pen__rng_init(&rng, 4, PEN__RNG_OP, 0, 0, 0, 0);
    int n_below[4] = {0};
    for (int i = 0; i < N; i++) {
        double x = pen__rng_gamma(&rng, 1.0);
        for (int q = 0; q < 4; q++)
            n_below[q] += x < 0.25 * (1 << (2 * q)); /* 0.25, 1, 4, 16 */
    }
    for (int q = 0; q < 4; q++) {
        double p = 1 - exp(-0.25 * (1 << (2 * q)));
        assert_true(fabs(n_below[q] - N * p) <= 5 * sqrt(N * p * (1 - p)) + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gamma_draws_have_the_mean_and_variance_of_their_shape),
        cmocka_unit_test(an_exponential_is_a_gamma_of_shape_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
