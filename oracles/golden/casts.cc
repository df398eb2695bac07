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

// The types of casts, by the names of ml_dtypes without the word float and its bits.
std::optional<DType> CastType(const std::string& name) {
  static const std::map<std::string_view, DType> types = {{"f32", DType::kF32},
                                                          {"f16", DType::kF16},
                                                          {"bf16", DType::kBF16},
                                                          {"e4m3fn", DType::kF8E4M3FN},
                                                          {"e5m2", DType::kF8E5M2},
                                                          {"e4m3fnuz", DType::kF8E4M3FNUZ},
                                                          {"e5m2fnuz", DType::kF8E5M2FNUZ},
                                                          {"e4m3", DType::kF8E4M3},
                                                          {"e3m4", DType::kF8E3M4},
                                                          {"e4m3b11fnuz", DType::kF8E4M3B11FNUZ},
                                                          {"e2m3fn", DType::kF6E2M3FN},
                                                          {"e3m2fn", DType::kF6E3M2FN},
                                                          {"e2m1fn", DType::kF4E2M1FN},
                                                          {"e8m0fnu", DType::kF8E8M0FNU}};
  const auto at = types.find(name);
  return at == types.end() ? std::nullopt : std::optional(at->second);
}

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
    if (!CastType(record.Text(field))) return record.op + " of " + record.Text(field);
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
  Case c = CaseOver(Op::kCast, CastCodes(record, "bits", *CastType(record.Text("from"))),
                    *CastType(record.Text("to")));
  const CastPolicy policy = *PolicyOf(record);
  c.rounding = policy.rounding;
  c.overflow = policy.overflow;
  CheckCase(record, c);
  return c;
}

Case DecodeCase(const GoldenRecord& record) {
  Case c = CaseOver(Op::kCast, CastCodes(record, "codes", *CastType(record.Text("format"))),
                    DType::kF32);
  CheckCase(record, c);
  return c;
}

}  // namespace qualm::golden
