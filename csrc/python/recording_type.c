#include "python/recording_type.h"

#include <string.h>

#include "analysis/analyse.h"
#include "python/columns.h"
#include "python/growth_function.h"
#include "python/state.h"

/* Immutable once made, so no method needs a lock. Arrays hold a reference to it; it holds
 * none to them, so there are no cycles and no GC support. */
typedef struct RecordingObject {
    PyObject_HEAD
    mp_recording *recording; /* owned */
} RecordingObject;

static PyTypeObject *s_recording_type; /* one interpreter only, see module.c */

PyObject *
mp_recording_wrap(mp_recording *recording)
{
    RecordingObject *self = PyObject_New(RecordingObject, s_recording_type);
    if (self == NULL) {
        mp_recording_free(recording);
        return NULL;
    }
    self->recording = recording;
    return (PyObject *)self;
}

const mp_recording *
mp_recording_unwrap(PyObject *object)
{
    if (!PyObject_TypeCheck(object, s_recording_type)) {
        PyErr_Format(PyExc_TypeError, "expected a memprof._core.Recording, not %.100s",
                     Py_TYPE(object)->tp_name);
        return NULL;
    }
    return ((RecordingObject *)object)->recording;
}

static void
recording_dealloc(RecordingObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    mp_recording_free(self->recording);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ---- reading ---- */

/* The table of that name, or MP_TABLE_COUNT. */
static mp_table_id
find_table(const char *name)
{
    mp_table_id id = 0;
    while (id < MP_TABLE_COUNT && strcmp(name, mp_recording_table_name(id)) != 0) {
        id++;
    }
    return id;
}

static PyObject *
recording_table_names(RecordingObject *Py_UNUSED(self), void *Py_UNUSED(closure))
{
    PyObject *names = PyTuple_New(MP_TABLE_COUNT);
    for (int id = 0; names != NULL && id < MP_TABLE_COUNT; id++) {
        PyObject *name = PyUnicode_FromString(mp_recording_table_name(id));
        if (name == NULL) {
            Py_CLEAR(names);
            break;
        }
        PyTuple_SET_ITEM(names, id, name);
    }
    return names;
}

static PyObject *
recording_table(RecordingObject *self, PyObject *name)
{
    if (!PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "name must be str, not %.100s",
                     Py_TYPE(name)->tp_name);
        return NULL;
    }
    const char *text = PyUnicode_AsUTF8(name);
    if (text == NULL) {
        return NULL;
    }
    mp_table_id id = find_table(text);
    if (id == MP_TABLE_COUNT) {
        PyErr_SetObject(PyExc_KeyError, name);
        return NULL;
    }
    return mp_columns_view(self->recording, id, (PyObject *)self);
}

static PyObject *
recording_string(RecordingObject *self, PyObject *argument)
{
    long long id = PyLong_AsLongLong(argument);
    if (id == -1 && PyErr_Occurred()) {
        return NULL;
    }
    size_t offsets = MP_COUNT(self->recording, STRING_OFFSETS);
    if (id != 0 && (id < 0 || (unsigned long long)id + 1 >= offsets)) {
        PyErr_Format(PyExc_IndexError, "string id %lld is not in 0..%zu", id,
                     offsets > 1 ? offsets - 2 : 0);
        return NULL;
    }
    size_t length;
    const char *text = mp_recording_string(self->recording, (uint32_t)id, &length);
    /* Names of threads are bytes of the kernel's: not always UTF-8. */
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
}

static PyObject *
recording_start(RecordingObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(self->recording->start_ns);
}

static PyObject *
recording_window_start(RecordingObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(self->recording->window_start_ns);
}

static PyObject *
recording_stop(RecordingObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(self->recording->stop_ns);
}

/* ---- making ---- */

static bool
copy_item(mp_recording *recording, PyObject *item)
{
    PyObject *name, *array;
    if (!PyArg_ParseTuple(item, "OO", &name, &array)) {
        return false;
    }
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    mp_table_id id = text != NULL ? find_table(text) : MP_TABLE_COUNT;
    if (id == MP_TABLE_COUNT) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_ValueError, "tables: unknown table %R", name);
        }
        return false;
    }
    return mp_columns_copy(recording, id, array);
}

static bool
copy_tables(mp_recording *recording, PyObject *tables)
{
    PyObject *items = PyMapping_Items(tables);
    if (items == NULL) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
            PyErr_Format(PyExc_TypeError,
                         "tables must be a mapping of names to arrays, not %.100s",
                         Py_TYPE(tables)->tp_name);
        }
        return false;
    }
    bool copied = true;
    for (Py_ssize_t i = 0; copied && i < PyList_GET_SIZE(items); i++) {
        copied = copy_item(recording, PyList_GET_ITEM(items, i));
    }
    Py_DECREF(items);
    return copied;
}

/* Check and passes, both without the GIL: the recording is nobody else's yet. */
static bool
complete(mp_recording *recording, bool analyse)
{
    const char *what = NULL;
    mp_status status;
    Py_BEGIN_ALLOW_THREADS
    status = mp_recording_check(recording, &what);
    if (status == MP_OK && analyse) {
        status = mp_analyse(recording);
    }
    Py_END_ALLOW_THREADS
    if (status == MP_INVALID && what != NULL) {
        PyErr_Format(PyExc_ValueError, "not a valid recording: %s", what);
    } else if (status != MP_OK) {
        mp_raise(status, "recording");
    }
    return status == MP_OK;
}

static PyObject *
recording_from_tables(PyObject *Py_UNUSED(none), PyObject *args, PyObject *kwargs)
{
    static char *s_keywords[] = {"tables",  "start_ns", "window_start_ns",
                                 "stop_ns", "analyse",  NULL};
    PyObject *tables;
    long long start_ns, window_start_ns, stop_ns;
    int analyse = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$LLLp:from_tables", s_keywords,
                                     &tables, &start_ns, &window_start_ns, &stop_ns,
                                     &analyse)) {
        return NULL;
    }
    mp_recording *recording = mp_recording_new();
    if (recording == NULL) {
        return PyErr_NoMemory();
    }
    recording->start_ns = start_ns;
    recording->window_start_ns = window_start_ns;
    recording->stop_ns = stop_ns;
    if (!copy_tables(recording, tables) || !complete(recording, analyse != 0)) {
        mp_recording_free(recording);
        return NULL;
    }
    return mp_recording_wrap(recording);
}

/* ---- type ---- */

static PyMethodDef recording_methods[] = {
    {"table", (PyCFunction)recording_table, METH_O,
     PyDoc_STR("A read-only array over the table's own memory.")},
    {"string", (PyCFunction)recording_string, METH_O, PyDoc_STR("Text of a string id.")},
    {"from_tables", (PyCFunction)(void (*)(void))recording_from_tables,
     METH_VARARGS | METH_KEYWORDS | METH_STATIC,
     PyDoc_STR("A recording from copies of the given tables, checked.")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef recording_getset[] = {
    {"start_ns", (getter)recording_start, NULL, PyDoc_STR("Collection began."), NULL},
    {"window_start_ns", (getter)recording_window_start, NULL,
     PyDoc_STR("What was asked to be seen begins."), NULL},
    {"stop_ns", (getter)recording_stop, NULL, PyDoc_STR("Collection ended."), NULL},
    {"table_names", (getter)recording_table_names, NULL, PyDoc_STR("Names for table()."),
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot recording_slots[] = {
    {Py_tp_doc, "Tables of one recording, immutable. Made by Session.stop or from_tables."},
    {Py_tp_dealloc, recording_dealloc},
    {Py_tp_methods, recording_methods},
    {Py_tp_getset, recording_getset},
    {0, NULL},
};

static PyType_Spec recording_spec = {
    .name = "memprof._core.Recording",
    .basicsize = sizeof(RecordingObject),
    .flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = recording_slots,
};

/* Names of the values of a column, in order of value, as a tuple of str. */
static int
add_names(PyObject *module, const char *attribute, const char *const *names, size_t count)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *name = PyUnicode_FromString(names[i]);
        if (name == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, name);
    }
    int result = PyModule_AddObjectRef(module, attribute, tuple);
    Py_XDECREF(tuple);
    return result;
}

#define NAME_OF(suffix, name) name,
static const char *const s_phases[] = {MP_PHASES(NAME_OF)};
static const char *const s_categories[] = {MP_CATEGORIES(NAME_OF)};
static const char *const s_activity_kinds[] = {MP_ACTIVITY_KINDS(NAME_OF)};

int
mp_add_recording_type(PyObject *module)
{
    if (mp_columns_init() < 0) {
        return -1;
    }
    if (s_recording_type == NULL) {
        s_recording_type = (PyTypeObject *)PyType_FromSpec(&recording_spec);
    }
    if (s_recording_type == NULL) {
        return -1;
    }
    if (PyModule_AddObjectRef(module, "Recording", (PyObject *)s_recording_type) < 0 ||
        add_names(module, "phases", s_phases, MP_PHASE_COUNT) < 0 ||
        add_names(module, "categories", s_categories, MP_CATEGORY_COUNT) < 0 ||
        add_names(module, "activity_kinds", s_activity_kinds, MP_ACTIVITY_KIND_COUNT) < 0) {
        return -1;
    }
    return mp_add_growth(module);
}
