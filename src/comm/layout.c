#include "comm/layout.h"

#include <stdbool.h>

struct layout layout_of(const int *node, int size)
{
    int each = 1;
    while (each < size && node[each] == node[0])
        each++;
    bool even = size % each == 0;
    for (int r = 1; r < size && even; r++)
        even = r % each ? node[r] == node[r - 1] : node[r] > node[r - 1];
    return even ? (struct layout){size / each, each} : (struct layout){1, size};
}
