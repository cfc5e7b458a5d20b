/* The columns of a recording: plain structs in time order, the same bytes that NumPy sees
 * (python/columns derives the dtypes from these lists) and that a saved file holds.
 *
 * Conventions: times are ns since the epoch on one clock; sizes are bytes; an id is
 * 1-based with 0 = none, so id N is row N-1 of its table, except strings and stacks, where
 * row 0 is the empty one and the id is the row. -1 = unknown or, for death, alive.
 * birth_step, death_step, peak_step and step_memory.step hold mp_step.number. */
#ifndef MP_RECORD_TABLES_H
#define MP_RECORD_TABLES_H

#include <stddef.h>
#include <stdint.h>

/* F(C type, name). Lists are ordered so that no struct has padding. */

/* One row an allocator event. allocated_bytes and reserved_bytes are the device's totals
 * after it (CPU: sum of the blocks seen; -1 where unknown). bytes is negative for a free
 * and 0 for the free of a block whose birth was not seen. */
#define MP_ALLOCATION_FIELDS(F)                                                          \
    F(int64_t, time_ns)                                                                  \
    F(uint64_t, address)                                                                 \
    F(int64_t, bytes)                                                                    \
    F(int64_t, allocated_bytes)                                                          \
    F(int64_t, reserved_bytes)                                                           \
    F(int64_t, sequence)                                                                 \
    F(uint32_t, thread)                                                                  \
    F(uint32_t, stack_id)                                                                \
    F(uint32_t, operator_id)                                                             \
    F(uint8_t, kind)                                                                     \
    F(int8_t, device_type)                                                               \
    F(int8_t, device_index)                                                              \
    F(uint8_t, flags)

/* One row an operator (or, in light mode, a backward node). Rows are in order of start. */
#define MP_OPERATOR_FIELDS(F)                                                            \
    F(int64_t, start_ns)                                                                 \
    F(int64_t, end_ns)                                                                   \
    F(int64_t, sequence)                                                                 \
    F(uint64_t, forward_thread)                                                          \
    F(uint32_t, name_id)                                                                 \
    F(uint32_t, overload_id)                                                             \
    F(uint32_t, parent_id)                                                               \
    F(uint32_t, thread)                                                                  \
    F(uint32_t, stack_id)                                                                \
    F(uint32_t, shapes_id)                                                               \
    F(uint32_t, forward_id)                                                              \
    F(uint16_t, depth)                                                                   \
    F(uint8_t, scope)                                                                    \
    F(uint8_t, flags)

/* One row a step of the training loop, [start_ns, end_ns). */
#define MP_STEP_FIELDS(F)                                                                \
    F(int64_t, start_ns)                                                                 \
    F(int64_t, end_ns)                                                                   \
    F(int64_t, number)                                                                   \
    F(uint32_t, thread)                                                                  \
    F(uint32_t, flags)

/* Memory of one step on one device: row i * devices + d is of row i of the steps and row d
 * of the devices. */
#define MP_STEP_MEMORY_FIELDS(F)                                                         \
    F(int64_t, peak_ns)                                                                  \
    F(int64_t, peak_bytes)                                                               \
    F(int64_t, start_bytes)                                                              \
    F(int64_t, end_bytes)                                                                \
    F(int64_t, allocated_bytes)                                                          \
    F(int64_t, freed_bytes)                                                              \
    F(uint32_t, step)                                                                    \
    F(int8_t, device_type)                                                               \
    F(int8_t, device_index)                                                              \
    F(uint16_t, flags)

/* Ranges that the user or an optimizer marks. kind: 1 user, 2 optimizer step. */
#define MP_SPAN_FIELDS(F)                                                                \
    F(int64_t, start_ns)                                                                 \
    F(int64_t, end_ns)                                                                   \
    F(uint32_t, name_id)                                                                 \
    F(uint32_t, thread)                                                                  \
    F(uint32_t, object_id)                                                               \
    F(uint32_t, kind)

#define MP_THREAD_FIELDS(F)                                                              \
    F(int64_t, os_id)                                                                    \
    F(uint64_t, torch_id)                                                                \
    F(uint64_t, event_count)                                                             \
    F(uint32_t, name_id)                                                                 \
    F(uint32_t, flags)

/* stacks[i] = stack_frames[offset .. offset+depth), innermost first. module_id is the
 * innermost module on it, optimizer_id likewise; flags: MP_STACK_... */
#define MP_STACK_FIELDS(F)                                                               \
    F(uint32_t, offset)                                                                  \
    F(uint32_t, depth)                                                                   \
    F(uint32_t, module_id)                                                               \
    F(uint32_t, flags)

#define MP_FRAME_FIELDS(F)                                                               \
    F(uint32_t, file_id)                                                                 \
    F(uint32_t, function_id)                                                             \
    F(uint32_t, line)                                                                    \
    F(uint32_t, flags)

/* Module instances seen on stacks. path like "model.layers.3"; parent_id 0 = root. */
#define MP_MODULE_FIELDS(F)                                                              \
    F(uint64_t, address)                                                                 \
    F(uint32_t, path_id)                                                                 \
    F(uint32_t, class_id)                                                                \
    F(uint32_t, parent_id)                                                               \
    F(uint32_t, flags)

/* Blocks that were live when recording began (from an allocator's snapshot). */
#define MP_BASELINE_FIELDS(F)                                                            \
    F(int64_t, time_ns)                                                                  \
    F(uint64_t, address)                                                                 \
    F(int64_t, bytes)                                                                    \
    F(int64_t, requested_bytes)                                                          \
    F(uint32_t, stack_id)                                                                \
    F(int8_t, device_type)                                                               \
    F(int8_t, device_index)                                                              \
    F(uint16_t, flags)

/* One row a block: birth to death. stack_id is the owner's: for memory that backward
 * allocates without Python frames it is the forward line's (flags MP_BLOCK_FORWARD_LINE,
 * _NEAR where the link is by the nearest sequence number). */
#define MP_BLOCK_FIELDS(F)                                                               \
    F(uint64_t, address)                                                                 \
    F(int64_t, bytes)                                                                    \
    F(int64_t, requested_bytes)                                                          \
    F(int64_t, birth_ns)                                                                 \
    F(int64_t, death_ns)                                                                 \
    F(int32_t, birth_step)                                                               \
    F(int32_t, death_step)                                                               \
    F(uint32_t, thread)                                                                  \
    F(uint32_t, operator_id)                                                             \
    F(uint32_t, stack_id)                                                                \
    F(uint32_t, module_id)                                                               \
    F(int8_t, device_type)                                                               \
    F(int8_t, device_index)                                                              \
    F(uint8_t, category)                                                                 \
    F(uint8_t, phase)                                                                    \
    F(uint8_t, preexisting)                                                              \
    F(uint8_t, flags)                                                                    \
    F(uint16_t, reserved)

/* Per device, from window_start_ns to stop_ns; the identity
 * start_bytes + allocated_bytes - freed_bytes == end_bytes is checked by the pass that
 * fills it (balanced = 1). unknown_frees counts deaths of blocks of unknown size. */
#define MP_DEVICE_FIELDS(F)                                                              \
    F(int64_t, start_bytes)                                                              \
    F(int64_t, end_bytes)                                                                \
    F(int64_t, allocated_bytes)                                                          \
    F(int64_t, freed_bytes)                                                              \
    F(int64_t, peak_bytes)                                                               \
    F(int64_t, peak_ns)                                                                  \
    F(int64_t, peak_reserved_bytes)                                                      \
    F(int64_t, reserved_at_peak_bytes)                                                   \
    F(uint64_t, allocations)                                                             \
    F(uint64_t, frees)                                                                   \
    F(uint64_t, unknown_frees)                                                           \
    F(int8_t, device_type)                                                               \
    F(int8_t, device_index)                                                              \
    F(uint8_t, balanced)                                                                 \
    F(uint8_t, flags)                                                                    \
    F(int32_t, peak_step)

/* One row of GPU activity, in order of start: device work, the API calls that gave it, and
 * the driver's own memory. Rows of API calls have a thread; the others have the device, and
 * launch_id names the row of the API call they come from, whose operator, stack and step
 * they share. A stack is the operator's: for backward work the forward line's.
 *
 * bytes: copied, set or allocated (negative for a free). operation: of copies the direction,
 * of pools 1 created, 2 destroyed, 3 trimmed, of synchronisation 1 event, 2 stream waits for
 * event, 3 stream, 4 context. value: of an API call what it returned, of a memset the byte,
 * of synchronisation the event, of a peer copy source device << 16 | target device.
 * stream 0xFFFFFFFF: none. source_memory, target_memory: MP_MEMORY_KINDS. */
#define MP_ACTIVITY_FIELDS(F)                                                            \
    F(int64_t, start_ns)                                                                 \
    F(int64_t, end_ns)                                                                   \
    F(int64_t, bytes)                                                                    \
    F(uint64_t, address)                                                                 \
    F(uint64_t, graph_node)                                                              \
    F(uint32_t, correlation)                                                             \
    F(uint32_t, context)                                                                 \
    F(uint32_t, stream)                                                                  \
    F(uint32_t, name_id)                                                                 \
    F(uint32_t, operator_id)                                                             \
    F(uint32_t, stack_id)                                                                \
    F(uint32_t, launch_id)                                                               \
    F(uint32_t, graph_id)                                                                \
    F(uint32_t, thread)                                                                  \
    F(uint32_t, grid_x)                                                                  \
    F(uint32_t, grid_y)                                                                  \
    F(uint32_t, grid_z)                                                                  \
    F(uint32_t, static_shared_bytes)                                                     \
    F(uint32_t, dynamic_shared_bytes)                                                    \
    F(int32_t, step)                                                                     \
    F(uint32_t, value)                                                                   \
    F(uint16_t, block_x)                                                                 \
    F(uint16_t, block_y)                                                                 \
    F(uint16_t, block_z)                                                                 \
    F(uint16_t, registers)                                                               \
    F(uint16_t, callback_id)                                                             \
    F(uint8_t, kind)                                                                     \
    F(uint8_t, operation)                                                                \
    F(uint8_t, source_memory)                                                            \
    F(uint8_t, target_memory)                                                            \
    F(uint8_t, flags)                                                                    \
    F(int8_t, device_index)

#define MP_DEFINE_FIELD(type, name) type name;
#define MP_DEFINE_TABLE(struct_name, FIELDS)                                             \
    typedef struct struct_name {                                                         \
        FIELDS(MP_DEFINE_FIELD)                                                          \
    } struct_name;

MP_DEFINE_TABLE(mp_allocation, MP_ALLOCATION_FIELDS)
MP_DEFINE_TABLE(mp_operator, MP_OPERATOR_FIELDS)
MP_DEFINE_TABLE(mp_step, MP_STEP_FIELDS)
MP_DEFINE_TABLE(mp_step_memory, MP_STEP_MEMORY_FIELDS)
MP_DEFINE_TABLE(mp_span, MP_SPAN_FIELDS)
MP_DEFINE_TABLE(mp_thread, MP_THREAD_FIELDS)
MP_DEFINE_TABLE(mp_stack, MP_STACK_FIELDS)
MP_DEFINE_TABLE(mp_frame, MP_FRAME_FIELDS)
MP_DEFINE_TABLE(mp_module, MP_MODULE_FIELDS)
MP_DEFINE_TABLE(mp_baseline, MP_BASELINE_FIELDS)
MP_DEFINE_TABLE(mp_block, MP_BLOCK_FIELDS)
MP_DEFINE_TABLE(mp_device, MP_DEVICE_FIELDS)
MP_DEFINE_TABLE(mp_activity, MP_ACTIVITY_FIELDS)

_Static_assert(sizeof(mp_allocation) == 64, "no padding");
_Static_assert(sizeof(mp_operator) == 64, "no padding");
_Static_assert(sizeof(mp_step) == 32 && sizeof(mp_step_memory) == 56, "no padding");
_Static_assert(sizeof(mp_span) == 32 && sizeof(mp_thread) == 32, "no padding");
_Static_assert(sizeof(mp_stack) == 16 && sizeof(mp_frame) == 16, "no padding");
_Static_assert(sizeof(mp_module) == 24 && sizeof(mp_baseline) == 40, "no padding");
_Static_assert(sizeof(mp_block) == 72 && sizeof(mp_device) == 96, "no padding");
_Static_assert(sizeof(mp_activity) == 120, "no padding");

/* Every table of a recording: T(enum suffix, Python name, struct, fields). Tables without
 * a field list hold plain values and are named by V(enum suffix, Python name, C type).
 *
 * string_bytes is UTF-8 without terminators; string i is bytes string_offsets[i] up to
 * string_offsets[i+1] (so one more offset than strings). shapes_id i > 0 names the int64
 * run shape_values[shape_offsets[i] .. shape_offsets[i+1]): per input one header word
 * (low byte: 1 tensor, 2 undefined tensor, 3 tensor list, 4 other; second byte: dtype,
 * c10::ScalarType, for 4 the IValue tag; bits 16..31: dimensions or list length), followed
 * by the sizes of a tensor, or by the list's elements as headers of their own. */
#define MP_TABLES(T, V)                                                                  \
    T(ALLOCATIONS, allocations, mp_allocation, MP_ALLOCATION_FIELDS)                     \
    T(OPERATORS, operators, mp_operator, MP_OPERATOR_FIELDS)                             \
    T(STEPS, steps, mp_step, MP_STEP_FIELDS)                                             \
    T(STEP_MEMORY, step_memory, mp_step_memory, MP_STEP_MEMORY_FIELDS)                   \
    T(SPANS, spans, mp_span, MP_SPAN_FIELDS)                                             \
    T(THREADS, threads, mp_thread, MP_THREAD_FIELDS)                                     \
    T(STACKS, stacks, mp_stack, MP_STACK_FIELDS)                                         \
    T(FRAMES, frames, mp_frame, MP_FRAME_FIELDS)                                         \
    T(MODULES, modules, mp_module, MP_MODULE_FIELDS)                                     \
    T(BASELINE, baseline, mp_baseline, MP_BASELINE_FIELDS)                               \
    T(BLOCKS, blocks, mp_block, MP_BLOCK_FIELDS)                                         \
    T(DEVICES, devices, mp_device, MP_DEVICE_FIELDS)                                     \
    T(ACTIVITIES, activities, mp_activity, MP_ACTIVITY_FIELDS)                           \
    V(STACK_FRAMES, stack_frames, uint32_t)                                              \
    V(STRING_OFFSETS, string_offsets, uint64_t)                                          \
    V(STRING_BYTES, string_bytes, uint8_t)                                               \
    V(SHAPE_OFFSETS, shape_offsets, uint32_t)                                            \
    V(SHAPE_VALUES, shape_values, int64_t)

/* stack_frames entries are rows of `frames` (0-based). */

enum {
    MP_ALLOCATION_ALLOC = 1, /* mp_allocation.kind, as mp_event_kind */
    MP_ALLOCATION_FREE = 2,
    MP_ALLOCATION_OOM = 3,
};

enum { MP_SPAN_USER = 1, MP_SPAN_OPTIMIZER = 2 };

enum { /* mp_stack.flags: a frame with this role is on the stack */
    MP_STACK_TRUNCATED = 1,
    MP_STACK_DATA = 2,     /* a DataLoader iterator's __next__ */
    MP_STACK_BACKWARD = 4, /* Tensor.backward, torch.autograd.backward or .grad */
};

enum { /* mp_frame.flags: roles by identity of the code object */
    MP_FRAME_MODULE_CALL = 1, /* torch.nn.Module.__call__ */
    MP_FRAME_DATA = 2,
    MP_FRAME_BACKWARD = 4,
    MP_FRAME_OPTIMIZER = 8,
};

enum {
    MP_BLOCK_FORWARD_LINE = 1,
    MP_BLOCK_NEAR = 2,
    MP_BLOCK_MAPPED = 4,
    MP_BLOCK_MISSED_FREE = 8, /* its death was not seen: the address was given out anew */
};

enum { /* mp_device.flags */
    MP_DEVICE_NO_BASELINE = 1,      /* blocks live at the start are not all known */
    MP_DEVICE_BASELINE_DIFFERS = 2, /* the baseline's sum is not the allocator's total */
    MP_DEVICE_TOTALS_DRIFT = 4,     /* the allocator's total moved without an event */
    MP_DEVICE_MISSED_FREES = 8,     /* has blocks with MP_BLOCK_MISSED_FREE */
};

/* mp_activity.kind: K(suffix, name). */
#define MP_ACTIVITY_KINDS(K)                                                             \
    K(NONE, "none")                                                                      \
    K(KERNEL, "kernel")                                                                  \
    K(MEMCPY, "memcpy")                                                                  \
    K(MEMSET, "memset")                                                                  \
    K(RUNTIME, "runtime")                                                                \
    K(DRIVER, "driver")                                                                  \
    K(ALLOC, "alloc")                                                                    \
    K(FREE, "free")                                                                      \
    K(POOL, "pool")                                                                      \
    K(SYNC, "synchronization")                                                           \
    K(OVERHEAD, "overhead")

#define MP_DEFINE_ACTIVITY_KIND(suffix, name) MP_ACTIVITY_##suffix,
typedef enum mp_activity_kind {
    MP_ACTIVITY_KINDS(MP_DEFINE_ACTIVITY_KIND) MP_ACTIVITY_KIND_COUNT
} mp_activity_kind;

/* Whether a row is a call of the host's, with a thread. */
#define MP_ACTIVITY_IS_CALL(kind)                                                        \
    ((kind) == MP_ACTIVITY_RUNTIME || (kind) == MP_ACTIVITY_DRIVER)

enum { /* mp_activity.flags */
    MP_ACTIVITY_ASYNC = 1,
    MP_ACTIVITY_FAILED = 2, /* the call returned an error */
    MP_ACTIVITY_PEER = 4,   /* a copy between two devices */
    MP_ACTIVITY_GIVES = 8,  /* a call that gives work to the device or waits for it */
};

/* Kinds of memory, as CUPTI numbers them: M(value, name). */
#define MP_MEMORY_KINDS(M)                                                               \
    M(0, "Unknown")                                                                      \
    M(1, "Pageable")                                                                     \
    M(2, "Pinned")                                                                       \
    M(3, "Device")                                                                       \
    M(4, "Array")                                                                        \
    M(5, "Managed")                                                                      \
    M(6, "Device Static")                                                                \
    M(7, "Managed Static")

#define MP_PHASES(P)                                                                     \
    P(OTHER, "other")                                                                    \
    P(FORWARD, "forward")                                                                \
    P(BACKWARD, "backward")                                                              \
    P(OPTIMIZER, "optimizer")                                                            \
    P(DATA, "data")

#define MP_CATEGORIES(C)                                                                 \
    C(UNKNOWN, "unknown")                                                                \
    C(PARAMETER, "parameter")                                                            \
    C(GRADIENT, "gradient")                                                              \
    C(OPTIMIZER_STATE, "optimizer state")                                                \
    C(INPUT, "input")                                                                    \
    C(ACTIVATION, "activation")                                                          \
    C(TEMPORARY, "temporary")                                                            \
    C(WORKSPACE, "workspace")

#define MP_DEFINE_PHASE(suffix, name) MP_PHASE_##suffix,
#define MP_DEFINE_CATEGORY(suffix, name) MP_CATEGORY_##suffix,
typedef enum mp_phase { MP_PHASES(MP_DEFINE_PHASE) MP_PHASE_COUNT } mp_phase;
typedef enum mp_category { MP_CATEGORIES(MP_DEFINE_CATEGORY) MP_CATEGORY_COUNT } mp_category;

#endif
