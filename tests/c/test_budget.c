// needs: record/budget.c
#include "record/budget.h"

#include <stdbool.h>

#include "base/compiler.h"
#include "check.h"

enum { THREADS = 4, MIB = 1 << 20 };

static mp_budget s_budget;

static void
refuses_less_than_the_least(void)
{
    CHECK_EQUAL(mp_budget_open(&s_budget, MP_BUDGET_LEAST_BYTES - 1), MP_INVALID);
}

static void
gives_aligned_chunks_until_three_quarters(void)
{
    CHECK_EQUAL(mp_budget_open(&s_budget, 4 * MIB), MP_OK);
    size_t wanted = 4 * MIB / MP_CHUNK_BYTES * 3 / 4;
    uint8_t *before = NULL;
    for (size_t i = 0; i < wanted; i++) {
        uint8_t *chunk = mp_budget_take_event_chunk(&s_budget);
        CHECK(chunk != NULL);
        CHECK((uintptr_t)chunk % MP_CHUNK_BYTES == 0);
        CHECK(before == NULL || chunk == before + MP_CHUNK_BYTES);
        memset(chunk, 0xA5, MP_CHUNK_BYTES);
        before = chunk;
    }
    CHECK(mp_budget_take_event_chunk(&s_budget) == NULL);
    CHECK(mp_budget_take_event_chunk(&s_budget) == NULL);
    CHECK_EQUAL(mp_budget_used(&s_budget), wanted * MP_CHUNK_BYTES);
    CHECK(mp_budget_take_side(&s_budget, 1) != NULL); /* its quarter is untouched */
    mp_budget_close(&s_budget);
    CHECK(s_budget.base == NULL);
}

static void
side_memory_is_zero_and_bounded(void)
{
    CHECK_EQUAL(mp_budget_open(&s_budget, 4 * MIB), MP_OK);
    CHECK(mp_budget_take_side(&s_budget, 2 * MIB) == NULL);
    size_t taken = 0;
    for (;;) {
        uint64_t *words = mp_budget_take_side(&s_budget, 3 * MP_SIDE_UNIT_BYTES - 8);
        if (words == NULL) {
            break;
        }
        for (size_t i = 0; i < 3 * MP_SIDE_UNIT_BYTES / sizeof(*words); i++) {
            CHECK(words[i] == 0);
            words[i] = ~(uint64_t)0;
        }
        taken += 3;
    }
    CHECK_EQUAL(taken, MIB / MP_SIDE_UNIT_BYTES / 3 * 3);
    CHECK(mp_budget_take_side(&s_budget, MP_SIDE_UNIT_BYTES) != NULL); /* the remainder */
    CHECK(mp_budget_take_side(&s_budget, 1) == NULL);
    mp_budget_close(&s_budget);
}

static void
touching_changes_nothing(void)
{
    CHECK_EQUAL(mp_budget_open(&s_budget, 8 * MIB), MP_OK);
    uint8_t *chunk = mp_budget_take_event_chunk(&s_budget);
    memset(chunk, 7, MP_CHUNK_BYTES);
    CHECK_EQUAL(mp_budget_touch(&s_budget, 1000), 1);
    CHECK_EQUAL(mp_budget_touch(&s_budget, 1000), 1);
    for (size_t i = 0; i < MP_CHUNK_BYTES; i++) {
        CHECK(chunk[i] == 7);
    }
    while (mp_budget_take_event_chunk(&s_budget) != NULL) {
    }
    CHECK_EQUAL(mp_budget_touch(&s_budget, 4), s_budget.event_chunks);
    mp_budget_close(&s_budget);
}

/* Each thread writes its number over what it got: an overlap would show. */
typedef struct taker {
    uint64_t number;
    uint64_t *got[512];
    size_t words[512];
    size_t count;
} taker;

static void *
take_some(void *argument)
{
    taker *self = argument;
    while (self->count < MP_COUNT_OF(self->got)) {
        bool side = self->count % 2 == 1;
        size_t bytes = side ? MP_SIDE_UNIT_BYTES * (1 + self->number % 3) : MP_CHUNK_BYTES;
        uint64_t *memory = side ? mp_budget_take_side(&s_budget, bytes)
                                : mp_budget_take_event_chunk(&s_budget);
        if (memory == NULL) {
            break;
        }
        for (size_t i = 0; i < bytes / sizeof(*memory); i++) {
            memory[i] = self->number;
        }
        self->got[self->count] = memory;
        self->words[self->count++] = bytes / sizeof(*memory);
    }
    return NULL;
}

static void
threads_never_get_the_same_memory(void)
{
    static taker s_takers[THREADS];
    pthread_t threads[THREADS];
    CHECK_EQUAL(mp_budget_open(&s_budget, 32 * MIB), MP_OK);
    for (int i = 0; i < THREADS; i++) {
        s_takers[i].number = (uint64_t)i + 1;
        threads[i] = check_thread(take_some, &s_takers[i]);
    }
    for (int i = 0; i < 50; i++) {
        mp_budget_touch(&s_budget, 16); /* meanwhile, as the helper thread does */
    }
    for (int i = 0; i < THREADS; i++) {
        check_join(threads[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        const taker *self = &s_takers[i];
        for (size_t k = 0; k < self->count; k++) {
            for (size_t w = 0; w < self->words[k]; w++) {
                CHECK(self->got[k][w] == self->number);
            }
        }
    }
    mp_budget_close(&s_budget);
}

int
main(void)
{
    RUN(refuses_less_than_the_least);
    RUN(gives_aligned_chunks_until_three_quarters);
    RUN(side_memory_is_zero_and_bounded);
    RUN(touching_changes_nothing);
    RUN(threads_never_get_the_same_memory);
    return 0;
}
