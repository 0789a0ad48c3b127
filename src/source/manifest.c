/* manifest.c - a list of files with labels, .csv or .jsonl.
 *
 * Labels are texts at first.  If every one is an integer they are the labels as
 * they stand; otherwise the distinct texts, sorted, are the classes.  A JSON
 * manifest that has both numbers and words is an error: what its numbers mean
 * would depend on the words.  A row without a label has -1.
 *
 * Every file is looked up when the manifest is opened: the length is needed, and
 * a missing file is better found now, with its line, than hours into a run.
 */
#include "source/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "base/mem.h"
#include "source/fileio.h"
#include "source/names.h"
#include "source/source.h"

#define MAX_BYTES      (UINT64_C(4) << 30)
#define PROGRESS_EVERY 8192

typedef struct filling {
    pen_dataset *ds;
    const pen_dataset_opts *opts;
    pen__intern labels;             /* entry.label is a number in here until all are known */
    int64_t number_line, word_line; /* first rows with a JSON number, with a word; 0: none */
} filling;

static int missing_file(const pen__row *row, const char *path, int reason, pen_error *err)
{
    pen__shown shown;
    char text[128];
    const char *hint = row->line == 1 ? " (a header must name its columns path,label)" : "";
    if (reason != ENOENT && reason != ENOTDIR)
        return pen__fail(err, PEN_EIO, -1, "line %lld: cannot stat '%s': %s", (long long)row->line,
                         pen__show(&shown, path, strlen(path)),
                         strerror_r(reason, text, sizeof text));
    return pen__fail(err, PEN_ENOTFOUND, -1, "line %lld: no file '%s'%s", (long long)row->line,
                     pen__show(&shown, path, strlen(path)), hint);
}

/* The row's path, cleaned, and what is there. */
static int64_t look_up(const filling *f, const pen__row *row, char path[PEN_KEY_MAX],
                       struct stat *st, pen_error *err)
{
    const char *why;
    pen__shown shown;
    int64_t len =
        pen__path_clean(row->path, row->path_len, f->opts->allow_outside, path, PEN_KEY_MAX, &why);
    if (len < 0)
        return pen__fail(err, (int)len, -1, "line %lld: the path '%s' %s", (long long)row->line,
                         pen__show(&shown, row->path, row->path_len), why);
    if (fstatat(f->ds->root_fd, path, st, 0) != 0)
        return missing_file(row, path, errno, err);
    if (!S_ISREG(st->st_mode))
        return pen__fail(err, PEN_EIO, -1, "line %lld: '%s' is not a regular file",
                         (long long)row->line, pen__show(&shown, path, (size_t)len));
    return len;
}

/* "10.0", as tables write integers next to gaps: sorted as words it would be a trap. */
static bool is_fraction(const char *text, size_t len)
{
    size_t n_points = 0, n_digits = 0;
    for (size_t i = 0; i < len; i++) {
        n_points += text[i] == '.';
        n_digits += text[i] >= '0' && text[i] <= '9';
    }
    size_t n_signs = len > 0 && (text[0] == '-' || text[0] == '+');
    return n_points == 1 && n_digits > 0 && n_points + n_digits + n_signs == len;
}

/* Number the label's text, remembering which sorts of label there were. */
static int take_label(filling *f, const pen__row *row, int32_t *out, pen_error *err)
{
    *out = -1;
    if (!row->label || row->label_len == 0)
        return 0;
    int32_t value;
    int kind = pen__parse_label(row->label, row->label_len, &value);
    pen__shown shown;
    if (kind == PEN_ELIMIT)
        return pen__fail(err, PEN_EINVAL, -1, "line %lld: the label %s is not within -1 to %d",
                         (long long)row->line, pen__show(&shown, row->label, row->label_len),
                         INT32_MAX);
    if (memchr(row->label, '\0', row->label_len))
        return pen__fail(err, PEN_EINVAL, -1, "line %lld: a NUL byte in the label",
                         (long long)row->line);
    if (kind != 0 && !row->is_text && is_fraction(row->label, row->label_len))
        return pen__fail(err, PEN_EINVAL, -1, "line %lld: the label %s is a number, but no integer",
                         (long long)row->line, pen__show(&shown, row->label, row->label_len));
    if (kind != 0 && f->word_line == 0)
        f->word_line = row->line;
    if (kind == 0 && !row->is_text && f->number_line == 0)
        f->number_line = row->line;
    int64_t number = pen__intern_put(&f->labels, row->label, row->label_len);
    if (number < 0 || number > INT32_MAX)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory on line %lld", (long long)row->line);
    *out = (int32_t)number;
    return 0;
}

static int take_row(void *ctx, const pen__row *row, pen_error *err)
{
    filling *f = ctx;
    pen__index *index = &f->ds->index;
    char path[PEN_KEY_MAX];
    struct stat st;
    int64_t len = look_up(f, row, path, &st, err);
    if (len < 0)
        return (int)len;
    size_t leaf = pen__leaf_start(path, (size_t)len);
    size_t dir_len = leaf > 1 ? leaf - 1 : leaf; /* "/" stays, "a/" becomes "a" */
    int64_t dir = pen__index_dir(index, path, dir_len);
    if (dir < 0)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory on line %lld", (long long)row->line);
    pen__found found = {.dir = (uint32_t)dir,
                        .name = path + leaf,
                        .name_len = (size_t)len - leaf,
                        .length = (uint64_t)st.st_size,
                        .block = (uint32_t)row->line};
    found.stem_len = pen__stem_length(found.name, found.name_len);
    int rc = take_label(f, row, &found.label, err);
    if (rc == 0)
        rc = pen__index_add(index, &found, err);
    if (rc == 0 && index->n % PROGRESS_EVERY == 0)
        rc = pen__dataset_report(f->opts, (int64_t)index->n, -1, err);
    return rc;
}

static int compare_texts(const void *a, const void *b, void *ctx)
{
    const pen__intern *texts = ctx;
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    return strcmp(pen__intern_text(texts, i), pen__intern_text(texts, j));
}

/* Words: sorted, they are the classes, and value_of[text] is the rank. */
static int sort_classes(filling *f, int32_t *value_of, uint32_t *order)
{
    for (size_t i = 0; i < f->labels.n; i++)
        order[i] = (uint32_t)i;
    qsort_r(order, f->labels.n, sizeof *order, compare_texts, &f->labels);
    for (size_t i = 0; i < f->labels.n; i++) {
        const char *text = pen__intern_text(&f->labels, order[i]);
        if (pen__intern_put(&f->ds->classes, text, strlen(text)) < 0)
            return PEN_ENOMEM;
        value_of[order[i]] = (int32_t)i;
    }
    return 0;
}

/* Turn text numbers into labels. */
static int resolve_labels(filling *f, pen_error *err)
{
    size_t n = f->labels.n;
    if (f->word_line && f->number_line)
        return pen__fail(err, PEN_EINVAL, -1,
                         "line %lld has a number for a label and line %lld a word: use one kind",
                         (long long)f->number_line, (long long)f->word_line);
    int32_t *value_of = pen__calloc(n, sizeof *value_of);
    uint32_t *order = pen__calloc(n, sizeof *order);
    int rc = value_of && order ? 0 : PEN_ENOMEM;
    if (rc == 0 && f->word_line)
        rc = sort_classes(f, value_of, order);
    else if (rc == 0)
        for (size_t i = 0; i < n; i++)
            pen__parse_label(pen__intern_text(&f->labels, i), pen__intern_len(&f->labels, i),
                             &value_of[i]);
    for (size_t i = 0; rc == 0 && i < f->ds->index.n; i++) {
        int32_t *label = &f->ds->index.entries[i].label;
        *label = *label >= 0 ? value_of[*label] : -1;
    }
    pen__free(value_of);
    pen__free(order);
    return rc ? pen__fail(err, rc, -1, "out of memory while sorting %zu labels", n) : 0;
}

/* Sorted, a path that is listed twice has its like beside it. */
static int check_repeats(const pen__index *index, pen_error *err)
{
    for (size_t i = 1; i < index->n; i++) {
        const pen__entry *a = &index->entries[i - 1], *b = &index->entries[i];
        const char *name = pen__index_name(index, a);
        if (a->dir != b->dir || strcmp(name, pen__index_name(index, b)) != 0)
            continue;
        pen__shown shown;
        char path[PEN_KEY_MAX];
        size_t len = pen__index_path(index, a, strlen(name), path);
        uint32_t first = a->block < b->block ? a->block : b->block;
        return pen__fail(err, PEN_EINVAL, -1, "lines %u and %u both list '%s'", first,
                         first == a->block ? b->block : a->block, pen__show(&shown, path, len));
    }
    return 0;
}

static int parse(filling *f, const char *spec, pen_error *err)
{
    char *text = NULL;
    size_t n = strlen(spec);
    int64_t len = pen__read_file(AT_FDCWD, spec, MAX_BYTES, &text, err);
    if (len < 0)
        return (int)len;
    bool is_csv = n > 4 && strcasecmp(spec + n - 4, ".csv") == 0;
    int rc = is_csv ? pen__csv_parse(text, (size_t)len, take_row, f, err)
                    : pen__jsonl_parse(text, (size_t)len, take_row, f, err);
    pen__free(text);
    if (rc == 0 && f->ds->index.n == 0)
        rc = pen__fail(err, PEN_ENOTFOUND, -1, "no rows");
    if (rc == 0)
        rc = pen__index_sort(&f->ds->index, err);
    if (rc == 0)
        rc = check_repeats(&f->ds->index, err);
    if (rc == 0)
        rc = resolve_labels(f, err);
    if (rc != 0) {
        pen__shown shown;
        pen__fail_prefix(err, "'%s'", pen__show(&shown, spec, n));
    }
    return rc;
}

static int manifest_open(pen_dataset *ds, const char *spec, const pen_dataset_opts *opts,
                         pen_error *err)
{
    size_t leaf = pen__leaf_start(spec, strlen(spec));
    int rc = leaf ? pen__dataset_open_root(ds, spec, leaf, err)
                  : pen__dataset_open_root(ds, ".", 1, err);
    if (rc != 0)
        return rc;
    filling f = {.ds = ds, .opts = opts};
    rc = parse(&f, spec, err);
    pen__intern_fini(&f.labels);
    return rc ? rc : pen__index_unique_keys(&ds->index, err);
}

const pen__source pen__source_manifest = {
    .name = "manifest",
    .open = manifest_open,
    .read = pen__dataset_read_file,
    .open_field = pen__dataset_open_file,
};
