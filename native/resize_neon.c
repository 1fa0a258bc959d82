/* Kernels of the resize for 64-bit ARM. */
#if defined(__aarch64__)

#include <arm_neon.h>
#include <string.h>

#include "resize.h"

#define INLINE static inline __attribute__((always_inline))

INLINE int16x8_t widen(uint8x8_t bytes)
{
    return vreinterpretq_s16_u16(vmovl_u8(bytes));
}

INLINE void columns_of(const uint8_t *const *source, const struct resize_axis *axis, int channels, uint8_t *const *out)
{
    static const uint8_t three[16] = {0, 1, 2, 255, 3, 4, 5, 255, 6, 7, 8, 255, 9, 10, 11, 255};
    const uint8x16_t pick = vld1q_u8(three);
    for (int row = 0; row < RESIZE_ROWS; row++)
        for (ptrdiff_t x = 0; x < axis->count; x++) {
            const uint8_t *from = source[row] + axis->starts[x] * (ptrdiff_t)channels;
            const int16_t *weights = axis->weights + x * axis->padded;
            int32x4_t sum = vdupq_n_s32(RESIZE_HALF);
            for (ptrdiff_t k = 0; k < axis->padded; k += 4) {
                uint8x16_t four = vld1q_u8(from + k * channels);
                if (channels == 3)
                    four = vqtbl1q_u8(four, pick);
                int16x8_t low = widen(vget_low_u8(four)), high = widen(vget_high_u8(four));
                int16x4_t weight = vld1_s16(weights + k);
                sum = vmlal_lane_s16(sum, vget_low_s16(low), weight, 0);
                sum = vmlal_lane_s16(sum, vget_high_s16(low), weight, 1);
                sum = vmlal_lane_s16(sum, vget_low_s16(high), weight, 2);
                sum = vmlal_lane_s16(sum, vget_high_s16(high), weight, 3);
            }
            int16x4_t words = vqmovn_s32(vshrq_n_s32(sum, RESIZE_BITS));
            uint32_t pixel = vget_lane_u32(vreinterpret_u32_u8(vqmovun_s16(vcombine_s16(words, words))), 0);
            /* Of three channels the fourth byte is the next pixel's, which comes later. */
            memcpy(out[row] + x * channels, &pixel, x + 1 < axis->count ? 4 : (size_t)channels);
        }
}

INLINE void grey(const uint8_t *const *source, const struct resize_axis *axis, uint8_t *const *out)
{
    for (int row = 0; row < RESIZE_ROWS; row++)
        for (ptrdiff_t x = 0; x < axis->count; x++) {
            const uint8_t *from = source[row] + axis->starts[x];
            const int16_t *weights = axis->weights + x * axis->padded;
            int32x4_t sum = vdupq_n_s32(0);
            for (ptrdiff_t k = 0; k < axis->padded; k += 8) {
                int16x8_t eight = widen(vld1_u8(from + k)), weight = vld1q_s16(weights + k);
                sum = vmlal_s16(sum, vget_low_s16(eight), vget_low_s16(weight));
                sum = vmlal_high_s16(sum, eight, weight);
            }
            int32_t value = (vaddvq_s32(sum) + RESIZE_HALF) >> RESIZE_BITS;
            out[row][x] = value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value;
        }
}

static void columns_neon(const uint8_t *const *source, const struct resize_axis *axis, int channels, uint8_t *const *out)
{
    if (channels == 3)
        columns_of(source, axis, 3, out);
    else if (channels == 4)
        columns_of(source, axis, 4, out);
    else
        grey(source, axis, out);
}

static void rows_neon(const uint8_t *const *source, const int16_t *weights, ptrdiff_t padded, uint8_t *out, ptrdiff_t n)
{
    for (ptrdiff_t at = 0; at < n; at += 16) {
        if (at > n - 16)
            at = n - 16; /* some bytes again */
        int32x4_t sum[4];
        for (int i = 0; i < 4; i++)
            sum[i] = vdupq_n_s32(RESIZE_HALF);
        for (ptrdiff_t k = 0; k < padded; k++) {
            uint8x16_t bytes = vld1q_u8(source[k] + at);
            int16x8_t low = widen(vget_low_u8(bytes)), high = widen(vget_high_u8(bytes));
            sum[0] = vmlal_n_s16(sum[0], vget_low_s16(low), weights[k]);
            sum[1] = vmlal_n_s16(sum[1], vget_high_s16(low), weights[k]);
            sum[2] = vmlal_n_s16(sum[2], vget_low_s16(high), weights[k]);
            sum[3] = vmlal_n_s16(sum[3], vget_high_s16(high), weights[k]);
        }
        int16x4_t words[4];
        for (int i = 0; i < 4; i++)
            words[i] = vqmovn_s32(vshrq_n_s32(sum[i], RESIZE_BITS));
        uint8x8_t low = vqmovun_s16(vcombine_s16(words[0], words[1])), high = vqmovun_s16(vcombine_s16(words[2], words[3]));
        vst1q_u8(out + at, vcombine_u8(low, high));
    }
}

const struct resize_kernels resize_neon = {"neon", columns_neon, rows_neon, 16};

#endif
