// SPDX-License-Identifier: Apache-2.0
// Small cases, and subjects with one fault, for tests of what triage says.
#ifndef QUALM_TRIAGE_FAULT_TEST_UTIL_H_
#define QUALM_TRIAGE_FAULT_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "oracles/exact/exact.h"
#include "properties/test_subject.h"
#include "triage/causes.h"
#include "triage/triage.h"

namespace qualm::triage {

using Kind = FindingKind;
using Texts = std::vector<std::string>;

inline void Fill(Tensor& tensor, Rng& rng) {
  for (uint8_t& byte : tensor.bytes()) byte = static_cast<uint8_t>(rng.Below(256));
}

// A layer of random codes whose outputs are its sums: hardly a cause gives one of them by chance.
inline Case Layer(int64_t m, int64_t n, int64_t k) {
  Case c;
  c.M = m, c.N = n, c.K = k;
  c.x = Tensor(DType::kU8, {m, k});
  c.w = Tensor(DType::kS8, {n, k});
  Rng rng(static_cast<uint64_t>(m * 10000 + n * 100 + k));
  Fill(c.x, rng), Fill(c.w, rng);
  c.x_q.zero_point = {3};
  c.w_q.zero_point = {5};
  c.out_dtype = DType::kS32;
  OpenClamp(&c);
  EXPECT_EQ(Validate(c), "");
  return c;
}

// Elements that are moved from one scale to another.
inline Case Elements(int64_t m, int64_t n) {
  Case c = CaseOver(Op::kRescale, Tensor(DType::kU8, {m, n}), DType::kU8);
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, static_cast<int32_t>(10 + 3 * i % 200));
  EXPECT_EQ(Validate(c), "");
  return c;
}

// A window over codes that grow, and weights that grow where the operation has some.
inline Case Images(Op op, const Window& window, int64_t n) {
  Case c;
  c.op = op, c.window = window, c.N = n;
  DeriveSizes(&c);
  c.x = Tensor(DType::kU8, ShapeOfX(c));
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, static_cast<int32_t>(3 + i * i % 250));
  if (IsConv(op)) {
    c.w = Tensor(DType::kS8, ShapeOfW(c));
    for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, static_cast<int32_t>(1 + i * i % 120));
    c.out_dtype = DType::kS32;
    OpenClamp(&c);
  }
  EXPECT_EQ(Validate(c), "");
  return c;
}

// As what was found before.
inline std::vector<Attribution> AllNamed(Op op, const std::vector<Hypothesis>& several) {
  std::vector<Attribution> named;
  for (const Hypothesis& causes : several) named.push_back(Named(op, causes));
  return named;
}

inline Tensor Plus(Tensor y, int64_t i, int32_t by) {
  y.SetInt(i, y.IntAt(i) + by);
  return y;
}

inline Tensor Right(const Case& c) { return exact::Evaluate(c); }

// What a subject with these causes answers.
inline Tensor With(const Case& c, const Hypothesis& causes) {
  return Counterfactual(c, causes).value_or(Right(c));
}
inline Hypothesis Named(const Texts& names) {
  Hypothesis causes;
  for (const std::string& name : names) causes.push_back(&CauseNamed(name));
  return causes;
}
inline const Cause& PlaceNamed(std::string_view name) {
  for (const Cause& place : AllPlaces()) {
    if (place.name == name) return place;
  }
  ADD_FAILURE() << name;
  return AllPlaces().front();
}

// A cause and the places in which it acts.
inline Hypothesis In(const std::string& cause, std::string_view place) {
  return {&CauseNamed(cause), &PlaceNamed(place)};
}

using Answering = std::function<Tensor(const Case&, const RunContext&)>;
inline TestSubject Answers(Answering answer) {
  return TestSubject([answer = std::move(answer)](const Case& c, const RunContext& context) {
    return TestSubject::Good(answer(c, context));
  });
}
inline TestSubject Answers(std::function<Tensor(const Case&)> answer) {
  return Answers(
      [answer = std::move(answer)](const Case& c, const RunContext&) { return answer(c); });
}
// A kernel with these causes.
inline TestSubject Kernel(const Hypothesis& causes) {
  TestSubject subject = Answers([causes](const Case& c) { return With(c, causes); });
  subject.takes_blocks = true;
  return subject;
}

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_FAULT_TEST_UTIL_H_
