/* test_headers.c - images' headers in a word each. */
#include "testing.h"

#include "base/mem.h"
#include "engine/headers.h"

static pen_image_info photo(void)
{
    return (pen_image_info){.format = PEN_FORMAT_JPEG,
                            .width = 65535,
                            .height = 1,
                            .channels = 3,
                            .bits = 8,
                            .orientation = 8,
                            .is_progressive = true,
                            .sampling_h = 2,
                            .sampling_v = 1};
}

static void assert_same(const pen_image_info *a, const pen_image_info *b)
{
    assert_int_equal(a->format, b->format);
    assert_int_equal(a->width, b->width);
    assert_int_equal(a->height, b->height);
    assert_int_equal(a->channels, b->channels);
    assert_int_equal(a->bits, b->bits);
    assert_int_equal(a->orientation, b->orientation);
    assert_int_equal(a->is_progressive, b->is_progressive);
    assert_int_equal(a->is_grey, b->is_grey);
    assert_int_equal(a->is_animated, b->is_animated);
    assert_int_equal(a->sampling_h, b->sampling_h);
    assert_int_equal(a->sampling_v, b->sampling_v);
}

static void what_was_put_is_what_is_got(void **state)
{
    (void)state;
    pen__headers headers;
    assert_int_equal(pen__headers_init(&headers, 3), 0);
    pen_image_info infos[] = {photo(), photo(), photo()}, got;
    infos[1] = (pen_image_info){.format = PEN_FORMAT_WEBP,
                                .width = 1,
                                .height = 65535,
                                .channels = 4,
                                .bits = 16,
                                .orientation = 1,
                                .is_animated = true,
                                .sampling_h = 1,
                                .sampling_v = 4};
    infos[2].is_grey = true;
    infos[2].channels = 1;
    for (int i = 0; i < 3; i++)
        assert_false(pen__headers_get(&headers, i, &got));
    for (int i = 0; i < 3; i++)
        pen__headers_put(&headers, i, &infos[i]);
    for (int i = 0; i < 3; i++) {
        assert_true(pen__headers_get(&headers, i, &got));
        assert_same(&got, &infos[i]);
    }
    pen__headers_fini(&headers);
}

static void what_no_word_holds_is_not_known(void **state)
{
    (void)state;
    pen__headers headers;
    assert_int_equal(pen__headers_init(&headers, 1), 0);
    pen_image_info too_wide = photo(), empty = photo(), odd = photo(), got;
    too_wide.width = 65536;
    empty.height = 0;
    odd.sampling_h = 9;
    pen__headers_put(&headers, 0, &too_wide);
    pen__headers_put(&headers, 0, &empty);
    pen__headers_put(&headers, 0, &odd);
    assert_false(pen__headers_get(&headers, 0, &got));
    pen__headers_fini(&headers);
}

static void samples_that_are_not_there_are_not_known(void **state)
{
    (void)state;
    pen__headers headers, none = {0};
    assert_int_equal(pen__headers_init(&headers, 2), 0);
    pen_image_info info = photo(), got;
    pen__headers_put(&headers, -1, &info);
    pen__headers_put(&headers, 2, &info);
    pen__headers_put(&none, 0, &info);
    assert_false(pen__headers_get(&headers, -1, &got));
    assert_false(pen__headers_get(&headers, 2, &got));
    assert_false(pen__headers_get(&none, 0, &got));
    pen__headers_fini(&headers);
    pen__headers_fini(&none);
}

static void no_memory_is_said(void **state)
{
    (void)state;
    pen__headers headers = {0};
    pen__mem_fail_at(1);
    assert_int_equal(pen__headers_init(&headers, 10), PEN_ENOMEM);
    pen__mem_fail_at(0);
    pen__headers_fini(&headers);
    assert_int_equal(pen__headers_init(&headers, 0), 0);
    pen__headers_fini(&headers);
    assert_int_equal(pen__headers_memory(1000), 8000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_is_what_is_got),
        cmocka_unit_test(what_no_word_holds_is_not_known),
        cmocka_unit_test(samples_that_are_not_there_are_not_known),
        cmocka_unit_test(no_memory_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
