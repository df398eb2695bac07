// SPDX-License-Identifier: Apache-2.0
// Real libraries against the convention that each promises, on drawn cases. Most of what the
// generators draw no library takes; here each case is first moved to where this one does.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/registry.h"
#include "core/contract.h"
#include "core/rng.h"
#include "core/status.h"
#include "core/subject.h"
#include "core/weight_formats.h"
#include "properties/engine.h"
#include "properties/gen/gen.h"
#include "properties/property.h"

namespace qualm {
namespace {

void Retype(Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype || !IsByteCode(tensor.dtype())) return;
  const int32_t by = dtype == DType::kS8 ? -128 : 128;
  Tensor moved(dtype, tensor.shape());
  for (int64_t i = 0; i < tensor.size(); ++i) moved.SetInt(i, tensor.IntAt(i) + by);
  tensor = std::move(moved);
}

void IntoCodes(QParams& q, DType dtype) {
  const CodeRange range = RangeOf(dtype);
  for (int32_t& z : q.zero_point) {
    if (z < range.min || z > range.max)
      z = range.min + static_cast<int32_t>(static_cast<uint32_t>(z) % 256);
  }
}

void SetOutput(Case& c, DType dtype) {
  if (c.out_dtype == dtype) return;
  c.out_dtype = dtype;
  c.out_min = RangeOf(dtype).min;
  c.out_max = RangeOf(dtype).max;
}

void PerTensor(Case& c) {
  c.per_channel = false;
  for (QParams* q : {&c.x_q, &c.w_q, &c.out_q}) {
    q->scale.resize(1);
    q->zero_point.resize(1);
  }
  if (!c.multiplier.empty()) c.multiplier.resize(1);
}

void IntegerBias(Case& c, Rng& rng) {
  if (!c.bias) return;
  c.bias_i32.emplace(c.bias->size());
  for (int32_t& b : *c.bias_i32) b = static_cast<int32_t>(rng.Between(-20000, 20000));
  c.bias.reset();
}

void MoveTable(Case& c) {
  const int32_t low = RangeOf(c.out_dtype).min;
  if (c.function == Function::kHardSwish) c.function = Function::kTanh;
  switch (c.function) {
    case Function::kSigmoid: c.out_q = {.scale = {0x1p-8f}, .zero_point = {low}}; break;
    case Function::kTanh: c.out_q = {.scale = {0x1p-7f}, .zero_point = {low + 128}}; break;
    case Function::kRelu: c.out_q = c.x_q; break;
    default: c.negative_slope = std::clamp(c.negative_slope, 0.01f, 1.0f); break;
  }
}

Case ForXnnpack(Case c, Rng& rng) {
  const bool u8_only = c.op == Op::kAvgPool || c.op == Op::kSoftmax ||
                       (c.op == Op::kTable && c.function == Function::kLeakyRelu);
  const DType dtype = u8_only || rng.Chance(1, 2) ? DType::kU8 : DType::kS8;
  Retype(c.x, dtype);
  Retype(c.w, dtype);
  if (c.op != Op::kDequantize) SetOutput(c, dtype);
  if (dtype == DType::kU8 || !HasSums(c)) PerTensor(c);
  IntoCodes(c.x_q, dtype);
  IntoCodes(c.w_q, dtype);
  if (HasSums(c) && dtype == DType::kS8) c.w_q.zero_point.assign(c.w_q.zero_point.size(), 0);
  IntoCodes(c.out_q, dtype);
  c.requant = Requant::kExact;
  IntegerBias(c, rng);
  c.window.ceil_mode = false;
  if (c.op == Op::kAvgPool) c.window.count_include_pad = true;
  if (HasWindow(c.op)) DeriveSizes(&c);
  if (c.op == Op::kTable) MoveTable(c);
  if (c.op == Op::kRescale || c.op == Op::kMaxPool) c.out_q = c.x_q;
  if (c.op == Op::kSoftmax) {
    c.out_q = {.scale = {0x1p-8f}, .zero_point = {0}};
    c.relu = false;
    c.out_min = 0;
    c.out_max = 255;
  }
  return c;
}

// Of 2024. Codes are rescaled, within one type or from one to the other, or clamped.
Case ForXnnpack2024(Case c, Rng& rng) {
  const Case drawn = c;
  c = ForXnnpack(std::move(c), rng);
  const DType dtype = c.op == Op::kDequantize ? c.x.dtype() : c.out_dtype;
  if (c.op == Op::kTable) {
    c.function = drawn.function;
    c.negative_slope = drawn.negative_slope;
    if (c.function == Function::kLeakyRelu)
      c.negative_slope = std::clamp(c.negative_slope, 0.1f, 1.0f);
    c.out_q = c.function == Function::kRelu ? c.x_q : drawn.out_q;
  }
  if (c.op == Op::kRescale && rng.Chance(2, 3)) {
    c.out_q = drawn.out_q;
    if (rng.Chance(1, 2)) SetOutput(c, dtype == DType::kU8 ? DType::kS8 : DType::kU8);
    OpenClamp(&c);
    c.relu = false;
  }
  IntoCodes(c.out_q, c.out_dtype);
  if (c.op == Op::kMaxPool) {
    c.window.stride_h = std::min(c.window.stride_h, c.window.kernel_h);
    c.window.stride_w = std::min(c.window.stride_w, c.window.kernel_w);
    DeriveSizes(&c);
  }
  if (HasTwoOperands(c.op) || c.op == Op::kQuantize || c.op == Op::kTable ||
      c.op == Op::kGlobalAvgPool) {
    OpenClamp(&c);
    c.relu = false;
  }
  return c;
}

// u8 only, as gemmlowp has it, or any types and one zero point for all weights, as ruy.
Case ForProduct(Case c, Rng& rng, bool u8_only) {
  const DType x = u8_only || rng.Chance(1, 2) ? DType::kU8 : DType::kS8;
  const DType w = u8_only ? DType::kU8 : c.w.dtype();
  Retype(c.x, x);
  Retype(c.w, w);
  IntoCodes(c.x_q, x);
  IntoCodes(c.w_q, w);
  if (c.out_dtype != DType::kS32 && u8_only && rng.Chance(2, 3)) SetOutput(c, DType::kU8);
  if (c.out_dtype == DType::kF32) SetOutput(c, DType::kU8);
  IntoCodes(c.out_q, c.out_dtype);
  if (rng.Chance(1, 2)) PerTensor(c);
  if (!u8_only) c.w_q.zero_point.assign(c.w_q.zero_point.size(), c.w_q.zero_point[0]);
  c.requant = Requant::kExact;
  IntegerBias(c, rng);
  return c;
}
Case ForGemmlowp(Case c, Rng& rng) { return ForProduct(std::move(c), rng, true); }
Case ForRuy(Case c, Rng& rng) { return ForProduct(std::move(c), rng, false); }

Case ForFbgemm(Case c, Rng&) {
  if (HasSums(c)) {
    Retype(c.x, DType::kU8);
    Retype(c.w, DType::kS8);
  } else {
    PerTensor(c);
  }
  if (c.op != Op::kLinear || c.out_dtype != DType::kF32) {
    SetOutput(c, DType::kU8);
    c.out_min = 0;
    c.out_max = 255;
  }
  c.relu = c.relu && HasSums(c);
  c.requant = Requant::kExact;
  return c;
}

Case ForOnednn(Case c, Rng&) {
  if (HasSums(c)) {
    Retype(c.w, DType::kS8);
    const int32_t zero = IsConv(c.op) ? 0 : c.w_q.zero_point[0];
    c.w_q.zero_point.assign(c.w_q.zero_point.size(), zero);
    c.bias_i32.reset();
  } else {
    c.relu = c.relu && HasTwoOperands(c.op);
    for (QParams* q : {&c.x_q, &c.w_q, &c.out_q}) {
      const int32_t zero = HasTwoOperands(c.op) ? 0 : q->zero_point[0];
      q->zero_point.assign(q->zero_point.size(), zero);
    }
  }
  if (IsPool(c.op)) {
    c.out_q = c.x_q;
    c.out_dtype = c.x.dtype();
    Window& v = c.window;
    v.count_include_pad = false;
    if (c.op == Op::kAvgPool) {  // no window may lie wholly in the padding
      v.ceil_mode = false;
      v.pad_top = std::min(v.pad_top, v.kernel_h - 1);
      v.pad_bottom = std::min(v.pad_bottom, v.kernel_h - 1);
      v.pad_left = std::min(v.pad_left, v.kernel_w - 1);
      v.pad_right = std::min(v.pad_right, v.kernel_w - 1);
      DeriveSizes(&c);
    }
  }
  c.out_min = RangeOf(c.out_dtype).min;
  c.out_max = RangeOf(c.out_dtype).max;
  c.requant = Requant::kExact;
  return c;
}

Case ForTorch(Case c, Rng& rng) {
  c.rule = QParamsRule::kAten;
  c.x_gran = Granularity::kTensor;
  c.observer = {.reduce_range = rng.Chance(1, 2)};
  Retype(c.w, DType::kS8);
  if (rng.Chance(1, 2)) PerTensor(c);
  IntoCodes(c.w_q, DType::kS8);
  if (rng.Chance(2, 3)) c.w_q.zero_point.assign(c.w_q.zero_point.size(), 0);
  return c;
}
Case ForTorchOnednn(Case c, Rng& rng) {
  c = ForTorch(std::move(c), rng);
  c.w_q.zero_point.assign(c.w_q.zero_point.size(), 0);
  return c;
}
Case ForOnnxruntime(Case c, Rng&) {
  c.rule = QParamsRule::kOnnx;
  c.x_gran = Granularity::kTensor;
  c.observer = {};
  IntoCodes(c.w_q, c.w.dtype());
  c.relu = false;
  return c;
}

Case ForGgml(Case c, Rng& rng) {
  return gen::XInBlocks(c, rng.Next(), /*as_stored=*/true).value_or(c);
}

// Without the activation -128, which is declared.
Case ForGgmlFrom127(Case c, Rng& rng) {
  c = ForGgml(std::move(c), rng);
  for (int64_t i = 0; i < c.x.size(); ++i)
    if (c.x.dtype() == DType::kS8) c.x.SetInt(i, std::max(c.x.IntAt(i), -127));
  return c;
}

// The subject makes blocks of what is drawn.
Case AsDrawn(Case c, Rng& /*any*/) { return c; }

struct Promise {
  std::string subject;
  Op op;
  Case (*move)(Case, Rng&);
  Case (*move_2024)(Case, Rng&) = nullptr;  // where the library is "of 2024"
};

std::vector<Promise> Promises() {
  std::vector<Promise> all;
  for (const Op op : {Op::kQuantize, Op::kDequantize, Op::kLinear, Op::kConv2d, Op::kDepthwise,
                      Op::kAdd, Op::kSub, Op::kMul, Op::kMaxPool, Op::kAvgPool, Op::kGlobalAvgPool,
                      Op::kRescale, Op::kTable, Op::kSoftmax}) {
    all.push_back({"xnnpack", op, ForXnnpack, ForXnnpack2024});
  }
  for (const Op op : {Op::kLinear, Op::kRequantize}) {
    all.push_back({"gemmlowp", op, ForGemmlowp});
    all.push_back({"gemmlowp@sse4", op, ForGemmlowp});
    all.push_back({"ruy", op, ForRuy});
  }
  for (const Op op : {Op::kLinear, Op::kConv2d, Op::kDepthwise, Op::kQuantize, Op::kRequantize})
    all.push_back({"fbgemm", op, ForFbgemm});
  // The recordings of version 3 hold neither these instruction sets nor these operations.
  for (const char* subject : {"onednn@sse41", "onednn@avx2", "onednn@avx512core", "onednn@vnni"}) {
    for (const Op op : {Op::kLinear, Op::kConv2d, Op::kDepthwise, Op::kQuantize, Op::kDequantize,
                        Op::kRequantize, Op::kAdd, Op::kMul, Op::kMaxPool, Op::kAvgPool})
      all.push_back({subject, op, ForOnednn});
  }
  all.push_back({"torch@qnnpack", Op::kDynamicLinear, ForTorch});
  all.push_back({"torch@onednn", Op::kDynamicLinear, ForTorchOnednn});
  all.push_back({"torch@fbgemm", Op::kDynamicLinear, ForTorch});
  all.push_back({"onnxruntime", Op::kDynamicLinear, ForOnnxruntime});
  for (const char* subject : {"ggml@x64", "ggml@haswell+generic"})
    all.push_back({subject, Op::kLinear, ForGgml});
  for (const char* subject : {"ggml@sse42", "ggml@haswell", "ggml@zen4"})
    all.push_back({subject, Op::kLinear, ForGgmlFrom127});
  for (const char* subject :
       {"ggml@x64", "ggml@haswell", "ggml@haswell+generic", "ggml@sandybridge", "ggml@haswell+q5_0",
        "ggml@haswell+q4_1", "ggml@haswell+q5_1"})
    all.push_back({subject, Op::kQuantize, AsDrawn});
  all.push_back({"ggml@haswell", Op::kDequantize, AsDrawn});
  for (const WeightFormat* format : kNamedFormats)
    all.push_back({"ggml@haswell+" + std::string(format->name), Op::kDequantize, AsDrawn});
  for (const std::string format :
       {"+q5_0", "+iq4_nl", "+mxfp4", "+iq4_xs", "+q1_0", "+q2_0", "+nvfp4"}) {
    all.push_back({"ggml@haswell" + format + "+generic", Op::kLinear, ForGgml});
    for (const char* set : {"ggml@haswell", "ggml@sandybridge"})
      all.push_back({set + format, Op::kLinear, ForGgmlFrom127});
  }
  for (const std::string format :
       {"+q4_1", "+q5_1", "+q2_k", "+q3_k", "+q4_k", "+q5_k", "+q6_k", "+tq1_0", "+tq2_0"}) {
    for (const std::string set : {"ggml@haswell", "ggml@sandybridge"})
      all.push_back({set + format, Op::kLinear, ForGgml});
    all.push_back({"ggml@haswell" + format + "+generic", Op::kLinear, ForGgml});
  }
  return all;
}

class LibrarySubjects : public testing::TestWithParam<Promise> {
 protected:
  void SetUp() override {
    RegisterAllSubjects();
    const std::string& name = GetParam().subject;
    const auto kind = std::ranges::find(SubjectRegistry::Get().kinds(),
                                        name.substr(0, name.find('@')), &SubjectKind::kind);
    ASSERT_NE(kind, SubjectRegistry::Get().kinds().end());
    if (!kind->why_absent.empty()) GTEST_SKIP() << kind->why_absent;
    try {
      subject_ = SubjectRegistry::Get().Make(name);
    } catch (const Unavailable& error) {
      GTEST_SKIP() << error.what();
    }
  }

  std::unique_ptr<Subject> subject_;
};

TEST_P(LibrarySubjects, KeepsItsPromise) {
  const Op op = GetParam().op;
  const auto move =
      subject_->Version().ends_with("of 2024") ? GetParam().move_2024 : GetParam().move;
  Rng rng(static_cast<uint64_t>(op) + 1);
  CheckResult result;
  int judged = 0;
  for (int i = 0; i < QUALM_LIBRARY_CASES; ++i) {
    const Case c = subject_->Inside(move(gen::Draw(op, CaseSeed(3, op, i)), rng));
    if (!Validate(c).empty() || !subject_->CannotRun(c).empty()) continue;
    const int64_t before = result.totals.of(Judgement::kPassed);
    // The divergences declared for these have kinds that are known without attribution.
    Judging judging;
    judging.attribute = [](const Case&, const Verdict&, Subject&) { return FindingKind::kUnknown; };
    CheckCase(c, {subject_.get()}, "*", result, judging);
    judged += result.totals.of(Judgement::kPassed) > before ? 1 : 0;
  }
  for (const Finding& finding : result.findings) {
    EXPECT_TRUE(finding.expected_by_contract)
        << finding.full_property() << ": " << finding.explanation;
  }
  EXPECT_EQ(result.totals.of(Judgement::kFailed), 0);
  EXPECT_GE(judged, QUALM_LIBRARY_CASES / 2) << "too few are taken to mean much";
  std::cout << judged << " of " << QUALM_LIBRARY_CASES << " cases judged\n";
}

std::string TestName(const testing::TestParamInfo<Promise>& info) {
  std::string name = info.param.subject + "_" + std::string(Name(info.param.op));
  std::ranges::replace_if(name, [](char c) { return c == '@' || c == '+'; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Packaged, LibrarySubjects, testing::ValuesIn(Promises()), TestName);

}  // namespace
}  // namespace qualm
