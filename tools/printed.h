// SPDX-License-Identifier: Apache-2.0
// What somebody's software printed for a documented case, beside the exact answer: how far off it
// is, whose arithmetic gives exactly that, and why the two differ.
#ifndef QUALM_TOOLS_PRINTED_H_
#define QUALM_TOOLS_PRINTED_H_

#include <cstdint>
#include <string>

#include "core/case.h"

namespace qualm::tools {

struct PrintedAnswer {
  int64_t outputs = 0;
  int64_t departing = 0;    // outputs that are not the exact ones
  double worst_lsb = 0;     // the largest distance among them
  std::string conventions;  // that give every output; "" if no known one does
  std::string why;          // one paragraph
};

// Of a case that carries an observed output.
PrintedAnswer LookAtPrinted(const Case& c);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_PRINTED_H_
