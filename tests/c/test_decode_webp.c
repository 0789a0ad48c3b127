/* test_decode_webp.c - lossy, lossless and animated WebP, whole and in windows. */
#include "decoding.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>
#include <webp/decode.h>
#include <webp/encode.h>

static file encode_webp(const uint8_t *px, int w, int h, int ch, float quality)
{
    file f = {0};
    uint8_t *out = NULL;
    if (quality > 100)
        f.len = ch == 4 ? WebPEncodeLosslessRGBA(px, w, h, w * 4, &out)
                        : WebPEncodeLosslessRGB(px, w, h, w * 3, &out);
    else
        f.len = ch == 4 ? WebPEncodeRGBA(px, w, h, w * 4, quality, &out)
                        : WebPEncodeRGB(px, w, h, w * 3, quality, &out);
    assert_true(f.len > 0);
    f.data = malloc(f.len);
    memcpy(f.data, out, f.len);
    WebPFree(out);
    return f;
}

/* As Pillow does it: decode with alpha, then drop it. */
static uint8_t *decode_plainly(file f, int *w, int *h)
{
    uint8_t *rgba = WebPDecodeRGBA(f.data, f.len, w, h);
    assert_non_null(rgba);
    uint8_t *px = malloc((size_t)(*w * *h * 3));
    for (int i = 0; i < *w * *h; i++)
        memcpy(px + 3 * i, rgba + 4 * i, 3);
    WebPFree(rgba);
    return px;
}

static void every_window_equals_the_cut_full_decode(void **state)
{
    static const float qualities[] = {0, 30, 75, 100, 101}; /* 101: lossless */
    uint64_t dice = 1;
    for (int i = 0; i < 200; i++) {
        int ch = i % 2 ? 4 : 3, most = i % 10 == 9 ? 120 : 40;
        int w = roll_between(&dice, 1, most), h = roll_between(&dice, 1, most);
        uint8_t *px = make_picture(w, h, ch, (uint64_t)i);
        file f = encode_webp(px, w, h, ch, qualities[i % 5]);
        int got_w, got_h;
        uint8_t *whole = decode_plainly(f, &got_w, &got_h);
        assert_int_equal(got_w, w);
        assert_int_equal(got_h, h);
        check_window(*state, f, (pen__rect){0, 0, w, h}, whole, w, 3, "whole");
        for (int n = 0; n < 40; n++)
            check_window(*state, f, random_window(&dice, w, h), whole, w, 3, "window");
        free(px), free(whole), free(f.data);
    }
}

static void lossless_files_give_back_what_went_in(void **state)
{
    uint8_t *px = make_picture(31, 23, 3, 4);
    file f = encode_webp(px, 31, 23, 3, 101);
    check_window(*state, f, (pen__rect){0, 0, 31, 23}, px, 31, 3, "lossless");
    free(px), free(f.data);
}

static void put_le(uint8_t *to, uint32_t value, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

static uint8_t *put_chunk(uint8_t *to, const char *name, uint32_t len)
{
    memcpy(to, name, 4);
    put_le(to + 4, len, 4);
    return to + 8;
}

/* An animation of one frame, `still` at (x, y) on a canvas. */
static file make_animation(file still, int frame_w, int frame_h, int x, int y, int w, int h)
{
    size_t n_image = still.len - 12, n_frame = 16 + n_image; /* without RIFF's header */
    file f = {calloc(1, 12 + 18 + 14 + 8 + n_frame), 12 + 18 + 14 + 8 + n_frame};
    uint8_t *at = put_chunk(f.data, "RIFF", (uint32_t)f.len - 8);
    memcpy(at, "WEBP", 4);
    at = put_chunk(at + 4, "VP8X", 10);
    at[0] = 0x12; /* animation, alpha */
    put_le(at + 4, (uint32_t)w - 1, 3);
    put_le(at + 7, (uint32_t)h - 1, 3);
    at = put_chunk(at + 10, "ANIM", 6);
    at = put_chunk(at + 6, "ANMF", (uint32_t)n_frame);
    put_le(at, (uint32_t)x / 2, 3);
    put_le(at + 3, (uint32_t)y / 2, 3);
    put_le(at + 6, (uint32_t)frame_w - 1, 3);
    put_le(at + 9, (uint32_t)frame_h - 1, 3);
    memcpy(at + 16, still.data + 12, n_image);
    return f;
}

static void an_animation_gives_its_first_frame_on_black(void **state)
{
    enum { W = 40, H = 30, FRAME_W = 21, FRAME_H = 13, X = 6, Y = 10 };
    uint64_t dice = 5;
    uint8_t *px = make_picture(FRAME_W, FRAME_H, 3, 4), *whole = calloc(W * H, 3);
    file still = encode_webp(px, FRAME_W, FRAME_H, 3, 101);
    file f = make_animation(still, FRAME_W, FRAME_H, X, Y, W, H);
    for (int y = 0; y < FRAME_H; y++)
        memcpy(whole + ((Y + y) * W + X) * 3, px + y * FRAME_W * 3, FRAME_W * 3);
    pen_image_info info;
    assert_int_equal(pen_image_probe(f.data, f.len, &info, NULL), 0);
    assert_true(info.is_animated);
    for (int i = 0; i < 300; i++)
        check_window(*state, f, random_window(&dice, W, H), whole, W, 3, "animation");
    check_truncations(*state, f, &dice);
    check_flips(*state, f, 1000, &dice);
    free(px), free(whole), free(still.data), free(f.data);
}

static void truncations_and_flips_are_survived(void **state)
{
    static const float qualities[] = {10, 90, 101};
    uint64_t dice = 6;
    for (int i = 0; i < 6; i++) {
        uint8_t *px = make_picture(25, 19, i % 2 ? 4 : 3, 4);
        file f = encode_webp(px, 25, 19, i % 2 ? 4 : 3, qualities[i / 2]);
        check_truncations(*state, f, &dice);
        check_flips(*state, f, 500, &dice);
        free(px), free(f.data);
    }
}

static void a_truncated_file_is_corrupt(void **state)
{
    uint8_t *px = make_picture(25, 19, 3, 4), dst[25 * 19 * 3];
    file f = encode_webp(px, 25, 19, 3, 75);
    f.len -= 20;
    pen_error err;
    assert_int_equal(decode_into(*state, f, (pen__rect){0, 0, 25, 19}, dst, &err), PEN_ECORRUPT);
    free(px), free(f.data);
}

static void a_failing_allocation_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    uint8_t *px = make_picture(25, 19, 3, 4);
    file f = encode_webp(px, 25, 19, 3, 75);
    /* the decoder, its JPEG part, and the pixels with their margin */
    assert_int_equal(check_failing_memory(f, (pen__rect){3, 3, 10, 10}), 3);
    free(px), free(f.data);
}

/* The sanitizers' own allocators do not survive a fork under threads. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED true
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED false
#endif

static atomic_bool is_over;

static void *decode_all_the_time(void *ctx)
{
    const file *f = ctx;
    uint8_t dst[25 * 19 * 3];
    while (!atomic_load(&is_over))
        if (pen_image_decode(f->data, f->len, 0, 0, 25, 19, 3, dst, sizeof dst, NULL) < 0)
            abort();
    return NULL;
}

/* libwebp's own locks must not be held at the moment of a fork; a child that hangs is
 * ended by its alarm and counts as failed. */
static void a_child_forked_during_decodes_can_decode(void **state)
{
    (void)state;
    if (IS_SANITIZED)
        skip();
    uint8_t *px = make_picture(25, 19, 3, 4), dst[25 * 19 * 3];
    file f = encode_webp(px, 25, 19, 3, 75);
    pthread_t threads[3];
    atomic_store(&is_over, false);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, decode_all_the_time, &f), 0);
    int n_failed = 0;
    for (int i = 0; i < 300 && n_failed == 0; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(30);
            int64_t n = pen_image_decode(f.data, f.len, 0, 0, 25, 19, 3, dst, sizeof dst, NULL);
            _exit(n == (int64_t)sizeof dst ? 0 : 1);
        }
        int status = -1;
        waitpid(child, &status, 0);
        n_failed += status != 0;
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(n_failed, 0);
    free(px), free(f.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_window_equals_the_cut_full_decode),
        cmocka_unit_test(lossless_files_give_back_what_went_in),
        cmocka_unit_test(an_animation_gives_its_first_frame_on_black),
        cmocka_unit_test(truncations_and_flips_are_survived),
        cmocka_unit_test(a_truncated_file_is_corrupt),
        cmocka_unit_test(a_failing_allocation_is_reported_and_leaks_nothing),
        cmocka_unit_test(a_child_forked_during_decodes_can_decode),
    };
    return cmocka_run_group_tests(tests, set_up_decoder, tear_down_decoder);
}
