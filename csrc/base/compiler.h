/* Attributes and the thread-local model; everything that depends on the compiler. */
#ifndef MP_BASE_COMPILER_H
#define MP_BASE_COMPILER_H

#define MP_LIKELY(x) __builtin_expect(!!(x), 1)
#define MP_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define MP_NOINLINE __attribute__((noinline, cold))
#define MP_INLINE static inline __attribute__((always_inline))
#define MP_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* One read of a thread-local costs a single instruction in the initial-exec model; the
 * alternative calls __tls_get_addr on every allocation. The model draws on the loader's
 * static reserve, so the process-wide total of such variables stays below 64 bytes. */
#define MP_THREAD_LOCAL __thread __attribute__((tls_model("initial-exec")))

/* Keeps the compiler from moving memory accesses; emits no instruction. */
#define MP_COMPILER_BARRIER() __asm__ volatile("" ::: "memory")

#ifdef MEMPROF_DEBUG
#include <assert.h>
#define MP_ASSERT(condition) assert(condition)
#else
#define MP_ASSERT(condition) ((void)sizeof(condition))
#endif

#endif
