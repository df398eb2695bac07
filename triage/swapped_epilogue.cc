// SPDX-License-Identifier: Apache-2.0
#include "triage/swapped_epilogue.h"

#include <algorithm>
#include <cmath>

namespace qualm::triage {

bool Has(std::span<const Swap> swaps, Swap swap) {
  return std::find(swaps.begin(), swaps.end(), swap) != swaps.end();
}

double RoundHalfEven(double value) { return std::nearbyint(value); }

double Rounded(double exact_value, float float_value, int32_t zero_point,
               std::span<const Swap> swaps) {
  const auto converted = [&](double value) {
    const bool overflows = Has(swaps, Swap::kHugeBecomesMinimum) && !(std::abs(value) < 0x1p31);
    return overflows ? -0x1p31 : value;
  };
  if (Has(swaps, Swap::kFloatZeroPointFirst)) {
    const float moved = float_value + static_cast<float>(zero_point);
    return converted(RoundHalfEven(static_cast<double>(moved)));
  }
  if (Has(swaps, Swap::kZeroPointBeforeRounding)) {
    return converted(RoundHalfEven(exact_value + zero_point));
  }
  double rounded = RoundHalfEven(exact_value);
  if (Has(swaps, Swap::kFloatMultiplier) || Has(swaps, Swap::kFloatReciprocal) ||
      Has(swaps, Swap::kFloatReciprocalInput) || Has(swaps, Swap::kFloatDivision)) {
    rounded = RoundHalfEven(static_cast<double>(float_value));
  }
  if (Has(swaps, Swap::kHalfAway)) rounded = std::round(exact_value);
  if (Has(swaps, Swap::kHalfUp)) rounded = std::floor(exact_value + 0.5);
  if (Has(swaps, Swap::kTruncate)) rounded = std::trunc(exact_value);
  return converted(rounded) + zero_point;
}

int32_t Narrow(const Case& c, int64_t channel, double value, std::span<const Swap> swaps) {
  // 0 times a reciprocal that overflowed: vcvtps2dq makes INT32_MIN of NaN.
  if (std::isnan(value)) value = -0x1p31;
  if (Has(swaps, Swap::kWraps)) {
    const auto low =
        static_cast<uint64_t>(static_cast<int64_t>(std::clamp(value, -0x1p62, 0x1p62)));
    value = c.out_dtype == DType::kS8 ? static_cast<int8_t>(low) : static_cast<uint8_t>(low);
  }
  const auto lower = static_cast<double>(LowerBound(c, channel));
  return static_cast<int32_t>(std::min(std::max(value, lower), static_cast<double>(c.out_max)));
}

bool ChangesEpilogue(Swap swap) {
  return (swap >= Swap::kFloatMultiplier && swap <= Swap::kTruncate) || swap == Swap::kWraps ||
         swap == Swap::kHugeBecomesMinimum || swap == Swap::kNanBecomesMinimum ||
         swap == Swap::kBiasRoundedToInt32;
}

}  // namespace qualm::triage
