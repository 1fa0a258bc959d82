/* Antialiased resize of bytes, with the weights and the rounding of aioloader/transforms/antialias.py: columns before rows.

   A row of the source is filtered when the first row of the result needs it, and kept until the last one has had it; so
   what lies between the two passes stays in the first caches. */
#include "native.h"

#include <string.h>

#include "resize.h"

static inline uint8_t rounded(int32_t sum)
{
    sum >>= RESIZE_BITS;
    return sum < 0 ? 0 : sum > 255 ? 255 : (uint8_t)sum;
}

/* -- kernels without vector instructions ----------------------------------------------------------------------------- */

static inline void columns_of(const uint8_t *source, const struct resize_axis *axis, int channels, uint8_t *out)
{
    const ptrdiff_t taps = axis->taps;
    for (ptrdiff_t x = 0; x < axis->count; x++) {
        const uint8_t *from = source + axis->starts[x] * (ptrdiff_t)channels;
        const int16_t *weights = axis->weights + x * axis->padded;
        int32_t sums[4] = {RESIZE_HALF, RESIZE_HALF, RESIZE_HALF, RESIZE_HALF};
        for (ptrdiff_t k = 0; k < taps; k++)
            for (int c = 0; c < channels; c++)
                sums[c] += weights[k] * from[k * channels + c];
        for (int c = 0; c < channels; c++)
            out[x * channels + c] = rounded(sums[c]);
    }
}

static void columns_plain(const uint8_t *const *source, const struct resize_axis *axis, int channels, uint8_t *const *out)
{
    for (int row = 0; row < RESIZE_ROWS; row++)
        if (channels == 3)
            columns_of(source[row], axis, 3, out[row]);
        else if (channels == 4)
            columns_of(source[row], axis, 4, out[row]);
        else
            columns_of(source[row], axis, 1, out[row]);
}

static void rows_plain(const uint8_t *const *source, const int16_t *weights, ptrdiff_t padded, uint8_t *out, ptrdiff_t n)
{
    enum { BLOCK = 512 };
    int32_t sums[BLOCK];
    for (ptrdiff_t at = 0; at < n; at += BLOCK) {
        ptrdiff_t size = n - at < BLOCK ? n - at : BLOCK;
        for (ptrdiff_t i = 0; i < size; i++)
            sums[i] = RESIZE_HALF;
        for (ptrdiff_t k = 0; k < padded; k += 2) {
            const uint8_t *first = source[k] + at, *second = source[k + 1] + at;
            for (ptrdiff_t i = 0; i < size; i++)
                sums[i] += weights[k] * first[i] + weights[k + 1] * second[i];
        }
        for (ptrdiff_t i = 0; i < size; i++)
            out[at + i] = rounded(sums[i]);
    }
}

const struct resize_kernels resize_plain = {"plain", columns_plain, rows_plain, 0};

/* The kernels that this processor has, best first. */
static const struct resize_kernels *levels[4];
static Py_ssize_t level_count;

static Py_ssize_t find_levels(void)
{
    if (level_count)
        return level_count;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        levels[level_count++] = &resize_avx2;
    if (__builtin_cpu_supports("sse4.1"))
        levels[level_count++] = &resize_sse41;
#elif defined(__aarch64__)
    levels[level_count++] = &resize_neon;
#endif
    levels[level_count++] = &resize_plain;
    return level_count;
}

/* -- weights that int16 cannot hold: bicubic ones at the borders of an image that grows ------------------------------ */

static void columns_wide(const uint8_t *source, const struct resize_axis *axis, int channels, uint8_t *out)
{
    for (ptrdiff_t i = 0; i < axis->wide_count; i++) {
        ptrdiff_t x = axis->wide[i];
        const int32_t *entry = axis->table + x * (1 + axis->taps);
        for (int c = 0; c < channels; c++) {
            int32_t sum = RESIZE_HALF;
            for (ptrdiff_t k = 0; k < axis->taps; k++)
                sum += entry[1 + k] * source[(entry[0] + k) * channels + c];
            out[x * channels + c] = rounded(sum);
        }
    }
}

static void row_wide(const uint8_t *const *source, const struct resize_axis *axis, ptrdiff_t y, uint8_t *out, ptrdiff_t n)
{
    const int32_t *weights = axis->table + y * (1 + axis->taps) + 1;
    for (ptrdiff_t i = 0; i < n; i++) {
        int32_t sum = RESIZE_HALF;
        for (ptrdiff_t k = 0; k < axis->taps; k++)
            sum += weights[k] * source[k][i];
        out[i] = rounded(sum);
    }
}

/* -- the two passes -------------------------------------------------------------------------------------------------- */

struct job {
    const struct resize_kernels *for_columns, *for_rows;
    const uint8_t *source;
    uint8_t *out;
    ptrdiff_t height, stride, row_bytes, out_bytes; /* of the source: rows, bytes between and in them; of a row of out */
    int channels;
    const struct resize_axis *columns, *rows;       /* NULL: the axis keeps its extent */
    uint8_t *last;                                  /* memory for the last row of the source and a margin */
    uint8_t *ring;                                  /* memory for `slots` rows between the passes */
    ptrdiff_t slots;
    const uint8_t **taps;                           /* memory for rows->padded rows */
};

/* Filter the rows [first, first + RESIZE_ROWS) below stop along their pixels. */
static void filter_columns(const struct job *job, ptrdiff_t first, ptrdiff_t stop, uint8_t *const *out)
{
    const uint8_t *source[RESIZE_ROWS];
    for (ptrdiff_t i = 0; i < RESIZE_ROWS; i++) {
        ptrdiff_t row = first + i < stop ? first + i : stop - 1;
        source[i] = row == job->height - 1 ? job->last : job->source + row * job->stride;
    }
    job->for_columns->columns(source, job->columns, job->channels, out);
    if (job->columns->wide_count)
        for (ptrdiff_t i = 0; i < RESIZE_ROWS; i++)
            columns_wide(source[i], job->columns, job->channels, out[i]);
}

static void run_columns(const struct job *job)
{
    for (ptrdiff_t y = 0; y < job->height; y += RESIZE_ROWS) {
        uint8_t *out[RESIZE_ROWS];
        for (ptrdiff_t i = 0; i < RESIZE_ROWS; i++)
            out[i] = job->out + (y + i < job->height ? y + i : job->height - 1) * job->out_bytes;
        filter_columns(job, y, job->height, out);
    }
}

static void run(const struct job *job)
{
    const struct resize_axis *rows = job->rows;
    if (job->columns)
        memcpy(job->last, job->source + (job->height - 1) * job->stride, (size_t)job->row_bytes);
    if (!rows) {
        run_columns(job);
        return;
    }
    ptrdiff_t stop = rows->starts[rows->count - 1] + rows->taps, ready = 0, wide = 0;
    for (ptrdiff_t y = 0; y < rows->count; y++) {
        ptrdiff_t start = rows->starts[y], end = start + rows->taps;
        if (job->columns) {
            if (ready < start)
                ready = start;
            while (ready < end) {
                uint8_t *out[RESIZE_ROWS];
                for (ptrdiff_t i = 0; i < RESIZE_ROWS; i++)
                    out[i] = job->ring + (ready + i < stop ? ready + i : stop - 1) % job->slots * job->out_bytes;
                filter_columns(job, ready, stop, out);
                ready += RESIZE_ROWS;
            }
        }
        for (ptrdiff_t k = 0; k < rows->padded; k++) {
            ptrdiff_t row = k < rows->taps ? start + k : start;
            job->taps[k] = job->columns ? job->ring + row % job->slots * job->out_bytes : job->source + row * job->stride;
        }
        uint8_t *out = job->out + y * job->out_bytes;
        if (wide < rows->wide_count && rows->wide[wide] == y) {
            row_wide(job->taps, rows, y, out, job->out_bytes);
            wide++;
        } else
            job->for_rows->rows(job->taps, rows->weights + y * rows->padded, rows->padded, out, job->out_bytes);
    }
}

/* -- arguments ------------------------------------------------------------------------------------------------------- */

/* Check a table, and make of it what the kernels take; -1 with an exception set otherwise. */
static int prepare(struct resize_axis *axis, const Py_buffer *view, const char *name, Py_ssize_t before, Py_ssize_t after, int step)
{
    if (view->ndim != 2 || view->itemsize != 4 || strcmp(view->format, "i") != 0 || view->shape[1] < 2 ||
        view->shape[0] != after || view->shape[1] - 1 > before) {
        PyErr_Format(PyExc_ValueError, "the table of %s must be int32 (%zd, 1 + weights), with at most %zd weights", name, after, before);
        return -1;
    }
    ptrdiff_t taps = view->shape[1] - 1;
    axis->count = after;
    axis->taps = taps;
    axis->padded = (taps + step - 1) / step * step;
    axis->table = view->buf;
    /* No product overflows: the table with its 4 * after * (1 + taps) bytes is in memory, and padded is below taps + 8. */
    axis->starts = PyMem_Malloc((size_t)after * 2 * sizeof(int32_t));
    axis->weights = PyMem_Calloc((size_t)after * (size_t)axis->padded, sizeof(int16_t));
    if (!axis->starts || !axis->weights) {
        PyErr_NoMemory();
        return -1;
    }
    axis->wide = axis->starts + after;
    ptrdiff_t previous = 0;
    for (ptrdiff_t i = 0; i < after; i++) {
        const int32_t *entry = axis->table + i * (1 + taps);
        if (entry[0] < previous || entry[0] > before - taps) {
            PyErr_Format(PyExc_ValueError, "the table of %s names source pixels that go back, or are outside of %zd", name, before);
            return -1;
        }
        previous = axis->starts[i] = entry[0];
        int64_t sum = 0;
        int32_t least = 0, most = 0;
        int16_t *weights = axis->weights + i * axis->padded;
        for (ptrdiff_t k = 0; k < taps; k++) {
            int32_t weight = entry[1 + k];
            sum += weight < 0 ? -(int64_t)weight : weight;
            least = weight < least ? weight : least;
            most = weight > most ? weight : most;
            weights[k] = weight > INT16_MAX ? INT16_MAX : weight < INT16_MIN ? INT16_MIN : (int16_t)weight;
        }
        if (sum > 1 << 22) { /* times 255 it fits into int32 */
            PyErr_Format(PyExc_ValueError, "the table of %s has weights with a sum beyond 128 times that of a whole", name);
            return -1;
        }
        /* A single weight of 1 may be 1 - 2**-15: that takes less than half a unit from any byte. */
        if (least < INT16_MIN || most > INT16_MAX + 1 || (most > INT16_MAX && sum > most))
            axis->wide[axis->wide_count++] = (int32_t)i;
    }
    return 0;
}

static void discard(struct resize_axis *axis)
{
    PyMem_Free(axis->starts);
    PyMem_Free(axis->weights);
}

static int check_images(const Py_buffer *source, const Py_buffer *out)
{
    Py_ssize_t channels = source->ndim == 3 ? source->shape[2] : 0;
    if (out->ndim != 3 || source->itemsize != 1 || out->itemsize != 1 || strcmp(source->format, "B") != 0 ||
        strcmp(out->format, "B") != 0 || out->shape[2] != channels || (channels != 1 && channels != 3 && channels != 4)) {
        PyErr_SetString(PyExc_ValueError, "source and out must be uint8 (height, width, channels) of 1, 3 or 4 channels");
        return -1;
    }
    for (int axis = 0; axis < 2; axis++)
        if (source->shape[axis] < 1 || out->shape[axis] < 1 || source->shape[axis] > INT32_MAX || out->shape[axis] > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "source and out must have from 1 to 2147483647 rows and columns");
            return -1;
        }
    if ((channels > 1 && source->strides[2] != 1) || (source->shape[1] > 1 && source->strides[1] != channels) ||
        (source->shape[0] > 1 && source->strides[0] < source->shape[1] * channels)) {
        PyErr_SetString(PyExc_ValueError, "the pixels of a row of source must lie side by side, and its rows one behind the other");
        return -1;
    }
    return 0;
}

static int resize_views(const Py_buffer *source, const Py_buffer *out, const Py_buffer *column_table, const Py_buffer *row_table,
                        Py_ssize_t level)
{
    if (check_images(source, out) < 0)
        return -1;
    int failed = -1, channels = (int)source->shape[2];
    struct resize_axis columns = {0}, rows = {0};
    struct job job = {
        .source = source->buf, .out = out->buf, .height = source->shape[0], .stride = source->strides[0],
        .row_bytes = source->shape[1] * channels, .out_bytes = out->shape[1] * channels,
        .channels = channels, .columns = column_table->obj ? &columns : NULL, .rows = row_table->obj ? &rows : NULL,
    };
    if ((!job.columns && source->shape[1] != out->shape[1]) || (!job.rows && source->shape[0] != out->shape[0]) ||
        (!job.columns && !job.rows)) {
        PyErr_SetString(PyExc_ValueError, "an axis without a table must keep its extent, and one of them needs a table");
        return -1;
    }
    if (job.columns && prepare(&columns, column_table, "columns", source->shape[1], out->shape[1], channels == 1 ? 8 : 4) < 0)
        goto done;
    if (job.rows && prepare(&rows, row_table, "rows", source->shape[0], out->shape[0], 2) < 0)
        goto done;
    job.for_columns = job.row_bytes < levels[level]->least || out->shape[1] < 4 ? &resize_plain : levels[level];
    job.for_rows = job.out_bytes < levels[level]->least ? &resize_plain : levels[level];
    if (job.columns) {
        job.slots = job.rows ? rows.taps + RESIZE_ROWS : 0;
        if (job.slots > (PY_SSIZE_T_MAX - job.row_bytes - RESIZE_MARGIN) / job.out_bytes) {
            PyErr_NoMemory();
            goto done;
        }
        job.last = PyMem_Calloc((size_t)(job.row_bytes + RESIZE_MARGIN + job.slots * job.out_bytes), 1);
        job.ring = job.last + job.row_bytes + RESIZE_MARGIN;
    }
    if (job.rows)
        job.taps = PyMem_Calloc((size_t)rows.padded, sizeof(*job.taps));
    if ((job.columns && !job.last) || (job.rows && !job.taps)) {
        PyErr_NoMemory();
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    run(&job);
    Py_END_ALLOW_THREADS
    failed = 0;
done:
    PyMem_Free(job.taps);
    PyMem_Free(job.last);
    discard(&columns);
    discard(&rows);
    return failed;
}

static PyObject *resize(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *objects[4];
    Py_ssize_t level = 0;
    if (!PyArg_ParseTuple(arguments, "OOOO|n:resize", &objects[0], &objects[1], &objects[2], &objects[3], &level))
        return NULL;
    if (level < 0 || level >= find_levels())
        return PyErr_Format(PyExc_ValueError, "level must be from 0 to %zd", level_count - 1);
    static const int flags[4] = {
        PyBUF_STRIDES | PyBUF_FORMAT, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE | PyBUF_FORMAT,
        PyBUF_C_CONTIGUOUS | PyBUF_FORMAT, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT,
    };
    Py_buffer views[4] = {{0}};
    int failed = 0;
    for (int i = 0; i < 4 && !failed; i++)
        if (i < 2 || objects[i] != Py_None)
            failed = PyObject_GetBuffer(objects[i], &views[i], flags[i]);
    if (!failed)
        failed = resize_views(&views[0], &views[1], &views[2], &views[3], level);
    for (int i = 0; i < 4; i++)
        if (views[i].obj)
            PyBuffer_Release(&views[i]);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *resize_levels(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    PyObject *names = PyTuple_New(find_levels());
    for (Py_ssize_t i = 0; names && i < level_count; i++) {
        PyObject *name = PyUnicode_FromString(levels[i]->name);
        if (!name || PyTuple_SetItem(names, i, name) < 0)
            Py_CLEAR(names);
    }
    return names;
}

PyMethodDef resize_methods[] = {
    {"resize", resize, METH_VARARGS, NULL},
    {"resize_levels", resize_levels, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
