// SPDX-License-Identifier: Apache-2.0
// Conventions that choose scales and zero points: PyTorch's observers, ATen, FBGEMM. PyTorch's
// observers are the exact meaning of choose_qparams (oracles/exact/observer.h), so their convention
// calls exact::.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/float_format.h"
#include "core/float_text.h"
#include "oracles/conventions/aten.h"
#include "oracles/conventions/families.h"
#include "oracles/conventions/fbgemm.h"
#include "oracles/conventions/onnx.h"
#include "oracles/exact/exact.h"
#include "oracles/exact/observer.h"

namespace qualm::conventions {
namespace {

std::string NotObserving(const Case& c) {
  return c.op == Op::kChooseQParams && !c.codes ? "" : "chooses scales and zero points only";
}

// ATen, FBGEMM and ONNX choose from the smallest and the largest of all values.
std::string NotMinMax(const Case& c) {
  if (std::string reason = NotObserving(c); !reason.empty()) return reason;
  if (c.observer.kind != Observer::Kind::kMinMax) return "min_max only";
  return c.per_channel ? "per tensor only" : "";
}

// A convention of one rule also says what it would choose where the case asks for the observers'.
std::string NotByRule(const Case& c, QParamsRule rule) {
  if (c.rule == QParamsRule::kObserver || c.rule == rule) return "";
  return "the rule must be " + std::string(Name(rule));
}

// ATen and ONNX know the codes 0..255 alone.
std::string NotAllOfU8(const Case& c, QParamsRule rule) {
  if (std::string reason = NotMinMax(c); !reason.empty()) return reason;
  if (std::string reason = NotByRule(c, rule); !reason.empty()) return reason;
  if (c.observer.symmetric) return "affine only";
  // 255 is a code of u8, whose least code is 0, and 0 is always among the codes.
  return c.observer.quant_max == 255 ? "" : "codes 0..255 only";
}

struct Ends {
  float min = 0, max = 0;
};

Ends EndsOf(const Case& c) {
  const auto values = c.x.as<float>();
  Ends ends{values[0], values[0]};
  for (const float value : values) {
    ends.min = std::min(ends.min, value);
    ends.max = std::max(ends.max, value);
  }
  return ends;
}

template <class Choose>
Convention Choosing(std::string name, std::string description, std::string source, Choose choose) {
  const auto run = [choose](const Case& c) {
    const auto chosen = choose(c, EndsOf(c));
    Tensor y(DType::kF32, c.output_shape());
    y.as<float>()[0] = static_cast<float>(chosen.scale);
    y.as<float>()[1] = static_cast<float>(chosen.zero_point);
    return y;
  };
  Convention convention;
  convention.ops = {Op::kChooseQParams};
  convention.name = std::move(name);
  convention.description = std::move(description);
  convention.source = std::move(source);
  convention.run = [run](const Case& c) { return ConventionOutput{run(c), std::nullopt}; };
  convention.trace = [run](const Case& c, int64_t index) {
    const auto [min, max] = EndsOf(c);
    const Tensor y = run(c);
    Trace trace;
    trace.push_back({Stage::kAccumulate,
                     "the values span [" + FloatText(min) + ", " + FloatText(max) + "]",
                     FloatText(max), false});
    for (int64_t i = 0; i <= index; ++i) {
      const std::string value = FloatText(y.FloatAt(i));
      trace.push_back({i == 0 ? Stage::kScale : Stage::kZeroPoint,
                       (i == 0 ? "the scale is " : "the zero point is ") + value, value, false});
    }
    return trace;
  };
  convention.satisfies = {"value_permutation"};
  convention.variations = {"V23"};
  return convention;
}

}  // namespace

Convention OnnxChooseQParams(RoundFloat round, Convention quantize, exact::AtenChoice of_zeros) {
  Convention convention = Choosing("", "", "", [=](const Case&, Ends ends) {
    return OnnxChoice({std::min(ends.min, 0.0f), std::max(ends.max, 0.0f)}, round, of_zeros);
  });
  convention.cannot_run = [](const Case& c) {
    if (std::string reason = NotAllOfU8(c, QParamsRule::kOnnx); !reason.empty()) return reason;
    return std::string(c.observer.reduce_range ? "reduce_range is none of its options" : "");
  };
  return WithCodesOf(std::move(convention), std::move(quantize));
}

// ceil of log2 rounded to float32. Just above a power of two the logarithm rounds to the exponent:
// log2(1 + d) is d / ln 2, and no d of a float32 lies near half of a spacing.
int CeilOfFloatLog2(float value) {
  if (value == 0) return INT32_MIN;
  const int exponent = std::ilogb(value);
  const double above = std::ldexp(static_cast<double>(value), -exponent) - 1;
  const auto rounded = static_cast<float>(exponent);
  const float spacing = std::nextafter(rounded, INFINITY) - rounded;
  constexpr double kLn2 = 0.69314718;
  return above <= static_cast<double>(spacing) / 2 * kLn2 ? exponent : exponent + 1;
}

// A scale of 2^-127 is stored, but elements are divided by 2^-126 (rceil: 1). The quotient of rceil
// and its log2 are float32: a quotient just above a power of two gets the scale of that power, and
// the largest elements saturate.
Convention TorchaoMx() {
  Convention mx;
  mx.name = "torchao-mx";
  mx.description = "torchao's to_mx: shared scales of blocks by floor, ceil, even and rceil";
  mx.source = "torchao 0.18 prototype/mx_formats/mx_tensor.py, kernels.py";
  mx.ops = {Op::kChooseQParams};
  mx.cannot_run = [](const Case& c) {
    return FirstReason({Require(IsMx(c.rule) && c.rule != QParamsRule::kMxNearest,
                                "the rule must be mx_floor, mx_ceil, mx_even or mx_rceil"),
                        Require(c.x.shape()[0] == 1, "there must be one batch")});
  };
  const auto chosen = [](const Case& c) {
    Tensor y = exact::ChooseQParams(c);
    if (c.rule != QParamsRule::kMxRceil) return y;
    const auto largest =
        static_cast<float>(DecodeFloat(c.observer.dtype, LargestCode(c.observer.dtype)));
    const std::vector<exact::ObservedRange> ranges = exact::ObservedRanges(c);
    for (size_t m = 0; m < ranges.size(); ++m) {
      const float quotient = std::max(-ranges[m].min, ranges[m].max) / largest;
      y.as<float>()[m] = std::ldexp(1.0f, std::max(CeilOfFloatLog2(quotient), -127));
    }
    return y;
  };
  mx.run = [chosen](const Case& c) {
    const Tensor y = chosen(c);
    if (!c.codes) return ConventionOutput{y, std::nullopt};
    Tensor divisors = y;
    for (float& scale : divisors.as<float>().first(static_cast<size_t>(ChosenCount(c))))
      if (scale < FLT_MIN) scale = c.rule == QParamsRule::kMxRceil ? 1.0f : FLT_MIN;
    const Tensor elements = exact::Evaluate(exact::CodesCaseOf(c, divisors));
    return ConventionOutput{exact::WithCodes(c, y, elements), std::nullopt};
  };
  mx.trace = [run = mx.run](const Case& c, int64_t index) {
    const std::string value = FloatText(run(c).y.FloatAt(index));
    const char* what = index < ChosenCount(c)       ? "the scale is "
                       : index < 2 * ChosenCount(c) ? "the zero point is "
                                                    : "the element is ";
    return Trace{{Stage::kScale, what + value, value, false}};
  };
  mx.satisfies = {"value_permutation", "zero_append", "rows_are_tensors", "zero_is_representable"};
  return mx;
}

std::vector<Convention> ObserverConventions() {
  Convention torch;
  torch.name = "observers@torch";
  torch.description =
      "PyTorch's min-max, moving average and histogram observers, and its choice by rule aten";
  torch.source =
      "PyTorch 1.13.1 torch/ao/quantization/observer.py, "
      "aten/src/ATen/native/quantized/QTensor.cpp";
  torch.ops = {Op::kChooseQParams};
  torch.cannot_run = [](const Case& c) {
    if (std::string reason = NotObserving(c); !reason.empty()) return reason;
    return NotByRule(c, QParamsRule::kAten);
  };
  torch.run = [](const Case& c) { return ConventionOutput{exact::Evaluate(c), std::nullopt}; };
  torch.trace = [](const Case& c, int64_t index) { return exact::Derive(c, index); };
  torch.satisfies = {"matches_exact",      "targets_agree",         "value_permutation",
                     "zero_append",        "symmetric_negation",    "doubling",
                     "rows_are_tensors",   "zero_is_representable", "range_is_covered",
                     "reduce_range_halves"};

  // Histograms aside it is the same.
  Convention torch2 = torch;
  torch2.name = "observers@torch2";
  torch2.description = "the same of PyTorch 2: a histogram keeps its range, and moves to another";
  torch2.source = "PyTorch 2.11 and 2.13 torch/ao/quantization/observer.py";
  torch2.run = [](const Case& c) {
    return ConventionOutput{exact::ChooseQParams2(c), std::nullopt};
  };
  torch2.trace = [](const Case& c, int64_t index) {
    if (c.observer.kind != Observer::Kind::kHistogram) return exact::Derive(c, index);
    const std::string value = FloatText(exact::ChooseQParams2(c).FloatAt(index));
    return Trace{{index == 0 ? Stage::kScale : Stage::kZeroPoint,
                  (index == 0 ? "the histogram gives the scale " : "and the zero point ") + value,
                  value, false}};
  };
  torch2.satisfies = {"value_permutation", "range_is_covered"};
  torch2.variations = {"V36"};

  Convention aten =
      Choosing("observers@aten", "ATen's choice for dynamic quantization, scale rounded to float32",
               "PyTorch 1.13.1 aten/src/ATen/native/quantized/cpu/QuantUtils.h",
               [](const Case& c, Ends ends) {
                 return AtenChooseQParams(ends.min, ends.max, c.observer.reduce_range);
               });
  aten.cannot_run = [](const Case& c) { return NotAllOfU8(c, QParamsRule::kAten); };

  // FBGEMM calls symmetric ranges preserve_sparsity.
  Convention fbgemm = Choosing("observers@fbgemm", "FBGEMM's ChooseQuantizationParams",
                               "FBGEMM src/QuantUtils.cc @ 71d6f8b", [](const Case& c, Ends ends) {
                                 const CodeRange codes = exact::observer::Codes(c.observer);
                                 return FbgemmChooseQParams(ends.min, ends.max, codes.min,
                                                            codes.max, c.observer.symmetric, false);
                               });
  fbgemm.cannot_run = [](const Case& c) {
    if (std::string reason = NotMinMax(c); !reason.empty()) return reason;
    return NotByRule(c, QParamsRule::kObserver);
  };
  return {std::move(torch), std::move(torch2), std::move(aten), std::move(fbgemm), TorchaoMx()};
}

}  // namespace qualm::conventions
