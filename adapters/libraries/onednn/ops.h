// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the oneDNN plugin, and included nowhere else. Loaded only in the worker.
#ifndef QUALM_ADAPTERS_LIBRARIES_ONEDNN_OPS_H_
#define QUALM_ADAPTERS_LIBRARIES_ONEDNN_OPS_H_

#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "adapters/qualm_plugin.h"

#if DNNL_VERSION_MAJOR != 2
#error "the oneDNN plugin is written for the C++ interface of oneDNN 2.x"
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

// float32 parameters of one sum of products, as ideep computes them from the tensors' scales
// (include/ideep/utils.hpp @ b2f8044, compute_scales): source and output scales are reciprocals.
struct Scales {
  std::vector<float> output;  // 1 or N
  std::vector<float> bias;    // N, in accumulator units; or empty
};
// N output channels; outputs that are no codes have scale 1.
Scales ComputeScales(const qualm_problem& problem, int64_t channels);

// Attributes of a product: `channel_mask` says which dimension of the output the scales belong to.
struct Epilogue {
  std::vector<float> output_scales;  // empty: none
  int32_t source_zero_point = 0;
  int32_t weights_zero_point = 0;
  int32_t destination_zero_point = 0;
  bool relu = false;
};
dnnl::primitive_attr AttributesOf(const Epilogue& epilogue);

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
  Key& Add(const Epilogue& epilogue);
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
