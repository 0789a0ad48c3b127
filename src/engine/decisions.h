/* decisions.h - the log of what a policy saw, decided, and why: one JSON object a line.
 *
 * docs/policies.md has the schema.  Numbers are written so that they read back exactly: a
 * log can be put through the same policy again, and gives the same decisions.
 */
#ifndef PEN_ENGINE_DECISIONS_H
#define PEN_ENGINE_DECISIONS_H

#include <penstock/policy.h>

#include "base/text.h"

/* One period. */
typedef struct pen__decision {
    int64_t period, time_ns;
    int64_t pid, loader; /* whose: several may write to one file */
    const char *policy;
    bool is_fresh; /* the policy begins here, with empty memory */
    const pen_policy_state *state;
    const pen_knob_info *table;               // (PEN_KNOB_COUNT)
    const pen_knobs *before, *wanted, *after; /* after: what it came to, with pins and ranges */
    const char *reason;
} pen__decision;

/* Add the line to `text`. */
void pen__decision_write(const pen__decision *decision, pen__text *text);

#endif
