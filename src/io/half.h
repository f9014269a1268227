/* fp16 as stored in files: one sign bit, five of exponent, ten of mantissa. No computation uses
 * fp16. */
#ifndef SOTTO_IO_HALF_H
#define SOTTO_IO_HALF_H

#include <stdint.h>
#include <string.h>

#define F16_LARGEST 65504.0f /* values below 65520 round to 65504, larger values to infinity */

static inline float f16_widen(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31,
             mantissa = half & 1023;
    if (exponent == 0) { /* zero and subnormals: mantissa * 2^-24, exact in fp32 */
        float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    uint32_t bits = sign | (exponent == 31 ? 255u : exponent + 112) << 23 | mantissa << 13;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* To nearest, ties to even. */
static inline uint16_t f16_round(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) /* a NaN stays a NaN */
        return sign | 0x7e00;
    if (bits >= 0x477ff000u) /* 65520 */
        return sign | 0x7c00;
    if (bits >= 0x38800000u) /* 2^-14: normal numbers; a carry goes into the exponent */
        return sign | (uint16_t)((bits - 0x38000000u + 0xfff + (bits >> 13 & 1)) >> 13);
    float magnitude; /* steps of 2^-24: adding a number with this last place rounds */
    memcpy(&magnitude, &bits, 4);
    magnitude += 0.5f;
    memcpy(&bits, &magnitude, 4);
    return sign | (uint16_t)(bits - 0x3f000000u);
}

#endif
