/* The one place that knows torch's binary interface: the functions that its libraries
 * export and, once proved, where the fields of at::RecordFunction and c10::TensorImpl lie.
 * torch is never loaded from here; when it is not in the process nothing is found. */
#ifndef MP_COLLECT_TORCH_SYMBOLS_H
#define MP_COLLECT_TORCH_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/* c10::Device: passed in one register. */
typedef struct mp_torch_device {
    int8_t type;
    int8_t index;
} mp_torch_device;

/* at::RecordFunctionCallback, passed by value. */
typedef struct mp_torch_callback {
    void *start;
    void *end;
    double sampling_probability;
    uint8_t scopes[10];
    uint8_t needs_inputs;
    uint8_t needs_outputs;
    uint8_t needs_ids; /* stays 0: it would change the ids in torch.profiler's traces */
} mp_torch_callback;
_Static_assert(sizeof(mp_torch_callback) == 40, "at::RecordFunctionCallback");

/* S(member, return type, parameters, library 'c' c10 or 't' torch_cpu, mangled name). */
#define MP_TORCH_FUNCTIONS(S)                                                            \
    S(alloc_cpu, void *, (size_t), 'c', "_ZN3c109alloc_cpuEm")                           \
    S(free_cpu, void, (void *), 'c', "_ZN3c108free_cpuEPv")                              \
    S(reporter_new, void, (void *, void *, size_t), 'c',                                 \
      "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm")                                      \
    S(reporter_delete, void, (void *, void *), 'c',                                      \
      "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv")                                    \
    S(reporter_oom, void, (void *, size_t), 'c',                                         \
      "_ZN3c1025ProfiledCPUMemoryReporter11OutOfMemoryEm")                               \
    S(report_usage, void, (void *, int64_t, size_t, size_t, mp_torch_device), 'c',       \
      "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")                           \
    S(report_oom, void, (int64_t, size_t, size_t, mp_torch_device), 'c',                 \
      "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE")                             \
    S(add_callback, uint64_t, (mp_torch_callback), 't',                                  \
      "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE")                          \
    S(remove_callback, void, (uint64_t), 't', "_ZN2at14removeCallbackEm")                \
    S(op_name, const char *, (const void *), 't', "_ZNK2at14RecordFunction4nameEv")      \
    S(op_overload, const char *, (const void *), 't',                                    \
      "_ZNK2at14RecordFunction13overload_nameEv")                                        \
    S(op_input_count, size_t, (const void *), 't',                                       \
      "_ZNK2at14RecordFunction10num_inputsEv")                                           \
    S(op_is_async, bool, (const void *), 't', "_ZNK2at14RecordFunction7isAsyncEv")       \
    S(thread_id, uint64_t, (void), 't', "_ZN2at14RecordFunction15currentThreadIdEv")     \
    S(next_sequence, int64_t, (void), 't', "_ZN2at15sequence_number4peekEv")

#define MP_TORCH_POINTER(member, result, parameters, library, name) result(*member) parameters;

typedef struct mp_torch {
    bool found; /* libc10 and libtorch_cpu are in the process */
    char c10_path[512];
    char torch_cpu_path[512];
    bool has_c10_cuda;
    MP_TORCH_FUNCTIONS(MP_TORCH_POINTER)
    const void *undefined_tensor; /* c10::UndefinedTensorImpl::_singleton, or NULL */
} mp_torch;

extern mp_torch g_torch;

/* Looks for torch's libraries and functions; repeat when torch may have come since.
 * Returns g_torch.found. */
bool mp_torch_find(void);

/* The mangled name of a member of mp_torch, or NULL: for messages. */
const char *mp_torch_symbol_of(const char *member);

/* Tests: from the next mp_torch_find() on, a member is treated as missing. NULL ends. */
void mp_torch_hide(const char *member);

/* ---- layouts, all offsets in bytes; proved by mp_torch_probe and by Python ---- */

/* at::RecordFunction. `inputs` is calibrated; later members lie at fixed distances from
 * it on both C++ ABIs. The members before are the same everywhere. */
enum {
    MP_RF_THREAD_ID = 88,
    MP_RF_SCOPE = 96,
    MP_RF_NAME = 160, /* variant<std::string, FunctionSchema const&> */
    MP_RF_INPUTS_TO_SEQUENCE = -8,
    MP_RF_INPUTS_TO_FORWARD_THREAD = 96,
    MP_RF_INPUTS_TO_ASYNC = 112,
    MP_RF_PROBE_WORDS = 43,
};

typedef struct mp_torch_layout {
    bool operators;       /* what follows was proved; else names only */
    bool sequences;       /* the sequence member was proved */
    bool schema_names;    /* the index byte tells schema from string */
    bool shapes;          /* TensorImpl members and tags were proved */
    uint16_t inputs;
    uint16_t name_index;  /* byte: 0 std::string, 1 schema pointer at MP_RF_NAME */
    uint16_t impl_sizes;  /* TensorImpl: count, then up to 5 sizes inline or a pointer */
    uint16_t impl_dtype;
    uint32_t list_tag;    /* IValue tag of a list */
} mp_torch_layout;

extern mp_torch_layout g_torch_layout;

#define MP_READ(type, base, offset) (*(type const *)((const char *)(base) + (offset)))

#endif
