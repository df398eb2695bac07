// SPDX-License-Identifier: Apache-2.0
#include "proofs/matching.h"

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/max_cardinality_matching.hpp>
#include <cstddef>
#include <limits>

namespace qualm::proofs {
namespace {

using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS>;

std::vector<int32_t> MatchingOf(const Graph& graph) {
  std::vector<Graph::vertex_descriptor> mate(boost::num_vertices(graph));
  boost::edmonds_maximum_cardinality_matching(graph, mate.data());
  std::vector<int32_t> partners;
  for (const auto vertex : mate) {
    const bool alone = vertex == boost::graph_traits<Graph>::null_vertex();
    partners.push_back(alone ? kNoPartner : static_cast<int32_t>(vertex));
  }
  return partners;
}

// The compatible pairs as a graph: each vertex has at most `most` edges to later vertices.
Graph Compatible(const std::vector<std::vector<bool>>& conflicts, size_t most) {
  Graph graph(conflicts.size());
  for (size_t a = 0; a < conflicts.size(); ++a) {
    size_t edges = 0;
    for (size_t b = a + 1; b < conflicts.size() && edges < most; ++b) {
      if (conflicts[a][b]) continue;
      boost::add_edge(a, b, graph);
      ++edges;
    }
  }
  return graph;
}

}  // namespace

std::vector<int32_t> Partners(const std::vector<std::vector<bool>>& conflicts) {
  // A few edges of each channel mostly suffice for a matching of all, and are found faster.
  constexpr size_t kFew = 32;
  const std::vector<int32_t> quick = MatchingOf(Compatible(conflicts, kFew));
  if (std::ranges::count(quick, kNoPartner) <= 1) return quick;
  // All edges, as far as memory allows: up to 2896 channels.
  constexpr size_t kMost = size_t{1} << 23;
  return MatchingOf(Compatible(conflicts, std::max(kFew, kMost / conflicts.size())));
}

}  // namespace qualm::proofs
