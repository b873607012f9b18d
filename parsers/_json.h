/* JSON as a cursor over bytes: strings, numbers, and values that are only checked. data[size] must be NUL. */
#ifndef TRACEKIT_JSON_H
#define TRACEKIT_JSON_H
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__ /* only faster: the loops below it do the same */
#include <emmintrin.h>
#endif

#include "_texts.h"

#define MAX_DEPTH 32
#define MAX_DIGITS 18 /* such an integer fits int64 */

typedef struct { text at; size_t size; } piece;
typedef struct { text p, end; int odd, failed; } cursor; /* odd: this event is for the general decoder */

#define ONES 0x0101010101010101ULL
#define TOPS 0x8080808080808080ULL
#define LESS(x, n) (((x) - ONES * (n)) & ~(x)) /* top bit of each byte below n; exact up to the first */

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define EIGHT(c, p) ((c)->end - (p) >= 8) /* may eight bytes be looked at as one number? */
#define FIRST(tops) (__builtin_ctzll(tops) >> 3)
#else
#define EIGHT(c, p) 0
#define FIRST(tops) 0
#endif

static inline uint64_t load(text p) {
    uint64_t x;
    memcpy(&x, p, 8);
    return x;
}

static inline int blank(int c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static inline void skip_blanks(cursor *c) {
    text p = c->p;
    if (*p > ' ') return;
    if (blank(*p) && EIGHT(c, p + 1)) { /* mostly a line break and an indent */
        uint64_t others = load(++p) ^ ONES * ' ';
        p += others ? FIRST(others) : 8;
    }
    while (blank(*p)) p++;
    c->p = p;
}

/* The first byte that is a quote, a backslash, a control character or not ASCII; or the last few bytes of the data. */
static inline text plain(const cursor *c, text p) {
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), low = _mm_set1_epi8(32);
    for (; c->end - p >= 16; p += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)p);
        __m128i stops = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(x, quote), _mm_cmpeq_epi8(x, slash)), _mm_cmplt_epi8(x, low));
        int found = _mm_movemask_epi8(stops);
        if (found) return p + __builtin_ctz((unsigned)found);
    }
#endif
    for (; EIGHT(c, p); p += 8) {
        uint64_t x = load(p), quotes = x ^ ONES * '"', slashes = x ^ ONES * '\\';
        uint64_t stops = (LESS(quotes, 1) | LESS(slashes, 1) | LESS(x, 32) | x) & TOPS;
        if (stops) return p + FIRST(stops);
    }
    return p;
}

/* A string whose opening quote is behind. Escapes other than the simple ones, control and non-ASCII bytes are odd. */
static inline piece string(cursor *c, int *escaped) {
    text p = c->p, start = p;
    for (;;) {
        p = plain(c, p);
        if (*p == '"') break;
        if (p == c->end) {
            c->failed = 1;
            break;
        }
        if (*p == '\\') {
            *escaped = 1;
            if (c->end - p < 2) {
                c->failed = 1;
                break;
            }
            if (!strchr("\"\\/bfnrt", p[1]) || !p[1]) c->odd = 1;
            p += 2;
        } else {
            if (*p < 32 || *p > 127) c->odd = 1;
            p++;
        }
    }
    c->p = p + !c->failed;
    return (piece){start, (size_t)(p - start)};
}

/* The first n of eight digits (values, lowest byte first) as a number: neighbours are joined in pairs, fours and eights. */
static inline uint64_t joined(uint64_t x, int n) {
    x <<= 8 * (8 - n);
    x = (x * 10 + (x >> 8)) & 0x00FF00FF00FF00FFULL;
    x = (x * 100 + (x >> 16)) & 0x0000FFFF0000FFFFULL;
    return (x * 10000 + (x >> 32)) & 0xFFFFFFFFULL;
}

/* Value of the digits that come next (right up to 19 of them), and their number. */
static inline uint64_t read_digits(cursor *c, text p, size_t *count) {
    static const uint64_t power[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
    text start = p;
    uint64_t value = 0;
    while (EIGHT(c, p)) {
        uint64_t x = load(p) ^ ONES * '0', others = ((x + ONES * 0x76) | x) & TOPS;
        int n = others ? FIRST(others) : 8;
        if (!n) break;
        x = joined(x, n);
        p += n;
        if (n < 8) {
            *count = (size_t)(p - start);
            return value * power[n] + x;
        }
        value = value * 100000000 + x;
    }
    for (; *p >= '0' && *p <= '9'; p++) value = 10 * value + (uint64_t)(*p - '0');
    *count = (size_t)(p - start);
    return value;
}

typedef struct { int64_t whole; int fraction, decimals, good; } number; /* good: an integer or up to three decimals */

static inline number read_number(cursor *c) {
    number out = {0, 0, 0, 0};
    text p = c->p;
    size_t digits;
    int minus = *p == '-';
    p += minus;
    uint64_t whole = read_digits(c, p, &digits);
    if (!digits || (*p == '0' && digits > 1)) c->failed = 1;
    p += digits;
    out.good = digits <= MAX_DIGITS;
    if (digits > 20) c->odd = 1;
    if (*p == '.') {
        size_t decimals;
        uint64_t fraction = read_digits(c, ++p, &decimals);
        if (!decimals) c->failed = 1;
        p += decimals;
        out.good &= decimals < 4 && !minus;
        out.decimals = decimals < 4 ? (int)decimals : 4;
        out.fraction = decimals < 4 ? (int)fraction : 0;
    }
    if (*p == 'e' || *p == 'E') {
        size_t exponent;
        p += p[1] == '+' || p[1] == '-' ? 2 : 1;
        read_digits(c, p, &exponent);
        if (!exponent) c->failed = 1;
        p += exponent;
        out.good = 0;
        c->odd = 1;
    }
    if (out.good) out.whole = minus ? -(int64_t)whole : (int64_t)whole;
    c->p = p;
    return out;
}

/* An integer, of up to seven digits if it is quick. */
static inline number read_integer(cursor *c) {
    if (EIGHT(c, c->p) && *c->p > '0') {
        uint64_t x = load(c->p) ^ ONES * '0', others = ((x + ONES * 0x76) | x) & TOPS;
        int n = others ? FIRST(others) : 0, after = c->p[n] | 32;
        if (n && after != '.' && after != 'e') {
            c->p += n;
            return (number){(int64_t)joined(x, n), 0, 0, 1};
        }
    }
    return read_number(c);
}

/* A number that is not wanted; most are small integers. */
static inline void skip_number(cursor *c) {
    if (EIGHT(c, c->p) && *c->p > '0') {
        uint64_t x = load(c->p) ^ ONES * '0', others = ((x + ONES * 0x76) | x) & TOPS;
        text p = c->p + (others ? FIRST(others) : 0);
        if (p != c->p && *p != '.' && (*p | 32) != 'e') {
            c->p = p;
            return;
        }
    }
    read_number(c);
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
    default: skip_number(c);
    }
}

/* A value that is not wanted, such as a number. */
static inline void skip(cursor *c, int depth) {
    if (*c->p >= '0' && *c->p <= '9') skip_number(c);
    else skip_value(c, depth);
}

#endif
