// SPDX-License-Identifier: Apache-2.0
#include "fuzz/mutator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/case_codec.h"

// libFuzzer's own byte mutations; absent in other drivers.
extern "C" __attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t* data, size_t size,
                                                         size_t size_max);

namespace qualm::fuzz {
namespace {

int64_t AnyIndex(Rng& rng, int64_t count) {
  return static_cast<int64_t>(rng.Below(static_cast<uint64_t>(count)));
}

int32_t Bounded(int64_t value, CodeRange range) {
  return static_cast<int32_t>(std::clamp<int64_t>(value, range.min, range.max));
}

// An integer of the type: ends, their neighbours, powers of two, anything.
int32_t AnyInteger(Rng& rng, CodeRange range) {
  switch (rng.Below(6)) {
    case 0: return range.min;
    case 1: return range.max;
    case 2: return Bounded(range.min + rng.Between(0, 2), range);
    case 3: return Bounded(range.max - rng.Between(0, 2), range);
    case 4: {
      const int64_t power = int64_t{1} << rng.Below(32);
      return Bounded((rng.Chance(1, 2) ? power : -power) + rng.Between(-1, 1), range);
    }
    default: return static_cast<int32_t>(rng.Between(range.min, range.max));
  }
}

// A valid scale: a step away, a power of two away, a round one, anything.
float AnyScale(Rng& rng, float scale) {
  float drawn = scale;
  switch (rng.Below(6)) {
    case 0: drawn = std::nextafter(scale, rng.Chance(1, 2) ? 0.0f : INFINITY); break;
    case 1: drawn = std::ldexp(scale, static_cast<int>(rng.Between(-3, 3))); break;
    case 2: drawn = std::ldexp(1.0f, static_cast<int>(rng.Between(-12, 6))); break;
    case 3: drawn = std::ldexp(1.0f, static_cast<int>(rng.Between(-149, 127))); break;
    case 4: drawn = static_cast<float>(rng.Between(1, 1 << 16)) * 0x1p-16f; break;
    default: drawn = std::bit_cast<float>(static_cast<uint32_t>(rng.Between(1, 0x7F7FFFFF))); break;
  }
  return std::isfinite(drawn) && drawn > 0 ? drawn : 1.0f;
}

// The same from a value: for x of quantize and for float biases.
float AnyReal(Rng& rng, float value, bool finite) {
  float drawn = value;
  switch (rng.Below(6)) {
    case 0: drawn = std::nextafter(value, rng.Chance(1, 2) ? -INFINITY : INFINITY); break;
    case 1: drawn = -value; break;
    case 2: drawn = 0.0f; break;
    case 3: drawn = static_cast<float>(rng.Between(-512, 512)) * 0.5f; break;
    case 4: drawn = std::ldexp(value, static_cast<int>(rng.Between(-3, 3))); break;
    default: drawn = std::bit_cast<float>(static_cast<uint32_t>(rng.Next())); break;
  }
  return finite && !std::isfinite(drawn) ? 0.0f : drawn;
}

void SetReal(Tensor& tensor, int64_t i, float value) {
  tensor.as<float>()[static_cast<size_t>(i)] = value;
}

// Same elements where both shapes have them, 0 elsewhere.
Tensor Reshaped(const Tensor& from, DType dtype, int64_t rows, int64_t columns) {
  Tensor to(dtype, {rows, columns});
  const int64_t from_columns = from.shape()[1];
  const CodeRange range = RangeOf(dtype);
  for (int64_t i = 0; i < std::min(rows, from.shape()[0]); ++i) {
    for (int64_t j = 0; j < std::min(columns, from_columns); ++j) {
      if (dtype == DType::kF32) {
        SetReal(to, i * columns + j, from.FloatAt(i * from_columns + j));
      } else {
        to.SetInt(i * columns + j, Bounded(from.IntAt(i * from_columns + j), range));
      }
    }
  }
  return to;
}

// The operand whose parameters may come one per channel.
QParams& ChannelQParams(Case& c) {
  if (c.op == Op::kQuantize) return c.out_q;
  return c.op == Op::kDequantize ? c.x_q : c.w_q;
}

// Brings every list to the length that M, N and per_channel ask for.
void FitLists(Case& c) {
  const auto length = static_cast<size_t>(c.per_channel ? c.N : 1);
  const auto fit = [](auto& list, size_t count, auto filler) {
    list.resize(count, list.empty() ? filler : list.back());
  };
  if (c.op == Op::kRequantize && (!c.multiplier.empty() || (c.per_channel && c.N == 0))) {
    fit(c.multiplier, length, 1.0f);
    c.x_q = c.w_q = QParams{};  // mean nothing beside a multiplier
  } else {
    QParams& q = ChannelQParams(c);
    fit(q.scale, length, 1.0f);
    fit(q.zero_point, length, 0);
  }
  if (c.bias) fit(*c.bias, static_cast<size_t>(c.N), 0.0f);
  if (c.bias_i32) fit(*c.bias_i32, static_cast<size_t>(c.N), 0);
}

void Resize(Case& c, int64_t rows, int64_t columns, int64_t depth) {
  c.M = rows, c.N = columns, c.K = depth;
  const bool linear = c.op == Op::kLinear;
  c.x = Reshaped(c.x, c.x.dtype(), rows, linear ? depth : columns);
  if (linear) c.w = Reshaped(c.w, c.w.dtype(), columns, depth);
  FitLists(c);
}

void SetOutType(Case& c, DType dtype) {
  c.out_dtype = dtype;
  const CodeRange range = RangeOf(dtype);
  c.out_min = range.min;
  c.out_max = range.max;
  if (dtype == DType::kS32) c.bias.reset();
}

// ---- The mutations. Each returns without a change where the case has no room for it.

void ChangeElement(Case& c, Rng& rng) {
  Tensor& tensor = c.op == Op::kLinear && rng.Chance(1, 2) ? c.w : c.x;
  if (tensor.empty()) return;
  const int64_t i = AnyIndex(rng, tensor.size());
  if (tensor.dtype() == DType::kF32) {
    SetReal(tensor, i, AnyReal(rng, tensor.FloatAt(i), false));
    return;
  }
  const CodeRange range = RangeOf(tensor.dtype());
  const int64_t value = tensor.IntAt(i);
  tensor.SetInt(
      i, rng.Chance(1, 2) ? Bounded(value + rng.Between(-2, 2), range) : AnyInteger(rng, range));
}

void FillRow(Case& c, Rng& rng) {
  Tensor& tensor = c.op == Op::kLinear && rng.Chance(1, 2) ? c.w : c.x;
  if (tensor.empty()) return;
  const int64_t columns = tensor.shape()[1];
  const int64_t row = AnyIndex(rng, tensor.shape()[0]);
  const int64_t source = row * columns + AnyIndex(rng, columns);
  const bool constant = rng.Chance(1, 2);
  for (int64_t i = row * columns; i < (row + 1) * columns; ++i) {
    if (tensor.dtype() == DType::kF32) {
      SetReal(tensor, i,
              constant ? tensor.FloatAt(source) : AnyReal(rng, tensor.FloatAt(i), false));
    } else {
      tensor.SetInt(i, constant ? tensor.IntAt(source) : AnyInteger(rng, RangeOf(tensor.dtype())));
    }
  }
}

void SwapElements(Case& c, Rng& rng) {
  Tensor& tensor = c.op == Op::kLinear && rng.Chance(1, 2) ? c.w : c.x;
  if (tensor.empty()) return;
  const size_t width = SizeOf(tensor.dtype());
  uint8_t* bytes = tensor.bytes().data();
  uint8_t* a = bytes + width * rng.Below(static_cast<uint64_t>(tensor.size()));
  uint8_t* b = bytes + width * rng.Below(static_cast<uint64_t>(tensor.size()));
  if (a != b) std::swap_ranges(a, a + width, b);
}

// One pair of products to its extremes, with equal signs: what int16 cannot hold.
void ExtremePair(Case& c, Rng& rng) {
  if (c.op != Op::kLinear || c.x.empty() || c.w.empty()) return;
  const int64_t m = AnyIndex(rng, c.M);
  const int64_t n = AnyIndex(rng, c.N);
  const int64_t k = AnyIndex(rng, c.K) & ~int64_t{1};
  const CodeRange x_range = RangeOf(c.x.dtype());
  const CodeRange w_range = RangeOf(c.w.dtype());
  const bool high = rng.Chance(1, 2);
  for (int64_t i = k; i < std::min(k + 2, c.K); ++i) {
    c.x.SetInt(m * c.K + i, Bounded(x_range.max - rng.Between(0, 1), x_range));
    c.w.SetInt(n * c.K + i, high ? w_range.max : w_range.min);
  }
}

void ChangeDims(Case& c, Rng& rng) {
  const auto draw = [&](int64_t dim, int64_t limit) {
    switch (rng.Below(4)) {
      case 0: return std::clamp<int64_t>(dim + rng.Between(-2, 2), 0, limit);
      case 1: return AnyIndex(rng, limit + 1);
      case 2:  // just beside the widths of vectors
        return std::clamp<int64_t>((int64_t{1} << rng.Below(7)) + rng.Between(-1, 1), 0, limit);
      default: return dim;
    }
  };
  Resize(c, draw(c.M, kMaxM), draw(c.N, kMaxN), c.op == Op::kLinear ? draw(c.K, kMaxK) : 0);
}

void ChangeScale(Case& c, Rng& rng) {
  std::vector<std::vector<float>*> lists;
  if (!c.multiplier.empty()) lists.push_back(&c.multiplier);
  const bool quotient = c.op == Op::kRequantize && c.multiplier.empty();
  if (c.op == Op::kDequantize || c.op == Op::kLinear || quotient) lists.push_back(&c.x_q.scale);
  if (c.op == Op::kLinear || quotient) lists.push_back(&c.w_q.scale);
  if (c.op == Op::kQuantize || c.op == Op::kLinear || quotient) lists.push_back(&c.out_q.scale);
  std::vector<float>& list = *lists[rng.Below(lists.size())];
  if (list.empty() || (quotient && c.per_channel && c.N == 0)) return;
  float& scale = list[rng.Below(list.size())];
  scale = AnyScale(rng, scale);
}

void ChangeZeroPoint(Case& c, Rng& rng) {
  std::vector<std::pair<std::vector<int32_t>*, DType>> lists;
  if (c.op == Op::kDequantize || c.op == Op::kLinear) {
    lists.emplace_back(&c.x_q.zero_point, c.x.dtype());
  }
  if (c.op == Op::kLinear) lists.emplace_back(&c.w_q.zero_point, c.w.dtype());
  if (IsCode(c.out_dtype)) lists.emplace_back(&c.out_q.zero_point, c.out_dtype);
  if (lists.empty()) return;
  const auto [list, dtype] = lists[rng.Below(lists.size())];
  if (list->empty()) return;
  int32_t& zero_point = (*list)[rng.Below(list->size())];
  switch (rng.Below(4)) {
    case 0: zero_point = 0; break;
    case 1:
      zero_point = Bounded(int64_t{zero_point} + rng.Between(-2, 2), RangeOf(DType::kS32));
      break;
    case 2: zero_point = AnyInteger(rng, RangeOf(dtype)); break;
    default: zero_point = AnyInteger(rng, RangeOf(DType::kS32)); break;
  }
}

// A multiplier, or scales whose quotient it is.
void ChangeFactorForm(Case& c) {
  if (c.multiplier.empty()) {
    c.multiplier = c.w_q.scale;
  } else {
    c.w_q.scale = std::exchange(c.multiplier, {});
    c.w_q.zero_point.assign(c.w_q.scale.size(), 0);
  }
  FitLists(c);
}

void ChangeForm(Case& c, Rng& rng) {
  constexpr std::array<DType, 4> kOutTypes{DType::kU8, DType::kS8, DType::kS32, DType::kF32};
  const bool linear = c.op == Op::kLinear;
  switch (rng.Below(6)) {
    case 0:
      c.per_channel = !c.per_channel;
      FitLists(c);
      break;
    case 1: c.relu = c.op != Op::kDequantize && !c.relu; break;
    case 2:
      if (c.op != Op::kDequantize) SetOutType(c, kOutTypes[rng.Below(linear ? 4 : 2)]);
      break;
    case 3:
      if (linear || c.op == Op::kDequantize) {
        const DType other = c.x.dtype() == DType::kU8 ? DType::kS8 : DType::kU8;
        c.x = Reshaped(c.x, other, c.x.shape()[0], c.x.shape()[1]);
      }
      break;
    case 4:
      if (linear) {
        const DType other = c.w.dtype() == DType::kU8 ? DType::kS8 : DType::kU8;
        c.w = Reshaped(c.w, other, c.w.shape()[0], c.w.shape()[1]);
      }
      break;
    default:
      if (c.op == Op::kRequantize) ChangeFactorForm(c);
      if (!linear) break;
      c.bias.reset();
      c.bias_i32.reset();
      if (const uint64_t kind = rng.Below(3); kind == 1 && c.out_dtype != DType::kS32) {
        c.bias.emplace();
      } else if (kind == 2) {
        c.bias_i32.emplace();
      }
      FitLists(c);
      break;
  }
}

void ChangeBias(Case& c, Rng& rng) {
  if (c.bias && !c.bias->empty()) {
    float& value = (*c.bias)[rng.Below(c.bias->size())];
    value = AnyReal(rng, value, true);
  } else if (c.bias_i32 && !c.bias_i32->empty()) {
    (*c.bias_i32)[rng.Below(c.bias_i32->size())] = AnyInteger(rng, RangeOf(DType::kS32));
  }
}

void ChangeClamp(Case& c, Rng& rng) {
  const CodeRange range = RangeOf(c.out_dtype);
  c.out_min = range.min;
  c.out_max = range.max;
  if (c.out_dtype == DType::kF32 || rng.Chance(1, 3)) return;
  const int32_t a = AnyInteger(rng, range);
  const int32_t b = AnyInteger(rng, range);
  c.out_min = std::min(a, b);
  c.out_max = std::max(a, b);
}

// Sets the factor between sum and code so that one output lies at (or a hair beside) j or j + 1/2
// codes from its zero point: inside the clamp, where errors show, and near the ties. double is
// enough to get close, ChangeScale's single steps do the rest.
void AimAtCode(Case& c, Rng& rng) {
  if (c.M == 0 || c.N == 0 || !IsCode(c.out_dtype)) return;
  const int64_t m = AnyIndex(rng, c.M);
  const int64_t n = AnyIndex(rng, c.N);
  const double codes = static_cast<double>(rng.Between(1, 511)) * 0.5;
  if (c.op == Op::kQuantize) {
    const float target = static_cast<float>(codes * c.out_q.scale_at(n));
    SetReal(c.x, m * c.N + n, rng.Chance(1, 2) ? target : -target);
    return;
  }
  double real = 0;
  if (c.op == Op::kLinear) {
    for (int64_t k = 0; k < c.K; ++k) {
      real += (static_cast<double>(c.x.IntAt(m * c.K + k)) - c.x_q.zero_point[0]) *
              (static_cast<double>(c.w.IntAt(n * c.K + k)) - c.w_q.zero_point_at(n));
    }
    real *= static_cast<double>(c.x_q.scale[0]) * c.w_q.scale_at(n);
  } else if (!c.multiplier.empty()) {
    const double factor = c.multiplier[c.per_channel ? static_cast<size_t>(n) : 0];
    const double acc = std::nearbyint(codes / factor);
    if (std::fabs(acc) > 2e9) return;
    c.x.SetInt(m * c.N + n, static_cast<int32_t>(rng.Chance(1, 2) ? acc : -acc));
    return;
  } else {
    real = static_cast<double>(c.x.IntAt(m * c.N + n)) * c.x_q.scale[0] * c.w_q.scale_at(n);
  }
  const float scale = static_cast<float>(std::fabs(real) / codes);
  if (std::isfinite(scale) && scale > 0) c.out_q.scale[0] = scale;
}

// Puts one output exactly on a tie: scales become powers of two, the sum an odd multiple of half a
// code.
void AimAtTie(Case& c, Rng& rng) {
  if (c.M == 0 || c.N == 0 || !IsCode(c.out_dtype)) return;
  const int64_t m = AnyIndex(rng, c.M);
  const int64_t n = AnyIndex(rng, c.N);
  const auto at = static_cast<size_t>(c.per_channel ? n : 0);
  const int shift = static_cast<int>(rng.Between(1, 10));
  const float code = std::ldexp(1.0f, shift);  // what one output code is worth
  const int64_t target =
      rng.Between(-256, 255) * (int64_t{1} << shift) + (int64_t{1} << (shift - 1));
  switch (c.op) {
    case Op::kQuantize:
      c.out_q.scale[at] = code;
      SetReal(c.x, m * c.N + n, static_cast<float>(target));
      break;
    case Op::kRequantize:
      c.x.SetInt(m * c.N + n, static_cast<int32_t>(target));
      if (c.multiplier.empty()) {
        c.x_q.scale[0] = c.w_q.scale[at] = 1.0f;
        c.out_q.scale[0] = code;
      } else {
        c.multiplier[at] = 1.0f / code;
      }
      break;
    case Op::kLinear: {
      __int128 bias = target;
      for (int64_t k = 0; k < c.K; ++k) {
        bias -= (__int128{c.x.IntAt(m * c.K + k)} - c.x_q.zero_point[0]) *
                (c.w.IntAt(n * c.K + k) - __int128{c.w_q.zero_point_at(n)});
      }
      if (bias < INT32_MIN || bias > INT32_MAX) return;
      c.x_q.scale[0] = c.w_q.scale[at] = 1.0f;
      c.out_q.scale[0] = code;
      c.bias.reset();
      if (!c.bias_i32) c.bias_i32.emplace(static_cast<size_t>(c.N), 0);
      (*c.bias_i32)[static_cast<size_t>(n)] = static_cast<int32_t>(bias);
      break;
    }
    default: break;  // dequantize rounds nothing
  }
}

using Mutation = void (*)(Case&, Rng&);
constexpr std::array<Mutation, 14> kMutations{
    ChangeElement, ChangeElement, ChangeElement, ExtremePair, FillRow,
    SwapElements,  ChangeDims,    ChangeScale,   AimAtCode,   ChangeZeroPoint,
    ChangeForm,    ChangeBias,    ChangeClamp,   AimAtTie};

bool BytesOnly() {
  static const bool bytes = [] {
    const char* setting = std::getenv("QUALM_FUZZ_MUTATOR");
    return setting != nullptr && std::string_view(setting) == "bytes";
  }();
  return bytes;
}

// Bytes of the case; cut where the engine has no room (what is cut decodes as 0).
size_t Store(const Case& c, uint8_t* out, size_t out_size_max) {
  const auto bytes = EncodeCase(c);
  QUALM_CHECK(bytes.has_value());
  const size_t size = std::min(bytes->size(), out_size_max);
  std::copy_n(bytes->begin(), size, out);
  return size;
}

}  // namespace

Case MutateCase(const Case& c, Rng& rng) {
  Case mutated = c;
  for (int tries = 0; tries < 16 && mutated == c; ++tries) rng.Pick(kMutations)(mutated, rng);
  return mutated;
}

Case CrossCases(const Case& a, const Case& b, Rng& rng) {
  QUALM_CHECK(a.op == b.op);
  Case child = a;
  // Whole groups of fields that stay valid together; FitLists makes the lengths agree.
  if (rng.Chance(1, 2)) {
    child.x_q = b.x_q, child.w_q = b.w_q, child.multiplier = b.multiplier;
    child.per_channel = b.per_channel;
    if (child.op == Op::kQuantize) child.out_q = b.out_q;
  }
  if (rng.Chance(1, 2) && child.op != Op::kQuantize) child.out_q = b.out_q;
  if (rng.Chance(1, 2)) {
    child.out_dtype = b.out_dtype;
    child.out_min = b.out_min, child.out_max = b.out_max, child.relu = b.relu;
    child.bias = b.bias, child.bias_i32 = b.bias_i32;
  }
  if (child.out_dtype == DType::kS32) child.bias.reset();
  if (rng.Chance(1, 2)) child.x = Reshaped(b.x, b.x.dtype(), a.x.shape()[0], a.x.shape()[1]);
  if (rng.Chance(1, 2) && child.op == Op::kLinear) {
    child.w = Reshaped(b.w, b.w.dtype(), a.w.shape()[0], a.w.shape()[1]);
  }
  FitLists(child);
  return child;
}

size_t MutateBytes(Op op, uint8_t* data, size_t size, size_t size_max, unsigned seed) {
  Rng rng(seed);
  if (&LLVMFuzzerMutate != nullptr && (BytesOnly() || rng.Chance(1, 16))) {
    return LLVMFuzzerMutate(data, size, size_max);
  }
  return Store(MutateCase(DecodeCase(op, {data, size}), rng), data, size_max);
}

size_t CrossBytes(Op op, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size,
                  uint8_t* out, size_t out_size_max, unsigned seed) {
  Rng rng(seed);
  const Case child = CrossCases(DecodeCase(op, {a, a_size}), DecodeCase(op, {b, b_size}), rng);
  return Store(child, out, out_size_max);
}

}  // namespace qualm::fuzz
