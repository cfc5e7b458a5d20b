/* memprof._core.write_chrome_trace: formats without the GIL and takes it only to hand a
 * chunk to the caller's write(). */
#include "python/state.h"

#include "output/chrome_trace.h"
#include "python/recording_type.h"

typedef struct file_sink {
    PyObject *write;
    PyThreadState *released;
} file_sink;

/* write() of raw files may take less than it was given; None means all. */
static mp_status
write_all(PyObject *write, const char *bytes, size_t count)
{
    PyObject *chunk = PyBytes_FromStringAndSize(bytes, (Py_ssize_t)count);
    while (chunk != NULL) {
        PyObject *taken = PyObject_CallOneArg(write, chunk);
        Py_ssize_t size = PyBytes_GET_SIZE(chunk);
        if (taken == NULL) {
            break;
        }
        Py_ssize_t done = taken == Py_None ? size : PyLong_AsSsize_t(taken);
        Py_DECREF(taken);
        if (done >= size) {
            Py_DECREF(chunk);
            return MP_OK;
        }
        if (done <= 0) {
            if (!PyErr_Occurred()) {
                PyErr_Format(PyExc_OSError, "write() took %zd of %zd bytes", done, size);
            }
            break;
        }
        Py_SETREF(chunk, PyBytes_FromStringAndSize(PyBytes_AS_STRING(chunk) + done, size - done));
    }
    Py_XDECREF(chunk);
    return MP_ABORTED;
}

static mp_status
sink_write(void *context, const char *bytes, size_t count)
{
    file_sink *sink = context;
    PyEval_RestoreThread(sink->released);
    mp_status status = write_all(sink->write, bytes, count);
    sink->released = PyEval_SaveThread();
    return status;
}

/* (multiprocessors, threads, registers, shared bytes) of each device, by index. */
static bool
read_gpus(PyObject *list, mp_trace_gpu *gpus, size_t room, size_t *count)
{
    Py_ssize_t given = list == NULL ? 0 : PyTuple_GET_SIZE(list);
    *count = (size_t)given < room ? (size_t)given : room;
    for (size_t i = 0; i < *count; i++) {
        PyObject *item = PyTuple_GET_ITEM(list, (Py_ssize_t)i);
        if (!PyArg_ParseTuple(item, "IIII:gpus", &gpus[i].multiprocessors, &gpus[i].threads,
                              &gpus[i].registers, &gpus[i].shared_bytes)) {
            return false;
        }
    }
    return true;
}

static PyObject *
write_chrome_trace(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *s_names[] = {"recording", "write", "tensorboard", "header", "process_id",
                              "process_name", "trace_name", "shapes", "call_stacks",
                              "python_functions", "memory", "counter_points", "gpus",
                              NULL};
    PyObject *recording_object, *gpu_list = NULL;
    mp_trace_gpu gpus[64];
    file_sink sink = {0};
    int tensorboard = 0, shapes = 1, call_stacks = 1, python_functions = 1, memory = 1;
    unsigned int counter_points = 20000;
    long long process_id = 0;
    mp_trace_options options = {.header = "", .process_name = "python", .trace_name = ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$psLssppppIO!:write_chrome_trace", s_names,
                                     &recording_object, &sink.write, &tensorboard,
                                     &options.header, &process_id, &options.process_name,
                                     &options.trace_name, &shapes, &call_stacks,
                                     &python_functions, &memory, &counter_points,
                                     &PyTuple_Type, &gpu_list) ||
        !read_gpus(gpu_list, gpus, MP_COUNT_OF(gpus), &options.gpu_count)) {
        return NULL;
    }
    const mp_recording *recording = mp_recording_unwrap(recording_object);
    if (recording == NULL) {
        return NULL;
    }
    options.dialect = tensorboard ? MP_TRACE_TENSORBOARD : MP_TRACE_KINETO;
    options.shapes = shapes;
    options.call_stacks = call_stacks;
    options.python_functions = python_functions;
    options.memory = memory;
    options.gpus = gpus;
    options.counter_points = counter_points;
    options.process_id = process_id;
    mp_trace_counts counts = {0};
    sink.released = PyEval_SaveThread();
    mp_status status = mp_chrome_trace_write(recording, &options, sink_write, &sink, &counts);
    PyEval_RestoreThread(sink.released);
    if (status != MP_OK) {
        return mp_raise(status, "writing the trace");
    }
    return Py_BuildValue("{sK sK sK sK sK}", "slices", counts.slices, "memory_events",
                         counts.memory_events, "counters", counts.counters, "flows",
                         counts.flows, "dropped_slices", counts.dropped_slices);
}

static PyMethodDef trace_functions[] = {
    {"write_chrome_trace", (PyCFunction)(void (*)(void))write_chrome_trace,
     METH_VARARGS | METH_KEYWORDS, "Writes a recording as a Chrome trace to write(bytes)."},
    {NULL, NULL, 0, NULL},
};

int
mp_add_trace_writer(PyObject *module)
{
    return PyModule_AddFunctions(module, trace_functions);
}
