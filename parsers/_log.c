/* The scanner of NCCL logs as a Python module: `Scanner.scan(b"whole lines")`, without the GIL. See `_log.h`.
 *
 * `parsers/nccl_log_core.py` is the other half: texts are numbered here and understood there.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_log.h"

#include "_module.h"

#define REVISION 1 /* of what Python sees of it; parsers/nccl_log_core.py asks for the same */

/* One list of bytes: the columns of the calls, where the times are, the other lines and what they are. */
static PyObject *results(scanner *s) {
    PyObject *out = PyList_New(0);
    int failed = !out;
    for (int i = 0; i < WIDES && !failed; i++) failed = append(out, s->calls.wide[i], s->calls.n * sizeof(int64_t));
    for (int i = 0; i < NARROWS && !failed; i++) failed = append(out, s->calls.narrow[i], s->calls.n * sizeof(int32_t));
    failed = failed || append(out, s->stamps.at, s->stamps.n * sizeof(int64_t)) ||
             append(out, s->others.where, s->others.n * 3 * sizeof(int64_t)) ||
             append(out, s->others.kind, s->others.n * sizeof(int32_t));
    if (failed) Py_CLEAR(out);
    return out;
}

static PyObject *scan(PyObject *self, PyObject *data) {
    Scanner *own = (Scanner *)self;
    int failed;
    if (!PyBytes_Check(data)) {
        PyErr_SetString(PyExc_TypeError, "expected bytes");
        return NULL;
    }
    if (own->busy) {
        PyErr_SetString(PyExc_RuntimeError, "this scanner is in use by another thread");
        return NULL;
    }
    text lines = (text)PyBytes_AsString(data);
    size_t size = (size_t)PyBytes_Size(data);
    own->busy = 1;
    Py_BEGIN_ALLOW_THREADS
    failed = scan_lines(&own->scan, lines, size);
    Py_END_ALLOW_THREADS
    own->busy = 0;
    return failed ? PyErr_NoMemory() : results(&own->scan);
}

static PyObject *text_of(PyObject *self, PyObject *args) {
    Scanner *own = (Scanner *)self;
    unsigned which, number;
    if (!PyArg_ParseTuple(args, "II:text", &which, &number)) return NULL;
    if (own->busy || which >= KINDS || number >= own->scan.texts[which].n) {
        PyErr_SetString(PyExc_ValueError, "no such text, or in use by another thread");
        return NULL;
    }
    const interner *t = &own->scan.texts[which];
    return bytes_of(t->bytes + t->entries[number].at, t->entries[number].size);
}

static PyObject *full(PyObject *self, PyObject *Py_UNUSED(none)) { return PyBool_FromLong(is_full(&((Scanner *)self)->scan)); }

static PyObject *new_scanner(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named)) {
    return PyArg_ParseTuple(args, ":Scanner") ? type->tp_alloc(type, 0) : NULL; /* zeroed */
}

static PyMethodDef METHODS[] = {
    {"scan", scan, METH_O, "scan(lines) -> list of column bytes"},
    {"text", text_of, METH_VARARGS, "text(which, number) -> a numbered text"},
    {"full", full, METH_NOARGS, "full() -> whether it remembers so much that another has to take its place"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot SLOTS[] = {
    {Py_tp_new, (void *)new_scanner}, {Py_tp_dealloc, (void *)free_scanner}, {Py_tp_methods, METHODS}, {0, NULL},
};

static PyType_Spec SPEC = {"tracekit.parsers._log.Scanner", sizeof(Scanner), 0, Py_TPFLAGS_DEFAULT, SLOTS};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_log", "Lines of an NCCL log to columns.", -1};

PyMODINIT_FUNC PyInit__log(void) { return module_of(&MODULE, &SPEC, REVISION); }
