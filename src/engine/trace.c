/* trace.c - note spans, and write them in the JSON trace-event format. */
#include "engine/trace.h"

#include <penstock/trace.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/mem.h"
#include "base/text.h"
#include "engine/loader_impl.h"
#include "source/fileio.h"

enum { MAX_THREADS = 1024, FLUSH_BYTES = 1 << 20 };

static const char *const names[PEN__TRACE_NAMES] = {"sample", "read", "decode", "augment",
                                                    "tensor", "mix",  "wait",   "batch"};

void pen__trace_init(pen__trace *trace)
{
    pthread_mutex_init(&trace->lock, NULL);
}

void pen__trace_fini(pen__trace *trace)
{
    pen__free(trace->spans);
    pthread_mutex_destroy(&trace->lock);
}

void pen__trace_note(pen__trace *trace, pen__trace_name name, int64_t from_ns, int64_t to_ns,
                     int64_t what, int64_t epoch)
{
    static _Thread_local pid_t thread;
    atomic_fetch_add(&trace->n_writing, 1);
    if (atomic_load(&trace->is_on)) {
        int64_t i = atomic_fetch_add_explicit(&trace->n, 1, memory_order_relaxed);
        if (!thread)
            thread = gettid();
        if (i < trace->cap)
            trace->spans[i] = (pen__span){from_ns, to_ns, what, epoch, thread, name};
    }
    atomic_fetch_sub(&trace->n_writing, 1);
}

/* ---- writing ---- */

static void add_span(pen__text *text, const pen__span *s, int64_t index)
{
    const double from_us = (double)s->from_ns * 1e-3;
    const long long pid = getpid();
    if (s->name == PEN__TRACE_BATCH) { /* overlaps with others, so it is no thread's */
        for (int end = 0; end < 2; end++)
            pen__text_add(text,
                          ",\n{\"name\":\"batch\",\"cat\":\"batch\",\"ph\":\"%c\",\"id\":%lld,"
                          "\"pid\":%lld,\"tid\":%lld,\"ts\":%.3f,\"args\":{\"batch\":%lld,"
                          "\"epoch\":%lld}}",
                          "be"[end], (long long)index, pid, (long long)s -> thread,
                          (double)(end ? s->to_ns : s->from_ns) * 1e-3, (long long)s -> what,
                          (long long)s -> epoch);
        return;
    }
    pen__text_add(text,
                  ",\n{\"name\":\"%s\",\"cat\":\"loader\",\"ph\":\"X\",\"pid\":%lld,\"tid\":%lld,"
                  "\"ts\":%.3f,\"dur\":%.3f",
                  names[s->name], pid, (long long)s->thread, from_us,
                  (double)(s->to_ns - s->from_ns) * 1e-3);
    if (s->name == PEN__TRACE_MIX)
        pen__text_add(text, ",\"args\":{\"batch\":%lld}", (long long)s->what);
    else if (s->what >= 0)
        pen__text_add(text, ",\"args\":{\"sample\":%lld}", (long long)s->what);
    pen__text_add(text, "}");
}

static void add_thread(pen__text *text, pid_t thread)
{
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%lld/comm", (long long)thread);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, name, sizeof name - 1);
    if (fd >= 0)
        close(fd);
    n = n > 0 && name[n - 1] == '\n' ? n - 1 : n;
    pen__text_add(text,
                  ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%lld,\"tid\":%lld,"
                  "\"args\":{\"name\":",
                  (long long)getpid(), (long long)thread);
    pen__text_add_json(text, n > 0 ? name : "ended", n > 0 ? (size_t)n : 5);
    pen__text_add(text, "}}");
}

/* The names of all threads that occur. */
static void add_threads(pen__text *text, const pen__span *spans, int64_t n)
{
    pid_t seen[MAX_THREADS];
    int n_seen = 0;
    for (int64_t i = 0; i < n && n_seen < MAX_THREADS; i++) {
        int k = n_seen;
        while (k > 0 && seen[k - 1] != spans[i].thread)
            k--;
        if (k == 0) {
            seen[n_seen++] = spans[i].thread;
            add_thread(text, spans[i].thread);
        }
    }
}

static int flush(int fd, pen__text *text, bool is_last)
{
    if (text->failed)
        return -ENOMEM;
    if (text->len < FLUSH_BYTES && !is_last)
        return 0;
    int rc = pen__write_full(fd, text->data, text->len);
    text->len = 0;
    return rc;
}

/* 0 or -errno. */
static int write_file(const pen__span *spans, int64_t n, int64_t n_lost, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return -errno;
    pen__text text = {0};
    int rc = 0;
    pen__text_add(&text,
                  "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"spans_lost\":%lld},"
                  "\"traceEvents\":[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%lld,"
                  "\"args\":{\"name\":\"penstock\"}}",
                  (long long)n_lost, (long long)getpid());
    add_threads(&text, spans, n);
    for (int64_t i = 0; rc == 0 && i < n; i++) {
        add_span(&text, &spans[i], i);
        rc = flush(fd, &text, false);
    }
    pen__text_add(&text, "\n]}\n");
    if (rc == 0)
        rc = flush(fd, &text, true);
    if (close(fd) != 0 && rc == 0)
        rc = -errno;
    pen__text_fini(&text);
    return rc;
}

/* ---- beginning and ending ---- */

int pen_loader_trace_start(pen_loader *loader, int64_t max_spans, pen_error *err)
{
    int rc = pen__loader_check_owner(loader, err);
    if (rc)
        return rc;
    if (max_spans < 0 || max_spans > PEN_TRACE_MAX_SPANS)
        return pen__fail(err, PEN_EINVAL, -1, "a trace has up to %d spans", PEN_TRACE_MAX_SPANS);
    pen__trace *trace = &loader->trace;
    pthread_mutex_lock(&trace->lock);
    if (atomic_load(&trace->is_on)) {
        rc = pen__fail(err, PEN_EINVAL, -1, "a trace is being taken already");
    } else {
        trace->cap = max_spans ? max_spans : PEN_TRACE_SPANS;
        trace->spans = pen__calloc((size_t)trace->cap, sizeof *trace->spans);
        atomic_store(&trace->n, 0);
        if (trace->spans)
            atomic_store(&trace->is_on, true);
        else
            rc = pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    }
    pthread_mutex_unlock(&trace->lock);
    return rc;
}

int64_t pen_loader_trace_stop(pen_loader *loader, const char *path, pen_error *err)
{
    int rc = pen__loader_check_owner(loader, err);
    if (rc)
        return rc;
    pen__trace *trace = &loader->trace;
    pthread_mutex_lock(&trace->lock);
    if (!atomic_load(&trace->is_on)) {
        pthread_mutex_unlock(&trace->lock);
        return pen__fail(err, PEN_EINVAL, -1, "no trace is being taken");
    }
    atomic_store(&trace->is_on, false);
    while (atomic_load(&trace->n_writing) > 0) /* each writes some bytes, and waits for nobody */
        sched_yield();
    const int64_t asked = atomic_load(&trace->n), n = asked < trace->cap ? asked : trace->cap;
    rc = path ? write_file(trace->spans, n, asked - n, path) : 0;
    pen__free(trace->spans);
    trace->spans = NULL;
    pthread_mutex_unlock(&trace->lock);
    if (rc)
        return rc == -ENOMEM ? pen__fail(err, PEN_ENOMEM, -1, "out of memory")
                             : pen__fail_errno(err, -rc, "write the trace to", path);
    return n;
}
