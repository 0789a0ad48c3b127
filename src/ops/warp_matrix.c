/* warp_matrix.c - rotation, affine and perspective as matrices for pen__warp.
 *
 * The arithmetic is that of Pillow's and torchvision's Python code, operation by
 * operation, with trigonometry of our own (base/trig.h).  glibc rounds one sine in
 * 500 the other way; a rotation never shows that (Pillow rounds to 15 digits), an
 * affine matrix differs in its last bit then, which moves the middle pixel of an
 * image of odd size once in a thousand images or less.
 *
 * Perspective is the solution of eight equations, which torch finds by least
 * squares in double and rounds to float32: here it is computed to 100 bits and rounded
 * the same way.  Where a true coefficient is 0, torch has 1e-14 or so, as its
 * processor makes it, and points that fall exactly between two pixels go to the other
 * one.  That was seen in 2 of 1,500 images of 32 x 32 and in none of 750 larger ones.
 */
#include "ops/warp.h"

#include <math.h>
#include <string.h>

#include <penstock/error.h>

#include "base/pair.h"
#include "base/trig.h"
#include "ops/geometry.h"

static double to_radians(double degrees)
{
    return degrees * 0x1.1df46a2529d39p-6; /* pi / 180 */
}

/* ---- rotation ------------------------------------------------------------------------- */

__extension__ typedef unsigned __int128 uint128;

/* Python's round(v, 15) for |v| <= 1: the nearest multiple of 1e-15, of the exact
 * value, and of two equally near ones the even. */
static double round_to_15_digits(double v)
{
    int exponent;
    double mantissa = frexp(v < 0.0 ? -v : v, &exponent); /* exact, like all of this */
    int shift = 53 - exponent;                            /* v is whole / 2^shift */
    if (shift > 110)
        return v < 0.0 ? -0.0 : 0.0;
    uint128 scaled = (uint128)(uint64_t)(mantissa * 0x1p53) * 1000000000000000U;
    uint128 units = scaled >> shift, rest = scaled - (units << shift);
    uint128 half = (uint128)1 << (shift - 1);
    if (rest > half || (rest == half && (units & 1)))
        units++;
    double rounded = (double)(uint64_t)units / 1e15; /* both are exact: rounds once */
    return v < 0.0 ? -rounded : rounded;
}

/* Python's angle % 360.0; fmod is exact. */
static double within_turn(double angle)
{
    double rest = fmod(angle, 360.0);
    return rest < 0.0 ? rest + 360.0 : rest == 0.0 ? 0.0 : rest;
}

static double along_x(const double m[6], double x, double y)
{
    return m[0] * x + m[1] * y + m[2];
}

static double along_y(const double m[6], double x, double y)
{
    return m[3] * x + m[4] * y + m[5];
}

static int32_t whole_span(const double at[4])
{
    double least = at[0], most = at[0];
    for (int i = 1; i < 4; i++) {
        least = at[i] < least ? at[i] : least;
        most = at[i] > most ? at[i] : most;
    }
    return (int32_t)(ceil(most) - floor(least));
}

/* Make room for all of the turned image: its size, and the matrix moved along. */
static void expand_to_fit(double m[6], int32_t *w, int32_t *h)
{
    const double corners[4][2] = {{0, 0}, {*w, 0}, {*w, *h}, {0, *h}};
    double x[4], y[4];
    for (int i = 0; i < 4; i++) {
        x[i] = along_x(m, corners[i][0], corners[i][1]);
        y[i] = along_y(m, corners[i][0], corners[i][1]);
    }
    int32_t new_w = whole_span(x), new_h = whole_span(y);
    double dx = -(new_w - *w) / 2.0, dy = -(new_h - *h) / 2.0;
    double moved_x = along_x(m, dx, dy), moved_y = along_y(m, dx, dy);
    m[2] = moved_x;
    m[5] = moved_y;
    *w = new_w;
    *h = new_h;
}

/* Image.rotate's matrix for an angle in [0, 360); *w and *h become the output's. */
static void rotation_matrix(double m[6], double angle, bool expand, const double *center,
                            int32_t *w, int32_t *h)
{
    const double middle[2] = {*w / 2.0, *h / 2.0};
    const double *around = center ? center : middle;
    double radians = -to_radians(angle);
    double cosine = round_to_15_digits(pen__cos(radians));
    double sine = round_to_15_digits(pen__sin(radians));
    const double turn[6] = {cosine, sine, 0.0, -sine, cosine, 0.0};
    memcpy(m, turn, sizeof turn);
    m[2] = along_x(turn, -around[0], -around[1]) + around[0];
    m[5] = along_y(turn, -around[0], -around[1]) + around[1];
    if (expand)
        expand_to_fit(m, w, h);
}

/* The EXIF orientation that does the same, where Pillow moves pixels without a
 * filter; else 0. */
static int exact_turn(int32_t w, int32_t h, double angle, bool expand, const double *center)
{
    if (center)
        return 0;
    if (angle == 0.0)
        return 1;
    if (angle == 180.0)
        return 3;
    if (!expand && w != h)
        return 0;
    return angle == 90.0 ? 8 : angle == 270.0 ? 6 : 0;
}

void pen__rotate_size(int32_t w, int32_t h, double angle, bool expand, const double *center,
                      int32_t *out_w, int32_t *out_h)
{
    double m[6], turn = within_turn(angle);
    int exact = exact_turn(w, h, turn, expand, center);
    *out_w = exact >= 5 ? h : w;
    *out_h = exact >= 5 ? w : h;
    if (exact == 0)
        rotation_matrix(m, turn, expand, center, out_w, out_h);
}

void pen__rotate(const pen__image *src, double angle, bool expand, const double *center,
                 pen_filter filter, const uint8_t fill[3], pen__image *dst)
{
    double turn = within_turn(angle);
    int exact = exact_turn(src->w, src->h, turn, expand, center);
    if (exact) {
        pen__orient(src, exact, dst);
        return;
    }
    pen__warp_spec spec = {.kind = PEN__WARP_AFFINE,
                           .filter = filter,
                           .fill = {fill[0], fill[1], fill[2]},
                           .out_w = src->w,
                           .out_h = src->h};
    rotation_matrix(spec.m, turn, expand, center, &spec.out_w, &spec.out_h);
    pen__warp(src, &spec, dst);
}

/* ---- affine --------------------------------------------------------------------------- */

void pen__affine_matrix(double m[6], const double center[2], double angle,
                        const double translate[2], double scale, const double shear[2])
{
    double turn = to_radians(angle), shear_x = to_radians(shear[0]), shear_y = to_radians(shear[1]);
    double tangent = pen__tan(shear_x), narrow = pen__cos(shear_y);
    double cosine = pen__cos(turn - shear_y), sine = pen__sin(turn - shear_y);
    /* rotation and shears; their determinant is 1 */
    double a = cosine / narrow, b = -cosine * tangent / narrow - pen__sin(turn);
    double c = sine / narrow, d = -sine * tangent / narrow + pen__cos(turn);
    /* inverted */
    m[0] = d / scale;
    m[1] = -b / scale;
    m[3] = -c / scale;
    m[4] = a / scale;
    double back_x = -center[0] - translate[0], back_y = -center[1] - translate[1];
    m[2] = m[0] * back_x + m[1] * back_y + center[0];
    m[5] = m[3] * back_x + m[4] * back_y + center[1];
}

double pen__shear_degrees(double magnitude)
{
    return pen__atan(magnitude) * 0x1.ca5dc1a63c1f8p+5; /* 180 / pi */
}

/* ---- perspective ---------------------------------------------------------------------- */

typedef pen__pair equations[8][9]; /* the last column is the right-hand side */

static void pose_equations(equations eq, const int32_t start[8], const int32_t end[8])
{
    for (int i = 0; i < 4; i++) {
        double x = end[2 * i], y = end[2 * i + 1];
        for (int axis = 0; axis < 2; axis++) {
            pen__pair *row = eq[2 * i + axis];
            double to = start[2 * i + axis]; /* products of int32 are exact in a pair only */
            memset(row, 0, sizeof eq[0]);
            row[3 * axis].high = x;
            row[3 * axis + 1].high = y;
            row[3 * axis + 2].high = 1.0;
            row[6] = pen__pair_multiply_exactly(-to, x);
            row[7] = pen__pair_multiply_exactly(-to, y);
            row[8].high = to;
        }
    }
}

static void swap_rows(equations eq, int a, int b)
{
    for (int k = 0; k < 9; k++) {
        pen__pair kept = eq[a][k];
        eq[a][k] = eq[b][k];
        eq[b][k] = kept;
    }
}

/* The row from `column` on whose value there is largest, or -1 if all are as good as 0. */
static int find_pivot(equations eq, int column)
{
    int best = -1;
    double most = 0x1p-60; /* what rounding leaves of a true 0 is far below this */
    for (int row = column; row < 8; row++) {
        double size = fabs(eq[row][column].high);
        if (size > most) {
            most = size;
            best = row;
        }
    }
    return best;
}

/* Clear `column` in all rows but its own. */
static void eliminate(equations eq, int column)
{
    for (int row = 0; row < 8; row++) {
        if (row == column)
            continue;
        pen__pair times = pen__pair_divide(eq[row][column], eq[column][column]);
        for (int k = column; k < 9; k++)
            eq[row][k] = pen__pair_subtract(eq[row][k], pen__pair_multiply(times, eq[column][k]));
    }
}

int pen__perspective_coeffs(double m[8], const int32_t start[8], const int32_t end[8])
{
    equations eq;
    pose_equations(eq, start, end);
    for (int column = 0; column < 8; column++) {
        int pivot = find_pivot(eq, column);
        if (pivot < 0)
            return PEN_EINVAL;
        swap_rows(eq, column, pivot);
        eliminate(eq, column);
    }
    for (int i = 0; i < 8; i++)
        m[i] = (float)pen__pair_divide(eq[i][8], eq[i][i]).high;
    return 0;
}
