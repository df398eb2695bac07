// SPDX-License-Identifier: Apache-2.0
// The order in which minimization goes down. Lexicographic; smaller is simpler.
#include "triage/complexity.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>

#include "triage/passes.h"
#include "triage/triage.h"

namespace qualm::triage {
namespace {

// 0 for 1.0, then powers of two, then by mantissa bits in use.
int64_t ScaleComplexity(float scale) {
  const auto bits = std::bit_cast<uint32_t>(scale);
  const uint32_t mantissa = bits & 0x7fffffu;
  const int64_t mantissa_bits = mantissa == 0 ? 0 : 23 - std::countr_zero(mantissa);
  const int64_t exponent = std::abs(static_cast<int64_t>(bits >> 23) - 127);
  return mantissa_bits * 512 + exponent;
}

int64_t Scales(const QParams& q) {
  int64_t sum = 0;
  for (float scale : q.scale) sum += ScaleComplexity(scale);
  return sum;
}

struct ZeroPoints {
  int64_t nonzero = 0;
  int64_t sum = 0;
};
ZeroPoints CountZeroPoints(const Case& c) {
  ZeroPoints count;
  for (const QParams* q : {&c.x_q, &c.w_q, &c.out_q}) {
    for (int32_t zero_point : q->zero_point) {
      count.nonzero += zero_point != 0 ? 1 : 0;
      count.sum += std::abs(int64_t{zero_point});
    }
  }
  return count;
}

struct Codes {
  int64_t nonzero = 0;
  int64_t magnitude = 0;
};

Codes CountCodes(const Tensor& tensor) {
  Codes codes;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (tensor.dtype() == DType::kF32) {
      const auto bits = std::bit_cast<uint32_t>(tensor.FloatAt(i));
      codes.nonzero += bits != 0 ? 1 : 0;
      codes.magnitude += bits == 0 ? 0
                                   : 1 + ScaleComplexity(std::bit_cast<float>(bits & 0x7fffffffu)) +
                                         (bits >> 31 != 0 ? 1 : 0);
    } else {
      const int64_t value = tensor.IntAt(i);
      codes.nonzero += value != 0 ? 1 : 0;
      codes.magnitude += std::abs(value) + (value < 0 ? 1 : 0);
    }
  }
  return codes;
}

// Strides, paddings, dilations, groups: how many are not the simplest, and their sum.
struct WindowNumbers {
  int64_t parameters = 0;
  int64_t sum = 0;
};
WindowNumbers CountWindow(const Case& c) {
  WindowNumbers count;
  ForEachWindowNumber(c, [&](const Field& field, int64_t number) {
    if (field.is_size) return;
    count.parameters += number != field.least ? 1 : 0;
    count.sum += number;
  });
  return count;
}

// A value that is not the simplest costs 1; an enumerator costs its distance from the simplest.
template <class T>
int64_t CostOf(const T& value, const T& simplest) {
  return value == simplest ? 0 : 1;
}
template <NamedEnum E>
int64_t CostOf(const E& value, const E& simplest) {
  return std::abs(static_cast<int64_t>(value) - static_cast<int64_t>(simplest));
}
// A multiplier costs nothing here: it is the simpler form of a requantization, and a scale.
int64_t CostOf(const std::vector<float>& /*multiplier*/, const std::vector<float>& /*none*/) {
  return 0;
}

int64_t Parameters(const Case& c) {
  int64_t cost = 0;
  const Case simplest = SimplestParameters(c);
  ForEachParameter(c, simplest, [&](const Field& /*field*/, const auto& value, const auto& least) {
    cost += CostOf(value, least);
  });
  return cost;
}

}  // namespace

std::vector<int64_t> Complexity(const Case& c) {
  const CodeRange range = RangeOf(c.out_dtype);
  const WindowNumbers window = CountWindow(c);
  const int64_t parameters = (c.per_channel ? 1 : 0) + (c.out_min != range.min ? 1 : 0) +
                             (c.out_max != range.max ? 1 : 0) + (BitsOf(c.w.dtype()) < 8 ? 1 : 0) +
                             window.parameters + Parameters(c);
  const Codes x = CountCodes(c.x);
  const Codes w = CountCodes(c.w);
  const ZeroPoints zero_points = CountZeroPoints(c);
  int64_t bias = 0;
  if (c.bias) {
    for (float value : *c.bias) bias += value == 0 ? 0 : 1 + ScaleComplexity(std::abs(value));
  }
  if (c.bias_i32) {
    for (int32_t value : *c.bias_i32) bias += std::abs(int64_t{value});
  }
  int64_t scales = Scales(c.x_q) + Scales(c.w_q) + Scales(c.out_q);
  for (float m : c.multiplier) scales += ScaleComplexity(m);
  // SameSize compares the first four.
  return {parameters,
          c.M * c.N,
          c.M,
          c.K,
          HasWindow(c.op) || RowOf(c.op).layout == Layout::kBatches ? c.x.size() : 0,
          window.sum,
          x.nonzero + w.nonzero + zero_points.nonzero,
          zero_points.sum,
          scales,
          x.magnitude + w.magnitude,
          bias};
}

bool SameSize(const Case& a, const Case& b) {
  constexpr int kSizes = 4;
  const std::vector<int64_t> x = Complexity(a), y = Complexity(b);
  return std::equal(x.begin(), x.begin() + kSizes, y.begin());
}

}  // namespace qualm::triage
