/* profile_report.h - a profile for people and for programs: a table, JSON, a picture. */
#ifndef PEN_CLI_PROFILE_REPORT_H
#define PEN_CLI_PROFILE_REPORT_H

#include "profile_stage.h"

#include <stdio.h>

/* What was profiled. */
typedef struct profile_subject {
    const char *spec, *ops;
    const pen_dataset *ds;
    const pen_pipeline *pipe;
    uint64_t seed;
    long long n_failed; /* samples that cannot be decoded */
    const profile_data *data;
    const profile_stats *stats;
    const profile_stage *stage; /* NULL: nobody asked */
    pen_profile_kept kept;      /* what loaders have learned by now */
} profile_subject;

/* "Decode", "RandomResizedCrop"; of the file and what is cut out of it, "". */
const char *profile_after(const profile_subject *subject, size_t point);

void profile_print_text(FILE *out, const profile_subject *subject);
void profile_print_json(FILE *out, const profile_subject *subject);
void profile_print_svg(FILE *out, const profile_subject *subject);

#endif
