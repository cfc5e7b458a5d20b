// needs: collect/cupti_buffers.c base/status.c

#include "collect/cupti_buffers.h"

#include "check.h"

static uint8_t *
request(size_t *size)
{
    uint8_t *buffer = (uint8_t *)1;
    size_t most = 99;
    mp_cupti_buffers_request(&buffer, size, &most);
    CHECK_EQUAL(most, 0);
    return buffer;
}

static mp_cupti_buffer_counts
counts(void)
{
    mp_cupti_buffer_counts now;
    mp_cupti_buffers_count(&now);
    return now;
}

static void
test_round(void)
{
    CHECK(mp_cupti_buffers_open(4 * MP_CUPTI_BUFFER_BYTES, true) == MP_OK);
    size_t size, valid;
    uint8_t *buffer = request(&size);
    CHECK_EQUAL(size, MP_CUPTI_BUFFER_BYTES);
    CHECK_EQUAL((uintptr_t)buffer % 8, 0);
    CHECK(mp_cupti_buffers_take(&valid) == NULL);
    memset(buffer, 0xAB, 1000);
    mp_cupti_buffers_complete(NULL, 0, buffer, size, 1000);
    CHECK(mp_cupti_buffers_take(&valid) == buffer);
    CHECK_EQUAL(valid, 1000);
    mp_cupti_buffers_give_back(buffer);
    for (size_t i = 0; i < 1000; i++) {
        CHECK_EQUAL(buffer[i], 0);
    }
    CHECK_EQUAL(counts().unready, 0);
    mp_cupti_buffers_close();
}

static void
test_limit(bool null_allowed)
{
    CHECK(mp_cupti_buffers_open(4 * MP_CUPTI_BUFFER_BYTES, null_allowed) == MP_OK);
    uint8_t *lent[4];
    size_t size, valid;
    for (int i = 0; i < 4; i++) {
        lent[i] = request(&size);
        CHECK(lent[i] != NULL && size == MP_CUPTI_BUFFER_BYTES);
    }
    uint8_t *fifth = request(&size);
    CHECK(null_allowed ? fifth == NULL && size == 0 : fifth != NULL && size < MP_CUPTI_BUFFER_BYTES);
    mp_cupti_buffers_complete(NULL, 0, fifth, size, size);
    CHECK_EQUAL(counts().refused, 1);
    CHECK_EQUAL(counts().discarded, null_allowed ? 0 : 1);
    CHECK_EQUAL(counts().foreign, 0);
    CHECK_EQUAL(counts().most, 4);
    for (int i = 0; i < 4; i++) {
        mp_cupti_buffers_complete(NULL, 0, lent[i], MP_CUPTI_BUFFER_BYTES, 8);
    }
    int taken = 0;
    for (uint8_t *full; (full = mp_cupti_buffers_take(&valid)) != NULL; taken++) {
        mp_cupti_buffers_give_back(full);
    }
    CHECK_EQUAL(taken, 4);
    mp_cupti_buffers_close();
}

static void
test_limit_with_null(void)
{
    test_limit(true);
}

static void
test_limit_with_discard(void)
{
    test_limit(false);
}

static void
test_foreign_buffers_are_left_alone(void)
{
    CHECK(mp_cupti_buffers_open(2 * MP_CUPTI_BUFFER_BYTES, true) == MP_OK);
    size_t size, valid;
    uint8_t *ours = request(&size);
    uint8_t *theirs = malloc(64);
    CHECK(theirs != NULL);
    memset(theirs, 7, 64);
    mp_cupti_buffers_complete(NULL, 0, theirs, 64, 64);
    mp_cupti_buffers_complete(NULL, 0, ours + 8, 64, 64);
    mp_cupti_buffers_complete(NULL, 0, NULL, 0, 0);
    CHECK_EQUAL(counts().foreign, 2);
    CHECK(mp_cupti_buffers_take(&valid) == NULL);
    mp_cupti_buffers_complete(NULL, 0, ours, size, SIZE_MAX);
    mp_cupti_buffers_complete(NULL, 0, ours, size, 16); /* twice */
    CHECK_EQUAL(counts().foreign, 3);
    CHECK(mp_cupti_buffers_take(&valid) == ours);
    CHECK_EQUAL(valid, MP_CUPTI_BUFFER_BYTES);
    mp_cupti_buffers_give_back(ours);
    mp_cupti_buffers_close();
    free(theirs);
}

static void
test_held_over_the_end(void)
{
    CHECK(mp_cupti_buffers_open(2 * MP_CUPTI_BUFFER_BYTES, true) == MP_OK);
    size_t size, valid;
    uint8_t *held = request(&size);
    mp_cupti_buffers_close();
    CHECK(request(&size) == NULL);
    memset(held, 1, MP_CUPTI_BUFFER_BYTES); /* still CUPTI's to write */
    CHECK(mp_cupti_buffers_open(2 * MP_CUPTI_BUFFER_BYTES, true) == MP_OK);
    CHECK_EQUAL(counts().held, 1);
    CHECK(request(&size) != held);
    mp_cupti_buffers_close();
    mp_cupti_buffers_complete(NULL, 0, held, MP_CUPTI_BUFFER_BYTES, 100);
    CHECK(mp_cupti_buffers_open(2 * MP_CUPTI_BUFFER_BYTES, true) == MP_OK);
    CHECK(mp_cupti_buffers_take(&valid) == NULL); /* of another session */
    uint8_t *again = request(&size);
    CHECK(again == held && again[5] == 0);
    mp_cupti_buffers_complete(NULL, 0, again, size, 0);
    mp_cupti_buffers_close();
}

enum { THREADS = 4, ROUNDS = 20000 };

static void *
lend_and_complete(void *argument)
{
    (void)argument;
    for (int i = 0; i < ROUNDS; i++) {
        size_t size;
        uint8_t *buffer = request(&size);
        if (buffer != NULL) {
            uint64_t mark = (uint64_t)i + 1;
            CHECK_EQUAL(buffer[0] | buffer[7], 0);
            memcpy(buffer, &mark, sizeof(mark));
            mp_cupti_buffers_complete(NULL, 0, buffer, size, sizeof(mark));
        }
    }
    return NULL;
}

static _Atomic(int) s_ended;

static void *
take_all(void *argument)
{
    uint64_t *total = argument;
    for (;;) {
        int ended = s_ended;
        size_t valid;
        uint8_t *buffer = mp_cupti_buffers_take(&valid);
        if (buffer == NULL) {
            if (ended) {
                return NULL;
            }
            continue;
        }
        CHECK_EQUAL(valid, 8);
        (*total)++;
        memset(buffer, 0, 8);
        mp_cupti_buffers_give_back(buffer);
    }
}

static void
test_threads(void)
{
    CHECK(mp_cupti_buffers_open(3 * MP_CUPTI_BUFFER_BYTES, true) == MP_OK);
    uint64_t total = 0;
    pthread_t threads[THREADS], taker = check_thread(take_all, &total);
    for (int i = 0; i < THREADS; i++) {
        threads[i] = check_thread(lend_and_complete, NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        check_join(threads[i]);
    }
    s_ended = 1;
    check_join(taker);
    mp_cupti_buffer_counts now = counts();
    CHECK_EQUAL(now.lent, total);
    CHECK_EQUAL(now.lent + now.refused, (uint64_t)THREADS * ROUNDS);
    CHECK_EQUAL(now.held, 1); /* of test_held_over_the_end */
    mp_cupti_buffers_close();
}

int
main(void)
{
    RUN(test_round);
    RUN(test_limit_with_null);
    RUN(test_limit_with_discard);
    RUN(test_foreign_buffers_are_left_alone);
    RUN(test_held_over_the_end);
    RUN(test_threads);
    return 0;
}
