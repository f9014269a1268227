/* A cpu device for each test; the memory account must be empty again after the test. */
#ifndef SOTTO_TESTS_TENSOR_ON_CPU_H
#define SOTTO_TESTS_TENSOR_ON_CPU_H

#include "base/scratch.h"

#include "tensor/ops.h"

static struct memory memory;
static struct device dev;

static int open_device(void **state)
{
    (void)state;
    memset(&memory, 0, sizeof memory);
    return device_open(&dev, "cpu", &memory, 1) == SOTTO_OK ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    device_close(&dev);
    return memory.total == 0 ? 0 : -1; /* all memory was returned */
}

#define TEST_ON_CPU(f) cmocka_unit_test_setup_teardown(f, open_device, close_device)

#endif
