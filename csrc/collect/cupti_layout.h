/* Where the fields of CUPTI's records lie: F(record, field, offset, type, member in the
 * official header). Offsets hold for every release from CUDA 11.6 to 13: structs grow at
 * their end, no field moves. tests/test_cupti.py compares them with the official headers.
 *
 * S(record, bytes that are read). */
#ifndef MP_COLLECT_CUPTI_LAYOUT_H
#define MP_COLLECT_CUPTI_LAYOUT_H

#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

#define MP_CUPTI_RECORDS(S)                                                              \
    S(API, 40)                                                                           \
    S(KERNEL, 160)                                                                       \
    S(MEMCPY, 76)                                                                        \
    S(MEMCPY_PEER, 84)                                                                   \
    S(MEMSET, 76)                                                                        \
    S(MEMORY, 76)                                                                        \
    S(POOL, 64)                                                                          \
    S(SYNC, 40)                                                                          \
    S(OVERHEAD, 40)

#define MP_CUPTI_FIELDS(F)                                                               \
    F(API, id, 4, uint32_t, cbid)                                                        \
    F(API, start, 8, uint64_t, start)                                                    \
    F(API, end, 16, uint64_t, end)                                                       \
    F(API, process, 24, uint32_t, processId)                                             \
    F(API, thread, 28, uint32_t, threadId)                                               \
    F(API, correlation, 32, uint32_t, correlationId)                                     \
    F(API, result, 36, uint32_t, returnValue)                                            \
    F(KERNEL, registers, 6, uint16_t, registersPerThread)                                \
    F(KERNEL, start, 16, uint64_t, start)                                                \
    F(KERNEL, end, 24, uint64_t, end)                                                    \
    F(KERNEL, device, 40, uint32_t, deviceId)                                            \
    F(KERNEL, context, 44, uint32_t, contextId)                                          \
    F(KERNEL, stream, 48, uint32_t, streamId)                                            \
    F(KERNEL, grid_x, 52, uint32_t, gridX)                                               \
    F(KERNEL, grid_y, 56, uint32_t, gridY)                                               \
    F(KERNEL, grid_z, 60, uint32_t, gridZ)                                               \
    F(KERNEL, block_x, 64, uint32_t, blockX)                                             \
    F(KERNEL, block_y, 68, uint32_t, blockY)                                             \
    F(KERNEL, block_z, 72, uint32_t, blockZ)                                             \
    F(KERNEL, static_shared, 76, uint32_t, staticSharedMemory)                           \
    F(KERNEL, dynamic_shared, 80, uint32_t, dynamicSharedMemory)                         \
    F(KERNEL, correlation, 92, uint32_t, correlationId)                                  \
    F(KERNEL, name, 104, uint64_t, name)                                                 \
    F(KERNEL, graph_node, 144, uint64_t, graphNodeId)                                    \
    F(KERNEL, graph, 156, uint32_t, graphId)                                             \
    F(MEMCPY, direction, 4, uint8_t, copyKind)                                           \
    F(MEMCPY, source, 5, uint8_t, srcKind)                                               \
    F(MEMCPY, target, 6, uint8_t, dstKind)                                               \
    F(MEMCPY, flags, 7, uint8_t, flags)                                                  \
    F(MEMCPY, bytes, 8, uint64_t, bytes)                                                 \
    F(MEMCPY, start, 16, uint64_t, start)                                                \
    F(MEMCPY, end, 24, uint64_t, end)                                                    \
    F(MEMCPY, device, 32, uint32_t, deviceId)                                            \
    F(MEMCPY, context, 36, uint32_t, contextId)                                          \
    F(MEMCPY, stream, 40, uint32_t, streamId)                                            \
    F(MEMCPY, correlation, 44, uint32_t, correlationId)                                  \
    F(MEMCPY, graph_node, 64, uint64_t, graphNodeId)                                     \
    F(MEMCPY, graph, 72, uint32_t, graphId)                                              \
    F(MEMCPY_PEER, direction, 4, uint8_t, copyKind)                                      \
    F(MEMCPY_PEER, source, 5, uint8_t, srcKind)                                          \
    F(MEMCPY_PEER, target, 6, uint8_t, dstKind)                                          \
    F(MEMCPY_PEER, flags, 7, uint8_t, flags)                                             \
    F(MEMCPY_PEER, bytes, 8, uint64_t, bytes)                                            \
    F(MEMCPY_PEER, start, 16, uint64_t, start)                                           \
    F(MEMCPY_PEER, end, 24, uint64_t, end)                                               \
    F(MEMCPY_PEER, device, 32, uint32_t, deviceId)                                       \
    F(MEMCPY_PEER, context, 36, uint32_t, contextId)                                     \
    F(MEMCPY_PEER, stream, 40, uint32_t, streamId)                                       \
    F(MEMCPY_PEER, source_device, 44, uint32_t, srcDeviceId)                             \
    F(MEMCPY_PEER, target_device, 52, uint32_t, dstDeviceId)                             \
    F(MEMCPY_PEER, correlation, 60, uint32_t, correlationId)                             \
    F(MEMCPY_PEER, graph_node, 72, uint64_t, graphNodeId)                                \
    F(MEMCPY_PEER, graph, 80, uint32_t, graphId)                                         \
    F(MEMSET, value, 4, uint32_t, value)                                                 \
    F(MEMSET, bytes, 8, uint64_t, bytes)                                                 \
    F(MEMSET, start, 16, uint64_t, start)                                                \
    F(MEMSET, end, 24, uint64_t, end)                                                    \
    F(MEMSET, device, 32, uint32_t, deviceId)                                            \
    F(MEMSET, context, 36, uint32_t, contextId)                                          \
    F(MEMSET, stream, 40, uint32_t, streamId)                                            \
    F(MEMSET, correlation, 44, uint32_t, correlationId)                                  \
    F(MEMSET, flags, 48, uint16_t, flags)                                                \
    F(MEMSET, target, 50, uint16_t, memoryKind)                                          \
    F(MEMSET, graph_node, 64, uint64_t, graphNodeId)                                     \
    F(MEMSET, graph, 72, uint32_t, graphId)                                              \
    F(MEMORY, operation, 4, uint32_t, memoryOperationType)                               \
    F(MEMORY, target, 8, uint32_t, memoryKind)                                           \
    F(MEMORY, correlation, 12, uint32_t, correlationId)                                  \
    F(MEMORY, address, 16, uint64_t, address)                                            \
    F(MEMORY, bytes, 24, uint64_t, bytes)                                                \
    F(MEMORY, time, 32, uint64_t, timestamp)                                             \
    F(MEMORY, device, 52, uint32_t, deviceId)                                            \
    F(MEMORY, context, 56, uint32_t, contextId)                                          \
    F(MEMORY, stream, 60, uint32_t, streamId)                                            \
    F(MEMORY, is_async, 72, uint32_t, isAsync)                                           \
    F(POOL, operation, 4, uint32_t, memoryPoolOperationType)                             \
    F(POOL, correlation, 12, uint32_t, correlationId)                                    \
    F(POOL, device, 20, uint32_t, deviceId)                                              \
    F(POOL, address, 32, uint64_t, address)                                              \
    F(POOL, bytes, 40, uint64_t, size)                                                   \
    F(POOL, time, 56, uint64_t, timestamp)                                               \
    F(SYNC, operation, 4, uint32_t, type)                                                \
    F(SYNC, start, 8, uint64_t, start)                                                   \
    F(SYNC, end, 16, uint64_t, end)                                                      \
    F(SYNC, correlation, 24, uint32_t, correlationId)                                    \
    F(SYNC, context, 28, uint32_t, contextId)                                            \
    F(SYNC, stream, 32, uint32_t, streamId)                                              \
    F(SYNC, event, 36, uint32_t, cudaEventId)                                            \
    F(OVERHEAD, operation, 4, uint32_t, overheadKind)                                    \
    F(OVERHEAD, start, 24, uint64_t, start)                                              \
    F(OVERHEAD, end, 32, uint64_t, end)

#define MP_CUPTI_DEFINE_SIZE(record, bytes) MP_CUPTI_##record##_BYTES = bytes,
enum { MP_CUPTI_RECORDS(MP_CUPTI_DEFINE_SIZE) };

/* mp_cupti_API_start(record), ...: records are aligned to 8 only as far as CUPTI says so. */
#define MP_CUPTI_DEFINE_GETTER(record, field, offset, type, member)                      \
    _Static_assert((offset) + sizeof(type) <= MP_CUPTI_##record##_BYTES,                 \
                   "within what is read");                                               \
    MP_INLINE type mp_cupti_##record##_##field(const uint8_t *bytes)                     \
    {                                                                                    \
        type value;                                                                      \
        memcpy(&value, bytes + (offset), sizeof(value));                                 \
        return value;                                                                    \
    }
MP_CUPTI_FIELDS(MP_CUPTI_DEFINE_GETTER)

#endif
