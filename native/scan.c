/* Pass over the Huffman symbols of the scan of a JPEG, for the entries of a crop index.

aioloader/jpeg/crop_scan.py explains it, and finds the same places without this file. No symbol becomes a coefficient:
the pass notes the bit at which each MCU begins and the DC values before it. It works on a copy of the data without
stuffing, because nobody can change that meanwhile. Every read is bounded: positions are compared with the end of the
data before each block, a block has at most 64 coefficients of at most 32 bits each, and more zeros than that follow. */

#include "native.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LOOKUP_BITS = 11, LOOKUP_SIZE = 1 << LOOKUP_BITS, PADDING = 64 * 32 / 8 + 16 };
enum { MOST_BLOCKS = 10, MOST_TABLES = 8, TABLE_NBYTES = 1 + 16 + 256, MOST_COMPONENTS = 4 };
enum { EOI = 0xd9, RST0 = 0xd0, RST7 = 0xd7 };

/* Keys of `REASONS` in aioloader/jpeg/crop_scan.py. */
enum {
    BAD_CODE = 1,
    BAD_RUN = 2,
    BAD_DC = 3,
    TOO_SHORT = 4,
    TOO_LONG = 5,
    BAD_RESTART = 6,
    FILL_BYTES = 7,
    NO_END = 8,
};

/* A Huffman table for look-up. In a symbol's entry the low 8 bits are its number of bits with those of its value, the
   next 8 that of its code alone, and the others the coefficients that it passes: END where it ends the block. */
enum { END = 128 };

typedef struct {
    /* By the next bits: one symbol, 0 where its code is longer; and for AC all symbols that fit, with the coefficients
       before the last of them in place of the code's bits. */
    uint32_t one[LOOKUP_SIZE], many[LOOKUP_SIZE];
    /* Codes of each length are below `limits`, as 16 bits; a symbol's place is its code and `offsets`. */
    int32_t limits[17], offsets[17];
    uint32_t entries[256];
} Table;

/* Places at which bytes were left out of the copy: stuffed zeros, or a restart marker with its number. */
typedef struct {
    Py_ssize_t place, missing;
    int restart;
} Gap;

typedef struct {
    const uint8_t *data;
    Py_ssize_t nbytes; /* of the data */
    uint8_t *copy;
    Py_ssize_t copied;
    Gap *gaps;
    Py_ssize_t count, room;
    Py_ssize_t stored; /* bytes of the scan */
} Scan;

typedef struct {
    int components, blocks, rows_of_interval;
    uint8_t block[MOST_BLOCKS][3]; /* component, and places of its DC and AC tables */
    int tables;
    Table *table;
    Py_ssize_t rows, columns;
    int64_t *positions;
    int16_t *predictors;
} Walk;

/* Return the entry of a symbol; 0 if it is none. */
static uint32_t entry_of(int symbol, int length, bool is_dc)
{
    int size = symbol & 15, run = symbol >> 4;
    if (is_dc)
        return symbol > 11 ? 0 : (uint32_t)(length + symbol) | (uint32_t)length << 8 | 1 << 16;
    if (!size && run && run != 15)
        return 0;
    uint32_t passed = size || run ? run + 1 : END;
    return (uint32_t)(length + size) | (uint32_t)length << 8 | passed << 16;
}

/* Fill a table from its stored form: whether it is for DC, numbers of codes, symbols. Return whether it is one. */
static bool fill_table(const uint8_t *stored, Table *table)
{
    bool is_dc = stored[0];
    const uint8_t *counts = stored + 1, *symbols = counts + 16;
    int code = 0, place = 0;
    memset(table, 0, sizeof *table);
    for (int length = 1; length <= 16; length++) {
        int count = counts[length - 1];
        if (place + count > 256 || code + count > 1 << length)
            return false;
        table->offsets[length] = place - code;
        for (int number = 0; number < count; number++, code++, place++) {
            uint32_t entry = table->entries[place] = entry_of(symbols[place], length, is_dc);
            int rest = LOOKUP_BITS - length;
            for (int index = 0; rest >= 0 && index < 1 << rest; index++)
                table->one[(code << rest) + index] = entry;
        }
        table->limits[length] = code << (16 - length);
        code <<= 1;
    }
    for (int word = 0; !is_dc && word < LOOKUP_SIZE; word++) {
        uint32_t used = 0, before = 0, passed = 0;
        while (used < LOOKUP_BITS && passed < 64) {
            uint32_t entry = table->one[word << used & (LOOKUP_SIZE - 1)], bits = entry & 255;
            if (!entry || used + (entry >> 8 & 255) > LOOKUP_BITS || used + bits > 32)
                break;
            before = passed;
            passed += entry >> 16;
            used += bits;
        }
        table->many[word] = used | before << 8 | passed << 16;
    }
    return true;
}

/* Return the entry of a code of any length in the first 16 of 64 bits; 0 if there is none. */
static uint32_t long_entry(const Table *table, uint64_t word)
{
    int32_t value = (int32_t)(word >> 48);
    for (int length = 1; length <= 16; length++)
        if (value < table->limits[length])
            return table->entries[(value >> (16 - length)) + table->offsets[length]];
    return 0;
}

static bool note_gap(Scan *scan, Py_ssize_t missing, int restart)
{
    if (scan->count == scan->room) {
        Py_ssize_t room = 2 * scan->room + 1024;
        Gap *gaps = realloc(scan->gaps, room * sizeof *gaps);
        if (gaps == NULL)
            return false;
        scan->gaps = gaps;
        scan->room = room;
    }
    missing += scan->count ? scan->gaps[scan->count - 1].missing : 0;
    scan->gaps[scan->count++] = (Gap){scan->copied, missing, restart};
    return true;
}

/* Copy the data from `at` on without stuffing and restart markers. Return 0, a reason, or -1 without memory. */
static int remove_stuffing(Scan *scan, Py_ssize_t at)
{
    const uint8_t *data = scan->data;
    Py_ssize_t start = at, nbytes = scan->nbytes;
    while (at < nbytes) {
        const uint8_t *found = memchr(data + at, 0xff, nbytes - at);
        if (found == NULL)
            break;
        Py_ssize_t length = found - (data + at), after = at + length + 1;
        memcpy(scan->copy + scan->copied, data + at, length);
        scan->copied += length;
        at += length;
        while (after < nbytes && data[after] == 0xff)
            after++;
        if (after >= nbytes)
            break;
        uint8_t kind = data[after];
        if (kind == 0) {
            if (after > at + 1)
                return FILL_BYTES;
            scan->copy[scan->copied++] = 0xff;
            if (!note_gap(scan, 1, -1))
                return -1;
        } else if (kind >= RST0 && kind <= RST7) {
            if (!note_gap(scan, after + 1 - at, kind - RST0))
                return -1;
        } else {
            scan->stored = at - start;
            memset(scan->copy + scan->copied, 0, PADDING);
            return kind == EOI ? 0 : NO_END;
        }
        at = after + 1;
    }
    return NO_END;
}

static uint64_t load(const uint8_t *at)
{
    uint64_t word = 0;
    for (int place = 0; place < 8; place++)
        word = word << 8 | at[place];
    return word;
}

/* Pass the symbols of a block, from the bit `at` on. Return the bit behind it, or the negative of a reason. */
static int64_t pass_block(const uint8_t *data, int64_t at, const Table *dc, const Table *ac, int *value)
{
    uint64_t word = load(data + (at >> 3)) << (at & 7);
    int valid = 64 - (int)(at & 7);
    uint32_t entry = dc->one[word >> (64 - LOOKUP_BITS)];
    if (!entry && !(entry = long_entry(dc, word)))
        return -BAD_CODE;
    int length = entry & 255, coded = entry >> 8 & 255, size = length - coded;
    if (size) {
        int bits = (int)(word << coded >> (64 - size));
        *value += bits >> (size - 1) ? bits : bits + 1 - (1 << size);
        if (*value < -2047 || *value > 2047)
            return -BAD_DC;
    }
    uint32_t passed = 1;
    for (;;) {
        word <<= length;
        valid -= length;
        at += length;
        if (passed >= 64)
            return passed > 64 && passed < END ? -BAD_RUN : at;
        if (valid < 32) {
            word = load(data + (at >> 3)) << (at & 7);
            valid = 64 - (int)(at & 7);
        }
        uint32_t index = (uint32_t)(word >> (64 - LOOKUP_BITS));
        entry = ac->many[index];
        /* Symbols behind the 64th coefficient belong to the next block. */
        if (!entry || passed + (entry >> 8 & 255) >= 64)
            entry = ac->one[index];
        if (!entry && !(entry = long_entry(ac, word)))
            return -BAD_CODE;
        length = entry & 255;
        passed += entry >> 16;
    }
}

/* Pass the symbols of a row of MCUs, and note where each begins. Return as `pass_block`. */
static int64_t pass_row(const Walk *walk, const uint8_t *data, Py_ssize_t row, int64_t at, int64_t limit, int *dc)
{
    Py_ssize_t width = walk->columns + 1;
    int64_t *positions = walk->positions + row * width;
    int16_t *predictors = walk->predictors + row * width;
    for (Py_ssize_t column = 0; column < width; column++) {
        positions[column] = at;
        for (int component = 0; component < walk->components; component++)
            predictors[component * walk->rows * width + column] = (int16_t)dc[component];
        for (int number = 0; column < walk->columns && number < walk->blocks; number++) {
            if (at > limit)
                return -TOO_SHORT;
            const uint8_t *block = walk->block[number];
            at = pass_block(data, at, &walk->table[block[1]], &walk->table[block[2]], &dc[block[0]]);
            if (at < 0)
                return at;
        }
    }
    return at > limit ? -TOO_SHORT : at;
}

/* Convert positions of a row in the copy to positions in the scan as stored; return the next gap. */
static Py_ssize_t to_stored(const Scan *scan, int64_t *positions, Py_ssize_t columns, Py_ssize_t gap)
{
    for (Py_ssize_t column = 0; column <= columns; column++) {
        Py_ssize_t byte = (Py_ssize_t)(positions[column] >> 3);
        /* The end of a row stays before a restart marker that follows. */
        while (gap < scan->count && scan->gaps[gap].place <= byte
               && !(column == columns && scan->gaps[gap].restart >= 0 && scan->gaps[gap].place == byte))
            gap++;
        if (gap)
            positions[column] += 8 * (int64_t)scan->gaps[gap - 1].missing;
    }
    return gap;
}

static Py_ssize_t next_restart(const Scan *scan, Py_ssize_t gap)
{
    while (gap < scan->count && scan->gaps[gap].restart < 0)
        gap++;
    return gap;
}

/* Go through all symbols of the copy, and note where MCUs begin. Return 0 or a reason. */
static int pass_scan(const Scan *scan, const Walk *walk)
{
    int64_t at = 0, bits = 8 * (int64_t)scan->copied;
    int dc[MOST_COMPONENTS] = {0}, restart = 0;
    Py_ssize_t mark = next_restart(scan, 0), gap = 0;
    if (mark < scan->count && !walk->rows_of_interval)
        return BAD_RESTART;
    int64_t limit = mark < scan->count ? 8 * (int64_t)scan->gaps[mark].place : bits;
    for (Py_ssize_t row = 0; row < walk->rows; row++) {
        if (walk->rows_of_interval && row && row % walk->rows_of_interval == 0) {
            if (mark >= scan->count || scan->gaps[mark].restart != restart || limit - at >= 8)
                return BAD_RESTART;
            at = limit;
            restart = (restart + 1) & 7;
            memset(dc, 0, sizeof dc);
            mark = next_restart(scan, mark + 1);
            limit = mark < scan->count ? 8 * (int64_t)scan->gaps[mark].place : bits;
        }
        at = pass_row(walk, scan->copy, row, at, limit, dc);
        if (at < 0)
            return (int)-at;
        gap = to_stored(scan, walk->positions + row * (walk->columns + 1), walk->columns, gap);
    }
    if (mark < scan->count)
        return BAD_RESTART;
    return bits - at >= 8 ? TOO_LONG : 0;
}

/* Find all places. Return the bytes of the scan, the negative of a reason, or PY_SSIZE_T_MIN without memory. */
static Py_ssize_t find_places(const Py_buffer *data, Py_ssize_t start, const uint8_t *tables, Walk *walk)
{
    Scan scan = {.data = data->buf, .nbytes = data->len};
    walk->table = malloc(walk->tables * sizeof(Table));
    scan.copy = malloc(data->len - start + PADDING);
    int problem = walk->table == NULL || scan.copy == NULL ? -1 : 0;
    for (int number = 0; !problem && number < walk->tables; number++)
        if (!fill_table(tables + number * TABLE_NBYTES, &walk->table[number]))
            problem = BAD_CODE;
    if (!problem)
        problem = remove_stuffing(&scan, start);
    if (!problem)
        problem = pass_scan(&scan, walk);
    free(walk->table);
    free(scan.copy);
    free(scan.gaps);
    return problem < 0 ? PY_SSIZE_T_MIN : problem ? -problem : scan.stored;
}

static bool read_walk(const Py_buffer *blocks, const Py_buffer *tables, const Py_buffer *positions,
                      const Py_buffer *predictors, Walk *walk)
{
    walk->blocks = (int)(blocks->len / 3);
    walk->tables = (int)(tables->len / TABLE_NBYTES);
    if (blocks->len < 3 || blocks->len > 3 * MOST_BLOCKS || blocks->len % 3 || tables->len % TABLE_NBYTES
        || tables->len > MOST_TABLES * TABLE_NBYTES)
        return false;
    memcpy(walk->block, blocks->buf, blocks->len);
    for (int number = 0; number < walk->blocks; number++) {
        const uint8_t *block = walk->block[number];
        if (block[0] >= walk->components || block[1] >= walk->tables || block[2] >= walk->tables)
            return false;
        /* A DC table has no codes for coefficients. */
        const uint8_t *stored = tables->buf;
        if (!stored[block[1] * TABLE_NBYTES] || stored[block[2] * TABLE_NBYTES])
            return false;
    }
    Py_ssize_t most = PY_SSIZE_T_MAX / 8 / (MOST_COMPONENTS + 1);
    if (walk->rows < 1 || walk->columns < 1 || walk->rows > most / (walk->columns + 1))
        return false;
    Py_ssize_t points = walk->rows * (walk->columns + 1);
    walk->positions = positions->buf;
    walk->predictors = predictors->buf;
    return positions->len == points * (Py_ssize_t)sizeof(int64_t)
        && predictors->len == walk->components * points * (Py_ssize_t)sizeof(int16_t);
}

/* scan_mcus(data, start, blocks, tables, (components, rows, columns, rows of an interval), positions, predictors) */
static PyObject *scan_mcus(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer data, blocks, tables, positions, predictors;
    Py_ssize_t start, found = PY_SSIZE_T_MIN;
    Walk walk = {0};
    if (!PyArg_ParseTuple(args, "y*ny*y*(inni)w*w*:scan_mcus", &data, &start, &blocks, &tables, &walk.components,
                          &walk.rows, &walk.columns, &walk.rows_of_interval, &positions, &predictors))
        return NULL;
    bool valid = 0 <= start && start <= data.len && 0 < walk.components && walk.components <= MOST_COMPONENTS
        && walk.rows_of_interval >= 0 && read_walk(&blocks, &tables, &positions, &predictors, &walk);
    if (valid) {
        Py_BEGIN_ALLOW_THREADS
        found = find_places(&data, start, tables.buf, &walk);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&blocks);
    PyBuffer_Release(&tables);
    PyBuffer_Release(&positions);
    PyBuffer_Release(&predictors);
    if (!valid) {
        PyErr_SetString(PyExc_ValueError, "sizes do not fit each other");
        return NULL;
    }
    return found == PY_SSIZE_T_MIN ? PyErr_NoMemory() : PyLong_FromSsize_t(found);
}

PyMethodDef scan_methods[] = {
    {"scan_mcus", scan_mcus, METH_VARARGS, "Note where the MCUs of a JPEG begin; return the length of its scan."},
    {NULL, NULL, 0, NULL},
};
