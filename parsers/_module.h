/* What both Python modules of scanners need. Included after the header that defines `scanner` and `release`. */
#ifndef TRACEKIT_MODULE_H
#define TRACEKIT_MODULE_H

typedef struct {
    PyObject_HEAD
    scanner scan;
    int busy; /* in `scan`, which gives up the GIL */
} Scanner;

static PyObject *bytes_of(const void *p, size_t n) { return PyBytes_FromStringAndSize(n ? p : "", (Py_ssize_t)n); }

static int append(PyObject *list, const void *p, size_t n) {
    PyObject *item = bytes_of(p, n);
    int failed = !item || PyList_Append(list, item);
    Py_XDECREF(item);
    return failed ? -1 : 0;
}

static void free_scanner(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    release(&((Scanner *)self)->scan);
    type->tp_free(self);
    Py_DECREF(type);
}

/* A module with its type `Scanner` and the revision of what Python sees of it. */
static PyObject *module_of(struct PyModuleDef *definition, PyType_Spec *spec, int revision) {
    PyObject *module = PyModule_Create(definition);
    PyObject *type = module ? PyType_FromSpec(spec) : NULL;
    if (!type || PyModule_AddIntConstant(module, "REVISION", revision) || PyModule_AddObject(module, "Scanner", type)) {
        Py_XDECREF(type);
        Py_CLEAR(module);
    }
    return module;
}

#endif
