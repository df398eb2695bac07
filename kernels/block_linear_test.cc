// SPDX-License-Identifier: Apache-2.0
// Products of blocks on every instruction set: the formula of the header for codes and scales of
// all kinds, -128 and special scales among them; sizes, memory, threads, scratch, the environment
// of the caller, refusals.
#include "kernels/block_linear.h"

#include <gtest/gtest.h>

#include <array>
#include <cfenv>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "kernels/common/counted_new.h"
#include "kernels/common/test_support.h"

namespace qualm::kernels {
namespace {

using test::ForEachTarget;
using test::GuardedBuffer;
using test::Random;
using test::TestPool;

constexpr BlockFormat kFormats[] = {BlockFormat::kQ8_0, BlockFormat::kQ4_0, BlockFormat::kQ4_K};
constexpr uint16_t kOne = 0x3C00, kInfinity = 0x7C00, kNan = 0x7E01;

// By the definition of float16, not by its bits in float32.
float ValueOfHalf(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31)
    return fraction == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

// Rows of blocks as codes and scales, and as the bytes of the header. Of Q4_K also minima and the
// numbers of the parts. A scale of Q8_K is that of a float16 times `stretch`, a sum that of its
// codes and `added`.
struct Rows {
  Rows(BlockFormat of, int64_t row_count, int64_t block_count)
      : format(of),
        rows(row_count),
        blocks(block_count),
        codes(static_cast<size_t>(row_count * block_count * block_codes())),
        scales(static_cast<size_t>(row_count * block_count), kOne),
        minima(scales.size()),
        s(scales.size() * static_cast<size_t>(parts()), 1),
        z(s.size()),
        stretch(scales.size(), 1),
        added(codes.size() / 16) {}

  int64_t parts() const { return BlockParts(format); }
  int64_t block_codes() const { return parts() * kBlockCodes; }
  int8_t& code(int64_t row, int64_t k) {
    return codes[static_cast<size_t>(row * blocks * block_codes() + k)];
  }
  uint16_t& scale(int64_t row, int64_t block) {
    return scales[static_cast<size_t>(row * blocks + block)];
  }
  float number(size_t block) const {
    return format == BlockFormat::kQ8_K ? ValueOfHalf(scales[block]) * stretch[block]
                                        : ValueOfHalf(scales[block]);
  }
  int16_t sum(size_t sixteen) const {
    int32_t sum = added[sixteen];
    for (size_t k = 0; k < 16; ++k) sum += codes[16 * sixteen + k];
    return static_cast<int16_t>(sum);
  }
  bool bytes() const { return format == BlockFormat::kQ8_0 || format == BlockFormat::kQ8_K; }
  int32_t zero() const { return format == BlockFormat::kQ4_0 ? 8 : 0; }
  int32_t lowest() const { return bytes() ? -128 : -zero(); }
  int32_t highest() const { return bytes() ? 127 : 15 - zero(); }

  void Draw(Random& random, int largest_exponent = 30) {
    const int64_t kind = random.Between(0, 2);  // lowest codes: none, some, all
    for (int8_t& each : codes) {
      const bool low = kind == 2 || (kind == 1 && random.Between(0, 3) == 0);
      each = static_cast<int8_t>(low ? lowest() : random.Between(lowest(), highest()));
    }
    for (std::vector<uint16_t>* list : {&scales, &minima}) {
      for (uint16_t& each : *list) {
        each = static_cast<uint16_t>(random.Between(0, 1) << 15 |
                                     random.Between(0, largest_exponent) << 10 |
                                     random.Between(0, 1023));
      }
    }
    if (format == BlockFormat::kQ4_K)
      for (std::vector<uint8_t>* list : {&s, &z})
        for (uint8_t& each : *list) each = static_cast<uint8_t>(random.Between(0, 63));
    // Products with a float16 are exact. Those with two become denormal and infinite, or do not.
    const int64_t reach = kind == 0 ? 100 : 20;
    for (float& each : stretch) {
      each = std::ldexp(static_cast<float>(random.Between(1 << 12, (1 << 13) - 1)),
                        static_cast<int>(random.Between(-reach, reach)) - 12);
    }
    if (kind == 1)
      for (int16_t& each : added) each = static_cast<int16_t>(random.Between(-32768, 32767));
  }

  int64_t row_bytes() const { return blocks * BlockBytes(format); }
  std::vector<uint8_t> Bytes(int64_t gap = 0) const {
    std::vector<uint8_t> bytes;
    for (size_t at = 0; at < scales.size(); ++at) {
      if (at != 0 && static_cast<int64_t>(at) % blocks == 0)
        bytes.insert(bytes.end(), static_cast<size_t>(gap), 0x7F);
      const auto put = [&](auto number) {
        const auto raw = std::bit_cast<std::array<uint8_t, sizeof number>>(number);
        bytes.insert(bytes.end(), raw.begin(), raw.end());
      };
      const int8_t* const c = codes.data() + at * static_cast<size_t>(block_codes());
      if (format == BlockFormat::kQ8_K) {
        put(number(at));
        for (int64_t j = 0; j < block_codes(); ++j) put(c[j]);
        for (size_t j = 0; j < 16; ++j) put(sum(at * 16 + j));
        continue;
      }
      put(scales[at]);
      if (format == BlockFormat::kQ4_K) {
        put(minima[at]);
        const uint8_t *const of_s = s.data() + at * 8, *const of_z = z.data() + at * 8;
        for (const uint8_t* const of : {of_s, of_z})
          for (int j = 0; j < 4; ++j) put(static_cast<uint8_t>(of[j] + of[j + 4] / 16 * 64));
        for (int j = 4; j < 8; ++j) put(static_cast<uint8_t>(of_s[j] % 16 + of_z[j] % 16 * 16));
        for (int64_t j = 0; j < 128; ++j) {
          const int64_t k = j / 32 * 64 + j % 32;
          put(static_cast<uint8_t>(c[k] + c[k + 32] * 16));
        }
        continue;
      }
      for (int64_t j = 0; j < BlockBytes(format) - 2; ++j) {
        bytes.push_back(static_cast<uint8_t>(
            format == BlockFormat::kQ8_0 ? c[j] : (c[j] + 8) | (c[j + 16] + 8) << 4));
      }
    }
    return bytes;
  }

  BlockFormat format;
  int64_t rows, blocks;
  std::vector<int8_t> codes;  // less the zero point
  std::vector<uint16_t> scales, minima;
  std::vector<uint8_t> s, z;  // of parts
  std::vector<float> stretch;
  std::vector<int16_t> added;  // to the sum of each 16 codes
};

struct Problem {
  Problem(BlockFormat format, int64_t m, int64_t n, int64_t blocks)
      : x(ActivationsOf(format), m, blocks), w(format, n, blocks) {}
  Rows x, w;
};

// The header's formula, one step after the other.
std::vector<float> Expected(Problem& p) {
  std::vector<float> y;
  for (int64_t m = 0; m < p.x.rows; ++m) {
    for (int64_t n = 0; n < p.w.rows; ++n) {
      float lanes[4] = {};
      for (int64_t b = 0; b < p.x.blocks; ++b) {
        const auto of_x = static_cast<size_t>(m * p.x.blocks + b);
        const auto of_w = static_cast<size_t>(n * p.x.blocks + b);
        int32_t products = 0, minima = 0;
        for (int64_t k = 0; k < p.w.block_codes(); ++k) {
          const size_t part = of_w * static_cast<size_t>(p.w.parts()) + static_cast<size_t>(k / 32);
          const int64_t at = b * p.w.block_codes() + k;
          products += p.w.s[part] * p.x.code(m, at) * p.w.code(n, at);
          if (p.w.parts() > 1 && k % 16 == 0)
            minima += p.w.z[part] * p.x.sum(of_x * 16 + static_cast<size_t>(k / 16));
        }
        float term = static_cast<float>(products) * (p.w.number(of_w) * p.x.number(of_x));
        if (p.w.parts() > 1)
          term -= static_cast<float>(minima) * (ValueOfHalf(p.w.minima[of_w]) * p.x.number(of_x));
        lanes[b % 4] += term;
      }
      y.push_back(((lanes[0] + lanes[1]) + lanes[2]) + lanes[3]);
    }
  }
  return y;
}

void ExpectSame(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(actual[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
        << i << ": " << actual[i] << ", expected " << expected[i];
  }
}

ConstBlocks Of(const Rows& rows, const uint8_t* data, int64_t gap = 0) {
  return {data, rows.format, rows.rows, rows.blocks, rows.row_bytes() + gap};
}

// From and to memory that ends, or begins, at a page which cannot be touched.
std::vector<float> Matrix(const Problem& p, ThreadPool* pool = nullptr, int64_t gap = 0,
                          bool at_start = false) {
  const auto laid = [&](const Rows& rows) {
    const std::vector<uint8_t> bytes = rows.Bytes(gap);
    auto buffer = std::make_unique<GuardedBuffer<uint8_t>>(bytes.size(), at_start);
    std::ranges::copy(bytes, buffer->data());
    return buffer;
  };
  const auto x = laid(p.x), w = laid(p.w);
  PackedBlockLinear packed;
  EXPECT_EQ(PackedBlockLinear::Pack(Of(p.w, w->data(), gap), &packed).error, "");
  const int64_t n = p.w.rows, stride = n + gap;
  GuardedBuffer<float> y(p.x.rows * n == 0 ? 0 : static_cast<size_t>((p.x.rows - 1) * stride + n),
                         at_start);
  for (size_t i = 0; i < y.size(); ++i) y[i] = -77.0f;
  EXPECT_EQ(packed
                .Run(Of(p.x, x->data(), gap), {y.data(), ElementType::kF32, p.x.rows, n, stride},
                     {}, pool)
                .error,
            "");
  std::vector<float> dense;
  for (size_t i = 0; i < y.size(); ++i) {
    if (static_cast<int64_t>(i) % stride < n) {
      dense.push_back(y[i]);
    } else {
      EXPECT_EQ(y[i], -77.0f) << "a gap was written";
    }
  }
  return dense;
}

std::vector<float> Dots(const Problem& p) {
  const std::vector<uint8_t> x = p.x.Bytes(), w = p.w.Bytes();
  std::vector<float> y;
  for (int64_t m = 0; m < p.x.rows; ++m) {
    for (int64_t n = 0; n < p.w.rows; ++n) {
      const std::span<const uint8_t> row(x.data() + m * p.x.row_bytes(),
                                         static_cast<size_t>(p.x.row_bytes()));
      const std::span<const uint8_t> column(w.data() + n * p.w.row_bytes(),
                                            static_cast<size_t>(p.w.row_bytes()));
      GuardedBuffer<uint8_t> of_x(row.size()), of_w(column.size());
      of_x.Assign(row);
      of_w.Assign(column);
      float one = -77;
      EXPECT_EQ(BlockDot(p.w.format, of_w.data(), of_x.data(), p.x.blocks, &one).error, "");
      y.push_back(one);
    }
  }
  return y;
}

TEST(BlockLinear, IsTheFormulaOnEveryTarget) {
  Random random(1);
  for (const BlockFormat format : kFormats) {
    for (int i = 0; i < 40; ++i) {
      Problem p(format, random.Between(0, 14), random.Between(0, i % 8 == 0 ? 140 : 40),
                random.Between(0, 11));
      p.x.Draw(random);
      p.w.Draw(random);
      const std::vector<float> expected = Expected(p);
      const int64_t gap = random.Between(0, 3);
      ForEachTarget([&](const std::string&) {
        ExpectSame(Matrix(p, nullptr, gap, i % 2 == 0), expected);
        if (i % 8 != 0) ExpectSame(Dots(p), expected);
      });
    }
  }
}

// Every length of a row and every number of rows that some loop treats on its own.
TEST(BlockLinear, EverySmallSize) {
  Random random(2);
  for (const BlockFormat format : kFormats) {
    for (int64_t size = 1; size <= 34; ++size) {
      Problem p(format, size % 13 + 1, size, size);
      p.x.Draw(random, 15);
      p.w.Draw(random, 15);
      const std::vector<float> expected = Expected(p);
      ForEachTarget([&](const std::string&) { ExpectSame(Matrix(p), expected); });
      Problem q(format, 1, size, size);
      q.x.Draw(random, 15);
      q.w = p.w;
      const std::vector<float> of_row = Expected(q);
      ForEachTarget([&](const std::string&) { ExpectSame(Dots(q), of_row); });
    }
  }
}

// Each place of a block by itself: its code of x meets its code of w and no other.
TEST(BlockLinear, EveryPlaceMeetsItsOwn) {
  for (const BlockFormat format : kFormats) {
    const int64_t codes = 2 * Rows(format, 0, 0).block_codes();
    for (int64_t k = 0; k < codes; ++k) {
      Problem p(format, 1, 1, 2);
      for (int64_t j = 0; j < codes; ++j)
        p.w.code(0, j) = static_cast<int8_t>(p.w.lowest() + j % 15);
      p.x.code(0, k) = -128;
      const std::vector<float> expected{static_cast<float>(-128 * p.w.code(0, k))};
      ForEachTarget([&](const std::string&) {
        ExpectSame(Matrix(p), expected);
        ExpectSame(Dots(p), expected);
      });
    }
  }
}

// The largest sums of a block, of both signs, and what stands beside them in 16 bits.
TEST(BlockLinear, ExtremeCodesAreExact) {
  for (const BlockFormat format : kFormats) {
    const Rows range(format, 0, 0);
    for (const int x : {-128, -127, -1, 127}) {
      for (const int32_t w :
           {range.lowest(), range.lowest() + 1, std::max(range.lowest(), -1), 0, range.highest()}) {
        Problem p(format, 7, 33, 3);
        for (int8_t& code : p.x.codes) code = static_cast<int8_t>(x);
        for (int8_t& code : p.w.codes) code = static_cast<int8_t>(w);
        const std::vector<float> expected(7 * 33,
                                          static_cast<float>(3 * range.block_codes() * x * w));
        ForEachTarget([&](const std::string&) {
          ExpectSame(Matrix(p), expected);
          ExpectSame(Dots(p), expected);
        });
      }
    }
  }
}

// Numbers so short that every order of the sum gives the exact result.
TEST(BlockLinear, IsExactInsideTheWindow) {
  Random random(3);
  for (const BlockFormat format : kFormats) {
    for (int i = 0; i < 30; ++i) {
      Problem p(format, 3, 5, random.Between(1, 30));
      p.x.Draw(random);
      p.w.Draw(random);
      // Each of at most 30 blocks sums to at most 2^19 units of one power of two, so the total is
      // below 2^24 units and float32 holds it.
      const auto power = static_cast<uint16_t>(random.Between(1, 30) << 10);
      for (uint16_t& scale : p.x.scales) scale = power;
      for (uint16_t& scale : p.w.scales) scale = kOne;
      p.w.minima = p.w.scales;
      std::ranges::fill(p.w.s, uint8_t{1});
      for (uint8_t& each : p.w.z) each = static_cast<uint8_t>(random.Between(0, 1));
      std::ranges::fill(p.x.stretch, 1.0f);
      std::ranges::fill(p.x.added, int16_t{0});
      std::vector<float> expected;
      for (int64_t m = 0; m < p.x.rows; ++m) {
        for (int64_t n = 0; n < p.w.rows; ++n) {
          int64_t sum = 0;
          for (int64_t k = 0; k < p.x.blocks * p.w.block_codes(); ++k) {
            const auto part = static_cast<size_t>(n * p.x.blocks * p.w.parts() + k / kBlockCodes);
            const int32_t minimum = p.w.parts() > 1 ? p.w.z[part] : 0;
            sum += int64_t{p.x.code(m, k)} * (p.w.code(n, k) - minimum);
          }
          expected.push_back(std::ldexp(static_cast<float>(sum), (power >> 10) - 15));
        }
      }
      ForEachTarget([&](const std::string&) { ExpectSame(Matrix(p), expected); });
    }
  }
}

// Every float16 as a scale of weights, and of activations.
TEST(BlockLinear, EveryScale) {
  constexpr int64_t kRows = 1 << 16;
  for (const bool of_x : {false, true}) {
    Problem p(BlockFormat::kQ8_0, of_x ? kRows : 1, of_x ? 1 : kRows, 1);
    std::vector<float> expected;
    Rows& rows = of_x ? p.x : p.w;
    (of_x ? p.w : p.x).code(0, 3) = 1;
    for (int64_t half = 0; half < kRows; ++half) {
      rows.code(half, 3) = 1;
      rows.scale(half, 0) = static_cast<uint16_t>(half);
      expected.push_back(ValueOfHalf(static_cast<uint16_t>(half)) + 0.0f);
    }
    ForEachTarget([&](const std::string&) { ExpectSame(Matrix(p), expected); });
    const std::vector<uint8_t> x = p.x.Bytes(), w = p.w.Bytes();
    ForEachTarget([&](const std::string&) {
      std::vector<float> y(kRows);
      for (int64_t i = 0; i < kRows; ++i) {
        ASSERT_TRUE(BlockDot(BlockFormat::kQ8_0, w.data() + (of_x ? 0 : 34 * i),
                             x.data() + (of_x ? 34 * i : 0), 1, &y[static_cast<size_t>(i)])
                        .ok());
      }
      ExpectSame(y, expected);
    });
  }
}

TEST(BlockLinear, SpecialScalesDoWhatIeeeSays) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  struct Row {
    uint16_t first, second;  // scales of w
    int8_t code;             // of both blocks of x; those of w are 1
    float expected;
  };
  for (const Row& row : {Row{kInfinity, kOne, 1, infinity}, Row{kInfinity, kOne, -1, -infinity},
                         Row{kInfinity, kOne, 0, nan}, Row{kOne, kNan, 0, nan},
                         Row{kInfinity, kInfinity | 0x8000, 1, nan},
                         Row{kInfinity, kInfinity, 3, infinity}, Row{0, 0x8000, 5, 0}}) {
    for (const BlockFormat format : kFormats) {
      Problem p(format, 2, 3, 2);
      for (int8_t& code : p.w.codes) code = 0;
      for (int64_t n = 0; n < 3; ++n) {
        p.w.code(n, 0) = p.w.code(n, p.w.block_codes()) = 1;
        p.w.scale(n, 0) = row.first;
        p.w.scale(n, 1) = row.second;
      }
      for (int64_t m = 0; m < 2; ++m) p.x.code(m, 0) = p.x.code(m, p.w.block_codes()) = row.code;
      ForEachTarget([&](const std::string&) {
        ExpectSame(Matrix(p), std::vector<float>(6, row.expected));
        ExpectSame(Dots(p), std::vector<float>(6, row.expected));
      });
    }
  }
}

// Some blocks of rows, cut panels, a narrow last one.
Problem Large(BlockFormat format, int64_t m = 100, int64_t blocks = 130) {
  Random random(4);
  Problem p(format, m, 150, blocks / BlockParts(format) + 1);
  p.x.Draw(random);
  p.w.Draw(random);
  return p;
}

TEST(BlockLinear, AnyNumberOfThreadsGivesTheSameBits) {
  for (const BlockFormat format : kFormats) {
    for (const int64_t m : {1, 100}) {
      Problem p = Large(format, m);
      const std::vector<float> expected = Expected(p);
      for (const int64_t threads : {0, 1, 2, 3, 100}) {
        TestPool pool(threads);
        ForEachTarget([&](const std::string&) { ExpectSame(Matrix(p, &pool), expected); });
      }
    }
  }
}

TEST(BlockLinear, ScratchOfTheAskedSizeSufficesAtAnyAlignment) {
  Problem p = Large(BlockFormat::kQ8_0, 100, 80);
  const std::vector<float> expected = Expected(p);
  const std::vector<uint8_t> x = p.x.Bytes(), w = p.w.Bytes();
  ForEachTarget([&](const std::string&) {
    PackedBlockLinear packed;
    ASSERT_TRUE(PackedBlockLinear::Pack(Of(p.w, w.data()), &packed).ok());
    const size_t bytes = packed.ScratchBytes(p.x.rows);
    EXPECT_LT(bytes, 300u << 10);
    EXPECT_EQ(packed.ScratchBytes(0), 0u);
    EXPECT_EQ(packed.ScratchBytes(1000), packed.ScratchBytes(INT64_MAX));
    std::vector<float> y(expected.size());
    const MutableMatrix to{y.data(), ElementType::kF32, p.x.rows, p.w.rows, p.w.rows};
    for (const size_t slack : {0, 1, 3, 8}) {
      GuardedBuffer<uint8_t> memory(bytes + slack);
      std::fill_n(memory.data(), memory.size(), uint8_t{0xA5});
      const int64_t before = testing::allocations;
      const Status status = packed.Run(Of(p.x, x.data()), to, {memory.data(), bytes});
      EXPECT_EQ(testing::allocations, before);
      ASSERT_TRUE(status.ok()) << status.error;
      ExpectSame(y, expected);
      for (size_t i = bytes; i < memory.size(); ++i) ASSERT_EQ(memory[i], 0xA5);
    }
    GuardedBuffer<uint8_t> less(bytes - 1);  // not touched
    std::fill_n(less.data(), less.size(), uint8_t{0xC3});
    ASSERT_TRUE(packed.Run(Of(p.x, x.data()), to, {less.data(), bytes - 1}).ok());
    for (size_t i = 0; i < less.size(); ++i) ASSERT_EQ(less[i], 0xC3);
  });
}

TEST(BlockLinear, RoundingModeOfTheCallerDoesNotMatter) {
  for (const BlockFormat format : kFormats) {
    Problem p = Large(format, 5, 20);
    const std::vector<float> expected = Expected(p);
    ForEachTarget([&](const std::string&) {
      for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
        std::fesetround(mode);
        const std::vector<float> matrix = Matrix(p), dots = Dots(p);
        const int after = std::fegetround();
        std::fesetround(FE_TONEAREST);
        EXPECT_EQ(after, mode);
        ExpectSame(matrix, expected);
        ExpectSame(dots, expected);
      }
    });
  }
}

TEST(BlockLinear, InvalidArgumentsAreErrors) {
  Problem p(BlockFormat::kQ4_0, 2, 3, 1);
  const std::vector<uint8_t> x = p.x.Bytes(), w = p.w.Bytes();
  const auto pack = [&](const auto& change) {
    ConstBlocks weights = Of(p.w, w.data());
    change(weights);
    PackedBlockLinear packed;
    const std::string error = PackedBlockLinear::Pack(weights, &packed).error;
    EXPECT_TRUE(error.empty() || packed.ScratchBytes(1) == 0) << "something was packed";
    return error;
  };
  EXPECT_EQ(pack([](ConstBlocks&) {}), "");
  EXPECT_EQ(pack([](ConstBlocks& b) { b.rows = 0; }), "");
  EXPECT_NE(pack([](ConstBlocks& b) { b.rows = -1; }), "");
  EXPECT_NE(pack([](ConstBlocks& b) { b.blocks = -1; }), "");
  EXPECT_NE(pack([](ConstBlocks& b) { b.blocks = INT64_MAX; }), "");
  EXPECT_NE(pack([](ConstBlocks& b) { b.row_stride = 17; }), "");
  EXPECT_NE(pack([](ConstBlocks& b) { b.row_stride = INT64_MAX; }), "");
  EXPECT_NE(pack([](ConstBlocks& b) { b.data = nullptr; }), "");
  EXPECT_NE(pack([](ConstBlocks& b) { b.format = static_cast<BlockFormat>(4); }), "");
  EXPECT_NE(pack([](ConstBlocks& b) {
              b.format = BlockFormat::kQ8_K;
              b.row_stride = 292;
            }),
            "");
  EXPECT_FALSE(PackedBlockLinear::Pack(Of(p.w, w.data()), nullptr).ok());

  PackedBlockLinear packed;
  std::vector<float> y(6, -7);
  const auto run = [&](const auto& change) {
    ConstBlocks from = Of(p.x, x.data());
    MutableMatrix to{y.data(), ElementType::kF32, 2, 3, 3};
    change(from, to);
    const std::string error = packed.Run(from, to).error;
    EXPECT_EQ(y, std::vector<float>(6, error.empty() ? 0.0f : -7.0f));
    y.assign(6, -7);
    return error;
  };
  EXPECT_NE(run([](ConstBlocks&, MutableMatrix&) {}), "");  // nothing packed
  ASSERT_TRUE(PackedBlockLinear::Pack(Of(p.w, w.data()), &packed).ok());
  EXPECT_EQ(run([](ConstBlocks&, MutableMatrix&) {}), "");
  EXPECT_NE(run([](ConstBlocks& b, MutableMatrix&) { b.format = BlockFormat::kQ4_0; }), "");
  EXPECT_NE(run([](ConstBlocks& b, MutableMatrix&) { b.blocks = 0; }), "");
  EXPECT_NE(run([](ConstBlocks& b, MutableMatrix&) { b.rows = 1; }), "");
  EXPECT_NE(run([](ConstBlocks& b, MutableMatrix&) { b.row_stride = 33; }), "");
  EXPECT_NE(run([](ConstBlocks&, MutableMatrix& m) { m.type = ElementType::kS32; }), "");
  EXPECT_NE(run([](ConstBlocks&, MutableMatrix& m) { m.columns = 2; }), "");
  EXPECT_NE(run([](ConstBlocks&, MutableMatrix& m) { m.row_stride = 2; }), "");
  EXPECT_NE(run([](ConstBlocks&, MutableMatrix& m) { m.data = nullptr; }), "");
  EXPECT_NE(run([&](ConstBlocks& b, MutableMatrix&) { b.data = y.data(); }), "");

  float one = -7;
  const auto dot = [&](BlockFormat format, const void* a, const void* b, int64_t blocks,
                       float* to) {
    const bool ok = BlockDot(format, a, b, blocks, to).ok();
    EXPECT_EQ(one, -7);
    return ok;
  };
  EXPECT_FALSE(dot(static_cast<BlockFormat>(4), w.data(), x.data(), 1, &one));
  EXPECT_FALSE(dot(BlockFormat::kQ8_K, w.data(), x.data(), 1, &one));
  EXPECT_FALSE(dot(BlockFormat::kQ4_0, nullptr, x.data(), 1, &one));
  EXPECT_FALSE(dot(BlockFormat::kQ4_0, w.data(), nullptr, 1, &one));
  EXPECT_FALSE(dot(BlockFormat::kQ4_0, w.data(), x.data(), -1, &one));
  EXPECT_FALSE(dot(BlockFormat::kQ4_0, w.data(), x.data(), 1, nullptr));
  EXPECT_TRUE(BlockDot(BlockFormat::kQ4_0, nullptr, nullptr, 0, &one).ok());
  EXPECT_EQ(std::bit_cast<uint32_t>(one), 0u);
}

TEST(BlockLinear, RefusesAnotherTargetThanItWasPackedFor) {
  Problem p(BlockFormat::kQ8_0, 1, 1, 1);
  const std::vector<uint8_t> x = p.x.Bytes(), w = p.w.Bytes();
  PackedBlockLinear packed;
  ASSERT_TRUE(PackedBlockLinear::Pack(Of(p.w, w.data()), &packed).ok());
  float y = -7;
  int refused = 0;
  ForEachTarget([&](const std::string&) {
    refused += packed.Run(Of(p.x, x.data()), {&y, ElementType::kF32, 1, 1, 1}).ok() ? 0 : 1;
  });
  EXPECT_EQ(refused, static_cast<int>(SupportedTargets().size()) - 1);
}

}  // namespace
}  // namespace qualm::kernels
