// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/convention.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "core/contract.h"
#include "core/status.h"
#include "oracles/conventions/families.h"
#include "oracles/conventions/tree_contract.h"

namespace qualm {
namespace {

struct Row {
  std::string_view family;
  std::vector<Convention> (*conventions)();
};
#define QUALM_ROW(family, function) {family, conventions::function},
constexpr Row kRows[] = {QUALM_CONVENTIONS(QUALM_ROW)};
#undef QUALM_ROW

std::vector<Convention> Collect() {
  std::vector<Convention> all;
  for (const Row& row : kRows) {
    for (Convention& convention : row.conventions()) {
      convention.family = row.family;
      all.push_back(std::move(convention));
    }
  }
  std::ranges::sort(all, {}, &Convention::name);
  return all;
}

// Trees that somebody has asked for; nullptr for what is none.
const Convention* FindTree(std::string_view text) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Convention>, std::less<>> trees;
  const std::lock_guard lock(mutex);
  const auto known = trees.find(text);
  if (known != trees.end()) return known->second.get();
  std::unique_ptr<Convention> tree;
  try {
    tree = std::make_unique<Convention>(
        conventions::ConventionOf(conventions::ParseTreeContract(text)));
  } catch (const InputError&) {
    // WhyNoConvention (tree_contract.h) says it.
  }
  return (trees[std::string(text)] = std::move(tree)).get();
}

}  // namespace

std::span<const Convention> AllConventions() {
  static const std::vector<Convention> conventions = Collect();
  return conventions;
}

std::vector<std::string_view> AllFamilies() {
  std::vector<std::string_view> families;
  for (const Row& row : kRows) {
    if (families.empty() || families.back() != row.family) families.push_back(row.family);
  }
  return families;
}

std::optional<CodeRange> EncloseBy(const Convention& convention, const Case& ends) {
  return convention.enclose ? convention.enclose(ends) : std::nullopt;
}

bool Satisfies(const Convention& convention, Op op, std::string_view claim) {
  if (std::ranges::count(convention.ops, op) == 0) return false;
  if (convention.for_op) {
    const Convention* const one = convention.for_op(op);
    return one != nullptr && Satisfies(*one, op, claim);
  }
  const std::string full = std::string(Name(op)) + "." + std::string(claim);
  return std::ranges::any_of(convention.satisfies, [&](const std::string& satisfied) {
    return satisfied == claim || satisfied == full;
  });
}

const Convention* FindConvention(std::string_view name) {
  if (name.starts_with(kTreeContract)) return FindTree(name);
  const std::span<const Convention> conventions = AllConventions();
  const auto at =
      std::find_if(conventions.begin(), conventions.end(),
                   [&](const Convention& convention) { return convention.name == name; });
  return at == conventions.end() ? nullptr : &*at;
}

}  // namespace qualm
