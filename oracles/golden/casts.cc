// SPDX-License-Identifier: Apache-2.0
// Recorded casts between float types (casts.jsonl).
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/float_format.h"
#include "oracles/golden/records.h"

namespace qualm::golden {
namespace {

// What a stack calls the policies of a cast. `mode` is CUDA's: saturation, then the rounding.
struct CastPolicy {
  FloatRounding rounding = FloatRounding::kNearestEven;
  FloatOverflow overflow = FloatOverflow::kInfinity;
};
std::optional<CastPolicy> PolicyOf(const GoldenRecord& record) {
  static const std::map<std::string_view, CastPolicy> modes = {
      {"sat", {FloatRounding::kNearestEven, FloatOverflow::kSaturate}},
      {"nosat", {FloatRounding::kNearestEven, FloatOverflow::kInfinity}},
      {"rn", {FloatRounding::kNearestEven, FloatOverflow::kSaturate}},
      {"sat_rz", {FloatRounding::kTowardZero, FloatOverflow::kSaturate}},
      {"nosat_rz", {FloatRounding::kTowardZero, FloatOverflow::kInfinity}},
      {"sat_up", {FloatRounding::kUp, FloatOverflow::kSaturate}},
      {"nosat_up", {FloatRounding::kUp, FloatOverflow::kInfinity}}};
  static const std::map<std::string_view, FloatRounding> roundings = {
      {"nearest", FloatRounding::kNearestEven},
      {"down", FloatRounding::kTowardZero},
      {"up", FloatRounding::kUp}};
  CastPolicy policy;
  // Those that have no switch, or whose switch was left alone, saturate.
  if (record.backend.starts_with("ptx") || record.backend.starts_with("onnx"))
    policy.overflow = FloatOverflow::kSaturate;
  for (const auto& [field, value] : record.fields) {
    if (!field.starts_with("params.")) continue;
    if (field == "params.saturate") {
      policy.overflow = Flag(record, field) ? FloatOverflow::kSaturate : FloatOverflow::kInfinity;
    } else if (field == "params.round_mode" || field == "params.mode") {
      const std::string name = record.Text(field);
      const auto mode = modes.find(name);
      const auto rounding = roundings.find(name);
      if (field == "params.mode" && mode != modes.end()) {
        policy = mode->second;
      } else if (field == "params.round_mode" && rounding != roundings.end()) {
        policy.rounding = rounding->second;
      } else {
        return std::nullopt;
      }
    } else {
      return std::nullopt;
    }
  }
  return policy;
}

}  // namespace

std::string BeyondCasts(const GoldenRecord& record) {
  const bool casts = record.op == "cast";
  const auto fields = casts ? std::vector<const char*>{"from", "to"} : std::vector{"format"};
  for (const char* field : fields) {
    if (!FloatTypeNamed(record.Text(field))) return record.op + " of " + record.Text(field);
  }
  return casts && !PolicyOf(record) ? "a cast with such params" : "";
}

Tensor CastCodes(const GoldenRecord& record, const std::string& field, DType dtype) {
  const std::vector<int64_t> bits = record.Ints(field);
  const int64_t most = dtype == DType::kF32 ? int64_t{UINT32_MAX} : int64_t{RangeOf(dtype).max};
  Tensor tensor(dtype, {1, static_cast<int64_t>(bits.size())});
  for (size_t i = 0; i < bits.size(); ++i) {
    if (bits[i] < 0 || bits[i] > most)
      Wrong(record, field,
            "entry " + std::to_string(i) + " is no code of " + std::string(Name(dtype)));
    tensor.SetBits(static_cast<int64_t>(i), static_cast<uint32_t>(bits[i]));
  }
  return tensor;
}

Case CastCase(const GoldenRecord& record) {
  Case c = CaseOver(Op::kCast, CastCodes(record, "bits", *FloatTypeNamed(record.Text("from"))),
                    *FloatTypeNamed(record.Text("to")));
  const CastPolicy policy = *PolicyOf(record);
  c.rounding = policy.rounding;
  c.overflow = policy.overflow;
  CheckCase(record, c);
  return c;
}

Case DecodeCase(const GoldenRecord& record) {
  Case c = CaseOver(Op::kCast, CastCodes(record, "codes", *FloatTypeNamed(record.Text("format"))),
                    DType::kF32);
  CheckCase(record, c);
  return c;
}

}  // namespace qualm::golden
