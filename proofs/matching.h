// SPDX-License-Identifier: Apache-2.0
// Maximum matchings, by Boost.Graph.
#ifndef QUALM_PROOFS_MATCHING_H_
#define QUALM_PROOFS_MATCHING_H_

#include <cstdint>
#include <vector>

namespace qualm::proofs {

inline constexpr int32_t kNoPartner = -1;

// For each thing a partner or kNoPartner, so that no two partners conflict and as many things as
// can be have one. conflicts[a][b] == conflicts[b][a].
std::vector<int32_t> Partners(const std::vector<std::vector<bool>>& conflicts);

}  // namespace qualm::proofs

#endif  // QUALM_PROOFS_MATCHING_H_
