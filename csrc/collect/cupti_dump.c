#include "collect/cupti_dump.h"

#include <string.h>

enum { BLOCK_VERSION = 1, BLOCK_BUFFER = 2, BLOCK_NAME = 3 };

static void
write_block(mp_cupti_dump *dump, uint32_t type, uint64_t key, const void *bytes, size_t count)
{
    struct {
        uint32_t type, unused;
        uint64_t key, bytes;
    } head = {type, 0, key, count};
    if (dump->file == NULL) {
        return;
    }
    if (fwrite(&head, sizeof(head), 1, dump->file) != 1 ||
        (count > 0 && fwrite(bytes, count, 1, dump->file) != 1)) {
        fclose(dump->file);
        dump->file = NULL;
    }
}

int
mp_cupti_dump_open(mp_cupti_dump *dump, const char *path, uint32_t version)
{
    dump->file = fopen(path, "wbe");
    if (dump->file == NULL) {
        return 0;
    }
    if (fwrite("MPCUPTI1", 8, 1, dump->file) != 1) {
        fclose(dump->file);
        dump->file = NULL;
        return 0;
    }
    write_block(dump, BLOCK_VERSION, version, NULL, 0);
    return 1;
}

void
mp_cupti_dump_buffer(mp_cupti_dump *dump, const uint8_t *buffer, size_t bytes)
{
    write_block(dump, BLOCK_BUFFER, 0, buffer, bytes);
}

void
mp_cupti_dump_close(mp_cupti_dump *dump, const mp_cupti_names *names)
{
    const mp_table_map *map = &names->by_pointer;
    for (size_t i = 0; map->keys != NULL && i <= map->mask; i++) {
        if (map->keys[i] != 0 && map->values[i] != 0) {
            const char *text = names->texts[map->values[i]];
            write_block(dump, BLOCK_NAME, map->keys[i], text, strlen(text));
        }
    }
    if (dump->file != NULL) {
        fclose(dump->file);
        dump->file = NULL;
    }
}
