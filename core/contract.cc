// SPDX-License-Identifier: Apache-2.0
#include "core/contract.h"

#include <algorithm>
#include <string>

#include "core/status.h"

namespace qualm {

Contract ParseContract(std::string_view text) {
  if (text == "exact") return {};
  // A comma or "=" would begin another contract of a list.
  if (text.starts_with("model:") && text.size() > 6 &&
      text.find_first_of(",=") == std::string_view::npos)
    return {std::string(text.substr(6))};
  throw InputError("--contract: '" + std::string(text) +
                   "' is no contract, expected exact or model:NAME");
}

const Contract& Contracts::of(Op op) const {
  static const Contract kExact;
  if (const auto at = by_op.find(op); at != by_op.end()) return at->second;
  return rest ? *rest : kExact;
}

Contracts Contracts::Over(const Contracts& others) const {
  Contracts both = *this;
  if (!both.rest) {
    both.rest = others.rest;
    both.by_op.insert(others.by_op.begin(), others.by_op.end());
  }
  std::erase_if(both.by_op, [&](const auto& named) { return named.second == both.rest; });
  return both;
}

std::string Contracts::text() const {
  std::string text = rest ? rest->text() : "";
  for (const auto& [op, contract] : by_op) {
    text += (text.empty() ? "" : ",") + std::string(Name(op)) + "=" + contract.text();
  }
  return text;
}

Contracts ParseContracts(std::string_view text) {
  Contracts contracts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view one = text.substr(at, end - at);
    at = end + 1;
    const size_t sign = one.find('=');
    if (sign == std::string_view::npos) {
      const Contract contract = ParseContract(one);
      if (contracts.rest) {
        throw InputError("--contract: '" + contracts.rest->text() + "' and '" + std::string(one) +
                         "' are both for every operation, expected OP=CONTRACT for one");
      }
      contracts.rest = contract;
      continue;
    }
    const std::string name(one.substr(0, sign));
    const std::optional<Op> op = ParseOp(name);
    if (!op) {
      throw InputError("--contract: '" + std::string(one) + "': there is no operation '" + name +
                       "' (see qualm list ops)");
    }
    if (!contracts.by_op.emplace(*op, ParseContract(one.substr(sign + 1))).second)
      throw InputError("--contract: two contracts are given for " + name + ", expected one");
  }
  return contracts;
}

}  // namespace qualm
