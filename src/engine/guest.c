/* guest.c - loaders made elsewhere: what they said, and what is wished of them. */
#include "engine/guest.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/mem.h"
#include "engine/loader_impl.h"

int pen_guest_open(pen_guest **out, pen_error *err)
{
    *out = NULL;
    pen_guest *guest = pen__calloc(1, sizeof *guest);
    if (!guest)
        return pen__fail(err, PEN_ENOMEM, -1, "guest: out of memory");
    guest->number = pen__loader_number();
    guest->owner = getpid();
    int rc = pen__serve_guest(guest);
    if (rc) {
        pen__free(guest);
        if (rc == -EPERM)
            return pen__fail(err, PEN_ENOTFOUND, -1, "guest: PENSTOCK_TOP is off");
        if (rc == -ENOMEM)
            return pen__fail(err, PEN_ENOMEM, -1, "guest: out of memory");
        return pen__fail_errno(err, -rc, "answer for", "penstock top");
    }
    *out = guest;
    return 0;
}

int64_t pen_guest_number(const pen_guest *guest)
{
    return guest->number;
}

static bool is_ours(const pen_guest *guest)
{
    return guest->owner == getpid();
}

int pen_guest_say(pen_guest *guest, const char *json, size_t len)
{
    if (!is_ours(guest))
        return PEN_EFORK;
    if (len < 2 || len > PEN_GUEST_SAID_MAX || json[0] != '{' || json[len - 1] != '}')
        return PEN_EINVAL;
    char *copy = pen__malloc(len);
    if (!copy)
        return PEN_ENOMEM;
    memcpy(copy, json, len);
    pen__serve_lock();
    char *older = guest->said;
    guest->said = copy;
    guest->said_len = len;
    pen__serve_unlock();
    pen__free(older);
    return 0;
}

int64_t pen_guest_wishes(pen_guest *guest, char *dst, size_t dst_cap)
{
    if (!is_ours(guest))
        return 0;
    pen__serve_lock();
    const size_t len = strlen(guest->wishes);
    const bool fits = len < dst_cap;
    if (fits) {
        memcpy(dst, guest->wishes, len + 1);
        guest->wishes[0] = '\0';
    }
    pen__serve_unlock();
    return fits ? (int64_t)len : PEN_ENOSPC;
}

void pen_guest_close(pen_guest *guest)
{
    if (!guest)
        return;
    if (is_ours(guest))
        pen__serve_guest_end(guest);
    pen__free(guest->said);
    pen__free(guest);
}

/* ---- wishes ---- */

static const char *const knob_names[PEN_KNOB_COUNT] = {
#define KNOB_NAME(id, name, kind, unit, text) name,
    PEN_KNOBS(KNOB_NAME)
#undef KNOB_NAME
};

typedef struct words {
    char text[PEN_GUEST_WISHES_MAX];
    size_t len; /* at most the capacity: it is full */
} words;

static void add_word(words *w, const char *name, const char *value)
{
    const size_t left = sizeof w->text - w->len;
    const int n = snprintf(w->text + w->len, left, "%s%s=%s", w->len ? "&" : "", name, value);
    w->len = (size_t)n < left ? w->len + (size_t)n : sizeof w->text;
}

/* A knob as the guest described it. */
static int check_knob(const json_t *table, const char *name, double value, pen_error *err)
{
    const json_t *knob = json_object_get(table, name);
    if (!json_is_object(knob))
        return pen__fail(err, PEN_EINVAL, -1, "this loader has no knob '%.32s'", name);
    const double min = json_number_value(json_object_get(knob, "min"));
    const double max = json_number_value(json_object_get(knob, "max"));
    if (!isnan(value) && (value < min || value > max || value != floor(value)))
        return pen__fail(err, PEN_EINVAL, -1, "%.32s must be %g to %g here", name, min, max);
    return 0;
}

/* Every wish as a word, if all can be had. */
static int write_wishes(words *w, const json_t *table, const pen_knobs *knobs, uint64_t released,
                        pen_error *err)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < PEN_KNOB_COUNT; i++) {
        const bool is_released = released >> i & 1;
        const double value = is_released ? (double)NAN : knobs->value[i];
        if (!is_released && isnan(value))
            continue;
        char number[32];
        snprintf(number, sizeof number, "%.0f", value);
        rc = check_knob(table, knob_names[i], value, err);
        add_word(w, knob_names[i], is_released ? "auto" : number);
    }
    return rc;
}

int pen__guest_wish(pen_guest *guest, const pen_knobs *knobs, uint64_t released, pen_error *err)
{
    json_t *said = guest->said ? json_loadb(guest->said, guest->said_len, 0, NULL) : NULL;
    words w = {.len = strlen(guest->wishes)};
    memcpy(w.text, guest->wishes, w.len + 1);
    int rc = write_wishes(&w, json_object_get(said, "knobs"), knobs, released, err);
    json_decref(said);
    if (rc == 0 && w.len >= sizeof w.text)
        rc = pen__fail(err, PEN_EINVAL, -1, "the loader has not taken earlier wishes yet");
    if (rc == 0)
        memcpy(guest->wishes, w.text, w.len + 1);
    return rc;
}
