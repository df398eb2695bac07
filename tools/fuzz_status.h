// SPDX-License-Identifier: Apache-2.0
// What a campaign says on stderr while it runs.
#ifndef QUALM_TOOLS_FUZZ_STATUS_H_
#define QUALM_TOOLS_FUZZ_STATUS_H_

#include <functional>
#include <string>

#include "campaign/driver.h"
#include "core/io/fault_row.h"

namespace qualm::tools {

// On a terminal one line that is written over; elsewhere a plain line every half minute.
class FuzzStatus {
 public:
  explicit FuzzStatus(std::function<bool(const FaultRow&)> is_new);

  void Tell(const campaign::Progress& progress);
  // A line of its own.
  void Say(const std::string& text) const;
  // Takes the line away.
  void End() const;
  std::string LastLine() const { return Line(); }

 private:
  std::string Line() const;
  void Erase() const;

  std::function<bool(const FaultRow&)> is_new_;
  bool terminal_;
  double told_ = -1e9;  // when, in seconds of the campaign
  campaign::Progress latest_;
};

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_FUZZ_STATUS_H_
