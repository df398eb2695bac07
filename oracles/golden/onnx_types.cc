// SPDX-License-Identifier: Apache-2.0
// Recorded QuantizeLinear and DequantizeLinear of ONNX Runtime 1.30 with types and groupings that
// no case can say yet (onnxruntime130.jsonl): 4 and 16 bits, float16, blocks, rows. Those of float8
// are casts with scales, one for each group of elements that share a scale. Read in
// onnxruntime 1.30.0 core/providers/cpu/quantization/quantize_linear.cc and
// core/mlas/lib/quantize.cpp; every recorded bit agrees.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/float_format.h"
#include "core/status.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/primitives.h"
#include "oracles/golden/records.h"

namespace qualm::golden {
namespace {

struct Range {
  int64_t low, high;
};
std::optional<Range> RangeOfCodes(const std::string& name) {
  static const std::map<std::string_view, Range> ranges = {{"u8", {0, 255}},
                                                           {"s8", {-128, 127}},
                                                           {"u16", {0, 65535}},
                                                           {"s16", {-32768, 32767}},
                                                           {"u4", {0, 15}},
                                                           {"s4", {-8, 7}},
                                                           {"s32", {INT32_MIN, INT32_MAX}}};
  const auto at = ranges.find(name);
  return at == ranges.end() ? std::nullopt : std::optional(at->second);
}
std::optional<DType> FloatType(const std::string& name) {
  const auto type = FloatTypeNamed(name);
  const bool known = type == DType::kF32 || type == DType::kF16 || type == DType::kF8E4M3FN ||
                     type == DType::kF8E5M2 || type == DType::kF8E4M3FNUZ ||
                     type == DType::kF8E5M2FNUZ;
  return known ? type : std::nullopt;
}

template <class T>
std::vector<T> AsMany(const GoldenRecord& record, const std::string& field, std::vector<T> list,
                      int64_t count) {
  RequireEntries(record, field, list.size(), count);
  return list;
}

// The scales and zero points of a record, and which of them an element has: one for all, one for
// each index along `axis`, or one for each block of `block` elements along it.
class Grouping {
 public:
  explicit Grouping(const GoldenRecord& record) : shape_(record.Ints("shape")) {
    constexpr int64_t kMost = 1 << 20;
    for (const int64_t dim : shape_) {
      if (dim < 0 || dim > kMost || size_ * dim > kMost)
        Wrong(record, "shape", "the tensor is too large to be judged");
      size_ *= dim;
    }
    if (record.Has("axis")) {
      axis_ = record.Int("axis");
      if (axis_ < 0 || axis_ >= static_cast<int64_t>(shape_.size()))
        Wrong(record, "axis", "is no axis of the shape");
    }
    if (record.Has("block_size")) {
      block_ = record.Int("block_size");
      if (block_ < 1 || block_ > kMost || axis_ < 0)
        Wrong(record, "block_size", "must be from 1 to 2^20, with an axis");
    }
    int64_t groups = 1;
    for (size_t d = 0; d < shape_.size(); ++d) groups *= GroupsAlong(static_cast<int64_t>(d));
    scales_ = AsMany(record, "scale", record.Floats("scale"), groups);
    zero_points_ = AsMany(record, "zp", record.Ints("zp"), groups);
  }
  int64_t size() const { return size_; }
  float scale(size_t group) const { return scales_[group]; }
  int64_t zero_point(size_t group) const { return zero_points_[group]; }
  bool by_blocks() const { return block_ > 0; }
  bool along_last_axis() const { return axis_ == static_cast<int64_t>(shape_.size()) - 1; }
  bool along_axis() const { return axis_ >= 0; }
  size_t GroupOf(int64_t element) const {
    int64_t group = 0, stride = 1;
    for (auto d = static_cast<int64_t>(shape_.size()) - 1; d >= 0; --d) {
      const int64_t dim = shape_[static_cast<size_t>(d)], at = element % dim;
      element /= dim;
      const int64_t along = GroupsAlong(d);
      if (along > 1) group += (by_blocks() && d == axis_ ? at / block_ : at) * stride;
      stride *= along;
    }
    return static_cast<size_t>(group);
  }

 private:
  int64_t GroupsAlong(int64_t d) const {
    const int64_t dim = shape_[static_cast<size_t>(d)];
    if (axis_ < 0) return 1;
    if (!by_blocks()) return d == axis_ ? dim : 1;
    return d == axis_ ? (dim + block_ - 1) / block_ : dim;
  }

  std::vector<int64_t> shape_;
  int64_t size_ = 1, axis_ = -1, block_ = 0;
  std::vector<float> scales_;
  std::vector<int64_t> zero_points_;
};

// The quotient is limited in float32 before it is rounded; NaN becomes the lowest code.
int64_t LimitedFirst(float quotient, const Range& range, int64_t zero_point) {
  const auto low = static_cast<float>(range.low - zero_point),
             high = static_cast<float>(range.high - zero_point);
  const float limited = std::min(quotient > low ? quotient : low, high);
  return static_cast<int64_t>(conventions::RoundNearestEven(static_cast<double>(limited))) +
         zero_point;
}

// The quotient is rounded to int32, which it leaves as INT32_MIN, and the zero point wraps.
int64_t RoundedFirst(float quotient, const Range& range, int64_t zero_point) {
  const bool fits = quotient >= -0x1p31f && quotient < 0x1p31f;
  const int64_t rounded =
      fits ? static_cast<int64_t>(conventions::RoundNearestEven(static_cast<double>(quotient)))
           : INT32_MIN;
  return std::clamp<int64_t>(conventions::Wrap32(rounded + zero_point), range.low, range.high);
}

struct CastTypes {
  DType from, to;
  FloatOverflow overflow = FloatOverflow::kInfinity;
};

// Runs the elements of each group as a cast whose x or output (`q`) has the group's scale, by the
// convention for them; what it refuses no recording has. code_of(i) is the code of element i, and
// take(i, y, at) takes its output, which is at `at` of y.
template <class CodeOf, class Take>
void RunCasts(const Grouping& grouping, const CastTypes& types, QParams Case::* q,
              const CodeOf& code_of, const Take& take) {
  const Convention& convention = *FindConvention("onnxruntime1.30-cast");
  std::map<size_t, std::vector<int64_t>> groups;
  for (int64_t i = 0; i < grouping.size(); ++i) groups[grouping.GroupOf(i)].push_back(i);
  for (const auto& [group, elements] : groups) {
    Case cast = CaseOver(Op::kCast, Tensor(types.from, {1, std::ssize(elements)}), types.to);
    cast.overflow = types.overflow;
    (cast.*q).scale = {grouping.scale(group)};
    for (int64_t at = 0; at < cast.N; ++at)
      cast.x.SetBits(at, code_of(elements[static_cast<size_t>(at)]));
    QUALM_CHECK_EQ(convention.cannot_run(cast), "");
    const Tensor y = convention.run(cast).y;
    for (int64_t at = 0; at < cast.N; ++at) take(elements[static_cast<size_t>(at)], y, at);
  }
}

// The code of a recorded float32 in f32 or, of which it is a value, f16.
uint32_t CodeOfRecorded(DType dtype, float value) {
  return dtype == DType::kF32 ? std::bit_cast<uint32_t>(value)
                              : EncodeFloat(dtype, static_cast<double>(value));
}
// An f32 or f16 as the float32 that recordings have of both.
uint32_t EncodeFloat32(const Tensor& reals, int64_t i) {
  if (reals.dtype() == DType::kF32) return reals.BitsAt(i);
  const uint32_t code = reals.BitsAt(i);
  if (IsNanCode(reals.dtype(), code)) return 0x7FC00000 | (code >> 15 << 31);
  return std::bit_cast<uint32_t>(static_cast<float>(reals.ValueAt(i)));
}

JudgedRecord Quantize(const GoldenRecord& record) {
  const std::string x_type = record.Text("x_type"), y_type = record.Text("y_type");
  const auto range = RangeOfCodes(y_type);
  const auto floats = FloatType(y_type);
  if ((x_type != "f32" && x_type != "f16") || (!range && !floats) || record.Has("precision"))
    return {.skipped = "QuantizeLinear of " + x_type + " to " + y_type};
  const Grouping grouping(record);
  const std::vector<float> x = AsMany(record, "x", record.Floats("x"), grouping.size());
  const std::vector<int64_t> y = AsMany(record, "y", record.Ints("y"), grouping.size());
  JudgedRecord judged{.convention = "onnxruntime1.30"};
  const bool of_4_bits = range && range->high - range->low < 16;
  const bool rounded_first =
      x_type == "f16" || (grouping.by_blocks() && !grouping.along_last_axis()) ||
      (of_4_bits && !grouping.by_blocks() && grouping.along_axis() && grouping.along_last_axis());
  const Tensor empty(DType::kS32, {grouping.size()});
  Tensor& recorded = judged.outputs.emplace_back("y", empty, empty).recorded;
  Tensor& computed = judged.outputs.back().computed;
  for (int64_t i = 0; i < grouping.size(); ++i) {
    const size_t at = static_cast<size_t>(i), group = grouping.GroupOf(i);
    if (y[at] < INT32_MIN || y[at] > INT32_MAX) Wrong(record, "y", "an entry is no code");
    recorded.SetInt(i, static_cast<int32_t>(y[at]));
    if (!range) continue;
    const int64_t zero_point = grouping.zero_point(group);
    if (zero_point < range->low || zero_point > range->high)
      Wrong(record, "zp", "an entry is no code of " + y_type);
    computed.SetInt(i, static_cast<int32_t>((rounded_first ? RoundedFirst : LimitedFirst)(
                           x[at] / grouping.scale(group), *range, zero_point)));
  }
  if (range) return judged;
  const bool saturates = !record.Has("saturate") || Flag(record, "saturate");
  const CastTypes types{*FloatTypeNamed(x_type), *floats,
                        saturates ? FloatOverflow::kSaturate : FloatOverflow::kInfinity};
  RunCasts(
      grouping, types, &Case::out_q,
      [&](int64_t i) { return CodeOfRecorded(types.from, x[static_cast<size_t>(i)]); },
      [&](int64_t i, const Tensor& codes, int64_t at) {
        computed.SetInt(i, static_cast<int32_t>(codes.BitsAt(at)));
      });
  return judged;
}

JudgedRecord Dequantize(const GoldenRecord& record) {
  const std::string x_type = record.Text("x_type"), y_type = record.Text("y_type");
  const auto floats = FloatType(x_type);
  if ((y_type != "f32" && y_type != "f16") || (!RangeOfCodes(x_type) && !floats))
    return {.skipped = "DequantizeLinear of " + x_type + " to " + y_type};
  const Grouping grouping(record);
  const std::vector<int64_t> x = AsMany(record, "x", record.Ints("x"), grouping.size());
  const std::vector<float> y = AsMany(record, "y", record.Floats("y"), grouping.size());
  JudgedRecord judged{.convention = "onnxruntime1.30"};
  const Tensor empty(DType::kF32, {grouping.size()});
  Tensor& recorded = judged.outputs.emplace_back("y", empty, empty).recorded;
  Tensor& computed = judged.outputs.back().computed;
  for (int64_t i = 0; i < grouping.size(); ++i) {
    const size_t at = static_cast<size_t>(i), group = grouping.GroupOf(i);
    if (floats ? x[at] < 0 || x[at] > 255 : x[at] < INT32_MIN || x[at] > INT32_MAX)
      Wrong(record, "x", "an entry is no code");
    if (grouping.zero_point(group) < INT32_MIN || grouping.zero_point(group) > INT32_MAX)
      Wrong(record, "zp", "an entry is no code");
    recorded.as<float>()[at] = y[at];
    if (floats) continue;
    const auto real = static_cast<float>(x[at] - grouping.zero_point(group));
    float value = real * grouping.scale(group);
    if (y_type == "f16") value = conventions::RoundedTo(DType::kF16, value);
    computed.as<float>()[at] = value;
  }
  if (!floats) return judged;
  RunCasts(
      grouping, {*floats, *FloatTypeNamed(y_type)}, &Case::x_q,
      [&](int64_t i) { return static_cast<uint32_t>(x[static_cast<size_t>(i)]); },
      [&](int64_t i, const Tensor& reals, int64_t at) {
        computed.SetBits(i, EncodeFloat32(reals, at));
      });
  return judged;
}

}  // namespace

bool IsOnnxOfOtherTypes(const GoldenRecord& record) {
  return (record.op == "QuantizeLinear" || record.op == "DequantizeLinear") &&
         !BeyondCases(record).empty();
}

JudgedRecord JudgeOnnxOfOtherTypes(const GoldenRecord& record) {
  return record.op == "QuantizeLinear" ? Quantize(record) : Dequantize(record);
}

}  // namespace qualm::golden
