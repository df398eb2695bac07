// SPDX-License-Identifier: Apache-2.0
#include "properties/adapt.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/float_format.h"
#include "core/scaled_cast.h"
#include "core/slice.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/float_sums.h"
#include "properties/gen/gen.h"
#include "properties/relation.h"

namespace qualm {
namespace {

using Change = std::function<void(Case&)>;

void FullRange(Case& c) { OpenClamp(&c); }

// Zero points in the range of the codes that they belong to.
void InRange(QParams& q, DType dtype) {
  const CodeRange range = RangeOf(dtype);
  for (int32_t& zero_point : q.zero_point)
    zero_point = std::clamp(zero_point, range.min, range.max);
}

void Symmetric(QParams& q) { std::ranges::fill(q.zero_point, 0); }

// The same real values as codes of the other type, where zero points and codes allow it. Floats and
// integers stay as they are.
void OtherCodes(Tensor& tensor, QParams& q) {
  if (!IsCode(tensor.dtype())) return;
  const DType to = OtherSign(tensor.dtype());
  const int32_t shift = RangeOf(to).min - RangeOf(tensor.dtype()).min;
  std::optional<Tensor> shifted = relation::Shifted(tensor, to, shift);
  if (!shifted) return;
  tensor = std::move(*shifted);
  for (int32_t& zero_point : q.zero_point) {
    zero_point = relation::ShiftedInt(zero_point, shift).value_or(zero_point);
  }
}

// The high bytes of codes of 16 bits, in units of 256 of them. A scale that would overflow stays.
void HighBytes(QParams& q) {
  for (float& scale : q.scale) scale = std::isfinite(scale * 256) ? scale * 256 : scale;
  for (int32_t& zero_point : q.zero_point) zero_point >>= 8;
}
DType HighByteOf(DType wide) { return wide == DType::kS16 ? DType::kS8 : DType::kU8; }
void CodesAsBytes(Case& c) {
  if (IsWideCode(c.x.dtype())) {
    Tensor bytes(HighByteOf(c.x.dtype()), c.x.shape());
    for (int64_t i = 0; i < bytes.size(); ++i) bytes.SetInt(i, c.x.IntAt(i) >> 8);
    c.x = std::move(bytes);
    HighBytes(c.x_q);
  }
  if (!IsWideCode(c.out_dtype)) return;
  c.out_dtype = HighByteOf(c.out_dtype);
  c.out_min >>= 8;
  c.out_max >>= 8;
  HighBytes(c.out_q);
  for (float& multiplier : c.multiplier)
    multiplier = multiplier / 256 > 0 ? multiplier / 256 : multiplier;
}

// The same codes of fewer than 8 bits in bytes. The clamp stays, so that they are the same outputs.
void SmallCodesAsBytes(Case& c) {
  c.x = InBytes(c.x);
  c.out_dtype = ByteOf(c.out_dtype);
}

// The numbers of weights of 4 and 2 bits without a sign, which s8 holds too.
void SmallWeightsAsS8(Case& c) {
  if (BitsOf(c.w.dtype()) < 8) c.w = relation::Shifted(c.w, DType::kS8, 0).value_or(c.w);
}

void OutputAs(Case& c, DType dtype) {
  if (IsCode(dtype) && OtherSign(c.out_dtype) == dtype) {
    const int32_t shift = RangeOf(dtype).min - RangeOf(c.out_dtype).min;
    for (int32_t& zero_point : c.out_q.zero_point) {
      zero_point = relation::ShiftedInt(zero_point, shift).value_or(zero_point);
    }
  }
  c.out_dtype = dtype;
  FullRange(c);
  if (!IsCode(dtype)) c.out_q = QParams{};
  if (!IsCode(dtype)) c.requant = Requant::kExact;
  if (dtype == DType::kS32) c.bias.reset();
}

// x, w and output.
void AllAs(Case& c, DType dtype) {
  if (!IsCode(c.out_dtype)) return;
  if (c.x.dtype() != dtype) OtherCodes(c.x, c.x_q);
  if (c.w.dtype() != dtype) OtherCodes(c.w, c.w_q);
  if (c.out_dtype != dtype) OutputAs(c, dtype);
}

void WithRule(Case& c, QParamsRule rule) {
  const bool reduce_range = c.observer.reduce_range && rule == QParamsRule::kAten;
  c.rule = rule;
  c.observer = {.reduce_range = reduce_range};
  if (IsMx(rule)) c.observer = {.dtype = kMxElements.front()};
  c.codes = c.codes && rule != QParamsRule::kObserver;
}

// Each row quantized to s8, as kernels do that quantize as they run: symmetric without -128.
void RowsInS8(Case& c) {
  if (!RowOf(c.op).dynamic || c.rule != QParamsRule::kObserver) return;
  const bool symmetric = c.observer.symmetric;
  c.x_gran = Granularity::kRow;
  c.observer = {.symmetric = symmetric,
                .dtype = DType::kS8,
                .quant_min = symmetric ? -127 : -128,
                .quant_max = 127};
}

// The nearest values of another float type.
void CastFrom(Case& c, DType dtype) {
  if (!RowOf(c.op).cast) return;
  Tensor x(dtype, c.x.shape());
  for (int64_t i = 0; i < x.size(); ++i) x.SetBits(i, EncodeFloat(dtype, c.x.ValueAt(i)));
  c.x = std::move(x);
}

// The largest code of each block 127 or -127, as quantizers of blocks make it.
void FullBlocks(Case& c) {
  for (const auto& [begin, end] : slice::BlocksOfX(c)) {
    int64_t largest = begin;
    for (int64_t i = begin; i < end; ++i) {
      if (c.x.dtype() == DType::kS8) c.x.SetInt(i, std::max(c.x.IntAt(i), -127));
      if (std::abs(c.x.IntAt(i)) > std::abs(c.x.IntAt(largest))) largest = i;
    }
    if (c.x.IntAt(largest) != 0) c.x.SetInt(largest, c.x.IntAt(largest) < 0 ? -127 : 127);
  }
}

// Each change is one thing; changes that alter less of the problem come first. After all of these
// AdaptTo gives each parameter its default, also one that nobody thought of here.
std::vector<Change> ChangesOfAll() {
  return {
      [](Case& c) { c.relu = false; },
      FullRange,
      [](Case& c) { c.requant = Requant::kExact; },
      [](Case& c) {
        c.bias.reset();
        c.bias_i32.reset();
      },
      [](Case& c) {
        if (RowOf(c.op).per_channel == PerChannel::kRows) {
          c.per_channel = false;  // a result for each row, not parameters
        } else if (c.per_channel && c.N > 0) {
          c = slice::WithParamsOf(c, 0, false);
        }
      },
      [](Case& c) { InRange(c.x_q, c.x.dtype()); },
      [](Case& c) { InRange(c.w_q, c.w.dtype()); },
      [](Case& c) { InRange(c.out_q, c.out_dtype); },
      [](Case& c) { Symmetric(c.x_q); },
      [](Case& c) { Symmetric(c.w_q); },
      [](Case& c) { Symmetric(c.out_q); },
      FullBlocks,
      [](Case& c) { c.w = InBytes(c.w); },
      SmallWeightsAsS8,
      CodesAsBytes,
      SmallCodesAsBytes,
      [](Case& c) { OtherCodes(c.x, c.x_q); },
      [](Case& c) { OtherCodes(c.w, c.w_q); },
      [](Case& c) { AllAs(c, DType::kU8); },
      [](Case& c) { AllAs(c, DType::kS8); },
      // Operands, or input and output, of one type.
      [](Case& c) {
        OtherCodes(c.x, c.x_q);
        OtherCodes(c.w, c.w_q);
      },
      [](Case& c) {
        if (!IsCode(c.out_dtype)) return;
        OtherCodes(c.x, c.x_q);
        OutputAs(c, OtherSign(c.out_dtype));
      },
      [](Case& c) {
        if (IsWideCode(c.x.dtype())) OutputAs(c, c.x.dtype());
      },
      [](Case& c) { OutputAs(c, DType::kU8); },
      [](Case& c) { OutputAs(c, DType::kS8); },
      [](Case& c) { OutputAs(c, DType::kS32); },
      [](Case& c) { OutputAs(c, DType::kF32); },
      // The output as the input: type, scale and zero point.
      [](Case& c) {
        if (!IsCode(c.x.dtype()) || !IsCode(c.out_dtype) || HasSums(c)) return;
        c.out_dtype = c.x.dtype();
        c.out_q = c.x_q;
        FullRange(c);
      },
      [](Case& c) { c.window.dilation_h = c.window.dilation_w = 1; },
      [](Case& c) {
        c.window.pad_bottom = c.window.pad_top;
        c.window.pad_right = c.window.pad_left;
      },
      // At most half of the kernel.
      [](Case& c) {
        c.window.pad_top = c.window.pad_bottom = std::min(c.window.pad_top, c.window.kernel_h / 2);
        c.window.pad_left = c.window.pad_right = std::min(c.window.pad_left, c.window.kernel_w / 2);
      },
      [](Case& c) {
        if (RowOf(c.op).cast) c = slice::WithoutBlocks(c);
      },
      // Libraries quantize or dequantize: one of the two scales is 1.
      [](Case& c) {
        if (RowOf(c.op).cast) std::ranges::fill(c.x_q.scale, 1.0f);
      },
      [](Case& c) {
        if (RowOf(c.op).cast) std::ranges::fill(c.out_q.scale, 1.0f);
      },
      [](Case& c) {
        if (!IsScaledCast(c)) return;
        c.x_q = c.out_q = QParams{};
        c.per_channel = false;
        c.x_block = 0;
      },
      [](Case& c) { c.codes = false; },
      [](Case& c) { WithRule(c, QParamsRule::kAten); },
      [](Case& c) { WithRule(c, QParamsRule::kOnnx); },
      [](Case& c) {
        if (RowOf(c.op).rule) WithRule(c, QParamsRule::kObserver);
      },
      [](Case& c) {
        if (RowOf(c.op).observer) WithRule(c, QParamsRule::kMxFloor);
      },
      // The first batch alone.
      [](Case& c) {
        if (!RowOf(c.op).observer) return;
        const auto count = static_cast<size_t>(c.M * c.N);
        c.x = Tensor::Of<float>({1, c.M, c.N}, c.x.as<float>().first(count));
      },
      RowsInS8,
  };
}

const std::vector<Change>& Changes() {
  static const std::vector<Change> changes = [] {
    std::vector<Change> all = ChangesOfAll();
    for (const DType dtype : kFloats) {
      all.emplace_back([dtype](Case& c) { CastFrom(c, dtype); });
      all.emplace_back([dtype](Case& c) {
        if (RowOf(c.op).cast) OutputAs(c, dtype);
      });
    }
    return all;
  }();
  return changes;
}

}  // namespace

std::string WhyNot(const Subject& subject, const Case& c) {
  std::string reason = subject.CannotRun(c);
  const Contract& contract = subject.contract(c.op);
  if (!reason.empty() || contract.exact()) return reason;
  if (contract.sum) return HasFloatSums(c.op) ? WhyNoFloatSums(c, OffsetsOf(contract)) : "";
  const Convention* const convention = FindConvention(contract.convention);
  return convention == nullptr ? "" : convention->cannot_run(c);
}

std::optional<Case> AdaptTo(const Subject& subject, const Case& c) {
  return AdaptTo([&](const Case& candidate) { return WhyNot(subject, candidate); },
                 subject.Inside(c));
}

namespace {

using Words = std::initializer_list<std::string_view>;

bool SaysOneOf(const std::string& why, Words words) {
  return std::ranges::any_of(
      words, [&](std::string_view word) { return why.find(word) != std::string::npos; });
}

// The case, or what AdaptTo makes of it where that keeps what the subject may know nothing of.
// Whoever refuses that says so first, in one of the `words`, or loses time here.
std::optional<Case> TakenWith(const Subject& subject, const std::optional<Case>& c, Words words,
                              bool (*has)(const Case&)) {
  if (!c) return std::nullopt;
  const std::string why = WhyNot(subject, *c);
  if (why.empty()) return c;
  if (SaysOneOf(why, words)) return std::nullopt;
  std::optional<Case> taken = AdaptTo(subject, *c);
  return taken && has(*taken) ? taken : std::nullopt;
}

// A linear of one product, of this x.
Case LeastLinear(DType x) {
  Case c = CaseOver(Op::kLinear, Tensor(x, {1, 1}), DType::kF32);
  c.K = 1;
  c.w = Tensor(DType::kS8, {1, 1});
  return c;
}

// Whether the subject refuses codes of 16 bits in the place of those of x, or does not say.
bool RefusesWideX(const Subject& subject, const Case& drawn) {
  return std::ranges::all_of(std::array{DType::kS16, DType::kU16}, [&](DType wide) {
    Case asked = ProblemOf(drawn);
    asked.x = Tensor(wide, drawn.x.shape());
    return SaysOneOf(WhyNot(subject, asked), {kOfWideCodes, "x of type"});
  });
}

// Whether the subject refuses every linear of f32 x, or with x in blocks: then none is drawn, which
// would take longer.
bool RefusesFloatX(const Subject& subject) {
  static const Case least = LeastLinear(DType::kF32);
  return SaysOneOf(WhyNot(subject, least), {kOfFloatX});
}
bool RefusesXInBlocks(const Subject& subject) {
  static const Case least = [] {
    Case c = LeastLinear(DType::kS8);
    c.per_channel = true;
    c.w_block = c.x_block = 1;
    return c;
  }();
  return SaysOneOf(WhyNot(subject, least), {kInBlocks, kXInBlocks});
}

}  // namespace

std::optional<Case> TakenBy(const Subject& subject, const Case& drawn) {
  const uint64_t seed = relation::Hash(drawn);
  const bool may_be_floats = RowOf(drawn.op).float_x && !RefusesFloatX(subject);
  const auto with_floats = [&](uint64_t turn) {
    if (!may_be_floats) return std::optional<Case>();
    return TakenWith(subject, gen::WithFloatX(drawn, turn), {kOfFloatX}, HasFloatX);
  };
  const bool may_be_blocks = SumsXInBlocks(drawn.op) && !RefusesXInBlocks(subject);
  const auto with_x_blocks = [&](bool as_stored) {
    if (!may_be_blocks) return std::optional<Case>();
    return TakenWith(subject, gen::XInBlocks(drawn, seed, as_stored), {kInBlocks, kXInBlocks},
                     [](const Case& c) { return c.x_block != 0; });
  };
  // Draw has none of these.
  const bool may_be_wide = HasSums(drawn) && drawn.w_block == 0 && !HasWideCodes(drawn);
  if (may_be_wide && seed % 8 == 0 && !RefusesWideX(subject, drawn)) {
    std::optional<Case> wide =
        TakenWith(subject, gen::WithWideCodes(drawn.op, seed / 8), {}, HasWideCodes);
    if (wide) return wide;
  }
  if (RowOf(drawn.op).x_blocks && !HasWeights(drawn.op) && !RowOf(drawn.op).cast) {  // as above
    std::optional<Case> small;
    if (!HasWideCodes(drawn) && !HasSmallCodes(drawn) && seed % 8 == 0) {
      small = TakenWith(subject, gen::WithSmallCodes(drawn.op, seed / 8),
                        {kOfSmallCodes, "x of type", "output of type"}, HasSmallCodes);
    }
    const Case& base = small ? *small : drawn;
    std::optional<Case> elements =
        TakenWith(subject, gen::ElementsInBlocks(base, relation::Hash(base)), {kElementsInBlocks},
                  HasElementBlocks);
    if (elements) return elements;
    if (small) return small;
  }
  if (RowOf(drawn.op).cast && !IsScaledCast(drawn)) {  // as above
    std::optional<Case> scaled =
        TakenWith(subject, gen::WithCastScales(drawn, seed), {kOfScaledCasts}, IsScaledCast);
    if (scaled) return scaled;
  }
  if (std::optional<Case> floats = with_floats(seed)) return floats;
  if (std::optional<Case> both = with_x_blocks(false)) return both;
  std::optional<Case> taken = TakenWith(subject, gen::InBlocks(drawn, seed), {kInBlocks},
                                        [](const Case& c) { return c.w_block != 0; });
  if (!taken) taken = AdaptTo(subject, drawn);
  // Whoever takes nothing else takes these at every turn.
  if (!taken) taken = with_x_blocks(/*as_stored=*/true);
  for (uint64_t turn = 1; !taken && may_be_floats && turn < 8; ++turn)
    taken = with_floats(seed + turn);
  if (const auto wide = taken ? std::nullopt : gen::WithWideCodes(drawn.op, seed + 1))
    taken = AdaptTo(subject, *wide);
  for (uint64_t turn = 0; !taken && turn < 8; ++turn) {  // the type may be one of four
    const std::optional<Case> small = gen::WithSmallCodes(drawn.op, seed + turn);
    if (!small) break;
    taken = AdaptTo(subject, *small);
  }
  return taken;
}

std::optional<Case> AdaptTo(const std::function<std::string(const Case&)>& why_not, const Case& c) {
  std::string why = why_not(c);
  if (why.empty()) return c;
  std::set<std::string> met{std::move(why)};
  // Breadth first, one case per reason: the fewest changes, and a change that only leads to a worse
  // reason (the type of x, for a kernel that minded the output's) is no dead end.
  constexpr size_t kMostReasons = 32;
  std::deque<Case> reached{ProblemOf(c)};  // its elements stay where they are
  for (size_t at = 0; at < reached.size() && at < kMostReasons; ++at) {
    const auto helps = [&](Case candidate) {
      DeriveSizes(&candidate);
      if (!Validate(candidate).empty()) return false;
      if (!met.insert(why_not(candidate)).second) return false;
      reached.push_back(std::move(candidate));
      return met.contains("");
    };
    Case candidate = reached[at];
    for (const Change& change : Changes()) {
      change(candidate);
      if (candidate == reached[at]) continue;  // most changes find nothing to change
      if (helps(std::move(candidate))) return reached.back();
      candidate = reached[at];
    }
    for (Case& other : slice::WithOneParameterOf(reached[at], Case{})) {
      if (helps(std::move(other))) return reached.back();
    }
  }
  return std::nullopt;
}

}  // namespace qualm
