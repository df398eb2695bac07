// SPDX-License-Identifier: Apache-2.0
// A subject that answers one problem again and again for other inputs, without copies: what asks
// about billions of inputs has no time for more.
#ifndef QUALM_CORE_BULK_H_
#define QUALM_CORE_BULK_H_

#include <cstdint>
#include <span>
#include <string>

#include "core/case.h"

namespace qualm {

class BulkSubject {
 public:
  virtual ~BulkSubject() = default;

  // The buffers of x, w and the output, each between inaccessible pages. The caller may write all
  // of them between calls. They are valid until the subject is asked anything else.
  struct Buffers {
    std::span<uint8_t> x, w, y;
  };
  // `c` is valid, and CannotRun says nothing against it. It must outlive the calls of RunBulk.
  virtual Buffers OpenBulk(const Case& c) = 0;
  // Computes the output of what x and w hold now: "" or what went wrong, in one sentence. Writes
  // outside the buffers are seen; a changed input is not.
  virtual std::string RunBulk() = 0;
};

}  // namespace qualm

#endif  // QUALM_CORE_BULK_H_
