// SPDX-License-Identifier: Apache-2.0
// What a pass offers, compared with a list.
#ifndef QUALM_TRIAGE_PASSES_TEST_UTIL_H_
#define QUALM_TRIAGE_PASSES_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <source_location>
#include <vector>

#include "core/slice.h"
#include "triage/passes.h"

namespace qualm::triage {

// The place of each pass in AllPasses.
enum Number : size_t {
  kParameters,
  kWindowParameters,
  kObserverParameters,
  kAnyParameter,
  kOutputs,
  kLongSums,
  kTerms,
  kWindowLine,
  kZeroCodes,
  kUniformCodes,
  kZeroPoints,
  kScales,
  kCodes,
  kBiases,
};

using Edit = std::function<void(Case&)>;
using Edits = std::vector<Edit>;
using Cases = std::vector<Case>;

// The candidates up to the one with this number, which is taken.
inline Cases OfferedUntil(Number pass, const Case& c, size_t taken) {
  Cases offered;
  AllPasses()[pass](c, [&](const Case& candidate) {
    offered.push_back(candidate);
    return offered.size() == taken + 1;
  });
  return offered;
}
inline Cases Offered(Number pass, const Case& c) { return OfferedUntil(pass, c, SIZE_MAX); }

inline void ExpectEndsWithTheOneTaken(Number pass, const Case& c, size_t count) {
  // Of long lists some places are enough: their candidates come out of loops.
  for (size_t taken = 0; taken < count; taken += 1 + count / 32)
    EXPECT_EQ(OfferedUntil(pass, c, taken).size(), taken + 1) << "goes on after it was taken";
}

inline void ExpectCases(Number pass, const Case& c, const Cases& expected,
                        std::source_location where = std::source_location::current()) {
  const testing::ScopedTrace trace(__FILE__, static_cast<int>(where.line()), "");
  const Cases offered = Offered(pass, c);
  for (size_t i = 0; i < std::min(offered.size(), expected.size()); ++i)
    EXPECT_TRUE(offered[i] == expected[i]) << "candidate " << i << ": " << Describe(offered[i]);
  ASSERT_EQ(offered.size(), expected.size());
  ExpectEndsWithTheOneTaken(pass, c, expected.size());
}
// The candidates are the case with each of these edits.
inline void ExpectOffers(Number pass, const Case& c, const Edits& edits,
                         std::source_location where = std::source_location::current()) {
  Cases expected;
  for (const Edit& edit : edits) edit(expected.emplace_back(ProblemOf(c)));
  ExpectCases(pass, c, expected, where);
}

inline void Set(Tensor& tensor, const std::vector<int32_t>& codes) {
  ASSERT_EQ(tensor.size(), std::ssize(codes));
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.SetInt(i, codes[static_cast<size_t>(i)]);
}
inline void Fill(Tensor& tensor, int32_t code) {
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.SetInt(i, code);
}

inline Cases Cut(const Case& c, Case (*cut)(const Case&, slice::Places),
                 const std::vector<std::vector<int64_t>>& places) {
  Cases cases;
  for (const std::vector<int64_t>& keep : places) cases.push_back(cut(c, keep));
  return cases;
}
inline Cases operator+(Cases a, const Cases& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
// What Shrink keeps of two and of three.
inline const std::vector<std::vector<int64_t>> kOfTwo{{0}, {1}, {1}, {0}};
inline const std::vector<std::vector<int64_t>> kOfThree{{0, 1}, {2},    {0},    {1},    {2},
                                                        {2},    {0, 1}, {1, 2}, {0, 2}, {0, 1}};

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_PASSES_TEST_UTIL_H_
