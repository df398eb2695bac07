// SPDX-License-Identifier: Apache-2.0
// Cases made from cases, and questions asked of subjects: what the metamorphic and memory
// properties are written with.
#ifndef QUALM_PROPERTIES_DERIVE_H_
#define QUALM_PROPERTIES_DERIVE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/subject.h"
#include "core/verdict.h"

namespace qualm::derive {

// Row i of the result is row rows[i] of the case. Not for operations with a window: see Images.
Case Rows(const Case& c, std::span<const int64_t> rows);
// Output channel i of the result is channel columns[i], with its weights, bias and qparams. Of
// concat: those of the first input, then those of the second. Of softmax: another row. Of a
// convolution with groups: as many channels of each group that occurs, group after group; the input
// channels of the other groups are dropped.
Case Columns(const Case& c, std::span<const int64_t> columns);
// The most leading channels, but at most `most` >= 1, that Columns accepts.
std::vector<int64_t> LeadingColumns(const Case& c, int64_t most);
// linear: summand i of the result is summand terms[i]; -1 stands for x = x_code, w = w_code.
Case Terms(const Case& c, std::span<const int64_t> terms, int32_t x_code = 0, int32_t w_code = 0);

// Operations with a window. Image i of the result is image images[i] of the batch.
Case Images(const Case& c, std::span<const int64_t> images);
// Convolutions: input channel i of every group is channel channels[i] of that group; -1 stands for
// x = x_code, w = w_code.
Case InputChannels(const Case& c, std::span<const int64_t> channels, int32_t x_code = 0,
                   int32_t w_code = 0);
// The case whose only output pixel is pixel m: of the image, what its window sees.
Case Pixel(const Case& c, int64_t m);
// The image with its padding made of `code`, and no other padding.
Case ExplicitPadding(const Case& c, int32_t code);
// The kernel of the result has the taps (rows[i], columns[j]) of the case; where either is -1 the
// weights of output channel n are w_codes[n]. All else stays as it is.
Case Taps(const Case& c, std::span<const int64_t> rows, std::span<const int64_t> columns,
          std::span<const int32_t> w_codes = {});

// The case in the other of the two forms that QParams lists have, with the parameters of channel 0
// everywhere. Needs N >= 1.
Case WithFirstChannelParams(const Case& c, bool per_channel);

// The tensor with `shift` added to every code and the given type; nullopt where a code leaves it.
std::optional<Tensor> Shifted(const Tensor& tensor, DType dtype, int32_t shift);
// value + shift if that is an int32.
std::optional<int32_t> ShiftedInt(int32_t value, int64_t shift);

// A number that depends on the whole problem: choices of a property that must be the same every
// time, and different from case to case.
uint64_t Hash(const Case& c);

// Channel of output element i.
inline int64_t ChannelOf(const Case& c, int64_t i) { return c.N == 0 ? 0 : i % c.N; }
// LowerBound for the channel (quantize may have one zero point per channel), never above out_max.
int64_t LowEnd(const Case& c, int64_t channel);

// Where exact::RequantMayOverflow: the reason of claims that are then no theorem.
inline constexpr const char* kRequantOverflows = "the requantization may overflow int32";

// exact::Evaluate, remembering this thread's last few: many subjects and properties ask the same.
Tensor ExactOf(const Case& c);

// The answer of a subject, or the verdict that stands in its place: skipped if it cannot run the
// case, failed if it crashed, hung, strayed, refused, or answered in the wrong shape.
struct Answer {
  Tensor y;
  std::optional<Verdict> verdict;
  bool skipped() const { return verdict && verdict->judgement == Judgement::kSkipped; }
};
Answer Ask(Subject& subject, const Case& c, const RunContext& context = {});

// Passed if the subject gives the same bits for both; failed with "WHAT: ..." if not.
Verdict SameAnswer(const Case& c, const Case& derived, Subject& subject, const std::string& what);
// Passed if the subject answers `expected`.
Verdict Expect(const Case& c, const Tensor& expected, Subject& subject, const std::string& what);

// Failed with the first difference if the two differ: "WHAT: expected E at [m,n], got A".
std::optional<Verdict> Difference(const Case& c, const Tensor& expected, const Tensor& actual,
                                  const std::string& what);
// Failed at element i.
Verdict FailedAt(const Case& c, int64_t i, const std::string& expected, const std::string& actual,
                 double distance_lsb, const std::string& what);
// Where element i should be what element `from` of another answer is.
Verdict FailedAt(const Case& c, const Tensor& expected, int64_t from, const Tensor& actual,
                 int64_t i, const std::string& what);

}  // namespace qualm::derive

#endif  // QUALM_PROPERTIES_DERIVE_H_
