// needs: base/table.c
#include "base/table.h"

#include "check.h"

static uint64_t
key_of(uint64_t number)
{
    return number * 0x10001; /* 0 is a key like any other */
}

static void
an_unused_map_is_empty(void)
{
    mp_table_map map = {0};
    mp_table_fini(&map);
    CHECK_EQUAL(mp_table_init(&map, 0), MP_OK);
    CHECK(mp_table_find(&map, 0) == NULL);
    CHECK(mp_table_find(&map, 7) == NULL);
    mp_table_fini(&map);
}

static void
keeps_every_value_while_it_grows(void)
{
    enum { COUNT = 50000 };
    mp_table_map map;
    CHECK_EQUAL(mp_table_init(&map, 4), MP_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t *value = mp_table_at(&map, key_of(i));
        CHECK(value != NULL && *value == 0);
        *value = i + 1;
    }
    CHECK_EQUAL(map.count, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        CHECK_EQUAL(*mp_table_find(&map, key_of(i)), i + 1);
        CHECK_EQUAL(*mp_table_at(&map, key_of(i)), i + 1);
    }
    CHECK_EQUAL(map.count, COUNT);
    CHECK(mp_table_find(&map, key_of(COUNT)) == NULL);
    mp_table_fini(&map);
}

int
main(void)
{
    RUN(an_unused_map_is_empty);
    RUN(keeps_every_value_while_it_grows);
    return 0;
}
