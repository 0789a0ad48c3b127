/* ledger.h - the written record of bad samples: one JSON object a line. */
#ifndef PEN_ENGINE_LEDGER_H
#define PEN_ENGINE_LEDGER_H

#include "engine/slab.h"

typedef struct pen__ledger {
    int fd; /* -1: none kept */
} pen__ledger;

/* Open for appending; path NULL keeps none. */
int pen__ledger_open(pen__ledger *ledger, const char *path, pen_error *err);
void pen__ledger_close(pen__ledger *ledger);
/* `action`: "raise", "skip" or "replace".  One write a line, so ranks may share a file. */
int pen__ledger_write(pen__ledger *ledger, const pen_dataset *ds, const pen_batch *batch,
                      const pen__bad *bad, const char *action, pen_error *err);

#endif
