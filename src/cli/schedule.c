#include "cli/schedule.h"

#include <stdio.h>

#include "strategy/cdp/schedule/count.h"

const char *const schedule_names[] = {"none", "cdp-v2", "cdp-v1", "dp", "1f1b", NULL};
const char *const schedule_placements[] = {"auto", "dp", "single", "pp", "mp", "zero", NULL};

enum sotto_status schedule_make(enum schedule_kind kind, int placement, int stages,
                                struct cdp_schedule *out)
{
    static const enum cdp_rule rules[] = {[SCHEDULE_NONE] = CDP_SYNC,
                                          [SCHEDULE_V2] = CDP_V2,
                                          [SCHEDULE_V1] = CDP_V1,
                                          [SCHEDULE_DP] = CDP_SYNC,
                                          [SCHEDULE_1F1B] = CDP_SYNC};
    *out = (struct cdp_schedule){.rule = rules[kind], .n = stages, .steps = -1};
    if (stages > SCHEDULE_MOST)
        return fail(SOTTO_EINVAL, "a schedule of %d stages cannot be drawn: %d at most", stages,
                    SCHEDULE_MOST);
    if (placement)
        out->placement = (enum cdp_placement)(placement - 1); /* after `auto` */
    else
        out->placement = kind == SCHEDULE_1F1B ? CDP_PP : CDP_DP;
    if (kind == SCHEDULE_1F1B && out->placement != CDP_PP)
        return fail(SOTTO_EINVAL, "1f1b is a pipeline: --placement=pp, not %s",
                    schedule_placements[placement]);
    if (kind == SCHEDULE_DP && out->placement == CDP_PP)
        return fail(SOTTO_EINVAL, "the schedule of --placement=pp without cycles is 1f1b");
    return cdp_check(out);
}

int schedule_rows(const struct cdp_schedule *s)
{
    return s->placement == CDP_SINGLE ? s->n : cdp_devices(s);
}

bool schedule_task(const struct cdp_schedule *s, int row, int64_t time, struct cdp_task *out)
{
    if (s->placement == CDP_SINGLE)
        return cdp_micro_task(s, row, time, out);
    return cdp_tasks(s, row, time, out) > 0;
}

int64_t schedule_times(const struct cdp_schedule *s)
{
    return cdp_end(s, 1);
}

static bool row_is_stage(const struct cdp_schedule *s)
{
    return s->placement == CDP_PP || s->placement == CDP_MP;
}

static int device_stage(const struct cdp_schedule *s, int device)
{
    int stage = 0;
    for (; s->placement == CDP_MP && device >= s->n - stage; stage++)
        device -= s->n - stage;
    return s->placement == CDP_MP ? stage : device;
}

void schedule_label(const struct cdp_schedule *s, int row, char out[32])
{
    if (s->placement == CDP_SINGLE)
        snprintf(out, 32, "micro-batch %d", row + 1);
    else if (row_is_stage(s))
        snprintf(out, 32, "worker %d stage %d", row, device_stage(s, row) + 1);
    else
        snprintf(out, 32, "worker %d", row);
}

int schedule_number(const struct cdp_schedule *s, const struct cdp_task *task)
{
    return 1 + (row_is_stage(s) ? task->micro : task->stage);
}

int schedule_update(const struct cdp_schedule *s, int64_t time)
{
    int out = 0;
    for (int j = 0; j < s->n; j++)
        for (int64_t step = 0; step < 2; step++)
            if (cdp_update_time(s, step, j) == time)
                out = out ? -1 : j + 1;
    return out;
}

/* Prints a row of numbers under the time steps; no number for 0. */
static void print_row(const struct cdp_schedule *s, const char *label, int width,
                      int (*value)(const struct cdp_schedule *, int64_t))
{
    printf("%-18s", label);
    for (int64_t time = 0; time < schedule_times(s); time++) {
        const int v = value(s, time);
        if (v > 0)
            printf("%*d", width, v);
        else
            printf("%*s", width, v < 0 ? "*" : "");
    }
    printf("\n");
}

static int count_activations(const struct cdp_schedule *s, int64_t time)
{
    return cdp_activations(s, -1, time);
}

static int count_messages(const struct cdp_schedule *s, int64_t time)
{
    struct cdp_act act[CDP_ACTS(SCHEDULE_MOST)];
    int sent = 0;
    for (int d = 0; d < cdp_devices(s); d++) {
        const int n = cdp_acts(s, d, time, act);
        for (int k = 0; k < n; k++)
            sent += act[k].what == CDP_SEND;
    }
    return sent;
}

static void print_tasks(const struct cdp_schedule *s, int row, int width)
{
    struct cdp_task task;
    char cell[16], label[32];
    schedule_label(s, row, label);
    printf("%-18s", label);
    for (int64_t time = 0; time < schedule_times(s); time++) {
        const bool busy = schedule_task(s, row, time, &task);
        snprintf(cell, sizeof cell, "%c%d", busy && task.backward ? 'B' : 'F',
                 busy ? schedule_number(s, &task) : 0);
        printf("%*s", width, busy ? cell : ".");
    }
    printf("\n%-18s", "  version");
    for (int64_t time = 0; time < schedule_times(s); time++) {
        if (schedule_task(s, row, time, &task))
            printf("%*d", width, (int)task.version);
        else
            printf("%*s", width, "");
    }
    printf("\n");
}

static void print_count(const struct cdp_schedule *s)
{
    struct cdp_act scratch[CDP_ACTS(SCHEDULE_MOST)];
    struct cdp_count c;
    cdp_count(s, scratch, &c);
    const double n = s->n;
    printf(
        "\nin a training step, when the pipeline is full (model: its parameters, all stages):\n");
    printf("  %-41s %8d\n", "devices", c.devices);
    printf("  %-41s %8.3f micro-batches\n", "activations of a device, at most", c.activations / n);
    printf("  %-41s %8.3f micro-batches\n", "activations of all devices, at most", c.all / n);
    printf("  %-41s %8.3f models\n", "parameters of a device, at most", c.versions / n);
    printf("  %-41s %8.3f models\n", "optimizer state of a device, at most", c.states / n);
    printf("  %-41s %8.3f models\n", "sums of gradients sent", (double)c.sum / n);
    printf("  %-41s %8.3f models\n", "parameters sent", (double)c.parameters / n);
    printf("  %-41s %8.3f models\n", "optimizer state sent", (double)c.optimizer / n);
    printf("  %-41s %8d\n", "activations sent between stages", (int)c.activation);
    printf("  %-41s %8d\n", "their gradients", (int)c.gradient);
    printf("  %-41s %8d\n", "messages a device sends at once, at most", c.most);
    printf("  %-41s %8d\n", "consecutive messages, at most", c.hops);
}

enum sotto_status schedule_print(const struct cdp_schedule *s, enum schedule_kind kind)
{
    const int width = s->n * s->n > 99 ? 5 : s->n > 9 ? 4 : 3;
    const char *what = row_is_stage(s) ? "micro-batch" : "stage";
    printf("%s, placement %s: %d stages, %d micro-batches a training step; two training steps\n",
           schedule_names[kind], cdp_placement_names[s->placement], s->n, s->n);
    printf("F1: forward of %s 1, B1: its backward; version t: theta_t\n\n%-18s", what, "time step");
    for (int64_t time = 0; time < schedule_times(s); time++)
        printf("%*d", width, (int)time);
    printf("\n");
    for (int row = 0; row < schedule_rows(s); row++)
        print_tasks(s, row, width);
    printf("\n");
    print_row(s, "updated stage", width, schedule_update);
    print_row(s, "messages", width, count_messages);
    print_row(s, "stage activations", width, count_activations);
    printf("updates are after their time step (*: of several stages), messages before it\n");
    print_count(s);
    return SOTTO_OK;
}
