// SPDX-License-Identifier: Apache-2.0
// Casts between float types, rounded once: the same bits on every instruction set, in every
// floating-point environment of the caller, because all of it is integer arithmetic.
#ifndef QUALM_KERNELS_CAST_H_
#define QUALM_KERNELS_CAST_H_

#include <cstdint>

#include "kernels/types.h"

namespace qualm::kernels {

// What the patterns at the ends of a type's range mean.
enum class FloatEnds : uint8_t {
  kIeee,       // the largest exponent is infinity (fraction 0) or NaN
  kAllOnes,    // all ones are NaN, no infinities
  kMinusZero,  // the pattern of -0 is the one NaN, no infinities, no -0
  kFinite,     // every pattern is a number
};
// A float type: from the highest bit sign, exponent, fraction. Of fewer than 8 bits, elements are
// packed as one stream of bits, the first one lowest. Without a fraction (e8m0) there is no zero.
struct FloatType {
  int bits = 32;  // 4, 6, 8, 16 or 32
  int exponent_bits = 8, fraction_bits = 23, bias = 127;
  FloatEnds ends = FloatEnds::kIeee;
  bool has_sign = true;
};

enum class CastRounding : uint8_t { kNearestEven, kTowardZero, kUp };
// What a number beyond the largest value becomes; what is missing is NaN, then the largest value.
enum class CastOverflow : uint8_t { kInfinity, kSaturate, kNan };

// Rows of a matrix as in types.h; of elements of fewer than 8 bits row_stride is columns.
struct ConstFloats {
  const void* data = nullptr;
  FloatType type;
  int64_t rows = 0, columns = 0, row_stride = 0;
};
struct MutableFloats {
  void* data = nullptr;
  FloatType type;
  int64_t rows = 0, columns = 0, row_stride = 0;
};

// y = x in the type of y. NaN becomes the quiet NaN without sign or payload; of a type without NaN
// the largest value. y overlaps no part of x.
Status Cast(const ConstFloats& x, CastRounding rounding, CastOverflow overflow,
            const MutableFloats& y);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_CAST_H_
