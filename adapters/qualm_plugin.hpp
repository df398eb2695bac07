/* SPDX-License-Identifier: Apache-2.0
 *
 * A plugin in C++17, with one function for each operation, over qualm_plugin.h:
 *
 *     #include <qualm_plugin.hpp>
 *     QUALM_PLUGIN(qualm::plugin::Kernels("my_kernels", "1.0").Has(QUALM_LINEAR, limits, Linear))
 *
 * What a function throws is the answer: Unsupported "cannot do this problem" (the case is skipped),
 * every other exception "failed" (a finding), both with their text. `qualm new plugin` writes such
 * a file.
 */
#ifndef QUALM_ADAPTERS_QUALM_PLUGIN_HPP_
#define QUALM_ADAPTERS_QUALM_PLUGIN_HPP_

#include <qualm_plugin.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace qualm::plugin {

using Kernel = std::function<void(const qualm_problem&)>;

class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The first element of a row: of the index `i0` of the first dimension, `i1` of the second, and so
// on. Elements of one row follow each other. T must be the type of the tensor, of 8 bits or more.
template <class T, class... Index>
T* Row(const qualm_tensor& tensor, Index... indices) {
  int64_t at = 0, dimension = 0;
  ((at += static_cast<int64_t>(indices) * tensor.strides[dimension++]), ...);
  return static_cast<T*>(tensor.data) + at;
}

// Of an output channel; there may be one for all of them.
inline float Scale(const qualm_qparams& q, int64_t channel = 0) {
  return q.scale[q.count == 1 ? 0 : channel];
}
inline int32_t ZeroPoint(const qualm_qparams& q, int64_t channel = 0) {
  return q.zero_point[q.count == 1 ? 0 : channel];
}

// The operations of a plugin. There is one object in a plugin (QUALM_PLUGIN), for qualm calls
// functions without a word of whose they are.
class Kernels {
 public:
  // `contract`: as qualm_plugin.contract.
  explicit Kernels(std::string name, std::string version = "", std::string contract = "exact")
      : name_(std::move(name)), version_(std::move(version)), contract_(std::move(contract)) {}

  Kernels Has(int32_t op, qualm_capability limits, Kernel kernel) && {
    limits.size = sizeof(qualm_capability);
    offers_[op] = {limits, std::move(kernel)};
    return std::move(*this);
  }
  // The instruction set that really runs ("avx2").
  Kernels On(std::string instruction_set) && {
    instruction_set_ = std::move(instruction_set);
    return std::move(*this);
  }

  // What qualm_plugin_entry() returns. Called once.
  const qualm_plugin* Entry() {
    Only() = this;
    entry_.size = sizeof(qualm_plugin);
    entry_.abi_version = QUALM_ABI_VERSION;
    entry_.name = name_.c_str();
    entry_.version = version_.c_str();
    entry_.contract = contract_.c_str();
    entry_.instruction_set = instruction_set_.empty() ? nullptr : instruction_set_.c_str();
    entry_.capability = [](int32_t op) -> const qualm_capability* {
      const auto offer = Only()->offers_.find(op);
      return offer == Only()->offers_.end() ? nullptr : &offer->second.limits;
    };
    entry_.run = [](const qualm_problem* problem) { return Run(*problem); };
    entry_.last_error = [] { return Error().c_str(); };
    return &entry_;
  }

 private:
  struct Offer {
    qualm_capability limits;
    Kernel kernel;
  };

  static Kernels*& Only() {
    static Kernels* only = nullptr;
    return only;
  }
  static std::string& Error() {
    static thread_local std::string error;
    return error;
  }
  static int32_t Run(const qualm_problem& problem) {
    try {
      Only()->offers_.at(problem.op).kernel(problem);
      return QUALM_OK;
    } catch (const Unsupported& error) {
      Error() = error.what();
      return QUALM_UNSUPPORTED;
    } catch (const std::exception& error) {
      Error() = error.what();
    } catch (...) {
      Error() = "an exception that is no std::exception";
    }
    return QUALM_FAILED;
  }

  std::string name_, version_, contract_, instruction_set_;
  std::map<int32_t, Offer> offers_;
  qualm_plugin entry_ = {};
};

}  // namespace qualm::plugin

#define QUALM_PLUGIN(kernels)                                                   \
  extern "C" QUALM_PLUGIN_EXPORT const qualm_plugin* qualm_plugin_entry(void) { \
    static qualm::plugin::Kernels the_kernels = kernels;                        \
    return the_kernels.Entry();                                                 \
  }

#endif  // QUALM_ADAPTERS_QUALM_PLUGIN_HPP_
