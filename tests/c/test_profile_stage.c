/* test_profile_stage.c - which part of a job is the slowest, and what would help. */
#include "testing.h"

#include <math.h>

#include "loading.h"
#include "profile_stage.h"

static void near(double a, double b)
{
    assert_true(fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)));
}

static void the_slowest_part_decides(void **state)
{
    (void)state;
    profile_stage stage = {.device_s = 0.002, .client_s = 0.001, .file_s = 0.004};
    assert_true(profile_stage_is_bound(&stage));
    stage.device_s = 0.005;
    assert_false(profile_stage_is_bound(&stage));
    stage.device_s = 0.001;
    stage.client_s = 0.005;
    assert_false(profile_stage_is_bound(&stage));
    stage.client_s = 0.0039; /* hardly slower is not slower */
    assert_false(profile_stage_is_bound(&stage));
}

static void storage_needs_as_many_cores_as_keep_up(void **state)
{
    (void)state;
    profile_stage stage = {.device_s = 0.001, .client_s = 0.002, .sent_s = 0.0005};
    stage.storage_s = 0.006;
    near(profile_stage_cores(&stage), 3);
    stage.sent_s = 0.012; /* the network does not want more */
    near(profile_stage_cores(&stage), 0.5);
    assert_true(isinf(profile_stage_cores(&(profile_stage){.storage_s = 1})));
}

static void parts_follow_from_what_was_measured(void **state)
{
    (void)state;
    const pen_profile_point points[] = {{PEN_PROFILE_FILE, 0, 0}, {PEN_PROFILE_TENSOR, 2, 1}};
    const profile_data data = {.n = 10, .n_points = 2, .points = {points[0], points[1]}};
    const profile_job job = {.batch_size = 8, .n_threads = 4};
    profile_stats stats = {.files = {1000, 0}, .sent = {250, 0.05}};
    profile_stage stage = {.device_s = 0.001, .file_s = 0.02};
    stats.rows[1].cpu_s = 0.008;
    profile_stage_finish(&stage, &job, &data, &stats);
    near(stage.client_s, 0.002);
    near(stage.storage_s, 0.005);
    near(stage.sent_s, 0.005);
    stats.n_told = 5; /* a node's own word counts more */
    stats.node_s = 0.1;
    profile_stage_finish(&stage, &job, &data, &stats);
    near(stage.storage_s, 0.02);
}

static void device_and_fetching_run_alone(void **state)
{
    (void)state;
    profile_job job = {.device = {.mean_ms = 0.01, .random = 1}, .batch_size = 4};
    profile_stage stage;
    assert_true(profile_stage_run(&stage, &job, ds));
    assert_true(stage.n_fetched == PICTURES); /* fewer than 50 batches */
    assert_true(stage.file_s > 0 && stage.bytes_per_s > 0);
    near(stage.bytes_per_s * stage.file_s * PICTURES, (double)pen_dataset_bytes(ds));
    assert_true(stage.device_s >= 0.00001 / 4);
    job.batch_size = 1;
    assert_true(profile_stage_run(&stage, &job, ds));
    assert_true(stage.n_fetched == PICTURES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slowest_part_decides),
        cmocka_unit_test(storage_needs_as_many_cores_as_keep_up),
        cmocka_unit_test(parts_follow_from_what_was_measured),
        cmocka_unit_test_setup_teardown(device_and_fetching_run_alone, make_world, unmake_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
