/* test_describe_read.c - pipelines from their descriptions: all of them, and nothing else. */
#include "lines.h"

#include <locale.h>

#include "base/mem.h"
#include "engine/describe.h"

/* Reading a description gives the pipeline that it is of. */
static void check_round_trip(const pen_pipeline *pipe)
{
    pen_pipeline *again;
    pen_error err;
    const char *text = pen_pipeline_describe(pipe);
    if (pen__describe_read(&again, text, strlen(text), &err) != 0)
        fail_msg("%s: %s", err.text, text);
    assert_string_equal(pen_pipeline_describe(again), text);
    assert_string_equal(pen_pipeline_hash(again), pen_pipeline_hash(pipe));
    assert_int_equal(pen_pipeline_op_count(again), pen_pipeline_op_count(pipe));
    const pen_shape a = pen_pipeline_shape(pipe), b = pen_pipeline_shape(again);
    assert_true(a.bytes == b.bytes && a.dtype == b.dtype && a.layout == b.layout);
    const pen_image_info info = image(300, 200);
    pen_params was[PEN_PIPELINE_MAX_OPS], is[PEN_PIPELINE_MAX_OPS];
    memset(was, 0, sizeof was);
    memset(is, 0, sizeof is);
    for (int64_t sample = 0; sample < 20; sample++) {
        const pen_key key = {.seed = 9, .sample = sample, .epoch = 2};
        assert_int_equal(pen_pipeline_draw(pipe, &key, &info, was, COUNT(was), NULL), 0);
        assert_int_equal(pen_pipeline_draw(again, &key, &info, is, COUNT(is), NULL), 0);
        assert_memory_equal(was, is, sizeof was);
    }
    pen_pipeline_unref(again);
}

static void every_operation_comes_back(void **state)
{
    (void)state;
    pen_op ops[PEN_PIPELINE_MAX_OPS];
    pen_pipeline *pipe = make(ops, everything(ops));
    check_round_trip(pipe);
    pen_pipeline_unref(pipe);
}

static void tensors_and_their_types_come_back(void **state)
{
    (void)state;
    static const float mean[3] = {0.485F, 0.456F, 0.406F}, std[3] = {0.229F, 0.224F, 0.225F};
    pen_op erase = pen_op_random_erasing(0.3F), noise = erase, tensor = pen_op_to_tensor();
    noise.area.fill_mode = PEN_FILL_RANDOM;
    for (int scaling = PEN_SCALING_DIVIDE; scaling <= PEN_SCALING_NONE; scaling++)
        for (int dtype = PEN_DTYPE_FLOAT32; dtype <= PEN_DTYPE_BFLOAT16; dtype++)
            for (int layout = PEN_LAYOUT_NCHW; layout <= PEN_LAYOUT_NHWC; layout++) {
                tensor.to_tensor.scaling = (pen_scaling)scaling;
                const pen_op ops[] = {pen_op_random_resized_crop(8, 9), tensor,
                                      pen_op_normalize(mean, std, 3), erase, noise};
                pen_pipeline *pipe;
                assert_int_equal(pen_pipeline_create(&pipe, ops, COUNT(ops), (pen_dtype)dtype,
                                                     (pen_layout)layout, NULL),
                                 0);
                check_round_trip(pipe);
                pen_pipeline_unref(pipe);
            }
}

static void minus_zero_and_centres_come_back(void **state)
{
    (void)state;
    pen_op turn = pen_op_random_rotation(0), shift = pen_op_random_affine(0);
    turn.warp.has_center = true;
    turn.warp.center[0] = 1.0 / 3;
    shift.warp.translate[1] = 0.1;
    pen_pipeline *pipe = make((pen_op[]){turn, shift, pen_op_center_crop(8, 8)}, 3);
    assert_non_null(strstr(pen_pipeline_describe(pipe), "[-0,0]"));
    check_round_trip(pipe);
    pen_pipeline_unref(pipe);
}

static void the_locale_does_not_matter(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "C.UTF-8"};
    for (size_t i = 0; i < COUNT(names); i++)
        if (setlocale(LC_ALL, names[i]))
            break;
    every_operation_comes_back(state);
    setlocale(LC_ALL, "C");
}

static int read_text(const char *text, size_t len, pen_error *err)
{
    pen_pipeline *pipe;
    int rc = pen__describe_read(&pipe, text, len, err);
    assert_true((rc == 0) == (pipe != NULL));
    if (pipe) { /* then it is what the text says */
        assert_int_equal(strlen(pen_pipeline_describe(pipe)), len);
        assert_memory_equal(pen_pipeline_describe(pipe), text, len);
    }
    pen_pipeline_unref(pipe);
    return rc;
}

#define HEAD   "{\"numerics\":1,\"dtype\":\"uint8\",\"layout\":\"NCHW\",\"ops\":["
#define DECODE "{\"op\":\"Decode\",\"channels\":3,\"exif\":false}"
#define CROP   "{\"op\":\"CenterCrop\",\"size\":[8,8]}"

static void what_is_not_canonical_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
        const char *word;
    } cases[] = {
        {HEAD DECODE "," CROP "]}", 0, ""},
        {"", PEN_EINVAL, "no description"},
        {"[]", PEN_EINVAL, "no description"},
        {"7", PEN_EINVAL, "no description"},
        {"{\"numerics\":2}", PEN_EUNSUPPORTED, "numerics version 2"},
        {"{\"numerics\":1}", PEN_EINVAL, "dtype"},
        {HEAD DECODE "," CROP "]} ", PEN_EINVAL, "not written as"},
        {HEAD DECODE ", " CROP "]}", PEN_EINVAL, "not written as"},
        {HEAD CROP "]}", PEN_EINVAL, "not written as"}, /* Decode must be named */
        {HEAD DECODE "," CROP "],\"x\":1}", PEN_EINVAL, "not written as"},
        {HEAD DECODE ",{\"op\":\"CenterCrop\",\"size\":[8,8],\"x\":1}]}", PEN_EINVAL,
         "not written as"},
        {HEAD DECODE ",{\"op\":\"CenterCrop\",\"size\":[8.0,8]}]}", PEN_EINVAL, "not written as"},
        {HEAD DECODE ",{\"op\":\"CenterCrop\",\"size\":[8.5,8]}]}", PEN_EINVAL, "size"},
        {HEAD DECODE ",{\"op\":\"CenterCrop\",\"size\":[8,8],\"size\":[8,8]}]}", PEN_EINVAL,
         "duplicate"},
        {HEAD DECODE ",{\"op\":\"CenterCrop\",\"size\":[8]}]}", PEN_EINVAL, "size"},
        {HEAD DECODE ",{\"op\":\"CenterCrop\",\"size\":[8,9999999999]}]}", PEN_EINVAL, "size"},
        {HEAD DECODE ",{\"op\":\"CenterCrop\"}]}", PEN_EINVAL, "size"},
        {HEAD DECODE ",{\"op\":\"System\"}]}", PEN_EINVAL, "name of an operation"},
        {HEAD DECODE ",{}]}", PEN_EINVAL, "name of an operation"},
        {HEAD DECODE ",null]}", PEN_EINVAL, "name of an operation"},
        {HEAD DECODE "," CROP ",{\"op\":\"RandomHorizontalFlip\",\"p\":1e300}]}", PEN_EINVAL, "p'"},
        {HEAD DECODE "," CROP ",{\"op\":\"RandomHorizontalFlip\",\"p\":7}]}", PEN_EINVAL, "p must"},
        {HEAD DECODE "," CROP ",{\"op\":\"Compose\"}]}", PEN_EINVAL, "list of members"},
        {"{\"numerics\":1,\"dtype\":\"int4\",\"layout\":\"NCHW\",\"ops\":[]}", PEN_EINVAL, "dtype"},
        {"{\"numerics\":1,\"dtype\":\"uint8\",\"layout\":\"NCHW\"}", PEN_EINVAL, "ops"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        pen_error err = {0};
        int rc = read_text(cases[i].text, strlen(cases[i].text), &err);
        if (rc != cases[i].code || !strstr(err.text, cases[i].word))
            fail_msg("%s: %d, %s", cases[i].text, rc, err.text);
    }
}

static void depth_and_length_are_limited(void **state)
{
    (void)state;
    static char text[PEN__DESCRIPTION_MAX + 2];
    pen_error err;
    size_t n = (size_t)snprintf(text, sizeof text, HEAD DECODE);
    for (int i = 0; i < 100; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, ",{\"op\":\"Compose\",\"ops\":[" CROP);
    for (int i = 0; i < 100; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "]}");
    n += (size_t)snprintf(text + n, sizeof text - n, "]}");
    assert_int_equal(read_text(text, n, &err), PEN_EINVAL);
    assert_non_null(strstr(err.text, "more than"));
    memset(text, '[', sizeof text);
    assert_int_equal(read_text(text, 4000, &err), PEN_EINVAL);
    assert_int_equal(read_text(text, PEN__DESCRIPTION_MAX, &err), PEN_ELIMIT);
    assert_non_null(strstr(err.text, "more values"));
    assert_int_equal(read_text(text, PEN__DESCRIPTION_MAX + 1, &err), PEN_ELIMIT);
    assert_non_null(strstr(err.text, "bytes"));
}

/* Cut anywhere, changed anywhere, it is refused or means what it says. */
static void truncated_and_flipped_descriptions_do_no_harm(void **state)
{
    (void)state;
    pen_op ops[PEN_PIPELINE_MAX_OPS];
    pen_pipeline *pipe = make(ops, everything(ops));
    const size_t len = strlen(pen_pipeline_describe(pipe));
    char *text = malloc(len);
    for (size_t cut = 0; cut < len; cut++) {
        char *part = malloc(cut ? cut : 1); /* its end is where a sanitizer looks */
        memcpy(part, pen_pipeline_describe(pipe), cut);
        assert_int_not_equal(read_text(part, cut, NULL), 0);
        free(part);
    }
    for (size_t bit = 0; bit < len * 8; bit++) {
        memcpy(text, pen_pipeline_describe(pipe), len);
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        read_text(text, len, NULL);
    }
    free(text);
    pen_pipeline_unref(pipe);
}

static void failing_allocations_are_told(void **state)
{
    (void)state;
    static const char text[] = HEAD DECODE "," CROP "]}";
    const int64_t live = pen__mem_live();
    int rc = PEN_ENOMEM;
    for (int64_t n = 1; rc == PEN_ENOMEM; n++) {
        pen__mem_fail_at(n);
        rc = read_text(text, sizeof text - 1, NULL);
        pen__mem_fail_at(0);
        assert_int_equal(pen__mem_live(), live);
    }
    assert_int_equal(rc, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_comes_back),
        cmocka_unit_test(tensors_and_their_types_come_back),
        cmocka_unit_test(minus_zero_and_centres_come_back),
        cmocka_unit_test(the_locale_does_not_matter),
        cmocka_unit_test(what_is_not_canonical_is_refused),
        cmocka_unit_test(depth_and_length_are_limited),
        cmocka_unit_test(truncated_and_flipped_descriptions_do_no_harm),
        cmocka_unit_test(failing_allocations_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
