// SPDX-License-Identifier: Apache-2.0
// oneDNN, as PyTorch's ideep calls it: matmul and convolution with one scale per channel, reorders,
// binary (which has no zero points). Arguments are made once. What oneDNN 2 and 3 take differently
// is the business of the plugin's Attributes.
#include "adapters/libraries/onednn/ops.h"
#include "bench/bench.h"

namespace qualm::bench {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

using qualm_onednn::Attributes;
using qualm_onednn::Describe;
using qualm_onednn::Engine;
#if DNNL_VERSION_MAJOR == 2
using Pooling = dnnl::pooling_v2_forward;  // the one that takes what oneDNN 3's takes
#else
using Pooling = dnnl::pooling_forward;
#endif

// A primitive with its arguments; owns what they point to.
struct Call {
  dnnl::primitive primitive;
  std::shared_ptr<const Attributes> attributes = std::make_shared<Attributes>();
  std::unordered_map<int, memory> arguments = {};
  std::vector<std::shared_ptr<void>> owned = {};

  template <typename T>
  memory Hold(const memory::desc& desc, const Buffer<T>& buffer) {
    owned.push_back(buffer);
    return memory(desc, Engine(), buffer->data());
  }
  Run Finish() && {
    attributes->AddTo(arguments);
    return [call = std::make_shared<Call>(std::move(*this)), stream = dnnl::stream(Engine())] {
      dnnl::stream to = stream;
      call->primitive.execute(to, call->arguments);
      to.wait();
    };
  }
};

void Reorder(const memory& from, const memory& to) {
  dnnl::stream stream(Engine());
  dnnl::reorder(from, to).execute(stream, const_cast<memory&>(from), const_cast<memory&>(to));
  stream.wait();
}

// The attributes of a layer: codes with zero points, a scale for each channel. `weights_mask` says
// which dimensions of the weights are output channels.
std::shared_ptr<const Attributes> LayerAttributes(int64_t channels, int64_t depth,
                                                  [[maybe_unused]] int weights_mask) {
  const auto attributes = std::make_shared<Attributes>();
  std::vector<float> scales;
#if DNNL_VERSION_MAJOR == 2
  for (int64_t n = 0; n < channels; ++n)
    scales.push_back(kXScale * WeightScale(n) / LayerScale(depth));
  attributes->Add({.argument = qualm_onednn::kOutput, .scales = scales, .mask = 1 << 1});
#else
  for (int64_t n = 0; n < channels; ++n) scales.push_back(WeightScale(n));
  attributes->Add({.argument = DNNL_ARG_SRC, .scales = {kXScale}});
  attributes->Add({.argument = DNNL_ARG_WEIGHTS, .scales = scales, .mask = weights_mask});
  attributes->Add({.argument = DNNL_ARG_DST, .scales = {LayerScale(depth)}});
#endif
  attributes->Add({.argument = DNNL_ARG_SRC, .zero_point = kXZero});
  attributes->Add({.argument = DNNL_ARG_DST, .zero_point = kYZero});
  return attributes;
}

// oneDNN 2 takes biases in units of sums, oneDNN 3 real ones.
Buffer<float> Bias(int64_t channels) {
  const Buffer<int32_t> sums = Sums(channels, 1000, 3);
  const auto bias = std::make_shared<std::vector<float>>(sums->begin(), sums->end());
  for (int64_t n = 0; DNNL_VERSION_MAJOR != 2 && n < channels; ++n)
    (*bias)[static_cast<size_t>(n)] *= kXScale * WeightScale(n);
  return bias;
}

Run PrepareLinear(const Linear& shape, bool packing_included) {
  const int64_t m = shape.m, n = shape.n, k = shape.k;
  const memory::desc x({m, k}, Type::u8, Tag::ab), y({m, n}, Type::u8, Tag::ab);
  const memory::desc any({k, n}, Type::s8, Tag::any), bias({1, n}, Type::f32, Tag::ab);
  const auto attributes = LayerAttributes(n, k, 1 << 1);
  const auto made = Describe<dnnl::matmul>(*attributes, x, any, bias, y);
  Call call{dnnl::matmul(made), attributes};
  const memory given = call.Hold(memory::desc({k, n}, Type::s8, Tag::ba), Weights(shape, 2));
  const memory packed(made.weights_desc(), Engine());
  Reorder(given, packed);
  call.arguments = {{DNNL_ARG_SRC, call.Hold(x, Codes(m * k, 1))},
                    {DNNL_ARG_WEIGHTS, packed},
                    {DNNL_ARG_BIAS, call.Hold(bias, Bias(n))},
                    {DNNL_ARG_DST, call.Hold(y, Zeros<uint8_t>(m * n))}};
  const Run run = std::move(call).Finish();
  if (!packing_included) return run;
  return [=] {
    Reorder(given, packed);
    run();
  };
}

Run PrepareConv(const Conv& shape) {
  const int64_t c = shape.channels, n = shape.outputs, r = shape.kernel, out = shape.OutSize();
  const memory::desc x({1, c, shape.size, shape.size}, Type::u8, Tag::nhwc);
  const memory::desc y({1, n, out, out}, Type::u8, Tag::nhwc);
  const memory::dims taps =
      shape.depthwise ? memory::dims{c, 1, 1, r, r} : memory::dims{n, c, r, r};
  const memory::desc any(taps, Type::s8, Tag::any), bias({n}, Type::f32, Tag::x);
  const memory::dims stride{shape.stride, shape.stride}, padding{shape.padding, shape.padding};
  const auto attributes = LayerAttributes(n, shape.Depth(), shape.depthwise ? 3 : 1);
  const auto made = Describe<dnnl::convolution_forward>(
      *attributes, dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, x, any,
      bias, y, stride, padding, padding);
  Call call{dnnl::convolution_forward(made), attributes};
  const memory packed(made.weights_desc(), Engine());
  Reorder(call.Hold(memory::desc(taps, Type::s8, shape.depthwise ? Tag::goihw : Tag::oihw),
                    Weights(n * shape.Depth(), 2)),
          packed);
  call.arguments = {{DNNL_ARG_SRC, call.Hold(x, Codes(shape.size * shape.size * c, 1))},
                    {DNNL_ARG_WEIGHTS, packed},
                    {DNNL_ARG_BIAS, call.Hold(bias, Bias(n))},
                    {DNNL_ARG_DST, call.Hold(y, Zeros<uint8_t>(out * out * n))}};
  return std::move(call).Finish();
}

Run PreparePool(const Pool& shape) {
  const int64_t c = shape.channels, out = shape.OutSize(), k = shape.kernel;
  const memory::desc x({1, c, shape.size, shape.size}, Type::u8, Tag::nhwc);
  const memory::desc y({1, c, out, out}, Type::u8, Tag::nhwc);
  const memory::dims stride{shape.stride, shape.stride}, padding{shape.padding, shape.padding};
  const auto algorithm =
      shape.is_max ? dnnl::algorithm::pooling_max : dnnl::algorithm::pooling_avg_exclude_padding;
  const memory::dims kernel{k, k}, dilation{0, 0};
  Call call{Pooling(Describe<Pooling>({}, dnnl::prop_kind::forward_inference, algorithm, x, y,
                                      stride, kernel, dilation, padding, padding))};
  call.arguments = {{DNNL_ARG_SRC, call.Hold(x, Codes(shape.size * shape.size * c, 1))},
                    {DNNL_ARG_DST, call.Hold(y, Zeros<uint8_t>(out * out * c))}};
  return std::move(call).Finish();
}

// `scale` is what `quantized` is multiplied by to be real.
template <typename From, typename To>
Run PrepareReorder(int64_t n, Type from, Type to, int quantized, float scale, int32_t zero_point,
                   const Buffer<From>& x, const Buffer<To>& y) {
  const auto attributes = std::make_shared<Attributes>();
#if DNNL_VERSION_MAJOR == 2
  attributes->Add({.argument = qualm_onednn::kOutput,
                   .scales = {quantized == DNNL_ARG_FROM ? scale : 1 / scale}});
#else
  attributes->Add({.argument = quantized, .scales = {scale}});
#endif
  attributes->Add({.argument = quantized, .zero_point = zero_point});
  const memory::desc source({n}, from, Tag::a), destination({n}, to, Tag::a);
  Call call{dnnl::reorder({Engine(), source, Engine(), destination, attributes->Make()}),
            attributes};
  call.arguments = {{DNNL_ARG_FROM, call.Hold(source, x)},
                    {DNNL_ARG_TO, call.Hold(destination, y)}};
  return std::move(call).Finish();
}

Run PrepareAdd(int64_t n) {
  const memory::desc codes({n}, Type::u8, Tag::a);
  const auto attributes = std::make_shared<Attributes>();
  attributes->Add({.argument = DNNL_ARG_SRC_0, .scales = {kXScale / kYScale}});
  attributes->Add({.argument = DNNL_ARG_SRC_1, .scales = {kBScale / kYScale}});
  Call call{dnnl::binary(Describe<dnnl::binary>(*attributes, dnnl::algorithm::binary_add, codes,
                                                codes, codes)),
            attributes};
  call.arguments = {{DNNL_ARG_SRC_0, call.Hold(codes, Codes(n, 1))},
                    {DNNL_ARG_SRC_1, call.Hold(codes, Codes(n, 2))},
                    {DNNL_ARG_DST, call.Hold(codes, Zeros<uint8_t>(n))}};
  return std::move(call).Finish();
}

void JoinElements(int64_t n) {
  const std::string size = "/" + std::to_string(n);
  const auto items = static_cast<double>(n);
  Join("quantize" + size, "onednn", items, [=] {
    return PrepareReorder(n, Type::f32, Type::u8, DNNL_ARG_TO, kXScale, kXZero, Reals(n, 1),
                          Zeros<uint8_t>(n));
  });
  Join("dequantize" + size, "onednn", items, [=] {
    return PrepareReorder(n, Type::u8, Type::f32, DNNL_ARG_FROM, kXScale, kXZero, Codes(n, 1),
                          Zeros<float>(n));
  });
  for (const char* work : {"requantize", "requantize-float32"}) {
    Join(work + size, "onednn", items, [=] {
      return PrepareReorder(n, Type::s32, Type::u8, DNNL_ARG_TO, 1 / 0.0013f, kYZero,
                            Sums(n, 100000, 1), Zeros<uint8_t>(n));
    });
  }
  Join("add" + size, "onednn(no-zero-points)", items, [=] { return PrepareAdd(n); });
}

}  // namespace

void JoinOneDnn() {
  for (const Linear& shape : kLinear) {
    Join("linear/" + shape.Name(), "onednn", shape.Items(),
         [=] { return PrepareLinear(shape, false); });
    Join("linear-with-packing/" + shape.Name(), "onednn", shape.Items(),
         [=] { return PrepareLinear(shape, true); });
  }
  for (const auto* rows : {&kSweep, &kWeightKinds}) {
    for (const NamedLinear& row : *rows) {
      Join(row.name, "onednn", row.shape.Items(), [=] { return PrepareLinear(row.shape, false); });
    }
  }
  for (const Conv& shape : kConv) {
    Join(std::string("conv/") + shape.name, "onednn", shape.Items(),
         [=] { return PrepareConv(shape); });
  }
  for (const Pool& shape : kPool) {
    Join(std::string("pool/") + shape.name, "onednn", shape.Items(),
         [=] { return PreparePool(shape); });
  }
  for (const int64_t n : kElements) JoinElements(n);
}

}  // namespace qualm::bench
