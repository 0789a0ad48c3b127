/* jpeg_need.c - from a window to MCUs. */
#include "ops/jpeg_need.h"

static int32_t div_up(int32_t a, int32_t b)
{
    return (a + b - 1) / b;
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Columns of MCUs that hold the window and a chroma sample to each side. */
static void set_columns(pen__jpeg_need *need, const pen__jpeg_frame *frame, pen__rect window)
{
    int h = frame->mcu_h;
    int32_t first = window.x / h, last = (window.x + window.w - 1) / h, margin = h - 1;
    int32_t edge = div_up(frame->width, h) - 1;
    first = first > margin ? first - margin : 0;
    last = smaller(last + margin, edge);
    need->n_columns = div_up(frame->width, 8 * h);
    need->first_column = first / 8;
    need->end_column = last / 8 + 1;
}

/* Where chroma has half the rows, an even row looks at the sample above its own and an odd one at
 * the sample below. */
static void set_strips(pen__jpeg_need *need, const pen__jpeg_frame *frame, pen__rect window)
{
    int32_t height = 8 * frame->mcu_v, y = window.y, last = window.y + window.h - 1;
    bool looks_up = frame->mcu_v == 2 && y % 2 == 0 && y > 0;
    bool looks_down = frame->mcu_v == 2 && last % 2 == 1;
    need->n_strips = div_up(frame->height, height);
    need->first_strip = (looks_up ? y - 1 : y) / height;
    need->end_strip = smaller((looks_down ? last + 1 : last) / height + 1, need->n_strips);
}

/* Where chroma has half the rows, libjpeg upsamples rows in twos and asks for the next strip before
 * the last two of a strip.  A grey file's strips come in groups of its vertical sampling factor. */
static int32_t n_strips_read(const pen__jpeg_frame *frame, pen__rect window, int32_t n_strips)
{
    int32_t last = window.y + window.h - 1, height = 8 * frame->mcu_v;
    int32_t end = div_up(last / height + 1, frame->group_v) * frame->group_v;
    if (frame->mcu_v == 2 && last % height >= height - 2)
        end++;
    return smaller(end, n_strips);
}

pen__jpeg_need pen__jpeg_need_of(const pen__jpeg_frame *frame, pen__rect window)
{
    pen__jpeg_need need;
    set_columns(&need, frame, window);
    set_strips(&need, frame, window);
    need.n_read = n_strips_read(frame, window, need.n_strips);
    return need;
}
