// SPDX-License-Identifier: Apache-2.0
// The cases that somebody means: ranges of scales, zero points, biases, values and sizes, and lists
// of shapes. Drawn cases are brought inside, and a subject refuses what lies outside, so that
// relations, minimizing and fuzzing stay inside too.
#ifndef QUALM_PROPERTIES_DOMAIN_H_
#define QUALM_PROPERTIES_DOMAIN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"
#include "core/subject.h"

namespace qualm {

// The sizes of one case: of a product, of a layer with a window, or of [M,N] elements.
struct ShapeOfCase {
  std::string text;  // as it was written
  Layout layout = Layout::kElements;
  int64_t M = 0, N = 0, K = 0;  // of layouts without a window; of convolutions, N
  Window window = {};
};
// "64x512x1024" is MxNxK of a product, "64x512:512x1024" the same as MxK:KxN, "64x512" MxN
// elements; "mb1ic64ih56oc64kh3ph1" is what benchdnn takes: mb, g, ic, oc, ih, iw, kh, kw, sh, sw,
// ph, pw, dh, dw, where a missing width is the height, dilation counts from 0, and padding follows
// from oh and ow where it is not said. Without kh it is a product (inner product), without oc a
// pool. Throws InputError.
ShapeOfCase ParseShape(std::string_view text);

// One end of a range: a number, "inf" or "-inf".
std::optional<double> ParseEnd(std::string_view text);

class Domain {
 public:
  // `name`: as in docs/domains.md. `op`: of one operation, which overrides what is said for all.
  // Both ends belong to the range. Throws InputError "NAME: what, expected what".
  void AddRange(std::optional<Op> op, const std::string& name, double least, double most);
  void AddShape(std::optional<Op> op, std::string_view text);
  bool empty() const { return of_.empty(); }

  // "" or the first thing of the case that lies outside: "the domain has no x_scale 1e-45, only
  // 1e-06 to 1000".
  std::string WhyOutside(const Case& c) const;
  // A case of the domain that differs little: numbers are moved by powers of two where that brings
  // them inside (their digits stay), else to the nearest end; integers and sizes wrap around;
  // larger tensors repeat the smaller ones. `c` itself where there is no such case.
  Case Inside(const Case& c) const;

  // A text that Parse reads, for another process: ranges and shapes, one on a line.
  std::string Text() const;
  static Domain Parse(const std::string& text);

 private:
  struct Range {
    double least = 0, most = 0;
  };
  struct OfOp {
    std::map<std::string, Range, std::less<>> ranges;
    std::vector<ShapeOfCase> shapes;
  };

  // What is said of the operation, else of all.
  const Range* RangeOf(Op op, std::string_view name) const;
  std::vector<const ShapeOfCase*> ShapesOf(Op op) const;

  std::map<std::optional<Op>, OfOp> of_;
};

// The domain of this process, which MakeSubjects (properties/engine.h) gives every subject. Set it
// before any thread asks.
void SetDomain(Domain domain);
const Domain& TheDomain();

// A subject that takes the cases of the domain alone.
std::unique_ptr<Subject> InDomain(std::unique_ptr<Subject> subject, const Domain& domain);
// The subject of this name in the domain of this process and in the one that it declares itself
// (core/declared_domain.h). Throws as SubjectRegistry::Make, Unavailable too for a domain that is
// none.
std::unique_ptr<Subject> MakeInDomain(const std::string& name);

}  // namespace qualm

#endif  // QUALM_PROPERTIES_DOMAIN_H_
