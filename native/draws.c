/* First words of many random streams: Philox 4x64-10, as aioloader/rng.py explains it and numpy computes it; and the
   random crops of raw images that are drawn with such words, as aioloader/transforms/geometry.py and raw.py explain. */

#include "native.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { ROUNDS = 10, WIDTH = 4, PLACE = 3 };
enum { TRIES = 10, CHANNELS = 3, HEAD = 24 };

/* Return the upper half of a product, and set the lower one. */
static uint64_t multiply(uint64_t a, uint64_t b, uint64_t *lower)
{
    uint64_t low = (uint32_t)a, high = a >> 32, other_low = (uint32_t)b, other_high = b >> 32;
    uint64_t middle = high * other_low + (low * other_low >> 32);
    uint64_t rest = low * other_high + (uint32_t)middle;
    *lower = a * b;
    return high * other_high + (middle >> 32) + (rest >> 32);
}

/* Compute a block of words from the words of the counter and of the key. */
static void draw_block(const uint64_t counter[WIDTH], uint64_t first_key, uint64_t second_key, uint64_t *out)
{
    memcpy(out, counter, WIDTH * sizeof *out);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t low, other_low;
        uint64_t high = multiply(0xD2E7470EE14C6C93, out[0], &low);
        uint64_t other_high = multiply(0xCA5A826395121157, out[2], &other_low);
        out[0] = other_high ^ out[1] ^ first_key;
        out[1] = other_low;
        out[2] = high ^ out[3] ^ second_key;
        out[3] = low;
        first_key += 0x9E3779B97F4A7C15;
        second_key += 0xBB67AE8584CAA73B;
    }
}

/* draw_words(seed, epoch, index and position of each stream, words) */
static PyObject *draw_words(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned long long seed;
    Py_buffer places, words;
    if (!PyArg_ParseTuple(args, "Ky*w*:draw_words", &seed, &places, &words))
        return NULL;
    Py_ssize_t streams = places.len / (Py_ssize_t)(PLACE * sizeof(uint64_t));
    Py_ssize_t nbytes = (Py_ssize_t)(WIDTH * sizeof(uint64_t)), blocks = streams ? words.len / streams / nbytes : 0;
    int valid = places.len == streams * (Py_ssize_t)(PLACE * sizeof(uint64_t)) && words.len == streams * blocks * nbytes;
    uint64_t *out = words.buf;
    for (const uint64_t *place = places.buf; valid && streams; streams--, place += PLACE)
        for (Py_ssize_t block = 1; block <= blocks; block++, out += WIDTH) /* numpy counts before it draws */
            draw_block((uint64_t[]){(uint64_t)block, place[0], place[1], 0}, seed, place[2], out);
    PyBuffer_Release(&places);
    PyBuffer_Release(&words);
    if (!valid) {
        PyErr_SetString(PyExc_ValueError, "sizes do not fit each other");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Words of a stream as a list of Python's integers. */
typedef struct {
    PyObject *list;
    Py_ssize_t next;
} Words;

/* What crops are drawn from, the size that they are resized to, and the most pixels that an image may have. The exponential
   is Python's: those of two libraries may differ in the last bit. */
typedef struct {
    double least, greatest, low, high;
    PyObject *exponential;
    uint64_t height, width, most;
} Ranges;

/* Take the next word. Return false if there is none, or an error is set. */
static bool take_word(Words *words, uint64_t *word)
{
    if (words->next >= PyList_Size(words->list))
        return false;
    *word = PyLong_AsUnsignedLongLong(PyList_GetItem(words->list, words->next++));
    return !PyErr_Occurred();
}

/* Draw a number uniform in [low, high). The product has a statement of its own: no compiler makes one operation of both. */
static bool draw_uniform(Words *words, double low, double high, double *number)
{
    uint64_t word;
    if (!take_word(words, &word))
        return false;
    double above = (high - low) * ((double)(word >> 11) * 0x1p-53);
    *number = low + above;
    return true;
}

/* Draw an integer uniform in [0, bound), bound > 0. */
static bool draw_integer(Words *words, uint64_t bound, uint64_t *number)
{
    uint64_t word, low, least = -bound % bound;
    do {
        if (!take_word(words, &word))
            return false;
        *number = multiply(word, bound, &low);
    } while (low < least);
    return true;
}

/* Draw the rectangle of a crop: x, y, width, height. Return false if more words are needed, or nothing fits. */
static bool draw_box(Words *words, uint64_t height, uint64_t width, const Ranges *ranges, uint64_t box[4])
{
    double pixels = (double)height * (double)width, area, log;
    for (int tries = 0; tries < TRIES; tries++) {
        if (!draw_uniform(words, ranges->least, ranges->greatest, &area) ||
            !draw_uniform(words, ranges->low, ranges->high, &log))
            return false;
        PyObject *number = PyFloat_FromDouble(log);
        PyObject *made = number == NULL ? NULL : PyObject_CallFunctionObjArgs(ranges->exponential, number, NULL);
        double ratio = made == NULL ? 0 : PyFloat_AsDouble(made);
        Py_XDECREF(number);
        Py_XDECREF(made);
        if (PyErr_Occurred())
            return false;
        area *= pixels;
        double across = rint(sqrt(area * ratio)), down = rint(sqrt(area / ratio));
        if (0 < across && across <= (double)width && 0 < down && down <= (double)height) {
            box[2] = (uint64_t)across;
            box[3] = (uint64_t)down;
            return draw_integer(words, width - box[2] + 1, box) && draw_integer(words, height - box[3] + 1, box + 1);
        }
    }
    return false;
}

static uint32_t load(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Draw the crop of a raw image: first byte, height, width, bytes of a row of the image, words used. Return None for
   another image, and where `draw_box` draws nothing; Python then does all of it, errors included. */
static PyObject *draw_crop(const Py_buffer *image, Words *words, const Ranges *ranges)
{
    static const uint8_t START[] = {0x8c, 'R', 'A', 'W', '\r', '\n', 0x1a, '\n', 1, 1, CHANNELS, 0};
    uint8_t head[HEAD]; /* read once: the image may be in a file that another process changes */
    if (image->len < HEAD)
        return Py_NewRef(Py_None);
    memcpy(head, image->buf, HEAD);
    uint64_t height = load(head + 12), width = load(head + 16), start = load(head + 20), box[4];
    if (memcmp(head, START, sizeof START) || !height || !width || height > INT32_MAX || width > INT32_MAX ||
        height * width > ranges->most || start < HEAD || start + height * width * CHANNELS != (uint64_t)image->len)
        return Py_NewRef(Py_None);
    if (!draw_box(words, height, width, ranges, box)) {
        PyErr_Clear();
        return Py_NewRef(Py_None);
    }
    if (box[2] == ranges->width && box[3] == ranges->height) /* nothing is resized */
        return Py_NewRef(Py_None);
    Py_ssize_t first = (Py_ssize_t)(start + (box[1] * width + box[0]) * CHANNELS);
    return Py_BuildValue("nnnnn", first, (Py_ssize_t)box[3], (Py_ssize_t)box[2], (Py_ssize_t)(width * CHANNELS), words->next);
}

/* draw_crops(images, words of each, most pixels, size of the result, range of the area, that of the ratio's logarithm, exp) */
static PyObject *draw_crops(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *images, *words, *crops;
    unsigned long long most, height, width;
    Ranges ranges;
    if (!PyArg_ParseTuple(args, "O!O!K(KK)(dd)(dd)O:draw_crops", &PyList_Type, &images, &PyList_Type, &words, &most, &height,
                          &width, &ranges.least, &ranges.greatest, &ranges.low, &ranges.high, &ranges.exponential))
        return NULL;
    ranges.most = most;
    ranges.height = height;
    ranges.width = width;
    Py_ssize_t count = PyList_Size(images);
    if (PyList_Size(words) != count) {
        PyErr_SetString(PyExc_ValueError, "sizes do not fit each other");
        return NULL;
    }
    crops = PyList_New(count);
    for (Py_ssize_t place = 0; crops != NULL && place < count; place++) {
        PyObject *image = PyList_GetItem(images, place), *made = NULL;
        Words stream = {PyList_GetItem(words, place), 0};
        Py_buffer data;
        if (image == Py_None || !PyList_Check(stream.list)) {
            made = Py_NewRef(Py_None);
        } else if (PyObject_GetBuffer(image, &data, PyBUF_SIMPLE) == 0) {
            made = draw_crop(&data, &stream, &ranges);
            PyBuffer_Release(&data);
        }
        if (made == NULL || PyList_SetItem(crops, place, made) < 0)
            Py_CLEAR(crops);
    }
    return crops;
}

PyMethodDef draws_methods[] = {
    {"draw_crops", draw_crops, METH_VARARGS, "Draw the crops of raw images; None for each that needs care."},
    {"draw_words", draw_words, METH_VARARGS, "Draw the first words of streams of the domain of samples."},
    {NULL, NULL, 0, NULL},
};
