// SPDX-License-Identifier: Apache-2.0
// C++ against oneDNN 2.x, with the attributes that PyTorch sets through ideep. benchdnn draws its
// own data, so no command of it holds a case.
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
)";

constexpr std::string_view kSums =
    R"(  // Scales as ideep computes them: output scales fl(fl(1/out) / fl(fl(1/x) * fl(1/w))).
  std::vector<float> output_scales, scaled_bias;
  for (const float scale : w_scale) {
    const float product = Reciprocal(x_scale) * Reciprocal(scale);
    output_scales.push_back($out$ / product);
  }
  dnnl::primitive_attr attributes;
$set_scales$$x_zp$$w_zp$$out_zp$$relu$$bias$)";

constexpr std::string_view kLinear =
    R"(  const memory::desc source({M, K}, type::$x$, memory::dims{K, 1});
  const memory::desc destination({M, N}, type::$y$, memory::dims{N, 1});
  const memory::desc given({K, N}, type::s8, memory::dims{1, K});  // w is [N, K]
  const memory::desc any({K, N}, type::s8, memory::format_tag::any);
  const memory::desc bias_desc({1, N}, type::f32, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc primitive(
      dnnl::matmul::desc(source, any$bias_argument$, destination), attributes, engine);
  memory weights(primitive.weights_desc(), engine), plain = Memory(engine, given, w);
  dnnl::reorder(plain, weights).execute(stream, plain, weights);
  dnnl::matmul(primitive).execute(stream, {{DNNL_ARG_SRC, Memory(engine, source, x)},
                                           {DNNL_ARG_WEIGHTS, weights},
$bias_memory$                                           {DNNL_ARG_DST, Memory(engine, destination, y)}});
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
  const dnnl::convolution_forward::primitive_desc primitive(
      dnnl::convolution_forward::desc(
          dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, source,
          any$bias_argument$, destination, {stride_h, stride_w}, {dilation_h - 1, dilation_w - 1},
          {pad_top, pad_left}, {pad_bottom, pad_right}),
      attributes, engine);
  memory weights(primitive.weights_desc(), engine), plain = Memory(engine, given, channels_first);
  dnnl::reorder(plain, weights).execute(stream, plain, weights);
  dnnl::convolution_forward(primitive).execute(stream,
                                               {{DNNL_ARG_SRC, Memory(engine, source, x)},
                                                {DNNL_ARG_WEIGHTS, weights},
$bias_memory$                                                {DNNL_ARG_DST, Memory(engine, destination, y)}});
)";

constexpr std::string_view kReorder = R"(  dnnl::primitive_attr attributes;
  std::vector<float> scales = $scales$;
$invert$  attributes.set_output_scales(scales.size() == 1 ? 0 : 1 << 1, scales);
$zero$  const memory::desc source({M, N}, type::$x$, memory::dims{N, 1});
  const memory::desc destination({M, N}, type::$y$, memory::dims{N, 1});
  memory from = Memory(engine, source, x), to = Memory(engine, destination, y);
  dnnl::reorder(dnnl::reorder::primitive_desc(engine, source, engine, destination, attributes))
      .execute(stream, from, to);
)";

constexpr std::string_view kBinary = R"(  dnnl::primitive_attr attributes;
  attributes.set_scales(DNNL_ARG_SRC_0, 0, {a_scale / out_scale});
  attributes.set_scales(DNNL_ARG_SRC_1, 0, {$b_scale$});
$relu$  const memory::desc source({M, N}, type::$x$, memory::dims{N, 1});
  const memory::desc destination({M, N}, type::$y$, memory::dims{N, 1});
  const dnnl::binary::primitive_desc primitive(
      dnnl::binary::desc(dnnl::algorithm::$algorithm$, source, source, destination), attributes,
      engine);
  dnnl::binary(primitive).execute(stream, {{DNNL_ARG_SRC_0, Memory(engine, source, a)},
                                           {DNNL_ARG_SRC_1, Memory(engine, source, b)},
                                           {DNNL_ARG_DST, Memory(engine, destination, y)}});
)";

constexpr std::string_view kPool =
    R"(  // With ceil mode the last window may reach beyond the padding.
  const int64_t below = (OH - 1) * stride_h + dilation_h * (R - 1) + 1 - H - pad_top;
  const int64_t right = (OW - 1) * stride_w + dilation_w * (S - 1) + 1 - W - pad_left;
  const memory::desc source({batch, C, H, W}, type::$x$, memory::format_tag::nhwc);
  const memory::desc destination({batch, C, OH, OW}, type::$y$, memory::format_tag::nhwc);
  const dnnl::pooling_v2_forward::primitive_desc primitive(
      dnnl::pooling_v2_forward::desc(dnnl::prop_kind::forward_inference,
                                     dnnl::algorithm::$algorithm$, source, destination,
                                     {stride_h, stride_w}, {R, S}, {dilation_h - 1, dilation_w - 1},
                                     {pad_top, pad_left},
                                     {std::max(pad_bottom, below), std::max(pad_right, right)}),
      engine);
  dnnl::pooling_v2_forward(primitive).execute(stream,
                                              {{DNNL_ARG_SRC, Memory(engine, source, x)},
                                               {DNNL_ARG_DST, Memory(engine, destination, y)}});
)";

constexpr std::string_view kProgram = R"($head$#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#if DNNL_VERSION_MAJOR != 2
#error "written for the C++ interface of oneDNN 2.x"
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
  std::vector<$out$> y(expected.size());
$body$  stream.wait();
  Print("EXPECTED", expected);
  Print("GOT", y);
  return std::memcmp(y.data(), expected.data(), y.size() * sizeof y[0]) != 0;
}
)";

constexpr std::string_view kRelu = R"(  dnnl::post_ops operations;
  operations.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
  attributes.set_post_ops(operations);
)";

bool OneZeroPoint(const QParams& q) {
  for (const int32_t z : q.zero_point) {
    if (z != q.zero_point[0]) return false;
  }
  return true;
}

std::string ZeroPoint(std::string_view argument, std::string_view name, int32_t value) {
  if (value == 0) return "";
  return fmt::format("  attributes.set_zero_points({}, 0, {{int32_t({})}});\n", argument, name);
}

std::string SumsText(const Case& c) {
  Require(c.w.dtype() == DType::kS8, "u8 weights");
  Require(!c.bias_i32, "int32 biases");
  Require(OneZeroPoint(c.w_q), "zero points of weights per channel");
  Require(c.op == Op::kLinear || c.w_q.zero_point_at(0) == 0,
          "zero points of a convolution's weights");
  const bool scaled = c.out_dtype != DType::kS32, codes = IsCode(c.out_dtype);
  const std::string bias = R"(  for (int64_t n = 0; n < N; ++n) {
    const float scale = w_scale[w_scale.size() == 1 ? 0 : n];
    scaled_bias.push_back(bias[n] * (Reciprocal(x_scale) * Reciprocal(scale)));
  }
)";
  const std::string head =
      Fill(kSums,
           {{"out", codes ? "Reciprocal(out_scale)" : "1.0f"},
            {"set_scales", scaled ? "  attributes.set_output_scales(output_scales.size() == "
                                    "1 ? 0 : 1 << 1, output_scales);\n"
                                  : ""},
            {"x_zp", ZeroPoint("DNNL_ARG_SRC", "x_zp", c.x_q.zero_point_at(0))},
            {"w_zp", ZeroPoint("DNNL_ARG_WEIGHTS", "w_zp[0]", c.w_q.zero_point_at(0))},
            {"out_zp", codes ? ZeroPoint("DNNL_ARG_DST", "out_zp", c.out_q.zero_point_at(0)) : ""},
            {"relu", c.relu ? std::string(kRelu) : ""},
            {"bias", c.bias ? bias : ""}});
  const bool linear = c.op == Op::kLinear, grouped = c.window.groups > 1;
  const std::string indent(linear ? 43 : 48, ' ');
  return head +
         Fill(linear ? kLinear : kConv,
              {{"x", std::string(Name(c.x.dtype()))},
               {"y", std::string(Name(c.out_dtype))},
               {"shape", grouped ? "{groups, N / groups, C / groups, R, S}" : "{N, C, R, S}"},
               {"tag", grouped ? "goihw" : "oihw"},
               {"bias_argument", c.bias ? ", bias_desc" : ""},
               {"bias_memory",
                c.bias ? indent + "{DNNL_ARG_BIAS, Memory(engine, bias_desc, scaled_bias)},\n"
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
