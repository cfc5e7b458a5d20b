#include "collect/torch_symbols.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

mp_torch g_torch;
mp_torch_layout g_torch_layout;

static const char *s_hidden;

static void
keep_path(char *to, size_t room, const char *path)
{
    if (strlen(path) < room) {
        strcpy(to, path);
    }
}

/* Official wheels name the file libc10.so, distributions libc10.so.2.14. */
static int
note_library(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    mp_torch *torch = argument;
    const char *path = info->dlpi_name == NULL ? "" : info->dlpi_name;
    const char *slash = strrchr(path, '/');
    const char *base = slash == NULL ? path : slash + 1;
    if (strncmp(base, "libc10.so", 9) == 0) {
        keep_path(torch->c10_path, sizeof(torch->c10_path), path);
    } else if (strncmp(base, "libtorch_cpu.so", 15) == 0) {
        keep_path(torch->torch_cpu_path, sizeof(torch->torch_cpu_path), path);
    } else if (strncmp(base, "libc10_cuda.so", 14) == 0 ||
               strncmp(base, "libc10_hip.so", 13) == 0) {
        torch->has_c10_cuda = true;
    }
    return 0;
}

/* A data pointer from dlsym becomes a function pointer: POSIX allows it, ISO C has no
 * cast for it. */
static void
resolve(void *library, const char *symbol, const char *member, void *pointer)
{
    void *address = NULL;
    if (s_hidden == NULL || strcmp(s_hidden, member) != 0) {
        address = dlsym(library, symbol);
    }
    memcpy(pointer, &address, sizeof(address));
}

#define MP_RESOLVE(member, result, parameters, library, name)                            \
    resolve((library) == 'c' ? c10 : torch_cpu, name, #member, &torch.member);

bool
mp_torch_find(void)
{
    mp_torch torch = {0};
    dl_iterate_phdr(note_library, &torch);
    if (torch.c10_path[0] == '\0' || torch.torch_cpu_path[0] == '\0') {
        g_torch = torch;
        return false;
    }
    /* The handles are kept: hooks outlive every session. */
    void *c10 = dlopen(torch.c10_path, RTLD_NOLOAD | RTLD_NOW);
    void *torch_cpu = dlopen(torch.torch_cpu_path, RTLD_NOLOAD | RTLD_NOW);
    if (c10 == NULL || torch_cpu == NULL) {
        g_torch = torch;
        return false;
    }
    MP_TORCH_FUNCTIONS(MP_RESOLVE)
    torch.undefined_tensor = dlsym(c10, "_ZN3c1019UndefinedTensorImpl10_singletonE");
    torch.found = true;
    g_torch = torch;
    return true;
}

#define MP_NAME_MEMBER(member, result, parameters, library, name) {#member, name},

const char *
mp_torch_symbol_of(const char *member)
{
    static const struct {
        const char *member;
        const char *symbol;
    } s_names[] = {MP_TORCH_FUNCTIONS(MP_NAME_MEMBER)};
    for (size_t i = 0; i < MP_COUNT_OF(s_names); i++) {
        if (strcmp(s_names[i].member, member) == 0) {
            return s_names[i].symbol;
        }
    }
    return NULL;
}

void
mp_torch_hide(const char *member)
{
    s_hidden = member;
}
