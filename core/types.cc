// SPDX-License-Identifier: Apache-2.0
#include "core/types.h"

#include <array>
#include <utility>

namespace qualm {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 4> kDTypes{
    {{DType::kU8, "u8"}, {DType::kS8, "s8"}, {DType::kS32, "s32"}, {DType::kF32, "f32"}}};

// By value of Op.
constexpr std::array<std::string_view, kOpCount> kOpNames{
    "quantize", "dequantize", "requantize", "linear",        "conv2d",          "depthwise",
    "add",      "mul",        "max_pool",   "avg_pool",      "global_avg_pool", "rescale",
    "concat",   "table",      "softmax",    "choose_qparams"};
constexpr std::array<Op, kOpCount> kOps{
    Op::kQuantize,  Op::kDequantize, Op::kRequantize, Op::kRescale,
    Op::kAdd,       Op::kMul,        Op::kLinear,     Op::kConv2d,
    Op::kDepthwise, Op::kMaxPool,    Op::kAvgPool,    Op::kGlobalAvgPool,
    Op::kConcat,    Op::kTable,      Op::kSoftmax,    Op::kChooseQParams};

}  // namespace

std::string_view Name(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].second; }

std::optional<DType> ParseDType(std::string_view name) {
  for (const auto& [dtype, spelling] : kDTypes) {
    if (spelling == name) return dtype;
  }
  return std::nullopt;
}

std::span<const Op> AllOps() { return kOps; }

std::string_view Name(Op op) { return kOpNames[static_cast<size_t>(op)]; }

std::optional<Op> ParseOp(std::string_view name) {
  for (Op op : kOps) {
    if (Name(op) == name) return op;
  }
  return std::nullopt;
}

}  // namespace qualm
