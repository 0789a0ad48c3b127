/* node_sending.c - see node_sending.h. */
#include "remote/node_sending.h"

enum {
    USUAL_PS = 600,  /* a byte: 0.142 ms for a frame of 111 KB */
    MOST_PS = 10000, /* more is something else, such as an index being written */
    MOST_LOOKS = 8,  /* that count as much as the last one: one alone varies by half */
    FIRST_STEP = PEN__SENDING_STEP / 4, /* with new threads, connections and caches: not counted */
};

/* In bytes, frames among them. */
static int64_t sent_since(const pen__sending_sums *last, const pen__sending_sums *now)
{
    return now->sent_bytes - last->sent_bytes + PEN__SENDING_FRAME * (now->frames - last->frames);
}

bool pen__sending_is_due(const pen__sending *s, const pen__sending_sums *now)
{
    return sent_since(&s->last, now) >= (s->has_begun ? PEN__SENDING_STEP : FIRST_STEP);
}

void pen__sending_pause(pen__sending *s)
{
    s->has_begun = false;
}

void pen__sending_look(pen__sending *s, const pen__sending_sums *now)
{
    const pen__sending_sums last = s->last;
    s->last = *now;
    if (!s->has_begun) {
        s->has_begun = true;
        return;
    }
    const int64_t rest_ns = now->process_ns - last.process_ns - (now->work_ns - last.work_ns);
    const double seen = (double)rest_ns * 1000 / (double)sent_since(&last, now);
    const int64_t ps = seen < 1 ? 1 : seen < MOST_PS ? (int64_t)seen : MOST_PS;
    s->n_looks += s->n_looks < MOST_LOOKS;
    s->ps_a_byte += (ps - s->ps_a_byte) / s->n_looks;
}

int64_t pen__sending_ns(const pen__sending *s, int64_t frames, int64_t bytes)
{
    const int64_t known = s->ps_a_byte, ps = known > 0 ? known : USUAL_PS;
    return (int64_t)((double)ps * (double)(bytes + PEN__SENDING_FRAME * frames) / 1000);
}
