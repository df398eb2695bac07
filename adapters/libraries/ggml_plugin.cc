// SPDX-License-Identifier: Apache-2.0
// ggml's CPU kernels (llama.cpp) as a plugin: linear with weights and activations in blocks, each
// output one call of ggml_vec_dot_FORMAT_X. s8 weights are q8_0, u4 weights are q4_0, x is q8_0;
// ggml-common.h has the structs, core/weight_formats.h how they lie. A last block that is shorter
// is filled up: x with 0, w with its zero point or the first code that there is. Blocks that its
// super-block has beyond that have scale 0 and minimum 0.
//
// QUALM_GGML_FOLDER holds one shared object for each instruction set, libggml-cpu-ISA.so, and
// QUALM_GGML names the one to load: "haswell". "+q5_0", "+q6_k" and so on behind it: the weights
// are codes of that format, which core/weight_formats.h lists. With "+generic" at the end the
// kernels are their twins in plain C, which the same object has.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/libraries/plugin_answer.h"
#include "adapters/qualm_plugin.h"
#include "core/weight_formats.h"

namespace {

using qualm::plugin::Refusal;

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
    std::string of(format->name);
    if (of.ends_with('k')) of.back() = 'K';
    const std::string_view x = qualm::kActivationNames.at(static_cast<size_t>(format->x));
    const std::string name = "ggml_vec_dot_" + of + "_" + std::string(x) + end;
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

using Bytes = std::vector<uint8_t>;

template <class Number>
void Append(Number number, Bytes& bytes) {
  const auto raw = std::bit_cast<std::array<uint8_t, sizeof number>>(number);
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

void AppendHalf(float number, std::string_view what, Bytes& bytes) {
  const std::optional<uint16_t> half = qualm::HalfOf(std::abs(number));
  if (!half) throw Refusal{QUALM_UNSUPPORTED, "ggml's " + std::string(what) + " are f16"};
  Append(static_cast<uint16_t>(*half | (number < 0 ? 0x8000 : 0)), bytes);
}

// The bits of these numbers that the part has.
void AppendBits(const qualm::BlockPart& part, std::span<const uint8_t> numbers, Bytes& bytes) {
  const size_t begin = bytes.size();
  bytes.resize(begin + numbers.size() * static_cast<size_t>(part.bits) / 8);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int at = static_cast<int>(i), bits = numbers[i] >> part.from & ((1 << part.bits) - 1);
    bytes[begin + static_cast<size_t>(part.Byte(at))] |=
        static_cast<uint8_t>(bits << part.Shift(at));
  }
}

// ggml's get_scale_min_k4 reads them.
void AppendSixBits(std::span<const uint8_t> factors, Bytes& bytes) {
  for (const size_t first : {0, 8}) {  // of scales, of minima
    for (size_t i = first; i < first + 4; ++i)
      bytes.push_back(static_cast<uint8_t>(factors[i] | factors[i + 4] >> 4 << 6));
  }
  for (size_t i = 4; i < 8; ++i)
    bytes.push_back(static_cast<uint8_t>((factors[i] & 15) | (factors[i + 8] & 15) << 4));
}

// One row of weights, filled up to whole super-blocks, as ggml stores it. Of `scales` and
// `zero_points` there is one for each block that the row has.
Bytes WeightsOf(const qualm::WeightFormat& format, const std::vector<int>& codes,
                std::span<const float> scales, std::span<const int32_t> zero_points) {
  Bytes bytes;
  const auto in_block = static_cast<size_t>(format.block);
  const auto in_super_block = static_cast<size_t>(format.super_block);
  for (size_t at = 0; at < codes.size(); at += in_super_block) {
    const size_t first = at / in_block;
    const size_t count = std::min(scales.size() - first, in_super_block / in_block);
    std::optional<qualm::SuperBlock> block = qualm::SuperBlockOf(
        format, scales.subspan(first, count), zero_points.subspan(first, count));
    if (!block)
      throw Refusal{QUALM_UNSUPPORTED,
                    "ggml's " + std::string(format.name) + " has no such scales"};
    Bytes stored, factors;
    for (size_t begin = at; begin < at + in_super_block; begin += in_block) {
      const auto numbers = std::span(codes).subspan(begin, in_block);
      const auto [least, most] = std::ranges::minmax(numbers);
      const int sign = format.either_sign && most > -least ? -1 : 1;
      block->factors[(begin - at) / in_block] *= sign;
      for (const int number : numbers) {
        if (!format.values.empty() && (format.either_sign && sign * number == format.values.back()))
          throw Refusal{QUALM_UNSUPPORTED, "a block has the largest weight of either sign"};
        const auto place = std::ranges::find(format.values, sign * number);
        if (!format.values.empty() && place == format.values.end())
          throw Refusal{QUALM_UNSUPPORTED, "a weight is no code of the format that was asked for"};
        stored.push_back(
            static_cast<uint8_t>(format.values.empty() ? number : place - format.values.begin()));
      }
    }
    for (const int32_t factor : block->factors)
      factors.push_back(static_cast<uint8_t>(factor + format.factor_offset));
    for (const qualm::BlockPart& part : format.parts) {
      switch (part.of) {
        case qualm::BlockPart::Of::kScale:
          if (format.scales == qualm::BlockScales::kPowers)
            bytes.push_back(
                static_cast<uint8_t>(*qualm::PowerOf(block->scale) - qualm::kLeastPower));
          else
            AppendHalf(block->scale, "scales", bytes);
          break;
        case qualm::BlockPart::Of::kMinimum:
          // Blocks of one scale add the minimum, super-blocks subtract it.
          AppendHalf(format.blocks() == 1 ? -block->minimum : block->minimum, "minima", bytes);
          break;
        case qualm::BlockPart::Of::kCodeBits: AppendBits(part, stored, bytes); break;
        case qualm::BlockPart::Of::kFactors: AppendBits(part, factors, bytes); break;
        case qualm::BlockPart::Of::kSixBits: AppendSixBits(factors, bytes); break;
      }
    }
  }
  return bytes;
}

// One row of x. Of `scales` there is one for each super-block.
Bytes ActivationsOf(const qualm::WeightFormat& format, const std::vector<int8_t>& codes,
                    const std::vector<float>& scales) {
  Bytes bytes;
  const auto count = static_cast<size_t>(format.super_block);
  const auto sum = [&](size_t begin, size_t end) {
    return std::accumulate(codes.begin() + static_cast<std::ptrdiff_t>(begin),
                           codes.begin() + static_cast<std::ptrdiff_t>(end), 0);
  };
  for (size_t at = 0; at < codes.size(); at += count) {
    const float scale = scales[at / count];
    if (format.x == qualm::BlockActivations::kQ8K) {
      Append(scale, bytes);
    } else {
      AppendHalf(scale, "scales of x", bytes);
    }
    if (format.x == qualm::BlockActivations::kQ8_1)
      AppendHalf(scale * static_cast<float>(sum(at, at + count)), "sums of x", bytes);
    for (size_t i = at; i < at + count; ++i) bytes.push_back(static_cast<uint8_t>(codes[i]));
    if (format.x != qualm::BlockActivations::kQ8K) continue;
    for (size_t i = at; i < at + count; i += 16)
      Append(static_cast<int16_t>(sum(i, i + 16)), bytes);
  }
  return bytes;
}

// How many codes of a tensor share a scale; 0 if not a block.
int64_t BlockOf(const qualm_granularity* granularity) {
  return granularity != nullptr && granularity->kind == QUALM_PER_BLOCK ? granularity->block : 0;
}

void RequireZeroPoints(const qualm_qparams& q, int32_t zero_point) {
  for (int64_t i = 0; i < q.count; ++i) {
    if (q.zero_point[i] != zero_point)
      throw Refusal{QUALM_UNSUPPORTED, "ggml's zero points are 0, and 8 of q4_0"};
  }
}

// The code that has this place in the tensor.
int CodeAt(const qualm_tensor& tensor, int64_t i) {
  const auto* const data = static_cast<const uint8_t*>(tensor.data);
  switch (tensor.dtype) {
    case QUALM_U2: return data[i / 4] >> (i % 4 * 2) & 3;
    case QUALM_U4: return data[i / 2] >> (i % 2 * 4) & 15;
    case QUALM_S8: return static_cast<int8_t>(data[i]);
    default: return data[i];
  }
}

qualm::DType TypeOf(const qualm_tensor& tensor) { return static_cast<qualm::DType>(tensor.dtype); }

void RunLinear(const qualm_problem& p) {
  const auto& kernels = TheLibrary().kernels;
  const auto kernel = std::ranges::find(
      kernels, TypeOf(*p.w), [](const Library::Kernel& each) { return each.format->dtype; });
  if (kernel == kernels.end())
    throw Refusal{QUALM_UNSUPPORTED, "the format that was asked for has other weights"};
  const qualm::WeightFormat& format = *kernel->format;
  const int64_t in_block = format.block, in_super_block = format.super_block;
  if (BlockOf(p.x_granularity) != in_block || BlockOf(p.w_granularity) != in_block)
    throw Refusal{QUALM_UNSUPPORTED, "ggml multiplies blocks of 32 by blocks of 32, of 16 by 16"};
  RequireZeroPoints(p.x_q, 0);
  if (!format.minima) RequireZeroPoints(p.w_q, format.zero_point);
  const int64_t rows = p.y->dims[0], columns = p.y->dims[1], depth = p.x->dims[1];
  const int64_t blocks = (depth + in_block - 1) / in_block;
  const int64_t whole = (depth + in_super_block - 1) / in_super_block * in_super_block;
  std::vector<Bytes> weights;
  for (int64_t n = 0; n < columns; ++n) {
    const std::span scales(p.w_q.scale + n * blocks, static_cast<size_t>(blocks));
    const std::span zero_points(p.w_q.zero_point + n * blocks, static_cast<size_t>(blocks));
    std::vector<int> codes;
    for (int64_t k = 0; k < whole; ++k) {
      const int32_t zero_point =
          format.Has(format.zero_point) ? format.zero_point : format.values.front();
      codes.push_back(k < depth ? CodeAt(*p.w, n * depth + k) : zero_point);
    }
    weights.push_back(WeightsOf(format, codes, scales, zero_points));
  }
  for (int64_t m = 0; m < rows; ++m) {
    const auto* const x = static_cast<const int8_t*>(p.x->data) + m * p.x->strides[0];
    std::vector<int8_t> codes(x, x + depth);
    codes.resize(static_cast<size_t>(whole));
    std::vector<float> scales;
    for (int64_t block = 0; block < blocks; ++block) {
      const float scale = p.x_q.scale[m * blocks + block];
      if (block % format.blocks() == 0) scales.push_back(scale);
      if (scale != scales.back())
        throw Refusal{QUALM_UNSUPPORTED, "ggml's q8_K has one scale for 256 codes"};
    }
    const Bytes row = ActivationsOf(format, codes, scales);
    auto* const y = static_cast<float*>(p.y->data) + m * p.y->strides[0];
    for (int64_t n = 0; n < columns; ++n)
      kernel->dot(static_cast<int>(whole), y + n, 0, weights[static_cast<size_t>(n)].data(), 0,
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
    c.w_dtypes = 0;
    for (const Library::Kernel& kernel : TheLibrary().kernels) {
      c.w_dtypes |= QUALM_TYPE_BIT(static_cast<uint32_t>(kernel.format->dtype));
      c.w_zero_point_max = std::max(c.w_zero_point_max,
                                    kernel.format->minima ? INT32_MAX : kernel.format->zero_point);
    }
    c.out_dtypes = QUALM_TYPE_BIT(QUALM_F32);
    c.features = QUALM_CAN_PER_CHANNEL | QUALM_CAN_PER_BLOCK | QUALM_CAN_X_PER_BLOCK |
                 QUALM_CAN_EMPTY | QUALM_CAN_STRIDES;
    return c;
  }();
  return op == QUALM_LINEAR ? &linear : nullptr;
}

}  // namespace

extern "C" const qualm_plugin* qualm_plugin_entry(void) {
  const Library& library = TheLibrary();
  const bool apart = !library.kernels.empty() && library.kernels.front().format->offsets_apart;
  static const qualm_plugin plugin = {
      .size = sizeof(qualm_plugin),
      .abi_version = QUALM_ABI_VERSION,
      .reserved = 0,
      .name = "ggml",
      .version = library.version.c_str(),
      .contract = apart ? "sum+offsets" : "sum",
      .instruction_set = library.instruction_set.empty() ? "none" : library.instruction_set.c_str(),
      .capability = Capability,
      .run = Run,
      .last_error = qualm::plugin::LastErrorText};
  return &plugin;
}
