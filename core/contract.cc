// SPDX-License-Identifier: Apache-2.0
#include "core/contract.h"

#include <string>

#include "core/status.h"

namespace qualm {

Contract ParseContract(std::string_view text) {
  if (text == "exact") return {};
  if (text.starts_with("model:") && text.size() > 6) return {std::string(text.substr(6))};
  throw InputError("--contract: '" + std::string(text) +
                   "' is no contract, expected exact or model:NAME");
}

}  // namespace qualm
