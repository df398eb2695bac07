// SPDX-License-Identifier: Apache-2.0
// The folder of a campaign (--state): everything that must survive its end, however it ends.
//
//   qualm-state   says what the folder is; locked while a campaign uses it
//   corpus/OP/    inputs, named by their content
//   findings/FP/  a folder for each fault: fault.json, case.json, minimized.case.json,
//                 explanation.txt, and before.cases where the fault needs the cases before it
//   inbox/ID/     failures that a fuzz target wrote and nobody has looked into yet
//   held/, seen/  belong to the fuzz targets (fuzz/collector.h)
//   jobs/N/       what an engine leaves while it runs
//   results/      the result document of each finished run, named by its content
#ifndef QUALM_CAMPAIGN_STATE_H_
#define QUALM_CAMPAIGN_STATE_H_

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "campaign/rows.h"
#include "core/op.h"

namespace qualm::campaign {

// Throws InputError "FILE: properties: ..." unless the row names claims about its operation.
void RequireClaims(const FaultRow& row, const std::string& file);

// How many inputs a corpus had and has.
struct Shrunk {
  int64_t before = 0;
  int64_t after = 0;
};

bool IsState(const std::filesystem::path& folder);

// A file of a campaign; throws InputError where it cannot be read or is longer than 2^28 bytes.
std::string Bytes(const std::filesystem::path& file);

// The faults in the folder of any campaign, by the names of their folders.
std::vector<Fault> ReadFaults(const std::filesystem::path& root);

class State {
 public:
  // Makes the folder, or opens it and puts in order what a killed campaign left. Throws InputError
  // "WHERE: ..." where the folder holds something else, or another campaign uses it.
  State(std::string where, const std::filesystem::path& root);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path Corpus(Op op) const;  // made where it is missing
  std::filesystem::path Finding(const std::string& fingerprint) const;
  // Names in inbox/, sorted.
  std::vector<std::string> Inbox() const;
  // The faults, by fingerprint. Throws InputError where one cannot be read.
  std::vector<Fault> Faults() const;
  // The same without their cases, even while another process moves the folders.
  std::vector<FaultRow> Rows() const;
  int64_t CorpusSize() const;
  int64_t CorpusSize(Op op) const;

  // Takes the faults in, one row for each. Each folder changes in one step; a campaign that is
  // killed between two steps leaves a row too many, which the next one joins.
  void Take(const std::vector<Fault>& faults) const;
  // Takes the fault in the place of the row with the fingerprint `earlier`.
  void Replace(const std::string& earlier, const Fault& fault) const;
  // Moves the failures that fuzz targets held when they were killed to the inbox.
  void TakeHeld() const;
  // Moves the inputs that an engine left in `folder` to the corpus.
  void TakeInputs(const std::filesystem::path& folder, Op op) const;
  // Copies an input to the corpus.
  void AddInput(std::string_view bytes, Op op) const;
  // Deletes every input of the operation whose name, or the hash of its contents, is not in
  // `names`.
  Shrunk KeepInputs(Op op, const std::set<std::string>& names) const;
  // The number of this stretch of fuzzing, from 0 on, over all runs on this state.
  uint64_t NextStretch() const;
  // In a fork: the lock stays with the campaign.
  void LeaveLock();

 private:
  void Lock();
  void Recover() const;
  void Settle(const std::vector<Fault>& before, const std::vector<Fault>& after) const;

  std::string where_;
  std::filesystem::path root_;
  int lock_ = -1;
};

}  // namespace qualm::campaign

#endif  // QUALM_CAMPAIGN_STATE_H_
