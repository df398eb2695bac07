// SPDX-License-Identifier: Apache-2.0
// C++ against oneDNN 2.x and 3.x, with the attributes that PyTorch sets through ideep (for 2.x as
// of b2f8044, for 3.x as of 17b47f4). benchdnn draws its own data, so no command of it holds a
// case.
#include <fmt/format.h>

#include "exporters/evidence.h"

namespace qualm::exporters {
namespace {

constexpr std::string_view kHelpers = R"(
[[maybe_unused]] float Reciprocal(float scale) { return float(1.0 / double(scale)); }

// A tensor of oneDNN over these values, where they lie.
template <class T>
memory Memory(const dnnl::engine& engine, const memory::desc& desc, const std::vector<T>& values) {
  return memory(desc, engine, const_cast<T*>(values.data()));
}

template <class Primitive, class... Operands>
typename Primitive::primitive_desc Describe(const dnnl::engine& engine,
                                            const dnnl::primitive_attr& attributes,
                                            const Operands&... operands) {
#if DNNL_VERSION_MAJOR == 2
  return {typename Primitive::desc(operands...), attributes, engine};
#else
  return {engine, operands..., attributes};
#endif
}

// oneDNN 2 has scales and zero points in the attributes. oneDNN 3 has masks there, and is given the
// values with each run, as further arguments.
struct Quantization {
  const dnnl::engine& engine;
  std::unordered_map<int, memory> arguments;  // the operands stand here too
  dnnl::primitive_attr attributes = {};

#if DNNL_VERSION_MAJOR == 2
  void Scales(int argument, int mask, const std::vector<float>& values) {
    attributes.set_scales(argument, mask, values);
  }
  void ZeroPoint(int argument, int32_t value) { attributes.set_zero_points(argument, 0, {value}); }
#else
  template <class T>
  void Give(int argument, type element, const std::vector<T>& values) {
    memory given({{int64_t(values.size())}, element, memory::format_tag::x}, engine);
    std::memcpy(given.get_data_handle(), values.data(), values.size() * sizeof(T));
    arguments.emplace(argument, given);
  }
  void Scales(int argument, int mask, const std::vector<float>& values) {
    attributes.set_scales_mask(argument, mask);
    Give(DNNL_ARG_ATTR_SCALES | argument, type::f32, values);
  }
  void ZeroPoint(int argument, int32_t value) {
    attributes.set_zero_points_mask(argument, 0);
    Give(DNNL_ARG_ATTR_ZERO_POINTS | argument, type::s32, std::vector<int32_t>{value});
  }
#endif
  void Relu() {
    dnnl::post_ops operations;
#if DNNL_VERSION_MAJOR == 2
    operations.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
#else
    operations.append_eltwise(dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
#endif
    attributes.set_post_ops(operations);
  }
};
)";

// $bias_2$ and $bias_3$: the bias in units of the sum, and the real one.
constexpr std::string_view kSums = R"(  std::vector<float> given_bias;
#if DNNL_VERSION_MAJOR == 2
  // Scales as ideep computes them: output scales fl(fl(1/out) / fl(fl(1/x) * fl(1/w))).
  std::vector<float> output_scales;
  for (const float scale : w_scale) {
    const float product = Reciprocal(x_scale) * Reciprocal(scale);
    output_scales.push_back($out$ / product);
  }
$scales_2$$bias_2$#else
$scales_3$$bias_3$#endif
$x_zp$$w_zp$$out_zp$$relu$)";

// As ideep does, a scale of 1 is left out.
constexpr std::string_view kScales3 =
    R"(  // ideep is given the reciprocals of the scales, and gives oneDNN the reciprocals of these.
  const auto scales = [&](int argument, int mask, const std::vector<float>& of) {
    std::vector<float> values;
    for (const float scale : of) values.push_back(1.0f / Reciprocal(scale));
    if (values == std::vector<float>(values.size(), 1.0f)) return;
    quantized.Scales(argument, values.size() == 1 ? 0 : mask, values);
  };
  scales(DNNL_ARG_SRC, 0, {x_scale});
  scales(DNNL_ARG_WEIGHTS, $channels$, {w_scale.begin(), w_scale.end()});
$out$)";

constexpr std::string_view kLinear =
    R"(  const memory::desc source({M, K}, type::$x$, memory::dims{K, 1});
  const memory::desc destination({M, N}, type::$y$, memory::dims{N, 1});
  const memory::desc given({K, N}, type::s8, memory::dims{1, K});  // w is [N, K]
  const memory::desc any({K, N}, type::s8, memory::format_tag::any);
  const memory::desc bias_desc({1, N}, type::f32, memory::format_tag::ab);
  const auto primitive = Describe<dnnl::matmul>(engine, quantized.attributes, source, any$bias_argument$,
                                                destination);
  memory weights(primitive.weights_desc(), engine), plain = Memory(engine, given, w);
  dnnl::reorder(plain, weights).execute(stream, plain, weights);
  quantized.arguments.insert({{DNNL_ARG_SRC, Memory(engine, source, x)},
                              {DNNL_ARG_WEIGHTS, weights},
$bias_memory$                              {DNNL_ARG_DST, Memory(engine, destination, y)}});
  dnnl::matmul(primitive).execute(stream, quantized.arguments);
)";

constexpr std::string_view kConv = R"(  const auto nhwc = memory::format_tag::nhwc;
  const memory::desc source({batch, C, H, W}, type::$x$, nhwc);
  const memory::desc destination({batch, N, OH, OW}, type::$y$, nhwc);
  std::vector<int8_t> channels_first(w.size());  // w is [N, R, S, C / groups]
  const int64_t depth = C / groups, taps = R * S;
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (int64_t c = 0; c < depth; ++c)
        channels_first[(n * depth + c) * taps + tap] = w[(n * taps + tap) * depth + c];
    }
  }
  const memory::dims shape$shape$;
  const memory::desc given(shape, type::s8, memory::format_tag::$tag$);
  const memory::desc any(shape, type::s8, memory::format_tag::any);
  const memory::desc bias_desc({N}, type::f32, memory::format_tag::x);
  using dims = memory::dims;
  const auto primitive = Describe<dnnl::convolution_forward>(
      engine, quantized.attributes, dnnl::prop_kind::forward_inference,
      dnnl::algorithm::convolution_direct, source, any$bias_argument$, destination,
      dims{stride_h, stride_w}, dims{dilation_h - 1, dilation_w - 1}, dims{pad_top, pad_left},
      dims{pad_bottom, pad_right});
  memory weights(primitive.weights_desc(), engine), plain = Memory(engine, given, channels_first);
  dnnl::reorder(plain, weights).execute(stream, plain, weights);
  quantized.arguments.insert({{DNNL_ARG_SRC, Memory(engine, source, x)},
                              {DNNL_ARG_WEIGHTS, weights},
$bias_memory$                              {DNNL_ARG_DST, Memory(engine, destination, y)}});
  dnnl::convolution_forward(primitive).execute(stream, quantized.arguments);
)";

constexpr std::string_view kReorder = R"(  std::vector<float> scales = $scales$;
  const int mask = scales.size() == 1 ? 0 : 1 << 1;
#if DNNL_VERSION_MAJOR == 2
$invert$  quantized.attributes.set_output_scales(mask, scales);
#else
  quantized.Scales($argument$, mask, scales);
#endif
$zero$  const memory::desc source({M, N}, type::$x$, memory::dims{N, 1});
  const memory::desc destination({M, N}, type::$y$, memory::dims{N, 1});
  quantized.arguments.insert({{DNNL_ARG_FROM, Memory(engine, source, x)},
                              {DNNL_ARG_TO, Memory(engine, destination, y)}});
  dnnl::reorder(dnnl::reorder::primitive_desc(engine, source, engine, destination,
                                              quantized.attributes))
      .execute(stream, quantized.arguments);
)";

constexpr std::string_view kBinary =
    R"(  quantized.Scales(DNNL_ARG_SRC_0, 0, {a_scale / out_scale});
  quantized.Scales(DNNL_ARG_SRC_1, 0, {$b_scale$});
$relu$  const memory::desc source({M, N}, type::$x$, memory::dims{N, 1});
  const memory::desc destination({M, N}, type::$y$, memory::dims{N, 1});
  quantized.arguments.insert({{DNNL_ARG_SRC_0, Memory(engine, source, a)},
                              {DNNL_ARG_SRC_1, Memory(engine, source, b)},
                              {DNNL_ARG_DST, Memory(engine, destination, y)}});
  dnnl::binary(Describe<dnnl::binary>(engine, quantized.attributes, dnnl::algorithm::$algorithm$,
                                      source, source, destination))
      .execute(stream, quantized.arguments);
)";

constexpr std::string_view kPool =
    R"(  // With ceil mode the last window may reach beyond the padding.
  const int64_t below = (OH - 1) * stride_h + dilation_h * (R - 1) + 1 - H - pad_top;
  const int64_t right = (OW - 1) * stride_w + dilation_w * (S - 1) + 1 - W - pad_left;
  const memory::desc source({batch, C, H, W}, type::$x$, memory::format_tag::nhwc);
  const memory::desc destination({batch, C, OH, OW}, type::$y$, memory::format_tag::nhwc);
#if DNNL_VERSION_MAJOR == 2
  using Pooling = dnnl::pooling_v2_forward;  // the one that dilates
#else
  using Pooling = dnnl::pooling_forward;
#endif
  using dims = memory::dims;
  quantized.arguments.insert({{DNNL_ARG_SRC, Memory(engine, source, x)},
                              {DNNL_ARG_DST, Memory(engine, destination, y)}});
  Pooling(Describe<Pooling>(engine, quantized.attributes, dnnl::prop_kind::forward_inference,
                            dnnl::algorithm::$algorithm$, source, destination,
                            dims{stride_h, stride_w}, dims{R, S},
                            dims{dilation_h - 1, dilation_w - 1}, dims{pad_top, pad_left},
                            dims{std::max(pad_bottom, below), std::max(pad_right, right)}))
      .execute(stream, quantized.arguments);
)";

constexpr std::string_view kProgram = R"($head$#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#if DNNL_VERSION_MAJOR != 2 && DNNL_VERSION_MAJOR != 3
#error "written for the C++ interfaces of oneDNN 2.x and 3.x"
#endif

namespace {

using dnnl::memory;
using type = memory::data_type;

$constants$$expected$$helpers$
template <class List>
void Print(const char* name, const List& values) {
  std::printf("%-8s", name);
  for (const auto value : values) std::printf(" $format$", value);
  std::printf("\n");
}

}  // namespace

int main() {
$isa$  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  Quantization quantized{engine, {}};
  std::vector<$out$> y(expected.size());
$body$  stream.wait();
  Print("EXPECTED", expected);
  Print("GOT", y);
  return std::memcmp(y.data(), expected.data(), y.size() * sizeof y[0]) != 0;
}
)";

constexpr std::string_view kRelu = "  quantized.Relu();\n";

bool OneZeroPoint(const QParams& q) {
  for (const int32_t z : q.zero_point) {
    if (z != q.zero_point[0]) return false;
  }
  return true;
}

std::string ZeroPoint(std::string_view argument, std::string_view name, int32_t value) {
  if (value == 0) return "";
  return fmt::format("  quantized.ZeroPoint({}, int32_t({}));\n", argument, name);
}

std::string SumsText(const Case& c) {
  Require(c.w.dtype() == DType::kS8, "u8 weights");
  Require(!c.bias_i32, "int32 biases");
  Require(OneZeroPoint(c.w_q), "zero points of weights per channel");
  Require(c.op == Op::kLinear || c.w_q.zero_point_at(0) == 0,
          "zero points of a convolution's weights");
  const bool scaled = c.out_dtype != DType::kS32, codes = IsCode(c.out_dtype);
  const bool linear = c.op == Op::kLinear, grouped = c.window.groups > 1;
  const std::string bias_2 = R"(  for (int64_t n = 0; n < N; ++n) {
    const float scale = w_scale[w_scale.size() == 1 ? 0 : n];
    given_bias.push_back(bias[n] * (Reciprocal(x_scale) * Reciprocal(scale)));
  }
)";
  const std::string scales_2 =
      "  quantized.attributes.set_output_scales(output_scales.size() == 1 ? 0 : 1 << 1, "
      "output_scales);\n";
  const std::string scales_3 =
      Fill(kScales3, {{"channels", linear    ? "1 << 1"
                                   : grouped ? "(1 << 0) + (1 << 1)"
                                             : "1 << 0"},
                      {"out", codes ? "  scales(DNNL_ARG_DST, 0, {out_scale});\n" : ""}});
  const std::string head =
      Fill(kSums,
           {{"out", codes ? "Reciprocal(out_scale)" : "1.0f"},
            {"scales_2", scaled ? scales_2 : ""},
            {"scales_3", scaled ? scales_3 : ""},
            {"bias_2", c.bias ? bias_2 : ""},
            {"bias_3", c.bias ? "  given_bias.assign(bias.begin(), bias.end());\n" : ""},
            {"x_zp", ZeroPoint("DNNL_ARG_SRC", "x_zp", c.x_q.zero_point_at(0))},
            {"w_zp", ZeroPoint("DNNL_ARG_WEIGHTS", "w_zp[0]", c.w_q.zero_point_at(0))},
            {"out_zp", codes ? ZeroPoint("DNNL_ARG_DST", "out_zp", c.out_q.zero_point_at(0)) : ""},
            {"relu", c.relu ? std::string(kRelu) : ""}});
  const std::string indent(30, ' ');
  return head +
         Fill(linear ? kLinear : kConv,
              {{"x", std::string(Name(c.x.dtype()))},
               {"y", std::string(Name(c.out_dtype))},
               {"shape", grouped ? "{groups, N / groups, C / groups, R, S}" : "{N, C, R, S}"},
               {"tag", grouped ? "goihw" : "oihw"},
               {"bias_argument", c.bias ? ", bias_desc" : ""},
               {"bias_memory",
                c.bias ? indent + "{DNNL_ARG_BIAS, Memory(engine, bias_desc, given_bias)},\n"
                       : ""}});
}

std::string ReorderText(const Case& c) {
  const QParams& q = c.op == Op::kDequantize ? c.x_q : c.out_q;
  Require(!c.relu, "a fused relu here");
  Require(OneZeroPoint(q), "zero points per channel here");
  Require(c.op != Op::kRequantize || UsesMultiplier(c),
          "quotients of scales: its reorder takes one multiplier");
  const bool to_codes = c.op == Op::kQuantize;
  const std::string scales = c.op == Op::kRequantize ? "multiplier"
                             : to_codes              ? "out_scale"
                                                     : "x_scale";
  const std::string zero = c.op == Op::kRequantize ? "out_zp" : to_codes ? "out_zp[0]" : "x_zp[0]";
  return Fill(
      kReorder,
      {{"scales", scales},
       {"argument", to_codes ? "DNNL_ARG_TO" : "DNNL_ARG_FROM"},
       {"invert", to_codes ? "  for (float& scale : scales) scale = Reciprocal(scale);\n" : ""},
       {"zero", ZeroPoint(c.op == Op::kDequantize ? "DNNL_ARG_SRC" : "DNNL_ARG_DST", zero,
                          q.zero_point_at(0))},
       {"x", std::string(Name(c.x.dtype()))},
       {"y", std::string(Name(c.out_dtype))}});
}

std::string BinaryText(const Case& c) {
  Require(
      c.x_q.zero_point_at(0) == 0 && c.w_q.zero_point_at(0) == 0 && c.out_q.zero_point_at(0) == 0,
      "zero points of operands");
  const bool add = c.op == Op::kAdd;
  return Fill(kBinary, {{"b_scale", add ? "b_scale / out_scale" : "b_scale"},
                        {"relu", c.relu ? std::string(kRelu) : ""},
                        {"x", std::string(Name(c.x.dtype()))},
                        {"y", std::string(Name(c.out_dtype))},
                        {"algorithm", add ? "binary_add" : "binary_mul"}});
}

std::string PoolText(const Case& c) {
  const bool maximum = c.op == Op::kMaxPool;
  Require(!c.relu, "a fused relu here");
  Require(c.x.dtype() == c.out_dtype && c.x_q == c.out_q,
          "pools that change type, scale or zero point");
  Require(maximum || !c.window.count_include_pad || c.x_q.zero_point_at(0) == 0,
          "padding of real 0 where the zero point is not 0");
  return Fill(kPool, {{"x", std::string(Name(c.x.dtype()))},
                      {"y", std::string(Name(c.out_dtype))},
                      {"algorithm", maximum                      ? "pooling_max"
                                    : c.window.count_include_pad ? "pooling_avg_include_padding"
                                                                 : "pooling_avg_exclude_padding"}});
}

std::string Body(const Case& c) {
  switch (c.op) {
    case Op::kLinear:
    case Op::kConv2d:
    case Op::kDepthwise: return SumsText(c);
    case Op::kQuantize:
    case Op::kDequantize:
    case Op::kRequantize: return ReorderText(c);
    case Op::kAdd:
    case Op::kMul: return BinaryText(c);
    case Op::kMaxPool:
    case Op::kAvgPool:
    case Op::kGlobalAvgPool: return PoolText(c);
    default: throw CannotExpress(fmt::format("lacks {}", Name(c.op)));
  }
}

}  // namespace

std::string WriteOnednn(const Evidence& evidence) {
  const Case& c = evidence.c;
  Require(!IsClamped(c), "a clamp");
  Require(c.requant == Requant::kExact, "requantization modes");
  Require(!evidence.expected.empty() && (!HasSums(c) || c.K != 0), "empty tensors");
  const std::string body = Body(c);
  const std::string isa(InstructionSetOf(evidence).onednn);
  return Fill(kProgram,
              {{"head", Head(evidence, "//", "c++ -std=c++17 repro.cc -ldnnl -o repro && ./repro")},
               {"constants", Constants(Language::kCpp, c)},
               {"expected", List(Language::kCpp, "expected", evidence.expected)},
               {"helpers", std::string(kHelpers)},
               {"format", c.out_dtype == DType::kF32 ? "%a" : "%d"},
               {"isa", isa.empty() ? ""
                                   : fmt::format("  setenv(\"ONEDNN_MAX_CPU_ISA\", \"{}\", 1);  "
                                                 "// before oneDNN looks\n",
                                                 isa)},
               {"out", std::string(TypeIn(Language::kCpp, c.out_dtype))},
               {"body", body}});
}

}  // namespace qualm::exporters
