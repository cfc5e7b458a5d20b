#include "session/activities.h"

#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "collect/cupti_activity.h"

typedef struct row_order {
    int64_t start_ns; /* CUPTI's */
    const mp_activity *row;
} row_order;

typedef struct store_pass {
    mp_recording *recording;
    mp_text_table *texts;
    const mp_cupti_decoder *decoder;
    const mp_cupti_bracket *brackets;
    size_t bracket_count, bracket_at;
    const mp_clock_map *clock;
    row_order *order;
    uint32_t *names;      /* id in the decoder -> string id */
    mp_table_map threads; /* kernel's id -> thread id */
} store_pass;

/* ---- order ---- */

static int
by_start(const void *a, const void *b)
{
    const row_order *x = a, *y = b;
    if (x->start_ns != y->start_ns) {
        return x->start_ns < y->start_ns ? -1 : 1;
    }
    return (x->row > y->row) - (x->row < y->row);
}

static mp_status
put_in_order(store_pass *self)
{
    const mp_activity_log *log = &self->decoder->log;
    self->order = malloc((size_t)log->rows * sizeof(*self->order) + 1);
    if (self->order == NULL) {
        return MP_NO_MEMORY;
    }
    size_t count = 0;
    for (const mp_activity_chunk *chunk = log->first; chunk != NULL; chunk = chunk->next) {
        for (size_t i = 0; i < chunk->count; i++) {
            self->order[count++] = (row_order){chunk->rows[i].start_ns, &chunk->rows[i]};
        }
    }
    qsort(self->order, count, sizeof(*self->order), by_start);
    return MP_OK;
}

/* ---- names ---- */

static mp_status
add_name(store_pass *self, uint32_t id)
{
    const char *text = self->decoder->names.texts[id];
    char *readable = mp_cupti_names_demangle(text);
    const char *shown = readable != NULL ? readable : text;
    mp_status status =
        mp_text_table_add(self->texts, shown, strlen(shown), &self->names[id]);
    free(readable);
    return status;
}

static mp_status
add_names(store_pass *self)
{
    self->names = calloc((size_t)self->decoder->names.count + 1, sizeof(*self->names));
    if (self->names == NULL) {
        return MP_NO_MEMORY;
    }
    for (uint32_t id = 1; id < self->decoder->names.count; id++) {
        MP_TRY(add_name(self, id));
    }
    return MP_OK;
}

/* ---- threads ---- */

static mp_status
append_threads(mp_recording *recording, const uint32_t *os_ids, size_t count)
{
    size_t before = MP_COUNT(recording, THREADS);
    mp_thread *old = malloc(before * sizeof(*old) + 1);
    if (old == NULL) {
        return MP_NO_MEMORY;
    }
    if (before > 0) {
        memcpy(old, MP_ROWS(recording, THREADS, mp_thread), before * sizeof(*old));
    }
    mp_thread *rows = mp_recording_resize(recording, MP_TABLE_THREADS, before + count);
    if (rows != NULL) {
        memcpy(rows, old, before * sizeof(*old));
        for (size_t i = 0; i < count; i++) {
            rows[before + i].os_id = os_ids[i];
        }
    }
    free(old);
    return rows != NULL ? MP_OK : MP_NO_MEMORY;
}

/* Kernel ids that no log has, in order of sight. */
static mp_status
number_unseen(store_pass *self, uint32_t **unseen, size_t *count)
{
    size_t known = MP_COUNT(self->recording, THREADS), room = 0;
    for (uint64_t i = 0; i < self->decoder->log.rows; i++) {
        const mp_activity *row = self->order[i].row;
        if (!MP_ACTIVITY_IS_CALL(row->kind)) {
            continue;
        }
        uint32_t *id = mp_table_at(&self->threads, row->thread);
        if (id == NULL) {
            return MP_NO_MEMORY;
        }
        if (*id != 0) {
            continue;
        }
        if (*count == room) {
            room = room == 0 ? 16 : 2 * room;
            uint32_t *grown = realloc(*unseen, room * sizeof(*grown));
            if (grown == NULL) {
                return MP_NO_MEMORY;
            }
            *unseen = grown;
        }
        (*unseen)[(*count)++] = row->thread;
        *id = (uint32_t)(known + *count);
    }
    return MP_OK;
}

static mp_status
number_threads(store_pass *self)
{
    const mp_thread *threads = MP_ROWS(self->recording, THREADS, mp_thread);
    MP_TRY(mp_table_init(&self->threads, MP_COUNT(self->recording, THREADS) + 16));
    for (size_t i = 0; i < MP_COUNT(self->recording, THREADS); i++) {
        uint32_t *id = mp_table_at(&self->threads, (uint32_t)threads[i].os_id);
        if (id == NULL) {
            return MP_NO_MEMORY;
        }
        *id = *id == 0 ? (uint32_t)i + 1 : *id;
    }
    uint32_t *unseen = NULL;
    size_t count = 0;
    mp_status status = number_unseen(self, &unseen, &count);
    if (status == MP_OK && count > 0) {
        status = append_threads(self->recording, unseen, count);
    }
    free(unseen);
    return status;
}

/* ---- rows ---- */

static int64_t
bracket_offset(const store_pass *self, size_t at)
{
    const mp_cupti_bracket *bracket = &self->brackets[at];
    return mp_clock_to_ns(self->clock, bracket->ticks) - bracket->cupti_ns;
}

/* What to add to one of CUPTI's times, between two brackets in proportion. Times must not
 * fall. */
static int64_t
offset_at(store_pass *self, int64_t cupti_ns)
{
    if (self->bracket_count == 0) {
        return 0;
    }
    while (self->bracket_at + 1 < self->bracket_count &&
           self->brackets[self->bracket_at + 1].cupti_ns <= cupti_ns) {
        self->bracket_at++;
    }
    size_t at = self->bracket_at;
    int64_t offset = bracket_offset(self, at);
    if (at + 1 == self->bracket_count || cupti_ns <= self->brackets[at].cupti_ns) {
        return offset;
    }
    int64_t width = self->brackets[at + 1].cupti_ns - self->brackets[at].cupti_ns;
    double share = (double)(cupti_ns - self->brackets[at].cupti_ns) / (double)width;
    return offset + (int64_t)(share * (double)(bracket_offset(self, at + 1) - offset));
}

static void
convert(store_pass *self, const mp_activity *from, mp_activity *to)
{
    int64_t offset = offset_at(self, from->start_ns);
    *to = *from;
    to->start_ns += offset;
    to->end_ns += offset;
    to->name_id = self->names[from->name_id];
    if (MP_ACTIVITY_IS_CALL(from->kind)) {
        const uint32_t *thread = mp_table_find(&self->threads, from->thread);
        to->thread = thread != NULL ? *thread : 0;
    }
}

/* Rows stay in order where the offset falls within a nanosecond of rounding. */
static mp_status
fill_rows(store_pass *self)
{
    size_t count = (size_t)self->decoder->log.rows;
    mp_activity *rows = mp_recording_resize(self->recording, MP_TABLE_ACTIVITIES, count);
    if (rows == NULL) {
        return MP_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        convert(self, self->order[i].row, &rows[i]);
        if (i > 0 && rows[i].start_ns < rows[i - 1].start_ns) {
            rows[i].start_ns = rows[i - 1].start_ns;
        }
        if (rows[i].end_ns < rows[i].start_ns) {
            rows[i].end_ns = rows[i].start_ns;
        }
    }
    return MP_OK;
}

static mp_status
store(store_pass *self)
{
    MP_TRY(put_in_order(self));
    MP_TRY(add_names(self));
    MP_TRY(number_threads(self));
    return fill_rows(self);
}

mp_status
mp_activities_store(mp_gathered *gathered, const mp_clock_map *clock)
{
    store_pass self = {
        .recording = gathered->recording, .texts = &gathered->texts, .clock = clock};
    self.decoder = mp_cupti_activity_rows(&self.brackets, &self.bracket_count);
    if (self.decoder == NULL || self.decoder->log.rows == 0) {
        return MP_OK;
    }
    mp_status status = store(&self);
    free(self.order);
    free(self.names);
    mp_table_fini(&self.threads);
    return status;
}
