/* test_remote_frames.c - streams of frames, in pieces, cut and spoiled. */
#include "wire.h"

#include <penstock/error.h>

#include "remote/remote_frames.h"

/* What a stream was taken as. */
typedef struct heard {
    int n_begun, n_ended, n_intact;
    size_t n_bytes;
    uint32_t sum; /* over indexes, ids, states and bodies */
} heard;

static void mix(heard *h, uint64_t value)
{
    h->sum = h->sum * 31 + (uint32_t)value;
}

static int hear_begin(void *ctx, const pen__frame *frame, pen_error *err)
{
    heard *h = ctx;
    h->n_begun++;
    if (frame->index > 9) {
        err->code = PEN_EINVAL;
        return PEN_EINVAL;
    }
    mix(h, frame->index);
    mix(h, frame->id);
    mix(h, (uint64_t)frame->status);
    return 0;
}

static void hear_body(void *ctx, const pen__frame *frame, size_t at, const uint8_t *bytes, size_t n)
{
    heard *h = ctx;
    assert_true(n > 0 && at + n <= frame->len);
    h->n_bytes += n;
    for (size_t i = 0; i < n; i++)
        mix(h, bytes[i]);
}

static int hear_end(void *ctx, const pen__frame *frame, bool is_intact, pen_error *err)
{
    (void)frame, (void)err;
    heard *h = ctx;
    h->n_ended++;
    h->n_intact += is_intact;
    return 0;
}

static const pen__frame_sink ear = {hear_begin, hear_body, hear_end};

/* Feed `len` bytes in pieces of `piece`. */
static int feed(const wire *w, size_t len, size_t piece, heard *h, bool *is_between)
{
    pen__frames frames = {0};
    pen_error err = {0};
    int rc = 0;
    *h = (heard){0};
    for (size_t at = 0; at < len && rc == 0; at += piece)
        rc = pen__frames_feed(&frames, w->bytes + at, len - at < piece ? len - at : piece, &ear, h,
                              &err);
    assert_int_equal(rc, err.code);
    *is_between = pen__frames_is_between(&frames);
    return rc;
}

static void make_stream(wire *w)
{
    w->n = 0;
    put_frame(w, 2, 17, 0, "a body of some bytes", 20);
    put_frame(w, 0, UINT64_MAX, PEN_EIO, "", 0);
    put_frame(w, 1, 3, 0, "x", 1);
}

static void pieces_of_any_size_give_the_same_frames(void **state)
{
    (void)state;
    static wire w;
    heard whole, pieces;
    bool is_between;
    make_stream(&w);
    assert_int_equal(feed(&w, w.n, w.n, &whole, &is_between), 0);
    assert_true(is_between);
    assert_int_equal(whole.n_ended, 3);
    assert_int_equal(whole.n_intact, 3);
    assert_int_equal(whole.n_bytes, 21);
    for (size_t piece = 1; piece < w.n; piece++) {
        assert_int_equal(feed(&w, w.n, piece, &pieces, &is_between), 0);
        assert_memory_equal(&pieces, &whole, sizeof whole);
    }
}

static void a_stream_cut_at_any_byte_is_not_taken_for_whole(void **state)
{
    (void)state;
    static wire w;
    heard h;
    bool is_between;
    make_stream(&w);
    for (size_t len = 0; len < w.n; len++) {
        assert_int_equal(feed(&w, len, 7, &h, &is_between), 0);
        assert_true(!is_between || h.n_ended < 3);
        assert_int_equal(h.n_intact, h.n_ended);
    }
}

static void any_flipped_bit_is_noticed(void **state)
{
    (void)state;
    static wire w;
    heard h;
    bool is_between;
    make_stream(&w);
    for (size_t bit = 0; bit < w.n * 8; bit++) {
        w.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        int rc = feed(&w, w.n, 11, &h, &is_between);
        assert_true(rc == PEN_ECORRUPT || (rc == 0 && h.n_intact == 2 && h.n_ended == 3));
        w.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

static void the_sink_may_end_the_stream(void **state)
{
    (void)state;
    static wire w;
    heard h;
    bool is_between;
    w.n = 0;
    put_frame(&w, 1, 0, 0, "good", 4);
    put_frame(&w, 10, 0, 0, "bad", 3);
    put_frame(&w, 2, 0, 0, "never seen", 10);
    assert_int_equal(feed(&w, w.n, w.n, &h, &is_between), PEN_EINVAL);
    assert_int_equal(h.n_begun, 2);
    assert_int_equal(h.n_ended, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_any_size_give_the_same_frames),
        cmocka_unit_test(a_stream_cut_at_any_byte_is_not_taken_for_whole),
        cmocka_unit_test(any_flipped_bit_is_noticed),
        cmocka_unit_test(the_sink_may_end_the_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
