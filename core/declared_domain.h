// SPDX-License-Identifier: Apache-2.0
// A subject that says for which numbers and shapes it is meant, as plugins and pipes may.
#ifndef QUALM_CORE_DECLARED_DOMAIN_H_
#define QUALM_CORE_DECLARED_DOMAIN_H_

#include <string>

namespace qualm {

class DeclaredDomain {
 public:
  virtual ~DeclaredDomain() = default;

  // Ranges and shapes, one on a line behind the name of an operation, as Domain::Parse
  // (properties/domain.h) reads them; "" for all.
  virtual std::string domain_text() const = 0;
};

}  // namespace qualm

#endif  // QUALM_CORE_DECLARED_DOMAIN_H_
