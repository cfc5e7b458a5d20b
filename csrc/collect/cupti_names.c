#include "collect/cupti_names.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static const char *
read_own(void *context, uint64_t pointer)
{
    (void)context;
    return (const char *)(uintptr_t)pointer;
}

mp_status
mp_cupti_names_init(mp_cupti_names *names, const char *(*read)(void *, uint64_t),
                    void *context)
{
    *names = (mp_cupti_names){.read = read != NULL ? read : read_own, .context = context};
    mp_status status = mp_table_init(&names->by_pointer, 256);
    if (status == MP_OK) {
        status = mp_table_init(&names->by_hash, 256);
    }
    names->texts = malloc(64 * sizeof(*names->texts));
    if (status != MP_OK || names->texts == NULL) {
        mp_cupti_names_fini(names);
        return MP_NO_MEMORY;
    }
    names->room = 64;
    names->texts[0] = NULL; /* the empty one */
    names->count = 1;
    return MP_OK;
}

void
mp_cupti_names_fini(mp_cupti_names *names)
{
    for (uint32_t i = 1; i < names->count; i++) {
        free(names->texts[i]);
    }
    free(names->texts);
    mp_table_fini(&names->by_pointer);
    mp_table_fini(&names->by_hash);
    *names = (mp_cupti_names){0};
}

static uint64_t
hash_of(const char *text)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (; *text != '\0'; text++) {
        hash = (hash ^ (uint8_t)*text) * 0x100000001B3u;
    }
    return hash;
}

static uint32_t
append(mp_cupti_names *names, const char *text)
{
    if (names->count == names->room) {
        char **grown = realloc(names->texts, 2 * names->room * sizeof(*grown));
        if (grown == NULL) {
            return 0;
        }
        names->texts = grown;
        names->room *= 2;
    }
    char *copy = strdup(text);
    if (copy == NULL) {
        return 0;
    }
    names->texts[names->count] = copy;
    return names->count++;
}

uint32_t
mp_cupti_names_add(mp_cupti_names *names, const char *text)
{
    if (text == NULL || text[0] == '\0') {
        return 0;
    }
    for (uint64_t hash = hash_of(text);; hash++) {
        uint32_t *id = mp_table_at(&names->by_hash, hash);
        if (id == NULL) {
            return 0;
        }
        if (*id == 0) {
            *id = append(names, text);
            return *id;
        }
        if (strcmp(names->texts[*id], text) == 0) {
            return *id;
        }
    }
}

/* A pointer that is known is compared all the same: another module's name may have come to
 * its place. */
uint32_t
mp_cupti_names_at_pointer(mp_cupti_names *names, uint64_t pointer)
{
    const char *text = pointer == 0 ? NULL : names->read(names->context, pointer);
    if (text == NULL) {
        return 0;
    }
    uint32_t *id = mp_table_at(&names->by_pointer, pointer);
    if (id == NULL) {
        return 0;
    }
    if (*id == 0 || strcmp(names->texts[*id], text) != 0) {
        *id = mp_cupti_names_add(names, text);
    }
    return *id;
}

char *
mp_cupti_names_demangle(const char *name)
{
    typedef char *(*demangler)(const char *, char *, size_t *, int *);
    static demangler s_demangle;
    if (strncmp(name, "_Z", 2) != 0) {
        return NULL;
    }
    if (s_demangle == NULL) {
        *(void **)&s_demangle = dlsym(RTLD_DEFAULT, "__cxa_demangle");
    }
    if (s_demangle == NULL) {
        void *runtime = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
        if (runtime == NULL) {
            return NULL;
        }
        *(void **)&s_demangle = dlsym(runtime, "__cxa_demangle");
        if (s_demangle == NULL) {
            return NULL;
        }
    }
    int status = 0;
    return s_demangle(name, NULL, NULL, &status);
}
