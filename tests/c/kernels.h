/* kernels.h - the machines of tests/c/procfs, unpacked into the test's folder. */
#ifndef PEN_TESTS_KERNELS_H
#define PEN_TESTS_KERNELS_H

#include "trees.h"

#include <math.h>

/* Equal, or both unavailable. */
static inline void assert_value(double value, double want, const char *what, int line)
{
    bool is_equal =
        isnan(want) ? isnan(value) : value == want || fabs(value - want) <= 1e-12 * fabs(want);
    if (!is_equal)
        fail_msg("line %d: %s is %.17g, not %.17g", line, what, value, want);
}
#define assert_is(value, want)    assert_value(value, want, #value, __LINE__)
#define assert_unavailable(value) assert_value(value, NAN, #value, __LINE__)

/* "path -> target": a link; "path": the file that the text up to the next header is. */
static inline void unpack_entry(char *header, const char *text, size_t len)
{
    char *arrow = strstr(header, " -> ");
    if (!arrow) {
        put_bytes(header, text, len);
        return;
    }
    *arrow = '\0';
    make_parents(header);
    assert_int_equal(symlink(arrow + 4, in_tree(header)), 0);
}

static inline void unpack_kernel(const char *name)
{
    static char text[1 << 16];
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", KERNELS, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    for (char *at = text; *at;) {
        char *close = strstr(at, " <==\n");
        assert_true(strncmp(at, "==> ", 4) == 0 && close);
        *close = '\0';
        char *body = close + strlen(" <==\n");
        char *next = *body == '=' ? body : strstr(body, "\n==> ");
        next = !next ? text + n : next == body ? body : next + 1;
        unpack_entry(at + 4, body, (size_t)(next - body));
        at = next;
    }
}

#endif
