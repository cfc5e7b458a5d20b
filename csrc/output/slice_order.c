#include "output/slice_order.h"

#include <stdlib.h>

static int64_t
at_most(int64_t value, int64_t limit)
{
    return value < limit ? value : limit;
}

/* ---- order ---- */

static int
compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int
in_order(const void *left, const void *right)
{
    const mp_slice *a = left, *b = right;
    int order = compare(a->start_ns, b->start_ns);
    order = order != 0 ? order : compare(b->end_ns, a->end_ns);
    order = order != 0 ? order : compare(a->kind, b->kind);
    return order != 0 ? order : compare(a->row, b->row);
}

/* The lists while they are merged: what comes next of each, and when. */
typedef struct merge {
    const mp_slice *next[MP_SLICE_KIND_COUNT];
    const mp_slice *end[MP_SLICE_KIND_COUNT];
    int64_t start_ns[MP_SLICE_KIND_COUNT]; /* INT64_MAX: none left */
} merge;

static void
look_ahead(merge *self, size_t kind)
{
    self->start_ns[kind] = self->next[kind] == self->end[kind]
                               ? INT64_MAX
                               : at_most(self->next[kind]->start_ns, INT64_MAX - 1);
}

/* The slice that begins first; of equal ones the outer kind. */
static const mp_slice *
take_first(merge *self)
{
    size_t first = 0;
    for (size_t kind = 1; kind < MP_SLICE_KIND_COUNT; kind++) {
        first = self->start_ns[kind] < self->start_ns[first] ? kind : first;
    }
    const mp_slice *slice = self->next[first]++;
    look_ahead(self, first);
    return slice;
}

/* Merging orders by start; only slices that begin together are left to sort. */
static void
sort_equal_starts(mp_slice *items, size_t count)
{
    for (size_t from = 0, to; from < count; from = to) {
        to = from + 1;
        while (to < count && items[to].thread == items[from].thread &&
               items[to].start_ns == items[from].start_ns) {
            to++;
        }
        if (to - from > 1) {
            qsort(items + from, to - from, sizeof(*items), in_order);
        }
    }
}

mp_status
mp_slices_merge(const mp_slice_list *lists, size_t threads, mp_slice_list *out)
{
    size_t total = 0;
    size_t *place = calloc(threads + 2, sizeof(*place));
    if (place == NULL) {
        return MP_NO_MEMORY;
    }
    for (size_t kind = 0; kind < MP_SLICE_KIND_COUNT; kind++) {
        for (size_t i = 0; i < lists[kind].count; i++) {
            place[lists[kind].items[i].thread + 1]++;
        }
        total += lists[kind].count;
    }
    for (size_t thread = 1; thread <= threads; thread++) {
        place[thread] += place[thread - 1];
    }
    mp_slice *items = malloc((total + 1) * sizeof(*items));
    if (items == NULL) {
        free(place);
        return MP_NO_MEMORY;
    }
    merge self = {.next = {NULL}};
    for (size_t kind = 0; kind < MP_SLICE_KIND_COUNT; kind++) {
        self.next[kind] = lists[kind].items;
        self.end[kind] = lists[kind].items;
        if (lists[kind].count > 0) { /* NULL has no offsets */
            self.end[kind] += lists[kind].count;
        }
        look_ahead(&self, kind);
    }
    for (size_t i = 0; i < total; i++) {
        const mp_slice *slice = take_first(&self);
        items[place[slice->thread]++] = *slice;
    }
    free(place);
    sort_equal_starts(items, total);
    *out = (mp_slice_list){.items = items, .count = total, .room = total + 1};
    return MP_OK;
}

/* ---- nesting ---- */

/* The slices around the current one; entry d is at depth d. */
typedef struct open_slices {
    int64_t end_ns[MP_SLICE_DEPTH];
    uint32_t
        python[MP_SLICE_DEPTH]; /* index + 1 of the innermost Python slice up to here */
    size_t depth;
} open_slices;

static int64_t
at_least(int64_t value, int64_t limit)
{
    return value > limit ? value : limit;
}

/* Who lies in whom: by the slices' own times, but a child never reaches out of its parent.
 */
static size_t
find_parents(mp_slice_list *list)
{
    open_slices open = {.depth = 0};
    size_t kept = 0;
    uint32_t thread = UINT32_MAX;
    for (size_t i = 0; i < list->count; i++) {
        mp_slice slice = list->items[i];
        open.depth = slice.thread == thread ? open.depth : 0;
        thread = slice.thread;
        while (open.depth > 0 && open.end_ns[open.depth - 1] <= slice.start_ns) {
            open.depth--;
        }
        if (open.depth == MP_SLICE_DEPTH) {
            continue;
        }
        size_t depth = open.depth++;
        slice.end_ns =
            depth > 0 ? at_most(slice.end_ns, open.end_ns[depth - 1]) : slice.end_ns;
        slice.depth = (uint16_t)depth;
        slice.parent = depth > 0 ? open.python[depth - 1] : 0;
        open.end_ns[depth] = slice.end_ns;
        open.python[depth] =
            slice.kind == MP_SLICE_PYTHON ? (uint32_t)kept + 1 : slice.parent;
        list->items[kept++] = slice;
    }
    size_t dropped = list->count - kept;
    list->count = kept;
    return dropped;
}

/* From the last to the first: next_ns[d] is the start of the next sibling at depth d. */
static void
end_before_siblings(mp_slice_list *list)
{
    int64_t next_ns[MP_SLICE_DEPTH + 1];
    uint32_t thread = UINT32_MAX;
    for (size_t i = list->count; i-- > 0;) {
        mp_slice *slice = &list->items[i];
        if (slice->thread != thread) {
            thread = slice->thread;
            for (size_t d = 0; d <= MP_SLICE_DEPTH; d++) {
                next_ns[d] = INT64_MAX;
            }
        }
        slice->end_ns =
            at_least(at_most(slice->end_ns, next_ns[slice->depth] - 1), slice->start_ns);
        next_ns[slice->depth] = slice->start_ns;
        next_ns[slice->depth + 1] = INT64_MAX;
    }
}

static void
end_before_parents(mp_slice_list *list)
{
    int64_t end_ns[MP_SLICE_DEPTH];
    for (size_t i = 0; i < list->count; i++) {
        mp_slice *slice = &list->items[i];
        if (slice->depth > 0) {
            int64_t limit = end_ns[slice->depth - 1] - 1;
            slice->end_ns = at_least(at_most(slice->end_ns, limit), slice->start_ns);
        }
        end_ns[slice->depth] = slice->end_ns;
    }
}

size_t
mp_slices_nest(mp_slice_list *list)
{
    size_t dropped = find_parents(list);
    end_before_siblings(list);
    end_before_parents(list);
    return dropped;
}
