#include "output/escaped.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

mp_status
mp_escaped_init(mp_escaped *escaped, const mp_recording *recording, uint32_t stack_depth)
{
    size_t offsets = MP_COUNT(recording, STRING_OFFSETS);
    *escaped = (mp_escaped){
        .recording = recording,
        .string_count = offsets > 0 ? offsets - 1 : 0,
        .stack_count = MP_COUNT(recording, STACKS),
        .stack_depth = stack_depth,
    };
    escaped->strings = calloc(escaped->string_count + 1, sizeof(*escaped->strings));
    escaped->stacks = calloc(escaped->stack_count + 1, sizeof(*escaped->stacks));
    if (escaped->strings == NULL || escaped->stacks == NULL) {
        mp_escaped_fini(escaped);
        return MP_NO_MEMORY;
    }
    return MP_OK;
}

void
mp_escaped_fini(mp_escaped *escaped)
{
    for (size_t i = 0; escaped->strings != NULL && i < escaped->string_count; i++) {
        free(escaped->strings[i].bytes);
    }
    for (size_t i = 0; escaped->stacks != NULL && i < escaped->stack_count; i++) {
        free(escaped->stacks[i].bytes);
    }
    free(escaped->strings);
    free(escaped->stacks);
    *escaped = (mp_escaped){0};
}

/* Length of `path` up to where Python's libraries are named from, 0 when it is none. */
static size_t
library_prefix(const char *path, size_t length)
{
    static const char *const s_folders[] = {"/site-packages/", "/dist-packages/",
                                            "/lib/python3."};
    for (size_t i = 0; i < MP_COUNT_OF(s_folders); i++) {
        const char *at = memmem(path, length, s_folders[i], strlen(s_folders[i]));
        if (at != NULL) {
            at += strlen(s_folders[i]);
            bool named = i < 2; /* of the third the version is left */
            const char *end =
                named ? at - 1 : memchr(at, '/', length - (size_t)(at - path));
            return end == NULL ? 0 : (size_t)(end + 1 - path);
        }
    }
    return 0;
}

static const mp_escaped_text *
string_text(mp_escaped *escaped, uint32_t id)
{
    static char s_nothing[MP_JSON_PADDING];
    static const mp_escaped_text s_empty = {s_nothing, 0, 0};
    if (id >= escaped->string_count) {
        return &s_empty;
    }
    mp_escaped_text *text = &escaped->strings[id];
    if (text->bytes == NULL) {
        size_t length;
        const char *bytes = mp_recording_string(escaped->recording, id, &length);
        text->bytes = malloc(length * MP_JSON_ESCAPE_FACTOR + MP_JSON_PADDING);
        if (text->bytes == NULL) {
            escaped->status = MP_NO_MEMORY;
            return &s_empty;
        }
        text->length = mp_json_escape(text->bytes, bytes, length);
        text->tail = library_prefix(text->bytes, text->length);
    }
    return text;
}

void
mp_escaped_string(mp_escaped *escaped, mp_json *json, uint32_t string_id)
{
    const mp_escaped_text *text = string_text(escaped, string_id);
    mp_json_padded(json, text->bytes, text->length);
}

void
mp_escaped_file(mp_escaped *escaped, mp_json *json, uint32_t string_id)
{
    const mp_escaped_text *text = string_text(escaped, string_id);
    mp_json_padded(json, text->bytes + text->tail, text->length - text->tail);
}

/* Length of one frame's text; writes it where `out` is not NULL. */
static size_t
frame_text(mp_escaped *escaped, const mp_frame *frame, char *out)
{
    const mp_escaped_text *file = string_text(escaped, frame->file_id);
    const mp_escaped_text *function = string_text(escaped, frame->function_id);
    char line[24];
    int digits = snprintf(line, sizeof(line), "(%u): ", frame->line);
    if (out != NULL) {
        memcpy(out, file->bytes, file->length);
        memcpy(out + file->length, line, (size_t)digits);
        memcpy(out + file->length + digits, function->bytes, function->length);
    }
    return file->length + (size_t)digits + function->length;
}

static void
make_stack(mp_escaped *escaped, const mp_stack *stack, mp_escaped_text *text)
{
    const mp_frame *frames = MP_ROWS(escaped->recording, FRAMES, mp_frame);
    const uint32_t *rows =
        MP_ROWS(escaped->recording, STACK_FRAMES, uint32_t) + stack->offset;
    uint32_t depth =
        stack->depth < escaped->stack_depth ? stack->depth : escaped->stack_depth;
    size_t length = 0;
    for (uint32_t i = 0; i < depth; i++) {
        length += frame_text(escaped, &frames[rows[i]], NULL) + 1;
    }
    text->bytes = malloc(length + MP_JSON_PADDING);
    if (text->bytes == NULL) {
        escaped->status = MP_NO_MEMORY;
        return;
    }
    for (uint32_t i = 0; i < depth; i++) {
        if (i > 0) {
            text->bytes[text->length++] = ';';
        }
        text->length += frame_text(escaped, &frames[rows[i]], text->bytes + text->length);
    }
}

void
mp_escaped_stack(mp_escaped *escaped, mp_json *json, uint32_t stack_id)
{
    if (stack_id >= escaped->stack_count) {
        return;
    }
    mp_escaped_text *text = &escaped->stacks[stack_id];
    if (text->bytes == NULL) {
        make_stack(escaped, &MP_ROWS(escaped->recording, STACKS, mp_stack)[stack_id], text);
    }
    if (text->bytes != NULL) {
        mp_json_padded(json, text->bytes, text->length);
    }
}
