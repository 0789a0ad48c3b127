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
#include "base/text.h"
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
    const double number = pen__text_number(value, &end);
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

/* A loader or a guest. */
typedef struct target {
    pen_loader *loader;
    pen_guest *guest;
    int64_t number;
    int n; /* how many it could be */
} target;

/* -1: it is no number. */
static long long number_of(const char *text)
{
    char *end;
    const long long number = strtoll(text, &end, 10);
    return end == text || *end ? -1 : number;
}

/* The one that is named, or any. */
static target find_target(const wish *w, const pen_loader *const *loaders, int n, pen_guest *guests)
{
    const long long wanted = w->loader ? number_of(w->loader) : -1;
    target found = {0};
    for (int i = 0; i < n; i++)
        if (!w->loader || loaders[i]->number == wanted) {
            found.loader = (pen_loader *)(uintptr_t)loaders[i]; /* knobs guard themselves */
            found.number = loaders[i]->number;
            found.n++;
        }
    for (pen_guest *guest = guests; guest; guest = guest->next)
        if (!w->loader || guest->number == wanted) {
            found.guest = guest;
            found.number = guest->number;
            found.n++;
        }
    return found;
}

int pen__serve_turn(struct MHD_Connection *connection, const pen_loader *const *loaders, int n,
                    pen_guest *guests, pen_error *err)
{
    wish w = {.err = err};
    pen_knobs_init(&w.knobs);
    MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, read_word, &w);
    if (w.rc)
        return w.rc;
    const target found = find_target(&w, loaders, n, guests);
    if (found.n == 0 && w.loader)
        return pen__fail(err, PEN_ENOTFOUND, -1, "there is no loader %.20s", w.loader);
    if (found.n != 1)
        return pen__fail(err, PEN_EINVAL, -1, "there are %d loaders: name one, as loader=%lld",
                         found.n, (long long)found.number);
    if (w.n_knobs == 0)
        return pen__fail(err, PEN_EINVAL, -1, "no knob is named, as in workers=3");
    if (found.guest)
        return pen__guest_wish(found.guest, &w.knobs, w.released, err);
    int rc = pen_loader_set_knobs(found.loader, &w.knobs, err);
    return rc ? rc : pen_loader_release_knobs(found.loader, w.released);
}
