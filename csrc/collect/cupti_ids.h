/* CUPTI's numbers that memprof uses, stated here because no NVIDIA header is needed to
 * build. tests/test_cupti.py compares them with the official headers where there are any. */
#ifndef MP_COLLECT_CUPTI_IDS_H
#define MP_COLLECT_CUPTI_IDS_H

/* Results: R(name, value, what it means for the user). */
#define MP_CUPTI_RESULTS(R)                                                              \
    R(SUCCESS, 0, "no error")                                                            \
    R(INVALID_PARAMETER, 1, "the library does not know a parameter")                     \
    R(INVALID_OPERATION, 7, "called out of order")                                       \
    R(MAX_LIMIT_REACHED, 12, "end of the buffer")                                        \
    R(NOT_COMPATIBLE, 14, "excluded by what is already on")                              \
    R(NOT_INITIALIZED, 15,                                                               \
      "CUPTI and the driver do not fit; is a stubs folder on LD_LIBRARY_PATH?")          \
    R(INVALID_KIND, 21, "the library does not know the kind")                            \
    R(NOT_SUPPORTED, 27, "not supported here")                                           \
    R(VIRTUALIZED_DEVICE_NOT_SUPPORTED, 33, "virtual GPUs are not supported")            \
    R(INSUFFICIENT_PRIVILEGES, 35,                                                       \
      "no permission: set NVreg_RestrictProfilingToAdminUsers=0 or add CAP_SYS_ADMIN")   \
    R(MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, 39, "another profiler holds CUPTI")            \
    R(VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES, 40,                                    \
      "this virtual GPU does not permit profiling")                                      \
    R(CONFIDENTIAL_COMPUTING_NOT_SUPPORTED, 41, "confidential computing is on")          \
    R(CMP_DEVICE_NOT_SUPPORTED, 42, "mining devices are not supported")                  \
    R(MIG_DEVICE_NOT_SUPPORTED, 43, "this MIG device is not supported")                  \
    R(SLI_DEVICE_NOT_SUPPORTED, 44, "SLI is not supported")                              \
    R(WSL_DEVICE_NOT_SUPPORTED, 45, "WSL is not supported by this library")              \
    R(UNKNOWN, 999, "unknown error")

#define MP_DEFINE_CUPTI_RESULT(name, value, text) MP_CUPTI_##name = value,
enum { MP_CUPTI_RESULTS(MP_DEFINE_CUPTI_RESULT) };

/* Activity kinds: K(name, value). */
#define MP_CUPTI_KINDS(K)                                                                \
    K(MEMCPY, 1)                                                                         \
    K(MEMSET, 2)                                                                         \
    K(DRIVER, 4)                                                                         \
    K(RUNTIME, 5)                                                                        \
    K(CONCURRENT_KERNEL, 10)                                                             \
    K(OVERHEAD, 17)                                                                      \
    K(MEMCPY2, 22)                                                                       \
    K(SYNCHRONIZATION, 38)                                                               \
    K(MEMORY2, 49)                                                                       \
    K(MEMORY_POOL, 50)

#define MP_DEFINE_CUPTI_KIND(name, value) MP_CUPTI_KIND_##name = value,
enum { MP_CUPTI_KINDS(MP_DEFINE_CUPTI_KIND) MP_CUPTI_KIND_LIMIT = 64 };

enum { /* attributes */
    MP_CUPTI_ATTRIBUTE_ZEROED_BUFFERS = 5,
    MP_CUPTI_ATTRIBUTE_PER_THREAD_BUFFERS = 9,
};

enum { MP_CUPTI_THREAD_ID_SYSTEM = 1, MP_CUPTI_FLUSH_FORCED = 1 };

enum { /* cuptiGetVersion() from which a thing exists */
    MP_CUPTI_VERSION_LEAST = 17,              /* CUDA 11.6 */
    MP_CUPTI_VERSION_OVERHEAD2 = 20,          /* correlation of overheads */
    MP_CUPTI_VERSION_PER_THREAD_BUFFERS = 21, /* attribute 9 */
    MP_CUPTI_VERSION_SINGLE_API_IDS = 23,     /* EnableRuntimeApi */
    MP_CUPTI_VERSION_SYNCHRONIZATION2 = 26,   /* return value of synchronisations */
    MP_CUPTI_VERSION_NULL_BUFFER = 28,        /* the request callback may give none */
    MP_CUPTI_VERSION_CUDA_13 = 130000,        /* from here on xxyyzz */
    MP_CUPTI_VERSION_UNKNOWN = 140000,        /* a major that nobody has tried */
};

/* API calls that are recorded: A(name, id, flow), in order of id. flow: the call gives work
 * to the device or waits for it, so that a reader draws an arrow from it. The suffix _ptsz
 * is of builds with one default stream a thread. */
#define MP_CUPTI_RUNTIME_IDS(A)                                                          \
    A(cudaMalloc, 20, 0)                                                                 \
    A(cudaFree, 22, 0)                                                                   \
    A(cudaMallocHost, 25, 0)                                                             \
    A(cudaFreeHost, 26, 0)                                                               \
    A(cudaHostAlloc, 27, 0)                                                              \
    A(cudaMemcpy, 31, 1)                                                                 \
    A(cudaMemcpyAsync, 41, 1)                                                            \
    A(cudaMemset, 49, 1)                                                                 \
    A(cudaMemsetAsync, 51, 1)                                                            \
    A(cudaStreamSynchronize, 131, 1)                                                     \
    A(cudaEventSynchronize, 137, 1)                                                      \
    A(cudaMemcpyPeerAsync, 161, 1)                                                       \
    A(cudaDeviceSynchronize, 165, 1)                                                     \
    A(cudaMallocManaged, 206, 0)                                                         \
    A(cudaLaunchKernel, 211, 1)                                                          \
    A(cudaLaunchKernel_ptsz, 214, 1)                                                     \
    A(cudaMemcpyAsync_ptsz, 225, 1)                                                      \
    A(cudaMemsetAsync_ptsz, 235, 1)                                                      \
    A(cudaStreamSynchronize_ptsz, 239, 1)                                                \
    A(cudaLaunchCooperativeKernel, 269, 1)                                               \
    A(cudaLaunchCooperativeKernel_ptsz, 270, 1)                                          \
    A(cudaGraphLaunch, 311, 1)                                                           \
    A(cudaGraphLaunch_ptsz, 312, 1)                                                      \
    A(cudaMallocAsync, 373, 0)                                                           \
    A(cudaMallocAsync_ptsz, 374, 0)                                                      \
    A(cudaFreeAsync, 375, 0)                                                             \
    A(cudaFreeAsync_ptsz, 376, 0)                                                        \
    A(cudaMallocFromPoolAsync, 391, 0)                                                   \
    A(cudaMallocFromPoolAsync_ptsz, 392, 0)                                              \
    A(cudaLaunchKernelExC, 430, 1)                                                       \
    A(cudaLaunchKernelExC_ptsz, 431, 1)                                                  \
    A(__cudaLaunchKernel, 505, 1)                                                        \
    A(__cudaLaunchKernel_ptsz, 506, 1)

#define MP_CUPTI_DRIVER_IDS(A)                                                           \
    A(cuLaunchKernel, 307, 1)                                                            \
    A(cuLaunchKernel_ptsz, 442, 1)                                                       \
    A(cuLaunchCooperativeKernel, 477, 1)                                                 \
    A(cuLaunchCooperativeKernel_ptsz, 478, 1)                                            \
    A(cuGraphLaunch, 514, 1)                                                             \
    A(cuGraphLaunch_ptsz, 515, 1)                                                        \
    A(cuMemAddressReserve, 547, 0)                                                       \
    A(cuMemAddressFree, 548, 0)                                                          \
    A(cuMemCreate, 549, 0)                                                               \
    A(cuMemRelease, 550, 0)                                                              \
    A(cuMemMap, 551, 0)                                                                  \
    A(cuMemUnmap, 552, 0)                                                                \
    A(cuMemSetAccess, 553, 0)                                                            \
    A(cuLaunchKernelEx, 652, 1)                                                          \
    A(cuLaunchKernelEx_ptsz, 653, 1)

#endif
