#include "collect/torch_ops.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "collect/torch_shapes.h"
#include "record/thread_log.h"

enum { NAME_LIMIT = 2000, WORD = sizeof(uint64_t) };

static uint64_t s_callback;
static bool s_registered;
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

/* A name that is no schema's is a string of the call's own and goes by its content. */
static __attribute__((noinline)) uint32_t
text_name(mp_thread_log *log, const void *record_function)
{
    const char *name = g_torch.op_name(record_function);
    size_t length = strlen(name);
    uint64_t fingerprint = hash_text(name, length) | 1;
    uint32_t id = mp_intern_find(&log->names, fingerprint);
    return MP_LIKELY(id != 0) ? id : add_name(log, fingerprint, name, length, "", 0);
}

/* A schema lives as long as its operator, so its address stands for the name. */
MP_INLINE uint32_t
schema_name(mp_thread_log *log, const void *record_function)
{
    uint64_t schema = MP_READ(uint64_t, record_function, MP_RF_NAME);
    uint64_t fingerprint = (schema * 0x9E3779B97F4A7C15u) | 1;
    uint32_t id = mp_intern_find(&log->names, fingerprint);
    return MP_LIKELY(id != 0) ? id : add_schema_name(log, fingerprint, record_function);
}

/* ---- start and end ---- */

/* What a start callback does, fixed when the compiler makes each variant of it. */
typedef struct start_mode {
    bool proved; /* the layout of RecordFunction; else names only */
    bool stacks;
    bool shapes;
} start_mode;

MP_INLINE void
fill_proved(mp_thread_log *log, mp_event *event, const void *record_function, start_mode mode)
{
    const char *at_inputs = (const char *)record_function + g_torch_layout.inputs;
    event->op.sequence = MP_READ(int64_t, at_inputs, MP_RF_INPUTS_TO_SEQUENCE);
    event->op.forward_thread = MP_READ(uint64_t, at_inputs, MP_RF_INPUTS_TO_FORWARD_THREAD);
    event->op.name = MP_READ(uint8_t, record_function, g_torch_layout.name_index) == 1
                         ? schema_name(log, record_function)
                         : text_name(log, record_function);
    event->op.shapes = mode.shapes ? mp_torch_shapes_intern(log, record_function) : 0;
}

static void
fill_names_only(mp_thread_log *log, mp_event *event, const void *record_function)
{
    event->op.sequence = MP_NO_SEQUENCE;
    event->op.forward_thread = 0;
    event->op.name = text_name(log, record_function);
    event->op.shapes = 0;
}

/* An operator that ends on another thread is on no thread's list of open ones. */
static MP_NOINLINE void
leave_unlisted(mp_thread_log *log, mp_event *event, bool is_async)
{
    if (is_async) {
        event->flags = MP_FLAG_ASYNC;
    } else {
        log->lost[MP_LOSS_NESTING]++;
    }
}

MP_INLINE void
start_operator(const void *record_function, start_mode mode)
{
    mp_thread_log *log = mp_log_enter();
    if (MP_UNLIKELY(log == NULL)) {
        return;
    }
    const mp_open_op *outer = &log->open_ops[log->op_depth];
    const void *frame = NULL;
    uint32_t stack = 0;
    if (mode.stacks) {
        /* An operator called by another's C code has the frame, and so the stack, of its
         * caller: the frame that made the outer call has not moved. */
        frame = g_recorder.innermost_frame();
        stack = frame != NULL && frame == outer->frame ? outer->stack
                                                       : g_recorder.capture_stack(log);
    }
    mp_event *event = mp_log_append(log);
    if (MP_UNLIKELY(event == NULL)) {
        mp_log_leave(log);
        return;
    }
    uint32_t ordinal = ++log->op_count;
    uint8_t scope = MP_READ(uint8_t, record_function, MP_RF_SCOPE);
    event->op.end_ticks = 0;
    event->op.parent = outer->ordinal;
    event->op.reserved = 0;
    event->stack = stack;
    event->op_at = ordinal;
    event->kind = MP_EVENT_OPERATOR;
    event->device_type = 0;
    event->device_index = 0;
    event->flags = 0;
    event->scope = scope;
    bool is_async = false;
    if (mode.proved) {
        fill_proved(log, event, record_function, mode);
        is_async = MP_READ(uint8_t, record_function,
                           g_torch_layout.inputs + MP_RF_INPUTS_TO_ASYNC) != 0;
    } else {
        fill_names_only(log, event, record_function);
    }
    if (MP_UNLIKELY(scope >= MP_SCOPE_LIMIT)) {
        mp_add_relaxed(&s_contradictions, 1);
    }
    if (MP_UNLIKELY(is_async || log->op_depth == MP_OPEN_OP_LIMIT)) {
        leave_unlisted(log, event, is_async);
    } else {
        /* Inside a user's range Python goes on in the same frame: its stack serves nobody. */
        const void *still = scope == MP_SCOPE_USER ? NULL : frame;
        log->open_ops[++log->op_depth] =
            (mp_open_op){record_function, event, still, ordinal, stack};
    }
    event->ticks = mp_clock_ticks();
    mp_log_leave(log);
}

MP_INLINE void
complete(mp_thread_log *log, const mp_open_op *open, uint64_t ticks)
{
    if (MP_UNLIKELY(g_recorder.ring)) {
        mp_log_complete_in_ring(log, open->event, open->ordinal, ticks);
    } else {
        open->event->op.end_ticks = ticks;
    }
}

/* Ends normally come in reverse order of the starts. Where some are missing (asynchronous
 * ones), the operators above the one that ended are over too. */
static MP_NOINLINE void
end_below_top(mp_thread_log *log, const void *record_function, uint64_t ticks)
{
    for (uint32_t depth = log->op_depth; depth > 0; depth--) {
        if (log->open_ops[depth].key == record_function) {
            complete(log, &log->open_ops[depth], ticks);
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
    const mp_open_op *top = &log->open_ops[log->op_depth];
    if (MP_LIKELY(top->key == record_function)) {
        complete(log, top, ticks);
        log->op_depth--;
    } else {
        end_below_top(log, record_function, ticks);
    }
    mp_log_leave(log);
}

/* torch's start callback returns a std::unique_ptr through a hidden pointer: rdi on
 * x86-64 (returned in rax), x8 on AArch64, which C cannot name. It stays empty. */
#if defined(__x86_64__)
#define DEFINE_START(name, proved, stacks, shapes)                                       \
    static void *name(void *result, const void *record_function)                         \
    {                                                                                    \
        *(void **)result = NULL;                                                         \
        start_operator(record_function, (start_mode){proved, stacks, shapes});           \
        return result;                                                                   \
    }
#elif defined(__aarch64__)
#define DEFINE_START(name, proved, stacks, shapes)                                       \
    __attribute__((used, visibility("hidden"))) void mp_torch_ops_##name##_body(const void *); \
    void mp_torch_ops_##name##_body(const void *record_function)                         \
    {                                                                                    \
        start_operator(record_function, (start_mode){proved, stacks, shapes});           \
    }                                                                                    \
    void mp_torch_ops_##name(void);                                                      \
    __asm__(".text\n.p2align 2\n.hidden mp_torch_ops_" #name                             \
            "\n.globl mp_torch_ops_" #name "\n.type mp_torch_ops_" #name                 \
            ",%function\nmp_torch_ops_" #name ":\n"                                      \
            "  hint #34\n" /* bti c */                                                   \
            "  str xzr, [x8]\n"                                                          \
            "  b mp_torch_ops_" #name "_body\n"                                          \
            ".size mp_torch_ops_" #name ", .-mp_torch_ops_" #name "\n");
#define start_names_only mp_torch_ops_start_names_only
#define start_plain mp_torch_ops_start_plain
#define start_stacks mp_torch_ops_start_stacks
#define start_shapes mp_torch_ops_start_shapes
#define start_all mp_torch_ops_start_all
#endif

DEFINE_START(start_names_only, false, false, false)
DEFINE_START(start_plain, true, false, false)
DEFINE_START(start_stacks, true, true, false)
DEFINE_START(start_shapes, true, false, true)
DEFINE_START(start_all, true, true, true)

static void *
start_callback(bool shapes)
{
    const mp_torch_layout *layout = &g_torch_layout;
    if (!layout->operators || !layout->sequences || !layout->schema_names) {
        return (void *)start_names_only;
    }
    if (g_recorder.want_stacks) {
        return shapes ? (void *)start_all : (void *)start_stacks;
    }
    return shapes ? (void *)start_shapes : (void *)start_plain;
}

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
    bool read_inputs = shapes && g_torch_layout.shapes && g_torch.op_input_count != NULL;
    mp_store_relaxed(&s_contradictions, 0);
    mp_torch_callback callback = {
        .start = start_callback(read_inputs),
        .end = (void *)on_end,
        .sampling_probability = 1.0,
        .needs_inputs = read_inputs,
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
