// SPDX-License-Identifier: Apache-2.0
// A convention as a list of named steps. Running a case and tracing one output walk the same list,
// so a trace cannot disagree with the output it explains, and another rounding is another line in a
// family's table.
#ifndef QUALM_ORACLES_CONVENTIONS_DEFINITION_H_
#define QUALM_ORACLES_CONVENTIONS_DEFINITION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/families.h"
#include "oracles/conventions/primitives.h"
#include "oracles/trace.h"

namespace qualm::conventions {

// How the products x*w of one output are added.
struct Accumulation {
  enum class Kind : uint8_t {
    kExact,          // int32, wraps
    kPairs,          // adjacent pairs saturate to int16, pair sums are added in int32
    kPairsInto16,    // pairs saturate, and are added in saturating int16 for 256 k's at a time
    kPairsXPlus128,  // s8 x: pairs of (x+128)*w, then - 128*sum w
    kPairsWPlus128,  // s8 x: pairs of (w+128)*x, then - 128*sum x
    kHalvedWeights,  // the exact sum of x*rne(w/2), in units of two: doubled as float32 at the end
  };
  // How the zero points are then taken out.
  enum class Offsets : uint8_t {
    kWrap,        // in int32 modulo 2^32
    kFloat,       // in float64, the difference saturated to int32 and rounded to float32
    kRowsSigned,  // modulo 2^32, codes of x from 128 on counted as x - 256 in sum x
    kRowsInto16,  // modulo 2^32, sum x (of u8) saturates to int16
    kInFloat,     // of x only: each term rounded to float32, and each sum; s8 x was shifted by 128
    kInSteps,     // not here: each addend is int32 modulo 2^32, and steps add them in float32
  };
  // What the taps of a convolution in the padding are.
  enum class Padding : uint8_t {
    kAbsent,     // left out of the sums and of the offsets
    kZeroPoint,  // the low byte of the zero point of x, in sums and offsets
    kZeroCode,   // code 0 in the sums, where it may be one half of a pair; left out of the offsets
  };
  Kind kind = Kind::kExact;
  // Pairs never span this k (0: none): the first of two blocks ends here, padded to even.
  int64_t first_block = 0;
  Offsets offsets = Offsets::kWrap;
  // Convolutions. The order is that of the weights: (r, s, c), c fastest and inside the group.
  Padding padding = Padding::kAbsent;
  bool pairs_within_tap = false;  // the last of an odd number of channels has no partner
  // The zero point of x is taken out for no tap, and put in for those of the padding.
  bool zero_point_stays = false;
  std::string_view kernel;  // for traces
};

// Constants of one output channel, computed once per case.
struct Channel {
  float multiplier = 1;         // codes out per accumulator unit
  float accumulator_scale = 1;  // real units per accumulator unit
  float reciprocal = 1;         // 1/scale, as the family rounds it
  float bias = 0;               // as the family's bias step wants it
  int32_t bias_i32 = 0;
  bool bias_rounded = false;  // bias_i32 is a float bias that was not an integer
  float scale = 1;            // quantize, dequantize
  int32_t zero_point = 0;     // of the codes that are made (quantize, linear) or read (dequantize)
  int32_t low = 0;            // clamp, relu included
  int32_t high = 0;
  FixedMultiplier fixed;
  // add, mul: what each operand is multiplied by, and its zero point.
  float a_scale = 1, b_scale = 1;
  int32_t a_zero_point = 0, b_zero_point = 0;
  FixedMultiplier a_fixed, b_fixed;
  int64_t index = 0;  // of the element, for kernels whose tail differs
  int64_t count = 0;
  int64_t columns = 1;  // N, of `count` elements
};

// What flows through the steps: an integer, later a float32, or the other way round. NumPy's
// float64 goes through `wide`.
struct Value {
  bool real = false;
  bool is_wide = false;  // of a real: the number is `wide`
  int64_t integer = 0;
  float number = 0;
  double wide = 0;
  int32_t other = 0;  // the code of the second operand (add, mul)
  // With Offsets::kInSteps, what is to be added for the zero point of x, and for that of w.
  int32_t x_offset = 0, w_offset = 0;
  bool lossy = false;  // the last step departed from the exact value

  void SetInt(int64_t value) {
    real = false;
    integer = value;
  }
  void SetReal(float value) {
    real = true;
    is_wide = false;
    number = value;
  }
  void SetWide(double value) {
    real = is_wide = true;
    wide = value;
  }
};

// `text` may name constants: {multiplier} {scale} {reciprocal} {bias} {zero_point} {low} {high}
// {fixed} {shift}; of two operands {a_scale} {a_zp} {a_fixed} {a_shift}, {b_...} likewise, and {b},
// the code of the second.
struct Step {
  Stage stage;
  std::string_view text;
  void (*apply)(Value&, const Channel&);
};

struct Definition {
  std::string name;
  std::string description;
  std::string source;
  bool pair_saturates = false;
  std::vector<std::string> satisfies;
  std::vector<std::string> variations;  // ids of oracles/conventions/variations.h
  // Every other operation is refused: "this convention has no OP".
  std::vector<Op> ops;
  // Why a case of one of `ops` is refused, "" where it is not.
  std::function<std::string(const Case&)> cannot_run;
  // Linear and convolutions; without it their outputs are gathered, and there are no accumulators.
  std::function<Accumulation(const Case&)> accumulation;
  std::function<Channel(const Case&, int64_t channel)> channel;
  // Optional: what the steps of an output begin with where that is not an element of x (pools,
  // rows, sums in floating point), noted in `trace` if given; nullopt: the element.
  std::function<std::optional<Value>(const Case&, int64_t index, Trace* trace)> gather;
  // Everything after the zero-point offsets (sums) or from the input on (the other ops).
  std::function<std::vector<Step>(const Case&)> steps;
  // Optional: the steps of elements from `body` on, where the tail of a vector loop differs.
  std::function<int64_t(const Case&)> body;
  std::function<std::vector<Step>(const Case&)> tail_steps;
};

Convention MakeConvention(Definition definition);
// By number, V2 before V10, each once.
void SortVariations(std::vector<std::string>& ids);

// The sum of products of row x and row w (same length) under an accumulation; appends what happened
// to `trace` if given. kHalvedWeights: half of it.
int32_t Accumulate(Accumulation accumulation, std::span<const int32_t> x,
                   std::span<const int32_t> w, Trace* trace);
// acc with both zero points taken out.
int32_t TakeOutZeroPoints(int32_t acc, int32_t x_zp, int32_t w_zp, std::span<const int32_t> x,
                          std::span<const int32_t> w,
                          Accumulation::Offsets offsets = Accumulation::Offsets::kWrap);

// As traces show it: an integer, or hex.
std::string ValueText(const Value& v);
// Adds one step to a trace, if there is one.
void Note(Trace* trace, Stage stage, std::string text, std::string value, bool lossy);
// Walks the steps.
void Apply(std::span<const Step> steps, const Channel& channel, Value& value, Trace* trace);

// Float operations that note whether they were exact.
float MultiplyInto(Value& value, float a, float b);
float AddInto(Value& value, float a, float b);

// Steps that several families share.
namespace step {
void AddBiasI32(Value& v, const Channel& c);       // wraps
void ToFloat(Value& v, const Channel& c);          // cvtdq2ps
void TimesMultiplier(Value& v, const Channel& c);  // one rounding
void TimesReciprocal(Value& v, const Channel& c);
void AddZeroPointFloat(Value& v, const Channel& c);
void RoundX86(Value& v, const Channel& c);            // cvtps2dq
void RoundArm(Value& v, const Channel& c);            // vcvtn: saturates, NaN becomes 0
void MinHigh(Value& v, const Channel& c);             // minps with high - zero_point
void AddZeroPointSat16(Value& v, const Channel& c);   // packssdw, paddsw
void AddZeroPointWrap32(Value& v, const Channel& c);  // paddd
void Clamp(Value& v, const Channel& c);
void TimesCodeMinusZeroPoint(Value& v, const Channel& c);  // dequantize: fl(scale*(float)(q-zp))
void TimesOther(Value& v, const Channel& c);               // mul, exact
constexpr Step kProduct{Stage::kAccumulate, "(a - {a_zp}) * ({b} - {b_zp})", TimesOther};
}  // namespace step

// Helpers for cannot_run: "" or the reason.
std::string FirstReason(std::initializer_list<std::string> reasons);
std::string Require(bool holds, std::string_view reason);
// Zero points of x, w (weights or second operand) and of the output inside their code types.
std::string ZeroPointsAreCodes(const Case& c);
// The clamp is the whole range of the output type.
std::string WholeRange(const Case& c);

// All of the weights' zero points are this one.
bool WeightZeroPointsAre(const Case& c, int32_t zero_point);
// One input and one output channel per group.
bool IsPlainDepthwise(const Case& c);

// The claims about windows of convolutions whose sums are exact, whatever the kernel.
void AddExactConvClaims(std::vector<std::string>& satisfies);

// Clamp bounds of a code output, relu included.
void SetClamp(Channel& channel, const Case& c);
// add in fixed point: both scales over the output's as integers that share one exponent
// (a_fixed, b_fixed, fixed.shift), the larger in [2^(bits-1), 2^bits].
Channel FixedPointAddChannel(const Case& c, int32_t bits);
// Product scale in requantize without an explicit multiplier: like a linear of those scales.
bool HasExplicitMultiplier(const Case& c);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_DEFINITION_H_
