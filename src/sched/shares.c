/* shares.c - permits, and who gets the next one. */
#include "sched/shares.h"

#include <math.h>
#include <string.h>

/* Half of what was used is forgotten whenever this much was used. */
static const double horizon_ns = 2e9;
/* A stage without a share still gets on, slowly: samples pass through all of them. */
static const double least_weight = 1e-3;

void pen__shares_init(pen__shares *shares, int n_permits)
{
    memset(shares, 0, sizeof *shares);
    pthread_mutex_init(&shares->lock, NULL);
    pthread_cond_init(&shares->freed, NULL);
    shares->n_permits = n_permits < 1 ? 1 : n_permits;
}

void pen__shares_fini(pen__shares *shares)
{
    pthread_cond_destroy(&shares->freed);
    pthread_mutex_destroy(&shares->lock);
}

void pen__shares_limit(pen__shares *shares, int n_permits)
{
    pthread_mutex_lock(&shares->lock);
    shares->n_permits = n_permits < 1 ? 1 : n_permits;
    pthread_cond_broadcast(&shares->freed);
    pthread_mutex_unlock(&shares->lock);
}

void pen__shares_set(pen__shares *shares, const double weight[PEN__SHARE_STAGES])
{
    double sum = 0;
    pthread_mutex_lock(&shares->lock);
    for (int i = 0; i < PEN__SHARE_STAGES; i++) {
        sum += weight[i];
        shares->weight[i] = weight[i];
        shares->used_ns[i] = 0;
    }
    atomic_store(&shares->is_on, sum > 0);
    pthread_cond_broadcast(&shares->freed);
    pthread_mutex_unlock(&shares->lock);
}

static double had(const pen__shares *shares, int stage)
{
    return shares->used_ns[stage] / fmax(shares->weight[stage], least_weight);
}

/* Does no other waiting stage have a better claim? */
static bool is_first(const pen__shares *shares, int stage)
{
    for (int i = 0; i < PEN__SHARE_STAGES; i++)
        if (i != stage && shares->n_waiting[i] > 0 && had(shares, i) < had(shares, stage))
            return false;
    return true;
}

bool pen__shares_enter(pen__shares *shares, int stage)
{
    if (!atomic_load_explicit(&shares->is_on, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&shares->lock);
    shares->n_waiting[stage]++;
    while (atomic_load(&shares->is_on) &&
           (shares->n_held >= shares->n_permits || !is_first(shares, stage)))
        pthread_cond_wait(&shares->freed, &shares->lock);
    shares->n_waiting[stage]--;
    shares->n_held++; /* also if it was switched off meanwhile: what is left is given back */
    if (shares->n_held < shares->n_permits)
        pthread_cond_broadcast(&shares->freed); /* another stage may be first now */
    pthread_mutex_unlock(&shares->lock);
    return true;
}

void pen__shares_leave(pen__shares *shares, int stage, int64_t ns)
{
    double sum = 0;
    pthread_mutex_lock(&shares->lock);
    shares->n_held--;
    shares->used_ns[stage] += (double)ns;
    for (int i = 0; i < PEN__SHARE_STAGES; i++)
        sum += shares->used_ns[i];
    for (int i = 0; sum > horizon_ns && i < PEN__SHARE_STAGES; i++)
        shares->used_ns[i] /= 2;
    pthread_cond_broadcast(&shares->freed);
    pthread_mutex_unlock(&shares->lock);
}
