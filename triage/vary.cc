// SPDX-License-Identifier: Apache-2.0
#include "triage/vary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "core/scaled_cast.h"
#include "core/slice.h"

namespace qualm::triage {
namespace {

// Elements of a case that grows; of one with a window, whose products are many more.
constexpr int64_t kMostElements = int64_t{1} << 16;
constexpr int64_t kMostOfImages = int64_t{1} << 12;

int32_t Within(int64_t value, CodeRange range) {
  return static_cast<int32_t>(std::clamp<int64_t>(value, range.min, range.max));
}

void Shuffle(Tensor& tensor, Rng& rng) {
  for (int64_t i = tensor.size(); i > 1; --i) {
    const auto j = static_cast<int64_t>(rng.Below(static_cast<uint64_t>(i)));
    if (tensor.dtype() == DType::kF32) {
      std::swap(tensor.as<float>()[static_cast<size_t>(i - 1)],
                tensor.as<float>()[static_cast<size_t>(j)]);
    } else {
      const int32_t a = tensor.IntAt(i - 1), b = tensor.IntAt(j);
      tensor.SetInt(i - 1, b);
      tensor.SetInt(j, a);
    }
  }
}

// `zero` is the code of real 0.
void EditIntegers(Tensor& tensor, int32_t zero, Rng& rng) {
  const CodeRange range = RangeOf(tensor.dtype());
  const auto edit_all = [&](const auto& value) {
    for (int64_t i = 0; i < tensor.size(); ++i)
      tensor.SetInt(i, Within(value(int64_t{tensor.IntAt(i)}), range));
  };
  const uint64_t how = rng.Below(5);
  if (how == 0) return Shuffle(tensor, rng);
  if (how == 1) {
    const auto i = static_cast<int64_t>(rng.Below(static_cast<uint64_t>(tensor.size())));
    return tensor.SetInt(i, Within(int64_t{tensor.IntAt(i)} + (rng.Chance(1, 2) ? 1 : -1), range));
  }
  if (how == 2) {
    // Multiples keep what makes a tie, a negation its distance.
    const std::array<int64_t, 6> factors{-1, 2, 3, -2, 5, 7};
    const int64_t factor = rng.Pick(factors);
    return edit_all([&](int64_t code) { return zero + factor * (code - zero); });
  }
  if (how == 3 && IsCode(tensor.dtype())) {
    return edit_all([&](int64_t /*code*/) { return rng.Between(range.min, range.max); });
  }
  const std::array<int32_t, 5> rails{range.min, range.max, zero, Within(int64_t{zero} + 1, range),
                                     Within(int64_t{zero} - 1, range)};
  edit_all([&](int64_t code) { return rng.Chance(1, 2) ? code : int64_t{rng.Pick(rails)}; });
}

void EditFloats(std::span<float> values, float unit, Rng& rng) {
  const std::array<float, 5> factors{-1, 2, 0.5f, 3, 1.0f / 3};
  const bool all = rng.Chance(1, 2);
  const size_t one = rng.Below(values.size());
  const uint64_t how = rng.Below(3);
  const float factor = rng.Pick(factors);
  for (size_t i = all ? 0 : one; i < (all ? values.size() : one + 1); ++i) {
    float& value = values[i];
    if (how == 0) value *= factor;
    if (how == 1) value += static_cast<float>(rng.Between(-4, 4)) * unit;
    if (how == 2) value = std::nextafter(value, rng.Chance(1, 2) ? INFINITY : -INFINITY);
  }
}

void EditTensor(Tensor& tensor, const QParams& q, Rng& rng) {
  if (tensor.empty()) return;
  if (tensor.dtype() != DType::kF32) {
    EditIntegers(tensor, q.zero_point_at(0), rng);
  } else if (rng.Chance(1, 3)) {
    Shuffle(tensor, rng);
  } else {
    EditFloats(tensor.as<float>(), q.scale_at(0), rng);
  }
}

void EditZeroPoints(QParams& q, CodeRange range, Rng& rng) {
  const bool random = rng.Chance(1, 2);
  for (int32_t& z : q.zero_point) {
    z = random ? static_cast<int32_t>(rng.Between(range.min, range.max))
               : Within(int64_t{z} + (rng.Chance(1, 2) ? 1 : -1), range);
  }
}

void EditScales(QParams& q, Rng& rng) {
  const std::array<float, 4> factors{2, 0.5f, 3, 1.0f / 3};
  const float factor = rng.Chance(1, 2) ? rng.Pick(factors)
                                        : std::ldexp(1.0f, static_cast<int>(rng.Between(-60, 60)));
  for (float& scale : q.scale) scale *= factor;
}

void EditParameters(Case& c, Rng& rng) {
  const OpRow& row = RowOf(c.op);
  const CodeRange codes{-128, 255};
  const uint64_t parameter = rng.Below(7);
  // A cast has no zero points, and who is asked one without scales may know none.
  if (row.cast && !(parameter == 3 && IsScaledCast(c))) return;
  switch (parameter) {
    case 0: return EditZeroPoints(c.x_q, IsCode(c.x.dtype()) ? RangeOf(c.x.dtype()) : codes, rng);
    case 1: return EditZeroPoints(c.w_q, RangeOf(c.w.dtype()), rng);
    case 2:
      if (row.out_q != OutQParams::kFixed)
        EditZeroPoints(c.out_q, IsCode(c.out_dtype) ? RangeOf(c.out_dtype) : codes, rng);
      return;
    case 3:
      if (row.out_q != OutQParams::kFixed) EditScales(rng.Chance(1, 2) ? c.out_q : c.x_q, rng);
      return;
    case 4:
      if (c.bias && !c.bias->empty())
        EditFloats(*c.bias, c.x_q.scale_at(0) * c.w_q.scale_at(0), rng);
      if (c.bias_i32 && !c.bias_i32->empty()) {
        const auto size = static_cast<int64_t>(c.bias_i32->size());
        Tensor bias = Tensor::Of<int32_t>({size}, *c.bias_i32);
        EditIntegers(bias, 0, rng);
        std::ranges::copy(bias.as<int32_t>(), c.bias_i32->begin());
      }
      return;
    case 5: return OpenClamp(&c);
    case 6: c.relu = row.relu && !c.relu; return;
  }
}

// 0 .. count-1, and more of them at random.
std::vector<int64_t> Grown(int64_t count, Rng& rng) {
  const std::array<int64_t, 10> by{1, 2, 3, 4, 4, 8, 8, 16, 32, count};
  std::vector<int64_t> items = slice::Range(0, count);
  for (int64_t more = rng.Pick(by); more > 0; --more) items.push_back(rng.Between(0, count - 1));
  return items;
}

// More whole blocks of weights, in front of what is left behind the last one. A cut within blocks
// would make a block of each term.
std::vector<int64_t> GrownBlocks(const Case& c, Rng& rng) {
  const int64_t block = c.w_block, whole = c.K / block;
  std::vector<int64_t> terms = slice::Range(0, whole * block);
  for (int64_t more = rng.Between(1, 3); more > 0; --more) {
    const int64_t first = rng.Between(0, whole - 1) * block;
    for (int64_t k = 0; k < block; ++k) terms.push_back(first + k);
  }
  for (int64_t k = whole * block; k < c.K; ++k) terms.push_back(k);
  return terms;
}

// More channels tell a tail of channels from a layer of few.
void GrowImages(Case& c, Rng& rng) {
  if (c.x.size() + c.w.size() > kMostOfImages) return;
  const bool grouped = c.window.groups > 1;
  switch (rng.Below(3)) {
    case 0:
      if (!grouped && c.N > 0) c = slice::Channels(c, Grown(c.N, rng));
      return;
    case 1:
      if (IsConv(c.op) && !grouped && c.window.in_c > 0)
        c = slice::Terms(c, Grown(c.window.in_c, rng));
      return;
    case 2:
      if (c.window.batch > 0) c = slice::Batches(c, Grown(c.window.batch, rng));
      return;
  }
}

void Grow(Case& c, Rng& rng) {
  if (RowOf(c.op).qparams) return;
  if (HasWindow(c.op)) return GrowImages(c, rng);
  switch (rng.Below(3)) {
    case 0:
      if (c.w_block > 1 && c.K >= c.w_block)
        c = slice::Terms(c, GrownBlocks(c, rng));
      else if (c.K > 0)
        c = slice::Terms(c, Grown(c.K, rng));
      return;
    case 1:
      if (c.N > 0) c = slice::Channels(c, Grown(c.N, rng));
      return;
    case 2:
      if (c.M > 0) c = slice::Rows(c, Grown(c.M, rng));
      return;
  }
}

}  // namespace

std::optional<Case> Varied(const Case& c, uint64_t seed) {
  Rng rng(seed);
  Case varied = ProblemOf(c);
  if (rng.Chance(1, 3) && c.x.size() + c.w.size() <= kMostElements) Grow(varied, rng);
  if (rng.Chance(1, 2)) EditParameters(varied, rng);
  if (rng.Chance(3, 4)) EditTensor(varied.x, varied.x_q, rng);
  if (rng.Chance(1, 2)) EditTensor(varied.w, varied.w_q, rng);
  if (!Validate(varied).empty()) return std::nullopt;
  return varied;
}

namespace {

// Codes of the other type, and a zero point that moves with them; false where it leaves int32.
bool TakeOtherType(DType& dtype, std::vector<int32_t>& zero_points, int32_t& moved) {
  if (!IsCode(dtype)) return false;
  moved = RangeOf(OtherSign(dtype)).min - RangeOf(dtype).min;
  dtype = OtherSign(dtype);
  for (int32_t& zero : zero_points) {
    const int64_t to = int64_t{zero} + moved;
    if (to < INT32_MIN || to > INT32_MAX) return false;
    zero = static_cast<int32_t>(to);
  }
  return true;
}

bool RetypeCodes(Tensor& codes, QParams& q) {
  DType dtype = codes.dtype();
  int32_t moved = 0;
  if (!TakeOtherType(dtype, q.zero_point, moved)) return false;
  Tensor to(dtype, codes.shape());
  for (int64_t i = 0; i < codes.size(); ++i) to.SetInt(i, codes.IntAt(i) + moved);
  codes = std::move(to);
  return true;
}

bool RetypeOutput(Case& c) {
  int32_t moved = 0;
  if (!HasOutQParams(c.op) || !TakeOtherType(c.out_dtype, c.out_q.zero_point, moved)) return false;
  c.out_min += moved, c.out_max += moved;
  return true;
}

// Another stride, dilation or padding.
bool MoveWindow(Case& c, Rng& rng) {
  struct Field {
    int64_t Window::* of;
    int64_t least, most;
  };
  constexpr std::array kFields{Field{&Window::stride_h, 1, 3},   Field{&Window::stride_w, 1, 3},
                               Field{&Window::dilation_h, 1, 2}, Field{&Window::dilation_w, 1, 2},
                               Field{&Window::pad_top, 0, 2},    Field{&Window::pad_bottom, 0, 2},
                               Field{&Window::pad_left, 0, 2},   Field{&Window::pad_right, 0, 2}};
  const Field& field = rng.Pick(kFields);
  const int64_t before = std::exchange(c.window.*field.of, rng.Between(field.least, field.most));
  if (c.window.*field.of == before) return false;
  DeriveSizes(&c);
  return c.M > 0 && c.M * c.N <= kMostOfImages;
}

// Each block as two halves with its scale and zero point; false where blocks have no halves.
bool HalveBlocks(Case& c) {
  if (c.w_block < 2 || c.w_block % 2 != 0) return false;
  const Case whole = c;
  c.w_block /= 2;
  if (c.x_block != 0) c.x_block = c.w_block;
  const int64_t blocks = RowBlocks(c), of_whole = RowBlocks(whole);
  for (QParams Case::* const q : {&Case::w_q, &Case::x_q}) {
    if (q == &Case::x_q && c.x_block == 0) continue;
    const QParams& old = whole.*q;
    QParams& halves = c.*q;
    halves.scale.clear(), halves.zero_point.clear();
    for (int64_t row = 0; row < std::ssize(old.scale) / of_whole; ++row) {
      for (int64_t block = 0; block < blocks; ++block) {
        const auto at = static_cast<size_t>(row * of_whole + block / 2);
        halves.scale.push_back(old.scale[at]);
        halves.zero_point.push_back(old.zero_point[at]);
      }
    }
  }
  return true;
}

}  // namespace

std::optional<Case> Reduced(const Case& c, uint64_t seed) {
  Rng rng(seed);
  Case reduced = ProblemOf(c);
  const auto some_of = [&](int64_t size) { return slice::Range(0, rng.Between(1, size - 1)); };
  const bool plain = !HasWindow(c.op) && !RowOf(c.op).observer && c.op != Op::kConcat;
  bool changed = false;
  switch (rng.Below(8)) {  // on the number of terms most of all
    case 0:
      if (plain && c.N > 1) reduced = slice::Channels(reduced, some_of(c.N)), changed = true;
      break;
    case 1:
      if (plain && c.M > 1) reduced = slice::Rows(reduced, some_of(c.M)), changed = true;
      break;
    case 2: changed = HasXQParams(c) && RetypeCodes(reduced.x, reduced.x_q); break;
    case 3: changed = RetypeOutput(reduced); break;
    default:
      if (HasWindow(c.op))
        changed = MoveWindow(reduced, rng);
      else if (c.w_block != 0 && rng.Chance(1, 3))
        for (int64_t times = rng.Between(1, 4); times > 0 && HalveBlocks(reduced); --times)
          changed = true;
      else if (HasSums(c) && c.K > 1)
        reduced = slice::Terms(reduced, some_of(c.K)), changed = true;
  }
  return changed && Validate(reduced).empty() ? std::optional(std::move(reduced)) : std::nullopt;
}

std::optional<Case> Extended(const Case& c, uint64_t seed) {
  Rng rng(seed);
  Case extended = ProblemOf(c);
  const OpRow& row = RowOf(c.op);
  constexpr int32_t kMost = 100;  // of a bias, in units of the sum or of the output
  const auto is_0 = [](int32_t value) { return value == 0; };
  bool changed = false;
  switch (rng.Below(5)) {
    case 0:
      if (!row.bias_i32 || c.bias || c.bias_i32) break;
      extended.bias_i32.emplace();
      for (int64_t n = 0; n < c.N; ++n)
        extended.bias_i32->push_back(static_cast<int32_t>(rng.Between(-kMost, kMost)));
      changed = true;
      break;
    case 1:
      if (!row.bias || c.bias || c.bias_i32) break;
      extended.bias.emplace();
      for (int64_t n = 0; n < c.N; ++n)
        extended.bias->push_back(static_cast<float>(rng.Between(-kMost, kMost)) *
                                 c.out_q.scale_at(0));
      changed = true;
      break;
    case 2: changed = row.relu && !std::exchange(extended.relu, true); break;
    default:
      QParams& q = rng.Chance(1, 2) ? extended.x_q : extended.w_q;
      const bool has = &q == &extended.x_q ? HasXQParams(c) : HasW(c.op);
      if (!has || !std::ranges::all_of(q.zero_point, is_0)) break;
      for (int32_t& zero_point : q.zero_point) zero_point = static_cast<int32_t>(rng.Between(1, 9));
      if (row.out_q == OutQParams::kOfInput) extended.out_q = extended.x_q;
      changed = true;
  }
  return changed && Validate(extended).empty() ? std::optional(std::move(extended)) : std::nullopt;
}

}  // namespace qualm::triage
