/* Texts -> numbers, in order of first sight. */
#ifndef TRACEKIT_TEXTS_H
#define TRACEKIT_TEXTS_H
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef const unsigned char *text;

#define MAX_PROBES 64 /* against texts made to collide */

typedef struct { uint64_t hash; size_t at; uint32_t size, mark; } entry; /* mark: what it is to the caller; 0 at first */
typedef struct { entry *entries; uint32_t *slots; char *bytes; size_t n, cap, n_slots, used, room; } interner;

static inline uint64_t word_of(text s, size_t n) { /* up to eight bytes */
    uint64_t w = 0;
    uint32_t low, high;
    if (n >= 8) memcpy(&w, s, 8);
    else if (n >= 4) {
        memcpy(&low, s, 4);
        memcpy(&high, s + n - 4, 4);
        w = (uint64_t)high << 32 | low;
    } else for (; n; n--) w = w << 8 | *s++;
    return w;
}

static uint64_t hash_of(text s, size_t n) {
    uint64_t h = n * 0x9E3779B97F4A7C15ULL, g = ~h;
    text end = s + n;
    for (; end - s > 16; s += 16) { /* two lanes: neither waits for the other */
        h = (h ^ word_of(s, 8)) * 0xFF51AFD7ED558CCDULL;
        g = (g ^ word_of(s + 8, 8)) * 0x9FB21C651E98DF25ULL;
        h ^= h >> 32;
        g ^= g >> 32;
    }
    if (end - s > 8) { /* the last eight bytes overlap those before */
        h = (h ^ word_of(s, 8)) * 0xFF51AFD7ED558CCDULL;
        h ^= h >> 32;
        s = end - 8;
    }
    g = (g ^ word_of(s, (size_t)(end - s))) * 0xC4CEB9FE1A85EC53ULL;
    h = (h ^ g ^ g >> 29) * 0x94D049BB133111EBULL;
    return h ^ h >> 31;
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

static void free_texts(interner *t) {
    free(t->entries);
    free(t->slots);
    free(t->bytes);
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
    t->entries[t->n] = (entry){h, t->used, (uint32_t)size, 0};
    t->used += size;
    t->slots[at] = (uint32_t)++t->n;
    return (int32_t)t->n - 1;
}

#endif
