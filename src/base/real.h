/* Numbers as people write them. */
#ifndef SOTTO_BASE_REAL_H
#define SOTTO_BASE_REAL_H

enum { REAL_ROOM = 32 };

/* The shortest text of at least six digits' precision that reads back to the same bits. */
void real_print(char out[REAL_ROOM], double value);

#endif
