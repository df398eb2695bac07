// SPDX-License-Identifier: Apache-2.0
#include "oracles/golden/judge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "core/float_text.h"
#include "oracles/conventions/aten.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/fbgemm.h"
#include "oracles/conventions/primitives.h"
#include "oracles/golden/records.h"

namespace qualm::golden {
namespace {

// How a record becomes a case. Most are judged as one case (JudgeCase); see Handlers for the
// others.
struct CaseReader {
  Case (*read)(const GoldenRecord&);
  const char* output;  // the recorded field that is the output of the case
};

const std::map<std::string_view, CaseReader>& CaseReaders() {
  static const std::map<std::string_view, CaseReader> readers = {
      {"case", {WrittenCase, "y"}},
      {"linear", {AtenStyleLinear, "y"}},
      {"conv2d", {AtenStyleConv, "y"}},
      {"qlinear_conv", {OrtConv, "y"}},
      {"conv2d_s32", {DirectConv, "y_s32"}},
      {"linear_dynamic", {DynamicLinearCase, "y"}},
      {"add", {PairCase, "y"}},
      {"mul", {PairCase, "y"}},
      {"tflite_add", {PairCase, "y"}},
      {"linear_float_and_i32bias", {I32BiasLinear, "y_u8_i32bias"}},
      {"matmul", {DirectMatmul, "y_u8"}},
      {"qlinear_matmul", {OrtMatmul, "y"}},
      {"fully_connected", {XnnpackLinear, "y"}},
      {"tflite_fully_connected", {TfliteLinear, "y"}},
      {"tflite_hard_swish", {HardSwishCase, "y"}},
      {"quantize", {QuantizeCase, "y"}},
      {"tflite_quantize", {QuantizeCase, "y"}},
      {"requantize_float", {RequantizeCase, "y_avx2"}},
      {"decomposed.quantize_per_tensor", {QuantizeCase, "q"}},
      {"QuantizeLinear", {OnnxQuantizeCase, "y"}},
      {"DequantizeLinear", {OnnxDequantizeCase, "y"}},
      {"DynamicQuantizeLinear", {QuantizeCase, "y"}},
      {"MatMulInteger", {MatMulIntegerCase, "y"}},
      {"cast", {CastCase, "codes_out"}},
      {"decode", {DecodeCase, "f32_bits"}},
  };
  return readers;
}

// The recorded output of a case.
Tensor Output(const GoldenRecord& record, const std::string& field, const Case& c) {
  if (c.op == Op::kCast) return CastCodes(record, field, c.out_dtype);
  return c.out_dtype == DType::kF32 ? Reals(record, field, c.output_shape())
                                    : Codes(record, field, c.out_dtype, c.output_shape());
}

// The scale, zero point and codes of finite values [1,N].
Case OnnxChoiceCase(const Tensor& x) {
  Case c = CaseOver(Op::kChooseQParams, x, DType::kF32);
  c.x = Tensor::Of<float>({1, c.M, c.N}, x.as<float>());
  c.rule = QParamsRule::kOnnx;
  c.codes = true;
  if (const std::string error = Validate(c); !error.empty()) throw InputError("x: " + error);
  return c;
}

class RecordJudge {
 public:
  explicit RecordJudge(const GoldenRecord& record) : record_(record) {}

  GoldenVerdict Run();

 private:
  using Handler = void (RecordJudge::*)();
  static const std::map<std::string_view, Handler>& Handlers();

  bool done() const { return result_.verdict.judgement != Judgement::kPassed; }
  void Skip(std::string reason) {
    if (!done()) result_.verdict = Verdict::Skipped(std::move(reason));
  }
  // Compares the recorded field with what a convention computes; the field then counts as judged.
  void Compare(const std::string& field, const Tensor& recorded, const Tensor& computed);
  void CompareText(const std::string& field, const std::string& recorded,
                   const std::string& computed);
  std::string Gives() const {
    return result_.interval ? " accepts an interval, of which the nearest is " : " gives ";
  }
  // The same for a flat list of integers, each computed from its index alone.
  template <typename Compute>
  void CompareEach(const std::string& field, DType dtype, int64_t count, const Compute& compute) {
    Tensor computed(dtype, {count});
    for (int64_t i = 0; i < count; ++i) computed.SetInt(i, compute(i));
    Compare(field, Codes(record_, field, dtype, {count}), computed);
  }
  // An int32 list of any length.
  Tensor Int32List(const char* field) const {
    const auto count = static_cast<int64_t>(record_.Ints(field).size());
    return Codes(record_, field, DType::kS32, {count});
  }
  // Runs the named convention. nullopt, and the record is skipped, if there is no such convention
  // or if it refuses the case.
  std::optional<ConventionOutput> Convention(const std::string& name, const Case& c);

  // One case, one convention, one recorded field.
  void JudgeOutput(const std::string& field, const std::string& name, const Case& c) {
    const Tensor y = Output(record_, field, c);
    if (const auto output = Convention(name, c)) Compare(field, y, output->y);
  }

  // One case, one convention: its codes and, where recorded, its sums.
  void JudgeCase(const Case& c) {
    const Tensor y = Output(record_, "y", c);
    const std::optional<ConventionOutput> output = Convention(ConventionName(record_), c);
    if (!output) return;
    for (const char* field : {"acc", "acc_no_zp"}) {
      if (!record_.Has(field) || !output->acc) continue;
      Compare(field, Codes(record_, field, DType::kS32, c.output_shape()), *output->acc);
    }
    Compare("y", y, output->y);
    // y_thread is what a forum thread printed.
    if (record_.Has("y_thread")) {
      Compare("y_thread", Codes(record_, "y_thread", c.out_dtype, c.output_shape()), output->y);
    }
  }

  void Cast();
  void DirectConvolution();
  void Depthwise3d();
  void TfliteFullyConnected();
  void FloatAndI32Bias();
  void Matmul();
  void Quantize();
  void DynamicQuantizeLinear();
  void RequantizeFloat();
  void RequantizeFixedPoint();
  void ChooseQParams();
  void AtenChooseQParams();
  void Observe();
  void Srdhm();
  void Rdbp();
  void Mbqm();

  const GoldenRecord& record_;
  GoldenVerdict result_;
  std::set<std::string> judged_;
};

void RecordJudge::Compare(const std::string& field, const Tensor& recorded,
                          const Tensor& computed) {
  RequireEntries(record_, field, static_cast<size_t>(recorded.size()), computed.size());
  judged_.insert(field);
  result_.outputs += recorded.size();
  if (done()) return;
  if (const auto divergence = FirstDivergence(recorded, computed)) {
    result_.verdict = Verdict::Failed(
        record_.where + ": " + field + "[" + std::to_string(divergence->index) + "]: recorded " +
            divergence->expected + ", " + result_.convention + Gives() + divergence->actual,
        divergence);
  }
}

void RecordJudge::CompareText(const std::string& field, const std::string& recorded,
                              const std::string& computed) {
  judged_.insert(field);
  ++result_.outputs;
  if (done() || recorded == computed) return;
  result_.verdict = Verdict::Failed(record_.where + ": " + field + ": recorded " + recorded + ", " +
                                        result_.convention + " gives " + computed,
                                    Divergence{0, recorded, computed, 0});
}

std::optional<ConventionOutput> RecordJudge::Convention(const std::string& name, const Case& c) {
  const qualm::Convention* convention = FindConvention(name);
  if (convention == nullptr) {
    Skip("no convention for backend " + record_.backend + ", isa " + record_.isa);
    return std::nullopt;
  }
  result_.convention = name;
  if (const std::string reason = convention->cannot_run(c); !reason.empty()) {
    Skip(name + ": " + reason);
    return std::nullopt;
  }
  return convention->run(c);
}

void RecordJudge::TfliteFullyConnected() {
  const Case c = TfliteLinear(record_);
  JudgeCase(c);
  const double multiplier = static_cast<double>(c.x_q.scale[0]) *
                            static_cast<double>(c.w_q.scale[0]) /
                            static_cast<double>(c.out_q.scale[0]);
  const auto fixed =
      conventions::QuantizeMultiplier(multiplier, result_.convention == "tflite@single");
  for (const auto& [field, value] :
       {std::pair{"multiplier", fixed.value}, {"shift", fixed.shift}}) {
    if (record_.Has(field)) {
      CompareText(field, std::to_string(record_.Int(field)), std::to_string(value));
    }
  }
}

void RecordJudge::FloatAndI32Bias() {
  const std::string name = ConventionName(record_);
  if (record_.Has("y_float")) JudgeOutput("y_float", name, RealLinear(record_));
  if (record_.Has("y_u8_i32bias")) JudgeOutput("y_u8_i32bias", name, I32BiasLinear(record_));
}

// acc_no_zp was recorded of the matmul without zero points. y_u8 was recorded with them, where the
// accumulation may differ, and is a requantize of that sum with output_scales as multipliers.
void RecordJudge::Matmul() {
  const Case c = DirectMatmul(record_);
  const std::vector<int64_t> shape = {c.M, c.N};
  const std::string name = ConventionName(record_);
  if (record_.Has("acc_no_zp")) {
    const Tensor acc = Codes(record_, "acc_no_zp", DType::kS32, shape);
    Case plain = c;
    plain.x_q.zero_point = {0};
    if (const auto output = Convention(name, plain)) Compare("acc_no_zp", acc, *output->acc);
  }
  if (record_.Has("y_u8")) {
    const Tensor y = Codes(record_, "y_u8", DType::kU8, shape);
    const auto output = Convention(name, c);
    if (!output) return;
    Case requantize = CaseOver(Op::kRequantize, Tensor(DType::kS32, shape), DType::kU8);
    for (int64_t n = 0; n < c.N; ++n) {
      int64_t weights = 0;
      for (int64_t k = 0; k < c.K; ++k) weights += c.w.IntAt(n * c.K + k);
      const auto offset =
          static_cast<uint64_t>(weights) * static_cast<uint64_t>(int64_t{c.x_q.zero_point[0]});
      for (int64_t m = 0; m < c.M; ++m) {
        const int64_t i = m * c.N + n;
        const auto acc = static_cast<uint64_t>(int64_t{output->acc->IntAt(i)});
        requantize.x.SetInt(i, conventions::Wrap32(static_cast<int64_t>(acc - offset)));
      }
    }
    requantize.multiplier = c.w_q.scale;
    requantize.per_channel = c.per_channel;
    requantize.out_q.zero_point = c.out_q.zero_point;
    CheckCase(record_, requantize);
    if (const auto codes = Convention(name, requantize)) Compare("y_u8", y, codes->y);
  }
}

void RecordJudge::DirectConvolution() {
  JudgeOutput("y_s32", ConventionName(record_), DirectConv(record_));
}

void RecordJudge::Depthwise3d() {
  const std::string name = ConventionName(record_);
  const int32_t x = Int32(record_, "x_const", 0, 255);
  const int32_t w_zero_point = Int32(record_, "w_zp");
  const float out_scale = record_.Float("out_scale");
  if (!std::isfinite(out_scale) || out_scale <= 0)
    Wrong(record_, "out_scale", "must be finite and greater than 0");
  const std::vector<int32_t> outputs = conventions::FbgemmDepthwise3d(x, w_zero_point, out_scale);
  if (!name.starts_with("fbgemm@") || FindConvention(name) == nullptr) {
    return Skip("no convention for backend " + record_.backend + ", isa " + record_.isa);
  }
  result_.convention = name;
  CompareEach("y_channel0", DType::kU8, static_cast<int64_t>(outputs.size()),
              [&](int64_t i) { return outputs[static_cast<size_t>(i)]; });
  CompareText("y_center", std::to_string(record_.Int("y_center")),
              std::to_string(outputs[outputs.size() / 2]));
}

void RecordJudge::Quantize() {
  const Case c = QuantizeCase(record_);
  const std::pair<const char*, std::string> variants[] = {{"y", ConventionName(record_)},
                                                          {"q", ConventionName(record_)},
                                                          {"y_avx2", "fbgemm@avx2"},
                                                          {"y_scalar", "fbgemm@scalar"}};
  for (const auto& [field, name] : variants) {
    if (record_.Has(field)) JudgeOutput(field, name, c);
  }
  const char* const codes = record_.Has("q") ? "q" : "y";  // PT2E's name, or everybody's
  if (record_.Has("deq") && record_.Has(codes)) {
    JudgeOutput("deq", ConventionName(record_),
                DequantizeCase(record_, c, Output(record_, codes, c)));
  }
}

void RecordJudge::DynamicQuantizeLinear() {
  const Case c = QuantizeCase(record_);
  if (!std::ranges::all_of(c.x.as<float>(), [](float x) { return std::isfinite(x); }))
    return Skip("DynamicQuantizeLinear of x that is not finite");
  const std::string name = ConventionName(record_);
  const auto chosen = Convention(name, OnnxChoiceCase(c.x));
  if (!chosen) return;
  CompareText("scale", FloatText(record_.Float("scale")), FloatText(chosen->y.FloatAt(0)));
  CompareText("zp", std::to_string(record_.Int("zp")),
              std::to_string(static_cast<int32_t>(chosen->y.FloatAt(1))));
  CompareEach("y", c.out_dtype, c.x.size(),
              [&](int64_t i) { return static_cast<int32_t>(chosen->y.FloatAt(2 + i)); });
}

void RecordJudge::RequantizeFloat() {
  const Case c = RequantizeCase(record_);
  for (const auto& [field, name] :
       {std::pair{"y_avx2", "fbgemm@avx2"}, {"y_scalar", "fbgemm@scalar"}}) {
    if (record_.Has(field)) JudgeOutput(field, name, c);
  }
}

void RecordJudge::RequantizeFixedPoint() {
  const Tensor x = Int32List("x");
  const int32_t multiplier = Int32(record_, "multiplier");
  const int32_t right_shift = Int32(record_, "right_shift", 1, 62);
  const int32_t zero_point = Int32(record_, "zp");
  for (const bool vector : {true, false}) {
    const char* const field = vector ? "y_avx2" : "y_scalar";
    if (!record_.Has(field)) continue;
    result_.convention = vector ? "fbgemm@avx2" : "fbgemm@scalar";
    CompareEach(field, DType::kU8, x.size(), [&](int64_t i) {
      const bool body =
          vector &&
          i < x.size() / 8 * 8;  // the vector code takes eight at a time, the scalar code the rest
      return conventions::FbgemmRequantizeFixedPoint(x.IntAt(i), multiplier, right_shift,
                                                     zero_point, body);
    });
  }
}

void RecordJudge::ChooseQParams() {
  result_.convention = "observers@fbgemm";
  const float min = record_.Float("min");
  const float max = record_.Float("max");
  if (!std::isfinite(min) || !std::isfinite(max)) Wrong(record_, "min", "the range must be finite");
  if (min > max) Wrong(record_, "min", "is greater than max");
  const int32_t qmin = Int32(record_, "qmin", -(1 << 16), 1 << 16);
  const int32_t qmax = Int32(record_, "qmax", -(1 << 16), 1 << 16);
  if (qmin >= qmax) Wrong(record_, "qmin", "must be less than qmax");
  const auto chosen = conventions::FbgemmChooseQParams(
      min, max, qmin, qmax, Flag(record_, "preserve_sparsity"), Flag(record_, "force_pow2"));
  CompareText("scale", FloatText(record_.Float("scale")),
              FloatText(static_cast<float>(chosen.scale)));
  CompareText("zp", std::to_string(record_.Int("zp")), std::to_string(chosen.zero_point));
}

void RecordJudge::AtenChooseQParams() {
  result_.convention = "observers@aten";
  const std::vector<float> x = record_.Floats("x");
  if (x.empty()) Wrong(record_, "x", "must not be empty");
  float min = x[0];
  float max = x[0];
  for (const float value : x) {
    if (!std::isfinite(value)) Wrong(record_, "x", "must be finite");
    min = std::min(min, value);
    max = std::max(max, value);
  }
  const auto chosen = conventions::AtenChooseQParams(min, max, Flag(record_, "reduce_range"));
  CompareText("scale_double", DoubleText(record_.Double("scale_double")), DoubleText(chosen.scale));
  CompareText("zp", std::to_string(record_.Int("zp")), std::to_string(chosen.zero_point));
}

// Scales and zero points; where they were recorded too, the range behind them and ATen's codes of
// x.
void RecordJudge::Observe() {
  result_.convention =
      record_.backend.starts_with("pytorch-2") ? "observers@torch2" : "observers@torch";
  const std::vector<exact::ObserverResult> results = ObserveRecord(record_);
  const auto count = static_cast<int64_t>(results.size());
  Tensor scale(DType::kF32, {count});
  Tensor zero_point(DType::kS32, {count});
  std::ranges::transform(results, scale.as<float>().begin(), &exact::ObserverResult::scale);
  std::ranges::transform(results, zero_point.as<int32_t>().begin(),
                         &exact::ObserverResult::zero_point);
  Compare("scale", Reals(record_, "scale", {count}), scale);
  Compare("zp", Codes(record_, "zp", DType::kS32, {count}), zero_point);
  for (const auto& [field, end] : {std::pair{"min_val", &exact::ObservedRange::min},
                                   {"max_val", &exact::ObservedRange::max}}) {
    if (!record_.Has(field)) continue;
    Tensor ends(DType::kF32, {count});
    for (size_t i = 0; i < results.size(); ++i) ends.as<float>()[i] = results[i].range.*end;
    Compare(field, Reals(record_, field, {count}), ends);
  }
  for (const char* field : {"q", "y", "y_thread"}) {
    if (!record_.Has(field)) continue;
    const Tensor codes = QuantizeRecord(record_, results);
    Compare(field, Codes(record_, field, codes.dtype(), codes.shape()), codes);
  }
  if (record_.Has("deq_thread")) {
    const Tensor codes = QuantizeRecord(record_, results);
    Compare("deq_thread", Reals(record_, "deq_thread", codes.shape()),
            DequantizeRecord(codes, results));
  }
}

void RecordJudge::Srdhm() {
  result_.convention = "gemmlowp";
  const Tensor a = Int32List("a");
  const Tensor b = Codes(record_, "b", DType::kS32, {a.size()});
  CompareEach("y", DType::kS32, a.size(), [&](int64_t i) {
    return conventions::SaturatingRoundingDoublingHighMul(a.IntAt(i), b.IntAt(i));
  });
}

void RecordJudge::Rdbp() {
  result_.convention = "gemmlowp";
  const int32_t exponent = Int32(record_, "exponent", 0, 31);
  const Tensor x = Int32List("x");
  CompareEach("y", DType::kS32, x.size(),
              [&](int64_t i) { return conventions::RoundingDivideByPot(x.IntAt(i), exponent); });
}

void RecordJudge::Mbqm() {
  result_.convention = ConventionName(record_);
  const bool single = result_.convention == "tflite@single";
  if (!single && result_.convention != "tflite@double")
    return Skip("no convention for " + record_.backend);
  const Tensor x = Int32List("x");
  const double multiplier = record_.Double("double_multiplier");
  const conventions::FixedMultiplier fixed{Int32(record_, "quantized_multiplier"),
                                           Int32(record_, "shift", -31, single ? 30 : 31)};
  const conventions::FixedMultiplier chosen = conventions::QuantizeMultiplier(multiplier, single);
  CompareText("quantized_multiplier", std::to_string(fixed.value), std::to_string(chosen.value));
  CompareText("shift", std::to_string(fixed.shift), std::to_string(chosen.shift));
  CompareEach("y", DType::kS32, x.size(), [&](int64_t i) {
    return single ? conventions::MultiplyOneRounding(x.IntAt(i), fixed)
                  : conventions::MultiplyTwoRoundings(x.IntAt(i), fixed);
  });
}

void RecordJudge::Cast() {
  const CaseReader& reader = CaseReaders().at(record_.op);
  JudgeOutput(reader.output, ConventionName(record_), reader.read(record_));
}

const std::map<std::string_view, RecordJudge::Handler>& RecordJudge::Handlers() {
  static const std::map<std::string_view, Handler> handlers = {
      {"cast", &RecordJudge::Cast},
      {"conv2d_s32", &RecordJudge::DirectConvolution},
      {"decode", &RecordJudge::Cast},
      {"depthwise3d_7x7x7_const", &RecordJudge::Depthwise3d},
      {"linear_float_and_i32bias", &RecordJudge::FloatAndI32Bias},
      {"matmul", &RecordJudge::Matmul},
      {"tflite_fully_connected", &RecordJudge::TfliteFullyConnected},
      {"quantize", &RecordJudge::Quantize},
      {"tflite_quantize", &RecordJudge::Quantize},
      {"decomposed.quantize_per_tensor", &RecordJudge::Quantize},
      {"DynamicQuantizeLinear", &RecordJudge::DynamicQuantizeLinear},
      {"requantize_float", &RecordJudge::RequantizeFloat},
      {"requantize_fixedpoint", &RecordJudge::RequantizeFixedPoint},
      {"choose_qparams", &RecordJudge::ChooseQParams},
      {"aten_choose_qparams", &RecordJudge::AtenChooseQParams},
      {"observer", &RecordJudge::Observe},
      {"observer_per_channel", &RecordJudge::Observe},
      {"observer_quantize", &RecordJudge::Observe},
      {"gemmlowp_srdhm", &RecordJudge::Srdhm},
      {"gemmlowp_rounding_divide_by_pot", &RecordJudge::Rdbp},
      {"multiply_by_quantized_multiplier", &RecordJudge::Mbqm},
  };
  return handlers;
}

GoldenVerdict RecordJudge::Run() {
  constexpr std::array kWithoutCase{std::pair{&IsProduct, &JudgeProduct},
                                    std::pair{&IsSum, &JudgeSum},
                                    std::pair{&IsOnnxOfOtherTypes, &JudgeOnnxOfOtherTypes},
                                    std::pair{&IsDecomposed, &JudgeDecomposed}};
  for (const auto& [is, judge] : kWithoutCase) {
    if (!is(record_)) continue;
    const JudgedRecord judged = judge(record_);
    if (!judged.skipped.empty()) Skip(judged.skipped + " is not known yet");
    result_.convention = judged.convention;
    result_.interval = judged.interval;
    for (const JudgedRecord::Output& output : judged.outputs)
      Compare(output.field, output.recorded, output.computed);
    if (record_.tell >= 0 && !judged.outputs.empty() &&
        record_.tell < judged.outputs.front().recorded.size()) {
      const JudgedRecord::Output& first = judged.outputs.front();
      result_.steps = judged.steps;
      result_.steps.insert(result_.steps.begin(), first.field + " at index " +
                                                      std::to_string(record_.tell) + ": recorded " +
                                                      ElementText(first.recorded, record_.tell) +
                                                      ", " + judged.convention + Gives() +
                                                      ElementText(first.computed, record_.tell));
    }
    for (const JudgedRecord::Text& text : judged.texts)
      CompareText(text.field, text.recorded, text.computed);
    return std::move(result_);
  }
  if (const std::string beyond = BeyondCases(record_); !beyond.empty()) {
    Skip(beyond + " is not known yet");
    return std::move(result_);
  }
  const auto handler = Handlers().find(record_.op);
  const auto reader = CaseReaders().find(record_.op);
  if (handler != Handlers().end()) {
    (this->*handler->second)();
  } else if (reader != CaseReaders().end()) {
    JudgeCase(reader->second.read(record_));
  } else {
    Skip("op " + record_.op + " is not known yet");
  }
  if (done()) return std::move(result_);
  for (const auto& [field, value] : record_.fields) {
    const bool output = (field.starts_with("y") || field.starts_with("acc") || field == "deq") &&
                        field != "acc_kind" && field != "y_type" && record_.Has(field);
    if (output && !judged_.contains(field)) {
      result_.verdict =
          Verdict::Failed(record_.where + ": " + field + ": an output that nothing here computes");
      return std::move(result_);
    }
  }
  if (judged_.empty()) {
    result_.verdict = Verdict::Failed(record_.where + ": has no output to judge");
  }
  return std::move(result_);
}

}  // namespace

}  // namespace qualm::golden

namespace qualm {

GoldenVerdict JudgeGolden(const GoldenRecord& record) { return golden::RecordJudge(record).Run(); }

std::span<const RecordedConvention> RecordedConventions() {
  static constexpr RecordedConvention kList[] = {
      {"cublas", "cuBLAS on an H100, and what PyTorch calls it for: matmul, _scaled_mm, _int_mm"},
      {"hopper@mma", "tensor cores of sm_90 by mma.sync"},
      {"hopper@wgmma", "tensor cores of sm_90 by wgmma"},
      {"onnxruntime@avx512", "MatMulNBits of accuracy levels 0 and 1"},
      {"onnxruntime@level4", "MatMulNBits of accuracy level 4, by float32 sums of any order"},
      {"torch@cpu", "PyTorch's matmul on the CPU, _weight_int8pack_mm, _dyn_quant_matmul_4bit"},
      {"torch@tinygemm", "PyTorch's 4-bit weights on CUDA, _weight_int4pack_mm"},
      {"triton", "tl.dot of Triton 3.6 on sm_90"},
  };
  return kList;
}

std::optional<std::vector<std::string>> GoldenArithmetics(const GoldenRecord& record) {
  return golden::ArithmeticsOf(record);
}

bool GoldenHasCase(const GoldenRecord& record) {
  return golden::CaseReaders().contains(record.op) && !golden::IsProduct(record) &&
         golden::BeyondCases(record).empty();
}

Case GoldenCase(const GoldenRecord& record) {
  const auto at = golden::CaseReaders().find(record.op);
  if (!GoldenHasCase(record))
    golden::Wrong(record, "op", record.op + " is not an operation known here");
  Case c = at->second.read(record);
  c.note = "recorded as " + record.id;
  std::string output = at->second.output;
  if (!record.Has(output) && record.Has("y_avx2")) output = "y_avx2";
  if (record.Has(output)) {
    Observed observed;
    observed.by = record.backend + (record.isa.empty() ? "" : " " + record.isa);
    observed.y = golden::Output(record, output, c);
    c.observed = std::move(observed);
  }
  return c;
}

}  // namespace qualm
