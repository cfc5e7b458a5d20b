// needs: collect/cupti_decode.c collect/cupti_names.c record/activity_log.c base/table.c base/status.c

#include "collect/cupti_decode.h"

#include "check.h"
#include "collect/cupti_layout.h"

enum { VERSION = 130001, KERNEL_BYTES = 216, API_BYTES = 40 };

static int
next_13(uint8_t *buffer, size_t valid_size, void **record)
{
    return mp_cupti_next_by_size(buffer, valid_size, record, VERSION);
}

static const char *
read_number(void *context, uint64_t pointer)
{
    (void)context;
    static char s_text[32];
    snprintf(s_text, sizeof(s_text), "kernel_%" PRIu64, pointer % 5);
    return s_text;
}

static void
put(uint8_t *record, size_t offset, uint64_t value, size_t bytes)
{
    memcpy(record + offset, &value, bytes);
}

static size_t
put_kernel(uint8_t *record, uint64_t name, uint64_t start, uint64_t end, uint32_t correlation)
{
    memset(record, 0, KERNEL_BYTES);
    put(record, 0, MP_CUPTI_KIND_CONCURRENT_KERNEL, 4);
    put(record, 6, 33, 2);
    put(record, 16, start, 8);
    put(record, 24, end, 8);
    put(record, 40, 1, 4);
    put(record, 48, 7, 4);
    put(record, 52, 100, 4);
    put(record, 64, 256, 4);
    put(record, 92, correlation, 4);
    put(record, 104, name, 8);
    put(record, 156, 9, 4);
    return KERNEL_BYTES;
}

static size_t
put_call(uint8_t *record, uint32_t id, uint64_t start, uint64_t end, uint32_t correlation)
{
    memset(record, 0, API_BYTES);
    put(record, 0, MP_CUPTI_KIND_RUNTIME, 4);
    put(record, 4, id, 4);
    put(record, 8, start, 8);
    put(record, 16, end, 8);
    put(record, 28, 4242, 4);
    put(record, 32, correlation, 4);
    return API_BYTES;
}

static void
init(mp_cupti_decoder *decoder, size_t max_bytes, bool ring)
{
    CHECK(mp_cupti_decoder_init(decoder, next_13, VERSION, max_bytes, ring, read_number,
                                NULL) == MP_OK);
}

static void
test_kernels_and_calls(void)
{
    mp_cupti_decoder decoder;
    init(&decoder, 1 << 20, false);
    uint64_t words[512];
    uint8_t *buffer = (uint8_t *)words;
    size_t used = put_call(buffer, 211, 10, 20, 77);
    used += put_kernel(buffer + used, 3, 30, 45, 77);
    used += put_call(buffer + used, 1000, 10, 20, 78); /* not in the list */
    used += put_kernel(buffer + used, 3, 0, 0, 79);    /* without times */
    used += put_kernel(buffer + used, 4, 60, 50, 80);  /* backwards */
    mp_cupti_decode(&decoder, buffer, used);
    const mp_activity *rows = decoder.log.first->rows;
    CHECK_EQUAL(decoder.log.rows, 3);
    CHECK_EQUAL(decoder.unwanted, 1);
    CHECK_EQUAL(decoder.without_time, 1);
    CHECK_EQUAL(decoder.backwards, 1);
    CHECK_EQUAL(decoder.broken, 0);
    CHECK_EQUAL(rows[0].kind, MP_ACTIVITY_RUNTIME);
    CHECK_EQUAL(rows[0].thread, 4242);
    CHECK(strcmp(decoder.names.texts[rows[0].name_id], "cudaLaunchKernel") == 0);
    CHECK_EQUAL(rows[0].flags, MP_ACTIVITY_GIVES);
    CHECK_EQUAL(rows[1].kind, MP_ACTIVITY_KERNEL);
    CHECK_EQUAL(rows[1].end_ns - rows[1].start_ns, 15);
    CHECK_EQUAL(rows[1].correlation, 77);
    CHECK_EQUAL(rows[1].device_index, 1);
    CHECK_EQUAL(rows[1].stream, 7);
    CHECK_EQUAL(rows[1].grid_x, 100);
    CHECK_EQUAL(rows[1].block_x, 256);
    CHECK_EQUAL(rows[1].registers, 33);
    CHECK_EQUAL(rows[1].graph_id, 9);
    CHECK(strcmp(decoder.names.texts[rows[1].name_id], "kernel_3") == 0);
    CHECK_EQUAL(rows[2].end_ns, rows[2].start_ns);
    mp_cupti_decoder_fini(&decoder);
}

static void
test_a_cut_buffer_is_counted(void)
{
    mp_cupti_decoder decoder;
    init(&decoder, 1 << 20, false);
    uint64_t words[128];
    uint8_t *buffer = (uint8_t *)words;
    size_t used = put_kernel(buffer, 1, 5, 6, 1);
    used += put_kernel(buffer + used, 1, 7, 8, 2);
    mp_cupti_decode(&decoder, buffer, used - 100);
    CHECK_EQUAL(decoder.log.rows, 1);
    CHECK_EQUAL(decoder.broken, 1);
    mp_cupti_decoder_fini(&decoder);
}

static void
fill(mp_cupti_decoder *decoder, size_t kernels)
{
    uint64_t words[KERNEL_BYTES / 8];
    for (size_t i = 0; i < kernels; i++) {
        put_kernel((uint8_t *)words, 1, i + 1, i + 2, (uint32_t)i);
        mp_cupti_decode(decoder, (uint8_t *)words, KERNEL_BYTES);
    }
}

static void
test_rows_are_bounded(void)
{
    mp_cupti_decoder decoder;
    init(&decoder, 2 * MP_ACTIVITY_CHUNK_BYTES, false);
    fill(&decoder, 3 * MP_ACTIVITY_CHUNK_ROWS);
    CHECK_EQUAL(decoder.log.rows, 2 * MP_ACTIVITY_CHUNK_ROWS);
    CHECK_EQUAL(decoder.log.lost, MP_ACTIVITY_CHUNK_ROWS);
    CHECK_EQUAL(decoder.log.first->rows[0].start_ns, 1);
    mp_cupti_decoder_fini(&decoder);

    init(&decoder, 2 * MP_ACTIVITY_CHUNK_BYTES, true);
    fill(&decoder, 3 * MP_ACTIVITY_CHUNK_ROWS);
    CHECK_EQUAL(decoder.log.rows, 2 * MP_ACTIVITY_CHUNK_ROWS);
    CHECK_EQUAL(decoder.log.overwritten, MP_ACTIVITY_CHUNK_ROWS);
    CHECK_EQUAL(decoder.log.first->rows[0].start_ns, MP_ACTIVITY_CHUNK_ROWS + 1);
    mp_cupti_decoder_fini(&decoder);
}

static uint64_t s_random = 88172645463325252u;

static uint64_t
random_word(void)
{
    s_random ^= s_random << 13;
    s_random ^= s_random >> 7;
    s_random ^= s_random << 17;
    return s_random;
}

/* Steps anywhere, also out of the buffer and backwards. */
static int
next_astray(uint8_t *buffer, size_t valid_size, void **record)
{
    if (random_word() % 64 == 0) {
        return (int)(random_word() % 50);
    }
    *record = buffer + (int64_t)(random_word() % (valid_size + 64)) - 32;
    return 0;
}

static int
next_word(uint8_t *buffer, size_t valid_size, void **record)
{
    uint8_t *at = *record == NULL ? buffer : (uint8_t *)*record + 4 * (1 + random_word() % 40);
    *record = at;
    return at < buffer + valid_size ? 0 : MP_CUPTI_MAX_LIMIT_REACHED;
}

/* Of the exact size, so that one byte read beyond it is an error under ASan. */
static void
decode_noise(mp_cupti_decoder *decoder, size_t bytes)
{
    uint8_t *buffer = malloc(bytes);
    CHECK(buffer != NULL);
    for (size_t i = 0; i < bytes; i++) {
        buffer[i] = (uint8_t)random_word();
    }
    for (size_t i = 0; i + 4 <= bytes; i += 4) { /* kinds that exist, here and there */
        static const uint32_t s_kinds[] = {1, 2, 4, 5, 10, 17, 22, 38, 49, 50, 3, 4000000000u};
        if (random_word() % 2 == 0) {
            memcpy(buffer + i, &s_kinds[random_word() % 12], 4);
        }
    }
    mp_cupti_decode(decoder, buffer, bytes);
    free(buffer);
}

static void
test_no_bytes_crash_it(void)
{
    static const mp_cupti_next_record s_walks[] = {next_13, next_astray, next_word};
    for (size_t walk = 0; walk < 3; walk++) {
        mp_cupti_decoder decoder;
        init(&decoder, 1 << 20, true);
        decoder.next = s_walks[walk];
        for (int round = 0; round < 4000; round++) {
            decode_noise(&decoder, 1 + random_word() % 700);
        }
        mp_cupti_decoder_fini(&decoder);
    }
}

static void
test_names(void)
{
    mp_cupti_names names;
    static char s_first[] = "one", s_second[] = "two";
    char *place = malloc(4);
    CHECK(place != NULL && mp_cupti_names_init(&names, NULL, NULL) == MP_OK);
    strcpy(place, s_first);
    uint32_t one = mp_cupti_names_at_pointer(&names, (uint64_t)(uintptr_t)place);
    CHECK_EQUAL(mp_cupti_names_at_pointer(&names, (uint64_t)(uintptr_t)place), one);
    strcpy(place, s_second); /* another name has come to its place */
    uint32_t two = mp_cupti_names_at_pointer(&names, (uint64_t)(uintptr_t)place);
    CHECK(one != 0 && two != 0 && one != two);
    CHECK_EQUAL(mp_cupti_names_add(&names, "one"), one);
    CHECK_EQUAL(mp_cupti_names_at_pointer(&names, 0), 0);
    for (int i = 0; i < 1000; i++) {
        char text[16];
        snprintf(text, sizeof(text), "n%d", i);
        CHECK_EQUAL(mp_cupti_names_add(&names, text), 3 + i);
    }
    free(place);
    mp_cupti_names_fini(&names);
}

int
main(void)
{
    RUN(test_kernels_and_calls);
    RUN(test_a_cut_buffer_is_counted);
    RUN(test_rows_are_bounded);
    RUN(test_no_bytes_crash_it);
    RUN(test_names);
    return 0;
}
