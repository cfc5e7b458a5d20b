/* A C test is a plain program: static functions that use CHECK, and a main that gives them
 * to RUN. The first failure prints where and what, and ends the program with status 1. */
#ifndef MP_TESTS_CHECK_H
#define MP_TESTS_CHECK_H

#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *s_running = "";

static inline void
check_fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: in %s: %s\n", file, line, s_running, what);
    exit(1);
}

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            check_fail(__FILE__, __LINE__, "not true: " #condition);                     \
        }                                                                                \
    } while (0)

/* Both sides as integers, printed when they differ. */
#define CHECK_EQUAL(actual, wanted)                                                      \
    do {                                                                                 \
        int64_t check_actual = (int64_t)(actual);                                        \
        int64_t check_wanted = (int64_t)(wanted);                                        \
        if (check_actual != check_wanted) {                                              \
            char check_text[256];                                                        \
            snprintf(check_text, sizeof(check_text),                                     \
                     "%s is %" PRId64 ", not %" PRId64, #actual, check_actual,           \
                     check_wanted);                                                      \
            check_fail(__FILE__, __LINE__, check_text);                                  \
        }                                                                                \
    } while (0)

#define RUN(test)                                                                        \
    do {                                                                                 \
        s_running = #test;                                                               \
        test();                                                                          \
        printf("%s ok\n", #test);                                                        \
    } while (0)

static inline pthread_t
check_thread(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, argument) == 0);
    return thread;
}

static inline void
check_join(pthread_t thread)
{
    CHECK(pthread_join(thread, NULL) == 0);
}

#endif
