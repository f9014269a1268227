/* The timeline as a figure: a row for each device, a cell for each task in the colour of its
 * version, messages as lines from row to row, and the activations of all devices below. */
#include "cli/schedule.h"

#include "base/file.h"
#include "strategy/cdp/schedule/count.h"

enum { CELL = 30, ROW = 40, LEFT = 150, TOP = 60, BARS = 90 };

static const char *const version_colors[] = {"#9ecae9", "#f6c37b", "#a5d6a0", "#d7b5d8"};

static const char *const message_colors[] = {
    [CDP_ACTIVATION] = "#777777", [CDP_ACTIVATION_GRADIENT] = "#777777",
    [CDP_SUM] = "#c0392b",        [CDP_PARAMETERS] = "#1f4e9c",
    [CDP_STATE] = "#2e7d32",
};

static int time_x(int64_t time)
{
    return LEFT + (int)time * CELL;
}

static int row_y(int row)
{
    return TOP + row * ROW;
}

static void draw_text(FILE *out, int x, int y, const char *anchor, const char *text)
{
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, text);
}

static void draw_row(FILE *out, const struct cdp_schedule *s, int row)
{
    char text[32];
    struct cdp_task task;
    schedule_label(s, row, text);
    draw_text(out, LEFT - 8, row_y(row) + 18, "end", text);
    for (int64_t time = 0; time < schedule_times(s); time++) {
        if (!schedule_task(s, row, time, &task))
            continue;
        fprintf(out,
                "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"26\" fill=\"%s\" "
                "stroke=\"#444\" stroke-width=\"%d\"/>\n",
                time_x(time) + 1, row_y(row), CELL - 2, version_colors[task.version % 4],
                task.backward ? 2 : 1);
        snprintf(text, sizeof text, "%c%d", task.backward ? 'B' : 'F', schedule_number(s, &task));
        draw_text(out, time_x(time) + CELL / 2, row_y(row) + 18, "middle", text);
    }
}

/* Draws messages, from the end of time step `after` to the beginning of time step `before`. */
static void draw_messages(FILE *out, const struct cdp_schedule *s, int device)
{
    struct cdp_act act[CDP_ACTS(SCHEDULE_MOST)];
    for (int64_t time = 0; time < schedule_times(s); time++) {
        const int n = cdp_acts(s, device, time, act);
        for (int k = 0; k < n; k++) {
            const struct cdp_move *m = &act[k].move;
            if (act[k].what != CDP_SEND || m->before > schedule_times(s))
                continue;
            fprintf(out,
                    "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" "
                    "marker-end=\"url(#head)\"/>\n",
                    time_x(m->after + 1) - 3, row_y(m->from) + (m->to > m->from ? 26 : 0),
                    time_x(m->before) + 2, row_y(m->to) + (m->to > m->from ? 0 : 26),
                    message_colors[m->what]);
        }
    }
}

static void draw_activations(FILE *out, const struct cdp_schedule *s)
{
    const int rows = schedule_rows(s), foot = row_y(rows) + BARS, most = s->n * s->n;
    char text[64];
    draw_text(out, LEFT - 8, foot - BARS / 2, "end", "stage activations");
    for (int64_t time = 0; time < schedule_times(s); time++) {
        const int n = cdp_activations(s, -1, time), height = n * (BARS - 24) / most;
        fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#bbb\"/>\n",
                time_x(time) + 3, foot - height, CELL - 6, height);
        snprintf(text, sizeof text, "%d", n);
        draw_text(out, time_x(time) + CELL / 2, foot - height - 3, "middle", text);
        snprintf(text, sizeof text, "%d", (int)time);
        draw_text(out, time_x(time) + CELL / 2, TOP - 10, "middle", text);
    }
    draw_text(out, LEFT - 8, TOP - 10, "end", "time step");
}

static void draw_key(FILE *out, const struct cdp_schedule *s, int y)
{
    static const char *const words[] = {
        "activations", "", "sums of gradients", "parameters", "state of a stage",
    };
    bool used[CDP_STATE + 1] = {0};
    struct cdp_act act[CDP_ACTS(SCHEDULE_MOST)];
    char text[64];
    int x = LEFT;
    const int versions = s->rule == CDP_V2 && s->n > 1 ? 3 : 2; /* in two training steps */
    for (int v = 0; v < versions; v++, x += 110) {
        fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" fill=\"%s\"/>\n", x,
                y - 12, version_colors[v]);
        snprintf(text, sizeof text, "with theta_%d", v);
        draw_text(out, x + 20, y, "start", text);
    }
    for (int d = 0; d < cdp_devices(s); d++)
        for (int64_t time = 0; time < schedule_times(s); time++)
            for (int n = cdp_acts(s, d, time, act); n-- > 0;)
                if (act[n].what == CDP_SEND)
                    used[act[n].move.what] = true;
    for (int k = 0; k <= CDP_STATE; k++) {
        if (!used[k] || k == CDP_ACTIVATION_GRADIENT)
            continue;
        fprintf(out, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\"/>\n", x, y - 5,
                x + 20, y - 5, message_colors[k]);
        draw_text(out, x + 26, y, "start", words[k]);
        x += 160;
    }
}

enum sotto_status schedule_svg(const struct cdp_schedule *s, enum schedule_kind kind,
                               const char *path)
{
    struct file_draft draft;
    const int rows = schedule_rows(s), width = time_x(schedule_times(s)) + 20;
    const int height = row_y(rows) + BARS + 40;
    TRY(file_draft_open(&draft, path));
    FILE *out = draft.stream;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<defs><marker id=\"head\" markerWidth=\"6\" markerHeight=\"6\" refX=\"5\" refY=\"3\" "
            "orient=\"auto\"><path d=\"M0,0 L6,3 L0,6 z\" fill=\"#444\"/></marker></defs>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            width < 760 ? 760 : width, height);
    fprintf(out, "<text x=\"%d\" y=\"22\" font-size=\"15\">%s, placement %s, %d stages</text>\n",
            LEFT, schedule_names[kind], cdp_placement_names[s->placement], s->n);
    for (int row = 0; row < rows; row++)
        draw_row(out, s, row);
    for (int d = 0; d < cdp_devices(s); d++)
        draw_messages(out, s, d);
    draw_activations(out, s);
    draw_key(out, s, height - 12);
    fprintf(out, "</svg>\n");
    return file_commit(&draft);
}
