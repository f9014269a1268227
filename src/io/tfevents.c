/* TFRecord framing and the few protobuf fields of an Event, encoded by hand. */
#include "io/tfevents.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* protobuf wire types */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* Bytes of a record around the payload: length (8) and CRC of the length (4); CRC of the payload
 * (4). */
enum { FRAME_HEAD = 12, FRAME_TAIL = 4 };

/* Upper limits: an Event without the bytes of the summary, a Value without the bytes of the tag. */
enum { EVENT_ROOM = 64, VALUE_ROOM = 32 };

uint32_t crc32c(const void *data, size_t size)
{
    const uint8_t *p = data;
    uint32_t crc = 0xffffffffu;
    while (size--) {
        crc ^= *p++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0); /* the reflected polynomial */
    }
    return ~crc;
}

uint32_t crc32c_masked(const void *data, size_t size)
{
    uint32_t crc = crc32c(data, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static uint8_t *put_fixed(uint8_t *p, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *p++ = (uint8_t)(value >> (8 * i));
    return p;
}

static uint8_t *put_varint(uint8_t *p, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        *p++ = (uint8_t)(value | 128);
    *p++ = (uint8_t)value;
    return p;
}

static uint8_t *put_field_key(uint8_t *p, int field, int wire)
{
    return put_varint(p, (uint64_t)(field << 3 | wire));
}

static uint8_t *put_bytes(uint8_t *p, int field, const void *data, size_t size)
{
    p = put_varint(put_field_key(p, field, BYTES), size);
    if (size)
        memcpy(p, data, size);
    return p + size;
}

static uint8_t *put_event_head(uint8_t *p, double wall_time, int64_t step)
{
    uint64_t bits;
    memcpy(&bits, &wall_time, 8);
    p = put_fixed(put_field_key(p, 1, FIXED64), bits, 8);
    return put_varint(put_field_key(p, 2, VARINT), (uint64_t)step);
}

static enum sotto_status reserve_bytes(uint8_t **buffer, size_t *room, size_t need)
{
    if (need <= *room)
        return SOTTO_OK;
    uint8_t *more = realloc(*buffer, 2 * need);
    if (!more)
        return fail(SOTTO_ENOMEM, "no memory for %zu bytes of events", 2 * need);
    *buffer = more;
    *room = 2 * need;
    return SOTTO_OK;
}

/* Frames the payload, which ends at `end` and begins FRAME_HEAD bytes into t->record, and writes
 * it. A record of which only a part found room is taken back. */
static enum sotto_status write_tf_record(struct tfevents *t, uint8_t *end)
{
    uint8_t *payload = t->record + FRAME_HEAD;
    size_t length = (size_t)(end - payload);
    put_fixed(t->record, length, 8);
    put_fixed(t->record + 8, crc32c_masked(t->record, 8), 4);
    end = put_fixed(end, crc32c_masked(payload, length), 4);
    return file_append(t->file, t->path, t->record, (size_t)(end - t->record));
}

static enum sotto_status write_first_events(struct tfevents *t, double wall_time,
                                            int64_t first_step)
{
    static const char version[] = "brain.Event:2";
    TRY(reserve_bytes(&t->record, &t->record_room, FRAME_HEAD + EVENT_ROOM + FRAME_TAIL));
    uint8_t *p = put_event_head(t->record + FRAME_HEAD, wall_time, 0);
    TRY(write_tf_record(t, put_bytes(p, 3, version, sizeof version - 1)));
    uint8_t start[2], *q = put_varint(put_field_key(start, 1, VARINT), 1);
    p = put_event_head(t->record + FRAME_HEAD, wall_time, first_step);
    return write_tf_record(t, put_bytes(p, 7, start, (size_t)(q - start)));
}

enum sotto_status tfevents_open(struct tfevents *t, const char *folder, double wall_time,
                                int64_t first_step)
{
    *t = (struct tfevents){.file = -1};
    char name[256], host[64] = "host";
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%ld", (long long)wall_time, host,
             (long)getpid());
    TRY(file_join(t->path, folder, name));
    TRY(file_open(&t->file, t->path, O_WRONLY | O_CREAT | O_APPEND));
    enum sotto_status st = write_first_events(t, wall_time, first_step);
    if (st != SOTTO_OK)
        tfevents_close(t);
    return st;
}

void tfevents_close(struct tfevents *t)
{
    if (t->file >= 0)
        close(t->file);
    free(t->summary);
    free(t->record);
    *t = (struct tfevents){.file = -1};
}

void tfevents_put(struct tfevents *t, const char *tag, float value)
{
    size_t length = strlen(tag);
    if (reserve_bytes(&t->summary, &t->summary_room, t->summary_used + length + 2 * VALUE_ROOM) !=
        SOTTO_OK) {
        t->no_memory = true;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint8_t head[VALUE_ROOM], *h = put_varint(put_field_key(head, 1, BYTES), length);
    uint8_t *p = t->summary + t->summary_used;
    p = put_varint(put_field_key(p, 1, BYTES), (size_t)(h - head) + length + 5);
    p = put_bytes(p, 1, tag, length);
    p = put_fixed(put_field_key(p, 2, FIXED32), bits, 4);
    t->summary_used = (size_t)(p - t->summary);
}

enum sotto_status tfevents_write(struct tfevents *t, double wall_time, int64_t step)
{
    size_t used = t->summary_used;
    bool lost = t->no_memory;
    t->summary_used = 0;
    t->no_memory = false;
    if (lost)
        return fail(SOTTO_ENOMEM, "no memory for the events of step %lld", (long long)step);
    TRY(reserve_bytes(&t->record, &t->record_room, FRAME_HEAD + EVENT_ROOM + used + FRAME_TAIL));
    uint8_t *p = put_event_head(t->record + FRAME_HEAD, wall_time, step);
    return write_tf_record(t, put_bytes(p, 5, t->summary, used));
}
