#include "base/real.h"

#include <stdio.h>
#include <stdlib.h>

void real_print(char out[REAL_ROOM], double value)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, REAL_ROOM, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            break;
    }
}
