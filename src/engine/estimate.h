/* estimate.h - what a sample will weigh in each form, and what that costs a storage node.
 *
 * From the header, the file's length and the plan, before a byte of it is there.  The constants
 * were measured on photographs (estimate.c); what really comes corrects them while a loader runs,
 * with one ratio a form for bytes and one for time, so that another kind of image or another
 * processor is met after some samples; of a form that has not come, by the others' time.  Pure: no
 * clock, no state but what is passed in.
 */
#ifndef PEN_ENGINE_ESTIMATE_H
#define PEN_ENGINE_ESTIMATE_H

#include "engine/parcel.h"
#include "engine/plan.h"

/* One form of one sample; bytes are INFINITY where it cannot be had. */
typedef struct pen__weight {
    double bytes; /* of the payload */
    double cpu_s; /* of one thread of the node, from the file to this form */
} pen__weight;

typedef struct pen__estimate {
    pen__weight of[PEN__FORM_COUNT]; /* each alone: pixels are decoded from the file */
    pen__weight both;                /* the cut or coded pixels, whichever is found to be smaller */
} pen__estimate;

/* What came over what was expected, by form; zero-initialise: nothing came yet. */
#define PEN__LEAST_CORRECTION 0.1
#define PEN__MOST_CORRECTION  10.0
typedef struct pen__corrections {
    double bytes[PEN__FORM_COUNT], cpu[PEN__FORM_COUNT];
    double both_cpu;
} pen__corrections;
/* What the constants alone said of those that came; zero-initialise. */
typedef struct pen__usual_cost {
    double s; /* of late */
    double n; /* samples, since the loader was made */
} pen__usual_cost;
typedef struct pen__usual_costs {
    pen__usual_cost of[PEN__FORM_COUNT], both;
} pen__usual_costs;

/* `max_cut` as in pen__pack_order.  `full_ch`: pixels there, with so many channels at least; 0:
 * where they are fewest. */
void pen__estimate_sample(pen__estimate *out, const pen__plan *plan, const pen_image_info *info,
                          size_t len, int max_cut, int full_ch,
                          const pen__corrections *corrections);

/* Seconds that a node takes for a file of so many bytes as it is stored. */
double pen__estimate_file_s(double len, const pen__corrections *corrections);

/* A sample is known to differ from others like it: so many times the bytes and the time. */
void pen__estimate_adjust(pen__estimate *estimate, double cut_bytes, double coded_bytes,
                          double cpu);

/* What it takes a node to find the smallest of `forms`: as much as the dearest, which is tried
 * whatever wins; where both are allowed, pixels are decoded from the cut. */
double pen__estimate_cost(const pen__estimate *estimate, uint32_t forms);

/* A sample came with so many bytes in `form`, and the estimate said something else. */
void pen__estimate_learn_bytes(pen__corrections *corrections, const pen__estimate *estimate,
                               pen__form form, double bytes);
/* It took the node so long (NaN: not told) to find the smallest of `forms`. */
void pen__estimate_learn_cpu(pen__corrections *corrections, pen__usual_costs *usual,
                             const pen__estimate *estimate, uint32_t forms, double cpu_s);

/* A step that a storage node may go further with a sample than without it. */
typedef struct pen__offer {
    uint32_t forms;     /* what may be sent then, instead of what the step before allows */
    double saved_bytes; /* by this step alone */
    double cpu_s; /* the same, the first beyond what the file takes; the worth of an offer is the
                     one over the other */
} pen__offer;

enum { PEN__MAX_OFFERS = 4 };

/* The steps from the file to the smallest of `forms`, each dearer and worth less than the one
 * before; what is not worth more than a mixture of its neighbours is left out.  The last one lets
 * the node try all forms.  Returns how many, 0 if nothing would be smaller than the file. */
int pen__estimate_offers(const pen__estimate *estimate, uint32_t forms,
                         pen__offer out[PEN__MAX_OFFERS]);

static inline double pen__offer_worth(const pen__offer *offer)
{
    return offer->saved_bytes / (offer->cpu_s > 1e-6 ? offer->cpu_s : 1e-6);
}

#endif
