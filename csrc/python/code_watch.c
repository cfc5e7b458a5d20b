/* Keeps the code objects that captured stacks name readable until stop; see frames.h. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/frames.h"

#include <stdlib.h>

/* What is left of a code object that died when no more could be parked. */
typedef struct code_copy {
    PyObject *file, *function;
    int *lines; /* by instruction offset / 2 */
    uint32_t line_count;
} code_copy;

/* mp_object.parked: 0 alive or unknown, 1 parked, from 2 on the place in s_copies. */
enum { PARKED = 1, FIRST_COPY = 2 };

static bool s_watching;
static PyObject **s_parked; /* dead but for us; each is in the object set */
static size_t s_parked_count, s_parked_room;
static code_copy *s_copies;
static size_t s_copy_count, s_copy_room;
static PyObject *s_encoded[2]; /* texts that are no valid UTF-8, for the last answer */

static bool
grow(void **rows, size_t count, size_t *room, size_t row_bytes)
{
    if (count < *room) {
        return true;
    }
    size_t more = *room == 0 ? 256 : *room * 2;
    void *grown = realloc(*rows, more * row_bytes);
    if (grown == NULL) {
        return false;
    }
    *rows = grown;
    *room = more;
    return true;
}

static PyObject *
code_function(PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030B0000
    return code->co_qualname;
#else
    return code->co_name;
#endif
}

static uint32_t
code_units(PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030B0000
    return (uint32_t)Py_SIZE(code);
#else
    return (uint32_t)(PyBytes_GET_SIZE(code->co_code) / 2);
#endif
}

static void
copy_texts(uint32_t object_id, PyCodeObject *code)
{
    uint32_t units = code_units(code);
    int *lines = malloc(((size_t)units + 1) * sizeof(*lines));
    if (lines != NULL &&
        grow((void **)&s_copies, s_copy_count, &s_copy_room, sizeof(*s_copies))) {
        for (uint32_t i = 0; i < units; i++) {
            lines[i] = PyCode_Addr2Line(code, (int)i * 2);
        }
        Py_INCREF(code->co_filename);
        Py_INCREF(code_function(code));
        s_copies[s_copy_count++] =
            (code_copy){code->co_filename, code_function(code), lines, units};
        mp_objects_at(object_id)->parked = FIRST_COPY + (uint32_t)s_copy_count - 1;
    } else {
        free(lines);
    }
}

/* True when the object is to stay in memory: the caller must not free it. GIL held. */
static bool
code_dies(PyCodeObject *code)
{
    uint32_t id = mp_objects_find(code);
    if (id == 0) {
        return false;
    }
    if (s_parked_count < MP_PARKED_LIMIT &&
        grow((void **)&s_parked, s_parked_count, &s_parked_room, sizeof(*s_parked))) {
        s_parked[s_parked_count++] = (PyObject *)code;
        mp_objects_at(id)->parked = PARKED;
        return true;
    }
    copy_texts(id, code);
    mp_objects_strike(code); /* copied or not: the address means nothing from here on */
    return false;
}

#if PY_VERSION_HEX >= 0x030C0000

static int s_watcher = -1;

static int
on_code_event(PyCodeEvent event, PyCodeObject *code)
{
    if (event == PY_CODE_EVENT_DESTROY && s_watching && code_dies(code)) {
        Py_INCREF(code); /* resurrects it */
    }
    return 0;
}

static bool
watch(char *why, size_t room)
{
    if (s_watcher < 0) {
        s_watcher = PyCode_AddWatcher(on_code_event);
        if (s_watcher < 0) {
            PyErr_Clear();
            PyOS_snprintf(why, room, "all watchers of code objects are taken");
            return false;
        }
    }
    return true;
}

static void
unwatch(void)
{
    if (s_watcher >= 0 && PyCode_ClearWatcher(s_watcher) < 0) {
        PyErr_Clear();
    }
    s_watcher = -1;
}

static void
release(PyObject *code)
{
    Py_DECREF(code);
}

#else

/* No event tells of a code object's death before 3.12: the type's own deallocator does,
 * exactly once for each. A parked object stays at reference count zero. */
static destructor s_original;

static void
on_code_dealloc(PyObject *code)
{
    if (!s_watching || !code_dies((PyCodeObject *)code)) {
        s_original(code);
    }
}

static bool
watch(char *why, size_t room)
{
    if (PyCode_Type.tp_dealloc != on_code_dealloc) {
        s_original = PyCode_Type.tp_dealloc;
        PyCode_Type.tp_dealloc = on_code_dealloc;
    }
    return true;
}

static void
unwatch(void)
{
    if (PyCode_Type.tp_dealloc == on_code_dealloc) {
        PyCode_Type.tp_dealloc = s_original;
    }
}

static void
release(PyObject *code)
{
    s_original(code);
}

#endif

bool
mp_code_watch_start(char *why, size_t room)
{
    if (!watch(why, room)) {
        return false;
    }
    s_watching = true;
    return true;
}

void
mp_code_watch_stop(void)
{
    if (!s_watching) {
        return;
    }
    s_watching = false;
    unwatch();
    for (size_t i = 0; i < s_parked_count; i++) {
        release(s_parked[i]);
    }
    for (size_t i = 0; i < s_copy_count; i++) {
        Py_DECREF(s_copies[i].file);
        Py_DECREF(s_copies[i].function);
        free(s_copies[i].lines);
    }
    free(s_parked);
    free(s_copies);
    s_parked = NULL;
    s_copies = NULL;
    s_parked_count = s_parked_room = s_copy_count = s_copy_room = 0;
    Py_CLEAR(s_encoded[0]);
    Py_CLEAR(s_encoded[1]);
}

/* UTF-8 of a name; one with lone surrogates is written with escapes. */
static const char *
text_of(PyObject *name, int which, size_t *length)
{
    Py_ssize_t size = 0;
    const char *text = PyUnicode_AsUTF8AndSize(name, &size);
    if (text == NULL) {
        PyErr_Clear();
        Py_XSETREF(s_encoded[which], PyUnicode_AsEncodedString(name, "utf-8", "backslashreplace"));
        if (s_encoded[which] == NULL) {
            PyErr_Clear();
            *length = 0;
            return "";
        }
        text = PyBytes_AS_STRING(s_encoded[which]);
        size = PyBytes_GET_SIZE(s_encoded[which]);
    }
    *length = (size_t)size;
    return text;
}

bool
mp_code_describe(uint32_t code_id, uint32_t instruction, mp_code_line *out)
{
    if (code_id == 0 || code_id > mp_objects_count()) {
        return false;
    }
    const mp_object *object = mp_objects_at(code_id);
    PyObject *file, *function;
    if (!object->dead) {
        PyCodeObject *code = (PyCodeObject *)object->address;
        file = code->co_filename;
        function = code_function(code);
        out->line = PyCode_Addr2Line(code, (int)instruction);
    } else {
        if (object->parked < FIRST_COPY) {
            return false;
        }
        const code_copy *copy = &s_copies[object->parked - FIRST_COPY];
        file = copy->file;
        function = copy->function;
        out->line = instruction / 2 < copy->line_count ? copy->lines[instruction / 2] : 0;
    }
    out->file = text_of(file, 0, &out->file_bytes);
    out->function = text_of(function, 1, &out->function_bytes);
    out->line = out->line > 0 ? out->line : 0;
    return true;
}
