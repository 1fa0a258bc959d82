/* Kernels of the resize for x86-64: SSE4.1, and AVX2 with two rows in the halves of a register.

   Bytes become 16-bit numbers in pairs of neighbouring taps; one instruction multiplies both and adds the products. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#include "resize.h"

#define SSE41 __attribute__((target("sse4.1")))
#define AVX2 __attribute__((target("avx2")))
#define INLINE static inline __attribute__((always_inline))

/* Where the channels of taps 0 and 1, and of taps 2 and 3, are among 16 bytes: pairs of each channel. */
#define PICK3(a, b) 3 * a, -1, 3 * b, -1, 3 * a + 1, -1, 3 * b + 1, -1, 3 * a + 2, -1, 3 * b + 2, -1, -1, -1, -1, -1
#define PICK4(a, b) 4 * a, -1, 4 * b, -1, 4 * a + 1, -1, 4 * b + 1, -1, 4 * a + 2, -1, 4 * b + 2, -1, 4 * a + 3, -1, 4 * b + 3, -1

INLINE int32_t pair(const int16_t *weights)
{
    int32_t both;
    memcpy(&both, weights, sizeof(both));
    return both;
}

/* -- SSE4.1 ---------------------------------------------------------------------------------------------------------- */

SSE41 INLINE __m128i load(const void *from)
{
    return _mm_loadu_si128(from);
}

/* Store four pixels of four bytes. Of three channels the fourth bytes are left out, and four bytes behind the pixels are
   written too: they belong to the next two pixels, which come later, unless there are fewer. */
SSE41 INLINE void store_four(uint8_t *out, ptrdiff_t x, ptrdiff_t count, int channels, __m128i close, __m128i pixels)
{
    out += x * channels;
    if (channels == 3)
        pixels = _mm_shuffle_epi8(pixels, close);
    if (channels == 3 && count - x < 6) {
        int32_t end = _mm_extract_epi32(pixels, 2);
        _mm_storel_epi64((__m128i *)out, pixels);
        memcpy(out + 8, &end, sizeof(end));
    } else
        _mm_storeu_si128((__m128i *)out, pixels);
}

SSE41 INLINE void columns_of_sse41(const uint8_t *source, const struct resize_axis *axis, int channels, uint8_t *out)
{
    const __m128i low = channels == 3 ? _mm_setr_epi8(PICK3(0, 1)) : _mm_setr_epi8(PICK4(0, 1));
    const __m128i high = channels == 3 ? _mm_setr_epi8(PICK3(2, 3)) : _mm_setr_epi8(PICK4(2, 3));
    const __m128i close = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const ptrdiff_t padded = axis->padded, last = axis->count - 4;
    const int32_t *starts = axis->starts;
    for (ptrdiff_t x = 0; x < axis->count; x += 4) {
        if (x > last)
            x = last; /* some pixels again */
        const int16_t *weights = axis->weights + x * padded;
        __m128i sum[4];
        for (int i = 0; i < 4; i++)
            sum[i] = _mm_set1_epi32(RESIZE_HALF);
        for (ptrdiff_t k = 0; k < padded; k += 4)
            for (int i = 0; i < 4; i++) {
                __m128i four = load(source + (starts[x + i] + k) * channels);
                const int16_t *weight = weights + i * padded + k;
                sum[i] = _mm_add_epi32(sum[i], _mm_madd_epi16(_mm_shuffle_epi8(four, low), _mm_set1_epi32(pair(weight))));
                sum[i] = _mm_add_epi32(sum[i], _mm_madd_epi16(_mm_shuffle_epi8(four, high), _mm_set1_epi32(pair(weight + 2))));
            }
        for (int i = 0; i < 4; i++)
            sum[i] = _mm_srai_epi32(sum[i], RESIZE_BITS);
        store_four(out, x, axis->count, channels, close, _mm_packus_epi16(_mm_packs_epi32(sum[0], sum[1]), _mm_packs_epi32(sum[2], sum[3])));
    }
}

/* One channel: eight taps at a time, whose four partial sums are added at the end. */
SSE41 INLINE void grey_sse41(const uint8_t *source, const struct resize_axis *axis, uint8_t *out)
{
    const ptrdiff_t padded = axis->padded, last = axis->count - 4;
    const int32_t *starts = axis->starts;
    for (ptrdiff_t x = 0; x < axis->count; x += 4) {
        if (x > last)
            x = last; /* some pixels again */
        const int16_t *weights = axis->weights + x * padded;
        __m128i sum[4];
        for (int i = 0; i < 4; i++)
            sum[i] = _mm_setzero_si128();
        for (ptrdiff_t k = 0; k < padded; k += 8)
            for (int i = 0; i < 4; i++) {
                __m128i eight = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(source + starts[x + i] + k)));
                __m128i weight = load(weights + i * padded + k);
                sum[i] = _mm_add_epi32(sum[i], _mm_madd_epi16(eight, weight));
            }
        __m128i all = _mm_hadd_epi32(_mm_hadd_epi32(sum[0], sum[1]), _mm_hadd_epi32(sum[2], sum[3]));
        all = _mm_srai_epi32(_mm_add_epi32(all, _mm_set1_epi32(RESIZE_HALF)), RESIZE_BITS);
        all = _mm_packs_epi32(all, all);
        int32_t pixels = _mm_cvtsi128_si32(_mm_packus_epi16(all, all));
        memcpy(out + x, &pixels, sizeof(pixels));
    }
}

SSE41 static void columns_sse41(const uint8_t *const *source, const struct resize_axis *axis, int channels, uint8_t *const *out)
{
    for (int row = 0; row < RESIZE_ROWS; row++)
        if (channels == 3)
            columns_of_sse41(source[row], axis, 3, out[row]);
        else if (channels == 4)
            columns_of_sse41(source[row], axis, 4, out[row]);
        else
            grey_sse41(source[row], axis, out[row]);
}

SSE41 static void rows_sse41(const uint8_t *const *source, const int16_t *weights, ptrdiff_t padded, uint8_t *out, ptrdiff_t n)
{
    const __m128i zero = _mm_setzero_si128(), half = _mm_set1_epi32(RESIZE_HALF);
    for (ptrdiff_t at = 0; at < n; at += 16) {
        if (at > n - 16)
            at = n - 16; /* some bytes again */
        __m128i sum[4] = {half, half, half, half};
        for (ptrdiff_t k = 0; k < padded; k += 2) {
            __m128i both = _mm_set1_epi32(pair(weights + k));
            __m128i first = load(source[k] + at), second = load(source[k + 1] + at);
            __m128i low = _mm_unpacklo_epi8(first, second), high = _mm_unpackhi_epi8(first, second);
            sum[0] = _mm_add_epi32(sum[0], _mm_madd_epi16(_mm_unpacklo_epi8(low, zero), both));
            sum[1] = _mm_add_epi32(sum[1], _mm_madd_epi16(_mm_unpackhi_epi8(low, zero), both));
            sum[2] = _mm_add_epi32(sum[2], _mm_madd_epi16(_mm_unpacklo_epi8(high, zero), both));
            sum[3] = _mm_add_epi32(sum[3], _mm_madd_epi16(_mm_unpackhi_epi8(high, zero), both));
        }
        for (int i = 0; i < 4; i++)
            sum[i] = _mm_srai_epi32(sum[i], RESIZE_BITS);
        __m128i bytes = _mm_packus_epi16(_mm_packs_epi32(sum[0], sum[1]), _mm_packs_epi32(sum[2], sum[3]));
        _mm_storeu_si128((__m128i *)(out + at), bytes);
    }
}

const struct resize_kernels resize_sse41 = {"sse4.1", columns_sse41, rows_sse41, 16};

/* -- AVX2 ------------------------------------------------------------------------------------------------------------ */

AVX2 INLINE __m256i load_two(const uint8_t *first, const uint8_t *second)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load(first)), load(second), 1);
}

AVX2 INLINE void columns_of_avx2(const uint8_t *const *source, const struct resize_axis *axis, int channels, uint8_t *const *out)
{
    const __m256i low = channels == 3 ? _mm256_setr_epi8(PICK3(0, 1), PICK3(0, 1)) : _mm256_setr_epi8(PICK4(0, 1), PICK4(0, 1));
    const __m256i high = channels == 3 ? _mm256_setr_epi8(PICK3(2, 3), PICK3(2, 3)) : _mm256_setr_epi8(PICK4(2, 3), PICK4(2, 3));
    const __m128i close = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const ptrdiff_t padded = axis->padded, last = axis->count - 4;
    const int32_t *starts = axis->starts;
    const uint8_t *upper = source[0], *lower = source[1];
    uint8_t *upper_out = out[0], *lower_out = out[1];
    for (ptrdiff_t x = 0; x < axis->count; x += 4) {
        if (x > last)
            x = last; /* some pixels again */
        const int16_t *weights = axis->weights + x * padded;
        __m256i sum[4];
        for (int i = 0; i < 4; i++)
            sum[i] = _mm256_set1_epi32(RESIZE_HALF);
        for (ptrdiff_t k = 0; k < padded; k += 4)
            for (int i = 0; i < 4; i++) {
                ptrdiff_t from = (starts[x + i] + k) * channels;
                __m256i four = load_two(upper + from, lower + from);
                const int16_t *weight = weights + i * padded + k;
                __m256i first = _mm256_set1_epi32(pair(weight)), second = _mm256_set1_epi32(pair(weight + 2));
                sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(_mm256_shuffle_epi8(four, low), first));
                sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(_mm256_shuffle_epi8(four, high), second));
            }
        for (int i = 0; i < 4; i++)
            sum[i] = _mm256_srai_epi32(sum[i], RESIZE_BITS);
        __m256i both = _mm256_packus_epi16(_mm256_packs_epi32(sum[0], sum[1]), _mm256_packs_epi32(sum[2], sum[3]));
        store_four(upper_out, x, axis->count, channels, close, _mm256_castsi256_si128(both));
        store_four(lower_out, x, axis->count, channels, close, _mm256_extracti128_si256(both, 1));
    }
}

AVX2 INLINE void grey_avx2(const uint8_t *const *source, const struct resize_axis *axis, uint8_t *const *out)
{
    const ptrdiff_t padded = axis->padded, last = axis->count - 4;
    const int32_t *starts = axis->starts;
    const uint8_t *upper = source[0], *lower = source[1];
    uint8_t *upper_out = out[0], *lower_out = out[1];
    for (ptrdiff_t x = 0; x < axis->count; x += 4) {
        if (x > last)
            x = last; /* some pixels again */
        const int16_t *weights = axis->weights + x * padded;
        __m256i sum[4];
        for (int i = 0; i < 4; i++)
            sum[i] = _mm256_setzero_si256();
        for (ptrdiff_t k = 0; k < padded; k += 8)
            for (int i = 0; i < 4; i++) {
                ptrdiff_t from = starts[x + i] + k;
                __m128i first = _mm_loadl_epi64((const __m128i *)(upper + from)), second = _mm_loadl_epi64((const __m128i *)(lower + from));
                __m256i weight = _mm256_broadcastsi128_si256(load(weights + i * padded + k));
                __m256i eight = _mm256_cvtepu8_epi16(_mm_unpacklo_epi64(first, second));
                sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(eight, weight));
            }
        __m256i all = _mm256_hadd_epi32(_mm256_hadd_epi32(sum[0], sum[1]), _mm256_hadd_epi32(sum[2], sum[3]));
        all = _mm256_srai_epi32(_mm256_add_epi32(all, _mm256_set1_epi32(RESIZE_HALF)), RESIZE_BITS);
        all = _mm256_packs_epi32(all, all);
        all = _mm256_packus_epi16(all, all);
        int32_t first = _mm_cvtsi128_si32(_mm256_castsi256_si128(all)), second = _mm_cvtsi128_si32(_mm256_extracti128_si256(all, 1));
        memcpy(upper_out + x, &first, sizeof(first));
        memcpy(lower_out + x, &second, sizeof(second));
    }
}

AVX2 static void columns_avx2(const uint8_t *const *source, const struct resize_axis *axis, int channels, uint8_t *const *out)
{
    if (channels == 3)
        columns_of_avx2(source, axis, 3, out);
    else if (channels == 4)
        columns_of_avx2(source, axis, 4, out);
    else
        grey_avx2(source, axis, out);
}

AVX2 static void rows_avx2(const uint8_t *const *source, const int16_t *weights, ptrdiff_t padded, uint8_t *out, ptrdiff_t n)
{
    const __m256i zero = _mm256_setzero_si256(), half = _mm256_set1_epi32(RESIZE_HALF);
    for (ptrdiff_t at = 0; at < n; at += 32) {
        if (at > n - 32)
            at = n - 32; /* some bytes again */
        __m256i sum[4] = {half, half, half, half};
        for (ptrdiff_t k = 0; k < padded; k += 2) {
            __m256i both = _mm256_set1_epi32(pair(weights + k));
            __m256i first = _mm256_loadu_si256((const __m256i *)(source[k] + at));
            __m256i second = _mm256_loadu_si256((const __m256i *)(source[k + 1] + at));
            __m256i low = _mm256_unpacklo_epi8(first, second), high = _mm256_unpackhi_epi8(first, second);
            sum[0] = _mm256_add_epi32(sum[0], _mm256_madd_epi16(_mm256_unpacklo_epi8(low, zero), both));
            sum[1] = _mm256_add_epi32(sum[1], _mm256_madd_epi16(_mm256_unpackhi_epi8(low, zero), both));
            sum[2] = _mm256_add_epi32(sum[2], _mm256_madd_epi16(_mm256_unpacklo_epi8(high, zero), both));
            sum[3] = _mm256_add_epi32(sum[3], _mm256_madd_epi16(_mm256_unpackhi_epi8(high, zero), both));
        }
        for (int i = 0; i < 4; i++)
            sum[i] = _mm256_srai_epi32(sum[i], RESIZE_BITS);
        /* Unpacking and packing stay in the halves of a register, so the bytes are where they were. */
        __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(sum[0], sum[1]), _mm256_packs_epi32(sum[2], sum[3]));
        _mm256_storeu_si256((__m256i *)(out + at), bytes);
    }
}

const struct resize_kernels resize_avx2 = {"avx2", columns_avx2, rows_avx2, 32};

#endif
