/* Keeps the code objects that captured stacks name readable until stop; see frames.h. All
 * with the GIL held.
 *
 * An object of the set is alive, or parked (dead but for us, address not given out again),
 * or struck out with a copy of its texts: nothing else is ever followed. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/frames.h"

#include <stdlib.h>

/* What is kept of a code object that died when no more could be parked; owned. */
typedef struct code_copy {
    PyObject *file, *function, *line_table;
    int first_line;
} code_copy;

/* mp_object.parked: 0 alive or unknown, 1 parked, from 2 on the place in the copies. */
enum { PARKED = 1, FIRST_COPY = 2 };

typedef struct kept_codes {
    PyObject **parked;
    size_t parked_count, parked_room;
    code_copy *copies;
    size_t copy_count, copy_room;
    PyObject *escaped; /* dict: a name that is no valid UTF-8 -> bytes; NULL when none */
} kept_codes;

static bool s_watching;
static uint64_t s_deaths; /* seen by the watch, whether of the set or not */
static size_t s_parked_limit = MP_PARKED_LIMIT;
static kept_codes s_kept;
static PyCodeObject *s_reader; /* never runs: see line_of_copy() */

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

static bool
park(mp_object *object, PyCodeObject *code)
{
    if (s_kept.parked_count >= s_parked_limit ||
        !grow((void **)&s_kept.parked, s_kept.parked_count, &s_kept.parked_room,
              sizeof(*s_kept.parked))) {
        return false;
    }
    s_kept.parked[s_kept.parked_count++] = (PyObject *)code;
    object->parked = PARKED;
    return true;
}

static void
copy_texts(mp_object *object, PyCodeObject *code)
{
    if (!grow((void **)&s_kept.copies, s_kept.copy_count, &s_kept.copy_room,
              sizeof(*s_kept.copies))) {
        return;
    }
    object->parked = FIRST_COPY + (uint32_t)s_kept.copy_count;
    s_kept.copies[s_kept.copy_count++] = (code_copy){
        .file = Py_NewRef(code->co_filename),
        .function = Py_NewRef(code_function(code)),
        .line_table = Py_NewRef(code->co_linetable),
        .first_line = code->co_firstlineno,
    };
}

/* True when the object is to stay in memory: the caller must not free it. */
static bool
code_dies(PyCodeObject *code)
{
    s_deaths++;
    uint32_t id = s_watching ? mp_objects_find(code) : 0;
    if (id == 0) {
        return false;
    }
    mp_object *object = mp_objects_at(id);
    bool known = object->kind == MP_OBJECT_CODE; /* else a module that died here unseen */
    if (known && park(object, code)) {
        return true;
    }
    if (known) {
        copy_texts(object, code);
    }
    mp_objects_strike(code); /* copied or not: the address means nothing from here on */
    return false;
}

/* ---- how deaths come to notice ---- */

/* A code object is made and dropped: whether the watch sees it. */
static bool
watch_works(void)
{
    uint64_t before = s_deaths;
    PyCodeObject *code = PyCode_NewEmpty("", "", 1);
    if (code == NULL) {
        PyErr_Clear();
        return false;
    }
    Py_DECREF(code);
    return s_deaths != before;
}

#if PY_VERSION_HEX >= 0x030C0000

static int s_watcher = -1;

static int
on_code_event(PyCodeEvent event, PyCodeObject *code)
{
    if (event == PY_CODE_EVENT_DESTROY && code_dies(code)) {
        Py_INCREF(code); /* resurrects it */
    }
    return 0;
}

static void
watch(void)
{
    if (s_watcher < 0) {
        s_watcher = PyCode_AddWatcher(on_code_event);
    }
    if (s_watcher < 0) {
        PyErr_Clear();
    }
}

static void
unwatch(void)
{
    if (s_watcher >= 0 && PyCode_ClearWatcher(s_watcher) < 0) {
        PyErr_Clear();
    }
    s_watcher = -1;
}

static bool
watch_holds(void)
{
    return true;
}

static void
release(PyObject *code)
{
    Py_DECREF(code);
}

#else

/* No event tells of a code object's death before 3.12: the type's own deallocator does,
 * exactly once for each. A parked object stays at reference count zero. Somebody may wrap
 * the deallocator after us; then ours cannot be taken out and passes on what it gets. */
static destructor s_original;

static void
on_code_dealloc(PyObject *code)
{
    if (!code_dies((PyCodeObject *)code)) {
        s_original(code);
    }
}

static void
watch(void)
{
    if (PyCode_Type.tp_dealloc != on_code_dealloc && !watch_works()) {
        s_original = PyCode_Type.tp_dealloc;
        PyCode_Type.tp_dealloc = on_code_dealloc;
    }
}

static void
unwatch(void)
{
    if (PyCode_Type.tp_dealloc == on_code_dealloc) {
        PyCode_Type.tp_dealloc = s_original;
    }
}

static bool
watch_holds(void)
{
    return PyCode_Type.tp_dealloc == on_code_dealloc || watch_works();
}

static void
release(PyObject *code)
{
    s_original(code);
}

#endif

/* ---- start and stop ---- */

bool
mp_code_watch_start(char *why, size_t room)
{
    if (s_reader == NULL) {
        s_reader = PyCode_NewEmpty("", "", 1);
    }
    watch();
    if (s_reader == NULL || !watch_works()) {
        PyErr_Clear();
        unwatch();
        PyOS_snprintf(why, room, "the deaths of code objects cannot be watched");
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
    /* Taken out first: freeing code may run code that starts another session. */
    kept_codes kept = s_kept;
    s_kept = (kept_codes){0};
    for (size_t i = 0; i < kept.parked_count; i++) {
        release(kept.parked[i]);
    }
    for (size_t i = 0; i < kept.copy_count; i++) {
        Py_DECREF(kept.copies[i].file);
        Py_DECREF(kept.copies[i].function);
        Py_DECREF(kept.copies[i].line_table);
    }
    Py_XDECREF(kept.escaped);
    free(kept.parked);
    free(kept.copies);
}

void
mp_code_watch_limit(size_t parked)
{
    s_parked_limit = parked;
}

/* ---- texts ---- */

/* The name's bytes with lone surrogates escaped, borrowed; NULL when out of memory. */
static PyObject *
escaped_name(PyObject *name)
{
    if (s_kept.escaped == NULL) {
        s_kept.escaped = PyDict_New();
    }
    PyObject *bytes = s_kept.escaped == NULL ? NULL : PyDict_GetItem(s_kept.escaped, name);
    if (bytes == NULL && s_kept.escaped != NULL) {
        bytes = PyUnicode_AsEncodedString(name, "utf-8", "backslashreplace");
        if (bytes != NULL) {
            (void)PyDict_SetItem(s_kept.escaped, name, bytes);
            Py_DECREF(bytes);
            bytes = PyDict_GetItem(s_kept.escaped, name);
        }
    }
    PyErr_Clear();
    return bytes;
}

static const char *
text_of(PyObject *name, size_t *length)
{
    Py_ssize_t size = 0;
    const char *text = PyUnicode_AsUTF8AndSize(name, &size);
    if (text == NULL) {
        PyErr_Clear();
        PyObject *bytes = escaped_name(name);
        text = bytes == NULL ? "" : PyBytes_AS_STRING(bytes);
        size = bytes == NULL ? 0 : PyBytes_GET_SIZE(bytes);
    }
    *length = (size_t)size;
    return text;
}

/* The interpreter's own decoder reads the table that was kept, lent to a code object that
 * never runs. */
static int
line_of_copy(const code_copy *copy, int instruction)
{
    PyObject *own_table = s_reader->co_linetable;
    int own_first_line = s_reader->co_firstlineno;
    s_reader->co_linetable = copy->line_table;
    s_reader->co_firstlineno = copy->first_line;
    int line = PyCode_Addr2Line(s_reader, instruction);
    s_reader->co_linetable = own_table;
    s_reader->co_firstlineno = own_first_line;
    return line;
}

static bool
describe_copy(const mp_object *object, int instruction, mp_code_line *out)
{
    if (object->parked < FIRST_COPY || object->parked - FIRST_COPY >= s_kept.copy_count) {
        return false;
    }
    const code_copy *copy = &s_kept.copies[object->parked - FIRST_COPY];
    out->file = text_of(copy->file, &out->file_bytes);
    out->function = text_of(copy->function, &out->function_bytes);
    out->line = line_of_copy(copy, instruction);
    return true;
}

bool
mp_code_describe(uint32_t code_id, uint32_t instruction, mp_code_line *out)
{
    if (code_id == 0 || code_id > mp_objects_count()) {
        return false;
    }
    const mp_object *object = mp_objects_at(code_id);
    if (object->kind != MP_OBJECT_CODE) {
        return false;
    }
    if (object->dead) {
        if (!describe_copy(object, (int)instruction, out)) {
            return false;
        }
    } else {
        if (s_watching && object->parked != PARKED && !watch_holds()) {
            return false; /* it may have died behind our back */
        }
        PyCodeObject *code = (PyCodeObject *)object->address;
        out->file = text_of(code->co_filename, &out->file_bytes);
        out->function = text_of(code_function(code), &out->function_bytes);
        out->line = PyCode_Addr2Line(code, (int)instruction);
    }
    out->line = out->line > 0 ? out->line : 0;
    return true;
}
