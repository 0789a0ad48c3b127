/* allow.h - what storage nodes may do with the samples of a loader.
 *
 * One policy (penstock/offload.h), what is known of the samples' headers, and how much of all that
 * nodes could do they shall do: the knobs `cut_wire` and `codec` say what counts as that, `offload`
 * which part of it.  With every sample that is asked for, the offers (estimate.h) that nodes could
 * make for it are worked out; those that are worth enough are allowed.
 *
 * Headers come with the samples, so in a first epoch most are not known.  A sample's length is,
 * and so are the numbers that its crop is drawn from: a typical header scaled to the length stands
 * in.  What was learned is kept from run to run (profile_file.h).
 *
 * Any thread; guards itself.
 */
#ifndef PEN_ENGINE_ALLOW_H
#define PEN_ENGINE_ALLOW_H

#include <pthread.h>

#include <penstock/offload.h>

#include "engine/profile_file.h"
#include "engine/ranking.h"
#include "source/source.h"

/* How far nodes may go with any sample. */
typedef struct pen__allow_bounds {
    int cut_wire; /* operations of the line */
    pen_codec codec;
} pen__allow_bounds;

typedef struct pen__allow {
    pen_offload kind; /* never DEFAULT */
    const pen_pipeline *pipe;
    pen__headers headers;
    pen__traits traits;
    const pen_dataset *kept_for; /* whose file what is learned goes to, or NULL */
    pthread_mutex_t lock;        /* guards all that follows */
    bool is_ready;               /* the lock was made */
    pen__allow_bounds bounds;
    double share, threshold;
    pen__ranking ranking;
    int n_until_threshold; /* samples until it is worked out again */
    pen__typical typical;
    pen__usual_costs usual_costs;
    int64_t n_learned, n_unsaved;       /* samples that came, in all and since it was saved */
    int64_t n_profiled;                 /* FASTFLOW: samples, */
    double profiled_raw, profiled_sent; /* their bytes as files and as finished pixels */
    bool has_warned;
    char warning[256]; /* that nobody has taken yet */
} pen__allow;

/* The policy that `kind`, a pen_offload, and the environment ask for.  PEN_EINVAL. */
int pen__allow_kind(int kind, pen_offload *out, pen_error *err);

/* `pipe` must stay.  Zero-initialise before; PEN_ENOMEM. */
int pen__allow_init(pen__allow *allow, pen_offload kind, const pen_pipeline *pipe,
                    int64_t n_samples);
/* Also after a failed init, or none. */
void pen__allow_fini(pen__allow *allow);

/* Bytes of memory for n samples, their file included. */
int64_t pen__allow_memory(int64_t n);

/* Keep what is learned in the file of `ds`, which must stay, and begin with what it says. */
void pen__allow_keep(pen__allow *allow, const pen_dataset *ds);
/* Is there enough to save? */
bool pen__allow_has_news(pen__allow *allow);
/* Write the file.  What goes wrong is a warning, the first time; never an error. */
void pen__allow_save(pen__allow *allow);
/* The warning, once; empty if there is none. */
void pen__allow_warning(pen__allow *allow, char *dst, size_t dst_cap);

/* Does the share mean anything for this policy? */
bool pen__allow_has_share(const pen__allow *allow);
void pen__allow_set_share(pen__allow *allow, double share);

/* As far as this policy ever goes, which is where it begins; `auto` may be held back from there,
 * others go as far as they go. */
pen__allow_bounds pen__allow_widest(const pen__allow *allow);
bool pen__allow_has_bounds(const pen__allow *allow);
void pen__allow_set_bounds(pen__allow *allow, const pen__allow_bounds *bounds);

/* What was foreseen of a sample when it was asked for. */
typedef struct pen__foreseen {
    pen__choice choice;
    pen__estimate estimate;
    bool is_estimated;
} pen__foreseen;

/* What the choice is expected to take a node, nanoseconds. */
int64_t pen__foreseen_ns(const pen__foreseen *foreseen);

/* For the journey of this key, whose file has `len` bytes. */
void pen__allow_choose(pen__allow *allow, const pen_key *key, size_t len, pen__foreseen *out);
/* It came as this parcel, and took the node `cpu_s` (NaN: not told). */
void pen__allow_learn(pen__allow *allow, int64_t sample, const pen__foreseen *foreseen,
                      const pen__parcel *parcel, double cpu_s);

/* What recent samples weigh and take as they are stored, and what `share` of all offers would save
 * and cost beside that. */
pen__weight pen__allow_raw(pen__allow *allow);
pen__gain pen__allow_gain(pen__allow *allow, double share);

#endif
