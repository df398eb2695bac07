// SPDX-License-Identifier: Apache-2.0
// A corpus grows for as long as a campaign runs, and each stretch of fuzzing begins by running all
// of it. Here the engine says which inputs reach all code that the whole corpus reaches.
#ifndef QUALM_CAMPAIGN_SHRINK_H_
#define QUALM_CAMPAIGN_SHRINK_H_

#include <functional>
#include <optional>

#include "campaign/engine.h"
#include "campaign/state.h"
#include "core/op.h"

namespace qualm::campaign {

// Deletes from the state's corpus of the operation the inputs that the engine does not need.
// Nothing is deleted before the engine has come to its end, and then only inputs beside those that
// it needs: whoever kills this at any moment leaves a corpus that reaches as much. nullopt: the
// corpus stayed as it was, because the engine cannot shrink one, took more than `seconds`, failed,
// or `stop` said so.
std::optional<Shrunk> ShrinkCorpus(const Engine& engine, const State& state, Op op, double seconds,
                                   const std::function<bool()>& stop);

}  // namespace qualm::campaign

#endif  // QUALM_CAMPAIGN_SHRINK_H_
