/* One pass over whole lines of an NCCL log -> columns of its calls. Plain C11; knows nothing of Python.
 *
 *     [2026-01-31 12:00:00] HEAD: opCount HEX sendbuff A recvbuff B [acc C ]count N FIXED
 *
 * What repeats (HEAD with FIXED, the buffers, lines that tell a choice of algorithm) gets a number and is understood in
 * Python, once. Lines of calls in any other form are handed back as they are; so are those that may say something of
 * communicators. The time is optional. Reads stay inside [data, data + size].
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_texts.h"

#define STAMP 22 /* bytes of "[2026-01-31 12:00:00] " */
#define TIME 19
#define LONGEST 1024 /* bytes of a head with its fixed part, and of the buffers */
#define MANY ((size_t)1 << 17) /* texts of a kind, after which the scanner is to be replaced */
#define MUCH ((size_t)1 << 24) /* bytes of them */

enum { SHAPES, BUFFERS, CHOICES, KINDS };
enum { WIDE_COUNT, WIDE_OP, WIDE_BEGIN, WIDES };
enum { OF_SHAPE, OF_BUFFERS, OF_STAMP, NARROWS };
enum { BREAKS = -3, SAYS = -4 };

typedef struct { int64_t *wide[WIDES]; int32_t *narrow[NARROWS]; size_t n, cap; } calls;
/* Other lines: calls before it, begin, end, and the number of its text, BREAKS or SAYS. */
typedef struct { int64_t *where; int32_t *kind; size_t n, cap; } others;
typedef struct { int64_t *at; size_t n, cap; } stamps;
typedef struct { interner texts[KINDS]; calls calls; others others; stamps stamps; } scanner;

#define RESIZE(p, n) do { void *new_ = realloc((p), (n) * sizeof *(p)); if (!new_) return -1; (p) = new_; } while (0)

static int room_for_call(calls *t) {
    if (t->n < t->cap) return 0;
    size_t cap = t->cap ? 2 * t->cap : 4096;
    for (int i = 0; i < WIDES; i++) RESIZE(t->wide[i], cap);
    for (int i = 0; i < NARROWS; i++) RESIZE(t->narrow[i], cap);
    t->cap = cap;
    return 0;
}

static int add_other(scanner *s, text data, text begin, text end, int32_t kind) {
    others *t = &s->others;
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 1024;
        RESIZE(t->where, 3 * cap);
        RESIZE(t->kind, cap);
        t->cap = cap;
    }
    t->where[3 * t->n] = (int64_t)s->calls.n;
    t->where[3 * t->n + 1] = begin - data;
    t->where[3 * t->n + 2] = end - data;
    t->kind[t->n++] = kind;
    return 0;
}

/* The first place of a word, or NULL. */
static text find(text p, text end, const char *word, size_t size) {
    while ((size_t)(end - p) >= size && (p = memchr(p, word[0], (size_t)(end - p) - size + 1))) {
        if (!memcmp(p, word, size)) return p;
        p++;
    }
    return NULL;
}
#define FIND(p, end, word) find((p), (end), (word), sizeof(word) - 1)

/* Move past a word; 0 if another stands there. */
static int skip(text *p, text end, const char *word, size_t size) {
    if ((size_t)(end - *p) < size || memcmp(*p, word, size)) return 0;
    *p += size;
    return 1;
}
#define SKIP(p, end, word) skip((p), (end), (word), sizeof(word) - 1)

/* Move past something that is not empty and the blank after it. */
static int skip_word(text *p, text end) {
    text blank = memchr(*p, ' ', (size_t)(end - *p));
    if (!blank || blank == *p) return 0;
    *p = blank + 1;
    return 1;
}

static int digit_of(unsigned char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
}

/* Move past digits and the blank after them; 0 for none, or for more than surely fit. */
static int skip_number(text *p, text end, int base, int64_t *value) {
    text q = *p;
    int64_t found = 0;
    for (int digit; q < end && (digit = digit_of(*q)) < base; q++) {
        if (q - *p >= (base == 16 ? 15 : 18)) return 0;
        found = found * base + digit;
    }
    if (q == *p || q == end || *q != ' ') return 0;
    *value = found;
    *p = q + 1;
    return 1;
}

/* Where the head begins after a time of the usual form, if any; NULL for another form of it. */
static text after_time(text begin, text end) {
    if (end - begin < 2 || begin[0] != '[' || begin[1] != '2') return begin;
    int usual = end - begin > STAMP && !memcmp(begin + STAMP - 2, "] ", 2) && !memchr(begin, ']', STAMP - 2);
    return usual ? begin + STAMP : NULL;
}

/* The number of the time before a call: equal ones in a row have one. */
static int32_t stamp_of(stamps *t, text data, text begin) {
    if (t->n && !memcmp(data + t->at[t->n - 1], begin, TIME)) return (int32_t)t->n - 1;
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 256;
        RESIZE(t->at, cap);
        t->cap = cap;
    }
    t->at[t->n++] = begin - data;
    return (int32_t)t->n - 1;
}

/* Take one line with a call at `colon`: 1 = taken, 0 = of another form, -1 = no memory. */
static int take_call(scanner *s, text data, text begin, text colon, text end) {
    text head = after_time(begin, end), p = colon + 2;
    int64_t op, count;
    if (!head || head > colon || !SKIP(&p, end, "opCount ") || !skip_number(&p, end, 16, &op)) return 0;
    text buffers = p;
    if (!SKIP(&p, end, "sendbuff ") || !skip_word(&p, end) || !SKIP(&p, end, "recvbuff ") || !skip_word(&p, end)) return 0;
    if (SKIP(&p, end, "acc ") && !skip_word(&p, end)) return 0;
    text after = p - 1;
    if (!SKIP(&p, end, "count ") || !skip_number(&p, end, 10, &count)) return 0;
    size_t n_head = (size_t)(colon - head), n_fixed = (size_t)(end - p), n_buffers = (size_t)(after - buffers);
    if (n_head + n_fixed >= LONGEST || n_buffers > LONGEST || FIND(p, end, ": opCount ")) return 0;
    unsigned char both[LONGEST + 1];
    memcpy(both, head, n_head);
    both[n_head] = '\n'; /* in no line */
    memcpy(both + n_head + 1, p, n_fixed);
    int32_t shape = number_of(&s->texts[SHAPES], both, n_head + n_fixed + 1);
    int32_t where = number_of(&s->texts[BUFFERS], buffers, n_buffers);
    if (shape == -1 || where == -1) return -1;
    if (shape < 0 || where < 0) return 0;
    calls *t = &s->calls;
    int32_t stamp = head == begin ? -2 : stamp_of(&s->stamps, data, begin + 1);
    if (stamp == -1 || room_for_call(t)) return -1;
    t->wide[WIDE_COUNT][t->n] = count;
    t->wide[WIDE_OP][t->n] = op;
    t->wide[WIDE_BEGIN][t->n] = begin - data;
    t->narrow[OF_SHAPE][t->n] = shape;
    t->narrow[OF_BUFFERS][t->n] = where;
    t->narrow[OF_STAMP][t->n] = stamp < 0 ? -1 : stamp;
    t->n++;
    return 1;
}

/* Keep of a line that is no call what matters: 0, or -1 = no memory. */
static int take_other(scanner *s, text data, text begin, text end) {
    if (FIND(begin, end, " Bytes -> ")) {
        int32_t number = number_of(&s->texts[CHOICES], begin, (size_t)(end - begin));
        if (number == -1) return -1;
        return add_other(s, data, begin, end, number < 0 ? BREAKS : number);
    }
    if (!FIND(begin, end, "CCL")) return 0;
    return add_other(s, data, begin, end, FIND(begin, end, "comm 0x") ? BREAKS : SAYS);
}

/* Look at whole lines: 0, or -1 = no memory. */
static int scan_lines(scanner *s, text data, size_t size) {
    text end, stop = data + size;
    s->calls.n = s->others.n = s->stamps.n = 0;
    for (text begin = data; begin < stop; begin = end + 1) {
        end = memchr(begin, '\n', (size_t)(stop - begin));
        if (!end) end = stop;
        text colon = FIND(begin, end, ": opCount ");
        int taken = colon ? take_call(s, data, begin, colon, end) : 0;
        if (!taken) taken = colon ? add_other(s, data, begin, end, BREAKS) : take_other(s, data, begin, end);
        if (taken < 0) return -1;
    }
    return 0;
}

/* Does it remember so much that another has to take its place? */
static int is_full(const scanner *s) {
    for (int i = 0; i < KINDS; i++)
        if (s->texts[i].n > MANY || s->texts[i].used > MUCH) return 1;
    return 0;
}

static void release(scanner *s) {
    for (int i = 0; i < KINDS; i++) free_texts(&s->texts[i]);
    for (int i = 0; i < WIDES; i++) free(s->calls.wide[i]);
    for (int i = 0; i < NARROWS; i++) free(s->calls.narrow[i]);
    free(s->others.where);
    free(s->others.kind);
    free(s->stamps.at);
}
