// SPDX-License-Identifier: Apache-2.0
// Linears of blocks that are added in floating point, form by form: what is multiplied, and which
// two float32 each part of such a sum is the product of.
#ifndef QUALM_ORACLES_CONVENTIONS_LINEAR_FORMS_H_
#define QUALM_ORACLES_CONVENTIONS_LINEAR_FORMS_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/case.h"
#include "core/weight_formats.h"
#include "oracles/conventions/convention.h"

namespace qualm::conventions {

// What is multiplied: a row of x and a column of w, both cut into blocks. f32 x has no scales.
struct LinearForm {
  std::string_view name;  // "q4_0"
  std::string_view text;  // for people
  DType x, w;
  int32_t w_zero_point = 0;
  int32_t block = 32;
  const WeightFormat* format = nullptr;  // of which w has the codes and scales; null: any

  // Codes in which products are added as integers: a block, or a super-block.
  int64_t size() const { return format == nullptr ? block : format->super_block; }
  // Codes of x that share a scale.
  int64_t x_size() const { return format == nullptr ? block : block * format->blocks_of_x(); }
  bool minima() const { return format != nullptr && format->minima; }
};
std::span<const LinearForm> LinearForms();

// A way in which a part meets its two scales. A part of products with several scales of x (q1_0,
// q2_0) has a way of its own: sums of integers times f16 scales of x are added in float32, and meet
// the scale of w.
struct ScaleWay {
  std::string_view name;  // in a contract: "product"
  std::string_view text;  // for people
};
std::span<const ScaleWay> ScaleWaysOf(const LinearForm& form);
// Whether the way is one of parts with several scales of x.
bool IsChain(const LinearForm& form, size_t way);

// What is added as integers, of one (super-)block: products; or what minima take out there, the
// zero points times x; or both. Those behind the end of the row are 0.
struct SumPart {
  enum class Of : uint8_t { kProducts, kMinima, kBoth };
  std::vector<int64_t> products;
  Of of = Of::kProducts;
  bool minima() const { return of == Of::kMinima; }
  friend bool operator==(const SumPart&, const SumPart&) = default;
};

// Of output (m, n) the two float32 whose product each part is. The case has the form; `way` and
// `minima_way`, of minima, are places in ScaleWaysOf(form). `moved`, if any, moves the sums of
// products that have one weight scale.
std::pair<std::vector<float>, std::vector<float>> FactorsOf(const LinearForm& form, size_t way,
                                                            size_t minima_way, const Case& c,
                                                            int64_t m, int64_t n,
                                                            std::span<const SumPart> parts,
                                                            const SumMoved& moved = nullptr);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_LINEAR_FORMS_H_
