// SPDX-License-Identifier: Apache-2.0
// Fills in a certificate: judges a subject on each parameter set of the certificate, on several
// threads, piece by piece, so that a run can be stopped, continued, and shared between machines.
#ifndef QUALM_PROOFS_RUN_H_
#define QUALM_PROOFS_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/io/certificate_json.h"
#include "core/subject.h"
#include "proofs/domain.h"
#include "proofs/exhaust.h"

namespace qualm::proofs {

// The problems about `op` in a case of a model: the case itself, channel by channel, or the
// quantize, dequantize and requantize that a layer of this case is made of. Throws InputError if
// there is none.
std::vector<Case> ProblemsFor(const Case& c, Op op);

// Parameter set `set` of a certificate: scales go fastest, then zero points, then problems. They
// replace these parameters:
//   - quantize: scale and zero point of the output
//   - requantize: the multiplier, and the zero point of the output
//   - else: scale and zero point of x
int64_t SetsOf(const Certificate& certificate);
Case ProblemAt(const Certificate& certificate, int64_t set);
// Whether the method asks only about inputs beside the steps of the domain, not about every input.
bool TakesSteps(const Certificate& certificate);
// The number `whole` of a certificate that names the problems. Throws InputError if its problems
// cannot be exhausted.
int64_t WholeOf(const Certificate& certificate);

// Makes `*plan`, whose scales and zero points are there, the certificate of these problems, to be
// judged by `method`; by every input instead where the outputs are no steps. Throws as WholeOf.
void Plan(const std::vector<Case>& problems, Certificate::Method method, Certificate* plan);
// That built this program: "clang 19.1.7".
std::string Compiler();
// What was found, in a few lines for people.
std::string SummaryOf(const Certificate& certificate);

struct RunOptions {
  int jobs = 1;
  // The part of [0, whole) to judge: all of it that is not covered yet.
  int64_t first = 0, last = INT64_MAX;
  // A new instance for each thread.
  std::function<std::unique_ptr<Subject>()> make;
  // steps, several sets: every n-th set is judged in full too, and must agree. 0: none.
  int64_t full_every = 0;
  // Called under a lock: after every piece with the certificate so far; often with the units done
  // since the start and in all. The run ends when `stop` says so.
  std::function<void(const Certificate&)> save;
  std::function<void(int64_t done, int64_t all, int64_t wrong)> progress;
  std::function<bool()> stop;
};
// "" or why the subject could not be judged to the end, in one sentence.
std::string Exhaust(Certificate* certificate, const RunOptions& options);

// Whether two certificates are of one run and differ only in the covered parts and their results.
bool SamePlan(const Certificate& a, const Certificate& b);
// The union of both. Throws InputError if they are of different runs, or overlap.
Certificate Merged(const Certificate& a, const Certificate& b);

}  // namespace qualm::proofs

#endif  // QUALM_PROOFS_RUN_H_
