/* First words of many random streams: Philox 4x64-10, as aioloader/rng.py explains it and numpy computes it. */

#include "native.h"

#include <stdint.h>
#include <string.h>

enum { ROUNDS = 10, WIDTH = 4, PLACE = 3 };

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

PyMethodDef draws_methods[] = {
    {"draw_words", draw_words, METH_VARARGS, "Draw the first words of streams of the domain of samples."},
    {NULL, NULL, 0, NULL},
};
