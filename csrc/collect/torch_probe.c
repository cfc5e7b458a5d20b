/* Calibration of at::RecordFunction: a temporary callback on one thread looks at a known
 * operator on known tensors. Declared in torch_ops.h. */
#include "collect/torch_ops.h"

#include <pthread.h>
#include <string.h>

#include "base/compiler.h"

enum { MAX_DIMS = 16, INLINE_SIZES = 5 };

static mp_torch_probe *s_probe; /* set while a probe runs */
static pthread_t s_probe_thread;
static uint64_t s_probe_callback;
static uintptr_t s_stack_low, s_stack_high; /* of the probing thread */

static void
find_stack(void)
{
    pthread_attr_t attributes;
    void *base = NULL;
    size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstack(&attributes, &base, &bytes);
        pthread_attr_destroy(&attributes);
    }
    s_stack_low = (uintptr_t)base;
    s_stack_high = (uintptr_t)base + bytes;
}

/* The inputs of an eager call lie on the caller's stack: a pointer into it, followed by
 * the number of inputs, whose first word is the first tensor. */
static void
search_inputs(mp_torch_probe *probe, const void *record_function)
{
    const uint64_t *words = record_function;
    for (uint16_t w = 1; w + 1 < MP_RF_PROBE_WORDS; w++) {
        uintptr_t at = (uintptr_t)words[w];
        if (words[w + 1] == probe->input_count && at % 8 == 0 && at >= s_stack_low &&
            at < s_stack_high - 8 &&
            *(const void *const *)at == probe->first_input_impl) {
            probe->matches++;
            probe->found_offset = (uint16_t)(w * 8);
        }
    }
}

static void
read_at_offset(mp_torch_probe *probe, const void *record_function, uint16_t inputs)
{
    const char *input = MP_READ(const char *, record_function, inputs);
    probe->inputs_size = MP_READ(uint64_t, record_function, inputs + 8);
    for (size_t i = 0; i < MP_COUNT_OF(probe->tags); i++) {
        probe->tags[i] = UINT32_MAX;
        if (i < probe->inputs_size && probe->inputs_size == probe->input_count) {
            probe->tags[i] = MP_READ(uint32_t, input, i * 16 + 8);
        }
    }
    probe->sequence = MP_READ(int64_t, record_function, inputs + MP_RF_INPUTS_TO_SEQUENCE);
    probe->async_agrees =
        g_torch.op_is_async != NULL &&
        (MP_READ(uint8_t, record_function, inputs + MP_RF_INPUTS_TO_ASYNC) != 0) ==
            g_torch.op_is_async(record_function);
}

__attribute__((used, visibility("hidden"))) void mp_torch_probe_on_start(const void *);

void
mp_torch_probe_on_start(const void *record_function)
{
    mp_torch_probe *probe = s_probe;
    if (probe == NULL || !pthread_equal(s_probe_thread, pthread_self()) ||
        strcmp(g_torch.op_name(record_function), probe->operator_name) != 0) {
        return;
    }
    probe->calls++;
    probe->input_count = g_torch.op_input_count(record_function);
    probe->scope_valid = MP_READ(uint8_t, record_function, MP_RF_SCOPE) == 0;
    probe->thread_id_agrees =
        g_torch.thread_id != NULL &&
        MP_READ(uint64_t, record_function, MP_RF_THREAD_ID) == g_torch.thread_id();
    probe->name_index[0] = MP_READ(uint8_t, record_function, MP_RF_NAME + 8);
    probe->name_index[1] = MP_READ(uint8_t, record_function, MP_RF_NAME + 32);
    uint16_t inputs = probe->inputs_offset;
    if (inputs == 0 && probe->first_input_impl != NULL) {
        search_inputs(probe, record_function);
        inputs = probe->matches == 1 ? probe->found_offset : 0;
    }
    if (inputs != 0) {
        read_at_offset(probe, record_function, inputs);
    }
}

static void
probe_on_end(const void *record_function, void *context)
{
    (void)record_function;
    (void)context;
}

#if defined(__x86_64__)
static void *
probe_on_start(void *result, const void *record_function)
{
    *(void **)result = NULL;
    mp_torch_probe_on_start(record_function);
    return result;
}
#define PROBE_ON_START ((void *)probe_on_start)
#elif defined(__aarch64__)
void mp_torch_probe_on_start_stub(void);
__asm__(".text\n"
        ".p2align 2\n"
        ".hidden mp_torch_probe_on_start_stub\n"
        ".globl mp_torch_probe_on_start_stub\n"
        ".type mp_torch_probe_on_start_stub,%function\n"
        "mp_torch_probe_on_start_stub:\n"
        "  hint #34\n" /* bti c; see torch_ops.c */
        "  str xzr, [x8]\n"
        "  b mp_torch_probe_on_start\n"
        ".size mp_torch_probe_on_start_stub, .-mp_torch_probe_on_start_stub\n");
#define PROBE_ON_START ((void *)mp_torch_probe_on_start_stub)
#endif

void
mp_torch_probe_begin(mp_torch_probe *probe)
{
    if (!g_torch.found || g_torch.add_callback == NULL || g_torch.remove_callback == NULL ||
        g_torch.op_name == NULL || g_torch.op_input_count == NULL) {
        probe->failed = true;
        return;
    }
    find_stack();
    s_probe_thread = pthread_self();
    s_probe = probe;
    mp_torch_callback callback = {
        .start = PROBE_ON_START,
        .end = (void *)probe_on_end,
        .sampling_probability = 1.0,
        .scopes = {1},
        .needs_inputs = 1,
    };
    s_probe_callback = g_torch.add_callback(callback);
}

void
mp_torch_probe_end(mp_torch_probe *probe)
{
    if (!probe->failed) {
        g_torch.remove_callback(s_probe_callback);
    }
    s_probe = NULL;
}

void
mp_torch_read_impl(const void *impl, uint16_t sizes_offset, uint16_t dtype_offset,
                   int64_t *dims, int64_t sizes[16], uint16_t *dtype)
{
    const char *at = (const char *)impl + sizes_offset;
    *dims = MP_READ(int64_t, at, 0);
    *dtype = MP_READ(uint16_t, impl, dtype_offset);
    if (*dims < 0 || *dims > MAX_DIMS) {
        return;
    }
    const int64_t *size = *dims <= INLINE_SIZES ? (const int64_t *)(at + 8)
                                                : MP_READ(const int64_t *, at, 8);
    memcpy(sizes, size, (size_t)*dims * sizeof(*size));
}
