/* pair.h - numbers of about 106 bits, each the sum of two doubles.
 *
 * For the few results that must be rounded from something better than a double, on
 * any host alike: only IEEE +, -, * and / in a fixed order.
 */
#ifndef PEN_BASE_PAIR_H
#define PEN_BASE_PAIR_H

typedef struct pen__pair {
    double high, low; /* high is their sum, rounded */
} pen__pair;

/* a + b where |a| >= |b|. */
static inline pen__pair pen__pair_add_smaller(double a, double b)
{
    double sum = a + b;
    return (pen__pair){sum, b - (sum - a)};
}

static inline pen__pair pen__pair_add_exactly(double a, double b)
{
    double sum = a + b, b_part = sum - a, a_part = sum - b_part;
    return (pen__pair){sum, (a - a_part) + (b - b_part)};
}

/* The high half of a's bits. */
static inline double pen__pair_upper_half(double a)
{
    double spread = 134217729.0 * a; /* 2^27 + 1 */
    return spread - (spread - a);
}

static inline pen__pair pen__pair_multiply_exactly(double a, double b)
{
    double product = a * b, a1 = pen__pair_upper_half(a), b1 = pen__pair_upper_half(b), a2 = a - a1,
           b2 = b - b1;
    return (pen__pair){product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2};
}

static inline pen__pair pen__pair_add(pen__pair a, pen__pair b)
{
    pen__pair high = pen__pair_add_exactly(a.high, b.high),
              low = pen__pair_add_exactly(a.low, b.low);
    pen__pair sum = pen__pair_add_smaller(high.high, high.low + low.high);
    return pen__pair_add_smaller(sum.high, sum.low + low.low);
}

static inline pen__pair pen__pair_multiply(pen__pair a, pen__pair b)
{
    pen__pair product = pen__pair_multiply_exactly(a.high, b.high);
    return pen__pair_add_smaller(product.high, product.low + (a.high * b.low + a.low * b.high));
}

static inline pen__pair pen__pair_negative(pen__pair a)
{
    return (pen__pair){-a.high, -a.low};
}

static inline pen__pair pen__pair_subtract(pen__pair a, pen__pair b)
{
    return pen__pair_add(a, pen__pair_negative(b));
}

/* Long division: each digit is a double, and the rest loses its first 53 bits. */
static inline pen__pair pen__pair_divide(pen__pair a, pen__pair b)
{
    double first = a.high / b.high;
    pen__pair rest = pen__pair_subtract(a, pen__pair_multiply(b, (pen__pair){first, 0.0}));
    double second = rest.high / b.high;
    rest = pen__pair_subtract(rest, pen__pair_multiply(b, (pen__pair){second, 0.0}));
    return pen__pair_add(pen__pair_add_smaller(first, second),
                         (pen__pair){rest.high / b.high, 0.0});
}

#endif
