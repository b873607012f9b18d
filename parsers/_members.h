/* The members of an event, and of its arguments: what a key means to us, and shortcuts where events stand alike. */
#ifndef TRACEKIT_MEMBERS_H
#define TRACEKIT_MEMBERS_H
#include "_event.h"

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

/* Do these bytes stand here? Most are at most two words, which one comparison settles. */
static inline int stands(text p, const literal *l) {
    if (((load(p) ^ l->words[0]) & l->first[0]) | ((load(p + 8) ^ l->words[1]) & l->first[1])) return 0;
    if (l->n <= 2) return 1;
    for (int i = 2; i < l->n - 1; i++)
        if (load(p + 8 * i) != l->words[i]) return 0;
    return !((load(p + 8 * (l->n - 1)) ^ l->words[l->n - 1]) & l->last);
}

static inline int follows(const cursor *c, const follower *f) {
    return f->bytes.size && EIGHT(c, c->p + LITERAL) && stands(c->p, &f->bytes);
}

static inline uint64_t bits(size_t size) { return size ? ~0ULL >> 8 * (8 - size) : 0; } /* of up to eight bytes */

/* Keep the bytes of [from, to), if they are few enough and more follow them. */
static int note_bytes(literal *out, const cursor *c, text from, text to) {
    size_t size = (size_t)(to - from);
    if (!size || size > LITERAL || !EIGHT(c, from + LITERAL)) return 0;
    memcpy(out->words, from, LITERAL);
    out->size = (uint8_t)size;
    out->n = (uint8_t)((size + 7) / 8);
    out->first[0] = bits(size < 8 ? size : 8);
    out->first[1] = bits(size < 8 ? 0 : size < 16 ? size - 8 : 8);
    out->last = bits(size - 8 * (out->n - 1U));
    return 1;
}

static void remember(const cursor *c, member_key *before, text from, piece k, unsigned at) {
    follower new;
    if (!note_bytes(&new.bytes, c, from, c->p)) return;
    new.at = (uint8_t)(k.at - from);
    new.key_size = (uint8_t)k.size;
    new.next = (uint16_t)at;
    before->seen[1] = before->seen[0];
    before->seen[0] = new;
}

/* The key of a member that nothing foretold. */
static unsigned new_member(scanner *s, cursor *c, int context, unsigned at, piece *k) {
    text from = c->p;
    member_key *known = s->known[context - MEMBERS];
    if (at == START || at >= MAX_MEMBERS) {
        skip_blanks(c);
        if (*c->p == '}') return c->p++, START;
    } else if (!more(c, '}')) {
        if (!c->failed && at != OTHER_KEY) remember(c, &known[at], from, (piece){from, 0}, START);
        return START;
    }
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
    c->p += f->bytes.size;
    if (f->next != START && *c->p <= ' ') skip_blanks(c);
    return f->next;
}

static void arguments(scanner *s, cursor *c, event *e) {
    unsigned at = e->head ? MAX_MEMBERS + (unsigned)(e->head - s->heads) : START;
    int run = 0; /* members of a record that follow each other are one piece */
    piece k;
    once(c, e, ARGS);
    if (*c->p != '{') {
        c->odd = 1;
        skip_value(c, 2);
        return;
    }
    c->p++;
    while (!c->failed && (at = next_member(s, c, ARGUMENTS, at, &k)) != START) {
        int what = s->known[ARGUMENTS - MEMBERS][at].what;
        if (what < OPERATION) run = 0;
        switch (what) {
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
            skip(c, 3);
            if (!run && e->n_records == MAX_KEYS) c->odd = 1;
            else if (!run) e->records[e->n_records++] = (piece){k.at - 1, 0};
            e->records[e->n_records - 1].size = (size_t)(c->p - e->records[e->n_records - 1].at);
            run = 1;
            continue;
        }
        skip(c, 3);
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
        RESIZE(s->totals, t->n);
        int one = e->ph.size == 1 ? *e->ph.at : 0;
        s->kinds[number] = one == 'M' ? REST : one == 'i' ? INSTANT : COUNT;
        s->values[number] = 0;
        s->counts[number] = s->totals[number] = 0;
        s->n_classes = t->n;
    }
    return number;
}

/* The head of the event that starts here, or none that is known. */
static inline head *head_of(scanner *s, const cursor *c) {
    if (!EIGHT(c, c->p + LITERAL)) return NULL;
    for (int i = 0; i < s->n_heads; i++) {
        head *h = &s->heads[s->order[i]];
        if (!stands(c->p, &h->bytes)) continue;
        if (i) {
            uint8_t before = s->order[i - 1];
            s->order[i - 1] = s->order[i];
            s->order[i] = before;
        }
        return h;
    }
    return NULL;
}

/* The event's phase and category are read, and its name is next: they stand like this before other names, too. */
static head *new_head(scanner *s, const cursor *c, event *e, text start, unsigned at) {
    if (s->n_heads == HEADS || e->seen != (PH | CAT) || c->odd || *c->p != '"') return NULL;
    head *h = &s->heads[s->n_heads];
    if (!note_bytes(&h->bytes, c, start, c->p + 1)) return NULL;
    int32_t class = class_of(s, e);
    if (class < 0) return NULL;
    h->at = at;
    h->class = class;
    h->complete = IS(e->ph, "X");
    h->n = h->next = 0;
    s->order[s->n_heads] = (uint8_t)s->n_heads;
    return &s->heads[s->n_heads++];
}

/* Process and thread, where they stand as behind an earlier name; the value of the start is next. */
static inline middle *middle_of(head *h, const cursor *c) {
    if (!EIGHT(c, c->p + LITERAL)) return NULL;
    for (int i = 0; i < h->n; i++)
        if (stands(c->p, &h->middles[i].bytes)) return &h->middles[i];
    return NULL;
}

static middle *new_middle(const cursor *c, event *e, unsigned at) {
    const unsigned given = PID | TID, all = PH | CAT | NAME | given;
    head *h = e->head;
    text from = e->name.at + e->name.size + 1;
    middle *m = &h->middles[h->next];
    if ((e->seen & ~(unsigned)(NAME_ESCAPED | NO_NUMBER)) != all || c->odd) return NULL;
    if (e->pid.size > LITERAL || e->tid.size > LITERAL || !note_bytes(&m->bytes, c, from, c->p)) return NULL;
    *m = (middle){.bytes = m->bytes, .at = at, .seen = e->seen & (given | NO_NUMBER), .pid = (uint8_t)(e->pid.at - from),
                  .pid_size = (uint8_t)e->pid.size, .tid = (uint8_t)(e->tid.at - from), .tid_size = (uint8_t)e->tid.size,
                  .thread = e->thread, .track = -1, .place = -1};
    h->next = (h->next + 1) % MIDDLES;
    if (h->n < MIDDLES) h->n++;
    return m;
}

/* Read up to the start's value what is known to stand there; the key of the last member that was read, or START. */
static inline unsigned known_members(scanner *s, cursor *c, event *e) {
    int escaped = 0;
    head *h = e->head = head_of(s, c);
    if (!h) return START;
    e->class = h->class;
    e->complete = h->complete;
    e->seen = PH | CAT | NAME;
    c->p += h->bytes.size;
    e->name = string(c, &escaped);
    if (escaped) e->seen |= NAME_ESCAPED;
    if (c->failed) return START;
    middle *m = e->middle = middle_of(h, c);
    if (!m) return h->at;
    e->seen |= m->seen;
    e->pid = (piece){c->p + m->pid, m->pid_size};
    e->tid = (piece){c->p + m->tid, m->tid_size};
    e->thread = m->thread;
    c->p += m->bytes.size;
    if (*c->p <= ' ') skip_blanks(c);
    time_member(c, e, TS, AT);
    return m->at;
}

static void members(scanner *s, cursor *c, event *e) {
    text start = c->p;
    unsigned at = known_members(s, c, e);
    piece k;
    while (!c->failed && (at = next_member(s, c, MEMBERS, at, &k)) != START) {
        switch (s->known[0][at].what) {
        case PHASE:
            e->class = UNKNOWN; /* a second one, where the head has told it */
            text_member(c, e, &e->ph, PH);
            break;
        case CATEGORY: text_member(c, e, &e->cat, CAT); break;
        case CALLED:
            if (!e->head) e->head = new_head(s, c, e, start, at);
            text_member(c, e, &e->name, NAME);
            break;
        case PROCESS: token_member(c, e, &e->pid, PID, BAD_TRACK); break;
        case THREAD: token_member(c, e, &e->tid, TID, BAD_TRACK); break;
        case BEGAN:
            if (e->head && !e->middle) e->middle = new_middle(c, e, at);
            time_member(c, e, TS, AT);
            break;
        case TOOK: time_member(c, e, DUR, LASTS); break;
        case ARGUED: arguments(s, c, e); break;
        default: skip(c, 2);
        }
    }
}

#endif
