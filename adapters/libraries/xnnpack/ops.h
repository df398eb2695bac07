// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the XNNPACK plugin, and included nowhere else. Of api_2022.cc and
// api_2024.cc one is built: each calls the library as its public header declares it.
#ifndef QUALM_ADAPTERS_LIBRARIES_XNNPACK_OPS_H_
#define QUALM_ADAPTERS_LIBRARIES_XNNPACK_OPS_H_

#include <xnnpack.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "adapters/libraries/plugin_answer.h"
#include "adapters/qualm_plugin.h"

namespace qualm_xnnpack {

// Defined for each version. `Code`: int8_t or uint8_t.
extern const char* const kVersion;  // "of 2024", as the library has no way to tell; or ""
const char* Contract();
const char* InstructionSet();
const qualm_capability* Capability(int32_t op);
template <typename Code>
void RunOp(const qualm_problem& p);

// Throws the refusal of a case.
void Require(bool holds, const char* reason);
void Check(xnn_status status, const std::string& function);

class Operator {
 public:
  Operator() = default;
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;
  ~Operator() { xnn_delete_operator(op_); }

  xnn_operator_t* out() { return &op_; }
  xnn_operator_t get() const { return op_; }
  void Run() { Check(xnn_run_operator(op_, nullptr), "xnn_run_operator"); }

 private:
  xnn_operator_t op_ = nullptr;
};

template <typename Code>
Code ZeroPoint(const qualm_qparams& q) {
  const int32_t zero_point = q.zero_point[0];
  Require(zero_point >= std::numeric_limits<Code>::min() &&
              zero_point <= std::numeric_limits<Code>::max(),
          "XNNPACK's zero points are codes of their tensor's type");
  return static_cast<Code>(zero_point);
}

template <typename Code>
struct Clamp {
  Code low;
  Code high;
};
// The lower end, to which a fused relu raises it.
inline int32_t LowOf(const qualm_problem& p) {
  return p.relu != 0 ? std::max(p.out_min, p.out_q.zero_point[0]) : p.out_min;
}
template <typename Code>
Clamp<Code> ClampOf(const qualm_problem& p) {
  const int32_t low = LowOf(p);
  Require(low < p.out_max, "XNNPACK's clamp leaves two codes or more");
  return {static_cast<Code>(low), static_cast<Code>(p.out_max)};
}

void RequireNormal(float scale);
// The kernels' parameters are made under assertions on this range.
void RequireMultiplier(float multiplier);
void RequireOneType(const qualm_problem& p);
bool HasSameParameters(const qualm_problem& p);
// Of an average over `count` pixels.
void RequireAverage(const qualm_problem& p, int64_t count);
// Refuses a quantized average over windows that leaves padding out: the library counts it.
void RequirePaddingCounts(const qualm_problem& p);
// Refuses a softmax whose uint32 sum of numerators would wrap to 0.
void RequireSoftmaxSum(const qualm_problem& p);
// Refuses a dilated max pool in which the library would replace padding by pixels of another
// window.
void RequireSafePixels(const qualm_problem& p);

inline size_t Size(int64_t value) { return static_cast<size_t>(value); }
inline uint32_t Small(int64_t value) { return static_cast<uint32_t>(value); }

// One convolution, or a linear as a 1x1 convolution over M pixels.
struct Geometry {
  size_t batch, in_h, in_w, in_c, out_c, x_stride, y_stride;
  qualm_window window;
};
Geometry GeometryOf(const qualm_problem& p);

// What holds for the weights of all versions. `wrapping_taps`: whether the library will choose a
// depthwise kernel for so many taps that adds pairs of s8*s8 products in int16 before it widens
// them.
template <typename Code>
void RequireWeights(const qualm_problem& p, bool (*wrapping_taps)(int64_t taps)) {
  RequireOneType(p);
  RequireNormal(p.x_q.scale[0]);
  RequireNormal(p.out_q.scale[0]);
  if (!std::is_signed_v<Code>)
    Require(p.w_q.count == 1, "XNNPACK has parameters per channel for s8 only");
  const int64_t taps = p.window != nullptr ? p.window->kernel_h * p.window->kernel_w : 0;
  const bool fused =
      taps > 0 && p.window->groups == p.x->dims[3] && p.window->groups == p.y->dims[3];
  if (std::is_signed_v<Code> && fused && wrapping_taps(taps)) {
    const auto* w = static_cast<const int8_t*>(p.w->data);
    Require(std::none_of(w, w + p.y->dims[3] * taps, [](int8_t code) { return code == INT8_MIN; }),
            "without AVX2, XNNPACK's depthwise kernels add two products in int16, where two of "
            "-128 * -128 wrap");
  }
  for (int64_t n = 0; n < p.w_q.count; ++n) {
    RequireNormal(p.w_q.scale[n]);
    if (std::is_signed_v<Code>)
      Require(p.w_q.zero_point[n] == 0, "XNNPACK's s8 weights have zero point 0");
  }
}
// Of a product whose parameters are per tensor.
void RequireProduct(const qualm_problem& p);

// The parameters of an operator as bytes: equal keys, equal operators.
class Key {
 public:
  template <typename T>
  Key& AddList(const T* values, int64_t count) {
    text_.append(reinterpret_cast<const char*>(values), Size(count) * sizeof(T));
    return *this;
  }
  template <typename... Numbers>
  Key& Add(Numbers... numbers) {
    (AddList(&numbers, 1), ...);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Everything an operator with weights is made from. The batch and the size of the image are no part
// of it.
template <typename Code>
Key KeyOf(const qualm_problem& p, const Geometry& g, Clamp<Code> clamp) {
  const qualm_window& v = g.window;
  Key key;
  key.Add(p.op, std::is_signed_v<Code>, g.in_c, g.out_c, g.x_stride, g.y_stride);
  key.Add(v.kernel_h, v.kernel_w, v.stride_h, v.stride_w, v.pad_top, v.pad_bottom, v.pad_left,
          v.pad_right, v.dilation_h, v.dilation_w, v.groups);
  key.Add(clamp.low, clamp.high, p.bias_i32 != nullptr);
  for (const qualm_qparams* q : {&p.x_q, &p.w_q, &p.out_q})
    key.Add(q->count).AddList(q->scale, q->count).AddList(q->zero_point, q->count);
  const auto channels = static_cast<int64_t>(g.out_c);
  if (p.bias_i32 != nullptr) key.AddList(p.bias_i32, channels);
  const int64_t terms = v.kernel_h * v.kernel_w * static_cast<int64_t>(g.in_c) / v.groups;
  return key.AddList(static_cast<const Code*>(p.w->data), channels * terms);
}

// An operator with weights, made now or kept from an earlier problem. The one used last stands at
// the end.
class KeptOperator {
 public:
  // `create(op)` makes the operator of this key.
  template <typename Create>
  KeptOperator(const Key& key, const Create& create) : kept_(Kept()) {
    const auto at = std::find_if(kept_.begin(), kept_.end(),
                                 [&](const Entry& entry) { return entry.key == key.text(); });
    if (at != kept_.end()) {
      std::rotate(at, at + 1, kept_.end());
      return;
    }
    auto made = std::make_unique<Operator>();
    create(*made);
    if (kept_.size() == kMost) kept_.erase(kept_.begin());
    kept_.push_back({key.text(), std::move(made)});
  }
  // A refused setup may leave the operator half set up.
  ~KeptOperator() {
    if (!ran_) kept_.pop_back();
  }
  KeptOperator(const KeptOperator&) = delete;
  KeptOperator& operator=(const KeptOperator&) = delete;

  xnn_operator_t get() const { return kept_.back().op->get(); }
  void Run() {
    kept_.back().op->Run();
    ran_ = true;
  }

 private:
  struct Entry {
    std::string key;
    std::unique_ptr<Operator> op;
  };
  static constexpr size_t kMost = 8;
  static std::vector<Entry>& Kept();

  std::vector<Entry>& kept_;
  bool ran_ = false;
};

// Makes the operator of a sum of products. `functions`: `create_linear`, nullptr where a
// convolution over M pixels has to do, and `create_convolution`. `call(function, arguments...)`
// adds what each function takes at its end. `weights`: what it takes of the weights' parameters.
template <typename Code, typename Functions, typename Call, typename... Weights>
void CreateSums(const qualm_problem& p, const Geometry& g, Clamp<Code> clamp,
                const Functions& functions, const Call& call, Weights... weights) {
  const auto create = [&](const char* name, auto function, auto... geometry) {
    Check(call(function, geometry..., ZeroPoint<Code>(p.x_q), p.x_q.scale[0], weights...,
               static_cast<const Code*>(p.w->data), p.bias_i32, ZeroPoint<Code>(p.out_q),
               p.out_q.scale[0], clamp.low, clamp.high),
          name);
  };
  if constexpr (!std::is_null_pointer_v<decltype(functions.create_linear)>) {
    if (p.op == QUALM_LINEAR) {
      return create("xnn_create_fully_connected_nc", functions.create_linear, g.in_c, g.out_c,
                    g.x_stride, g.y_stride);
    }
  }
  const qualm_window& v = g.window;
  create("xnn_create_convolution2d_nhwc", functions.create_convolution, Small(v.pad_top),
         Small(v.pad_right), Small(v.pad_bottom), Small(v.pad_left), Small(v.kernel_h),
         Small(v.kernel_w), Small(v.stride_h), Small(v.stride_w), Small(v.dilation_h),
         Small(v.dilation_w), Small(v.groups), g.in_c / Size(v.groups), g.out_c / Size(v.groups),
         g.x_stride, g.y_stride);
}

// The first capability of an operation, to which each adds its own.
qualm_capability Codes(uint32_t types, uint32_t features);

}  // namespace qualm_xnnpack

#endif  // QUALM_ADAPTERS_LIBRARIES_XNNPACK_OPS_H_
