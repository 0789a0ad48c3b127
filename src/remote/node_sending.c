/* node_sending.c - see node_sending.h. */
#include "remote/node_sending.h"

enum {
    MOST_PS = 20000, /* a byte; more is something else, such as an index being written */
    WEIGHT = 4,      /* a look counts for so many-th */
};

void pen__sending_look(pen__sending *s, const pen__sending_sums *now)
{
    const int64_t bytes = now->sent_bytes - s->last.sent_bytes,
                  process_ns = now->process_ns - s->last.process_ns,
                  rest_ns = process_ns - (now->work_ns - s->last.work_ns);
    const double seen = (double)(rest_ns > 0 ? rest_ns : 0) * 1000 / (double)bytes;
    const int64_t ps = seen < MOST_PS ? (int64_t)seen : MOST_PS, known = s->ps_a_byte;
    s->ps_a_byte = known ? known + (ps - known) / WEIGHT : ps;
    s->last = *now;
}

int64_t pen__sending_ns(const pen__sending *s, int64_t bytes)
{
    return (int64_t)((double)s->ps_a_byte * (double)bytes / 1000);
}
