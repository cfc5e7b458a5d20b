#include "collect/torch_shapes.h"

#include "collect/torch_symbols.h"

enum {
    WORD_LIMIT = 2048, /* words kept of one operator's inputs */
    IVALUE_BYTES = 16,
    TAG_TENSOR = 1,
    LIST_BEGIN = 16, /* c10::detail::ListImpl: std::vector<IValue> after the refcounts */
    LIST_END = 24,
    INLINE_SIZES = 5,
};

/* Low byte of a header word; see tables.h. */
enum { INPUT_TENSOR = 1, INPUT_UNDEFINED = 2, INPUT_LIST = 3, INPUT_OTHER = 4 };

/* The hash is a sum of products with powers of one odd number: no step waits for the one
 * before. Words are only written down (`kept` not NULL) when the hash is new. */
typedef struct shape_words {
    uint64_t hash;
    uint64_t factor;
    uint64_t count;
    uint64_t *kept; /* room for WORD_LIMIT, or NULL */
} shape_words;

MP_INLINE void
put(shape_words *out, uint64_t word)
{
    out->hash += (word + 0x9E3779B9u) * out->factor;
    out->factor *= 0xD1342543DE82EF95u;
    if (out->kept != NULL && out->count < WORD_LIMIT) {
        out->kept[out->count] = word;
    }
    out->count++;
}

MP_INLINE void
put_tensor(shape_words *out, const char *impl)
{
    if (impl == g_torch.undefined_tensor) {
        put(out, INPUT_UNDEFINED);
        return;
    }
    const char *sizes = impl + g_torch_layout.impl_sizes;
    uint64_t dims = MP_READ(uint64_t, sizes, 0);
    uint64_t dtype = MP_READ(uint8_t, impl, g_torch_layout.impl_dtype);
    const uint64_t *size = (const uint64_t *)(sizes + 8);
    if (MP_UNLIKELY(dims > INLINE_SIZES)) {
        size = MP_READ(const uint64_t *, sizes, 8);
    }
    put(out, INPUT_TENSOR | dtype << 8 | dims << 16);
    for (const uint64_t *end = size + dims; size < end; size++) {
        put(out, *size);
    }
}

MP_INLINE void
put_list(shape_words *out, const char *list)
{
    const char *item = MP_READ(const char *, list, LIST_BEGIN);
    const char *end = MP_READ(const char *, list, LIST_END);
    uint64_t count = (uint64_t)(end - item) / IVALUE_BYTES;
    put(out, INPUT_LIST | (count & 0xffff) << 16);
    for (; item < end; item += IVALUE_BYTES) {
        uint32_t tag = MP_READ(uint32_t, item, 8);
        if (tag == TAG_TENSOR) {
            put_tensor(out, MP_READ(const char *, item, 0));
        } else {
            put(out, INPUT_OTHER | (uint64_t)tag << 8);
        }
    }
}

MP_INLINE void
put_inputs(shape_words *out, const char *input, size_t count)
{
    for (const char *end = input + count * IVALUE_BYTES; input < end; input += IVALUE_BYTES) {
        uint32_t tag = MP_READ(uint32_t, input, 8);
        if (tag == TAG_TENSOR) {
            put_tensor(out, MP_READ(const char *, input, 0));
        } else if (MP_UNLIKELY(tag == g_torch_layout.list_tag)) {
            put_list(out, MP_READ(const char *, input, 0));
        } else {
            put(out, INPUT_OTHER | (uint64_t)tag << 8);
        }
    }
}

MP_INLINE shape_words
begin(uint64_t *kept)
{
    return (shape_words){0x51ED270B9C8D1F35u, 0xC2B2AE3D27D4EB4Fu, 0, kept};
}

static MP_NOINLINE uint32_t
add_shapes(mp_thread_log *log, uint64_t fingerprint, const char *input, size_t count)
{
    uint64_t words[WORD_LIMIT];
    shape_words out = begin(words);
    put_inputs(&out, input, count);
    if (out.count > WORD_LIMIT) {
        log->lost[MP_LOSS_SHAPE]++; /* a list too long to be told: none is better than part */
        return 0;
    }
    uint32_t id = mp_intern_add(&log->shapes, &g_recorder.budget, fingerprint, words,
                                (uint32_t)out.count);
    log->lost[MP_LOSS_SHAPE] += id == 0;
    return id;
}

uint32_t
mp_torch_shapes_intern(mp_thread_log *log, const void *record_function)
{
    const char *input = MP_READ(const char *, record_function, g_torch_layout.inputs);
    size_t size = MP_READ(size_t, record_function, g_torch_layout.inputs + 8);
    /* A boxed call shows the interpreter's whole stack: the arguments are its last. */
    size_t count = g_torch.op_input_count(record_function);
    if (MP_UNLIKELY(size < count || count == 0)) {
        return 0;
    }
    input += (size - count) * IVALUE_BYTES;
    shape_words out = begin(NULL);
    put_inputs(&out, input, count);
    uint64_t fingerprint = (out.hash ^ out.hash >> 32) | 1;
    uint32_t id = mp_intern_find(&log->shapes, fingerprint);
    return MP_LIKELY(id != 0) ? id : add_shapes(log, fingerprint, input, count);
}
