/* remote_blame.h - why a sample could not be had: each server that was asked, and its own reason.
 */
#ifndef PEN_REMOTE_REMOTE_BLAME_H
#define PEN_REMOTE_REMOTE_BLAME_H

#include "remote/remote_call.h"
#include "remote/remote_server.h"

/* Put one of `n` reasons behind those in `text`.  It gets its share of the room, so that many
 * leave room for each other. */
void pen__blame_add(char *text, size_t cap, int n, const char *reason);

/* Server `number` of `servers` will not send this sample however often it is asked.  `verb` and
 * `reason`: "answers", "401, wrong token". */
void pen__blame_refusal(pen__call *call, const pen__server *servers, int n, int number,
                        const char *verb, const char *reason);

/* The sample cannot be had: set the call's result and error. */
void pen__blame_all(pen__call *call, const pen__server *servers, int n, int64_t now_ns);

#endif
