/* recent.c - a ring of decisions.
 *
 * Most periods decide nothing; they would push out what a person wants to see.
 */
#include "engine/recent.h"

#include <stdio.h>
#include <string.h>

#include "engine/views.h"

static bool is_worth_it(const pen__recent *recent, const pen__decision *d)
{
    for (int i = 0; i < PEN_KNOB_COUNT; i++)
        if (d->before->value[i] != d->after->value[i])
            return true;
    if (!*d->reason)
        return false;
    return recent->n == 0 ||
           strcmp(recent->entry[(recent->n - 1) % PEN__RECENT].reason, d->reason) != 0;
}

void pen__recent_add(pen__recent *recent, const pen__decision *d)
{
    if (!is_worth_it(recent, d))
        return;
    const int i = (int)(recent->n++ % PEN__RECENT);
    recent->entry[i].period = d->period;
    recent->entry[i].time_ns = d->time_ns;
    snprintf(recent->entry[i].policy, sizeof recent->entry[i].policy, "%s", d->policy);
    snprintf(recent->entry[i].reason, sizeof recent->entry[i].reason, "%s", d->reason);
    memcpy(recent->entry[i].before, d->before->value, sizeof recent->entry[i].before);
    memcpy(recent->entry[i].after, d->after->value, sizeof recent->entry[i].after);
}

static void add_changes(const double *before, const double *after, pen__text *text)
{
#define PEN_KNOB_NAME(id, name, kind, unit, help) name,
    static const char *const names[] = {PEN_KNOBS(PEN_KNOB_NAME)};
    for (int i = 0, n = 0; i < PEN_KNOB_COUNT; i++) {
        if (before[i] == after[i])
            continue;
        pen__text_add(text, "%s\"%s\":[", n++ ? "," : "", names[i]);
        pen__text_add_number(text, before[i]);
        pen__text_add(text, ",");
        pen__text_add_number(text, after[i]);
        pen__text_add(text, "]");
    }
}

void pen__recent_write(const pen__recent *recent, pen__text *text)
{
    const int64_t first = recent->n > PEN__RECENT ? recent->n - PEN__RECENT : 0;
    pen__text_add(text, "[");
    for (int64_t k = first; k < recent->n; k++) {
        const int i = (int)(k % PEN__RECENT);
        pen__text_add(text, "%s{\"period\":%lld,\"time_ns\":%lld,\"policy\":", k > first ? "," : "",
                      (long long)recent->entry[i].period, (long long)recent->entry[i].time_ns);
        pen__text_add_json(text, recent->entry[i].policy, strlen(recent->entry[i].policy));
        pen__text_add(text, ",\"reason\":");
        pen__text_add_json(text, recent->entry[i].reason, strlen(recent->entry[i].reason));
        pen__text_add(text, ",\"changed\":{");
        add_changes(recent->entry[i].before, recent->entry[i].after, text);
        pen__text_add(text, "}}");
    }
    pen__text_add(text, "]");
}
