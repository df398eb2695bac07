// SPDX-License-Identifier: Apache-2.0
#include "proofs/weights.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/status.h"
#include "oracles/exact/exact.h"

namespace qualm::proofs {
namespace {

Case OneRowEach(Op op, const Tensor& rows) {
  Case c;
  c.op = op;
  c.M = rows.shape()[0];
  c.N = rows.shape()[1];
  c.x = rows;
  c.out_dtype = DType::kF32;
  c.out_min = RangeOf(c.out_dtype).min;
  c.out_max = RangeOf(c.out_dtype).max;
  return c;
}

// One scale for each row, or one for all.
std::vector<float> ScalesOf(Tensor rows, bool per_channel) {
  Case c = OneRowEach(Op::kChooseQParams, rows);
  c.x = Tensor(DType::kF32, {1, c.M, c.N});
  std::ranges::copy(rows.bytes(), c.x.bytes().begin());
  c.per_channel = per_channel;
  c.observer = {.kind = Observer::Kind::kMinMax,
                .symmetric = true,
                .dtype = DType::kS8,
                .quant_min = -128,
                .quant_max = 127};
  const Tensor chosen = exact::Evaluate(c);
  const std::span<const float> scales = chosen.as<float>().first(per_channel ? rows.shape()[0] : 1);
  return {scales.begin(), scales.end()};
}

}  // namespace

Case WithCodes(const Case& layer, bool per_channel) {
  if (!std::ranges::all_of(layer.w.as<float>(), [](float w) { return std::isfinite(w); })) {
    throw InputError("a weight is not finite");
  }
  const int64_t terms = layer.N == 0 ? 0 : layer.w.size() / layer.N;
  Case c = layer;
  c.w = Tensor(DType::kS8, layer.w.shape());
  Tensor rows(DType::kF32, {layer.N, terms});
  std::ranges::copy(layer.w.bytes(), rows.bytes().begin());
  c.per_channel = per_channel;
  c.w_q.scale = ScalesOf(rows, per_channel);
  c.w_q.zero_point.assign(c.w_q.scale.size(), 0);
  for (int64_t n = 0; n < layer.N; ++n) {
    Tensor row(DType::kF32, {1, terms});
    const auto bytes = static_cast<size_t>(terms) * sizeof(float);
    std::ranges::copy(rows.bytes().subspan(static_cast<size_t>(n) * bytes, bytes),
                      row.bytes().begin());
    Case quantize = OneRowEach(Op::kQuantize, row);
    quantize.out_dtype = DType::kS8;
    quantize.out_min = -128;
    quantize.out_max = 127;
    quantize.out_q.scale = {c.w_q.scale_at(n)};
    std::ranges::copy(exact::Evaluate(quantize).bytes(),
                      c.w.bytes().begin() + static_cast<std::ptrdiff_t>(n * terms));
  }
  return c;
}

}  // namespace qualm::proofs
