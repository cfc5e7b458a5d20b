#include "output/trace_shapes.h"

#include "base/compiler.h"

/* c10::ScalarType as torch.profiler names it. */
static const char *const s_dtypes[] = {
    "unsigned char",
    "signed char",
    "short int",
    "int",
    "long int",
    "c10::Half",
    "float",
    "double",
    "c10::complex<c10::Half>",
    "c10::complex<float>",
    "c10::complex<double>",
    "bool",
    "c10::qint8",
    "c10::quint8",
    "c10::qint32",
    "c10::BFloat16",
    "c10::quint4x2",
    "c10::quint2x4",
    "c10::bits1x8",
    "c10::bits2x4",
    "c10::bits4x2",
    "c10::bits8",
    "c10::bits16",
    "c10::Float8_e5m2",
    "c10::Float8_e4m3fn",
    "c10::Float8_e5m2fnuz",
    "c10::Float8_e4m3fnuz",
    "unsigned short",
    "unsigned int",
    "unsigned long",
};

/* Low byte of a header word of shape_values; see record/tables.h. */
enum { INPUT_TENSOR = 1, INPUT_UNDEFINED = 2, INPUT_LIST = 3 };
enum { TAG_NONE = 0 };

typedef struct shape_run {
    const int64_t *next, *end;
} shape_run;

static shape_run
shapes_of(const mp_recording *recording, uint32_t id)
{
    const uint32_t *offsets = MP_ROWS(recording, SHAPE_OFFSETS, uint32_t);
    const int64_t *values = MP_ROWS(recording, SHAPE_VALUES, int64_t);
    if (id == 0 || (size_t)id + 1 >= MP_COUNT(recording, SHAPE_OFFSETS)) {
        return (shape_run){0};
    }
    return (shape_run){values + offsets[id], values + offsets[id + 1]};
}

static unsigned
header_kind(int64_t word)
{
    return (unsigned)word & 0xff;
}

static unsigned
header_type(int64_t word)
{
    return (unsigned)(word >> 8) & 0xff;
}

static unsigned
header_count(int64_t word)
{
    return (unsigned)(word >> 16) & 0xffff;
}

static void
write_sizes(mp_json *json, shape_run *run, unsigned dims)
{
    mp_json_literal(json, "[");
    for (unsigned d = 0; d < dims && run->next < run->end; d++) {
        if (d > 0) {
            mp_json_literal(json, ", ");
        }
        mp_json_i64(json, *run->next++);
    }
    mp_json_literal(json, "]");
}

/* One input's dimensions: [2, 3] of a tensor, [[2], [3]] of a list, [] of anything else. */
static void
write_input_dims(mp_json *json, shape_run *run)
{
    int64_t word = *run->next++;
    if (header_kind(word) == INPUT_TENSOR) {
        write_sizes(json, run, header_count(word));
        return;
    }
    mp_json_literal(json, "[");
    if (header_kind(word) == INPUT_LIST) {
        bool first = true;
        for (unsigned i = 0; i < header_count(word) && run->next < run->end; i++) {
            int64_t item = *run->next++;
            if (header_kind(item) != INPUT_TENSOR) {
                continue;
            }
            if (!first) {
                mp_json_literal(json, ", ");
            }
            first = false;
            write_sizes(json, run, header_count(item));
        }
    }
    mp_json_literal(json, "]");
}

static void
skip_sizes(shape_run *run, unsigned dims)
{
    size_t left = (size_t)(run->end - run->next);
    run->next += dims < left ? dims : left;
}

/* Whether an input is a list, whose dimensions are lists within a list. */
static bool
has_nested(shape_run run)
{
    while (run.next < run.end) {
        int64_t word = *run.next++;
        if (header_kind(word) == INPUT_LIST) {
            return true;
        }
        skip_sizes(&run, header_kind(word) == INPUT_TENSOR ? header_count(word) : 0);
    }
    return false;
}

static void
write_dtype(mp_json *json, unsigned dtype)
{
    if (dtype < MP_COUNT_OF(s_dtypes)) {
        mp_json_bytes(json, s_dtypes[dtype], strlen(s_dtypes[dtype]));
    }
}

static void
write_input_type(mp_json *json, shape_run *run)
{
    int64_t word = *run->next++;
    mp_json_literal(json, "\"");
    if (header_kind(word) == INPUT_TENSOR) {
        write_dtype(json, header_type(word));
        skip_sizes(run, header_count(word));
    } else if (header_kind(word) == INPUT_LIST) {
        bool tensors = false;
        for (unsigned i = 0; i < header_count(word) && run->next < run->end; i++) {
            int64_t item = *run->next++;
            if (header_kind(item) == INPUT_TENSOR) {
                tensors = true;
                skip_sizes(run, header_count(item));
            }
        }
        if (tensors) {
            mp_json_literal(json, "TensorList");
        } else {
            mp_json_literal(json, "ScalarList");
        }
    } else if (header_kind(word) != INPUT_UNDEFINED && header_type(word) != TAG_NONE) {
        mp_json_literal(json, "Scalar");
    }
    mp_json_literal(json, "\"");
}

static void
write_inputs(mp_json *json, shape_run run, void (*write_input)(mp_json *, shape_run *))
{
    mp_json_literal(json, "[");
    for (bool first = true; run.next < run.end; first = false) {
        if (!first) {
            mp_json_literal(json, ", ");
        }
        write_input(json, &run);
    }
    mp_json_literal(json, "]");
}

void
mp_trace_write_shapes(mp_json *json, const mp_recording *recording, uint32_t shapes_id,
                      bool nested)
{
    shape_run run = shapes_of(recording, shapes_id);
    if (run.next == NULL || (!nested && has_nested(run))) {
        return;
    }
    mp_json_literal(json, ", \"Input Dims\": ");
    write_inputs(json, run, write_input_dims);
    mp_json_literal(json, ", \"Input type\": ");
    write_inputs(json, run, write_input_type);
}
