/* Atomic operations with the memory order in the name. A release names its acquire in a
 * comment where it is used. All are lock-free on the supported machines. */
#ifndef MP_BASE_ATOMICS_H
#define MP_BASE_ATOMICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_POINTER_LOCK_FREE == 2,
               "hooks may not take a hidden lock");

#define mp_load_relaxed(p) atomic_load_explicit((p), memory_order_relaxed)
#define mp_load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define mp_store_relaxed(p, x) atomic_store_explicit((p), (x), memory_order_relaxed)
#define mp_store_release(p, x) atomic_store_explicit((p), (x), memory_order_release)
#define mp_add_relaxed(p, n) atomic_fetch_add_explicit((p), (n), memory_order_relaxed)
#define mp_swap_acq_rel(p, x) atomic_exchange_explicit((p), (x), memory_order_acq_rel)
#define mp_cas_acq_rel(p, expected, x)                                                   \
    atomic_compare_exchange_strong_explicit((p), (expected), (x), memory_order_acq_rel,  \
                                            memory_order_acquire)

#endif
