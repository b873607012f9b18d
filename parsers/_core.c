/* The compiled decode core as a Python module: `Scanner.scan(b"event, event, ...")`, without the GIL. See `_scan.h`.
 *
 * `parsers/core.py` is the other half: names, threads and categories are numbered here and understood there.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_scan.h"

#define REVISION 3 /* of what Python sees of it; parsers/core.py asks for the same */

typedef struct {
    PyObject_HEAD
    scanner scan;
    int busy; /* in `scan`, which gives up the GIL */
} Scanner;

static const unsigned COLUMNS[TABLES] = {
    1u << TS | 1u << DUR | 1u << EXT | 1u << CORR | 1u << SEQ | 1u << COMMS,
    1u << TS | 1u << DUR | 1u << EXT | 1u << CORR | 1u << STREAM | 1u << NBYTES | 1u << SEQ | 1u << COMMS,
    1u << TS | 1u << DUR | 1u << EXT | 1u << STREAM,
};

static PyObject *bytes_of(const void *p, size_t n) { return PyBytes_FromStringAndSize(n ? p : "", (Py_ssize_t)n); }

static int append(PyObject *list, const void *p, size_t n) {
    PyObject *item = bytes_of(p, n);
    int failed = !item || PyList_Append(list, item);
    Py_XDECREF(item);
    return failed ? -1 : 0;
}

/* One list of bytes: the columns of the three tables, then frames, rest and counts. */
static PyObject *results(scanner *s) {
    PyObject *out = PyList_New(0);
    int failed = !out;
    for (int i = 0; i < TABLES && !failed; i++) {
        table *t = &s->tables[i];
        for (int j = 0; j < WIDE && !failed; j++)
            if (COLUMNS[i] & 1u << j) failed = append(out, t->wide[j], t->n * sizeof(int64_t));
        failed = failed || append(out, t->name, t->n * sizeof(int32_t)) ||
                 append(out, t->where, t->n * sizeof(int32_t)) || append(out, t->record, t->n * sizeof(int32_t)) ||
                 append(out, t->code, t->n);
    }
    failed = failed || append(out, s->frames.name, s->frames.n * sizeof(int32_t)) ||
             append(out, s->frames.span, s->frames.n * 2 * sizeof(int64_t)) ||
             append(out, s->rest.span, s->rest.n * 2 * sizeof(int64_t)) ||
             append(out, s->counts, s->n_classes * sizeof(int64_t));
    if (failed) Py_CLEAR(out);
    return out;
}

static PyObject *scan(PyObject *self, PyObject *args) {
    Scanner *own = (Scanner *)self;
    PyObject *data;
    int text_times, done;
    if (!PyArg_ParseTuple(args, "Sp:scan", &data, &text_times)) return NULL;
    if (own->busy) {
        PyErr_SetString(PyExc_RuntimeError, "this scanner is in use by another thread");
        return NULL;
    }
    text bytes = (text)PyBytes_AsString(data);
    size_t size = (size_t)PyBytes_Size(data);
    own->busy = 1;
    Py_BEGIN_ALLOW_THREADS
    done = scan_all(&own->scan, bytes, size, text_times);
    Py_END_ALLOW_THREADS
    own->busy = 0;
    if (done < 0) return PyErr_NoMemory();
    if (!done) Py_RETURN_NONE;
    return results(&own->scan);
}

static PyObject *texts(PyObject *self, PyObject *args) {
    Scanner *own = (Scanner *)self;
    unsigned which, first;
    if (!PyArg_ParseTuple(args, "II:texts", &which, &first)) return NULL;
    if (which >= PUBLIC || own->busy) {
        PyErr_SetString(PyExc_ValueError, "no such texts, or in use by another thread");
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

static void free_scanner(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    release(&((Scanner *)self)->scan);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef METHODS[] = {
    {"scan", scan, METH_VARARGS, "scan(data, text_times) -> list of column bytes, or None if the chunk is not sound"},
    {"texts", texts, METH_VARARGS, "texts(which, first) -> numbered texts from a number on"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot SLOTS[] = {
    {Py_tp_new, (void *)new_scanner}, {Py_tp_dealloc, (void *)free_scanner}, {Py_tp_methods, METHODS}, {0, NULL},
};

static PyType_Spec SPEC = {"tracekit.parsers._core.Scanner", sizeof(Scanner), 0, Py_TPFLAGS_DEFAULT, SLOTS};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_core", "Bytes of whole events to columns.", -1};

PyMODINIT_FUNC PyInit__core(void) {
    PyObject *module = PyModule_Create(&MODULE);
    PyObject *type = module ? PyType_FromSpec(&SPEC) : NULL;
    if (!type || PyModule_AddIntConstant(module, "REVISION", REVISION) || PyModule_AddObject(module, "Scanner", type)) {
        Py_XDECREF(type);
        Py_CLEAR(module);
    }
    return module;
}
