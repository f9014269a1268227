/* Which known name a mistyped one is likely to mean. */
#include <string.h>

#include "base/option/option.h"

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, replacements and swaps of neighbours that make b of a. Words longer than
 * the rows are cut, which is far beyond any name. */
static int edits(const char *a, const char *b)
{
    enum { ROOM = 48 };
    int rows[3][ROOM + 1]; /* of i - 2, i - 1 and i characters of a, taken in turns */
    const int m = (int)strnlen(a, ROOM), n = (int)strnlen(b, ROOM);
    for (int j = 0; j <= n; j++)
        rows[0][j] = j;
    for (int i = 1; i <= m; i++) {
        int *now = rows[i % 3];
        const int *last = rows[(i - 1) % 3];
        now[0] = i;
        for (int j = 1; j <= n; j++) {
            now[j] =
                smaller(last[j - 1] + (a[i - 1] != b[j - 1]), smaller(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = smaller(now[j], rows[(i - 2) % 3][j - 2] + 1);
        }
    }
    return rows[m % 3][n];
}

int option_distance(const char *word, const char *name)
{
    const size_t length = strlen(word);
    const int d = edits(word, name), near = length == 2 ? 1 : (int)(length / 3);
    if (d <= near)
        return d;
    /* The beginning of a name is near too, but less than any slip of the fingers. */
    return length >= 3 && strncmp(word, name, length) == 0 ? OPTION_FAR - 1 : OPTION_FAR;
}

const char *option_closest(const char *word, const char *const *names)
{
    const char *best = NULL;
    int nearest = OPTION_FAR;
    for (int i = 0; names[i]; i++) {
        int d = option_distance(word, names[i]);
        if (d < nearest) {
            nearest = d;
            best = names[i];
        }
    }
    return best;
}
