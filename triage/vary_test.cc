// SPDX-License-Identifier: Apache-2.0
// Which cases near a given one a subject is asked. Causes are told apart by these answers alone: an
// edit that never comes is a difference that is never seen.
#include "triage/vary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "oracles/exact/exact.h"
#include "properties/gen/gen.h"

namespace qualm::triage {
namespace {

constexpr uint64_t kSeeds = 3000;

std::vector<int32_t> CodesOf(const Tensor& tensor) {
  std::vector<int32_t> codes;
  for (int64_t i = 0; i < tensor.size(); ++i) codes.push_back(tensor.IntAt(i));
  return codes;
}
Tensor Codes(DType dtype, std::vector<int64_t> shape, const std::vector<int32_t>& codes) {
  Tensor tensor(dtype, std::move(shape));
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.SetInt(i, codes[static_cast<size_t>(i)]);
  return tensor;
}

// A linear case on which every edit of a parameter shows.
Case Base() {
  Case c;
  c.op = Op::kLinear;
  c.M = 2, c.N = 2, c.K = 3;
  c.x = Codes(DType::kU8, {2, 3}, {13, 52, 63, 74, 130, 250});
  c.w = Codes(DType::kS8, {2, 3}, {1, -2, 3, -4, 5, -120});
  c.x_q.zero_point = {10};
  c.w_q.zero_point = {0};
  c.out_q.zero_point = {100};
  c.bias_i32 = {{50, -70}};
  c.out_min = 10;
  c.out_max = 200;
  EXPECT_EQ(Validate(c), "");
  return c;
}

std::vector<Case> Near(const Case& c, uint64_t seeds = kSeeds) {
  std::vector<Case> cases;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    if (const std::optional<Case> varied = Varied(c, seed)) cases.push_back(*varied);
  }
  return cases;
}

using Asks = std::function<bool(const Case&)>;

double Share(const std::vector<Case>& cases, const Asks& asks) {
  return static_cast<double>(std::ranges::count_if(cases, asks)) /
         static_cast<double>(cases.size());
}

TEST(Reduced, HasLessOfOneThingOrOtherCodesForTheSameNumbers) {
  const Case c = Base();
  int smaller = 0, retyped = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::optional<Case> r = Reduced(c, seed);
    if (!r) continue;
    EXPECT_EQ(Validate(*r), "");
    EXPECT_EQ(r, Reduced(c, seed));
    const int less = (r->M < c.M) + (r->N < c.N) + (r->K < c.K);
    EXPECT_EQ(less + (r->x.dtype() != c.x.dtype()) + (r->out_dtype != c.out_dtype), 1);
    smaller += less;
    if (less == 0) {
      ++retyped;
      const Tensor was = exact::Evaluate(c), is = exact::Evaluate(*r);
      for (int64_t i = 0; i < was.size(); ++i)
        EXPECT_EQ(is.IntAt(i) - r->out_q.zero_point_at(0), was.IntAt(i) - c.out_q.zero_point_at(0));
    }
  }
  EXPECT_GT(smaller, 50);
  EXPECT_GT(retyped, 30);
}

// Three channels with blocks of 8 and a last one of 3.
Case InBlocks() {
  Case c = Base();
  c.M = 1, c.N = 3, c.K = 19;
  c.x = Tensor(DType::kU8, {1, 19});
  c.w = Tensor(DType::kS8, {3, 19});
  for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, static_cast<int32_t>(i));
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, static_cast<int32_t>(3 * i));
  c.bias_i32.reset();
  c.per_channel = true;
  c.w_block = 8;
  c.w_q = {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {0, 1, 2, 3, 4, 5, 6, 7, 8}};
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  EXPECT_EQ(Validate(c), "");
  return c;
}

TEST(Reduced, CutsBlocksIntoPartsThatMeanTheSame) {
  const Case c = InBlocks();
  std::set<int32_t> sizes;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const std::optional<Case> r = Reduced(c, seed);
    if (!r || r->w_block == c.w_block || r->K != c.K) continue;
    sizes.insert(r->w_block);
    EXPECT_EQ(exact::Evaluate(*r), exact::Evaluate(c));
  }
  EXPECT_EQ(sizes, (std::set<int32_t>{1, 2, 4}));
}

TEST(Varied, GrowsByWholeBlocksOfWeights) {
  std::set<int64_t> sizes;
  for (const Case& v : Near(InBlocks())) {
    EXPECT_EQ(v.w_block, 8);
    sizes.insert(v.K);
  }
  EXPECT_EQ(sizes, (std::set<int64_t>{19, 27, 35, 43}));
}

TEST(Reduced, MovesAWindowInOneOfItsSizes) {
  constexpr std::array kFields{&Window::stride_h,   &Window::stride_w, &Window::dilation_h,
                               &Window::dilation_w, &Window::pad_top,  &Window::pad_bottom,
                               &Window::pad_left,   &Window::pad_right};
  Case c;
  c.op = Op::kMaxPool;
  c.window = {.batch = 1, .in_h = 9, .in_w = 9, .in_c = 1, .kernel_h = 4, .kernel_w = 5};
  c.x = Tensor(DType::kU8, {1, 9, 9, 1});
  DeriveSizes(&c);
  ASSERT_EQ(Validate(c), "");
  std::array<int, kFields.size()> moved{};
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const std::optional<Case> r = Reduced(c, seed);
    if (!r || r->window == c.window) continue;
    EXPECT_EQ(Validate(*r), "");
    int fields = 0;
    for (size_t i = 0; i < kFields.size(); ++i) {
      const bool other = r->window.*kFields[i] != c.window.*kFields[i];
      moved[i] += other, fields += other;
    }
    EXPECT_EQ(fields, 1);
  }
  for (const int times : moved) EXPECT_GT(times, 5);
}

TEST(Varied, IsTheSameForTheSameSeedAndAProblemAlone) {
  Case c = Base();
  c.note = "not part of the problem";
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::optional<Case> varied = Varied(c, seed);
    ASSERT_TRUE(varied);
    EXPECT_EQ(varied, Varied(c, seed));
    EXPECT_EQ(varied->note, "");
    EXPECT_EQ(Validate(*varied), "");
  }
}

TEST(Varied, ChangesAFewThingsAtOnceAndEachNowAndThen) {
  const Case c = Base();
  const std::vector<Case> cases = Near(c);
  ASSERT_EQ(cases.size(), kSeeds) << "every edit of it is valid";
  const Asks grown = [&](const Case& v) { return v.M + v.N + v.K > c.M + c.N + c.K; };
  EXPECT_NEAR(Share(cases, grown), 1.0 / 3, 0.03);
  EXPECT_NEAR(Share(cases, [&](const Case& v) { return v.M > c.M; }), 1.0 / 9, 0.02);
  EXPECT_NEAR(Share(cases, [&](const Case& v) { return v.N > c.N; }), 1.0 / 9, 0.02);
  EXPECT_NEAR(Share(cases, [&](const Case& v) { return v.K > c.K; }), 1.0 / 9, 0.02);
  std::vector<Case> same_size;
  std::ranges::copy_if(cases, std::back_inserter(same_size), std::not_fn(grown));
  for (const Case& v : cases) EXPECT_TRUE(v.M >= c.M && v.N >= c.N && v.K >= c.K);
  const auto expect = [&](double share, const Asks& asks) {
    EXPECT_NEAR(Share(same_size, asks), share, 0.03);
  };
  // One of seven parameters in half of the cases; a bias half as often stays as it is, and so on.
  expect(1.0 / 14, [&](const Case& v) { return v.x_q.zero_point != c.x_q.zero_point; });
  expect(1.0 / 14, [&](const Case& v) { return v.w_q.zero_point != c.w_q.zero_point; });
  expect(1.0 / 14, [&](const Case& v) { return v.out_q.zero_point != c.out_q.zero_point; });
  expect(1.0 / 28, [&](const Case& v) { return v.x_q.scale != c.x_q.scale; });
  expect(1.0 / 28, [&](const Case& v) { return v.out_q.scale != c.out_q.scale; });
  expect(1.0 / 14, [&](const Case& v) { return v.bias_i32 != c.bias_i32; });
  expect(1.0 / 14, [&](const Case& v) { return !IsClamped(v); });
  expect(1.0 / 14, [&](const Case& v) { return v.relu; });
  expect(3.0 / 4, [&](const Case& v) { return v.x != c.x; });
  expect(1.0 / 2, [&](const Case& v) { return v.w != c.w; });
  const auto parameters = [](Case v) {
    v.x = v.w = Tensor();
    return v;
  };
  EXPECT_NEAR(Share(same_size, [&](const Case& v) { return parameters(v) == parameters(c); }), 0.51,
              0.04);
}

// A tail of channels needs more of them than an image that was cut down has.
TEST(Varied, ImagesGetMoreChannelsTermsAndImages) {
  Case c;
  c.op = Op::kConv2d;
  c.window = {.batch = 1, .in_h = 2, .in_w = 2, .in_c = 3};
  c.N = 2;
  c.x = Codes(DType::kU8, {1, 2, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  c.w = Codes(DType::kS8, {2, 1, 1, 3}, {1, -2, 3, -4, 5, -6});
  DeriveSizes(&c);
  OpenClamp(&c);
  ASSERT_EQ(Validate(c), "");
  const std::vector<Case> cases = Near(c);
  EXPECT_NEAR(Share(cases, [&](const Case& v) { return v.N > c.N; }), 1.0 / 9, 0.02);
  EXPECT_NEAR(Share(cases, [&](const Case& v) { return v.K > c.K; }), 1.0 / 9, 0.02);
  EXPECT_NEAR(Share(cases, [&](const Case& v) { return v.window.batch > 1; }), 1.0 / 9, 0.02);
}

// --- Integers -----------------------------------------------------------------------------------

// How the codes came about; several ways may give the same codes.
struct Ways {
  std::map<std::string, int> count;
  std::set<int64_t> factors, steps, places, rails;
  bool some_stay = false;
};
Ways WaysOf(const Case& c, const std::vector<int32_t>& rails, const std::vector<Case>& cases) {
  const CodeRange range = RangeOf(c.x.dtype());
  const std::vector<int32_t> before = CodesOf(c.x);
  const int64_t zero = c.x_q.zero_point_at(0);
  Ways ways;
  for (const Case& v : cases) {
    if (v.x == c.x || v.x.shape() != c.x.shape() || v.x_q != c.x_q) continue;
    const std::vector<int32_t> after = CodesOf(v.x);
    std::vector<int32_t> sorted = after, sorted_before = before;
    std::ranges::sort(sorted), std::ranges::sort(sorted_before);
    if (sorted == sorted_before) {
      ++ways.count["shuffled"];
      continue;
    }
    std::vector<size_t> differ;
    for (size_t i = 0; i < after.size(); ++i) {
      if (after[i] != before[i]) differ.push_back(i);
    }
    const int64_t by =
        differ.size() == 1 ? int64_t{after[differ[0]]} - int64_t{before[differ[0]]} : 0;
    if (std::abs(by) == 1) {
      ++ways.count["step"];
      ways.steps.insert(static_cast<int32_t>(by));
      ways.places.insert(static_cast<int64_t>(differ[0]));
      continue;
    }
    std::optional<int64_t> factor;
    for (int64_t f = -9; f <= 9; ++f) {
      bool fits = f != 1;
      for (size_t i = 0; i < after.size(); ++i)
        fits = fits &&
               after[i] == std::clamp<int64_t>(zero + f * (before[i] - zero), range.min, range.max);
      if (fits) factor = f;
    }
    if (factor) {
      ++ways.count["multiple"];
      ways.factors.insert(*factor);
      continue;
    }
    bool on_rails = true;
    for (size_t i = 0; i < after.size(); ++i)
      on_rails = on_rails && (after[i] == before[i] || std::ranges::count(rails, after[i]) > 0);
    if (on_rails) {
      ++ways.count["rails"];
      for (const size_t i : differ) ways.rails.insert(after[i]);
      ways.some_stay = ways.some_stay || differ.size() < after.size();
      continue;
    }
    ++ways.count["random"];
  }
  return ways;
}

TEST(Varied, CodesAreShuffledMovedMultipliedDrawnOrPutToTheEnds) {
  const Case c = Base();
  const std::vector<int32_t> rails{0, 255, 10, 11, 9};
  const std::vector<Case> cases = Near(c);
  const Ways ways = WaysOf(c, rails, cases);
  int total = 0;
  for (const auto& [way, count] : ways.count) total += count;
  EXPECT_EQ(ways.count.size(), 5U);
  for (const auto& [way, count] : ways.count)
    EXPECT_NEAR(static_cast<double>(count) / total, 0.2, 0.04) << way;
  EXPECT_EQ(ways.factors, (std::set<int64_t>{-2, -1, 2, 3, 5, 7}));
  EXPECT_EQ(ways.steps, (std::set<int64_t>{-1, 1}));
  EXPECT_EQ(ways.places, (std::set<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(ways.rails, (std::set<int64_t>{0, 9, 10, 11, 255}));
  EXPECT_TRUE(ways.some_stay);
  // Drawn codes reach both ends.
  int32_t least = 255, most = 0;
  for (const Case& v : cases) {
    for (const int32_t code : CodesOf(v.w)) {
      least = std::min(least, code);
      most = std::max(most, code);
    }
  }
  EXPECT_EQ(least, -128);
  EXPECT_EQ(most, 127);
}

TEST(Varied, SumsAreNotDrawnFromAllOfInt32) {
  Case c =
      CaseOver(Op::kRequantize, Codes(DType::kS32, {1, 4}, {1, 300, -4000, INT32_MAX}), DType::kU8);
  c.multiplier = {0.5f};
  ASSERT_EQ(Validate(c), "");
  const Ways ways = WaysOf(c, {INT32_MIN, INT32_MAX, 0, 1, -1}, Near(c));
  EXPECT_FALSE(ways.count.contains("random"));
  EXPECT_EQ(ways.count.size(), 4U);
  EXPECT_EQ(ways.factors, (std::set<int64_t>{-2, -1, 2, 3, 5, 7}));
}

// Every order of three codes comes, each about as often.
TEST(Varied, AShuffleGivesEveryOrder) {
  for (const bool floats : {false, true}) {
    Case c = floats
                 ? CaseOver(Op::kQuantize,
                            Tensor::Of<float>({1, 3}, std::vector<float>{32, 64, 96}), DType::kU8)
                 : CaseOver(Op::kRescale, Codes(DType::kU8, {1, 3}, {32, 64, 96}), DType::kU8);
    std::map<std::vector<double>, int> orders;
    for (const Case& v : Near(c, 2 * kSeeds)) {
      if (v.N != 3 || v.M != 1) continue;
      std::vector<double> order;
      for (int64_t i = 0; i < 3; ++i) order.push_back(floats ? v.x.FloatAt(i) : v.x.IntAt(i));
      std::vector<double> sorted = order;
      std::ranges::sort(sorted);
      if (sorted == std::vector<double>{32, 64, 96} && v.x != c.x) ++orders[order];
    }
    EXPECT_EQ(orders.size(), 5U);
    int least = INT32_MAX, most = 0;
    for (const auto& [order, count] : orders) {
      least = std::min(least, count);
      most = std::max(most, count);
    }
    EXPECT_LT(most, 2 * least) << floats;
  }
}

// --- Floats -------------------------------------------------------------------------------------

TEST(Varied, FloatsAreMultipliedMovedByUnitsOrToTheirNeighbours) {
  const std::vector<float> before{10, 100, 1000};
  const Case c = CaseOver(Op::kQuantize, Tensor::Of<float>({1, 3}, before), DType::kU8);
  std::set<float> factors, units, directions;
  std::set<std::vector<size_t>> places;
  std::map<std::string, int> count;
  for (const Case& v : Near(c)) {
    if (v.N != 3 || v.M != 1 || v.x == c.x || v.x_q != c.x_q) continue;
    std::vector<size_t> differ;
    for (size_t i = 0; i < 3; ++i) {
      if (v.x.FloatAt(static_cast<int64_t>(i)) != before[i]) differ.push_back(i);
    }
    std::vector<float> sorted(v.x.as<float>().begin(), v.x.as<float>().end());
    std::ranges::sort(sorted);
    if (sorted == before) {
      ++count["shuffled"];
      continue;
    }
    places.insert(differ);
    std::set<std::string> ways;
    for (const size_t i : differ) {
      const float old = before[i], now = v.x.FloatAt(static_cast<int64_t>(i));
      const bool neighbour =
          now == std::nextafter(old, INFINITY) || now == std::nextafter(old, -INFINITY);
      if (neighbour) {
        ways.insert("neighbour");
        directions.insert(now > old ? 1.0f : -1.0f);
      } else if (std::abs(now - old) <= 4) {
        ways.insert("unit");
        units.insert(now - old);
      } else {
        ways.insert("factor");
        factors.insert(now == old / 3 || now == old * (1.0f / 3) ? 1.0f / 3 : now / old);
      }
    }
    ASSERT_EQ(ways.size(), 1U);
    if (!ways.contains("unit")) {  // of which one may be 0
      EXPECT_TRUE(differ.size() == 1 || differ.size() == 3);
    }
    ++count[*ways.begin()];
  }
  EXPECT_EQ(factors, (std::set<float>{-1, 1.0f / 3, 0.5f, 2, 3}));
  EXPECT_EQ(units, (std::set<float>{-4, -3, -2, -1, 1, 2, 3, 4}));
  EXPECT_EQ(directions, (std::set<float>{-1, 1}));
  // All at once, or one alone; where units of 0 are drawn two.
  EXPECT_TRUE(places.contains({0, 1, 2}));
  for (const size_t i : {0, 1, 2}) EXPECT_TRUE(places.contains({i}));
  EXPECT_EQ(count.size(), 4U);
  int total = 0;
  for (const auto& [way, number] : count) total += number;
  EXPECT_NEAR(static_cast<double>(count["shuffled"]) / total, 0.29, 0.05);
  for (const char* way : {"neighbour", "unit", "factor"})
    EXPECT_NEAR(static_cast<double>(count[way]) / total, 0.235, 0.05) << way;
}

TEST(Varied, ABiasOfFloatsIsMovedByTheUnitOfItsSum) {
  Case c = Base();
  c.bias_i32.reset();
  c.bias = {{1000, 1000}};
  c.x_q.scale = {0.5f};
  c.w_q.scale = {0.25f};
  ASSERT_EQ(Validate(c), "");
  std::set<float> units;
  for (const Case& v : Near(c)) {
    const float moved = (*v.bias)[0] - 1000;
    if (v.x_q == c.x_q && moved != 0 && std::abs(moved) <= 1 && std::abs(moved) > 0.01f)
      units.insert(moved / 0.125f);
  }
  EXPECT_EQ(units, (std::set<float>{-4, -3, -2, -1, 1, 2, 3, 4}));
}

// --- Parameters ---------------------------------------------------------------------------------

struct Ends {
  int64_t low = INT32_MAX, high = INT32_MIN;
  std::set<int64_t> near;  // of the steps of one
};
Ends EndsOf(const Case& c, const std::vector<Case>& cases, QParams Case::* q) {
  Ends ends;
  const int64_t before = (c.*q).zero_point_at(0);
  for (const Case& v : cases) {
    const int64_t zero = (v.*q).zero_point_at(0);
    ends.low = std::min(ends.low, zero);
    ends.high = std::max(ends.high, zero);
    if (std::abs(zero - before) == 1) ends.near.insert(zero - before);
  }
  return ends;
}

TEST(Varied, ZeroPointsMoveByOneOrAreDrawnFromTheCodes) {
  const Case c = Base();
  const std::vector<Case> cases = Near(c);
  const std::set<int64_t> both{-1, 1};
  struct Wanted {
    QParams Case::* q;
    int64_t low, high;
  };
  for (const auto& [q, low, high] :
       {Wanted{&Case::x_q, 0, 255}, Wanted{&Case::w_q, -128, 127}, Wanted{&Case::out_q, 0, 255}}) {
    const Ends ends = EndsOf(c, cases, q);
    EXPECT_TRUE(ends.low >= low && ends.low < low + 16) << ends.low;
    EXPECT_TRUE(ends.high <= high && ends.high > high - 16) << ends.high;
    EXPECT_EQ(ends.near, both);
    size_t by_one = 0, changed = 0;
    for (const Case& v : cases) {
      const int64_t moved = (v.*q).zero_point_at(0) - (c.*q).zero_point_at(0);
      by_one += std::abs(moved) == 1;
      changed += moved != 0;
    }
    EXPECT_NEAR(static_cast<double>(by_one) / static_cast<double>(changed), 0.5, 0.12);
  }
  // Sums have no codes of their own: their zero points are those of u8 and s8.
  Case sums = CaseOver(Op::kRequantize, Codes(DType::kS32, {1, 2}, {100, 200}), DType::kU8);
  ASSERT_EQ(Validate(sums), "");
  const Ends of_x = EndsOf(sums, Near(sums), &Case::x_q);
  EXPECT_TRUE(of_x.low >= -128 && of_x.low < -100) << of_x.low;
  EXPECT_TRUE(of_x.high <= 255 && of_x.high > 230) << of_x.high;
  Case s32 = c;
  s32.out_dtype = DType::kS32;
  OpenClamp(&s32);
  const Ends of_out = EndsOf(s32, Near(s32), &Case::out_q);
  EXPECT_TRUE(of_out.low >= -128 && of_out.low < -100) << of_out.low;
  EXPECT_TRUE(of_out.high <= 255 && of_out.high > 230) << of_out.high;
}

TEST(Varied, ScalesAreMultipliedByRoundNumbersOrPowersOfTwo) {
  Case c = Base();
  c.out_q.scale = {1};
  std::set<float> round;
  size_t powers = 0;
  float least = 1, most = 1;
  for (const Case& v : Near(c)) {
    const float scale = v.out_q.scale[0];
    if (scale == 1) continue;
    const bool is_round = scale == 3 || scale == 1.0f / 3;
    if (is_round) round.insert(scale);
    powers += std::log2(scale) == std::round(std::log2(scale));
    EXPECT_TRUE(is_round || std::log2(scale) == std::round(std::log2(scale))) << scale;
    least = std::min(least, scale);
    most = std::max(most, scale);
  }
  EXPECT_EQ(round, (std::set<float>{1.0f / 3, 3}));
  EXPECT_LT(least, 0x1p-40f);
  EXPECT_GT(most, 0x1p40f);
  EXPECT_GT(powers, 0U);
}

TEST(Varied, AnOutputWithFixedParametersKeepsThem) {
  Case c = CaseOver(Op::kSoftmax, Codes(DType::kU8, {1, 3}, {1, 2, 3}), DType::kU8);
  c.out_q = FixedOutQParams(DType::kU8);
  ASSERT_EQ(Validate(c), "");
  EXPECT_EQ(Near(c).size(), kSeeds) << "an edit of them would make no valid case";
  Case table = CaseOver(Op::kTable, Codes(DType::kU8, {1, 3}, {1, 2, 3}), DType::kU8);
  EXPECT_EQ(Near(table).size(), kSeeds) << "nor would a relu, which a table does not have";
}

// --- Growing ------------------------------------------------------------------------------------

TEST(Varied, AReluComesAndGoes) {
  Case c = Base();
  EXPECT_GT(Share(Near(c, 500), [](const Case& v) { return v.relu; }), 0.03);
  c.relu = true;
  EXPECT_GT(Share(Near(c, 500), [](const Case& v) { return !v.relu; }), 0.03);
}

TEST(Varied, AConcatGrowsToo) {
  Case c = CaseOver(Op::kConcat, Codes(DType::kU8, {1, 2}, {1, 2}), DType::kU8);
  c.w = Codes(DType::kU8, {1, 1}, {3});
  c.N = 3;
  ASSERT_EQ(Validate(c), "");
  for (const Case& v : Near(c, 500)) EXPECT_TRUE(v.x.shape()[1] >= 2 && v.w.shape()[1] >= 1);
  EXPECT_GT(Share(Near(c, 500), [](const Case& v) { return v.N > 3; }), 0.05);
}

TEST(Varied, GrowsByUpToTwiceOrByThirtyTwo) {
  const Case c = CaseOver(
      Op::kRescale, Codes(DType::kU8, {3, 5}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}),
      DType::kU8);
  const std::vector<Case> cases = Near(c);
  const std::vector<int32_t> before = CodesOf(c.x);
  std::set<int64_t> rows, channels;
  for (const Case& v : cases) {
    if (v.M != 3) rows.insert(v.M - 3);
    if (v.N != 5) channels.insert(v.N - 5);
    EXPECT_EQ(v.K, 0);
  }
  EXPECT_EQ(rows, (std::set<int64_t>{1, 2, 3, 4, 8, 16, 32}));
  EXPECT_EQ(channels, (std::set<int64_t>{1, 2, 3, 4, 5, 8, 16, 32}));
  // What was there stands first; behind it are copies of any of it.
  std::set<int32_t> last;
  for (const Case& v : cases) {
    if (v.N != 6) continue;
    const std::vector<int32_t> codes = CodesOf(v.x);
    if (std::equal(codes.begin(), codes.begin() + 5, before.begin())) last.insert(codes[5]);
  }
  EXPECT_GE(last.size(), 4U);
}

TEST(Varied, ACaseWithoutElementsHasNoneToRepeat) {
  for (const auto& [m, n, k] : {std::tuple{0, 2, 2}, {2, 0, 2}, {2, 2, 0}, {0, 0, 0}}) {
    Case c;
    c.op = Op::kLinear;
    c.M = m, c.N = n, c.K = k;
    c.x = Tensor(DType::kU8, {m, k});
    c.w = Tensor(DType::kS8, {n, k});
    c.bias = std::vector<float>(static_cast<size_t>(n), 1);
    ASSERT_EQ(Validate(c), "");
    const Case integers = [&] {
      Case other = c;
      other.bias.reset();
      other.bias_i32 = std::vector<int32_t>(static_cast<size_t>(n), 1);
      return other;
    }();
    for (const Case& of : {c, integers}) {
      for (const Case& v : Near(of, 300)) {
        EXPECT_EQ(v.M == 0, m == 0);
        EXPECT_EQ(v.N == 0, n == 0);
        EXPECT_EQ(v.K == 0, k == 0);
      }
    }
  }
}

TEST(Varied, ObserversKeepTheirSizesAndWindowsTheirShape) {
  for (const Op op : {Op::kConv2d, Op::kMaxPool, Op::kChooseQParams}) {
    const Case c = gen::Draw(op, 1);
    for (const Case& v : Near(c, 300)) {
      EXPECT_EQ(Validate(v), "");
      if (op == Op::kChooseQParams) EXPECT_EQ(v.x.shape(), c.x.shape());
      Window window = v.window;
      window.batch = c.window.batch, window.in_c = c.window.in_c;
      EXPECT_EQ(window, c.window);
      EXPECT_GE(v.window.batch, c.window.batch);
      EXPECT_GE(v.N, c.N);
    }
  }
}

// A max_pool has the parameters of its input: an edit of one of them makes no valid case.
TEST(Varied, IsNothingWhereAnEditMakesNoValidCase) {
  const Case c = gen::Draw(Op::kMaxPool, 1);
  const size_t valid = Near(c, 300).size();
  EXPECT_LT(valid, 300U);
  EXPECT_GT(valid, 150U);
}

TEST(Varied, NoLargeCaseGrows) {
  for (const int64_t columns : {int64_t{1} << 16, (int64_t{1} << 16) + 1}) {
    const Case c = CaseOver(Op::kQuantize, Tensor(DType::kF32, {1, columns}), DType::kU8);
    size_t grown = 0;
    for (const Case& v : Near(c, 16)) grown += v.M > 1 || v.N > columns;
    EXPECT_EQ(grown > 0, columns == int64_t{1} << 16);
  }
  Case add = CaseOver(Op::kAdd, Tensor(DType::kU8, {1, 40000}), DType::kU8);
  add.w = add.x;
  for (const Case& v : Near(add, 8)) EXPECT_EQ(v.M * v.N, 40000) << "both operands count";
}

}  // namespace
}  // namespace qualm::triage
