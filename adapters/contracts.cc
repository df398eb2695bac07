// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/kinds.h"
#include "core/op.h"
#include "core/status.h"
#include "core/verdict.h"
#include "core/weight_formats.h"

namespace qualm {
namespace {

constexpr const char* kFbgemmPairs =
    "without VNNI, vpmaddubsw adds two u8*s8 products in a saturating int16 "
    "(FBGEMM src/GenerateKernelU8S8S32ACC32.cc; pytorch/FBGEMM issue 125, pytorch issue 44939)";
constexpr const char* kGgmlLowest =
    "psignb gives activations the sign of the weight in 8 bits, where -128 has no negative: -128 "
    "times a negative weight has the wrong sign, so that q8_0 activations must be -127 to 127 "
    "(ggml src/ggml-cpu/arch/x86/quants.c, mul_sum_i8_pairs, mul_add_epi8; ggml issue 1393)";
constexpr const char* kGgmlNegated =
    "activations are negated in 8 bits, where -128 has no negative: -128 times a weight -1 has the "
    "wrong sign, so that q8_0 activations must be -127 to 127 (ggml "
    "src/ggml-cpu/arch/x86/quants.c, "
    "ggml_vec_dot_q1_0_q8_0)";
constexpr const char* kOnednnPairs =
    "without VNNI, vpmaddubsw adds two u8*s8 products in a saturating int16 "
    "(oneDNN developer guide, Nuances of int8 Computations; oneDNN issue 476)";
constexpr const char* kOnednnTie =
    "oneDNN 2 adds the zero point in float32 before it rounds: an odd one turns a tie the other "
    "way, and low bits are lost (post-op sum of destination scale and zero point)";
constexpr const char* kOnednnScale =
    "oneDNN 2 rounds the sum, its bias and the multiplier to float32 before the result is "
    "(post-op sum of destination scale and zero point)";
constexpr const char* kOnednnEnvironment =
    "oneDNN adds, multiplies and converts in the caller's rounding mode and flushing, as its own "
    "math::mxcsr_cvt says (oneDNN src/cpu/x64/jit_gemm_inner_product_utils.cpp, "
    "brgemm/jit_brgemm_kernel.cpp)";
constexpr const char* kOnednnReorder =
    "jit:uni forgets the compensation for the zero point of x where it transposes weights in tiles "
    "of 8 by 8, here 8 groups by 8 taps (oneDNN 2.6 and 3.7 src/cpu/x64/jit_uni_reorder.cpp, "
    "process_unroll_tr8x8)";
constexpr const char* kOnednnAdd =
    "each operand is multiplied by its scale in float32, and the products are added there (oneDNN "
    "2.6 src/cpu/x64/jit_uni_binary_kernel.cpp, perform_op)";
constexpr const char* kOnednnPool =
    "the pools of AVX2 load and store whole registers that reach before the first code where "
    "channels do not fill one (oneDNN 2.6 and 3.7 src/cpu/x64/jit_uni_i8i8_pooling.cpp, "
    "load_src_max_op, store_dst_max_op, store_dst_avg_op for avx2)";
constexpr const char* kOnednnNan =
    "the reference convolution multiplies by 0 what relu cuts off, and takes the low byte of "
    "INT32_MIN for NaN, which is 0 (oneDNN 2.6 src/common/math_utils.hpp, relu_fwd; "
    "src/cpu/simple_q10n.hpp, saturate_and_round)";
constexpr const char* kOnednnFivePixels =
    "five blocks of weights for five pixels lie in registers 25 to 29, and the sums of pairs and "
    "the ones that they are multiplied by in 28 and 29 (oneDNN 2.6 src/cpu/x64/"
    "jit_avx512_core_x8s8s32x_1x1_conv_kernel.hpp, vmm_tmp and vmm_one)";
constexpr const char* kOnednn3Nan =
    "relu comes before the output scale, whose reciprocal can be infinite; 0 times it is NaN, and "
    "saturates to the lowest code, below the zero point (oneDNN 3.7 src/cpu/x64, "
    "jit_brgemm_post_ops.cpp)";
constexpr const char* kOnednnStride =
    "brgemm takes dense rows only; others go to the gemm, which sums u8 codes as signed bytes "
    "where a zero point is no code and does not round s32 outputs to float32 (oneDNN "
    "src/cpu/matmul/gemm_x8s8s32x_matmul.cpp, post_process_src_and_weights_zero_points)";

constexpr const char* kFbgemmAcc16 =
    "the 16-bit kernels add saturated pairs in int16 and spill them to 32 bits too late for these "
    "weights (FBGEMM src/GenerateKernelU8S8S32ACC16.cc; its sparse outliers are not split off)";
constexpr const char* kFbgemmScale =
    "scale and sum are rounded to float32 before the result is (FBGEMM src/QuantUtilsAvx2.cc, "
    "requantizeOutputProcessingAvx2; PyTorch qlinear.cpp, output_multiplier_float)";
constexpr const char* kOnednn3Tie =
    "the zero point is added in float32 before rounding: an odd one turns a tie the other way "
    "(oneDNN 3.7.2 src/cpu/x64, post-ops of brgemm and gemm_x8s8s32x)";
constexpr const char* kOnednn3Scale =
    "the sum, the scales and the bias are rounded to float32 one after another before the result "
    "is (ideep, oneDNN 3.7.2 src/cpu/x64, post-ops of brgemm and gemm_x8s8s32x)";
constexpr const char* kOnednnSingleChannel =
    "with one channel in a group and a larger stride across than down, some outputs get pixels of "
    "other places, or what lay in a buffer; depthwise of whole vectors of 16 channels, with a "
    "kernel of one row and padding above or below, leaves the zero point of x in some outputs "
    "(oneDNN 3.12 src/cpu/x64/jit_brgemm_conv.cpp)";
constexpr const char* kZeroPointFirst =
    "the zero point is added before the rounding: an odd one turns a tie the other way (PyTorch "
    "2.13 AffineQuantizerBase.cpp; FBGEMM include/fbgemm/QuantUtils.h, Quantize, LEGACY)";
constexpr const char* kOrtPairs =
    "without VNNI, vpmaddubsw adds two u8*s8 products in a saturating int16 (ONNX Runtime "
    "documentation, Quantize ONNX Models: when and why reduce-range or U8U8)";
constexpr const char* kOrtSoftmaxOfOne =
    "of a row of one code the exponential times 256 is beyond float32: until 1.31 the infinity was "
    "converted to the lowest code, 1.32 clamps it to the highest (ONNX Runtime "
    "onnxruntime/contrib_ops/cpu/quantization/qlinear_softmax.cc)";
constexpr const char* kReciprocal =
    "x is multiplied by the float32 reciprocal of the scale (PyTorch affine_quantizer_base.cpp, "
    "FBGEMM include/fbgemm/QuantUtils.h, XNNPACK f32-to-code kernels)";
constexpr const char* kFloatQuotient =
    "x/scale is rounded to float32 before it is rounded to a code (ONNX Runtime "
    "onnxruntime/core/mlas/lib/quantize.cpp; TFLite kernels/internal/reference/quantize.h)";
constexpr const char* kQnnpackMultiplier =
    "the multiplier is fl(fl(sx*sw)*fl(1/sy)), one float32 (PyTorch QnnpackUtils.h, "
    "generate_requantization_scales)";
constexpr const char* kIdeepCache =
    "a primitive of the same shapes and scales is taken from a cache whose key leaves the zero "
    "points out (ideep b2f8044, include/ideep/attributes.hpp, attr_t::to_bytes)";
constexpr const char* kPackedRelu =
    "a packed layer keeps the primitive of its first run for the same scales, zero points and "
    "shape, with or without relu (PyTorch quantized/cpu/OnednnUtils.h, PrimitiveCacheKey)";
constexpr const char* kQnnpackRepack =
    "a packed layer computes its multipliers in the first run and again only when the scale of x "
    "has changed: another output scale gets the old ones (PyTorch quantized/cpu/qlinear.cpp and "
    "qconv.cpp, input_scale of the packed weights)";
constexpr const char* kQnnpackPadding =
    "a packed convolution pads with the zero point of x of its first run (PyTorch "
    "quantized/cpu/qconv.cpp, qnnpack/src/conv-prepack.cc: the operator's zero buffer)";
constexpr const char* kQnnpackMaxPool =
    "a tap in the padding reads the nearest pixel, which a dilated window may leave out (PyTorch "
    "qnnpack/src/indirection.c, pytorch_qnnp_indirection_init_maxpool2d)";
constexpr const char* kQnnpackAvgPool =
    "the divisor counts the padding, whatever count_include_pad says (PyTorch "
    "quantized/cpu/AveragePool2d.cpp, qnnpack_avg_pool2d)";
constexpr const char* kQnnpackAddRelu =
    "relu at output zero point 255 leaves one code, QNNPACK makes no operator for fewer than two, "
    "and PyTorch asserts that it did (PyTorch qnnpack/src/add.c; quantized/cpu/BinaryOps.cpp, "
    "qnnpack_add)";
constexpr const char* kMovingAverages =
    "min + c*(v - min) and max + c*(v - max) round each on its own, so equal values after others "
    "can put min above max, and PyTorch asserts that they do not (PyTorch "
    "torch/ao/quantization/utils.py, check_min_max_valid)";
constexpr const char* kAtenAdd =
    "add runs in float32: both operands are dequantized, and the sum is multiplied by the "
    "reciprocal of the scale (PyTorch quantized/cpu/kernels/QuantizedOpKernels.cpp, qadd_kernel)";
constexpr const char* kDynamicFloat =
    "x times the float32 reciprocal of its scale is rounded to a code, and the sum is multiplied "
    "and gets its bias in float32 (PyTorch quantized/cpu/qlinear_dynamic.cpp)";
constexpr const char* kReferenceRelu =
    "a sum without terms goes to oneDNN's reference, whose relu multiplies by 0: a bias that is "
    "-inf over the scales becomes NaN (oneDNN src/cpu/matmul/ref_matmul_int8.cpp)";
constexpr const char* kQnnpackReduceRange =
    "reduce_range is ignored, as a warning says (PyTorch quantized/cpu/qlinear_dynamic.cpp)";
constexpr const char* kOrtDynamic =
    "x over its scale is rounded to float32 before it is rounded to a code, and the sum is "
    "multiplied and gets its bias in float32 (ONNX Runtime onnxruntime/core/util/qmath.h; "
    "DynamicQuantizeLinear, MatMulInteger, Cast, Mul, Add)";
constexpr const char* kTvmFloat =
    "operands are dequantized and combined in float32, one product after the other, and the "
    "quotient by the scale is rounded to it too (TVM src/relax/op/tensor/qdq.cc, "
    "python/tvm/relax/transform/legalize_ops/qdq.py)";
constexpr const char* kMnnHalf =
    "x is multiplied by the float32 reciprocal of the scale; half is added away from zero and the "
    "fraction cut (MNN source/backend/cpu/x86_x64/sse, _SSE_MNNFloat2Int8)";
constexpr const char* kOpenvino =
    "scales and zero points become a float32 scale and shift, which the zero point of x, the bias "
    "and the scale of the sum change, each rounded (OpenVINO src/plugins/intel_cpu/src/nodes/"
    "fake_quantize.cpp, src/common/snippets/src/pass/fq_decomposition.cpp)";
constexpr const char* kOpenvinoPairs =
    "without VNNI, vpmaddubsw adds two products with s8 weights in a saturating int16; s8 codes of "
    "x are moved up by 128 for it (OpenVINO 2026.4.1's oneDNN; its developer guide, Nuances of "
    "int8 Computations)";
constexpr const char* kOpenvinoOne =
    "where scale of the sum times 1/scale of the output is 1, it is left out before biases that "
    "differ, and the sum is multiplied by its scale alone (OpenVINO 2026.4.1, CPU plugin; cause "
    "not known)";
constexpr const char* kRowScale =
    "the sum is multiplied by the reciprocal of the row's scale and divided by that of the "
    "weights, each in float32 (CTranslate2 src/cpu/kernels.cc, dequantize_gemm_output_row)";
constexpr const char* kTiesUp =
    "fixed point rounds ties toward +infinity (XNNPACK src/params-init.c, rndnu and add; XNNPACK "
    "4ea82e5 src/microparams-init.c, add; gemmlowp fixedpoint.h, as TFLite uses it)";

constexpr const char* kXnnpackEnvironment =
    "XNNPACK multiplies, converts and makes its tables in the caller's rounding mode; it sets only "
    "the flushing of denormals, and only while an operator runs (XNNPACK src/operator-run.c, "
    "PTHREADPOOL_FLAG_DISABLE_DENORMALS)";

constexpr const char* kFbgemmEnvironment =
    "FBGEMM multiplies and converts in the caller's rounding mode, and flushes denormals if the "
    "caller does (FBGEMM src/QuantUtilsAvx2.cc)";

constexpr const char* kPlain =
    "rounds in another way than to the nearest code, ties to even: std::round, a cast, a shift, or "
    "the zero point first";
constexpr const char* kNumpyNan =
    "NaN, of an input or where float32 overflows, passes numpy.clip, and astype makes it code 0 "
    "(numpy.clip; numpy.ndarray.astype on x86)";
constexpr const char* kDecomposedNan =
    "NaN, of an input or where float32 overflows, passes torch.clamp, and the conversion to a type "
    "of codes makes it code 0 (PyTorch torch/ao/quantization/fx/_decomposed.py)";
constexpr const char* kDecomposedAdd =
    "both operands are dequantized and added in float32, and the sum is multiplied by the "
    "reciprocal of the scale (PyTorch torch/ao/quantization/fx/_decomposed.py)";
constexpr const char* kOrtAdd =
    "scales over the output scale are rounded to float32, and the sum is computed in it (ONNX "
    "Runtime onnxruntime/core/mlas/lib/qladd.cpp)";
constexpr const char* kOrtWasmAdd =
    "the operands are dequantized, added, divided by the output scale and moved by its zero point "
    "in "
    "float32, each rounded (ONNX Runtime onnxruntime/core/mlas/lib/qladd.cpp, "
    "MlasQLinearAddKernelRawHelper)";
constexpr const char* kFixedPointAdd =
    "scales over the output scale are rounded to integers of some 20 bits (QNNPACK src/add.c; "
    "XNNPACK src/params-init.c, XNNPACK 4ea82e5 src/microparams-init.c, add minmax)";
constexpr const char* kXnnpack256ths =
    "the ratio of scales is rounded to 256ths, and so is that times the slope of leaky_relu "
    "(XNNPACK 4ea82e5 src/microparams-init.c, xnn_init_qs8_cvt_scalar_params, "
    "xnn_init_qs8_lrelu_scalar_params)";
constexpr const char* kXnnpack2024Ties =
    "codes that keep their type, and leaky_relu, round ties toward +infinity; others, and other "
    "functions, away from zero, in 2026 to even (XNNPACK 4ea82e5 src/qs8-vcvt/scalar.c.in, "
    "src/xnnpack/reference-utils.h)";
constexpr const char* kTfliteWraps =
    "what is beyond int32 is the end of int32, and the sum with the zero point wraps (TFLite "
    "kernels/internal/reference/quantize.h)";
constexpr const char* kTfliteQuantize =
    "TfLiteRound takes ties away from zero (TFLite kernels/internal/reference/quantize.h)";
constexpr const char* kTfliteHardSwish =
    "hard-swish is computed in 16-bit fixed point (TFLite kernels/internal/reference/hard_swish.h)";
constexpr const char* kLitertReference =
    "fixed point, and the float64 of linear, round ties away from zero; tables are made in "
    "float32, "
    "means of codes forget the zero point, softmax is computed in fixed point (LiteRT v2.2.0 "
    "tflite/kernels/internal/reference)";
constexpr const char* kLitertDynamic =
    "codes, choice and output of rows are float32 steps; in vectors the sign of x goes to the "
    "weight in 8 bits, where -128 has no opposite, and the sum of weights wraps in 16 bits (LiteRT "
    "v2.2.0 tflite/kernels/internal/optimized/sse_tensor_utils.cc, neon_tensor_utils.cc)";
constexpr const char* kXnnpackNibbles =
    "beside s4 weights the sum and its int32 bias are kept times 16 in an int32, which wraps from "
    "2^27 on (XNNPACK 75db3c0 src/reference/packing.cc, pack_qs8_qc4w_gemm_goi_w)";
constexpr const char* kXnnpackDynamic =
    "x is multiplied by a float32 reciprocal of the scale, whose reciprocal multiplies the sum; "
    "the "
    "scale of w and the bias follow in float32 (XNNPACK 75db3c0 src/xnnpack/quantization.h)";
constexpr const char* kLitertOptimized =
    "vectors round half up and add zero points in 16 bits, which wrap, so that 127 becomes -128 "
    "(LiteRT v2.2.0 tflite/kernels/internal/optimized, integer_ops/add.h and mul.h)";
constexpr const char* kTract =
    "quantize multiplies by the float32 reciprocal of the scale, the multiplier of a sum is one "
    "float32, per channel its product too, and a zero point is added in int32, which wraps (tract "
    "0.23 core/src/ops/quant.rs, core/src/ops/matmul/quant.rs)";
constexpr const char* kTorchaoMx =
    "rceil takes the ceiling of a float32 log2, which is the exponent itself just above a power of "
    "two: the scale is half as large, and the largest elements saturate; under the scale 2^-127 "
    "elements are divided by 2^-126 (torchao 0.18 prototype/mx_formats/mx_tensor.py)";
constexpr const char* kRuyFixedPoint =
    "the high half of the product with a 31-bit multiplier is rounded half up, and so is the shift "
    "behind it (ruy kernel_avx2_fma.cc, kernel_avx512.cc)";
constexpr const char* kGemmlowpFixedPoint =
    "the multiplier is a 31-bit fixed-point number, and its high product is rounded before the "
    "shift rounds again, ties away from zero (gemmlowp public/output_stages.h, fixedpoint.h)";

// A saturated pair changes the slope of a sweep, so every claim about numbers fails; a value that
// is rounded too early shows only against the exact answer.
constexpr std::array<const char*, 3> kNumbers{"matches_exact", "sweep_is_monotone",
                                              "sweep_is_linear"};
// No claim can be judged where the library ends in an error of its own.
constexpr const char* kAnyClaim = "*";
constexpr std::array<const char*, 4> kFbgemmVpmaddubsw{
    "model:fbgemm@avx2", "model:fbgemm@avx2+nofma", "model:fbgemm@avx512",
    "model:fbgemm@avx512+nofma"};
constexpr std::array<const char*, 4> kFbgemmSaturatingAcc16{
    "model:fbgemm@avx2+acc16", "model:fbgemm@avx2+acc16+nofma", "model:fbgemm@avx512+acc16",
    "model:fbgemm@avx512+acc16+nofma"};
constexpr std::array<const char*, 4> kFbgemmVnni{"model:fbgemm@vnni", "model:fbgemm@vnni+nofma",
                                                 "model:fbgemm@vnni+acc16",
                                                 "model:fbgemm@vnni+acc16+nofma"};
constexpr std::array<const char*, 7> kAten{
    "model:aten@aarch64",     "model:aten@avx2",    "model:aten@avx2+pt26",   "model:aten@avx512",
    "model:aten@avx512+pt26", "model:aten@default", "model:aten@default+pt26"};

constexpr std::array<const char*, 6> kOnednn2{"model:onednn2@sse41",    "model:onednn2@avx2",
                                              "model:onednn2@avx2vnni", "model:onednn2@avx512core",
                                              "model:onednn2@vnni",     "model:onednn2@amx"};
constexpr std::array<const char*, 4> kOnednn3{"model:onednn3@sse41", "model:onednn3@avx2",
                                              "model:onednn3@avx512core", "model:onednn3@vnni"};
constexpr std::array<const char*, 6> kTorchOnednn{
    "model:torch-onednn@sse41",      "model:torch-onednn@avx2", "model:torch-onednn@avx2vnni",
    "model:torch-onednn@avx512core", "model:torch-onednn@vnni", "model:torch-onednn@amx"};
constexpr std::array<const char*, 1> kTorchQnnpack{"model:torch-qnnpack"};
constexpr std::array<const char*, 4> kOnednn310{"model:onednn3.10@avx2",
                                                "model:onednn3.10@avx512core",
                                                "model:onednn3.10@vnni", "model:onednn3.10@amx"};
constexpr std::array<const char*, 4> kTorchX86{"model:torch-x86@avx2", "model:torch-x86@avx512core",
                                               "model:torch-x86@vnni", "model:torch-x86@amx"};
constexpr std::array<const char*, 4> kTorchFbgemm{
    "model:torch-fbgemm@avx2", "model:torch-fbgemm@avx2+held", "model:torch-fbgemm@avx512",
    "model:torch-fbgemm@avx512+held"};
constexpr std::array<const char*, 2> kWheelsQnnpack{"model:torch2.11-qnnpack",
                                                    "model:torch2.13-qnnpack"};
constexpr std::array<const char*, 3> kWheelsAten{
    "model:torch2.11-aten", "model:torch2.13-aten@avx2", "model:torch2.13-aten@avx512"};
constexpr std::array<const char*, 4> kXnnpack2024{
    "model:xnnpack2024@avx2", "model:xnnpack2024@avx512", "model:xnnpack2026@avx2",
    "model:xnnpack2026@avx512"};
constexpr std::array<const char*, 6> kXnnpack{"model:xnnpack@fp32", "model:xnnpack@rndnu",
                                              kXnnpack2024[0],      kXnnpack2024[1],
                                              kXnnpack2024[2],      kXnnpack2024[3]};

// Convolutions that jit_int8_1x1 of oneDNN 2.6 runs with more than four blocks of output channels
// over an image of five pixels.
bool HasFivePixelsAndFiveBlocks(const Case& c) {
  const Window& v = c.window;
  if (v.kernel_h * v.kernel_w != 1 || v.in_h * v.in_w != 5 || v.out_h() * v.out_w() != 5) {
    return false;
  }
  const int64_t in = v.in_c / v.groups, out = c.N / v.groups;
  const auto blocks_of = [&](int64_t block) { return in % block == 0 && out % block == 0; };
  const int64_t block = v.groups == 1 || blocks_of(16) ? 16 : blocks_of(8) ? 8 : 4;
  return out > 4 * block;
}

bool IsPlainDepthwise(const Case& c) {
  const Window& v = c.window;
  return v.groups > 1 && v.groups == c.N && v.in_c == v.groups;
}

// Convolutions of one channel in each group whose steps are wider than high. Plain depthwise ones
// have a kernel of their own.
bool HasSingleChannelAndWideSteps(const Case& c) {
  const Window& v = c.window;
  return v.in_c == v.groups && !IsPlainDepthwise(c) && v.stride_w > v.stride_h;
}

// Plain depthwise ones of whole vectors whose kernel has one row, so that windows lie wholly in the
// padding above or below.
bool HasOneRowAndPadding(const Case& c) {
  const Window& v = c.window;
  return IsPlainDepthwise(c) && v.groups % 16 == 0 && v.kernel_h == 1 &&
         (v.pad_top > 0 || v.pad_bottom > 0) && c.x_q.zero_point_at(0) != 0;
}

bool HasRowsOfOneCode(const Case& c) { return c.N == 1; }

// The library, and its version if it tells one, in which a fault was seen that is not part of its
// convention. (The program behind the pipe takes PyTorch 1.13, and 2.6 for the engine qnnpack,
// where the faults were seen in both.)
constexpr const char* kWheel = "torch: PyTorch 2.";
std::string LibraryOf(std::string_view convention) {
  constexpr std::array<std::pair<std::string_view, const char*>, 12> kLibraries{{
      {"model:onednn2@", "onednn: oneDNN 2.6."},
      {"model:onednn3@", "onednn: oneDNN 3.7."},
      {"model:onednn3.10@", kWheel},
      {"model:torch-qnnpack", "torch: PyTorch "},
      {"model:torch-x86@", kWheel},
      {"model:torch-fbgemm@", kWheel},
      {"model:torch2.", kWheel},
      {"model:torch-", "torch: PyTorch 1.13."},
      {"model:fbgemm@", "fbgemm: FBGEMM"},
      {"model:onnxruntime@", "onnxruntime-py: ONNX Runtime 1.32."},
      {"model:xnnpack@", "xnnpack: XNNPACK"},
      {"model:xnnpack2024@", "xnnpack: XNNPACK of 2024"},
  }};
  for (const auto& [prefix, library] : kLibraries) {
    if (convention.starts_with(prefix)) return library;
  }
  // A row about another claim than kNumbers needs its library above, or it would excuse nobody.
  QUALM_CHECK(!convention.starts_with("model:"));
  return "";  // the row names one subject
}

class Rows {
 public:
  // A subject that keeps a convention departs where the convention departs. Any other fault is the
  // library's own, and does not excuse others that promise the same convention.
  void Add(const char* subject, Op op, const char* property, FindingKind kind, const char* reason,
           const char* shape = "") {
    const bool of_convention =
        std::ranges::find(kNumbers, std::string_view(property)) != kNumbers.end();
    rows_.push_back({subject, std::string(Name(op)), property, std::string(Name(kind)), reason,
                     of_convention ? "" : LibraryOf(subject), shape});
  }
  // As Add, of a departure that is part of the convention though the claim is not about numbers.
  void AddOwn(const char* subject, Op op, const char* property, FindingKind kind,
              const char* reason) {
    rows_.push_back(
        {subject, std::string(Name(op)), property, std::string(Name(kind)), reason, "", ""});
  }
  // On these cases the claim does not hold, whatever the answer is. kAnyClaim: none does.
  void AddWhere(const char* subject, Op op, const char* property, const char* reason,
                bool (*where)(const Case&)) {
    Add(subject, op, property, FindingKind::kUnknown, reason);
    rows_.back().kind = "*";
    rows_.back().where = where;
  }
  // The same of one kind of wrong answer.
  void AddWhere(const char* subject, Op op, const char* property, FindingKind kind,
                const char* reason, bool (*where)(const Case&)) {
    AddWhere(subject, op, property, reason, where);
    rows_.back().kind = Name(kind);
  }
  void Add(std::span<const char* const> subjects, Op op, FindingKind kind, const char* reason,
           const char* shape = "") {
    for (const char* subject : subjects) Add(subject, op, "matches_exact", kind, reason, shape);
  }
  // Of a convention whose definition is to depart, whatever the cause is called.
  void AddByDefinition(const char* subject, Op op, const char* reason) {
    rows_.push_back({subject, std::string(Name(op)), "matches_exact", "*", reason, "", ""});
  }
  std::vector<ExpectedDivergence> Take() { return std::move(rows_); }

 private:
  std::vector<ExpectedDivergence> rows_;
};

void AddFbgemm(Rows& rows) {
  for (const char* subject : kFbgemmVpmaddubsw) {
    for (const char* property : kNumbers)
      rows.Add(subject, Op::kLinear, property, FindingKind::kPairSaturation, kFbgemmPairs);
  }
  for (const auto& subjects : {kFbgemmVpmaddubsw, kTorchFbgemm}) {
    for (const char* subject : subjects) {
      for (const Op op : {Op::kConv2d, Op::kDepthwise}) {
        for (const char* property : {"matches_exact", "sweep_is_linear"})
          rows.Add(subject, op, property, FindingKind::kPairSaturation, kFbgemmPairs);
      }
    }
  }
  for (const char* subject : kFbgemmSaturatingAcc16) {
    for (const char* property : kNumbers)
      rows.Add(subject, Op::kLinear, property, FindingKind::kPairSaturation, kFbgemmAcc16);
  }
  for (const auto& subjects : {kFbgemmVpmaddubsw, kFbgemmSaturatingAcc16, kFbgemmVnni})
    rows.Add(subjects, Op::kLinear, FindingKind::kRounding, kFbgemmScale);
  rows.Add(kFbgemmVpmaddubsw, Op::kQuantize, FindingKind::kRounding, kReciprocal);
  rows.Add(std::array{"model:fbgemm@vnni", "model:fbgemm@vnni+nofma", "model:fbgemm@scalar"},
           Op::kQuantize, FindingKind::kRounding, kReciprocal);
}

void AddOnednn(Rows& rows) {
  for (const char* subject :
       {"onednn@sse41", "onednn@avx2", "onednn@avx512core", "model:onednn2@sse41",
        "model:onednn2@avx2", "model:onednn2@avx512core", "model:onednn3@sse41",
        "model:onednn3@avx2", "model:onednn3@avx512core", "model:onednn3.10@avx2",
        "model:onednn3.10@avx512core"}) {
    for (const char* property : kNumbers)
      rows.Add(subject, Op::kLinear, property, FindingKind::kPairSaturation, kOnednnPairs);
    for (const char* property : {"matches_exact", "sweep_is_linear"})
      rows.Add(subject, Op::kConv2d, property, FindingKind::kPairSaturation, kOnednnPairs);
  }
  for (const char* subject : {"onednn@avx2", "onednn@avx2vnni", "model:onednn2@avx2",
                              "model:onednn2@avx2vnni", "model:onednn3@avx2"}) {
    rows.Add(subject, Op::kDepthwise, "matches_exact", FindingKind::kZeroPoint, kOnednnReorder);
  }
  for (const char* subject : kOnednn2) {
    for (const Op op : {Op::kLinear, Op::kQuantize})
      rows.Add(subject, op, "matches_exact", FindingKind::kTie, kOnednnTie);
    rows.Add(subject, Op::kLinear, "matches_exact", FindingKind::kRounding, kOnednnScale);
  }
  for (const char* subject : kOnednn3) {
    for (const Op op : {Op::kLinear, Op::kQuantize})
      rows.Add(subject, op, "matches_exact", FindingKind::kTie, kOnednn3Tie);
    rows.Add(subject, Op::kLinear, "matches_exact", FindingKind::kRounding, kOnednn3Scale);
    for (const Op op : {Op::kLinear, Op::kConv2d, Op::kDepthwise})
      rows.AddOwn(subject, op, "clamp", FindingKind::kClamp, kOnednn3Nan);
  }
  for (const auto& subjects : {std::span<const char* const>(kOnednn2), {kOnednn3}}) {
    rows.Add(subjects, Op::kQuantize, FindingKind::kRounding, kReciprocal);
    rows.Add(subjects, Op::kAdd, FindingKind::kRounding, kOnednnAdd);
    for (const char* subject : subjects) {
      for (const Op op : {Op::kLinear, Op::kConv2d, Op::kDepthwise, Op::kQuantize, Op::kDequantize,
                          Op::kRequantize, Op::kAdd, Op::kMul, Op::kAvgPool, Op::kGlobalAvgPool})
        rows.Add(subject, op, "environment", FindingKind::kRounding, kOnednnEnvironment);
    }
  }
  for (const char* subject :
       {"model:onednn2@sse41", "model:onednn2@avx2", "model:onednn2@avx2vnni",
        "model:torch-onednn@sse41", "model:torch-onednn@avx2", "model:torch-onednn@avx2vnni"}) {
    for (const Op op : {Op::kConv2d, Op::kDepthwise})
      rows.Add(subject, op, "clamp", FindingKind::kClamp, kOnednnNan);
  }
  for (const char* subject : {"model:onednn2@avx512core", "model:torch-onednn@avx512core"})
    rows.AddWhere(subject, Op::kConv2d, kAnyClaim, kOnednnFivePixels, HasFivePixelsAndFiveBlocks);
  for (const char* subject :
       {"model:onednn2@avx2", "model:onednn2@avx2vnni", "model:onednn3@avx2"}) {
    for (const Op op : {Op::kMaxPool, Op::kAvgPool, Op::kGlobalAvgPool}) {
      for (const char* property : {"no_stray_access", "alignment_and_stride"})
        rows.Add(subject, op, property, FindingKind::kMemory, kOnednnPool, "before the start of");
    }
  }
  for (const char* subject : {"model:onednn2@vnni", "model:onednn2@amx"})
    rows.Add(subject, Op::kLinear, "alignment_and_stride", FindingKind::kMemory, kOnednnStride,
             "the result changes");
}

// PyTorch's engines depart where the conventions of which they are composed depart.
void AddTorch(Rows& rows) {
  for (const char* subject :
       {"model:torch-onednn@sse41", "model:torch-onednn@avx2", "model:torch-onednn@avx512core"}) {
    for (const char* property : kNumbers)
      rows.Add(subject, Op::kLinear, property, FindingKind::kPairSaturation, kOnednnPairs);
  }
  for (const Op op : {Op::kLinear, Op::kConv2d, Op::kDepthwise}) {
    for (const char* subject : kTorchOnednn) {
      rows.Add(subject, op, "answer_independent_of_history", FindingKind::kNondeterminism,
               kIdeepCache);
      rows.Add(subject, op, "one_thing_changed", FindingKind::kNondeterminism, kIdeepCache,
               "zero point");
    }
    const auto remembers = [&](const char* subject, const char* property, const char* reason,
                               const char* shape) {
      rows.Add(subject, op, property, FindingKind::kNondeterminism, reason, shape);
    };
    remembers("torch@onednn+kept", "one_thing_changed", kPackedRelu, "relu changed");
    remembers("torch@qnnpack+kept", "one_thing_changed", kQnnpackRepack, "output scale changed");
    remembers("torch@qnnpack+kept", "answer_independent_of_history", kQnnpackRepack, "");
    if (op == Op::kLinear) continue;
    for (const char* property : {"one_thing_changed", "zero_point_shift"})
      remembers("torch@qnnpack+kept", property, kQnnpackPadding, "zero point");
  }
  rows.Add("torch@onednn+kept", Op::kDynamicLinear, "one_thing_changed",
           FindingKind::kNondeterminism, kPackedRelu, "relu changed");
  // Of the engine x86 the convolutions are oneDNN's.
  for (const Op op : {Op::kConv2d, Op::kDepthwise})
    rows.Add("torch@x86+kept", op, "one_thing_changed", FindingKind::kNondeterminism, kPackedRelu,
             "relu changed");
  rows.Add(kTorchOnednn, Op::kLinear, FindingKind::kTie, kOnednnTie);
  rows.Add(kTorchOnednn, Op::kLinear, FindingKind::kRounding, kOnednnScale);
  rows.Add(kTorchOnednn, Op::kAdd, FindingKind::kRounding, kAtenAdd);
  rows.Add(kTorchOnednn, Op::kQuantize, FindingKind::kRounding, kReciprocal);
  rows.Add(kTorchQnnpack, Op::kAdd, FindingKind::kTie, kTiesUp);  // sums of s8 are XNNPACK's
  rows.Add(kTorchOnednn, Op::kDynamicLinear, FindingKind::kRounding, kDynamicFloat);
  rows.Add(kTorchOnednn, Op::kDynamicLinear, FindingKind::kUnknown, kReferenceRelu, "got nan");
  for (const auto& subjects : {std::span<const char* const>(kTorchOnednn),
                               {kTorchQnnpack},
                               {kWheelsAten},
                               {kWheelsQnnpack}}) {
    for (const char* subject : subjects)
      rows.Add(subject, Op::kChooseQParams, kAnyClaim, FindingKind::kUnknown, kMovingAverages,
               "AssertionError: min ");
  }
  // Of the engine qnnpack in every version.
  for (const auto& subjects : {std::span<const char* const>(kTorchQnnpack), {kWheelsQnnpack}}) {
    rows.Add(subjects, Op::kLinear, FindingKind::kRounding, kQnnpackMultiplier);
    rows.Add(subjects, Op::kAdd, FindingKind::kRounding, kFixedPointAdd);
    rows.Add(subjects, Op::kQuantize, FindingKind::kRounding, kReciprocal);
    rows.Add(subjects, Op::kDynamicLinear, FindingKind::kRounding, kDynamicFloat);
    rows.Add(subjects, Op::kDynamicLinear, FindingKind::kClamp, kQnnpackReduceRange);
    rows.Add(subjects, Op::kMaxPool, FindingKind::kIndex, kQnnpackMaxPool);
    rows.Add(subjects, Op::kAvgPool, FindingKind::kPadding, kQnnpackAvgPool);
    for (const char* subject : subjects)
      rows.Add(subject, Op::kAdd, kAnyClaim, FindingKind::kUnknown, kQnnpackAddRelu,
               "failed to create QNNPACK Add operator");
  }
}

// The official wheels: of FBGEMM's and oneDNN's sums, what PyTorch's own libraries add.
void AddWheels(Rows& rows) {
  for (const char* subject : {"model:torch-x86@avx2", "model:torch-x86@avx512core"}) {
    for (const char* property : {"matches_exact", "sweep_is_linear"})
      rows.Add(subject, Op::kConv2d, property, FindingKind::kPairSaturation, kOnednnPairs);
  }
  for (const Op op : {Op::kLinear, Op::kQuantize})
    rows.Add(kOnednn310, op, FindingKind::kTie, kOnednn3Tie);
  rows.Add(kOnednn310, Op::kQuantize, FindingKind::kRounding, kReciprocal);
  rows.Add(kOnednn310, Op::kAdd, FindingKind::kRounding, kOnednnAdd);
  rows.Add(kOnednn310, Op::kLinear, FindingKind::kRounding, kOnednn3Scale);
  for (const auto& subjects : {std::span<const char* const>(kOnednn310), {kTorchX86}}) {
    for (const char* subject : subjects) {
      for (const Op op : {Op::kConv2d, Op::kDepthwise}) {
        rows.AddOwn(subject, op, "clamp", FindingKind::kClamp, kOnednn3Nan);
        if (std::string_view(subject).ends_with("@avx2")) continue;
        rows.AddWhere(subject, op, kAnyClaim, kOnednnSingleChannel, [](const Case& c) {
          return HasSingleChannelAndWideSteps(c) || HasOneRowAndPadding(c);
        });
      }
    }
  }
  for (const char* subject : kOnednn310) {
    rows.AddOwn(subject, Op::kLinear, "clamp", FindingKind::kClamp, kOnednn3Nan);
  }
  // With AVX-512 one scale after the other, which no cause of ours does.
  for (const char* subject : kOnednn310) {
    const bool in_turn = !std::string_view(subject).ends_with("@avx2");
    rows.Add(subject, Op::kDynamicLinear, "matches_exact",
             in_turn ? FindingKind::kUnknown : FindingKind::kRounding, kDynamicFloat);
  }
  rows.Add(kFbgemmVpmaddubsw, Op::kDynamicLinear, FindingKind::kRounding, kDynamicFloat);
  rows.Add(std::array{"model:fbgemm@vnni", "model:fbgemm@vnni+nofma"}, Op::kDynamicLinear,
           FindingKind::kRounding, kDynamicFloat);
  rows.Add(kWheelsAten, Op::kAdd, FindingKind::kRounding, kAtenAdd);
  rows.Add(kWheelsAten, Op::kQuantize, FindingKind::kRounding, kReciprocal);
  for (const char* subject : {kWheelsAten[1], kWheelsAten[2], kWheelsQnnpack[1]}) {
    for (const Op op : {Op::kQuantize, Op::kConcat})
      rows.Add(subject, op, "matches_exact", FindingKind::kTie, kZeroPointFirst);
  }
}

// What PT2E converts, not compiled.
void AddDecomposed(Rows& rows) {
  const char* const subject = "model:torch-decomposed";
  for (const Op op : {Op::kQuantize, Op::kRescale})
    rows.Add(std::array{subject}, op, FindingKind::kRounding, kReciprocal);
  rows.Add(std::array{subject}, Op::kAdd, FindingKind::kRounding, kDecomposedAdd);
  for (const Op op : {Op::kQuantize, Op::kRescale, Op::kAdd, Op::kSub, Op::kMul, Op::kLinear,
                      Op::kConv2d, Op::kDepthwise})
    rows.AddOwn(subject, op, "clamp", FindingKind::kClamp, kDecomposedNan);
  rows.Add(std::array{"model:torchao-mx"}, Op::kChooseQParams, FindingKind::kRounding, kTorchaoMx);
}

// Each row names a convention, but excuses only libraries that keep it: they follow the rounding
// mode of their caller, the convention does not.
void AddEnvironments(Rows& rows) {
  for (const auto* conventions : {&kFbgemmVpmaddubsw, &kFbgemmSaturatingAcc16, &kFbgemmVnni}) {
    for (const char* convention : *conventions) {
      const auto follows = [&](Op op) {
        rows.Add(convention, op, "environment", FindingKind::kRounding, kFbgemmEnvironment);
      };
      follows(Op::kLinear);
      if (std::string_view(convention).find("+acc16") != std::string_view::npos) continue;
      for (const Op op :
           {Op::kQuantize, Op::kDequantize, Op::kRequantize, Op::kConv2d, Op::kDepthwise})
        follows(op);
    }
  }
  for (const char* convention : {"model:xnnpack@fp32", kXnnpack2024[0], kXnnpack2024[1]}) {
    const auto follows = [&](Op op) {
      rows.Add(convention, op, "environment", FindingKind::kRounding, kXnnpackEnvironment);
    };
    for (const Op op : {Op::kQuantize, Op::kDequantize, Op::kLinear, Op::kConv2d, Op::kDepthwise,
                        Op::kAvgPool, Op::kGlobalAvgPool, Op::kTable, Op::kSoftmax}) {
      follows(op);
    }
    for (const Op op : OpsWhere(HasTwoOperands)) follows(op);
  }
  for (const char* convention : {kXnnpack2024[0], kXnnpack2024[1]}) {
    rows.Add(convention, Op::kRescale, "environment", FindingKind::kRounding, kXnnpackEnvironment);
  }
}

void AddOthers(Rows& rows) {
  for (const char* property : kNumbers) {
    rows.Add("model:onnxruntime@avx2", Op::kLinear, property, FindingKind::kPairSaturation,
             kOrtPairs);
  }
  for (const char* property : {"matches_exact", "sweep_is_linear"}) {
    rows.Add("model:onnxruntime@avx2", Op::kConv2d, property, FindingKind::kPairSaturation,
             kOrtPairs);
  }
  rows.Add(std::array{"model:onnxruntime@avx2", "model:onnxruntime@sse41", "model:onnxruntime@vnni",
                      "model:onnxruntime@wasm", "model:tflite@double", "model:tflite@single"},
           Op::kQuantize, FindingKind::kRounding, kFloatQuotient);
  rows.Add(std::array{"model:qnnpack"}, Op::kQuantize, FindingKind::kRounding, kReciprocal);
  rows.Add(kXnnpack, Op::kQuantize, FindingKind::kRounding, kReciprocal);
  rows.Add(kAten, Op::kQuantize, FindingKind::kRounding, kReciprocal);
  rows.Add(kAten, Op::kAdd, FindingKind::kRounding, kAtenAdd);
  for (const Op op : {Op::kRequantize, Op::kLinear})
    rows.Add(std::array{"model:qnnpack"}, op, FindingKind::kRounding, kQnnpackMultiplier);
  rows.Add(std::array{"model:qnnpack"}, Op::kAdd, FindingKind::kRounding, kFixedPointAdd);
  for (const Op op : OpsWhere(AddsOperands)) {
    rows.Add(kXnnpack, op, FindingKind::kRounding, kFixedPointAdd);
    rows.Add(kXnnpack, op, FindingKind::kTie, kTiesUp);
  }
  rows.Add(kXnnpack2024, Op::kRescale, FindingKind::kRounding, kXnnpack256ths);
  rows.Add(kXnnpack2024, Op::kRescale, FindingKind::kTie, kXnnpack2024Ties);
  // No cause of ours has a ratio for each sign.
  rows.Add(kXnnpack2024, Op::kTable, FindingKind::kUnknown, kXnnpack256ths);
  rows.Add(kXnnpack2024, Op::kTable, FindingKind::kTie, kXnnpack2024Ties);
  rows.Add(
      std::array{"model:onnxruntime@avx2", "model:onnxruntime@sse41", "model:onnxruntime@vnni"},
      Op::kAdd, FindingKind::kRounding, kOrtAdd);
  for (const FindingKind kind : {FindingKind::kRounding, FindingKind::kTie})
    rows.Add("model:onnxruntime@wasm", Op::kAdd, "matches_exact", kind, kOrtWasmAdd);
  for (const char* subject :
       {"model:onnxruntime@avx2", "model:onnxruntime@sse41", "model:onnxruntime@vnni"}) {
    for (const char* claim : {"matches_exact", "matches_model"})
      rows.AddWhere(subject, Op::kSoftmax, claim, kOrtSoftmaxOfOne, HasRowsOfOneCode);
  }
  rows.Add(std::array{"model:onnx@reference", "model:onnxruntime@avx2", "model:onnxruntime@sse41",
                      "model:onnxruntime@vnni", "model:onnxruntime@wasm"},
           Op::kDynamicLinear, FindingKind::kRounding, kOrtDynamic);
  for (const Op op : {Op::kQuantize, Op::kAdd, Op::kLinear, Op::kDynamicLinear})
    rows.Add("model:tvm", op, "matches_exact", FindingKind::kRounding, kTvmFloat);
  for (const FindingKind kind : {FindingKind::kRounding, FindingKind::kTie})
    rows.Add("model:mnn", Op::kQuantize, "matches_exact", kind, kMnnHalf);
  rows.Add("model:ctranslate2", Op::kLinear, "matches_exact", FindingKind::kRounding, kRowScale);
  const auto tflite = std::array{"model:tflite@double", "model:tflite@single"};
  for (const Op op : {Op::kMul, Op::kRequantize, Op::kLinear, Op::kConv2d, Op::kDepthwise}) {
    rows.Add(tflite, op, FindingKind::kTie, kTiesUp);
    rows.Add(std::array{"model:xnnpack@rndnu"}, op, FindingKind::kTie, kTiesUp);
  }
  rows.Add(tflite, Op::kAdd, FindingKind::kTie, kTiesUp);
  rows.Add(tflite, Op::kQuantize, FindingKind::kTie, kTfliteQuantize);
  rows.Add(tflite, Op::kQuantize, FindingKind::kInt32Overflow, kTfliteWraps);
  rows.Add(tflite, Op::kTable, FindingKind::kRounding, kTfliteHardSwish);
  for (const Op op :
       {Op::kQuantize, Op::kRescale, Op::kAdd, Op::kSub, Op::kMul, Op::kLinear, Op::kConv2d,
        Op::kDepthwise, Op::kAvgPool, Op::kGlobalAvgPool, Op::kConcat, Op::kTable}) {
    rows.AddByDefinition("model:tflite@reference", op, kLitertReference);
    rows.AddByDefinition("model:tflite@builtin", op, kLitertOptimized);
  }
  rows.AddByDefinition("model:tflite@reference", Op::kSoftmax, kLitertReference);
  for (const char* subject : {"model:tflite@reference", "model:tflite@builtin"})
    rows.AddByDefinition(subject, Op::kDynamicLinear, kLitertDynamic);
  for (const char* subject : {kXnnpack2024[2], kXnnpack2024[3]}) {
    rows.AddByDefinition(subject, Op::kDynamicLinear, kXnnpackDynamic);
    rows.AddByDefinition(subject, Op::kLinear, kXnnpackNibbles);
  }
  rows.AddByDefinition("model:tflite@builtin", Op::kDequantize, kLitertOptimized);
  for (const FindingKind kind : {FindingKind::kRounding, FindingKind::kTie}) {
    for (const Op op : {Op::kLinear, Op::kRequantize})
      rows.Add("model:ruy", op, "matches_exact", kind, kRuyFixedPoint);
  }
  // No cause of ours rounds twice, so none is named on cases of many outputs.
  rows.Add("model:ruy", Op::kLinear, "matches_exact", FindingKind::kUnknown, kRuyFixedPoint);
  for (const Op op : {Op::kQuantize, Op::kRescale, Op::kLinear, Op::kConv2d, Op::kDepthwise})
    rows.AddByDefinition("model:tract", op, kTract);
  for (const char* property : kNumbers) {
    rows.Add("model:openvino@avx2", Op::kLinear, property, FindingKind::kPairSaturation,
             kOpenvinoPairs);
  }
  for (const Op op : {Op::kQuantize, Op::kDequantize, Op::kLinear}) {
    for (const char* subject : {"model:openvino", "model:openvino@avx2"})
      rows.AddByDefinition(subject, op, kOpenvino);
  }
  for (const char* claim : {"matches_exact", "matches_model"})
    rows.AddWhere("openvino", Op::kLinear, claim, kOpenvinoOne, OpenvinoMultipliesByOne);
  for (const char* subject : {"model:gemmlowp", "model:gemmlowp@sse4"}) {
    for (const FindingKind kind : {FindingKind::kRounding, FindingKind::kTie})
      rows.Add(subject, Op::kRequantize, "matches_exact", kind, kGemmlowpFixedPoint);
  }
}

// Whether an activation -128 meets a weight below its zero point.
bool MeetsLowestAndNegative(const Case& c) {
  if (c.x.dtype() != DType::kS8 || c.w_block == 0) return false;
  for (int64_t i = 0; i < c.x.size(); ++i) {
    if (c.x.IntAt(i) != INT8_MIN) continue;
    const int64_t k = i % c.K;
    for (int64_t n = 0; n < c.N; ++n) {
      if (c.w.IntAt(n * c.K + k) < c.w_q.zero_point[WEntry(c, n, k)]) return true;
    }
  }
  return false;
}

constexpr const char* kGgmlEnvironment =
    "ggml multiplies and adds float32 in the caller's rounding mode, and flushes denormals if the "
    "caller does (ggml src/ggml-cpu/quants.c, repack.cpp, src/ggml-cpu/arch/x86/quants.c)";

// Of these each was run; first the one without psignb, then the one that has it for q4_0 alone. The
// wrong sign was seen on all others with every format.
constexpr std::array kGgmlSets{
    "ggml@x64",         "ggml@sse42",    "ggml@alderlake", "ggml@cannonlake", "ggml@cascadelake",
    "ggml@cooperlake",  "ggml@haswell",  "ggml@icelake",   "ggml@ivybridge",  "ggml@piledriver",
    "ggml@sandybridge", "ggml@skylakex", "ggml@zen4"};

constexpr const char* kGgmlQuantize =
    "x is multiplied by the float32 reciprocal of its scale, and half goes up where half is added "
    "and the fraction cut, of q8_0 without AVX away from zero (ggml src/ggml-quants.c, "
    "quantize_row_q8_0_ref, quantize_row_q4_0_ref; src/ggml-cpu/arch/x86/quants.c, "
    "quantize_row_q8_0)";
constexpr const char* kGgmlNegativeZero =
    "a block whose largest weight is positive has a negative integer for its scale, and 0 times it "
    "is -0 (ggml src/ggml-quants.c, dequantize_row_q3_K, dequantize_row_q6_K)";

// Whether a dequantize has a weight 0 in a block with a larger weight above 0 than below it.
bool HasZeroUnderAPositiveLargest(const Case& c) {
  if (!HasElementBlocks(c)) return false;
  for (int64_t first = 0, end = 0; first < c.x.size(); first = end) {
    end = std::min(first + c.x_block, (first / c.N + 1) * c.N);
    int32_t least = 0, most = 0;
    bool zero = false;
    for (int64_t i = first; i < end; ++i) {
      least = std::min(least, c.x.IntAt(i));
      most = std::max(most, c.x.IntAt(i));
      zero |= c.x.IntAt(i) == 0;
    }
    if (zero && most > -least) return true;
  }
  return false;
}

// Of a format that is named, or of q8_0 and q4_0.
void AddGgmlSubject(Rows& rows, const char* subject, const WeightFormat* format) {
  const auto follows = [&](Op op) {
    rows.Add(subject, op, "environment", FindingKind::kRounding, kGgmlEnvironment);
  };
  follows(Op::kLinear);
  if (format == nullptr || std::ranges::count(kQuantizedFormats, format) != 0)
    follows(Op::kQuantize);
  if (format == nullptr) return;
  // Of other formats nothing is rounded and nothing denormal.
  if (format->minima || format->scales == BlockScales::kPowers)
    rows.AddWhere(subject, Op::kDequantize, "environment", kGgmlEnvironment, nullptr);
  if (!format->either_sign) return;
  for (const char* claim : {"matches_exact", "environment"})
    rows.AddWhere(subject, Op::kDequantize, claim, kGgmlNegativeZero, HasZeroUnderAPositiveLargest);
}

void AddGgml(Rows& rows) {
  for (const char* convention : {"model:ggml@avx", "model:ggml@c"})
    rows.AddByDefinition(convention, Op::kQuantize, kGgmlQuantize);
  std::vector<const WeightFormat*> formats{nullptr};
  formats.insert(formats.end(), kNamedFormats.begin(), kNamedFormats.end());
  for (const WeightFormat* format : formats) {
    const std::string name = format == nullptr ? "" : "+" + std::string(format->name);
    for (const std::string set : kGgmlSets) {
      for (const char* kernels : {"", "+generic"})
        AddGgmlSubject(rows, (set + name + kernels).c_str(), format);
    }
    // Of q2_0 there is plain C alone. With q8_1 and q8_K the codes of weights that are multiplied
    // have no sign, but for iq4_xs.
    if (format == &kQ2_0) continue;
    if (format != nullptr && format->x != BlockActivations::kQ8_0 && format != &kIq4Xs) continue;
    const bool from_sse42 = format == nullptr || format == &kQ1_0;
    for (const std::string set : std::span(kGgmlSets).subspan(from_sse42 ? 1 : 2)) {
      for (const char* claim : {"matches_exact", "matches_model"})
        rows.AddWhere((set + name).c_str(), Op::kLinear, claim, FindingKind::kIndex,
                      format == &kQ1_0 ? kGgmlNegated : kGgmlLowest, MeetsLowestAndNegative);
    }
  }
}

constexpr const char* kGgmlRepackedLowest =
    "psignb gives activations the sign of the weight in 8 bits, where -128 has no negative: -128 "
    "times a negative weight has the wrong sign (ggml src/ggml-cpu/arch/x86/repack.cpp, "
    "mul_sum_i8_pairs_acc_int32x8)";
constexpr const char* kGgmlOtherRows =
    "without AVX2 the gemm of eight rows in turn calls that of four, which reads the weights of "
    "other rows (ggml src/ggml-cpu/arch/x86/repack.cpp, ggml_gemm_iq4_nl_8x8_q8_0)";

// Weights that are repacked by eight rows, and multiplied by all rows of x at once or by one.
void AddGgmlRepacked(Rows& rows) {
  constexpr std::array<std::string_view, 5> kWithoutAvx2{"ggml@x64", "ggml@sse42", "ggml@ivybridge",
                                                         "ggml@piledriver", "ggml@sandybridge"};
  for (const WeightFormat* format : kRepackedFormats) {
    for (const std::string set : kGgmlSets) {
      const bool avx2 = std::ranges::find(kWithoutAvx2, set) == kWithoutAvx2.end();
      const std::string of = set + "+" + std::string(format->name);
      for (const char* claim : {"matches_exact", "matches_model"}) {
        if (avx2 && format->x == BlockActivations::kQ8_0)
          rows.AddWhere((of + "+gemv").c_str(), Op::kLinear, claim, FindingKind::kIndex,
                        kGgmlRepackedLowest, MeetsLowestAndNegative);
      }
      if (!avx2 && format == &kIq4Nl)
        rows.AddWhere((of + "+gemm").c_str(), Op::kLinear, kAnyClaim, kGgmlOtherRows, nullptr);
      for (const char* kernels : {"+gemm", "+gemv", "+gemm+generic", "+gemv+generic"})
        rows.Add((of + kernels).c_str(), Op::kLinear, "environment", FindingKind::kRounding,
                 kGgmlEnvironment);
    }
  }
}

// Computations that people made by hand; corpus/forum has their numbers.
void AddNumpy(Rows& rows) {
  for (const Op op : {Op::kQuantize, Op::kLinear, Op::kAdd, Op::kMul})
    rows.AddOwn("model:numpy@float32", op, "clamp", FindingKind::kClamp, kNumpyNan);
  rows.AddOwn("model:numpy@float64", Op::kQuantize, "clamp", FindingKind::kClamp, kNumpyNan);
  rows.Add("model:numpy@float32", Op::kQuantize, "matches_exact", FindingKind::kRounding,
           "the quotient is rounded to float32 before it is rounded to a code (numpy.float32)");
  rows.Add("model:numpy@float32", Op::kAdd, "matches_exact", FindingKind::kRounding,
           "dequantized operands are added and divided in float32 (numpy.float32)");
  rows.Add("model:numpy@float32+half_clip", Op::kQuantize, "matches_exact", FindingKind::kUnknown,
           "clips where reduce_range calibrates to, which no library does (forum thread 001)");
  rows.Add("model:numpy@float64+w_zp_from_x", Op::kLinear, "matches_exact", FindingKind::kZeroPoint,
           "subtracts the weight zero point from the input (forum thread 002)");
}

// Roundings by definition, from the exact value or from a float32.
void AddPlain(Rows& rows) {
  const auto departs = [&](const char* subject, Op op) {
    rows.AddByDefinition(subject, op, kPlain);
  };
  for (const Op op : OpsWhere(HasOutQParams)) {
    for (const char* subject :
         {"model:plain@away", "model:plain@away+zp_first", "model:plain@up", "model:plain@floor",
          "model:plain@truncate", "model:plain@truncate+zp_first"})
      departs(subject, op);
  }
  for (const Op op : {Op::kLinear, Op::kQuantize, Op::kConcat})
    departs("model:plain@even+zp_first", op);
  for (const Op op : {Op::kLinear, Op::kConv2d, Op::kDepthwise}) {
    for (const char* subject : {"model:plain@truncate", "model:plain@truncate+zp_first"})
      rows.Add(subject, op, "sweep_is_linear", FindingKind::kRounding, kPlain);
  }
  for (const Op op :
       {Op::kQuantize, Op::kRequantize, Op::kRescale, Op::kAdd, Op::kSub, Op::kMul, Op::kLinear,
        Op::kConv2d, Op::kDepthwise, Op::kDynamicLinear, Op::kChooseQParams})
    departs("model:plain@float32+away", op);
}

}  // namespace

// Rows name conventions if they can, because the contract of "onednn" depends on the CPU. `audit`
// requires to see a row only if it asks the subject and the claim of the row.
std::vector<ExpectedDivergence> DeclaredDivergences() {
  Rows rows;
  AddFbgemm(rows);
  AddOnednn(rows);
  AddTorch(rows);
  AddWheels(rows);
  AddDecomposed(rows);
  AddEnvironments(rows);
  AddOthers(rows);
  AddGgml(rows);
  AddGgmlRepacked(rows);
  AddNumpy(rows);
  AddPlain(rows);
  return rows.Take();
}

}  // namespace qualm
