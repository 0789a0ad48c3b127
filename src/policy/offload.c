/* offload.c - see offload.h. */
#include "policy/offload.h"

#include <math.h>
#include <string.h>

#include "policy/policies.h"

enum {
    HALVINGS = 40,
    OF_A_STATE = 8, /* periods that a state tells of at most */
};

static const double room = 1.15;         /* what the network takes must fit in the others' time so
                                           often: samples differ, and a late batch is waited for */
static const double io_bound = 1.05;     /* the network must be so much slower to begin */
static const double worth_going = 1.03;  /* how much quicker it must get to take more */
static const double span_s = 1;          /* that is judged together: requests come in bursts */
static const double doubt_s = 2;         /* the same where little comes, as nodes may be blamed, and
                                           where it is tried whether the network brings more */
static const double full = 0.92;         /* of what is known, to say that it is used up */
static const double enough = 1.05;       /* times the bytes, to say that more come */
static const double paying_bytes = 1.05; /* the same of a try with less work for nodes */
static const double paying_cores = 1.03; /* of their time, of one with more */
static const double settle_s = 0.3;      /* until a new share shows */
static const double longest_settle_s = 3; /* however long samples are under way */
static const double start_s = 0.5;        /* until queues that were empty say anything */
static const double longest_rest = 16;    /* spans */
static const double give_back = 0.05;     /* less than that of a share is not given back */
static const double relief = 1.25;        /* times the allowance, to forget a limit that was met */

/* The curve between its points. */
static double at(const double curve[PEN__OFFLOAD_POINTS], double share)
{
    const double place = fmin(fmax(share, 0), 1) * (PEN__OFFLOAD_POINTS - 1);
    const int i = place >= PEN__OFFLOAD_POINTS - 1 ? PEN__OFFLOAD_POINTS - 2 : (int)place;
    return curve[i] + (place - i) * (curve[i + 1] - curve[i]);
}

static double others(const pen__offload_facts *f)
{
    return fmax(pen__or(f->device_s, 0), pen__or(f->client_s, 0));
}

pen__offload_times pen__offload_times_at(const pen__offload_facts *f, double share)
{
    pen__offload_times t = {0};
    const double cpu_s = at(f->cpu_s, share);
    t.net_s = fmax(f->raw_bytes - at(f->saved_bytes, share), 0) / f->bytes_per_s;
    t.storage_s = cpu_s > 0 ? cpu_s / fmax(f->storage_cores, 0) : 0;
    t.slowest_s = fmax(fmax(t.net_s, t.storage_s), others(f));
    return t;
}

/* What is tried is whether the network can bring so much, and room would hide that. */
static double room_of(const pen__offload_facts *f)
{
    return f->is_try ? 1 : room;
}

/* Is the network still what everything waits for, if only now and then? */
static bool is_net_slowest(const pen__offload_facts *f, double share)
{
    const pen__offload_times t = pen__offload_times_at(f, share);
    return fmax(f->lean, 1) * t.net_s > t.storage_s && room_of(f) * t.net_s > others(f);
}

/* Is it worth going?  On the way up, late batches count; on the way down, what is slowest. */
static bool is_quicker(const pen__offload_facts *f, double share, double now)
{
    const pen__offload_times there = pen__offload_times_at(f, share),
                             here = pen__offload_times_at(f, now);
    if (share < now)
        return here.slowest_s > worth_going * there.slowest_s;
    return fmax(room * here.net_s, here.slowest_s) >
           worth_going * fmax(room * there.net_s, there.slowest_s);
}

double pen__offload_plan(const pen__offload_facts *f)
{
    if (!(f->bytes_per_s > 0) || !(f->raw_bytes > 0))
        return NAN;
    if (!is_net_slowest(f, 0) || !(f->saved_bytes[PEN__OFFLOAD_POINTS - 1] > 0))
        return 0;
    if (is_net_slowest(f, 1))
        return 1;
    double low = 0, high = 1; /* slowest at the one, not at the other: one falls, the other grows */
    for (int i = 0; i < HALVINGS; i++) {
        const double middle = (low + high) / 2;
        *(is_net_slowest(f, middle) ? &low : &high) = middle;
    }
    return low; /* at no storage at all, nothing */
}

double pen__offload_settle(const pen__offload_facts *f, double now)
{
    const double share = pen__offload_plan(f);
    if (isnan(share))
        return now;
    if (f->is_try)
        return share;
    const bool is_worth = is_quicker(f, share, now);
    if (share < now)
        return is_worth || share < now - give_back || share == 0 ? share : now;
    const bool begins = now > 0 || pen__offload_times_at(f, 0).net_s > io_bound * others(f);
    return f->is_slow && begins && is_worth ? share : now;
}

/* ---- what periods tell ---- */

/* What nodes say that this job may have. */
static double allowance_of(const pen_policy_state *s)
{
    return fmax(pen__or(s->node_allowance, INFINITY), 0);
}

static void add(pen__offload_span *span, const pen_policy_state *s)
{
    const double seconds = pen__or(s->period_s, 0), rate = pen__or(s->bytes_per_s, 0);
    span->least_rate = span->seconds > 0 ? fmin(span->least_rate, rate) : rate;
    span->seconds += seconds;
    span->bytes += rate * seconds;
    span->node_s += pen__or(s->node_cores, 0) * seconds;
    span->waited_s += pen__or(s->wait_share, 0) * seconds;
    /* Workers are not all: receiving takes processors, too, and so does a loop that computes. */
    span->busy_s += fmax(pen__or(s->busy_cores, 0), pen__or(s->process_cores, 0)) * seconds;
    span->cut_s += pen__or(s->throttled_share, 0) * seconds;
    span->allowance = allowance_of(s);
}

/* The loop waits, and not for this machine's processors: for the network or for a node.  Of a small
 * quota a second may use less than there is; who is cut short by it all the time waits for it. */
static bool is_remote_slow(const pen__offload_span *span, double cores)
{
    const double waits = 0.05, busy = 0.92, mostly = 0.7;
    return span->waited_s > waits * span->seconds && span->busy_s < busy * cores * span->seconds &&
           span->cut_s < mostly * span->seconds;
}

/* The last try did not pay: the next one has to wait, twice as long each time. */
static void rest(pen__offload_watch *w)
{
    if (w->tried != PEN__TRIED_NOTHING) {
        w->rest_next = fmin(fmax(w->rest_next * 2, 2), longest_rest);
        w->rest = w->rest_next;
    }
    w->tried = PEN__TRIED_NOTHING;
    w->hope = 1;
}

/* Fewer bytes come than the network can bring: have nodes no more time, or has it become slower?
 * They are blamed first.  If then, with less for them to do, no more bytes come, it was the
 * network. */
static void blame(pen__offload_watch *w, double rate, double used, double share)
{
    const bool did_less = w->blamed_rate > 0 && share < w->blamed_share;
    rest(w);
    if (did_less && rate < enough * w->blamed_rate) {
        w->bytes_per_s = rate;
        w->blamed_rate = w->rest = w->rest_next = 0; /* what nodes have is found out by trying */
        return;
    }
    w->blamed_rate = rate;
    w->blamed_share = share;
    w->storage_cores = used;
}

/* Network and nodes both seem to do what they can; either may have more to give than is known.
 * First the one, then the other is asked for more, as long as that pays. */
static void try_more(pen__offload_watch *w, double rate, double used, double allowance)
{
    const double more_bytes = 1.15, most_bytes = 2, more_cores = 1.25;
    const bool paid = w->tried == PEN__TRIED_BYTES   ? rate > paying_bytes * w->tried_at
                      : w->tried == PEN__TRIED_CORES ? used > paying_cores * w->tried_at
                                                     : false;
    const bool again = paid && w->stride > more_bytes; /* once may be chance */
    const pen__offload_try next = paid || w->tried == PEN__TRIED_NOTHING ? w->tried : w->tried + 1;
    if (paid && (again || w->tried == PEN__TRIED_CORES))
        w->rest_next = 0;
    if (!paid && w->tried == PEN__TRIED_CORES)
        w->storage_cores = w->tried_at;
    w->hope = 1;
    const bool was_limited = w->storage_cores > 0 && w->storage_cores < allowance;
    if (next > PEN__TRIED_CORES || (next == PEN__TRIED_CORES && !was_limited))
        rest(w);
    if (w->rest > 0) {
        w->rest--;
        return;
    }
    w->tried = next == PEN__TRIED_NOTHING ? PEN__TRIED_BYTES : next;
    w->tried_at = w->tried == PEN__TRIED_BYTES ? w->bytes_per_s : w->storage_cores;
    if (w->tried == PEN__TRIED_BYTES)
        w->hope = w->stride = paid ? fmin(w->stride * more_bytes, most_bytes) : more_bytes;
    else
        w->storage_cores *= more_cores;
}

/* Bytes a second of a job that waits for nothing remote. */
static double wanted_rate(const pen__offload_watch *w, const pen_policy_state *s, double share)
{
    pen__offload_facts f;
    if (!pen__offload_know(w, s, &f) || !(others(&f) > 0))
        return INFINITY;
    return pen__or((f.raw_bytes - at(f.saved_bytes, share)) / others(&f), INFINITY);
}

/* Bytes come in bursts: what follows a packet that was lost waits for it, and then comes at once.
 * So a span alone says little, and what network and nodes do is a mean of some seconds: of `before`
 * and what is in the span. */
static double mean(const pen__offload_span *span, double before, double sum)
{
    const double memory_s = 3, now = sum / span->seconds;
    return before > 0 ? before + fmin(span->seconds / memory_s, 1) * (now - before) : now;
}

/* Do fewer bytes come than the network can bring, while nodes are at work? */
static bool is_below(const pen__offload_watch *w, const pen__offload_span *span, double share)
{
    return share > 0 && span->bytes < full * w->bytes_per_s * span->seconds;
}

/* The same, but nearly all that the job takes: a batch was late, now and then.  That says nothing
 * about what the network or the nodes could bring. */
static bool is_late(const pen__offload_watch *w, const pen__offload_span *span, double share)
{
    return is_below(w, span, share) && span->bytes >= full * span->wanted_rate * span->seconds;
}

/* The same, and the job takes more. */
static bool is_low(const pen__offload_watch *w, const pen__offload_span *span, double share)
{
    return is_below(w, span, share) && !is_late(w, span, share);
}

/* Do nodes use nearly all of what they say they have? */
static bool are_busy(const pen__offload_span *span)
{
    const double nearly = 0.8;
    return span->used >= nearly * span->allowance;
}

/* Nodes that use less than they say they have are not short of it, if they pause: where their quota
 * is small a burst uses it up; or if only a little less comes, by chance.  Unless it goes on: then
 * they are slower than they think.  A try that brought less needs no doubt, if nobody paused. */
static bool is_doubtful(pen__offload_watch *w, const pen__offload_span *span)
{
    const double most_doubts = 3, nothing = 0.1, little_less = 0.75;
    const bool has_paused = span->least_rate < nothing * w->bytes_per_s;
    const bool is_little =
        span->rate > little_less * w->bytes_per_s && w->tried == PEN__TRIED_NOTHING;
    if (isinf(span->allowance) || are_busy(span) || !(has_paused || is_little) ||
        w->tried == PEN__TRIED_CORES || w->blamed_rate > 0 || w->n_doubts >= most_doubts)
        return false;
    w->n_doubts++;
    return true;
}

/* Capacities are what was seen at work; whoever is slowest shows its own.  False: the span says
 * nothing, for all that is known. */
static bool judge(pen__offload_watch *w, const pen__offload_span *span, double cores, double share)
{
    const double quick = 0.5, hopeful = 1.01, most_hope = 8;
    const double rate = span->rate, used = span->used, known = w->bytes_per_s;
    const double rate_now = span->bytes / span->seconds, used_now = span->node_s / span->seconds;
    const bool was_met = w->storage_cores > 0; /* perhaps others were there then */
    if (was_met && span->allowance > relief * w->allowance)
        w->storage_cores = w->blamed_rate = w->n_doubts = 0;
    if (w->storage_cores > 0)
        w->storage_cores = fmax(w->storage_cores, used_now);
    /* Nodes that use all they may for files as they are leave nothing for anything else, and what
     * comes then says nothing about the network. */
    const bool are_full = share == 0 && used > full * span->allowance;
    w->n_slow = is_remote_slow(span, cores) && !are_full ? w->n_slow + 1 : 0;
    if (w->n_slow == 0) { /* perhaps less would do as well */
        w->bytes_per_s = fmax(rate, known);
        w->n_doubts = 0;
        w->hope = fmin(fmax(w->hope, 1) * (share > 0 ? hopeful : 1), most_hope);
        w->tried = PEN__TRIED_NOTHING;
    } else if (is_late(w, span, share)) {
        w->hope = 1; /* less would not do as well */
    } else if (is_low(w, span, share) && used > 0 && is_doubtful(w, span)) {
        return false;
    } else if (is_low(w, span, share) && used > 0 && w->tried != PEN__TRIED_BYTES) {
        if (rate < full * known) {
            /* Who uses nearly all that it may have is short of no less: what is left of a small
             * quota at the end of a period is lost. */
            blame(w, rate_now, are_busy(span) ? span->allowance : used, share);
            w->allowance = span->allowance;
        }
    } else {
        w->n_doubts = 0;
        /* Less, because nodes have no more time, says nothing about it. */
        if (rate > known || share == 0 || !(are_busy(span) || is_low(w, span, share)))
            w->bytes_per_s = rate > known ? rate : known + quick * (rate - known);
        w->blamed_rate = 0;
        if (used > 0 && known > 0) /* nothing was asked of nodes before */
            try_more(w, rate, used_now, span->allowance);
        else
            w->hope = 1;
    }
    return true;
}

/* One long step, for a checkpoint, is no slow device: it is in each state for a while, and then in
 * none.  A device that has become slow goes on. */
static void note_step(pen__offload_watch *w, double device_s)
{
    const double odd = 4; /* times what is known */
    if (isnan(device_s))
        return;
    w->n_odd = w->device_s > 0 && device_s > odd * w->device_s ? w->n_odd + 1 : 0;
    if (w->n_odd == 0 || w->n_odd > OF_A_STATE)
        w->device_s = device_s;
}

/* Steps and samples that take longer than what a state is about are not in it. */
static void remember(pen__offload_watch *w, const pen_policy_state *s)
{
    note_step(w, s->step_s / s->batch_samples);
    w->client_s = pen__or(pen__compute_s(s) / fmax(pen__or(s->cores, 1), 1), w->client_s);
}

void pen__offload_look(pen__offload_watch *w, const pen_policy_state *s, double share)
{
    if (pen__is_away(s) || (w->n_spans == 0 && w->span.seconds == 0 && !(s->bytes_per_s > 0)))
        return; /* nobody is there, or nothing has come yet */
    remember(w, s);
    if (!w->has_begun) {
        w->has_begun = true;
        w->settling_s = start_s;
    }
    if (share != w->share) { /* what comes now was asked for before */
        w->share = share;
        w->settling_s = fmin(fmax(settle_s, pen__or(s->read_s, 0)), longest_settle_s);
        w->span = (pen__offload_span){0};
        w->used = 0; /* what nodes use goes with it; what the network brings does not */
    }
    if (w->settling_s > 0) {
        w->settling_s -= pen__or(s->period_s, 0);
        return;
    }
    add(&w->span, s);
    const double cores = pen__or(s->cores, 1);
    w->span.wanted_rate = wanted_rate(w, s, share);
    const bool may_blame = is_low(w, &w->span, share) && is_remote_slow(&w->span, cores);
    const bool is_unsure = may_blame || w->tried == PEN__TRIED_BYTES;
    if (w->span.seconds < (is_unsure ? doubt_s : span_s) || !(w->span.bytes > 0))
        return;
    w->span.rate = mean(&w->span, w->rate, w->span.bytes);
    w->span.used = mean(&w->span, w->used, w->span.node_s);
    if (judge(w, &w->span, cores, share)) {
        w->rate = w->span.rate;
        w->used = w->span.used;
    }
    w->n_spans++;
    w->is_due = true;
    w->span = (pen__offload_span){0};
}

/* One span alone is no reason to begin with it: queues are empty where an epoch begins, and
 * anything may pause once.  The first one is: until then a job that waits has done nothing else. */
static bool is_slow_enough(const pen__offload_watch *w)
{
    return w->n_slow >= (w->share > 0 || w->n_spans < 2 ? 1 : 2);
}

/* What is copied from and to there stands together (here and in engine/observe.c). */
#define SPAN(first, last) (offsetof(pen_policy_state, last) - offsetof(pen_policy_state, first))
_Static_assert(SPAN(node_saves_1, node_saves_8) == (PEN_OFFLOAD_SLICES - 1) * sizeof(double) &&
                   SPAN(node_takes_1, node_takes_8) == (PEN_OFFLOAD_SLICES - 1) * sizeof(double),
               "slices are not one after the other");
#undef SPAN

/* Of a hundredth of a core, what a tenth of a second gives is about what a sample takes. */
static double lean_of(double allowance)
{
    const double piece = 0.005, most = 0.25;
    return 1 + fmin(piece / allowance, most);
}

bool pen__offload_know(const pen__offload_watch *w, const pen_policy_state *s,
                       pen__offload_facts *out)
{
    const char *state = (const char *)s; /* where they stand one after the other */
    const size_t bytes = PEN_OFFLOAD_SLICES * sizeof(double);
    *out = (pen__offload_facts){
        .device_s = w->device_s,
        .client_s = w->client_s,
        .is_slow = is_slow_enough(w),
        .is_try = w->tried != PEN__TRIED_NOTHING,
        .raw_bytes = s->stored_bytes,
        .bytes_per_s = w->bytes_per_s * fmax(w->hope, 1),
        .storage_cores = fmin(w->storage_cores > 0 ? w->storage_cores : INFINITY, allowance_of(s)),
        .lean = lean_of(allowance_of(s)),
    };
    memcpy(out->saved_bytes + 1, state + offsetof(pen_policy_state, node_saves_1), bytes);
    memcpy(out->cpu_s + 1, state + offsetof(pen_policy_state, node_takes_1), bytes);
    for (int i = 0; i < PEN__OFFLOAD_POINTS; i++) /* node_cores has it in it as well */
        out->cpu_s[i] += pen__or(s->node_file_s, 0);
    return w->n_spans > 0 && s->stored_bytes > 0 && !isnan(s->node_saves_8);
}
