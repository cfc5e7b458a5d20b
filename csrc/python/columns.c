#include "python/columns.h"

#include <stdint.h>
#include <string.h>

#define PY_ARRAY_UNIQUE_SYMBOL memprof_numpy_api
#include <numpy/arrayobject.h>

/* A table of plain values has one nameless entry. */
#define DEFINE_FIELDS(suffix, name, type, fields)                                          \
    static const char *const s_fields_##suffix[] = {fields(MP_FIELD_AND_CODE) NULL};
#define DEFINE_VALUES(suffix, name, type)                                                  \
    static const char *const s_fields_##suffix[] = {"", MP_CODE_OF(type), NULL};
MP_TABLES(DEFINE_FIELDS, DEFINE_VALUES)

#define LIST_FIELDS(suffix, name, type, fields) s_fields_##suffix,
#define LIST_VALUES(suffix, name, type) s_fields_##suffix,
static const char *const *const s_fields[MP_TABLE_COUNT] = {
    MP_TABLES(LIST_FIELDS, LIST_VALUES)};

int
mp_columns_init(void)
{
    import_array1(-1);
    return 0;
}

static PyObject *
field_list(const char *const *fields)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && fields[i] != NULL; i += 2) {
        PyObject *field = Py_BuildValue("(ss)", fields[i], fields[i + 1]);
        if (field == NULL || PyList_Append(list, field) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(field);
    }
    return list;
}

static PyArray_Descr *
make_dtype(const char *const *fields)
{
    PyObject *description =
        fields[0][0] == '\0' ? PyUnicode_FromString(fields[1]) : field_list(fields);
    PyArray_Descr *dtype = NULL;
    if (description != NULL && PyArray_DescrConverter(description, &dtype) != NPY_SUCCEED) {
        dtype = NULL;
    }
    Py_XDECREF(description);
    return dtype;
}

PyObject *
mp_columns_view(const mp_recording *recording, mp_table_id id, PyObject *base)
{
    static uint64_t s_nothing[16]; /* an address for arrays without rows */
    const mp_table *table = &recording->tables[id];
    npy_intp count = (npy_intp)table->count;
    PyArray_Descr *dtype = make_dtype(s_fields[id]);
    if (dtype == NULL) {
        return NULL;
    }
    PyObject *array = PyArray_NewFromDescr(
        &PyArray_Type, dtype, 1, &count, NULL, table->count > 0 ? table->rows : s_nothing,
        NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED, NULL);
    if (array == NULL) {
        return NULL;
    }
    Py_INCREF(base);
    if (PyArray_SetBaseObject((PyArrayObject *)array, base) < 0) {
        Py_DECREF(array);
        return NULL;
    }
    return array;
}

static bool
copy_rows(mp_recording *recording, mp_table_id id, PyArrayObject *array)
{
    size_t count = (size_t)PyArray_DIM(array, 0);
    void *rows = mp_recording_resize(recording, id, count);
    if (count == 0) {
        return true;
    }
    if (rows == NULL) {
        PyErr_NoMemory();
        return false;
    }
    memcpy(rows, PyArray_DATA(array), count * recording->tables[id].row_bytes);
    return true;
}

bool
mp_columns_copy(mp_recording *recording, mp_table_id id, PyObject *object)
{
    const char *name = mp_recording_table_name(id);
    if (!PyArray_Check(object)) {
        PyErr_Format(PyExc_TypeError, "table '%s' must be a NumPy array, not %.100s", name,
                     Py_TYPE(object)->tp_name);
        return false;
    }
    PyArrayObject *array = (PyArrayObject *)object;
    if (PyArray_NDIM(array) != 1) {
        PyErr_Format(PyExc_ValueError, "table '%s' must have one dimension, not %d", name,
                     PyArray_NDIM(array));
        return false;
    }
    PyArray_Descr *dtype = make_dtype(s_fields[id]);
    if (dtype == NULL) {
        return false;
    }
    if (!PyArray_EquivTypes(PyArray_DESCR(array), dtype)) {
        PyErr_Format(PyExc_ValueError, "table '%s' must have dtype %S, not %S", name, dtype,
                     PyArray_DESCR(array));
        Py_DECREF(dtype);
        return false;
    }
    PyObject *packed = PyArray_FromArray(array, dtype, NPY_ARRAY_CARRAY_RO);
    bool copied = packed != NULL && copy_rows(recording, id, (PyArrayObject *)packed);
    Py_XDECREF(packed);
    return copied;
}

PyObject *
mp_columns_own(const char *const *fields, const void *rows, size_t count, size_t row_bytes)
{
    npy_intp length = (npy_intp)count;
    PyArray_Descr *dtype = make_dtype(fields);
    if (dtype == NULL) {
        return NULL;
    }
    PyObject *array = PyArray_Empty(1, &length, dtype, 0);
    if (array == NULL) {
        return NULL;
    }
    if ((size_t)PyArray_NBYTES((PyArrayObject *)array) != count * row_bytes) {
        Py_DECREF(array);
        PyErr_SetString(PyExc_SystemError, "fields and rows differ in size");
        return NULL;
    }
    if (count > 0) {
        memcpy(PyArray_DATA((PyArrayObject *)array), rows, count * row_bytes);
    }
    return array;
}
