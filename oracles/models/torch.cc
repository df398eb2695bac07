// SPDX-License-Identifier: Apache-2.0
// The quantized engines of PyTorch 1.13.1 as a whole: which convention runs each operator. An
// engine (QNNPACK, oneDNN) brings linear, convolutions and, QNNPACK, add, pools and some tables;
// all else is ATen's own, whatever the engine (aten/src/ATen/native/quantized/cpu: BinaryOps.cpp,
// qmul.cpp; torch/ao/quantization/observer.py).
#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "oracles/models/convention.h"
#include "oracles/models/observers.h"
#include "oracles/models/torch_parts.h"

namespace qualm::models {
namespace {

constexpr const char* kWhere = "PyTorch 1.13.1 aten/src/ATen/native/quantized/cpu";

Model Named(const std::vector<Model>& family, std::string_view name) {
  const auto at = std::ranges::find(family, name, &Model::name);
  QUALM_CHECK(at != family.end());
  return *at;
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
      variations_.insert(variations_.end(), model.variations.begin(), model.variations.end());
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
    model.variations = std::move(variations_);
    model.variations.emplace_back("V27");  // concat, pools, tables
    SortVariations(model.variations);
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
  std::vector<std::string> variations_;
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
  engine.Add({Op::kConcat}, AtenConcat(aten));
  engine.Add({Op::kChooseQParams}, Named(ObserverModels(), "observers@torch"));
}

Model Qnnpack() {
  Engine engine;
  AddAten(engine, Named(AtenModels(), "aten@default"));
  engine.Add({Op::kLinear, Op::kConv2d, Op::kDepthwise, Op::kAdd},
             Named(QnnpackModels(), "qnnpack"));
  engine.Add({Op::kMaxPool}, QnnpackMaxPool());
  engine.Add({Op::kAvgPool, Op::kGlobalAvgPool}, QnnpackAvgPool());
  engine.Add({Op::kTable}, QnnpackTable());
  return std::move(engine).Make("torch-qnnpack",
                                "PyTorch's engine qnnpack: linear, convolutions, add, pools and "
                                "tables of QNNPACK, the rest ATen",
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
  engine.Add({Op::kMaxPool}, AtenMaxPool());
  engine.Add({Op::kTable}, AtenTable(capability == "avx2" ? 64 : 0));
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
