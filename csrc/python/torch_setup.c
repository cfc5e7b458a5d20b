/* Functions with which memprof/_torch_setup.py proves torch's binary interface before the
 * collectors trust it: find the symbols, probe a RecordFunction, read a TensorImpl, and
 * state the layout that was found true. */
#include "python/state.h"

#include <string.h>

#include "collect/torch_ops.h"
#include "collect/torch_symbols.h"

#define MP_MEMBER_PRESENT(member, result, parameters, library, name)                     \
    if (ok) {                                                                            \
        ok = PyDict_SetItemString(symbols, #member,                                      \
                                  g_torch.member != NULL ? Py_True : Py_False) == 0;     \
    }

static PyObject *
torch_find(PyObject *module, PyObject *ignored)
{
    mp_torch_find();
    PyObject *symbols = PyDict_New();
    bool ok = symbols != NULL;
    MP_TORCH_FUNCTIONS(MP_MEMBER_PRESENT)
    if (!ok) {
        Py_XDECREF(symbols);
        return NULL;
    }
    return Py_BuildValue("{sO sz sz sO sO sN}", "found", g_torch.found ? Py_True : Py_False,
                         "c10", g_torch.c10_path, "torch_cpu", g_torch.torch_cpu_path,
                         "has_c10_cuda", g_torch.has_c10_cuda ? Py_True : Py_False,
                         "undefined_tensor", g_torch.undefined_tensor != NULL ? Py_True : Py_False,
                         "symbols", symbols);
}

static PyObject *
tags_tuple(const mp_torch_probe *probe)
{
    PyObject *tags = PyTuple_New(MP_COUNT_OF(probe->tags));
    for (size_t i = 0; tags != NULL && i < MP_COUNT_OF(probe->tags); i++) {
        PyObject *tag = PyLong_FromUnsignedLong(probe->tags[i]);
        if (tag == NULL) {
            Py_CLEAR(tags);
        } else {
            PyTuple_SET_ITEM(tags, (Py_ssize_t)i, tag);
        }
    }
    return tags;
}

static PyObject *
torch_probe(PyObject *module, PyObject *args)
{
    const char *name;
    unsigned long long impl;
    unsigned short inputs_offset;
    PyObject *call;
    if (!PyArg_ParseTuple(args, "sKHO:torch_probe", &name, &impl, &inputs_offset, &call)) {
        return NULL;
    }
    mp_torch_probe probe = {
        .operator_name = name,
        .first_input_impl = (const void *)(uintptr_t)impl,
        .inputs_offset = inputs_offset,
    };
    mp_torch_probe_begin(&probe);
    PyObject *result = PyObject_CallNoArgs(call);
    mp_torch_probe_end(&probe);
    if (result == NULL) {
        return NULL;
    }
    Py_DECREF(result);
    PyObject *tags = tags_tuple(&probe);
    if (tags == NULL) {
        return NULL;
    }
    return Py_BuildValue(
        "{sO sI sI sH sK sK sN sL sO sO sO sB sB}", "failed", probe.failed ? Py_True : Py_False,
        "calls", probe.calls, "matches", probe.matches, "inputs_offset", probe.found_offset,
        "input_count", (unsigned long long)probe.input_count, "inputs_size",
        (unsigned long long)probe.inputs_size, "tags", tags, "sequence",
        (long long)probe.sequence, "thread_id_agrees",
        probe.thread_id_agrees ? Py_True : Py_False, "async_agrees",
        probe.async_agrees ? Py_True : Py_False, "scope_valid",
        probe.scope_valid ? Py_True : Py_False, "name_index_8", probe.name_index[0],
        "name_index_32", probe.name_index[1]);
}

static PyObject *
torch_read_impl(PyObject *module, PyObject *args)
{
    unsigned long long impl;
    unsigned short sizes_offset, dtype_offset;
    if (!PyArg_ParseTuple(args, "KHH:torch_read_impl", &impl, &sizes_offset, &dtype_offset)) {
        return NULL;
    }
    int64_t dims = 0, sizes[16] = {0};
    uint16_t dtype = 0;
    mp_torch_read_impl((const void *)(uintptr_t)impl, sizes_offset, dtype_offset, &dims, sizes,
                       &dtype);
    if (dims < 0 || dims > 16) {
        return Py_BuildValue("(OH)", Py_None, dtype);
    }
    PyObject *tuple = PyTuple_New((Py_ssize_t)dims);
    for (int64_t d = 0; tuple != NULL && d < dims; d++) {
        PyTuple_SET_ITEM(tuple, (Py_ssize_t)d, PyLong_FromLongLong(sizes[d]));
    }
    return tuple == NULL ? NULL : Py_BuildValue("(NH)", tuple, dtype);
}

static PyObject *
torch_read_word(PyObject *module, PyObject *args)
{
    unsigned long long base;
    unsigned short offset;
    if (!PyArg_ParseTuple(args, "KH:torch_read_word", &base, &offset)) {
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(
        MP_READ(uint64_t, (const void *)(uintptr_t)base, offset));
}

static PyObject *
torch_set_layout(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *s_names[] = {"operators",  "sequences",  "schema_names", "shapes",  "inputs",
                              "name_index", "impl_sizes", "impl_dtype",   "list_tag", NULL};
    int operators, sequences, schema_names, shapes;
    unsigned short inputs, name_index, impl_sizes, impl_dtype;
    unsigned int list_tag;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ppppHHHHI:torch_set_layout", s_names,
                                     &operators, &sequences, &schema_names, &shapes, &inputs,
                                     &name_index, &impl_sizes, &impl_dtype, &list_tag)) {
        return NULL;
    }
    g_torch_layout = (mp_torch_layout){
        .operators = operators,
        .sequences = sequences,
        .schema_names = schema_names,
        .shapes = shapes,
        .inputs = inputs,
        .name_index = name_index,
        .impl_sizes = impl_sizes,
        .impl_dtype = impl_dtype,
        .list_tag = list_tag,
    };
    Py_RETURN_NONE;
}

static PyObject *
torch_hide(PyObject *module, PyObject *member)
{
    static char s_hidden[64];
    if (member == Py_None) {
        mp_torch_hide(NULL);
        Py_RETURN_NONE;
    }
    const char *name = PyUnicode_AsUTF8(member);
    if (name == NULL) {
        return NULL;
    }
    if (mp_torch_symbol_of(name) == NULL || strlen(name) >= sizeof(s_hidden)) {
        PyErr_Format(PyExc_ValueError, "member=%R: no such function of torch", member);
        return NULL;
    }
    strcpy(s_hidden, name);
    mp_torch_hide(s_hidden);
    Py_RETURN_NONE;
}

static PyMethodDef torch_functions[] = {
    {"torch_find", torch_find, METH_NOARGS, "Looks for torch's libraries and functions."},
    {"torch_probe", torch_probe, METH_VARARGS,
     "torch_probe(operator, impl, inputs offset or 0, call): what the call showed."},
    {"torch_read_impl", torch_read_impl, METH_VARARGS,
     "torch_read_impl(impl, sizes offset, dtype offset) -> (sizes or None, dtype)."},
    {"torch_read_word", torch_read_word, METH_VARARGS, "torch_read_word(base, offset) -> u64."},
    {"torch_set_layout", (PyCFunction)(void (*)(void))torch_set_layout,
     METH_VARARGS | METH_KEYWORDS, "States the layout that the collectors may trust."},
    {"torch_hide", torch_hide, METH_O, "Tests: a function of torch is missing from now on."},
    {NULL, NULL, 0, NULL},
};

int
mp_add_torch_setup(PyObject *module)
{
    return PyModule_AddFunctions(module, torch_functions);
}
