// SPDX-License-Identifier: Apache-2.0
#include "adapters/faulty/kernel.h"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "oracles/exact/evaluate.h"
#include "triage/stages.h"

namespace qualm::faulty {
namespace {

using triage::Cause;
using triage::Stages;
using triage::SumTerms;

constexpr int64_t kLanes = 8;      // columns per vector
constexpr int64_t kBlockK = 4;     // terms per step
constexpr int64_t kChunk = 16384;  // elements of a row that one thread takes
constexpr int64_t kPixels = 8;     // output pixels per step

// A hook of the kernel itself, in the form in which triage applies causes.
Cause Hook(std::function<void(Stages& stages)> set) {
  return {triage::CauseStage::kOperands,
          FindingKind::kUnknown,
          "",
          "",
          [](const Case&) { return true; },
          [set = std::move(set)](Stages& stages) {
            set(stages);
            return true;
          }};
}
Cause SumHook(std::function<void(SumTerms& terms)> edit) {
  return Hook([edit = std::move(edit)](Stages& stages) {
    stages.Sums().edit_bias = [before = stages.Sums().edit_bias, edit](SumTerms& terms) {
      if (before) before(terms);
      edit(terms);
    };
  });
}
// Rounds every output as the cause of that name does.
Cause Rounds(std::string_view name) {
  Cause cause = triage::CauseNamed(name);
  cause.applies = [](const Case&) { return true; };
  return cause;
}

// Memory that all callers share: another one may have written between the two.
int64_t ThroughSharedScratch(int64_t sum) {
  static std::atomic<int64_t> scratch;
  scratch = sum;
  std::this_thread::yield();
  return scratch;
}

// How many places a shift by 32 to 39 falls short where its count is taken modulo 32. Multipliers
// that are powers of two need nothing but a shift; smaller ones give 0 without one.
int WrappedShift(const Case& c, float scale) {
  int exponent = 0;
  double multiplier = scale;
  if (c.multiplier.empty()) multiplier *= double{c.x_q.scale[0]} / c.out_q.scale[0];
  const double mantissa = std::frexp(multiplier, &exponent);
  const int shift = 1 - exponent;
  return mantissa == 0.5 && shift >= 32 && shift < 40 ? 32 : 0;
}

int32_t CodeOf(DType dtype, uint8_t byte) {
  return dtype == DType::kS8 ? int32_t{static_cast<int8_t>(byte)} : int32_t{byte};
}

uint8_t ReadByte(const void* at, int64_t offset) {
  return *(static_cast<const volatile uint8_t*>(at) + offset);
}

// Rows of elements in memory.
struct Lines {
  int64_t count = 0, elements = 0, stride = 0;
  bool wraps = false;  // the distance from the first row is an unsigned 32-bit number
};
void CopyLines(const void* from, const Lines& lines, Tensor& to) {
  if (lines.elements == 0) return;
  if (BitsOf(to.dtype()) < 8) {  // dense
    std::memcpy(to.bytes().data(), from, to.bytes().size());
    return;
  }
  const auto size = static_cast<int64_t>(SizeOf(to.dtype()));
  for (int64_t i = 0; i < lines.count; ++i) {
    const int64_t row = i * lines.stride;
    const int64_t offset = lines.wraps ? int64_t{static_cast<uint32_t>(row)} : row;
    std::memcpy(to.bytes().data() + i * lines.elements * size,
                static_cast<const uint8_t*>(from) + offset * size,
                static_cast<size_t>(lines.elements * size));
  }
}

}  // namespace

// ---- What is read.

// Loads whose values do not count, save those of kKZero.
void Kernel::TouchBeside(const Placed& p) {
  const Case& c = *p.problem;
  if (Has(Fault::kKZero) && c.K == 0 && c.M * c.N != 0) {  // do { } while
    beside_ =
        int64_t{CodeOf(c.x.dtype(), ReadByte(p.x, 0))} * CodeOf(c.w.dtype(), ReadByte(p.w, 0));
  }
  if (Has(Fault::kKOverRead) && c.K % kBlockK != 0) {  // whole blocks are loaded, the rest masked
    for (int64_t k = c.K; k < c.K + kBlockK - c.K % kBlockK; ++k) {
      for (int64_t m = 0; m < c.M && c.N != 0; ++m) (void)ReadByte(p.x, m * p.x_stride + k);
      for (int64_t n = 0; n < c.N && c.M != 0; ++n) (void)ReadByte(p.w, n * p.w_stride + k);
    }
  }
}

void Kernel::Read(const Placed& p) {
  c_ = *p.problem;
  c_.expected.reset();
  c_.observed.reset();
  if (HasWindow(c_.op)) {
    Window& v = c_.window;
    if (Has(Fault::kRowBound)) {  // rows below the image are bounded as if they lay in it
      v.in_h += std::exchange(v.pad_bottom, 0);
      c_.x = Tensor(c_.x.dtype(), {v.batch, v.in_h, v.in_w, v.in_c});
    }
    const int64_t line = Has(Fault::kLineStrideIgnored) ? v.in_w * p.x_stride : p.x_line_stride;
    const int64_t lines = p.problem->window.in_h;
    const auto size = static_cast<int64_t>(SizeOf(c_.x.dtype()));
    int64_t at = 0;
    for (int64_t y = 0; y < v.batch * v.in_h; ++y) {
      const auto* const from =
          static_cast<const uint8_t*>(p.x) + (y / v.in_h * lines + y % v.in_h) * line * size;
      for (int64_t x = 0; x < v.in_w; ++x) {
        for (int64_t i = 0; i < v.in_c * size; ++i)
          c_.x.bytes()[static_cast<size_t>(at++)] = ReadByte(from, x * p.x_stride * size + i);
      }
    }
  } else {
    const int64_t columns = c_.x.shape().back();
    CopyLines(p.x,
              {columns == 0 ? 0 : c_.x.size() / columns, columns,
               Has(Fault::kStrideIgnored) ? c_.K : p.x_stride, Has(Fault::kRowOffsetU32)},
              c_.x);
  }
  if (c_.w.empty()) return;
  const int64_t rows = HasWeights(c_.op) ? c_.N : c_.M;
  CopyLines(p.w, {rows, c_.w.size() / rows, Has(Fault::kWeightStrideIgnored) ? c_.K : p.w_stride},
            c_.w);
}

// ---- Parameters.

void Kernel::TakeKept() {
  const bool same = kept_.w == c_.w && kept_.N == c_.N && kept_.per_channel == c_.per_channel &&
                    kept_.out_dtype == c_.out_dtype;
  if (!same) {
    kept_ = c_;
    return;
  }
  if (Has(Fault::kStaleScales)) {
    for (QParams Case::* const q : {&Case::x_q, &Case::w_q, &Case::out_q})
      (c_.*q).scale = (kept_.*q).scale;
  }
  if (Has(Fault::kStaleBias) && c_.bias.has_value() == kept_.bias.has_value() &&
      c_.bias_i32.has_value() == kept_.bias_i32.has_value()) {
    c_.bias = kept_.bias;
    c_.bias_i32 = kept_.bias_i32;
  }
  if (Has(Fault::kStaleClamp)) {
    c_.out_min = kept_.out_min;
    c_.out_max = kept_.out_max;
    c_.relu = kept_.relu;
  }
}

void Kernel::EditParameters(const Placed& p) {
  if (Has(Fault::kStaleScales) || Has(Fault::kStaleBias) || Has(Fault::kStaleClamp)) TakeKept();
  if (Has(Fault::kSharedFirstParameters) && p.x == p.w) c_.w_q = c_.x_q;
  if (Has(Fault::kGroupBlockScale) && c_.N != 0 && std::ssize(c_.w_q.scale) == c_.N) {
    const std::vector<float> scales = c_.w_q.scale;
    const int64_t block = 8 * (c_.N / c_.window.groups);
    for (int64_t n = 0; n < c_.N; ++n)
      c_.w_q.scale[static_cast<size_t>(n)] = scales[static_cast<size_t>(n % block)];
  }
  if (Has(Fault::kPowerShiftWraps)) {
    for (float& scale : c_.multiplier.empty() ? c_.w_q.scale : c_.multiplier)
      scale = std::ldexp(scale, WrappedShift(c_, scale));
  }
}

// ---- Arithmetic.

Tensor Kernel::Answer(const Case& c, std::vector<Cause> own) const {
  std::vector<const Cause*> causes;
  for (const Cause& cause : faults_.causes) causes.push_back(&cause);
  for (const Cause& cause : own) causes.push_back(&cause);
  std::optional<Tensor> y;
  if (!causes.empty()) y = triage::Counterfactual(c, causes);
  return y ? *std::move(y) : exact::Evaluate(c);
}

std::vector<Cause> Kernel::OwnHooks(const Placed& p, bool again) {
  std::vector<Cause> hooks;
  if (Has(Fault::kKZero) && c_.K == 0)
    hooks.push_back(SumHook([this](SumTerms& t) { t.products += beside_; }));
  if (Has(Fault::kBiasPerBlockOfK)) {  // the first panel of four channels clears it after a block
    hooks.push_back(SumHook([](SumTerms& t) {
      if (t.channel >= 4 && t.count > 256) t.bias *= (t.count + 255) / 256;
    }));
  }
  if (Has(Fault::kStaleColumnSums)) {
    const bool packed_before = std::ssize(column_sums_) == c_.N && column_sums_of_k_ == c_.K;
    if (!packed_before) {
      column_sums_.assign(static_cast<size_t>(c_.N), 0);
      column_sums_of_k_ = c_.K;
      for (int64_t i = 0; i < c_.w.size(); ++i)
        column_sums_[static_cast<size_t>(i / c_.K)] += c_.w.IntAt(i);
    }
    hooks.push_back(
        SumHook([this](SumTerms& t) { t.w_sum = column_sums_[static_cast<size_t>(t.channel)]; }));
  }
  if (Has(Fault::kStaleScratch)) {  // an accumulator that is cleared when the layer is packed
    if (!again) scratch_ = 0;
    hooks.push_back(SumHook([this](SumTerms& t) {
      if (t.row != 0 || t.channel != 0) return;
      const auto sum = static_cast<int64_t>(t.corrected());
      t.products += scratch_;
      scratch_ += sum;
    }));
  }
  if (Has(Fault::kSharedScratch)) {
    hooks.push_back(SumHook([](SumTerms& t) {
      const auto sum = static_cast<int64_t>(t.corrected());
      t.products += ThroughSharedScratch(sum) - sum;
    }));
  }
  if (Has(Fault::kOutputNotCleared) && c_.out_dtype == DType::kS32) {
    Tensor old(DType::kS32, {c_.M, c_.N});
    CopyLines(p.y, {c_.M, c_.N, p.y_stride}, old);
    hooks.push_back(SumHook([old = std::move(old), n = c_.N](SumTerms& t) {
      t.products += old.IntAt(t.row * n + t.channel);
    }));
  }
  if (Has(Fault::kDeepChannelTap)) {
    // Behind the first eight pixels, channels behind three blocks of 64 read those of the first
    // tap.
    const int64_t channels = c_.window.in_c / c_.window.groups, groups = c_.window.groups;
    hooks.push_back(Hook([channels, groups](Stages& stages) {
      if (!stages.sums) stages.sums.emplace();
      stages.sums->read_x = [channels, groups](int64_t row, int64_t term, int64_t columns) {
        const bool deep = row / groups >= kPixels && term % channels >= 192;
        return row * columns + (deep ? term % channels : term);
      };
    }));
  }
  return hooks;
}

void Kernel::RoundTiesElsewhere(const Placed& p) {
  Tensor& y = y_;
  if (Has(Fault::kOneTie)) {
    const exact::Outputs outputs(c_);
    for (int64_t i = 0; i < y.size(); ++i) {
      double bound = 0;
      const int64_t n = i % c_.N;
      const exact::Code code = outputs.CodeAt(i / c_.N, n, &bound);
      const bool half = code.tie_distance == 0.0 && code.rest > 0;
      if (half && code.value == c_.out_q.zero_point_at(n))
        y.SetInt(i, std::clamp<int32_t>(static_cast<int32_t>(code.value) + 1,
                                        static_cast<int32_t>(code.lo), c_.out_max));
    }
  }
  const bool of_places = Has(Fault::kTailRoundsAway) || Has(Fault::kAlignmentHead);
  if (!of_places) return;
  const Tensor away = Answer(c_, {Rounds("half away from zero")});
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t m = i / c_.N, n = i % c_.N;
    const auto at = reinterpret_cast<uintptr_t>(static_cast<const float*>(p.x) + m * p.x_stride);
    const auto head = static_cast<int64_t>(-at % 32 / sizeof(float));
    const bool tail = n >= c_.N - c_.N % kLanes;
    if ((Has(Fault::kTailRoundsAway) && tail) || (Has(Fault::kAlignmentHead) && n < head))
      y.SetInt(i, away.IntAt(i));
  }
}

// A last vector that overlaps the one before reads an operand again, over which outputs lie by
// then.
void Kernel::ReadOutputsAgain(const Placed& p) {
  Tensor& y = y_;
  const bool of_x = Has(Fault::kOverlappedTailInPlace) && p.x == p.y;
  const bool of_w = Has(Fault::kSecondReadAgain) && p.w == p.y;
  if ((!of_x && !of_w) || c_.N <= kLanes || c_.N % kLanes == 0) return;
  Case again = c_;
  Tensor& operand = of_x ? again.x : again.w;
  // Of the second operand all columns of the vector are written before, of the first those that
  // whole vectors hold.
  const int64_t written = of_x ? c_.N - c_.N % kLanes : c_.N;
  for (int64_t i = 0; i < y.size(); ++i) {
    if (i % c_.N >= c_.N - kLanes && i % c_.N < written)
      operand.bytes()[static_cast<size_t>(i)] = y.bytes()[static_cast<size_t>(i)];
  }
  const Tensor read = Answer(again);
  for (int64_t i = 0; i < y.size(); ++i) {
    if (i % c_.N >= c_.N - kLanes) y.SetInt(i, read.IntAt(i));
  }
}

// ---- What is written.

void Kernel::Write(const Placed& p) const {
  const Tensor& y = y_;
  if (BitsOf(y.dtype()) < 8) {  // dense
    if (!y.empty()) std::memcpy(p.y, y.bytes().data(), y.bytes().size());
    return;
  }
  const std::vector<int64_t> shape = c_.output_shape();
  const int64_t columns = shape.back(), rows = columns == 0 ? 0 : y.size() / columns;
  const auto size = static_cast<int64_t>(SizeOf(y.dtype()));
  auto* const to = static_cast<uint8_t*>(p.y);
  const auto store = [&](int64_t row, int64_t column, int64_t from) {
    uint8_t* const at = to + (row * p.y_stride + column) * size;
    if (from < 0) {
      std::memset(at, 0, static_cast<size_t>(size));
    } else {
      std::memcpy(at, y.bytes().data() + from * size, static_cast<size_t>(size));
    }
  };
  const int64_t x_size = BitsOf(c_.x.dtype()) / 8;  // 0 has no kOverlappedTail
  for (int64_t m = 0; m < rows; ++m) {
    // A vector that ends at the last column, of a row that is shorter than it.
    for (int64_t n = columns - kLanes; Has(Fault::kOverlappedTail) && n < 0; ++n) {
      (void)ReadByte(p.x, (m * p.x_stride + n) * x_size);
      store(m, n, m * columns + n);
    }
    for (int64_t n = 0; n < columns; ++n) {
      if (Has(Fault::kChunkEdge) && (n + 1) % kChunk == 0) continue;
      if (Has(Fault::kHalfTail) && n - (columns - columns % kLanes) >= kLanes / 2) continue;
      int64_t from = m * columns + n;
      // Three columns left over: two are stored, the vector is shifted by two, one is stored. With
      // the shift before the first store, lanes 2 and 3 land in columns 0 and 1; 3 is padding.
      const int64_t of_tail = n - (columns - columns % 4);
      if (Has(Fault::kStoreOrder) && rows >= 2 && m == rows - 1 && columns % 4 == 3) {
        if (of_tail == 0) from += 2;
        if (of_tail == 1) from = -1;
      }
      store(m, n, from);
    }
  }
  if (Has(Fault::kInputShiftedInPlace) && c_.x.dtype() == DType::kS8) {
    // s8 as u8 with a zero point moved by 128, and never moved back.
    auto* const x = static_cast<uint8_t*>(const_cast<void*>(p.x));
    for (int64_t m = 0; m < c_.M; ++m) {
      for (int64_t k = 0; k < c_.K; ++k) x[m * p.x_stride + k] ^= 0x80;
    }
  }
}

void Kernel::Run(const Placed& p, bool again) {
  const int rounding = std::fegetround();
  TouchBeside(p);
  Read(p);
  EditParameters(p);
  std::vector<Cause> hooks = OwnHooks(p, again);
  if (Has(Fault::kCallerRounding)) {
    if (rounding == FE_DOWNWARD) hooks.push_back(Rounds("floor"));
    if (rounding == FE_UPWARD) hooks.push_back(Rounds("ceiling"));
    if (rounding == FE_TOWARDZERO) hooks.push_back(Rounds("truncation"));
  }
  const ScopedEnvironment normal(RunContext{});
  y_ = Answer(c_, std::move(hooks));
  RoundTiesElsewhere(p);
  ReadOutputsAgain(p);
  Write(p);
  c_ = Case{};
  y_ = Tensor{};
}

}  // namespace qualm::faulty
