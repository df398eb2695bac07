// SPDX-License-Identifier: Apache-2.0
// Recorded products of floats: tensor cores by instruction (mma.jsonl), what cuBLAS, PyTorch and
// Triton build from them (gpu_products.jsonl), and PyTorch's matmul on the CPU
// (torch211_cpu_matmul.jsonl).
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/float_format.h"
#include "oracles/conventions/sum_orders.h"
#include "oracles/conventions/tensor_cores.h"
#include "oracles/golden/records.h"

namespace qualm::golden {
namespace {

using conventions::FindTensorCoreType;
using conventions::FusedSum;
using conventions::SumOfProducts;
using conventions::TensorCoreType;
using Result = FusedSum::Result;

constexpr FusedSum kF16Sum{};
constexpr FusedSum kTf32Sum{.terms = 8};
constexpr FusedSum kFloat8Sum{.terms = 32, .fraction_bits = 13, .result = Result::kF32Of14};

// A way to add products of floats, and its name.
struct Arithmetic {
  enum class Way : uint8_t { kFused, kFloat16Pairs, kFusedSteps, kRoundedSteps };
  std::string_view name;
  Way way = Way::kFused;
  FusedSum sum = {};
  int64_t every = 0;
};
constexpr Arithmetic kArithmetics[] = {
    {"fused sums of 16 products, cut at 25 bits", Arithmetic::Way::kFused, kF16Sum},
    {"fused sums of 8 products, cut at 25 bits", Arithmetic::Way::kFused, kTf32Sum},
    {"fused sums of 8 products, cut at 25 bits, added in float32 every 32", Arithmetic::Way::kFused,
     kTf32Sum, 32},
    {"fused sums of 32 products, cut at 13 bits", Arithmetic::Way::kFused, kFloat8Sum},
    {"fused sums of 32 products, cut at 13 bits, added in float32 every 128",
     Arithmetic::Way::kFused, kFloat8Sum, 128},
    {"pairs of float16 in two fused sums", Arithmetic::Way::kFloat16Pairs},
    {"float32 chain of fused multiply-adds", Arithmetic::Way::kFusedSteps},
    {"float32 chain of rounded products", Arithmetic::Way::kRoundedSteps},
};
// ArithmeticsOf: products are added so, and not as the record's own convention does.
thread_local const Arithmetic* other = nullptr;
thread_local bool other_was_asked = false;

// The small type of these patterns; nullopt of tf32, whose numbers are those of float32.
std::optional<DType> StoredType(const TensorCoreType& type) {
  if (type.unread_bits != 0) return std::nullopt;
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF8E4M3FN, DType::kF8E5M2}) {
    const FloatFormat& format = InfoOf(dtype).floating;
    if (format.exponent_bits == type.format.exponent_bits &&
        format.fraction_bits == type.format.fraction_bits)
      return dtype;
  }
  return std::nullopt;
}
float RealOf(const TensorCoreType& type, uint32_t code) {
  const std::optional<DType> stored = StoredType(type);
  return stored ? static_cast<float>(DecodeFloat(*stored, code))
                : std::bit_cast<float>(code >> type.unread_bits << type.unread_bits);
}

// The sum in the other way. What that cannot add is a NaN, which no record has.
uint32_t SumByOther(const TensorCoreType& x, std::span<const uint32_t> a, const TensorCoreType& y,
                    std::span<const uint32_t> b, DType result, uint32_t c) {
  other_was_asked = true;
  const bool f16 = result == DType::kF16;
  const float addend = static_cast<float>(DecodeFloat(result, c));
  const auto written = [&](float value) {
    return f16 ? EncodeFloat(DType::kF16, value) : conventions::BitsOfSum(value);
  };
  switch (other->way) {
    case Arithmetic::Way::kFused: {
      FusedSum sum = other->sum;
      if (f16) sum.result = Result::kF16;
      if (other->every == 0) return conventions::Chain(sum, x, a, y, b, c);
      const float promoted = conventions::Promoted(other->sum, other->every, x, a, y, b);
      return written(addend == 0 ? promoted : promoted + addend);
    }
    case Arithmetic::Way::kFloat16Pairs: {
      const auto a_type = StoredType(x), b_type = StoredType(y);
      if (!a_type || !b_type || BitsOf(*a_type) != 8 || BitsOf(*b_type) != 8 || a.size() % 32 != 0)
        return NanCode(result);
      if (a.size() == 32) return conventions::Float8ByF16(f16, *a_type, a, *b_type, b, c);
      return f16 ? NanCode(result) : conventions::Float8ByF16InSums(*a_type, a, *b_type, b, c);
    }
    case Arithmetic::Way::kFusedSteps:
    case Arithmetic::Way::kRoundedSteps: {
      float sum = addend;
      for (size_t k = 0; k < a.size(); ++k) {
        const float u = RealOf(x, a[k]), v = RealOf(y, b[k]);
        if (other->way == Arithmetic::Way::kFusedSteps) {
          sum = std::fma(u, v, sum);
        } else {
          const float product = u * v;
          sum = sum + product;
        }
      }
      return written(sum);
    }
  }
  return NanCode(result);
}

// conventions::Promoted, or the other way.
float Added(const FusedSum& sum, int64_t every, const TensorCoreType& x,
            std::span<const uint32_t> a, const TensorCoreType& y, std::span<const uint32_t> b) {
  if (other != nullptr) return std::bit_cast<float>(SumByOther(x, a, y, b, DType::kF32, 0));
  return conventions::Promoted(sum, every, x, a, y, b);
}

// The rows of a matrix of patterns or integers.
class Matrix {
 public:
  // `bits` of an entry: a pattern, or an integer of that many bits.
  Matrix(const GoldenRecord& record, const std::string& field, int64_t rows, int64_t columns,
         int bits)
      : columns_(columns), values_(record.Patterns(field)) {
    RequireEntries(record, field, values_.size(), rows * columns);
    const int64_t low = -(int64_t{1} << (bits - 1)), high = (int64_t{1} << bits) - 1;
    for (const int64_t value : values_) {
      if (value < low || value > high)
        Wrong(record, field, "an entry has more than " + std::to_string(bits) + " bits");
      codes_.push_back(static_cast<uint32_t>(value & high));
    }
  }
  std::span<const uint32_t> Codes(int64_t row) const {
    return std::span(codes_).subspan(static_cast<size_t>(row * columns_),
                                     static_cast<size_t>(columns_));
  }
  std::span<const int64_t> Integers(int64_t row) const {
    return std::span(values_).subspan(static_cast<size_t>(row * columns_),
                                      static_cast<size_t>(columns_));
  }
  uint32_t At(int64_t row, int64_t column) const {
    return codes_[static_cast<size_t>(row * columns_ + column)];
  }
  Matrix Transposed() const {
    Matrix turned = *this;
    const int64_t rows = columns_ == 0 ? 0 : static_cast<int64_t>(values_.size()) / columns_;
    turned.columns_ = rows;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns_; ++c) {
        turned.values_[static_cast<size_t>(c * rows + r)] =
            values_[static_cast<size_t>(r * columns_ + c)];
        turned.codes_[static_cast<size_t>(c * rows + r)] = At(r, c);
      }
    }
    return turned;
  }
  void Map(const std::function<uint32_t(uint32_t)>& to) {
    for (uint32_t& code : codes_) code = to(code);
  }

 private:
  int64_t columns_;
  std::vector<int64_t> values_;
  std::vector<uint32_t> codes_;
};

// One entry stands for all.
float ScaleAt(const std::vector<float>& scales, int64_t i) {
  return scales[scales.size() == 1 ? 0 : static_cast<size_t>(i)];
}
std::vector<float> Scales(const GoldenRecord& record, const std::string& field, int64_t count) {
  std::vector<float> scales = record.Floats(field);
  if (scales.size() != 1 && static_cast<int64_t>(scales.size()) != count)
    Wrong(record, field,
          "has " + std::to_string(scales.size()) + " entries, expected 1 or " +
              std::to_string(count));
  return scales;
}

// A float32 in the type of the output; NaN as these libraries write it.
uint32_t Rounded(DType dtype, float value) {
  if (dtype == DType::kF32) return conventions::BitsOfSum(value);
  if (std::isnan(value)) return dtype == DType::kBF16 || dtype == DType::kF16 ? 0x7FFF : 0x7F;
  return EncodeFloat(
      dtype, value, FloatRounding::kNearestEven,
      dtype == DType::kF8E4M3FN ? FloatOverflow::kSaturate : FloatOverflow::kInfinity);
}
std::optional<DType> OutputType(const std::string& name) {
  const auto type = FloatTypeNamed(name);
  const bool known = type == DType::kF32 || type == DType::kF16 || type == DType::kBF16 ||
                     type == DType::kF8E4M3FN;
  return known ? type : std::nullopt;
}
// Bits of an operand of this type.
int WidthOf(const std::string& name) {
  if (name == "tf32" || name == "f32") return 32;
  return name == "f16" || name == "bf16" ? 16 : 8;
}
// The float8 type of this name; nullopt for others.
std::optional<DType> Float8(const std::string& name) {
  if (name == "e4m3fn" || name == "e4m3") return DType::kF8E4M3FN;
  if (name == "e5m2") return DType::kF8E5M2;
  return std::nullopt;
}

// The recorded patterns, and those that `element` computes.
JudgedRecord Judged(const GoldenRecord& record, const std::string& field, std::string convention,
                    const Sizes& sizes, DType dtype, const Element& element) {
  const Matrix codes(record, field, sizes.m, sizes.n, BitsOf(dtype));
  Tensor recorded(dtype, {sizes.m, sizes.n});
  for (int64_t i = 0; i < recorded.size(); ++i)
    recorded.SetBits(i, codes.At(i / sizes.n, i % sizes.n));
  JudgedRecord judged = JudgedMatrix(std::move(convention), field, std::move(recorded), element);
  if (record.tell >= 0 && record.tell < sizes.m * sizes.n) {
    const conventions::TellingSums telling(&judged.steps);
    (void)element(record.tell / sizes.n, record.tell % sizes.n);
  }
  return judged;
}
JudgedRecord Unknown(std::string why) { return {.skipped = std::move(why)}; }

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == '.') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

// "mma.m16n8k16.f32.f16.f16.f32", "wgmma.m64n8k32.s32.s8.s8.satfinite": result, operands.
JudgedRecord Mma(const GoldenRecord& record) {
  const std::string instruction = record.Text("instruction");
  std::vector<std::string> words = Words(instruction);
  const bool saturates = std::erase(words, "satfinite") > 0;
  const std::string unknown = "the instruction " + instruction;
  if (words.size() < 5 || (words[0] != "mma" && words[0] != "wgmma")) return Unknown(unknown);
  const Sizes sizes = SizesOf(record);
  const Matrix a(record, "a_bits", sizes.m, sizes.k, WidthOf(words[3])),
      b(record, "b_bits", sizes.n, sizes.k, WidthOf(words[4])),
      c(record, "c_bits", sizes.m, sizes.n, words[2] == "f16" ? 16 : 32);
  const std::string convention = "hopper@" + words[0];
  const auto judged = [&](DType dtype, const Element& element) {
    return Judged(record, "d_bits", convention, sizes, dtype, element);
  };
  if (words[2] == "s32") {
    const auto code = [](const std::string& type, uint32_t bits) -> int64_t {
      return type == "s8" ? static_cast<int8_t>(bits) : static_cast<uint8_t>(bits);
    };
    return judged(DType::kS32, [&](int64_t m, int64_t n) {
      std::vector<int64_t> x, y;
      for (int64_t k = 0; k < sizes.k; ++k) {
        x.push_back(code(words[3], a.At(m, k)));
        y.push_back(code(words[4], b.At(n, k)));
      }
      return static_cast<uint32_t>(
          conventions::IntegerSum(x, y, static_cast<int32_t>(c.At(m, n)), saturates));
    });
  }
  const bool f16_result = words[2] == "f16";
  const auto x = FindTensorCoreType(words[3]), y = FindTensorCoreType(words[4]);
  if (!x || !y || (!f16_result && words[2] != "f32")) return Unknown(unknown);
  const DType dtype = f16_result ? DType::kF16 : DType::kF32;
  if (other != nullptr) {
    return judged(dtype, [&](int64_t m, int64_t n) {
      return SumByOther(*x, a.Codes(m), *y, b.Codes(n), dtype, c.At(m, n));
    });
  }
  const auto float8_a = Float8(words[3]), float8_b = Float8(words[4]);
  if (float8_a && float8_b && words[0] == "mma") {
    return judged(dtype, [&](int64_t m, int64_t n) {
      return conventions::Float8ByF16(f16_result, *float8_a, a.Codes(m), *float8_b, b.Codes(n),
                                      c.At(m, n));
    });
  }
  FusedSum sum = float8_a ? kFloat8Sum : words[3] == "tf32" ? kTf32Sum : kF16Sum;
  if (f16_result) sum.result = Result::kF16;
  return judged(dtype, [&](int64_t m, int64_t n) {
    return conventions::Chain(sum, *x, a.Codes(m), *y, b.Codes(n), c.At(m, n));
  });
}

// A product of float8 in PyTorch: fast accumulation is one chain, else float32 takes over every 128
// products.
JudgedRecord ScaledMm(const GoldenRecord& record) {
  const Sizes sizes = SizesOf(record);
  const auto x = FindTensorCoreType(record.Text("a_format")),
             y = FindTensorCoreType(record.Text("b_format"));
  const auto out = OutputType(record.Text("out"));
  if (!x || !y || !out) return Unknown("scaled_mm of these types");
  constexpr int64_t kLongestUncut = 2816;
  if (sizes.k > kLongestUncut) return Unknown("scaled_mm in slices of K");
  const Matrix a(record, "a", sizes.m, sizes.k, 8), b(record, "b", sizes.n, sizes.k, 8);
  const std::vector<float> sa = Scales(record, "sa", sizes.m), sb = Scales(record, "sb", sizes.n);
  const std::string scales = record.Text("scales");
  std::vector<float> bias;
  if (record.Has("bias")) {
    const auto type = OutputType(record.Text("bias_format"));
    if (!type) return Unknown("scaled_mm with such a bias");
    const Matrix codes(record, "bias", 1, sizes.n, BitsOf(*type));
    for (int64_t n = 0; n < sizes.n; ++n)
      bias.push_back(static_cast<float>(DecodeFloat(*type, codes.At(0, n))));
  }
  const int64_t every = Flag(record, "fast_accum") ? 0 : 128;
  return Judged(record, "y_bits", "cublas", sizes, *out, [&](int64_t m, int64_t n) {
    float value = Added(kFloat8Sum, every, *x, a.Codes(m), *y, b.Codes(n));
    if (scales == "row") {
      value = value * ScaleAt(sb, n);
      value = value * ScaleAt(sa, m);
    } else {
      const float both = ScaleAt(sa, 0) * ScaleAt(sb, 0);
      value = value * both;
    }
    if (!bias.empty()) value = value + bias[static_cast<size_t>(n)];
    return Rounded(*out, value);
  });
}

// The recipes of blocks: 1 by 128 elements of an operand share a scale, or 128 by 128.
JudgedRecord ScaledMmBlocks(const GoldenRecord& record) {
  const Sizes sizes = SizesOf(record);
  const auto x = FindTensorCoreType(record.Text("a_format")),
             y = FindTensorCoreType(record.Text("b_format"));
  const auto out = OutputType(record.Text("out"));
  constexpr int64_t kBlock = 128;
  if (!x || !y || !out || sizes.k % kBlock != 0) return Unknown("scaled_mm of such blocks");
  const std::vector<int64_t> a_block = record.Ints("a_block"), b_block = record.Ints("b_block");
  const auto rows_of = [&](const std::vector<int64_t>& block) -> int64_t {
    if (block.size() != 2 || block[1] != kBlock || (block[0] != 1 && block[0] != kBlock)) return 0;
    return block[0];
  };
  const int64_t a_rows = rows_of(a_block), b_rows = rows_of(b_block);
  if (a_rows == 0 || b_rows == 0 || (a_rows == kBlock && b_rows == kBlock))
    return Unknown("scaled_mm of such blocks");
  const int64_t blocks = sizes.k / kBlock;
  const Matrix a(record, "a", sizes.m, sizes.k, 8), b(record, "b", sizes.n, sizes.k, 8);
  const auto entries = [&](int64_t size, int64_t rows) {
    return (size + rows - 1) / rows * blocks;
  };
  const std::vector<float> sa = record.Floats("sa"), sb = record.Floats("sb");
  if (static_cast<int64_t>(sa.size()) != entries(sizes.m, a_rows))
    Wrong(record, "sa", "expected a scale for each block");
  if (static_cast<int64_t>(sb.size()) != entries(sizes.n, b_rows))
    Wrong(record, "sb", "expected a scale for each block");
  return Judged(record, "y_bits", "cublas", sizes, *out, [&](int64_t m, int64_t n) {
    float total = 0;
    for (int64_t block = 0; block < blocks; ++block) {
      const auto part_of = [&](const Matrix& matrix, int64_t row) {
        return matrix.Codes(row).subspan(static_cast<size_t>(block * kBlock),
                                         static_cast<size_t>(kBlock));
      };
      const float part = Added(kFloat8Sum, 0, *x, part_of(a, m), *y, part_of(b, n));
      const float a_scale = sa[static_cast<size_t>(m / a_rows * blocks + block)],
                  b_scale = sb[static_cast<size_t>(n / b_rows * blocks + block)];
      const float scaled = part * a_scale, both = a_scale * b_scale;
      total = a_rows == 1 && b_rows == 1 ? std::fma(scaled, b_scale, total)
                                         : std::fma(part, both, total);
    }
    return Rounded(*out, total);
  });
}

uint32_t NearestTf32(uint32_t bits) {
  const uint32_t rest = bits & 0x1FFF, even = bits >> 13 & 1;
  return (bits & ~0x1FFFu) + (rest > 0x1000 || (rest == 0x1000 && even == 1) ? 0x2000u : 0);
}

std::vector<float> RealsOf(DType dtype, std::span<const uint32_t> codes) {
  std::vector<float> reals;
  for (const uint32_t code : codes) reals.push_back(static_cast<float>(DecodeFloat(dtype, code)));
  return reals;
}

// PyTorch's matmul of several rows on the CPU. That of one row adds in another order.
JudgedRecord CpuMatmul(const GoldenRecord& record, DType dtype) {
  const Sizes sizes = SizesOf(record);
  if (sizes.m < 2) return Unknown("matmul of one row on the CPU");
  const Matrix a(record, "a", sizes.m, sizes.k, BitsOf(dtype)),
      b(record, "b", sizes.n, sizes.k, BitsOf(dtype));
  return Judged(record, "y_bits", "torch@cpu", sizes, dtype, [&](int64_t m, int64_t n) {
    const std::vector<float> x = RealsOf(dtype, a.Codes(m)), y = RealsOf(dtype, b.Codes(n));
    const float sum =
        SumOfProducts(dtype == DType::kBF16 ? conventions::kAmxBf16 : conventions::kFmaChain, x, y);
    return std::isnan(sum) ? NanCode(dtype) : EncodeFloat(dtype, sum);
  });
}

// cuBLAS cuts a longer K of a small product in slices, whose sizes nobody promises.
constexpr int64_t kLongestUncut = 1408;

JudgedRecord Matmul(const GoldenRecord& record) {
  const Sizes sizes = SizesOf(record);
  const std::string type = record.Text("dtype");
  const bool tf32 = type == "f32 (allow_tf32)";
  const auto out = OutputType(tf32 ? "f32" : type);
  if (!out || *out == DType::kF8E4M3FN) return Unknown("matmul of " + type);
  if (record.Has("isa")) return CpuMatmul(record, *out);
  Matrix a(record, "a", sizes.m, sizes.k, BitsOf(*out)),
      b(record, "b", sizes.n, sizes.k, BitsOf(*out));
  if (*out == DType::kF32 && !tf32) return Unknown("matmul of f32 in an order that is not known");
  if (sizes.k > kLongestUncut) return Unknown("matmul in slices of K");
  if (tf32) {
    a.Map(NearestTf32);
    b.Map(NearestTf32);
    if (sizes.m * sizes.n > 1024) return Unknown("matmul of tf32 in tiles that are not known");
  }
  const TensorCoreType operand = *FindTensorCoreType(tf32 ? "tf32" : type);
  return Judged(record, "y_bits", "cublas", sizes, *out, [&](int64_t m, int64_t n) {
    return Rounded(*out, Added(tf32 ? kTf32Sum : kF16Sum, tf32 ? 32 : 0, operand, a.Codes(m),
                               operand, b.Codes(n)));
  });
}

// What Triton 3.6 makes of a dot depends on its tile, so the instructions of the compiled kernel
// say which arithmetic it is.
JudgedRecord TritonDot(const GoldenRecord& record) {
  const Sizes sizes = SizesOf(record);
  const std::string a_format = record.Text("a_format"), b_format = record.Text("b_format");
  const Matrix a(record, "a", sizes.m, sizes.k, WidthOf(a_format)),
      b(record, "b", sizes.n, sizes.k, WidthOf(b_format));
  const std::vector<std::string> instructions = record.Texts("instructions");
  const auto has = [&](std::string_view word) {
    return std::ranges::any_of(instructions, [&](const std::string& instruction) {
      return instruction.find(word) != std::string::npos;
    });
  };
  const auto judged = [&](DType dtype, const Element& element) {
    return Judged(record, "y_bits", "triton", sizes, dtype, element);
  };
  if (a_format == "s8" && b_format == "s8") {
    return judged(DType::kS32, [&](int64_t m, int64_t n) {
      return static_cast<uint32_t>(
          conventions::IntegerSum(a.Integers(m), b.Integers(n), 0, has("satfinite")));
    });
  }
  const auto float8_a = Float8(a_format), float8_b = Float8(b_format);
  if (float8_a && float8_b && !has("wgmma")) {
    if (sizes.k % 32 != 0) return Unknown("a dot of such a K");
    return judged(DType::kF32, [&](int64_t m, int64_t n) {
      const TensorCoreType e = *FindTensorCoreType(a_format), f = *FindTensorCoreType(b_format);
      if (other != nullptr) return SumByOther(e, a.Codes(m), f, b.Codes(n), DType::kF32, 0);
      return conventions::Float8ByF16InSums(*float8_a, a.Codes(m), *float8_b, b.Codes(n), 0);
    });
  }
  const std::string precision = record.Has("input_precision") ? record.Text("input_precision") : "";
  if (precision == "ieee") {
    return judged(DType::kF32, [&](int64_t m, int64_t n) {
      return conventions::BitsOfSum(SumOfProducts(conventions::kFmaChain,
                                                  RealsOf(DType::kF32, a.Codes(m)),
                                                  RealsOf(DType::kF32, b.Codes(n))));
    });
  }
  const bool tf32 = a_format == "f32";
  if (tf32 && precision != "tf32") return Unknown("a dot of input precision " + precision);
  const auto x = FindTensorCoreType(tf32 ? "tf32" : a_format),
             y = FindTensorCoreType(tf32 ? "tf32" : b_format);
  if (!x || !y) return Unknown("a dot of such types");
  const int64_t every =
      float8_a && record.Has("max_num_imprecise_acc") ? record.Int("max_num_imprecise_acc") : 0;
  const FusedSum sum = float8_a ? kFloat8Sum : tf32 ? kTf32Sum : kF16Sum;
  return judged(DType::kF32, [&](int64_t m, int64_t n) {
    return conventions::BitsOfSum(Added(sum, every, *x, a.Codes(m), *y, b.Codes(n)));
  });
}

// cuBLAS clamps the total, where the plain instruction wraps.
JudgedRecord IntMm(const GoldenRecord& record) {
  const Sizes sizes = SizesOf(record);
  const Matrix a(record, "a", sizes.m, sizes.k, 8),
      b = Matrix(record, "b", sizes.k, sizes.n, 8).Transposed();
  return Judged(record, "y", "cublas", sizes, DType::kS32, [&](int64_t m, int64_t n) {
    return static_cast<uint32_t>(
        conventions::IntegerSum(a.Integers(m), b.Integers(n), 0, /*saturates=*/true));
  });
}

// PyTorch's tinygemm: weights become bf16((q - 8) * scale + zero), then one chain.
JudgedRecord Int4Pack(const GoldenRecord& record) {
  const Sizes sizes = SizesOf(record);
  const int64_t group = record.Int("group");
  if (group < 1 || sizes.k % group != 0) Wrong(record, "group", "must divide K");
  const int64_t groups = sizes.k / group;
  const Matrix a(record, "a_bf16", sizes.m, sizes.k, 16), q(record, "q", sizes.n, sizes.k, 8),
      scale_and_zero(record, "scale_zero_bf16", groups * sizes.n, 2, 16);
  const auto real = [](uint32_t code) {
    return static_cast<float>(DecodeFloat(DType::kBF16, code));
  };
  Matrix w = q;
  int64_t at = 0;
  w.Map([&](uint32_t code) {
    const int64_t n = at / sizes.k, k = at % sizes.k;
    ++at;
    const int64_t row = k / group * sizes.n + n;
    const float scaled = (static_cast<float>(code) - 8.0f) * real(scale_and_zero.At(row, 0));
    const float value = scaled + real(scale_and_zero.At(row, 1));
    return EncodeFloat(DType::kBF16, value);
  });
  const TensorCoreType bf16 = *FindTensorCoreType("bf16");
  return Judged(record, "y_bits", "torch@tinygemm", sizes, DType::kBF16, [&](int64_t m, int64_t n) {
    return Rounded(DType::kBF16, Added(kF16Sum, 0, bf16, a.Codes(m), bf16, w.Codes(n)));
  });
}

// What a product answers to numbers that cancel: +big*big at i, -big*big at j, small*small
// elsewhere. The leaves of the smallest subtree that holds i and j do not survive.
JudgedRecord Tree(const GoldenRecord& record) {
  const int64_t products = Dimension(record, "K");
  constexpr int64_t kMost = 1 << 16;
  if (products > kMost) Wrong(record, "K", "the sum is too long to be judged");
  const std::string what = record.Text("what"), type = record.Text("dtype");
  const auto is = [&](std::string_view begin) { return what.starts_with(begin); };
  const bool tf32 = type == "f32", scaled = is("scaled_mm fast=");
  if (!scaled && !is("matmul ") && !is("mm out f32 ")) return Unknown("the order of " + what);
  const int64_t rows = Dimension(record, "M"), columns = Dimension(record, "N");
  if (tf32 && !is("matmul f32 (allow_tf32 on)"))
    return Unknown("matmul of f32 in an order that is not known");
  if (tf32 && (rows == 1 || rows * columns > 1024))
    return Unknown("matmul of tf32 in tiles that are not known");
  if (products > kLongestUncut) return Unknown("matmul in slices of K");
  const auto operand = FindTensorCoreType(tf32 ? "tf32" : type);
  const auto stored = FloatTypeNamed(type), out = OutputType(scaled || is("mm ") ? "f32" : type);
  if (!operand || !stored || !out) return Unknown("a tree of " + type);
  const std::vector<int64_t> pairs = record.Ints("pairs");
  const std::vector<int32_t> leaves = Int32s(record, "leaves_of_common_subtree");
  RequireEntries(record, "pairs", pairs.size(), 2 * std::ssize(leaves));
  const auto big = static_cast<float>(record.Double("masks.big")),
             small = static_cast<float>(record.Double("masks.unit"));
  if (!(small > 0)) Wrong(record, "masks", "expected units greater than 0");
  const auto code = [&](float value) { return EncodeFloat(*stored, value); };
  const FusedSum sum = scaled ? kFloat8Sum : tf32 ? kTf32Sum : kF16Sum;
  const int64_t every = tf32 ? 32 : scaled && !is("scaled_mm fast=1") ? 128 : 0;
  const Tensor counts(DType::kS32, {std::ssize(leaves)});
  JudgedRecord::Output output{"leaves_of_common_subtree", counts, counts};
  for (int64_t at = 0; at < counts.size(); ++at) {
    std::vector<uint32_t> a(static_cast<size_t>(products), code(small)), b = a;
    const int64_t i = pairs[static_cast<size_t>(2 * at)],
                  j = pairs[static_cast<size_t>(2 * at + 1)];
    if (i < 0 || j <= i || j >= products) Wrong(record, "pairs", "expected 0 <= i < j < K");
    a[static_cast<size_t>(i)] = b[static_cast<size_t>(i)] = b[static_cast<size_t>(j)] = code(big);
    a[static_cast<size_t>(j)] = code(-big);
    const float value = static_cast<float>(DecodeFloat(
        *out, Rounded(*out, conventions::Promoted(sum, every, *operand, a, *operand, b))));
    const float survivors = value / (small * small);
    if (!(std::abs(survivors) <= static_cast<float>(1 << 20)))
      Wrong(record, "masks", "the units do not count");
    output.recorded.SetInt(at, leaves[static_cast<size_t>(at)]);
    output.computed.SetInt(
        at, static_cast<int32_t>(products) - static_cast<int32_t>(std::round(survivors)));
  }
  JudgedRecord judged{.convention = "cublas"};
  judged.outputs.push_back(std::move(output));
  return judged;
}

}  // namespace

std::optional<std::vector<std::string>> ArithmeticsOf(const GoldenRecord& record) {
  if (!IsProduct(record) || record.op == "tree") return std::nullopt;
  std::vector<std::string> names;
  other_was_asked = false;
  for (const Arithmetic& arithmetic : kArithmetics) {
    other = &arithmetic;
    JudgedRecord judged;
    try {
      judged = JudgeProduct(record);
    } catch (...) {
      other = nullptr;
      throw;
    }
    other = nullptr;
    if (!other_was_asked) return std::nullopt;  // of codes, or in an order that is not known
    const bool equal = std::ranges::all_of(judged.outputs, [](const JudgedRecord::Output& output) {
      return output.recorded == output.computed;
    });
    if (equal) names.emplace_back(arithmetic.name);
  }
  return names;
}

bool IsProduct(const GoldenRecord& record) {
  return record.op == "mma" || (record.op == "tree" && record.Has("M")) ||
         record.op.starts_with("scaled_mm") || record.op == "triton_dot" || record.op == "int_mm" ||
         record.op == "weight_int4pack_mm" || (record.op == "matmul" && record.Has("dtype"));
}

JudgedRecord JudgeProduct(const GoldenRecord& record) {
  if (record.op == "mma") return Mma(record);
  if (record.op == "scaled_mm") return ScaledMm(record);
  if (record.op == "scaled_mm_blocks") return ScaledMmBlocks(record);
  if (record.op == "matmul") return Matmul(record);
  if (record.op == "int_mm") return IntMm(record);
  if (record.op == "weight_int4pack_mm") return Int4Pack(record);
  if (record.op == "triton_dot") return TritonDot(record);
  if (record.op == "tree") return Tree(record);
  return Unknown("the product " + record.op);
}

}  // namespace qualm::golden
