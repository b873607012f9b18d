/* The compiled decode core as a Python module: `Scanner.scan(b"event, event, ...")`, without the GIL. See `_scan.h`.
 *
 * `parsers/core.py` is the other half: names, threads and categories are numbered here and understood there.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_scan.h"

#include "_module.h"

#define REVISION 5 /* of what Python sees of it; parsers/core.py asks for the same */

static const unsigned COLUMNS[TABLES] = {
    1u << TS | 1u << DUR | 1u << EXT | 1u << CORR | 1u << SEQ | 1u << COMMS,
    1u << TS | 1u << DUR | 1u << EXT | 1u << CORR | 1u << STREAM | 1u << NBYTES | 1u << SEQ | 1u << COMMS,
    1u << TS | 1u << DUR | 1u << EXT | 1u << STREAM,
};

/* One list of bytes: the columns of the three tables, then the rows by class. */
static PyObject *columns_of(scanner *s) {
    PyObject *out = PyList_New(0);
    int failed = !out;
    for (int i = 0; i < TABLES && !failed; i++) {
        table *t = &s->tables[i];
        for (int j = 0; j < WIDE && !failed; j++)
            if (COLUMNS[i] & 1u << j) failed = append(out, t->wide[j], t->kept * sizeof(int64_t));
        failed = failed || append(out, t->name, t->kept * sizeof(int32_t)) ||
                 append(out, t->where, t->kept * sizeof(int32_t)) || append(out, t->record, t->kept * sizeof(int32_t)) ||
                 append(out, t->code, t->kept);
    }
    failed = failed || append(out, s->totals, s->n_classes * sizeof(int64_t));
    if (failed) Py_CLEAR(out);
    else let_go(s);
    return out;
}

/* What a chunk leaves to the caller: frames that bear no mark and where they stand, and where all other events stand. */
static PyObject *left_over(const scanner *s) {
    const ranges *f = &s->frames, *r = &s->rest;
    PyObject *out = PyList_New(0);
    int failed = !out || append(out, f->name, f->n * sizeof(int32_t)) ||
                 append(out, f->span, f->n * 2 * sizeof(int64_t)) || append(out, r->span, r->n * 2 * sizeof(int64_t));
    if (failed) Py_CLEAR(out);
    return out;
}

static int is_busy(const Scanner *own) {
    if (own->busy) PyErr_SetString(PyExc_RuntimeError, "this scanner is in use by another thread");
    return own->busy;
}

static PyObject *scan(PyObject *self, PyObject *args) {
    Scanner *own = (Scanner *)self;
    PyObject *data;
    int text_times, done;
    if (!PyArg_ParseTuple(args, "Sp:scan", &data, &text_times)) return NULL;
    if (is_busy(own)) return NULL;
    text bytes = (text)PyBytes_AsString(data);
    size_t size = (size_t)PyBytes_Size(data);
    own->busy = 1;
    Py_BEGIN_ALLOW_THREADS
    done = scan_all(&own->scan, bytes, size, text_times);
    Py_END_ALLOW_THREADS
    own->busy = 0;
    if (done < 0) return PyErr_NoMemory();
    if (!done) Py_RETURN_NONE;
    return left_over(&own->scan);
}

static PyObject *take_chunk(PyObject *self, PyObject *Py_UNUSED(none)) {
    Scanner *own = (Scanner *)self;
    return is_busy(own) ? NULL : PyLong_FromSize_t(keep(&own->scan));
}

static PyObject *columns(PyObject *self, PyObject *Py_UNUSED(none)) {
    Scanner *own = (Scanner *)self;
    return is_busy(own) ? NULL : columns_of(&own->scan);
}

static PyObject *set_mark(PyObject *self, PyObject *args) {
    Scanner *own = (Scanner *)self;
    unsigned which, number, value;
    if (!PyArg_ParseTuple(args, "III:mark", &which, &number, &value) || is_busy(own)) return NULL;
    if (which >= PUBLIC || number >= own->scan.texts[which].n) {
        PyErr_SetString(PyExc_ValueError, "no such text");
        return NULL;
    }
    own->scan.texts[which].entries[number].mark = value;
    Py_RETURN_NONE;
}

static PyObject *texts(PyObject *self, PyObject *args) {
    Scanner *own = (Scanner *)self;
    unsigned which, first;
    if (!PyArg_ParseTuple(args, "II:texts", &which, &first)) return NULL;
    if (is_busy(own)) return NULL;
    if (which >= PUBLIC) {
        PyErr_SetString(PyExc_ValueError, "no such texts");
        return NULL;
    }
    interner *t = &own->scan.texts[which];
    PyObject *out = PyList_New(0);
    for (size_t i = first; out && i < t->n; i++)
        if (append(out, t->bytes + t->entries[i].at, t->entries[i].size)) Py_CLEAR(out);
    return out;
}

static int setup(scanner *s, PyObject *classes, PyObject *prefixes, PyObject *keys) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(classes); i++) {
        const char *spelled;
        Py_ssize_t size;
        int kind, value;
        PyObject *item = PyTuple_GetItem(classes, i);
        if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "y#ii", &spelled, &size, &kind, &value)) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "expected (b'X:category', kind, value)");
            return -1;
        }
        event e = {.ph = {(text)spelled, 1}, .cat = {(text)spelled + 2, (size_t)(size - 2)}, .seen = PH | CAT};
        int known = size > 2 && size <= MAX_TOKEN && kind >= COUNT && kind <= NOTE;
        if (!known || set_class(s, &e, kind, value))
            return PyErr_SetString(PyExc_ValueError, "no class: expected b'X:category' and a kind"), -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(prefixes); i++) {
        PyObject *item = PyTuple_GetItem(prefixes, i);
        if (!PyBytes_Check(item) || PyBytes_Size(item) != 4 || i >= 16)
            return PyErr_SetString(PyExc_ValueError, "expected at most 16 prefixes of four bytes"), -1;
        memcpy(s->prefixes[s->n_prefixes++], PyBytes_AsString(item), 4);
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(keys); i++) {
        PyObject *item = PyTuple_GetItem(keys, i);
        if (!PyBytes_Check(item) || set_key(s, (int)i, PyBytes_AsString(item), (size_t)PyBytes_Size(item)))
            return PyErr_SetString(PyExc_ValueError, "expected keys of at most 32 bytes, by size"), -1;
    }
    return 0;
}

static PyObject *new_scanner(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named)) {
    PyObject *classes, *prefixes, *keys;
    long long longest;
    if (!PyArg_ParseTuple(args, "O!O!O!L:Scanner", &PyTuple_Type, &classes, &PyTuple_Type, &prefixes, &PyTuple_Type, &keys,
                          &longest))
        return NULL;
    Scanner *own = (Scanner *)type->tp_alloc(type, 0); /* zeroed */
    if (!own) return NULL;
    own->scan.longest = longest;
    if (setup(&own->scan, classes, prefixes, keys)) Py_CLEAR(own);
    return (PyObject *)own;
}

static PyMethodDef METHODS[] = {
    {"scan", scan, METH_VARARGS, "scan(data, text_times) -> frames without a mark, their places, places of the rest; or None"},
    {"keep", take_chunk, METH_NOARGS, "keep() -> rows kept by now: those of the chunk that was scanned last are taken"},
    {"columns", columns, METH_NOARGS, "columns() -> list of column bytes of the rows that were kept; they are let go"},
    {"mark", set_mark, METH_VARARGS, "mark(which, number, value): what a text is"},
    {"texts", texts, METH_VARARGS, "texts(which, first) -> numbered texts from a number on"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot SLOTS[] = {
    {Py_tp_new, (void *)new_scanner}, {Py_tp_dealloc, (void *)free_scanner}, {Py_tp_methods, METHODS}, {0, NULL},
};

static PyType_Spec SPEC = {"tracekit.parsers._core.Scanner", sizeof(Scanner), 0, Py_TPFLAGS_DEFAULT, SLOTS};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_core", "Bytes of whole events to columns.", -1};

PyMODINIT_FUNC PyInit__core(void) { return module_of(&MODULE, &SPEC, REVISION); }
