// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the oneDNN plugin, which is loaded only in the worker, and by the bench.
#ifndef QUALM_ADAPTERS_LIBRARIES_ONEDNN_OPS_H_
#define QUALM_ADAPTERS_LIBRARIES_ONEDNN_OPS_H_

#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "adapters/qualm_plugin.h"

#if DNNL_VERSION_MAJOR != 2 && (DNNL_VERSION_MAJOR != 3 || DNNL_VERSION_MINOR != 7)
#error "the oneDNN plugin is written for the C++ interfaces of oneDNN 2.x and 3.7"
#endif

namespace qualm_onednn {

inline constexpr uint32_t kCodes = QUALM_TYPE_BIT(QUALM_U8) | QUALM_TYPE_BIT(QUALM_S8);

// "sse41", "avx", "avx2", "avx2vnni", "avx512core", "vnni", "amx": what oneDNN really uses here.
const std::string& InstructionSet();

dnnl::engine& Engine();
dnnl::stream& Stream();

// How many primitives oneDNN keeps of its own accord, unless the environment says how many. It
// would keep 1024, and look at all of them whenever it drops one, which is for each new case: most
// have scales of their own. That and the scattered heap took an eighth of the time of a fuzz target
// with its worker. What comes again while a finding is minimized is in Cache.
inline constexpr int kPrimitivesKept = 64;
void KeepFewPrimitives();

dnnl::memory::data_type TypeOf(int32_t dtype);
inline bool IsCode(int32_t dtype) { return dtype == QUALM_U8 || dtype == QUALM_S8; }

// The sentence behind the answer QUALM_UNSUPPORTED.
int32_t Unsupported(std::string why);

// What a primitive does to one of its tensors besides the operation. Version 2 has the values in
// the attributes; version 3 has only masks there, and is given the values with each run.
struct Quantization {
  int argument = 0;                // DNNL_ARG_...; version 2 knows kOutput too
  std::vector<float> scales = {};  // none; one; or one for each index of the dimensions in `mask`
  int mask = 0;
  int32_t zero_point = 0;
};
#if DNNL_VERSION_MAJOR == 2
inline constexpr int kOutput = DNNL_ARG_ATTR_OUTPUT_SCALES;  // scales of sums and of reorders
#endif

class Attributes {
 public:
  void Add(Quantization tensor) { tensors_.push_back(std::move(tensor)); }
  void AddRelu() { relu_ = true; }
  dnnl::primitive_attr Make() const;
  // What version 3 is given with a run. The memories refer to this object.
  void AddTo(std::unordered_map<int, dnnl::memory>& arguments) const;
  int32_t ZeroPointOf(int argument) const;

 private:
  friend class Key;
  std::vector<Quantization> tensors_;
  bool relu_ = false;
};

// How sums of products become outputs, as PyTorch passes it through ideep. Outputs that are no
// codes have scale 1, and s32 outputs are raw sums, without bias.
struct SumsEpilogue {
  Attributes attributes;
  std::vector<float> bias;  // float32, in the units that this version takes; or empty
};
// `weights_mask` says which dimensions of the weights are output channels.
SumsEpilogue EpilogueOf(const qualm_problem& problem, int64_t channels, int weights_mask);

// The description of a primitive with these operands.
template <class Primitive, class... Operands>
typename Primitive::primitive_desc Describe(const Attributes& attributes,
                                            const Operands&... operands) {
#if DNNL_VERSION_MAJOR == 2
  return {typename Primitive::desc(operands...), attributes.Make(), Engine()};
#else
  return {Engine(), operands..., attributes.Make()};
#endif
}

// The parameters of a primitive as a string of bytes: equal keys, equal primitives.
class Key {
 public:
  template <class T>
  Key& Add(const T& value) {
    return AddBytes(&value, sizeof value);
  }
  template <class T>
  Key& AddList(const std::vector<T>& values) {
    Add(values.size());
    return AddBytes(values.data(), values.size() * sizeof(T));
  }
  Key& Add(const dnnl::memory::desc& desc);
  // Equal bytes, equal layouts. At worst the same layout has several keys.
  Key& AddLayout(const dnnl::memory::desc& desc);
  Key& Add(const Attributes& attributes);
  const std::string& text() const { return text_; }

 private:
  Key& AddBytes(const void* from, size_t bytes);
  std::string text_;
};

// Primitives by their keys. Making one costs 50 us and more, and the same problem comes again and
// again while a finding is minimized.
template <class Primitive>
class Cache {
 public:
  template <class Build>
  const Primitive& Get(const Key& key, const Build& build) {
    constexpr size_t kMost = 256;
    const auto found = made_.find(key.text());
    if (found != made_.end()) return found->second;
    if (made_.size() >= kMost) made_.clear();
    return made_.emplace(key.text(), build()).first->second;
  }

 private:
  std::unordered_map<std::string, Primitive> made_;
};

// For each operation its declared limits, and the function that runs it.
const qualm_capability* LinearCapability();
int32_t RunLinear(const qualm_problem& problem);
const qualm_capability* ConvCapability();
int32_t RunConv(const qualm_problem& problem);
const qualm_capability* ReorderCapability(int32_t op);
int32_t RunReorder(const qualm_problem& problem);
const qualm_capability* BinaryCapability();
int32_t RunBinary(const qualm_problem& problem);
const qualm_capability* PoolCapability(int32_t op);
int32_t RunPool(const qualm_problem& problem);

}  // namespace qualm_onednn

#endif  // QUALM_ADAPTERS_LIBRARIES_ONEDNN_OPS_H_
