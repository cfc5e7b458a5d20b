// needs: record/intern.c record/budget.c
#include "record/intern.h"

#include "check.h"

static mp_budget s_budget;

static uint64_t
mixed(uint64_t x)
{
    x = (x + 1) * 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    return x | 1; /* never 0 */
}

static void
open_budget(size_t mib)
{
    CHECK_EQUAL(mp_budget_open(&s_budget, mib << 20), MP_OK);
}

static void
starts_empty(void)
{
    mp_intern table = {0};
    CHECK_EQUAL(mp_intern_find(&table, 42), 0);
    mp_intern_forget(&table);
    CHECK_EQUAL(table.count, 0);
}

static void
gives_ids_in_order_and_keeps_words(void)
{
    enum { COUNT = 20000 };
    mp_intern table = {0};
    open_budget(64);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t words[40];
        uint32_t count = i % 40;
        for (uint32_t w = 0; w < count; w++) {
            words[w] = i * 1000u + w;
        }
        CHECK_EQUAL(mp_intern_find(&table, mixed(i)), 0);
        CHECK_EQUAL(mp_intern_add(&table, &s_budget, mixed(i), words, count), i + 1);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t count;
        CHECK_EQUAL(mp_intern_find(&table, mixed(i)), i + 1);
        const uint64_t *words = mp_intern_words(&table, i + 1, &count);
        CHECK_EQUAL(count, i % 40);
        for (uint32_t w = 0; w < count; w++) {
            CHECK_EQUAL(words[w], i * 1000u + w);
        }
    }
    CHECK(table.used <= (table.mask + 1) / 2);
    mp_budget_close(&s_budget);
}

static void
tells_colliding_fingerprints_apart(void)
{
    /* The slot comes from the high bits alone: these all want the same one. */
    mp_intern table = {0};
    open_budget(4);
    for (uint64_t low = 1; low <= 300; low++) {
        CHECK_EQUAL(mp_intern_add(&table, &s_budget, low, &low, 1), low);
    }
    for (uint64_t low = 1; low <= 300; low++) {
        CHECK_EQUAL(mp_intern_find(&table, low), low);
    }
    CHECK_EQUAL(mp_intern_find(&table, 301), 0);
    mp_budget_close(&s_budget);
}

static void
takes_an_entry_larger_than_a_store(void)
{
    enum { COUNT = 5000 };
    static uint64_t s_words[COUNT];
    mp_intern table = {0};
    open_budget(4);
    for (uint32_t i = 0; i < COUNT; i++) {
        s_words[i] = mixed(i);
    }
    CHECK_EQUAL(mp_intern_add(&table, &s_budget, 7, s_words, COUNT), 1);
    CHECK_EQUAL(mp_intern_add(&table, &s_budget, 8, s_words, 1), 2);
    uint32_t count;
    const uint64_t *words = mp_intern_words(&table, 1, &count);
    CHECK_EQUAL(count, COUNT);
    CHECK(memcmp(words, s_words, sizeof(s_words)) == 0);
    mp_budget_close(&s_budget);
}

static void
forgets_fingerprints_but_not_words(void)
{
    mp_intern table = {0};
    uint64_t word = 99;
    uint32_t count;
    open_budget(4);
    CHECK_EQUAL(mp_intern_add(&table, &s_budget, 5, &word, 1), 1);
    mp_intern_forget(&table);
    CHECK_EQUAL(mp_intern_find(&table, 5), 0);
    CHECK_EQUAL(mp_intern_words(&table, 1, &count)[0], 99);
    CHECK_EQUAL(mp_intern_add(&table, &s_budget, 5, &word, 1), 2);
    CHECK_EQUAL(mp_intern_find(&table, 5), 2);
    mp_budget_close(&s_budget);
}

static void
says_when_the_budget_is_spent(void)
{
    mp_intern table = {0};
    uint64_t words[200] = {0};
    uint32_t added = 0;
    open_budget(4);
    while (mp_intern_add(&table, &s_budget, mixed(added), words, 200) != 0) {
        added++;
    }
    CHECK(added > 100 && added == table.count);
    CHECK_EQUAL(mp_intern_add(&table, &s_budget, mixed(added), words, 200), 0);
    for (uint32_t i = 0; i < added; i++) {
        CHECK_EQUAL(mp_intern_find(&table, mixed(i)), i + 1);
    }
    mp_budget_close(&s_budget);
}

int
main(void)
{
    RUN(starts_empty);
    RUN(gives_ids_in_order_and_keeps_words);
    RUN(tells_colliding_fingerprints_apart);
    RUN(takes_an_entry_larger_than_a_store);
    RUN(forgets_fingerprints_but_not_words);
    RUN(says_when_the_budget_is_spent);
    return 0;
}
