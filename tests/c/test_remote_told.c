/* test_remote_told.c - what servers say that a job may use, from the line to the sum. */
#include "lines.h"

#include <math.h>

#include "remote/remote_told.h"

/* NaN: the line says nothing. */
static double said(const char *line)
{
    double cores = NAN;
    char *copy = malloc(strlen(line) + 1); /* without its NUL, for sanitizers to watch */
    memcpy(copy, line, strlen(line));
    const bool is_it = pen__told_parse(copy, strlen(line), &cores);
    assert_int_equal(is_it, !isnan(cores));
    free(copy);
    return cores;
}

static void a_line_says_a_number(void **state)
{
    (void)state;
    assert_true(said("Penstock-Cores: 0.750\r\n") == 0.75);
    assert_true(said("penstock-cores:2") == 2);
    assert_true(said("PENSTOCK-CORES: \t 12.5  \r\n") == 12.5);
    assert_true(said("Penstock-Cores: 0") == 0);
    assert_true(said("Penstock-Cores: 000000000000001") == 1);
}

static void absurd_numbers_are_made_reasonable(void **state)
{
    (void)state;
    assert_true(said("Penstock-Cores: 1025") == PEN__TOLD_MAX_CORES);
    assert_true(said("Penstock-Cores: 9999999999999999") == PEN__TOLD_MAX_CORES);
}

static void what_is_no_number_says_nothing(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "",
        "Penstock-Cores",
        "Penstock-Cores:",
        "Penstock-Cores: \r\n",
        "Penstock-Cores: -1",
        "Penstock-Cores: +1",
        "Penstock-Cores: 1e3",
        "Penstock-Cores: 0x10",
        "Penstock-Cores: nan",
        "Penstock-Cores: inf",
        "Penstock-Cores: 1,5",
        "Penstock-Cores: 1 5",
        "Penstock-Cores: 1.2.3",
        "Penstock-Cores: .5",
        "Penstock-Cores: 5.",
        "Penstock-Cores: .",
        "Penstock-Cores: 0.0000000000000001",
        "Penstock-Cores : 1",
        "Penstock-Coresx: 1",
        "X-Penstock-Cores: 1",
    };
    for (size_t i = 0; i < COUNT(lines); i++)
        if (!isnan(said(lines[i])))
            fail_msg("'%s' says %g", lines[i], said(lines[i]));
    double cores;
    assert_false(pen__told_parse("Penstock-Cores: 1\0", 18, &cores));
}

static void jobs_have_numbers_of_their_own(void **state)
{
    (void)state;
    pen_pipeline *one = make((pen_op[]){pen_op_center_crop(8, 8)}, 1),
                 *same = make((pen_op[]){pen_op_center_crop(8, 8)}, 1),
                 *other = make((pen_op[]){pen_op_center_crop(8, 9)}, 1);
    assert_true(pen__told_job(1, one) == pen__told_job(1, same));
    assert_true(pen__told_job(1, one) != pen__told_job(1, other));
    assert_true(pen__told_job(1, one) != pen__told_job(2, one));
    assert_true(pen__told_job(1, one) != pen__told_job(1, NULL));
    pen_pipeline_unref(one);
    pen_pipeline_unref(same);
    pen_pipeline_unref(other);
}

static void the_sum_is_over_servers_that_answer(void **state)
{
    (void)state;
    static pen__told told;
    assert_true(isnan(pen__told_sum(&told, 7)));
    assert_true(isnan(pen__told_sum(&told, 0)));
    pen__told_note(&told, 7, 0, 0.5);
    pen__told_note(&told, 7, 63, 1.5);
    pen__told_note(&told, 7, 0, 0.25); /* the last word counts */
    pen__told_note(&told, 8, 0, 100);
    assert_true(pen__told_sum(&told, 7) == 1.75);
    pen__told_forget(&told, 0);
    assert_true(pen__told_sum(&told, 7) == 1.5);
    assert_true(isnan(pen__told_sum(&told, 8)));
    pen__told_note(&told, 7, 1, NAN); /* one that does not say: there may be any number */
    assert_true(isnan(pen__told_sum(&told, 7)));
    pen__told_forget(&told, 1);
    assert_true(pen__told_sum(&told, 7) == 1.5);
}

static void the_job_not_heard_of_for_longest_is_forgotten(void **state)
{
    (void)state;
    static pen__told told;
    for (uint64_t job = 0; job < PEN__TOLD_JOBS; job++)
        pen__told_note(&told, job, 3, 1);
    pen__told_note(&told, 0, 3, 2);
    pen__told_note(&told, 99, 4, 5);
    assert_true(pen__told_sum(&told, 0) == 2);
    assert_true(isnan(pen__told_sum(&told, 1)));
    assert_true(pen__told_sum(&told, 2) == 1);
    assert_true(pen__told_sum(&told, 99) == 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_says_a_number),
        cmocka_unit_test(absurd_numbers_are_made_reasonable),
        cmocka_unit_test(what_is_no_number_says_nothing),
        cmocka_unit_test(jobs_have_numbers_of_their_own),
        cmocka_unit_test(the_sum_is_over_servers_that_answer),
        cmocka_unit_test(the_job_not_heard_of_for_longest_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
