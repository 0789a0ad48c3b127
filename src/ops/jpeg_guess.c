/* jpeg_guess.c - from pieces that began at guessed places to marks.
 *
 * Rounds of up to 128 KiB, each from a true place on.  A round whose pieces do not meet in time is
 * the last one: what is behind is left to a scan, as is all that is unusual.
 */
#include "ops/jpeg_guess.h"

#include <string.h>

#include "ops/jpeg_unstuff.h"

enum {
    MIN_OVERLAP = 2048 * 8,
    MIN_FIRST =
        48, /* pieces of the least size that must be wanted in all: else a scan is quicker */
    MIN_PIECES = 4,     /* of a round */
    FIRST_TRY = 96 * 8, /* bits from where a piece begins to where it is first asked for */
    MAX_BYTES = PEN__JPEG_STRETCH_BYTES - PEN__JPEG_COUNT_ZEROS,
    /* behind what is believed, unless a marker is there: so far may libjpeg look ahead */
    MARGIN = 64,
    /* before an MCU, whose blocks may add four differences, so that a scan accepts each of them */
    MAX_DC = INT16_MAX - 4 * ((1 << PEN__JPEG_COUNT_MAX_DC) - 1),
};

typedef struct round {
    const pen__jpeg_guess_job *job;
    pen__jpeg_marks *marks;
    pen__jpeg_count_codes codes;
    pen__jpeg_count_job count;
    pen__jpeg_mark here; /* the last true place, */
    uint32_t bit;        /* in the bytes, too, */
    int32_t column;      /* in its row of MCUs, */
    int32_t to_mark;     /* and MCUs up to the next mark */
    size_t at;           /* in the file, where unstuffing ended */
    uint32_t n_bytes, last_bit;
    bool is_at_marker;
    bool is_over;    /* no more marks are wanted, or to be believed */
    size_t n_left;   /* bytes that may be parsed yet, whatever comes of it */
    uint32_t anchor; /* a place in the bytes, whose place in the file is known */
    size_t anchor_at;
} round;

/* Bytes from the last true place on without their stuffing, up to n of them or a marker.  False
 * if the file ends without one. */
static bool unstuff(round *r, size_t n)
{
    const uint8_t *src = r->job->src + r->here.at;
    uint8_t *bytes = r->job->room->bytes;
    uint8_t *dst =
        pen__jpeg_unstuff(bytes, bytes + n, &src, r->job->src + r->job->len, &r->is_at_marker);
    if (!dst)
        return false;
    memset(dst, 0, PEN__JPEG_COUNT_ZEROS);
    r->at = (size_t)(src - r->job->src);
    r->n_bytes = (uint32_t)(dst - bytes);
    uint32_t margin = r->is_at_marker ? 0 : MARGIN;
    r->last_bit = r->n_bytes > margin ? 8 * (r->n_bytes - margin) : 0;
    r->anchor = 0;
    r->anchor_at = r->here.at;
    r->bit = (uint32_t)r->here.n_bits;
    return true;
}

/* The last true place's in the file. */
static void locate(round *r)
{
    uint32_t to = r->bit / 8;
    r->anchor_at += pen__jpeg_stuffed_bytes(r->job->room->bytes + r->anchor, to - r->anchor);
    r->anchor = to;
    r->here.at = r->anchor_at;
    r->here.n_bits = (int)(r->bit % 8);
}

/* That there is room for. */
static uint32_t mcus_of_piece(const pen__jpeg_guess_job *job)
{
    return sizeof job->room->coefs / (sizeof(pen__jpeg_count_mcu)) / PEN__JPEG_COUNT_LANES;
}

/* As many bytes from `at` on as the rows may take that are still wanted, as far as there is room
 * for them and their MCUs. */
static size_t bytes_wanted(const pen__jpeg_guess_job *job, const pen__jpeg_marks *marks, size_t at)
{
    const pen__jpeg_grid *grid = &marks->grid;
    uint64_t n_left = job->len - at;
    uint64_t rows_left = (uint64_t)(grid->n_rows - marks->n_rows);
    uint64_t wanted = (uint64_t)(job->n_rows - marks->n_rows);
    uint64_t n = wanted < rows_left ? n_left * wanted / rows_left * 17 / 16 + 1024 : n_left;
    uint64_t n_rounds = (n + MAX_BYTES - 1) / MAX_BYTES; /* of the same size */
    n = n_rounds > 1 ? n / n_rounds + 1 : n;
    uint64_t mcus_left = rows_left * (uint64_t)grid->n_columns;
    uint64_t most_mcus = (uint64_t)PEN__JPEG_COUNT_LANES * mcus_of_piece(job) * 3 / 8;
    uint64_t room = most_mcus * n_left / mcus_left;
    n = n < room ? n : room;
    return (size_t)(n < MAX_BYTES ? n : MAX_BYTES);
}

static void cut(round *r)
{
    pen__jpeg_count_job *count = &r->count;
    uint32_t n = r->n_bytes / r->job->min_piece;
    n = n < PEN__JPEG_COUNT_LANES ? n : PEN__JPEG_COUNT_LANES;
    uint32_t size = r->n_bytes / n * 8, all = 8 * r->n_bytes;
    count->n_pieces = (int)n;
    count->n_bytes = r->n_bytes;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t next = (i + 1) * size,
                 end = i + 1 < n ? next + (size / 2 < MIN_OVERLAP ? MIN_OVERLAP : size / 2) : all;
        end = end < all ? end : all;
        uint32_t goal = i + 1 < n && next + FIRST_TRY < end ? next + FIRST_TRY : end;
        count->pieces[i] = (pen__jpeg_count_piece){
            .first_bit = i > 0 ? i * size : r->bit, .goal = goal, .end = end};
    }
}

static uint32_t place_of(const pen__jpeg_count_mcu *list, uint32_t i)
{
    return pen__jpeg_count_place(list[i]);
}

/* Go on by n MCUs of a list, up to the next mark at most.  False if a DC may have left its 16 bits
 * on the way: a scan refuses that at any block, and sums of MCUs do not show it. */
static bool pass_mcus(round *r, const pen__jpeg_count_mcu *list, uint32_t n)
{
    bool is_far = false;
    for (uint32_t i = 0; i < n; i++)
        for (int c = 0; c < PEN__JPEG_MAX_COMPONENTS; c++) {
            is_far |= r->here.dc[c] < -MAX_DC || r->here.dc[c] > MAX_DC;
            r->here.dc[c] += pen__jpeg_count_difference(list + i, c);
        }
    r->bit = place_of(list, n);
    r->column += (int32_t)n;
    r->to_mark -= (int32_t)n;
    return !is_far;
}

/* A mark is due here.  False if it is the last one wanted. */
static bool add_mark(round *r)
{
    const pen__jpeg_grid *grid = &r->marks->grid;
    locate(r);
    if (r->column == grid->n_columns)
        r->column = 0;
    int32_t left = grid->n_columns - r->column;
    r->to_mark = left < grid->step ? left : grid->step;
    return pen__jpeg_marks_add(r->marks, &r->here) && r->marks->n_rows < r->job->n_rows;
}

/* Go through a list from MCU `from` to MCU `to`.  False if that is all. */
static bool pass_list(round *r, const pen__jpeg_count_mcu *list, uint32_t from, uint32_t to)
{
    while (to > from && place_of(list, to) > r->last_bit)
        to--;
    while (from < to) {
        uint32_t n = to - from;
        n = n < (uint32_t)r->to_mark ? n : (uint32_t)r->to_mark;
        r->is_over = !pass_mcus(r, list + from, n) || (r->to_mark == 0 && !add_mark(r));
        if (r->is_over)
            return false;
        from += n;
    }
    return true;
}

/* Where the list of piece i, from MCU *at on, first meets the next piece's: both numbers.  False
 * if it does not. */
static bool find_meeting(const round *r, int i, uint32_t *at, uint32_t *next_at)
{
    if (i + 1 >= r->count.n_pieces)
        return false;
    const pen__jpeg_count_mcu *list = pen__jpeg_count_list(&r->count, i);
    const pen__jpeg_count_mcu *next = pen__jpeg_count_list(&r->count, i + 1);
    uint32_t n = r->count.pieces[i].n, n_next = r->count.pieces[i + 1].n, j = *at, m = 0;
    for (uint32_t end = n; n_next > 0 && j < end;) { /* halve what is before the next piece */
        uint32_t middle = j + (end - j) / 2;
        if (place_of(list, middle) < place_of(next, 0))
            j = middle + 1;
        else
            end = middle;
    }
    while (j < n && m < n_next && place_of(list, j) != place_of(next, m))
        if (place_of(list, j) < place_of(next, m))
            j++;
        else
            m++;
    *at = j, *next_at = m;
    return j < n && m < n_next;
}

/* Go through what is true. */
static void follow(round *r)
{
    uint32_t from = 0;
    for (int i = 0;; i++) {
        const pen__jpeg_count_mcu *list = pen__jpeg_count_list(&r->count, i);
        uint32_t to = from, next_from = 0, n = r->count.pieces[i].n;
        bool has_met = find_meeting(r, i, &to, &next_from);
        if (n == 0 || !pass_list(r, list, from, has_met ? to : n - 1) || !has_met)
            return;
        from = next_from;
    }
}

/* Whether most pieces have met the next one: if so, those that have not had bad luck. */
static bool is_worth_more(const round *r)
{
    int n_met = 0, n = r->count.n_pieces - 1;
    for (int i = 0; i < n; i++) {
        uint32_t at = 0, next_at;
        n_met += find_meeting(r, i, &at, &next_at);
    }
    return n_met > n / 4 * 3;
}

/* One round.  False if it is the last one. */
static bool do_round(round *r)
{
    size_t n = bytes_wanted(r->job, r->marks, r->here.at);
    n = n < r->n_left ? n : r->n_left;
    size_t least = (size_t)MIN_PIECES * r->job->min_piece;
    if (n < least || !unstuff(r, n) || r->n_bytes < least)
        return false;
    cut(r);
    if (!r->job->count(&r->count))
        return false;
    follow(r);
    locate(r);
    r->n_left = r->n_left > r->n_bytes ? r->n_left - r->n_bytes : 0;
    return !r->is_over && is_worth_more(r);
}

/* All MCUs have been passed: whether the file ends here, with less than a byte of padding. */
static bool is_at_end(const round *r)
{
    enum { M_EOI = 0xD9 };
    return r->is_at_marker && 8 * r->n_bytes - r->bit < 8 && r->job->src[r->at + 1] == M_EOI;
}

static bool is_cancelled(const pen__jpeg_guess_job *job)
{
    return job->cancel && atomic_load_explicit(job->cancel, memory_order_relaxed);
}

bool pen__jpeg_guess_is_worth_it(const pen__jpeg_guess_job *job, const pen__jpeg_marks *marks)
{
    if (marks->grid.per_row == 0 || marks->n_rows >= job->n_rows ||
        job->frame->restart_interval > 0)
        return false;
    size_t at = pen__jpeg_marks_end(marks, job->frame).at;
    return at < job->len && bytes_wanted(job, marks, at) >= (size_t)MIN_FIRST * job->min_piece;
}

void pen__jpeg_guess(const pen__jpeg_guess_job *job, pen__jpeg_marks *marks)
{
    const pen__jpeg_grid *grid = &marks->grid;
    round r;
    r.job = job, r.marks = marks;
    if (!pen__jpeg_guess_is_worth_it(job, marks) ||
        !pen__jpeg_count_codes_set(&r.codes, job->frame, job->tables))
        return;
    r.count.codes = &r.codes;
    r.count.bytes = job->room->bytes;
    r.count.mcus = (pen__jpeg_count_mcu *)(void *)job->room->coefs;
    r.count.room = mcus_of_piece(job);
    r.column = 0;
    r.to_mark = grid->n_columns < grid->step ? grid->n_columns : grid->step;
    r.here = pen__jpeg_marks_end(marks, job->frame);
    r.is_at_marker = r.is_over = false;
    r.n_bytes = r.bit = 0;
    r.at = 0;
    if (marks->n_rows == 0 && !pen__jpeg_marks_add(marks, &r.here))
        return;
    r.n_left = (job->len - r.here.at) / 2 * 3;
    while (!is_cancelled(job) && do_round(&r))
        ;
    if (marks->n_rows == grid->n_rows)
        marks->is_complete = is_at_end(&r);
    marks->n_marks = marks->n_rows > 0 ? marks->n_rows * grid->per_row + 1 : 0;
}
