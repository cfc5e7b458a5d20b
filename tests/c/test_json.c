// needs: output/json.c
#include "output/json.h"

#include "check.h"

enum { ROOM = 8 << 20 };

typedef struct memory_sink {
    char *bytes;
    size_t count, calls, largest;
    size_t fail_at; /* the call that fails, from 1; 0 never */
} memory_sink;

static mp_status
take(void *context, const char *bytes, size_t count)
{
    memory_sink *sink = context;
    sink->calls++;
    if (sink->calls == sink->fail_at) {
        return MP_ABORTED;
    }
    CHECK(sink->count + count <= ROOM);
    memcpy(sink->bytes + sink->count, bytes, count);
    sink->count += count;
    sink->largest = count > sink->largest ? count : sink->largest;
    return MP_OK;
}

static memory_sink
new_sink(void)
{
    memory_sink sink = {.bytes = malloc(ROOM)};
    CHECK(sink.bytes != NULL);
    return sink;
}

static bool
holds(const memory_sink *sink, const char *text)
{
    return sink->count == strlen(text) && memcmp(sink->bytes, text, sink->count) == 0;
}

static void
writes_integers(void)
{
    uint64_t value = 1;
    for (int power = 0; power < 20; power++, value *= 10) {
        const uint64_t near[] = {value - 1, value, value + 1, value * 9};
        for (size_t i = 0; i < MP_COUNT_OF(near); i++) {
            memory_sink sink = new_sink();
            mp_json json;
            CHECK(mp_json_open(&json, take, &sink) == MP_OK);
            mp_json_u64(&json, near[i]);
            mp_json_literal(&json, " ");
            mp_json_i64(&json, (int64_t)near[i]);
            CHECK(mp_json_close(&json) == MP_OK);
            char wanted[64];
            snprintf(wanted, sizeof(wanted), "%" PRIu64 " %" PRId64, near[i],
                     (int64_t)near[i]);
            CHECK(holds(&sink, wanted));
            free(sink.bytes);
        }
    }
}

static void
writes_the_extremes(void)
{
    memory_sink sink = new_sink();
    mp_json json;
    CHECK(mp_json_open(&json, take, &sink) == MP_OK);
    mp_json_i64(&json, INT64_MIN);
    mp_json_literal(&json, " ");
    mp_json_u64(&json, UINT64_MAX);
    CHECK(mp_json_close(&json) == MP_OK);
    CHECK(holds(&sink, "-9223372036854775808 18446744073709551615"));
    free(sink.bytes);
}

static void
writes_microseconds(void)
{
    static const struct {
        int64_t ns;
        const char *text;
    } s_cases[] = {
        {0, "0.000"},    {7, "0.007"},
        {70, "0.070"},   {999, "0.999"},
        {1000, "1.000"}, {1234567, "1234.567"},
        {-5, "0.000"},   {INT64_MAX, "9223372036854775.807"},
    };
    for (size_t i = 0; i < MP_COUNT_OF(s_cases); i++) {
        memory_sink sink = new_sink();
        mp_json json;
        CHECK(mp_json_open(&json, take, &sink) == MP_OK);
        mp_json_us(&json, s_cases[i].ns);
        CHECK(mp_json_close(&json) == MP_OK);
        CHECK(holds(&sink, s_cases[i].text));
        free(sink.bytes);
    }
}

static void
escapes(void)
{
    static const struct {
        const char *text, *escaped;
    } s_cases[] = {
        {"plain", "plain"},
        {"a\"b\\c", "a\\\"b\\\\c"},
        {"\n\x01\x7F", "\\u000a\\u0001\\u007f"},
        {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
        {"\xE9t\xE9", "\xEF\xBF\xBDt\xEF\xBF\xBD"},               /* Latin-1 */
        {"\xE2\x82", "\xEF\xBF\xBD\xEF\xBF\xBD"},                 /* cut off */
        {"\xC0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},                 /* overlong */
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"}, /* surrogate */
        {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
    };
    for (size_t i = 0; i < MP_COUNT_OF(s_cases); i++) {
        size_t length = strlen(s_cases[i].text);
        char *text = malloc(length); /* exact, so that a sanitizer sees a read beyond */
        char *out = malloc(length * MP_JSON_ESCAPE_FACTOR);
        CHECK(text != NULL && out != NULL);
        memcpy(text, s_cases[i].text, length);
        size_t count = mp_json_escape(out, text, length);
        CHECK_EQUAL(count, strlen(s_cases[i].escaped));
        CHECK(memcmp(out, s_cases[i].escaped, count) == 0);
        free(text);
        free(out);
    }
}

static void
hands_on_chunks_of_a_mebibyte(void)
{
    memory_sink sink = new_sink();
    mp_json json;
    CHECK(mp_json_open(&json, take, &sink) == MP_OK);
    static char s_block[100000 + MP_JSON_PADDING];
    memset(s_block, 'x', sizeof(s_block));
    for (int i = 0; i < 60; i++) {
        mp_json_bytes(&json, s_block, 100000);
        mp_json_padded(&json, s_block, (size_t)i);
        mp_json_u64(&json, 7);
    }
    CHECK(mp_json_close(&json) == MP_OK);
    CHECK_EQUAL(sink.count, 60 * 100000 + 60 * 59 / 2 + 60);
    CHECK_EQUAL(json.written, sink.count);
    CHECK_EQUAL(sink.calls, 6);
    CHECK(sink.largest <= 1 << 20);
    free(sink.bytes);
}

static void
asks_a_failed_sink_no_more(void)
{
    memory_sink sink = new_sink();
    sink.fail_at = 2;
    mp_json json;
    CHECK(mp_json_open(&json, take, &sink) == MP_OK);
    for (int i = 0; i < 1000000; i++) {
        mp_json_literal(&json, "0123456789");
    }
    CHECK(mp_json_close(&json) == MP_ABORTED);
    CHECK_EQUAL(sink.calls, 2);
    free(sink.bytes);
}

int
main(void)
{
    RUN(writes_integers);
    RUN(writes_the_extremes);
    RUN(writes_microseconds);
    RUN(escapes);
    RUN(hands_on_chunks_of_a_mebibyte);
    RUN(asks_a_failed_sink_no_more);
    return 0;
}
