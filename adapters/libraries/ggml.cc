// SPDX-License-Identifier: Apache-2.0
// ggml, as the npm package @node-llama-cpp/linux-x64 has it: a shared object for each instruction
// set, which ggml_plugin.cc loads in a worker.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "adapters/host/plugin_subjects.h"
#include "adapters/libraries/libraries.h"
#include "core/float_format.h"
#include "core/weight_formats.h"

namespace qualm {
namespace {

constexpr std::string_view kModule = "qualm_ggml.so";
constexpr std::string_view kInstall = "run scripts/install-ggml";

// The folder of the shared objects, as scripts/install-ggml makes it.
std::string ObjectFolder() {
  return CacheFolder() + "/ggml/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64";
}

bool IsOf(const WeightFormat& format, const Case& c) {
  for (int64_t i = 0; i < c.w.size(); ++i)
    if (!format.Has(c.w.IntAt(i))) return false;
  return true;
}

}  // namespace

std::string WhyNoGgml() {
  if (FindModule(std::string(kModule)).empty())
    return std::string(kModule) + " not found: it is built on x86-64 alone, or set " +
           "QUALM_PLUGIN_DIR to its folder";
  if (access((ObjectFolder() + "/libggml-base.so").c_str(), R_OK) != 0)
    return "the npm package @node-llama-cpp/linux-x64 is not in " + CacheFolder() +
           "/ggml: " + std::string(kInstall);
  return "";
}

EnvironmentChanges GgmlEnvironment() { return {{"QUALM_GGML_FOLDER", ObjectFolder()}}; }

std::string WhyNotInGgml(const WeightFormat* format, const Case& c) {
  constexpr int32_t kBlock = 32;
  if (c.x_block != kBlock || c.w_block != kBlock)
    return "ggml multiplies blocks of 32 by blocks of 32";
  if (format == nullptr) {
    if (c.w.dtype() != kQ4_0.dtype && c.w.dtype() != kQ8_0.dtype)
      return "ggml's weights are s8, or u4";
    format = c.w.dtype() == kQ4_0.dtype ? &kQ4_0 : &kQ8_0;
  }
  const std::string name(format->name);
  if (c.w.dtype() != format->dtype)
    return "ggml's " + name + " is asked with " + std::string(Name(format->dtype)) + " weights";
  if (std::ranges::any_of(c.w_q.zero_point, [&](int32_t z) { return z != format->zero_point; }))
    return "ggml's zero point of " + name + " is " + std::to_string(format->zero_point);
  if (!IsOf(*format, c)) {
    const auto [least, most] = std::ranges::minmax(format->values);
    return "ggml's " + name + " has " + std::to_string(format->values.size()) +
           " codes of s8, from " + std::to_string(least) + " to " + std::to_string(most);
  }
  const auto is_half = [](float scale) { return CodeOf(DType::kF16, scale).has_value(); };
  if (!std::ranges::all_of(c.x_q.scale, is_half)) return "ggml's scales of x are f16";
  if (format->scales == BlockScales::kHalf && !std::ranges::all_of(c.w_q.scale, is_half))
    return "ggml's scales are f16";
  const auto is_power = [](float scale) { return PowerOf(scale).has_value(); };
  if (format->scales == BlockScales::kPowers && !std::ranges::all_of(c.w_q.scale, is_power))
    return "ggml's scales of " + name + " are powers of two from 2^-128 to 2^126";
  return "";
}

Case InsideGgml(const WeightFormat& format, const Case& c) {
  if (c.op != Op::kLinear || c.w_block == 0 || c.x_block == 0) return c;
  Case to = ProblemOf(c);
  // The numbers of the weights, as large as the format has them.
  std::vector<int64_t> numbers;
  int64_t largest = 1;
  for (int64_t i = 0; i < c.w.size(); ++i) {
    const size_t entry = WEntry(c, i / c.K, i % c.K);
    numbers.push_back(int64_t{c.w.IntAt(i)} - c.w_q.zero_point[entry]);
    largest = std::max(largest, std::abs(numbers.back()));
  }
  const auto has = [&](int64_t number) {
    return std::ranges::find(format.values, number) != format.values.end();
  };
  const int64_t most = std::abs(int64_t{*std::ranges::max_element(
      format.values, {}, [](int8_t value) { return std::abs(int{value}); })});
  if (!std::ranges::all_of(numbers, has)) {
    for (int64_t& number : numbers) {
      number = *std::ranges::min_element(format.values, {}, [&](int8_t value) {
        return std::abs(value * largest - number * most);
      });
    }
  }
  to.w = Tensor(format.dtype, c.w.shape());
  for (int64_t i = 0; i < to.w.size(); ++i)
    to.w.SetInt(i, static_cast<int32_t>(numbers[static_cast<size_t>(i)]));
  std::ranges::fill(to.w_q.zero_point, format.zero_point);
  if (format.scales == BlockScales::kPowers) {
    for (float& scale : to.w_q.scale)
      scale = std::ldexp(1.0f, std::clamp(std::ilogb(scale), kLeastPower, kMostPower));
  }
  return to;
}

}  // namespace qualm
