// SPDX-License-Identifier: Apache-2.0
// ggml's CPU kernels (llama.cpp) as a plugin: linear with weights and activations in blocks of 32,
// each output one call of ggml_vec_dot_FORMAT_q8_0. s8 weights are q8_0, u4 weights are q4_0, x is
// q8_0; ggml-common.h has the structs: the scale, then the codes. Of formats of 4 bits element j is
// the low half of byte j and element 16 + j the high one; q5_0 has the fifth bits before them, of
// element j bit j. x of a last block that is shorter is filled with 0, and w with its first code.
//
// QUALM_GGML_FOLDER holds one shared object for each instruction set, libggml-cpu-ISA.so, and
// QUALM_GGML names the one to load: "haswell". "+q5_0", "+iq4_nl" or "+mxfp4" behind it: s8 weights
// are codes of that format. With "+generic" at the end the kernels are their twins in plain C,
// which the same object has.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/libraries/plugin_answer.h"
#include "adapters/qualm_plugin.h"
#include "core/weight_formats.h"

namespace {

using qualm::plugin::Refusal;

constexpr int64_t kBlock = 32;

using VecDot = void (*)(int n, float* s, size_t bs, const void* x, size_t bx, const void* y,
                        size_t by, int nrc);

struct Library {
  std::string instruction_set;  // "" where nothing could be loaded
  std::string version;
  struct Kernel {
    const qualm::WeightFormat* format = nullptr;
    VecDot dot = nullptr;
  };
  std::vector<Kernel> kernels;  // of different types of weights
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
  std::vector<const qualm::WeightFormat*> formats{&qualm::kQ8_0, &qualm::kQ4_0};
  if (const size_t plus = wanted.find('+'); plus != std::string::npos) {
    const auto* const named =
        std::ranges::find(qualm::kNamedFormats, std::string_view(wanted).substr(plus + 1),
                          &qualm::WeightFormat::name);
    if (named == qualm::kNamedFormats.end()) return {};
    formats = {*named};
    wanted.resize(plus);
  }
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
  for (const qualm::WeightFormat* format : formats) {
    const std::string name = "ggml_vec_dot_" + std::string(format->name) + "_q8_0" + end;
    library.kernels.push_back({format, Symbol<VecDot>(object, name)});
    if (library.kernels.back().dot == nullptr) return {};
  }
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

void AppendScale(float scale, qualm::BlockScales scales, std::vector<uint8_t>& bytes) {
  if (scales == qualm::BlockScales::kPowers) {
    const std::optional<int> power = qualm::PowerOf(scale);
    if (!power)
      throw Refusal{QUALM_UNSUPPORTED,
                    "ggml's e8m0 holds powers of two, from 2^-128 to 2^126 here"};
    bytes.push_back(static_cast<uint8_t>(*power - qualm::kLeastPower));
    return;
  }
  const std::optional<uint16_t> half = Half(scale);
  if (!half) throw Refusal{QUALM_UNSUPPORTED, "ggml's blocks have scales that an f16 holds"};
  bytes.push_back(static_cast<uint8_t>(*half & 0xFF));
  bytes.push_back(static_cast<uint8_t>(*half >> 8));
}

// What a block stores for this code: its place among the values of a format that lists them.
uint8_t StoredOf(const qualm::WeightFormat& format, int8_t code) {
  if (format.values.empty()) return static_cast<uint8_t>(code);
  const auto at = std::ranges::find(format.values, code);
  if (at == format.values.end())
    throw Refusal{QUALM_UNSUPPORTED, "a weight is no code of the format that was asked for"};
  return static_cast<uint8_t>(at - format.values.begin());
}

// The codes of one row, filled up to whole blocks, as ggml stores them.
std::vector<uint8_t> RowOf(const std::vector<int8_t>& codes, const float* scales,
                           const qualm::WeightFormat& format) {
  constexpr size_t kHalfBlock = kBlock / 2;
  std::vector<uint8_t> bytes;
  for (size_t at = 0, block = 0; at < codes.size(); at += kBlock, ++block) {
    AppendScale(scales[block], format.scales, bytes);
    std::array<uint8_t, kBlock> stored{};
    for (size_t j = 0; j < kBlock; ++j) stored.at(j) = StoredOf(format, codes[at + j]);
    if (format.dtype == qualm::DType::kS8 && format.values.empty()) {
      bytes.insert(bytes.end(), stored.begin(), stored.end());
      continue;
    }
    if (format.values.size() > 16) {
      uint32_t fifth = 0;
      for (size_t j = 0; j < kBlock; ++j) fifth |= uint32_t{stored.at(j)} >> 4 << j;
      for (int shift = 0; shift < 32; shift += 8)
        bytes.push_back(static_cast<uint8_t>(fifth >> shift));
    }
    for (size_t j = 0; j < kHalfBlock; ++j)
      bytes.push_back(static_cast<uint8_t>((stored.at(j) & 15) | stored.at(j + kHalfBlock) << 4));
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
  const auto& kernels = TheLibrary().kernels;
  const auto kernel = std::ranges::find(kernels, nibbles, [](const Library::Kernel& each) {
    return each.format->dtype == qualm::DType::kU4;
  });
  if (kernel == kernels.end())
    throw Refusal{QUALM_UNSUPPORTED, "the format that was asked for has s8 weights"};
  const qualm::WeightFormat& format = *kernel->format;
  const auto nothing =
      format.values.empty() ? static_cast<int8_t>(format.zero_point) : format.values.front();
  RequireZeroPoints(p.x_q, 0);
  RequireZeroPoints(p.w_q, format.zero_point);
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
    weights.push_back(RowOf(codes, p.w_q.scale + n * blocks, format));
  }
  for (int64_t m = 0; m < rows; ++m) {
    const auto* const x = static_cast<const int8_t*>(p.x->data) + m * p.x->strides[0];
    std::vector<int8_t> codes(x, x + depth);
    codes.resize(static_cast<size_t>(blocks * kBlock));
    const std::vector<uint8_t> row = RowOf(codes, p.x_q.scale + m * blocks, qualm::kQ8_0);
    auto* const y = static_cast<float*>(p.y->data) + m * p.y->strides[0];
    for (int64_t n = 0; n < columns; ++n)
      kernel->dot(static_cast<int>(blocks * kBlock), y + n, 0,
                  weights[static_cast<size_t>(n)].data(), 0, row.data(), 0, 1);
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
