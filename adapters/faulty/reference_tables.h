// SPDX-License-Identifier: Apache-2.0
// For which tables and rows the arithmetic of the reference is wide enough.
#ifndef QUALM_ADAPTERS_FAULTY_REFERENCE_TABLES_H_
#define QUALM_ADAPTERS_FAULTY_REFERENCE_TABLES_H_

#include <string>

#include "core/case.h"

namespace qualm::faulty {

// "" or why not, as CannotCompute.
std::string CannotTabulate(const Case& c);
std::string CannotSoftmax(const Case& c);

}  // namespace qualm::faulty

#endif  // QUALM_ADAPTERS_FAULTY_REFERENCE_TABLES_H_
