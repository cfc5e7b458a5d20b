#include "collect/torch_shapes.h"

#include "collect/torch_symbols.h"

enum {
    WORD_LIMIT = 192, /* words kept of one operator's inputs */
    IVALUE_BYTES = 16,
    TAG_TENSOR = 1,
    LIST_BEGIN = 16, /* c10::detail::ListImpl: std::vector<IValue> after the refcounts */
    LIST_END = 24,
    INLINE_SIZES = 5,
};

/* Low byte of a header word; see tables.h. */
enum { INPUT_TENSOR = 1, INPUT_UNDEFINED = 2, INPUT_LIST = 3, INPUT_OTHER = 4 };

typedef struct shape_words {
    uint64_t hash;
    uint32_t count;
    bool overflowed;
    uint64_t words[WORD_LIMIT];
} shape_words;

MP_INLINE void
put(shape_words *out, uint64_t word)
{
    if (MP_UNLIKELY(out->count == WORD_LIMIT)) {
        out->overflowed = true;
        return;
    }
    out->words[out->count++] = word;
    out->hash = (out->hash ^ word) * 0x9E3779B97F4A7C15u;
    out->hash ^= out->hash >> 29;
}

MP_INLINE uint64_t
header(uint64_t kind, uint64_t type, uint64_t count)
{
    return kind | (type & 0xff) << 8 | (count & 0xffff) << 16;
}

static inline void
put_tensor(shape_words *out, const void *impl)
{
    if (impl == g_torch.undefined_tensor || impl == NULL) {
        put(out, header(INPUT_UNDEFINED, 0, 0));
        return;
    }
    const char *sizes = (const char *)impl + g_torch_layout.impl_sizes;
    uint64_t dims = MP_READ(uint64_t, sizes, 0);
    uint16_t dtype = MP_READ(uint16_t, impl, g_torch_layout.impl_dtype);
    const int64_t *size = dims <= INLINE_SIZES ? (const int64_t *)(sizes + 8)
                                               : MP_READ(const int64_t *, sizes, 8);
    put(out, header(INPUT_TENSOR, dtype, dims));
    for (uint64_t d = 0; d < dims && !out->overflowed; d++) {
        put(out, (uint64_t)size[d]);
    }
}

static void
put_list(shape_words *out, const void *list)
{
    const char *item = MP_READ(const char *, list, LIST_BEGIN);
    const char *end = MP_READ(const char *, list, LIST_END);
    uint64_t count = (uint64_t)(end - item) / IVALUE_BYTES;
    put(out, header(INPUT_LIST, 0, count));
    for (; item < end && !out->overflowed; item += IVALUE_BYTES) {
        uint32_t tag = MP_READ(uint32_t, item, 8);
        if (tag == TAG_TENSOR) {
            put_tensor(out, MP_READ(const void *, item, 0));
        } else {
            put(out, header(INPUT_OTHER, tag, 0));
        }
    }
}

uint32_t
mp_torch_shapes_intern(mp_thread_log *log, const void *record_function)
{
    const char *input = MP_READ(const char *, record_function, g_torch_layout.inputs);
    size_t size = MP_READ(size_t, record_function, g_torch_layout.inputs + 8);
    if (size == 0) {
        return 0;
    }
    /* A boxed call shows the interpreter's whole stack: the arguments are its last. */
    size_t count = g_torch.op_input_count(record_function);
    if (MP_UNLIKELY(size < count)) {
        return 0;
    }
    input += (size - count) * IVALUE_BYTES;
    shape_words out;
    out.hash = 0x51ED270B9C8D1F35u;
    out.count = 0;
    out.overflowed = false;
    for (size_t i = 0; i < count; i++, input += IVALUE_BYTES) {
        uint32_t tag = MP_READ(uint32_t, input, 8);
        if (tag == TAG_TENSOR) {
            put_tensor(&out, MP_READ(const void *, input, 0));
        } else if (tag == g_torch_layout.list_tag) {
            put_list(&out, MP_READ(const void *, input, 0));
        } else {
            put(&out, header(INPUT_OTHER, tag, 0));
        }
    }
    if (MP_UNLIKELY(out.overflowed)) {
        log->lost[MP_LOSS_SHAPE]++;
    }
    uint64_t fingerprint = out.hash | 1;
    uint32_t id = mp_intern_find(&log->shapes, fingerprint);
    if (MP_UNLIKELY(id == 0)) {
        id = mp_intern_add(&log->shapes, &g_recorder.budget, fingerprint, out.words, out.count);
        log->lost[MP_LOSS_SHAPE] += id == 0;
    }
    return id;
}
