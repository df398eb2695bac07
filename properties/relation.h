// SPDX-License-Identifier: Apache-2.0
// The parts of metamorphic relations: a property makes a follow-up case of its case (core/slice.h
// cuts it out), asks the subject about both, and compares the answers.
#ifndef QUALM_PROPERTIES_RELATION_H_
#define QUALM_PROPERTIES_RELATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/case.h"
#include "core/rng.h"
#include "core/subject.h"
#include "core/verdict.h"

namespace qualm::relation {

// The tensor with `shift` added to every code and the given type; nullopt where a code leaves it.
std::optional<Tensor> Shifted(const Tensor& tensor, DType dtype, int32_t shift);
// The largest shift of all codes that keeps them inside their type; 0 if there is none.
int32_t ShiftWithin(const Tensor& codes);
// value + shift if that is an int32.
std::optional<int32_t> ShiftedInt(int32_t value, int64_t shift);

// A number made of the operation, sizes and tensors. Properties that need a choice (which row,
// which permutation) draw it from this number, so that a case gets the same choice every time.
uint64_t Hash(const Case& c);

// The numbers 0 .. count - 1 in a drawn order.
std::vector<int64_t> Permutation(Rng& rng, int64_t count);

// Channel of output element i.
inline int64_t ChannelOf(const Case& c, int64_t i) { return c.N == 0 ? 0 : i % c.N; }
// LowerBound for the channel (quantize may have one zero point per channel), never above out_max.
int64_t LowEnd(const Case& c, int64_t channel);

// The reason why a property does not judge a case with exact::RequantMayOverflow: its claim holds
// only where no requantization overflows int32.
inline constexpr const char* kRequantOverflows = "the requantization may overflow int32";

// exact::Evaluate, once for each of the rows and columns that differ (distinct.h). Each thread
// remembers its last few results, because many subjects and properties ask for the same one.
Tensor ExactOf(const Case& c);

// The answer of a subject, or the verdict that stands in its place: skipped if it cannot run the
// case, failed if it crashed, hung, strayed, refused, or answered in the wrong shape.
struct Answer {
  Tensor y;
  std::optional<Verdict> verdict;
  bool skipped() const { return verdict && verdict->judgement == Judgement::kSkipped; }
};
Answer Ask(Subject& subject, const Case& c, const RunContext& context = {});

// Whether new instances of subjects give what is promised. A new one of a pipe takes seconds, so
// few are made of a subject for an operation: none once it has been shown to remember; and where
// some were wrong too, the last of them, which was asked nothing else, answers from then on.
class NewInstances {
 public:
  // True where there is no new instance.
  bool Give(const Subject& subject, const Case& c, const Tensor& promised);

 private:
  struct Known {
    bool remembers = false;
    int wrong = 0;  // new instances
    std::unique_ptr<Subject> last;
  };
  std::map<std::pair<std::string, Op>, Known> known_;
};

// Passed if the subject gives the same bits for both; failed with "WHAT: ..." if not.
Verdict SameAnswer(const Case& c, const Case& follow_up, Subject& subject, const std::string& what);
// Passed if the subject answers `expected`.
Verdict Expect(const Case& c, const Tensor& expected, Subject& subject, const std::string& what);

// Asks about `part`, a piece of `c`; `whole` is the answer to `c`. nullopt if element i of the
// piece's answer is element place(i) of `whole`; a verdict if not, or if the piece has no answer.
std::optional<Verdict> CompareAlone(const Case& c, const Tensor& whole, const Case& part,
                                    Subject& subject,
                                    const std::function<int64_t(int64_t i)>& place,
                                    const std::string& what);

// Begins the reason of a verdict that a subject answers otherwise where there are gaps.
inline constexpr std::string_view kChangesWithGaps = "the result changes with gaps";

// Failed with the first difference if the two differ: "WHAT: expected E at [m,n], got A".
std::optional<Verdict> Difference(const Case& c, const Tensor& expected, const Tensor& actual,
                                  const std::string& what);
// The same of two answers to one question, of which nobody has said that the first is right: "WHAT:
// first B at output [m,n], then A". The right one counts as expected, if one of them is.
std::optional<Verdict> Changed(const Case& c, const Tensor& before, const Tensor& after,
                               const std::string& what);
// The verdict if the same question, asked several times in a row, gets several answers: the control
// of an experiment, without which a difference that comes by chance is put down to it.
std::optional<Verdict> AnswersByChance(const Case& c, Subject& subject,
                                       const RunContext& context = {});
// The verdict if the answer in `context` departs from `base`, the answer in the usual context: WHAT
// and `kind`, or that the subject answers by chance.
std::optional<Verdict> ChangedIn(const RunContext& context, const Case& c, const Tensor& base,
                                 const Tensor& actual, Subject& subject, const std::string& what,
                                 FindingKind kind);
// The verdict of a difference at element i.
Verdict FailedAt(const Case& c, int64_t i, const std::string& expected, const std::string& actual,
                 double distance_lsb, const std::string& what);
// The same where element i of `actual` should equal element `from` of `expected`.
Verdict FailedAt(const Case& c, const Tensor& expected, int64_t from, const Tensor& actual,
                 int64_t i, const std::string& what);

}  // namespace qualm::relation

#endif  // QUALM_PROPERTIES_RELATION_H_
