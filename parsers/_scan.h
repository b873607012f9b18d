/* One pass over bytes of whole events -> columns of the frequent rows. Plain C11; knows nothing of Python.
 *
 * `scan_all` reads every byte of `event, event, ...` as JSON. Rows it fully understands fill columns or are counted; any
 * other event is handed back as a byte range for the general decoder ("rest"); and where the structure itself is not
 * sound, or nested too deeply, it takes nothing and the caller reads the chunk another way. Nothing is guessed.
 *
 * Reads stay inside [data, data + size]; data[size] must be NUL, which stops every loop over single bytes.
 */
#include "_members.h"

/* Marks of texts, set from outside: FRAMES that are not wanted, RECORDS that are none (BAD); frames that are wanted. */
enum { BAD = 1, WANTED_FRAME };

static int32_t pair_of(interner *t, piece one, piece two) {
    unsigned char spelled[2 * MAX_TOKEN + 1];
    memcpy(spelled, one.at, one.size);
    spelled[one.size] = ',';
    memcpy(spelled + one.size + 1, two.at, two.size);
    return number_of(t, spelled, one.size + 1 + two.size);
}

static int32_t track_of(scanner *s, event *e) {
    middle *m = e->middle;
    if (!m) return pair_of(&s->texts[TRACKS], e->pid, e->tid);
    if (m->track < 0) m->track = pair_of(&s->texts[TRACKS], e->pid, e->tid);
    return m->track;
}

static int32_t place_of(scanner *s, event *e) {
    static const piece none = {(text) "null", 4};
    middle *m = e->middle;
    piece device = e->seen & DEV ? e->device : none;
    if (!m || device.size > MAX_DEVICE) return pair_of(&s->texts[PLACES], device, e->pid);
    if (m->place < 0 || m->device_size != device.size || memcmp(m->device, device.at, device.size)) {
        memcpy(m->device, device.at, device.size);
        m->device_size = (unsigned char)device.size;
        m->place = pair_of(&s->texts[PLACES], device, e->pid);
    }
    return m->place;
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
    int32_t where = host ? track_of(s, e) : place_of(s, e);
    if (where < 0) return where;
    int32_t record = recorded ? record_of(s, e) : -1;
    if (recorded && (record < 0 || s->texts[RECORDS].entries[record].mark == BAD)) return record < 0 ? record : -2;
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
    e.class = UNKNOWN;
    e.complete = 0;
    e.head = NULL;
    e.middle = NULL;
    e.seen = e.args = e.bad = 0;
    e.thread = e.n_records = 0;
    e.wide[EXT] = e.wide[OLD_EXT] = e.wide[CORR] = e.wide[STREAM] = e.wide[NBYTES] = -1;
    e.wide[SEQ] = e.wide[COMMS] = NONE;
    text start = c->p++;
    c->odd = 0;
    members(s, c, &e);
    if (c->failed) return 0;
    if (e.class == UNKNOWN) e.complete = IS(e.ph, "X");
    if (e.complete && e.seen & FRACTION && !text_times) c->failed = 1; /* a float would round its time: all of it is read as text */
    if (c->odd || c->failed) return -2;
    int32_t class = e.class == UNKNOWN ? class_of(s, &e) : e.class;
    if (class < 0) return class;
    int kind = s->kinds[class], done = 0;
    if (kind == REST) return -2;
    if (kind == INSTANT && (e.seen & NAME_ESCAPED || IS(e.name, "Record Window End"))) return -2;
    if (kind == FRAME) {
        if (!(e.seen & NAME) || e.seen & BAD_NAME) return -2;
        int32_t name = number_of(&s->texts[FRAMES], e.name.at, e.name.size);
        unsigned mark = name < 0 ? 0 : s->texts[FRAMES].entries[name].mark;
        if (name < 0 || mark == WANTED_FRAME) done = name < 0 ? name : -2;
        else if (mark != BAD) done = add_range(&s->frames, start - data, c->p - data, name);
    } else if (kind >= HOST) done = add_row(s, &e, kind, s->values[class]);
    if (!done) s->counts[class]++;
    return done;
}

/* Forget what the last chunk held, if it was not taken. */
static void forget(scanner *s) {
    for (int i = 0; i < TABLES; i++) s->tables[i].n = s->tables[i].kept;
    s->frames.n = s->rest.n = 0;
    if (s->n_classes) memset(s->counts, 0, s->n_classes * sizeof *s->counts);
}

static int scan_events(scanner *s, text data, size_t size, int text_times) {
    cursor c = {data, data + size, 0, 0};
    skip_blanks(&c);
    while (*c.p == '{') {
        text start = c.p;
        int done = take(s, &c, data, text_times);
        if (c.failed) return 0;
        if (done == -1 || (done == -2 && add_range(&s->rest, start - data, c.p - data, 0))) return -1;
        text stop = c.p;
        if (s->gap.size && EIGHT(&c, stop + LITERAL) && stands(stop, &s->gap)) {
            c.p += s->gap.size - 1;
            continue;
        }
        skip_blanks(&c);
        if (c.p == c.end) return 1;
        if (*c.p++ != ',') return 0;
        skip_blanks(&c);
        if (*c.p == '{') note_bytes(&s->gap, &c, stop, c.p + 1);
    }
    return 0;
}

/* All events of a chunk: 1 done (`keep` takes them), 0 not sound, -1 no memory. */
static int scan_all(scanner *s, text data, size_t size, int text_times) {
    forget(s);
    int done = scan_events(s, data, size, text_times);
    if (done != 1) forget(s);
    return done;
}

/* Take what the last chunk held; the rows that are kept now. */
static size_t keep(scanner *s) {
    size_t rows = 0;
    for (int i = 0; i < TABLES; i++) rows += s->tables[i].kept = s->tables[i].n;
    for (size_t i = 0; i < s->n_classes; i++) s->totals[i] += s->counts[i];
    if (s->n_classes) memset(s->counts, 0, s->n_classes * sizeof *s->counts);
    return rows;
}

/* Forget the rows that were kept: they have been handed over. */
static void let_go(scanner *s) {
    for (int i = 0; i < TABLES; i++) s->tables[i].n = s->tables[i].kept = 0;
    if (s->n_classes) memset(s->totals, 0, s->n_classes * sizeof *s->totals);
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
    for (int i = 0; i < INTERNERS; i++) free_texts(&s->texts[i]);
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
    free(s->totals);
    free(s->scratch);
    free(s->kinds);
    free(s->values);
}
