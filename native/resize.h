/* Kernels of the antialiased resize of bytes: one struct for each set of instructions. */
#ifndef AIOLOADER_RESIZE_H
#define AIOLOADER_RESIZE_H

#include <stddef.h>
#include <stdint.h>

/* Fraction bits of a weight, and half a unit in them: sums are rounded halves up. */
enum { RESIZE_BITS = 15, RESIZE_HALF = 1 << 14 };
/* Source rows that `columns` filters at a time, and bytes behind a row that it may read. */
enum { RESIZE_ROWS = 2, RESIZE_MARGIN = 16 };

/* One axis of the result. Pixel i is the sum of `taps` source pixels from starts[i] on, by its weights. */
struct resize_axis {
    ptrdiff_t count, taps;
    ptrdiff_t padded;       /* taps rounded up to what a kernel takes at a time; the rest have weight 0 */
    const int32_t *table;   /* count x (1 + taps): start, weights */
    int32_t *starts;
    int16_t *weights;       /* count x padded */
    int32_t *wide;          /* pixels with a weight that int16 cannot hold, which the kernels get wrong */
    ptrdiff_t wide_count;
};

struct resize_kernels {
    const char *name;
    /* Filter RESIZE_ROWS rows along their pixels; they may be the same. */
    void (*columns)(const uint8_t *const *source, const struct resize_axis *axis, int channels, uint8_t *const *out);
    /* Sum `padded` rows of n bytes into one. */
    void (*rows)(const uint8_t *const *source, const int16_t *weights, ptrdiff_t padded, uint8_t *out, ptrdiff_t n);
    /* Least bytes of rows that these may be given: `columns` of the source, and 4 pixels of the result, `rows` of the result. */
    ptrdiff_t least;
};

extern const struct resize_kernels resize_plain, resize_sse41, resize_avx2, resize_neon;

#endif
