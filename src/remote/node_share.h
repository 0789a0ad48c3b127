/* node_share.h - whose sample is next: processors shared over jobs by what their work saves.
 *
 * A job is an address and a number that it chose for one of its loaders (docs/protocol.md, "job").
 * The turns of threads are of two kinds, and half of the processors' time goes to each:
 *
 *     fair    the address that had least is next, and of its jobs the one that had least
 *     worth   the job whose work saves most bytes a second of our processors; among those that save
 *             nearly as much, as above
 *
 * So each of n addresses that ask has a 2n-th of the time for sure, and its jobs share that: to
 * invent jobs gains nothing against other addresses.  A turn takes whoever waits, so no thread is
 * idle while somebody does.  Who is new has saved nothing yet, and lives on fair turns until it
 * has.
 *
 * Both kinds keep books of their own: what a job gets for its worth comes on top of what is fair.
 * Who was away has not saved time up: it is put forward to where the others are, or nearly.
 *
 * No clock and no lock in here: times are arguments, and the caller guards all of it.
 */
#ifndef PEN_REMOTE_NODE_SHARE_H
#define PEN_REMOTE_NODE_SHARE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum pen__turn { PEN__TURN_FAIR, PEN__TURN_WORTH, PEN__TURN_COUNT } pen__turn;

enum { PEN__SHARE_PER_CLIENT = 64 }; /* jobs of one address; further ones join one of them */

/* An address's part of it, in the account that its owner keeps.  Zero-initialise; it must stay
 * where it is while a job of it has requests, and be memory after that. */
typedef struct pen__share_client {
    int n_active;                      /* jobs; only while something is worked out */
    int64_t had_ns[PEN__TURN_COUNT];   /* in each kind of turns, put forward as above */
    int64_t front_ns[PEN__TURN_COUNT]; /* where its jobs are */
} pen__share_client;

typedef struct pen__job {
    pen__share_client *client;
    uint64_t key;
    int n_open; /* requests */
    int64_t had_ns[PEN__TURN_COUNT];
    double cpu_s, saved_bytes; /* of the last seconds: what is older fades */
    int64_t faded_ns;          /* when these were right */
    int64_t seen_ns;           /* when it last asked, or was worked for */
} pen__job;

typedef struct pen__share {
    pen__job *jobs;
    int n, cap;
    int64_t spent_ns[PEN__TURN_COUNT]; /* processors' time in each kind of turns */
    int64_t lead_ns;                   /* that fair turns are ahead by, within bounds */
    int64_t front_ns[PEN__TURN_COUNT]; /* where addresses are */
} pen__share;

/* Room for the jobs of so many requests at once, and for some that come back.  PEN_ENOMEM. */
int pen__share_init(pen__share *share, int max_requests);
void pen__share_fini(pen__share *share);

/* A request came: its job, for pen__share_leave when it is over.  `key` tells the jobs of a client
 * apart, and should not be that of another client's. */
pen__job *pen__share_enter(pen__share *share, pen__share_client *client, uint64_t key,
                           int64_t now_ns);
void pen__share_leave(pen__job *job, int64_t now_ns);

/* Who is next: begin, let all that wait enter if it is for their worth, then compare any two. */
typedef struct pen__contest {
    pen__turn turn;
    double most; /* worth */
} pen__contest;
pen__contest pen__share_contest(const pen__share *share);
void pen__contest_enter(pen__contest *contest, const pen__job *job);
/* Is `job` to be served before `best`, which is NULL at first? */
bool pen__contest_prefers(const pen__contest *contest, const pen__job *job, const pen__job *best);

/* A thread takes a sample of the job in a turn of this kind; it was done, and this is what it took
 * and what it saved: bytes as stored less bytes as sent. */
void pen__share_take(pen__share *share, pen__job *job, pen__turn turn);
void pen__share_used(pen__share *share, pen__job *job, pen__turn turn, int64_t cpu_ns,
                     int64_t saved_bytes, int64_t now_ns);

/* Bytes that the job lately saved for a second of our processors; nearly 0 until it has used some.
 */
double pen__job_worth(const pen__job *job);

/* The processors there are. */
typedef struct pen__share_limits {
    double cpus, client_cpus; /* of all; of one address, 0: no limit of its own */
} pen__share_limits;

/* The cores that a job may use if it wants to, given what others use now: its fair part or, where
 * that is more, what is left by those whose work is worth more, and by the others beyond their fair
 * part. */
double pen__share_cores(pen__share *share, const pen__job *job, const pen__share_limits *limits,
                        int64_t now_ns);

/* What there is now, for who watches. */
typedef struct pen__share_sums {
    int clients, jobs;
    double fair_cores; /* of the job that is sure of least; 0 where there is none */
} pen__share_sums;
pen__share_sums pen__share_sum_up(pen__share *share, const pen__share_limits *limits,
                                  int64_t now_ns);

#endif
