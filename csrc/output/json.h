/* Appends JSON text to one reused buffer and hands it on in chunks of about 1 MiB. A sink
 * that fails is not called again: the writer keeps its status and swallows the rest, so
 * that callers check once, at the end. */
#ifndef MP_OUTPUT_JSON_H
#define MP_OUTPUT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"
#include "base/status.h"

/* Takes `count` bytes; anything but MP_OK ends the writing. The bytes are reused after. */
typedef mp_status (*mp_json_sink)(void *context, const char *bytes, size_t count);

typedef struct mp_json {
    char *next;
    char *end; /* of the part that leaves room for MP_JSON_SLACK more bytes */
    char *buffer;
    mp_json_sink sink;
    void *context;
    mp_status status;
    uint64_t written;
} mp_json;

/* Every append of a number or literal below this size needs one check of room. */
#define MP_JSON_SLACK 4096

mp_status mp_json_open(mp_json *json, mp_json_sink sink, void *context);

/* Flushes and frees; returns the first failure. */
mp_status mp_json_close(mp_json *json);

/* Hands the buffer to the sink. */
void mp_json_flush(mp_json *json);

/* Any length. */
void mp_json_bytes(mp_json *json, const char *bytes, size_t count);

void mp_json_u64(mp_json *json, uint64_t value);
void mp_json_i64(mp_json *json, int64_t value);

/* Nanoseconds as microseconds with three decimals; negative ones become 0.000. */
void mp_json_us(mp_json *json, int64_t ns);

/* Bytes of `text` as the inside of a JSON string: quotes, backslashes and control
 * characters escaped, UTF-8 as it is, bytes that are no UTF-8 as U+FFFD. Writes at most
 * MP_JSON_ESCAPE_FACTOR bytes per byte to `out`; returns how many. */
#define MP_JSON_ESCAPE_FACTOR 6
size_t mp_json_escape(char *out, const char *text, size_t length);

/* Bytes that may be read behind a text given to mp_json_padded(). */
#define MP_JSON_PADDING 32

MP_INLINE void
mp_json_reserve(mp_json *json)
{
    if (MP_UNLIKELY(json->next >= json->end)) {
        mp_json_flush(json);
    }
}

/* As mp_json_bytes, for texts with MP_JSON_PADDING bytes behind them: short ones are copied
 * in whole blocks, without a call. */
MP_INLINE void
mp_json_padded(mp_json *json, const char *bytes, size_t count)
{
    mp_json_reserve(json);
    if (MP_UNLIKELY(count > MP_JSON_SLACK / 2)) {
        mp_json_bytes(json, bytes, count);
        return;
    }
    for (size_t i = 0; i < count; i += MP_JSON_PADDING) {
        memcpy(json->next + i, bytes + i, MP_JSON_PADDING);
    }
    json->next += count;
}

/* A string literal shorter than MP_JSON_SLACK. */
#define mp_json_literal(json, literal)                                                     \
    do {                                                                                   \
        mp_json_reserve(json);                                                             \
        memcpy((json)->next, literal, sizeof(literal) - 1);                                \
        (json)->next += sizeof(literal) - 1;                                               \
    } while (0)

#endif
