/* penstock.h - the whole public interface.
 *
 * Read the headers in this order; each stands alone:
 *   error.h     codes and messages
 *   image.h     one image: what is it, decode it
 *   dataset.h   where samples live: folder, tar shards, packs, manifest
 *   pack.h      write a dataset into .pen files
 *   op.h        what happens to a sample, as data
 *   pipeline.h  a line of operations; drawn parameters; running one sample
 *   order.h     which sample stands at which position of which epoch
 *   batch.h     what a training step receives
 *   loader.h    threads that turn a dataset and a pipeline into batches
 *   stats.h     what a loader's pipeline is doing, and the verdict
 *   knobs.h     settings that may change while a loader runs
 *   policy.h    who turns the knobs, and on what grounds
 *   metrics.h   a running loader as seen from outside: OpenMetrics, JSON, an address
 *   guest.h     a loader made elsewhere, shown beside others
 *   trace.h     what each thread did when, for Perfetto
 *   mix.h       MixUp and CutMix over whole batches
 *   telemetry.h what the machine under the loader is doing
 *   offload.h   how much of a sample's journey a storage node makes
 *   node.h      a storage node: datasets for loaders on other machines
 *   profile.h   what samples weigh after each operation
 */
#ifndef PENSTOCK_PENSTOCK_H
#define PENSTOCK_PENSTOCK_H

#include <penstock/batch.h>
#include <penstock/dataset.h>
#include <penstock/error.h>
#include <penstock/guest.h>
#include <penstock/image.h>
#include <penstock/knobs.h>
#include <penstock/loader.h>
#include <penstock/metrics.h>
#include <penstock/mix.h>
#include <penstock/node.h>
#include <penstock/offload.h>
#include <penstock/op.h>
#include <penstock/order.h>
#include <penstock/pack.h>
#include <penstock/pipeline.h>
#include <penstock/policy.h>
#include <penstock/profile.h>
#include <penstock/stats.h>
#include <penstock/telemetry.h>
#include <penstock/trace.h>
#include <penstock/version.h>

#endif
