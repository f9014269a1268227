#include <stdio.h>

#include <sotto/sotto.h>

int main(int argc, char **argv)
{
    enum sotto_status st = sotto_command(argc - 1, (const char *const *)argv + 1);
    if (fflush(stdout) != 0 && st == SOTTO_OK) {
        fprintf(stderr, "sotto: cannot write to standard output\n");
        return 1;
    }
    if (st == SOTTO_OK)
        return 0;
    fprintf(stderr, "sotto: %s\n", sotto_error());
    return st == SOTTO_ESTOPPED ? 130 : 1;
}
