// needs: record/recording.c record/recording_check.c
#include "record/recording.h"

#include "check.h"

static void
starts_empty_and_true_to_its_rules(void)
{
    const char *what = NULL;
    mp_recording *recording = mp_recording_new();
    CHECK(recording != NULL);
    for (int id = 0; id < MP_TABLE_COUNT; id++) {
        CHECK_EQUAL(recording->tables[id].count, 0);
        CHECK(recording->tables[id].row_bytes > 0);
        CHECK(strlen(mp_recording_table_name((mp_table_id)id)) > 0);
    }
    CHECK_EQUAL(mp_recording_check(recording, &what), MP_OK);
    mp_recording_free(recording);
    mp_recording_free(NULL);
}

static void
resizes_to_zeroed_rows(void)
{
    mp_recording *recording = mp_recording_new();
    mp_block *blocks = mp_recording_resize(recording, MP_TABLE_BLOCKS, 3);
    CHECK(blocks != NULL && blocks == MP_ROWS(recording, BLOCKS, mp_block));
    for (int i = 0; i < 3; i++) {
        CHECK(blocks[i].bytes == 0 && blocks[i].address == 0);
        blocks[i].bytes = 7;
    }
    CHECK_EQUAL(MP_COUNT(recording, BLOCKS), 3);
    blocks = mp_recording_resize(recording, MP_TABLE_BLOCKS, 1);
    CHECK(blocks != NULL && blocks[0].bytes == 0);
    CHECK(mp_recording_resize(recording, MP_TABLE_BLOCKS, 0) == NULL);
    CHECK_EQUAL(MP_COUNT(recording, BLOCKS), 0);
    mp_recording_free(recording);
}

static void
gives_texts_and_for_unknown_ids_the_empty_one(void)
{
    mp_recording *recording = mp_recording_new();
    uint64_t *offsets = mp_recording_resize(recording, MP_TABLE_STRING_OFFSETS, 3);
    char *bytes = mp_recording_resize(recording, MP_TABLE_STRING_BYTES, 4);
    memcpy(bytes, "line", 4);
    offsets[2] = 4;
    size_t length = 99;
    CHECK(memcmp(mp_recording_string(recording, 1, &length), "line", 4) == 0);
    CHECK_EQUAL(length, 4);
    (void)mp_recording_string(recording, 0, &length);
    CHECK_EQUAL(length, 0);
    (void)mp_recording_string(recording, 2, &length);
    CHECK_EQUAL(length, 0);
    (void)mp_recording_string(recording, UINT32_MAX, &length);
    CHECK_EQUAL(length, 0);
    mp_recording_free(recording);
}

static void
a_broken_rule_is_named(void)
{
    const char *what = "";
    mp_recording *recording = mp_recording_new();
    recording->start_ns = 2;
    CHECK_EQUAL(mp_recording_check(recording, &what), MP_INVALID);
    CHECK(strstr(what, "start_ns") != NULL);
    recording->start_ns = 0;

    uint64_t *offsets = mp_recording_resize(recording, MP_TABLE_STRING_OFFSETS, 3);
    offsets[2] = 1; /* beyond string_bytes, which is empty */
    CHECK_EQUAL(mp_recording_check(recording, &what), MP_INVALID);
    CHECK(strstr(what, "string_offsets") != NULL);
    mp_recording_resize(recording, MP_TABLE_STRING_OFFSETS, 0);

    mp_allocation *rows = mp_recording_resize(recording, MP_TABLE_ALLOCATIONS, 1);
    rows->kind = MP_ALLOCATION_ALLOC;
    rows->thread = 5; /* there is no thread */
    CHECK_EQUAL(mp_recording_check(recording, &what), MP_INVALID);
    CHECK(strstr(what, "allocations") != NULL);
    mp_recording_free(recording);
}

int
main(void)
{
    RUN(starts_empty_and_true_to_its_rules);
    RUN(resizes_to_zeroed_rows);
    RUN(gives_texts_and_for_unknown_ids_the_empty_one);
    RUN(a_broken_rule_is_named);
    return 0;
}
