/* fuzz_request.c - any bytes as parts of a request to a storage node.
 *
 * The first byte chooses the part; what comes out must be within its bounds. */
#include <stdlib.h>
#include <string.h>

#include "remote/node_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void demand(bool is_so)
{
    if (!is_so)
        abort();
}

static void try_path(const char *text)
{
    pen__route route;
    if (pen__route_parse(text, &route) == PEN__ROUTE_NONE)
        return;
    demand(route.kind < PEN__ROUTE_COUNT && route.id >= 0);
    demand(pen_field_name(route.field) != NULL);
    demand(!*route.name || (pen__node_name_is_valid(route.name) && !strchr(route.name, '/')));
    demand(!*route.hash || pen__hash_is_valid(route.hash));
}

static void try_range(const char *text, uint64_t length)
{
    uint64_t from, to;
    pen__range_kind kind = pen__range_parse(text, length, &from, &to);
    demand(kind != PEN__RANGE_PART || (from < to && to <= length));
    demand(kind != PEN__RANGE_WHOLE || (from == 0 && to == length));
}

static void try_headers(const char *text)
{
    static const char secret[] = "correct horse";
    uint64_t number;
    pen__accepts_zstd(text);
    pen__etag_is_in(text, "\"0123\"");
    demand(!pen__token_is_right(text, secret) || strcmp(text + 7, secret) == 0);
    demand(!pen__decimal_parse(text, 99, &number) || number <= 99);
}

static void try_body(const char *text, size_t len)
{
    static pen__node_order order;
    pen_error err = {0};
    int rc = pen__node_order_parse(&order, text, len, &err);
    demand(rc == err.code);
    if (rc)
        return;
    demand(order.n_items >= 1 && order.n_items <= PEN__NODE_MAX_ITEMS);
    for (int i = 0; i < order.n_items; i++)
        demand(pen_field_name(order.items[i].field) && order.items[i].id >= 0 &&
               order.items[i].epoch >= 0 && order.items[i].epoch <= UINT32_MAX &&
               order.items[i].occurrence >= 0 && order.items[i].occurrence <= UINT16_MAX &&
               order.items[i].max_cut >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len == 0)
        return 0;
    char *text = malloc(len); /* the rest, and a NUL */
    memcpy(text, data + 1, len - 1);
    text[len - 1] = '\0';
    switch (*data & 3) {
    case 0:
        try_path(text);
        break;
    case 1:
        try_range(text, len);
        try_range(text, 0);
        try_range(text, UINT64_MAX);
        break;
    case 2:
        try_headers(text);
        break;
    default:
        try_body(text, len - 1);
        break;
    }
    free(text);
    return 0;
}
