#include "output/json.h"

#include <stdlib.h>

enum { BUFFER_BYTES = 1 << 20 };

static const char s_two_digits[] = "00010203040506070809101112131415161718192021222324"
                                   "25262728293031323334353637383940414243444546474849"
                                   "50515253545556575859606162636465666768697071727374"
                                   "75767778798081828384858687888990919293949596979899";

mp_status
mp_json_open(mp_json *json, mp_json_sink sink, void *context)
{
    char *buffer = malloc(BUFFER_BYTES);
    if (buffer == NULL) {
        return MP_NO_MEMORY;
    }
    *json = (mp_json){
        .next = buffer,
        .end = buffer + BUFFER_BYTES - MP_JSON_SLACK,
        .buffer = buffer,
        .sink = sink,
        .context = context,
    };
    return MP_OK;
}

void
mp_json_flush(mp_json *json)
{
    size_t count = (size_t)(json->next - json->buffer);
    if (json->status == MP_OK && count > 0) {
        json->status = json->sink(json->context, json->buffer, count);
        json->written += count;
    }
    json->next = json->buffer;
}

mp_status
mp_json_close(mp_json *json)
{
    mp_json_flush(json);
    free(json->buffer);
    json->buffer = NULL;
    return json->status;
}

void
mp_json_bytes(mp_json *json, const char *bytes, size_t count)
{
    while (count > 0) {
        mp_json_reserve(json);
        size_t room = (size_t)(json->end - json->next) + MP_JSON_SLACK;
        size_t part = count < room ? count : room;
        memcpy(json->next, bytes, part);
        json->next += part;
        bytes += part;
        count -= part;
    }
}

static unsigned
count_digits(uint64_t value)
{
    static const uint64_t s_powers[] = {
        0, /* so that 0 has one digit */
        10,
        100,
        1000,
        10000,
        100000,
        1000000,
        10000000,
        100000000,
        1000000000,
        10000000000,
        100000000000,
        1000000000000,
        10000000000000,
        100000000000000,
        1000000000000000,
        10000000000000000,
        100000000000000000,
        1000000000000000000,
        10000000000000000000u,
    };
    /* log10(2) is about 1233 / 4096: right, or one too small. */
    unsigned bits = 64 - (unsigned)__builtin_clzll(value | 1);
    unsigned digits = bits * 1233 >> 12;
    return digits + (value >= s_powers[digits]);
}

/* Writes the last `count` digits of a value. */
static void
write_digits(char *out, unsigned count, uint64_t value)
{
    char *end = out + count;
    while (value >= 100) {
        end -= 2;
        memcpy(end, &s_two_digits[value % 100 * 2], 2);
        value /= 100;
    }
    if (value >= 10) {
        memcpy(end - 2, &s_two_digits[value * 2], 2);
    } else {
        end[-1] = (char)('0' + value);
    }
}

void
mp_json_u64(mp_json *json, uint64_t value)
{
    unsigned count = count_digits(value);
    mp_json_reserve(json);
    write_digits(json->next, count, value);
    json->next += count;
}

void
mp_json_i64(mp_json *json, int64_t value)
{
    if (value < 0) {
        mp_json_literal(json, "-");
        mp_json_u64(json, 0 - (uint64_t)value);
    } else {
        mp_json_u64(json, (uint64_t)value);
    }
}

void
mp_json_us(mp_json *json, int64_t ns)
{
    uint64_t value = ns > 0 ? (uint64_t)ns : 0;
    mp_json_u64(json, value / 1000);
    unsigned rest = (unsigned)(value % 1000);
    char *out = json->next; /* the slack holds it: a number was written since the check */
    out[0] = '.';
    out[1] = (char)('0' + rest / 100);
    memcpy(out + 2, &s_two_digits[rest % 100 * 2], 2);
    json->next += 4;
}

/* Length of the valid UTF-8 sequence at `at`, 0 when there is none (RFC 3629: no
 * overlong forms, no surrogates, at most U+10FFFF). */
static size_t
utf8_length(const unsigned char *at, size_t left)
{
    unsigned char lead = at[0];
    size_t length = lead < 0x80   ? 1
                    : lead < 0xC2 ? 0
                    : lead < 0xE0 ? 2
                    : lead < 0xF0 ? 3
                                  : 4;
    if (length == 0 || length > left || lead > 0xF4) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    bool overlong = (lead == 0xE0 && at[1] < 0xA0) || (lead == 0xF0 && at[1] < 0x90);
    bool beyond = (lead == 0xED && at[1] > 0x9F) || (lead == 0xF4 && at[1] > 0x8F);
    return length > 1 && (overlong || beyond) ? 0 : length;
}

static char *
escape_control(char *out, unsigned char c)
{
    static const char s_hex[] = "0123456789abcdef";
    memcpy(out, "\\u00", 4);
    out[4] = s_hex[c >> 4];
    out[5] = s_hex[c & 15];
    return out + 6;
}

size_t
mp_json_escape(char *out, const char *text, size_t length)
{
    const unsigned char *at = (const unsigned char *)text;
    const unsigned char *end = at + length;
    char *start = out;
    while (at < end) {
        size_t bytes = utf8_length(at, (size_t)(end - at));
        if (bytes == 0) {
            memcpy(out, "\xEF\xBF\xBD", 3);
            out += 3;
            at++;
        } else if (bytes > 1) {
            memcpy(out, at, bytes);
            out += bytes;
            at += bytes;
        } else if (*at < 0x20 || *at == 0x7F) {
            out = escape_control(out, *at++);
        } else {
            if (*at == '"' || *at == '\\') {
                *out++ = '\\';
            }
            *out++ = (char)*at++;
        }
    }
    return (size_t)(out - start);
}
