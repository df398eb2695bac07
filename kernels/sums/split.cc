// SPDX-License-Identifier: Apache-2.0
// Moves the excess of pairs that could saturate to extra quads. Exact because a weight remains the
// sum of its two parts, and CertifyPair holds for the pairs of both parts.
#include "kernels/sums/split.h"

#include <algorithm>
#include <cstddef>

#include "kernels/sums/certify.h"

namespace qualm::kernels {
namespace {

using Row = std::vector<int8_t>;  // of one place, per channel

bool ArePairs(const Row& a, const Row& b) {
  for (size_t c = 0; c < a.size(); ++c) {
    if (!CertifyPair(a[c], b[c])) return false;
  }
  return true;
}

// The excess of two weights of one sign whose sum is beyond 128 or -128: the first weight gives it
// away, and does not change its sign, because the second weight alone is not beyond.
int8_t TooMuch(int8_t w0, int8_t w1) {
  if (CertifyPair(w0, w1)) return 0;
  return static_cast<int8_t>(w0 + w1 + (w0 > 0 ? -128 : 128));
}

}  // namespace

bool SplitPanel(int64_t quads, const PanelWeights& panel, int64_t most_places, ExtraQuads* extra) {
  const auto most = static_cast<size_t>(most_places);
  const int64_t width = panel.width;
  // rows[2 * i] and rows[2 * i + 1] are a pair: the second one is of zeros where no other row may
  // follow the first.
  std::vector<int64_t> places;
  std::vector<Row> rows;
  Row row(static_cast<size_t>(width));
  for (int64_t place = 0; place < 4 * quads; place += 2) {
    bool are_safe = true;  // without a branch for each channel
    for (int64_t c = 0; c < width; ++c) {
      are_safe &= CertifyPair(panel.At(place, c)[0], panel.At(place, c)[1]);
    }
    if (are_safe) continue;
    for (int64_t c = 0; c < width; ++c) {
      row[static_cast<size_t>(c)] = TooMuch(panel.At(place, c)[0], panel.At(place, c)[1]);
    }
    if (rows.size() % 2 != 0 && !ArePairs(rows.back(), row)) {
      rows.emplace_back(static_cast<size_t>(width));
      places.push_back(places.back());
    }
    rows.push_back(row);
    places.push_back(place);
    if (rows.size() > most) return false;
  }
  while (rows.size() % 4 != 0) {
    rows.emplace_back(static_cast<size_t>(width));
    places.push_back(places.back());
  }
  extra->places = places;
  extra->weights.resize(rows.size() * static_cast<size_t>(width));
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t c = 0; c < rows[i].size(); ++c) {
      const int8_t w = rows[i][c];
      extra->weights[(i / 4 * rows[i].size() + c) * 4 + i % 4] = w;
      if (w == 0) continue;
      int8_t* const kept = panel.At(places[i], static_cast<int64_t>(c));
      *kept = static_cast<int8_t>(*kept - w);
    }
  }
  return true;
}

}  // namespace qualm::kernels
