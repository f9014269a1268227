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

struct comm_block comm_block(size_t count, int size, int rank)
{
    size_t n = (size_t)size, r = (size_t)rank, each = count / n, longer = count % n;
    size_t begin = each * r + (r < longer ? r : longer);
    return (struct comm_block){begin, begin + each + (r < longer)};
}

size_t comm_blocks(size_t count, int size, int first, int n)
{
    const size_t from = comm_block(count, size, first).begin;
    if (first + n <= size)
        return comm_block(count, size, first + n).begin - from;
    return count - from + comm_block(count, size, first + n - size).begin;
}
