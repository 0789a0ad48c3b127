/* test_field_parcel.c - fields on their way: the smallest form is taken, and strangers' bytes do no
 * harm. */
#include "testing.h"

#include "engine/field_parcel.h"
#include "images.h"

enum { LEN = 5000 };

typedef struct bytes {
    uint8_t *data;
    size_t len;
} bytes;

static int set_up(void **state)
{
    return pen__bytes_coder_create((pen__bytes_coder **)state);
}

static int tear_down(void **state)
{
    pen__bytes_coder_free(*state);
    return 0;
}

/* Words, as captions have them; noise with `is_noise`. */
static void fill(uint8_t *dst, size_t n, bool is_noise)
{
    static const char words[] = "a cat sits on a mat and looks at a dog that looks at a cat ";
    uint64_t dice = n;
    for (size_t i = 0; i < n; i++)
        dst[i] = (uint8_t)(is_noise ? roll(&dice) : (uint64_t)words[(i + i / 97) % 59]);
}

/* In places that end where it may write and read, for sanitizers to watch. */
static bytes pack(pen__bytes_coder *coder, uint32_t forms, const uint8_t *src, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1), *scratch = malloc(len ? len : 1);
    bytes out = {malloc(PEN__FIELD_HEAD + len), 0};
    memcpy(copy, src, len);
    out.len = pen__field_pack(coder, PEN_FIELD_JSON, forms, copy, len, out.data, scratch, NULL);
    free(copy), free(scratch);
    return out;
}

static int unpack(pen__bytes_coder *coder, bytes b, uint32_t forms, uint8_t *dst, size_t len)
{
    pen_error err = {0};
    int rc = pen__field_check(b.data, b.len, PEN_FIELD_JSON, forms, len, &err);
    const uint8_t *payload = b.data + PEN__FIELD_HEAD;
    if (rc == 0 && pen__field_is_raw(b.data))
        memcpy(dst, payload, len);
    else if (rc == 0)
        rc = pen__field_unpack(coder, b.data, payload, b.len - PEN__FIELD_HEAD, dst, len, &err);
    assert_int_equal(rc, err.code);
    return rc;
}

static void fields_arrive_in_every_form(void **state)
{
    static uint8_t src[LEN], got[LEN + 1];
    int n_of_form[PEN__FORM_COUNT] = {0};
    for (size_t n = 0; n <= LEN; n = n < 70 ? n + 1 : n * 3 / 2)
        for (int form = 0; form < PEN__FORM_COUNT; form++) {
            fill(src, n, false);
            bytes b = pack(*state, 1U << form, src, n);
            assert_true(b.data[1] == form || b.data[1] == PEN__FORM_RAW);
            assert_true(b.data[1] == PEN__FORM_RAW || n > PEN__FIELD_TINY);
            n_of_form[b.data[1]]++;
            got[n] = 0xA5;
            assert_int_equal(unpack(*state, b, 1U << form, got, n), 0);
            assert_memory_equal(got, src, n);
            assert_int_equal(got[n], 0xA5);
            free(b.data);
        }
    for (int form = 0; form < PEN__FORM_COUNT; form++)
        assert_int_equal(n_of_form[form] > 0, PEN__FIELD_FORMS >> form & 1);
}

static void the_smallest_is_taken(void **state)
{
    static uint8_t src[LEN];
    for (size_t n = 0; n <= LEN; n = n < 70 ? n + 1 : n * 3 / 2)
        for (int is_noise = 0; is_noise < 2; is_noise++) {
            fill(src, n, is_noise);
            bytes best = pack(*state, UINT32_MAX, src, n);
            assert_true(best.len <= PEN__FIELD_HEAD + n);
            for (int form = 0; form < PEN__FORM_COUNT; form++) {
                bytes one = pack(*state, 1U << form, src, n);
                assert_true(best.len <= one.len);
                free(one.data);
            }
            assert_int_equal(best.data[1] == PEN__FORM_RAW, best.len == PEN__FIELD_HEAD + n);
            free(best.data);
        }
}

static void what_cannot_be_coded_goes_as_it_is(void **state)
{
    static uint8_t src[LEN], dst[PEN__FIELD_HEAD + LEN], scratch[LEN];
    const atomic_bool cancel = true;
    fill(src, LEN, false);
    assert_int_equal(pen__field_pack(NULL, PEN_FIELD_TXT, UINT32_MAX, src, LEN, dst, scratch, NULL),
                     PEN__FIELD_HEAD + LEN);
    assert_int_equal(pen__field_pack(*state, PEN_FIELD_TXT, UINT32_MAX, src, LEN, dst, NULL, NULL),
                     PEN__FIELD_HEAD + LEN);
    assert_int_equal(
        pen__field_pack(*state, PEN_FIELD_TXT, UINT32_MAX, src, LEN, dst, scratch, &cancel),
        PEN__FIELD_HEAD + LEN);
    assert_memory_equal(dst + PEN__FIELD_HEAD, src, LEN);
    assert_int_equal(dst[2], PEN_FIELD_TXT);
}

static void what_was_not_asked_for_is_refused(void **state)
{
    static uint8_t src[LEN], got[LEN + 9];
    fill(src, LEN, false);
    const uint32_t zstd = 1U << PEN__FORM_ZSTD;
    bytes b = pack(*state, zstd, src, LEN);
    const size_t len = b.len;
    assert_int_equal(b.data[1], PEN__FORM_ZSTD);
    assert_int_equal(unpack(*state, b, zstd, got, LEN), 0);
    assert_int_equal(unpack(*state, b, 1, got, LEN), PEN_ECORRUPT); /* another form */
    assert_int_equal(unpack(*state, b, zstd, got, LEN - 1), PEN_ECORRUPT);
    assert_int_equal(unpack(*state, b, zstd, got, LEN + 1), PEN_ECORRUPT);
    assert_int_equal(pen__field_check(b.data, len, PEN_FIELD_TXT, zstd, LEN, NULL), PEN_ECORRUPT);
    for (int at = 0; at < 4; at++)
        for (int bit = 0; bit < 8; bit++) {
            b.data[at] ^= (uint8_t)(1U << bit);
            if (!pen__field_is_raw(b.data))
                assert_int_equal(pen__field_check(b.data, len, PEN_FIELD_JSON, zstd, LEN, NULL),
                                 PEN_ECORRUPT);
            b.data[at] ^= (uint8_t)(1U << bit);
        }
    static const size_t lengths[] = {0, 7, PEN__FIELD_HEAD, PEN__FIELD_HEAD + LEN, SIZE_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        assert_int_equal(pen__field_check(b.data, lengths[i], PEN_FIELD_JSON, zstd, LEN, NULL),
                         PEN_ECORRUPT);
    b.data[1] = PEN__FORM_RAW;
    for (size_t n = PEN__FIELD_HEAD; n < PEN__FIELD_HEAD + 2 * LEN; n += 7)
        assert_int_equal(pen__field_check(b.data, n, PEN_FIELD_JSON, zstd, LEN, NULL),
                         n == PEN__FIELD_HEAD + LEN ? 0 : PEN_ECORRUPT);
    b.data[1] = PEN__FORM_PIXELS; /* nobody would get that far */
    assert_int_equal(pen__field_unpack(*state, b.data, b.data + 8, 9, got, LEN, NULL),
                     PEN_ECORRUPT);
    free(b.data);
}

static void damage_is_found_or_harmless(void **state)
{
    enum { N = 700 };
    static uint8_t src[N];
    uint64_t dice = 3;
    fill(src, N, false);
    for (int form = PEN__FORM_ZSTD; form <= PEN__FORM_SNAPPY; form++) {
        bytes b = pack(*state, 1U << form, src, N);
        for (int i = 0; i < 3000; i++) {
            bytes copy = {malloc(b.len), b.len};
            uint8_t *got = malloc(N);
            memcpy(copy.data, b.data, b.len);
            copy.data[roll(&dice) % b.len] ^= (uint8_t)(1U << roll(&dice) % 8);
            const int rc = unpack(*state, copy, PEN__FIELD_FORMS, got, N);
            assert_true(rc == 0 || rc == PEN_ECORRUPT);
            free(copy.data), free(got);
        }
        free(b.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(fields_arrive_in_every_form, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_smallest_is_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_coded_goes_as_it_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_not_asked_for_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damage_is_found_or_harmless, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
