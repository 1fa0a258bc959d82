/* aioloader._native: the module, made of the tables of the other files. */
#include "native.h"

static PyMethodDef *const tables[] = {
    draws_methods,
    records_methods,
    resize_methods,
    scan_methods,
    splice_methods,
};

static int fill(PyObject *module)
{
    for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
        if (PyModule_AddFunctions(module, tables[i]) < 0)
            return -1;
    return PyModule_AddIntConstant(module, "INTERFACE", AIOLOADER_INTERFACE);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)fill},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "aioloader._native",
    .m_doc = "Loops over bytes in C. Optional: whatever they do, Python does without them, with the same bytes.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
