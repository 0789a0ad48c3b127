/* decisions.c - a period as a line of JSON. */
#include "engine/decisions.h"

#include <math.h>
#include <string.h>

/* 17 digits read back exactly; most values need fewer. */
static void add_number(pen__text *text, double value)
{
    if (isnan(value))
        pen__text_add(text, "null");
    else if (isinf(value))
        pen__text_add(text, value > 0 ? "1e999" : "-1e999");
    else if (value == floor(value) && fabs(value) < 1e15)
        pen__text_add(text, "%.0f", value);
    else
        pen__text_add(text, "%.17g", value);
}

static void add_state(pen__text *text, const pen_policy_state *state)
{
    int n;
    const pen_state_field *fields = pen_policy_fields(&n);
    for (int i = 0; i < n; i++) {
        pen__text_add(text, "%s\"%s\":", i ? "," : "", fields[i].name);
        add_number(text, *(const double *)(const void *)((const char *)state + fields[i].offset));
    }
}

static void add_knobs(pen__text *text, const char *key, const pen_knob_info *table,
                      const pen_knobs *knobs)
{
    pen__text_add(text, ",\"%s\":{", key);
    for (int i = 0; i < PEN_KNOB_COUNT; i++) {
        pen__text_add(text, "%s\"%s\":", i ? "," : "", table[i].name);
        add_number(text, knobs->value[i]);
    }
    pen__text_add(text, "}");
}

static void add_table(pen__text *text, const pen_knob_info *table)
{
    pen__text_add(text, ",\"limits\":{");
    for (int i = 0; i < PEN_KNOB_COUNT; i++) {
        pen__text_add(text, "%s\"%s\":[", i ? "," : "", table[i].name);
        add_number(text, table[i].min);
        pen__text_add(text, ",");
        add_number(text, table[i].max);
        pen__text_add(text, "]");
    }
    pen__text_add(text, "},\"pinned\":[");
    for (int i = 0, n = 0; i < PEN_KNOB_COUNT; i++)
        if (table[i].is_pinned)
            pen__text_add(text, "%s\"%s\"", n++ ? "," : "", table[i].name);
    pen__text_add(text, "]");
}

/* What the decisions before led to, in the terms that they are judged by. */
static void add_outcome(pen__text *text, const pen__decision *d)
{
    const pen_policy_state *s = d->state;
    const double *knob = d->before->value;
    pen__text_add(text, ",\"outcome\":{\"samples_per_s\":");
    add_number(text, s->period_s > 0 ? s->samples / s->period_s : NAN);
    pen__text_add(text, ",\"wait_share\":");
    add_number(text, s->wait_share);
    pen__text_add(text, ",\"threads\":");
    add_number(text, knob[PEN_KNOB_WORKERS] + fmin(knob[PEN_KNOB_READ_AHEAD], knob[PEN_KNOB_IO]));
    pen__text_add(text, ",\"budget_share\":");
    add_number(text, s->budget_share);
    pen__text_add(text, ",\"process_cores\":");
    add_number(text, s->process_cores);
    pen__text_add(text, "}");
}

void pen__decision_write(const pen__decision *d, pen__text *text)
{
    pen__text_add(
        text, "{\"v\":1,\"loader\":\"%lld-%lld\",\"period\":%lld,\"time_ns\":%lld,\"policy\":",
        (long long)d->pid, (long long)d->loader, (long long)d->period, (long long)d->time_ns);
    pen__text_add_json(text, d->policy, strlen(d->policy));
    pen__text_add(text, ",\"fresh\":%s,\"state\":{", d->is_fresh ? "true" : "false");
    add_state(text, d->state);
    pen__text_add(text, "}");
    add_knobs(text, "knobs", d->table, d->before);
    add_table(text, d->table);
    add_knobs(text, "wanted", d->table, d->wanted);
    add_knobs(text, "decision", d->table, d->after);
    pen__text_add(text, ",\"reason\":");
    pen__text_add_json(text, d->reason, strlen(d->reason));
    add_outcome(text, d);
    pen__text_add(text, "}\n");
}
