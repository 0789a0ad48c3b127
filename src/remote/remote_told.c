/* remote_told.c - see remote_told.h. */
#include "remote/remote_told.h"

#include <math.h>
#include <string.h>

#include "base/digest.h"
#include "remote/remote_http.h"

enum { MAX_TEXT = 16 };

uint64_t pen__told_job(uint64_t owner, const pen_pipeline *pipe)
{
    const char *hash = pipe ? pen_pipeline_hash(pipe) : "";
    return owner ^ pen__hash64(hash, strlen(hash));
}

/* ---- the line ---- */

/* "12", "0.75": no sign, no exponent, and whatever the locale is. */
static bool parse_number(const char *text, size_t len, double *out)
{
    double value = 0, unit = 1;
    bool has_point = false;
    if (len == 0 || len > MAX_TEXT || text[0] == '.' || text[len - 1] == '.')
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '.' && !has_point) {
            has_point = true;
        } else if (text[i] >= '0' && text[i] <= '9') {
            value = value * 10 + (text[i] - '0');
            unit *= has_point ? 10 : 1;
        } else {
            return false;
        }
    }
    *out = fmin(value / unit, PEN__TOLD_MAX_CORES);
    return true;
}

bool pen__told_parse(const char *line, size_t len, double *cores)
{
    const char *value;
    const int64_t n = pen__http_value(line, len, "Penstock-Cores:", &value);
    return n >= 0 && parse_number(value, (size_t)n, cores);
}

/* ---- what was said ---- */

static int find(const pen__told *told, uint64_t job)
{
    for (int i = 0; i < PEN__TOLD_JOBS; i++)
        if (told->all[i].heard && told->all[i].job == job)
            return i;
    return -1;
}

void pen__told_note(pen__told *told, uint64_t job, int server, double cores)
{
    int at = find(told, job);
    if (at < 0) { /* in the place of the one that was not heard of for longest */
        at = 0;
        for (int i = 1; i < PEN__TOLD_JOBS; i++)
            if (told->all[i].heard < told->all[at].heard)
                at = i;
        memset(&told->all[at], 0, sizeof told->all[at]);
        told->all[at].job = job;
    }
    told->all[at].heard = ++told->clock;
    told->all[at].has_answered[server] = true;
    told->all[at].cores[server] = cores;
}

void pen__told_forget(pen__told *told, int server)
{
    for (int i = 0; i < PEN__TOLD_JOBS; i++)
        told->all[i].has_answered[server] = false;
}

double pen__told_sum(const pen__told *told, uint64_t job)
{
    const int at = find(told, job);
    double sum = 0;
    bool has_any = false;
    for (int i = 0; at >= 0 && i < PEN__REMOTE_MAX_SERVERS; i++)
        if (told->all[at].has_answered[i]) {
            sum += told->all[at].cores[i];
            has_any = true;
        }
    return has_any ? sum : NAN;
}
