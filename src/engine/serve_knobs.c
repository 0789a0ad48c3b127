/* serve_knobs.c - turn a running loader's knobs, asked by HTTP.
 *
 *     PUT /knobs?loader=0&workers=3&read_ahead=auto
 *
 * All or nothing: every word is looked at before the first knob is turned.  A number sets a
 * knob and pins it, "auto" leaves it to the policy again.  Who may ask is serve.c's business.
 */
#include <math.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/knobs.h>

#include "base/fail.h"
#include "engine/loader_impl.h"
#include "engine/views.h"

typedef struct wish {
    const char *loader; /* its number, or NULL */
    pen_knobs knobs;
    uint64_t released; /* a bit a knob */
    int n_knobs;
    int rc;
    pen_error *err;
} wish;

static int read_knob(wish *w, const char *name, const char *value)
{
    const int knob = pen_knob_find(name);
    if (knob < 0)
        return pen__fail(w->err, PEN_EINVAL, -1, "there is no knob '%.32s'", name);
    w->n_knobs++;
    if (strcmp(value, "auto") == 0) {
        w->released |= (uint64_t)1 << knob;
        return 0;
    }
    char *end;
    const double number = strtod(value, &end);
    if (end == value || *end || !isfinite(number))
        return pen__fail(w->err, PEN_EINVAL, -1, "%s takes a number or auto, not '%.32s'", name,
                         value);
    w->knobs.value[knob] = number;
    return 0;
}

static enum MHD_Result read_word(void *ctx, enum MHD_ValueKind kind, const char *name,
                                 const char *value)
{
    wish *w = ctx;
    (void)kind;
    value = value ? value : "";
    if (strcmp(name, "loader") == 0)
        w->loader = value;
    else
        w->rc = read_knob(w, name, value);
    return w->rc == 0 ? MHD_YES : MHD_NO;
}

/* The loader that is meant: the one with the number, or the only one. */
static pen_loader *find_loader(const wish *w, const pen_loader *const *loaders, int n)
{
    const pen_loader *found = !w->loader && n == 1 ? loaders[0] : NULL;
    char *end = NULL;
    const long long number = w->loader ? strtoll(w->loader, &end, 10) : -1;
    for (int i = 0; w->loader && *w->loader && !*end && i < n; i++)
        if (loaders[i]->number == number)
            found = loaders[i];
    return (pen_loader *)(uintptr_t)found; /* knobs guard themselves */
}

int pen__serve_turn(struct MHD_Connection *connection, const pen_loader *const *loaders, int n,
                    pen_error *err)
{
    wish w = {.err = err};
    pen_knobs_init(&w.knobs);
    MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, read_word, &w);
    if (w.rc)
        return w.rc;
    pen_loader *loader = find_loader(&w, loaders, n);
    if (!loader && w.loader)
        return pen__fail(err, PEN_ENOTFOUND, -1, "there is no loader %.20s", w.loader);
    if (!loader)
        return pen__fail(err, PEN_EINVAL, -1, "there are %d loaders: name one, as loader=%lld", n,
                         n ? (long long)loaders[0]->number : 0);
    if (w.n_knobs == 0)
        return pen__fail(err, PEN_EINVAL, -1, "no knob is named, as in workers=3");
    int rc = pen_loader_set_knobs(loader, &w.knobs, err);
    return rc ? rc : pen_loader_release_knobs(loader, w.released);
}
