// SPDX-License-Identifier: Apache-2.0
// A row too few makes a known departure fail the runs of everybody who uses the library. A row too
// many excuses a fault that nobody knows of. So what is excused is written here too, by library,
// and a loop over too few or too many subjects is seen.
#include <gtest/gtest.h>

#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "adapters/kinds.h"
#include "core/case.h"
#include "core/contract.h"

namespace qualm {
namespace {

// Each claim about each operation of each subject, whose name is `family`, one of `names` and,
// where there are some, one of `ends`.
struct Excused {
  const char* kind;
  const char* claims;
  const char* ops;
  const char* family;
  const char* names;
  const char* library = "";
  const char* shape = "";
  const char* ends = "";
};

constexpr const char* kOnednn = "amx avx2 avx2vnni avx512core sse41 vnni";
constexpr const char* kOnednn3 = "avx2 avx512core sse41 vnni";
constexpr const char* kSaturating = "avx2 avx2+nofma avx512 avx512+nofma";
constexpr const char* kAcc16 = "avx2+acc16 avx2+acc16+nofma avx512+acc16 avx512+acc16+nofma";
constexpr const char* kOnnxruntime = "avx2 sse41 vnni";
constexpr const char* kAten = "aarch64 avx2 avx2+pt26 avx512 avx512+pt26 default default+pt26";

constexpr const char* kGgmlOfAvx =
    "alderlake cannonlake cascadelake cooperlake haswell icelake ivybridge piledriver sandybridge "
    "skylakex "
    "zen4";
constexpr const char* kGgml =
    "alderlake cannonlake cascadelake cooperlake haswell icelake ivybridge piledriver sandybridge "
    "skylakex "
    "zen4 sse42 x64";

constexpr const char* kGgmlOfAvx2 =
    "alderlake cannonlake cascadelake cooperlake haswell icelake skylakex zen4";

constexpr const char* kOnednn310 = "amx avx2 avx512core vnni";
constexpr const char* kWheelsQnnpack = "2.11-qnnpack 2.13-qnnpack";
constexpr const char* kWheel = "torch: PyTorch 2.";

constexpr Excused kExcused[] = {
    {"*", "matches_exact", "softmax", "model:onnxruntime@", kOnnxruntime},
    {"*", "matches_model", "softmax", "model:onnxruntime@", kOnnxruntime,
     "onnxruntime-py: ONNX Runtime 1.32."},
    {"index", "matches_exact matches_model", "linear", "ggml@", kGgmlOfAvx},
    {"index", "matches_exact matches_model", "linear", "ggml@", "sse42"},
    {"rounding", "environment", "linear", "ggml@", kGgml},
    {"rounding", "environment", "linear", "ggml@", kGgml, "", "", "+generic"},
    {"index", "matches_exact matches_model", "linear", "ggml@", kGgmlOfAvx, "", "",
     "+q5_0 +iq4_nl +mxfp4 +iq4_xs +q1_0 +nvfp4"},
    {"index", "matches_exact matches_model", "linear", "ggml@", "sse42", "", "", "+q1_0"},
    {"rounding", "environment", "linear", "ggml@", kGgml, "", "",
     "+q5_0 +iq4_nl +mxfp4 +q5_0+generic +iq4_nl+generic +mxfp4+generic"},
    {"rounding", "environment", "linear", "ggml@", kGgml, "", "",
     "+iq4_xs +tq1_0 +tq2_0 +q1_0 +q2_0 +nvfp4 +iq4_xs+generic +tq1_0+generic +tq2_0+generic "
     "+q1_0+generic +q2_0+generic +nvfp4+generic"},
    {"rounding", "environment", "linear", "ggml@", kGgml, "", "",
     "+q4_1 +q5_1 +q2_k +q3_k +q4_k +q5_k +q6_k +q4_1+generic +q5_1+generic +q2_k+generic "
     "+q3_k+generic +q4_k+generic +q5_k+generic +q6_k+generic"},
    {"index", "matches_exact matches_model", "linear", "ggml@", kGgmlOfAvx2, "", "",
     "+q4_0+gemv +iq4_nl+gemv +mxfp4+gemv"},
    {"*", "*", "linear", "ggml@", "ivybridge piledriver sandybridge sse42 x64", "", "",
     "+iq4_nl+gemm"},
    {"rounding", "environment", "linear", "ggml@", kGgml, "", "",
     "+q4_0+gemm +iq4_nl+gemm +mxfp4+gemm +q2_k+gemm +q4_k+gemm +q4_0+gemv +iq4_nl+gemv "
     "+mxfp4+gemv +q2_k+gemv +q4_k+gemv "
     "+q4_0+gemm+generic +iq4_nl+gemm+generic +mxfp4+gemm+generic +q2_k+gemm+generic "
     "+q4_k+gemm+generic +q4_0+gemv+generic +iq4_nl+gemv+generic +mxfp4+gemv+generic "
     "+q2_k+gemv+generic +q4_k+gemv+generic"},
    {"rounding", "environment", "quantize", "ggml@", kGgml},
    {"rounding", "environment", "quantize", "ggml@", kGgml, "", "",
     "+generic +q5_0 +q4_1 +q5_1 +q5_0+generic +q4_1+generic +q5_1+generic"},
    {"*", "environment", "dequantize", "ggml@", kGgml, "", "",
     "+mxfp4 +q4_1 +q5_1 +q2_k +q4_k +q5_k +mxfp4+generic +q4_1+generic +q5_1+generic "
     "+q2_k+generic "
     "+q4_k+generic +q5_k+generic"},
    {"*", "environment matches_exact", "dequantize", "ggml@", kGgml, "", "",
     "+q3_k +q6_k +q3_k+generic +q6_k+generic"},
    {"*", "matches_exact", "quantize", "model:ggml@", "avx c"},
    // PyTorch's official wheels.
    {"*", "*", "conv2d depthwise", "model:onednn3.10@", "amx avx512core vnni", kWheel},
    {"*", "*", "conv2d depthwise", "model:torch-x86@", "amx avx512core vnni", kWheel},
    {"clamp", "clamp", "conv2d depthwise linear", "model:onednn3.10@", kOnednn310},
    {"clamp", "clamp", "conv2d depthwise", "model:torch-x86@", kOnednn310},
    {"clamp", "matches_exact", "dynamic_linear", "model:torch", kWheelsQnnpack},
    {"index", "matches_exact", "max_pool", "model:torch", kWheelsQnnpack},
    {"padding", "matches_exact", "avg_pool", "model:torch", kWheelsQnnpack},
    {"pair-saturation", "matches_exact sweep_is_linear sweep_is_monotone", "linear",
     "model:onednn3.10@", "avx2 avx512core"},
    {"pair-saturation", "matches_exact sweep_is_linear", "conv2d", "model:onednn3.10@",
     "avx2 avx512core"},
    {"pair-saturation", "matches_exact sweep_is_linear", "conv2d", "model:torch-x86@",
     "avx2 avx512core"},
    {"rounding", "matches_exact", "choose_qparams", "model:", "torchao-mx"},
    {"rounding", "matches_exact", "dynamic_linear", "model:fbgemm@",
     "avx2 avx2+nofma avx512 avx512+nofma vnni vnni+nofma"},
    {"rounding", "matches_exact", "add linear quantize", "model:onednn3.10@", kOnednn310},
    {"rounding", "matches_exact", "dynamic_linear", "model:onednn3.10@", "avx2"},
    {"unknown", "matches_exact", "dynamic_linear", "model:onednn3.10@", "amx avx512core vnni"},
    {"rounding", "matches_exact", "add quantize", "model:torch",
     "2.11-aten 2.13-aten@avx2 2.13-aten@avx512"},
    {"rounding", "matches_exact", "add dynamic_linear linear quantize", "model:torch",
     kWheelsQnnpack},
    {"tie", "matches_exact", "linear quantize", "model:onednn3.10@", kOnednn310},
    {"tie", "matches_exact", "concat quantize", "model:torch",
     "2.13-aten@avx2 2.13-aten@avx512 2.13-qnnpack"},
    {"unknown", "*", "add", "model:torch", kWheelsQnnpack, kWheel,
     "failed to create QNNPACK Add operator"},
    {"unknown", "*", "choose_qparams", "model:torch",
     "2.11-aten 2.11-qnnpack 2.13-aten@avx2 2.13-aten@avx512 2.13-qnnpack", kWheel,
     "AssertionError: min "},

    {"*", "*", "conv2d", "model:onednn2@", "avx512core", "onednn: oneDNN 2.6."},
    {"*", "*", "conv2d", "model:torch-onednn@", "avx512core", "torch: PyTorch 1.13."},
    {"*", "matches_exact",
     "add avg_pool concat conv2d depthwise global_avg_pool linear mul quantize requantize rescale "
     "sub "
     "table",
     "model:plain@", "away away+zp_first floor truncate truncate+zp_first up"},
    {"*", "matches_exact", "concat linear quantize", "model:plain@", "even+zp_first"},
    {"*", "matches_exact",
     "add choose_qparams conv2d depthwise dynamic_linear linear mul quantize requantize rescale "
     "sub",
     "model:plain@", "float32+away"},
    {"*", "matches_exact",
     "add avg_pool concat conv2d depthwise global_avg_pool linear mul quantize rescale sub table",
     "model:tflite@", "builtin reference"},
    {"*", "matches_exact", "softmax", "model:tflite@", "reference"},
    {"*", "matches_exact", "dynamic_linear", "model:tflite@", "builtin reference"},
    {"*", "matches_exact", "dynamic_linear linear", "model:xnnpack2026@", "avx2 avx512"},
    {"*", "matches_exact", "conv2d depthwise linear quantize rescale", "model:", "tract"},
    {"*", "matches_exact", "dequantize linear quantize", "model:", "openvino openvino@avx2"},
    {"pair-saturation", "matches_exact sweep_is_linear sweep_is_monotone", "linear",
     "model:", "openvino@avx2"},
    {"*", "matches_exact matches_model", "linear", "", "openvino"},
    {"*", "matches_exact", "dequantize", "model:tflite@", "builtin"},
    {"clamp", "clamp", "add linear mul quantize", "model:numpy@", "float32"},
    {"clamp", "clamp", "quantize", "model:numpy@", "float64"},
    {"clamp", "clamp", "add conv2d depthwise linear mul quantize rescale sub", "model:torch-",
     "decomposed"},
    {"rounding", "matches_exact", "add quantize rescale", "model:torch-", "decomposed"},
    {"clamp", "clamp", "conv2d depthwise linear", "model:onednn3@", kOnednn3},
    {"clamp", "matches_exact", "dynamic_linear", "model:", "torch-qnnpack"},
    {"clamp", "clamp", "conv2d depthwise", "model:onednn2@", "avx2 avx2vnni sse41",
     "onednn: oneDNN 2.6."},
    {"clamp", "clamp", "conv2d depthwise", "model:torch-onednn@", "avx2 avx2vnni sse41",
     "torch: PyTorch 1.13."},
    {"index", "matches_exact", "max_pool", "model:", "torch-qnnpack"},
    {"memory", "alignment_and_stride no_stray_access", "avg_pool global_avg_pool max_pool",
     "model:onednn2@", "avx2 avx2vnni", "onednn: oneDNN 2.6.", "before the start of"},
    {"memory", "alignment_and_stride no_stray_access", "avg_pool global_avg_pool max_pool",
     "model:onednn3@", "avx2", "onednn: oneDNN 3.7.", "before the start of"},
    {"memory", "alignment_and_stride", "linear", "model:onednn2@", "amx vnni",
     "onednn: oneDNN 2.6.", "the result changes"},
    {"nondeterminism", "answer_independent_of_history", "conv2d depthwise linear", "torch@",
     "qnnpack+kept"},
    {"nondeterminism", "one_thing_changed", "conv2d depthwise linear", "torch@", "qnnpack+kept", "",
     "output scale changed"},
    {"nondeterminism", "one_thing_changed", "conv2d depthwise dynamic_linear linear", "torch@",
     "onednn+kept", "", "relu changed"},
    {"nondeterminism", "one_thing_changed", "conv2d depthwise", "torch@", "x86+kept", "",
     "relu changed"},
    {"nondeterminism", "one_thing_changed zero_point_shift", "conv2d depthwise", "torch@",
     "qnnpack+kept", "", "zero point"},
    {"nondeterminism", "answer_independent_of_history", "conv2d depthwise linear",
     "model:torch-onednn@", kOnednn, "torch: PyTorch 1.13."},
    {"nondeterminism", "one_thing_changed", "conv2d depthwise linear", "model:torch-onednn@",
     kOnednn, "torch: PyTorch 1.13.", "zero point"},
    {"padding", "matches_exact", "avg_pool", "model:", "torch-qnnpack"},
    {"pair-saturation", "matches_exact sweep_is_linear", "conv2d depthwise linear", "model:fbgemm@",
     kSaturating},
    {"pair-saturation", "matches_exact sweep_is_linear", "conv2d depthwise", "model:torch-fbgemm@",
     "avx2 avx2+held avx512 avx512+held"},
    {"pair-saturation", "matches_exact sweep_is_linear", "conv2d linear", "model:onednn2@",
     "avx2 avx512core sse41"},
    {"pair-saturation", "matches_exact sweep_is_linear", "conv2d linear", "model:onednn3@",
     "avx2 avx512core sse41"},
    {"pair-saturation", "matches_exact sweep_is_linear", "conv2d linear", "model:onnxruntime@",
     "avx2"},
    {"pair-saturation", "matches_exact sweep_is_linear", "conv2d linear", "onednn@",
     "avx2 avx512core sse41"},
    {"pair-saturation", "matches_exact sweep_is_linear sweep_is_monotone", "linear",
     "model:fbgemm@", kAcc16},
    {"pair-saturation", "matches_exact sweep_is_linear sweep_is_monotone", "linear",
     "model:torch-onednn@", "avx2 avx512core sse41"},
    {"pair-saturation", "sweep_is_monotone", "linear", "model:fbgemm@", kSaturating},
    {"pair-saturation", "sweep_is_monotone", "linear", "model:onednn2@", "avx2 avx512core sse41"},
    {"pair-saturation", "sweep_is_monotone", "linear", "model:onednn3@", "avx2 avx512core sse41"},
    {"pair-saturation", "sweep_is_monotone", "linear", "model:onnxruntime@", "avx2"},
    {"pair-saturation", "sweep_is_monotone", "linear", "onednn@", "avx2 avx512core sse41"},
    {"rounding", "matches_exact", "add dynamic_linear linear quantize", "model:", "torch-qnnpack"},
    {"rounding", "matches_exact", "add dynamic_linear linear quantize", "model:torch-onednn@",
     kOnednn},
    {"rounding", "matches_exact", "add dynamic_linear quantize", "model:onnxruntime@",
     "avx2 sse41 vnni wasm"},
    {"rounding", "matches_exact", "add linear quantize", "model:onednn2@", kOnednn},
    {"rounding", "matches_exact", "add linear quantize", "model:onednn3@", kOnednn3},
    {"rounding", "matches_exact", "add linear quantize requantize", "model:", "qnnpack"},
    {"rounding", "matches_exact", "add quantize", "model:aten@", kAten},
    {"rounding", "matches_exact", "add quantize", "model:numpy@", "float32"},
    {"rounding", "matches_exact", "add quantize sub", "model:xnnpack@", "fp32 rndnu"},
    {"rounding", "matches_exact", "add quantize rescale sub", "model:xnnpack2024@", "avx2 avx512"},
    {"rounding", "matches_exact", "add quantize rescale sub", "model:xnnpack2026@", "avx2 avx512"},
    {"rounding", "matches_exact", "linear", "model:fbgemm@",
     "avx2+acc16 avx2+acc16+nofma avx512+acc16 avx512+acc16+nofma vnni+acc16 vnni+acc16+nofma"},
    {"rounding", "matches_exact", "linear quantize", "model:fbgemm@",
     "avx2 avx2+nofma avx512 avx512+nofma vnni vnni+nofma"},
    {"rounding", "matches_exact", "linear requantize", "model:", "ruy"},
    {"rounding", "matches_exact", "linear", "model:", "ctranslate2"},
    {"rounding", "matches_exact", "quantize", "model:", "mnn"},
    {"rounding", "matches_exact", "add dynamic_linear linear quantize", "model:", "tvm"},
    {"rounding", "matches_exact", "quantize", "model:fbgemm@", "scalar"},
    {"rounding", "matches_exact", "dynamic_linear", "model:onnx@", "reference"},
    {"int32-overflow", "matches_exact", "quantize", "model:tflite@", "double single"},
    {"rounding", "matches_exact", "quantize table", "model:tflite@", "double single"},
    {"rounding", "matches_exact", "requantize", "model:", "gemmlowp"},
    {"rounding", "matches_exact", "requantize", "model:gemmlowp@", "sse4"},
    {"rounding", "sweep_is_linear", "conv2d depthwise linear", "model:plain@",
     "truncate truncate+zp_first"},
    {"rounding", "environment", "conv2d depthwise dequantize linear quantize requantize",
     "model:fbgemm@", "avx2 avx2+nofma avx512 avx512+nofma vnni vnni+nofma", "fbgemm: FBGEMM"},
    {"rounding", "environment", "linear", "model:fbgemm@",
     "avx2+acc16 avx2+acc16+nofma avx512+acc16 avx512+acc16+nofma vnni+acc16 vnni+acc16+nofma",
     "fbgemm: FBGEMM"},
    {"rounding", "environment",
     "add avg_pool conv2d depthwise dequantize global_avg_pool linear mul quantize requantize",
     "model:onednn2@", kOnednn, "onednn: oneDNN 2.6."},
    {"rounding", "environment",
     "add avg_pool conv2d depthwise dequantize global_avg_pool linear mul quantize requantize",
     "model:onednn3@", kOnednn3, "onednn: oneDNN 3.7."},
    {"rounding", "environment",
     "add avg_pool conv2d depthwise dequantize global_avg_pool linear mul quantize softmax sub "
     "table",
     "model:xnnpack@", "fp32", "xnnpack: XNNPACK"},
    {"rounding", "environment",
     "add avg_pool conv2d depthwise dequantize global_avg_pool linear mul quantize rescale softmax "
     "sub table",
     "model:xnnpack2024@", "avx2 avx512", "xnnpack: XNNPACK of 2024"},
    {"tie", "matches_exact", "add", "model:", "torch-qnnpack"},
    {"tie", "matches_exact", "add", "model:onnxruntime@", "wasm"},
    {"tie", "matches_exact", "add conv2d depthwise linear mul quantize requantize", "model:tflite@",
     "double single"},
    {"tie", "matches_exact", "add conv2d depthwise linear mul requantize sub", "model:xnnpack@",
     "rndnu"},
    {"tie", "matches_exact", "add sub", "model:xnnpack@", "fp32"},
    {"tie", "matches_exact", "add rescale sub table", "model:xnnpack2024@", "avx2 avx512"},
    {"tie", "matches_exact", "add rescale sub table", "model:xnnpack2026@", "avx2 avx512"},
    {"tie", "matches_exact", "linear quantize", "model:onednn2@", kOnednn},
    {"tie", "matches_exact", "linear quantize", "model:onednn3@", kOnednn3},
    {"tie", "matches_exact", "linear", "model:torch-onednn@", kOnednn},
    {"tie", "matches_exact", "linear requantize", "model:", "ruy"},
    {"tie", "matches_exact", "quantize", "model:", "mnn"},
    {"tie", "matches_exact", "requantize", "model:", "gemmlowp"},
    {"tie", "matches_exact", "requantize", "model:gemmlowp@", "sse4"},
    {"unknown", "matches_exact", "dynamic_linear", "model:torch-onednn@", kOnednn, "", "got nan"},
    {"unknown", "matches_exact", "linear", "model:", "ruy"},
    {"unknown", "matches_exact", "quantize", "model:numpy@", "float32+half_clip"},
    {"unknown", "matches_exact", "table", "model:xnnpack2024@", "avx2 avx512"},
    {"unknown", "matches_exact", "table", "model:xnnpack2026@", "avx2 avx512"},
    {"unknown", "*", "add", "model:", "torch-qnnpack", "torch: PyTorch ",
     "failed to create QNNPACK Add operator"},
    {"unknown", "*", "choose_qparams", "model:", "torch-qnnpack", "torch: PyTorch ",
     "AssertionError: min "},
    {"unknown", "*", "choose_qparams", "model:torch-onednn@", kOnednn, "torch: PyTorch 1.13.",
     "AssertionError: min "},
    {"zero-point", "matches_exact", "depthwise", "model:onednn2@", "avx2 avx2vnni"},
    {"zero-point", "matches_exact", "depthwise", "model:onednn3@", "avx2"},
    {"zero-point", "matches_exact", "depthwise", "onednn@", "avx2 avx2vnni"},
    {"zero-point", "matches_exact", "linear", "model:numpy@", "float64+w_zp_from_x"},
};

std::vector<std::string> Words(const char* text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(DeclaredDivergences, AreTheseAndNoOthers) {
  using Row =
      std::tuple<std::string, std::string, std::string, std::string, std::string, std::string>;
  std::set<Row> expected, declared;
  for (const Excused& e : kExcused) {
    for (const std::string& claim : Words(e.claims)) {
      for (const std::string& op : Words(e.ops)) {
        for (const std::string& name : Words(e.names)) {
          std::vector<std::string> ends = Words(e.ends);
          if (ends.empty()) ends = {""};
          for (const std::string& end : ends)
            expected.emplace(e.family + name + end, op, claim, e.kind, e.library, e.shape);
        }
      }
    }
  }
  for (const ExpectedDivergence& row : DeclaredDivergences()) {
    declared.emplace(row.subject, row.op, row.property, row.kind, row.library, row.shape);
  }
  for (const Row& row : expected) {
    EXPECT_TRUE(declared.contains(row)) << "no longer excused: " << testing::PrintToString(row);
  }
  for (const Row& row : declared) {
    EXPECT_TRUE(expected.contains(row)) << "excused, and not here: " << testing::PrintToString(row);
  }
}

// x = 1 times weights 0 and 2, biases 0 and -1: a multiplier of 1 and two shifts.
TEST(OpenvinoMultipliesByOne, OnlyBeforeShiftsThatDiffer) {
  Case c;
  c.op = Op::kLinear;
  c.M = 1, c.N = 2, c.K = 1;
  c.x = Tensor(DType::kS8, {1, 1}), c.w = Tensor(DType::kS8, {2, 1});
  c.x.SetInt(0, 1), c.w.SetInt(1, 2);
  c.x_q = c.out_q = {{0x1.9413eep-4F}, {0}};
  c.w_q = {{1}, {0}};
  c.bias_i32 = {0, -1};
  c.out_dtype = DType::kU8;
  c.out_min = 0, c.out_max = 255;
  ASSERT_EQ(Validate(c), "");
  EXPECT_TRUE(OpenvinoMultipliesByOne(c));
  Case other = c;
  other.bias_i32 = {-1, -1};  // OpenVINO 2026.4.1 is right here, and in the next two
  EXPECT_FALSE(OpenvinoMultipliesByOne(other));
  other = c;
  other.x_q.zero_point = {3};
  EXPECT_FALSE(OpenvinoMultipliesByOne(other));
  other = c;
  other.bias_i32.reset();
  EXPECT_FALSE(OpenvinoMultipliesByOne(other));
  other = c;
  other.out_q.scale = {0.5F};
  EXPECT_FALSE(OpenvinoMultipliesByOne(other));
}

}  // namespace
}  // namespace qualm
