// SPDX-License-Identifier: Apache-2.0
// Conventions for tests: lookup, and tests that are run for each by name.
#ifndef QUALM_ORACLES_CONVENTIONS_TEST_UTIL_H_
#define QUALM_ORACLES_CONVENTIONS_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"
#include "core/status.h"
#include "oracles/conventions/convention.h"

namespace qualm {

// The convention of this name, which must exist.
inline const Convention& Get(std::string_view name) {
  const Convention* convention = FindConvention(name);
  QUALM_CHECK(convention != nullptr);
  return *convention;
}

// Whether the convention has the operation; it may refuse cases of it.
inline bool Has(const Convention& convention, Op op) {
  return std::ranges::find(convention.ops, op) != convention.ops.end();
}

inline std::vector<std::string> NamesOfConventions() {
  std::vector<std::string> names;
  for (const Convention& convention : AllConventions()) names.push_back(convention.name);
  return names;
}

inline void Fill(Tensor& tensor, int32_t code) {
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.SetInt(i, code);
}

// The same case with outputs of this type, without clamp.
inline Case Into(Case c, DType out) {
  c.out_dtype = out;
  OpenClamp(&c);
  return c;
}

// A convolution of one image; x and w constant, unit scales, outputs of the type of x.
inline Case ConstantConv(int64_t in_h, int64_t in_w, int64_t in_c, int64_t out_c, int64_t kernel,
                         int64_t groups, int32_t x, int32_t w, DType x_dtype = DType::kU8) {
  Case c;
  c.op = Op::kConv2d;
  c.window.batch = 1;
  c.window.in_h = in_h;
  c.window.in_w = in_w;
  c.window.in_c = in_c;
  c.window.kernel_h = c.window.kernel_w = kernel;
  c.window.groups = groups;
  c.N = out_c;
  c.x = Tensor(x_dtype, {1, in_h, in_w, in_c});
  c.w = Tensor(DType::kS8, {out_c, kernel, kernel, in_c / groups});
  Fill(c.x, x);
  Fill(c.w, w);
  DeriveSizes(&c);
  c = Into(c, x_dtype);
  EXPECT_EQ(Validate(c), "");
  return c;
}

// The sum of output i before zero points are taken out.
inline int32_t Acc(std::string_view convention, const Case& c, int64_t i = 0) {
  EXPECT_EQ(Get(convention).cannot_run(c), "") << convention;
  return Get(convention).run(c).acc->IntAt(i);
}

// A parameter as the name of a test, which has letters, digits and underscores alone.
inline std::string TestName(const testing::TestParamInfo<std::string>& of) {
  std::string name = of.param;
  std::ranges::replace_if(name, [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

}  // namespace qualm

#endif  // QUALM_ORACLES_CONVENTIONS_TEST_UTIL_H_
