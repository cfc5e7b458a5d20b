/* The operator callbacks alone, on a RecordFunction made by hand: for counting their
 * instructions under callgrind. usage: operator_hook rounds shapes(0|1) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "collect/torch_ops.h"
#include "record/thread_log.h"

static mp_torch_callback s_callback;

static uint64_t
fake_add_callback(mp_torch_callback callback)
{
    s_callback = callback;
    return 1;
}

static void
fake_remove_callback(uint64_t handle)
{
    (void)handle;
}

static const char *
fake_name(const void *record_function)
{
    (void)record_function;
    return "aten::add";
}

static size_t
fake_input_count(const void *record_function)
{
    return MP_READ(size_t, record_function, g_torch_layout.inputs + 8);
}

/* Two tensors of two dimensions and a number, as aten::add has. */
static void
fill_inputs(char *record_function, uint64_t *ivalues, char *impl)
{
    uint64_t dims = 2, sizes[2] = {8, 8};
    memcpy(impl + g_torch_layout.impl_sizes, &dims, 8);
    memcpy(impl + g_torch_layout.impl_sizes + 8, sizes, sizeof(sizes));
    for (int i = 0; i < 3; i++) {
        ivalues[2 * i] = (uint64_t)(uintptr_t)impl;
        ivalues[2 * i + 1] = i < 2 ? 1 : 5;
    }
    uint64_t count = 3;
    memcpy(record_function + g_torch_layout.inputs, &ivalues, 8);
    memcpy(record_function + g_torch_layout.inputs + 8, &count, 8);
}

int
main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    bool shapes = argc > 2 && atoi(argv[2]) != 0;
    mp_clock_init();
    g_torch.found = true;
    g_torch.add_callback = fake_add_callback;
    g_torch.remove_callback = fake_remove_callback;
    g_torch.op_name = fake_name;
    g_torch.op_input_count = fake_input_count;
    g_torch_layout = (mp_torch_layout){
        .operators = true, .sequences = true, .schema_names = true, .shapes = true,
        .inputs = 208, .name_index = 192, .impl_sizes = 56, .impl_dtype = 160, .list_tag = 14,
    };
    static char record_function[344], impl[176];
    static uint64_t ivalues[6];
    record_function[192] = 1;
    uint64_t schema = 0x12345678;
    memcpy(record_function + MP_RF_NAME, &schema, 8);
    fill_inputs(record_function, ivalues, impl);
    mp_recorder_options options = {.max_bytes = (size_t)256 << 20, .want_shapes = shapes};
    if (mp_recorder_open(&options) != MP_OK || mp_torch_ops_start(true, shapes) != MP_OK) {
        return 1;
    }
    mp_recorder_start();
    void *(*start)(void *, const void *);
    void (*end)(const void *, void *);
    memcpy(&start, &s_callback.start, sizeof(start));
    memcpy(&end, &s_callback.end, sizeof(end));
    void *context;
    for (long i = 0; i < rounds; i++) {
        start(&context, record_function);
        end(record_function, context);
    }
    mp_recorder_stop();
    printf("%ld operators, %llu events\n", rounds,
           (unsigned long long)(mp_recorder_next_log(NULL) != NULL));
    return 0;
}
