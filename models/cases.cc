// SPDX-License-Identifier: Apache-2.0
#include "models/cases.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/float_text.h"
#include "core/io/arrays.h"
#include "core/limits.h"
#include "core/status.h"
#include "models/plain.h"
#include "oracles/exact/dynamic_linear.h"
#include "oracles/exact/exact.h"

namespace qualm::models {
namespace {

using graph::Value;
using Padding = Places::Padding;
using Shape = std::vector<int64_t>;

[[noreturn]] void Refuse(const std::string& why) { throw NotRun{why}; }
void Require(bool holds, const std::string& why) {
  if (!holds) Refuse(why);
}

std::string Text(const Shape& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() == 1 ? "" : ",") + std::to_string(size);
  return text + "]";
}

int64_t Axis(int64_t axis, size_t rank, const std::string& what) {
  const auto n = static_cast<int64_t>(rank);
  Require(axis >= -n && axis < n, what + " is axis " + std::to_string(axis) + " of " +
                                      std::to_string(rank) + " dimensions");
  return axis < 0 ? axis + n : axis;
}

// What ONNX Runtime takes of weights that have no blocks (session.qdq_matmulnbits_block_size).
constexpr int32_t kBlockOfCodes = 32;

Shape WithoutLast(const Shape& shape) { return {shape.begin(), shape.end() - 1}; }

class Builder {
 public:
  Builder(const graph::Graph& graph, const Layer& layer, const Lookup& of)
      : graph_(graph), layer_(layer), of_(of) {}

  Cases Build() {
    Require(layer_.refused.empty(), layer_.refused);
    switch (layer_.kind) {
      case Kind::kMatMul:
      case Kind::kGemm:
      case Kind::kFullyConnected: MatMul(); break;
      case Kind::kConv: Conv(); break;
      case Kind::kAdd: Pair(Op::kAdd); break;
      case Kind::kSub: Pair(Op::kSub); break;
      case Kind::kMul: Pair(Op::kMul); break;
      case Kind::kAveragePool: Pool(Op::kAvgPool); break;
      case Kind::kGlobalAveragePool: Pool(Op::kGlobalAvgPool); break;
      case Kind::kMean: Mean(); break;
      case Kind::kMaxPool: Pool(Op::kMaxPool); break;
      case Kind::kRelu: Table(Function::kRelu); break;
      case Kind::kLeakyRelu: Table(Function::kLeakyRelu); break;
      case Kind::kHardSwish: Table(Function::kHardSwish); break;
      case Kind::kSigmoid: Table(Function::kSigmoid); break;
      case Kind::kTanh: Table(Function::kTanh); break;
      case Kind::kSoftmax: Softmax(); break;
      case Kind::kConcat: Concat(); break;
      case Kind::kQuantize: Quantize(); break;
      case Kind::kDequantize: Dequantize(); break;
      case Kind::kRescale: Rescale(Codes(layer_.operands[0].codes)); break;
      case Kind::kMoved: Rescale(Moved()); break;
      case Kind::kDynamicQuantize: DynamicQuantize(); break;
      case Kind::kDynamicMatMul: DynamicMatMul(); break;
      case Kind::kMatMulNBits: MatMulNBits(); break;
      case Kind::kWeightOnly: WeightOnly(); break;
    }
    for (const std::vector<Part>* const parts : {&cases_.parts, &cases_.instead}) {
      for (const Part& part : *parts) {
        if (std::string error = Validate(part.c); !error.empty()) Refuse(error);
      }
    }
    return std::move(cases_);
  }

 private:
  // ---- Values ----

  const Value& Get(const std::string& name) const {
    const Value* const value = of_(name);
    if (value == nullptr) Refuse("its input " + name + " is not known");
    return *value;
  }
  bool IsCodeHere(DType dtype) const {
    return IsByteCode(dtype) || (IsWideCode(dtype) && TakesWideCodes(layer_.kind));
  }
  const Tensor& Codes(const std::string& name) const {
    const Value& value = Get(name);
    Require(value.holds_tensor() && IsCodeHere(value.tensor.dtype()),
            name + " is of " + graph::TypeName(value.type) + ", expected " +
                (TakesWideCodes(layer_.kind) ? "int8, uint8, int16 or uint16" : "int8 or uint8"));
    return value.tensor;
  }
  const Tensor& Reals(const std::string& name) const {
    const Value& value = Get(name);
    Require(value.type == graph::kFloat,
            name + " is of " + graph::TypeName(value.type) + ", expected float");
    return value.tensor;
  }
  // A scale, or one for each channel; the default 1.
  std::vector<float> Scales(const std::string& name) const {
    if (name.empty()) return {1.0f};
    const Tensor& scale = Reals(name);
    return {scale.as<float>().begin(), scale.as<float>().end()};
  }
  std::vector<int32_t> ZeroPoints(const std::string& name, size_t scales) const {
    std::vector<int32_t> zeros;
    if (name.empty()) return std::vector<int32_t>(std::max<size_t>(scales, 1), 0);
    const Value& value = Get(name);
    Require(value.holds_tensor() && !IsFloat(value.tensor.dtype()),
            name + " is of " + graph::TypeName(value.type) + ", expected a zero point");
    for (int64_t i = 0; i < value.tensor.size(); ++i) zeros.push_back(value.tensor.IntAt(i));
    return zeros;
  }
  // One scale and zero point.
  QParams OneOf(const Operand& operand) const {
    QParams q{Scales(operand.scale), {}};
    q.zero_point = ZeroPoints(operand.zero_point, q.scale.size());
    Require(q.scale.size() == 1 && q.zero_point.size() == 1,
            operand.codes + " has several scales or zero points, expected one");
    return q;
  }
  // One, or one for each of n channels; says which in *per_channel.
  QParams OfChannels(const Operand& operand, int64_t n, bool* per_channel) const {
    QParams q{Scales(operand.scale), {}};
    q.zero_point = ZeroPoints(operand.zero_point, q.scale.size());
    const auto count = static_cast<size_t>(n);
    const auto fits = [&](size_t size) { return size == 1 || size == count; };
    Require(fits(q.scale.size()) && fits(q.zero_point.size()),
            operand.codes + " has " + std::to_string(q.scale.size()) + " scales, expected 1 or " +
                std::to_string(n));
    // A list of one is one for each channel where there is one channel; it makes no difference.
    *per_channel = q.scale.size() != 1 || q.zero_point.size() != 1;
    if (*per_channel && q.scale.size() == 1) q.scale.resize(count, q.scale[0]);
    if (*per_channel && q.zero_point.size() == 1) q.zero_point.resize(count, q.zero_point[0]);
    return q;
  }

  // ---- Outputs ----

  DType OutType() const {
    if (layer_.result == Result::kSums) return DType::kS32;
    if (layer_.result == Result::kReals) return DType::kF32;
    if (layer_.kind == Kind::kMaxPool) return Codes(layer_.operands[0].codes).dtype();
    if (!layer_.out.zero_point.empty()) return TypeOfZeroPoint();
    const int64_t told = layer_.out_type.value_or(graph::kNoType);
    const std::optional<DType> held = graph::HeldBy(told);
    Require(held && IsCodeHere(*held), "its codes are of " + graph::TypeName(told));
    return *held;
  }

  // Of the outputs, which must be codes.
  DType TypeOfZeroPoint() const {
    const graph::Stored* const stored = graph_.FindConstant(layer_.out.zero_point);
    const int64_t type = stored == nullptr ? int64_t{graph::kNoType} : stored->type;
    Require(!graph::WidenedBy(type), "its codes are of " + graph::TypeName(type));
    return Codes(layer_.out.zero_point).dtype();
  }

  // Type, scale, zero point and clamp of the outputs.
  void SetOut(Case* c) const {
    c->out_dtype = cases_.dtype;
    OpenClamp(c);
    if (layer_.kind == Kind::kMaxPool) c->out_q = c->x_q;
    if (layer_.result != Result::kCodes) return;
    if (layer_.kind != Kind::kMaxPool) c->out_q = OneOf(layer_.out);
    if (!layer_.clip) return;
    // A zero point at the lowest code has cut all below 0 already.
    if (layer_.clip->relu) c->relu = c->out_q.zero_point[0] > c->out_min;
    const int32_t low = c->out_min, high = c->out_max;
    if (const auto bound = NumberOf(layer_.clip->low)) c->out_min = CodeOf(*bound, c->out_q, low);
    if (const auto bound = NumberOf(layer_.clip->high)) c->out_max = CodeOf(*bound, c->out_q, high);
    Require(c->out_min <= c->out_max, "its Clip has no value between its bounds");
  }
  std::optional<float> NumberOf(const Bound& of) const {
    if (of.number || of.value.empty()) return of.number;
    const Tensor& bound = Reals(of.value);
    Require(bound.size() == 1, of.value + " has several elements, expected one bound");
    return bound.FloatAt(0);
  }
  // The code of a real value: a clamp of reals before rounding is one of codes behind it.
  int32_t CodeOf(float real, const QParams& q, int32_t otherwise) const {
    if (std::isnan(real)) return otherwise;
    Case c =
        CaseOver(Op::kQuantize, Tensor::Of<float>({1, 1}, std::vector<float>{real}), cases_.dtype);
    c.out_q = q;
    if (const std::string error = Validate(c); !error.empty()) Refuse(error);
    return exact::Evaluate(c).IntAt(0);
  }

  void Begin(Shape shape) {
    CountOf(shape);
    cases_.shape = std::move(shape);
    cases_.dtype = OutType();
  }
  void Add(Case c, std::vector<int64_t> place = {}) {
    cases_.parts.push_back({std::move(c), std::move(place)});
  }

  // ---- Sums ----

  void Limit(int64_t outputs, int64_t terms) const {
    Require(outputs <= kMaxOutputs && (terms == 0 || outputs <= kMaxProducts / terms),
            "it has more products than a case may have");
  }

  // Integers of 64 bits as a case has them.
  Value InInt32(const Value& value) const {
    Tensor codes(DType::kS32, value.shape);
    for (int64_t i = 0; i < codes.size(); ++i) {
      const int64_t code = value.integers[static_cast<size_t>(i)];
      Require(code >= INT32_MIN && code <= INT32_MAX,
              layer_.bias.codes + " has " + std::to_string(code) + ", expected numbers of int32");
      codes.SetInt(i, static_cast<int32_t>(code));
    }
    return Value::Of(std::move(codes));
  }

  // int32, or int64 that int32 holds, in units of the product of the scales, or float.
  void SetBias(Case* c) const {
    if (!layer_.bias.is_there()) return;
    const Value& given = Get(layer_.bias.codes);
    const Value value =
        given.type == graph::kInt64 && IsWideCode(c->x.dtype()) ? InInt32(given) : given;
    const int64_t n = c->N;
    Require(value.holds_tensor() && (value.size() == n || value.size() == 1) &&
                (value.shape.empty() || value.shape.back() == value.size()),
            layer_.bias.codes + " has shape " + Text(value.shape) + ", expected " +
                std::to_string(n) + " biases");
    const auto at = [&](int64_t i) { return value.size() == 1 ? 0 : i; };
    if (value.type == graph::kFloat) {
      c->bias.emplace();
      for (int64_t i = 0; i < n; ++i) c->bias->push_back(value.tensor.FloatAt(at(i)));
      return;
    }
    Require(value.type == graph::kInt32,
            layer_.bias.codes + " is of " + graph::TypeName(value.type) + ", expected int32");
    const std::vector<float> scales = Scales(layer_.bias.scale);
    const std::vector<int32_t> zeros = ZeroPoints(layer_.bias.zero_point, scales.size());
    const auto one_of = [](const auto& list, int64_t i) {
      return list[list.size() == 1 ? 0 : static_cast<size_t>(i)];
    };
    Require((scales.size() == 1 || std::ssize(scales) == n) &&
                (zeros.size() == 1 || std::ssize(zeros) == n),
            layer_.bias.codes + " has another number of scales than of biases");
    // Whoever quantized rounds the product of the scales. Where the bias has another scale than
    // that, its real value is what the graph says.
    bool same = std::ranges::all_of(zeros, [](int32_t zero) { return zero == 0; });
    for (int64_t i = 0; i < n && !layer_.bias.scale.empty(); ++i) {
      const double product = static_cast<double>(c->x_q.scale[0]) *
                             static_cast<double>(c->w_q.scale_at(c->w_q.scale.size() == 1 ? 0 : i));
      same = same && std::abs(one_of(scales, i) - product) <= product * 0x1p-20;
    }
    if (same) {
      c->bias_i32.emplace();
      for (int64_t i = 0; i < n; ++i) c->bias_i32->push_back(value.tensor.IntAt(at(i)));
      return;
    }
    c->bias.emplace();
    for (int64_t i = 0; i < n; ++i) {
      const double code = value.tensor.IntAt(at(i)) - static_cast<double>(one_of(zeros, i));
      c->bias->push_back(static_cast<float>(code * static_cast<double>(one_of(scales, i))));
    }
  }

  void SetWeights(const Operand& w, Case* c) const {
    c->w_q = OfChannels(w, c->N, &c->per_channel);
    if (layer_.result == Result::kSums) c->w_q.scale.assign(c->w_q.zero_point.size(), 1.0f);
  }

  void MatMul() {
    const Tensor& a = Codes(layer_.operands[0].codes);
    const Tensor& b = Codes(layer_.operands[1].codes);
    const bool gemm = layer_.kind == Kind::kGemm;
    Shape of_a = a.shape(), of_b = b.shape();
    const bool full = layer_.kind == Kind::kFullyConnected;
    if (full) {
      Require(of_b.size() == 2 && of_b[1] > 0 && a.size() % of_b[1] == 0 &&
                  (!layer_.keeps_axes || (!of_a.empty() && of_a.back() == of_b[1])),
              "it multiplies " + Text(of_a) + " by " + Text(of_b));
      of_a = {a.size() / of_b[1], of_b[1]};
    }
    Require(!of_a.empty() && !of_b.empty() && (!gemm || (of_a.size() == 2 && of_b.size() == 2)),
            "it multiplies " + Text(of_a) + " by " + Text(of_b));
    const bool row = of_a.size() == 1, column = of_b.size() == 1;
    if (row) of_a.insert(of_a.begin(), 1);
    if (column) of_b.push_back(1);
    const bool a_turned = layer_.a_turned, b_turned = layer_.b_turned;
    const size_t ra = of_a.size(), rb = of_b.size();
    int64_t m = of_a[ra - (a_turned ? 1 : 2)];
    const int64_t k = of_a[ra - (a_turned ? 2 : 1)];
    const int64_t n = of_b[rb - (b_turned ? 2 : 1)];
    Require(of_b[rb - (b_turned ? 1 : 2)] == k,
            "it multiplies " + Text(a.shape()) + " by " + Text(b.shape()));
    const Shape batches_a(of_a.begin(), of_a.end() - 2), batches_b(of_b.begin(), of_b.end() - 2);
    const std::optional<Shape> batches = Broadcast(batches_a, batches_b);
    Require(batches.has_value(), "it multiplies " + Text(a.shape()) + " by " + Text(b.shape()));
    Shape shape = *batches;
    if (!row) shape.push_back(m);
    if (!column) shape.push_back(n);
    if (full && layer_.keeps_axes) {
      shape = WithoutLast(a.shape());
      shape.push_back(n);
    }
    Begin(shape);
    int64_t count = CountOf(*batches);
    std::vector<int64_t> at_a = BroadcastPlaces(batches_a, *batches);
    std::vector<int64_t> at_b = BroadcastPlaces(batches_b, *batches);
    CountOf({count, m, n});
    CountOf({count, m, k});
    CountOf({n, k});
    if (CountOf(batches_b) == 1 && (!a_turned || count == 1)) {
      // One matrix for all: rows of all batches are rows of one case.
      m *= count;
      count = 1;
      at_a = at_b = {0};
    }
    Limit(m * n, k);
    for (int64_t batch = 0; batch < count; ++batch) {
      const auto which = static_cast<size_t>(batch);
      Case c;
      c.op = Op::kLinear;
      c.M = m;
      c.N = n;
      c.K = k;
      std::vector<int64_t> place_a(static_cast<size_t>(m * k)), place_b(static_cast<size_t>(n * k));
      for (int64_t i = 0; i < m * k; ++i) {
        place_a[static_cast<size_t>(i)] = at_a[which] * m * k + (a_turned ? i % k * m + i / k : i);
      }
      for (int64_t i = 0; i < n * k; ++i) {
        place_b[static_cast<size_t>(i)] = at_b[which] * n * k + (b_turned ? i : i % k * n + i / k);
      }
      c.x = Gathered(a, place_a, {m, k});
      c.w = Gathered(b, place_b, {n, k});
      c.x_q = OneOf(layer_.operands[0]);
      SetWeights(layer_.operands[1], &c);
      SetOut(&c);
      SetBias(&c);
      std::vector<int64_t> place;
      if (count > 1) {
        place.resize(static_cast<size_t>(m * n));
        std::iota(place.begin(), place.end(), batch * m * n);
      }
      Add(std::move(c), std::move(place));
    }
  }

  // The rows of real x, of K terms each, and an output of N for each of them.
  void BeginRows(const Tensor& x, Case* c) {
    Shape shape = WithoutLast(x.shape());
    c->M = CountOf(shape);
    shape.push_back(c->N);
    Begin(shape);
    Limit(c->M * c->N, c->K);
    c->x = Tensor(DType::kF32, {c->M, c->K});
    std::ranges::copy(x.bytes(), c->x.bytes().begin());
  }

  void DynamicMatMul() {
    const Tensor& x = Reals(layer_.operands[0].codes);
    const Tensor& w = Codes(layer_.operands[1].codes);
    Require(w.shape().size() == 2 && !x.shape().empty() && x.shape().back() == w.shape()[0],
            "it multiplies " + Text(x.shape()) + " by " + Text(w.shape()));
    Case c;
    c.op = Op::kDynamicLinear;
    c.K = w.shape()[0];
    c.N = w.shape()[1];
    BeginRows(x, &c);
    c.w = Gathered(w, TransposedPlaces(w.shape(), {1, 0}), {c.N, c.K});
    SetWeights(layer_.operands[1], &c);
    c.rule = QParamsRule::kOnnx;
    SetOut(&c);
    SetBias(&c);
    Add(std::move(c));
  }

  // Codes of a few bits, the first one in the lowest bits of a byte; each row begins a byte.
  std::vector<int32_t> Unpacked(const std::string& name, int64_t rows, int64_t columns,
                                int bits) const {
    const Value& value = Get(name);
    const int64_t row_bytes = (columns * bits + 7) / 8;
    Require(value.holds_tensor() && value.tensor.dtype() == DType::kU8 &&
                value.size() == rows * row_bytes,
            name + " is " + graph::TypeName(value.type) + " " + Text(value.shape) +
                ", expected uint8 with " + std::to_string(rows * row_bytes) + " bytes");
    std::vector<int32_t> codes;
    for (int64_t i = 0; i < rows * columns; ++i) {
      const int64_t at = i % columns * bits;
      const int32_t byte = value.tensor.IntAt(i / columns * row_bytes + at / 8);
      codes.push_back(byte >> at % 8 & ((1 << bits) - 1));
    }
    return codes;
  }

  // f32 x, and weights in blocks.
  void MatMulNBits() {
    const Tensor& x = Reals(layer_.operands[0].codes);
    const Operand& w = layer_.operands[1];
    const auto& [bits, size, k, n, level] = layer_.few_bits;
    Case c;
    c.op = Op::kLinear;
    c.K = k;
    c.N = n;
    Require(bits == 2 || bits == 4 || bits == 8,
            "its weights have " + std::to_string(bits) + " bits, expected 2, 4 or 8");
    Require(size > 0 && c.K > 0 && c.N > 0 && !x.shape().empty() && x.shape().back() == c.K,
            "it multiplies " + Text(x.shape()) + " by " + Text({c.K, c.N}) + " in blocks of " +
                std::to_string(size));
    BeginRows(x, &c);
    CountOf({c.N, c.K});
    CountOf({size});
    c.per_channel = true;
    c.w_block = static_cast<int32_t>(size);
    const int64_t blocks = RowBlocks(c);
    CountOf({c.N, blocks, size});
    const int few = static_cast<int>(bits);
    const std::vector<int32_t> codes = Unpacked(w.codes, c.N, blocks * size, few);
    c.w = Tensor(few == 2 ? DType::kU2 : few == 4 ? DType::kU4 : DType::kU8, {c.N, c.K});
    for (int64_t i = 0; i < c.N * c.K; ++i)
      c.w.SetInt(i, codes[static_cast<size_t>(i / c.K * blocks * size + i % c.K)]);
    c.w_q.scale = Scales(w.scale);
    Require(std::ssize(c.w_q.scale) == c.N * blocks,
            w.scale + " has " + std::to_string(c.w_q.scale.size()) + " scales, expected " +
                std::to_string(c.N * blocks));
    c.w_q.zero_point.assign(c.w_q.scale.size(), 1 << (few - 1));
    if (!w.zero_point.empty()) c.w_q.zero_point = Unpacked(w.zero_point, c.N, blocks, few);
    SetOut(&c);
    SetBias(&c);
    TurnBlocks(&c);
    if (level != kRoundsToCodes) return Add(std::move(c));
    if (std::optional<Case> rounded = WithCodesOfX(c)) {
      cases_.instead.push_back({std::move(c), {}});
      c = std::move(*rounded);
    }
    Add(std::move(c));
  }

  // A block of scale 0 is 0. One of a scale below 0 is turned round: the code w becomes the code
  // that is as far from the other end, and so does the zero point.
  void TurnBlocks(Case* c) {
    const int32_t ends = RangeOf(c->w.dtype()).min + RangeOf(c->w.dtype()).max;
    for (int64_t i = 0; i < c->N * c->K; ++i) {
      const size_t entry = WEntry(*c, i / c->K, i % c->K);
      const float scale = c->w_q.scale[entry];
      if (scale < 0) c->w.SetInt(i, ends - c->w.IntAt(i));
      if (scale == 0) c->w.SetInt(i, c->w_q.zero_point[entry]);
    }
    for (size_t entry = 0; entry < c->w_q.scale.size(); ++entry) {
      float& scale = c->w_q.scale[entry];
      if (scale < 0) {
        c->w_q.zero_point[entry] = ends - c->w_q.zero_point[entry];
        cases_.turned = true;
      }
      scale = scale == 0 ? 1.0f : std::abs(scale);
    }
  }

  // The case with x rounded to codes of 8 bits, in blocks, as MLAS does at accuracy_level 4: scale
  // max|x|/127, codes by its reciprocal in float32, ties to even. nullopt: no scale of float32.
  static std::optional<Case> WithCodesOfX(const Case& real) {
    if (real.M == 0) return std::nullopt;
    Case c = real;
    if (c.w_block == 0) InBlocks(kBlockOfCodes, &c);
    c.x_block = c.w_block;
    c.x = Tensor(DType::kS8, real.x.shape());
    c.x_q = {{}, {}};
    const auto x_at = [&](int64_t i) { return real.x.FloatAt(i); };
    for (int64_t at = 0; at < real.x.size(); at += c.K) {
      for (int64_t from = 0; from < c.K; from += c.x_block) {
        const int64_t end = std::min(c.K, from + c.x_block);
        float most = 0;
        for (int64_t k = from; k < end; ++k) most = std::max(most, std::abs(x_at(at + k)));
        const float scale = most / 127.0f, reciprocal = most == 0 ? 0.0f : 127.0f / most;
        if ((scale == 0) != (most == 0) || !std::isfinite(reciprocal)) return std::nullopt;
        c.x_q.scale.push_back(most == 0 ? 1.0f : scale);
        c.x_q.zero_point.push_back(0);
        for (int64_t k = from; k < end; ++k)
          c.x.SetInt(at + k, static_cast<int32_t>(std::nearbyint(x_at(at + k) * reciprocal)));
      }
    }
    return c;
  }

  // The same weights in blocks of that size.
  static void InBlocks(int32_t size, Case* c) {
    const QParams whole = std::exchange(c->w_q, {{}, {}});
    c->w_block = size;
    c->per_channel = true;
    const int64_t blocks = RowBlocks(*c);
    for (int64_t i = 0; i < c->N * blocks; ++i) {
      const auto channel = whole.scale.size() == 1 ? 0 : static_cast<size_t>(i / blocks);
      c->w_q.scale.push_back(whole.scale[channel]);
      c->w_q.zero_point.push_back(whole.zero_point[channel]);
    }
  }

  // f32 x by weights with a scale of their own, or one for each channel or block.
  void WeightOnly() {
    const Tensor& x = Reals(layer_.operands[0].codes);
    const Operand& with = layer_.operands[1];
    const Tensor& w = Codes(with.codes);
    Require(w.shape().size() == 2 && !x.shape().empty() && !layer_.a_turned,
            "it multiplies " + Text(x.shape()) + " by " + Text(w.shape()));
    const size_t of_n = layer_.b_turned ? 0 : 1, of_k = 1 - of_n;
    Case c;
    c.op = Op::kLinear;
    c.N = w.shape()[of_n];
    c.K = w.shape()[of_k];
    Require(c.K > 0 && c.N > 0 && x.shape().back() == c.K,
            "it multiplies " + Text(x.shape()) + " by " + Text(w.shape()));
    BeginRows(x, &c);
    const auto of_channel = [&](const Tensor& matrix) {
      return of_n == 0 ? matrix
                       : Gathered(matrix, TransposedPlaces(matrix.shape(), {1, 0}),
                                  {matrix.shape()[1], matrix.shape()[0]});
    };
    c.w = of_channel(w);
    const int64_t axis = Axis(with.axis, 2, "its scales");
    if (with.block == 0) {
      c.w_q = OfChannels(with, c.N, &c.per_channel);
      Require(!c.per_channel || axis == static_cast<int64_t>(of_n),
              with.codes + " has a scale for each term of the sums, expected one for each channel");
    } else {
      Require(
          axis == static_cast<int64_t>(of_k) && with.block > 0 && with.block <= int64_t{1} << 28,
          with.codes + " has blocks across the sums");
      c.per_channel = true;
      c.w_block = static_cast<int32_t>(with.block);
      const Tensor scale = Reals(with.scale);
      Shape blocks = w.shape();
      blocks[of_k] = RowBlocks(c);
      Require(scale.shape() == blocks,
              with.scale + " has shape " + Text(scale.shape()) + ", expected " + Text(blocks));
      const Tensor turned = of_channel(scale);
      c.w_q.scale.assign(turned.as<float>().begin(), turned.as<float>().end());
      c.w_q.zero_point.assign(c.w_q.scale.size(), 0);
      if (!with.zero_point.empty()) {
        const Tensor zeros = of_channel(Codes(with.zero_point));
        Require(zeros.size() == scale.size(),
                with.zero_point + " has another shape than its scale");
        for (int64_t i = 0; i < zeros.size(); ++i)
          c.w_q.zero_point[static_cast<size_t>(i)] = zeros.IntAt(i);
      }
    }
    SetOut(&c);
    SetBias(&c);
    TurnBlocks(&c);
    if (std::optional<Case> rounded = WithCodesOfX(c)) {
      cases_.instead.push_back({std::move(*rounded), {}});
      cases_.instead_is = "x rounded to codes of 8 bits first, in blocks of " +
                          std::to_string(cases_.instead[0].c.x_block);
    }
    Add(std::move(c));
  }

  // ---- Windows ----

  bool ChannelsLast() const { return layer_.channels_last; }

  static std::vector<int64_t> Numbers(const std::vector<int64_t>& given, const std::string& what,
                                      size_t count, int64_t otherwise) {
    if (given.empty()) return std::vector<int64_t>(count, otherwise);
    Require(given.size() == count, what + " has " + std::to_string(given.size()) +
                                       " numbers, expected " + std::to_string(count));
    for (const int64_t number : given) {
      Require(number >= 0 && number <= int64_t{1} << 20, what + " has " + std::to_string(number));
    }
    return given;
  }

  // Images of one or two dimensions as [batch, H, W, C], with a row of one pixel for one dimension.
  struct Images {
    Tensor x;
    bool flat = false;  // one dimension
  };
  Images ImagesOf(const Tensor& x) const {
    Shape shape = x.shape();
    Require(shape.size() == 4 || shape.size() == 3,
            "its images have shape " + Text(shape) + ", expected 3 or 4 dimensions");
    Images images;
    images.flat = shape.size() == 3;
    if (images.flat) shape.insert(shape.begin() + (ChannelsLast() ? 1 : 2), 1);
    if (ChannelsLast()) {
      images.x = Tensor(x.dtype(), shape);
      std::ranges::copy(x.bytes(), images.x.bytes().begin());
    } else {
      images.x = Gathered(x, TransposedPlaces(shape, {0, 2, 3, 1}),
                          {shape[0], shape[2], shape[3], shape[1]});
    }
    return images;
  }

  // Strides, paddings and dilations; the kernel is known.
  void SetWindow(const Images& images, Case* c) const {
    Window& v = c->window;
    const Shape& shape = images.x.shape();
    v.batch = shape[0];
    v.in_h = shape[1];
    v.in_w = shape[2];
    v.in_c = shape[3];
    const size_t axes = images.flat ? 1 : 2;
    std::vector<int64_t> strides = Numbers(layer_.window.strides, "strides", axes, 1);
    std::vector<int64_t> dilations = Numbers(layer_.window.dilations, "dilations", axes, 1);
    std::vector<int64_t> pads = Numbers(layer_.window.pads, "pads", 2 * axes, 0);
    if (images.flat) {
      strides.insert(strides.begin(), 1);
      dilations.insert(dilations.begin(), 1);
      pads = {0, pads[0], 0, pads[1]};
    }
    Require(std::ranges::min(strides) > 0 && std::ranges::min(dilations) > 0,
            "a stride or dilation is 0");
    v.stride_h = strides[0];
    v.stride_w = strides[1];
    v.dilation_h = dilations[0];
    v.dilation_w = dilations[1];
    const Padding padding = layer_.window.padding;
    if (padding == Padding::kNone) pads.assign(4, 0);
    if (padding == Padding::kSameUpper || padding == Padding::kSameLower) {
      const auto spread = [&](int64_t in, int64_t kernel, int64_t stride, int64_t dilation,
                              int64_t* before, int64_t* after) {
        const int64_t out = (in + stride - 1) / stride;
        const int64_t all =
            std::max<int64_t>(0, (out - 1) * stride + dilation * (kernel - 1) + 1 - in);
        *before = padding == Padding::kSameUpper ? all / 2 : all - all / 2;
        *after = all - *before;
      };
      spread(v.in_h, v.kernel_h, v.stride_h, v.dilation_h, &pads[0], &pads[2]);
      spread(v.in_w, v.kernel_w, v.stride_w, v.dilation_w, &pads[1], &pads[3]);
    }
    v.pad_top = pads[0];
    v.pad_left = pads[1];
    v.pad_bottom = pads[2];
    v.pad_right = pads[3];
  }

  // The case, whose outputs are pixels of channels, as images of the graph.
  void AddImages(Case c, bool flat) {
    Require(WindowWithinLimits(c), "it has more products than a case may have");
    DeriveSizes(&c);
    const Window& v = c.window;
    const int64_t channels = c.N;
    Shape shape = ChannelsLast() ? Shape{v.batch, v.out_h(), v.out_w(), channels}
                                 : Shape{v.batch, channels, v.out_h(), v.out_w()};
    if (flat) shape.erase(shape.begin() + (ChannelsLast() ? 1 : 2));
    Begin(shape);
    SetOut(&c);
    std::vector<int64_t> place;
    if (!ChannelsLast()) {
      const int64_t pixels = v.out_h() * v.out_w();
      place.resize(static_cast<size_t>(v.batch * pixels * channels));
      for (size_t i = 0; i < place.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        const int64_t channel = at % channels, pixel = at / channels % pixels;
        place[i] = (at / channels / pixels * channels + channel) * pixels + pixel;
      }
    }
    Add(std::move(c), std::move(place));
  }

  void Conv() {
    const Images images = ImagesOf(Codes(layer_.operands[0].codes));
    const Tensor& weights = Codes(layer_.operands[1].codes);
    Shape of_w = weights.shape();
    Require(of_w.size() == (images.flat ? 3u : 4u),
            "its weights have shape " + Text(of_w) + " for such images");
    if (images.flat) of_w.insert(of_w.begin() + 2, 1);
    // The axes of the case, [out, rows, columns, in], among those of the weights.
    static constexpr std::array<std::array<int64_t, 4>, 3> kAxes{
        {{0, 2, 3, 1}, {0, 1, 2, 3}, {3, 1, 2, 0}}};
    const auto& axes = kAxes[static_cast<size_t>(layer_.filter)];
    Shape turned;
    for (const int64_t axis : axes) turned.push_back(of_w[static_cast<size_t>(axis)]);
    const int64_t of_group = turned[3], channels = images.x.shape()[3];
    Case c;
    c.N = turned[0];
    c.window.kernel_h = turned[1];
    c.window.kernel_w = turned[2];
    c.window.groups = layer_.window.groups.value_or(of_group == 0 ? 0 : channels / of_group);
    Require(c.window.groups > 0 && c.window.groups <= int64_t{1} << 20 &&
                of_group * c.window.groups == channels && c.N % c.window.groups == 0,
            "weights " + Text(weights.shape()) + " of " + std::to_string(c.window.groups) +
                " groups do not fit the image");
    Require(c.window.kernel_h > 0 && c.window.kernel_w > 0, "its kernel is empty");
    SetWindow(images, &c);
    const bool apart = c.window.groups > 1 || layer_.filter == Filter::kInTapsOut;
    c.op = of_group == 1 && apart ? Op::kDepthwise : Op::kConv2d;
    c.x = images.x;
    c.w = Gathered(weights, TransposedPlaces(of_w, {axes.begin(), axes.end()}), turned);
    c.x_q = OneOf(layer_.operands[0]);
    SetWeights(layer_.operands[1], &c);
    SetBias(&c);
    AddImages(std::move(c), images.flat);
  }

  void Pool(Op op) {
    const Tensor& x = Codes(layer_.operands[0].codes);
    if (op == Op::kGlobalAvgPool && !IsOverImage(std::ssize(x.shape()))) return Mean();
    const Images images = ImagesOf(x);
    Case c;
    c.op = op;
    c.N = images.x.shape()[3];
    c.x = images.x;
    Window& v = c.window;
    v.groups = 1;
    if (op == Op::kGlobalAvgPool) {
      v.batch = images.x.shape()[0];
      v.in_h = v.kernel_h = images.x.shape()[1];
      v.in_w = v.kernel_w = images.x.shape()[2];
      v.in_c = c.N;
    } else {
      std::vector<int64_t> kernel =
          Numbers(layer_.window.kernel, "kernel_shape", images.flat ? 1 : 2, 1);
      if (images.flat) kernel.insert(kernel.begin(), 1);
      v.kernel_h = kernel[0];
      v.kernel_w = kernel[1];
      SetWindow(images, &c);
      v.ceil_mode = layer_.window.ceil_mode;
      Require(!v.ceil_mode || (SameInCeilMode(v.in_h, v.pad_top, v.pad_bottom, v.kernel_h,
                                              v.stride_h, v.dilation_h, v.out_h()) &&
                               SameInCeilMode(v.in_w, v.pad_left, v.pad_right, v.kernel_w,
                                              v.stride_w, v.dilation_w, v.out_w())),
              "in ceil mode a window starts in the padding behind the image");
      v.count_include_pad = op == Op::kAvgPool && layer_.window.count_include_pad;
    }
    Require(v.kernel_h > 0 && v.kernel_w > 0, "its kernel is empty");
    if (op == Op::kMaxPool) {
      // Codes come out as they go in: their scale does not matter.
      if (!layer_.operands[0].scale.empty()) c.x_q = OneOf(layer_.operands[0]);
    } else {
      c.x_q = OneOf(layer_.operands[0]);
    }
    AddImages(std::move(c), images.flat);
    if (!layer_.keeps_axes) cases_.shape = {cases_.shape.front(), cases_.shape.back()};
    if (op == Op::kMaxPool && !layer_.out.scale.empty()) RescaleLargest();
  }

  // Axes that are left before those of the mean number the images, those behind it the channels.
  void Mean() {
    const Tensor& x = Codes(layer_.operands[0].codes);
    const std::vector<int64_t> axes = AxesOfMean();
    std::vector<bool> over(x.shape().size(), axes.empty());
    for (const int64_t axis : axes)
      over[static_cast<size_t>(Axis(axis, x.shape().size(), "its mean"))] = true;
    Require(std::ranges::find(over, true) != over.end(), "it has no axes");
    Shape shape, before, along, behind;
    std::vector<int64_t> order;
    for (const int part : {0, 1, 2}) {
      for (size_t i = 0; i < over.size(); ++i) {
        const bool first = std::ranges::find(over, true) > over.begin() + static_cast<long>(i);
        if ((over[i] ? 1 : first ? 0 : 2) != part) continue;
        order.push_back(static_cast<int64_t>(i));
        (part == 0 ? before : part == 1 ? along : behind).push_back(x.shape()[i]);
      }
    }
    for (size_t i = 0; i < over.size(); ++i) {
      if (!over[i] || layer_.keeps_axes) shape.push_back(over[i] ? 1 : x.shape()[i]);
    }
    Case c;
    c.op = Op::kGlobalAvgPool;
    c.N = CountOf(behind);
    Window& v = c.window;
    v.groups = v.in_w = v.kernel_w = 1;
    v.batch = CountOf(before);
    v.in_h = v.kernel_h = CountOf(along);
    v.in_c = c.N;
    Require(v.in_h > 0, "it is a mean of nothing");
    c.x = Gathered(x, TransposedPlaces(x.shape(), order), {v.batch, v.in_h, 1, v.in_c});
    c.x_q = OneOf(layer_.operands[0]);
    Require(WindowWithinLimits(c), "it has more products than a case may have");
    DeriveSizes(&c);
    Begin(shape);
    SetOut(&c);
    Add(std::move(c));
  }

  // The axes that the layer names; no image has others than rows and columns between its first and
  // its last.
  std::vector<int64_t> AxesOfMean() const {
    if (layer_.axes.empty()) return layer_.mean_axes;
    const Value& given = Get(layer_.axes);
    Require(given.type == graph::kInt64 || given.type == graph::kInt32,
            layer_.axes + " is of " + graph::TypeName(given.type) + ", expected integers");
    if (given.type == graph::kInt64) return given.integers;
    return {given.tensor.as<int32_t>().begin(), given.tensor.as<int32_t>().end()};
  }
  bool IsOverImage(int64_t rank) const {
    if (layer_.axes.empty()) return true;
    std::set<int64_t> axes, expected;
    for (const int64_t axis : AxesOfMean()) axes.insert(axis < 0 ? axis + rank : axis);
    for (int64_t axis = 1; axis + 1 < rank; ++axis) expected.insert(axis);
    return axes == expected;
  }

  // MaxPool whose output has another scale or type than its input: the codes that win, rescaled.
  void RescaleLargest() {
    Part& part = cases_.parts.back();
    const QParams in = part.c.x_q, out = OneOf(layer_.out);
    const DType dtype = layer_.out.zero_point.empty() ? cases_.dtype : TypeOfZeroPoint();
    if (in == out && dtype == cases_.dtype) return;
    Require(Validate(part.c).empty(), Validate(part.c));
    const Tensor largest = exact::Evaluate(part.c);
    Case c = CaseOver(Op::kRescale, Matrix(largest), dtype);
    c.x_q = in;
    c.out_q = out;
    part.c = std::move(c);
    cases_.dtype = dtype;
  }

  // As many windows along an axis as ONNX has, which counts those that start in the padding behind.
  static bool SameInCeilMode(int64_t in, int64_t before, int64_t after, int64_t kernel,
                             int64_t stride, int64_t dilation, int64_t ours) {
    const int64_t rest = in + before + after - dilation * (kernel - 1) - 1;
    return rest < 0 || (rest + stride - 1) / stride + 1 == ours;
  }

  // ---- Element by element ----

  // [M,N]: the last axis is N.
  static Tensor Matrix(const Tensor& x) {
    const Shape& shape = x.shape();
    const int64_t n = shape.empty() ? 1 : shape.back();
    const int64_t m = shape.empty() ? 1 : CountOf(WithoutLast(shape));
    Tensor matrix(x.dtype(), {m, n});
    std::ranges::copy(x.bytes(), matrix.bytes().begin());
    return matrix;
  }

  void Pair(Op op) {
    const Tensor& a = Codes(layer_.operands[0].codes);
    const Tensor& b = Codes(layer_.operands[1].codes);
    const std::optional<Shape> shape = Broadcast(a.shape(), b.shape());
    Require(shape.has_value(), "it combines " + Text(a.shape()) + " with " + Text(b.shape()));
    Begin(*shape);
    Case c =
        CaseOver(op, Matrix(Gathered(a, BroadcastPlaces(a.shape(), *shape), *shape)), cases_.dtype);
    c.w = Matrix(Gathered(b, BroadcastPlaces(b.shape(), *shape), *shape));
    c.x_q = OneOf(layer_.operands[0]);
    c.w_q = OneOf(layer_.operands[1]);
    SetOut(&c);
    Add(std::move(c));
  }

  Case OverCodes(Op op, const Tensor& x) {
    Begin(x.shape());
    Case c = CaseOver(op, Matrix(x), cases_.dtype);
    c.x_q = OneOf(layer_.operands[0]);
    SetOut(&c);
    return c;
  }

  void Table(Function function) {
    Require(!layer_.clip, "Relu or Clip follows it");
    Case c = OverCodes(Op::kTable, Codes(layer_.operands[0].codes));
    c.function = function;
    if (function == Function::kLeakyRelu) c.negative_slope = layer_.slope;
    Add(std::move(c));
  }

  void Rescale(const Tensor& x) { Add(OverCodes(Op::kRescale, x)); }

  // The codes where the nodes put the reals.
  Tensor Moved() const {
    Value value = Get(layer_.operands[0].codes);
    Codes(layer_.operands[0].codes);
    for (const graph::Node* const move : layer_.moves) {
      value = RunPlain(graph_, *move, [&](const std::string& name) {
                return name == move->Input(0) ? &value : of_(name);
              }).at(0);
    }
    return value.tensor;
  }

  void Softmax() {
    Require(!layer_.clip, "Relu or Clip follows it");
    const Tensor& x = Codes(layer_.operands[0].codes);
    Require(!x.shape().empty() && Axis(layer_.axis.value_or(-1), x.shape().size(), "the sum") + 1 ==
                                      std::ssize(x.shape()),
            "its sums are not along the last axis");
    Begin(x.shape());
    const QParams out = OneOf(layer_.out), ours = FixedOutQParams(x.dtype());
    Require(cases_.dtype == x.dtype() && out == ours,
            "softmax has the output scale " + FloatText(ours.scale[0]) +
                " and the lowest code as zero point in qualm");
    Case c = CaseOver(Op::kSoftmax, Matrix(x), x.dtype());
    c.out_q = ours;
    c.x_q = OneOf(layer_.operands[0]);
    Add(std::move(c));
  }

  void Concat() {
    Require(!layer_.operands.empty(), "it has no inputs");
    std::vector<const Tensor*> inputs;
    for (const Operand& operand : layer_.operands) inputs.push_back(&Codes(operand.codes));
    Shape shape = inputs[0]->shape();
    Require(!shape.empty() && layer_.axis, "it has no axis");
    const auto axis = static_cast<size_t>(Axis(*layer_.axis, shape.size(), "its axis"));
    shape[axis] = 0;
    for (const Tensor* const input : inputs) {
      Shape other = input->shape();
      Require(other.size() == shape.size() && input->dtype() == inputs[0]->dtype(),
              "its inputs differ in type or dimensions");
      const int64_t size = other[axis];
      other[axis] = shape[axis];
      Require(other == shape, "its inputs differ in more than the axis");
      shape[axis] += size;
    }
    Begin(shape);
    const auto middle = shape.begin() + static_cast<std::ptrdiff_t>(axis);
    const int64_t rows = CountOf({shape.begin(), middle});
    const int64_t inner = CountOf({middle + 1, shape.end()});
    const int64_t width = shape[axis] * inner;
    std::vector<int64_t> begins;
    int64_t begin = 0;
    for (const Tensor* const input : inputs) {
      begins.push_back(begin);
      begin += input->shape()[axis] * inner;
    }
    // Two at a time; of an odd number the last two once more.
    for (size_t i = 0; i < inputs.size(); i += 2) {
      const size_t a = i + 1 < inputs.size() || i == 0 ? i : i - 1, b = a + 1;
      AddConcat(*inputs[a], layer_.operands[a], begins[a], b < inputs.size() ? inputs[b] : nullptr,
                rows, width);
      if (b >= inputs.size()) continue;
      cases_.parts.back().c.w_q = OneOf(layer_.operands[b]);
    }
  }
  void AddConcat(const Tensor& a, const Operand& of_a, int64_t begin, const Tensor* b, int64_t rows,
                 int64_t width) {
    const auto matrix = [&](const Tensor& x) {
      Tensor result(x.dtype(), {rows, rows == 0 ? 0 : x.size() / rows});
      std::ranges::copy(x.bytes(), result.bytes().begin());
      return result;
    };
    Case c = CaseOver(b == nullptr ? Op::kRescale : Op::kConcat, matrix(a), cases_.dtype);
    c.x_q = OneOf(of_a);
    if (b != nullptr) {
      c.w = matrix(*b);
      c.N += c.w.shape()[1];
    }
    SetOut(&c);
    std::vector<int64_t> place(static_cast<size_t>(rows * c.N));
    for (size_t i = 0; i < place.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      place[i] = at / c.N * width + begin + at % c.N;
    }
    Add(std::move(c), std::move(place));
  }

  // ---- Reals and codes ----

  // A quantize or dequantize: of one scale, or of one for each channel along an axis, which becomes
  // the last one.
  void Scaled(Op op, const Tensor& x, const Operand& with) {
    Begin(x.shape());
    QParams q{Scales(with.scale), {}};
    q.zero_point = ZeroPoints(with.zero_point, q.scale.size());
    const bool channels = q.scale.size() != 1 || q.zero_point.size() != 1;
    std::vector<int64_t> place;
    Tensor matrix;
    if (channels) {
      const auto axis = static_cast<size_t>(Axis(with.axis, x.shape().size(), "its axis"));
      std::vector<int64_t> axes;
      Shape turned;
      for (size_t i = 0; i < x.shape().size(); ++i) {
        if (i != axis) axes.push_back(static_cast<int64_t>(i));
      }
      axes.push_back(static_cast<int64_t>(axis));
      for (const int64_t one : axes) turned.push_back(x.shape()[static_cast<size_t>(one)]);
      place = TransposedPlaces(x.shape(), axes);
      matrix = Matrix(Gathered(x, place, turned));
      bool unused = false;
      q = OfChannels(with, turned.back(), &unused);
    } else {
      matrix = Matrix(x);
    }
    Case c = CaseOver(op, std::move(matrix), cases_.dtype);
    c.per_channel = channels;
    (op == Op::kQuantize ? c.out_q : c.x_q) = q;
    Add(std::move(c), std::move(place));
  }

  void Quantize() { Scaled(Op::kQuantize, Reals(layer_.operands[0].codes), layer_.out); }
  void Dequantize() {
    Scaled(Op::kDequantize, Codes(layer_.operands[0].codes), layer_.operands[0]);
  }

  // The choice of scale and zero point is that of dynamic_linear's rule onnx.
  void DynamicQuantize() {
    const Tensor& x = Reals(layer_.operands[0].codes);
    Begin(x.shape());
    Case rule;
    rule.op = Op::kDynamicLinear;
    rule.rule = QParamsRule::kOnnx;
    const exact::ChosenQParams chosen = exact::ChosenFor(rule, exact::FiniteRange(x.as<float>()));
    Case c = CaseOver(Op::kQuantize, Matrix(x), DType::kU8);
    c.out_q = {{chosen.scale}, {chosen.zero_point}};
    Add(std::move(c));
    Tensor zero(DType::kU8, {});
    zero.SetInt(0, chosen.zero_point);
    cases_.besides = {{layer_.node->Output(1),
                       Value::Of(Tensor::Of<float>({}, std::vector<float>{chosen.scale}))},
                      {layer_.node->Output(2), Value::Of(std::move(zero))}};
  }

  const graph::Graph& graph_;
  const Layer& layer_;
  const Lookup& of_;
  Cases cases_;
};

}  // namespace

Tensor Cases::Assembled(const std::vector<Tensor>& outputs) const {
  Tensor whole(dtype, shape);
  for (size_t at = 0; at < parts.size(); ++at) {
    const Tensor& y = outputs[at];
    for (int64_t i = 0; i < y.size(); ++i) whole.SetBits(parts[at].PlaceOf(i), y.BitsAt(i));
  }
  return whole;
}

Tensor Cases::PieceOf(const Tensor& whole, const Part& part) const {
  Tensor piece(whole.dtype(), part.c.output_shape());
  for (int64_t i = 0; i < piece.size(); ++i) piece.SetBits(i, whole.BitsAt(part.PlaceOf(i)));
  return piece;
}

Cases CasesOf(const graph::Graph& graph, const Layer& layer, const Lookup& of) {
  return Builder(graph, layer, of).Build();
}

int64_t CountOf(const std::vector<int64_t>& shape) {
  // Without elements too: places are products of the other sizes.
  Shape sizes = shape;
  for (int64_t& size : sizes) {
    Require(size >= 0, "shape " + Text(shape) + " has a negative size");
    size = std::max<int64_t>(size, 1);
  }
  Require(ElementCount(sizes, kMaxArray) >= 0, "shape " + Text(shape) + " has too many elements");
  return ElementCount(shape, kMaxArray);
}

std::optional<Shape> Broadcast(const Shape& a, const Shape& b) {
  Shape shape(std::max(a.size(), b.size()), 1);
  for (const Shape* const one : {&a, &b}) {
    for (size_t i = 0; i < one->size(); ++i) {
      int64_t& size = shape[shape.size() - one->size() + i];
      const int64_t other = (*one)[i];
      if (size == 1) size = other;
      if (other != 1 && other != size) return std::nullopt;
    }
  }
  return shape;
}

std::vector<int64_t> BroadcastPlaces(const Shape& from, const Shape& to) {
  std::vector<int64_t> steps(to.size(), 0);
  int64_t step = 1;
  for (size_t i = from.size(); i-- > 0;) {
    if (from[i] != 1) steps[to.size() - from.size() + i] = step;
    step *= from[i];
  }
  std::vector<int64_t> places(static_cast<size_t>(CountOf(to)));
  std::vector<int64_t> at(to.size(), 0);
  for (int64_t& place : places) {
    place = 0;
    for (size_t i = 0; i < to.size(); ++i) place += at[i] * steps[i];
    for (size_t i = to.size(); i-- > 0;) {
      if (++at[i] < to[i]) break;
      at[i] = 0;
    }
  }
  return places;
}

std::vector<int64_t> TransposedPlaces(const Shape& shape, const std::vector<int64_t>& axes) {
  std::vector<int64_t> step_of(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) step_of[i - 1] = step_of[i] * shape[i];
  std::vector<int64_t> places(static_cast<size_t>(CountOf(shape)));
  std::vector<int64_t> at(shape.size(), 0);
  for (int64_t& place : places) {
    place = 0;
    for (size_t i = 0; i < axes.size(); ++i) place += at[i] * step_of[static_cast<size_t>(axes[i])];
    for (size_t i = axes.size(); i-- > 0;) {
      if (++at[i] < shape[static_cast<size_t>(axes[i])]) break;
      at[i] = 0;
    }
  }
  return places;
}

Tensor Gathered(const Tensor& from, const std::vector<int64_t>& places, Shape shape) {
  Tensor result(from.dtype(), std::move(shape));
  QUALM_CHECK_EQ(static_cast<size_t>(result.size()), places.size());
  const size_t size = SizeOf(from.dtype());
  const std::span<const uint8_t> source = from.bytes();
  const std::span<uint8_t> target = result.bytes();
  for (size_t i = 0; i < places.size(); ++i) {
    std::copy_n(source.begin() + places[i] * static_cast<int64_t>(size), size,
                target.begin() + static_cast<std::ptrdiff_t>(i * size));
  }
  return result;
}

}  // namespace qualm::models
