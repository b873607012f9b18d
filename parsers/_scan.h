/* One pass over bytes of whole events -> columns of the frequent rows. Plain C11; knows nothing of Python.
 *
 * `scan_all` reads every byte of `event, event, ...` as JSON. Rows it fully understands fill columns or are counted; any
 * other event is handed back as a byte range for the general decoder ("rest"); and where the structure itself is not
 * sound, or nested too deeply, it takes nothing and the caller reads the chunk another way. Nothing is guessed.
 *
 * Reads stay inside [data, data + size]; data[size] must be NUL, which stops every loop over single bytes.
 */
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

typedef struct { int64_t *wide[WIDE]; int32_t *name, *where, *record; int8_t *code; size_t n, cap; } table;
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

/* What a key of an event (MEMBERS) or of its arguments is to us, and what stood behind its value the last times: the
 * bytes up to the next value. Events of a file follow few patterns, so mostly one comparison replaces reading a key. */
#define MAX_MEMBERS 512
#define AHEAD 48
enum { START, OTHER_KEY, FIRST_KEY }; /* numbers in `known`; START: the opening brace */
typedef struct {
    uint64_t bytes[AHEAD / 8], last; /* last: the bits of the last word that count */
    uint8_t words, size, at, key_size;
    uint16_t next;
} follower;
typedef struct { follower seen[2]; int what; } member_key;

typedef struct {
    interner texts[INTERNERS];
    table tables[TABLES];
    ranges frames, rest;
    int64_t *counts;
    uint8_t *kinds;
    int8_t *values;
    size_t n_classes;
    char prefixes[16][4];
    int n_prefixes;
    struct { unsigned char size; char spelled[MAX_KEY]; } keys[MAX_KEYS]; /* arguments of a communication record */
    unsigned char first_key[MAX_KEY + 2];                                  /* by size: where those of a size start */
    member_key known[2][MAX_MEMBERS];
    unsigned char *scratch;
    size_t room;
    int64_t longest; /* ns: rows that last longer are left to the decoder */
} scanner;

/* ---------------------------------------------------------------- one event */

#define IS(k, s) ((k).size == sizeof(s) - 1 && !memcmp((k).at, s, sizeof(s) - 1))

enum { PH = 1, CAT = 2, NAME = 4, PID = 8, TID = 16, AT = 32, LASTS = 64, ARGS = 128, DEV = 256,
       NAME_ESCAPED = 512, RECORD = 1024, PEERS = 2048, BAD_TIME = 4096, BAD_NAME = 8192, BAD_TRACK = 1 << 14,
       BAD_DEV = 1 << 15, FRACTION = 1 << 16, NO_NUMBER = 1 << 17 };

typedef struct {
    piece ph, cat, name, pid, tid, device; /* those of numbers and threads with their quotes */
    int64_t wide[READ], thread; /* thread: the tid as a number */
    unsigned seen, args, bad;   /* args, bad: bits by column: given, given as something else than a small integer */
    piece records[MAX_KEYS];    /* members of a communication record, as written */
    int n_records;
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

static int is_record_key(const scanner *s, piece k) {
    if (k.size > MAX_KEY) return 0;
    for (int i = s->first_key[k.size]; i < s->first_key[k.size + 1]; i++)
        if (!memcmp(s->keys[i].spelled, k.at, k.size)) return 1;
    return 0;
}

enum { SKIPPED = 1, PHASE, CATEGORY, CALLED, PROCESS, THREAD, BEGAN, TOOK, ARGUED, EXTERNAL, CORRELATED, STREAMED, COPIED, ON_DEVICE,
       SEQUENCE, COMMS_ID, PEER, OLD, LABEL, OPERATION, RECORDED };

static const struct { int context, what; const char *spelled; } WANTED[] = {
    {MEMBERS, PHASE, "ph"}, {MEMBERS, CATEGORY, "cat"}, {MEMBERS, CALLED, "name"}, {MEMBERS, PROCESS, "pid"},
    {MEMBERS, THREAD, "tid"}, {MEMBERS, BEGAN, "ts"}, {MEMBERS, TOOK, "dur"}, {MEMBERS, ARGUED, "args"},
    {ARGUMENTS, EXTERNAL, "External id"}, {ARGUMENTS, CORRELATED, "correlation"}, {ARGUMENTS, STREAMED, "stream"},
    {ARGUMENTS, COPIED, "bytes"}, {ARGUMENTS, ON_DEVICE, "device"}, {ARGUMENTS, SEQUENCE, "Seq"},
    {ARGUMENTS, COMMS_ID, "Comms Id"}, {ARGUMENTS, PEER, "fromDevice"}, {ARGUMENTS, PEER, "toDevice"},
    {ARGUMENTS, OLD, "external id"}, {ARGUMENTS, LABEL, "name"}, {ARGUMENTS, OPERATION, "Collective name"},
};

static int what_is(const scanner *s, int context, piece k) {
    for (size_t i = 0; i < sizeof WANTED / sizeof *WANTED; i++)
        if (WANTED[i].context == context && strlen(WANTED[i].spelled) == k.size && !memcmp(WANTED[i].spelled, k.at, k.size))
            return WANTED[i].what;
    return context == ARGUMENTS && is_record_key(s, k) ? RECORDED : SKIPPED;
}

static inline int follows(const cursor *c, const follower *f) {
    if (!f->size || !EIGHT(c, c->p + AHEAD)) return 0;
    int last = f->words - 1, same = 1;
    for (int i = 0; i < last; i++) same &= load(c->p + 8 * i) == f->bytes[i];
    return same && !((load(c->p + 8 * last) ^ f->bytes[last]) & f->last);
}

static void remember(const cursor *c, member_key *before, text from, piece k, unsigned at) {
    size_t size = (size_t)(c->p - from);
    if (size > AHEAD || !EIGHT(c, from + AHEAD)) return;
    before->seen[1] = before->seen[0];
    follower *f = &before->seen[0];
    memcpy(f->bytes, from, AHEAD);
    f->size = (uint8_t)size;
    f->words = (uint8_t)((size + 7) / 8);
    f->last = ~0ULL >> 8 * (8 * f->words - size);
    f->at = (uint8_t)(k.at - from);
    f->key_size = (uint8_t)k.size;
    f->next = (uint16_t)at;
}

/* The key of a member that nothing foretold. */
static unsigned new_member(scanner *s, cursor *c, int context, unsigned at, piece *k) {
    text from = c->p;
    if (at == START) {
        skip_blanks(c);
        if (*c->p == '}') return c->p++, START;
    } else if (!more(c, '}')) return START;
    member_key *known = s->known[context - MEMBERS];
    int odd = c->odd;
    unsigned found = OTHER_KEY;
    c->odd = 0;
    *k = key(c);
    if (c->failed) return START;
    if (!c->odd && k->size <= MAX_KEY) {
        int32_t number = number_of(&s->texts[context], k->at, k->size);
        if (number >= 0 && number < MAX_MEMBERS - FIRST_KEY) {
            found = FIRST_KEY + (unsigned)number;
            if (!known[found].what) known[found].what = what_is(s, context, *k);
            if (at != OTHER_KEY) remember(c, &known[at], from, *k, found);
        }
    }
    c->odd |= odd;
    return found;
}

/* Go to the value of the next member: its key is `k`, its number the result; `at`: that of the one before. START: none. */
static inline unsigned next_member(scanner *s, cursor *c, int context, unsigned at, piece *k) {
    const follower *f = s->known[context - MEMBERS][at].seen;
    if (!follows(c, f) && !follows(c, ++f)) return new_member(s, c, context, at, k);
    *k = (piece){c->p + f->at, f->key_size};
    c->p += f->size;
    if (*c->p <= ' ') skip_blanks(c);
    return f->next;
}

static void arguments(scanner *s, cursor *c, event *e) {
    unsigned at = START;
    piece k;
    once(c, e, ARGS);
    if (*c->p != '{') {
        c->odd = 1;
        skip_value(c, 2);
        return;
    }
    c->p++;
    while (!c->failed && (at = next_member(s, c, ARGUMENTS, at, &k)) != START) {
        switch (s->known[ARGUMENTS - MEMBERS][at].what) {
        case EXTERNAL: integer_arg(c, e, EXT, &e->wide[EXT]); continue;
        case CORRELATED: integer_arg(c, e, CORR, &e->wide[CORR]); continue;
        case STREAMED: integer_arg(c, e, STREAM, &e->wide[STREAM]); continue;
        case COPIED: integer_arg(c, e, NBYTES, &e->wide[NBYTES]); continue;
        case SEQUENCE: integer_arg(c, e, SEQ, &e->wide[SEQ]); continue;
        case COMMS_ID: id_arg(c, e, COMMS); continue;
        case ON_DEVICE: token_member(c, e, &e->device, DEV, BAD_DEV); continue;
        case PEER: e->seen |= PEERS; break;
        case OLD: integer_arg(c, e, OLD_EXT, &e->wide[OLD_EXT]); continue; /* the spelling of old writers */
        case LABEL: c->odd |= !scalar(c); break;
        case OPERATION: e->seen |= RECORD; /* fall through */
        case RECORDED:
            skip_value(c, 3);
            if (e->n_records == MAX_KEYS) c->odd = 1;
            else e->records[e->n_records++] = (piece){k.at - 1, (size_t)(c->p - k.at) + 1};
            continue;
        }
        skip_value(c, 3);
    }
}

static void members(scanner *s, cursor *c, event *e) {
    unsigned at = START;
    piece k;
    while (!c->failed && (at = next_member(s, c, MEMBERS, at, &k)) != START) {
        switch (s->known[0][at].what) {
        case PHASE: text_member(c, e, &e->ph, PH); break;
        case CATEGORY: text_member(c, e, &e->cat, CAT); break;
        case CALLED: text_member(c, e, &e->name, NAME); break;
        case PROCESS: token_member(c, e, &e->pid, PID, BAD_TRACK); break;
        case THREAD: token_member(c, e, &e->tid, TID, BAD_TRACK); break;
        case BEGAN: time_member(c, e, TS, AT); break;
        case TOOK: time_member(c, e, DUR, LASTS); break;
        case ARGUED: arguments(s, c, e); break;
        default: skip_value(c, 2);
        }
    }
}

/* The class of an event, or -1: no memory, -2: for the general decoder. */
static int32_t class_of(scanner *s, const event *e) {
    unsigned char spelled[2 * MAX_TOKEN + 1];
    size_t n = e->ph.size;
    if (!(e->seen & PH) || n > MAX_TOKEN || e->cat.size > MAX_TOKEN) return -2;
    memcpy(spelled, e->ph.at, n);
    if (e->seen & CAT) {
        spelled[n++] = ':';
        memcpy(spelled + n, e->cat.at, e->cat.size);
        n += e->cat.size;
    }
    interner *t = &s->texts[CLASSES];
    int32_t number = number_of(t, spelled, n);
    if (number >= 0 && t->n > s->n_classes) {
        RESIZE(s->kinds, t->n);
        RESIZE(s->values, t->n);
        RESIZE(s->counts, t->n);
        int one = e->ph.size == 1 ? *e->ph.at : 0;
        s->kinds[number] = one == 'M' ? REST : one == 'i' ? INSTANT : COUNT;
        s->values[number] = 0;
        s->counts[number] = 0;
        s->n_classes = t->n;
    }
    return number;
}

static int32_t pair_of(interner *t, piece one, piece two) {
    unsigned char spelled[2 * MAX_TOKEN + 1];
    memcpy(spelled, one.at, one.size);
    spelled[one.size] = ',';
    memcpy(spelled + one.size + 1, two.at, two.size);
    return number_of(t, spelled, one.size + 1 + two.size);
}

static int full_name(const scanner *s, piece name) {
    if (name.size < 4) return 0;
    for (int i = 0; i < s->n_prefixes; i++)
        if (!memcmp(name.at, s->prefixes[i], 4)) return 1;
    return 0;
}

/* The arguments of a communication record but for its sequence number and id, members as written and joined. */
static int32_t record_of(scanner *s, const event *e) {
    size_t size = 0;
    if (e->bad & (1u << SEQ | 1u << COMMS)) return -2;
    for (int i = 0; i < e->n_records; i++) size += e->records[i].size + 1;
    if (size > s->room) {
        RESIZE(s->scratch, 2 * size);
        s->room = 2 * size;
    }
    size = 0;
    for (int i = 0; i < e->n_records; i++) {
        memcpy(s->scratch + size, e->records[i].at, e->records[i].size);
        size += e->records[i].size;
        s->scratch[size++] = ',';
    }
    return number_of(&s->texts[RECORDS], s->scratch ? s->scratch : (text) "", size ? size - 1 : 0);
}

/* A row into its table: 0 done, -1 no memory, -2 for the general decoder. */
static int add_row(scanner *s, event *e, int kind, int8_t value) {
    static const piece none = {(text) "null", 4};
    const unsigned needed = NAME | PID | TID | AT | LASTS;
    if ((e->seen & needed) != needed || e->seen & (BAD_TIME | BAD_NAME | BAD_TRACK)) return -2;
    if (e->wide[DUR] > s->longest || e->bad & (1u << EXT | 1u << OLD_EXT)) return -2;
    if (e->wide[EXT] == -1) e->wide[EXT] = e->wide[OLD_EXT];
    int host = kind == HOST || kind == RUNTIME;
    int recorded = host ? kind == HOST && full_name(s, e->name) : kind != NOTE && e->seen & RECORD;
    if (!host && e->seen & BAD_DEV) return -2;
    if (!host && (e->args & 1u << STREAM ? e->bad & 1u << STREAM : e->seen & NO_NUMBER)) return -2;
    if (!(e->args & 1u << STREAM)) e->wide[STREAM] = e->thread;
    if ((kind == RUNTIME || kind == DEVICE || kind == COPY) && e->bad & 1u << CORR) return -2;
    if (kind == DEVICE ? e->args & 1u << NBYTES : kind == COPY && (e->seen & PEERS || e->bad & 1u << NBYTES)) return -2;
    if (kind == HOST) e->wide[CORR] = -1;
    table *t = &s->tables[host ? HOSTS : kind == NOTE ? NOTES : DEVICES];
    if (table_room(t)) return -1;
    int32_t name = number_of(&s->texts[NAMES], e->name.at, e->name.size);
    if (name < 0) return name;
    int32_t where = host ? pair_of(&s->texts[TRACKS], e->pid, e->tid)
                         : pair_of(&s->texts[PLACES], e->seen & DEV ? e->device : none, e->pid);
    if (where < 0) return where;
    int32_t record = recorded ? record_of(s, e) : -1;
    if (recorded && record < 0) return record;
    for (int i = 0; i < WIDE; i++) t->wide[i][t->n] = e->wide[i];
    t->name[t->n] = name;
    t->where[t->n] = where;
    t->record[t->n] = record;
    t->code[t->n++] = value;
    return 0;
}

/* One event whose brace is next: 0 taken, -1 no memory, -2 for the general decoder. */
static int take(scanner *s, cursor *c, text data, int text_times) {
    event e;
    e.ph = e.cat = e.name = (piece){c->p, 0};
    e.seen = e.args = e.bad = 0;
    e.thread = e.n_records = 0;
    e.wide[EXT] = e.wide[OLD_EXT] = e.wide[CORR] = e.wide[STREAM] = e.wide[NBYTES] = -1;
    e.wide[SEQ] = e.wide[COMMS] = NONE;
    text start = c->p++;
    c->odd = 0;
    members(s, c, &e);
    if (c->failed) return 0;
    int x = e.ph.size == 1 && *e.ph.at == 'X';
    if (x && e.seen & FRACTION && !text_times) c->failed = 1; /* a float would round its time: all of it is read as text */
    if (c->odd || c->failed) return -2;
    int32_t class = class_of(s, &e);
    if (class < 0) return class;
    int kind = s->kinds[class], done = 0;
    if (kind == REST) return -2;
    if (kind == INSTANT && (e.seen & NAME_ESCAPED || IS(e.name, "Record Window End"))) return -2;
    if (kind == FRAME) {
        if (!(e.seen & NAME) || e.seen & BAD_NAME) return -2;
        int32_t name = number_of(&s->texts[FRAMES], e.name.at, e.name.size);
        done = name < 0 ? name : add_range(&s->frames, start - data, c->p - data, name);
    } else if (kind >= HOST) done = add_row(s, &e, kind, s->values[class]);
    if (!done) s->counts[class]++;
    return done;
}

/* All events of a chunk: 1 done, 0 not sound, -1 no memory. */
static int scan_all(scanner *s, text data, size_t size, int text_times) {
    cursor c = {data, data + size, 0, 0};
    for (int i = 0; i < TABLES; i++) s->tables[i].n = 0;
    s->frames.n = s->rest.n = 0;
    if (s->n_classes) memset(s->counts, 0, s->n_classes * sizeof *s->counts);
    skip_blanks(&c);
    while (*c.p == '{') {
        text start = c.p;
        int done = take(s, &c, data, text_times);
        if (c.failed) return 0;
        if (done == -1 || (done == -2 && add_range(&s->rest, start - data, c.p - data, 0))) return -1;
        skip_blanks(&c);
        if (c.p == c.end) return 1;
        if (*c.p++ != ',') return 0;
        skip_blanks(&c);
    }
    return 0;
}


/* Name a class (an event with its phase and category) and say what becomes of its rows; 0, or as `class_of`. */
static int set_class(scanner *s, const event *e, int kind, int value) {
    int32_t class = class_of(s, e);
    if (class < 0) return class;
    s->kinds[class] = (uint8_t)kind;
    s->values[class] = (int8_t)value;
    return 0;
}

/* Name the arguments of communication records, in order of their sizes; 0 or -1. */
static int set_key(scanner *s, int at, const char *spelled, size_t size) {
    if (at >= MAX_KEYS || size > MAX_KEY || (at && size < s->keys[at - 1].size)) return -1;
    s->keys[at].size = (unsigned char)size;
    memcpy(s->keys[at].spelled, spelled, size);
    for (size_t n = size + 1; n < MAX_KEY + 2; n++) s->first_key[n] = (unsigned char)(at + 1);
    return 0;
}

static void release(scanner *s) {
    for (int i = 0; i < INTERNERS; i++) {
        free(s->texts[i].entries);
        free(s->texts[i].slots);
        free(s->texts[i].bytes);
    }
    for (int i = 0; i < TABLES; i++) {
        for (int j = 0; j < WIDE; j++) free(s->tables[i].wide[j]);
        free(s->tables[i].name);
        free(s->tables[i].where);
        free(s->tables[i].record);
        free(s->tables[i].code);
    }
    free(s->frames.span);
    free(s->frames.name);
    free(s->rest.span);
    free(s->rest.name);
    free(s->counts);
    free(s->scratch);
    free(s->kinds);
    free(s->values);
}
