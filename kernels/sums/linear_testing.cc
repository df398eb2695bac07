// SPDX-License-Identifier: Apache-2.0
#include "kernels/sums/linear_testing.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "kernels/targets.h"

namespace qualm::kernels::testing {
namespace {

bool IsByte(ElementType type) { return type == ElementType::kU8 || type == ElementType::kS8; }

__int128 Multiply(__int128 a, __int128 b) {
  // Not __builtin_mul_overflow: for it clang calls __muloti4, which libgcc does not have.
  using Natural = unsigned __int128;
  const auto magnitude = [](__int128 v) { return v < 0 ? -static_cast<Natural>(v) : Natural(v); };
  constexpr Natural kMost = ~Natural{0} >> 1;
  if (b != 0 && magnitude(a) > kMost / magnitude(b)) {
    throw std::overflow_error("product needs > 128 bits");
  }
  return a * b;
}

__int128 ShiftLeft(__int128 a, int bits) {
  if (a == 0) return 0;
  if (bits > 125) throw std::overflow_error("shift needs > 128 bits");
  return Multiply(a, static_cast<__int128>(1) << bits);
}

// value = mantissa * 2^exponent, mantissa odd or 0.
struct Dyadic {
  __int128 mantissa = 0;
  int exponent = 0;
};

Dyadic Exactly(float value) {
  if (value == 0) return {};
  int exponent = 0;
  int64_t mantissa = static_cast<int64_t>(std::ldexp(std::frexp(value, &exponent), 24));
  exponent -= 24;
  while (mantissa % 2 == 0) mantissa /= 2, ++exponent;
  return {mantissa, exponent};
}

// numerator / denominator to the nearest integer, ties to even. denominator > 0.
__int128 RoundedQuotient(__int128 numerator, __int128 denominator) {
  __int128 floor = numerator / denominator;
  __int128 rest = numerator % denominator;
  if (rest < 0) rest += denominator, --floor;
  const __int128 other = denominator - rest;
  if (rest > other || (rest == other && floor % 2 != 0)) ++floor;
  return floor;
}

// sum * sx * sw + bias.
Dyadic RealValue(const Problem& p, __int128 sum, int64_t channel) {
  const size_t c = static_cast<size_t>(channel);
  const Dyadic sx = Exactly(p.x_scale);
  const Dyadic sw = Exactly(p.w_scale.size() == 1 ? p.w_scale[0] : p.w_scale[c]);
  Dyadic value = {Multiply(Multiply(sum, sx.mantissa), sw.mantissa), sx.exponent + sw.exponent};
  if (p.bias.empty() || p.bias[c] == 0) return value;
  const Dyadic bias = Exactly(p.bias[c]);
  if (value.mantissa == 0) return bias;
  const int exponent = std::min(value.exponent, bias.exponent);
  value.mantissa = ShiftLeft(value.mantissa, value.exponent - exponent) +
                   ShiftLeft(bias.mantissa, bias.exponent - exponent);
  value.exponent = exponent;
  return value;
}

int32_t ExpectedFloat(const Problem& p, __int128 sum, int64_t channel) {
  const Dyadic value = RealValue(p, sum, channel);
  // The conversion rounds half to even; scaling by a power of two is exact within the normal range.
  const float mantissa = static_cast<float>(value.mantissa);
  const float result = std::ldexp(mantissa, value.exponent);
  if (result != 0 && (std::fabs(result) < FLT_MIN || std::isinf(result))) {
    throw std::overflow_error("outside the normal float32 range");
  }
  return std::bit_cast<int32_t>(p.range.relu && result < 0 ? 0.0f : result);
}

int32_t Load(ElementType type, const uint8_t* from) {
  if (type == ElementType::kU8) return *from;
  if (type == ElementType::kS8) return static_cast<int8_t>(*from);
  int32_t code = 0;
  std::memcpy(&code, from, sizeof(code));
  return code;
}

// A scale with a full 24-bit mantissa, or a short one.
float AnyScale(Choices& choices, bool full_mantissa) {
  const int64_t mantissa =
      full_mantissa ? choices.Between(1 << 23, (1 << 24) - 1) : choices.Between(1, 15);
  return std::ldexp(static_cast<float>(mantissa),
                    static_cast<int>(choices.Between(-10, 0)) - (full_mantissa ? 24 : 0));
}

}  // namespace

size_t SizeOf(ElementType type) { return IsByte(type) ? 1 : 4; }

size_t Elements(int64_t rows, int64_t columns, int64_t gap) {
  if (rows == 0 || columns == 0) return 0;
  return static_cast<size_t>((rows - 1) * (columns + gap) + columns);
}

void Spread(const std::vector<int32_t>& codes, int64_t rows, int64_t columns, int64_t gap,
            uint8_t* to) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      to[i * (columns + gap) + j] =
          static_cast<uint8_t>(codes[static_cast<size_t>(i * columns + j)]);
    }
  }
}

std::vector<int32_t> Collect(ElementType type, int64_t columns, int64_t gap, uint8_t poison,
                             const GuardedBytes& y) {
  const size_t element = SizeOf(type);
  const size_t stride = static_cast<size_t>(columns + gap);
  std::vector<int32_t> outputs;
  size_t spoilt = 0;
  for (size_t i = 0; i < y.size() / element; ++i) {
    const uint8_t* at = y.data() + i * element;
    if (i % stride < static_cast<size_t>(columns)) {
      outputs.push_back(Load(type, at));
    } else {
      spoilt += std::any_of(at, at + element, [&](uint8_t byte) { return byte != poison; });
    }
  }
  EXPECT_EQ(spoilt, 0u) << "elements between output rows were written";
  return outputs;
}

GuardedBytes::GuardedBytes(size_t size, uint8_t fill) : size_(size) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t pages = std::max<size_t>((size + page - 1) / page, 1);
  mapping_size_ = (pages + 2) * page;
  mapping_ = mmap(nullptr, mapping_size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) std::abort();
  uint8_t* begin = static_cast<uint8_t*>(mapping_) + page;
  if (mprotect(begin, pages * page, PROT_READ | PROT_WRITE) != 0) std::abort();
  data_ = begin + pages * page - size;
  std::memset(data_, fill, size);
}

GuardedBytes::~GuardedBytes() { munmap(mapping_, mapping_size_); }

void GuardedBytes::MakeReadOnly() {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (mprotect(static_cast<uint8_t*>(mapping_) + page, mapping_size_ - 2 * page, PROT_READ) != 0) {
    std::abort();
  }
}

int32_t LowestCode(ElementType type) {
  return type == ElementType::kU8 ? 0 : type == ElementType::kS8 ? -128 : INT32_MIN;
}

int32_t HighestCode(ElementType type) {
  return type == ElementType::kU8 ? 255 : type == ElementType::kS8 ? 127 : INT32_MAX;
}

void Fill(Choices& choices, Data data, ElementType type, bool weights,
          std::vector<int32_t>& codes) {
  const int32_t low = LowestCode(type);
  const int32_t high = HighestCode(type);
  for (int32_t& code : codes) {
    switch (data) {
      case Data::kRandom: code = static_cast<int32_t>(choices.Between(low, high)); break;
      case Data::kHighLow: code = weights ? low : high; break;
      case Data::kLowLow: code = low; break;
      case Data::kExtremes: code = choices.OneOf({low, low + 1, high - 1, high}); break;
      case Data::kZeroHeavy:
        code = choices.OneIn(8) ? static_cast<int32_t>(choices.Between(low, high)) : 0;
        break;
    }
  }
}

void ChooseRealParameters(Choices& choices, const std::vector<__int128>& sums, bool per_channel,
                          bool full_mantissas, Problem& p) {
  p.x_scale = AnyScale(choices, full_mantissas);
  p.w_scale.resize(per_channel ? static_cast<size_t>(p.n) : 1);
  for (float& scale : p.w_scale) scale = AnyScale(choices, full_mantissas);
  double largest = 1;
  for (const __int128 sum : sums) {
    largest = std::max(largest, std::fabs(static_cast<double>(sum)));
  }
  const double unit = double{p.x_scale} * double{p.w_scale[0]};
  if (p.y_type != ElementType::kS32 && p.bias_i32.empty() && choices.OneIn(2)) {
    for (int64_t j = 0; j < p.n; ++j) {
      const double fraction = static_cast<double>(choices.Between(-1000, 1000)) / 1000;
      p.bias.push_back(static_cast<float>(fraction * largest * unit));
    }
  }
  const double codes = static_cast<double>(choices.OneOf({1, 100, 300}));
  p.y_scale = static_cast<float>(largest * unit / codes);
  if (!full_mantissas) p.y_scale = std::exp2(std::round(std::log2(p.y_scale)));
  p.y_zero = choices.OneOf({0, 7, 128, 255, -128, 1000, -1000});
  p.range.relu = choices.OneIn(4);
  if (choices.OneIn(4) && p.y_type != ElementType::kF32) {
    p.range.min = LowestCode(p.y_type) / 2 + 3;
    p.range.max = HighestCode(p.y_type) / 2 + 5;
  }
}

std::string Problem::Describe() const {
  const auto name = [](ElementType type) {
    const char* const names[] = {"u8", "s8", "s32", "f32"};
    return std::string(names[static_cast<int>(type)]);
  };
  const auto first = [](const auto& values) {
    return values.empty() ? std::string("none")
                          : std::to_string(values[0]) + "(" + std::to_string(values.size()) + ")";
  };
  return "M=" + std::to_string(m) + " N=" + std::to_string(n) + " K=" + std::to_string(k) + " " +
         name(x_type) + "*" + name(w_type) + "->" + name(y_type) + " zx=" + std::to_string(x_zero) +
         " zw=" + first(w_zero) + " sx=" + std::to_string(x_scale) + " sw=" + first(w_scale) +
         " sy=" + std::to_string(y_scale) + " zy=" + std::to_string(y_zero) +
         " bias=" + first(bias) + " bias_i32=" + first(bias_i32) + (range.relu ? " relu" : "") +
         " gaps=" + std::to_string(x_gap) + "," + std::to_string(w_gap) + "," +
         std::to_string(y_gap);
}

std::vector<__int128> CorrectedSums(const Problem& p) {
  std::vector<__int128> sums;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      const int64_t zw = p.w_zero[p.w_zero.size() == 1 ? 0 : static_cast<size_t>(j)];
      __int128 sum = p.bias_i32.empty() ? 0 : p.bias_i32[static_cast<size_t>(j)];
      for (int64_t k = 0; k < p.k; ++k) {
        const int64_t x = p.x[static_cast<size_t>(i * p.k + k)];
        const int64_t w = p.w[static_cast<size_t>(j * p.k + k)];
        sum += (x - p.x_zero) * (w - zw);  // < 2^63: both factors are below 2^31 + 2^8
      }
      sums.push_back(sum);
    }
  }
  return sums;
}

int32_t ExpectedOutput(const Problem& p, __int128 sum, int64_t channel) {
  if (p.y_type == ElementType::kF32) return ExpectedFloat(p, sum, channel);
  __int128 code = sum;
  int64_t low = std::max(p.range.min, LowestCode(p.y_type));
  const int64_t high = std::min(p.range.max, HighestCode(p.y_type));
  if (p.y_type == ElementType::kS32) {
    if (p.range.relu) low = std::max<int64_t>(low, 0);
  } else {
    const Dyadic value = RealValue(p, sum, channel);
    const Dyadic sy = Exactly(p.y_scale);
    const int shift = value.exponent - sy.exponent;
    code = RoundedQuotient(ShiftLeft(value.mantissa, std::max(shift, 0)),
                           ShiftLeft(sy.mantissa, std::max(-shift, 0))) +
           p.y_zero;
    if (p.range.relu) low = std::max<int64_t>(low, p.y_zero);
  }
  return static_cast<int32_t>(std::min<__int128>(std::max<__int128>(code, low), high));
}

std::vector<int32_t> ExpectedOutputs(const Problem& p) {
  const std::vector<__int128> sums = CorrectedSums(p);
  std::vector<int32_t> outputs;
  for (size_t i = 0; i < sums.size(); ++i) {
    outputs.push_back(ExpectedOutput(p, sums[i], static_cast<int64_t>(i) % p.n));
  }
  return outputs;
}

int FloatRoundingMode() {
  const volatile float one = 1.0f;
  const volatile float little = 0x1.8p-24f;  // 3/4 of an ulp of 1
  const bool up = one + little > one;
  const bool down = -one - little < -one;
  if (up && down) return FE_TONEAREST;
  return up ? FE_UPWARD : down ? FE_DOWNWARD : FE_TOWARDZERO;
}

LinearParams ParamsOf(const Problem& p, const uint8_t* w) {
  return {.weights = {w, p.w_type, p.n, p.k, p.k + p.w_gap},
          .input_type = p.x_type,
          .x_scale = p.x_scale,
          .x_zero_point = p.x_zero,
          .w_scale = p.w_scale,
          .w_zero_point = p.w_zero,
          .bias = p.bias,
          .bias_i32 = p.bias_i32,
          .output_type = p.y_type,
          .y_scale = p.y_scale,
          .y_zero_point = p.y_zero,
          .range = p.range};
}

Status PackProblem(const Problem& p, PackedLinear* packed) {
  GuardedBytes w(Elements(p.n, p.k, p.w_gap), 0x5A);
  Spread(p.w, p.n, p.k, p.w_gap, w.data());
  w.MakeReadOnly();
  return PackedLinear::Pack(ParamsOf(p, w.data()), packed);
}

std::vector<int32_t> RunProblem(const Problem& p, uint8_t poison) {
  PackedLinear packed;
  const Status packing = PackProblem(p, &packed);
  EXPECT_TRUE(packing.ok()) << packing.error;

  GuardedBytes x(Elements(p.m, p.k, p.x_gap), 0x5A);
  Spread(p.x, p.m, p.k, p.x_gap, x.data());
  x.MakeReadOnly();
  const GuardedBytes y(Elements(p.m, p.n, p.y_gap) * SizeOf(p.y_type), poison);
  const Status status = packed.Run({x.data(), p.x_type, p.m, p.k, p.k + p.x_gap},
                                   {y.data(), p.y_type, p.m, p.n, p.n + p.y_gap});
  EXPECT_TRUE(status.ok()) << status.error;
  return Collect(p.y_type, p.n, p.y_gap, poison, y);
}

void FillOrdinary(Choices& choices, int64_t k, std::vector<int32_t>& weights) {
  for (size_t i = 0; i < weights.size(); ++i) {
    const int64_t panels = static_cast<int64_t>(i) / k / 48;  // of any target, about
    int64_t w = 0;
    for (int64_t term = 0; term < 4; ++term) w += choices.Between(-32, 31);
    if (panels % 4 == 1) w = choices.Between(-64, 64);
    if (panels % 4 == 2) w = choices.OneOf({-128, 127});
    weights[i] = static_cast<int32_t>(std::clamp<int64_t>(w, -128, 127));
  }
}

void ExpectExactEverywhere(const Problem& p) {
  const std::vector<int32_t> expected = ExpectedOutputs(p);
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    const std::vector<int32_t> actual = RunProblem(p);
    ASSERT_EQ(actual.size(), expected.size()) << target << ": " << p.Describe();
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(actual[i], expected[i])
          << target << " row " << static_cast<int64_t>(i) / p.n << " channel "
          << static_cast<int64_t>(i) % p.n << ": " << p.Describe();
    }
  }
}

}  // namespace qualm::kernels::testing
