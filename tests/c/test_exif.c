/* test_exif.c - the orientation in EXIF and XMP, also where they lie. */
#include "testing.h"

#include <stdbool.h>

#include "ops/exif.h"

/* A directory with one entry: tag, type, count, value. */
static size_t make_tiff(uint8_t *out, bool is_little, int tag, int type, uint32_t count,
                        uint32_t value)
{
    uint32_t fields[] = {42, 0, 8, 1, (uint32_t)tag, (uint32_t)type, count, value};
    int sizes[] = {2, 0, 4, 2, 2, 2, 4, type == 3 ? 2 : type == 1 ? 1 : 4};
    size_t at = 2;
    memset(out, 0, 64);
    memcpy(out, is_little ? "II" : "MM", 2);
    for (int i = 0; i < 8; i++)
        for (int b = 0; b < sizes[i]; b++) {
            int shift = 8 * (is_little ? b : sizes[i] - 1 - b);
            out[at++] = (uint8_t)(fields[i] >> shift);
        }
    return 8 + 2 + 12 + 4;
}

static int orientation_of(bool is_little, int tag, int type, uint32_t count, uint32_t value)
{
    uint8_t tiff[64];
    size_t len = make_tiff(tiff, is_little, tag, type, count, value);
    return pen__exif_orientation(tiff, len);
}

static void both_byte_orders_and_all_integer_types_are_read(void **state)
{
    (void)state;
    for (int value = 1; value <= 8; value++)
        for (int is_little = 0; is_little < 2; is_little++) {
            assert_int_equal(orientation_of(is_little, 0x112, 1, 1, (uint32_t)value), value);
            assert_int_equal(orientation_of(is_little, 0x112, 3, 1, (uint32_t)value), value);
            assert_int_equal(orientation_of(is_little, 0x112, 4, 1, (uint32_t)value), value);
        }
}

static void nonsense_is_upright_and_absence_is_zero(void **state)
{
    (void)state;
    assert_int_equal(orientation_of(true, 0x112, 3, 1, 0), 1);
    assert_int_equal(orientation_of(true, 0x112, 3, 1, 9), 1);
    assert_int_equal(orientation_of(true, 0x112, 3, 2, 6), 1);  /* two values */
    assert_int_equal(orientation_of(true, 0x112, 99, 1, 6), 1); /* unknown type */
    assert_int_equal(orientation_of(true, 0x113, 3, 1, 6), 0);
    assert_int_equal(pen__exif_orientation(NULL, 0), 0);
}

static void the_exif_prefix_is_optional(void **state)
{
    (void)state;
    uint8_t block[80] = "Exif\0";
    size_t len = make_tiff(block + 6, false, 0x112, 3, 1, 7);
    assert_int_equal(pen__exif_orientation(block, len + 6), 7);
    assert_int_equal(pen__exif_orientation(block + 6, len), 7);
}

/* Each block lies at the very end of its allocation, so that a sanitizer sees any
 * read past it. */
static void hostile_blocks_are_read_within_their_bounds(void **state)
{
    (void)state;
    uint8_t tiff[64];
    size_t len = make_tiff(tiff, true, 0x112, 3, 1, 6);
    for (size_t cut = 0; cut <= len; cut++)
        for (int value = 0; value < 256; value += 17)
            for (size_t at = 0; at < cut; at++) {
                uint8_t *copy = malloc(cut);
                memcpy(copy, tiff, cut);
                copy[at] = (uint8_t)value;
                int got = pen__exif_orientation(copy, cut);
                assert_in_range(got, 0, 8);
                free(copy);
            }
}

static int xmp(const char *text)
{
    return pen__xmp_orientation((const uint8_t *)text, strlen(text));
}

static void xmp_is_read_as_attribute_and_as_element(void **state)
{
    (void)state;
    assert_int_equal(xmp("<a tiff:Orientation=\"6\"/>"), 6);
    assert_int_equal(xmp("<tiff:Orientation>3</tiff:Orientation>"), 3);
    assert_int_equal(xmp("tiff:Orientation tiff:Orientation=\"8\""), 8);
    assert_int_equal(xmp("<a tiff:Orientation=\"9\"/>"), 1);
    assert_int_equal(xmp("<a tiff:Orientation='6'/>"), 0);
    assert_int_equal(xmp("tiff:Orientation=\""), 0);
    assert_int_equal(xmp("tiff:Orientation"), 0);
    assert_int_equal(xmp(""), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_byte_orders_and_all_integer_types_are_read),
        cmocka_unit_test(nonsense_is_upright_and_absence_is_zero),
        cmocka_unit_test(the_exif_prefix_is_optional),
        cmocka_unit_test(hostile_blocks_are_read_within_their_bounds),
        cmocka_unit_test(xmp_is_read_as_attribute_and_as_element),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
