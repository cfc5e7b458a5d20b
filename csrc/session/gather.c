#include "session/gather.h"

#include <stdlib.h>
#include <string.h>

#include "record/objects.h"

/* A growing array of fixed-size rows. */
typedef struct row_list {
    void *rows;
    size_t count, room, row_bytes;
} row_list;

typedef struct gatherer {
    const mp_gather_input *input;
    mp_gathered *out;
    mp_table_map frame_ids;   /* code id << 32 | instruction -> frame row + 1 */
    mp_table_map stack_ids;   /* content hash -> stack row + 1 */
    mp_table_map shape_ids;   /* content hash -> shapes id */
    mp_table_map module_ids;  /* object id -> module id */
    mp_table_map role_flags;  /* code object id -> frame flags */
    row_list frames;          /* mp_frame */
    row_list stacks;          /* mp_stack */
    row_list stack_frames;    /* uint32_t */
    row_list modules;         /* mp_module */
    row_list shape_offsets;   /* uint32_t */
    row_list shape_values;    /* int64_t */
} gatherer;

static void *
row_add(row_list *list, size_t how_many)
{
    if (list->room - list->count < how_many) {
        size_t room = (list->room + how_many) * 2;
        void *rows = realloc(list->rows, room * list->row_bytes);
        if (rows == NULL) {
            return NULL;
        }
        list->rows = rows;
        list->room = room;
    }
    void *added = (char *)list->rows + list->count * list->row_bytes;
    memset(added, 0, how_many * list->row_bytes);
    list->count += how_many;
    return added;
}

static uint64_t
hash_words(const uint64_t *words, uint32_t count)
{
    uint64_t a = 0x243F6A8885A308D3u ^ count;
    uint64_t b = 0x13198A2E03707344u;
    for (uint32_t i = 0; i < count; i++) {
        a = (a ^ words[i]) * 0x9E3779B97F4A7C15u;
        a ^= a >> 32;
        b = (b + words[i]) * 0xC2B2AE3D27D4EB4Fu;
    }
    return a ^ (b ^ b >> 29);
}

/* ---- frames ---- */

static mp_status
describe_frame(gatherer *self, uint64_t key, mp_frame *frame)
{
    mp_line_text text = {0};
    uint32_t code_id = (uint32_t)(key >> 32);
    if (self->input->describe == NULL ||
        !self->input->describe(code_id, (uint32_t)key, &text)) {
        text = (mp_line_text){.file = "<unknown>", .file_bytes = 9, .function = "<unknown>",
                              .function_bytes = 9};
    }
    mp_text_table *texts = &self->out->texts;
    MP_TRY(mp_text_table_add(texts, text.file, text.file_bytes, &frame->file_id));
    MP_TRY(mp_text_table_add(texts, text.function, text.function_bytes, &frame->function_id));
    frame->line = text.line > 0 ? (uint32_t)text.line : 0;
    const uint32_t *flags = mp_table_find(&self->role_flags, code_id);
    frame->flags = flags == NULL ? 0 : *flags;
    return MP_OK;
}

static mp_status
frame_row(gatherer *self, uint64_t key, uint32_t *row)
{
    uint32_t *known = mp_table_at(&self->frame_ids, key);
    if (known == NULL) {
        return MP_NO_MEMORY;
    }
    if (*known == 0) {
        mp_frame *frame = row_add(&self->frames, 1);
        if (frame == NULL) {
            return MP_NO_MEMORY;
        }
        MP_TRY(describe_frame(self, key, frame));
        *known = (uint32_t)self->frames.count;
    }
    *row = *known - 1;
    return MP_OK;
}

/* ---- modules ---- */

static const mp_module_name *
module_name(const gatherer *self, uint32_t object_id)
{
    for (size_t i = 0; i < self->input->module_count; i++) {
        if (self->input->modules[i].object_id == object_id) {
            return &self->input->modules[i];
        }
    }
    return NULL;
}

static mp_status
module_row(gatherer *self, uint32_t object_id, uint32_t *id)
{
    *id = 0;
    if (object_id == 0) {
        return MP_OK;
    }
    uint32_t *known = mp_table_at(&self->module_ids, object_id);
    if (known == NULL) {
        return MP_NO_MEMORY;
    }
    if (*known == 0) {
        mp_module *module = row_add(&self->modules, 1);
        if (module == NULL) {
            return MP_NO_MEMORY;
        }
        *known = (uint32_t)self->modules.count;
        const mp_object *object = mp_objects_at(object_id);
        const mp_module_name *name = module_name(self, object_id);
        const char *class_name = name != NULL ? name->class_name : object->class_name;
        const char *path = name != NULL ? name->path : class_name;
        module->address = (uint64_t)(uintptr_t)object->address;
        mp_text_table *texts = &self->out->texts;
        MP_TRY(mp_text_table_add(texts, path, strlen(path), &module->path_id));
        MP_TRY(mp_text_table_add(texts, class_name, strlen(class_name), &module->class_id));
    }
    *id = *known;
    return MP_OK;
}

/* After all stacks: parents that were seen themselves. */
static void
link_parents(gatherer *self)
{
    for (size_t i = 0; i < self->input->module_count; i++) {
        const mp_module_name *name = &self->input->modules[i];
        const uint32_t *own = mp_table_find(&self->module_ids, name->object_id);
        const uint32_t *parent = mp_table_find(&self->module_ids, name->parent_object_id);
        if (own != NULL && parent != NULL && *own != 0) {
            ((mp_module *)self->modules.rows)[*own - 1].parent_id = *parent;
        }
    }
}

/* ---- stacks; the words are those of python/frames.h ---- */

static mp_status
stack_row(gatherer *self, const uint64_t *words, uint32_t count, uint32_t *row)
{
    uint32_t *known = mp_table_at(&self->stack_ids, hash_words(words, count));
    if (known == NULL) {
        return MP_NO_MEMORY;
    }
    if (*known != 0) {
        *row = *known - 1;
        return MP_OK;
    }
    uint32_t depth = (uint32_t)(words[0] & 0xffff);
    uint32_t modules = (uint32_t)(words[0] >> 16 & 0xffff);
    mp_stack stack = {
        .offset = (uint32_t)self->stack_frames.count,
        .depth = depth,
        .flags = (uint32_t)(words[0] >> 32),
    };
    if (modules > 0) {
        MP_TRY(module_row(self, (uint32_t)words[1 + depth], &stack.module_id));
        for (uint32_t m = 1; m < modules; m++) {
            uint32_t outer;
            MP_TRY(module_row(self, (uint32_t)words[1 + depth + m], &outer));
        }
    }
    for (uint32_t f = 0; f < depth; f++) {
        uint32_t frame;
        MP_TRY(frame_row(self, words[1 + f], &frame));
        uint32_t *place = row_add(&self->stack_frames, 1);
        if (place == NULL) {
            return MP_NO_MEMORY;
        }
        *place = frame;
        uint32_t roles = ((const mp_frame *)self->frames.rows)[frame].flags;
        stack.flags |= (roles & MP_FRAME_DATA) != 0 ? MP_STACK_DATA : 0;
        stack.flags |= (roles & MP_FRAME_BACKWARD) != 0 ? MP_STACK_BACKWARD : 0;
    }
    mp_stack *added = row_add(&self->stacks, 1);
    if (added == NULL) {
        return MP_NO_MEMORY;
    }
    *added = stack;
    *known = (uint32_t)self->stacks.count;
    *row = *known - 1;
    return MP_OK;
}

/* ---- one log ---- */

static mp_status
map_stacks(gatherer *self, mp_log_map *map)
{
    const mp_intern *table = &map->log->stacks;
    for (uint32_t id = 1; id <= table->count; id++) {
        uint32_t count;
        const uint64_t *words = mp_intern_words(table, id, &count);
        MP_TRY(stack_row(self, words, count, &map->stacks[id]));
    }
    return MP_OK;
}

static mp_status
map_names(gatherer *self, mp_log_map *map)
{
    const mp_intern *table = &map->log->names;
    for (uint32_t id = 1; id <= table->count; id++) {
        uint32_t count;
        const uint64_t *words = mp_intern_words(table, id, &count);
        uint32_t name_bytes = (uint32_t)words[0];
        uint32_t overload_bytes = (uint32_t)(words[0] >> 32);
        const char *text = (const char *)&words[1];
        MP_TRY(mp_text_table_add(&self->out->texts, text, name_bytes, &map->names[id]));
        MP_TRY(mp_text_table_add(&self->out->texts, text + name_bytes, overload_bytes,
                                 &map->overloads[id]));
    }
    return MP_OK;
}

static mp_status
map_shapes(gatherer *self, mp_log_map *map)
{
    const mp_intern *table = &map->log->shapes;
    for (uint32_t id = 1; id <= table->count; id++) {
        uint32_t count;
        const uint64_t *words = mp_intern_words(table, id, &count);
        uint32_t *known = mp_table_at(&self->shape_ids, hash_words(words, count));
        if (known == NULL) {
            return MP_NO_MEMORY;
        }
        if (*known == 0) {
            void *values = row_add(&self->shape_values, count);
            uint32_t *offset = row_add(&self->shape_offsets, 1);
            if ((values == NULL && count > 0) || offset == NULL) {
                return MP_NO_MEMORY;
            }
            memcpy(values, words, count * sizeof(*words));
            *offset = (uint32_t)self->shape_values.count;
            *known = (uint32_t)self->shape_offsets.count - 2;
        }
        map->shapes[id] = *known;
    }
    return MP_OK;
}

static mp_status
map_log(gatherer *self, mp_log_map *map)
{
    map->stacks = calloc((size_t)map->log->stacks.count + 1, sizeof(uint32_t));
    map->names = calloc((size_t)map->log->names.count + 1, sizeof(uint32_t));
    map->overloads = calloc((size_t)map->log->names.count + 1, sizeof(uint32_t));
    map->shapes = calloc((size_t)map->log->shapes.count + 1, sizeof(uint32_t));
    if (map->stacks == NULL || map->names == NULL || map->overloads == NULL ||
        map->shapes == NULL) {
        return MP_NO_MEMORY;
    }
    MP_TRY(map_stacks(self, map));
    MP_TRY(map_names(self, map));
    return map_shapes(self, map);
}

static mp_status
list_logs(mp_gathered *out)
{
    size_t count = 0;
    for (mp_thread_log *log = mp_recorder_next_log(NULL); log != NULL;
         log = mp_recorder_next_log(log)) {
        count++;
    }
    out->maps = calloc(count + 1, sizeof(*out->maps));
    if (out->maps == NULL) {
        return MP_NO_MEMORY;
    }
    for (mp_thread_log *log = mp_recorder_next_log(NULL); log != NULL && out->map_count < count;
         log = mp_recorder_next_log(log)) {
        out->maps[out->map_count++].log = log;
    }
    return MP_OK;
}

/* ---- the whole ---- */

static mp_status
take_rows(mp_recording *recording, mp_table_id id, row_list *list)
{
    void *rows = mp_recording_resize(recording, id, list->count);
    if (list->count > 0 && rows == NULL) {
        return MP_NO_MEMORY;
    }
    if (list->count > 0) {
        memcpy(rows, list->rows, list->count * list->row_bytes);
    }
    return MP_OK;
}

static mp_status
store_tables(gatherer *self)
{
    mp_recording *recording = self->out->recording;
    MP_TRY(take_rows(recording, MP_TABLE_FRAMES, &self->frames));
    MP_TRY(take_rows(recording, MP_TABLE_STACKS, &self->stacks));
    MP_TRY(take_rows(recording, MP_TABLE_STACK_FRAMES, &self->stack_frames));
    MP_TRY(take_rows(recording, MP_TABLE_MODULES, &self->modules));
    MP_TRY(take_rows(recording, MP_TABLE_SHAPE_OFFSETS, &self->shape_offsets));
    return take_rows(recording, MP_TABLE_SHAPE_VALUES, &self->shape_values);
}

static mp_status
prepare(gatherer *self)
{
    self->frames.row_bytes = sizeof(mp_frame);
    self->stacks.row_bytes = sizeof(mp_stack);
    self->stack_frames.row_bytes = sizeof(uint32_t);
    self->modules.row_bytes = sizeof(mp_module);
    self->shape_offsets.row_bytes = sizeof(uint32_t);
    self->shape_values.row_bytes = sizeof(int64_t);
    MP_TRY(mp_text_table_init(&self->out->texts));
    MP_TRY(mp_table_init(&self->frame_ids, 4096));
    MP_TRY(mp_table_init(&self->stack_ids, 4096));
    MP_TRY(mp_table_init(&self->shape_ids, 1024));
    MP_TRY(mp_table_init(&self->module_ids, 256));
    MP_TRY(mp_table_init(&self->role_flags, 16));
    for (size_t i = 0; i < self->input->role_count; i++) {
        uint32_t *flags = mp_table_at(&self->role_flags, self->input->roles[i].object_id);
        if (flags == NULL) {
            return MP_NO_MEMORY;
        }
        *flags |= self->input->roles[i].frame_flags;
    }
    /* Row 0 is the empty stack; shapes id 0 is the empty run. */
    if (row_add(&self->stacks, 1) == NULL || row_add(&self->shape_offsets, 2) == NULL) {
        return MP_NO_MEMORY;
    }
    self->out->recording = mp_recording_new();
    return self->out->recording == NULL ? MP_NO_MEMORY : list_logs(self->out);
}

static mp_status
gather_all(gatherer *self)
{
    MP_TRY(prepare(self));
    for (size_t i = 0; i < self->out->map_count; i++) {
        MP_TRY(map_log(self, &self->out->maps[i]));
    }
    link_parents(self);
    return store_tables(self);
}

mp_status
mp_gather(const mp_gather_input *input, mp_gathered *out)
{
    *out = (mp_gathered){0};
    gatherer self = {.input = input, .out = out};
    mp_status status = gather_all(&self);
    mp_table_fini(&self.frame_ids);
    mp_table_fini(&self.stack_ids);
    mp_table_fini(&self.shape_ids);
    mp_table_fini(&self.module_ids);
    mp_table_fini(&self.role_flags);
    row_list *lists[] = {&self.frames,  &self.stacks,        &self.stack_frames,
                         &self.modules, &self.shape_offsets, &self.shape_values};
    for (size_t i = 0; i < MP_COUNT_OF(lists); i++) {
        free(lists[i]->rows);
    }
    if (status != MP_OK) {
        mp_gathered_fini(out);
    }
    return status;
}

void
mp_gathered_fini(mp_gathered *gathered)
{
    for (size_t i = 0; i < gathered->map_count; i++) {
        free(gathered->maps[i].stacks);
        free(gathered->maps[i].names);
        free(gathered->maps[i].overloads);
        free(gathered->maps[i].shapes);
    }
    free(gathered->maps);
    mp_text_table_fini(&gathered->texts);
    mp_recording_free(gathered->recording);
    *gathered = (mp_gathered){0};
}
