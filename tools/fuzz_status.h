// SPDX-License-Identifier: Apache-2.0
// The progress of a campaign on stderr.
#ifndef QUALM_TOOLS_FUZZ_STATUS_H_
#define QUALM_TOOLS_FUZZ_STATUS_H_

#include <functional>
#include <string>

#include "campaign/driver.h"
#include "core/io/fault_row.h"

namespace qualm::tools {

// On a terminal one line that is overwritten; elsewhere a plain line every half minute.
class FuzzStatus {
 public:
  explicit FuzzStatus(std::function<bool(const FaultRow&)> is_new);

  void Tell(const campaign::Progress& progress);
  // Prints the text as a line of its own.
  void Say(const std::string& text) const;
  // Removes the status line.
  void End() const;
  std::string LastLine() const { return Line(); }

 private:
  std::string Line() const;
  void Erase() const;

  std::function<bool(const FaultRow&)> is_new_;
  bool terminal_;
  double told_ = -1e9;  // time of the last line, in seconds of the campaign
  campaign::Progress latest_;
};

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_FUZZ_STATUS_H_
