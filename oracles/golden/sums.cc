// SPDX-License-Identifier: Apache-2.0
// Recorded products of floats and small integers that CPUs add in float32: ONNX Runtime's
// MatMulNBits (onnxruntime130.jsonl), PyTorch's weight_int8pack_mm and dyn_quant_matmul_4bit
// (torch211_decomposed.jsonl), and the summation trees that such kernels showed (trees.jsonl).
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/case.h"
#include "core/float_format.h"
#include "core/slice.h"
#include "oracles/conventions/float_sums.h"
#include "oracles/conventions/primitives.h"
#include "oracles/conventions/sum_orders.h"
#include "oracles/golden/records.h"

namespace qualm::golden {
namespace {

using conventions::kFmaChain;
using conventions::SumOfProducts;
using conventions::SumOrder;

// Rows of floats, each of so many columns.
class Floats {
 public:
  Floats(const GoldenRecord& record, const std::string& field, int64_t rows, int64_t columns)
      : columns_(columns), values_(record.Floats(field)) {
    RequireEntries(record, field, values_.size(), rows * columns);
  }
  std::span<const float> Row(int64_t row) const {
    return std::span(values_).subspan(static_cast<size_t>(row * columns_),
                                      static_cast<size_t>(columns_));
  }
  const std::vector<float>& values() const { return values_; }
  float At(int64_t row, int64_t column) const {
    return values_[static_cast<size_t>(row * columns_ + column)];
  }

 protected:
  int64_t columns_;
  std::vector<float> values_;
};
// Rows of bf16, given as patterns.
class Bf16s : public Floats {
 public:
  Bf16s(const GoldenRecord& record, const std::string& field, int64_t rows, int64_t columns)
      : Floats(record, field, rows, columns) {
    for (float& value : values_) {
      if (!(value >= 0 && value <= 0xFFFF)) Wrong(record, field, "an entry has more than 16 bits");
      value = static_cast<float>(DecodeFloat(DType::kBF16, static_cast<uint32_t>(value)));
    }
  }
};

int64_t BlocksOf(const GoldenRecord& record, const std::string& field, int64_t length) {
  if (record.Int(field) < 1) Wrong(record, field, "expected at least 1");
  return (length + record.Int(field) - 1) / record.Int(field);
}

// The recorded output of a type, and what `element` computes, float32 that is rounded to the type.
template <class Element>
JudgedRecord Judged(const GoldenRecord& record, const std::string& field, std::string convention,
                    const Sizes& sizes, DType dtype, const Element& element) {
  const std::vector<float> values = record.Floats(field);
  RequireEntries(record, field, values.size(), sizes.m * sizes.n);
  Tensor recorded(dtype, {sizes.m, sizes.n});
  for (int64_t i = 0; i < recorded.size(); ++i) {
    const float value = values[static_cast<size_t>(i)];
    recorded.SetBits(
        i, dtype == DType::kBF16 ? static_cast<uint32_t>(value) : EncodeFloat(dtype, value));
  }
  return JudgedMatrix(std::move(convention), field, std::move(recorded),
                      [&](int64_t m, int64_t n) { return EncodeFloat(dtype, element(m, n)); });
}

// The order in which ONNX Runtime 1.30 adds a column of MatMulNBits in float32 on x86 with AVX-512.
// Several rows: the weights become float32 and MLAS's SGEMM adds them, one chain
// (core/mlas/lib/amd64/FgemmKernelAvx512FCommon.inc). One row: of 4 bits a kernel of its own
// (core/mlas/lib/sqnbitgemm_kernel_avx512.cpp); else SGEMM's kernel of one row, which has no fused
// multiply-add and three ways to add its lanes (core/mlas/lib/x86_64/SgemmKernelM1TransposeBAvx.S).
SumOrder OrderOfNBits(int64_t bits, int64_t rows, int64_t column, int64_t columns) {
  using Lanes = SumOrder::Lanes;
  if (rows > 1) return kFmaChain;
  const int64_t left = columns - column, behind_fours = columns % 4;
  const bool of_four = left > behind_fours;
  if (bits == 4) return {.lanes = 16, .reduce = of_four ? Lanes::kQuartets : Lanes::kHalves};
  const bool of_two = behind_fours >= 2 && left > behind_fours - 2;
  return {.lanes = 8,
          .reduce = of_four  ? Lanes::kQuartets
                    : of_two ? Lanes::kStridedQuarters
                             : Lanes::kNeighbours,
          .fused = false};
}
// x as the codes that accuracy level 4 makes of each block: the scale max/127, times its
// reciprocal, ties to even (QuantizeARow_CompInt8_avx512 in
// core/mlas/lib/sqnbitgemm_kernel_avx512.cpp). nullopt where a scale is denormal, or no number.
std::optional<Case> WithCodesOfX(Case c) {
  Tensor codes(DType::kS8, c.x.shape());
  c.x_block = c.w_block;
  c.x_q = {{}, std::vector<int32_t>(static_cast<size_t>(c.M * RowBlocks(c)))};
  const std::span<const float> x = c.x.as<float>();
  for (const auto& [begin, end] : slice::BlocksOfX(c)) {
    float most = 0;
    for (int64_t i = begin; i < end; ++i) {
      const float value = x[static_cast<size_t>(i)];
      if (!std::isfinite(value)) return std::nullopt;
      most = std::max(most, std::abs(value));
    }
    const float scale = most == 0 ? 1.0f : most / 127.0f;
    if (!std::isnormal(scale)) return std::nullopt;
    const float inverse = 1.0f / scale;
    c.x_q.scale.push_back(scale);
    for (int64_t i = begin; i < end; ++i) {
      codes.SetInt(i, static_cast<int32_t>(
                          conventions::RoundNearestEven(x[static_cast<size_t>(i)] * inverse)));
    }
  }
  c.x = std::move(codes);
  return c;
}

// Each recorded output, or the nearest one that sums of these codes in float32 may give: no order
// is known.
JudgedRecord MatMulNBitsOfCodes(const GoldenRecord& record, DType dtype) {
  const std::optional<Case> c = WithCodesOfX(CaseOfNBits(record));
  if (!c) return {.skipped = "MatMulNBits of denormal blocks (accuracy level 4)"};
  const std::vector<FloatSum> sums = FloatSums(*c, Offsets::kApart);
  const std::vector<float> recorded = record.Floats("y");
  JudgedRecord judged = Judged(
      record, "y", "onnxruntime@level4", {c->M, c->N, c->K}, dtype, [&](int64_t m, int64_t n) {
        const auto at = static_cast<size_t>(m * c->N + n);
        const auto [low, high] = sums[at].permitted;
        const auto rounded = [&](double bound) {
          return DecodeFloat(dtype, EncodeFloat(dtype, bound));
        };
        return static_cast<float>(std::clamp<double>(recorded[at], rounded(low), rounded(high)));
      });
  judged.interval = true;
  return judged;
}

// Levels 0 and 1 are the same; level 4 makes codes of A, but not for 2 bits in blocks of 16.
bool IsAddedInFloat32(int64_t bits, int64_t block, int64_t level) {
  return level == 0 || level == 1 || (level == 4 && bits == 2 && block == 16);
}

JudgedRecord MatMulNBits(const GoldenRecord& record) {
  const Sizes sizes = SizesOf(record);
  const int64_t bits = record.Int("bits");
  if (bits != 2 && bits != 4 && bits != 8) return {.skipped = "MatMulNBits of such bits"};
  const std::string type = record.Text("a_type");
  if (type != "f32" && type != "f16") return {.skipped = "MatMulNBits of " + type};
  const DType dtype = type == "f16" ? DType::kF16 : DType::kF32;
  if (!IsAddedInFloat32(bits, record.Int("block_size"), record.Int("accuracy_level")))
    return MatMulNBitsOfCodes(record, dtype);
  const Case c = CaseOfNBits(record);
  std::vector<std::vector<float>> weights;
  for (int64_t n = 0; n < sizes.n; ++n) {
    std::vector<float>& column = weights.emplace_back();
    for (int64_t k = 0; k < sizes.k; ++k) {
      const size_t at = WEntry(c, n, k);
      column.push_back(static_cast<float>(c.w.IntAt(n * sizes.k + k) - c.w_q.zero_point[at]) *
                       c.w_q.scale[at]);
    }
  }
  return Judged(record, "y", "onnxruntime@avx512", sizes, dtype, [&](int64_t m, int64_t n) {
    return SumOfProducts(
        OrderOfNBits(bits, sizes.m, n, sizes.n),
        c.x.as<float>().subspan(static_cast<size_t>(m * sizes.k), static_cast<size_t>(sizes.k)),
        weights[static_cast<size_t>(n)]);
  });
}

// aten/src/ATen/native/cpu/int8mm_kernel.cpp of PyTorch 2.11, AVX-512.
constexpr SumOrder kInt8Pack{.lanes = 16, .reduce = SumOrder::Lanes::kHalves};
JudgedRecord Int8Pack(const GoldenRecord& record) {
  const Sizes sizes = SizesOf(record);
  const Bf16s a(record, "a_bf16", sizes.m, sizes.k), scale(record, "scale_bf16", 1, sizes.n);
  const Floats weights(record, "q", sizes.n, sizes.k);
  return Judged(record, "y_bf16", "torch@cpu", sizes, DType::kBF16, [&](int64_t m, int64_t n) {
    return SumOfProducts(kInt8Pack, a.Row(m), weights.Row(n)) * scale.At(0, n);
  });
}

// A row as codes of int8, and what one of them stands for.
struct DynamicRow {
  std::vector<int32_t> distances;  // from the zero point
  float scale;
};
// ref_dyn_quant_matmul_4bit_{channelwise,groupwise}_kernel of PyTorch 2.11
// aten/src/ATen/native/cpu/int4mm_kernel.cpp: the reciprocal of the scale first, ties away from
// zero, and two orders of one sum of four terms.
DynamicRow Quantized(std::span<const float> row, bool of_channels) {
  float low = 0, high = 0;
  for (const float value : row) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const float inverse = low == high ? 1.0f : 255.0f / (high - low);
  const float below = low * inverse, above = high * inverse;
  const float error =
      of_channels ? (-128.0f + below) + (127.0f + above) : ((-128.0f + below) + 127.0f) + above;
  const float place = std::clamp(error > 0 ? -128.0f - below : 127.0f - above, -128.0f, 127.0f);
  const auto zero_point = static_cast<int32_t>(conventions::RoundNearestEven(place));
  DynamicRow codes{{}, 1.0f / inverse};
  for (const float value : row) {
    const float scaled = std::clamp(std::round(value * inverse), -1024.0f, 1024.0f);
    codes.distances.push_back(std::clamp(static_cast<int32_t>(scaled) + zero_point, -128, 127) -
                              zero_point);
  }
  return codes;
}

JudgedRecord DynamicMatmul4Bit(const GoldenRecord& record) {
  const Sizes sizes = SizesOf(record);
  const int64_t blocks = BlocksOf(record, "block", sizes.k), block = record.Int("block");
  const Floats a(record, "a", sizes.m, sizes.k), scales(record, "scales", sizes.n, blocks);
  const Tensor codes = Codes(record, "q", DType::kU8, {sizes.n, sizes.k});
  std::vector<DynamicRow> rows;
  for (int64_t m = 0; m < sizes.m; ++m) {
    if (std::ranges::any_of(a.Row(m), [](float value) { return !std::isfinite(value); }))
      Wrong(record, "a", "must be finite");
    rows.push_back(Quantized(a.Row(m), block == sizes.k));
  }
  return Judged(record, "y", "torch@cpu", sizes, DType::kF32, [&](int64_t m, int64_t n) {
    const DynamicRow& row = rows[static_cast<size_t>(m)];
    float total = 0;
    for (int64_t at = 0; at < blocks; ++at) {
      int32_t sum = 0;
      for (int64_t k = at * block; k < std::min(sizes.k, (at + 1) * block); ++k)
        sum += row.distances[static_cast<size_t>(k)] * (codes.IntAt(n * sizes.k + k) - 8);
      total += static_cast<float>(sum) * scales.At(n, at);
    }
    return total * row.scale;
  });
}

// ---- Summation trees. A record has a sum's answers to numbers that cancel: +big at i, -big at j.

// The order of a sum on the CPU; nullopt where it is no product, or not known.
std::optional<SumOrder> OrderNamed(const GoldenRecord& record, int64_t products) {
  const std::string what = record.Text("what");
  const auto is = [&](std::string_view begin) { return what.starts_with(begin); };
  if (is("torch.matmul f32") || is("quantized.linear_dynamic_fp16") ||
      is("aten._weight_int4pack_mm_for_cpu") || is("onnxruntime MatMul f32 4x"))
    return kFmaChain;
  if (is("torch.matmul bfloat16") && products % 32 == 0) return conventions::kAmxBf16;
  if (is("aten._weight_int8pack_mm")) return kInt8Pack;
  if (is("onnxruntime MatMul f32 1x")) return SumOrder{.block = 4};
  constexpr std::string_view kNBits = "onnxruntime MatMulNBits bits=";
  if (!is(kNBits) || what.size() <= kNBits.size()) return std::nullopt;
  const auto number = [&](const std::string& name) {
    const size_t at = what.find(name + "=");
    return at == std::string::npos ? 0 : std::atoll(what.c_str() + at + name.size() + 1);
  };
  if (!IsAddedInFloat32(number("bits"), number("block"), number("accuracy"))) return std::nullopt;
  return OrderOfNBits(number("bits"), number("M"), 0, 4);
}

JudgedRecord CpuTree(const GoldenRecord& record) {
  constexpr int64_t kMost = 1024;
  const int64_t products = record.Int("n");
  if (products < 1 || products > kMost) Wrong(record, "n", "expected 1 to 1024 products");
  const std::optional<SumOrder> order = OrderNamed(record, products);
  if (!order) return {.skipped = "the order of " + record.Text("what")};
  const std::vector<int32_t> leaves = Int32s(record, "leaves_of_common_subtree");
  const int64_t pairs = products * (products - 1) / 2;
  RequireEntries(record, "leaves_of_common_subtree", leaves.size(), pairs);
  const conventions::SumTree tree = TreeOf(*order, products);
  JudgedRecord judged{.convention = "sums"};
  const Tensor counts(DType::kS32, {pairs});
  JudgedRecord::Output output{"leaves_of_common_subtree", counts, counts};
  int64_t at = 0;
  for (const std::vector<int64_t>& row : LeavesOfCommon(tree)) {
    for (const int64_t count : row) {
      output.recorded.SetInt(at, leaves[static_cast<size_t>(at)]);
      output.computed.SetInt(at++, static_cast<int32_t>(count));
    }
  }
  judged.outputs.push_back(std::move(output));
  // The text is what somebody else's program read off the same counts.
  judged.texts.push_back({"tree", record.Text("tree"), TextOf(tree)});
  return judged;
}

using Judge = JudgedRecord (*)(const GoldenRecord&);
const std::map<std::string_view, Judge>& Judges() {
  static const std::map<std::string_view, Judge> judges{
      {"MatMulNBits", MatMulNBits},
      {"weight_int8pack_mm", Int8Pack},
      {"dyn_quant_matmul_4bit", DynamicMatmul4Bit},
      {"tree", CpuTree}};
  return judges;
}

}  // namespace

Case CaseOfNBits(const GoldenRecord& record) {
  const Sizes sizes = SizesOf(record);
  const int64_t blocks = BlocksOf(record, "block_size", sizes.k);
  const Floats a(record, "a", sizes.m, sizes.k), scales(record, "scales", sizes.n, blocks);
  Case c;
  c.M = sizes.m, c.N = sizes.n, c.K = sizes.k;
  c.x = Tensor::Of<float>({sizes.m, sizes.k}, a.values());
  c.w = Codes(record, "q", DType::kU8, {sizes.n, sizes.k});
  c.per_channel = true;
  c.w_block = static_cast<int32_t>(std::min(record.Int("block_size"), sizes.k));
  std::optional<Tensor> zero_points;
  if (record.Has("zp")) zero_points = Codes(record, "zp", DType::kU8, {sizes.n, blocks});
  c.w_q = {{}, {}};
  for (int64_t i = 0; i < sizes.n * blocks; ++i) {
    c.w_q.scale.push_back(scales.At(i / blocks, i % blocks));
    c.w_q.zero_point.push_back(zero_points ? zero_points->IntAt(i) : 1 << (record.Int("bits") - 1));
  }
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  return c;
}

bool IsSum(const GoldenRecord& record) { return Judges().contains(record.op); }

JudgedRecord JudgeSum(const GoldenRecord& record) { return Judges().at(record.op)(record); }

}  // namespace qualm::golden
