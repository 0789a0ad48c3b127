/* rapl.c - package energy from /sys/class/powercap/intel-rapl:N (Intel and AMD).
 *
 * Zones with one number are packages, or the whole platform ("psys"), which contains
 * them; zones with two are parts of a package.  intel-rapl-mmio shows the same packages
 * a second time.  So: "intel-rapl:N" with a name that begins with "package".
 * Since 5.10 only root may read energy_uj.
 */
#include "telemetry/rapl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "telemetry/procfs.h"

/* One file's text, once; `buffer` of PEN__WATCH_CAP bytes. */
static int read_once(const char *root, const char *dir, const char *name, char *buffer,
                     pen__scan *text)
{
    pen__watch file;
    int rc = pen__watch_init(&file, root, dir, name);
    *text = rc == 0 ? pen__watch_read(&file, buffer) : pen__scan_text(buffer, 0);
    pen__watch_fini(&file);
    return rc;
}

static int add_zone(pen__rapl *rapl, const char *root, const char *dir, char *buffer)
{
    pen__scan text;
    int rc = read_once(root, dir, "name", buffer, &text);
    if (rc || !pen__scan_starts(text, "package"))
        return rc;
    rc = read_once(root, dir, "max_energy_range_uj", buffer, &text);
    double range_uj = pen__parse_number(text);
    pen__watch *energy = &rapl->zones[rapl->n_zones].energy;
    if (rc || (rc = pen__watch_init(energy, root, dir, "energy_uj")))
        return rc;
    rapl->zones[rapl->n_zones].range_uj = range_uj;
    rapl->zones[rapl->n_zones].last_uj = NAN;
    rapl->n_zones++;
    return 0;
}

int pen__rapl_init(pen__rapl *rapl, const char *root)
{
    memset(rapl, 0, sizeof *rapl);
    char *buffer = pen__malloc(PEN__WATCH_CAP);
    int rc = buffer ? 0 : PEN_ENOMEM;
    for (int i = 0; i < PEN__RAPL_ZONES && rc == 0; i++) {
        char dir[64];
        snprintf(dir, sizeof dir, "/sys/class/powercap/intel-rapl:%d", i);
        rc = add_zone(rapl, root, dir, buffer);
    }
    pen__free(buffer);
    return rc;
}

void pen__rapl_fini(pen__rapl *rapl)
{
    for (int i = 0; i < rapl->n_zones; i++)
        pen__watch_fini(&rapl->zones[i].energy);
}

/* What was used since the last reading, 0 at the first; NaN if nobody can tell. */
static double step(double last_uj, double now_uj, double range_uj)
{
    if (isnan(last_uj) && !isnan(now_uj))
        return 0;
    double used = now_uj - last_uj;
    return used < 0 && range_uj >= last_uj ? used + range_uj : used < 0 ? NAN : used;
}

/* A package that cannot be read keeps its last value, so that nothing is lost when it
 * comes back. */
double pen__rapl_read(pen__rapl *rapl, char *buffer)
{
    bool is_known = rapl->n_zones > 0;
    for (int i = 0; i < rapl->n_zones; i++) {
        double now_uj = pen__parse_number(pen__watch_read(&rapl->zones[i].energy, buffer));
        double used = step(rapl->zones[i].last_uj, now_uj, rapl->zones[i].range_uj);
        if (!isnan(now_uj))
            rapl->zones[i].last_uj = now_uj;
        if (isnan(used))
            is_known = false;
        else
            rapl->total_uj += used;
    }
    return is_known ? rapl->total_uj * 1e-6 : NAN;
}
