/* node_clients.c - what each client has used: connections, requests, CPU time.
 *
 * A client is an address.  Its account outlives its connections, so that coming back does not help;
 * when all places are taken, the account that was idle for longest makes room.  There are more
 * places than connections, so one is always idle, but for moments in which many have left requests
 * behind that threads are still at.
 *
 * Connections made, requests and CPU time are buckets that fill with time: what is in them may be
 * used at once. Whose sample is next is decided in node_share.c.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "remote/node_impl.h"

enum {
    SPARE_PLACES = 256,
    REQUESTS_AT_ONCE_S = 10, /* seconds' worth of requests and CPU time that may be saved up */
    CPU_AT_ONCE_S = 2,
    VISITS_PER_S = 300, /* new connections, each with its handshake: with TLS a third of a core */
    VISITS_AT_ONCE_S = 10,
    NONE = -1,
};

/* CPUs that reading orders may use however small the limit is, so that none keeps loaders from
 * asking: eight of them that get 24000 samples a second in 3000 requests need 0.02. */
static const double least_reading_cpus = 0.05;

int pen__clients_init(pen__clients *clients, int max_connections)
{
    clients->cap = max_connections + SPARE_PLACES;
    for (clients->n_heads = 64; clients->n_heads < clients->cap; clients->n_heads *= 2) {
    }
    clients->all = pen__calloc((size_t)clients->cap, sizeof *clients->all);
    clients->heads = pen__malloc((size_t)clients->n_heads * sizeof *clients->heads);
    if (!clients->all || !clients->heads)
        return PEN_ENOMEM;
    for (int i = 0; i < clients->n_heads; i++)
        clients->heads[i] = NONE;
    return 0;
}

void pen__clients_fini(pen__clients *clients)
{
    pen__free(clients->all);
    pen__free(clients->heads);
    memset(clients, 0, sizeof *clients);
}

/* IPv4 as IPv6 writes it; of IPv6 the network, for who has one has all of its addresses. */
static void simplify(const struct sockaddr *address, uint8_t out[16])
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
    memset(out, 0, 16);
    if (address->sa_family == AF_INET) {
        memcpy(out, mapped, sizeof mapped);
        memcpy(out + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
    } else if (address->sa_family == AF_INET6) {
        const struct in6_addr *six =
            &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        memcpy(out, six, memcmp(six, mapped, sizeof mapped) == 0 ? 16 : 8);
    }
}

static int *chain_of(const pen__clients *clients, const uint8_t address[16])
{
    const uint64_t hash = pen__hash64(address, 16);
    return &clients->heads[hash & (uint64_t)(clients->n_heads - 1)];
}

static void unlink_client(pen__clients *clients, int index)
{
    int *at = chain_of(clients, clients->all[index].address);
    while (*at != index)
        at = &clients->all[*at].next;
    *at = clients->all[index].next;
}

/* A place for a new account, or NONE. */
static int make_room(pen__clients *clients)
{
    if (clients->n < clients->cap)
        return clients->n++;
    int oldest = NONE;
    for (int i = 0; i < clients->n; i++)
        if (clients->all[i].n_peers == 0 && clients->all[i].n_open == 0 &&
            (oldest == NONE || clients->all[i].filled_ns < clients->all[oldest].filled_ns))
            oldest = i;
    if (oldest != NONE)
        unlink_client(clients, oldest);
    return oldest;
}

static int find(const pen__clients *clients, const uint8_t address[16])
{
    int index = *chain_of(clients, address);
    while (index != NONE && memcmp(clients->all[index].address, address, 16) != 0)
        index = clients->all[index].next;
    return index;
}

static double reading_cpus(const pen_node_opts *opts)
{
    return fmax(opts->cpus_per_client, least_reading_cpus);
}

pen__client *pen__clients_enter(pen__clients *clients, const struct sockaddr *address,
                                int64_t now_ns, const pen_node_opts *opts)
{
    uint8_t key[16];
    simplify(address, key);
    int index = find(clients, key);
    if (index == NONE) {
        index = make_room(clients);
        if (index == NONE)
            return NULL;
        int *chain = chain_of(clients, key);
        clients->all[index] = (pen__client){.next = *chain,
                                            .filled_ns = now_ns,
                                            .visits = VISITS_PER_S * VISITS_AT_ONCE_S,
                                            .tokens = opts->requests_per_s * REQUESTS_AT_ONCE_S,
                                            .cpu_s = opts->cpus_per_client * CPU_AT_ONCE_S,
                                            .read_s = reading_cpus(opts) * CPU_AT_ONCE_S};
        memcpy(clients->all[index].address, key, sizeof key);
        *chain = index;
    }
    clients->all[index].n_peers++;
    clients->all[index].visits -= 1;
    return &clients->all[index];
}

void pen__clients_leave(pen__client *client)
{
    client->n_peers--;
}

static double fill(double level, double per_s, double at_once_s, double elapsed_s)
{
    level += per_s * elapsed_s;
    return level > per_s * at_once_s ? per_s * at_once_s : level;
}

static void fill_buckets(pen__client *client, int64_t now_ns, const pen_node_opts *opts)
{
    const double elapsed_s = (double)(now_ns - client->filled_ns) * 1e-9;
    client->filled_ns = now_ns;
    client->tokens = fill(client->tokens, opts->requests_per_s, REQUESTS_AT_ONCE_S, elapsed_s);
    client->cpu_s = fill(client->cpu_s, opts->cpus_per_client, CPU_AT_ONCE_S, elapsed_s);
    client->read_s = fill(client->read_s, reading_cpus(opts), CPU_AT_ONCE_S, elapsed_s);
    client->visits = fill(client->visits, VISITS_PER_S, VISITS_AT_ONCE_S, elapsed_s);
}

bool pen__clients_may_connect(pen__clients *clients, const struct sockaddr *address, int64_t now_ns,
                              const pen_node_opts *opts)
{
    uint8_t key[16];
    simplify(address, key);
    const int index = find(clients, key);
    if (index == NONE)
        return true;
    pen__client *client = &clients->all[index];
    fill_buckets(client, now_ns, opts);
    return client->n_peers < opts->max_per_client && client->visits >= 1;
}

bool pen__client_may_ask(pen__client *client, int64_t now_ns, const pen_node_opts *opts)
{
    fill_buckets(client, now_ns, opts);
    if (client->tokens < 1)
        return false;
    client->tokens -= 1;
    return true;
}

bool pen__client_may_pack(pen__client *client, int64_t now_ns, const pen_node_opts *opts)
{
    fill_buckets(client, now_ns, opts);
    return opts->cpus_per_client <= 0 || client->cpu_s > 0;
}

/* A loader that packs all the time leaves nothing; another of its machine must still get to open
 * the dataset.  So blocks may go into debt as far again. */
bool pen__client_may_have_block(pen__client *client, int64_t now_ns, const pen_node_opts *opts)
{
    fill_buckets(client, now_ns, opts);
    return opts->cpus_per_client <= 0 || client->cpu_s > -opts->cpus_per_client * CPU_AT_ONCE_S;
}

void pen__client_used(pen__client *client, int64_t cpu_ns)
{
    client->cpu_s -= (double)cpu_ns * 1e-9;
}

/* Down to `least_s`, and not below. */
static void take_cpu(pen__client *client, int64_t cpu_ns, double least_s)
{
    if (client->cpu_s > least_s)
        client->cpu_s = fmax(client->cpu_s - (double)cpu_ns * 1e-9, least_s);
}

void pen__client_took(pen__client *client, int64_t cpu_ns)
{
    take_cpu(client, cpu_ns, 0);
}

bool pen__client_may_be_read(pen__client *client, int64_t now_ns, const pen_node_opts *opts)
{
    fill_buckets(client, now_ns, opts);
    return opts->cpus_per_client <= 0 || client->read_s > 0;
}

/* Both together stay within the limit: who has it all used up by orders gets nothing packed.  But
 * blocks are still to be had. */
void pen__client_was_read(pen__client *client, int64_t cpu_ns, const pen_node_opts *opts)
{
    client->read_s -= (double)cpu_ns * 1e-9;
    take_cpu(client, cpu_ns, -opts->cpus_per_client * CPU_AT_ONCE_S / 2);
}
