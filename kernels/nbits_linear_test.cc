// SPDX-License-Identifier: Apache-2.0
// Products with weights of 4 and 8 bits on every instruction set: the formulas of the header for
// codes, zero points, scales and values of all kinds; outputs alone and in a matrix; memory,
// threads, scratch, the environment of the caller, refusals; x as codes.
#include "kernels/nbits_linear.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/common/counted_new.h"
#include "kernels/common/test_support.h"

namespace qualm::kernels {
namespace {

using test::ForEachTarget;
using test::GuardedBuffer;
using test::Random;
using test::TestPool;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Problem {
  Problem(int of_bits, int64_t rows, int64_t channels, int64_t terms, int64_t of_block)
      : bits(of_bits), m(rows), n(channels), k(terms), block(of_block) {
    const auto size = [](int64_t count) { return static_cast<size_t>(count); };
    q.resize(size(n * k), 1 << (bits - 1));
    z.resize(size(n * blocks()), 1 << (bits - 1));
    scales.resize(z.size(), 1.0f);
    values.resize(size(m * k));
    codes.resize(values.size());
    x_scales.resize(size(m * blocks()), 1.0f);
  }
  int64_t blocks() const { return (k + block - 1) / block; }

  // Scales and values of so many powers of two; of the kinds of codes one has all at one end.
  void Draw(Random& random, int reach) {
    const int64_t kind = random.Between(0, 3), most = (1 << bits) - 1;
    const auto code = [&] {
      const bool end = kind == 3 || (kind == 2 && random.Between(0, 3) == 0);
      return static_cast<int>(end ? random.Between(0, 1) * most : random.Between(0, most));
    };
    for (int& each : q) each = code();
    has_zeros = random.Between(0, 3) != 0;
    if (has_zeros)
      for (int& each : z) each = code();
    const auto number = [&] {
      return (random.Between(0, 1) != 0 ? -1 : 1) * random.Scale(-reach, reach);
    };
    for (std::vector<float>* list : {&scales, &x_scales, &values})
      for (float& each : *list) each = number();
    for (int8_t& each : codes)
      each = static_cast<int8_t>(kind == 3 ? -128 : random.Between(-128, 127));
    if (random.Between(0, 1) != 0)
      for (int64_t i = 0; i < n; ++i) bias.push_back(number());
  }

  // The header's formulas, one step after the other.
  std::vector<float> Expected(bool coded) const {
    std::vector<float> y;
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t channel = 0; channel < n; ++channel) {
        float sum = 0;
        for (int64_t b = 0; b < blocks(); ++b) {
          const auto of_w = static_cast<size_t>(channel * blocks() + b);
          const auto of_x = static_cast<size_t>(row * blocks() + b);
          float part = 0;
          int64_t integer = 0;
          for (int64_t i = b * block; i < std::min(k, (b + 1) * block); ++i) {
            const int difference = q[static_cast<size_t>(channel * k + i)] - z[of_w];
            const auto at = static_cast<size_t>(row * k + i);
            integer += difference * codes[at];
            part += values[at] * (static_cast<float>(difference) * scales[of_w]);
          }
          sum += coded ? static_cast<float>(integer) * (scales[of_w] * x_scales[of_x]) : part;
        }
        y.push_back(bias.empty() ? sum : sum + bias[static_cast<size_t>(channel)]);
      }
    }
    return y;
  }

  int64_t PackedBytes(int64_t count) const { return (count * bits + 7) / 8; }
  void Put(std::vector<uint8_t>& to, int64_t row, int64_t at, int value, int64_t row_bytes) const {
    uint8_t& byte = to[static_cast<size_t>(row * row_bytes + at * bits / 8)];
    byte = static_cast<uint8_t>(bits == 8     ? value
                                : at % 2 == 0 ? (byte & 0xF0) | value
                                              : (byte & 0x0F) | value << 4);
  }
  // Codes that no weight has are the highest.
  std::vector<uint8_t> CodeBytes() const {
    const int64_t row = blocks() * PackedBytes(block);
    std::vector<uint8_t> bytes(static_cast<size_t>(n * row), 0xFF);
    for (int64_t channel = 0; channel < n; ++channel)
      for (int64_t i = 0; i < k; ++i)
        Put(bytes, channel, i, q[static_cast<size_t>(channel * k + i)], row);
    return bytes;
  }
  std::vector<uint8_t> ZeroBytes() const {
    const int64_t row = PackedBytes(blocks());
    std::vector<uint8_t> bytes(static_cast<size_t>(n * row), 0xFF);
    for (int64_t channel = 0; channel < n; ++channel)
      for (int64_t b = 0; b < blocks(); ++b)
        Put(bytes, channel, b, z[static_cast<size_t>(channel * blocks() + b)], row);
    return bytes;
  }

  int bits;
  int64_t m, n, k, block;
  bool has_zeros = false;
  std::vector<int> q, z;
  std::vector<float> scales, values, x_scales, bias;
  std::vector<int8_t> codes;
};

void ExpectSame(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(actual[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
        << i << ": " << actual[i] << ", expected " << expected[i];
  }
}

// A copy that ends, or begins, at a page which cannot be touched.
template <class T>
std::unique_ptr<GuardedBuffer<T>> Guarded(const std::vector<T>& from, bool at_start) {
  auto buffer = std::make_unique<GuardedBuffer<T>>(from.size(), at_start);
  std::ranges::copy(from, buffer->data());
  return buffer;
}

PackedNBitsLinear Packed(const Problem& p, bool at_start = false) {
  const auto codes = Guarded(p.CodeBytes(), at_start), zeros = Guarded(p.ZeroBytes(), at_start);
  const auto scales = Guarded(p.scales, at_start), bias = Guarded(p.bias, at_start);
  PackedNBitsLinear packed;
  EXPECT_EQ(PackedNBitsLinear::Pack(
                {p.bits, p.n, p.k, p.block, codes->data(), scales->data(),
                 p.has_zeros ? zeros->data() : nullptr, p.bias.empty() ? nullptr : bias->data()},
                &packed)
                .error,
            "");
  return packed;
}

std::vector<float> Product(const Problem& p, bool coded, ThreadPool* pool = nullptr,
                           bool at_start = false) {
  const PackedNBitsLinear packed = Packed(p, at_start);
  const auto values = Guarded(p.values, at_start), scales = Guarded(p.x_scales, at_start);
  const auto codes = Guarded(p.codes, at_start);
  GuardedBuffer<float> y(static_cast<size_t>(p.m * p.n), at_start);
  const MutableMatrix to{y.data(), ElementType::kF32, p.m, p.n, p.n};
  const Status status =
      coded
          ? packed.Run(ConstCodedRows{codes->data(), p.m, p.k, p.k, scales->data()}, to, {}, pool)
          : packed.Run(ConstMatrix{values->data(), ElementType::kF32, p.m, p.k, p.k}, to, {}, pool);
  EXPECT_EQ(status.error, "");
  return {y.data(), y.data() + y.size()};
}

// Output by output: a layer of one channel and one row.
std::vector<float> Alone(const Problem& p, bool coded) {
  std::vector<float> y;
  const auto cut = [](const auto& list, int64_t at, int64_t count) {
    return std::vector(list.begin() + at * count, list.begin() + (at + 1) * count);
  };
  for (int64_t row = 0; row < p.m; ++row) {
    for (int64_t channel = 0; channel < p.n; ++channel) {
      Problem one(p.bits, 1, 1, p.k, p.block);
      one.has_zeros = p.has_zeros;
      one.q = cut(p.q, channel, p.k);
      one.z = cut(p.z, channel, p.blocks());
      one.scales = cut(p.scales, channel, p.blocks());
      one.values = cut(p.values, row, p.k);
      one.codes = cut(p.codes, row, p.k);
      one.x_scales = cut(p.x_scales, row, p.blocks());
      if (!p.bias.empty()) one.bias = cut(p.bias, channel, 1);
      y.push_back(Product(one, coded)[0]);
    }
  }
  return y;
}

template <class Body>
void ForEachKind(const Body& body) {
  for (const int bits : {4, 8})
    for (const bool coded : {false, true}) body(bits, coded);
}

TEST(NBitsLinear, IsTheFormulaOnEveryTarget) {
  Random random(1);
  constexpr int64_t kBlocks[] = {16, 32, 48, 64, 128, 256};
  ForEachKind([&](int bits, bool coded) {
    for (int i = 0; i < 60; ++i) {
      Problem p(bits, random.Between(0, 11), random.Between(0, i % 8 == 0 ? 140 : 40),
                random.Between(0, 200), kBlocks[random.Between(0, 5)]);
      p.Draw(random, i % 3 == 0 ? 120 : 5);
      const std::vector<float> expected = p.Expected(coded);
      ForEachTarget([&](const std::string&) {
        ExpectSame(Product(p, coded, nullptr, i % 2 == 0), expected);
        if (i % 8 == 1) ExpectSame(Alone(p, coded), expected);
      });
    }
  });
}

// Every length of a row and every number of rows and channels that some loop treats on its own.
TEST(NBitsLinear, EverySmallSize) {
  Random random(2);
  ForEachKind([&](int bits, bool coded) {
    for (int64_t size = 1; size <= 67; ++size) {
      Problem p(bits, size % 13 + 1, size, size, size % 3 == 0 ? 32 : 16);
      p.Draw(random, 3);
      const std::vector<float> expected = p.Expected(coded);
      ForEachTarget([&](const std::string&) { ExpectSame(Product(p, coded), expected); });
    }
  });
}

// The largest sums of the largest block: codes, zero points and x at their ends.
TEST(NBitsLinear, ExtremeCodesAreExact) {
  for (const int bits : {4, 8}) {
    const int most = (1 << bits) - 1;
    for (const int64_t depth : {int64_t{1} << 16, (int64_t{1} << 16) + 5, int64_t{40}}) {
      for (const int x : {-128, -127, 127}) {
        for (const int q : {0, most}) {
          Problem p(bits, 1, 3, depth, 1 << 16);
          p.has_zeros = true;
          std::ranges::fill(p.q, q);
          std::ranges::fill(p.z, most - q);
          std::ranges::fill(p.codes, static_cast<int8_t>(x));
          std::ranges::fill(p.values, static_cast<float>(x) * 0x1p-7f);
          ForEachTarget([&](const std::string&) {
            ExpectSame(Product(p, true), p.Expected(true));
            if (depth == 40) ExpectSame(Product(p, false), p.Expected(false));
          });
        }
      }
    }
  }
}

// Numbers so short that every order of the sum gives the exact result.
TEST(NBitsLinear, IsExactInsideTheWindow) {
  Random random(3);
  ForEachKind([&](int bits, bool coded) {
    for (int i = 0; i < 20; ++i) {
      Problem p(bits, 3, 5, random.Between(1, 256), 32);
      p.Draw(random, 0);
      p.bias.clear();
      std::ranges::fill(p.scales, 0.25f);
      std::ranges::fill(p.x_scales, 4.0f);
      for (size_t j = 0; j < p.values.size(); ++j) p.values[j] = 4.0f * p.codes[j];
      std::vector<float> expected;  // at most 256 * 255 * 128 < 2^24
      for (int64_t row = 0; row < p.m; ++row) {
        for (int64_t channel = 0; channel < p.n; ++channel) {
          int64_t sum = 0;
          for (int64_t k = 0; k < p.k; ++k)
            sum += int64_t{p.codes[static_cast<size_t>(row * p.k + k)]} *
                   (p.q[static_cast<size_t>(channel * p.k + k)] -
                    p.z[static_cast<size_t>(channel * p.blocks() + k / 32)]);
          expected.push_back(static_cast<float>(sum));
        }
      }
      ForEachTarget([&](const std::string&) { ExpectSame(Product(p, coded), expected); });
    }
  });
}

// Infinities, NaN and denormals, in scales, values and bias, before the last term of a block that
// is cut short and in it.
TEST(NBitsLinear, SpecialNumbersDoWhatIeeeSays) {
  Random random(4);
  const float special[] = {kInfinity, -kInfinity, kNan,         0.0f,
                           -0.0f,     0x1p-149f,  -0x1.fp-130f, 0x1p127f};
  ForEachKind([&](int bits, bool coded) {
    for (int i = 0; i < 150; ++i) {
      Problem p(bits, 3, 9, random.Between(1, 70), 32);
      p.Draw(random, 2);
      const float number = special[i % 8];
      const int64_t into = random.Between(0, coded ? 2 : 1);
      std::vector<float>& list = into == 0   ? p.scales
                                 : into == 1 ? coded ? p.x_scales : p.values
                                             : p.bias;
      if (list.empty()) continue;
      list[static_cast<size_t>(random.Between(0, static_cast<int64_t>(list.size()) - 1))] = number;
      if (i % 5 == 0) p.q = std::vector<int>(p.q.size(), p.z[0]);  // 0 times it
      const std::vector<float> expected = p.Expected(coded);
      ForEachTarget([&](const std::string&) { ExpectSame(Product(p, coded), expected); });
    }
  });
}

// Some blocks of rows, cut panels, a narrow last one.
Problem Large(int bits, int64_t m) {
  Random random(5);
  Problem p(bits, m, 150, 3001, 64);
  p.Draw(random, 4);
  return p;
}

TEST(NBitsLinear, AnyNumberOfThreadsGivesTheSameBits) {
  ForEachKind([&](int bits, bool coded) {
    for (const int64_t m : {1, 100}) {
      const Problem p = Large(bits, m);
      const std::vector<float> expected = p.Expected(coded);
      for (const int64_t threads : {0, 1, 2, 3, 100}) {
        TestPool pool(threads);
        ForEachTarget([&](const std::string&) { ExpectSame(Product(p, coded, &pool), expected); });
      }
    }
  });
}

TEST(NBitsLinear, ScratchOfTheAskedSizeSufficesAtAnyAlignment) {
  const Problem p = Large(4, 100);
  const std::vector<float> expected = p.Expected(true);
  ForEachTarget([&](const std::string&) {
    const PackedNBitsLinear packed = Packed(p);
    const size_t bytes = packed.ScratchBytes(p.m);
    EXPECT_LT(bytes, 300u << 10);
    EXPECT_EQ(packed.ScratchBytes(0), 0u);
    EXPECT_EQ(packed.ScratchBytes(1000), packed.ScratchBytes(INT64_MAX));
    std::vector<float> y(expected.size());
    const MutableMatrix to{y.data(), ElementType::kF32, p.m, p.n, p.n};
    const ConstCodedRows x{p.codes.data(), p.m, p.k, p.k, p.x_scales.data()};
    for (const size_t slack : {0, 1, 3, 8}) {
      GuardedBuffer<uint8_t> memory(bytes + slack);
      std::fill_n(memory.data(), memory.size(), uint8_t{0xA5});
      const int64_t before = testing::allocations;
      const Status status = packed.Run(x, to, {memory.data(), bytes});
      EXPECT_EQ(testing::allocations, before);
      ASSERT_TRUE(status.ok()) << status.error;
      ExpectSame(y, expected);
      for (size_t i = bytes; i < memory.size(); ++i) ASSERT_EQ(memory[i], 0xA5);
    }
  });
}

TEST(NBitsLinear, RoundingModeOfTheCallerDoesNotMatter) {
  ForEachKind([&](int bits, bool coded) {
    const Problem p = Large(bits, 2);
    const std::vector<float> expected = p.Expected(coded);
    ForEachTarget([&](const std::string&) {
      for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
        std::fesetround(mode);
        const std::vector<float> y = Product(p, coded);
        const int after = std::fegetround();
        std::fesetround(FE_TONEAREST);
        EXPECT_EQ(after, mode);
        ExpectSame(y, expected);
      }
    });
  });
}

TEST(NBitsLinear, InvalidArgumentsAreErrors) {
  const Problem p(4, 2, 3, 20, 16);
  const std::vector<uint8_t> codes = p.CodeBytes();
  const auto pack = [&](const auto& change) {
    NBitsWeights weights{4, 3, 20, 16, codes.data(), p.scales.data()};
    change(weights);
    PackedNBitsLinear packed;
    const std::string error = PackedNBitsLinear::Pack(weights, &packed).error;
    EXPECT_TRUE(error.empty() || packed.ScratchBytes(1) == 0) << "something was packed";
    return error;
  };
  EXPECT_EQ(pack([](NBitsWeights&) {}), "");
  EXPECT_EQ(pack([](NBitsWeights& w) { w.channels = 0; }), "");
  EXPECT_NE(pack([](NBitsWeights& w) { w.bits = 2; }), "");
  EXPECT_NE(pack([](NBitsWeights& w) { w.block = 8; }), "");
  EXPECT_NE(pack([](NBitsWeights& w) { w.block = 24; }), "");
  EXPECT_NE(pack([](NBitsWeights& w) { w.block = 1 << 17; }), "");
  EXPECT_NE(pack([](NBitsWeights& w) { w.channels = -1; }), "");
  EXPECT_NE(pack([](NBitsWeights& w) { w.channels = INT64_MAX; }), "");
  EXPECT_NE(pack([](NBitsWeights& w) { w.depth = -1; }), "");
  EXPECT_NE(pack([](NBitsWeights& w) { w.depth = INT64_MAX; }), "");
  EXPECT_NE(pack([](NBitsWeights& w) { w.codes = nullptr; }), "");
  EXPECT_NE(pack([](NBitsWeights& w) { w.scales = nullptr; }), "");

  std::vector<float> y(6, -7);
  PackedNBitsLinear packed;
  const auto run = [&](const auto& change) {
    ConstMatrix x{p.values.data(), ElementType::kF32, 2, 20, 20};
    ConstCodedRows coded{p.codes.data(), 2, 20, 20, p.x_scales.data()};
    MutableMatrix to{y.data(), ElementType::kF32, 2, 3, 3};
    change(x, coded, to);
    const bool fails = !packed.Run(x, to).ok(), coded_fails = !packed.Run(coded, to).ok();
    EXPECT_EQ(y, std::vector<float>(6, fails && coded_fails ? -7.0f : 0.0f));
    y.assign(6, -7);
    return int{fails} + int{coded_fails};
  };
  using X = ConstMatrix;
  using C = ConstCodedRows;
  using Y = MutableMatrix;
  EXPECT_EQ(run([](X&, C&, Y&) {}), 2);  // nothing packed
  packed = Packed(p);
  EXPECT_EQ(run([](X&, C&, Y&) {}), 0);
  EXPECT_EQ(run([](X& x, C&, Y&) { x.type = ElementType::kS8; }), 1);
  EXPECT_EQ(run([](X&, C& x, Y&) { x.scales = nullptr; }), 1);
  EXPECT_EQ(run([](X& x, C& c, Y&) { x.columns = c.columns = 19; }), 2);
  EXPECT_EQ(run([](X& x, C& c, Y&) { x.rows = c.rows = 1; }), 2);
  EXPECT_EQ(run([](X& x, C& c, Y&) { x.data = c.codes = nullptr; }), 2);
  EXPECT_EQ(run([](X& x, C& c, Y&) { x.row_stride = c.row_stride = 19; }), 2);
  EXPECT_EQ(run([](X&, C&, Y& to) { to.type = ElementType::kS32; }), 2);
  EXPECT_EQ(run([](X&, C&, Y& to) { to.columns = 2; }), 2);
  EXPECT_EQ(run([](X&, C& c, Y& to) { c.scales = static_cast<float*>(to.data); }), 1);

  int refused = 0;
  ForEachTarget([&](const std::string&) { refused += run([](X&, C&, Y&) {}) / 2; });
  EXPECT_EQ(refused, static_cast<int>(SupportedTargets().size()) - 1);
}

// The formula of QuantizeRows, with a division of denormal scales and values that are none.
TEST(NBitsLinear, RowsBecomeCodes) {
  Random random(6);
  for (int i = 0; i < 200; ++i) {
    const int64_t m = random.Between(1, 3), k = random.Between(1, 100),
                  block = i % 2 == 0 ? 16 : 32;
    const int64_t blocks = (k + block - 1) / block;
    std::vector<float> x(static_cast<size_t>(m * k));
    const int low = i % 4 == 0 ? -149 : i % 4 == 1 ? 110 : -5;
    for (float& each : x) each = (random.Between(0, 1) != 0 ? -1 : 1) * random.Scale(low, low + 12);
    if (i % 3 == 0)
      for (const float special : {kNan, kInfinity, -kInfinity, 0.0f})
        x[static_cast<size_t>(random.Between(0, m * k - 1))] = special;
    if (i % 10 == 0) std::ranges::fill(x, 0.0f);
    std::vector<int8_t> codes;
    std::vector<float> scales;
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t b = 0; b < blocks; ++b) {
        const auto begin = x.begin() + row * k + b * block,
                   end = x.begin() + row * k + std::min(k, (b + 1) * block);
        float most = 0;
        for (auto at = begin; at != end; ++at)
          if (std::isfinite(*at)) most = std::max(most, std::fabs(*at));
        const float d = most / 127.0f;
        for (auto at = begin; at != end; ++at) {
          const float v = d < std::numeric_limits<float>::min() ? *at / d : *at * (127.0f / most);
          const float code = d == 0 || std::isnan(v) ? 0.0f : std::clamp(v, -127.0f, 127.0f);
          codes.push_back(static_cast<int8_t>(std::nearbyint(code)));
        }
        scales.push_back(d);
      }
    }
    const auto from = Guarded(x, false);
    ForEachTarget([&](const std::string&) {
      GuardedBuffer<int8_t> of_x(codes.size());
      std::vector<float> of_blocks(scales.size());
      ASSERT_TRUE(QuantizeRows({from->data(), ElementType::kF32, m, k, k}, block, of_x.data(),
                               of_blocks.data())
                      .ok());
      EXPECT_EQ(std::vector<int8_t>(of_x.data(), of_x.data() + of_x.size()), codes);
      ExpectSame(of_blocks, scales);
    });
  }
  const float x = 1;
  EXPECT_FALSE(QuantizeRows({&x, ElementType::kF32, 1, 1, 1}, 15, nullptr, nullptr).ok());
  EXPECT_FALSE(QuantizeRows({&x, ElementType::kF32, 1, 1, 1}, 16, nullptr, nullptr).ok());
  EXPECT_FALSE(QuantizeRows({&x, ElementType::kS32, 1, 1, 1}, 16, nullptr, nullptr).ok());
}

}  // namespace
}  // namespace qualm::kernels
