// SPDX-License-Identifier: Apache-2.0
// The steps of a convention: the value that flows through them, the constants that they use, and
// the steps that several families share.
#ifndef QUALM_ORACLES_CONVENTIONS_STEPS_H_
#define QUALM_ORACLES_CONVENTIONS_STEPS_H_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"
#include "oracles/conventions/primitives.h"
#include "oracles/trace.h"

namespace qualm::conventions {

// Constants of one output channel, computed once per case. A family sets those that its steps use.
struct Channel {
  float multiplier = 1;         // codes out per accumulator unit
  float accumulator_scale = 1;  // real units per accumulator unit
  float reciprocal = 1;         // 1/scale, as the family rounds it
  float bias = 0;               // as the family's bias step wants it
  int32_t bias_i32 = 0;
  bool bias_rounded = false;  // bias_i32 is a float bias that was not an integer
  float scale = 1;            // quantize, dequantize
  int32_t zero_point = 0;     // of the codes made (quantize, linear) or read (dequantize)
  int32_t low = 0;            // clamp, relu included
  int32_t high = 0;
  FixedMultiplier fixed;
  // What a C library computes of a real function: its least number (-1) or its greatest (1); 0 is
  // the correctly rounded one.
  int side = 0;
  bool operands_rounded = false;  // a.fixed or b.fixed is not exactly its ratio of scales
  // For x (a) and w (b) if each has constants of its own: two operands, pools, tables.
  struct Operand {
    float scale = 1;
    int32_t zero_point = 0;
    FixedMultiplier fixed;
  };
  Operand a, b;
  // The output element, for kernels whose tail differs: its index among `count` in rows of
  // `columns`.
  struct Element {
    int64_t index = 0, count = 0, columns = 1;
  };
  Element element;
};

// The value that flows through the steps: an integer that later becomes a float32, or the other way
// round; in NumPy's conventions a float64.
struct Value {
  bool real = false;
  bool is_wide = false;  // the real number is `wide`, not `number`
  int64_t integer = 0;
  float number = 0;
  double wide = 0;
  int32_t second = 0;  // the code of the second operand
  // The terms that steps add to a sum for the zero points of x and of w, if Accumulation::take_out
  // left both in the sum (oneDNN's AMX tiles).
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

// How the result of a step depends on the number that goes into the step.
enum class Rise : uint8_t {
  kUnknown,
  kAlways,       // a larger number never gives a smaller result; every NaN gives one result
  kUnlessLossy,  // as kAlways, while the result fits its type; else it sets value.lossy
};

// `text` may name constants: {multiplier} {scale} {reciprocal} {bias} {zero_point} {low} {high}
// {fixed} {shift}, and {left} {right}, of which one is the shift and the other 0; of two operands
// {a_scale} {a_zp} {a_fixed} {a_shift}, {b_...} likewise, and {b}, the code of the second.
struct Step {
  Stage stage;
  std::string_view text;
  void (*apply)(Value&, const Channel&);
  Rise rise = Rise::kUnknown;  // RiseOf knows it for the steps below
};
Rise RiseOf(const Step& step);

// A value as traces show it: an integer, or a float in hex.
std::string ValueText(const Value& v);
// Adds one step to a trace, if there is one.
void Note(Trace* trace, Stage stage, std::string text, std::string value, bool lossy);
// Applies the steps to the value one after another, and notes each in `trace` if given.
void Apply(std::span<const Step> steps, const Channel& channel, Value& value, Trace* trace);

// One float operation. Sets value.lossy where the result is rounded.
float MultiplyInto(Value& value, float a, float b);
float AddInto(Value& value, float a, float b);

// Steps that several families share.
namespace step {
void AddBiasI32(Value& v, const Channel& c);  // wraps
void AddBiasFloat(Value& v, const Channel& c);
void ToFloat(Value& v, const Channel& c);          // cvtdq2ps
void TimesMultiplier(Value& v, const Channel& c);  // one rounding
void TimesReciprocal(Value& v, const Channel& c);
void TimesScale(Value& v, const Channel& c);
void TimesMultiplierPlusBias(Value& v, const Channel& c);  // fused: one rounding
void DivideByScale(Value& v, const Channel& c);
void Relu(Value& v, const Channel& c);  // maxps with 0
void AddZeroPointFloat(Value& v, const Channel& c);
void RoundEven(Value& v, const Channel& c);           // nearbyint: stays float32
void RoundX86(Value& v, const Channel& c);            // cvtps2dq
void RoundArm(Value& v, const Channel& c);            // vcvtn: saturates, NaN becomes 0
void RoundAway(Value& v, const Channel& c);           // std::round into int32, as RoundX86
void MinHigh(Value& v, const Channel& c);             // minps with high - zero_point
void AddZeroPointSat16(Value& v, const Channel& c);   // packssdw, paddsw
void AddZeroPointWrap32(Value& v, const Channel& c);  // paddd
void Clamp(Value& v, const Channel& c);
void TimesCodeMinusZeroPoint(Value& v, const Channel& c);  // dequantize: fl(scale*(float)(q-zp))
void TimesSecond(Value& v, const Channel& c);              // mul, exact
constexpr Step kProduct{Stage::kAccumulate, "(a - {a_zp}) * ({b} - {b_zp})", TimesSecond};
}  // namespace step

// The codes of the pixels under the window of output `index`, taps in the padding left out.
std::vector<int32_t> CodesUnderWindow(const Case& c, int64_t index);

// What an output of concat begins with: a code of the one tensor or the other, and its parameters.
struct ConcatElement {
  int32_t code;
  const QParams* q;
};
ConcatElement ConcatElementAt(const Case& c, int64_t index);

// Of quantize and dequantize: scale and zero point of column n. false: another operation.
bool SetColumnScale(Channel& channel, const Case& c, int64_t n);
// Clamp bounds of a code output, relu included.
void SetClamp(Channel& channel, const Case& c);
// The constants of fixed-point backends (gemmlowp, ruy, TFLite): clamp, int32 bias, zero point and
// the multiplier of channel n as an integer and a shift. `single`: see QuantizeMultiplier.
Channel FixedPointChannel(const Case& c, int64_t n, bool single = false);
// The steps of these backends: an int32 bias, then `scaling` and the zero point (not for s32
// outputs), then the clamp.
std::vector<Step> FixedPointSteps(const Case& c, std::initializer_list<Step> scaling);
// add in fixed point: both scales over the output's as integers that share one exponent
// (a_fixed, b_fixed, fixed.shift), the larger in [2^(bits-1), 2^bits].
Channel FixedPointAddChannel(const Case& c, int32_t bits);

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_STEPS_H_
