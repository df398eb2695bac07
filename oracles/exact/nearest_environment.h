// SPDX-License-Identifier: Apache-2.0
// Float arithmetic as IEEE 754 starts out, whatever the caller has set.
#ifndef QUALM_ORACLES_EXACT_NEAREST_ENVIRONMENT_H_
#define QUALM_ORACLES_EXACT_NEAREST_ENVIRONMENT_H_

#include <cfenv>

namespace qualm::exact {

// While it lives: round to nearest, no flushing of denormals. The compiler knows nothing of the
// change, so the arithmetic must be in a function that is not inlined. Inside another one it costs
// nothing: setting the environment takes longer than choosing a scale.
class NearestEnvironment {
 public:
  NearestEnvironment() {
    if (depth_++ > 0) return;
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~NearestEnvironment() {
    if (--depth_ == 0) std::fesetenv(&saved_);
  }
  NearestEnvironment(const NearestEnvironment&) = delete;
  NearestEnvironment& operator=(const NearestEnvironment&) = delete;

 private:
  static inline thread_local int depth_ = 0;
  std::fenv_t saved_;
};

}  // namespace qualm::exact

#endif  // QUALM_ORACLES_EXACT_NEAREST_ENVIRONMENT_H_
