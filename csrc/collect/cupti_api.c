#include "collect/cupti_api.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/atomics.h"
#include "base/compiler.h"
#include "collect/cupti_ids.h"

/* Guarded by the caller (the session's), except s_dead. */
static mp_cupti s_library;
static bool s_loaded;
static char s_path[1024];
static _Atomic(bool) s_dead; /* the child of a fork after the library was loaded */

static void
die_in_child(void)
{
    mp_store_relaxed(&s_dead, s_loaded);
}

static bool
is_stub(const char *path)
{
    return strstr(path, "/stubs/") != NULL;
}

/* ---- looking ---- */

typedef struct mapped_search {
    char path[sizeof(s_path)];
} mapped_search;

static int
take_mapped(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    mapped_search *search = argument;
    const char *name = strrchr(info->dlpi_name, '/');
    name = name == NULL ? info->dlpi_name : name + 1;
    if (strncmp(name, "libcupti.so", strlen("libcupti.so")) != 0 ||
        is_stub(info->dlpi_name) || strlen(info->dlpi_name) >= sizeof(search->path)) {
        return 0;
    }
    strcpy(search->path, info->dlpi_name);
    return 1;
}

static void *
open_loaded(void)
{
    static const char *const s_names[] = {"libcupti.so.13", "libcupti.so.12",
                                          "libcupti.so.11.8", "libcupti.so"};
    for (size_t i = 0; i < MP_COUNT_OF(s_names); i++) {
        void *handle = dlopen(s_names[i], RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
        if (handle != NULL) {
            return handle;
        }
    }
    mapped_search search = {""};
    dl_iterate_phdr(take_mapped, &search);
    return search.path[0] == '\0'
               ? NULL
               : dlopen(search.path, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
}

static void *
open_path(const char *path, char *reason, size_t room)
{
    if (is_stub(path)) {
        snprintf(reason, room, "%s is a stub", path);
        return NULL;
    }
    void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (handle == NULL) {
        const char *error = dlerror();
        snprintf(reason, room, "%s", error != NULL ? error : "dlopen failed");
    }
    return handle;
}

/* ---- checking ---- */

static bool
resolve(void *handle, mp_cupti *out, char *reason, size_t room)
{
    *out = (mp_cupti){0};
#define RESOLVE(member, symbol, arguments)                                               \
    *(void **)&out->member = dlsym(handle, #symbol);
    MP_CUPTI_NEEDED(RESOLVE)
    MP_CUPTI_OPTIONAL(RESOLVE)
#undef RESOLVE
#define REQUIRE(member, symbol, arguments)                                               \
    if (out->member == NULL) {                                                           \
        snprintf(reason, room, "%s has no function %s", s_path, #symbol);                \
        return false;                                                                    \
    }
    MP_CUPTI_NEEDED(REQUIRE)
#undef REQUIRE
    return true;
}

unsigned
mp_cupti_cuda_major(uint32_t version)
{
    if (version >= MP_CUPTI_VERSION_CUDA_13) {
        return version / 10000;
    }
    return version >= 19 && version < 1000 ? 12
           : version >= MP_CUPTI_VERSION_LEAST && version < 19 ? 11
                                                                : 0;
}

static bool
check_version(mp_cupti *library, char *reason, size_t room)
{
    mp_cupti_result result = library->get_version(&library->version);
    if (result != MP_CUPTI_SUCCESS) {
        char text[128];
        mp_cupti_describe(result, text, sizeof(text));
        snprintf(reason, room, "%s does not tell its version: error %s", s_path, text);
        return false;
    }
    if (mp_cupti_cuda_major(library->version) == 0 ||
        library->version >= MP_CUPTI_VERSION_UNKNOWN) {
        snprintf(reason, room,
                 "%s is CUPTI version %u, whose records memprof does not know; CUDA 11.6 to"
                 " 13 are known",
                 s_path, library->version);
        return false;
    }
    return true;
}

static void
remember_path(void *handle, const char *opened)
{
    struct link_map *map = NULL;
    const char *path = opened;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] != '\0') {
        path = map->l_name;
    }
    snprintf(s_path, sizeof(s_path), "%s", path);
}

/* Takes the handle over. */
static bool
accept(void *handle, const char *opened, char *reason, size_t room)
{
    remember_path(handle, opened);
    if (is_stub(s_path)) {
        snprintf(reason, room, "%s is a stub", s_path);
    } else if (resolve(handle, &s_library, reason, room) &&
               check_version(&s_library, reason, room)) {
        /* The handle stays open for the life of the process: the library keeps our
         * callbacks. */
        pthread_atfork(NULL, NULL, die_in_child);
        s_loaded = true;
        return true;
    }
    s_path[0] = '\0';
    dlclose(handle);
    return false;
}

mp_status
mp_cupti_load(const char *const *paths, size_t count, bool only, char *reason, size_t room)
{
    if (mp_load_relaxed(&s_dead)) {
        snprintf(reason, room, "this process was forked from one that used CUPTI");
        return MP_UNAVAILABLE;
    }
    if (s_loaded) {
        return MP_OK;
    }
    snprintf(reason, room, "no libcupti is loaded and none was found in %zu places", count);
    void *loaded = only ? NULL : open_loaded();
    if (loaded != NULL) {
        /* Another copy beside a loaded one would collide with it. */
        return accept(loaded, "libcupti", reason, room) ? MP_OK : MP_UNAVAILABLE;
    }
    for (size_t i = 0; i < count; i++) {
        void *handle = open_path(paths[i], reason, room);
        if (handle != NULL && accept(handle, paths[i], reason, room)) {
            return MP_OK;
        }
    }
    return MP_UNAVAILABLE;
}

const mp_cupti *
mp_cupti_get(void)
{
    return s_loaded && !mp_load_relaxed(&s_dead) ? &s_library : NULL;
}

const char *
mp_cupti_path(void)
{
    return s_path;
}

void
mp_cupti_describe(mp_cupti_result result, char *text, size_t room)
{
#define DESCRIBE(name, value, meaning)                                                   \
    case value:                                                                          \
        snprintf(text, room, "%d (%s)", value, meaning);                                 \
        return;
    switch (result) {
        MP_CUPTI_RESULTS(DESCRIBE)
    }
#undef DESCRIBE
    const char *theirs = NULL;
    if (s_loaded && s_library.get_result_string(result, &theirs) == MP_CUPTI_SUCCESS &&
        theirs != NULL) {
        snprintf(text, room, "%d (%s)", result, theirs);
    } else {
        snprintf(text, room, "%d", result);
    }
}
