/* procfs_cgroup.c - parsers of control group files, v1 and v2. */
#include <math.h>
#include <string.h>

#include "telemetry/procfs.h"

double pen__parse_number(pen__scan text)
{
    pen__scan line;
    return pen__scan_line(&text, &line) ? pen__scan_next(&line) : NAN;
}

static double quota_cores(double quota_us, double period_us)
{
    return quota_us > 0 && period_us > 0 ? quota_us / period_us : NAN;
}

double pen__parse_cpu_max(pen__scan text)
{
    pen__scan line, word;
    if (!pen__scan_line(&text, &line) || !pen__scan_word(&line, &word))
        return NAN;
    return pen__scan_is(word, "max") ? INFINITY
                                     : quota_cores(pen__scan_count(word), pen__scan_next(&line));
}

double pen__parse_cfs_quota(pen__scan text, double period_us)
{
    pen__scan line, word;
    if (!pen__scan_line(&text, &line) || !pen__scan_word(&line, &word))
        return NAN;
    return pen__scan_is(word, "-1") ? INFINITY : quota_cores(pen__scan_count(word), period_us);
}

void pen__parse_cpu_stat(pen__scan text, pen_cgroup *out)
{
    double us = pen__scan_value(text, "throttled_usec");
    double ns = pen__scan_value(text, "throttled_time"); /* v1 */
    out->cpu_periods = pen__scan_value(text, "nr_periods");
    out->cpu_throttled_periods = pen__scan_value(text, "nr_throttled");
    out->cpu_throttled_s = isnan(us) ? ns * 1e-9 : us * 1e-6;
    out->cpu_s = pen__scan_value(text, "usage_usec") * 1e-6;
}

/* v1 has no word for "no limit": it shows the largest number of whole pages. */
double pen__parse_memory_limit(pen__scan text)
{
    pen__scan line, word;
    if (!pen__scan_line(&text, &line) || !pen__scan_word(&line, &word))
        return NAN;
    if (pen__scan_is(word, "max"))
        return INFINITY;
    for (const char *p = word.at; p < word.end; p++)
        if (*p < '0' || *p > '9')
            return NAN;
    double bytes = pen__scan_count(word);
    return isnan(bytes) ? INFINITY : bytes;
}

/* v1 lists a group alone and, with "total_", its whole subtree, which is what counts. */
double pen__parse_memory_file(pen__scan text)
{
    double subtree =
        pen__scan_value(text, "total_inactive_file") + pen__scan_value(text, "total_active_file");
    return isnan(subtree)
               ? pen__scan_value(text, "inactive_file") + pen__scan_value(text, "active_file")
               : subtree;
}

/* Is `controller` in v1's list "cpu,cpuacct"?  v2's list is empty, and so is its name. */
static bool names_controller(const char *list, size_t len, const char *controller)
{
    size_t n = strlen(controller);
    for (;;) {
        const char *comma = len > 0 ? memchr(list, ',', len) : NULL;
        size_t part = comma ? (size_t)(comma - list) : len;
        if (part == n && memcmp(list, controller, n) == 0)
            return true;
        if (!comma)
            return false;
        list += part + 1;
        len -= part + 1;
    }
}

void pen__parse_group(pen__scan text, const char *controller, char *path, size_t cap)
{
    pen__scan line;
    *path = '\0';
    while (pen__scan_line(&text, &line)) {
        size_t n = (size_t)(line.end - line.at);
        const char *names = n > 0 ? memchr(line.at, ':', n) : NULL;
        const char *colon = names ? memchr(names + 1, ':', (size_t)(line.end - names - 1)) : NULL;
        if (!colon || !names_controller(names + 1, (size_t)(colon - names - 1), controller))
            continue;
        size_t len = (size_t)(line.end - colon - 1);
        if (len < cap) {
            memcpy(path, colon + 1, len);
            path[len] = '\0';
        }
        return;
    }
}
