/* test_loader_parcels.c - samples that come as parcels: not a byte of the stream is different. */
#include "testing.h"

#include <penstock/policy.h>

#include <pthread.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/mem.h"
#include "engine/loader_impl.h"
#include "engine/pack.h"
#include "loading.h"
#include "source/source.h"
#include "turning.h"

enum { AS_ASKED = -2 };

/* ---- a source that packs what a folder has ------------------------------------------------ */

static struct {
    pthread_mutex_t lock; /* guards the packer and the dice */
    pen__packer *packer;
    uint64_t dice;
    _Atomic int n_calls[PICTURES], n_of_form[PEN__FORM_COUNT];
    _Atomic int64_t n_bytes;
    _Atomic int n_failed;
    bool fails_at_times, fails_always, flips, hangs;
    bool spoils;      /* what is not the file */
    int forms;        /* -1: any, by chance; -2: what is asked for */
    uint32_t insists; /* on these, unless files are asked for; 0: it does not */
    _Atomic int n_of_mask[PEN__FORMS_ALL + 1];
} node = {.lock = PTHREAD_MUTEX_INITIALIZER, .forms = -1};

static uint32_t roll_dice(void)
{
    node.dice = node.dice * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(node.dice >> 33);
}

static int64_t pack_file(const pen__wanted *wanted, const uint8_t *file, size_t len, uint8_t *dst,
                         size_t dst_cap, pen_error *err)
{
    pthread_mutex_lock(&node.lock);
    pen__pack_order order = {.pipe = wanted->pipe,
                             .key = wanted->key,
                             .max_cut = (int)(roll_dice() % 8),
                             .forms = node.forms >= 0 ? (uint32_t)node.forms
                                                      : roll_dice() % (PEN__FORMS_ALL + 1)};
    if (node.insists && wanted->choice.forms != 1U << PEN__FORM_RAW) /* but for files */
        order.forms = node.insists;
    else if (node.insists)
        order.forms = wanted->choice.forms;
    if (node.forms == AS_ASKED) {
        order.max_cut = wanted->choice.max_cut;
        order.forms = wanted->choice.forms;
        node.n_of_mask[order.forms & PEN__FORMS_ALL]++;
    }
    int64_t n = pen__pack(node.packer, &order, file, len, NULL, 0, dst, dst_cap, err);
    pthread_mutex_unlock(&node.lock);
    return n;
}

static int64_t fetch(const pen_dataset *from, const pen__wanted *wanted, uint8_t *dst,
                     size_t dst_cap, const atomic_bool *cancel, pen_error *err)
{
    const int64_t id = wanted->key.sample, len = pen_dataset_length(from, id);
    while (node.hangs && !atomic_load(cancel))
        usleep(1000);
    if (cancel && atomic_load(cancel)) /* as sources do: a loader that ends tries no other sample */
        return PEN_ECANCELED;
    /* Who tries again is served. */
    const bool fails = node.fails_always || (node.fails_at_times && node.n_calls[id]++ % 5 == 0);
    node.n_failed += fails;
    if (fails)
        return pen__fail(err, PEN_EIO, -1, "the line is dead");
    assert_true(dst_cap >= pen__parcel_bound(wanted->pipe, (size_t)len));
    uint8_t *file = malloc((size_t)len + 1);
    int64_t n = pen_dataset_read(from, id, file, (size_t)len, err);
    if (n >= 0)
        n = pack_file(wanted, file, (size_t)n, dst, dst_cap, err);
    if (n >= 0) {
        node.n_of_form[dst[1]]++;
        node.n_bytes += n;
        dst[24] ^= node.flips; /* the file's length */
        if (node.spoils && dst[1] != PEN__FORM_RAW)
            memset(dst + PEN__PARCEL_HEAD, 0xff, 8);
    }
    free(file);
    return n;
}

static pen__source fetching;
static const pen__source *usual;

/* From here on the dataset's samples come as parcels, or as files again. */
static void use_parcels(bool are_used)
{
    usual = ds->source->fetch ? usual : ds->source;
    fetching = *usual;
    fetching.fetch = fetch;
    ds->source = are_used ? &fetching : usual;
}

static int set_up(void **state)
{
    node.fails_at_times = node.fails_always = node.flips = node.hangs = node.spoils = false;
    node.forms = -1;
    node.insists = 0;
    node.n_bytes = 0;
    for (int i = 0; i < PEN__FORM_COUNT; i++)
        node.n_of_form[i] = 0;
    for (uint32_t i = 0; i <= PEN__FORMS_ALL; i++)
        node.n_of_mask[i] = 0;
    return pen__packer_create(&node.packer, NULL) || make_world(state);
}

static int tear_down(void **state)
{
    use_parcels(false);
    pen__packer_free(node.packer);
    return unmake_world(state);
}

/* ---- streams ------------------------------------------------------------------------------ */

static uint64_t hash_of_epochs(pen_loader *loader, int n_epochs)
{
    uint64_t hash = 0;
    for (int i = 0; i < n_epochs; i++)
        assert_int_equal(take(loader, 1000, &hash), BATCHES);
    return hash;
}

static uint64_t hash_of_files(int n_epochs)
{
    use_parcels(false);
    pen_loader_opts o = options(0);
    pen_loader *loader = open_loader(&o);
    uint64_t hash = hash_of_epochs(loader, n_epochs);
    pen_loader_free(loader);
    use_parcels(true);
    return hash;
}

static void turn(pen_loader *loader, pen_knob knob, double to)
{
    pen_knobs knobs;
    pen_knobs_init(&knobs);
    knobs.value[knob] = to;
    assert_int_equal(pen_loader_set_knobs(loader, &knobs, NULL), 0);
}

static void the_stream_is_that_of_files(void **state)
{
    (void)state;
    const uint64_t want = hash_of_files(2);
    node.fails_at_times = true;
    for (int workers = 0; workers <= 3; workers += 1 + (workers == 1))
        for (int readers = 0; readers <= 2; readers += 2) {
            pen_loader_opts o = options(workers);
            pen_loader *loader = open_loader(&o);
            turn(loader, PEN_KNOB_IO, readers ? readers : 1);
            turn(loader, PEN_KNOB_READ_AHEAD, readers && workers ? 6 : 0);
            if (hash_of_epochs(loader, 2) != want)
                fail_msg("%d workers, %d readers: another stream", workers, readers);
            pen_loader_free(loader);
        }
    assert_true(node.n_of_form[PEN__FORM_RAW] > 0 && node.n_of_form[PEN__FORM_PIXELS] > 0);
}

/* All of them, with a choice of what nodes do. */
static void knobs_turned_on_the_way_change_nothing(void **state)
{
    (void)state;
    const uint64_t want = hash_of_files(12);
    pen_loader_opts o = options(2);
    o.offload = PEN_OFFLOAD_AUTO;
    node.forms = AS_ASKED;
    pen_loader *loader = open_loader(&o);
    uint64_t hash = 0, random = 3;
    int n_shares = 0; /* of what nodes could do: that were something between all and nothing */
    for (int batch = 0; batch < 12 * BATCHES; batch++) {
        pen_knobs knobs;
        draw_knobs(&random, loader, &knobs);
        n_shares += knobs.value[PEN_KNOB_OFFLOAD] > 0 && knobs.value[PEN_KNOB_OFFLOAD] < 1;
        assert_int_equal(pen_loader_set_knobs(loader, &knobs, NULL), 0);
        if (take(loader, 1, &hash) == 0)
            batch--; /* an epoch's end */
    }
    assert_true(hash == want);
    assert_true(n_shares > 10);
    pen_loader_free(loader);
}

/* ---- policies ------------------------------------------------------------------------------ */

static const uint32_t raw_only = 1U << PEN__FORM_RAW, pixels_only = 1U << PEN__FORM_PIXELS,
                      plain = 1U << PEN__FORM_RAW | 1U << PEN__FORM_PIXELS;
enum { N_ASKED = 2 * PICTURES };

/* Two epochs and no more; what comes with the share that was set. */
static uint64_t hash_of_offload(int kind, double share)
{
    pen_loader_opts o = options(2);
    o.offload = kind;
    node.forms = AS_ASKED;
    pen_loader *loader = open_loader(&o);
    if (share >= 0)
        turn(loader, PEN_KNOB_OFFLOAD, share);
    const uint64_t hash = hash_of_epochs(loader, 2);
    pen_loader_free(loader);
    return hash;
}

static void no_policy_changes_the_stream(void **state)
{
    (void)state;
    const uint64_t want = hash_of_files(2);
    for (int kind = 0; kind < PEN_OFFLOAD_COUNT; kind++)
        if (hash_of_offload(kind, -1) != want)
            fail_msg("offload %s: another stream", pen_offload_name(kind));
    for (int i = 0; i <= 4; i++)
        assert_true(hash_of_offload(PEN_OFFLOAD_AUTO, i / 4.0) == want &&
                    hash_of_offload(PEN_OFFLOAD_SOPHON, i / 4.0) == want);
}

static void each_policy_asks_for_what_it_is_called(void **state)
{
    (void)state;
    static const struct {
        int kind;
        uint32_t mask;
    } cases[] = {
        {PEN_OFFLOAD_DEFAULT, PEN__FORMS_ALL},
        {PEN_OFFLOAD_AUTO, PEN__FORMS_ALL},
        {PEN_OFFLOAD_NONE, 1 << PEN__FORM_RAW},
        {PEN_OFFLOAD_ALL, 1 << PEN__FORM_PIXELS},
        {PEN_OFFLOAD_RESIZE, 1 << PEN__FORM_PIXELS},
        {PEN_OFFLOAD_SOPHON, 1 << PEN__FORM_RAW | 1 << PEN__FORM_PIXELS},
    };
    use_parcels(true);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (uint32_t mask = 0; mask <= PEN__FORMS_ALL; mask++)
            node.n_of_mask[mask] = 0;
        hash_of_offload(cases[i].kind, -1);
        assert_true(node.n_of_mask[cases[i].mask] >= N_ASKED);
        for (uint32_t mask = 0; mask <= PEN__FORMS_ALL; mask++)
            if (mask != cases[i].mask)
                assert_int_equal(node.n_of_mask[mask], 0);
    }
}

static void a_share_of_nothing_brings_files(void **state)
{
    (void)state;
    use_parcels(true);
    hash_of_offload(PEN_OFFLOAD_AUTO, 0);
    assert_true(node.n_of_mask[raw_only] >= N_ASKED);
    assert_int_equal(node.n_of_form[PEN__FORM_PIXELS] + node.n_of_form[PEN__FORM_JPEG_CUT], 0);
}

/* These files are larger than the crops that are made of them, but not all of them. */
static void all_or_nothing_is_decided_by_the_first_samples(void **state)
{
    (void)state;
    use_parcels(true);
    pen_loader_opts o = options(0);
    o.offload = PEN_OFFLOAD_FASTFLOW;
    node.forms = AS_ASKED;
    pen_loader *loader = open_loader(&o);
    hash_of_epochs(loader, 2);
    assert_int_equal(node.n_of_mask[raw_only], 2 * PICTURES); /* 46: it still looks on */
    hash_of_epochs(loader, 2);
    assert_int_equal(node.n_of_mask[raw_only], 63);
    assert_int_equal(node.n_of_mask[pixels_only], 4 * PICTURES - 63);
    pen_loader_free(loader);
}

static void the_environment_speaks_for_loaders_that_are_not_told(void **state)
{
    (void)state;
    use_parcels(true);
    setenv("PENSTOCK_OFFLOAD", "sophon", 1);
    hash_of_offload(PEN_OFFLOAD_DEFAULT, -1);
    assert_true(node.n_of_mask[plain] >= N_ASKED);
    hash_of_offload(PEN_OFFLOAD_NONE, -1);
    assert_true(node.n_of_mask[raw_only] >= N_ASKED);
    setenv("PENSTOCK_OFFLOAD", "some\n", 1);
    pen_loader *loader;
    pen_error err;
    pen_loader_opts o = options(0);
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), PEN_EINVAL);
    assert_non_null(strstr(err.text, "PENSTOCK_OFFLOAD is 'some"));
    o.offload = PEN_OFFLOAD_COUNT;
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), PEN_EINVAL);
    o.offload = PEN_OFFLOAD_AUTO;
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), 0);
    pen_loader_free(loader);
    use_parcels(false); /* files that are here need no policy */
    o.offload = PEN_OFFLOAD_DEFAULT;
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), 0);
    pen_loader_free(loader);
    unsetenv("PENSTOCK_OFFLOAD");
}

/* 0: files of this machine; 1: nodes that are left no choice; 2: nodes that are. */
static pen_loader *open_by_choice(int choice)
{
    use_parcels(choice > 0);
    pen_loader_opts o = options(1);
    o.offload = choice == 1 ? PEN_OFFLOAD_ALL : PEN_OFFLOAD_AUTO;
    return open_loader(&o);
}

static void the_share_is_a_knob_where_samples_are_weighed(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        pen_loader *loader = open_by_choice(i);
        pen_knob_info info;
        pen_knobs knobs;
        assert_int_equal(pen_loader_knob(loader, PEN_KNOB_OFFLOAD, &info), 0);
        assert_true(info.min == 0 && info.max == (i == 2) && !info.is_integer);
        pen_loader_get_knobs(loader, &knobs);
        assert_true(knobs.value[PEN_KNOB_OFFLOAD] == info.max);
        pen_loader_free(loader);
    }
}

/* What a job waits for is not known before its first samples: who plans what nodes do wants them as
 * files. */
static void who_plans_begins_with_files(void **state)
{
    (void)state;
    static const char *const names[] = {"fixed", "rules", "hillclimb", "model"};
    use_parcels(true);
    for (int i = 0; i < 4; i++) {
        pen_loader_opts o = options(1);
        pen_knobs knobs;
        o.policy = pen_policy_find(names[i]);
        pen_loader *loader = open_loader(&o);
        pen_loader_get_knobs(loader, &knobs);
        assert_true(knobs.value[PEN_KNOB_OFFLOAD] == (i < 3));
        pen_loader_free(loader);
        o.pinned_knobs = 1U << PEN_KNOB_OFFLOAD; /* nobody plans it */
        loader = open_loader(&o);
        pen_loader_get_knobs(loader, &knobs);
        assert_true(knobs.value[PEN_KNOB_OFFLOAD] == 1);
        pen_loader_free(loader);
    }
}

static void bounds_are_knobs_of_auto(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        pen_loader *loader = open_by_choice(i);
        const double widest = i == 0 ? 0 : (double)pipe_->n_image_ops;
        pen_knob_info cut, codec;
        pen_knobs knobs;
        pen_loader_get_knobs(loader, &knobs);
        assert_int_equal(pen_loader_knob(loader, PEN_KNOB_CUT_WIRE, &cut), 0);
        assert_int_equal(pen_loader_knob(loader, PEN_KNOB_CODEC, &codec), 0);
        assert_true(cut.max == widest && cut.min == (i == 1 ? widest : 0) && cut.is_integer);
        assert_true(codec.max == (i == 2 ? PEN_CODEC_PIXELS : 0) && codec.min == 0);
        assert_true(knobs.value[PEN_KNOB_CUT_WIRE] == cut.max);
        assert_true(knobs.value[PEN_KNOB_CODEC] == codec.max);
        pen_loader_free(loader);
    }
}

static void nothing_beyond_the_bounds_is_sent(void **state)
{
    (void)state;
    const uint64_t want = hash_of_files(1);
    for (int cut = 0; cut <= (int)pipe_->n_image_ops; cut++)
        for (int codec = PEN_CODEC_NONE; codec <= PEN_CODEC_PIXELS; codec++) {
            pen_loader_opts o = options(2);
            o.offload = PEN_OFFLOAD_AUTO;
            node.forms = AS_ASKED;
            for (int i = 0; i < PEN__FORM_COUNT; i++)
                node.n_of_form[i] = 0;
            pen_loader *loader = open_loader(&o);
            turn(loader, PEN_KNOB_CUT_WIRE, cut);
            turn(loader, PEN_KNOB_CODEC, codec);
            assert_true(hash_of_epochs(loader, 1) == want);
            pen_loader_free(loader);
            const int n_coded = node.n_of_form[PEN__FORM_PIXELS_CODED];
            assert_true(codec == PEN_CODEC_PIXELS || n_coded == 0);
            assert_true(cut > 0 || node.n_of_form[PEN__FORM_PIXELS] + n_coded == 0);
            assert_true(cut == 0 || n_coded + node.n_of_form[PEN__FORM_PIXELS] > 0);
        }
}

static void policies_have_names(void **state)
{
    (void)state;
    for (int i = 0; i < PEN_OFFLOAD_COUNT; i++)
        assert_int_equal(pen_offload_find(pen_offload_name(i)), i);
    assert_int_equal(pen_offload_find("some"), -1);
    assert_null(pen_offload_name(-1));
    assert_null(pen_offload_name(PEN_OFFLOAD_COUNT));
}

/* An epoch's end, or why there is none. */
static int hash_of_tight_epochs(int64_t budget, int n_epochs, uint64_t *hash)
{
    pen_loader_opts o = options(3);
    o.memory_budget = budget;
    pen_loader *loader = open_loader(&o);
    turn(loader, PEN_KNOB_READ_AHEAD, 6);
    pen_batch *batch;
    int rc = 0;
    for (int n = 0; rc >= 0 && n < n_epochs; n += rc == PEN_END) {
        rc = pen_loader_next(loader, -1, &batch, NULL);
        if (rc == 0) {
            *hash = hash_batch(batch, *hash);
            pen_batch_unref(batch);
        }
    }
    pen_loader_free(loader);
    return rc;
}

/* Hardly enough for one sample: blocks are given up and asked for again, and each time the parcel
 * may be another. */
static void a_tight_budget_changes_nothing(void **state)
{
    (void)state;
    const uint64_t want = hash_of_files(4);
    int n_whole = 0;
    for (int64_t budget = 1600 << 10; budget >= 300 << 10; budget -= 100 << 10) {
        uint64_t hash = 0;
        int rc = hash_of_tight_epochs(budget, 4, &hash);
        assert_true(rc == PEN_EBUDGET || (rc == PEN_END && hash == want));
        n_whole += rc == PEN_END;
    }
    assert_in_range(n_whole, 4, 13);
}

static void what_comes_in_is_counted_as_it_comes(void **state)
{
    (void)state;
    use_parcels(true);
    node.forms = 1 << PEN__FORM_RAW;
    pen_loader_opts o = options(0); /* nothing is under way between calls */
    pen_loader *loader = open_loader(&o);
    hash_of_epochs(loader, 1);
    pen_loader_stats stats;
    pen_loader_get_stats(loader, &stats);
    assert_int_equal(stats.bytes_read, node.n_bytes);
    pen_loader_free(loader);
}

/* ---- faults ------------------------------------------------------------------------------- */

static int code_of_epoch(const pen_loader_opts *o, pen_error *err)
{
    pen_loader *loader = open_loader(o);
    pen_batch *batch;
    int rc;
    while ((rc = pen_loader_next(loader, -1, &batch, err)) == 0)
        pen_batch_unref(batch);
    pen_loader_free(loader);
    return rc;
}

static void a_dead_line_is_an_error_that_names_the_sample(void **state)
{
    (void)state;
    use_parcels(true);
    node.fails_always = true;
    pen_loader_opts o = options(1);
    o.on_error = PEN_ON_ERROR_SKIP; /* data faults only */
    pen_error err;
    assert_int_equal(code_of_epoch(&o, &err), PEN_EIO);
    assert_non_null(strstr(err.text, "the line is dead"));
    assert_non_null(strstr(err.text, "class"));
}

/* A source that has waited for a lost server as long as it may is not asked to do so again for
 * each sample of a batch that is lost already. */
static void a_batch_waits_for_a_dead_line_once(void **state)
{
    (void)state;
    use_parcels(true);
    fetching.is_patient = true;
    node.fails_always = true;
    node.n_failed = 0;
    pen_loader_opts o = options(0); /* nobody begins the next batch meanwhile */
    pen_error err;
    assert_int_equal(code_of_epoch(&o, &err), PEN_EIO);
    assert_int_equal(node.n_failed, 1);
}

static void a_wrong_parcel_is_nothing_to_skip_a_sample_for(void **state)
{
    (void)state;
    use_parcels(true);
    node.flips = true;
    for (int form = 0; form < PEN__FORM_COUNT; form++) {
        node.forms = 1 << form;
        pen_loader_opts o = options(1);
        o.on_error = PEN_ON_ERROR_SKIP;
        pen_error err;
        assert_int_equal(code_of_epoch(&o, &err), PEN_EIO);
        assert_non_null(strstr(err.text, "not what was asked for"));
    }
}

/* Intact as it came, and still not what it says: then the file is asked for. */
static void a_parcel_that_cannot_be_opened_comes_as_a_file(void **state)
{
    (void)state;
    const uint32_t forms[] = {1U << PEN__FORM_JPEG_CUT, 1U << PEN__FORM_PIXELS_CODED,
                              1U << PEN__FORM_ZSTD, 1U << PEN__FORM_LZ4};
    const uint64_t want = hash_of_files(2);
    node.spoils = true;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        for (int workers = 0; workers <= 2; workers += 2) {
            pen_loader_opts o = options(workers);
            node.n_of_form[PEN__FORM_RAW] = 0;
            node.insists = forms[i];
            pen_loader *loader = open_loader(&o);
            turn(loader, PEN_KNOB_READ_AHEAD, workers ? 6 : 0);
            assert_true(hash_of_epochs(loader, 2) == want);
            pen_loader_free(loader);
            assert_true(node.n_of_form[PEN__FORM_RAW] >= PICTURES);
        }
}

/* A file that is bad where it is stored is bad here in the same way. */
static void bad_files_are_replaced_as_if_they_were_here(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/class0/0006.jpg", dir);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fwrite("no picture", 1, 10, file);
    fclose(file);
    uint64_t hashes[2];
    for (int i = 0; i < 2; i++) {
        use_parcels(i);
        pen_loader_opts o = options(2);
        o.on_error = PEN_ON_ERROR_REPLACE;
        pen_loader *loader = open_loader(&o);
        hashes[i] = hash_of_epochs(loader, 2);
        pen_loader_free(loader);
    }
    assert_true(hashes[0] == hashes[1]);
}

/* The file's beginning behind a long remark, in as many bytes: it packs well, and ends too soon. */
static void cut_short_behind_a_remark(const char *path)
{
    enum { REMARK = 1202 };
    uint8_t bytes[1 << 14];
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    const size_t len = fread(bytes, 1, sizeof bytes, file);
    assert_true(len > 2 * REMARK && len < sizeof bytes);
    memmove(bytes + 4 + REMARK, bytes + 2, len - 4 - REMARK);
    memcpy(bytes + 2, (uint8_t[]){0xFF, 0xFE, REMARK >> 8, REMARK & 255}, 4);
    memset(bytes + 6, 0, REMARK - 2);
    rewind(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    fclose(file);
}

static void damaged_files_that_come_packed_are_the_samples_fault(void **state)
{
    (void)state;
    static const int forms[] = {1 << PEN__FORM_RAW, 1 << PEN__FORM_ZSTD, 1 << PEN__FORM_LZ4,
                                1 << PEN__FORM_SNAPPY, -1};
    char path[128];
    snprintf(path, sizeof path, "%s/class0/0006.jpg", dir);
    cut_short_behind_a_remark(path);
    pen_loader_opts o = options(2);
    pen_error err;
    int want = 0;
    use_parcels(false);
    for (o.seed = 0; !pen_error_is_data(want) && o.seed < 50; o.seed += !pen_error_is_data(want))
        want = code_of_epoch(&o, &err); /* until a crop reaches into what is missing */
    assert_true(pen_error_is_data(want));
    use_parcels(true);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        node.forms = forms[i];
        assert_int_equal(code_of_epoch(&o, &err), want);
    }
    assert_true(node.n_of_form[PEN__FORM_ZSTD] > 0 && node.n_of_form[PEN__FORM_LZ4] > 0 &&
                node.n_of_form[PEN__FORM_SNAPPY] > 0);
}

static void closing_does_not_wait_for_a_node_that_hangs(void **state)
{
    (void)state;
    use_parcels(true);
    node.hangs = true;
    for (int ahead = 0; ahead < 4; ahead += 3) {
        pen_loader_opts o = options(2);
        pen_loader *loader = open_loader(&o);
        turn(loader, PEN_KNOB_READ_AHEAD, ahead);
        pen_batch *batch;
        assert_int_equal(pen_loader_next(loader, 20, &batch, NULL), PEN_AGAIN);
        pen_loader_free(loader);
    }
}

/* ---- what is kept from run to run ---- */

/* Below the folder: it goes with it. */
static void keep_in(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    pen__free(ds->cache);
    ds->cache = pen__strdup(path);
}

static int n_known(const pen_loader *loader)
{
    int n = 0;
    for (int64_t i = 0; i < PICTURES; i++)
        n += pen__headers_word(&loader->allow.headers, i) != 0;
    return n;
}

/* Two epochs give `want`; the number of headers that were known before. */
static int run_knowing(pen_loader_opts o, uint64_t want)
{
    pen_loader *loader = open_loader(&o);
    const int n = n_known(loader);
    assert_true(hash_of_epochs(loader, 2) == want);
    assert_int_equal(n_known(loader), PICTURES);
    pen_loader_free(loader);
    return n;
}

static void a_profile_changes_nothing_but_what_is_known(void **state)
{
    (void)state;
    const uint64_t want = hash_of_files(2);
    char path[256];
    pen_loader_opts o = options(2), unkept = options(2);
    keep_in(".cache");
    node.forms = AS_ASKED;
    unkept.use_index = 0;
    assert_int_equal(run_knowing(unkept, want), 0);
    assert_int_equal(run_knowing(o, want), 0);
    assert_int_equal(run_knowing(o, want), PICTURES);
    assert_int_equal(run_knowing(unkept, want), 0);
    snprintf(path, sizeof path, "%s/%s.profile", ds->cache, ds->hash);
    FILE *file = fopen(path, "r+b"); /* damage */
    assert_non_null(file);
    assert_int_equal(fseek(file, 250, SEEK_SET), 0);
    assert_int_equal(fputc(0xA5, file), 0xA5);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(run_knowing(o, want), 0);
    assert_int_equal(run_knowing(o, want), PICTURES); /* and the damage is mended */
}

static void headers_that_the_dataset_has_are_known_at_once(void **state)
{
    (void)state;
    const uint64_t want = hash_of_files(2);
    pen_loader_opts o = options(2);
    const pen_image_info info = {.format = PEN_FORMAT_JPEG,
                                 .width = 90, /* which it may well not be: nothing depends on it */
                                 .height = 60,
                                 .channels = 3,
                                 .bits = 8,
                                 .orientation = 1,
                                 .sampling_h = 1,
                                 .sampling_v = 1};
    o.use_index = 0;
    ds->headers = pen__calloc(PICTURES, sizeof *ds->headers);
    ds->headers[3] = ds->headers[5] = pen__headers_pack(&info);
    ds->headers[4] = 1; /* nonsense */
    assert_int_equal(run_knowing(o, want), 2);
}

static void a_disk_that_takes_nothing_is_a_warning(void **state)
{
    (void)state;
    const uint64_t want = hash_of_files(2);
    char text[256];
    pen_loader_opts o = options(0);
    keep_in("class0/0000.jpg/cache"); /* no directory */
    pen_loader *loader = open_loader(&o);
    assert_int_equal(pen_loader_warning(loader, text, sizeof text), 0);
    assert_true(hash_of_epochs(loader, 2) == want);
    const int64_t len = pen_loader_warning(loader, text, sizeof text);
    assert_int_equal(len, strlen(text));
    assert_non_null(strstr(text, "0000.jpg/cache"));
    assert_int_equal(pen_loader_warning(loader, text, sizeof text), 0);
    pen_loader_free(loader);
}

static void failed_allocations_end_in_an_error_or_the_same_stream(void **state)
{
    (void)state;
    const uint64_t want = hash_of_files(1);
    const int64_t live = pen__mem_live();
    for (int n = 1; n < 120; n++) {
        pen_loader_opts o = options(0);
        pen_loader *loader = NULL;
        pen_batch *batch;
        uint64_t hash = 0;
        pen__packer_free(node.packer); /* so that it is at the same point each time */
        assert_int_equal(pen__packer_create(&node.packer, NULL), 0);
        node.dice = 0;
        pen__mem_fail_at(n);
        int rc = pen_loader_create(&loader, ds, pipe_, &o, NULL);
        while (rc == 0 && (rc = pen_loader_next(loader, -1, &batch, NULL)) == 0) {
            hash = hash_batch(batch, hash);
            pen_batch_unref(batch);
        }
        pen__mem_fail_at(0);
        assert_true(rc == PEN_ENOMEM || (rc == PEN_END && hash == want));
        pen_loader_free(loader);
    }
    pen__packer_free(node.packer);
    assert_int_equal(pen__packer_create(&node.packer, NULL), 0);
    assert_in_range(pen__mem_live(), live - 4, live);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_stream_is_that_of_files),
        TEST(knobs_turned_on_the_way_change_nothing),
        TEST(no_policy_changes_the_stream),
        TEST(each_policy_asks_for_what_it_is_called),
        TEST(a_share_of_nothing_brings_files),
        TEST(all_or_nothing_is_decided_by_the_first_samples),
        TEST(the_environment_speaks_for_loaders_that_are_not_told),
        TEST(the_share_is_a_knob_where_samples_are_weighed),
        TEST(who_plans_begins_with_files),
        TEST(bounds_are_knobs_of_auto),
        TEST(nothing_beyond_the_bounds_is_sent),
        TEST(policies_have_names),
        TEST(a_tight_budget_changes_nothing),
        TEST(what_comes_in_is_counted_as_it_comes),
        TEST(a_dead_line_is_an_error_that_names_the_sample),
        TEST(a_wrong_parcel_is_nothing_to_skip_a_sample_for),
        TEST(a_parcel_that_cannot_be_opened_comes_as_a_file),
        TEST(bad_files_are_replaced_as_if_they_were_here),
        TEST(a_batch_waits_for_a_dead_line_once),
        TEST(damaged_files_that_come_packed_are_the_samples_fault),
        TEST(closing_does_not_wait_for_a_node_that_hangs),
        TEST(a_profile_changes_nothing_but_what_is_known),
        TEST(headers_that_the_dataset_has_are_known_at_once),
        TEST(a_disk_that_takes_nothing_is_a_warning),
        TEST(failed_allocations_end_in_an_error_or_the_same_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
