// SPDX-License-Identifier: Apache-2.0
#include "proofs/domain.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/status.h"

namespace qualm::proofs {
namespace {

constexpr uint64_t kAll = uint64_t{1} << 32;
constexpr uint64_t kHalf = uint64_t{1} << 31;
constexpr uint64_t kNans = 0x7F'FFFF;  // of one sign
// kQuads: the rows of activations and of weights in one granule.
constexpr uint64_t kQuadRows = 4096;
constexpr uint64_t kQuadWeights = 64;

// Float32 in the order of numbers: negative ones from NaN up to -0, then +0 up to NaN.
constexpr uint64_t NumberOf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return bits >> 31 != 0 ? kAll - 1 - bits : bits + kHalf;
}

void FillFloats(uint64_t first, std::span<uint32_t> bits) {
  // Two loops without a branch inside: this runs 2^32 times.
  const uint64_t negative = first >= kHalf ? 0 : std::min<uint64_t>(bits.size(), kHalf - first);
  const auto top = static_cast<uint32_t>(kAll - 1 - first);
  for (uint32_t i = 0; i < negative; ++i) bits[i] = top - i;
  const auto base = static_cast<uint32_t>(first - kHalf);
  for (size_t i = negative; i < bits.size(); ++i) bits[i] = base + static_cast<uint32_t>(i);
}

template <class T>
std::span<T> As(std::span<uint8_t> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// The byte of code number 0, 1, ... of a type: the lowest code first.
uint8_t CodeByte(DType dtype, uint64_t number) {
  return static_cast<uint8_t>(static_cast<int64_t>(number) + RangeOf(dtype).min);
}

// The kind of inputs that a domain of this operation enumerates.
Inputs InputsOf(const Case& c) {
  const auto expect = [](bool holds, const std::string& otherwise) {
    if (!holds) throw InputError(otherwise);
  };
  expect(!c.per_channel, "per_channel: is true, expected one list entry (each channel by itself)");
  switch (c.op) {
    case Op::kQuantize: return Inputs::kFloats;
    case Op::kRequantize: return Inputs::kSums;
    case Op::kDequantize:
    case Op::kRescale:
    case Op::kTable: return Inputs::kCodes;
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul: return Inputs::kPairs;
    case Op::kLinear: {
      if (!c.w.empty()) {
        expect(c.K == 2, fmt::format("K: is {}, expected 2", c.K));
        return Inputs::kActivations;
      }
      const bool plain = c.out_dtype == DType::kS32 && c.x_q == QParams{} && c.w_q == QParams{} &&
                         !c.bias && !c.bias_i32 && !c.relu;
      expect(plain, "w: is empty, expected weights, or an s32 output without zero points and bias");
      return Inputs::kQuads;
    }
    case Op::kConv2d:
    case Op::kDepthwise:
    case Op::kMaxPool:
    case Op::kAvgPool:
    case Op::kGlobalAvgPool:
    case Op::kConcat:
    case Op::kSoftmax:
    case Op::kChooseQParams:
    case Op::kDynamicLinear:
    case Op::kCast: break;
  }
  throw InputError(
      fmt::format("op: is {}, expected quantize, dequantize, requantize, rescale, add, sub, mul, "
                  "table or linear",
                  Name(c.op)));
}

uint64_t SizeOfInputs(Inputs inputs, DType x) {
  if (inputs == Inputs::kCodes) return uint64_t{1} << BitsOf(x);
  return inputs == Inputs::kPairs || inputs == Inputs::kActivations ? 65536 : kAll;
}

}  // namespace

std::string_view Name(Inputs inputs) {
  constexpr std::array<std::string_view, 6> kNames{"every float32",
                                                   "every int32",
                                                   "every code",
                                                   "every pair of codes",
                                                   "every pair of activations",
                                                   "every two activations and two weights"};
  return kNames[static_cast<size_t>(inputs)];
}

Domain::Domain(const Case& c) : problem_(ProblemOf(c)), inputs_(InputsOf(c)) {
  if (HasWeights(c.op) && IsWideCode(c.x.dtype()))
    throw InputError("x_dtype: certificates of linear know no " + std::string(kOfWideCodes));
  if (HasSmallCodes(c))
    throw InputError("out_dtype: certificates know no " + std::string(kOfSmallCodes));
  if (HasFloatX(c)) throw InputError("x_dtype: certificates know no " + std::string(kOfFloatX));
  if (HasElementBlocks(c))
    throw InputError("x_block: certificates know no " + std::string(kElementsInBlocks));
  if (c.w_block != 0) throw InputError("w_block: certificates know no " + std::string(kInBlocks));
  if (HasWeights(c.op) && InfoOf(c.w.dtype()).bits < 8)
    throw InputError("w_dtype: is " + std::string(Name(c.w.dtype())) + ", expected s8 or u8");
  size_ = SizeOfInputs(inputs_, c.x.dtype());
  if (inputs_ == Inputs::kActivations) {
    granule_ = static_cast<uint64_t>(c.N);
    size_ *= granule_;
  } else {
    problem_.w = Tensor(c.w.dtype(), {0});
  }
  if (inputs_ == Inputs::kQuads) {
    granule_ = kQuadRows * kQuadWeights;
    if (!IsByteCode(problem_.w.dtype())) problem_.w = Tensor(DType::kS8, {0});
  }
  problem_.x = Tensor(c.x.dtype(), {0});
  const std::string wrong =
      granule_ == 0 ? "N: is 0, expected a channel" : Validate(Shape(granule_));
  if (!wrong.empty()) throw InputError(wrong);
}

std::vector<std::pair<uint64_t, uint64_t>> Domain::Rising() const {
  if (inputs_ == Inputs::kSums) return {{0, kAll - 1}};
  if (inputs_ == Inputs::kFloats) {
    return {{0, kNans - 1}, {kNans, kAll - 1 - kNans}, {kAll - kNans, kAll - 1}};
  }
  return {};
}

Case Domain::Shape(uint64_t count) const {
  Case c = problem_;
  const auto n = static_cast<int64_t>(count);
  c.M = 1;
  c.N = n;
  if (inputs_ == Inputs::kActivations) {
    c.M = n / problem_.N;
    c.N = problem_.N;
  } else if (inputs_ == Inputs::kQuads) {
    QUALM_CHECK_EQ(count, granule_);
    c.M = kQuadRows;
    c.N = kQuadWeights;
    c.K = 2;
    c.w = Tensor(c.w.dtype(), {c.N, 2});
  }
  c.x = Tensor(c.x.dtype(), ShapeOfX(c));
  if (HasTwoInputs(c.op)) c.w = Tensor(c.x.dtype(), ShapeOfW(c));
  return c;
}

void Domain::Fill(uint64_t first, uint64_t count, std::span<uint8_t> x,
                  std::span<uint8_t> w) const {
  const DType type = problem_.x.dtype();
  // The two codes of pair `number`.
  const auto put_pair = [](DType dtype, uint64_t number, uint8_t* high, uint8_t* low) {
    *high = CodeByte(dtype, number >> 8 & 0xFF);
    *low = CodeByte(dtype, number & 0xFF);
  };
  switch (inputs_) {
    case Inputs::kFloats: return FillFloats(first, As<uint32_t>(x));
    case Inputs::kSums: {
      const auto base = static_cast<uint32_t>(first - kHalf);
      const std::span<uint32_t> sums = As<uint32_t>(x);
      for (uint32_t i = 0; i < sums.size(); ++i) sums[i] = base + i;
      return;
    }
    case Inputs::kCodes:
      if (IsWideCode(type)) {
        const std::span<uint16_t> codes = As<uint16_t>(x);
        const auto base = static_cast<uint16_t>(static_cast<int64_t>(first) + RangeOf(type).min);
        for (uint64_t i = 0; i < count; ++i) codes[i] = static_cast<uint16_t>(base + i);
        return;
      }
      for (uint64_t i = 0; i < count; ++i) x[i] = CodeByte(type, first + i);
      return;
    case Inputs::kPairs:
      for (uint64_t i = 0; i < count; ++i) put_pair(type, first + i, &x[i], &w[i]);
      return;
    case Inputs::kActivations:
      for (uint64_t m = 0; m < count / granule_; ++m)
        put_pair(type, first / granule_ + m, &x[2 * m], &x[2 * m + 1]);
      return;
    case Inputs::kQuads: {
      const uint64_t block = first / granule_;  // blocks of the same weights follow each other
      const uint64_t row = block % (65536 / kQuadRows) * kQuadRows;
      const uint64_t weight = block / (65536 / kQuadRows) * kQuadWeights;
      for (uint64_t m = 0; m < kQuadRows; ++m) put_pair(type, row + m, &x[2 * m], &x[2 * m + 1]);
      for (uint64_t n = 0; n < kQuadWeights; ++n)
        put_pair(problem_.w.dtype(), weight + n, &w[2 * n], &w[2 * n + 1]);
      return;
    }
  }
}

Case Domain::At(uint64_t first, uint64_t count) const {
  Case c = Shape(count);
  Fill(first, count, c.x.bytes(), c.w.bytes());
  return c;
}

Case Domain::At(std::span<const uint64_t> numbers) const {
  Case c = Shape(numbers.size());
  const size_t x_bytes = SizeOf(c.x.dtype());
  const size_t w_bytes = c.w.empty() ? 0 : 1;
  for (size_t i = 0; i < numbers.size(); ++i) {
    Fill(numbers[i], 1, c.x.bytes().subspan(i * x_bytes, x_bytes),
         c.w.bytes().subspan(i * w_bytes, w_bytes));
  }
  return c;
}

std::pair<Case, int64_t> Domain::Alone(uint64_t number) const {
  const uint64_t inside = number % granule_;
  Case c = At(number - inside, granule_);
  if (inputs_ != Inputs::kQuads) return {std::move(c), static_cast<int64_t>(inside)};
  // One row and one column of the granule.
  const auto cut = [](Tensor& tensor, uint64_t row) {
    Tensor one(tensor.dtype(), {1, 2});
    std::memcpy(one.bytes().data(), tensor.bytes().data() + 2 * row, 2);
    tensor = std::move(one);
  };
  cut(c.x, inside / kQuadWeights);
  cut(c.w, inside % kQuadWeights);
  c.M = c.N = 1;
  return {std::move(c), 0};
}

uint32_t Domain::BitsOf(uint64_t number) const {
  QUALM_CHECK(inputs_ == Inputs::kFloats || inputs_ == Inputs::kSums);
  uint32_t bits = 0;
  Fill(number, 1, {reinterpret_cast<uint8_t*>(&bits), sizeof bits}, {});
  return bits;
}

bool Domain::IsNan(uint64_t number) const {
  return inputs_ == Inputs::kFloats && (number < kNans || number >= kAll - kNans);
}

std::string Domain::TextOf(uint64_t number) const {
  const auto [c, at] = Alone(number);
  switch (inputs_) {
    case Inputs::kFloats: return fmt::format("x {:a}", c.x.FloatAt(0));
    case Inputs::kSums: return fmt::format("acc {}", c.x.IntAt(0));
    case Inputs::kCodes: return fmt::format("code {}", c.x.IntAt(0));
    case Inputs::kPairs: return fmt::format("a {}, b {}", c.x.IntAt(0), c.w.IntAt(0));
    case Inputs::kActivations:
      return fmt::format("x {}, {}, channel {}", c.x.IntAt(0), c.x.IntAt(1), at);
    case Inputs::kQuads: break;
  }
  return fmt::format("x {}, {}, w {}, {}", c.x.IntAt(0), c.x.IntAt(1), c.w.IntAt(0), c.w.IntAt(1));
}

uint64_t Domain::Guess(int32_t n) const {
  const double half = static_cast<double>(n) - problem_.out_q.zero_point_at(0) - 0.5;
  if (inputs_ == Inputs::kFloats) {
    return NumberOf(static_cast<float>(half * problem_.out_q.scale_at(0)));
  }
  const double multiplier = UsesMultiplier(problem_)
                                ? static_cast<double>(problem_.multiplier[0])
                                : static_cast<double>(problem_.x_q.scale_at(0)) *
                                      static_cast<double>(problem_.w_q.scale_at(0)) /
                                      problem_.out_q.scale_at(0);
  const double sum = std::clamp(std::ceil(half / multiplier), -0x1p31, 0x1p31 - 1);
  return static_cast<uint64_t>(static_cast<int64_t>(sum) + static_cast<int64_t>(kHalf));
}

}  // namespace qualm::proofs
