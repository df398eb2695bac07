// SPDX-License-Identifier: Apache-2.0
#include "core/contract.h"

#include <algorithm>
#include <string>

#include "core/status.h"

namespace qualm {

namespace {

constexpr std::string_view kWithin = "within:";

// "V8", the id of a permitted variation.
bool IsVariation(std::string_view text) {
  return text.size() > 1 && text.front() == 'V' &&
         std::ranges::all_of(text.substr(1), [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<std::string_view> Pieces(std::string_view text) {
  std::vector<std::string_view> pieces;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    pieces.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return pieces;
}

}  // namespace

std::string Contract::text() const {
  if (!convention.empty()) return (is_tree() ? "" : "model:") + convention;
  if (sum) return offsets ? "sum+offsets" : "sum";
  std::string text = exact() ? "exact" : std::string(kWithin);
  for (const std::string& id : variations) text += (&id == &variations.front() ? "" : ",") + id;
  return text;
}

Contract ParseContract(std::string_view text) {
  if (text == "exact") return {};
  if (text == "sum") return {.sum = true};
  if (text == "sum+offsets") return {.sum = true, .offsets = true};
  if (text.starts_with(kWithin)) {
    Contract contract;
    for (const std::string_view id : Pieces(text.substr(kWithin.size()))) {
      if (!IsVariation(id)) {
        throw InputError(
            "--contract: '" + std::string(text) +
            "' names no variations, expected within:V1,V8 (see qualm list variations)");
      }
      contract.variations.emplace_back(id);
    }
    return contract;
  }
  // A comma or "=" would begin another contract of a list.
  if (text.find_first_of(",=") == std::string_view::npos) {
    if (text.starts_with("model:") && text.size() > 6) return {std::string(text.substr(6))};
    if (text.starts_with(std::string(kTreeContract) + "{") && text.ends_with('}'))
      return {std::string(text)};
  }
  throw InputError("--contract: '" + std::string(text) + "' is no contract, expected " +
                   std::string(kContractForms));
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
  const std::vector<std::string_view> pieces = Pieces(text);
  for (size_t i = 0; i < pieces.size(); ++i) {
    // The commas of within:V1,V8 belong to it.
    std::string_view one = pieces[i];
    if (one.find(kWithin) != std::string_view::npos) {
      while (i + 1 < pieces.size() && IsVariation(pieces[i + 1])) {
        ++i;
        one = {one.data(), static_cast<size_t>(pieces[i].end() - one.data())};
      }
    }
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
