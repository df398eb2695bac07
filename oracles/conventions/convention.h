// SPDX-License-Identifier: Apache-2.0
// Named conventions: the arithmetic of real backends, bit for bit, as scalar functions. One file
// per family, with its sources (upstream file, commit); families.h lists them.
#ifndef QUALM_ORACLES_CONVENTIONS_CONVENTION_H_
#define QUALM_ORACLES_CONVENTIONS_CONVENTION_H_

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"
#include "core/tensor.h"
#include "oracles/trace.h"

namespace qualm {
namespace conventions {
struct Accumulation;  // oracles/conventions/accumulation.h
}

struct ConventionOutput {
  Tensor y;
  // s32 [M,N], raw accumulators before zero-point correction (linear, convolutions), where the
  // convention has any.
  std::optional<Tensor> acc;
};

// By what an integer sum of products is moved, from its codes and the zero point of its weights.
using SumMoved = std::function<int64_t(std::span<const int32_t> x, std::span<const int32_t> w,
                                       int32_t w_zero_point)>;

struct Convention {
  std::string name;             // "fbgemm@avx2", "fbgemm@avx2+nofma", "qnnpack", "onednn2@avx2"
  std::string family;           // the heading of its row in docs/backends.md: "FBGEMM"
  std::string description;      // one line
  std::string source;           // "FBGEMM src/... @ 71d6f8b"
  bool pair_saturates = false;  // u8*s8 products are added in saturating int16 pairs
  // A way to round that anybody may write, with an answer to every case: that it fits says how the
  // subject rounds, that it does not fit says nothing about libraries.
  bool of_no_library = false;

  std::vector<Op> ops;  // what it computes; it may refuse cases of these too

  // "" if the convention defines this case, else why not ("weight zero point must be 0").
  std::function<std::string(const Case&)> cannot_run;
  std::function<ConventionOutput(const Case&)> run;
  // Optional: whether `y` is an answer that the library leaves open too, as where it adds float32
  // numbers in an order that it does not promise. `run` gives one of these answers.
  std::function<bool(const Case&, const Tensor& y)> also_gives;
  // Of a summation tree: what it gives where each of its integer sums of products is moved so.
  std::function<Tensor(const Case&, const SumMoved& moved)> run_moved;
  // Encloses the codes of all inputs between two: `ends` is a quantize or requantize of these, the
  // first no larger, or both NaN, which stands for every NaN. nullopt if steps may fall between
  // them, or are not known to rise. Empty: nothing is known.
  std::function<std::optional<CodeRange>(const Case& ends)> enclose;
  // Steps of output element `index`.
  std::function<Trace(const Case&, int64_t index)> trace;

  // How the products of linear and of convolutions are added; empty where there are no such sums.
  std::function<conventions::Accumulation(const Case&)> accumulation;

  // Claims that hold for this convention, besides those that hold for every convention
  // (matches_model, clamp, memory, same bits, environment). "row_independence" is claimed for every
  // operation that the convention and the property know, "add.commutes" for add alone.
  std::vector<std::string> satisfies;
  // An engine that has a convention of its own for each operation: that convention, nullptr for an
  // operation that the engine lacks. The claims of that convention count.
  std::function<const Convention*(Op)> for_op;

  // The only ways in which it may differ from the exact meaning: ids of permitted variations
  // (oracles/conventions/variations.h, docs/backends.md).
  std::vector<std::string> variations;
};

// convention.enclose(ends), nullopt where there is none.
std::optional<CodeRange> EncloseBy(const Convention& convention, const Case& ends);

// Whether the convention makes this claim for this operation.
bool Satisfies(const Convention& convention, Op op, std::string_view claim);

// All conventions, sorted by name.
std::span<const Convention> AllConventions();
// The families, each once, in the order of docs/backends.md.
std::vector<std::string_view> AllFamilies();
// nullptr if there is none of that name; "tree:{...}" names one too (tree_contract.h).
const Convention* FindConvention(std::string_view name);

}  // namespace qualm

#endif  // QUALM_ORACLES_CONVENTIONS_CONVENTION_H_
