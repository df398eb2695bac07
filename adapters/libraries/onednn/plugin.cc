// SPDX-License-Identifier: Apache-2.0
// oneDNN 2.x or 3.7 as a plugin, called as PyTorch 1.13 or 2.6 calls it through ideep. One file per
// kind of primitive: linear.cc (matmul), conv.cc (convolution), elementwise.cc (reorder and
// binary), pool.cc (pooling).
//
// Results follow the conventions model:onednn2@ISA and model:onednn3@ISA (oracles/conventions): the
// zero point is added in float32 before rounding, and without VNNI products of u8 and s8 are added
// in saturating int16 pairs.
#include <exception>
#include <string>
#include <utility>

#include "adapters/libraries/onednn/ops.h"
#include "adapters/libraries/plugin_answer.h"
#include "adapters/qualm_plugin.h"

namespace qualm_onednn {
namespace {

using qualm::plugin::LastError;

struct Isa {
  std::string name;
  std::string contract;
};

// The instruction set in use, and the convention that holds for it. In version 2 AVX cuts K where
// SSE4.1 does; in both AVX512_CORE_BF16 has the int8 kernels of AVX512_CORE_VNNI. Of version 3 no
// convention describes AVX, AVX2_VNNI and AMX, so that the worker is turned away there.
const Isa& EffectiveIsa() {
  static const Isa* isa = [] {
    const auto make = [](std::string name, const std::string& convention) {
      constexpr const char* kVersion = DNNL_VERSION_MAJOR == 2 ? "onednn2@" : "onednn3@";
      return new Isa{std::move(name), std::string("model:") + kVersion + convention};
    };
    switch (dnnl::get_effective_cpu_isa()) {
      case dnnl::cpu_isa::sse41: return make("sse41", "sse41");
      case dnnl::cpu_isa::avx: return make("avx", DNNL_VERSION_MAJOR == 2 ? "sse41" : "avx");
      case dnnl::cpu_isa::avx2: return make("avx2", "avx2");
      case dnnl::cpu_isa::avx2_vnni: return make("avx2vnni", "avx2vnni");
      case dnnl::cpu_isa::avx512_core: return make("avx512core", "avx512core");
      case dnnl::cpu_isa::avx512_core_amx: return make("amx", "amx");
#if DNNL_VERSION_MAJOR == 3
      case dnnl::cpu_isa::avx2_vnni_2: return make("avx2vnni", "avx2vnni");
      case dnnl::cpu_isa::avx512_core_amx_fp16: return make("amx", "amx");
#endif
      default: return make("vnni", "vnni");
    }
  }();
  return *isa;
}

int32_t Run(const qualm_problem* problem) {
  LastError().clear();
  try {
    switch (problem->op) {
      case QUALM_LINEAR: return RunLinear(*problem);
      case QUALM_CONV2D:
      case QUALM_DEPTHWISE: return RunConv(*problem);
      case QUALM_QUANTIZE:
      case QUALM_DEQUANTIZE:
      case QUALM_REQUANTIZE: return RunReorder(*problem);
      case QUALM_ADD:
      case QUALM_MUL: return RunBinary(*problem);
      case QUALM_MAX_POOL:
      case QUALM_AVG_POOL:
      case QUALM_GLOBAL_AVG_POOL: return RunPool(*problem);
      default: return Unsupported("operation not offered");
    }
  } catch (const dnnl::error& error) {
    LastError() = error.what();
    return error.status == dnnl_unimplemented ? QUALM_UNSUPPORTED : QUALM_FAILED;
  } catch (const std::exception& error) {
    LastError() = error.what();
    return QUALM_FAILED;
  }
}

const qualm_capability* Capability(int32_t op) {
  switch (op) {
    case QUALM_LINEAR: return LinearCapability();
    case QUALM_CONV2D:
    case QUALM_DEPTHWISE: return ConvCapability();
    case QUALM_QUANTIZE:
    case QUALM_DEQUANTIZE:
    case QUALM_REQUANTIZE: return ReorderCapability(op);
    case QUALM_ADD:
    case QUALM_MUL: return BinaryCapability();
    case QUALM_MAX_POOL:
    case QUALM_AVG_POOL:
    case QUALM_GLOBAL_AVG_POOL: return PoolCapability(op);
    default: return nullptr;
  }
}

}  // namespace

const std::string& InstructionSet() { return EffectiveIsa().name; }

int32_t Unsupported(std::string why) {
  LastError() = std::move(why);
  return QUALM_UNSUPPORTED;
}

}  // namespace qualm_onednn

extern "C" const qualm_plugin* qualm_plugin_entry(void) {
  qualm_onednn::KeepFewPrimitives();
  static const std::string* version = [] {
    const dnnl_version_t* v = dnnl_version();
    return new std::string(std::to_string(v->major) + "." + std::to_string(v->minor) + "." +
                           std::to_string(v->patch));
  }();
  static const qualm_plugin plugin = {.size = sizeof(qualm_plugin),
                                      .abi_version = QUALM_ABI_VERSION,
                                      .reserved = 0,
                                      .name = "oneDNN",
                                      .version = version->c_str(),
                                      .contract = qualm_onednn::EffectiveIsa().contract.c_str(),
                                      .instruction_set = qualm_onednn::EffectiveIsa().name.c_str(),
                                      .capability = qualm_onednn::Capability,
                                      .run = qualm_onednn::Run,
                                      .last_error = qualm::plugin::LastErrorText};
  return &plugin;
}
