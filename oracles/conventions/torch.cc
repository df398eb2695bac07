// SPDX-License-Identifier: Apache-2.0
// The quantized engines of PyTorch 1.13.1 as a whole: which convention runs each operator. An
// engine (QNNPACK, oneDNN) brings linear and convolutions; QNNPACK also add, pools, tables and
// softmax. ATen computes everything else, whatever the engine (aten/src/ATen/native/quantized/cpu:
// BinaryOps.cpp, qmul.cpp; torch/ao/quantization/observer.py).
#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <utility>

#include "oracles/conventions/definition.h"
#include "oracles/conventions/dynamic_linear.h"
#include "oracles/conventions/fbgemm.h"
#include "oracles/conventions/torch_operators.h"

namespace qualm::conventions {
namespace {

constexpr const char* kWhere = "PyTorch 1.13.1 aten/src/ATen/native/quantized/cpu";

Convention Named(const std::vector<Convention>& family, std::string_view name) {
  const auto at = std::ranges::find(family, name, &Convention::name);
  QUALM_CHECK(at != family.end());
  return *at;
}

// Collects the convention of each operation of an engine.
class Engine {
 public:
  void Add(std::initializer_list<Op> ops, Convention convention) {
    for (const Op op : ops) {
      variations_.insert(variations_.end(), convention.variations.begin(),
                         convention.variations.end());
      by_op_[static_cast<size_t>(op)] = convention;
    }
  }

  Convention Make(std::string name, std::string description, std::string source) && {
    Convention convention;
    convention.name = std::move(name);
    convention.description = std::move(description);
    convention.source = std::move(source);
    for (const Convention& one : by_op_) convention.pair_saturates |= one.pair_saturates;
    convention.variations = std::move(variations_);
    SortVariations(convention.variations);
    for (const Op op : AllOps()) {
      if (by_op_[static_cast<size_t>(op)].run) convention.ops.push_back(op);
    }
    const auto by_op = std::make_shared<const ByOp>(std::move(by_op_));
    const auto at = [by_op](Op op) -> const Convention& {
      return (*by_op)[static_cast<size_t>(op)];
    };
    convention.for_op = [at](Op op) { return at(op).run ? &at(op) : nullptr; };
    convention.cannot_run = [at](const Case& c) {
      if (!at(c.op).run) return "this engine has no " + std::string(Name(c.op));
      return at(c.op).cannot_run(c);
    };
    convention.run = [at](const Case& c) { return at(c.op).run(c); };
    convention.enclose = [at](const Case& ends) { return EncloseBy(at(ends.op), ends); };
    convention.trace = [at](const Case& c, int64_t index) { return at(c.op).trace(c, index); };
    return convention;
  }

 private:
  using ByOp = std::array<Convention, kOpCount>;
  ByOp by_op_;
  std::vector<std::string> variations_;
};

// `own` for all cases but those of s8 codes that `is_other` tells, which `other` computes.
// `variations`: those of `other` that `own` does not have.
Convention WithS8(const Convention& own, const Convention& other, bool (*is_other)(const Case&),
                  std::initializer_list<const char*> variations) {
  const auto both = std::make_shared<const std::array<Convention, 2>>(std::array{own, other});
  const auto of = [both, is_other](const Case& c) -> const Convention& {
    return (*both)[c.x.dtype() == DType::kS8 && is_other(c) ? 1 : 0];
  };
  Convention convention = own;
  convention.cannot_run = [of](const Case& c) {
    return FirstReason(
        {Require(c.x.dtype() == c.out_dtype, "operands and output must have one type"),
         WholeRange(c), of(c).cannot_run(c)});
  };
  convention.run = [of](const Case& c) { return of(c).run(c); };
  convention.trace = [of](const Case& c, int64_t index) { return of(c).trace(c, index); };
  std::erase_if(convention.satisfies, [&](const std::string& claim) {
    return std::ranges::find(other.satisfies, claim) == other.satisfies.end();
  });
  Append(convention.variations, variations);
  return convention;
}

// Where PyTorch 1.13 was built with XNNPACK, as Debian's is, XNNPACK multiplies s8 codes, and on
// the engine qnnpack also adds them, unless the output zero point is 127 (qmul.cpp,
// _mul_out_xnnpack; BinaryOps.cpp, xnnp_add; both ask for zero_point < q_max).
Convention WithXnnpackS8(const Convention& own, std::initializer_list<const char*> variations) {
  return WithS8(
      own, Named(XnnpackConventions(), "xnnpack@fp32"),
      [](const Case& c) { return c.out_q.zero_point[0] < 127; }, variations);
}

// softargmax.c and u8lut32norm/scalar.c, which XNNPACK took over as they were.
Convention QnnpackSoftmax() {
  Convention convention = Named(XnnpackConventions(), "xnnpack@fp32");
  convention.variations.clear();  // the list is that of other operators
  return convention;
}

// Observers, and torch.quantize_per_tensor_dynamic, whose codes are those of quantize_per_tensor.
Convention Choosing(std::string_view observers, const Convention& aten) {
  Convention choosing = WithCodesOf(Named(ObserverConventions(), observers), aten);
  // Codes are no exact ones, and those of a vector others than those behind it.
  std::erase_if(choosing.satisfies, [](const std::string& claim) {
    return claim == "matches_exact" || claim == "targets_agree" || claim == "value_permutation" ||
           claim == "zero_append" || claim == "doubling";
  });
  choosing.variations.emplace_back("V23");
  return choosing;
}

void AddAten(Engine& engine, const Convention& aten) {
  engine.Add({Op::kQuantize, Op::kDequantize}, aten);
  engine.Add({Op::kMul}, WithXnnpackS8(aten, {"V1", "V8"}));
  engine.Add({Op::kConcat}, AtenConcat(aten));
  engine.Add({Op::kChooseQParams}, Choosing("observers@torch", aten));
}

// What QNNPACK itself computes, whatever ATen was built with.
void AddQnnpack(Engine& engine, const Convention& qnnpack) {
  engine.Add({Op::kLinear, Op::kConv2d, Op::kDepthwise}, qnnpack);
  engine.Add({Op::kMaxPool}, QnnpackMaxPool());
  engine.Add({Op::kAvgPool, Op::kGlobalAvgPool}, QnnpackAvgPool());
  engine.Add({Op::kTable}, QnnpackTable());
  engine.Add({Op::kSoftmax}, QnnpackSoftmax());
}

Convention Qnnpack() {
  Engine engine;
  const Convention aten = Named(AtenConventions(), "aten@default");
  AddAten(engine, aten);
  const Convention qnnpack = Named(QnnpackConventions(), "qnnpack");
  AddQnnpack(engine, qnnpack);
  engine.Add({Op::kAdd}, WithXnnpackS8(qnnpack, {"V5", "V15"}));
  engine.Add({Op::kDynamicLinear}, QnnpackDynamicLinear(aten));
  return std::move(engine).Make("torch-qnnpack",
                                "PyTorch's engine qnnpack: linear, convolutions, add, pools, "
                                "tables and softmax of QNNPACK, the rest ATen",
                                kWhere);
}

// The official wheels, which quantize by FBGEMM: what is the same in each engine.
constexpr const char* kWheels =
    "PyTorch 2.11 and 2.13 aten/src/ATen/native/quantized/cpu, AffineQuantizerBase.cpp";

void AddWheel(Engine& engine, const Convention& aten) {
  engine.Add({Op::kQuantize, Op::kDequantize, Op::kMul}, aten);
  engine.Add({Op::kConcat}, AtenConcat(aten));
  engine.Add({Op::kChooseQParams}, Choosing("observers@torch2", aten));
}

// What is no sum of products in the engines fbgemm, x86 and onednn.
Convention WheelsAten(const std::string& name, int64_t lanes, AtenBuild build) {
  const Convention aten = AtenWheel(build);
  Engine engine;
  AddWheel(engine, aten);
  engine.Add({Op::kAdd}, aten);
  engine.Add({Op::kMaxPool}, AtenMaxPool());
  engine.Add({Op::kAvgPool, Op::kGlobalAvgPool}, AtenAvgPool(lanes, build));
  engine.Add({Op::kTable}, AtenTable(64, build));
  engine.Add({Op::kSoftmax}, AtenSoftmax(aten));
  return std::move(engine).Make(
      name, "ATen of the official wheel, which quantizes by FBGEMM: what is no sum of products",
      kWheels);
}

Convention WheelsQnnpack(const std::string& name, AtenBuild build) {
  const Convention aten = AtenWheel(build);
  const Convention qnnpack = QnnpackOfWheels();
  Engine engine;
  AddWheel(engine, aten);
  AddQnnpack(engine, qnnpack);
  engine.Add({Op::kAdd}, WithS8(qnnpack, aten, [](const Case&) { return true; }, {"V14"}));
  engine.Add({Op::kDynamicLinear}, QnnpackDynamicLinear(aten));
  return std::move(engine).Make(
      name, "the engine qnnpack of the official wheel, which quantizes by FBGEMM", kWheels);
}

// The engine x86 gives convolutions to oneDNN where the processor has VNNI, the weights have no
// zero point and there are at most 100 groups (OnednnUtils.h, should_use_onednn_quant), else to
// FBGEMM.
Convention WheelsX86(const std::string& isa, const std::string& fbgemms) {
  const Convention onednn = Named(OneDnn3Conventions(), "onednn3.10@" + isa);
  const Convention fbgemm = FbgemmOfWheel(fbgemms, fbgemms != "vnni");
  const auto both = std::make_shared<const std::array<Convention, 2>>(std::array{fbgemm, onednn});
  const auto of = [both](const Case& c) -> const Convention& {
    return (*both)[WeightZeroPointsAre(c, 0) && c.window.groups <= 100 ? 1 : 0];
  };
  Convention convolution;
  convolution.pair_saturates = fbgemm.pair_saturates || onednn.pair_saturates;
  convolution.cannot_run = [of](const Case& c) {
    return FirstReason({Require(c.x.dtype() == DType::kU8 && c.out_dtype == DType::kU8,
                                "activations and output must be u8"),
                        ZeroPointsAreCodes(c), of(c).cannot_run(c)});
  };
  convolution.run = [of](const Case& c) { return of(c).run(c); };
  convolution.trace = [of](const Case& c, int64_t index) { return of(c).trace(c, index); };
  convolution.variations = fbgemm.variations;
  convolution.variations.insert(convolution.variations.end(), onednn.variations.begin(),
                                onednn.variations.end());
  Engine engine;
  engine.Add({Op::kConv2d, Op::kDepthwise}, convolution);
  return std::move(engine).Make(
      "torch-x86@" + isa,
      "the engine x86 on processors with VNNI: convolutions of onednn3.10@" + isa + ", or of " +
          (*both)[0].name + " where weights have a zero point or groups are over 100",
      kWheels);
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
Convention OneDnn(std::string_view isa, std::string_view capability) {
  Convention onednn = Named(OneDnn2Conventions(), "onednn2@" + std::string(isa));
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
  const Convention aten = Named(AtenConventions(), "aten@" + std::string(capability));
  Engine engine;
  AddAten(engine, aten);
  engine.Add({Op::kLinear, Op::kConv2d, Op::kDepthwise}, onednn);
  engine.Add({Op::kAdd}, aten);
  engine.Add({Op::kMaxPool}, AtenMaxPool());
  engine.Add({Op::kAvgPool, Op::kGlobalAvgPool}, AtenAvgPool(0, AtenBuild::kPlain));
  engine.Add({Op::kTable}, AtenTable(capability == "avx2" ? 64 : 0, AtenBuild::kPlain));
  engine.Add({Op::kSoftmax}, AtenSoftmax(aten));
  engine.Add({Op::kDynamicLinear}, OneDnnDynamicLinear(*FindOneDnnIsa(isa), OneDnn2GemmLinear));
  return std::move(engine).Make("torch-onednn@" + std::string(isa),
                                "PyTorch's engine onednn: linear and convolutions of onednn2@" +
                                    std::string(isa) + ", the rest ATen's, capability " +
                                    std::string(capability),
                                std::string(kWhere) + "; ideep b2f8044");
}

}  // namespace

std::vector<Convention> TorchConventions() {
  std::vector<Convention> conventions = {
      Qnnpack(),
      OneDnn("sse41", "default"),
      WheelsAten("torch2.11-aten", 0, AtenBuild::kFbgemm),
      WheelsAten("torch2.13-aten@avx2", 8, AtenBuild::kFbgemmLegacy),
      WheelsAten("torch2.13-aten@avx512", 16, AtenBuild::kFbgemmLegacy),
      WheelsQnnpack("torch2.11-qnnpack", AtenBuild::kFbgemm),
      WheelsQnnpack("torch2.13-qnnpack", AtenBuild::kFbgemmLegacy),
      WheelsX86("avx2", "avx2"),
      WheelsX86("avx512core", "avx512"),
      WheelsX86("vnni", "vnni"),
      WheelsX86("amx", "vnni"),
  };
  for (const char* isa : {"avx2", "avx512", "vnni"}) {
    conventions.push_back(FbgemmOfWheel(isa, false));
    if (isa != std::string_view("vnni")) conventions.push_back(FbgemmOfWheel(isa, true));
  }
  for (const char* isa : {"avx2", "avx2vnni", "avx512core", "vnni", "amx"})
    conventions.push_back(OneDnn(isa, "avx2"));
  return conventions;
}

}  // namespace qualm::conventions
