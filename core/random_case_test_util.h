// SPDX-License-Identifier: Apache-2.0
// Random valid cases of every operation, for tests of readers, writers, messages, oracles and
// kernels. The rows of core/op.h say what an operation has, so a new operation is drawn too. Shapes
// are small, some empty; scales and zero points reach the ends of their domains; values are drawn
// onto ties, the ends of the clamp and cancellation. properties/gen draws the cases of `qualm
// check`.
#ifndef QUALM_CORE_RANDOM_CASE_TEST_UTIL_H_
#define QUALM_CORE_RANDOM_CASE_TEST_UTIL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/rng.h"

namespace qualm::test {

class RandomCase {
 public:
  // Draws cases with up to `most_columns` output columns, convolutions with up to twice as many.
  // Kernels need more columns than one vector holds.
  explicit RandomCase(uint64_t seed, int64_t most_columns = 4)
      : rng_(seed), most_columns_(most_columns) {}
  // The same cases, but weights and codes have 8 bits: most named conventions take no others. And
  // choose_qparams has the rule of observers alone.
  static RandomCase OfBytes(uint64_t seed, int64_t most_columns = 4) {
    RandomCase cases(seed, most_columns);
    cases.weight_types_ = kCodes.count;
    cases.wide_codes_ = false;
    return cases;
  }

  // Without remarks, and exactly requantized.
  Case Draw(Op op);
  // With weights in blocks, of linear and dynamic_linear.
  Case DrawInBlocks(Op op);
  // A linear of f32 x, half of them with weights in blocks.
  Case DrawFloatX();
  // A cast with scales.
  Case DrawScaledCast();
  // With all that a case file can hold: remarks, and other modes of requantization. What is
  // expected and observed is any bits.
  Case DrawWhole(Op op);

 private:
  // kTies: scales are powers of two near 1, so that a good part of all values are n + 1/2.
  enum class Theme : uint8_t { kOrdinary, kTies, kExtreme, kMixed };

  float AnyPositive();
  float AnyBits();
  float Scale(int centre);  // around 2^centre
  int32_t ZeroPoint();
  QParams Params(int64_t entries, int centre);
  std::string Text();
  Tensor AnyTensor(DType dtype, std::vector<int64_t> shape);
  Tensor Codes(DType dtype, std::vector<int64_t> shape);

  void DrawSizes(Case* c);
  Window AnyWindow();
  void DrawConv(Case* c);
  void DrawPool(Case* c);
  void DrawTypes(Case* c);
  void DrawClamp(Case* c);
  void DrawParams(Case* c);
  void DrawFunction(Case* c);
  void DrawObserver(Case* c);
  void DrawRule(Case* c);
  void DrawCast(Case* c);
  void DrawX(Case* c);
  float Real(float scale);
  void DrawObserved(Case* c);
  void DrawBias(Case* c);
  float Bias(const Case& c, int64_t n);

  Rng rng_;
  int64_t most_columns_;
  size_t weight_types_ = kWeightCodes.count;  // of kWeightCodes, from its first
  bool wide_codes_ = true;
  Theme theme_ = Theme::kOrdinary;
  int sum_bits_ = 8;  // of the sums that a requantize takes
};

}  // namespace qualm::test

#endif  // QUALM_CORE_RANDOM_CASE_TEST_UTIL_H_
