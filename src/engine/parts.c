/* parts.c - what to read, and reading it. */
#include "engine/parts.h"

#include <stdlib.h>
#include <string.h>

#include "ops/jpeg_extent.h"
#include "source/fileio.h"
#include "source/source.h"

enum {
    MIN_FILE = 32 << 10, /* smaller files come as a whole */
    MIN_HOLE = 8 << 10,  /* so does what is between two parts that are closer */
    NOTE_ALIGN = sizeof(uint64_t),
};

pen__parts_mode pen__parts_mode_wanted(void)
{
    const char *wish = getenv("PENSTOCK_PARTS");
    if (!wish)
        return PEN__PARTS_AUTO;
    return strcmp(wish, "off") == 0      ? PEN__PARTS_NEVER
           : strcmp(wish, "always") == 0 ? PEN__PARTS_ALWAYS
                                         : PEN__PARTS_AUTO;
}

static size_t note_at(size_t len)
{
    return (len + NOTE_ALIGN - 1) & ~(size_t)(NOTE_ALIGN - 1);
}

size_t pen__parts_room(size_t len)
{
    return note_at(len) + sizeof(pen__file_note);
}

pen__file_note pen__parts_note(const uint8_t *file, size_t len)
{
    pen__file_note note;
    memcpy(&note, file + note_at(len), sizeof note);
    return note;
}

static void write_note(uint8_t *file, size_t len, pen__file_note note)
{
    memcpy(file + note_at(len), &note, sizeof note);
}

static bool read_at(const pen__opened *from, uint8_t *file, size_t begin, size_t end)
{
    return pen__pread_full(from->fd, file + begin, end - begin, from->at + begin) ==
           (int64_t)(end - begin);
}

/* The window that the journey of this key begins with.  `head` is the beginning of the file. */
static bool find_window(const pen__carry_env *env, const pen_key *key, const uint8_t *head,
                        size_t head_len, pen_image_info *info, pen__rect *out)
{
    pen_params params[PEN_PIPELINE_MAX_OPS];
    pen__plan plan;
    if (pen_image_probe(head, head_len, info, NULL) != 0 ||
        pen_pipeline_draw(env->pipe, key, info, params, PEN_PIPELINE_MAX_OPS, NULL) < 0)
        return false;
    pen__plan_build(&plan, env->pipe, info, params);
    *out = plan.window;
    return true;
}

/* Read the head of an indexed file and find out what else is needed.  The index entry is put where
 * the file's second half will be.  False: all of it. */
static bool find_extent(const pen__carry_env *env, const pen_key *key, const pen__opened *from,
                        uint8_t *dst, size_t len, pen__jpeg_extent *out, size_t *head_len)
{
    pen__jpeg_marks_about about;
    pen_image_info info;
    pen__rect window;
    const uint8_t *entry = dst + len / 2;
    const size_t n = pen__sidecar_get(env->marks, key->sample, dst + len / 2, len - len / 2);
    if (n == 0 || !pen__jpeg_marks_peek(entry, n, &about) || about.stamp != from->stamp ||
        !about.stamp || about.scan_at > len / 2 || !read_at(from, dst, 0, about.scan_at))
        return false;
    *head_len = about.scan_at;
    return find_window(env, key, dst, about.scan_at, &info, &window) &&
           pen__jpeg_extent_of(out, entry, n, &about, dst, len, &info, window);
}

/* 0: all of it is needed. */
static int64_t read_parts(const pen__carry_env *env, const pen_key *key, const pen__opened *from,
                          uint8_t *dst, size_t len)
{
    pen__jpeg_extent extent;
    size_t head_len;
    if (!find_extent(env, key, from, dst, len, &extent, &head_len))
        return 0;
    if (extent.begin < head_len + MIN_HOLE)
        extent.begin = head_len;
    const size_t n = head_len + (extent.end - extent.begin);
    if (n + MIN_HOLE > len || !read_at(from, dst, extent.begin, extent.end))
        return 0;
    write_note(dst, len, (pen__file_note){from->stamp, true});
    return (int64_t)n;
}

int64_t pen__parts_read(const pen__carry_env *env, const pen_key *key, bool is_slow, uint8_t *dst,
                        size_t len)
{
    pen__opened from;
    write_note(dst, len, (pen__file_note){0, false});
    if (!env->marks || pen__dataset_open_sample(env->ds, key->sample, &from, NULL) != 0)
        return 0;
    int64_t n = is_slow && len >= MIN_FILE ? read_parts(env, key, &from, dst, len) : 0;
    if (n == 0 && pen__opened_read(&from, dst, len) == (int64_t)len) {
        const bool has_use = env->parts != PEN__PARTS_NEVER;
        write_note(dst, len, (pen__file_note){has_use ? from.stamp : 0, false});
        n = (int64_t)len;
    }
    pen__opened_close(&from);
    return n;
}
