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
#include <vector>

namespace qualm {

// Every key of a case file, in the order in which the writer puts them; the last two are the keys
// inside "observed".
enum class CaseKey : uint8_t {
  kVersion,
  kOp,
  kProperty,
  kNote,
  kFunction,
  kNegativeSlope,
  kObserver,
  kSymmetric,
  kReduceRange,
  kDType,
  kQuantMin,
  kQuantMax,
  kAveragingConstant,
  kBatches,
  kM,
  kN,
  kNA,
  kNB,
  kK,
  kH,
  kWidth,
  kC,
  kIC,
  kOC,
  kR,
  kS,
  kStride,
  kPad,
  kDilation,
  kGroups,
  kCeilMode,
  kCountIncludePad,
  kGran,
  kXDType,
  kWDType,
  kOutDType,
  kXScale,
  kXZp,
  kWScale,
  kWZp,
  kAScale,
  kAZp,
  kBScale,
  kBZp,
  kMultiplier,
  kOutScale,
  kOutZp,
  kBias,
  kBiasI32,
  kRelu,
  kOutMin,
  kOutMax,
  kRequant,
  kXShape,
  kWShape,
  kX,
  kW,
  kA,
  kB,
  kExpected,
  kObserved,
  kObservedBy,
  kObservedY,
};
inline constexpr size_t kCaseKeys = static_cast<size_t>(CaseKey::kObservedY) + 1;

// "x_scale"; "observed.y" for the keys inside.
std::string_view FieldName(CaseKey key);
// The key of that name, nullopt if there is none.
std::optional<CaseKey> KeyNamed(std::string_view name);

// What stood there. Numbers are kept as int32 while they all are, else as float32 converted from
// the text of the token: whether reals are welcome is known only once op and types are.
struct CaseValue {
  enum class Type : uint8_t { kAbsent, kNull, kBool, kNumber, kText, kList, kObject };
  Type type = Type::kAbsent;
  bool boolean = false;
  std::string text;

  std::vector<int32_t> ints;
  std::vector<float> floats;    // used, instead of ints, from the first other number on
  int64_t first_real = -1;      // index of that number
  std::string first_real_text;  // and what it looked like
  int64_t wide = 0;             // the last number, if it is an integer of 64 bits
  bool is_wide = false;

  bool present() const { return type != Type::kAbsent; }
  int64_t size() const {
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

// Throws InputError "NAME: FIELD: ..." for anything that is not a JSON object (comments allowed) of
// known keys, each at most once and of a JSON type that the key can have. Memory stays within a
// small multiple of the text.
CaseFields ScanCase(std::string_view text, std::string_view name);

[[noreturn]] void FailCase(std::string_view name, std::string_view field, std::string_view what);

}  // namespace qualm

#endif  // QUALM_CORE_IO_CASE_FIELDS_H_
