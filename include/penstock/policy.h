/* policy.h - who turns the knobs: a function from what was measured to settings.
 *
 *     opts.policy = pen_policy_find("model");            among the loader's options, or
 *     pen_loader_set_policy(loader, pen_policy_find("rules"), &err);    while it runs
 *
 * A thread of the loader measures once a period and asks the policy.  A policy is a pure
 * function of (its own memory, state, table of knobs, knobs): it has no clock, reads nothing
 * and allocates nothing, so that it can be driven by a test, a simulator or a recorded log.
 * docs/policies.md has the state field by field, what each policy does, and the log.
 */
#ifndef PENSTOCK_POLICY_H
#define PENSTOCK_POLICY_H

#include <stdbool.h>
#include <stddef.h>

#include <penstock/error.h>
#include <penstock/knobs.h>
#include <penstock/loader.h>

/* The state vector, all doubles; NaN: this machine does not tell, or nothing happened.
 * X(field, unit, a typical full scale to divide by, what it is).  Stage times are over the last
 * 4 to 8 periods, everything else over the last one.  Fields are only ever added at the end. */
#define PEN_POLICY_STATE(X)                                                                     \
    X(period_s, "s", 0.1, "length of the period")                                               \
    X(wait_share, "share", 1, "of the period, the training loop waited for a batch")            \
    X(away, "0 or 1", 1, "the loop is between two epochs: it may be validating")                \
    X(batches, "batches", 10, "delivered in the period")                                        \
    X(samples, "samples", 1000, "delivered in the period")                                      \
    X(made, "samples", 1000, "finished by workers in the period")                               \
    X(batch_samples, "samples", 256, "in a batch")                                              \
    X(step_s, "s", 0.1, "the loop's own time between two batches, mean")                        \
    X(step_cv, "ratio", 1, "its deviation over its mean")                                       \
    X(read_s, "s", 0.01, "reading a sample, mean")                                              \
    X(read_p50_s, "s", 0.01, "half of them take less")                                          \
    X(read_p95_s, "s", 0.01, "19 of 20 take less")                                              \
    X(read_cv, "ratio", 1, "deviation over mean")                                               \
    X(decode_s, "s", 0.01, "decoding a sample, mean")                                           \
    X(decode_p95_s, "s", 0.01, "19 of 20 take less")                                            \
    X(decode_cv, "ratio", 1, "deviation over mean")                                             \
    X(augment_s, "s", 0.01, "all other steps on its pixels, mean")                              \
    X(augment_p95_s, "s", 0.01, "19 of 20 take less")                                           \
    X(augment_cv, "ratio", 1, "deviation over mean")                                            \
    X(tensor_s, "s", 0.01, "writing it into the batch, mean")                                   \
    X(tensor_p95_s, "s", 0.01, "19 of 20 take less")                                            \
    X(tensor_cv, "ratio", 1, "deviation over mean")                                             \
    X(batch_s, "s", 0.1, "a batch from its first claim to its last sample, mean")               \
    X(batch_p95_s, "s", 0.1, "19 of 20 take less")                                              \
    X(ready, "batches", 16, "complete and waiting, at the end of the period")                   \
    X(open, "batches", 16, "under way or waiting")                                              \
    X(in_flight, "samples", 64, "in the hands of threads")                                      \
    X(shelved, "samples", 64, "read and waiting for a worker")                                  \
    X(busy_cores, "cores", 8, "workers' time in decode, augment and tensor, a second")          \
    X(read_threads, "threads", 8, "time in reading, of all threads, a second")                  \
    X(idle_share, "share", 1, "of the workers' time, waiting for room")                         \
    X(memory_wait_share, "share", 1, "of the workers' time, waiting for memory")                \
    X(bytes_per_s, "bytes/s", 1e9, "encoded bytes read")                                        \
    X(budget_share, "share", 1, "of the memory budget, in use")                                 \
    X(slab_share, "share", 1, "of the memory budget, one batch")                                \
    X(ahead_ratio, "ratio", 1, "bytes of a sample that comes, over those of one that came")     \
    X(cores, "cores", 8, "usable: affinity and quota of the control group")                     \
    X(process_cores, "cores", 8, "used by this process, the training loop included")            \
    X(machine_busy, "share", 1, "of all cores of the machine")                                  \
    X(other_cores, "cores", 8, "of those we may use, kept from us by other processes")          \
    X(steal, "share", 1, "taken by the hypervisor")                                             \
    X(cpu_pressure, "share", 1, "of the period some thread of our group waited for a core")     \
    X(io_pressure, "share", 1, "of the period some thread of our group waited for a disk")      \
    X(throttled_share, "share", 1, "of scheduling periods, cut short by the quota")             \
    X(memory_available_bytes, "bytes", 1e10, "of the machine, free or easily made free")        \
    X(disk_latency_s, "s", 0.01, "mean of a read request, all disks")                           \
    X(gpu_busy, "share", 1, "of the visible GPUs, mean; told only while a log is written")      \
    X(ranks, "ranks", 8, "of the training job, this one included")                              \
    X(stored_bytes, "bytes", 1e5, "of a remote sample as it is stored, mean of recent ones")    \
    X(node_cores, "cores", 8, "of storage nodes, used for this loader; by files, too")          \
    X(node_allowance, "cores", 8, "of storage nodes, that they say this loader may use")        \
    X(node_saves_1, "bytes", 1e5, "a sample would save by the best 1/8 of what nodes could do") \
    X(node_saves_2, "bytes", 1e5, "a sample would save by the best 2/8 of what nodes could do") \
    X(node_saves_3, "bytes", 1e5, "a sample would save by the best 3/8 of what nodes could do") \
    X(node_saves_4, "bytes", 1e5, "a sample would save by the best 4/8 of what nodes could do") \
    X(node_saves_5, "bytes", 1e5, "a sample would save by the best 5/8 of what nodes could do") \
    X(node_saves_6, "bytes", 1e5, "a sample would save by the best 6/8 of what nodes could do") \
    X(node_saves_7, "bytes", 1e5, "a sample would save by the best 7/8 of what nodes could do") \
    X(node_saves_8, "bytes", 1e5, "a sample would save by the best 8/8 of what nodes could do") \
    X(node_takes_1, "s", 0.01, "of a node's processor that would take")                         \
    X(node_takes_2, "s", 0.01, "of a node's processor that would take")                         \
    X(node_takes_3, "s", 0.01, "of a node's processor that would take")                         \
    X(node_takes_4, "s", 0.01, "of a node's processor that would take")                         \
    X(node_takes_5, "s", 0.01, "of a node's processor that would take")                         \
    X(node_takes_6, "s", 0.01, "of a node's processor that would take")                         \
    X(node_takes_7, "s", 0.01, "of a node's processor that would take")                         \
    X(node_takes_8, "s", 0.01, "of a node's processor that would take")                         \
    X(memory_pressure, "share", 1, "of the period some thread of our group waited for memory")  \
    X(group_memory_share, "share", 1, "of our group's memory limit, in use, caches included")   \
    X(disk_bytes_per_s, "bytes/s", 1e9, "read of all disks, by whomever")                       \
    X(net_bytes_per_s, "bytes/s", 1e9, "received by the machine, loopback left out")            \
    X(gpu_memory_share, "share", 1, "of the visible GPUs' memory, in use")                      \
    X(gpu_watts, "W", 300, "drawn by the visible GPUs together")                                \
    X(package_watts, "W", 100, "drawn by the processors' packages together, mean")              \
    X(cache_share, "share", 1, "of JPEG files decoded, with an entry of the index")             \
    X(node_file_s, "s", 0.01, "of a node's processor for a sample as it is stored")

/* What nodes could do for samples, the best first, is told in so many equal parts. */
#define PEN_OFFLOAD_SLICES 8

typedef struct pen_policy_state {
#define PEN_POLICY_FIELD(field, unit, scale, text) double field;
    PEN_POLICY_STATE(PEN_POLICY_FIELD)
#undef PEN_POLICY_FIELD
} pen_policy_state;

typedef struct pen_state_field {
    const char *name, *unit, *text;
    double scale;
    size_t offset; /* in pen_policy_state */
} pen_state_field;
/* The fields in order; *n of them. */
PEN_API const pen_state_field *pen_policy_fields(int *n);

#define PEN_REASON_CAP 160

struct pen_knob_policy {
    const char *name, *text;
    size_t memory_bytes; /* of its own; zero when it begins */
    /* `knobs` are the present ones, and leave as the wanted ones; those that are pinned, and
     * those out of the table's range, are corrected afterwards.  `reason` (PEN_REASON_CAP)
     * says why in a few words. */
    void (*decide)(void *memory, const pen_policy_state *state, const pen_knob_info *table,
                   pen_knobs *knobs, char *reason);
    /* The first samples come from storage nodes as files: until it has seen what the job waits
     * for, `offload` stands at 0 and not at 1, unless it is pinned. */
    bool begins_with_files;
};

/* "fixed", "rules", "hillclimb" or "model"; NULL for any other name. */
PEN_API const pen_knob_policy *pen_policy_find(const char *name);
/* The i-th of them, NULL after the last. */
PEN_API const pen_knob_policy *pen_policy_at(int i);

/* From any thread, at any time; NULL: nobody turns knobs, as with "fixed".  The policy begins
 * with empty memory.  PEN_EFORK, PEN_ENOMEM. */
PEN_API int pen_loader_set_policy(pen_loader *loader, const pen_knob_policy *policy,
                                  pen_error *err);
/* Never NULL: "fixed" where nobody turns knobs. */
PEN_API const char *pen_loader_policy(const pen_loader *loader);
/* What it last said, "" before it said anything.  Where there is a log that cannot be written, it
 * begins with that. */
#define PEN_LOG_FAULT "the decision log cannot be written"
PEN_API int64_t pen_loader_reason(const pen_loader *loader, char *dst, size_t dst_cap);

#endif
