/* TensorBoard event files: TFRecord framing (length, masked CRC-32C, payload, masked CRC-32C)
 * around protobuf messages Event, of which we need
 *
 *     Event       wall_time = 1 (double), step = 2 (int64), file_version = 3 (string),
 *                 summary = 5 (Summary), session_log = 7 (SessionLog)
 *     Summary     value = 1 (repeated Value)
 *     Value       tag = 1 (string), simple_value = 2 (float)
 *     SessionLog  status = 1 (enum; 1 = START: readers drop what they have of this step and later)
 */
#ifndef SOTTO_IO_TFEVENTS_H
#define SOTTO_IO_TFEVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

/* Return the CRC-32C (Castagnoli) of `size` bytes; masked: in TFRecord's form. */
uint32_t crc32c(const void *data, size_t size);
uint32_t crc32c_masked(const void *data, size_t size);

struct tfevents {
    int file; /* -1: closed */
    char path[FILE_PATH_ROOM];
    uint8_t *summary; /* values of the current event */
    size_t summary_used, summary_room;
    uint8_t *record;
    size_t record_room;
    bool no_memory; /* no memory for a value of this event */
};

/* Creates folder/events.out.tfevents.<time>.<host>.<pid>, with a record that later steps start at
 * `first_step`. `wall_time` is in seconds since 1970. */
enum sotto_status tfevents_open(struct tfevents *t, const char *folder, double wall_time,
                                int64_t first_step);
void tfevents_close(struct tfevents *t);

/* Adds a value to the current event; tfevents_write writes the event and starts the next. */
void tfevents_put(struct tfevents *t, const char *tag, float value);
enum sotto_status tfevents_write(struct tfevents *t, double wall_time, int64_t step);

#endif
