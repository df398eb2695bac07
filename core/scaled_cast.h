// SPDX-License-Identifier: Apache-2.0
// The scales of a cast: what is rounded to the output type is x_scale * x / out_scale, with the
// scales of Case::x_q and Case::out_q: each is one, or both are lists with an entry per channel or
// per block of a row (ElementEntry). There are no zero points.
#ifndef QUALM_CORE_SCALED_CAST_H_
#define QUALM_CORE_SCALED_CAST_H_

#include <string_view>

#include "core/case.h"

namespace qualm {

// A cast that has a scale other than 1, or lists of scales.
bool IsScaledCast(const Case& c);
// What those refuse who know none.
inline constexpr std::string_view kOfScaledCasts = "casts with scales";

// x * x_scale / out_scale. A quotient with no end is cut behind at least 38 bits, the last of which
// is then 1: it is rounded to every float type as the quotient itself would be.
struct Quotient {
  double value = 0;
  bool exact = true;
};
// Of an x with at most 24 significant bits. Zeros, infinities and NaN stay what they are.
Quotient QuotientOf(double x, float x_scale, float out_scale);
// The quotient of element `index` of the x of a cast.
Quotient QuotientOf(const Case& cast, int64_t index);

// A cast without scales that gives the same, of x in f32; unlike what is asked it rounds twice
// where a quotient is no float32. `all_exact` (may be null) becomes whether each quotient is one.
Case WithQuotients(const Case& cast, bool* all_exact);

}  // namespace qualm

#endif  // QUALM_CORE_SCALED_CAST_H_
