// SPDX-License-Identifier: Apache-2.0
// Small cases whose answers can be computed by hand, for tests of causes.
#ifndef QUALM_TRIAGE_CAUSES_TEST_UTIL_H_
#define QUALM_TRIAGE_CAUSES_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/case.h"
#include "core/tensor.h"
#include "triage/causes.h"

namespace qualm::triage {

using Values = std::vector<int32_t>;
using Reals = std::vector<float>;

inline constexpr DType kU8 = DType::kU8;
inline constexpr DType kS8 = DType::kS8;

inline Tensor Codes(DType dtype, std::vector<int64_t> shape, const Values& values) {
  Tensor tensor(dtype, std::move(shape));
  EXPECT_EQ(tensor.size(), std::ssize(values));
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.SetInt(i, values[static_cast<size_t>(i)]);
  return tensor;
}

inline Case Checked(Case c) {
  EXPECT_EQ(Validate(c), "");
  return c;
}

// A linear layer without parameters, whose outputs are the sums themselves.
inline Case Layer(DType x_dtype, const Values& x, DType w_dtype, const Values& w,
                  int64_t rows = 1) {
  Case c;
  c.M = rows;
  c.K = std::ssize(x) / rows;
  c.N = c.K == 0 ? 1 : std::ssize(w) / c.K;
  c.x = Codes(x_dtype, {c.M, c.K}, x);
  c.w = Codes(w_dtype, {c.N, c.K}, w);
  c.out_dtype = DType::kS32;
  OpenClamp(&c);
  return Checked(c);
}

// The case with codes for outputs.
inline Case ToCodes(Case c, DType dtype, float scale = 1.0f, int32_t zero_point = 0) {
  c.out_dtype = dtype;
  c.out_q = {{scale}, {zero_point}};
  OpenClamp(&c);
  return Checked(c);
}

inline Case ToFloats(Case c) {
  c.out_dtype = DType::kF32;
  c.out_min = 0, c.out_max = 255;
  OpenClamp(&c);
  return Checked(c);
}

// An operation on elements.
inline Case Elements(Op op, DType dtype, const Values& a, const Values& b = {}, int64_t rows = 1) {
  const DType out = RowOf(op).out_types.contains(kS8) ? kS8 : RowOf(op).out_types.front();
  Case c = CaseOver(op, Codes(dtype, {rows, std::ssize(a) / rows}, a), out);
  if (HasTwoInputs(op)) c.w = Codes(dtype, {rows, std::ssize(b) / rows}, b);
  if (op == Op::kConcat) c.N += std::ssize(b) / rows;
  if (op == Op::kSoftmax) c.out_dtype = dtype, c.out_q = FixedOutQParams(dtype);
  OpenClamp(&c);
  return Checked(c);
}

inline Case Quantized(const Reals& x, float scale = 1.0f, int32_t zero_point = 0,
                      DType dtype = kS8) {
  Case c = CaseOver(Op::kQuantize, Tensor::Of<float>({1, std::ssize(x)}, std::span<const float>(x)),
                    dtype);
  c.out_q = {{scale}, {zero_point}};
  return Checked(c);
}

// A pool, or a convolution of one output channel for each `in_c` weights of a tap. Sums go out as
// they are, averages as s8.
inline Case Windowed(Op op, Window window, DType dtype, const Values& x, const Values& w = {}) {
  Case c;
  c.op = op;
  c.window = window;
  const int64_t taps = window.kernel_h * window.kernel_w;
  const int64_t channels = window.groups == 0 ? 0 : window.in_c / window.groups;
  if (IsConv(op)) c.N = std::ssize(w) / (taps * channels);
  DeriveSizes(&c);
  c.x = Codes(dtype, {window.batch, window.in_h, window.in_w, window.in_c}, x);
  if (IsConv(op)) c.w = Codes(kS8, {c.N, window.kernel_h, window.kernel_w, channels}, w);
  c.out_dtype = IsConv(op) ? DType::kS32 : op == Op::kMaxPool ? dtype : kS8;
  OpenClamp(&c);
  return Checked(c);
}

// A layer over floats that chooses the scales of its rows.
inline Case Dynamic(const Reals& x, const Values& w, int64_t rows = 1) {
  Case c;
  c.op = Op::kDynamicLinear;
  c.M = rows;
  c.K = std::ssize(x) / rows;
  c.N = std::ssize(w) / c.K;
  c.x = Tensor::Of<float>({c.M, c.K}, std::span<const float>(x));
  c.w = Codes(kS8, {c.N, c.K}, w);
  return ToFloats(c);
}

// The answer of a subject with these causes; nullopt if one of them is not asked about the case.
inline std::optional<Tensor> AnswerOf(const Case& c, const std::vector<std::string_view>& names,
                                      const Convention* model = nullptr) {
  EXPECT_EQ(Validate(c), "");
  std::vector<const Cause*> causes;
  for (const std::string_view name : names) causes.push_back(&CauseNamed(name));
  return Counterfactual(c, causes, model);
}

inline std::optional<Values> Answer(const Case& c, std::string_view name,
                                    const Convention* model = nullptr) {
  const std::optional<Tensor> y = AnswerOf(c, {name}, model);
  if (!y) return std::nullopt;
  Values values;
  for (int64_t i = 0; i < y->size(); ++i) values.push_back(y->IntAt(i));
  return values;
}

inline std::optional<Reals> RealAnswer(const Case& c, std::string_view name) {
  const std::optional<Tensor> y = AnswerOf(c, {name});
  if (!y) return std::nullopt;
  return Reals(y->as<float>().begin(), y->as<float>().end());
}

inline bool IsAsked(const Case& c, std::string_view name) {
  return AnswerOf(c, {name}).has_value();
}

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_CAUSES_TEST_UTIL_H_
