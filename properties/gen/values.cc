// SPDX-License-Identifier: Apache-2.0
#include "properties/gen/values.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>

namespace qualm::gen::internal {

Theme PickTheme(Rng& rng, std::span<const Weighted> items) {
  int64_t sum = 0;
  for (const Weighted& item : items) sum += item.weight;
  int64_t at = rng.Between(0, sum - 1);
  for (const Weighted& item : items) {
    if (at < item.weight) return item.theme;
    at -= item.weight;
  }
  return items.back().theme;
}

int64_t DrawDim(Rng& rng, int64_t cap) {
  constexpr std::array<int64_t, 5> kLanes{4, 8, 16, 32, 64};
  const uint64_t style = rng.Below(100);
  if (style < 1) return 0;
  if (style < 35) return rng.Between(1, std::min<int64_t>(8, cap));
  if (style < 75) {
    const int64_t lanes = rng.Pick(kLanes);
    const int64_t q = rng.Between(1, 3);
    const int64_t dim = q * lanes + rng.Between(-1, 1);
    if (dim <= cap) return dim;
  }
  return rng.Between(1, std::min<int64_t>(40, cap));
}

void DrawShape(Rng& rng, Theme theme, int64_t budget, Case& c) {
  const int64_t cap = theme == Theme::kTails ? 260 : 130;
  c.N = DrawDim(rng, cap);
  c.M = rng.Chance(2, 3) ? rng.Between(1, 3) : DrawDim(rng, 40);
  if (theme == Theme::kEmpty) {
    (rng.Chance(1, 2) ? c.M : c.N) = 0;
  }
  if (c.N > 0 && c.M > budget / c.N) c.M = std::max<int64_t>(1, budget / c.N);
}

float ToScale(double value) {
  constexpr double kSmallest = FLT_TRUE_MIN;
  constexpr double kLargest = FLT_MAX;
  if (!(value >= kSmallest)) return FLT_TRUE_MIN;
  if (value > kLargest) return FLT_MAX;
  return static_cast<float>(value);
}

float DrawScale(Rng& rng, int low, int high) {
  const auto mantissa = static_cast<double>(rng.Between(1 << 23, (1 << 24) - 1));
  const auto exponent = static_cast<int>(rng.Between(low, high));
  return ToScale(std::ldexp(mantissa, exponent - 23));
}

float ExtremeScale(Rng& rng) {
  switch (rng.Below(10)) {
    case 0: return FLT_TRUE_MIN;
    case 1: return std::bit_cast<float>(static_cast<uint32_t>(rng.Between(1, 0x7fffff)));
    case 2: return FLT_MIN;
    case 3: return std::nextafter(FLT_MIN, 0.0f);
    case 4: return 0x1p-64f;
    case 5: return 0x1p+64f;
    case 6: return FLT_MAX;
    case 7: return 1.0f;
    case 8: return std::nextafter(1.0f, 2.0f);
    default: return DrawScale(rng, -126, 127);
  }
}

float CornerMultiplier(Rng& rng) {
  int64_t mantissa = int64_t{1} << 23;
  switch (rng.Below(4)) {
    case 0: break;
    case 1: mantissa += 1; break;
    case 2: mantissa = (int64_t{1} << 24) - 1; break;
    default: mantissa = rng.Between(1 << 23, (1 << 24) - 1) | 1; break;
  }
  const auto exponent = static_cast<int>(rng.Chance(1, 4) ? rng.Between(-1, 1)  // [1/2,1), 1, > 1
                                                          : rng.Between(-31, 31));
  return ToScale(std::ldexp(static_cast<double>(mantissa), exponent - 23));
}

EdgeMultiplier DrawEdgeMultiplier(Rng& rng) {
  // Nothing to shift, the last shift of 32 bits and beyond, where only INT32_MIN still has a half.
  constexpr std::array<int, 14> kShifts{-31, -30, -1, 0, 1, 2, 30, 31, 31, 32, 32, 33, 33, 34};
  EdgeMultiplier multiplier;
  multiplier.shift = rng.Chance(2, 3) ? rng.Pick(kShifts) : static_cast<int>(rng.Between(-31, 40));
  int64_t mantissa = int64_t{1} << 23;
  switch (rng.Below(6)) {
    case 0: mantissa += 1; break;
    case 1: mantissa = (int64_t{1} << 24) - 1; break;
    case 2: mantissa += int64_t{1} << rng.Between(0, 22); break;
    default: break;  // a power of two
  }
  multiplier.value = std::ldexp(static_cast<double>(mantissa), -multiplier.shift - 23);
  return multiplier;
}

float PowerOfTwo(Rng& rng) {
  return ToScale(std::ldexp(1.0, static_cast<int>(rng.Between(-9, 9))));
}

int32_t EdgeAccumulator(Rng& rng, const EdgeMultiplier& multiplier) {
  if (rng.Chance(1, 4)) return CornerAccumulator(rng);
  const double tie = (static_cast<double>(rng.Between(-3, 2)) + 0.5) / multiplier.value;
  return ToInt32(std::floor(tie) + static_cast<double>(rng.Between(-1, 1)));
}

void DrawZeroPoints(Rng& rng, DType dtype, Theme theme, std::vector<int32_t>& zero_points) {
  const CodeRange range = RangeOf(dtype);
  const bool wild = theme == Theme::kZeroPoints ? rng.Chance(1, 6) : rng.Chance(1, 40);
  for (int32_t& zero : zero_points) {
    if (wild && rng.Chance(2, 3)) {
      switch (rng.Below(5)) {
        case 0: zero = range.min - 1; break;
        case 1: zero = range.max + 1; break;
        case 2: zero = static_cast<int32_t>(rng.Between(-1000, 1000)); break;
        case 3: zero = rng.Chance(1, 2) ? INT32_MIN : INT32_MAX; break;
        default: zero = static_cast<int32_t>(rng.Between(INT32_MIN, INT32_MAX)); break;
      }
      continue;
    }
    if (theme != Theme::kZeroPoints && rng.Chance(1, 3)) {
      zero = 0;
      continue;
    }
    switch (rng.Below(8)) {
      case 0: zero = range.min; break;
      case 1: zero = range.max; break;
      case 2: zero = 0; break;
      case 3: zero = 1; break;
      case 4: zero = range.min < 0 ? -1 : 127; break;
      case 5: zero = range.min < 0 ? 1 : 128; break;
      default: zero = UniformCode(rng, dtype); break;
    }
  }
}

namespace {

// The codes that BoundaryCode chooses from in half of the cases.
std::array<int32_t, 8> CornersOf(DType dtype) {
  const CodeRange range = RangeOf(dtype);
  return {range.min,
          range.min,
          range.min + 1,
          0,
          1,
          range.max - 1,
          range.max,
          range.min < 0 ? -1 : std::min(128, range.max / 2 + 1)};
}

}  // namespace

int32_t BoundaryCode(Rng& rng, DType dtype) {
  if (rng.Chance(1, 2)) return UniformCode(rng, dtype);
  return rng.Pick(CornersOf(dtype));
}

namespace {

// What Rng::Below(count) gives and takes from the generator, for a power of two.
uint64_t BelowPower(Rng& rng, uint64_t count) {
  uint64_t value = rng.Next();
  while (value > UINT64_MAX - count) [[unlikely]]
    value = rng.Next();
  return value & (count - 1);
}

// Fills with draw(rng). The generator is a local of the loop: stores to bytes may otherwise change
// it as far as the compiler knows, and it would be loaded and stored for each code.
template <class Draw>
void FillBytes(Rng& rng, std::span<uint8_t> codes, const Draw& draw) {
  Rng own = rng;
  for (uint8_t& code : codes) code = draw(own);
  rng = own;
}

}  // namespace

void FillUniform(Rng& rng, DType dtype, std::span<uint8_t> codes) {
  const auto low = static_cast<uint8_t>(RangeOf(dtype).min);
  FillBytes(rng, codes, [low](Rng& own) {  // all 256 codes of the type
    return static_cast<uint8_t>(low + BelowPower(own, 256));
  });
}

void FillBoundary(Rng& rng, DType dtype, std::span<uint8_t> codes) {
  const auto low = static_cast<uint8_t>(RangeOf(dtype).min);
  std::array<uint8_t, 8> corners{};
  std::ranges::transform(CornersOf(dtype), corners.begin(),
                         [](int32_t code) { return static_cast<uint8_t>(code); });
  // Which of the two halves draws is decided by chance, so a branch would often be guessed wrongly.
  FillBytes(rng, codes, [&corners, low](Rng& own) {
    const bool uniform = BelowPower(own, 2) == 0;
    const uint64_t drawn = BelowPower(own, uniform ? 256 : corners.size());
    const auto code = static_cast<uint8_t>(low + drawn);
    const uint8_t corner = corners[drawn % corners.size()];
    const auto mask = static_cast<uint8_t>(uniform ? 0xFF : 0);
    return static_cast<uint8_t>(corner ^ ((code ^ corner) & mask));
  });
}

void FillExtreme(Rng& rng, DType dtype, std::span<uint8_t> codes) {
  const CodeRange range = RangeOf(dtype);
  const auto low = static_cast<uint8_t>(range.min), high = static_cast<uint8_t>(range.max);
  FillBytes(rng, codes, [=](Rng& own) { return BelowPower(own, 2) == 0 ? low : high; });
}

void FillPicks(Rng& rng, const std::array<int32_t, 4>& alphabet, std::span<uint8_t> codes) {
  FillBytes(rng, codes, [&](Rng& own) {
    return static_cast<uint8_t>(alphabet[BelowPower(own, alphabet.size())]);
  });
}

int32_t CornerAccumulator(Rng& rng) {
  switch (rng.Below(6)) {
    case 0: return INT32_MIN;
    case 1: return INT32_MAX;
    case 2: return static_cast<int32_t>(rng.Between(-2, 2));
    default: break;
  }
  const int64_t power = int64_t{1} << rng.Between(0, 31);
  int64_t value = power + rng.Between(-1, 1);
  if (rng.Chance(1, 2)) value = -value;
  return ToInt32(static_cast<double>(value));
}

int32_t ToInt32(double value) {
  if (!(value > double{INT32_MIN})) return INT32_MIN;
  if (value >= double{INT32_MAX}) return INT32_MAX;
  return static_cast<int32_t>(std::floor(value));
}

float SpecialFloat(Rng& rng) {
  const std::array<float, 14> specials{
      0.0f,
      -0.0f,
      FLT_TRUE_MIN,
      -FLT_TRUE_MIN,
      std::nextafter(FLT_MIN, 0.0f),
      -FLT_MIN,
      FLT_MAX,
      -FLT_MAX,
      std::numeric_limits<float>::infinity(),
      -std::numeric_limits<float>::infinity(),
      std::bit_cast<float>(0x7fc00000u),   // the usual quiet NaN
      std::bit_cast<float>(0xffc00000u),   // what x86 invalid operations return
      std::bit_cast<float>(0x7f800001u),   // signalling
      std::bit_cast<float>(0xffffffffu)};  // all ones
  return rng.Pick(specials);
}

void DrawClamp(Rng& rng, Theme theme, Case& c) {
  const CodeRange range = RangeOf(c.out_dtype);
  OpenClamp(&c);
  const int32_t zero = c.out_dtype == DType::kS32   ? 0
                       : c.out_q.zero_point.empty() ? 0
                                                    : c.out_q.zero_point[0];
  const auto low = [&] {
    return c.out_dtype == DType::kS32 ? int64_t{-70000} : int64_t{range.min};
  }();
  const auto high = [&] {
    return c.out_dtype == DType::kS32 ? int64_t{70000} : int64_t{range.max};
  }();
  const uint64_t style = rng.Below(theme == Theme::kClampEdges ? 40 : 100);
  if (style < 12) {  // narrow
    const int64_t a = rng.Between(low, high);
    const int64_t b = rng.Between(low, high);
    c.out_min = static_cast<int32_t>(std::min(a, b));
    c.out_max = static_cast<int32_t>(std::max(a, b));
  } else if (style < 15) {  // a single code
    c.out_min = c.out_max = static_cast<int32_t>(rng.Between(low, high));
  } else if (style < 25 && zero >= range.min && zero <= range.max) {  // relu6
    c.out_min = zero;
    c.out_max = static_cast<int32_t>(rng.Between(zero, std::max<int64_t>(zero, high)));
  }
  c.relu = rng.Chance(1, 4);
}

void DrawCodesOf(Rng& rng, Theme theme, bool reduce, Observer& o) {
  o.reduce_range = reduce && !(o.symmetric && o.dtype == DType::kU8);
  const CodeRange range = RangeOf(o.dtype);
  o.quant_min = range.min;
  o.quant_max = range.max;
  if (theme != Theme::kZeroPoints && !rng.Chance(1, 10)) return;
  // 0 is among the codes, and two are left when halved.
  o.quant_min = static_cast<int32_t>(rng.Between(range.min, 0));
  o.quant_max = static_cast<int32_t>(rng.Between(rng.Chance(1, 2) ? 2 : 15, range.max));
}

}  // namespace qualm::gen::internal
