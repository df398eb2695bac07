// SPDX-License-Identifier: Apache-2.0
// First half of the case reader: JSON text -> typed fields, before anything is known about the op.
// Private to core/io.
#ifndef QUALM_CORE_IO_CASE_FIELDS_H_
#define QUALM_CORE_IO_CASE_FIELDS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace qualm {

// Every key of a case file, in the order in which the writer puts them, a row each: X(enumerator,
// name, JSON types that the key can have, what a message expects there). The types and the words
// are constants of case_fields.cc. The last keys stand inside "observed".
#define QUALM_CASE_KEYS(X)                                                   \
  X(kVersion, "qualm_case", kNumbers, kInteger)                              \
  X(kOp, "op", kTexts, kString)                                              \
  X(kProperty, "property", kTexts, kString)                                  \
  X(kContract, "contract", kTexts, kString)                                  \
  X(kNote, "note", kTexts, kString)                                          \
  X(kFunction, "function", kTexts, kString)                                  \
  X(kNegativeSlope, "negative_slope", kNumbers, kReal)                       \
  X(kObserver, "observer", kTexts, kString)                                  \
  X(kSymmetric, "symmetric", kBools | kNumbers, kFlag)                       \
  X(kReduceRange, "reduce_range", kBools | kNumbers, kFlag)                  \
  X(kDType, "dtype", kTexts, kString)                                        \
  X(kQuantMin, "quant_min", kBounds, kInteger)                               \
  X(kQuantMax, "quant_max", kBounds, kInteger)                               \
  X(kAveragingConstant, "averaging_constant", kNumbers, kReal)               \
  X(kQParamsRule, "qparams_rule", kTexts, kString)                           \
  X(kCodesOfX, "codes", kBools | kNumbers, kFlag)                            \
  X(kXGran, "x_gran", kTexts, kString)                                       \
  X(kRounding, "rounding", kTexts, kString)                                  \
  X(kOverflow, "overflow", kTexts, kString)                                  \
  X(kBatches, "batches", kNumbers, kInteger)                                 \
  X(kM, "M", kNumbers, kInteger)                                             \
  X(kN, "N", kNumbers, kInteger)                                             \
  X(kNA, "NA", kNumbers, kInteger)                                           \
  X(kNB, "NB", kNumbers, kInteger)                                           \
  X(kK, "K", kNumbers, kInteger)                                             \
  X(kH, "H", kNumbers, kInteger)                                             \
  X(kWidth, "W", kNumbers, kInteger)                                         \
  X(kC, "C", kNumbers, kInteger)                                             \
  X(kIC, "IC", kNumbers, kInteger)                                           \
  X(kOC, "OC", kNumbers, kInteger)                                           \
  X(kR, "R", kNumbers, kInteger)                                             \
  X(kS, "S", kNumbers, kInteger)                                             \
  X(kStride, "stride", kLists, "a list of 2 integers, rows and columns")     \
  X(kPad, "pad", kLists, "a list of 4 integers: top, bottom, left, right")   \
  X(kDilation, "dilation", kLists, "a list of 2 integers, rows and columns") \
  X(kGroups, "groups", kNumbers, kInteger)                                   \
  X(kCeilMode, "ceil_mode", kBools | kNumbers, kFlag)                        \
  X(kCountIncludePad, "count_include_pad", kBools | kNumbers, kFlag)         \
  X(kGran, "gran", kTexts, kString)                                          \
  X(kXDType, "x_dtype", kTexts, kString)                                     \
  X(kWDType, "w_dtype", kTexts, kString)                                     \
  X(kOutDType, "out_dtype", kTexts, kString)                                 \
  X(kXScale, "x_scale", kScales, kScale)                                     \
  X(kXZp, "x_zp", kZeroPoints, kZeroPoint)                                   \
  X(kWScale, "w_scale", kScales, kScale)                                     \
  X(kWZp, "w_zp", kZeroPoints, kZeroPoint)                                   \
  X(kWBlock, "w_block", kNumbers, kInteger)                                  \
  X(kXBlock, "x_block", kNumbers, kInteger)                                  \
  X(kAScale, "a_scale", kScales, kScale)                                     \
  X(kAZp, "a_zp", kZeroPoints, kZeroPoint)                                   \
  X(kBScale, "b_scale", kScales, kScale)                                     \
  X(kBZp, "b_zp", kZeroPoints, kZeroPoint)                                   \
  X(kMultiplier, "multiplier", kScales, kScale)                              \
  X(kOutScale, "out_scale", kScales, kScale)                                 \
  X(kOutZp, "out_zp", kZeroPoints, kZeroPoint)                               \
  X(kBias, "bias", kReals | kNulls, "a list of float32, or null")            \
  X(kBiasI32, "bias_i32", kArrays | kNulls, "a list of integers, or null")   \
  X(kRelu, "relu", kBools | kNumbers, kFlag)                                 \
  X(kOutMin, "out_min", kBounds, kInteger)                                   \
  X(kOutMax, "out_max", kBounds, kInteger)                                   \
  X(kRequant, "requant", kTexts, kString)                                    \
  X(kXShape, "x_shape", kLists, kIntegers)                                   \
  X(kWShape, "w_shape", kLists, kIntegers)                                   \
  X(kX, "x", kReals, kValues)                                                \
  X(kW, "w", kArrays, kValues)                                               \
  X(kA, "a", kArrays, kValues)                                               \
  X(kB, "b", kArrays, kValues)                                               \
  X(kExpected, "expected", kArrays, kValues)                                 \
  X(kObserved, "observed", kObjects, "an object {\"by\", \"y\"}")            \
  X(kObservedBy, "observed.by", kTexts, kString)                             \
  X(kObservedY, "observed.y", kOutputs, kValues)                             \
  X(kObservedKind, "observed.kind", kTexts, kString)                         \
  X(kObservedCause, "observed.cause", kTexts, kString)                       \
  X(kObservedCauses, "observed.causes", kTexts, kString)                     \
  X(kObservedEvidence, "observed.evidence", kTexts, kString)                 \
  X(kObservedRuledOut, "observed.ruled_out", kTexts, kString)

enum class CaseKey : uint8_t {
#define QUALM_ENUMERATOR(key, name, accepts, expected) key,
  QUALM_CASE_KEYS(QUALM_ENUMERATOR)
#undef QUALM_ENUMERATOR
};
inline constexpr size_t kCaseKeys = static_cast<size_t>(CaseKey::kObservedRuledOut) + 1;

// "x_scale"; "observed.y" for the keys inside.
std::string_view FieldName(CaseKey key);
// The key of that name, nullopt if there is none.
std::optional<CaseKey> KeyNamed(std::string_view name);

// The value of a key. Numbers are kept as int32 as long as all of them are int32; otherwise all are
// kept as float32, converted from the text of each token. Both forms are needed because this reader
// does not know yet whether the operation wants integers or reals.
struct CaseValue {
  enum class Type : uint8_t { kAbsent, kNull, kBool, kNumber, kText, kList, kObject };
  Type type = Type::kAbsent;
  bool boolean = false;
  std::string text;

  std::vector<int32_t> ints;
  std::vector<float> floats;    // takes the place of ints once a number is not an int32
  int64_t first_real = -1;      // index of that number
  std::string first_real_text;  // its text
  int64_t wide = 0;             // the last number, if it is an integer of 64 bits
  bool is_wide = false;
  // Numbers of the list that somebody printed, with their index: "0.0160" of the string "0.0160~".
  std::vector<std::pair<int64_t, std::string>> printed;
  // NaN codes of small floats with their index: "nan:7e", which counts as a float32 NaN.
  std::vector<std::pair<int64_t, std::string>> nans;
  std::vector<int64_t> unknown;  // the indexes of "?", which counts as the number 1
  // Of a list that stands in a .npy file: its name. Whoever reads the file puts its numbers into
  // `array`, and the members above stay empty.
  std::string file;
  Tensor array;

  bool present() const { return type != Type::kAbsent; }
  int64_t size() const {
    if (!file.empty()) return array.size();
    return static_cast<int64_t>(first_real < 0 ? ints.size() : floats.size());
  }
};

class CaseFields {
 public:
  CaseValue& at(CaseKey key) { return values_[static_cast<size_t>(key)]; }
  const CaseValue& at(CaseKey key) const { return values_[static_cast<size_t>(key)]; }

 private:
  std::array<CaseValue, kCaseKeys> values_;
};

// `as_printed`: a scale that is a decimal with a point or an exponent counts as printed.
// Throws InputError "NAME: FIELD: ..." for anything that is not a JSON object (comments allowed) of
// known keys, each at most once and of a JSON type that the key can have. Memory stays within a
// small multiple of the text.
CaseFields ScanCase(std::string_view text, std::string_view name, bool as_printed);

[[noreturn]] void FailCase(std::string_view name, std::string_view field, std::string_view what);

}  // namespace qualm

#endif  // QUALM_CORE_IO_CASE_FIELDS_H_
