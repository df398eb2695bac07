// SPDX-License-Identifier: Apache-2.0
// A property is a plain function of a case and a subject. Written once; RapidCheck, libFuzzer,
// exhaustive search, corpus replay and the command line all feed the same list.
#ifndef QUALM_PROPERTIES_PROPERTY_H_
#define QUALM_PROPERTIES_PROPERTY_H_

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <typeindex>
#include <vector>

#include "core/case.h"
#include "core/forwarding_subject.h"
#include "core/subject.h"
#include "core/verdict.h"

namespace qualm {

struct Property {
  std::string_view claim;     // "sweep_is_monotone"; with an op: "linear.sweep_is_monotone"
  std::string_view sentence;  // English: the statement with its side conditions
  std::vector<Op> ops;
  // true: the property holds under any contract (matches_model, clamp, memory, same bits,
  // environment). false: it is a theorem under `exact`, under within:V1,V8 it is none, and under
  // model:NAME it is judged only if the row of the convention NAME lists the claim.
  bool any_contract = false;
  // Judges against the subject's own contract. Never throws for what a subject does.
  Verdict (*check)(const Case&, Subject&);
  // How dear it is: judged on one of this many drawn cases (see OneIn for 1). Judged always on a
  // given case, and if no other property is asked for.
  int one_in = 1;
  // Properties with one name here are judged on the same drawn cases, as they share runs; "":
  // alone.
  std::string_view turn{};
  uint64_t turn_number = 0;  // made of that name, or of the claim (AllProperties)

  bool about(Op op) const { return std::ranges::find(ops, op) != ops.end(); }
};

std::span<const Property> AllProperties();
// By claim ("matches_exact") or full name ("linear.matches_exact"); nullptr if unknown.
const Property* FindProperty(std::string_view name);
std::string FullName(Op op, const Property& property);
// On one of how many drawn cases the property judges, beside others. matches_exact and the claims
// of every contract (matches_model, clamp) judge all, or one of `one_in`. Theorems of exact
// arithmetic judge at most one of kInTurn (list.h): what breaks them breaks matches_exact too,
// mostly on the same case, and a fresh case costs as much as a derived one.
int OneIn(const Property& property);
// Is the property about `op`, and does the glob ('*', '?') match its claim or its full name?
// Several globs stand between commas; one behind '!' leaves out what an earlier one took.
bool MatchesGlob(std::string_view glob, Op op, const Property& property);
// Whether the property compares every number with what is promised: matches_exact, matches_model.
bool Compares(const Property& property);
// The properties about `op` that match the glob, in the order of `qualm list properties`.
// Valid as long as the thread.
const std::vector<const Property*>& PropertiesAbout(Op op, std::string_view glob = "*");

// One verdict. The check runs only if the property is about the operation, is a theorem under the
// subject's contract, and the subject can run the case.
Verdict Judge(const Property& property, const Case& c, Subject& subject);

// Remembers the last few answers of `inner` in the default context, and in contexts with another
// guard page or other gaps between rows. The many properties of one case then cost one run.
class MemoSubject : public ForwardingSubject {
 public:
  using ForwardingSubject::ForwardingSubject;
  Outcome Run(const Case& c, const RunContext& context) override;
  // RunMany is not overridden: it asks `inner`, without using or changing what is remembered.

  // Adds an answer that the subject gave earlier, in the default context.
  void Remember(const Case& c, const Outcome& outcome);
  // A value that several properties of one case compute from it and the answers. The first of them
  // makes it. One value of each type is kept.
  template <class T, class Make>
  std::shared_ptr<const T> Shared(const Case& c, const Make& make) {
    if (!(shared_of_ == c)) {
      shared_.clear();
      shared_of_ = c;
    }
    std::shared_ptr<const void>& kept = shared_[typeid(T)];
    if (kept == nullptr) kept = std::make_shared<const T>(make());
    return std::static_pointer_cast<const T>(kept);
  }
  int64_t runs() const { return runs_; }  // real runs of the inner subject

 private:
  struct Entry {
    Case problem;
    RunContext context;
    Outcome outcome;
  };
  void Remember(const Case& c, const RunContext& context, const Outcome& outcome);

  std::vector<Entry> recent_;
  Case shared_of_;
  std::map<std::type_index, std::shared_ptr<const void>> shared_;
  int64_t runs_ = 0;
};

// The judging loop of every feeder: judges `c` by PropertiesAbout(c.op, glob), one after another,
// and tells `told` of each verdict. Ends early where `told` returns false. `drawn`, of a drawn
// case, is the number that decides which properties have their turn (OneIn). If a glob matches
// only one property, that property judges every case.
using Told = std::function<bool(const Property&, Verdict)>;
void JudgeAll(const Case& c, MemoSubject& subject, std::string_view glob, const Told& told,
              std::optional<uint64_t> drawn = std::nullopt);

// The same for a fuzzing engine, which asks about more cases with fewer properties each: the
// comparisons with the exact value and with the convention judge every case, and two of the others,
// dear ones (`one_in`) less often. The turns follow from the case alone, also in a replay.
void JudgeInTurn(const Case& c, MemoSubject& subject, std::string_view glob, const Told& told);
// The properties by which JudgeInTurn judges the case.
std::vector<const Property*> PropertiesInTurn(const Case& c, std::string_view glob = "*");

// A failed run (crash, hang, touched outside, garbage ...) as a verdict; nullopt if it went well.
std::optional<Verdict> BadOutcome(const Outcome& outcome);

}  // namespace qualm

#endif  // QUALM_PROPERTIES_PROPERTY_H_
