/* The tables of keys in files.md. */
#include "reference.h"
#include "train/report/keys.h"

static const char *const units[] = {
    [UNIT_TEXT] = "text",   [UNIT_PLAIN] = "number", [UNIT_SECONDS] = "s",
    [UNIT_BYTES] = "bytes", [UNIT_SHARE] = "share",
};

static void write_keys(const struct result_key *keys, FILE *out)
{
    fputs("| Key | Unit | Meaning | Runs |\n|---|---|---|---|\n", out);
    for (; keys->name; keys++)
        fprintf(out, "| `%s` | %s | %s | %s |\n", keys->name, units[keys->unit], keys->about,
                keys->only ? keys->only : "all");
}

void write_report_keys(FILE *out)
{
    write_keys(report_keys, out);
}

void write_metric_keys(FILE *out)
{
    write_keys(metric_keys, out);
}
