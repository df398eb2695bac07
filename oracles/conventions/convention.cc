// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/convention.h"

#include <algorithm>

#include "oracles/conventions/definition.h"
#include "oracles/conventions/observers.h"

namespace qualm {
namespace {

std::vector<Convention> Collect() {
  std::vector<Convention> all;
  for (auto family : {conventions::FbgemmConventions, conventions::OneDnn2Conventions,
                      conventions::OneDnn3Conventions, conventions::QnnpackConventions,
                      conventions::AtenConventions, conventions::XnnpackConventions,
                      conventions::TfliteConventions, conventions::GemmlowpConventions,
                      conventions::RuyConventions, conventions::OnnxRuntimeConventions,
                      conventions::ObserverConventions, conventions::TorchConventions,
                      conventions::NumpyConventions}) {
    for (Convention& convention : family()) all.push_back(std::move(convention));
  }
  std::sort(all.begin(), all.end(),
            [](const Convention& a, const Convention& b) { return a.name < b.name; });
  return all;
}

}  // namespace

std::span<const Convention> AllConventions() {
  static const std::vector<Convention> conventions = Collect();
  return conventions;
}

bool Satisfies(const Convention& convention, Op op, std::string_view claim) {
  if (convention.part) {
    const Convention* const part = convention.part(op);
    return part != nullptr && Satisfies(*part, op, claim);
  }
  const std::string full = std::string(Name(op)) + "." + std::string(claim);
  return std::ranges::any_of(convention.satisfies, [&](const std::string& satisfied) {
    return satisfied == claim || satisfied == full;
  });
}

const Convention* FindConvention(std::string_view name) {
  const std::span<const Convention> conventions = AllConventions();
  const auto at =
      std::find_if(conventions.begin(), conventions.end(),
                   [&](const Convention& convention) { return convention.name == name; });
  return at == conventions.end() ? nullptr : &*at;
}

}  // namespace qualm
