/* test_plan.c - a line that is cut in two gives what the whole line gives. */
#include "testing.h"

#include "base/mem.h"
#include "engine/run.h"
#include "journeys.h"

enum { W = 150, H = 117 };

typedef struct sample {
    pen_pipeline *pipe;
    file f;
    pen_key key;
    pen_image_info info;
    pen_params params[PEN_PIPELINE_MAX_OPS];
    pen__plan plan;
    pen__decoder *dec;
    uint8_t *want, *got;
} sample;

static sample *sample_of(int line, int which, int64_t number)
{
    sample *s = calloc(1, sizeof *s);
    pen_error err = {0};
    s->pipe = pipeline_of(line);
    s->f = file_of(which, W, H);
    s->key = (pen_key){7, number, 2, 0};
    assert_int_equal(pen__decoder_create(&s->dec, NULL), 0);
    assert_int_equal(pen_image_probe(s->f.data, s->f.len, &s->info, NULL), 0);
    if (pen_pipeline_draw(s->pipe, &s->key, &s->info, s->params, PEN_PIPELINE_MAX_OPS, &err))
        fail_msg("line %d, file %d: %s", line, which, err.text);
    pen__plan_build(&s->plan, s->pipe, &s->info, s->params);
    const size_t bytes = pen_pipeline_shape(s->pipe).bytes;
    s->want = malloc(bytes), s->got = malloc(bytes);
    assert_int_equal(pen_pipeline_run(s->pipe, &s->key, s->f.data, s->f.len, s->want, bytes, NULL),
                     0);
    return s;
}

static void free_sample(sample *s)
{
    pen_pipeline_unref(s->pipe);
    pen__decoder_free(s->dec);
    free(s->f.data), free(s->want), free(s->got), free(s);
}

/* Exactly as much as the plan asks for, so that a sanitizer sees a byte more. */
static void *scratch_for(const pen__plan *plan)
{
    return pen__aligned(64, plan->scratch_bytes);
}

/* Run up to cut `i` here, and the rest elsewhere. */
static void run_in_two(sample *s, int i)
{
    pen__plan *part = malloc(sizeof *part);
    pen__image image;
    *part = s->plan;
    const pen__plan_cut cut = part->cuts[i];
    pen__plan_keep(part, -1, i);
    const pen__input in = pen__input_of_file(part, &s->info, s->f.data, s->f.len);
    void *scratch = scratch_for(part);
    assert_int_equal(pen__run_to_cut(part, s->dec, &in, scratch, &image, NULL), 0);
    assert_int_equal(image.w, cut.w);
    assert_int_equal(image.h, cut.h);
    assert_int_equal(image.ch, cut.ch);

    const size_t bytes = pen__image_bytes(&image);
    uint8_t *wire = malloc(bytes);
    memcpy(wire, image.px, bytes);
    pen__free(scratch);
    *part = s->plan;
    pen__plan_keep(part, i, part->n_cuts - 1);
    assert_true(part->library_bytes == 0 &&
                part->scratch_bytes <= s->plan.scratch_bytes + 2 * bytes + 128);
    scratch = scratch_for(part);
    const pen__input rest = {.kind = PEN__INPUT_PIXELS, .pixels = {wire, cut.w, cut.h, cut.ch}};
    memset(s->got, 0xA5, pen_pipeline_shape(s->pipe).bytes);
    assert_int_equal(
        pen__run(s->pipe, part, s->params, &s->key, s->dec, &rest, scratch, s->got, NULL, NULL), 0);
    pen__free(scratch);
    free(wire), free(part);
}

static void a_line_cut_anywhere_gives_the_same_bytes(void **state)
{
    (void)state;
    for (int line = 0; line < N_LINES; line++)
        for (int which = 0; which < N_FILES; which++) {
            sample *s = sample_of(line, which, 3 * line + which);
            for (int i = 0; i < s->plan.n_cuts; i++) {
                run_in_two(s, i);
                if (memcmp(s->want, s->got, pen_pipeline_shape(s->pipe).bytes) != 0)
                    fail_msg("line %d, file %d, cut after %d", line, which, s->plan.cuts[i].n_ops);
            }
            free_sample(s);
        }
}

static void cuts_are_between_operations_of_the_line(void **state)
{
    (void)state;
    sample *s = sample_of(7, 1, 1); /* Decode, RandomApply of two, RandomResizedCrop, ToTensor */
    assert_int_equal(s->plan.n_cuts, 3);
    assert_int_equal(s->plan.cuts[0].n_ops, 1);
    assert_int_equal(s->plan.cuts[1].n_ops, 4);
    assert_int_equal(s->plan.cuts[2].n_ops, 5);
    assert_int_equal(s->plan.cuts[1].w, W);
    assert_int_equal(s->plan.cuts[2].w, 36);
    free_sample(s);
}

static void what_is_one_step_is_not_cut(void **state)
{
    (void)state;
    sample *s = sample_of(1, 1, 1); /* Decode, Resize and CenterCrop in one, ToTensor */
    assert_int_equal(s->plan.n_cuts, 2);
    assert_int_equal(s->plan.cuts[1].n_ops, 3);
    assert_int_equal(pen__plan_find_cut(&s->plan, 0), -1);
    assert_int_equal(pen__plan_find_cut(&s->plan, 1), 0);
    assert_int_equal(pen__plan_find_cut(&s->plan, 2), 0);
    assert_int_equal(pen__plan_find_cut(&s->plan, 3), 1);
    assert_int_equal(pen__plan_find_cut(&s->plan, 64), 1);
    free_sample(s);
}

static void grey_files_stay_narrow_at_a_cut(void **state)
{
    (void)state;
    sample *s = sample_of(0, 0, 1);
    for (int i = 0; i < s->plan.n_cuts; i++)
        assert_int_equal(s->plan.cuts[i].ch, 1);
    free_sample(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_cut_anywhere_gives_the_same_bytes),
        cmocka_unit_test(cuts_are_between_operations_of_the_line),
        cmocka_unit_test(what_is_one_step_is_not_cut),
        cmocka_unit_test(grey_files_stay_narrow_at_a_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
