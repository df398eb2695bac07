// SPDX-License-Identifier: Apache-2.0
// One of several runs that share a job.
#ifndef QUALM_TOOLS_SHARD_H_
#define QUALM_TOOLS_SHARD_H_

#include <string>

#include "tools/verb.h"

namespace qualm::tools {

struct Shard {
  int index = 0;
  int count = 1;
};

// --shard I/N, stored as text.
void AddShard(Verb& verb, std::string& text, const std::string& help);

// The shard of --shard, or, where that is "", of the first of these that is set: GTEST_SHARD_INDEX
// and GTEST_TOTAL_SHARDS; SLURM_ARRAY_TASK_ID, _COUNT and _MIN; JOB_COMPLETION_INDEX and
// JOB_COMPLETIONS (Kubernetes sets the first, the manifest the second). Says so on stderr, and the
// command that repeats the run gets --shard. Throws InputError.
Shard ShardOf(const std::string& text);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_SHARD_H_
