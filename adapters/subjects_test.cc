// SPDX-License-Identifier: Apache-2.0
// The registry and the subjects made by it: names, hints, contracts, and two implementations that
// share no line (the native kernels and faulty:none) agreeing on everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "adapters/registry.h"
#include "core/contract.h"
#include "core/status.h"
#include "core/subject.h"
#include "core/verdict.h"

namespace qualm {
namespace {

SubjectRegistry& Registry() {
  RegisterAllSubjects();
  return SubjectRegistry::Get();
}

const SubjectKind* Kind(const std::string& name) {
  for (const SubjectKind& kind : Registry().kinds()) {
    if (kind.kind == name) return &kind;
  }
  return nullptr;
}

template <class Error>
std::string ErrorOf(const std::string& name) {
  try {
    Registry().Make(name);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Registry, RegistersOnce) {
  RegisterAllSubjects();
  const size_t kinds = Registry().kinds().size();
  const size_t rows = Registry().expected().size();
  RegisterAllSubjects();
  EXPECT_EQ(Registry().kinds().size(), kinds);
  EXPECT_EQ(Registry().expected().size(), rows);
}

TEST(Registry, MakesEveryNameItLists) {
  for (const char* kind : {"native", "model", "faulty"}) {
    ASSERT_NE(Kind(kind), nullptr) << kind;
    const std::vector<std::string> names = Kind(kind)->names();
    EXPECT_FALSE(names.empty()) << kind;
    for (const std::string& name : names) {
      const std::unique_ptr<Subject> subject = Registry().Make(name);
      EXPECT_EQ(subject->name(), name);
      EXPECT_EQ(Registry().Expand(name), std::vector<std::string>{name});
    }
  }
}

TEST(Registry, NamesTheNearestForAMisspeltOne) {
  EXPECT_NE(ErrorOf<InputError>("faulty:pair-saturatoin").find("'faulty:pair-saturation'"),
            std::string::npos);
  EXPECT_NE(ErrorOf<InputError>("natve").find("'native'"), std::string::npos);
  EXPECT_NE(ErrorOf<InputError>("native@avx22").find("nearest"), std::string::npos);
  EXPECT_NE(ErrorOf<InputError>("model:fbgem@avx2").find("'model:fbgemm@avx2'"), std::string::npos);
}

TEST(Native, TellsAnAbsentInstructionSetFromAMisspeltOne) {
  // No machine has both.
  const std::string absent = std::ranges::count(Kind("native")->names(), "native@neon") != 0
                                 ? "native@avx2"
                                 : "native@neon";
  EXPECT_NE(ErrorOf<Unavailable>(absent).find("it has "), std::string::npos);
}

TEST(Native, SpellsInstructionSetsInLowerCase) {
  const std::vector<std::string> all = Registry().Expand("native@all");
  ASSERT_FALSE(all.empty());
  for (const std::string& name : all) {
    std::string upper = name;
    std::transform(name.begin() + 7, name.end(), upper.begin() + 7,
                   [](unsigned char c) { return std::toupper(c); });
    const std::unique_ptr<Subject> subject = Registry().Make(upper);
    EXPECT_EQ(subject->name(), name);
    EXPECT_EQ(upper, "native@" + subject->InstructionSet());
    // The others, and not itself.
    std::vector<std::string> family = subject->Siblings();
    EXPECT_EQ(std::ranges::count(family, name), 0);
    family.push_back(name);
    EXPECT_EQ(std::set<std::string>(family.begin(), family.end()),
              std::set<std::string>(all.begin(), all.end()));
  }
  EXPECT_EQ(Registry().Make("native")->InstructionSet(),
            Registry().Make(all.front())->InstructionSet());
}

TEST(Contracts, OfOurSubjects) {
  EXPECT_TRUE(Registry().Make("native")->contract().exact());
  EXPECT_TRUE(Registry().Make("faulty:k-tail")->contract().exact());
  for (const std::string& name : Registry().Expand("model:*")) {
    EXPECT_EQ(Registry().Make(name)->contract().text(), name);
  }
}

TEST(Contracts, DeclaredRowsNameThingsThatExist) {
  std::set<std::string> seen;
  EXPECT_FALSE(Registry().expected().empty());
  for (const ExpectedDivergence& row : Registry().expected()) {
    SCOPED_TRACE(row.subject + " " + row.property + " " + row.kind);
    EXPECT_TRUE(seen.insert(row.subject + row.op + row.property + row.kind).second);
    EXPECT_TRUE(ParseOp(row.op));
    bool known_kind = false;
    for (int kind = 0; kind <= static_cast<int>(FindingKind::kUnknown); ++kind) {
      known_kind |= Name(static_cast<FindingKind>(kind)) == row.kind;
    }
    EXPECT_TRUE(known_kind);
    EXPECT_FALSE(row.reason.empty());
    const SubjectKind* const kind = Kind(row.subject.substr(0, row.subject.find_first_of(":@")));
    if (kind == nullptr) continue;  // a build without plugins has no onednn
    EXPECT_EQ(std::ranges::count(kind->names(), row.subject), 1);
  }
}

// The smallest cases for each declared kind: on one of them the subject departs from the exact
// answer.
std::vector<Case> WitnessesOf(const std::string& kind) {
  Case c;
  c.M = 1;
  c.N = 1;
  c.K = 2;
  c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{1, 0});
  c.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{1, 0});
  if (kind == "pair-saturation") {  // 32895 / 255 = 129; saturated 32767 / 255 = 128.498
    c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{255, 255});
    c.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{127, 2});
    c.out_q.scale = {255.0f};
    return {c};
  }
  if (kind == "tie") {  // 0.5 -> 0, then the zero point; 0.5 + 1 -> 2
    c.out_q = {{2.0f}, {1}};
    return {c};
  }
  if (kind == "zero-point") {  // 1*(3-1) + 0*(2-1) against (1-1)*3 + (0-1)*2
    c.w_q.zero_point = {1};
    c.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{3, 2});
    return {c};
  }
  if (kind == "unknown") {  // 0.25, rounded up to 0.5 and then to 1
    c.out_q.scale = {4.0f};
    return {c};
  }
  EXPECT_EQ(kind, "rounding");
  // 2^-47 above a half and below it: a half once the multiplier is rounded, to even or up.
  Case above = c;
  above.x_q.scale = {0x1.000002p0f};
  above.w_q.scale = {0x1.000002p0f};
  above.out_q.scale = {0x1.000004p1f};
  Case below = c;
  below.x_q.scale = {0x1.000002p0f};
  below.w_q.scale = {0x1.fffffcp-1f};
  below.out_q.scale = {2.0f};
  return {above, below};
}

TEST(Contracts, DeclaredDeparturesFromExactHappen) {
  const std::unique_ptr<Subject> exact = Registry().Make("faulty:none");
  int shown = 0;
  for (const ExpectedDivergence& row : Registry().expected()) {
    if (row.property != "matches_exact" || row.op != "linear") continue;
    SCOPED_TRACE(row.subject + " " + row.kind);
    const SubjectKind* const kind = Kind(row.subject.substr(0, row.subject.find_first_of(":@")));
    if (kind == nullptr || !kind->why_absent.empty()) continue;
    bool departs = false;
    for (const Case& c : WitnessesOf(row.kind)) {
      ASSERT_EQ(Validate(c), "");
      const Outcome outcome = Registry().Make(row.subject)->Run(c, {});
      ASSERT_EQ(outcome.status, RunStatus::kOk) << outcome.detail;
      departs |= outcome.y.IntAt(0) != exact->Run(c, {}).y.IntAt(0);
    }
    EXPECT_TRUE(departs);
    ++shown;
  }
  EXPECT_GE(shown, 13);  // the conventions' rows
}

TEST(Conventions, RunAndShowTheirAccumulators) {
  Case c;
  c.M = 1;
  c.N = 1;
  c.K = 2;
  c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{255, 255});
  c.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{127, 2});
  c.out_q.scale = {256.0f};
  const std::unique_ptr<Subject> saturating = Registry().Make("model:fbgemm@avx2");
  const Outcome outcome = saturating->Run(c, {.rounding = Rounding::kUp, .want_acc = true});
  ASSERT_EQ(outcome.status, RunStatus::kOk) << outcome.detail;
  ASSERT_TRUE(outcome.acc);
  EXPECT_EQ(outcome.acc->IntAt(0), 32767);
  EXPECT_EQ(outcome.y.IntAt(0), 128);
  EXPECT_FALSE(saturating->Run(c, {}).acc);
}

// Cases that reach the corners: every type, zero points in and far outside the codes, scales whose
// quotients make ties, channels, biases, relu, tight clamps, empty dimensions.
class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}

  Case Next() {
    Case c;
    c.op = AllOps()[Below(AllOps().size())];
    c.M = static_cast<int64_t>(Below(5));
    c.N = static_cast<int64_t>(Below(20));
    c.K = c.op == Op::kLinear ? static_cast<int64_t>(Below(40)) : 0;
    if (HasWindow(c.op)) DrawWindow(&c);
    const bool has_channels = c.op <= Op::kLinear || IsConv(c.op);
    c.per_channel = has_channels && Chance(2);
    const size_t list = c.per_channel ? static_cast<size_t>(c.N) : 1;
    const DType code = Chance(2) ? DType::kU8 : DType::kS8;
    DType out = Chance(2) ? DType::kU8 : DType::kS8;
    const QParams one = Qparams(1, code);
    switch (c.op) {
      case Op::kQuantize:
        c.x = Tensor(DType::kF32, {c.M, c.N});
        for (float& x : c.x.as<float>()) x = Real();
        c.out_q = Qparams(list, out);
        break;
      case Op::kDequantize:
        c.x = Codes(code, {c.M, c.N});
        c.x_q = Qparams(list, code);
        out = DType::kF32;
        break;
      case Op::kRequantize:
        c.x = Tensor(DType::kS32, {c.M, c.N});
        for (int32_t& x : c.x.as<int32_t>()) x = static_cast<int32_t>(random_() >> Below(64));
        c.out_q = Qparams(1, out);
        if (Chance(2) || list == 0) {
          c.multiplier = Qparams(list, out).scale;
        } else {
          c.x_q = one;
          c.w_q = Qparams(list, out);
        }
        break;
      case Op::kRescale:
      case Op::kAdd:
      case Op::kMul:
        c.x = Codes(code, {c.M, c.N});
        if (HasTwoOperands(c.op)) {
          c.w = Codes(code, {c.M, c.N});
          c.w_q = Qparams(1, code);
        }
        c.x_q = one;
        c.out_q = Qparams(1, out);
        break;
      case Op::kMaxPool:
      case Op::kAvgPool:
      case Op::kGlobalAvgPool:
        c.x = Codes(code, {c.window.batch, c.window.in_h, c.window.in_w, c.window.in_c});
        c.x_q = one;
        c.out_q = c.op == Op::kMaxPool ? one : Qparams(1, out);
        if (c.op == Op::kMaxPool) out = code;
        break;
      case Op::kLinear:
      case Op::kConv2d:
      case Op::kDepthwise:
        if (IsConv(c.op)) {
          const Window& v = c.window;
          c.x = Codes(code, {v.batch, v.in_h, v.in_w, v.in_c});
          c.w = Codes(Chance(2) ? DType::kS8 : DType::kU8,
                      {c.N, v.kernel_h, v.kernel_w, v.in_c / v.groups});
        } else {
          c.x = Codes(code, {c.M, c.K});
          c.w = Codes(Chance(2) ? DType::kS8 : DType::kU8, {c.N, c.K});
        }
        c.x_q = one;
        c.w_q = Qparams(list, c.w.dtype());
        c.out_q = Qparams(1, out);
        if (Chance(4)) out = DType::kF32;
        if (Chance(4)) out = DType::kS32;
        if (Chance(3)) {
          c.bias_i32.emplace();
          for (int64_t n = 0; n < c.N; ++n) {
            c.bias_i32->push_back(static_cast<int32_t>(random_() >> (32 + Below(32))));
          }
        } else if (Chance(2) && out != DType::kS32) {
          c.bias.emplace();
          for (int64_t n = 0; n < c.N; ++n) {
            // Whole and half units: ties, or far from them.
            const float unit = c.x_q.scale[0] * c.w_q.scale_at(n);
            const float units = 0.5f * unit * static_cast<float>(Below(99));
            c.bias->push_back(Chance(2) && std::isfinite(units) ? units : Scale());
          }
        }
        break;
      case Op::kConcat: {
        const auto a = static_cast<int64_t>(Below(static_cast<size_t>(c.N) + 1));
        c.x = Codes(code, {c.M, a});
        c.w = Codes(code, {c.M, c.N - a});
        c.x_q = one;
        c.w_q = Qparams(1, code);
        c.out_q = Qparams(1, out);
        break;
      }
      case Op::kTable:
        c.x = Codes(code, {c.M, c.N});
        c.function = static_cast<Function>(Below(5));
        if (c.function == Function::kLeakyRelu) c.negative_slope = Chance(2) ? 0.25f : Scale();
        c.x_q = one;
        c.out_q = Qparams(1, out);
        break;
      case Op::kSoftmax:
        c.x = Codes(code, {c.M, c.N});
        c.x_q = one;
        c.out_q = {{0x1p-8f}, {RangeOf(code).min}};
        out = code;
        break;
      case Op::kChooseQParams:
        DrawObserver(&c);
        out = DType::kF32;
        break;
    }
    c.out_dtype = out;
    c.relu = c.op != Op::kDequantize && c.op != Op::kChooseQParams && c.op != Op::kTable &&
             c.op != Op::kSoftmax && Chance(3);
    const CodeRange range = RangeOf(out);
    c.out_min = range.min;
    c.out_max = range.max;
    if (IsCode(out) && Chance(4)) {
      c.out_min = range.min + static_cast<int32_t>(Below(256));
      c.out_max = c.out_min + static_cast<int32_t>(Below(static_cast<size_t>(range.max) -
                                                         static_cast<size_t>(c.out_min) + 1));
    }
    return c;
  }

  RunContext Context(Op op) {
    return {.align_offset = static_cast<int>(Below(64)),
            .end_at_guard = Chance(2),
            .poison = static_cast<uint8_t>(random_()),
            .x_row_gap = static_cast<int64_t>(Below(4)),
            .y_row_gap = static_cast<int64_t>(Below(4)),
            .in_place = CanRunInPlace(op) && Chance(3),
            .threads = HasSums(op) && Chance(40) ? 3 : 1,
            .rounding = static_cast<Rounding>(Below(4)),
            .flush_denormals = Chance(2),
            .want_acc = Chance(4)};
  }

 private:
  size_t Below(size_t bound) { return static_cast<size_t>(random_() % bound); }
  bool Chance(size_t in) { return Below(in) == 0; }

  // Small, all parameters different; every window of a pool meets the image unless padding counts.
  void DrawWindow(Case* c) {
    const auto between = [&](size_t lo, size_t hi) {
      return static_cast<int64_t>(lo + Below(hi - lo + 1));
    };
    do {
      Window v;
      v.batch = between(0, 2);
      v.in_h = between(Chance(9) ? 0 : 1, 5);
      v.in_w = between(Chance(9) ? 0 : 1, 5);
      v.in_c = between(0, 5);
      if (c->op == Op::kGlobalAvgPool) {
        v.kernel_h = std::max<int64_t>(v.in_h, 1);
        v.kernel_w = std::max<int64_t>(v.in_w, 1);
      } else {
        v.kernel_h = between(1, 3);
        v.kernel_w = between(1, 3);
        v.stride_h = between(1, 2);
        v.stride_w = between(1, 2);
        v.pad_top = between(0, 2);
        v.pad_bottom = between(0, 2);
        v.pad_left = between(0, 2);
        v.pad_right = between(0, 2);
      }
      if (IsConv(c->op) || c->op == Op::kMaxPool) {
        v.dilation_h = between(1, 2);
        v.dilation_w = between(1, 2);
      }
      if (IsConv(c->op)) {
        if (c->op == Op::kDepthwise) {
          v.in_c = between(1, 20);
          v.groups = v.in_c;
        } else if (v.in_c == 4 && Chance(2)) {
          v.groups = 2;
        }
        c->N = v.groups * between(c->op == Op::kDepthwise ? 1 : 0, c->op == Op::kDepthwise ? 2 : 9);
      } else {
        v.in_c = between(0, 20);
        v.ceil_mode = c->op != Op::kGlobalAvgPool && Chance(3);
        v.count_include_pad = c->op == Op::kAvgPool && Chance(2);
      }
      c->window = v;
      DeriveSizes(c);
    } while (IsPool(c->op) && !c->window.count_include_pad && HasEmptyWindow(*c));
  }
  // All kinds but the histogram, which the reference has not.
  void DrawObserver(Case* c) {
    Observer& o = c->observer;
    o.kind = Chance(2) ? Observer::Kind::kMinMax : Observer::Kind::kMovingAverage;
    o.dtype = Chance(2) ? DType::kU8 : DType::kS8;
    o.symmetric = Chance(2);
    o.reduce_range = Chance(2) && !(o.symmetric && o.dtype == DType::kU8);
    o.quant_min = RangeOf(o.dtype).min;
    o.quant_max = Chance(3) ? 2 + static_cast<int32_t>(Below(100)) : RangeOf(o.dtype).max;
    c->per_channel = Chance(2);
    c->M = 1 + static_cast<int64_t>(Below(4));
    c->N = 1 + static_cast<int64_t>(Below(20));
    c->x = Tensor(DType::kF32, {1 + static_cast<int64_t>(Below(4)), c->M, c->N});
    const bool small = o.kind == Observer::Kind::kMovingAverage;
    for (float& x : c->x.as<float>()) {
      do {
        x = Real();
      } while (!(std::abs(x) <= (small ? 0x1p126f : std::numeric_limits<float>::max())));
    }
  }
  static bool HasEmptyWindow(const Case& c) {
    for (int64_t m = 0; m < c.M; ++m) {
      const std::vector<Tap> taps = TapsOf(c.window, m);
      if (std::ranges::none_of(taps, [](const Tap& tap) { return tap.x_row >= 0; })) return true;
    }
    return false;
  }

  float Scale() {
    if (Chance(8)) return std::bit_cast<float>(static_cast<uint32_t>(1 + Below(0x7F7FFFFF)));
    const float mantissa = Chance(2) ? 1.0f : 1.0f + static_cast<float>(Below(1 << 23)) * 0x1p-23f;
    return std::ldexp(mantissa, static_cast<int>(Below(12)) - 8);
  }
  float Real() {
    if (Chance(8)) return std::bit_cast<float>(static_cast<uint32_t>(random_()));
    return (static_cast<float>(Below(2048)) - 1024) * 0.25f * Scale();
  }
  QParams Qparams(size_t count, DType dtype) {
    QParams q{{}, {}};
    const CodeRange range = RangeOf(dtype);
    for (size_t i = 0; i < count; ++i) {
      q.scale.push_back(Scale());
      q.zero_point.push_back(Chance(8) ? static_cast<int32_t>(random_())
                                       : range.min + static_cast<int32_t>(Below(256)));
    }
    return q;
  }
  Tensor Codes(DType dtype, std::vector<int64_t> shape) {
    Tensor tensor(dtype, std::move(shape));
    const bool extreme = Chance(3);
    for (uint8_t& code : tensor.bytes()) {
      code = static_cast<uint8_t>(random_());
      if (extreme) code = (code & 1) != 0 ? 0x80 : ((code & 2) != 0 ? 0x7F : 0xFF);
    }
    return tensor;
  }

  std::mt19937_64 random_;
};

// A convention, a plugin and a planted fault have one arithmetic: what another mode means is not
// theirs.
TEST(Registry, OnlyNativeHasRequantizationModes) {
  Case c;
  c.op = Op::kRequantize;
  c.M = c.N = 1;
  c.x = Tensor::Of<int32_t>({1, 1}, std::vector<int32_t>{5});
  c.multiplier = {0.5f};
  int refused = 0;
  for (const char* kind : {"native", "model", "faulty"}) {
    for (const std::string& name : Kind(kind)->names()) {
      const std::unique_ptr<Subject> subject = Registry().Make(name);
      c.requant = Requant::kExact;
      if (!subject->CannotRun(c).empty()) continue;
      c.requant = Requant::kFixedQ31;
      const Outcome outcome = subject->Run(c, {});
      if (std::string_view(kind) == "native") {
        ASSERT_TRUE(outcome.ok()) << outcome.detail;
        EXPECT_EQ(outcome.y.IntAt(0), 3) << name;
        continue;
      }
      EXPECT_EQ(outcome.status, RunStatus::kSkipped) << name;
      EXPECT_NE(outcome.detail.find("requantization"), std::string::npos) << outcome.detail;
      ++refused;
    }
  }
  EXPECT_GT(refused, 5);
}

// Denormal scales are valid, also for a caller whose processor takes denormals for zero: the
// preconditions have to be checked after the environment is set, not before.
TEST(Native, AcceptsDenormalScalesUnderFlushToZero) {
  constexpr float kTiny = 0x1p-140f;
  Case quantize;
  quantize.op = Op::kQuantize;
  quantize.M = quantize.N = 1;
  quantize.x = Tensor::Of<float>({1, 1}, std::vector<float>{3 * kTiny});
  quantize.out_q.scale = {kTiny};
  Case requantize;
  requantize.op = Op::kRequantize;
  requantize.M = requantize.N = 1;
  requantize.x = Tensor::Of<int32_t>({1, 1}, std::vector<int32_t>{3});
  requantize.x_q.scale = requantize.out_q.scale = {kTiny};
  Case linear;
  linear.M = linear.N = linear.K = 1;
  linear.x = Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{3});
  linear.w = Tensor::Of<int8_t>({1, 1}, std::vector<int8_t>{1});
  linear.x_q.scale = linear.out_q.scale = {kTiny};
  Case dequantize;
  dequantize.op = Op::kDequantize;
  dequantize.M = dequantize.N = 1;
  dequantize.x = linear.x;
  dequantize.x_q.scale = {kTiny};
  dequantize.out_dtype = DType::kF32;
  dequantize.out_min = INT32_MIN;
  dequantize.out_max = INT32_MAX;
  for (const Case& c : {quantize, dequantize, requantize, linear}) {
    ASSERT_EQ(Validate(c), "");
    for (const std::string& name : Registry().Expand("native@all")) {
      const Outcome outcome = Registry().Make(name)->Run(c, {.flush_denormals = true});
      ASSERT_EQ(outcome.status, RunStatus::kOk) << outcome.detail << " " << Describe(c);
      if (c.op == Op::kDequantize) {
        EXPECT_EQ(outcome.y.FloatAt(0), 3 * kTiny);
      } else {
        EXPECT_EQ(outcome.y.IntAt(0), 3);
      }
    }
  }
}

TEST(Native, AgreesWithTheUnharmedReferenceOnEveryInstructionSet) {
  const std::unique_ptr<Subject> reference = Registry().Make("faulty:none");
  std::vector<std::unique_ptr<Subject>> natives;
  for (const std::string& name : Registry().Expand("native@all")) {
    natives.push_back(Registry().Make(name));
  }
  Draw draw(20240607);
  int compared = 0;
  int accumulators = 0;
  size_t undecided = 0;
  for (int i = 0; i < 20000; ++i) {
    const Case c = draw.Next();
    ASSERT_EQ(Validate(c), "");
    RunContext first = draw.Context(c.op);
    first.threads = 1;  // it has no others
    const Outcome want = reference->Run(c, first);
    if (want.status == RunStatus::kSkipped) continue;
    ASSERT_EQ(want.status, RunStatus::kOk) << want.detail;
    for (const std::unique_ptr<Subject>& native : natives) {
      const RunContext context = draw.Context(c.op);
      const Outcome got = native->Run(c, context);
      if (got.status == RunStatus::kSkipped && (c.op == Op::kTable || c.op == Op::kSoftmax)) {
        ++undecided;  // a real function of some code, maybe one that the case does not have
        continue;
      }
      ASSERT_EQ(got.status, RunStatus::kOk)
          << got.detail << " " << native->name() << " " << Describe(c);
      const auto divergence = FirstDivergence(want.y, got.y);
      ASSERT_FALSE(divergence) << native->name() << " " << Describe(c) << " at "
                               << divergence->index << ": " << divergence->expected << " vs "
                               << divergence->actual << " (case " << i << ")";
      EXPECT_TRUE(!got.acc || context.want_acc);
      if (got.acc && !got.acc->empty()) {
        ASSERT_EQ(got.acc->shape(), c.output_shape());
        ++accumulators;
        int64_t sum = 0;
        if (IsConv(c.op)) continue;
        for (int64_t k = 0; k < c.K; ++k) sum += int64_t{c.x.IntAt(k)} * c.w.IntAt(k);
        ASSERT_EQ(got.acc->IntAt(0), sum) << native->name();
      }
    }
    ++compared;
  }
  EXPECT_GT(compared, 17000);
  EXPECT_GT(static_cast<size_t>(accumulators), 400 * natives.size());
  EXPECT_LE(undecided, 100 * natives.size());
}

}  // namespace
}  // namespace qualm
