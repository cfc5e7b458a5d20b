/* The tables of a recording as NumPy arrays, and back. The only file that knows NumPy's C
 * API. GIL held throughout. */
#ifndef MP_PYTHON_COLUMNS_H
#define MP_PYTHON_COLUMNS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

#include "record/recording.h"

/* NumPy's code of a C type, in native byte order. */
#define MP_CODE_OF(type)                                                                   \
    _Generic((type)0, int8_t                                                               \
             : "i1", uint8_t                                                               \
             : "u1", int16_t                                                               \
             : "i2", uint16_t                                                              \
             : "u2", int32_t                                                               \
             : "i4", uint32_t                                                              \
             : "u4", int64_t                                                               \
             : "i8", uint64_t                                                              \
             : "u8", double                                                                \
             : "f8")

/* For field lists as in tables.h: name and code in turn, ended by NULL. */
#define MP_FIELD_AND_CODE(type, name) #name, MP_CODE_OF(type),

/* Loads NumPy's C API; -1 with ImportError. Before any other function here. */
int mp_columns_init(void);

/* A read-only array over the table's memory, which `base` owns and the array keeps alive.
 */
PyObject *mp_columns_view(const mp_recording *recording, mp_table_id id, PyObject *base);

/* Replaces the table by a copy of `array`; false with TypeError or ValueError that names
 * the table when it is no array of the table's dtype and one dimension. */
bool mp_columns_copy(mp_recording *recording, mp_table_id id, PyObject *array);

/* A new writable array of `count` rows, copied from `rows`, with the given fields. */
PyObject *mp_columns_own(const char *const *fields, const void *rows, size_t count,
                         size_t row_bytes);

#endif
