/* memprof._core.Session: the Python handle on session/session.h. The GIL orders all calls;
 * only the merging and analysing inside stop() run without it. */
#include "python/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "python/cupti_functions.h"
#include "python/frames.h"
#include "python/recording_type.h"
#include "record/objects.h"
#include "session/session.h"

typedef struct SessionObject {
    PyObject_HEAD
    mp_session_options options;
    bool active;     /* this object holds the process's session; ask holds_session() */
    uint64_t process_serial;
    bool stopping;   /* stop() is at work in some thread */
    bool has_report;
    mp_session_report report;
    char stacks_reason[160];
    bool stacks_ok;
} SessionObject;

/* Rises in the child of a fork: an object that was active in the parent is not, here. */
static uint64_t s_process_serial = 1;

/* Whether this object holds the process's session. */
static bool
holds_session(const SessionObject *self)
{
    return self->active && self->process_serial == s_process_serial;
}

static void
set_active_error(void)
{
    PyErr_SetString(PyExc_RuntimeError,
                    "another memprof session is recording in this process; stop it first");
}

static PyObject *
session_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *s_names[] = {"memory", "stacks", "operators", "shapes", "max_bytes", "ring",
                              "activities", NULL};
    int memory = 1, stacks = 1, operators = 1, shapes = 0, ring = 0, activities = 0;
    Py_ssize_t max_bytes = (Py_ssize_t)1 << 30;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$ppppnpp:Session", s_names, &memory,
                                     &stacks, &operators, &shapes, &max_bytes, &ring,
                                     &activities)) {
        return NULL;
    }
    if (max_bytes < (Py_ssize_t)MP_BUDGET_LEAST_BYTES) {
        PyErr_Format(PyExc_ValueError, "max_bytes=%zd is too little: give at least %zu",
                     max_bytes, MP_BUDGET_LEAST_BYTES);
        return NULL;
    }
    SessionObject *self = (SessionObject *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->options = (mp_session_options){
            .memory = memory,
            .stacks = stacks,
            .operators = operators,
            .shapes = shapes,
            .ring = ring,
            .activities = activities,
            .max_bytes = (size_t)max_bytes,
        };
    }
    return (PyObject *)self;
}

static void
session_end(SessionObject *self)
{
    mp_frames_set_module_call(NULL);
    mp_session_close();
    mp_code_watch_stop();
    self->active = false;
}

static void
session_dealloc(SessionObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (holds_session(self)) {
        mp_session_stop();
        session_end(self);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

/* Stacks need a proven frame layout and a watch over dying code objects. */
static void
prepare_stacks(SessionObject *self)
{
    self->stacks_ok = false;
    self->options.capture_stack = NULL;
    self->options.innermost_frame = NULL;
    if (!self->options.stacks) {
        strcpy(self->stacks_reason, "not asked for");
        return;
    }
    if (mp_frames_init(self->stacks_reason, sizeof(self->stacks_reason)) &&
        mp_code_watch_start(self->stacks_reason, sizeof(self->stacks_reason))) {
        self->stacks_ok = true;
        self->stacks_reason[0] = '\0';
        self->options.capture_stack = mp_frames_capture;
        self->options.innermost_frame = mp_frames_innermost;
    }
}

static PyObject *
session_start(SessionObject *self, PyObject *ignored)
{
    if (mp_session_is_open()) {
        set_active_error();
        return NULL;
    }
    prepare_stacks(self);
    mp_status status = mp_session_start(&self->options);
    if (status != MP_OK) {
        mp_code_watch_stop();
        return mp_raise(status, "starting to record");
    }
    self->active = true;
    self->process_serial = s_process_serial;
    self->stopping = false;
    self->has_report = false;
    Py_RETURN_NONE;
}

static bool
require_active(const SessionObject *self)
{
    if (!holds_session(self) || self->stopping) {
        PyErr_SetString(PyExc_RuntimeError, "this session is not recording: call start()");
        return false;
    }
    return true;
}

static PyObject *
session_attach_torch(SessionObject *self, PyObject *ignored)
{
    if (!require_active(self)) {
        return NULL;
    }
    return PyBool_FromLong(mp_session_attach_torch() == MP_OK);
}

static PyObject *
session_start_activities(SessionObject *self, PyObject *args, PyObject *kwargs)
{
    static char *s_names[] = {"paths", "only", "dump", NULL};
    PyObject *paths, *keep;
    const char *dump = NULL;
    int only = 0;
    if (!require_active(self) ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O|$pz:start_activities", s_names, &paths,
                                     &only, &dump)) {
        return NULL;
    }
    size_t count;
    const char **list = mp_cupti_paths(paths, &count, &keep);
    if (list == NULL) {
        return NULL;
    }
    char reason[1200] = "";
    mp_status status =
        mp_session_start_activities(list, count, only, dump, reason, sizeof(reason));
    PyMem_Free(list);
    Py_DECREF(keep);
    if (status != MP_OK && reason[0] == '\0') {
        strcpy(reason, mp_status_name(status));
    }
    return PyUnicode_DecodeFSDefault(status == MP_OK ? "" : reason);
}

static PyObject *
session_stop_activities(SessionObject *self, PyObject *ignored)
{
    if (holds_session(self) && !self->stopping) {
        mp_session_stop_activities();
    }
    Py_RETURN_NONE;
}

static PyObject *
session_begin_window(SessionObject *self, PyObject *ignored)
{
    if (!require_active(self)) {
        return NULL;
    }
    mp_session_begin_window();
    Py_RETURN_NONE;
}

static PyObject *
session_mark_step(SessionObject *self, PyObject *number)
{
    long long value = PyLong_AsLongLong(number);
    if (value == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (holds_session(self) && !self->stopping) {
        mp_session_mark_step(value < 0 ? -1 : value);
    }
    Py_RETURN_NONE;
}

static PyObject *
session_end_step(SessionObject *self, PyObject *ignored)
{
    if (holds_session(self) && !self->stopping) {
        mp_session_mark_step(-1);
    }
    Py_RETURN_NONE;
}

static PyObject *
session_drop_open_step(SessionObject *self, PyObject *ignored)
{
    if (holds_session(self) && !self->stopping) {
        mp_session_drop_open_step();
    }
    Py_RETURN_NONE;
}

static PyObject *
session_clock(SessionObject *self, PyObject *ignored)
{
    return PyLong_FromUnsignedLongLong(mp_clock_ticks());
}

static PyObject *
session_add_span(SessionObject *self, PyObject *args)
{
    const char *name;
    Py_ssize_t length;
    unsigned int kind, object_id;
    unsigned long long start;
    if (!PyArg_ParseTuple(args, "s#IIK:add_span", &name, &length, &kind, &object_id, &start)) {
        return NULL;
    }
    if (holds_session(self) && !self->stopping) {
        mp_session_add_span(name, (size_t)length, kind, object_id, start, mp_clock_ticks());
    }
    Py_RETURN_NONE;
}

static PyObject *
session_set_baseline(SessionObject *self, PyObject *argument)
{
    Py_buffer view;
    if (!require_active(self) || PyObject_GetBuffer(argument, &view, PyBUF_C_CONTIGUOUS) < 0) {
        return NULL;
    }
    if (view.itemsize != (Py_ssize_t)sizeof(mp_baseline)) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "blocks: rows of the table baseline are expected");
        return NULL;
    }
    size_t count = (size_t)(view.len / view.itemsize);
    mp_baseline *blocks = malloc(count * sizeof(*blocks) + 1);
    if (blocks != NULL) {
        memcpy(blocks, view.buf, count * sizeof(*blocks));
        mp_session_set_baseline(blocks, count);
    }
    PyBuffer_Release(&view);
    if (blocks == NULL) {
        return PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}

/* ---- objects seen on stacks ---- */

static PyObject *
session_unnamed_modules(SessionObject *self, PyObject *first)
{
    unsigned long from = PyLong_AsUnsignedLong(first);
    if (from == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    PyObject *list = PyList_New(0);
    if (list == NULL) {
        return NULL;
    }
    uint32_t count = holds_session(self) ? mp_objects_count() : 0;
    for (uint32_t id = (uint32_t)from + 1; id <= count; id++) {
        const mp_object *object = mp_objects_at(id);
        if (object->kind != MP_OBJECT_MODULE || object->dead) {
            continue;
        }
        PyObject *item = Py_BuildValue("(IKs)", id, (unsigned long long)(uintptr_t)object->address,
                                       object->class_name);
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_XDECREF(item);
            Py_DECREF(list);
            return NULL;
        }
        Py_DECREF(item);
    }
    return Py_BuildValue("(NI)", list, count);
}

static PyObject *
session_object_count(SessionObject *self, PyObject *ignored)
{
    return PyLong_FromUnsignedLong(holds_session(self) ? mp_objects_count() : 0);
}

static PyObject *
session_name_module(SessionObject *self, PyObject *args)
{
    unsigned int id, parent;
    const char *path, *class_name;
    if (!PyArg_ParseTuple(args, "IIss:name_module", &id, &parent, &path, &class_name)) {
        return NULL;
    }
    mp_status status = mp_session_name_module(id, parent, path, class_name);
    if (status != MP_OK) {
        return mp_raise(status, "naming a module");
    }
    Py_RETURN_NONE;
}

static PyObject *
session_mark_code(SessionObject *self, PyObject *args)
{
    PyObject *code;
    unsigned int flags;
    if (!PyArg_ParseTuple(args, "O!I:mark_code", &PyCode_Type, &code, &flags)) {
        return NULL;
    }
    if ((flags & MP_FRAME_MODULE_CALL) != 0) {
        mp_frames_set_module_call(code);
    }
    uint32_t id = mp_objects_intern(MP_OBJECT_CODE, code, NULL);
    mp_status status = mp_session_mark_code(id, flags);
    if (status != MP_OK) {
        return mp_raise(status, "marking a code object");
    }
    Py_RETURN_NONE;
}

/* The object at this address has died: a later one there is another. */
static PyObject *
session_strike(SessionObject *self, PyObject *address)
{
    unsigned long long value = PyLong_AsUnsignedLongLong(address);
    if (value == (unsigned long long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    mp_objects_strike((const void *)(uintptr_t)value);
    Py_RETURN_NONE;
}

/* ---- stop ---- */

static bool
describe_line(uint32_t code_id, uint32_t instruction, mp_line_text *out)
{
    mp_code_line line;
    if (!mp_code_describe(code_id, instruction, &line)) {
        return false;
    }
    *out = (mp_line_text){line.file, line.function, line.file_bytes, line.function_bytes,
                          line.line};
    return true;
}

static PyObject *
session_stop(SessionObject *self, PyObject *ignored)
{
    if (!require_active(self)) {
        return NULL;
    }
    self->stopping = true;
    mp_session_stop();
    mp_session_report_to(&self->report);
    self->has_report = true;
    mp_status status = mp_session_gather(describe_line);
    mp_recording *recording = NULL;
    if (status == MP_OK) {
        Py_BEGIN_ALLOW_THREADS
        status = mp_session_assemble(&recording);
        Py_END_ALLOW_THREADS
    }
    session_end(self);
    if (status != MP_OK) {
        return mp_raise(status, "putting the recording together");
    }
    return mp_recording_wrap(recording);
}

static PyObject *
session_abandon(SessionObject *self, PyObject *ignored)
{
    if (holds_session(self) && !self->stopping) {
        mp_session_stop();
        session_end(self);
    }
    Py_RETURN_NONE;
}

static PyObject *
session_after_fork(SessionObject *self, PyObject *ignored)
{
    self->active = false;
    Py_RETURN_NONE;
}

/* ---- what was seen ---- */

static PyObject *
losses_dict(const mp_session_report *report)
{
    PyObject *losses = PyDict_New();
    for (int i = 0; losses != NULL && i < MP_LOSS_COUNT; i++) {
        PyObject *count = PyLong_FromUnsignedLongLong(report->lost[i]);
        if (count == NULL || PyDict_SetItemString(losses, mp_loss_key(i), count) < 0) {
            Py_CLEAR(losses);
        }
        Py_XDECREF(count);
    }
    return losses;
}

static PyObject *
session_coverage(SessionObject *self, PyObject *ignored)
{
    mp_session_report report = self->report;
    if (holds_session(self) && !self->stopping) {
        mp_session_report_to(&report);
    }
    PyObject *losses = losses_dict(&report);
    if (losses == NULL) {
        return NULL;
    }
    return Py_BuildValue(
        "{sOsOsOsOss sn sn sn sn sn sO sK sK sK sO sO sN sN}", /* */
        "memory", report.memory_on ? Py_True : Py_False, /* */
        "operators", report.operators_on ? Py_True : Py_False, /* */
        "stacks", report.stacks_on ? Py_True : Py_False, /* */
        "shapes", report.shapes_on ? Py_True : Py_False, /* */
        "stacks_reason", self->stacks_reason,            /* */
        "cpu_route", (Py_ssize_t)report.alloc.cpu_route, /* */
        "cpu_slots", (Py_ssize_t)report.alloc.cpu_slots, /* */
        "mapping_slots", (Py_ssize_t)report.alloc.mapping_slots, /* */
        "device_slots", (Py_ssize_t)report.alloc.device_slots,   /* */
        "slots_left_in_place", (Py_ssize_t)report.alloc.left_in_place, /* */
        "other_tool_in_slots", report.alloc.found_foreign ? Py_True : Py_False, /* */
        "contradictions", (unsigned long long)report.contradictions, /* */
        "threads", (unsigned long long)report.threads,               /* */
        "used_bytes", (unsigned long long)report.used_bytes,         /* */
        "stopped_at_limit", report.stopped_at_limit ? Py_True : Py_False, /* */
        "ring", self->options.ring ? Py_True : Py_False, /* */
        "losses", losses, /* */
        "activities", mp_cupti_report_dict(&report.activities));
}

static PyObject *
session_get_active(SessionObject *self, void *closure)
{
    return PyBool_FromLong(holds_session(self) && !self->stopping);
}

static PyGetSetDef session_getset[] = {
    {"active", (getter)session_get_active, NULL, "Whether this session records.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define METHOD(name, flags, doc) {#name, (PyCFunction)session_##name, flags, doc}

static PyMethodDef session_methods[] = {
    METHOD(start, METH_NOARGS, "Puts the hooks in place. RuntimeError while another records."),
    METHOD(attach_torch, METH_NOARGS, "Hooks torch if it has come since; whether it is there."),
    {"start_activities", (PyCFunction)(void (*)(void))session_start_activities,
     METH_VARARGS | METH_KEYWORDS,
     "start_activities(paths, only=False, dump=None): GPU activity from here; or why not."},
    METHOD(stop_activities, METH_NOARGS, "Ends GPU activity; what was seen is kept."),
    METHOD(begin_window, METH_NOARGS, "What came before is warm-up."),
    METHOD(mark_step, METH_O, "Step `number` begins on the calling thread."),
    METHOD(end_step, METH_NOARGS, "The current step ends; none begins."),
    METHOD(drop_open_step, METH_NOARGS, "The step open at stop() is not shown."),
    METHOD(clock, METH_NOARGS, "The recorder's clock, in ticks, for add_span()."),
    METHOD(add_span, METH_VARARGS, "add_span(name, kind, object_id, start_ticks): ends now."),
    METHOD(set_baseline, METH_O, "Blocks live at start: rows of the table baseline."),
    METHOD(unnamed_modules, METH_O,
           "unnamed_modules(after_id) -> ([(id, address, class name)], last id)."),
    METHOD(object_count, METH_NOARGS, "How many objects were seen on stacks so far."),
    METHOD(name_module, METH_VARARGS, "name_module(id, parent id, path, class name)."),
    METHOD(mark_code, METH_VARARGS, "mark_code(code, frame flags): a role by identity."),
    METHOD(strike, METH_O, "strike(address): the object there has died."),
    METHOD(stop, METH_NOARGS, "Hooks out; the Recording of what was seen."),
    METHOD(abandon, METH_NOARGS, "Hooks out; what was seen is dropped."),
    METHOD(after_fork, METH_NOARGS, "For the child of a fork: leaves everything off."),
    METHOD(coverage, METH_NOARGS, "What was on, what was lost, as a dict."),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot session_slots[] = {
    {Py_tp_new, session_new},
    {Py_tp_dealloc, session_dealloc},
    {Py_tp_methods, session_methods},
    {Py_tp_getset, session_getset},
    {Py_tp_doc, "Collection in this process; at most one session is started at a time."},
    {0, NULL},
};

static PyType_Spec session_spec = {
    .name = "memprof._core.Session",
    .basicsize = sizeof(SessionObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = session_slots,
};

/* In the child of a fork, whoever was starting or stopping in the parent. */
static PyObject *
leave_parents_session(PyObject *module, PyObject *ignored)
{
    s_process_serial++;
    if (mp_session_is_open()) {
        mp_session_after_fork();
        mp_code_watch_stop();
    }
    Py_RETURN_NONE;
}

static PyMethodDef session_functions[] = {
    {"leave_parents_session", leave_parents_session, METH_NOARGS,
     "For the child of a fork: no session is open from here on."},
    {NULL, NULL, 0, NULL},
};

int
mp_add_session_type(PyObject *module)
{
    if (PyModule_AddFunctions(module, session_functions) < 0) {
        return -1;
    }
    PyObject *type = PyType_FromSpec(&session_spec);
    if (type == NULL) {
        return -1;
    }
    int result = PyModule_AddObjectRef(module, "Session", type);
    Py_DECREF(type);
    return result;
}
