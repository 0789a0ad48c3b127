/* model.h - what the model remembers, and the changes it may try: shared by model.c, which decides
 * when and judges, and model_moves.c, which knows how. */
#ifndef PEN_POLICY_MODEL_H
#define PEN_POLICY_MODEL_H

#include "policy/offload.h"
#include "policy/policies.h"

typedef enum change {
    MORE_THREADS,
    FEWER_THREADS,
    FEWER_READERS, /* multiplicative decrease */
    SPARE_READERS, /* those that have nothing to do go */
    MORE_READY,
    FEWER_READY,
    BESIDE_OTHERS,   /* where the system shares cores by program, fewer threads get as many turns */
    MORE_THAN_CORES, /* against other programs, more threads get more turns */
    BACK_TO_CORES,   /* they are gone, or so are cores, or what workers waited for */
    N_CHANGES
} change;

/* Keep a wire busy, however long somebody is away from it between two reads. */
#define PEN__BUSY_READERS 4
#define PEN__STILL_THERE  0.15 /* cores that other programs use */

typedef struct memory {
    pen__measure base; /* with the present knobs */
    pen__trial trial;
    change subject;
    double hold[N_CHANGES], hold_next[N_CHANGES]; /* periods */
    double rest[N_CHANGES], rest_next[N_CHANGES]; /* periods, of what was undone */
    double off_next[N_CHANGES];                   /* periods, of what was called off */
    double stands[N_CHANGES];                     /* periods since it was kept; 0: it is not */
    double mean_compute_s, mean_step_s, n_steps;  /* of late; 0: not known */
    double n_new;                                 /* periods in a row */
    double compute_s, read_s, step_s;             /* when a change was last tried */
    double first_io;                              /* as it was set */
    double best_read_s;                           /* while nobody queues; forgotten slowly */
    double tried_read_s;                          /* when half as many readers were tried */
    double expected_rate; /* of the trial under way, if the source gives it; 0: none */
    double source_rate;   /* that more readers did not exceed; forgotten slowly; 0: not known */
    double n_off;   /* periods in a row that far more or far less was made than before; signed */
    double cores;   /* of the last period; 0: not known */
    double n_mixed; /* periods that will hold something of before the machine changed */
    double beside;  /* of the rate before, what was left when others were left their cores; 0: ? */
    double n_other; /* periods in a row that rivals were there and had not been, or the reverse */
    double lasting_waits; /* share of the time that the loop waits, with these knobs; a slow mean */
    bool has_rivals;      /* other programs want the cores */
    bool has_yielded;     /* and were left some */
    bool has_begun;       /* a batch was delivered: what the loop waits says something */
    pen__offload_watch watch; /* of storage nodes */
} memory;

/* Begin a change, if it makes sense now and was not tried in vain lately. */
bool pen__model_try(memory *m, change what, const pen_policy_state *s, const pen_knob_info *table,
                    pen_knobs *knobs, char *reason);

/* As many as keep a source busy that gives no more to others. */
double pen__model_few_readers(const memory *m, const pen_policy_state *s);

/* Does reading take so long that readers should do it? */
bool pen__model_wants_readers(const memory *m, const pen_policy_state *s,
                              const pen_knob_info *table, const pen_knobs *knobs);

/* What is held back now is held while these last. */
void pen__model_note_conditions(memory *m);

/* Set a knob, if policies may and it goes the way it should. */
bool pen__model_turn(const pen_knob_info *table, pen_knobs *knobs, int knob, double to, bool is_up);

#endif
