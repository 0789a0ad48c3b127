/* jpeg_cut_head.c - headers of a cut file, and words for DC differences.
 *
 * Canonical codes: words of one length are consecutive numbers, and each length goes on where
 * the one before ended.  So whatever is left behind the last word may be given to longer words
 * without touching one that exists; the word of ones alone stays free, as JPEG wants it.
 */
#include "ops/jpeg_cut_head.h"

#include <string.h>

/* --- words --- */

/* Appended words have one length, the shortest one in which all missing sizes would have a
 * word: which of them will be needed is not known before all is written. */
static void set_append(pen__jpeg_dc_words *words, int longest, uint32_t next)
{
    int n_missing = 0, n = longest;
    for (int size = 0; size < PEN__JPEG_N_SIZES; size++)
        n_missing += words->n_bits[size] == 0;
    uint32_t n_free = (1U << longest) - next; /* the word of ones among them */
    while (n < 16 && ((int)n_free - 1 < n_missing || n == longest)) {
        n_free *= 2;
        next *= 2;
        n++;
    }
    words->append_bits = n;
    words->append_word = next;
    words->most_appended = n > longest ? (int)(n_free - 1 < 16 ? n_free - 1 : 16) : 0;
}

static void set_words(pen__jpeg_dc_words *words, pen__jpeg_code code)
{
    *words = (pen__jpeg_dc_words){.code = code};
    const uint8_t *size = code.counts + 16;
    uint32_t next = 0, end = 0;
    int longest = 1;
    for (int n = 1; n <= 16; n++, next *= 2)
        for (int i = 0; i < code.counts[n - 1]; i++, size++, next++) {
            if (*size < PEN__JPEG_N_SIZES && words->n_bits[*size] == 0) {
                words->word[*size] = (uint16_t)next;
                words->n_bits[*size] = (uint8_t)n;
            }
            longest = n;
            end = next + 1;
        }
    set_append(words, longest, end);
}

static bool append_word(pen__jpeg_dc_words *words, int size)
{
    if (words->n_appended == words->most_appended ||
        words->code.n_symbols + words->n_appended == 256 ||
        words->code.counts[words->append_bits - 1] + words->n_appended == 255)
        return false;
    words->word[size] = (uint16_t)(words->append_word + (uint32_t)words->n_appended);
    words->n_bits[size] = (uint8_t)words->append_bits;
    words->appended[words->n_appended++] = (uint8_t)size;
    return true;
}

bool pen__jpeg_put_dc(pen__jpeg_put *put, pen__jpeg_dc_words *words, int32_t difference)
{
    uint32_t magnitude = (uint32_t)(difference < 0 ? -difference : difference);
    int size = magnitude ? 32 - __builtin_clz(magnitude) : 0;
    if (size >= PEN__JPEG_N_SIZES || (words->n_bits[size] == 0 && !append_word(words, size)))
        return false;
    uint32_t value = (uint32_t)(difference < 0 ? difference - 1 : difference) & ((1U << size) - 1);
    pen__jpeg_put_bits(put, (uint32_t)words->word[size] << size | value,
                       words->n_bits[size] + size);
    return true;
}

uint32_t pen__jpeg_ac_word(pen__jpeg_code code, int symbol, int *n_bits)
{
    const uint8_t *symbols = code.counts + 16;
    uint32_t next = 0;
    for (int n = 1; n <= 16; n++, next *= 2)
        for (int i = 0; i < code.counts[n - 1]; i++, next++)
            if (*symbols++ == symbol) {
                *n_bits = n;
                return next;
            }
    *n_bits = 0;
    return 0;
}

/* --- headers --- */

enum { M_SOF0 = 0xC0, M_SOF1 = 0xC1, M_DHT = 0xC4, M_SOI = 0xD8, M_SOS = 0xDA, M_DQT = 0xDB };

void pen__jpeg_cut_head_begin(pen__jpeg_cut_head *head, const pen__jpeg_frame *frame)
{
    head->frame = frame;
    head->n_quants = head->n_dc = head->n_ac = 0;
    for (int c = 0; c < frame->n_components; c++) {
        const pen__jpeg_component *comp = &frame->components[c];
        int quant = 0, dc = 0, ac = 0;
        while (quant < head->n_quants &&
               frame->components[head->quant_from[quant]].quant_index != comp->quant_index)
            quant++;
        while (dc < head->n_dc && head->dc[dc].code.counts != comp->dc.counts)
            dc++;
        while (ac < head->n_ac && frame->components[head->ac_from[ac]].ac.counts != comp->ac.counts)
            ac++;
        if (quant == head->n_quants)
            head->quant_from[head->n_quants++] = (uint8_t)c;
        if (dc == head->n_dc)
            set_words(&head->dc[head->n_dc++], comp->dc);
        if (ac == head->n_ac)
            head->ac_from[head->n_ac++] = (uint8_t)c;
        head->quant_of[c] = (uint8_t)quant;
        head->dc_of[c] = (uint8_t)dc;
        head->ac_of[c] = (uint8_t)ac;
    }
}

static const uint16_t *quant_table(const pen__jpeg_cut_head *head, int i)
{
    return head->frame->components[head->quant_from[i]].quant;
}

static bool is_wide(const uint16_t *quant)
{
    for (int k = 0; k < 64; k++)
        if (quant[k] > 255)
            return true;
    return false;
}

static size_t quant_bytes(const pen__jpeg_cut_head *head)
{
    size_t n = 2;
    for (int i = 0; i < head->n_quants; i++)
        n += is_wide(quant_table(head, i)) ? 1 + 128 : 1 + 64;
    return n;
}

static pen__jpeg_code ac_code(const pen__jpeg_cut_head *head, int i)
{
    return head->frame->components[head->ac_from[i]].ac;
}

static size_t code_bytes(const pen__jpeg_cut_head *head)
{
    size_t n = 2;
    for (int i = 0; i < head->n_dc; i++)
        n += 17 + (size_t)(head->dc[i].code.n_symbols + head->dc[i].n_appended);
    for (int i = 0; i < head->n_ac; i++)
        n += 17 + (size_t)ac_code(head, i).n_symbols;
    return n;
}

size_t pen__jpeg_cut_head_bytes(const pen__jpeg_cut_head *head)
{
    size_t n_components = (size_t)head->frame->n_components;
    /* SOI, and two bytes of marker for each segment */
    return 2 + 4 * 2 + quant_bytes(head) + code_bytes(head) + (8 + 3 * n_components) +
           (6 + 2 * n_components);
}

static uint8_t *put16(uint8_t *dst, size_t value)
{
    dst[0] = (uint8_t)(value >> 8);
    dst[1] = (uint8_t)value;
    return dst + 2;
}

static uint8_t *put_segment(uint8_t *dst, int marker, size_t n_bytes)
{
    return put16(put16(dst, 0xFF00U | (unsigned)marker), n_bytes);
}

static uint8_t *put_quants(const pen__jpeg_cut_head *head, uint8_t *dst)
{
    dst = put_segment(dst, M_DQT, quant_bytes(head));
    for (int i = 0; i < head->n_quants; i++) {
        const uint16_t *quant = quant_table(head, i);
        bool wide = is_wide(quant);
        *dst++ = (uint8_t)(wide << 4 | i);
        for (int k = 0; k < 64; k++) {
            uint16_t value = quant[pen__jpeg_natural_order[k]];
            if (wide)
                *dst++ = (uint8_t)(value >> 8);
            *dst++ = (uint8_t)value;
        }
    }
    return dst;
}

/* Counts and symbols; appended symbols come last, as their words do. */
static uint8_t *put_code(uint8_t *dst, int kind_and_number, pen__jpeg_code code)
{
    *dst++ = (uint8_t)kind_and_number;
    memcpy(dst, code.counts, 16 + (size_t)code.n_symbols);
    return dst + 16 + code.n_symbols;
}

static uint8_t *put_codes(const pen__jpeg_cut_head *head, uint8_t *dst)
{
    dst = put_segment(dst, M_DHT, code_bytes(head));
    for (int i = 0; i < head->n_dc; i++) {
        const pen__jpeg_dc_words *words = &head->dc[i];
        uint8_t *counts = dst + 1;
        dst = put_code(dst, i, words->code);
        if (words->n_appended > 0)
            counts[words->append_bits - 1] =
                (uint8_t)(counts[words->append_bits - 1] + words->n_appended);
        memcpy(dst, words->appended, (size_t)words->n_appended);
        dst += words->n_appended;
    }
    for (int i = 0; i < head->n_ac; i++)
        dst = put_code(dst, 0x10 | i, ac_code(head, i));
    return dst;
}

/* Baseline has two tables of a kind and quantisers of 8 bits; what has more is "extended". */
static int frame_marker(const pen__jpeg_cut_head *head)
{
    bool is_extended = head->n_dc > 2 || head->n_ac > 2;
    for (int i = 0; i < head->n_quants; i++)
        is_extended |= is_wide(quant_table(head, i));
    return is_extended ? M_SOF1 : M_SOF0;
}

uint8_t *pen__jpeg_cut_head_write(const pen__jpeg_cut_head *head, pen__rect kept, uint8_t *dst)
{
    const pen__jpeg_frame *f = head->frame;
    size_t n = (size_t)f->n_components;
    dst = put16(dst, 0xFF00U | M_SOI);
    dst = put_quants(head, dst);
    dst = put_segment(dst, frame_marker(head), 8 + 3 * n);
    *dst++ = 8;
    dst = put16(put16(dst, (size_t)kept.h), (size_t)kept.w);
    *dst++ = (uint8_t)n;
    for (size_t c = 0; c < n; c++) {
        *dst++ = (uint8_t)(c + 1);
        *dst++ = (uint8_t)(c == 0 ? f->mcu_h << 4 | f->mcu_v : 0x11);
        *dst++ = head->quant_of[c];
    }
    dst = put_codes(head, dst);
    dst = put_segment(dst, M_SOS, 6 + 2 * n);
    *dst++ = (uint8_t)n;
    for (size_t c = 0; c < n; c++) {
        *dst++ = (uint8_t)(c + 1);
        *dst++ = (uint8_t)(head->dc_of[c] << 4 | head->ac_of[c]);
    }
    memcpy(dst, "\0\x3f\0", 3);
    return dst + 3;
}
