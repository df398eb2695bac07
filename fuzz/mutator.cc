// SPDX-License-Identifier: Apache-2.0
#include "fuzz/mutator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "fuzz/aim.h"
#include "fuzz/case_codec.h"
#include "fuzz/fit.h"
#include "fuzz/setting.h"
#include "properties/gen/gen.h"

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

// A real number for a float element or bias: beside `value`, its negative, 0, a round one,
// anything.
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

// x, or, if the case has a w, one of the two.
Tensor& AnyOperand(Case& c, Rng& rng) { return !c.w.empty() && rng.Chance(1, 2) ? c.w : c.x; }

void SetOutType(Case& c, DType dtype) {
  c.out_dtype = dtype;
  OpenClamp(&c);
}

// A dimension near `dim`, any, near a power of two, or `dim` itself.
int64_t AnyDim(Rng& rng, int64_t dim, int64_t lowest, int64_t highest) {
  switch (rng.Below(4)) {
    case 0: return std::clamp(dim + rng.Between(-2, 2), lowest, highest);
    case 1: return rng.Between(lowest, highest);
    case 2: return std::clamp((int64_t{1} << rng.Below(7)) + rng.Between(-1, 1), lowest, highest);
    default: return dim;
  }
}

// ---- The mutations. A mutation that does not apply to the case changes nothing; FitCase makes the
// rest of the case follow.

void ChangeElement(Case& c, Rng& rng) {
  Tensor& tensor = AnyOperand(c, rng);
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
  Tensor& tensor = AnyOperand(c, rng);
  if (tensor.empty()) return;
  // A row, all rows of the next axis (the pixels of an image), and so on up to the whole tensor.
  const std::vector<int64_t>& shape = tensor.shape();
  int64_t columns = shape.back();
  for (size_t axis = shape.size() - 1; axis-- > 0 && rng.Chance(1, 2);) columns *= shape[axis];
  const int64_t row = AnyIndex(rng, tensor.size() / columns);
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
  Tensor& tensor = AnyOperand(c, rng);
  if (tensor.empty()) return;
  const auto any = [&] {
    return static_cast<int64_t>(rng.Below(static_cast<uint64_t>(tensor.size())));
  };
  const int64_t a = any(), b = any();
  const uint32_t kept = tensor.BitsAt(a);
  tensor.SetBits(a, tensor.BitsAt(b));
  tensor.SetBits(b, kept);
}

void ChangeDims(Case& c, Rng& rng) {
  const Sizes limits = LimitsOf(c.op);
  if (HasWindow(c.op)) {
    Window& v = c.window;
    const int64_t outputs = IsConv(c.op) ? c.N / v.groups : c.N;
    const int64_t inputs = IsConv(c.op) ? v.in_c / v.groups : 0;
    const int64_t most = RowOf(c.op).depthwise ? kMaxChannels : kMaxGroups;
    if (IsConv(c.op) && rng.Chance(1, 2)) v.groups = AnyDim(rng, v.groups, 1, most);
    v.batch = AnyDim(rng, v.batch, 0, limits.m);
    c.N = AnyDim(rng, outputs, 0, limits.n) * v.groups;
    v.in_c = IsPool(c.op) ? c.N : v.groups * AnyDim(rng, inputs, 0, limits.k);
    // A large image leaves room for few channels: half of the time the image gives way.
    if (RowOf(c.op).whole_image && rng.Chance(1, 2)) {
      v.in_h = std::min<int64_t>(v.in_h, kMaxKernel);
      v.in_w = std::min<int64_t>(v.in_w, kMaxKernel);
    }
    return;
  }
  const Layout layout = RowOf(c.op).layout;
  c.M = AnyDim(rng, c.M, 0, limits.m);
  c.N = AnyDim(rng, c.N, 0, limits.n);
  if (layout == Layout::kProducts) c.K = AnyDim(rng, c.K, 0, limits.k);
  // Only the shape of x gives the size k of these layouts.
  if (layout == Layout::kColumns) {
    const int64_t columns = AnyDim(rng, c.x.shape()[1], 0, c.N);
    c.x = Reshaped(c.x, c.x.dtype(), {c.M, columns});
  } else if (layout == Layout::kBatches) {
    const int64_t batches = AnyDim(rng, c.x.shape()[0], 1, limits.k);
    c.x = Reshaped(c.x, c.x.dtype(), {batches, c.M, c.N});
  }
}

// Changes one number of the window, or two related ones.
void ChangeWindow(Case& c, Rng& rng) {
  if (!HasWindow(c.op)) return;
  Window& v = c.window;
  const auto both = [&](int64_t& a, int64_t& b, int64_t lowest, int64_t highest) {
    const uint64_t which = rng.Below(3);
    if (which != 1) a = rng.Between(lowest, highest);
    if (which == 0) b = a;
    if (which == 1) b = rng.Between(lowest, highest);
  };
  // Sometimes the largest window, which has the largest sums.
  if (MaxKernel(c.op) > kMaxKernel && rng.Chance(1, 16)) {
    v.in_h = v.in_w = v.kernel_h = v.kernel_w = MaxKernel(c.op);
    return;
  }
  switch (rng.Below(8)) {
    case 0:
    case 1: both(v.in_h, v.in_w, rng.Chance(1, 16) ? 0 : 1, MaxImage(c.op)); break;
    case 2:
      both(v.kernel_h, v.kernel_w, 1, rng.Chance(1, 4) ? MaxKernel(c.op) : kMaxKernel);
      // Sometimes a kernel as high or as wide as the image.
      if (rng.Chance(1, 8)) v.kernel_h = std::max<int64_t>(v.in_h, 1);
      if (rng.Chance(1, 8)) v.kernel_w = std::max<int64_t>(v.in_w, 1);
      break;
    case 3: both(v.stride_h, v.stride_w, 1, kMaxStep); break;
    case 4: both(v.pad_top, v.pad_bottom, 0, kMaxPad); break;
    case 5: both(v.pad_left, v.pad_right, 0, kMaxPad); break;
    case 6: both(v.dilation_h, v.dilation_w, 1, kMaxStep); break;
    default: (rng.Chance(1, 2) ? v.ceil_mode : v.count_include_pad) ^= true; break;
  }
}

void ChangeScale(Case& c, Rng& rng) {
  std::vector<std::vector<float>*> lists;
  if (!c.multiplier.empty()) lists.push_back(&c.multiplier);
  // May pick a list that the operation ignores: then FitCase reverts it, and MutateCase tries
  // another mutation.
  for (QParams* q : {&c.x_q, &c.w_q, &c.out_q}) {
    if (!q->scale.empty()) lists.push_back(&q->scale);
  }
  if (lists.empty()) return;
  std::vector<float>& list = *lists[rng.Below(lists.size())];
  float& scale = list[rng.Below(list.size())];
  scale = AnyScale(rng, scale);
}

void ChangeZeroPoint(Case& c, Rng& rng) {
  std::vector<std::pair<std::vector<int32_t>*, DType>> lists;
  if (IsCode(c.x.dtype())) lists.emplace_back(&c.x_q.zero_point, c.x.dtype());
  if (IsCode(c.x.dtype()) && !c.w_q.zero_point.empty()) {
    lists.emplace_back(&c.w_q.zero_point, c.w.dtype());
  }
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

// Switches requantize between a multiplier and a quotient of scales.
void ChangeFactorForm(Case& c) {
  if (c.multiplier.empty()) {
    c.multiplier = c.w_q.scale;
  } else {
    c.w_q.scale = std::exchange(c.multiplier, {});
    c.w_q.zero_point.assign(c.w_q.scale.size(), 0);
  }
}

// No bias, a float32 bias or an int32 bias.
void ChangeBiasForm(Case& c, Rng& rng) {
  c.bias.reset();
  c.bias_i32.reset();
  const uint64_t kind = rng.Below(3);
  if (kind == 1) c.bias.emplace();
  if (kind == 2) c.bias_i32.emplace();
}

// Another value of a field; FitCase brings it into the domain of the operation.
void Redraw(bool& flag, Rng& /*rng*/) { flag = !flag; }
void Redraw(DType& codes, Rng& /*rng*/) { codes = OtherSign(codes); }
void Redraw(int32_t& code, Rng& rng) {
  code = AnyInteger(rng, {RangeOf(DType::kS8).min, RangeOf(DType::kU8).max});
}
void Redraw(float& number, Rng& rng) {
  number = rng.Chance(1, 2) ? AnyScale(rng, number) : static_cast<float>(rng.Unit());
}
template <NamedEnum E>
void Redraw(E& choice, Rng& rng) {
  choice = static_cast<E>(rng.Below(CountOf<E>()));
}

void ChangeOwnField(Case& c, Rng& rng) {
  uint64_t count = 0;
  ForEachOwnField(c, [&](auto& /*value*/) { ++count; });
  if (count == 0) return;
  uint64_t left = rng.Below(count);
  ForEachOwnField(c, [&](auto& value) {
    if (left-- == 0) Redraw(value, rng);
  });
}

// Codes of x as the real numbers that they stand for, and any such numbers as codes.
void ChangeFloatX(Case& c, Rng& rng) {
  const Tensor from = c.x;
  if (HasFloatX(c)) {
    c.x = Tensor(rng.Chance(1, 2) ? DType::kU8 : DType::kS8, from.shape());
    for (int64_t i = 0; i < from.size(); ++i) c.x.SetInt(i, AnyInteger(rng, RangeOf(c.x.dtype())));
    return;
  }
  c.x = Tensor(DType::kF32, from.shape());
  for (int64_t i = 0; i < from.size(); ++i) {
    const double difference = static_cast<double>(from.IntAt(i)) - c.x_q.zero_point_at(0);
    SetReal(c.x, i, static_cast<float>(difference * c.x_q.scale_at(0)));
  }
}

void ChangeForm(Case& c, Rng& rng) {
  const OpRow& row = RowOf(c.op);
  switch (rng.Below(7)) {
    case 0: c.per_channel = !c.per_channel; break;
    case 1: c.relu = !c.relu; break;
    case 2: {
      // Fewer subjects take codes of 16 bits, the last two of sums.
      const bool wide = HasSums(c.op) && !rng.Chance(1, 8);
      SetOutType(c, row.out_types.list[rng.Below(row.out_types.count - (wide ? 2 : 0))]);
      break;
    }
    case 3:
      if (row.cast)
        c.x = Reshaped(c.x, row.x_types.list[rng.Below(row.x_types.count)], c.x.shape());
      if (!IsCode(c.x.dtype())) break;
      // Seldom codes of another width, which fewer subjects take, and from those back to bytes.
      if (const bool any = rng.Chance(1, 8); any || BitsOf(c.x.dtype()) != 8) {
        const DType dtype = row.x_types.list[rng.Below(any ? row.x_types.count : 2)];
        if (IsCode(dtype)) c.x = Reshaped(c.x, dtype, c.x.shape());
      } else {
        c.x = Reshaped(c.x, OtherSign(c.x.dtype()), c.x.shape());
      }
      if (KeepsType(c.op)) SetOutType(c, c.x.dtype());
      break;
    case 4:
      if (HasWeights(c.op))
        c.w = Reshaped(c.w, kWeightCodes.list[rng.Below(rng.Chance(1, 6) ? kWeightCodes.count : 2)],
                       c.w.shape());
      break;
    case 5: Redraw(c.requant, rng); break;
    default:
      if (row.x_blocks && !HasWeights(c.op) && rng.Chance(1, 8))
        c.x_block = static_cast<int32_t>(rng.Chance(1, 3) ? 0 : rng.Between(1, c.N + 1));
      if (row.blocks && rng.Chance(1, 8)) {
        if (row.float_x && rng.Chance(1, 3)) {
          ChangeFloatX(c, rng);
          break;
        }
        c.w_block = static_cast<int32_t>(rng.Chance(1, 3) ? 0 : rng.Between(1, c.K + 1));
        c.per_channel = c.per_channel || c.w_block != 0;
        if (SumsXInBlocks(c.op) && !HasFloatX(c)) c.x_block = rng.Chance(1, 2) ? c.w_block : 0;
        if (c.x_block != 0) SetOutType(c, DType::kF32);
        break;
      }
      if (row.multiplier) ChangeFactorForm(c);
      if (row.bias) ChangeBiasForm(c, rng);
      ChangeOwnField(c, rng);
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
  OpenClamp(&c);
  if (IsFloat(c.out_dtype) || rng.Chance(1, 3)) return;
  const CodeRange range = RangeOf(c.out_dtype);
  const int32_t a = AnyInteger(rng, range);
  const int32_t b = AnyInteger(rng, range);
  c.out_min = std::min(a, b);
  c.out_max = std::max(a, b);
}

using Mutation = void (*)(Case&, Rng&);
constexpr std::array<Mutation, 15> kMutations{
    ChangeElement, ChangeElement, ChangeElement, ExtremePair,     FillRow,
    SwapElements,  ChangeDims,    ChangeWindow,  ChangeScale,     AimAtCode,
    ChangeForm,    ChangeBias,    ChangeClamp,   ChangeZeroPoint, AimAtTie};

// A drawn case that is small as it is, if a few draws give one: fitting cuts sums, and the ties
// that they were solved for.
Case DrawSmall(Op op, Rng& rng) {
  Case c;
  for (int tries = 0; tries < 4; ++tries) {
    uint64_t seed = rng.Next();
    while (gen::HasSizesOfLayers(gen::ThemeOf(op, seed))) seed = rng.Next();  // never small
    c = gen::Draw(op, seed);
    if (IsSmall(c)) break;
  }
  FitCase(&c);
  return c;
}

bool BytesOnly() {
  static const bool bytes = Setting("QUALM_FUZZ_MUTATOR") == "bytes";
  return bytes;
}

// Stores as many bytes as the engine has room for: a missing byte decodes as 0.
size_t Store(const std::vector<uint8_t>& bytes, uint8_t* out, size_t out_size_max) {
  const size_t size = std::min(bytes.size(), out_size_max);
  std::copy_n(bytes.begin(), size, out);
  return size;
}

}  // namespace

Case MutateCase(const Case& c, Rng& rng) {
  Case mutated = c;
  for (int tries = 0; tries < 16 && mutated == c; ++tries) {
    rng.Pick(kMutations)(mutated, rng);
    FitCase(&mutated);
  }
  return mutated;
}

Case CrossCases(const Case& a, const Case& b, Rng& rng) {
  QUALM_CHECK(a.op == b.op);
  Case child = a;
  const bool lists_of_out = &ChannelQParams(a) == &a.out_q;
  // Groups of fields that belong together come from b; FitCase makes the others follow.
  if (rng.Chance(1, 2)) {
    child.x_q = b.x_q, child.w_q = b.w_q, child.multiplier = b.multiplier;
    child.per_channel = b.per_channel;
    if (lists_of_out) child.out_q = b.out_q;
  }
  if (rng.Chance(1, 2) && !lists_of_out) child.out_q = b.out_q;
  if (rng.Chance(1, 2)) {
    child.out_dtype = b.out_dtype;
    child.out_min = b.out_min, child.out_max = b.out_max;
    ForEachParameter(child, b, [](const Field&, auto& mine, const auto& its) { mine = its; });
  }
  if (HasWindow(child.op) && rng.Chance(1, 2)) child.window = b.window, child.N = b.N;
  if (rng.Chance(1, 2)) child.x = b.x;
  if (rng.Chance(1, 2)) child.w = b.w;
  FitCase(&child);
  return child;
}

size_t MutateBytes(Op op, uint8_t* data, size_t size, size_t size_max, unsigned seed) {
  Rng rng(seed);
  if (&LLVMFuzzerMutate != nullptr && (BytesOnly() || rng.Chance(1, 16))) {
    return LLVMFuzzerMutate(data, size, size_max);
  }
  // Neither bytes without a header nor a seed have anything that a mutation could keep.
  const bool keeps = size >= kLeastHeader && !SeedIn({data, size});
  if (!keeps || rng.Chance(1, 2)) {
    // Cases of any size are dear: one mutation in 16 takes up to a tenth of the time.
    if (rng.Chance(1, 8)) return Store(EncodeDraw(rng.Next(), size_max), data, size_max);
    const Case drawn = DrawSmall(op, rng);
    if (!keeps || rng.Chance(3, 4)) return Store(EncodeFitted(drawn), data, size_max);
    const Case child = CrossCases(DecodeCase(op, {data, size}), drawn, rng);
    return Store(EncodeFitted(child), data, size_max);
  }
  const Case mutated = MutateCase(DecodeCase(op, {data, size}), rng);
  return Store(EncodeFitted(mutated), data, size_max);
}

std::vector<uint8_t> MutatedBytes(Op op, std::vector<uint8_t> bytes, size_t size_max,
                                  unsigned seed) {
  const size_t size = std::min(bytes.size(), size_max);
  bytes.resize(size_max);
  bytes.resize(MutateBytes(op, bytes.data(), size, size_max, seed));
  return bytes;
}

size_t CrossBytes(Op op, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size,
                  uint8_t* out, size_t out_size_max, unsigned seed) {
  Rng rng(seed);
  const Case child = CrossCases(DecodeCase(op, {a, a_size}), DecodeCase(op, {b, b_size}), rng);
  return Store(EncodeFitted(child), out, out_size_max);
}

}  // namespace qualm::fuzz
