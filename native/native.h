/* What the files of aioloader._native share. A file defines its functions and the table of those that Python calls, and
   module.c adds the table to the module. Pure C11 and Python's limited API: one build serves every CPython from 3.11 on. */
#ifndef AIOLOADER_NATIVE_H
#define AIOLOADER_NATIVE_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

/* Raised by one when a function is added, or takes or returns something else; aioloader/foundation/native.py has the same
   number, and leaves a build with another one alone. */
#define AIOLOADER_INTERFACE 6

extern PyMethodDef draws_methods[], records_methods[], resize_methods[], scan_methods[], splice_methods[];

#endif
