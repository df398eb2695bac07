// SPDX-License-Identifier: Apache-2.0
// Case texts that must be refused, with the line that must be said about each. For tests only.
#ifndef QUALM_CORE_IO_HOSTILE_CASE_TEST_UTIL_H_
#define QUALM_CORE_IO_HOSTILE_CASE_TEST_UTIL_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/op.h"
#include "core/text_test_util.h"

namespace qualm::test {

inline constexpr std::string_view kLinear = R"({
  // a comment
  "qualm_case": 1, "op": "linear", "M": 1, "N": 2, "K": 2, /* another */
  "x_scale": 0.1, "x_zp": 3, "w_scale": [0.25], "w_zp": [0], "out_scale": "0x1p-1", "out_zp": 7,
  "x": [1, 2], "w": [3, -4, 5, -128]})";

inline std::string With(std::string_view from, std::string_view to, std::string_view in = kLinear) {
  return Replaced(std::string(in), from, to);
}

// kLinear plus more keys.
inline std::string And(std::string_view more) {
  return With("-128]}", "-128], " + std::string(more) + "}");
}

inline constexpr std::string_view kConv =
    R"({"qualm_case": 1, "op": "conv2d", "N": 1, "H": 2, "W": 3,
  "IC": 2, "OC": 2, "R": 2, "S": 1, "stride": [1, 2], "pad": [1, 0, 0, 2], "groups": 2,
  "x_scale": 0.5, "x_zp": 3, "w_scale": 0.25, "w_zp": 0, "out_scale": 1, "out_zp": 7,
  "x": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], "w": [1, -2, 3, -4]})";
inline constexpr std::string_view kPool =
    R"({"qualm_case": 1, "op": "avg_pool", "N": 1, "H": 2, "W": 2,
  "C": 1, "R": 2, "S": 2, "pad": [1, 1, 1, 1], "ceil_mode": true, "x_scale": 0.5, "x_zp": 3,
  "out_scale": 1, "out_zp": 7, "x": [1, 2, 3, 4]})";
inline constexpr std::string_view kAdd = R"({"qualm_case": 1, "op": "add", "M": 1, "N": 2,
  "a_scale": 0.5, "a_zp": 3, "b_scale": 0.25, "b_zp": 4, "out_scale": 1, "out_zp": 7,
  "a": [1, 2], "b": [3, 4]})";

inline constexpr std::string_view kFloatX = R"({"qualm_case": 1, "op": "linear", "M": 1, "N": 1,
  "K": 1, "x_dtype": "f32", "out_dtype": "f32", "w_scale": 0.25, "w_zp": 0, "x": [1.5], "w": [3]})";

struct Hostile {
  std::string text;
  std::string field;  // how the message begins, after the file
  std::string says;   // and what it contains
};

inline std::vector<Hostile> HostileTable() {
  const auto quantize = [](std::string_view parameters, std::string_view more) {
    return R"({"qualm_case": 1, "op": "quantize", "M": 1, "N": 1, )" + std::string(parameters) +
           ", " + std::string(more) + "}";
  };
  const std::string out_q = R"("out_scale": 1, "out_zp": 0)";
  std::string deep;
  for (int i = 0; i < 200000; ++i) deep += "[";
  std::string deep_objects;
  for (int i = 0; i < 17; ++i) deep_objects += R"({"observed": )";
  const std::string requantize =
      R"({"qualm_case": 1, "op": "requantize", "M": 1, "N": 1, "x": [5])";
  const std::string cast = R"({"qualm_case": 1, "op": "cast", "M": 1, "N": 1, "x": [5], )";
  std::vector<Hostile> table = {
      // Not JSON, or not all of it.
      {"", "top level", "parse error"},
      {"   // only a comment", "top level", "parse error"},
      {"{", "top level", "parse error"},
      {std::string(kLinear.substr(0, 200)), "x", "parse error"},
      {std::string(kLinear.substr(0, kLinear.size() - 3)), "w[4]", "parse error"},
      {std::string(kLinear) + "{}", "top level", "parse error"},
      {std::string(kLinear) + " x", "top level", "parse error"},
      {std::string(kLinear) + std::string(1, '\0') + "rest", "byte 224", "NUL"},
      {"\xEF\xBB\xBF" + std::string(kLinear), "byte 0", "byte-order mark"},
      {With("a comment", "a \xC3\x28 comment"), "byte 9", "invalid UTF-8"},
      {And("\"note\": \"\xED\xA0\x80\""), "byte 234", "invalid UTF-8"},
      {And("\"note\": \"\xF5\x80\x80\x80\""), "byte 234", "invalid UTF-8"},
      {And("\"note\": \"\xC0\xAF\""), "byte 234", "invalid UTF-8"},
      {And("\"note\": \"line\nbreak\""), "note", "parse error"},
      {With("/* another */", "/* another"), "K", "parse error"},
      {With("[1, 2]", "[1, 2,]"), "x[2]", "parse error"},
      {With("[1, 2]", "[1, NaN]"), "x[1]", "parse error"},
      {With("[1, 2]", "[01, 2]"), "x[1]", "parse error"},
      {With("[1, 2]", "[+1, 2]"), "x[0]", "parse error"},
      {With("\"M\"", "'M'"), "op", "parse error"},
      // JSON, but not an object of known keys.
      {"[1]", "top level", "is a list, expected an object"},
      {"null", "top level", "is null"},
      {"\"linear\"", "top level", "is the string"},
      {"7", "top level", "is a number"},
      {deep, "top level", "is a list"},
      {With("[1, 2]", deep), "x[0]", "is a list, expected a number"},
      {deep_objects, "observed: \"observed\"", "nearest is"},
      {And(R"("observed": {"by": {"by": {}}, "y": []})"), "observed.by", "is an object"},
      {"{}", "qualm_case", "is missing"},
      {And(R"("out_zero_point": 3)"), "\"out_zero_point\"", "nearest is \"out_zp\""},
      {With("\"M\"", "\"m\""), "\"m\"", "nearest is \"M\""},
      {And(R"("strides": [1, 1])"), "\"strides\"", "not a key"},
      {And("\"a\\nb\": 1"), "\"a\\nb\"", "not a key"},
      {And(R"("observed": {"By": "me"})"), "observed: \"By\"", "nearest is \"by\""},
      {With("\"M\": 1,", "\"M\": 1, \"M\": 2,"), "M", "given twice"},
      {And(R"("x": [1, 2])"), "x", "given twice"},
      {And(R"("observed": {"by": "a", "by": "b", "y": [0, 0]})"), "observed.by", "given twice"},
      // The version and the op.
      {With("\"qualm_case\": 1", "\"qualm_case\": 2"), "qualm_case", "expected 1"},
      {With("\"qualm_case\": 1", "\"qualm_case\": 1.0"), "qualm_case", "expected 1"},
      {With("\"qualm_case\": 1, ", ""), "qualm_case", "is missing"},
      {With("\"op\": \"linear\", ", ""), "op", "is missing"},
      {With("\"linear\"", "\"conv9d\""), "op", "expected one of quantize"},
      {With("\"linear\"", "3"), "op", "is a number, expected a string"},
      // Wrong JSON types.
      {With("\"M\": 1", "\"M\": \"1\""), "M", "is the string \"1\", expected an integer"},
      {With("\"M\": 1", "\"M\": [1]"), "M", "is a list, expected an integer"},
      {With("\"M\": 1", "\"M\": 1.5"), "M", "is 1.5"},
      {With("\"M\": 1", "\"M\": true"), "M", "is a boolean"},
      {With("\"x\": [1, 2]", "\"x\": 1"), "x", "is a number, expected a list"},
      {With("\"x\": [1, 2]", "\"x\": null"), "x", "is null, expected a list"},
      {With("[1, 2]", "[1, null]"), "x[1]", "is null, expected a number"},
      {With("[1, 2]", "[1, \"2\"]"), "x[1]", "is the string \"2\", expected a number"},
      {With("[1, 2]", "[1, {}]"), "x[1]", "is an object"},
      {With("[1, 2]", "[[1, 2]]"), "x[0]", "is a list"},
      {And(R"("relu": "yes")"), "relu", "expected true, false, 0 or 1"},
      {And(R"("relu": 2)"), "relu", "is 2"},
      {And(R"("observed": [1])"), "observed", "expected an object"},
      {And(R"("note": 5)"), "note", "expected a string"},
      {And(R"("contract": 5)"), "contract", "expected a string"},
      {And(R"("contract": "")"), "contract",
       "is \"\", expected exact, sum, sum+offsets, tree:{...}, model:NAME or within:V1,V8"},
      {And(R"("contract": "model:")"), "contract",
       "expected exact, sum, sum+offsets, tree:{...}, model:NAME or within:V1,V8"},
      {And(R"("contract": "model:a,add=exact")"), "contract",
       "expected exact, sum, sum+offsets, tree:{...}, model:NAME or within:V1,V8"},
      {And(R"("contract": "linear=exact")"), "contract",
       "expected exact, sum, sum+offsets, tree:{...}, model:NAME or within:V1,V8"},
      {And(R"("out_min": [0])"), "out_min", "expected an integer"},
      // Missing.
      {With("\"x_zp\": 3, ", ""), "x_zp", "is missing, expected it for op linear"},
      {With("\"out_scale\": \"0x1p-1\", ", ""), "out_scale", "is missing"},
      {With("\"x\": [1, 2], ", ""), "x", "is missing"},
      {With(", \"K\": 2", ""), "K", "is missing"},
      {And(R"("observed": {"y": [0, 0]})"), "observed.by", "is missing"},
      {And(R"("observed": {"by": "me"})"), "observed.y", "is missing"},
      {requantize + R"(, "out_zp": 0})", "multiplier", "is missing"},
      {requantize + R"(, "out_zp": 0, "x_scale": 1, "out_scale": 1})", "w_scale", "is missing"},
      // Not of this op.
      {quantize(out_q, R"("x": [1], "K": 1)"), "K", "does not belong to op quantize"},
      {quantize(out_q, R"("x": [1], "w": [])"), "w", "does not belong to op quantize"},
      {quantize(out_q, R"("x": [1], "bias": null)"), "bias", "does not belong"},
      {And(R"("multiplier": 0.5)"), "multiplier", "does not belong to op linear"},
      {requantize + R"(, "out_zp": 0, "multiplier": 1, "x_scale": 1})", "x_scale", "two forms"},
      {R"({"qualm_case": 1, "op": "dequantize", "M": 1, "N": 1, "x_scale": 1, "x_zp": 0, "x": [1],
           "relu": true})",
       "relu", "does not belong to op dequantize"},
      // Scales of a cast, which has no zero points.
      {cast + R"("out_scale": 0})", "out_scale", "finite and greater than 0"},
      {cast + R"("x_scale": "inf"})", "x_scale", "finite and greater than 0"},
      {cast + R"("x_scale": [1, 2]})", "x_scale", "has 2 entries, expected 1"},
      {cast + R"("out_scale": []})", "out_scale", "has 0 entries, expected 1"},
      {cast + R"("out_zp": 0})", "out_zp", "does not belong to op cast"},
      // Sizes: claims are checked before anything is allocated.
      {With("\"M\": 1", "\"M\": -1"), "M", "is -1"},
      {With("\"M\": 1", "\"M\": 4294967296"), "M", "is 4294967296"},
      {With("\"M\": 1", "\"M\": 18446744073709551615"), "M", "is 18446744073709551615"},
      {With("\"M\": 1", "\"M\": 12345678901234567890123"), "M", "is 12345678901234567890123"},
      {With("\"M\": 1", "\"M\": 268435456"), "x", "would have shape [268435456,2]"},
      {With("\"M\": 1", "\"M\": 134217728"), "x", "has 2 values, expected 268435456"},
      {With("[1, 2]", "[1]"), "x", "has 1 values, expected 2 for shape [1,2]"},
      {With("[1, 2]", "[1, 2, 3]"), "x", "has 3 values"},
      {With("\"N\": 2", "\"N\": 3"), "w", "has 4 values, expected 6"},
      {R"({"qualm_case": 1, "op": "linear", "M": 0, "N": 0, "K": 268435456, "x_scale": 1, "x_zp": 0,
           "w_scale": 1, "w_zp": 0, "out_scale": 1, "out_zp": 0, "x": [], "w": []})",
       "K", "without data"},
      {R"({"qualm_case": 1, "op": "linear", "M": 4096, "N": 2048, "K": 0, "x_scale": 1, "x_zp": 0,
           "w_scale": 1, "w_zp": 0, "out_scale": 1, "out_zp": 0, "x": [], "w": []})",
       "M", "without data"},
      {R"({"qualm_case": 1, "op": "linear", "M": 65536, "N": 65536, "K": 0, "x_scale": 1, "x_zp": 0,
           "w_scale": 1, "w_zp": 0, "out_scale": 1, "out_zp": 0, "x": [], "w": []})",
       "M", "times N is too large"},
      {And(R"("x_shape": [2, 1])"), "x_shape", "expected [1,2]"},
      {And(R"("w_shape": [4])"), "w_shape", "expected [2,2]"},
      {And(R"("w_shape": [2, -2])"), "w_shape[1]", "is -2"},
      {And(R"("expected": [1])"), "expected", "has 1 values, expected 2"},
      {And(R"("observed": {"by": "", "y": [1, 2, 3]})"), "observed.y", "has 3 values"},
      // Codes.
      {With("[1, 2]", "[1, 300]"), "x[1]", "is 300, expected u8 values (an integer in 0..255)"},
      {With("[1, 2]", "[-1, 2]"), "x[0]", "is -1"},
      {With("[1, 2]", "[1, 2.5]"), "x[1]", "is 2.5"},
      {With("[1, 2]", "[1, \"0x1p+1\"]"), "x[1]", "is \"0x1p+1\""},
      {With("[1, 2]", "[1, 98765432109876543210]"), "x[1]", "is 98765432109876543210"},
      {With("-128]", "-129]"), "w[3]", "is -129"},
      {And(R"("expected": [1, 256])"), "expected[1]", "is 256"},
      {requantize + R"(, "x": [2147483648])", "x", "given twice"},
      {R"({"qualm_case": 1, "op": "requantize", "M": 1, "N": 1, "x": [2147483648], "out_zp": 0,
           "multiplier": 1})",
       "x[0]", "is 2147483648"},
      // Types that the op does not have.
      {And(R"("x_dtype": "s32")"), "x_dtype", "is \"s32\", expected u8 or s8"},
      {And(R"("w_dtype": "u16")"), "w_dtype", "is \"u16\", expected s8 or u8"},
      {And(R"("out_dtype": "int8")"), "out_dtype", "expected u8 or s8 or s32 or f32"},
      {quantize(out_q, R"("x": [1], "x_dtype": "u8")"), "x_dtype", "expected f32"},
      {And(R"("gran": "row")"), "gran", "expected tensor or channel"},
      {And(R"("requant": "float64")"), "requant", "expected exact or float32 or fixed_q31"},
      {And(R"("requant": "float32", "out_dtype": "s32")"), "requant", "only outputs of codes"},
      {And(R"("requant": "fixed_q31", "bias": [1, 2])"), "requant", "takes bias_i32"},
      {With("\"w\":", "\"requant\": 1, \"w\":", kConv), "requant", "is a number"},
      // Scales and other reals.
      {With("0.1", "0"), "x_scale", "must be finite and greater than 0"},
      {With("0.1", "-0.5"), "x_scale", "must be finite and greater than 0"},
      {With("0.1", "\"inf\""), "x_scale", "must be finite and greater than 0"},
      {With("0.1", "\"nan:7fc00000\""), "x_scale", "must be finite and greater than 0"},
      {With("0.1", "1e-50"), "x_scale", "must be finite and greater than 0"},
      {With("0.1", "1e39"), "x_scale", "beyond float32"},
      {With("0.1", "1e999"), "x_scale", "number overflow"},
      {With("0.1", "\"0.1\""), "x_scale", "is the string \"0.1\""},
      {With("0.1", "\"0x1.0000001p0\""), "x_scale", "not exactly a float32"},
      {With("0.1", "\"nan:7f800000\""), "x_scale", "not exactly a float32"},
      {With("0.1", "\"0x1p-160\""), "x_scale", "not exactly a float32"},
      {With("0.1", "null"), "x_scale", "is null"},
      {With("[0.25]", "[0.25, 0.5]"), "w_scale", "has 2 entries, expected 1"},
      {With("[0.25]", "[]"), "w_scale", "has 0 entries"},
      {And(R"("gran": "channel")"), "w_scale", "has 1 entries, expected 2 (one per channel)"},
      {And(R"("bias": [1])"), "bias", "one entry per output channel"},
      {And(R"("bias": [1, "inf"])"), "bias", "entry 1 must be finite"},
      {And(R"("bias": [1, 2], "bias_i32": [1, 2])"), "bias_i32", "one of the two"},
      {And(R"("bias": [1, 2], "out_dtype": "s32")"), "bias", "bias_i32"},
      {And(R"("bias_i32": [1, 2147483648])"), "bias_i32[1]", "is 2147483648"},
      {requantize + R"(, "out_zp": 0, "multiplier": []})", "multiplier", "has 0 entries"},
      {requantize + R"(, "out_zp": 0, "multiplier": [1, -1]})", "multiplier", "entry 1"},
      // Printed and unknown numbers.
      {With("0.1", "\"0.1.0~\""), "x_scale", "is no printed number, expected a decimal"},
      {With("0.1", "\"~\""), "x_scale", "is no printed number"},
      {With("0.1", "\".5~\""), "x_scale", "is no printed number"},
      {With("0.1", "\"5.~\""), "x_scale", "is no printed number"},
      {With("0.1", "\"0x1p-3~\""), "x_scale", "is no printed number"},
      {With("0.1", "\"inf~\""), "x_scale", "is no printed number"},
      {With("0.1", "\"0.1~~\""), "x_scale", "is no printed number"},
      {With("0.1", "\"0.1e~\""), "x_scale", "is no printed number"},
      {With("0.1", "\"1e-001~\""), "x_scale", "is no printed number"},
      {With("0.1", "\"1e39~\""), "x_scale", "is no printed number"},
      {With("0.1", "\"0.0000000000000000000000000000000000000001~\""), "x_scale",
       "at most 40 characters"},
      {With("0.1", "\"0.000~\""), "x_scale", "must be finite and greater than 0"},
      {With("[0.25]", "[\"0.25~\", 1]"), "w_scale", "has 2 entries, expected 1"},
      {With("\"x_zp\": 3", "\"x_zp\": \"3~\""), "x_zp", "is the string \"3~\""},
      {With("[1, 2]", "[1, \"2~\"]"), "x[1]", "is \"2~\""},
      {With("-128]", "\"-128~\"]"), "w[3]", "is the string"},
      {And(R"("expected": ["1.5~", 2])"), "expected[0]", "is the string"},
      {And(R"("out_dtype": "s32", "x_scale": "?")"), "x_scale", "is given twice"},
      {With("0.1", "\"?\""), "x_scale", "is unknown (\"?\"), expected a number"},
      {With("[0.25]", "[\"?\"]"), "w_scale", "is unknown"},
      {With("\"x_zp\": 3", "\"x_zp\": \"?\""), "x_zp", "is unknown"},
      {And(R"("out_max": "?")"), "out_max", "is unknown"},
      {And(R"("bias": ["?", 1])"), "bias[0]", "is the string \"?\""},
      {And(R"("relu": "?")"), "relu", "is the string \"?\""},
      {With("[1, 2]", "[1, \"?\"]"), "x[1]", "is the string \"?\""},
      // Zero points and clamps.
      {With("\"x_zp\": 3", "\"x_zp\": 2147483648"), "x_zp", "is 2147483648"},
      {With("\"x_zp\": 3", "\"x_zp\": -2147483649"), "x_zp", "is -2147483649"},
      {With("\"x_zp\": 3", "\"x_zp\": 0.5"), "x_zp", "is 0.5"},
      {With("\"x_zp\": 3", "\"x_zp\": [3, 4]"), "x_zp", "has 2 entries, expected 1"},
      {And(R"("out_min": -1)"), "out_min", "is -1"},
      {And(R"("out_max": 256)"), "out_max", "is 256"},
      {And(R"("out_min": 9, "out_max": 8)"), "out_min", "greater than out_max"},
      {And(R"("out_min": 0, "out_dtype": "f32")"), "out_min", "a float output has no clamp"},
      // Windows.
      {With(R"("N": 1)", R"("N": 1048577)", kConv), "N", "expected an integer in 0..1048576"},
      {With(R"("H": 2)", R"("H": -1)", kConv), "H", "is -1"},
      {With(R"("W": 3)", R"("W": 2.5)", kConv), "W", "is 2.5"},
      {With(R"("W": 3,)", R"("W": 3, "M": 4,)", kConv), "M", "does not belong to op conv2d"},
      {With(R"("IC": 2, )", "", kConv), "IC", "is missing, expected it for op conv2d"},
      {With(R"("IC": 2)", R"("C": 2)", kConv), "C", "does not belong to op conv2d"},
      {With(R"("OC": 2)", R"("OC": 3)", kConv), "groups", "is 2, expected a divisor"},
      {With(R"("groups": 2)", R"("groups": 0)", kConv), "groups", "is 0"},
      {With(R"("groups": 2)", R"("groups": [2])", kConv), "groups", "is a list"},
      {With("conv2d", "depthwise", With(R"("groups": 2)", R"("groups": 1)", kConv)), "groups",
       "expected an integer in 2..2"},
      {With("conv2d", "depthwise", With(R"("IC": 2)", R"("IC": 0)", kConv)), "IC",
       "at least one channel"},
      {With(R"("R": 2)", R"("R": 0)", kConv), "R", "is 0, expected an integer in 1..1048576"},
      {With(R"("S": 1)", R"("S": 1048577)", kConv), "S", "is 1048577"},
      {With(R"("R": 2)", R"("R": 1048576)", kConv), "w",
       "has 4 values, expected 2097152 for shape [2,1048576,1,1]"},
      {With("[1, 2]", "2", kConv), "stride", "is a number, expected a list of 2 integers"},
      {With("[1, 2]", "[1]", kConv), "stride", "has 1 entries, expected 2"},
      {With("[1, 2]", "[1, 0]", kConv), "stride[1]", "is 0"},
      {With("[1, 2]", "[1, 1.5]", kConv), "stride[1]", "is 1.5"},
      {With("[1, 2]", R"(["0x1p+0", 1])", kConv), "stride[0]", "is \"0x1p+0\""},
      {With("[1, 0, 0, 2]", "[1, 1]", kConv), "pad", "has 2 entries, expected 4"},
      {With("[1, 0, 0, 2]", "[1, -1, 0, 0]", kConv), "pad[1]", "is -1"},
      {With("[1, 0, 0, 2]", "[1048577, 0, 0, 0]", kConv), "pad[0]", "is 1048577"},
      {With(R"("pad")", R"("dilation": [0, 1], "pad")", kConv), "dilation[0]", "is 0"},
      {With(R"("pad")", R"("padding")", kConv), "\"padding\"", "nearest is"},
      {With(R"("pad")", R"("ceil_mode": true, "pad")", kConv), "ceil_mode", "does not belong"},
      // Products of the numbers of a window are claims too; the third overflows 64 bits.
      {With("[1, 0, 0, 2]", "[1048576, 1048576, 1048576, 1048576]", kConv), "N",
       "is too large, expected at most 16777216 outputs"},
      {R"({"qualm_case": 1, "op": "conv2d", "N": 1048576, "H": 1048576, "W": 1048576, "IC": 0,
           "OC": 0, "R": 1, "S": 1, "x_scale": 1, "x_zp": 0, "w_scale": 1, "w_zp": 0,
           "out_scale": 1, "out_zp": 0, "x": [], "w": []})",
       "N", "is too large"},
      {R"({"qualm_case": 1, "op": "conv2d", "N": 1048576, "H": 1048576, "W": 1048576, "IC": 0,
           "OC": 1, "R": 1, "S": 1, "pad": [1048576, 1048576, 1048576, 1048576], "x_scale": 1,
           "x_zp": 0, "w_scale": 1, "w_zp": 0, "out_scale": 1, "out_zp": 0, "x": [], "w": []})",
       "N", "times OH times OW"},
      {R"({"qualm_case": 1, "op": "conv2d", "N": 1, "H": 1, "W": 1, "IC": 1, "OC": 0, "R": 1048576,
           "S": 1048576, "pad": [1048576, 0, 1048576, 0], "x_scale": 1, "x_zp": 0, "w_scale": 1,
           "w_zp": 0, "out_scale": 1, "out_zp": 0, "x": [0], "w": []})",
       "R", "expected at most 1048576 terms"},
      {R"({"qualm_case": 1, "op": "max_pool", "N": 1, "H": 1, "W": 1, "C": 1, "R": 1048576,
           "S": 1048576, "pad": [1048575, 0, 1048575, 0], "x_scale": 1, "x_zp": 0, "x": [0]})",
       "R", "expected at most 1048576 terms"},
      {R"({"qualm_case": 1, "op": "global_avg_pool", "N": 0, "H": 1048576, "W": 1048576, "C": 1,
           "x_scale": 1, "x_zp": 0, "out_scale": 1, "out_zp": 0, "x": []})",
       "H", "expected at most 1048576 terms"},
      {R"({"qualm_case": 1, "op": "conv2d", "N": 128, "H": 128, "W": 128, "IC": 0, "OC": 1,
           "R": 1, "S": 1, "x_scale": 1, "x_zp": 0, "w_scale": 1, "w_zp": 0, "out_scale": 1,
           "out_zp": 0, "x": [], "w": []})",
       "N", "without data"},
      // The outputs of a small image in large padding are too many, and so are the terms of each.
      {R"({"qualm_case": 1, "op": "conv2d", "N": 1, "H": 4, "W": 1, "IC": 1, "OC": 1, "R": 1,
           "S": 1, "pad": [5000, 5000, 5000, 5000], "x_scale": 1, "x_zp": 0, "w_scale": 1,
           "w_zp": 0, "out_scale": 1, "out_zp": 0, "x": [1, 2, 3, 4], "w": [1]})",
       "N", "expected at most 16777216 outputs"},
      {R"({"qualm_case": 1, "op": "max_pool", "N": 1, "H": 1, "W": 1, "C": 1, "R": 1024,
           "S": 1024, "pad": [1023, 1023, 1023, 1023], "x_scale": 1, "x_zp": 0, "x": [0]})",
       "R", "makes 1048576 outputs of 1048576 terms each, expected at most 2147483648 in all"},
      {R"({"qualm_case": 1, "op": "max_pool", "N": 1, "H": 1, "W": 1, "C": 1, "R": 215, "S": 215,
           "pad": [214, 214, 214, 214], "x_scale": 1, "x_zp": 0, "x": [7]})",
       "R", "makes 46225 output pixels of 46225 taps each, expected at most 134217728 in all"},
      {With("[1, 2, 3, 4, 5,", "[1, 2, 3, 4,", kConv), "x", "for shape [1,2,3,2]"},
      {With(R"("x":)", R"("x_shape": [1, 2, 3, 1], "x":)", kConv), "x_shape", "expected [1,2,3,2]"},
      {With(R"("w":)", R"("w_shape": [2, 2], "w":)", kConv), "w_shape", "expected [2,2,1,1]"},
      {With(R"("w":)", R"("expected": [1, 2], "w":)", kConv), "expected", "expected 12"},
      {With("[1, 1, 1, 1]", "[2, 0, 0, 0]", kPool), "pad", "wholly in the padding"},
      {With("true", "2", kPool), "ceil_mode", "is 2, expected true, false, 0 or 1"},
      {With("true", R"("yes")", kPool), "ceil_mode", "expected true, false, 0 or 1"},
      {With(R"("ceil_mode")", R"("dilation": [1, 1], "ceil_mode")", kPool), "dilation",
       "does not belong to op avg_pool"},
      {With(R"("ceil_mode")", R"("w": [], "ceil_mode")", kPool), "w", "does not belong"},
      {With(R"("ceil_mode")", R"("gran": "channel", "ceil_mode")", kPool), "gran",
       "only per tensor here"},
      {With(R"("out_scale": 1, )", "", kPool), "out_scale", "is missing"},
      {With(R"("x":)", R"("out_dtype": "f32", "x":)", kPool), "out_dtype", "expected u8 or s8"},
      {With("avg_pool", "max_pool", kPool), "out_scale", "does not belong to op max_pool"},
      {R"({"qualm_case": 1, "op": "max_pool", "N": 1, "H": 1, "W": 1, "C": 1, "R": 1, "S": 1,
           "x_scale": 1, "x_zp": 0, "x": [0], "out_dtype": "s8"})",
       "out_dtype", "is \"s8\", expected u8"},
      {R"({"qualm_case": 1, "op": "global_avg_pool", "N": 1, "H": 1, "W": 1, "C": 1, "R": 1,
           "x_scale": 1, "x_zp": 0, "out_scale": 1, "out_zp": 0, "x": [0]})",
       "R", "does not belong to op global_avg_pool"},
      // Weights in blocks.
      {And(R"("w_block": 2)"), "w_block", "expected gran channel"},
      {And(R"("w_block": -1)"), "w_block", "is -1, expected"},
      {And(R"("w_block": [2])"), "w_block", "is a list, expected an integer"},
      {And(R"("gran": "channel", "w_block": 1)"), "w_scale",
       "has 1 entries, expected 4 (2 blocks per channel)"},
      {And(R"("gran": "channel", "w_block": 2, "bias_i32": [1, 2])"), "bias_i32", "has no unit"},
      {And(R"("gran": "channel", "w_block": 2, "requant": "float32")"), "requant",
       "has no accumulator"},
      {And(R"("gran": "channel", "w_block": 2, "out_dtype": "s32")"), "w_block", "has no unit"},
      {With(R"("x":)", R"("w_block": 1, "x":)", kConv), "w_block", "does not belong to op conv2d"},
      // x of f32.
      {And(R"("x_dtype": "f32", "out_dtype": "f32")"), "x_scale", "x is f32, expected no such key"},
      {With(R"("w_zp")", R"("x_zp": 0, "w_zp")", kFloatX), "x_zp", "expected no such key"},
      {With(R"("out_dtype": "f32")", R"("out_dtype": "s32")", kFloatX), "out_dtype",
       "expected f32"},
      {With(R"("w_zp")", R"("bias_i32": [1], "w_zp")", kFloatX), "bias_i32", "expected bias"},
      {With("1.5", R"("-inf")", kFloatX), "x", "element 0 is not finite"},
      {With(R"("w_zp")", R"("x_block": 2, "w_zp")", kFloatX), "x_block", "beside w_block"},
      {And(R"("x_block": 2)"), "x_block", "is 2 beside w_block 0, expected 0 or the same"},
      {And(R"("gran": "channel", "w_block": 2, "x_block": 1)"), "x_block", "beside w_block 2"},
      {And(R"("gran": "channel", "w_block": 2, "x_block": 2)"), "x_block",
       "expected out_dtype f32"},
      {And(R"("gran": "channel", "w_block": 1, "x_block": 1, "out_dtype": "f32")"), "x_scale",
       "(2 blocks per row)"},
      {With(R"("x":)", R"("x_block": 1, "x":)", kConv), "x_block", "does not belong to op conv2d"},
      {quantize(out_q, R"("x": [1], "x_block": -1)"), "x_block", "an integer in 0..268435456"},
      {quantize(out_q, R"("x": [1], "x_block": 1, "relu": true)"), "relu", "beside x_block"},
      {quantize(R"("out_scale": [1, 1], "out_zp": [0, 0])", R"("x": [1], "x_block": 1)"),
       "out_scale", "has 2 entries, expected 1"},
      {quantize(R"("out_scale": [1], "out_zp": [0])",
                R"("x": [1], "gran": "channel", "x_block": 1)"),
       "x_block", "expected gran tensor"},
      // Lists of scales of casts.
      {R"({"qualm_case": 1, "op": "cast", "M": 1, "N": 2, "x": [1, 2], "out_scale": [1, 2]})",
       "out_scale", "has 2 entries, expected 1"},
      {R"({"qualm_case": 1, "op": "cast", "M": 1, "N": 2, "x": [1, 2], "gran": "channel",
           "out_scale": 2})",
       "out_scale", "has 1 entries, expected 2 (one per channel)"},
      {R"({"qualm_case": 1, "op": "cast", "M": 2, "N": 3, "x": [1, 2, 3, 4, 5, 6], "x_block": 2,
           "x_scale": [1, 2, 3]})",
       "x_scale", "has 3 entries, expected 4 (2 blocks per row)"},
      {R"({"qualm_case": 1, "op": "cast", "M": 1, "N": 2, "x": [1, 2], "gran": "channel",
           "x_block": 1})",
       "x_block", "expected gran tensor"},
      // Two operands.
      {With(R"("a":)", R"("x":)", kAdd), "x", "does not belong to op add"},
      {With(R"(, "b": [3, 4])", "", kAdd), "b", "is missing, expected it for op add"},
      {With("[3, 4]", "[3]", kAdd), "b", "has 1 values, expected 2 for shape [1,2]"},
      {With("[3, 4]", "[3, 256]", kAdd), "b[1]", "is 256"},
      {With(R"("a_scale": 0.5)", R"("a_scale": 0)", kAdd), "a_scale", "greater than 0"},
      {With(R"("b_scale": 0.25)", R"("b_scale": [1, 1])", kAdd), "b_scale", "has 2 entries"},
      {With(R"("b_zp": 4)", R"("b_zp": [])", kAdd), "b_zp", "has 0 entries, expected 1"},
      {With(R"("b_zp": 4, )", "", kAdd), "b_zp", "is missing"},
      {With(R"("a":)", R"("w_dtype": "u8", "a":)", kAdd), "w_dtype", "does not belong"},
      {With(R"("a":)", R"("x_shape": [1, 2], "a":)", kAdd), "x_shape", "does not belong"},
      {With(R"("a":)", R"("requant": "exact", "a":)", kAdd), "requant", "does not belong"},
      {And(R"("a": [1])"), "a", "does not belong to op linear"},
  };
  const auto add = [&table](Op op, std::string_view keys, std::string field, std::string says) {
    table.push_back({R"({"qualm_case": 1, "op": ")" + std::string(Name(op)) + R"(", )" +
                         std::string(keys) + "}",
                     std::move(field), std::move(says)});
  };
  const std::string_view q = R"("x_scale": 1, "x_zp": 0, "out_scale": 1, "out_zp": 0, )";
  const auto table_keys = [&](std::string_view more) {
    return std::string(more) + R"(, "M": 1, "N": 1, )" + std::string(q) + R"("x": [1])";
  };
  add(Op::kTable, table_keys(R"("relu": false)"), "relu", "does not belong to op table");
  add(Op::kTable, table_keys(R"("note": "")"), "function", "is missing, expected it for op table");
  add(Op::kTable, table_keys(R"("function": "sine")"), "function", "expected relu or leaky_relu");
  add(Op::kTable, table_keys(R"("function": "tanh", "negative_slope": 0.5)"), "negative_slope",
      "leaky_relu only");
  add(Op::kTable, table_keys(R"("function": "leaky_relu", "negative_slope": -0.5)"),
      "negative_slope", "finite and >= 0");
  add(Op::kTable, table_keys(R"("function": "leaky_relu", "negative_slope": [1])"),
      "negative_slope", "is a list");
  add(Op::kSoftmax, R"("M": 1, "N": 1, "x_scale": 1, "x_zp": 0, "out_scale": 1, "x": [1])",
      "out_scale", "does not belong to op softmax");
  add(Op::kSoftmax, R"("M": 1, "N": 1, "x_scale": 1, "x_zp": 0, "out_dtype": "s8", "x": [1])",
      "out_dtype", "expected u8");
  const std::string_view pair =
      R"("a_scale": 1, "a_zp": 0, "b_scale": 1, "b_zp": 0, "out_scale": 1, "out_zp": 0, )";
  const auto concat = [&](std::string_view more) { return std::string(pair) + std::string(more); };
  add(Op::kConcat, concat(R"("M": 1, "N": 2, "a": [1], "b": [2])"), "N", "does not belong");
  add(Op::kConcat, concat(R"("M": 1, "NA": 1, "a": [1], "b": [2])"), "NB", "is missing");
  add(Op::kConcat, concat(R"("M": 1, "NA": 1, "NB": 2, "a": [1], "b": [2])"), "b",
      "has 1 values, expected 2 for shape [1,2]");
  add(Op::kConcat, concat(R"("M": 0, "NA": 268435456, "NB": 0, "a": [], "b": [])"), "NA",
      "without data");
  const auto observer = [](std::string_view more) {
    return R"("batches": 1, "M": 1, "N": 2, "x": [0.5, 1], )" + std::string(more);
  };
  add(Op::kChooseQParams, observer(R"("symmetric": true)"), "observer", "is missing");
  add(Op::kChooseQParams, observer(R"("observer": "mean")"), "observer", "expected min_max or");
  add(Op::kChooseQParams, observer(R"("observer": "min_max", "dtype": "s32")"), "dtype",
      "expected u8 or s8");
  add(Op::kChooseQParams, observer(R"("observer": "min_max", "quant_max": 256)"), "quant_max",
      "is 256, expected u8 values");
  add(Op::kChooseQParams, observer(R"("observer": "min_max", "quant_min": 1)"), "quant_min",
      "quant_min <= 0");
  add(Op::kChooseQParams, observer(R"("observer": "histogram", "gran": "channel")"), "gran",
      "per tensor");
  add(Op::kChooseQParams, observer(R"("observer": "moving_average", "averaging_constant": 1.5)"),
      "averaging_constant", "expected 0..1");
  add(Op::kChooseQParams, observer(R"("observer": "min_max", "codes": true)"), "codes",
      "goes with another qparams_rule than observer");
  add(Op::kChooseQParams, observer(R"("observer": "min_max", "qparams_rule": "onnx", "codes": 2)"),
      "codes", "expected");
  add(Op::kChooseQParams, R"("batches": 0, "M": 1, "N": 2, "x": [], "observer": "min_max")", "x",
      "is empty");
  return table;
}

}  // namespace qualm::test

#endif  // QUALM_CORE_IO_HOSTILE_CASE_TEST_UTIL_H_
