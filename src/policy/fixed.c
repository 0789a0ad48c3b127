/* fixed.c - nobody turns knobs; and the list of those who do. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "policy/policies.h"

const pen_knob_policy pen__policy_fixed = {
    .name = "fixed",
    .text = "knobs stay as they were set",
};

static const pen_knob_policy *const policies[] = {&pen__policy_fixed, &pen__policy_rules,
                                                  &pen__policy_hillclimb, &pen__policy_model};

const pen_knob_policy *pen_policy_at(int i)
{
    return i >= 0 && i < (int)(sizeof policies / sizeof policies[0]) ? policies[i] : NULL;
}

const pen_knob_policy *pen_policy_find(const char *name)
{
    const pen_knob_policy *policy;
    for (int i = 0; (policy = pen_policy_at(i)); i++)
        if (strcmp(policy->name, name) == 0)
            return policy;
    return NULL;
}

void pen__reason(char *reason, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(reason, PEN_REASON_CAP, fmt, args);
    va_end(args);
}
