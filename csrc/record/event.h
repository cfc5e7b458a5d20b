/* What a hook writes: one 64-byte event in its thread's log, one cache line, no pointer
 * into torch or Python except interned ids. Ids here are local to the log; assembly
 * (session/assemble) turns them into ids of the recording.
 *
 *  byte  0        8        16       24       32       40       48   52   56   60
 *  alloc ticks    address  bytes    allocd.  reserved sequence stck oper kdtf -
 *  oper  ticks    end      sequence forward  name shp paren mod stck stat kdtf -
 */
#ifndef MP_RECORD_EVENT_H
#define MP_RECORD_EVENT_H

#include <stdint.h>

typedef enum mp_event_kind {
    MP_EVENT_NONE = 0,
    MP_EVENT_ALLOC = 1,    /* a block was born: bytes > 0 */
    MP_EVENT_FREE = 2,     /* a block died: bytes < 0, or 0 where the source gives none */
    MP_EVENT_OOM = 3,      /* an allocator gave up: bytes = what was asked for */
    MP_EVENT_OPERATOR = 4, /* written at its start, completed at its end */
    MP_EVENT_STEP = 5,     /* step `number` begins */
    MP_EVENT_SPAN = 6,     /* a user's or optimizer's range, as MP_EVENT_OPERATOR */
} mp_event_kind;

/* at::RecordScope, same numbers; plus our own beyond torch's. */
enum {
    MP_SCOPE_FUNCTION = 0,
    MP_SCOPE_BACKWARD_FUNCTION = 1,
    MP_SCOPE_TORCHSCRIPT = 2,
    MP_SCOPE_USER = 7,
    MP_SCOPE_LIMIT = 10,
};

/* c10::DeviceType for the devices that memprof knows by name. */
enum { MP_DEVICE_CPU = 0, MP_DEVICE_CUDA = 1 };

enum {
    MP_FLAG_UNFINISHED = 1,  /* operator: no end was seen */
    MP_FLAG_ASYNC = 2,       /* operator: ends on another thread */
    MP_FLAG_MAPPED = 4,      /* allocation: file or shared-memory mapping */
    MP_FLAG_CLIPPED = 8,     /* operator: began before the window */
};

#define MP_NO_SEQUENCE (-1)

typedef struct mp_event {
    uint64_t ticks; /* clock ticks; for operators and spans the start */
    union {
        struct {
            uint64_t address;
            int64_t bytes;
            int64_t allocated_bytes; /* device total after the event; -1 unknown */
            int64_t reserved_bytes;  /* -1 unknown */
            int64_t sequence;        /* autograd's next number on this thread, or -1 */
        } memory;
        struct {
            uint64_t end_ticks; /* 0 while it runs */
            int64_t sequence;
            uint64_t forward_thread; /* torch's logical thread id, 0 none */
            uint32_t name;           /* log's names */
            uint32_t shapes;         /* log's shapes, 0 none */
            uint32_t parent;         /* ordinal in this log, 0 none */
            uint32_t reserved;
        } op;
        struct {
            int64_t number;
        } step;
    };
    uint32_t stack;   /* log's stacks, 0 none */
    uint32_t op_at;   /* memory: ordinal of the innermost open operator; op: its own */
    uint8_t kind;     /* mp_event_kind */
    int8_t device_type;
    int8_t device_index;
    uint8_t flags;
    uint8_t scope;    /* operators */
    uint8_t pad[3];
} mp_event;

_Static_assert(sizeof(mp_event) == 64, "an event is one cache line");

#endif
