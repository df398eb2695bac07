// SPDX-License-Identifier: Apache-2.0
#include "properties/changes.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/scaled_cast.h"
#include "core/slice.h"

namespace qualm {
namespace {

void Double(std::vector<float>& scales) {
  if (scales.empty()) return;
  float& last = scales.back();
  last = std::isfinite(2 * last) ? 2 * last : last / 2;
}

void Move(std::vector<int32_t>& zero_points, DType dtype) {
  if (!IsCode(dtype)) return;
  const CodeRange range = RangeOf(dtype);
  int32_t& last = zero_points.back();
  last += last == range.max || last == INT32_MAX ? -1 : 1;
}

void DropLastRow(Case& c) {
  if (!HasWindow(c.op)) {
    if (c.M > 1) c = slice::Rows(c, slice::Range(0, c.M - 1));
  } else if (c.window.batch > 1) {
    c = slice::Batches(c, slice::Range(0, c.window.batch - 1));
  }
}

// The highest bit of the last element, where a key made of the first ones does not look.
void FlipLast(Tensor& tensor) {
  if (tensor.empty()) return;
  const int64_t last = tensor.size() - 1;
  const int bits = BitsOf(tensor.dtype());
  if (bits < 8) return MirrorCode(tensor, last);
  tensor.bytes().back() ^= 0x80;
}

// The same bytes, as codes of the other type.
void Retype(Tensor& codes) {
  if (IsCode(codes.dtype())) codes = OtherSign(codes);
}

// Two groups where there was one, over the leading half of each channel's weights.
void SplitIntoGroups(Case& c) {
  Window& v = c.window;
  if (c.op != Op::kConv2d || v.groups != 1 || v.in_c % 2 != 0 || c.N % 2 != 0 || c.w.empty())
    return;
  v.groups = 2;
  Tensor half(c.w.dtype(), {c.N, v.kernel_h, v.kernel_w, v.in_c / 2});
  const int64_t depth = v.in_c / 2;
  for (int64_t at = 0; at < half.size(); at += depth) half.CopyFrom(c.w, 2 * at, depth, at);
  c.w = std::move(half);
  DeriveSizes(&c);
}

// Where there is nothing to change, a row changes nothing. Parameters that are a number, a flag or
// a choice have no row: AlterParameter changes them.
struct Change {
  const char* what;
  void (*apply)(Case& c);
};

constexpr std::array<Change, 19> kChanges{
    {{"the scale of x",
      [](Case& c) {
        if (HasXQParams(c) || IsScaledCast(c)) Double(c.x_q.scale);
      }},
     {"the zero point of x",
      [](Case& c) {
        if (HasXQParams(c)) Move(c.x_q.zero_point, c.x.dtype());
      }},
     {"the scale of w",
      [](Case& c) {
        if (HasW(c.op)) Double(c.w_q.scale);
      }},
     {"the zero point of w",
      [](Case& c) {
        if (HasW(c.op)) Move(c.w_q.zero_point, c.w.dtype());
      }},
     {"the multiplier", [](Case& c) { Double(c.multiplier); }},
     {"the output scale",
      [](Case& c) {
        if (HasOutQParams(c.op) || IsScaledCast(c)) Double(c.out_q.scale);
      }},
     {"the output zero point",
      [](Case& c) {
        if (HasOutQParams(c.op)) Move(c.out_q.zero_point, c.out_dtype);
      }},
     {"the bias",
      [](Case& c) {
        if (c.bias) c.bias->back() = -c.bias->back();
        if (c.bias_i32) c.bias_i32->back() = -1 - c.bias_i32->back();
      }},
     {"the clamp",
      [](Case& c) {
        if (!RowOf(c.op).clamp || c.out_dtype == DType::kF32) return;
        c.out_max = static_cast<int32_t>((int64_t{c.out_min} + c.out_max) / 2);
      }},
     {"the lower clamp",
      [](Case& c) {
        if (!RowOf(c.op).clamp || c.out_dtype == DType::kF32) return;
        c.out_min = static_cast<int32_t>((int64_t{c.out_min} + c.out_max + 1) / 2);
      }},
     {"the last element of x", [](Case& c) { FlipLast(c.x); }},
     {"the last element of w", [](Case& c) { FlipLast(c.w); }},
     {"the type of x",
      [](Case& c) {
        if (!HasTwoInputs(c.op)) Retype(c.x);
      }},
     {"the type of w",
      [](Case& c) {
        if (HasWeights(c.op)) Retype(c.w);
      }},
     {"the padding",  // moved from one side to the other, so that all sizes stay
      [](Case& c) {
        Window& v = c.window;
        if (v.pad_top + v.pad_left == 0) return;
        const bool rows = v.pad_top > 0;
        --(rows ? v.pad_top : v.pad_left);
        ++(rows ? v.pad_bottom : v.pad_right);
      }},
     {"the dilation",
      [](Case& c) {
        Window& v = c.window;
        if (!RowOf(c.op).dilation || v.kernel_h * v.kernel_w == 1) return;
        // Room behind the image for what the kernel is longer by: all sizes stay.
        const bool rows = v.kernel_h > 1;
        ++(rows ? v.dilation_h : v.dilation_w);
        (rows ? v.pad_bottom : v.pad_right) += (rows ? v.kernel_h : v.kernel_w) - 1;
        DeriveSizes(&c);
      }},
     {"the stride",
      [](Case& c) {
        if (!HasWindow(c.op) || c.op == Op::kGlobalAvgPool) return;
        ++(c.window.out_h() > 1 ? c.window.stride_h : c.window.stride_w);
        DeriveSizes(&c);
      }},
     {"the groups", SplitIntoGroups},
     {"the number of rows", DropLastRow}}};

void Alter(bool& flag) { flag = !flag; }
void Alter(int32_t& number) { number /= 2; }
void Alter(float& number) { number /= 2; }
void Alter(DType& codes) { codes = OtherSign(codes); }
template <NamedEnum E>
void Alter(E& choice) {
  choice = static_cast<E>((static_cast<size_t>(choice) + 1) % CountOf<E>());
}
// Lists have rows in kChanges.
template <class T>
void Alter(std::vector<T>& /*list*/) {}
template <class T>
void Alter(std::optional<std::vector<T>>& /*list*/) {}

// With another number of blocks the lists of w, or of x, would need another length.
bool IsAltered(const Case& c, const Field& field) {
  return RowOf(c.op).*field.has && field.has != &OpRow::blocks && field.has != &OpRow::x_blocks;
}

size_t ParametersOf(const Case& c) {
  size_t count = 0;
  ForEachParameter(
      c, [&](const Field& field, const auto& /*value*/) { count += IsAltered(c, field) ? 1 : 0; });
  return count;
}

// Alters one of those parameters and returns its name.
std::string AlterParameter(Case& c, size_t number) {
  std::string name;
  size_t at = 0;
  ForEachParameter(c, [&](const Field& field, auto& value) {
    if (!IsAltered(c, field) || at++ != number) return;
    Alter(value);
    name = field.name;
  });
  return name;
}

}  // namespace

void MirrorCode(Tensor& codes, int64_t i) {
  const CodeRange range = RangeOf(codes.dtype());
  codes.SetInt(i, static_cast<int32_t>(int64_t{range.min} + range.max - codes.IntAt(i)));
}

size_t ChangesOf(const Case& c) { return kChanges.size() + ParametersOf(c); }

std::string ApplyChange(size_t change, Case& c) {
  if (change >= kChanges.size()) return AlterParameter(c, change - kChanges.size());
  kChanges[change].apply(c);
  return kChanges[change].what;
}

}  // namespace qualm
