// SPDX-License-Identifier: Apache-2.0
// The quantized engines of PyTorch 1.13.1 as a whole: which convention runs each operator. An
// engine (QNNPACK, oneDNN) brings linear, convolutions and, QNNPACK, add and max_pool; all else is
// ATen's own, whatever the engine (aten/src/ATen/native/quantized/cpu: BinaryOps.cpp, qmul.cpp,
// TensorShape.cpp, Pooling.cpp; torch/ao/quantization/observer.py).
#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "oracles/models/convention.h"
#include "oracles/models/observers.h"

namespace qualm::models {
namespace {

constexpr const char* kWhere = "PyTorch 1.13.1 aten/src/ATen/native/quantized/cpu";

Model Named(const std::vector<Model>& family, std::string_view name) {
  const auto at = std::ranges::find(family, name, &Model::name);
  QUALM_CHECK(at != family.end());
  return *at;
}

// Pools -------------------------------------------------------------------------------------------

// The pixels whose maximum an output is, as rows of x.
using Pixels = std::vector<int64_t> (*)(const Window& window, int64_t m);

std::vector<int64_t> InsideTheImage(const Window& window, int64_t m) {
  std::vector<int64_t> rows;
  for (const Tap& tap : TapsOf(window, m)) {
    if (tap.x_row >= 0) rows.push_back(tap.x_row);
  }
  return rows;
}

// QNNPACK moves a tap in the padding onto the nearest pixel (indirection.c,
// pytorch_qnnp_indirection_init_maxpool2d). With dilation 1 that pixel is in the window anyway;
// with more it may lie between two taps, and wins though no tap is there.
std::vector<int64_t> MovedIntoTheImage(const Window& v, int64_t m) {
  std::vector<int64_t> rows;
  const int64_t column = m % v.out_w();
  const int64_t row = m / v.out_w() % v.out_h();
  const int64_t image = m / v.out_w() / v.out_h();
  for (int64_t r = 0; r < v.kernel_h; ++r) {
    for (int64_t s = 0; s < v.kernel_w; ++s) {
      const int64_t y = row * v.stride_h + r * v.dilation_h - v.pad_top;
      const int64_t x = column * v.stride_w + s * v.dilation_w - v.pad_left;
      const int64_t pixel = (image * v.in_h + std::clamp<int64_t>(y, 0, v.in_h - 1)) * v.in_w +
                            std::clamp<int64_t>(x, 0, v.in_w - 1);
      rows.push_back(pixel * v.in_c);
    }
  }
  return rows;
}

std::string CannotMaxPool(const Case& c) {
  const Window& v = c.window;
  return FirstReason({
      ZeroPointsAreCodes(c),
      WholeRange(c),
      Require(!c.relu, "this function has no fused relu"),
      Require(v.pad_top == v.pad_bottom && v.pad_left == v.pad_right,
              "padding must be the same on both sides"),
      Require(v.pad_top <= v.kernel_h / 2 && v.pad_left <= v.kernel_w / 2,
              "padding must be at most half of the window"),
  });
}

std::string CannotMaxPoolQnnpack(const Case& c) {
  const Window& v = c.window;
  // Anything but u8, and ceil mode, is ATen's, which is another arithmetic.
  return FirstReason(
      {CannotMaxPool(c), Require(c.x.dtype() == DType::kU8, "QNNPACK pools u8 only"),
       Require(!v.ceil_mode, "QNNPACK has no ceil mode"),
       Require(v.kernel_h * v.kernel_w > 1, "QNNPACK has no window of one element")});
}

Model MaxPool(Pixels pixels, std::string (*cannot_run)(const Case&)) {
  Model model;
  model.cannot_run = cannot_run;
  model.run = [pixels](const Case& c) {
    ModelOutput output{Tensor(c.out_dtype, c.output_shape()), std::nullopt};
    for (int64_t m = 0; m < c.M; ++m) {
      const std::vector<int64_t> rows = pixels(c.window, m);
      for (int64_t n = 0; n < c.N; ++n) {
        int32_t most = RangeOf(c.x.dtype()).min;
        for (const int64_t row : rows) most = std::max(most, c.x.IntAt(row + n));
        output.y.SetInt(m * c.N + n, most);
      }
    }
    return output;
  };
  model.trace = [pixels](const Case& c, int64_t index) {
    Trace trace;
    int32_t most = RangeOf(c.x.dtype()).min;
    std::string codes;
    for (const int64_t row : pixels(c.window, index / c.N)) {
      const int32_t code = c.x.IntAt(row + index % c.N);
      most = std::max(most, code);
      codes += (codes.empty() ? "" : ", ") + std::to_string(code);
    }
    trace.push_back({Stage::kAccumulate, "the largest of " + codes, std::to_string(most), false});
    return trace;
  };
  return model;
}

// concat ------------------------------------------------------------------------------------------

// Through float32: each input is dequantized, and all is quantized as one tensor
// (TensorShape.cpp, quantized_cat_impl); relu comes last, on the codes.
Case Dequantizing(const Case& c, bool second) {
  Case part;
  part.op = Op::kDequantize;
  part.x = second ? c.w : c.x;
  part.x_q = second ? c.w_q : c.x_q;
  part.M = c.M;
  part.N = part.x.shape()[1];
  part.out_dtype = DType::kF32;
  part.out_min = INT32_MIN;
  part.out_max = INT32_MAX;
  return part;
}

Case Quantizing(const Case& c, Tensor x) {
  Case whole;
  whole.op = Op::kQuantize;
  whole.M = c.M;
  whole.N = c.N;
  whole.x = std::move(x);
  whole.out_q = c.out_q;
  whole.out_dtype = c.out_dtype;
  whole.out_min = c.out_min;
  whole.out_max = c.out_max;
  return whole;
}

Tensor Joined(const Model& aten, const Case& c) {
  const Tensor a = aten.run(Dequantizing(c, false)).y;
  const Tensor b = aten.run(Dequantizing(c, true)).y;
  const int64_t first = c.x.shape()[1];
  Tensor joined(DType::kF32, {c.M, c.N});
  for (int64_t i = 0; i < joined.size(); ++i) {
    const int64_t m = i / c.N, n = i % c.N;
    joined.as<float>()[static_cast<size_t>(i)] =
        n < first ? a.FloatAt(m * first + n) : b.FloatAt(m * (c.N - first) + n - first);
  }
  return joined;
}

Model Concat(const Model& aten) {
  Model model;
  model.cannot_run = [](const Case& c) {
    return FirstReason(
        {ZeroPointsAreCodes(c), WholeRange(c),
         Require(c.x.dtype() == c.out_dtype, "operands and output must have one type")});
  };
  model.run = [aten](const Case& c) {
    ModelOutput output = aten.run(Quantizing(c, Joined(aten, c)));
    for (int64_t i = 0; c.relu && i < output.y.size(); ++i) {
      output.y.SetInt(i, std::max(output.y.IntAt(i), c.out_q.zero_point[0]));
    }
    return output;
  };
  model.trace = [aten](const Case& c, int64_t index) {
    const int64_t first = c.x.shape()[1], m = index / c.N, n = index % c.N;
    const bool second = n >= first;
    Trace trace =
        aten.trace(Dequantizing(c, second), second ? m * (c.N - first) + n - first : m * first + n);
    const Case whole = Quantizing(c, Joined(aten, c));
    for (TraceStep& step : aten.trace(whole, index)) trace.push_back(std::move(step));
    if (c.relu) {
      const int32_t code = std::max(aten.run(whole).y.IntAt(index), c.out_q.zero_point[0]);
      trace.push_back({Stage::kClamp, "relu", std::to_string(code), false});
    }
    return trace;
  };
  return model;
}

// Engines -----------------------------------------------------------------------------------------

// One convention for each operation it is listed for.
class Engine {
 public:
  void Add(std::initializer_list<Op> ops, Model model) {
    for (const Op op : ops) {
      for (const std::string& claim : model.satisfies) {
        const size_t dot = claim.find('.');
        if (dot == std::string::npos) {
          satisfies_.push_back(std::string(Name(op)) + "." + claim);
        } else if (claim.substr(0, dot) == Name(op)) {
          satisfies_.push_back(claim);
        }
      }
      parts_[static_cast<size_t>(op)] = model;
    }
  }

  Model Make(std::string name, std::string description, std::string source) && {
    Model model;
    model.name = std::move(name);
    model.description = std::move(description);
    model.source = std::move(source);
    for (const Model& part : parts_) model.pair_saturates |= part.pair_saturates;
    model.satisfies = std::move(satisfies_);
    std::ranges::sort(model.satisfies);
    const auto part = [parts = parts_](const Case& c) -> const Model& {
      return parts[static_cast<size_t>(c.op)];
    };
    model.cannot_run = [part](const Case& c) {
      if (!part(c).run) return "this engine has no " + std::string(Name(c.op));
      return part(c).cannot_run(c);
    };
    model.run = [part](const Case& c) { return part(c).run(c); };
    model.trace = [part](const Case& c, int64_t index) { return part(c).trace(c, index); };
    return model;
  }

 private:
  std::array<Model, kOpCount> parts_;
  std::vector<std::string> satisfies_;
};

void AddAten(Engine& engine, const Model& aten) {
  engine.Add({Op::kQuantize, Op::kDequantize}, aten);
  // s8 products are XNNPACK's where the library was built with it (qmul.cpp).
  Model mul = aten;
  mul.cannot_run = [aten](const Case& c) {
    return FirstReason(
        {Require(c.x.dtype() == DType::kU8, "operands must be u8"), aten.cannot_run(c)});
  };
  engine.Add({Op::kMul}, std::move(mul));
  engine.Add({Op::kConcat}, Concat(aten));
  engine.Add({Op::kChooseQParams}, Named(ObserverModels(), "observers@torch"));
}

Model Qnnpack() {
  Engine engine;
  AddAten(engine, Named(AtenModels(), "aten@default"));
  engine.Add({Op::kLinear, Op::kConv2d, Op::kDepthwise, Op::kAdd},
             Named(QnnpackModels(), "qnnpack"));
  engine.Add({Op::kMaxPool}, MaxPool(MovedIntoTheImage, CannotMaxPoolQnnpack));
  return std::move(engine).Make(
      "torch-qnnpack",
      "PyTorch's engine qnnpack: linear, convolutions, add and max_pool of QNNPACK, the rest ATen",
      kWhere);
}

// Where a float32 reciprocal of scales overflows, infinity times 0 appears in the sums' epilogue,
// and the kernels disagree about which bound a NaN becomes.
std::string ReciprocalsAreFinite(const Case& c) {
  const auto inverse = [](float scale) {
    return static_cast<float>(1.0 / static_cast<double>(scale));
  };
  bool finite = std::isfinite(inverse(c.out_q.scale_at(0)));
  for (const float scale : c.w_q.scale) {
    finite = finite && std::isfinite(inverse(c.x_q.scale_at(0)) * inverse(scale));
  }
  return Require(finite, "the reciprocals of the scales must be finite");
}

// ATen takes vectors of 32 codes wherever there is AVX2, in 1.13 also where there is AVX-512.
Model OneDnn(std::string_view isa, std::string_view capability) {
  Model onednn = Named(OneDnn2Models(), "onednn2@" + std::string(isa));
  onednn.cannot_run = [all = onednn.cannot_run](const Case& c) {
    return FirstReason({
        Require(c.x.dtype() == DType::kU8 && c.out_dtype == DType::kU8,
                "activations and output must be u8"),
        ZeroPointsAreCodes(c),
        Require(WeightZeroPointsAre(c, 0), "weight zero point must be 0"),
        ReciprocalsAreFinite(c),
        all(c),
    });
  };
  const Model aten = Named(AtenModels(), "aten@" + std::string(capability));
  Engine engine;
  AddAten(engine, aten);
  engine.Add({Op::kLinear, Op::kConv2d, Op::kDepthwise}, onednn);
  Model add = aten;
  add.cannot_run = [aten](const Case& c) {
    return FirstReason(
        {Require(c.x.dtype() == DType::kU8, "operands must be u8"), aten.cannot_run(c)});
  };
  engine.Add({Op::kAdd}, std::move(add));
  engine.Add({Op::kMaxPool}, MaxPool(InsideTheImage, CannotMaxPool));
  return std::move(engine).Make("torch-onednn@" + std::string(isa),
                                "PyTorch's engine onednn: linear and convolutions of onednn2@" +
                                    std::string(isa) + ", the rest ATen's, capability " +
                                    std::string(capability),
                                std::string(kWhere) + "; ideep b2f8044");
}

}  // namespace

std::vector<Model> TorchModels() {
  std::vector<Model> models = {Qnnpack(), OneDnn("sse41", "default")};
  for (const char* isa : {"avx2", "avx2vnni", "avx512core", "vnni", "amx"})
    models.push_back(OneDnn(isa, "avx2"));
  return models;
}

}  // namespace qualm::models
