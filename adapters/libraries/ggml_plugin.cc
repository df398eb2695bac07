// SPDX-License-Identifier: Apache-2.0
// ggml's CPU kernels (llama.cpp) as a plugin: linear with weights and activations in blocks of 32,
// each output one call of ggml_vec_dot_TYPE_q8_0. s8 weights are q8_0, u4 weights are q4_0, x is
// q8_0; ggml-common.h has the structs: the scale as f16, then the codes; of q4_0 element j in the
// low half of byte j and element 16 + j in the high one. A last block that is shorter is filled
// with codes that stand for 0.
//
// QUALM_GGML_FOLDER holds one shared object for each instruction set, libggml-cpu-ISA.so, and
// QUALM_GGML names the one to load: "haswell". With "+generic" behind it the kernels are their
// twins in plain C, which the same object has.
#include <dlfcn.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/libraries/plugin_answer.h"
#include "adapters/qualm_plugin.h"

namespace {

using qualm::plugin::Refusal;

constexpr int64_t kBlock = 32;

using VecDot = void (*)(int n, float* s, size_t bs, const void* x, size_t bx, const void* y,
                        size_t by, int nrc);

struct Library {
  std::string instruction_set;  // "" where nothing could be loaded
  std::string version;
  VecDot q8_0 = nullptr, q4_0 = nullptr;
};

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

template <class Function>
Function Symbol(void* object, const std::string& name) {
  return reinterpret_cast<Function>(dlsym(object, name.c_str()));
}

Library Load() {
  constexpr std::string_view kGeneric = "+generic";
  std::string wanted = Variable("QUALM_GGML");
  const bool generic = wanted.ends_with(kGeneric);
  if (generic) wanted.resize(wanted.size() - kGeneric.size());
  const std::string path = Variable("QUALM_GGML_FOLDER") + "/libggml-cpu-" + wanted + ".so";
  void* const object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) return {};
  // 0 where the processor lacks something that the object was compiled for (ggml-cpu/arch/x86/
  // cpu-feats.cpp). The object for every processor has no such function.
  if (const auto score = Symbol<int (*)()>(object, "ggml_backend_score"); score && score() == 0)
    return {};
  const auto init = Symbol<void (*)()>(object, "ggml_cpu_init");
  if (init == nullptr) return {};
  init();  // makes the tables of f16
  const std::string end = generic ? "_generic" : "";
  Library library;
  library.q8_0 = Symbol<VecDot>(object, "ggml_vec_dot_q8_0_q8_0" + end);
  library.q4_0 = Symbol<VecDot>(object, "ggml_vec_dot_q4_0_q8_0" + end);
  if (library.q8_0 == nullptr || library.q4_0 == nullptr) return {};
  library.instruction_set = wanted;
  const auto text = [&](const char* name) -> std::string {
    const auto tell = Symbol<const char* (*)()>(object, name);
    return tell == nullptr ? "" : tell();
  };
  library.version = text("ggml_version");
  if (const std::string commit = text("ggml_commit"); !commit.empty())
    library.version += " (" + commit + ")";
  return library;
}

const Library& TheLibrary() {
  static const auto* const library = new Library(Load());
  return *library;
}

// The f16 that is this number, which is finite and positive.
std::optional<uint16_t> Half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const int exponent = static_cast<int>(bits >> 23) - 127;
  const uint32_t fraction = bits & 0x7FFFFF;
  if (exponent > 15 || exponent < -24) return std::nullopt;
  if (exponent >= -14) {
    if ((fraction & 0x1FFF) != 0) return std::nullopt;
    return static_cast<uint16_t>((static_cast<uint32_t>(exponent + 15) << 10) | (fraction >> 13));
  }
  const int shift = 13 - 14 - exponent;
  const uint32_t whole = fraction | 0x800000;
  if ((whole & ((1u << shift) - 1)) != 0) return std::nullopt;
  return static_cast<uint16_t>(whole >> shift);
}

void AppendScale(float scale, std::vector<uint8_t>& bytes) {
  const std::optional<uint16_t> half = Half(scale);
  if (!half) throw Refusal{QUALM_UNSUPPORTED, "ggml's blocks have scales that an f16 holds"};
  bytes.push_back(static_cast<uint8_t>(*half & 0xFF));
  bytes.push_back(static_cast<uint8_t>(*half >> 8));
}

// The codes of one row, filled up to whole blocks, as ggml stores them.
std::vector<uint8_t> RowOf(const std::vector<int8_t>& codes, const float* scales, bool nibbles) {
  std::vector<uint8_t> bytes;
  for (size_t at = 0, block = 0; at < codes.size(); at += kBlock, ++block) {
    AppendScale(scales[block], bytes);
    for (size_t j = 0; j < kBlock / (nibbles ? 2 : 1); ++j) {
      const auto low = static_cast<uint8_t>(codes[at + j]);
      const auto high = nibbles ? static_cast<uint8_t>(codes[at + j + kBlock / 2]) : uint8_t{0};
      bytes.push_back(static_cast<uint8_t>(low | high << 4));
    }
  }
  return bytes;
}

bool IsInBlocks(const qualm_granularity* granularity) {
  return granularity != nullptr && granularity->kind == QUALM_PER_BLOCK &&
         granularity->block == kBlock;
}

void RequireZeroPoints(const qualm_qparams& q, int32_t zero_point) {
  for (int64_t i = 0; i < q.count; ++i) {
    if (q.zero_point[i] != zero_point)
      throw Refusal{QUALM_UNSUPPORTED, "ggml's zero points are 0, and 8 of 4-bit weights"};
  }
}

void RunLinear(const qualm_problem& p) {
  if (!IsInBlocks(p.x_granularity) || !IsInBlocks(p.w_granularity))
    throw Refusal{QUALM_UNSUPPORTED, "ggml multiplies blocks of 32 by blocks of 32"};
  const bool nibbles = p.w->dtype == QUALM_U4;
  const int8_t nothing = nibbles ? 8 : 0;
  RequireZeroPoints(p.x_q, 0);
  RequireZeroPoints(p.w_q, nothing);
  const int64_t rows = p.y->dims[0], columns = p.y->dims[1], depth = p.x->dims[1];
  const int64_t blocks = (depth + kBlock - 1) / kBlock;
  std::vector<std::vector<uint8_t>> weights;
  for (int64_t n = 0; n < columns; ++n) {
    std::vector<int8_t> codes(static_cast<size_t>(blocks * kBlock), nothing);
    for (int64_t k = 0; k < depth; ++k) {
      const int64_t i = n * depth + k;
      const auto* const data = static_cast<const uint8_t*>(p.w->data);
      codes[static_cast<size_t>(k)] =
          static_cast<int8_t>(nibbles ? data[i / 2] >> (i % 2 * 4) & 15 : data[i]);
    }
    weights.push_back(RowOf(codes, p.w_q.scale + n * blocks, nibbles));
  }
  const VecDot dot = nibbles ? TheLibrary().q4_0 : TheLibrary().q8_0;
  for (int64_t m = 0; m < rows; ++m) {
    const auto* const x = static_cast<const int8_t*>(p.x->data) + m * p.x->strides[0];
    std::vector<int8_t> codes(x, x + depth);
    codes.resize(static_cast<size_t>(blocks * kBlock));
    const std::vector<uint8_t> row = RowOf(codes, p.x_q.scale + m * blocks, false);
    auto* const y = static_cast<float*>(p.y->data) + m * p.y->strides[0];
    for (int64_t n = 0; n < columns; ++n)
      dot(static_cast<int>(blocks * kBlock), y + n, 0, weights[static_cast<size_t>(n)].data(), 0,
          row.data(), 0, 1);
  }
}

int32_t Run(const qualm_problem* problem) {
  return qualm::plugin::Answer([&] { RunLinear(*problem); });
}

const qualm_capability* Capability(int32_t op) {
  static const qualm_capability linear = [] {
    qualm_capability c{};
    c.size = sizeof c;
    c.x_dtypes = QUALM_TYPE_BIT(QUALM_S8);
    c.w_dtypes = QUALM_TYPE_BIT(QUALM_S8) | QUALM_TYPE_BIT(QUALM_U4);
    c.out_dtypes = QUALM_TYPE_BIT(QUALM_F32);
    c.features = QUALM_CAN_PER_CHANNEL | QUALM_CAN_PER_BLOCK | QUALM_CAN_X_PER_BLOCK |
                 QUALM_CAN_EMPTY | QUALM_CAN_STRIDES;
    c.w_zero_point_max = 8;
    return c;
  }();
  return op == QUALM_LINEAR ? &linear : nullptr;
}

}  // namespace

extern "C" const qualm_plugin* qualm_plugin_entry(void) {
  const Library& library = TheLibrary();
  static const qualm_plugin plugin = {
      .size = sizeof(qualm_plugin),
      .abi_version = QUALM_ABI_VERSION,
      .reserved = 0,
      .name = "ggml",
      .version = library.version.c_str(),
      .contract = "sum",
      .instruction_set = library.instruction_set.empty() ? "none" : library.instruction_set.c_str(),
      .capability = Capability,
      .run = Run,
      .last_error = qualm::plugin::LastErrorText};
  return &plugin;
}
