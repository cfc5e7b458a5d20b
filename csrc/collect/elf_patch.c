#include "collect/elf_patch.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { RELOC_JUMP_SLOT = R_X86_64_JUMP_SLOT, RELOC_GLOB_DAT = R_X86_64_GLOB_DAT };
#elif defined(__aarch64__)
enum { RELOC_JUMP_SLOT = R_AARCH64_JUMP_SLOT, RELOC_GLOB_DAT = R_AARCH64_GLOB_DAT };
#else
#error "memprof knows the relocations of x86-64 and AArch64"
#endif

/* What the dynamic section says of one object; addresses are absolute. */
typedef struct elf_view {
    const char *path;
    const char *base_name;
    uintptr_t load; /* dlpi_addr */
    uintptr_t low, high;
    uintptr_t relro_low, relro_high;
    const ElfW(Sym) *symbols;
    const char *strings;
    const ElfW(Rela) *tables[2];
    size_t counts[2];
} elf_view;

typedef struct elf_search {
    mp_patch *patch;
    const mp_patch_want *wants;
    size_t want_count;
} elf_search;

/* glibc has made these absolute already; other loaders leave offsets. */
static uintptr_t
absolute(const elf_view *view, ElfW(Addr) value)
{
    return value < view->load ? view->load + value : value;
}

static void
read_dynamic(elf_view *view, const ElfW(Dyn) *entry)
{
    bool table_is_rela = true;
    for (; entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB:
            view->symbols = (const ElfW(Sym) *)absolute(view, entry->d_un.d_ptr);
            break;
        case DT_STRTAB:
            view->strings = (const char *)absolute(view, entry->d_un.d_ptr);
            break;
        case DT_PLTREL:
            table_is_rela = entry->d_un.d_val == DT_RELA;
            break;
        case DT_JMPREL:
            view->tables[0] = (const ElfW(Rela) *)absolute(view, entry->d_un.d_ptr);
            break;
        case DT_PLTRELSZ:
            view->counts[0] = entry->d_un.d_val / sizeof(ElfW(Rela));
            break;
        case DT_RELA:
            view->tables[1] = (const ElfW(Rela) *)absolute(view, entry->d_un.d_ptr);
            break;
        case DT_RELASZ:
            view->counts[1] = entry->d_un.d_val / sizeof(ElfW(Rela));
            break;
        default:
            break;
        }
    }
    if (!table_is_rela) {
        view->counts[0] = 0;
    }
}

static bool
view_object(const struct dl_phdr_info *info, elf_view *view)
{
    const char *path = info->dlpi_name == NULL ? "" : info->dlpi_name;
    const char *slash = strrchr(path, '/');
    *view = (elf_view){
        .path = path,
        .base_name = slash == NULL ? path : slash + 1,
        .load = info->dlpi_addr,
        .low = UINTPTR_MAX,
    };
    const ElfW(Dyn) *dynamic = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + header->p_vaddr;
        uintptr_t to = from + header->p_memsz;
        if (header->p_type == PT_DYNAMIC) {
            dynamic = (const ElfW(Dyn) *)from;
        } else if (header->p_type == PT_GNU_RELRO) {
            view->relro_low = from;
            view->relro_high = to;
        } else if (header->p_type == PT_LOAD) {
            view->low = from < view->low ? from : view->low;
            view->high = to > view->high ? to : view->high;
        }
    }
    if (dynamic == NULL) {
        return false;
    }
    read_dynamic(view, dynamic);
    return view->symbols != NULL && view->strings != NULL;
}

static void
add_slot(mp_patch *patch, const elf_view *view, const ElfW(Rela) *entry,
         const mp_patch_want *want)
{
    if (patch->count == MP_PATCH_SLOT_LIMIT) {
        patch->overlooked++;
        return;
    }
    mp_patch_slot *slot = &patch->slots[patch->count];
    uintptr_t address = view->load + entry->r_offset;
    *slot = (mp_patch_slot){
        .address = (void **)address,
        .original = want->original,
        .hook = want->hook,
        .symbol = want->symbol,
        .in_relro = address >= view->relro_low && address < view->relro_high,
    };
    uintptr_t held = (uintptr_t)*slot->address;
    bool own_stub = held >= view->low && held < view->high;
    slot->foreign =
        held != (uintptr_t)want->original && held != (uintptr_t)want->hook && !own_stub;
    slot->library = dlopen(view->path, RTLD_NOLOAD | RTLD_LAZY);
    patch->count++;
}

static void
search_table(const elf_search *search, const elf_view *view, const ElfW(Rela) *table,
             size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t type = (uint32_t)ELF64_R_TYPE(table[i].r_info);
        uint32_t symbol = (uint32_t)ELF64_R_SYM(table[i].r_info);
        if (symbol == 0 || (type != RELOC_JUMP_SLOT && type != RELOC_GLOB_DAT)) {
            continue;
        }
        const char *name = view->strings + view->symbols[symbol].st_name;
        for (size_t w = 0; w < search->want_count; w++) {
            const mp_patch_want *want = &search->wants[w];
            if (want->original != NULL && strcmp(name, want->symbol) == 0 &&
                strncmp(view->base_name, want->object_prefix, strlen(want->object_prefix)) == 0) {
                add_slot(search->patch, view, &table[i], want);
                break;
            }
        }
    }
}

static int
search_object(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    const elf_search *search = argument;
    elf_view view;
    if (!view_object(info, &view)) {
        return 0;
    }
    bool wanted = false;
    for (size_t w = 0; w < search->want_count && !wanted; w++) {
        const char *prefix = search->wants[w].object_prefix;
        wanted = strncmp(view.base_name, prefix, strlen(prefix)) == 0;
    }
    for (int t = 0; wanted && t < 2; t++) {
        if (view.tables[t] != NULL) {
            search_table(search, &view, view.tables[t], view.counts[t]);
        }
    }
    return 0;
}

void
mp_patch_find(mp_patch *patch, const mp_patch_want *wants, size_t want_count)
{
    *patch = (mp_patch){0};
    elf_search search = {patch, wants, want_count};
    dl_iterate_phdr(search_object, &search);
}

static bool
store(const mp_patch_slot *slot, void *value)
{
    uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *page = (void *)((uintptr_t)slot->address & ~(page_bytes - 1));
    if (slot->in_relro && mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    __atomic_store_n(slot->address, value, __ATOMIC_RELEASE);
    if (slot->in_relro) {
        (void)mprotect(page, page_bytes, PROT_READ);
    }
    return true;
}

mp_status
mp_patch_apply(mp_patch *patch)
{
    for (size_t i = 0; i < patch->count; i++) {
        mp_patch_slot *slot = &patch->slots[i];
        slot->previous = *slot->address;
        if (slot->previous == slot->hook) {
            slot->previous = slot->original; /* left from a chained undo */
        }
        if (!store(slot, slot->hook)) {
            mp_patch_undo(patch);
            return MP_OS_ERROR;
        }
        slot->patched = true;
    }
    return MP_OK;
}

size_t
mp_patch_undo(mp_patch *patch)
{
    size_t left = 0;
    for (size_t i = 0; i < patch->count; i++) {
        mp_patch_slot *slot = &patch->slots[i];
        if (slot->patched) {
            if (*slot->address != slot->hook || !store(slot, slot->previous)) {
                left++;
            }
        }
        if (slot->library != NULL) {
            dlclose(slot->library);
        }
    }
    *patch = (mp_patch){0};
    return left;
}

size_t
mp_patch_count(const mp_patch *patch, const char *symbol)
{
    size_t count = 0;
    for (size_t i = 0; i < patch->count; i++) {
        count += strcmp(patch->slots[i].symbol, symbol) == 0;
    }
    return count;
}

bool
mp_patch_found_foreign(const mp_patch *patch)
{
    for (size_t i = 0; i < patch->count; i++) {
        if (patch->slots[i].foreign) {
            return true;
        }
    }
    return false;
}
