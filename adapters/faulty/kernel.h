// SPDX-License-Identifier: Apache-2.0
// A kernel with planted faults, or none. A fault of arithmetic is a cause of triage
// (triage/causes.h). The kernel has memory accesses, state between calls and behaviour in its
// caller's environment of its own, and faults of its own in these.
#ifndef QUALM_ADAPTERS_FAULTY_KERNEL_H_
#define QUALM_ADAPTERS_FAULTY_KERNEL_H_

#include <bitset>
#include <cstdint>
#include <utility>
#include <vector>

#include "adapters/host/in_process.h"
#include "core/case.h"
#include "triage/causes.h"

namespace qualm::faulty {

// A fault that is no cause of triage. The table of faults.cc says what it does; the kernel asks
// Has() where it acts.
enum class Fault : uint8_t {
  kNone,  // the fault of the row is a cause
  // Memory that is read or written beside the operands, or in another order.
  kKZero,
  kKOverRead,
  kRowBound,
  kOverlappedTail,
  kOverlappedTailInPlace,
  kSecondReadAgain,
  kSharedFirstParameters,
  kStrideIgnored,
  kWeightStrideIgnored,
  kLineStrideIgnored,
  kRowOffsetU32,
  kOutputNotCleared,
  kInputShiftedInPlace,
  kHalfTail,
  kStoreOrder,
  kChunkEdge,
  // Places in which a tie is rounded otherwise.
  kOneTie,
  kTailRoundsAway,
  kAlignmentHead,
  kCallerRounding,
  // Indices and edges of parameters that are no cause.
  kBiasPerBlockOfK,
  kDeepChannelTap,
  kGroupBlockScale,
  kPowerShiftWraps,
  // State that is kept between calls, shared by them, or left behind.
  kStaleColumnSums,
  kStaleScales,
  kStaleBias,
  kStaleClamp,
  kStaleScratch,
  kSharedScratch,
  kLeavesRounding,
  kBlocksSignals,
  kLeaksPerCall,
};

// The faults of one implementation: none, one, or several, as a real kernel may have.
struct Faults {
  std::bitset<static_cast<size_t>(Fault::kLeaksPerCall) + 1> own;
  std::vector<triage::Cause> causes;

  bool Has(Fault fault) const { return own.test(static_cast<size_t>(fault)); }
};

class Kernel {
 public:
  explicit Kernel(Faults faults) : faults_(std::move(faults)) {}

  // `again`: the layer was packed by the call before.
  void Run(const Placed& p, bool again = false);

 private:
  bool Has(Fault fault) const { return faults_.Has(fault); }

  void TouchBeside(const Placed& p);
  void Read(const Placed& p);
  // Changes the parameters of the case that was read.
  void EditParameters(const Placed& p);
  void TakeKept();
  // The output of this case under all planted causes, and under `own`, the hooks of the kernel's
  // own faults.
  Tensor Answer(const Case& c, std::vector<triage::Cause> own = {}) const;
  std::vector<triage::Cause> OwnHooks(const Placed& p, bool again);
  // Change what was answered.
  void RoundTiesElsewhere(const Placed& p);
  void ReadOutputsAgain(const Placed& p);
  void Write(const Placed& p) const;

  Faults faults_;
  // What was read and is to be written: members, because either may end in a signal, and locals
  // would leak.
  Case c_;
  Tensor y_;
  int64_t beside_ = 0;  // kKZero: the product of the codes that it read
  // Of the call before.
  Case kept_;
  std::vector<int64_t> column_sums_;
  int64_t column_sums_of_k_ = -1;
  int64_t scratch_ = 0;
};

}  // namespace qualm::faulty

#endif  // QUALM_ADAPTERS_FAULTY_KERNEL_H_
