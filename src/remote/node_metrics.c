/* node_metrics.c - a storage node's counters as OpenMetrics text. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "remote/node_impl.h"

static const char *const route_names[PEN__ROUTE_COUNT] = {
    "none", "healthz", "metrics", "root", "dataset", "manifest", "samples", "sample", "pipeline"};
static const char *const form_names[PEN__FORM_COUNT] = {
    "raw", "jpeg_cut", "pixels", "pixels_coded", "zstd", "lz4", "snappy"};

static void add_family(pen__text *text, const char *name, const char *type, const char *unit,
                       const char *help)
{
    pen__text_add(text, "# TYPE penstock_node_%s %s\n", name, type);
    if (unit)
        pen__text_add(text, "# UNIT penstock_node_%s %s\n", name, unit);
    pen__text_add(text, "# HELP penstock_node_%s %s\n", name, help);
}

static void add_counter(pen__text *text, const char *name, const char *unit, const char *help,
                        double value)
{
    add_family(text, name, "counter", unit, help);
    pen__text_add(text, "penstock_node_%s_total %.15g\n", name, value);
}

static void add_gauge(pen__text *text, const char *name, const char *unit, const char *help,
                      double value)
{
    add_family(text, name, "gauge", unit, help);
    pen__text_add(text, "penstock_node_%s %.15g\n", name, value);
}

static void add_by_label(pen__text *text, const pen__node_stats *s)
{
    add_family(text, "requests", "counter", NULL, "Requests by what they ask for.");
    for (int i = 0; i < PEN__ROUTE_COUNT; i++)
        pen__text_add(text, "penstock_node_requests_total{route=\"%s\"} %lld\n", route_names[i],
                      (long long)s->requests[i]);
    add_family(text, "responses", "counter", NULL, "Answers by status.");
    for (size_t i = 0; i < sizeof s->responses / sizeof s->responses[0]; i++)
        if (s->responses[i])
            pen__text_add(text, "penstock_node_responses_total{status=\"%zu\"} %lld\n", i,
                          (long long)s->responses[i]);
    add_family(text, "items", "counter", NULL, "Samples and fields sent in frames, by form.");
    for (int i = 0; i < PEN__FORM_COUNT; i++)
        pen__text_add(text, "penstock_node_items_total{form=\"%s\"} %lld\n", form_names[i],
                      (long long)s->items[i]);
    add_family(text, "item_errors", "counter", NULL, "Samples that failed, by error.");
    for (int i = 0; i < 16; i++)
        if (s->item_errors[i])
            pen__text_add(text, "penstock_node_item_errors_total{error=\"%s\"} %lld\n",
                          pen_error_name(-i), (long long)s->item_errors[i]);
}

static void add_counters(pen__text *text, const pen__node_stats *s)
{
    add_by_label(text, s);
    add_counter(text, "fields", NULL, "Of those, fields beside images.", (double)s->fields);
    add_counter(text, "stored_bytes", "bytes", "Of samples sent in frames, as stored.",
                (double)s->raw_bytes);
    add_counter(text, "parcel_bytes", "bytes", "Of samples sent in frames, as sent.",
                (double)s->parcel_bytes);
    add_counter(text, "sent_bytes", "bytes", "Bodies of all answers but errors.",
                (double)s->sent_bytes);
    add_counter(text, "work_cpu_seconds", "seconds", "CPU time of reading and packing samples.",
                (double)s->pack_cpu_ns * 1e-9);
    add_counter(text, "parse_cpu_seconds", "seconds", "CPU time of reading orders and pipelines.",
                (double)s->parse_cpu_ns * 1e-9);
    add_counter(text, "limited_items", NULL,
                "Samples sent as stored because their client had used its CPU time.",
                (double)s->limited_items);
    add_counter(text, "late_items", NULL, "Samples that no thread came to in time.",
                (double)s->late_items);
    add_counter(text, "cancelled_items", NULL,
                "Samples whose packing was ended: it took too long, or nobody waited any more.",
                (double)s->cancelled_items);
    add_counter(text, "index_made", NULL, "JPEG files whose parts were found, for the index.",
                (double)s->index_made);
    add_counter(text, "index_hits", NULL, "Samples packed with what the index knew.",
                (double)s->index_hits);
    add_counter(text, "cut_connections", NULL,
                "Connections that were closed for being slow or idle.", (double)s->cut_connections);
    add_counter(text, "refused_connections", NULL,
                "Connections that were closed at once: their client had as many as it may have.",
                (double)s->refused_connections);
    add_counter(text, "refused_tokens", NULL, "Requests without the right token.",
                (double)s->refused_tokens);
}

static void add_turns(pen__text *text, const int64_t spent_ns[PEN__TURN_COUNT])
{
    static const char *const names[PEN__TURN_COUNT] = {"fair", "worth"};
    add_family(text, "turn_cpu_seconds", "counter", "seconds",
               "CPU time of samples and pages, by why they were next.");
    for (int i = 0; i < PEN__TURN_COUNT; i++)
        pen__text_add(text, "penstock_node_turn_cpu_seconds_total{turn=\"%s\"} %.15g\n", names[i],
                      (double)spent_ns[i] * 1e-9);
}

int pen__node_metrics_write(pen_node *node, pen__text *text)
{
    pen__node_stats *copy = pen__malloc(sizeof *copy);
    if (!copy)
        return PEN_ENOMEM;
    pthread_mutex_lock(&node->lock);
    *copy = node->stats;
    const int connections = node->n_peers, requests = node->n_exchanges,
              waiting = node->n_waiting_items;
    const int64_t held = node->held_bytes + node->body_bytes;
    const pen__share_limits limits = pen__work_limits(node);
    const pen__share_sums sums = pen__share_sum_up(&node->share, &limits, pen__now_ns());
    int64_t spent_ns[PEN__TURN_COUNT];
    memcpy(spent_ns, node->share.spent_ns, sizeof spent_ns);
    pthread_mutex_unlock(&node->lock);
    add_counters(text, copy);
    pen__free(copy);
    add_gauge(text, "connections", NULL, "Open connections.", connections);
    add_gauge(text, "open_requests", NULL, "Requests under way.", requests);
    add_gauge(text, "waiting_items", NULL, "Samples that wait for a thread.", waiting);
    add_gauge(text, "buffered_bytes", "bytes",
              "Answers that are being made or wait for their clients, and requests that come in.",
              (double)held);
    add_gauge(text, "cpus", NULL, "Threads that may pack at once.", node->opts.cpus);
    add_gauge(text, "index_entries", NULL, "JPEG files in the index.",
              (double)pen__index_count(node));
    add_turns(text, spent_ns);
    add_gauge(text, "active_clients", NULL, "Addresses that asked for samples lately.",
              sums.clients);
    add_gauge(text, "active_jobs", NULL, "Their jobs.", sums.jobs);
    add_gauge(text, "fair_cores", NULL, "Of processors, for sure, for the job with least.",
              sums.fair_cores);
    pen__text_add(text, "# EOF\n");
    return text->failed ? PEN_ENOMEM : 0;
}
