// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/requirements.h"

#include <algorithm>

namespace qualm::conventions {

std::string FirstReason(std::initializer_list<std::string> reasons) {
  for (const std::string& reason : reasons) {
    if (!reason.empty()) return reason;
  }
  return "";
}

std::string Require(bool holds, std::string_view reason) {
  return holds ? std::string() : std::string(reason);
}

std::string ZeroPointsAreCodes(const Case& c) {
  const auto inside = [](const QParams& q, DType dtype) {
    const CodeRange range = RangeOf(dtype);
    return std::all_of(q.zero_point.begin(), q.zero_point.end(),
                       [&](int32_t z) { return z >= range.min && z <= range.max; });
  };
  if (IsCode(c.out_dtype) && !inside(c.out_q, c.out_dtype)) {
    return "output zero point must be a code of the output type";
  }
  if (IsCode(c.x.dtype()) && !inside(c.x_q, c.x.dtype())) {
    return "x zero point must be a code of the x type";
  }
  if (HasSums(c) && !inside(c.w_q, c.w.dtype())) {
    return "weight zero point must be a code of the weight type";
  }
  if ((HasTwoOperands(c.op) || c.op == Op::kConcat) && !inside(c.w_q, c.w.dtype())) {
    return "b zero point must be a code of the b type";
  }
  return "";
}

std::string WeightsArePlain(const Case& c) {
  return FirstReason({Require(!HasFloatX(c), "no " + std::string(kOfFloatX)),
                      Require(c.w_block == 0, "no " + std::string(kInBlocks)),
                      Require(BitsOf(c.w.dtype()) >= 8, "no weights of fewer than 8 bits")});
}

std::string WholeRange(const Case& c) {
  return Require(RangeOf(c.out_dtype) == CodeRange{c.out_min, c.out_max},
                 "the clamp must be the whole range of the output type");
}

bool WeightZeroPointsAre(const Case& c, int32_t zero_point) {
  return std::ranges::all_of(c.w_q.zero_point, [&](int32_t z) { return z == zero_point; });
}

bool IsPlainDepthwise(const Case& c) {
  return IsConv(c.op) && c.window.groups == c.window.in_c && c.window.groups == c.N;
}

bool HasExplicitMultiplier(const Case& c) { return !c.multiplier.empty(); }

float ExplicitMultiplier(const Case& c, int64_t n) {
  return c.multiplier[c.multiplier.size() == 1 ? 0 : static_cast<size_t>(n)];
}

double RealMultiplier(const Case& c, int64_t n) {
  if (HasExplicitMultiplier(c)) return static_cast<double>(ExplicitMultiplier(c, n));
  return static_cast<double>(c.x_q.scale_at(0)) * static_cast<double>(c.w_q.scale_at(n)) /
         static_cast<double>(c.out_q.scale_at(0));
}

}  // namespace qualm::conventions
