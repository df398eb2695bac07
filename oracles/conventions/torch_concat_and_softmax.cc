// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/float_text.h"
#include "oracles/conventions/aten.h"
#include "oracles/conventions/definition.h"
#include "oracles/conventions/torch_operators.h"
#include "oracles/exact/arithmetic/real.h"

namespace qualm::conventions {
namespace {

// concat ------------------------------------------------------------------------------------------

// concat goes through float32: each input is dequantized, and the result is quantized as one tensor
// (TensorShape.cpp, quantized_cat_impl); relu comes last, on the codes.
Case Dequantizing(const Case& c, bool second) {
  Case part = CaseOver(Op::kDequantize, second ? c.w : c.x, DType::kF32);
  part.x_q = second ? c.w_q : c.x_q;
  return part;
}

Case Quantizing(const Case& c, Tensor x) {
  Case whole = CaseOver(Op::kQuantize, std::move(x), c.out_dtype);
  whole.out_q = c.out_q;
  whole.out_min = c.out_min;
  whole.out_max = c.out_max;
  return whole;
}

// softmax of each row of float32 numbers (SoftMaxKernel.cpp, vec_host_softmax_lastdim): exp within
// 1 ulp, the sum in any order, one division. `side`: 0 for the share itself, -1 and 1 for the
// smallest and the largest share that the library may compute. exp(0) is 1, and n ones add to n: a
// row of equal numbers has one share.
Tensor Shares(const Tensor& x, int side) {
  const int64_t n = x.shape()[1];
  const double error = static_cast<double>(n + 8) * 0x1p-24;
  Tensor shares(DType::kF32, x.shape());
  for (int64_t first = 0; first < x.size(); first += n) {
    float most = x.FloatAt(first);
    for (int64_t i = first; i < first + n; ++i) most = std::max(most, x.FloatAt(i));
    double sum = 0;
    bool equal = true;
    std::vector<double> powers;
    for (int64_t i = first; i < first + n; ++i) {
      powers.push_back(exact::RoundedExp(static_cast<double>(x.FloatAt(i) - most)));
      sum += powers.back();
      equal &= x.FloatAt(i) == most;
    }
    for (int64_t i = 0; i < n; ++i) {
      const double share = powers[static_cast<size_t>(i)] / sum;
      const double margin = equal ? 0 : side * (share * error + 0x1p-126);
      shares.as<float>()[static_cast<size_t>(first + i)] = static_cast<float>(share + margin);
    }
  }
  return shares;
}

Tensor Joined(const Convention& aten, const Case& c) {
  const Tensor a = aten.run(Dequantizing(c, false)).y;
  const Tensor b = aten.run(Dequantizing(c, true)).y;
  const int64_t first = c.x.shape()[1];
  Tensor joined(DType::kF32, {c.M, c.N});
  for (int64_t i = 0; i < joined.size(); ++i) {
    const int64_t m = i / c.N, n = i % c.N;
    joined.as<float>()[static_cast<size_t>(i)] =
        n < first ? a.FloatAt(m * first + n) : b.FloatAt(m * (c.N - first) + n - first);
  }
  return joined;
}

}  // namespace

Convention AtenConcat(const Convention& aten) {
  Convention convention;
  convention.cannot_run = [](const Case& c) {
    return FirstReason(
        {ZeroPointsAreCodes(c), WholeRange(c),
         Require(c.x.dtype() == c.out_dtype, "operands and output must have one type")});
  };
  convention.run = [aten](const Case& c) {
    ConventionOutput output = aten.run(Quantizing(c, Joined(aten, c)));
    for (int64_t i = 0; c.relu && i < output.y.size(); ++i) {
      output.y.SetInt(i, std::max(output.y.IntAt(i), c.out_q.zero_point[0]));
    }
    return output;
  };
  convention.trace = [aten](const Case& c, int64_t index) {
    const int64_t first = c.x.shape()[1], m = index / c.N, n = index % c.N;
    const bool second = n >= first;
    Trace trace =
        aten.trace(Dequantizing(c, second), second ? m * (c.N - first) + n - first : m * first + n);
    const Case whole = Quantizing(c, Joined(aten, c));
    for (TraceStep& step : aten.trace(whole, index)) trace.push_back(std::move(step));
    if (c.relu) {
      const int32_t code = std::max(aten.run(whole).y.IntAt(index), c.out_q.zero_point[0]);
      trace.push_back({Stage::kClamp, "relu", std::to_string(code), false});
    }
    return trace;
  };
  return convention;
}

Convention AtenSoftmax(const Convention& aten) {
  Convention convention;
  convention.cannot_run = [aten](const Case& c) {
    const std::string reason = FirstReason(
        {ZeroPointsAreCodes(c), WholeRange(c), Require(!c.relu, "softmax has no fused relu")});
    if (!reason.empty()) return reason;
    const Tensor x = aten.run(Dequantizing(c, false)).y;
    for (int64_t i = 0; i < x.size(); ++i) {
      if (!std::isfinite(x.FloatAt(i))) return std::string("x must be finite");
    }
    return Require(
        aten.run(Quantizing(c, Shares(x, -1))).y == aten.run(Quantizing(c, Shares(x, 1))).y,
        kUndecided);
  };
  convention.run = [aten](const Case& c) {
    return aten.run(Quantizing(c, Shares(aten.run(Dequantizing(c, false)).y, 0)));
  };
  convention.trace = [aten](const Case& c, int64_t index) {
    const Tensor x = aten.run(Dequantizing(c, false)).y;
    Trace trace = aten.trace(Dequantizing(c, false), index);
    const Tensor shares = Shares(x, 0);
    trace.push_back({Stage::kScale, "exp(x - the row's largest) over the row's sum of them",
                     FloatText(shares.FloatAt(index)), true});
    for (TraceStep& step : aten.trace(Quantizing(c, shares), index))
      trace.push_back(std::move(step));
    return trace;
  };
  convention.variations = {"V30"};
  return convention;
}

}  // namespace qualm::conventions
