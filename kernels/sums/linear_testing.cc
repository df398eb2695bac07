// SPDX-License-Identifier: Apache-2.0
#include "kernels/sums/linear_testing.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cfenv>
#include <cstdlib>
#include <cstring>

namespace qualm::kernels::testing {
namespace {

bool IsByte(ElementType type) { return type == ElementType::kU8 || type == ElementType::kS8; }

int32_t Load(ElementType type, const uint8_t* from) {
  if (type == ElementType::kU8) return *from;
  if (type == ElementType::kS8) return static_cast<int8_t>(*from);
  int32_t code = 0;
  std::memcpy(&code, from, sizeof(code));
  return code;
}

}  // namespace

size_t SizeOf(ElementType type) { return IsByte(type) ? 1 : 4; }

size_t Elements(int64_t rows, int64_t columns, int64_t gap) {
  if (rows == 0 || columns == 0) return 0;
  return static_cast<size_t>((rows - 1) * (columns + gap) + columns);
}

void Spread(const std::vector<int32_t>& codes, int64_t rows, int64_t columns, int64_t gap,
            uint8_t* to) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      to[i * (columns + gap) + j] =
          static_cast<uint8_t>(codes[static_cast<size_t>(i * columns + j)]);
    }
  }
}

std::vector<int32_t> Collect(ElementType type, int64_t columns, int64_t gap, uint8_t poison,
                             const GuardedBytes& y) {
  const size_t element = SizeOf(type);
  const size_t stride = static_cast<size_t>(columns + gap);
  std::vector<int32_t> outputs;
  size_t spoilt = 0;
  for (size_t i = 0; i < y.size() / element; ++i) {
    const uint8_t* at = y.data() + i * element;
    if (i % stride < static_cast<size_t>(columns)) {
      outputs.push_back(Load(type, at));
    } else {
      spoilt += std::any_of(at, at + element, [&](uint8_t byte) { return byte != poison; });
    }
  }
  EXPECT_EQ(spoilt, 0u) << "elements between output rows were written";
  return outputs;
}

GuardedBytes::GuardedBytes(size_t size, uint8_t fill) : size_(size) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t pages = std::max<size_t>((size + page - 1) / page, 1);
  mapping_size_ = (pages + 2) * page;
  mapping_ = mmap(nullptr, mapping_size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) std::abort();
  uint8_t* begin = static_cast<uint8_t*>(mapping_) + page;
  if (mprotect(begin, pages * page, PROT_READ | PROT_WRITE) != 0) std::abort();
  data_ = begin + pages * page - size;
  std::memset(data_, fill, size);
}

GuardedBytes::~GuardedBytes() { munmap(mapping_, mapping_size_); }

void GuardedBytes::MakeReadOnly() {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (mprotect(static_cast<uint8_t*>(mapping_) + page, mapping_size_ - 2 * page, PROT_READ) != 0) {
    std::abort();
  }
}

int32_t LowestCode(ElementType type) {
  return type == ElementType::kU8 ? 0 : type == ElementType::kS8 ? -128 : INT32_MIN;
}

int32_t HighestCode(ElementType type) {
  return type == ElementType::kU8 ? 255 : type == ElementType::kS8 ? 127 : INT32_MAX;
}

void Fill(Choices& choices, Data data, ElementType type, std::vector<int32_t>& codes) {
  const int32_t low = LowestCode(type);
  const int32_t high = HighestCode(type);
  for (int32_t& code : codes) {
    switch (data) {
      case Data::kRandom: code = static_cast<int32_t>(choices.Between(low, high)); break;
      case Data::kZeroHeavy:
        code = choices.OneIn(8) ? static_cast<int32_t>(choices.Between(low, high)) : 0;
        break;
    }
  }
}

std::string Problem::Describe() const {
  const auto name = [](ElementType type) {
    const char* const names[] = {"u8", "s8", "s32", "f32"};
    return std::string(names[static_cast<int>(type)]);
  };
  const auto first = [](const auto& values) {
    return values.empty() ? std::string("none")
                          : std::to_string(values[0]) + "(" + std::to_string(values.size()) + ")";
  };
  return "M=" + std::to_string(m) + " N=" + std::to_string(n) + " K=" + std::to_string(k) + " " +
         name(x_type) + "*" + name(w_type) + "->" + name(y_type) + " zx=" + std::to_string(x_zero) +
         " zw=" + first(w_zero) + " sx=" + std::to_string(x_scale) + " sw=" + first(w_scale) +
         " sy=" + std::to_string(y_scale) + " zy=" + std::to_string(y_zero) +
         " bias=" + first(bias) + " bias_i32=" + first(bias_i32) + (range.relu ? " relu" : "") +
         " gaps=" + std::to_string(x_gap) + "," + std::to_string(w_gap) + "," +
         std::to_string(y_gap);
}

int FloatRoundingMode() {
  const volatile float one = 1.0f;
  const volatile float little = 0x1.8p-24f;  // 3/4 of an ulp of 1
  const bool up = one + little > one;
  const bool down = -one - little < -one;
  if (up && down) return FE_TONEAREST;
  return up ? FE_UPWARD : down ? FE_DOWNWARD : FE_TOWARDZERO;
}

LinearParams ParamsOf(const Problem& p, const uint8_t* w) {
  return {.weights = {w, p.w_type, p.n, p.k, p.k + p.w_gap},
          .input_type = p.x_type,
          .x_scale = p.x_scale,
          .x_zero_point = p.x_zero,
          .w_scale = p.w_scale,
          .w_zero_point = p.w_zero,
          .bias = p.bias,
          .bias_i32 = p.bias_i32,
          .output_type = p.y_type,
          .y_scale = p.y_scale,
          .y_zero_point = p.y_zero,
          .range = p.range};
}

Status PackProblem(const Problem& p, PackedLinear* packed) {
  GuardedBytes w(Elements(p.n, p.k, p.w_gap), 0x5A);
  Spread(p.w, p.n, p.k, p.w_gap, w.data());
  w.MakeReadOnly();
  return PackedLinear::Pack(ParamsOf(p, w.data()), packed);
}

std::vector<int32_t> RunProblem(const Problem& p, uint8_t poison) {
  PackedLinear packed;
  const Status packing = PackProblem(p, &packed);
  EXPECT_TRUE(packing.ok()) << packing.error;

  GuardedBytes x(Elements(p.m, p.k, p.x_gap), 0x5A);
  Spread(p.x, p.m, p.k, p.x_gap, x.data());
  x.MakeReadOnly();
  const GuardedBytes y(Elements(p.m, p.n, p.y_gap) * SizeOf(p.y_type), poison);
  const Status status = packed.Run({x.data(), p.x_type, p.m, p.k, p.k + p.x_gap},
                                   {y.data(), p.y_type, p.m, p.n, p.n + p.y_gap});
  EXPECT_TRUE(status.ok()) << status.error;
  return Collect(p.y_type, p.n, p.y_gap, poison, y);
}

std::vector<int32_t> PlainOutputs(Problem p) {
  p.x_gap = p.w_gap = p.y_gap = 0;
  return RunProblem(p);
}

void FillOrdinary(Choices& choices, int64_t k, std::vector<int32_t>& weights) {
  for (size_t i = 0; i < weights.size(); ++i) {
    const int64_t panels = static_cast<int64_t>(i) / k / 48;  // of any target, about
    int64_t w = 0;
    for (int64_t term = 0; term < 4; ++term) w += choices.Between(-32, 31);
    if (panels % 4 == 1) w = choices.Between(-64, 64);
    if (panels % 4 == 2) w = choices.OneOf({-128, 127});
    weights[i] = static_cast<int32_t>(std::clamp<int64_t>(w, -128, 127));
  }
}

}  // namespace qualm::kernels::testing
