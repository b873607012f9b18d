/* Texts -> numbers, in order of first sight. */
#ifndef TRACEKIT_TEXTS_H
#define TRACEKIT_TEXTS_H
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef const unsigned char *text;

#define MAX_PROBES 64 /* against texts made to collide */

typedef struct { uint64_t hash; size_t at; uint32_t size; } entry;
typedef struct { entry *entries; uint32_t *slots; char *bytes; size_t n, cap, n_slots, used, room; } interner;

static uint64_t hash_of(text s, size_t n) {
    uint64_t h = n * 0x9E3779B97F4A7C15ULL, w;
    for (; n >= 8; s += 8, n -= 8) {
        memcpy(&w, s, 8);
        h = (h ^ w) * 0xFF51AFD7ED558CCDULL;
        h ^= h >> 32;
    }
    w = 0;
    memcpy(&w, s, n);
    h = (h ^ w) * 0xC4CEB9FE1A85EC53ULL;
    return h ^ h >> 29;
}

static int grow_slots(interner *t) {
    size_t n = t->n_slots ? 2 * t->n_slots : 1024;
    uint32_t *slots = calloc(n, sizeof *slots);
    if (!slots) return -1;
    for (size_t i = 0; i < t->n; i++) {
        size_t at = t->entries[i].hash & (n - 1);
        while (slots[at]) at = (at + 1) & (n - 1);
        slots[at] = (uint32_t)i + 1;
    }
    free(t->slots);
    t->slots = slots;
    t->n_slots = n;
    return 0;
}

/* The number of a text; -1: no memory, -2: not to be numbered. */
static int32_t number_of(interner *t, text s, size_t size) {
    if (2 * t->n >= t->n_slots && (t->n >= INT32_MAX / 4 || grow_slots(t))) return -1;
    uint64_t h = hash_of(s, size);
    size_t at = h & (t->n_slots - 1);
    for (int probes = 0; t->slots[at]; at = (at + 1) & (t->n_slots - 1)) {
        entry *e = &t->entries[t->slots[at] - 1];
        if (e->hash == h && e->size == size && !memcmp(t->bytes + e->at, s, size)) return (int32_t)t->slots[at] - 1;
        if (++probes > MAX_PROBES) return -2;
    }
    if (size > UINT32_MAX) return -2;
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 256;
        entry *entries = realloc(t->entries, cap * sizeof *entries);
        if (!entries) return -1;
        t->entries = entries;
        t->cap = cap;
    }
    if (!t->bytes || t->room - t->used < size) {
        size_t room = 2 * t->room + size + 4096;
        char *bytes = realloc(t->bytes, room);
        if (!bytes) return -1;
        t->bytes = bytes;
        t->room = room;
    }
    memcpy(t->bytes + t->used, s, size);
    t->entries[t->n] = (entry){h, t->used, (uint32_t)size};
    t->used += size;
    t->slots[at] = (uint32_t)++t->n;
    return (int32_t)t->n - 1;
}

#endif
