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

typedef const unsigned char *text;

#define MAX_DEPTH 32
#define MAX_TOKEN 160            /* bytes of a pid, tid, phase or category that is numbered */
#define MAX_PROBES 64            /* against names made to collide */
#define MAX_DIGITS 18            /* such an integer fits int64 */
#define EXACT_BELOW_US (1LL << 43)
#define MAX_US (1LL << 53)

enum kind { COUNT, REST, INSTANT, FRAME, HOST, RUNTIME, DEVICE, COPY, NOTE };
enum { TS, DUR, EXT, CORR, STREAM, NBYTES, WIDE };

/* ---------------------------------------------------------------- numbering of texts */

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
    if (t->room - t->used < size) {
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

/* ---------------------------------------------------------------- columns */

typedef struct { int64_t *wide[WIDE]; int32_t *name, *where; int8_t *code; size_t n, cap; } table;
typedef struct { int64_t *span; int32_t *name; size_t n, cap; } ranges; /* span: start, stop, start, stop ... */

#define RESIZE(p, n) do { void *new_ = realloc((p), (n) * sizeof *(p)); if (!new_) return -1; (p) = new_; } while (0)

static int table_room(table *t) {
    if (t->n < t->cap) return 0;
    size_t cap = t->cap ? 2 * t->cap : 1024;
    for (int i = 0; i < WIDE; i++) RESIZE(t->wide[i], cap);
    RESIZE(t->name, cap);
    RESIZE(t->where, cap);
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
enum { NAMES, TRACKS, PLACES, FRAMES, CLASSES, INTERNERS };

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
    int64_t longest; /* ns: rows that last longer are left to the decoder */
} scanner;

/* ---------------------------------------------------------------- JSON */

typedef struct { text at; size_t size; } piece;
typedef struct { text p, end; int odd, failed; } cursor; /* odd: this event is for the general decoder */

#define ONES 0x0101010101010101ULL
#define TOPS 0x8080808080808080ULL
#define LESS(x, n) (((x) - ONES * (n)) & ~(x)) /* top bit of each byte below n; exact up to the first */

static inline int blank(int c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static inline void skip_blanks(cursor *c) {
    while (blank(*c->p)) c->p++;
}

/* A string whose opening quote is behind. Escapes other than the simple ones, control and non-ASCII bytes are odd. */
static inline piece string(cursor *c, int *escaped) {
    text p = c->p, start = p;
    for (;;) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        while (c->end - p >= 8) {
            uint64_t x, stops;
            memcpy(&x, p, 8);
            uint64_t quote = x ^ ONES * '"', slash = x ^ ONES * '\\';
            stops = (LESS(quote, 1) | LESS(slash, 1) | LESS(x, 32) | x) & TOPS;
            if (stops) {
                p += __builtin_ctzll(stops) >> 3;
                break;
            }
            p += 8;
        }
#endif
        while (p < c->end && *p != '"' && *p != '\\' && *p >= 32 && *p < 128) p++;
        if (p == c->end) {
            c->failed = 1;
            break;
        }
        if (*p == '"') break;
        if (*p == '\\') {
            *escaped = 1;
            if (c->end - p < 2) {
                c->failed = 1;
                break;
            }
            if (!strchr("\"\\/bfnrt", p[1]) || !p[1]) c->odd = 1;
            p += 2;
        } else {
            c->odd = 1;
            p++;
        }
    }
    c->p = p + !c->failed;
    return (piece){start, (size_t)(p - start)};
}

typedef struct { int64_t whole; int fraction, decimals, good; } number; /* good: an integer or up to three decimals */

static inline number read_number(cursor *c) {
    number out = {0, 0, 0, 0};
    text p = c->p;
    int minus = *p == '-';
    p += minus;
    text start = p;
    int64_t whole = 0;
    while (*p >= '0' && *p <= '9') {
        if (p - start < MAX_DIGITS) whole = 10 * whole + (*p - '0');
        p++;
    }
    size_t digits = (size_t)(p - start);
    if (!digits || (*start == '0' && digits > 1)) c->failed = 1;
    out.good = digits <= MAX_DIGITS;
    if (*p == '.') {
        text dot = ++p;
        for (; *p >= '0' && *p <= '9'; p++)
            if (p - dot < 3) out.fraction = 10 * out.fraction + (*p - '0');
        if (p == dot) c->failed = 1;
        out.decimals = p - dot < 4 ? (int)(p - dot) : 4;
        out.good &= out.decimals < 4;
    }
    if (*p == 'e' || *p == 'E') {
        out.good = 0;
        c->odd = 1;
        p++;
        p += *p == '+' || *p == '-';
        text exponent = p;
        while (*p >= '0' && *p <= '9') p++;
        if (p == exponent) c->failed = 1;
    }
    if (digits > MAX_DIGITS) c->odd = 1;
    out.whole = minus ? -whole : whole;
    if (minus && out.decimals) out.good = 0;
    c->p = p;
    return out;
}

static int word(cursor *c, const char *expected, size_t n) {
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, expected, n)) return c->failed = 1, 0;
    c->p += n;
    return 0;
}

static void skip_value(cursor *c, int depth);

/* After a value in an object or list: 1 = another one follows, 0 = it is closed (or failed). */
static inline int more(cursor *c, int close) {
    skip_blanks(c);
    if (*c->p == ',') {
        c->p++;
        skip_blanks(c);
        return !c->failed;
    }
    if (*c->p == close) c->p++;
    else c->failed = 1;
    return 0;
}

/* The key of a member, with its colon; the value is next. */
static inline piece key(cursor *c) {
    int escaped = 0;
    if (*c->p != '"') return c->failed = 1, (piece){c->p, 0};
    c->p++;
    piece k = string(c, &escaped);
    if (escaped) c->odd = 1;
    skip_blanks(c);
    if (*c->p == ':') c->p++;
    else c->failed = 1;
    if (*c->p == ' ') c->p++;
    skip_blanks(c);
    return k;
}

/* An object or list whose opening bracket is behind. */
static void skip_inside(cursor *c, int close, int depth) {
    if (depth > MAX_DEPTH) {
        c->failed = 1;
        return;
    }
    skip_blanks(c);
    if (*c->p == close) {
        c->p++;
        return;
    }
    do {
        if (close == '}') key(c);
        if (c->failed) return;
        skip_value(c, depth + 1);
    } while (!c->failed && more(c, close));
}

static void skip_value(cursor *c, int depth) {
    int escaped = 0;
    switch (*c->p) {
    case '"': c->p++; string(c, &escaped); break;
    case '{': c->p++; skip_inside(c, '}', depth); break;
    case '[': c->p++; skip_inside(c, ']', depth); break;
    case 't': word(c, "true", 4); break;
    case 'f': word(c, "false", 5); break;
    case 'n': word(c, "null", 4); break;
    default: read_number(c);
    }
}

/* ---------------------------------------------------------------- one event */

#define IS(k, s) ((k).size == sizeof(s) - 1 && !memcmp((k).at, s, sizeof(s) - 1))
#define EACH_ARG(X) X(EXT, "External id") X(CORR, "correlation") X(STREAM, "stream") X(NBYTES, "bytes")

enum { PH = 1, CAT = 2, NAME = 4, PID = 8, TID = 16, AT = 32, LASTS = 64, ARGS = 128, DEV = 256,
       NAME_ESCAPED = 512, RECORD = 1024, PEERS = 2048, BAD_TIME = 4096, BAD_NAME = 8192, BAD_TRACK = 1 << 14,
       BAD_DEV = 1 << 15, FRACTION = 1 << 16, NO_NUMBER = 1 << 17 };

typedef struct {
    piece ph, cat, name, pid, tid, device; /* those of numbers and threads with their quotes */
    int64_t wide[WIDE], thread; /* thread: the tid as a number */
    unsigned seen, args, bad;   /* args, bad: bits by column: given, given as something else than a small integer */
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
        number n = read_number(c);
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
    static const int scale[] = {1000, 100, 10, 1};
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
    e->wide[column] = n.whole * 1000 + (int64_t)n.fraction * (n.decimals ? scale[n.decimals] : 0);
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
    number n = read_number(c);
    if (!n.good || n.decimals) e->bad |= bit;
    *out = n.whole;
}

static void arg(cursor *c, event *e, piece k) {
#define X(column, spelled) if (IS(k, spelled)) { integer_arg(c, e, column, &e->wide[column]); return; }
    switch (k.size) { case 5: case 6: case 11: EACH_ARG(X) }
#undef X
    if (IS(k, "device")) {
        token_member(c, e, &e->device, DEV, BAD_DEV);
        return;
    }
    if (IS(k, "name") && !scalar(c)) c->odd = 1;
    if (IS(k, "external id")) c->odd = 1; /* the spelling of old writers */
    if (IS(k, "Collective name")) e->seen |= RECORD;
    if (IS(k, "fromDevice") || IS(k, "toDevice")) e->seen |= PEERS;
    skip_value(c, 3);
}

static void arguments(cursor *c, event *e) {
    once(c, e, ARGS);
    if (*c->p != '{') {
        c->odd = 1;
        skip_value(c, 2);
        return;
    }
    c->p++;
    skip_blanks(c);
    if (*c->p == '}') {
        c->p++;
        return;
    }
    do {
        piece k = key(c);
        if (c->failed) return;
        arg(c, e, k);
    } while (!c->failed && more(c, '}'));
}

static void member(cursor *c, event *e, piece k) {
    switch (k.size) {
    case 2:
        if (IS(k, "ph")) { text_member(c, e, &e->ph, PH); return; }
        if (IS(k, "ts")) { time_member(c, e, TS, AT); return; }
        break;
    case 3:
        if (IS(k, "cat")) { text_member(c, e, &e->cat, CAT); return; }
        if (IS(k, "pid")) { token_member(c, e, &e->pid, PID, BAD_TRACK); return; }
        if (IS(k, "tid")) { token_member(c, e, &e->tid, TID, BAD_TRACK); return; }
        if (IS(k, "dur")) { time_member(c, e, DUR, LASTS); return; }
        break;
    case 4:
        if (IS(k, "name")) { text_member(c, e, &e->name, NAME); return; }
        if (IS(k, "args")) { arguments(c, e); return; }
        break;
    }
    skip_value(c, 2);
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

/* A row into its table: 0 done, -1 no memory, -2 for the general decoder. */
static int add_row(scanner *s, event *e, int kind, int8_t value) {
    static const piece none = {(text) "null", 4};
    const unsigned needed = NAME | PID | TID | AT | LASTS;
    if ((e->seen & needed) != needed || e->seen & (BAD_TIME | BAD_NAME | BAD_TRACK)) return -2;
    if (e->wide[DUR] > s->longest || e->bad & 1u << EXT) return -2;
    int host = kind == HOST || kind == RUNTIME;
    if (host ? kind == HOST && full_name(s, e->name) : e->seen & (RECORD | BAD_DEV)) return -2;
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
    for (int i = 0; i < WIDE; i++) t->wide[i][t->n] = e->wide[i];
    t->name[t->n] = name;
    t->where[t->n] = where;
    t->code[t->n++] = value;
    return 0;
}

/* One event whose brace is next: 0 taken, -1 no memory, -2 for the general decoder. */
static int take(scanner *s, cursor *c, text data, int text_times) {
    event e = {.wide = {0, 0, -1, -1, -1, -1}};
    text start = c->p++;
    c->odd = 0;
    skip_blanks(c);
    if (*c->p == '}') c->p++;
    else do {
        piece k = key(c);
        if (c->failed) return 0;
        member(c, &e, k);
    } while (!c->failed && more(c, '}'));
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
        free(s->tables[i].code);
    }
    free(s->frames.span);
    free(s->frames.name);
    free(s->rest.span);
    free(s->rest.name);
    free(s->counts);
    free(s->kinds);
    free(s->values);
}
