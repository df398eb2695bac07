// SPDX-License-Identifier: Apache-2.0
// Identification: which of exact and the named conventions (oracles/conventions) give a subject's
// outputs bit for bit, and for each other one the shortest input found that rules it out.
#ifndef QUALM_TRIAGE_IDENTIFY_H_
#define QUALM_TRIAGE_IDENTIFY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"
#include "core/subject.h"
#include "core/verdict.h"
#include "oracles/conventions/convention.h"

namespace qualm::triage {

// "exact", or a named convention.
struct ConventionOrExact {
  std::string name;
  const Convention* convention = nullptr;  // nullptr: exact

  // The reason why it does not define this case, "" if it does.
  std::string CannotRun(const Case& c) const;
  Tensor Run(const Case& c) const;
  // Whether it leaves this answer open, beside that of Run, or the answer is one that somebody
  // printed (Case::observed) and that of Run prints so.
  bool AlsoGives(const Case& c, const Tensor& y) const;
};
// exact, then every convention by name.
std::span<const ConventionOrExact> AllConventionsAndExact();
// By name, "model:" before it or not; InputError "WHERE: ..." with the nearest name if there is
// none.
const ConventionOrExact& FindConventionOrExact(std::string_view name, const std::string& where);

// The types and sizes of the compared cases: the domain on which two answerers are equal.
struct Domain {
  std::map<std::string, int64_t> types;  // "u8*s8->u8" -> cases
  int64_t terms = 0;                     // the longest sum
  int64_t outputs = 0;                   // of all cases
  // Features that cases of the operation can have, and whether one of the compared cases had it.
  std::vector<std::pair<std::string, bool>> features;

  void Add(const Case& c);
  std::string Text() const;
};

// An input on which a convention and the answerer differ.
struct Witness {
  Case c;                 // with expected (exact), observed (of the answerer), note
  Divergence divergence;  // expected: of the convention, actual: of the answerer
  std::string file;       // where a case was read from, "" if it was drawn
};

struct Comparison {
  enum class State : uint8_t { kBitEqual, kRuledOut, kNoVerdict };
  std::string convention;
  State state = State::kNoVerdict;
  int64_t cases = 0;   // compared; the last of them is the one that rules out
  Domain domain;       // of the compared cases
  std::string reason;  // of kNoVerdict
  std::optional<Witness> witness;
};

// One case that one subject answered in two ways.
struct Remembered {
  Case c;
  Divergence divergence;  // expected: in a new instance, actual: after other cases
};

struct Identified {
  Op op = Op::kLinear;
  int64_t drawn = 0;     // cases asked; all of the operation where files were given
  int64_t answered = 0;  // cases of `drawn` that the subject answered
  // Why the others were not answered, most frequent first: reason -> cases.
  std::vector<std::pair<std::string, int64_t>> unanswered;
  int64_t broken = 0;    // cases of `drawn` that ended in a crash, a hang or a refusal
  std::string breakage;  // how the first of these ended
  bool out_of_time = false;
  // The first answer found to depend on what was asked before; comparisons then use what a new
  // instance gives.
  std::optional<Remembered> remembered;
  std::vector<Comparison> conventions;  // in the order they were given

  // Some convention defines some of the cases.
  bool any_compared() const;
  // The names of the bit-equal conventions.
  std::vector<std::string> bit_equal() const;
};

// The conventions that give every answer that they define, of enough answers; those first that
// define most. `text` says of how many: "equal in all 69 of 100 answers that it defines".
struct Fitting {
  std::vector<std::string> names;
  std::string text;
};
Fitting FittingOf(const Identified& result);

// A subject or a file of answers that is to be identified.
struct Answerer {
  std::string name;
  std::function<std::string(const Case&)> cannot_run;
  std::function<Outcome(const Case&)> run;
  // Makes a new instance, which has answered nothing yet; nullptr if there is none. Empty: answers
  // do not depend on earlier cases.
  std::function<std::shared_ptr<Answerer>()> anew;
  // Brings a case that it cannot run into its domain (Subject::Inside). Empty: there is none.
  std::function<Case(const Case&)> inside = {};
};
Answerer AnswererOf(Subject& subject);
Answerer AnswererOf(const ConventionOrExact& one);

struct IdentifyOptions {
  uint64_t seed = 1;
  int64_t cases = 1000;   // to be answered, and more that a seldom compared convention defines; at
                          // most eight times as many are drawn
  double seconds = 0;     // > 0: until then instead; half of it is left for shortening
  int64_t shorten = 500;  // cases tried to make one witness shorter; 0: leave it as drawn
  // The witness is the answered case with the largest difference (output codes; ulps of f32)
  // instead of the first case with a difference; shortening keeps the difference as large.
  bool worst = false;
  // True once there is no more time; empty: never.
  std::function<bool()> stopped = nullptr;
};

// Draws cases (gen::DrawForLibraries) of one operation and compares. The same options give the same
// result, unless time runs out.
Identified Identify(const Answerer& answerer, Op op, std::span<const ConventionOrExact> conventions,
                    const IdentifyOptions& options);

// A case with an observed output, and the file it was read from.
struct ObservedCase {
  std::string file;
  Case c;
};
// Compares observed outputs, operation by operation, in the order of AllOps(). `compared` is told
// how many cases are done.
std::vector<Identified> IdentifyObserved(std::span<const ObservedCase> cases,
                                         std::span<const ConventionOrExact> conventions,
                                         const std::function<void(size_t)>& compared = nullptr);

// Names of the conventions whose whole output is bit-equal to y.
std::vector<std::string> BitEqual(const Case& c, const Tensor& y,
                                  std::span<const ConventionOrExact> conventions);
// Such names as text. A variant of a listed one ("fbgemm@avx2+nofma" beside "fbgemm@avx2") is only
// counted.
std::string ConventionsText(std::span<const std::string> names);
// The named conventions whose whole output is bit-equal to y, as such text; "" if there is none.
std::string BitEqualConventions(const Case& c, const Tensor& y);
// Codes, scales, zero points and other lists that are not the default, on one line: "x 129 132,
// w 127 127, out_scale 0x1p+8". Describe says the rest.
std::string Brief(const Case& c);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_IDENTIFY_H_
