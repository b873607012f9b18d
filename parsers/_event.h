/* What one event is read into, and the columns its row goes to. */
#ifndef TRACEKIT_EVENT_H
#define TRACEKIT_EVENT_H
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_json.h"
#include "_texts.h"

#define MAX_TOKEN 160            /* bytes of a pid, tid, phase or category that is numbered */
#define MAX_KEY 32
#define MAX_KEYS 40
#define EXACT_BELOW_US (1LL << 43)
#define MAX_US (1LL << 53)

enum kind { COUNT, REST, INSTANT, FRAME, HOST, RUNTIME, DEVICE, COPY, NOTE };
enum { TS, DUR, EXT, CORR, STREAM, NBYTES, SEQ, COMMS, WIDE, OLD_EXT = WIDE, READ };
#define NONE INT64_MIN /* of SEQ and COMMS */

/* ---------------------------------------------------------------- columns */

/* kept: rows of the chunks that were taken; behind them those of the chunk that is looked at. */
typedef struct { int64_t *wide[WIDE]; int32_t *name, *where, *record; int8_t *code; size_t n, kept, cap; } table;
typedef struct { int64_t *span; int32_t *name; size_t n, cap; } ranges; /* span: start, stop, start, stop ... */

#define RESIZE(p, n) do { void *new_ = realloc((p), (n) * sizeof *(p)); if (!new_) return -1; (p) = new_; } while (0)

static int table_room(table *t) {
    if (t->n < t->cap) return 0;
    size_t cap = t->cap ? 2 * t->cap : 1024;
    for (int i = 0; i < WIDE; i++) RESIZE(t->wide[i], cap);
    RESIZE(t->name, cap);
    RESIZE(t->where, cap);
    RESIZE(t->record, cap);
    RESIZE(t->code, cap);
    t->cap = cap;
    return 0;
}

static int add_range(ranges *r, int64_t start, int64_t stop, int32_t name) {
    if (r->n == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 1024;
        RESIZE(r->span, 2 * cap);
        RESIZE(r->name, cap);
        r->cap = cap;
    }
    r->span[2 * r->n] = start;
    r->span[2 * r->n + 1] = stop;
    r->name[r->n++] = name;
    return 0;
}

enum { HOSTS, DEVICES, NOTES, TABLES };
enum { NAMES, TRACKS, PLACES, FRAMES, CLASSES, RECORDS, PUBLIC, MEMBERS = PUBLIC, ARGUMENTS, INTERNERS };

/* Bytes that were read before: where they stand again, what came of them is known. first, last: the bits that count of
 * the first two words, and of the last one. */
#define LITERAL 80
typedef struct { uint64_t words[LITERAL / 8], first[2], last; uint8_t n, size; } literal;

/* What a key of an event (MEMBERS) or of its arguments is to us, and what stood behind its value the last times: the
 * bytes up to the next value. Events of a file follow few patterns, so mostly one comparison replaces reading a key. */
#define MAX_MEMBERS 512
enum { START, OTHER_KEY, FIRST_KEY }; /* numbers in `known`; START: the opening brace, and the closing one as a successor */
typedef struct { literal bytes; uint8_t at, key_size; uint16_t next; } follower;
typedef struct { follower seen[2]; int what; } member_key;

/* From the brace of an event to its name: phase and category, the same for thousands of events. Behind the name, up to
 * the start: process and thread. */
#define HEADS 24
#define MIDDLES 8
#define MAX_DEVICE 16
typedef struct {
    literal bytes;
    unsigned at, seen;                          /* key of the start as a member; what process and thread add to `seen` */
    uint8_t pid, pid_size, tid, tid_size;       /* where they stand */
    int64_t thread;
    int32_t track, place;                       /* their numbers, or -1 */
    unsigned char device[MAX_DEVICE], device_size; /* of the place */
} middle;
typedef struct {
    literal bytes;
    unsigned at;
    int32_t class;
    int complete; /* phase X */
    middle middles[MIDDLES];
    int n, next;
} head;

typedef struct {
    interner texts[INTERNERS];
    table tables[TABLES];
    ranges frames, rest;
    int64_t *counts, *totals; /* rows by class: of the chunk that is looked at, of those that were taken */
    uint8_t *kinds;
    int8_t *values;
    size_t n_classes;
    char prefixes[16][4];
    int n_prefixes;
    struct { unsigned char size; char spelled[MAX_KEY]; } keys[MAX_KEYS]; /* arguments of a communication record */
    unsigned char first_key[MAX_KEY + 2];                                  /* by size: where those of a size start */
    member_key known[2][MAX_MEMBERS + HEADS]; /* the last: the opening brace of arguments, by the head of the event */
    head heads[HEADS];
    uint8_t order[HEADS]; /* of heads, the frequent ones first */
    int n_heads;
    literal gap; /* between two events, with the brace of the second */
    unsigned char *scratch;
    size_t room;
    int64_t longest; /* ns: rows that last longer are left to the decoder */
} scanner;

/* ---------------------------------------------------------------- one event */

#define IS(k, s) ((k).size == sizeof(s) - 1 && !memcmp((k).at, s, sizeof(s) - 1))

enum { PH = 1, CAT = 2, NAME = 4, PID = 8, TID = 16, AT = 32, LASTS = 64, ARGS = 128, DEV = 256,
       NAME_ESCAPED = 512, RECORD = 1024, PEERS = 2048, BAD_TIME = 4096, BAD_NAME = 8192, BAD_TRACK = 1 << 14,
       BAD_DEV = 1 << 15, FRACTION = 1 << 16, NO_NUMBER = 1 << 17 };
#define UNKNOWN (-3)

typedef struct {
    piece ph, cat, name, pid, tid, device; /* those of numbers and threads with their quotes */
    int64_t wide[READ], thread; /* thread: the tid as a number */
    unsigned seen, args, bad;   /* args, bad: bits by column: given, given as something else than a small integer */
    piece records[MAX_KEYS];    /* members of a communication record, as written */
    int n_records;
    int32_t class; /* or UNKNOWN */
    int complete;
    head *head;
    middle *middle;
} event;

static inline void once(cursor *c, event *e, unsigned bit) {
    if (e->seen & bit) c->odd = 1;
    e->seen |= bit;
}

static inline int scalar(cursor *c) { return *c->p != '{' && *c->p != '['; }

static inline int is_digit_next(cursor *c) { return *c->p == '-' || (*c->p >= '0' && *c->p <= '9'); }

/* A phase, category or name: a string, or else it is odd. */
static inline void text_member(cursor *c, event *e, piece *out, unsigned bit) {
    once(c, e, bit);
    if (*c->p == '"') {
        int escaped = 0;
        c->p++;
        *out = string(c, &escaped);
        if (escaped) {
            if (bit == NAME) e->seen |= NAME_ESCAPED;
            else c->odd = 1;
        }
        return;
    }
    if (bit != NAME || !scalar(c)) c->odd = 1;
    e->seen |= BAD_NAME;
    skip_value(c, 2);
}

/* A pid, tid or device: integer or string without escapes, kept as written. */
static inline void token_member(cursor *c, event *e, piece *out, unsigned bit, unsigned bad) {
    once(c, e, bit);
    text start = c->p;
    if (is_digit_next(c)) {
        number n = read_integer(c);
        if (!n.good || n.decimals) e->seen |= bad;
        if (bit == TID) e->thread = n.whole;
    } else {
        int escaped = 0, quoted = *c->p == '"';
        if (!scalar(c)) c->odd = 1;
        if (quoted) {
            c->p++;
            string(c, &escaped);
        } else skip_value(c, 2);
        if (!quoted || escaped) e->seen |= bad;
        if (bit == TID) e->seen |= NO_NUMBER;
    }
    *out = (piece){start, (size_t)(c->p - start)};
    if (out->size > MAX_TOKEN) e->seen |= bad;
}

static inline void time_member(cursor *c, event *e, int column, unsigned bit) {
    static const int scale[] = {0, 100, 10, 1};
    once(c, e, bit);
    if (!is_digit_next(c)) {
        e->seen |= BAD_TIME;
        skip_value(c, 2);
        return;
    }
    number n = read_number(c);
    if (!n.good || n.whole < 0 || n.whole >= MAX_US) {
        e->seen |= BAD_TIME;
        return;
    }
    if (n.decimals && n.whole >= EXACT_BELOW_US) e->seen |= FRACTION;
    e->wide[column] = n.whole * 1000 + (int64_t)n.fraction * scale[n.decimals];
}

static inline void integer_arg(cursor *c, event *e, int column, int64_t *out) {
    unsigned bit = 1u << column;
    if (e->args & bit) c->odd = 1;
    e->args |= bit;
    if (!is_digit_next(c)) {
        e->bad |= bit;
        skip_value(c, 3);
        return;
    }
    number n = read_integer(c);
    if (!n.good || n.decimals) e->bad |= bit;
    *out = n.whole;
}

/* An unsigned id of 64 bits, kept as such bits. */
static void id_arg(cursor *c, event *e, int column) {
    uint64_t value = 0;
    text p = c->p;
    integer_arg(c, e, column, &e->wide[column]); /* checks its form; an id may have more digits than that takes */
    int good = *p >= '0' && *p <= '9';
    for (; *p >= '0' && *p <= '9'; p++) {
        unsigned digit = (unsigned)(*p - '0');
        if (value > (UINT64_MAX - digit) / 10) good = 0;
        else value = 10 * value + digit;
    }
    e->wide[column] = (int64_t)value;
    e->bad &= ~(1u << column);
    if (!good || p != c->p || e->wide[column] == NONE) e->bad |= 1u << column;
}

#endif
