/* openmetrics.h - a strict little parser of OpenMetrics text, for tests.
 *
 * It knows the rules that we must keep: TYPE before any sample, a family in one piece, suffixes
 * by type, units at the end of names, escapes, no label set twice, "# EOF" and nothing after.
 */
#ifndef PEN_TESTS_OPENMETRICS_H
#define PEN_TESTS_OPENMETRICS_H

#include "testing.h"

#include <ctype.h>

enum { OM_LINES = 2000, OM_NAME = 96 };

typedef struct om_text {
    int n_families, n_samples;
    char family[128][OM_NAME];
    struct {
        char series[256]; /* name and labels as they stand in the text */
        double value;
    } sample[OM_LINES];
} om_text;

/* The end of a metric or label name at p; fails if there is none. */
static inline const char *om_name(const char *p)
{
    if (!(isalpha((unsigned char)*p) || *p == '_'))
        fail_msg("no name: %.40s", p);
    while (isalnum((unsigned char)*p) || *p == '_' || *p == ':')
        p++;
    return p;
}

/* The end of {a="b",c="d"} at p, or p where there are no labels. */
static inline const char *om_labels(const char *p)
{
    if (*p != '{')
        return p;
    do {
        p = om_name(p + 1);
        if (p[0] != '=' || p[1] != '"')
            fail_msg("no label value: %.40s", p);
        for (p += 2; *p != '"'; p++) {
            if (*p == '\n' || !*p)
                fail_msg("a label without end");
            if (*p == '\\' && !strchr("\\\"n", *++p))
                fail_msg("no escape: %.10s", p);
        }
        p++;
    } while (*p == ',');
    if (*p != '}')
        fail_msg("labels without end: %.40s", p);
    return p + 1;
}

static inline int om_is_suffix(const char *type, const char *suffix, const char *labels)
{
    if (strcmp(type, "counter") == 0)
        return strcmp(suffix, "_total") == 0;
    if (strcmp(type, "info") == 0)
        return strcmp(suffix, "_info") == 0;
    if (strcmp(type, "summary") == 0)
        return *suffix ? strcmp(suffix, "_sum") == 0 || strcmp(suffix, "_count") == 0
                       : strstr(labels, "quantile=\"") != NULL;
    return strcmp(type, "gauge") == 0 && !*suffix;
}

static inline void om_head(om_text *out, const char *line, char *family, char *type)
{
    char word[8], name[OM_NAME], rest[256];
    if (sscanf(line, "# %7s %95s %255[^\n]", word, name, rest) != 3)
        fail_msg("no comment of the format: %.60s", line);
    if (strcmp(word, "TYPE") == 0) {
        for (int i = 0; i < out->n_families; i++)
            assert_string_not_equal(out->family[i], name);
        strcpy(out->family[out->n_families++], name);
        strcpy(family, name);
        snprintf(type, 16, "%.15s", rest);
        return;
    }
    assert_string_equal(name, family);
    if (strcmp(word, "UNIT") == 0) {
        const size_t n = strlen(name), u = strlen(rest);
        assert_true(n > u && name[n - u - 1] == '_' && strcmp(name + n - u, rest) == 0);
    } else {
        assert_string_equal(word, "HELP");
    }
}

static inline void om_sample(om_text *out, const char *line, const char *family, const char *type)
{
    char suffix[OM_NAME], *end;
    const char *name_end = om_name(line), *labels_end = om_labels(name_end);
    const size_t len = strlen(family);
    assert_true((size_t)(name_end - line) >= len && strncmp(line, family, len) == 0);
    snprintf(suffix, sizeof suffix, "%.*s", (int)(name_end - line - (long)len), line + len);
    assert_true(*labels_end == ' ');
    const double value = strtod(labels_end + 1, &end);
    if (end == labels_end + 1 || *end != '\n')
        fail_msg("no value: %.80s", line);
    char *series = out->sample[out->n_samples].series;
    assert_true(labels_end - line < 256);
    snprintf(series, 256, "%.*s", (int)(labels_end - line), line);
    if (!om_is_suffix(type, suffix, series))
        fail_msg("%s is no %s", series, type);
    if (strcmp(type, "counter") == 0)
        assert_true(value >= 0);
    for (int i = 0; i < out->n_samples; i++)
        assert_string_not_equal(out->sample[i].series, series);
    out->sample[out->n_samples++].value = value;
}

static inline void om_parse(const char *text, om_text *out)
{
    char family[OM_NAME] = "", type[16] = "";
    out->n_families = out->n_samples = 0;
    while (strcmp(text, "# EOF\n") != 0) {
        const char *end = strchr(text, '\n');
        assert_non_null(end);
        assert_true(end > text); /* no empty lines */
        assert_true(out->n_samples < OM_LINES && out->n_families < 127);
        if (*text == '#')
            om_head(out, text, family, type);
        else
            om_sample(out, text, family, type);
        text = end + 1;
    }
}

/* The value of a series, which must be there. */
static inline double om_value(const om_text *text, const char *series)
{
    for (int i = 0; i < text->n_samples; i++)
        if (strcmp(text->sample[i].series, series) == 0)
            return text->sample[i].value;
    fail_msg("no %s", series);
    return 0;
}

#endif
