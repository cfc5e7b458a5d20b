#include "collect/torch_ops.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "collect/torch_shapes.h"
#include "record/thread_log.h"

enum { NAME_LIMIT = 2000, WORD = sizeof(uint64_t) };

static uint64_t s_callback;
static bool s_registered;
static bool s_read_inputs;
static _Atomic(uint64_t) s_contradictions;

/* ---- names ---- */

MP_INLINE uint64_t
mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 32);
}

static uint64_t
hash_text(const char *text, size_t length)
{
    uint64_t hash = 0x2545F4914F6CDD1Du ^ length;
    while (length >= WORD) {
        uint64_t word;
        memcpy(&word, text, WORD);
        hash = mix(hash, word);
        text += WORD;
        length -= WORD;
    }
    uint64_t tail = 0;
    memcpy(&tail, text, length);
    return mix(hash, tail);
}

/* Words of a name in the log: lengths of name and overload, then their bytes. */
static MP_NOINLINE uint32_t
add_name(mp_thread_log *log, uint64_t fingerprint, const char *name, size_t name_bytes,
         const char *overload, size_t overload_bytes)
{
    uint64_t words[1 + (2 * NAME_LIMIT) / WORD + 1] = {0};
    name_bytes = name_bytes > NAME_LIMIT ? NAME_LIMIT : name_bytes;
    overload_bytes = overload_bytes > NAME_LIMIT ? NAME_LIMIT : overload_bytes;
    words[0] = name_bytes | (uint64_t)overload_bytes << 32;
    memcpy(&words[1], name, name_bytes);
    memcpy((char *)&words[1] + name_bytes, overload, overload_bytes);
    size_t count = 1 + (name_bytes + overload_bytes + WORD - 1) / WORD;
    uint32_t id =
        mp_intern_add(&log->names, &g_recorder.budget, fingerprint, words, (uint32_t)count);
    log->lost[MP_LOSS_NAME] += id == 0;
    return id;
}

static MP_NOINLINE uint32_t
add_schema_name(mp_thread_log *log, uint64_t fingerprint, const void *record_function)
{
    const char *name = g_torch.op_name(record_function);
    const char *overload =
        g_torch.op_overload != NULL ? g_torch.op_overload(record_function) : "";
    return add_name(log, fingerprint, name, strlen(name), overload, strlen(overload));
}

/* A schema lives as long as its operator, so its address stands for the name; any other
 * name is a string of the call's own and goes by its content. */
MP_INLINE uint32_t
name_of(mp_thread_log *log, const void *record_function)
{
    if (g_torch_layout.schema_names &&
        MP_READ(uint8_t, record_function, g_torch_layout.name_index) == 1) {
        uint64_t schema = MP_READ(uint64_t, record_function, MP_RF_NAME);
        uint64_t fingerprint = mix(0x9AE16A3B2F90404Fu, schema) | 1;
        uint32_t id = mp_intern_find(&log->names, fingerprint);
        return MP_LIKELY(id != 0) ? id : add_schema_name(log, fingerprint, record_function);
    }
    const char *name = g_torch.op_name(record_function);
    size_t length = strlen(name);
    uint64_t fingerprint = hash_text(name, length) | 1;
    uint32_t id = mp_intern_find(&log->names, fingerprint);
    return MP_LIKELY(id != 0) ? id : add_name(log, fingerprint, name, length, "", 0);
}

/* ---- start and end ---- */

/* An operator called by another's C code has the frame, and so the stack, of its caller:
 * the frame that made the outer call has not moved. */
MP_INLINE uint32_t
stack_for(mp_thread_log *log, const void *frame)
{
    if (frame == NULL) {
        return 0;
    }
    if (log->op_depth > 0 && log->open_ops[log->op_depth - 1].frame == frame) {
        return log->open_ops[log->op_depth - 1].stack;
    }
    return g_recorder.capture_stack(log);
}

MP_INLINE void
fill_operator(mp_thread_log *log, mp_event *event, const void *record_function, uint32_t stack)
{
    const mp_torch_layout *layout = &g_torch_layout;
    event->op.end_ticks = 0;
    event->op.sequence = MP_NO_SEQUENCE;
    event->op.forward_thread = 0;
    event->op.shapes = 0;
    event->op.reserved = 0;
    event->op.parent = log->op_depth > 0 ? log->open_ops[log->op_depth - 1].ordinal : 0;
    event->op.name = name_of(log, record_function);
    event->stack = stack;
    event->op_at = log->op_count;
    event->kind = MP_EVENT_OPERATOR;
    event->device_type = 0;
    event->device_index = 0;
    event->flags = 0;
    event->scope = MP_READ(uint8_t, record_function, MP_RF_SCOPE);
    if (MP_LIKELY(layout->operators)) {
        if (layout->sequences) {
            event->op.sequence = MP_READ(int64_t, record_function,
                                         layout->inputs + MP_RF_INPUTS_TO_SEQUENCE);
            event->op.forward_thread = MP_READ(uint64_t, record_function,
                                               layout->inputs + MP_RF_INPUTS_TO_FORWARD_THREAD);
        }
        if (s_read_inputs) {
            event->op.shapes = mp_torch_shapes_intern(log, record_function);
        }
        if (MP_UNLIKELY(event->scope >= MP_SCOPE_LIMIT)) {
            mp_add_relaxed(&s_contradictions, 1);
        }
    }
}

__attribute__((used, visibility("hidden"))) void mp_torch_ops_on_start(const void *);

void
mp_torch_ops_on_start(const void *record_function)
{
    mp_thread_log *log = mp_log_enter();
    if (MP_UNLIKELY(log == NULL)) {
        return;
    }
    const void *frame = g_recorder.want_stacks ? g_recorder.innermost_frame() : NULL;
    uint32_t stack = stack_for(log, frame);
    mp_event *event = mp_log_append(log);
    if (MP_UNLIKELY(event == NULL)) {
        mp_log_leave(log);
        return;
    }
    log->op_count++;
    fill_operator(log, event, record_function, stack);
    bool is_async =
        g_torch_layout.operators &&
        MP_READ(uint8_t, record_function, g_torch_layout.inputs + MP_RF_INPUTS_TO_ASYNC) != 0;
    if (MP_UNLIKELY(is_async)) {
        event->flags |= MP_FLAG_ASYNC; /* ends on another thread: not on this one's stack */
    } else if (MP_UNLIKELY(log->op_depth == MP_OPEN_OP_LIMIT)) {
        log->lost[MP_LOSS_NESTING]++;
    } else {
        log->open_ops[log->op_depth++] =
            (mp_open_op){record_function, event, frame, log->op_count, stack};
    }
    event->ticks = mp_clock_ticks();
    mp_log_leave(log);
}

/* In ring mode an operator that was open for long may have lost its event to a newer one:
 * then the place says something else. */
MP_INLINE void
complete(mp_thread_log *log, const mp_open_op *open, uint64_t ticks)
{
    mp_event *event = open->event;
    if (MP_UNLIKELY(g_recorder.ring)) {
        const mp_chunk *chunk =
            (const mp_chunk *)((uintptr_t)event & ~(uintptr_t)(MP_CHUNK_BYTES - 1));
        if (chunk->log != log || event->kind != MP_EVENT_OPERATOR ||
            event->op_at != open->ordinal) {
            return;
        }
    }
    event->op.end_ticks = ticks;
}

/* Ends normally come in reverse order of the starts. Where some are missing (asynchronous
 * ones), the operators above the one that ended are over too. */
static MP_NOINLINE void
end_below_top(mp_thread_log *log, const void *record_function, uint64_t ticks)
{
    for (uint32_t depth = log->op_depth; depth > 0; depth--) {
        if (log->open_ops[depth - 1].key == record_function) {
            complete(log, &log->open_ops[depth - 1], ticks);
            log->op_depth = depth - 1;
            return;
        }
    }
}

static void
on_end(const void *record_function, void *context)
{
    (void)context;
    mp_thread_log *log = mp_log_enter();
    if (MP_UNLIKELY(log == NULL)) {
        return;
    }
    uint64_t ticks = mp_clock_ticks();
    if (MP_LIKELY(log->op_depth > 0)) {
        const mp_open_op *top = &log->open_ops[log->op_depth - 1];
        if (MP_LIKELY(top->key == record_function)) {
            complete(log, top, ticks);
            log->op_depth--;
        } else {
            end_below_top(log, record_function, ticks);
        }
    }
    mp_log_leave(log);
}

/* torch's start callback returns a std::unique_ptr through a hidden pointer: rdi on
 * x86-64 (returned in rax), x8 on AArch64, which C cannot name. It stays empty. */
#if defined(__x86_64__)
static void *
on_start(void *result, const void *record_function)
{
    *(void **)result = NULL;
    mp_torch_ops_on_start(record_function);
    return result;
}
#define ON_START ((void *)on_start)
#elif defined(__aarch64__)
void mp_torch_ops_on_start_stub(void);
__asm__(".text\n"
        ".p2align 2\n"
        ".hidden mp_torch_ops_on_start_stub\n"
        ".globl mp_torch_ops_on_start_stub\n"
        ".type mp_torch_ops_on_start_stub,%function\n"
        "mp_torch_ops_on_start_stub:\n"
        "  hint #34\n" /* bti c */
        "  str xzr, [x8]\n"
        "  b mp_torch_ops_on_start\n"
        ".size mp_torch_ops_on_start_stub, .-mp_torch_ops_on_start_stub\n");
#define ON_START ((void *)mp_torch_ops_on_start_stub)
#endif

mp_status
mp_torch_ops_start(bool all_operators, bool shapes)
{
    if (s_registered) {
        return MP_BUSY;
    }
    if (!g_torch.found || g_torch.add_callback == NULL || g_torch.remove_callback == NULL ||
        g_torch.op_name == NULL) {
        return MP_UNAVAILABLE;
    }
    s_read_inputs = shapes && g_torch_layout.shapes && g_torch.op_input_count != NULL;
    mp_store_relaxed(&s_contradictions, 0);
    mp_torch_callback callback = {
        .start = ON_START,
        .end = (void *)on_end,
        .sampling_probability = 1.0,
        .needs_inputs = s_read_inputs,
    };
    callback.scopes[MP_SCOPE_BACKWARD_FUNCTION] = 1;
    callback.scopes[MP_SCOPE_USER] = 1;
    if (all_operators) {
        callback.scopes[MP_SCOPE_FUNCTION] = 1;
        callback.scopes[MP_SCOPE_TORCHSCRIPT] = 1;
    }
    s_callback = g_torch.add_callback(callback);
    s_registered = true;
    return MP_OK;
}

void
mp_torch_ops_stop(void)
{
    if (s_registered) {
        g_torch.remove_callback(s_callback);
        s_registered = false;
    }
}

uint64_t
mp_torch_ops_contradictions(void)
{
    return mp_load_relaxed(&s_contradictions);
}
