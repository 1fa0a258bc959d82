/* Splice of a cut of a JPEG: parts of its scan, joined by phantom MCUs.

aioloader/jpeg/crop_window.py explains it, and makes the same bytes without this file. Data and entry may be maps of
files that somebody changes meanwhile: codes are copied before they are used, and each part is bounded again where it is
copied. */

#include "native.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Layout of an entry: `HEAD` and `CODES` of aioloader/jpeg/crop_entry.py. */
enum {
    COMPONENTS_AT = 2,
    ROWS_AT = 8,
    POINTS_AT = 10,
    WIDTHS_AT = 26,
    LEAST_AT = 30,
    STRIDE_AT = 36,
    TABLES_NBYTES_AT = 38,
    EMPTY_LUMA_NBYTES_AT = 40,
    EMPTY_NBITS_AT = 41,
    EMPTY_NBYTES_AT = 43,
    CODES_AT = 51,
    TABLES_AT = 211,
    ROW_NBYTES = 10,
    SPARE = 8,
    CRC = 4,
    CATEGORIES = 12,
    MOST_DC = 1 << (CATEGORIES - 1),
    WIDEST = 57,
    LONGEST = 32,
};
/* Bytes of a phantom besides its empty blocks: carried bits, four codes, a byte; twice, where all are stuffed. */
enum { PHANTOM = 2 * 20, LAST = 2 * 2 + 2 };

typedef struct {
    uint32_t luma[CATEGORIES], chroma[CATEGORIES];
    uint8_t luma_nbits[CATEGORIES], chroma_nbits[CATEGORIES];
    uint32_t pads[8];
    uint8_t pad_nbits[8];
} Codes;

typedef struct {
    const uint8_t *starts, *points;
    Codes codes;
    uint8_t empty_luma[256], empty[256];
    int empty_luma_nbytes, empty_nbits, empty_nbytes;
    int components, chroma_end;
    int point_nbits, widths[4];
    int least[3];
    Py_ssize_t rows, columns, stride;
} Entry;

/* Parts of a scan: each has `step` rows and begins at a point of the column `begin`. It ends at one of the column `end`
   of its first row, or, where that is negative, where the row behind it begins. */
typedef struct {
    Py_ssize_t first, stop, step, begin, end;
    int narrow;
} Parts;

typedef struct {
    uint64_t word;
    int shift;
} Point;

typedef struct {
    uint64_t begin, end; /* bits of the scan */
    Point first, behind;
} Bounds;

typedef struct {
    uint8_t *at;
    uint64_t bits;
    int nbits;
} Writer;

static uint32_t little(const uint8_t *at, int nbytes)
{
    uint32_t value = 0;
    for (int place = 0; place < nbytes; place++)
        value |= (uint32_t)at[place] << 8 * place;
    return value;
}

static uint64_t little64(const uint8_t *at)
{
    return (uint64_t)little(at + 4, 4) << 32 | little(at, 4);
}

static void read_codes(const uint8_t *at, Codes *codes)
{
    for (int number = 0; number < CATEGORIES; number++) {
        codes->luma[number] = little(at + 4 * number, 4);
        codes->chroma[number] = little(at + 4 * (CATEGORIES + number), 4);
    }
    at += 8 * CATEGORIES;
    memcpy(codes->luma_nbits, at, CATEGORIES);
    memcpy(codes->chroma_nbits, at + CATEGORIES, CATEGORIES);
    at += 2 * CATEGORIES;
    for (int number = 0; number < 8; number++)
        codes->pads[number] = little(at + 4 * number, 4);
    memcpy(codes->pad_nbits, at + 32, 8);
}

/* Return whether no code is too long, and each padding has its number of bits, modulo 8. */
static bool are_codes(const Codes *codes)
{
    for (int number = 0; number < CATEGORIES; number++)
        if (codes->luma_nbits[number] > LONGEST || codes->chroma_nbits[number] > LONGEST)
            return false;
    for (int number = 0; number < 8; number++) {
        int nbits = codes->pad_nbits[number];
        if (nbits > LONGEST || (nbits & 7) != number || (uint64_t)codes->pads[number] >> nbits)
            return false;
    }
    return true;
}

/* Read the head of an entry; return whether all of its parts are inside of it. */
static bool read_entry(const uint8_t *data, Py_ssize_t nbytes, Entry *entry)
{
    uint8_t head[TABLES_AT];
    if (nbytes < TABLES_AT)
        return false;
    memcpy(head, data, TABLES_AT);
    read_codes(head + CODES_AT, &entry->codes);
    entry->components = head[COMPONENTS_AT];
    entry->chroma_end = head[COMPONENTS_AT + 1];
    entry->rows = little(head + ROWS_AT, 2);
    entry->columns = little(head + POINTS_AT, 2);
    entry->point_nbits = 0;
    for (int number = 0; number < 4; number++)
        entry->point_nbits += entry->widths[number] = head[WIDTHS_AT + number];
    bool fits = true;
    for (int number = 0; number < 3; number++) {
        int least = entry->least[number] = (int16_t)little(head + LEAST_AT + 2 * number, 2);
        fits &= entry->widths[1 + number] <= CATEGORIES && -MOST_DC <= least && least < MOST_DC;
    }
    entry->stride = little(head + STRIDE_AT, 2);
    Py_ssize_t at = TABLES_AT + (Py_ssize_t)little(head + TABLES_NBYTES_AT, 2);
    int luma_nbytes = head[EMPTY_LUMA_NBYTES_AT];
    entry->empty_nbits = (int)little(head + EMPTY_NBITS_AT, 2);
    entry->empty_nbytes = head[EMPTY_NBYTES_AT];
    Py_ssize_t starts_at = at + luma_nbytes + entry->empty_nbytes;
    Py_ssize_t points_at = starts_at + ROW_NBYTES * (entry->rows + 1);
    if (!fits || entry->point_nbits > WIDEST || !entry->stride || entry->stride % 8
        || entry->columns * entry->point_nbits > 8 * entry->stride
        || points_at + entry->rows * entry->stride + SPARE + CRC > nbytes)
        return false;
    /* These bytes are stuffed. */
    entry->empty_luma_nbytes = 0;
    uint8_t last = 0;
    for (int place = 0; place < luma_nbytes; place++) {
        uint8_t byte = data[at + place];
        bool stuffed = last == 0xff && byte == 0;
        if (!stuffed)
            entry->empty_luma[entry->empty_luma_nbytes++] = byte;
        last = byte;
    }
    memcpy(entry->empty, data + at + luma_nbytes, entry->empty_nbytes);
    entry->starts = data + starts_at;
    entry->points = data + points_at;
    return true;
}

static Point point_of(const Entry *entry, Py_ssize_t row, Py_ssize_t column)
{
    Py_ssize_t bits = column * entry->point_nbits;
    return (Point){little64(entry->points + row * entry->stride + bits / 8), (int)(bits % 8)};
}

/* Return a field of a point: 0 for the position, 1 to 3 for the DC value of a component. */
static uint64_t field(const Entry *entry, Point point, int number)
{
    int shift = point.shift;
    for (int before = 0; before < number; before++)
        shift += entry->widths[before];
    uint64_t mask = ((uint64_t)1 << entry->widths[number]) - 1;
    return shift < 64 ? point.word >> shift & mask : 0;
}

static Bounds bounds_of(const Entry *entry, const Parts *parts, Py_ssize_t row)
{
    Py_ssize_t behind = row + parts->step, end_row = parts->end < 0 ? behind : row;
    Point first = point_of(entry, row, parts->begin), last = {0, 0};
    if (parts->end >= 0)
        last = point_of(entry, row, parts->end);
    else if (behind < parts->stop)
        last = point_of(entry, behind, 0);
    return (Bounds){
        little(entry->starts + 4 * row, 4) + field(entry, first, 0),
        little(entry->starts + 4 * end_row, 4) + field(entry, last, 0),
        first,
        last,
    };
}

/* Write up to 32 bits, as many as `count` says; the value has no others. */
static void put(Writer *writer, uint64_t bits, int count)
{
    writer->bits = writer->bits << count | bits;
    writer->nbits += count;
    while (writer->nbits >= 8) {
        writer->nbits -= 8;
        uint8_t byte = (uint8_t)(writer->bits >> writer->nbits);
        *writer->at++ = byte;
        if (byte == 0xff)
            *writer->at++ = 0;
    }
}

static void put_bits(Writer *writer, const uint8_t *bits, int nbits)
{
    for (; nbits >= 8; nbits -= 8)
        put(writer, *bits++, 8);
    if (nbits)
        put(writer, *bits >> (8 - nbits), nbits);
}

/* Find the code of a DC difference. Return its number of bits, or -1 if the entry has none. */
static int dc_code(int64_t difference, const uint32_t *codes, const uint8_t *nbits, int end, uint64_t *code)
{
    int64_t size = difference < 0 ? -difference : difference;
    int category = 0;
    for (; size; size >>= 1)
        if (++category == CATEGORIES)
            return -1;
    uint64_t highest = ((uint64_t)1 << category) - 1;
    if (category && (end > LONGEST || (codes[category] + (highest << end)) >> nbits[category]))
        return -1;
    uint64_t value = (uint64_t)difference + (difference < 0 ? highest : 0);
    *code = codes[category] + (category ? value << end : 0);
    return *code >> nbits[category] ? -1 : nbits[category];
}

/* Write a phantom, which ends with the bits of `byte` behind the first `skipped`. Return whether the entry has the
   codes for it. */
static bool put_phantom(Writer *writer, const Entry *entry, const int64_t differences[3], uint8_t byte, int skipped)
{
    const Codes *codes = &entry->codes;
    uint64_t luma, chroma[2] = {0, 0};
    int nbits[3] = {0, 0, 0};
    nbits[0] = dc_code(differences[0], codes->luma, codes->luma_nbits, 0, &luma);
    if (entry->components == 3)
        for (int number = 0; number < 2; number++)
            nbits[1 + number] = dc_code(
                differences[1 + number], codes->chroma, codes->chroma_nbits, entry->chroma_end, &chroma[number]);
    if (nbits[0] < 0 || nbits[1] < 0 || nbits[2] < 0)
        return false;
    int pad = -(writer->nbits + nbits[0] + nbits[1] + nbits[2] + 8 - skipped) & 7;
    put_bits(writer, entry->empty_luma, 8 * entry->empty_luma_nbytes);
    put(writer, luma, nbits[0]);
    put(writer, codes->pads[pad], codes->pad_nbits[pad]);
    put(writer, chroma[0], nbits[1]);
    put(writer, chroma[1], nbits[2]);
    put(writer, byte & (255 >> skipped), 8 - skipped);
    return true;
}

/* What is joined, and with how many empty MCUs before and behind it. */
typedef struct {
    const uint8_t *data;
    Py_ssize_t nbytes, scan_at;
    int opening, closing, continues;
} Source;

enum { DAMAGED = -1, IN_ONE_BYTE = -2 };

/* Offsets of the first byte of a part, and of the byte in which it ends; whether the data have both. */
typedef struct {
    int64_t at, until;
    bool inside;
} Span;

static Span span_of(const Source *source, const Parts *parts, Py_ssize_t row, const Bounds *bounds)
{
    /* The first part of a scan needs no phantom. */
    bool whole = source->continues && row == parts->first;
    int64_t at = (whole ? 0 : (int64_t)(bounds->begin >> 3)) + source->scan_at;
    int64_t until = (int64_t)(bounds->end >> 3) + source->scan_at;
    return (Span){at, until, 0 <= at && at < source->nbytes && 0 <= until && until < source->nbytes};
}

/* Return the bytes of the file that all parts have, or a negative number. */
static Py_ssize_t measured(const Source *source, const Entry *entry, const Parts *parts)
{
    bool damaged = false;
    Py_ssize_t total = 0;
    for (Py_ssize_t row = parts->first; row < parts->stop; row += parts->step) {
        Bounds bounds = bounds_of(entry, parts, row);
        if (parts->narrow && bounds.begin >> 3 >= bounds.end >> 3)
            return IN_ONE_BYTE;
        Span span = span_of(source, parts, row, &bounds);
        damaged |= !span.inside;
        total += span.inside && span.until > span.at ? span.until - span.at : 0;
    }
    for (Py_ssize_t row = parts->first; row <= parts->stop; row += parts->step)
        damaged |= (int64_t)(little(entry->starts + 4 * row, 4) >> 3) + source->scan_at < 0;
    bool uses_empty = source->opening || source->closing;
    if (damaged || !are_codes(&entry->codes) || (uses_empty && entry->empty_nbits > 8 * entry->empty_nbytes))
        return DAMAGED;
    /* Less is copied: the first bytes of a part are the phantom's. */
    return total > source->nbytes + 2 * (parts->stop - parts->first) ? DAMAGED : total;
}

/* Write all parts. Return the end, or NULL if the entry is damaged. */
static uint8_t *joined(const Source *source, const Entry *entry, const Parts *parts, uint8_t *out, Py_ssize_t room)
{
    Writer writer = {out, 0, 0};
    int64_t behind[3];
    for (int number = 0; number < 3; number++)
        behind[number] = -entry->least[number];
    for (int number = 0; number < source->opening; number++)
        put_bits(&writer, entry->empty, entry->empty_nbits);
    Py_ssize_t total = 0;
    for (Py_ssize_t row = parts->first; row < parts->stop; row += parts->step) {
        Bounds bounds = bounds_of(entry, parts, row);
        Span span = span_of(source, parts, row, &bounds);
        if (!span.inside)
            return NULL;
        int64_t differences[3];
        for (int number = 0; number < 3; number++) {
            differences[number] = (int64_t)field(entry, bounds.first, 1 + number) - behind[number];
            behind[number] = (int64_t)field(entry, bounds.behind, 1 + number);
        }
        if (!source->continues || row > parts->first) {
            uint8_t byte = source->data[span.at];
            if (!put_phantom(&writer, entry, differences, byte, bounds.begin & 7))
                return NULL;
            span.at += byte == 0xff ? 2 : 1;
        }
        if (span.until > span.at) {
            Py_ssize_t nbytes = span.until - span.at;
            if (nbytes > room - total)
                return NULL;
            memcpy(writer.at, source->data + span.at, nbytes);
            writer.at += nbytes;
            total += nbytes;
        }
        int carried = bounds.end & 7;
        put(&writer, source->data[span.until] >> (8 - carried), carried);
    }
    /* Rows do not overlap, so that a cut is never much larger than its file. */
    if (total > source->nbytes)
        return NULL;
    if (source->closing)
        put_bits(&writer, entry->empty, entry->empty_nbits);
    if (writer.nbits)
        put(&writer, 0xff >> writer.nbits, 8 - writer.nbits);
    *writer.at++ = 0xff;
    *writer.at++ = 0xd9; /* EOI */
    return writer.at;
}

/* Join parts of a scan behind headers; the caller has checked the arguments. */
static PyObject *spliced(const Py_buffer *headers, const Source *source, const Entry *entry, const Parts *parts)
{
    Py_ssize_t total = measured(source, entry, parts);
    if (total == IN_ONE_BYTE)
        Py_RETURN_NONE;
    PyObject *result = NULL;
    if (total >= 0) {
        Py_ssize_t count = (parts->stop - parts->first) / parts->step;
        Py_ssize_t bound = headers->len + total + count * (2 * entry->empty_luma_nbytes + PHANTOM)
            + ((Py_ssize_t)source->opening + source->closing) * 2 * (entry->empty_nbits + 7) / 8 + LAST;
        result = PyByteArray_FromStringAndSize(NULL, bound);
        if (result == NULL)
            return NULL;
        uint8_t *begin = (uint8_t *)PyByteArray_AsString(result);
        memcpy(begin, headers->buf, headers->len);
        uint8_t *end = joined(source, entry, parts, begin + headers->len, total);
        if (end != NULL) {
            if (PyByteArray_Resize(result, end - begin) == 0)
                return result;
            Py_DECREF(result);
            return NULL;
        }
        Py_DECREF(result);
    }
    PyErr_SetString(PyExc_ValueError, "damaged");
    return NULL;
}

static PyObject *join_parts(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer headers, data, stored;
    Parts parts;
    Source source;
    if (!PyArg_ParseTuple(args, "y*y*y*n(nnnnnp)ipp:join_parts", &headers, &data, &stored, &source.scan_at,
            &parts.first, &parts.stop, &parts.step, &parts.begin, &parts.end, &parts.narrow, &source.opening,
            &source.continues, &source.closing))
        return NULL;
    source.data = data.buf;
    source.nbytes = data.len;
    Entry entry;
    PyObject *result = NULL;
    bool inside = read_entry(stored.buf, stored.len, &entry) && 0 <= parts.first && parts.first < parts.stop
        && parts.stop <= entry.rows && parts.step > 0 && (parts.stop - parts.first) % parts.step == 0
        && 0 <= parts.begin && parts.begin < entry.columns && parts.end < entry.columns && 0 <= source.opening
        && source.opening <= UINT16_MAX && source.scan_at > -((Py_ssize_t)1 << 40)
        && source.scan_at < (Py_ssize_t)1 << 40;
    if (inside)
        result = spliced(&headers, &source, &entry, &parts);
    else
        PyErr_SetString(PyExc_ValueError, "damaged");
    PyBuffer_Release(&headers);
    PyBuffer_Release(&data);
    PyBuffer_Release(&stored);
    return result;
}

PyMethodDef splice_methods[] = {
    {"join_parts", join_parts, METH_VARARGS, "Join parts of the scan of a JPEG behind headers."},
    {NULL, NULL, 0, NULL},
};
