// SPDX-License-Identifier: Apache-2.0
#include "core/nearest.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace qualm {
namespace {

char Lower(char ch) { return ch >= 'A' && ch <= 'Z' ? static_cast<char>(ch - 'A' + 'a') : ch; }

size_t SubstitutionCost(char a, char b) {
  if (a == b) return 0;
  return Lower(a) == Lower(b) ? 1 : 2;
}

}  // namespace

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = 2 * j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = 2 * (i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substitute = diagonal + SubstitutionCost(a[i], b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 2, row[j + 1] + 2, substitute});
    }
  }
  return row.back();
}

std::string_view NearestName(std::string_view name, std::span<const std::string_view> known) {
  // Far longer than any name we know: the distance would be the length, at quadratic cost.
  name = name.substr(0, 64);
  std::string_view nearest;
  size_t best = SIZE_MAX;
  for (const std::string_view candidate : known) {
    const size_t distance = EditDistance(name, candidate);
    if (distance >= best) continue;
    best = distance;
    nearest = candidate;
  }
  return nearest;
}

std::string NearestText(std::string_view name, std::span<const std::string_view> known,
                        size_t letters) {
  const std::string_view nearest = NearestName(name, known);
  const bool near = EditDistance(name.substr(0, 64), nearest) <= letters;
  return near ? ", nearest is '" + std::string(nearest) + "'" : "";
}

}  // namespace qualm
