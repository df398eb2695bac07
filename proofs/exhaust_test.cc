// SPDX-License-Identifier: Apache-2.0
#include "proofs/exhaust.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>

#include "adapters/registry.h"
#include "core/enclosure.h"
#include "core/forwarding_subject.h"
#include "core/rng.h"
#include "core/status.h"
#include "core/text_test_util.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/exact.h"
#include "proofs/fast_codes.h"

namespace qualm::proofs {
namespace {

Case Quantize(float scale, int32_t zero_point = 0, DType dtype = DType::kU8) {
  Case c;
  c.op = Op::kQuantize;
  c.x = Tensor(DType::kF32, {0});
  c.out_q = {{scale}, {zero_point}};
  c.out_dtype = dtype;
  c.out_min = RangeOf(dtype).min;
  c.out_max = RangeOf(dtype).max;
  return c;
}

Case Requantize(float multiplier, int32_t zero_point = 0) {
  Case c = Quantize(1, zero_point);
  c.op = Op::kRequantize;
  c.x = Tensor(DType::kS32, {0});
  c.multiplier = {multiplier};
  return c;
}

Case OnCodes(Op op, DType dtype = DType::kU8) {
  Case c = Quantize(0.05f, 3, dtype);
  c.op = op;
  c.x = Tensor(dtype, {0});
  c.x_q = {{0.031f}, {7}};
  if (HasTwoInputs(op)) {
    c.w = Tensor(dtype, {0});
    c.w_q = {{0.017f}, {-5}};
  }
  return c;
}

Case Quads() {
  Case c = Quantize(1, 0, DType::kS32);
  c.op = Op::kLinear;
  c.K = 2;
  c.x = Tensor(DType::kU8, {0});
  c.w = Tensor(DType::kS8, {0});
  return c;
}

float RandomScale(Rng& rng) {
  const auto exponent = static_cast<int>(rng.Between(-40, 20));
  const auto mantissa = static_cast<float>(rng.Between(1 << 23, (1 << 24) - 1));
  return std::ldexp(rng.Chance(1, 4) ? 1.0f : mantissa, exponent);
}

std::unique_ptr<Subject> Make(const std::string& name) {
  static const bool registered = (RegisterAllSubjects(), true);
  EXPECT_TRUE(registered);
  return SubjectRegistry::Get().Make(name);
}

// A window of the 2^32 inputs around those whose outputs are the middle codes.
Range Around(const Domain& domain, int32_t n, uint64_t half) {
  const uint64_t middle = std::clamp(domain.Guess(n), half, domain.size() - half);
  return {middle - half, middle + half};
}

// A subject that is right except on one input.
class WrongAt : public ForwardingSubject {
 public:
  WrongAt(std::unique_ptr<Subject> inner, uint32_t bits)
      : ForwardingSubject(*inner), bits_(bits), inner_(std::move(inner)) {}
  Outcome Run(const Case& c, const RunContext& context) override {
    Outcome outcome = ForwardingSubject::Run(c, context);
    for (int64_t i = 0; i < c.x.size(); ++i) {
      if (c.x.BitsAt(i) == bits_) outcome.y.SetInt(i, outcome.y.IntAt(i) ^ 1);
    }
    return outcome;
  }

 protected:
  uint32_t bits_;

 private:
  std::unique_ptr<Subject> inner_;
};

TEST(Domain, NumbersFloatsInTheirOrder) {
  const Domain domain(Quantize(1));
  ASSERT_EQ(domain.size(), uint64_t{1} << 32);
  const auto at = [&](uint64_t number) { return domain.Alone(number).first.x.FloatAt(0); };
  const auto ranges = domain.Rising();
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_TRUE(std::isnan(at(ranges[0].first)) && std::isnan(at(ranges[0].second)));
  EXPECT_EQ(at(ranges[1].first), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(at(ranges[1].second), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(at(ranges[2].first)) && std::isnan(at(ranges[2].second)));
  EXPECT_EQ(std::bit_cast<uint32_t>(at((uint64_t{1} << 31) - 1)), 0x8000'0000u);
  EXPECT_EQ(std::bit_cast<uint32_t>(at(uint64_t{1} << 31)), 0u);
  // Every bit pattern once: a whole chunk beside single inputs, across both zeros.
  const Case chunk = domain.At((uint64_t{1} << 31) - 100, 200);
  for (int64_t i = 0; i < 200; ++i) {
    const float alone = at((uint64_t{1} << 31) - 100 + static_cast<uint64_t>(i));
    EXPECT_EQ(chunk.x.BitsAt(i), std::bit_cast<uint32_t>(alone));
    if (i > 0) {
      EXPECT_LE(chunk.x.FloatAt(i - 1), chunk.x.FloatAt(i));
    }
  }
}

TEST(Domain, EveryQuadComesOnce) {
  const Domain domain(Quads());
  const auto [c, at] = domain.Alone(domain.size() - 1);
  EXPECT_EQ(at, 0);
  EXPECT_EQ(c.x.IntAt(0), 255);
  EXPECT_EQ(c.x.IntAt(1), 255);
  EXPECT_EQ(c.w.IntAt(0), 127);
  EXPECT_EQ(c.w.IntAt(1), 127);
  // Quads of drawn numbers, found again in their granule's case.
  Rng rng(3);
  for (int i = 0; i < 20; ++i) {
    const uint64_t number = rng.Below(domain.size());
    const uint64_t begin = number / domain.granule() * domain.granule();
    const Case granule = domain.At(begin, domain.granule());
    const auto [alone, unused] = domain.Alone(number);
    const auto index = static_cast<int64_t>(number - begin);
    EXPECT_EQ(exact::Evaluate(granule).IntAt(index), exact::Evaluate(alone).IntAt(0));
  }
}

TEST(Domain, SaysWhatItCannotEnumerate) {
  const auto refused = [](Case c) { return Refusal([&] { Domain{c}; }); };
  Case channels = Quantize(1);
  channels.per_channel = true;
  EXPECT_EQ(refused(channels),
            "per_channel: is true, expected one list entry (each channel by itself)");
  Case pool;
  pool.op = Op::kMaxPool;
  EXPECT_TRUE(refused(pool).starts_with("op: is max_pool, expected"));
  Case wide = Quads();
  wide.N = 1;
  wide.K = 3;
  wide.w = Tensor(DType::kS8, {1, 3});
  EXPECT_EQ(refused(wide), "K: is 3, expected 2");
  Case words = Quads();
  words.x = Tensor(DType::kS16, {0});
  EXPECT_EQ(refused(words), "x_dtype: certificates of linear know no codes of 16 bits");
  Case negative = Quantize(-1);
  EXPECT_FALSE(refused(negative).empty());
}

// The steps against the naive oracle in rationals, on both sides of each.
TEST(Reference, StepsAreThoseOfTheRationals) {
  Rng rng(7);
  for (int i = 0; i < 30; ++i) {
    const auto zero_point = static_cast<int32_t>(rng.Between(-300, 300));
    const float scale = RandomScale(rng);
    for (const Case& c : {Quantize(scale, zero_point), Requantize(scale, zero_point)}) {
      const Domain domain(c);
      Reference reference(domain, {});
      for (const Steps& steps : reference.StepsOfRanges()) {
        std::vector<uint64_t> numbers;
        for (size_t s = 1; s < steps.size(); ++s) {
          numbers.push_back(steps[s].start - 1);
          numbers.push_back(steps[s].start);
        }
        if (numbers.empty()) continue;
        const Tensor y = exact::EvaluateRational(domain.At(numbers));
        for (size_t s = 1; s < steps.size(); ++s) {
          const auto at = static_cast<int64_t>(2 * (s - 1));
          ASSERT_EQ(y.IntAt(at), steps[s - 1].value) << Describe(c);
          ASSERT_EQ(y.IntAt(at + 1), steps[s].value) << Describe(c);
        }
      }
    }
  }
}

// Doubles decide only where their error allows it: they leave the rest to the oracle.
TEST(Nearest, NeverDecidesWrong) {
  Rng rng(11);
  for (int i = 0; i < 200; ++i) {
    Case c = OnCodes(rng.Chance(1, 2)   ? Op::kAdd
                     : rng.Chance(1, 2) ? Op::kMul
                                        : Op::kSub,
                     rng.Chance(1, 2) ? DType::kU8 : DType::kS8);
    c.x_q.scale = {RandomScale(rng)};
    c.w_q.scale = {RandomScale(rng)};
    c.out_q.scale = {rng.Chance(1, 2) ? c.x_q.scale[0] * 2 : RandomScale(rng)};
    if (rng.Chance(1, 8)) c.x_q.zero_point = {INT32_MIN};
    const Domain domain(c);
    const uint64_t first = rng.Below(domain.size() - 512);
    const Case part = domain.At(first, 512);
    std::vector<uint8_t> codes(512);
    const std::vector<uint32_t> open = Nearest(part, part.x.bytes(), part.w.bytes(), codes);
    const Tensor y = exact::Evaluate(part);
    for (uint32_t k = 0; k < 512; ++k) {
      if (std::ranges::binary_search(open, k)) continue;
      ASSERT_EQ(codes[k], y.bytes()[k]) << Describe(c) << " " << domain.TextOf(first + k);
    }
  }
}

TEST(Nearest, LeavesTiesOpen) {
  const Domain domain(Quantize(1));
  const Case part = domain.At(Around(domain, 5, 8).first, 16);
  std::vector<uint8_t> codes(16);
  const std::vector<uint32_t> open = Nearest(part, part.x.bytes(), part.w.bytes(), codes);
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(part.x.FloatAt(open[0]), 4.5f);
}

// Both engines, and both references of the full sweep, on the native kernels of every target.
TEST(Exhaust, EnginesAgreeOnNativeKernels) {
  Rng rng(5);
  for (const std::string& name : SubjectRegistry::Get().Expand((Make("native"), "native@all"))) {
    const auto subject = Make(name);
    for (int i = 0; i < 6; ++i) {
      const auto zero_point = static_cast<int32_t>(rng.Between(0, 255));
      for (const Case& c :
           {Quantize(RandomScale(rng), zero_point), Requantize(RandomScale(rng), zero_point)}) {
        const Domain domain(c);
        Reference reference(domain, {});
        const Tally steps = BySteps(domain, reference, *subject);
        EXPECT_EQ(steps.failed, "");
        EXPECT_EQ(steps.wrong, 0u) << name << Describe(c);
        EXPECT_EQ(steps.judged, domain.size());
        const Range range = Around(domain, 100, 50000);
        for (const bool each : {false, true}) {
          FullOptions options;
          options.each = each;
          const Tally full = InFull(domain, reference, *subject, range, options);
          EXPECT_EQ(full.failed, "");
          EXPECT_EQ(full.wrong, 0u) << name << Describe(c);
          EXPECT_EQ(full.judged, 100000u);
        }
      }
    }
  }
}

TEST(Exhaust, EveryOperationHasItsDomain) {
  const auto subject = Make("native");
  Case dequantize = OnCodes(Op::kDequantize);
  dequantize.out_q = {};
  dequantize.out_dtype = DType::kF32;
  dequantize.out_min = INT32_MIN;
  dequantize.out_max = INT32_MAX;
  Case linear = OnCodes(Op::kLinear);
  linear.K = 2;
  linear.N = 3;
  linear.w = Tensor::Of<int8_t>({3, 2}, std::vector<int8_t>{127, 127, -128, -128, 5, -7});
  const std::vector<std::pair<Case, uint64_t>> cases{{dequantize, 256},
                                                     {OnCodes(Op::kRescale, DType::kS8), 256},
                                                     {OnCodes(Op::kTable), 256},
                                                     {OnCodes(Op::kAdd), 65536},
                                                     {OnCodes(Op::kSub, DType::kS8), 65536},
                                                     {OnCodes(Op::kMul), 65536},
                                                     {linear, 3 * 65536}};
  for (const auto& [c, size] : cases) {
    const Domain domain(c);
    ASSERT_EQ(domain.size(), size) << Describe(c);
    Reference reference(domain, {});
    const Tally tally = InFull(domain, reference, *subject, {0, size}, {});
    EXPECT_EQ(tally.failed, "") << Describe(c);
    EXPECT_EQ(tally.wrong, 0u) << Describe(c);
    EXPECT_EQ(tally.judged, size);
  }
}

// Codes of 16 bits: both engines count the same wrong inputs of a convention that is not exact, and
// doubles leave to the oracle what they cannot decide.
TEST(Exhaust, EnginesAgreeOnCodesOf16Bits) {
  const auto subject = Make("model:numpy@float32");
  for (const DType dtype : {DType::kS16, DType::kU16}) {
    Case requantize = Requantize(0x1.930be0p-7f, -7);
    requantize.out_dtype = dtype;
    requantize.out_min = RangeOf(dtype).min;
    requantize.out_max = RangeOf(dtype).max;
    for (const Case& c : {Quantize(0x1.99999ap-5f, 3, dtype), requantize}) {
      const Domain domain(c);
      Reference exact(domain, {});
      EXPECT_EQ(exact.StepsOfRanges()[c.op == Op::kQuantize ? 1 : 0].size(), 65536u);
      const Range range = Around(domain, 9000, 200000);
      FullOptions options;
      options.each = true;
      const auto reference = Make("faulty:none");
      EXPECT_EQ(InFull(domain, exact, *reference, range, options).wrong, 0u);
      EXPECT_EQ(InFull(domain, exact, *reference, range, {}).wrong, 0u);
      WrongAt off(Make("faulty:none"), domain.BitsOf(range.first + 777));
      for (const bool each : {false, true}) {
        options.each = each;
        const Tally tally = InFull(domain, exact, off, range, options);
        EXPECT_EQ(tally.wrong, 1u);
        ASSERT_TRUE(tally.first);
        EXPECT_EQ(tally.first->number, range.first + 777);
        EXPECT_EQ(tally.first->distance, 1u);
      }
    }
    Case quantize = Quantize(0x1.99999ap-5f, 3, dtype);
    quantize.out_min = 6;
    quantize.out_max = 7;
    const Domain domain(quantize);
    Reference reference(domain, {});
    const Tally steps = BySteps(domain, reference, *subject);
    const Tally full = InFull(domain, reference, *subject, Around(domain, 7, 50000), {});
    EXPECT_EQ(steps.failed, "");
    EXPECT_EQ(steps.wrong - steps.wrong_nan, 1u);
    EXPECT_EQ(full.wrong, 1u);
    EXPECT_EQ(steps.first, full.first);

    Case dequantize = OnCodes(Op::kDequantize, dtype);
    dequantize.out_q = {};
    dequantize.out_dtype = DType::kF32;
    dequantize.out_min = INT32_MIN;
    dequantize.out_max = INT32_MAX;
    const Domain codes(dequantize);
    ASSERT_EQ(codes.size(), 65536u);
    EXPECT_EQ(codes.TextOf(1), fmt::format("code {}", RangeOf(dtype).min + 1));
    EXPECT_EQ(codes.TextOf(65535), fmt::format("code {}", RangeOf(dtype).max));
    Reference exact(codes, {});
    EXPECT_EQ(InFull(codes, exact, *subject, {0, codes.size()}, {}).wrong, 0u);
  }
}

// One wrong input of 2^32, beside a step: both engines name it.
TEST(Exhaust, BothEnginesRefuteOneTie) {
  const auto subject = Make("faulty:one-tie");
  for (const Case& c : {Quantize(0x1.99999ap-5f), Quantize(3), Requantize(0.5f)}) {
    const Domain domain(c);
    Reference reference(domain, {});
    const Tally steps = BySteps(domain, reference, *subject);
    EXPECT_EQ(steps.failed, "");
    EXPECT_EQ(steps.wrong, 1u);
    EXPECT_EQ(steps.judged, uint64_t{1} << 32);
    ASSERT_TRUE(steps.first);
    EXPECT_EQ(steps.first->expected, 0);
    EXPECT_EQ(steps.first->actual, 1);
    for (const bool each : {false, true}) {
      FullOptions options;
      options.each = each;
      const Tally full = InFull(domain, reference, *subject, Around(domain, 1, 30000), options);
      EXPECT_EQ(full.wrong, 1u);
      EXPECT_EQ(full.first, steps.first);
      EXPECT_EQ(full.worst, steps.worst);
    }
  }
  const Domain domain(Quantize(3));
  Reference reference(domain, {});
  EXPECT_EQ(domain.TextOf(BySteps(domain, reference, *subject).first->number), "x 0x1.8p+0");
}

// Only a full sweep sees one wrong input between two steps.
TEST(Exhaust, TheFullSweepFindsAWrongInputAnywhere) {
  const uint32_t bits = std::bit_cast<uint32_t>(77.25f);
  WrongAt subject(Make("native"), bits);
  const Domain domain(Quantize(1));
  Reference reference(domain, {});
  EXPECT_EQ(BySteps(domain, reference, subject).wrong, 0u);
  for (const bool each : {false, true}) {
    FullOptions options;
    options.each = each;
    const uint64_t number = uint64_t{bits} + (uint64_t{1} << 31);
    const Tally tally =
        InFull(domain, reference, subject, {number - 70000, number + 300000}, options);
    EXPECT_EQ(tally.wrong, 1u);
    ASSERT_TRUE(tally.first);
    EXPECT_EQ(tally.first->number, number);
    EXPECT_EQ(tally.first->expected, 77);
    EXPECT_EQ(tally.first->actual, 76);
  }
}

// A subject whose arithmetic is known to the harness and gives the wrong code on that input.
class WrongAndKnown final : public WrongAt, public EnclosingSubject {
 public:
  using WrongAt::WrongAt;
  std::string Evaluates(const Case& /*c*/) const override { return "the test"; }
  std::optional<Codes> Enclose(const Case& c, uint32_t first, uint32_t last) override {
    const Outcome ends = Run(EndsOf(c, first, last), {});
    const int32_t lo = ends.y.IntAt(0), hi = ends.y.IntAt(1);
    const bool inside = first < bits_ && bits_ < last && last < 0x8000'0000;
    return inside ? Codes{std::min(lo, lo ^ 1), std::max(hi, lo ^ 1)} : Codes{lo, hi};
  }
};

// Interval evaluation finds a wrong input between two steps, as a full sweep does.
TEST(Intervals, FindAWrongInputAnywhere) {
  WrongAndKnown subject(Make("native"), std::bit_cast<uint32_t>(77.25f));
  const Domain domain(Quantize(1));
  Reference reference(domain, {});
  EXPECT_EQ(BySteps(domain, reference, subject).failed, "");
  EXPECT_EQ(BySteps(domain, reference, subject, true).failed,
            "is not shown by intervals: at x 0x1.35p+6 they give 76 to 76, expected 77");
  WrongAt unknown(Make("native"), 0);
  EXPECT_EQ(BySteps(domain, reference, unknown, true).failed,
            "the arithmetic of native is not known here, expected --full");
}

TEST(Intervals, ShowTheStepsOfNativeKernels) {
  Rng rng(17);
  for (const std::string& name : SubjectRegistry::Get().Expand((Make("native"), "native@all"))) {
    const auto subject = Make(name);
    for (const DType dtype : {DType::kU8, DType::kS8}) {
      const auto zero_point = static_cast<int32_t>(rng.Between(-40, 120));
      Case requantize = Requantize(std::ldexp(RandomScale(rng), -10), zero_point);
      requantize.out_dtype = dtype;
      requantize.out_min = RangeOf(dtype).min;
      requantize.out_max = RangeOf(dtype).max;
      for (const Case& c : {Quantize(RandomScale(rng), zero_point, dtype), requantize}) {
        const Domain domain(c);
        Reference reference(domain, {});
        const Tally tally = BySteps(domain, reference, *subject, true);
        // Without a fused multiply-add elements near ties go to scalar code.
        const bool fused = !name.starts_with("native@s") && name != "native@portable";
        if (c.op == Op::kRequantize && !fused) {
          EXPECT_TRUE(tally.failed.starts_with("the arithmetic of " + name)) << tally.failed;
          continue;
        }
        EXPECT_EQ(tally.failed, "") << name << Describe(c);
        EXPECT_EQ(tally.judged, domain.size());
        EXPECT_EQ(tally.wrong, 0u);
      }
    }
  }
}

// Intervals show the steps of conventions too, where conventions are wrong and where they fall; and
// the steps of a convention that is the reference.
TEST(Intervals, ShowTheStepsOfConventions) {
  int shown = 0;
  std::vector<std::string> falling;
  for (const Convention& convention : AllConventions()) {
    for (const Case& c : {Quantize(0x1.99999ap-5f, 3), Requantize(0x1.930be0p-7f, 3)}) {
      const Domain domain(c);
      const auto subject = Make("model:" + convention.name);
      if (!subject->CannotRun(domain.Shape(1)).empty()) continue;
      Reference reference(domain, {});
      const Tally assumed = BySteps(domain, reference, *subject);
      const Tally tally = BySteps(domain, reference, *subject, true);
      if (!tally.failed.empty()) {
        EXPECT_NE(tally.failed.find("not shown by intervals"), std::string::npos) << tally.failed;
        continue;
      }
      ++shown;
      EXPECT_EQ(tally, assumed) << convention.name;
      if (tally.falls != 0) falling.push_back(convention.name);
      Reference own(domain, {convention.name});
      EXPECT_EQ(own.WhyNotShown(), "") << convention.name;
    }
  }
  EXPECT_GT(shown, 40);
  EXPECT_TRUE(std::ranges::count(falling, "aten@default")) << falling.size();
}

// If a subject's steps lie elsewhere, the steps find the wrong inputs that the full sweep finds.
TEST(Exhaust, StepsFindWhatTheFullSweepFinds) {
  const auto subject = Make("faulty:reciprocal");
  Case c = Quantize(0x1.99999ap-5f, 3);
  c.out_min = 6;  // one step: 3.5 is 7 by the exact quotient, or by the reciprocal
  c.out_max = 7;
  const Domain domain(c);
  Reference reference(domain, {});
  const Tally steps = BySteps(domain, reference, *subject);
  const Tally full = InFull(domain, reference, *subject, Around(domain, 7, 50000), {});
  EXPECT_EQ(steps.failed, "");
  EXPECT_EQ(steps.wrong, 1u);
  EXPECT_EQ(full.wrong, steps.wrong);
  EXPECT_EQ(full.first, steps.first);
  EXPECT_EQ(domain.TextOf(full.first->number), "x 0x1.666666p-3");
}

// Where a conversion overflows the output falls: both sides of the fall are counted.
TEST(Exhaust, AFallSplitsTheSteps) {
  const auto subject = Make("faulty:clamp-after-conversion");
  const Domain domain(Quantize(1));
  Reference reference(domain, {});
  const Tally tally = BySteps(domain, reference, *subject);
  EXPECT_EQ(tally.failed, "");
  EXPECT_EQ(tally.falls, 1u);
  // From 2^31 to infinity, both included.
  EXPECT_EQ(tally.wrong, 0x7F80'0000u - std::bit_cast<uint32_t>(0x1p31f) + 1);
  EXPECT_EQ(domain.TextOf(tally.first->number), "x 0x1p+31");
}

TEST(Exhaust, QuadsRefuteSaturatingPairs) {
  const Domain domain(Quads());
  Reference reference(domain, {});
  // The granule of the largest activations and weights.
  const Range range{domain.size() - domain.granule(), domain.size()};
  EXPECT_EQ(InFull(domain, reference, *Make("native"), range, {}).wrong, 0u);
  const Tally tally = InFull(domain, reference, *Make("faulty:pair-saturation"), range, {});
  EXPECT_EQ(tally.worst->expected, 2 * 255 * 127);
  EXPECT_EQ(tally.worst->actual, 32767);
}

TEST(Tally, DoesNotDependOnTheOrderOfItsParts) {
  Tally a, b;
  a.Add({5, 10, 12, 2, false});
  a.judged = 100;
  b.Add({9, 10, 12, 2, false}, 3);
  b.Add({7, 1, 2, 1, false});
  Tally ab = a, ba = b;
  ab.Merge(b);
  ba.Merge(a);
  EXPECT_EQ(ab, ba);
  EXPECT_EQ(ab.wrong, 5u);
  EXPECT_EQ(ab.first->number, 5u);
  EXPECT_EQ(ab.worst->number, 5u);
}

}  // namespace
}  // namespace qualm::proofs
