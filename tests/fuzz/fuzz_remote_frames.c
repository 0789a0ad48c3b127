/* fuzz_remote_frames.c - any bytes as the answer to a request for samples, in pieces, and then to
 * one for fields. The first byte is the size of the pieces.  Checksums are made right, or what is
 * behind them would hardly ever be reached.  Nothing is written outside a caller's room, and no
 * caller gets two answers.  The same bytes as a line of the answer's head say a sane number or
 * none.
 */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "engine/field_parcel.h"
#include "remote/remote_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { N_CALLS = 4, ROOM = 96 };

static int n_answers[N_CALLS];

static void on_answer(void *ctx, pen__call *call)
{
    (void)ctx;
    if (++n_answers[call->id] > 1 || call->result == 0 || call->result > ROOM)
        abort();
}

static void on_return(void *ctx, pen__call *call, const pen__server *server, bool is_final)
{
    (void)ctx, (void)server, (void)is_final;
    if (++n_answers[call->id] > 1 || call->err.code == 0)
        abort();
}

static void put_crc(uint8_t *at, const uint8_t *bytes, size_t n)
{
    uint32_t crc = pen__crc32c(0, bytes, n);
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(crc >> (8 * i));
}

/* Walk over the frames as a parser would, and make their checksums right; those of bodies only
 * where they are even. */
static void seal(uint8_t *bytes, size_t len)
{
    for (size_t at = 0; at + PEN__FRAME_HEAD <= len;) {
        uint8_t *head = bytes + at;
        size_t body = pen__le32(head + 20);
        if (body <= len - at - PEN__FRAME_HEAD && head[24] % 2 == 0)
            put_crc(head + 24, head + PEN__FRAME_HEAD, body);
        put_crc(head + 32, head, 32);
        at += PEN__FRAME_HEAD + body;
    }
}

static void try_line(const char *line, size_t len)
{
    double cores = -1;
    if (pen__told_parse(line, len, &cores) && !(cores >= 0 && cores <= PEN__TOLD_MAX_CORES))
        abort();
}

/* What came is decoded, as who asked would. */
static void open_field(const pen__call *call)
{
    static pen__bytes_coder *coder;
    if (pen__field_is_raw(call->head) || (!coder && pen__bytes_coder_create(&coder) != 0))
        return;
    const size_t n = (size_t)call->result - PEN__FIELD_HEAD;
    uint8_t *coded = malloc(n);
    memcpy(coded, call->dst, n);
    pen__field_unpack(coder, call->head, coded, n, call->dst, call->raw_len, NULL);
    free(coded);
}

static void answer(const uint8_t *bytes, size_t len, size_t piece, bool is_fields)
{
    pen__request_owner owner = {on_answer, on_return, NULL};
    pen__call calls[N_CALLS];
    uint8_t *rooms[N_CALLS], heads[N_CALLS][48];
    pen__request *request = calloc(1, sizeof *request);
    request->owner = &owner;
    request->is_fields = is_fields;
    request->n_items = request->n_open = N_CALLS;
    memset(n_answers, 0, sizeof n_answers);
    for (uint32_t i = 0; i < N_CALLS; i++) {
        bool has_head = is_fields || i % 2; /* odd ones want the file alone */
        size_t cap = has_head ? ROOM - 48 : ROOM;
        rooms[i] = malloc(cap);
        calls[i] =
            (pen__call){.id = i, .dst = rooms[i], .cap = cap, .head = has_head ? heads[i] : NULL};
        calls[i].field = is_fields ? (pen_field)(1 + i % 3) : PEN_FIELD_IMAGE;
        calls[i].raw_len = ROOM - 48;
        calls[i].choice = (pen__choice){.max_cut = 3, .forms = i % 2 ? 1 : 127};
        request->items[i] = (pen__item){.call = &calls[i], .id = i};
    }
    for (size_t at = 0; at < len; at += piece) {
        size_t n = len - at < piece ? len - at : piece;
        if (pen__request_feed(request, bytes + at, n) != 0)
            break;
    }
    for (int i = 0; i < N_CALLS; i++) {
        if (is_fields && calls[i].result > 0)
            open_field(&calls[i]);
        free(rooms[i]);
    }
    free(request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < 1)
        return 0;
    try_line((const char *)data + 1, len - 1);
    size_t piece = *data + 1U;
    uint8_t *bytes = malloc(len);
    memcpy(bytes, data + 1, --len);
    seal(bytes, len);
    answer(bytes, len, piece, false);
    answer(bytes, len, piece, true);
    free(bytes);
    return 0;
}
