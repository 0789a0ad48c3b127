/* recent.h - the last decisions worth showing. */
#ifndef PEN_ENGINE_RECENT_H
#define PEN_ENGINE_RECENT_H

#include "base/text.h"
#include "engine/decisions.h"

enum { PEN__RECENT = 16 };

/* Zero-initialise.  The owner's lock guards it. */
typedef struct pen__recent {
    int64_t n; /* kept so far; the newest is entry[(n - 1) % PEN__RECENT] */
    struct {
        int64_t period, time_ns;
        char policy[32];
        char reason[PEN_REASON_CAP];
        double before[PEN_KNOB_COUNT], after[PEN_KNOB_COUNT];
    } entry[PEN__RECENT];
} pen__recent;

/* Keep a decision if it changed a knob, or said something else than the one before. */
void pen__recent_add(pen__recent *recent, const pen__decision *decision);
/* A JSON array, oldest first: {"period", "time_ns", "policy", "reason", "changed": {knob:
 * [before, after]}}. */
void pen__recent_write(const pen__recent *recent, pen__text *text);

#endif
