/* Payloads of many RecordIO records, copied one by one: recordio/_framing.py explains which, and finds the same ones.

Nothing is read outside of the memory: the place and length of each record, and the size in its head, are compared with it
first. A head is read once, so that a change by another process cannot alter its size between check and copy. */

#include "native.h"

#include <stdint.h>
#include <string.h>

#define MAGIC 0xced7230a
enum { HEAD = 8, MOST = (1 << 29) - 1 };
/* A quarter of the time is saved by fetching the first bytes of a later record into the processor's cache. */
enum { AHEAD = 3, FETCHED = 1024, LINE = 64 };

static uint32_t load(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Return the bytes of a record's payload; 0 if it is empty, in several parts or damaged, or does not end as it should. */
static Py_ssize_t payload_nbytes(const Py_buffer *memory, int64_t start, int64_t length)
{
    if (start < 0 || start & 3 || length < HEAD || length > memory->len || start > memory->len - length)
        return 0;
    const uint8_t *record = (const uint8_t *)memory->buf + start;
    int64_t size = load(record + 4), framed = (size + HEAD + 3) & ~(int64_t)3;
    if (load(record) != MAGIC || size > MOST || framed > length)
        return 0;
    /* A length that damage made smaller is followed by bytes that are not a head. */
    if (framed != length && (framed + HEAD > length || load(record + framed) != MAGIC))
        return 0;
    return (Py_ssize_t)size;
}

/* copy_payloads(memory, starts, lengths) */
static PyObject *copy_payloads(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer memory, starts, lengths;
    if (!PyArg_ParseTuple(args, "y*y*y*:copy_payloads", &memory, &starts, &lengths))
        return NULL;
    const int64_t *start = starts.buf, *length = lengths.buf;
    Py_ssize_t count = starts.len / (Py_ssize_t)sizeof *start;
    PyObject *payloads = NULL;
    if (starts.len != lengths.len || starts.len % (Py_ssize_t)sizeof *start)
        PyErr_SetString(PyExc_ValueError, "sizes do not fit each other");
    else
        payloads = PyList_New(count);
    for (Py_ssize_t place = 0; payloads != NULL && place < count; place++) {
        int64_t soon = place + AHEAD < count ? start[place + AHEAD] : 0;
        for (int64_t at = 0; at < FETCHED && soon >= 0 && soon < memory.len - at; at += LINE)
            __builtin_prefetch((const char *)memory.buf + soon + at);
        Py_ssize_t nbytes = payload_nbytes(&memory, start[place], length[place]);
        const char *payload = nbytes ? (const char *)memory.buf + start[place] + HEAD : NULL;
        PyObject *made = nbytes ? PyBytes_FromStringAndSize(payload, nbytes) : Py_NewRef(Py_None);
        if (made == NULL || PyList_SetItem(payloads, place, made) < 0)
            Py_CLEAR(payloads);
    }
    PyBuffer_Release(&memory);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&lengths);
    return payloads;
}

PyMethodDef records_methods[] = {
    {"copy_payloads", copy_payloads, METH_VARARGS, "Return the payloads of records; None for each that needs care."},
    {NULL, NULL, 0, NULL},
};
