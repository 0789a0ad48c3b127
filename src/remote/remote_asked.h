/* remote_asked.h - what an answer says it was asked.
 *
 * Each answer of a node has a line "Penstock-Asked: 1c291ca3" in its head: the checksum (CRC-32C)
 * of the request's target and body as they arrived there.  Who asked compares it with what it
 * sent, so nothing is taken that answers something else, wherever on the way a bit was flipped;
 * and a line that was damaged itself is none, or another one.
 */
#ifndef PEN_REMOTE_REMOTE_ASKED_H
#define PEN_REMOTE_REMOTE_ASKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEN__ASKED_HEADER "Penstock-Asked"

typedef struct pen__asked {
    uint32_t sent, told; /* told: by the answer, */
    bool is_told;        /* if it says so */
} pen__asked;

typedef enum pen__asked_verdict {
    PEN__ASKED_THIS,
    PEN__ASKED_SOMETHING_ELSE,
    PEN__ASKED_UNTOLD,
} pen__asked_verdict;

/* A request to `url`, "http://HOST/..." or "https://HOST/...", with this body goes out. */
pen__asked pen__asked_begin(const char *url, const char *body, size_t len);
/* A line of the answer's head, which need not end. */
void pen__asked_hear(pen__asked *asked, const char *line, size_t len);

pen__asked_verdict pen__asked_judge(const pen__asked *asked);
/* What is wrong, where it is not PEN__ASKED_THIS. */
const char *pen__asked_words(pen__asked_verdict verdict);

#endif
