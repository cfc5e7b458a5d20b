// needs: record/objects.c
#include "record/objects.h"

#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static const void *
address_of(uintptr_t number)
{
    return (const void *)(0x10000000 + number * 16);
}

static void
is_silent_when_closed(void)
{
    CHECK_EQUAL(mp_objects_intern(MP_OBJECT_CODE, address_of(1), NULL), 0);
    CHECK_EQUAL(mp_objects_find(address_of(1)), 0);
    mp_objects_strike(address_of(1));
    CHECK_EQUAL(mp_objects_count(), 0);
    mp_objects_close();
}

static void
gives_one_id_to_an_address(void)
{
    CHECK(mp_objects_open());
    uint32_t code = mp_objects_intern(MP_OBJECT_CODE, address_of(1), NULL);
    uint32_t module = mp_objects_intern(MP_OBJECT_MODULE, address_of(2), "Conv2d");
    CHECK_EQUAL(code, 1);
    CHECK_EQUAL(module, 2);
    CHECK_EQUAL(mp_objects_intern(MP_OBJECT_CODE, address_of(1), NULL), code);
    CHECK_EQUAL(mp_objects_find(address_of(2)), module);
    CHECK_EQUAL(mp_objects_find(address_of(3)), 0);
    CHECK_EQUAL(mp_objects_at(module)->kind, MP_OBJECT_MODULE);
    CHECK(strcmp(mp_objects_at(module)->class_name, "Conv2d") == 0);
    CHECK(mp_objects_at(code)->class_name[0] == '\0');
    mp_objects_close();
}

static void
cuts_long_class_names(void)
{
    char name[200];
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    CHECK(mp_objects_open());
    uint32_t id = mp_objects_intern(MP_OBJECT_MODULE, address_of(1), name);
    CHECK_EQUAL(strlen(mp_objects_at(id)->class_name),
                sizeof(mp_objects_at(id)->class_name) - 1);
    mp_objects_close();
}

static void
a_struck_address_gets_a_new_id(void)
{
    CHECK(mp_objects_open());
    uint32_t generation = mp_load_relaxed(&g_objects_generation);
    uint32_t old = mp_objects_intern(MP_OBJECT_CODE, address_of(1), NULL);
    mp_objects_strike(address_of(5)); /* unknown: nothing happens */
    CHECK_EQUAL(mp_load_relaxed(&g_objects_generation), generation);
    mp_objects_strike(address_of(1));
    CHECK_EQUAL(mp_load_relaxed(&g_objects_generation), generation + 1);
    CHECK_EQUAL(mp_objects_find(address_of(1)), 0);
    uint32_t later = mp_objects_intern(MP_OBJECT_CODE, address_of(1), NULL);
    CHECK(later != old && later != 0);
    CHECK(mp_objects_at(old)->dead && !mp_objects_at(later)->dead);
    CHECK_EQUAL(mp_objects_find(address_of(1)), later);
    mp_objects_close();
}

static void
a_new_session_starts_from_nothing(void)
{
    CHECK(mp_objects_open());
    CHECK_EQUAL(mp_objects_intern(MP_OBJECT_MODULE, address_of(1), "Linear"), 1);
    CHECK(mp_objects_open());
    CHECK_EQUAL(mp_objects_count(), 0);
    CHECK_EQUAL(mp_objects_intern(MP_OBJECT_CODE, address_of(1), NULL), 1);
    CHECK(mp_objects_at(1)->class_name[0] == '\0');
    mp_objects_close();
}

enum { THREADS = 4, ADDRESSES = 20000 };
static uint32_t s_ids[THREADS][ADDRESSES];

static void *
intern_all(void *argument)
{
    uintptr_t self = (uintptr_t)argument;
    for (uintptr_t i = 0; i < ADDRESSES; i++) {
        uintptr_t number = self % 2 == 0 ? i : ADDRESSES - 1 - i;
        s_ids[self][number] = mp_objects_intern(MP_OBJECT_CODE, address_of(number), NULL);
    }
    return NULL;
}

static void
threads_agree_on_every_id(void)
{
    pthread_t threads[THREADS];
    CHECK(mp_objects_open());
    for (uintptr_t i = 0; i < THREADS; i++) {
        threads[i] = check_thread(intern_all, (void *)i);
    }
    for (int i = 0; i < THREADS; i++) {
        check_join(threads[i]);
    }
    CHECK_EQUAL(mp_objects_count(), ADDRESSES);
    for (uintptr_t n = 0; n < ADDRESSES; n++) {
        CHECK(s_ids[0][n] != 0);
        for (int i = 1; i < THREADS; i++) {
            CHECK_EQUAL(s_ids[i][n], s_ids[0][n]);
        }
        CHECK(mp_objects_at(s_ids[0][n])->address == address_of(n));
    }
    mp_objects_close();
}

static void *
intern_until_told(void *argument)
{
    _Atomic(bool) *stop = argument;
    for (uintptr_t i = 0; !mp_load_relaxed(stop); i++) {
        (void)mp_objects_intern(MP_OBJECT_CODE, address_of(i % 1000), NULL);
    }
    return NULL;
}

static void
a_child_is_closed_and_holds_no_lock(void)
{
    static _Atomic(bool) s_stop;
    CHECK(mp_objects_open());
    pthread_t thread = check_thread(intern_until_told, &s_stop);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork(); /* often while the other thread is inside the lock */
        CHECK(child >= 0);
        if (child == 0) {
            mp_objects_after_fork();
            bool closed = mp_objects_intern(MP_OBJECT_CODE, address_of(1), NULL) == 0;
            bool opens = mp_objects_open() && mp_objects_count() == 0;
            _exit(closed && opens ? 0 : 1);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK_EQUAL(status, 0);
    }
    mp_store_relaxed(&s_stop, true);
    check_join(thread);
    mp_objects_close();
}

int
main(void)
{
    RUN(is_silent_when_closed);
    RUN(gives_one_id_to_an_address);
    RUN(cuts_long_class_names);
    RUN(a_struck_address_gets_a_new_id);
    RUN(a_new_session_starts_from_nothing);
    RUN(threads_agree_on_every_id);
    RUN(a_child_is_closed_and_holds_no_lock);
    return 0;
}
