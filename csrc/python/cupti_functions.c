#include "python/cupti_functions.h"

#include <stdbool.h>
#include <string.h>

#include "collect/cupti_api.h"
#include "python/columns.h"
#include "python/state.h"

#define ULL(x) ((unsigned long long)(x))

PyObject *
mp_cupti_report_dict(const mp_cupti_report *report)
{
    const mp_cupti_buffer_counts *buffers = &report->buffers;
    return Py_BuildValue(
        "{sO sI sO ss sK sK sK sK sK sK sK sK sK sK sK sK sK sK sI sI}", /* */
        "on", report->on ? Py_True : Py_False,           /* */
        "version", report->version,                      /* */
        "single_ids", report->single_ids ? Py_True : Py_False, /* */
        "refused", report->refused,                      /* */
        "rows", ULL(report->rows),                       /* */
        "dropped", ULL(report->dropped),                 /* */
        "lost", ULL(report->lost),                       /* */
        "overwritten", ULL(report->overwritten),         /* */
        "unknown", ULL(report->unknown),                 /* */
        "unwanted", ULL(report->unwanted),               /* */
        "without_time", ULL(report->without_time),       /* */
        "backwards", ULL(report->backwards),             /* */
        "broken", ULL(report->broken),                   /* */
        "buffers", ULL(buffers->lent),                   /* */
        "buffers_unready", ULL(buffers->unready),        /* */
        "buffers_refused", ULL(buffers->refused),        /* */
        "buffers_foreign", ULL(buffers->foreign),        /* */
        "buffers_discarded", ULL(buffers->discarded),    /* */
        "buffers_held", buffers->held,                   /* */
        "buffers_most", buffers->most);
}

const char **
mp_cupti_paths(PyObject *paths, size_t *count, PyObject **keep)
{
    *keep = PySequence_Fast(paths, "paths must be a sequence of str");
    if (*keep == NULL) {
        return NULL;
    }
    Py_ssize_t length = PySequence_Fast_GET_SIZE(*keep);
    const char **list = PyMem_Calloc((size_t)length + 1, sizeof(*list));
    for (Py_ssize_t i = 0; list != NULL && i < length; i++) {
        list[i] = PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(*keep, i));
        if (list[i] == NULL) {
            PyMem_Free(list);
            Py_CLEAR(*keep);
            return NULL;
        }
    }
    if (list == NULL) {
        Py_CLEAR(*keep);
        PyErr_NoMemory();
    }
    *count = (size_t)length;
    return list;
}

/* ---- library ---- */

static PyObject *
cupti_load(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *s_names[] = {"paths", "only", NULL};
    PyObject *paths, *keep;
    int only = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$p:cupti_load", s_names, &paths, &only)) {
        return NULL;
    }
    size_t count;
    const char **list = mp_cupti_paths(paths, &count, &keep);
    if (list == NULL) {
        return NULL;
    }
    char reason[1200] = "";
    mp_status status = mp_cupti_load(list, count, only, reason, sizeof(reason));
    PyMem_Free(list);
    Py_DECREF(keep);
    const mp_cupti *cupti = mp_cupti_get();
    bool found = status == MP_OK && cupti != NULL;
    return Py_BuildValue("{ss sI sI ss}", "path", found ? mp_cupti_path() : "", "version",
                         found ? cupti->version : 0, "cuda",
                         found ? mp_cupti_cuda_major(cupti->version) : 0, "reason",
                         found ? "" : reason);
}

/* ---- replay ---- */

static uint32_t s_replay_version; /* the walk has no room for an argument */

static int
next_of_replay(uint8_t *buffer, size_t valid_size, void **record)
{
    return mp_cupti_next_by_size(buffer, valid_size, record, s_replay_version);
}

static const char *
read_from_dict(void *context, uint64_t pointer)
{
    PyObject *key = PyLong_FromUnsignedLongLong(pointer);
    PyObject *text = key != NULL ? PyDict_GetItemWithError(context, key) : NULL;
    Py_XDECREF(key);
    const char *bytes = text != NULL && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : NULL;
    PyErr_Clear();
    return bytes;
}

static bool
decode_all(mp_cupti_decoder *decoder, PyObject *buffers)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(buffers); i++) {
        Py_buffer view;
        if (PyObject_GetBuffer(PyList_GET_ITEM(buffers, i), &view, PyBUF_C_CONTIGUOUS) < 0) {
            return false;
        }
        /* The walk takes a pointer that could be written through, but only reads. */
        mp_cupti_decode(decoder, view.buf, (size_t)view.len);
        PyBuffer_Release(&view);
    }
    return true;
}

static const char *const s_fields[] = {MP_ACTIVITY_FIELDS(MP_FIELD_AND_CODE) NULL};

static PyObject *
rows_of(const mp_activity_log *log)
{
    mp_activity *rows = PyMem_Calloc((size_t)log->rows + 1, sizeof(*rows));
    if (rows == NULL) {
        return PyErr_NoMemory();
    }
    size_t count = 0;
    for (const mp_activity_chunk *chunk = log->first; chunk != NULL; chunk = chunk->next) {
        memcpy(&rows[count], chunk->rows, chunk->count * sizeof(*rows));
        count += chunk->count;
    }
    PyObject *array = mp_columns_own(s_fields, rows, count, sizeof(*rows));
    PyMem_Free(rows);
    return array;
}

static PyObject *
names_of(const mp_cupti_names *names)
{
    PyObject *list = PyList_New(0);
    for (uint32_t id = 0; list != NULL && id < names->count; id++) {
        const char *text = names->texts[id] != NULL ? names->texts[id] : "";
        PyObject *name = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
        if (name == NULL || PyList_Append(list, name) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(name);
    }
    return list;
}

static PyObject *
cupti_decode(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *s_names[] = {"buffers", "version", "names", "library", NULL};
    PyObject *buffers, *names;
    unsigned int version;
    int library = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!IO!|$p:cupti_decode", s_names,
                                     &PyList_Type, &buffers, &version, &PyDict_Type, &names,
                                     &library)) {
        return NULL;
    }
    const mp_cupti *cupti = mp_cupti_get();
    if (library && cupti == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "library=True needs cupti_load() first");
        return NULL;
    }
    s_replay_version = version;
    mp_cupti_decoder *decoder = PyMem_Malloc(sizeof(*decoder));
    if (decoder == NULL) {
        return PyErr_NoMemory();
    }
    PyObject *result = NULL;
    mp_status status =
        mp_cupti_decoder_init(decoder, library ? cupti->get_next_record : next_of_replay,
                              version, (size_t)1 << 40, false, read_from_dict, names);
    if (status != MP_OK) {
        (void)mp_raise(status, "decoding records");
    } else if (decode_all(decoder, buffers)) {
        result = Py_BuildValue("{sN sN sK sK sK sK sK}", "rows", rows_of(&decoder->log),
                               "names", names_of(&decoder->names), "unknown",
                               ULL(decoder->unknown), "unwanted", ULL(decoder->unwanted),
                               "without_time", ULL(decoder->without_time), "backwards",
                               ULL(decoder->backwards), "broken", ULL(decoder->broken));
    }
    mp_cupti_decoder_fini(decoder);
    PyMem_Free(decoder);
    return result;
}

static PyMethodDef cupti_functions[] = {
    {"cupti_load", (PyCFunction)(void (*)(void))cupti_load, METH_VARARGS | METH_KEYWORDS,
     "cupti_load(paths, only=False): finds CUPTI, starts nothing; path, version or reason."},
    {"cupti_decode", (PyCFunction)(void (*)(void))cupti_decode, METH_VARARGS | METH_KEYWORDS,
     "cupti_decode(buffers, version, names, library=False): raw buffers of a dump to rows."},
    {NULL, NULL, 0, NULL},
};

int
mp_add_cupti_functions(PyObject *module)
{
    return PyModule_AddFunctions(module, cupti_functions);
}
