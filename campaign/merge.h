// SPDX-License-Identifier: Apache-2.0
// Several campaigns made one: those of a cluster, of shards, of a killed machine.
#ifndef QUALM_CAMPAIGN_MERGE_H_
#define QUALM_CAMPAIGN_MERGE_H_

#include <filesystem>
#include <string>
#include <vector>

#include "campaign/state.h"

namespace qualm::campaign {

// Throws InputError for a folder that is no campaign.
void RequireStates(const std::vector<std::string>& folders);

// Adds the inputs of a campaign, but not its findings, failures or results.
void AddInputsOf(const State& state, const std::filesystem::path& folder);

// Adds the inputs, findings, waiting failures and results of the campaigns in `folders`, which stay
// as they are. The order of the folders does not matter, nor does a folder given twice.
void MergeInto(const State& state, const std::vector<std::string>& folders);

}  // namespace qualm::campaign

#endif  // QUALM_CAMPAIGN_MERGE_H_
