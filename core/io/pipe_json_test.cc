// SPDX-License-Identifier: Apache-2.0
// The reader of a pipe takes every line that a child may send, and refuses every other line.
#include "core/io/pipe_json.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/io/case_json.h"
#include "core/random_case_test_util.h"
#include "core/rng.h"
#include "core/status.h"
#include "core/text_test_util.h"

namespace qualm {
namespace {

// A line that is refused, and a part of the error that says why.
struct Hostile {
  std::string text;
  const char* says;
};

// dequantize [1,3] -> f32, linear [1,2] -> u8 or s32.
Case FloatCase() {
  Case c;
  c.op = Op::kDequantize;
  c.M = 1;
  c.N = 3;
  c.x = Tensor(DType::kU8, {1, 3});
  c.out_dtype = DType::kF32;
  return c;
}

Case CodeCase(DType out) {
  Case c;
  c.op = Op::kLinear;
  c.M = 1;
  c.N = 2;
  c.K = 1;
  c.x = Tensor(DType::kU8, {1, 1});
  c.w = Tensor(DType::kS8, {2, 1});
  c.out_dtype = out;
  c.out_min = RangeOf(out).min;
  c.out_max = RangeOf(out).max;
  return c;
}

TEST(PipeHello, TheLeastIsAName) {
  const PipeHello hello =
      ParsePipeHello(R"({"ops": {"linear": {}}, "qualm_pipe": 1, "name": "n"})");
  EXPECT_EQ(hello.name, "n");
  EXPECT_EQ(hello.contract, "exact");
  EXPECT_EQ(hello.version + hello.instruction_set, "");
  for (const Op op : AllOps()) {
    EXPECT_EQ(hello.ops[static_cast<size_t>(op)].has_value(), op == Op::kLinear) << Name(op);
  }
  EXPECT_EQ(hello.ops[static_cast<size_t>(Op::kLinear)], PipeOp{});
}

TEST(PipeHello, EveryFieldArrives) {
  const PipeHello hello = ParsePipeHello(
      R"({"qualm_pipe": 1, "name": "numpy", "version": "1.24", "contract": "model:x@y",)"
      R"( "instruction_set": "avx2", "ops": {"add": {}, "conv2d": {"x": ["u8", "s8"], "w": ["s8"],)"
      R"( "out": ["s32"], "features": ["bias_f32", "bias_i32", "relu", "clamp", "per_channel",)"
      R"( "empty", "empty_k", "acc", "dilation", "groups", "asymmetric_padding", "ceil_mode",)"
      R"( "per_row", "per_block", "x_per_block", "float_x", "cast_scales", "codes"],)"
      R"( "rules": ["onnx", "observer"],)"
      R"( "m_max": 1, "n_max": 2, "k_max": 9007199254740993, "n_multiple": 4, "k_multiple": 5,)"
      R"( "x_zp": [0, 255], "w_zp": [-2147483648, 2147483647], "out_zp": [7, 7]}}})"
      "\r");
  EXPECT_EQ(hello.name, "numpy");
  EXPECT_EQ(hello.version, "1.24");
  EXPECT_EQ(hello.contract, "model:x@y");
  EXPECT_EQ(hello.instruction_set, "avx2");
  EXPECT_EQ(hello.ops[static_cast<size_t>(Op::kAdd)], PipeOp{});
  const std::optional<PipeOp>& op = hello.ops[static_cast<size_t>(Op::kConv2d)];
  ASSERT_TRUE(op.has_value());
  EXPECT_EQ(op->x, 0b0011u);
  EXPECT_EQ(op->w, 0b0010u);
  EXPECT_EQ(op->out, 0b0100u);
  EXPECT_EQ(op->features.count(), kPipeFeatureCount - 1);
  EXPECT_FALSE(op->features[static_cast<size_t>(PipeFeature::kCountPadding)]);
  EXPECT_EQ(op->rules, 0b101u);
  EXPECT_EQ(op->m_max, 1);
  EXPECT_EQ(op->n_max, 2);
  EXPECT_EQ(op->k_max, 9007199254740993);  // a double cannot hold this number
  EXPECT_EQ(op->n_multiple, 4);
  EXPECT_EQ(op->k_multiple, 5);
  EXPECT_EQ(op->x_zp, (CodeRange{0, 255}));
  EXPECT_EQ(op->w_zp, (CodeRange{INT32_MIN, INT32_MAX}));
  EXPECT_EQ(op->out_zp, (CodeRange{7, 7}));
}

TEST(PipeHello, SumsOfProductsNeedNoOperation) {
  const PipeHello hello =
      ParsePipeHello(R"({"qualm_pipe": 1, "name": "n", "ops": {}, "dot": true})");
  EXPECT_TRUE(hello.dot);
  EXPECT_FALSE(hello.ops[static_cast<size_t>(Op::kLinear)]);
  EXPECT_FALSE(
      ParsePipeHello(R"({"qualm_pipe": 1, "name": "n", "ops": {"add": {}}, "dot": false})").dot);
}

TEST(PipeHello, HasEveryElementType) {
  for (const DTypeRow& row : kDTypeRows) {
    const PipeHello hello =
        ParsePipeHello(R"({"qualm_pipe": 1, "name": "n", "ops": {"linear": {"w": [")" +
                       std::string(row.name) + R"("]}}})");
    const std::optional<PipeOp>& op = hello.ops[static_cast<size_t>(Op::kLinear)];
    ASSERT_TRUE(op.has_value());
    EXPECT_EQ(op->w, PipeOp::Types(1u << static_cast<size_t>(row.dtype))) << row.name;
    EXPECT_EQ(op->x, 0b1111u);
  }
}

TEST(PipeHello, WhatIsHostileIsNamed) {
  const auto hello = [](const std::string& rest) {
    return R"({"qualm_pipe": 1, "name": "n", "ops": {"linear": {)" + rest + "}}}";
  };
  const std::vector<Hostile> table = {
      {"", "top level: is no JSON at byte 1"},
      {"loading model...", "is no JSON"},
      {R"({"qualm_pipe": 1)", "is no JSON"},
      {hello("") + "{}", "is no JSON"},
      {hello(R"("w_formats": "q4_0")"), "ops.linear.w_formats: is \"q4_0\", expected a list"},
      {hello(R"("w_formats": [])"), "ops.linear.w_formats: is empty, expected a list"},
      {hello(R"("w_formats": ["q4_0", "q9_9"])"), "ops.linear.w_formats: holds \"q9_9\""},
      {R"({"qualm_pipe": 1, "name": "n", "ops": {"add": {"w_formats": ["q4_0"]}}})",
       "ops.add.w_formats: is here, expected it of linear alone"},
      {R"({"qualm_pipe": 1, /* comment */ "name": "n"})", "is no JSON"},
      {std::string("{\"qualm_pipe\"\0: 1}", 18), "is NUL"},
      {"\xEF\xBB\xBF{}", "byte-order mark"},
      {"{\"name\": \"\xC3\x28\"}", "is invalid UTF-8"},
      {"7", "top level: is 7, expected an object"},
      {"null", "top level: is null"},
      {"[1]", "top level: is a list"},
      {R"("qualm_pipe")", "top level: is \"qualm_pipe\""},
      {"{}", "qualm_pipe: is missing"},
      {R"({"qualm_pipe": 2, "other": [], "ops": 3})", "qualm_pipe: is 2, expected version 1"},
      {R"({"qualm_pipe": 1.0})", "qualm_pipe: is 1.0, expected version 1"},
      {R"({"qualm_pipe": true})", "qualm_pipe: is a boolean"},
      {R"({"qualm_pipe": 18446744073709551615})", "qualm_pipe: is 18446744073709551615"},
      {R"({"qualm_pipe": 1e999})", "is no JSON"},
      {R"({"qualm_pipe": 1, "qualm_pipe": 1})", "is given twice"},
      {R"({"qualm_pipe": 1})", "name: is missing"},
      {R"({"qualm_pipe": 1, "name": ""})", "name: is missing"},
      {R"({"qualm_pipe": 1, "name": 3})", "name: is 3, expected a string"},
      {R"({"qualm_pipe": 1, "name": "n"})", "ops: is missing"},
      {R"({"qualm_pipe": 1, "name": "n", "ops": []})", "ops: is a list"},
      {R"({"qualm_pipe": 1, "name": "n", "ops": {}})", "ops: is empty"},
      {R"({"qualm_pipe": 1, "name": "n", "ops": {}, "dot": false})", "ops: is empty"},
      {R"({"qualm_pipe": 1, "name": "n", "ops": {}, "dot": 1})", "dot: is 1, expected a boolean"},
      {R"({"qualm_pipe": 1, "name": "n", "ops": {"linear": null}})", "ops.linear: is null"},
      {R"({"qualm_pipe": 1, "name": "n", "ops": {"liner": {}}})",
       "ops.liner: is not a key here, expected one of the known keys, nearest is \"linear\""},
      {R"({"qualm_pipe": 1, "name": "n", "ops": {"add": {}, "add": {}}})", "is given twice"},
      {R"({"qualm_pipe": 1, "name": "n", "operations": {}})", "nearest is "},
      {R"({"qualm_pipe": 1, "name": "n", "version": {}, "ops": {"add": {}}})",
       "version: is an object, expected a string"},
      {hello(R"("x": "u8")"), "ops.linear.x: is \"u8\", expected a list of element types"},
      {hello(R"("x": ["u17"])"), "ops.linear.x: holds \"u17\""},
      {hello(R"("w": [0])"), "ops.linear.w: holds 0"},
      {hello(R"("out": [])"), "ops.linear.out: is empty"},
      {hello(R"("features": ["bias"])"), "nearest is \"bias_f32\""},
      {hello(R"("features": [["relu"]])"), "ops.linear.features: is a list"},
      {hello(R"("features": {})"), "ops.linear.features: is an object"},
      {hello(R"("rules": [])"),
       "ops.linear.rules: is empty, expected a list of rules: observer, aten"},
      {hello(R"("rules": ["Onnx"])"), "ops.linear.rules: holds \"Onnx\", expected a list of rules"},
      {hello(R"("m_max": -1)"), "ops.linear.m_max: is -1, expected an integer from 0 on"},
      {hello(R"("k_max": 1.5)"), "ops.linear.k_max: is 1.5"},
      {hello(R"("n_multiple": 9223372036854775808)"), "is 9223372036854775808"},
      {hello(R"("k_multipl": 4)"), "nearest is \"k_multiple\""},
      {hello(R"("x_zp": 0)"), "ops.linear.x_zp: is 0, expected a list of 2 int32"},
      {hello(R"("x_zp": [-2147483649, 0])"), "expected a list of 2 int32"},
      {hello(R"("x_zp": [0, 18446744073709551615])"), "expected a list of 2 int32"},
      {hello(R"("x_zp": [0])"), "expected a list of 2 int32"},
      {hello(R"("x_zp": [0, 1, 2])"), "expected a list of 2 int32"},
      {hello(R"("w_zp": [0, 2147483648])"), "expected a list of 2 int32"},
      {hello(R"("out_zp": [1, 0])"), "ops.linear.out_zp: is empty"},
      {hello(R"("x": )" + std::string(20, '[') + std::string(20, ']')),
       "is nested more than 16 levels deep"},
      {std::string(60'000, '['), "is nested more than 16 levels deep"},
      {std::string(kPipeHelloBytesMax + 1, ' '), "is longer than 65536 bytes"},
  };
  EXPECT_EQ(Refusal([&] { ParsePipeHello(hello("") + "\n"); }), "") << "whitespace";
  for (const Hostile& row : table) {
    const std::string error = Refusal([&] { ParsePipeHello(row.text); });
    EXPECT_NE(error.find(row.says), std::string::npos)
        << row.text.substr(0, 100) << "\n  " << error << "\n  want: " << row.says;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(PipeRequest, IsTheProblemOnOneLine) {
  EXPECT_EQ(PipeHelloLine(), "{\"qualm_pipe\": 1}\n");
  for (const Op op : AllOps()) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      Case c = test::RandomCase(MixSeed(seed, static_cast<uint64_t>(op))).DrawWhole(op);
      // The request must not hold what is known of the right answer.
      c.expected = Tensor(c.out_dtype, c.output_shape());
      c.observed = Observed{"somebody", *c.expected};
      c.property = "matches_exact";
      c.note = "a note";
      const bool want_acc = seed % 2 == 0;
      const std::string line = PipeRequestLine(UINT64_MAX, c, want_acc);
      ASSERT_EQ(line.find('\n'), line.size() - 1);
      const nlohmann::json request = nlohmann::json::parse(line);
      EXPECT_EQ(request["id"], UINT64_MAX);
      EXPECT_EQ(request.contains("want"), want_acc);
      if (want_acc) {
        EXPECT_EQ(request["want"], nlohmann::json::array({"acc"}));
      }
      EXPECT_EQ(request.size(), want_acc ? 3u : 2u);
      EXPECT_EQ(ParseCase(request["case"].dump(), "case"), ProblemOf(c)) << line;
    }
  }
}

TEST(PipeRequest, ASumOfProductsIsTwoLists) {
  EXPECT_EQ(PipeDotLine(7, std::vector{1.0f, -0x1p100f}, std::vector{0.5f, 0.0f}),
            R"({"id": 7, "dot": {"a": ["0x1p+0", "-0x1p+100"], "b": ["0x1p-1", "0x0p+0"]}})"
            "\n");
  const Outcome answer = ParsePipeAnswer(R"({"id": 7, "y": ["0x1p-149"]})", 7, DotAnswer(), false);
  EXPECT_EQ(answer.y.FloatAt(0), 0x1p-149f);
  EXPECT_THROW(ParsePipeAnswer(R"({"id": 7, "y": [1, 2]})", 7, DotAnswer(), false), InputError);
}

TEST(PipeAnswer, CodesArrive) {
  const Outcome u8 =
      ParsePipeAnswer(R"( {"id" : 7, "y" : [0, 255]} )", 7, CodeCase(DType::kU8), false);
  ASSERT_TRUE(u8.ok());
  EXPECT_EQ(u8.y, Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{0, 255}));
  EXPECT_FALSE(u8.acc.has_value());
  const Outcome s8 = ParsePipeAnswer(R"({"y": [-128, 127], "id": 18446744073709551615})",
                                     UINT64_MAX, CodeCase(DType::kS8), true);
  EXPECT_EQ(s8.y, Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{-128, 127}));
  const Outcome s32 =
      ParsePipeAnswer(R"({"id": 0, "acc": [5, -6], "y": [-2147483648, 2147483647]})", 0,
                      CodeCase(DType::kS32), true);
  EXPECT_EQ(s32.y, Tensor::Of<int32_t>({1, 2}, std::vector<int32_t>{INT32_MIN, INT32_MAX}));
  EXPECT_EQ(s32.acc, Tensor::Of<int32_t>({1, 2}, std::vector<int32_t>{5, -6}));
}

TEST(PipeAnswer, FloatsArriveWithTheirBits) {
  const auto bits = [](const std::string& values) {
    const Outcome outcome =
        ParsePipeAnswer(R"({"id": 1, "y": [)" + values + "]}", 1, FloatCase(), false);
    std::vector<uint32_t> result;
    for (int64_t i = 0; i < outcome.y.size(); ++i) result.push_back(outcome.y.BitsAt(i));
    return result;
  };
  EXPECT_EQ(bits(R"("nan:7fc00001", "-inf", "-0x0p+0")"),
            (std::vector<uint32_t>{0x7FC00001, 0xFF800000, 0x80000000}));
  // Any NaN will do.
  EXPECT_EQ(bits(R"("nan", 1, "-nan")"),
            (std::vector<uint32_t>{0x7FC00000, 0x3F800000, 0x7FC00000}));
  EXPECT_EQ(bits("0.1, -0.0, 1e-45"), (std::vector<uint32_t>{0x3DCCCCCD, 0x80000000, 1}));
  // Rounded once, not through double: the nearest float32 is the larger one.
  EXPECT_EQ(bits("1.00000005960464477539062500001, 16777217, 18446744073709551615"),
            (std::vector<uint32_t>{std::bit_cast<uint32_t>(0x1.000002p0f), 0x4B800000,
                                   std::bit_cast<uint32_t>(0x1p64f)}));
}

TEST(PipeAnswer, EmptyOutputsAreEmptyLists) {
  Case c = CodeCase(DType::kU8);
  c.M = 0;
  c.x = Tensor(DType::kU8, {0, 1});
  EXPECT_TRUE(ParsePipeAnswer(R"({"id": 1, "y": []})", 1, c, false).ok());
  EXPECT_THROW(ParsePipeAnswer(R"({"id": 1, "y": [0]})", 1, c, false), InputError);
}

TEST(PipeAnswer, SkipAndErrorCarryTheirSentence) {
  const Outcome skip =
      ParsePipeAnswer(R"({"id": 1, "skip": "no \u00e9"})", 1, CodeCase(DType::kU8), false);
  EXPECT_EQ(skip.status, RunStatus::kSkipped);
  EXPECT_EQ(skip.detail, "no \xC3\xA9");
  const Outcome error =
      ParsePipeAnswer(R"({"id": 1, "error": "out of ideas"})", 1, CodeCase(DType::kU8), false);
  EXPECT_EQ(error.status, RunStatus::kRefused);
  EXPECT_EQ(error.detail, "out of ideas");
}

TEST(PipeAnswer, WhatIsHostileIsNamed) {
  const Case codes = CodeCase(DType::kU8);
  const std::vector<Hostile> table = {
      {"", "is not JSON"},
      {"Warning: deprecated", "is not JSON"},
      {R"({"id": 1, "y": [1, 2])", "is not JSON"},
      {R"({"id": 1, "y": [1, 2]} {"id": 2})", "is not JSON"},
      {R"({"id": 1, "y": [1, NaN]})", "is not JSON"},
      {R"({"id": 1, "y": [1, 1e999]})", "is not JSON"},
      {R"({"id": 1, "y": [01, 2]})", "is not JSON"},
      {R"({"id": 1, "y": [1, 2,]})", "is not JSON"},
      {R"({"id": 1, "skip": "\ud800"})", "is not JSON"},
      {std::string("{\"id\": 1, \"y\": [1, 2]}\0", 23), "is NUL"},
      {"{\"id\": 1, \"skip\": \"\xFF\"}", "is invalid UTF-8"},
      {"1", "top level: is 1, expected an object"},
      {"-1", "top level: is -1, expected an object"},
      {"1.5", "top level: is \"1.5\""},
      {"null", "top level: is null"},
      {"true", "top level: is a boolean"},
      {"\"y\"", "top level: is a string"},
      {"[1, 2]", "top level: is a list"},
      {std::string(100'000, '['), "top level: is a list"},
      {"{}", "id: is missing, expected 1"},
      {R"({"y": [1, 2]})", "id: is missing, expected 1"},
      {R"({"id": 2, "y": [1, 2]})", "id: is 2, expected 1"},
      {R"({"id": -1, "y": [1, 2]})", "id: is -1, expected 1"},
      {R"({"id": 1.0, "y": [1, 2]})", "id: is \"1.0\", expected 1"},
      {R"({"id": "1", "y": [1, 2]})", "id: is a string, expected 1"},
      {R"({"id": [1], "y": [1, 2]})", "id: is a list"},
      {R"({"id": 18446744073709551617, "y": [1, 2]})", "expected 1"},
      {R"({"id": 1, "id": 1, "y": [1, 2]})", "id: is given twice"},
      {R"({"id": 1, "y": [1, 2], "y": [1, 2]})", "y: is given twice"},
      {R"({"id": 1})", "y: is missing"},
      {R"({"id": 1, "y": [1, 2], "error": "no"})", "says several things"},
      {R"({"id": 1, "skip": "a", "error": "b"})", "says several things"},
      {R"({"id": 1, "answer": [1, 2]})", "\"answer\": is not a key of an answer"},
      {R"({"id": 1, "y": 1})", "y: is 1, expected a flat list"},
      {R"({"id": 1, "y": {"0": 1}})", "y: is an object"},
      {R"({"id": 1, "y": [[1, 2]]})", "y[0]: is a list, expected an integer"},
      {R"({"id": 1, "y": [1, {}]})", "y[1]: is an object"},
      {R"({"id": 1, "y": [1]})", "y: has 1 values, expected 2"},
      {R"({"id": 1, "y": []})", "y: has 0 values, expected 2"},
      {R"({"id": 1, "y": [1, 2, 3]})", "y: has more than 2 values"},
      {R"({"id": 1, "y": [1, 256]})", "y[1]: is 256, expected u8 values 0 to 255"},
      {R"({"id": 1, "y": [-1, 2]})", "y[0]: is -1"},
      {R"({"id": 1, "y": [1, 9223372036854775808]})", "y[1]: is 9223372036854775808"},
      {R"({"id": 1, "y": [1, 2.0]})", "y[1]: is \"2.0\", expected an integer"},
      {R"({"id": 1, "y": [1, "0x1p+1"]})", "y[1]: is a string, expected an integer"},
      {R"({"id": 1, "y": [1, "2"]})", "y[1]: is the string \"2\""},
      {R"({"id": 1, "y": [1, null]})", "y[1]: is null"},
      {R"({"id": 1, "y": [1, true]})", "y[1]: is a boolean"},
      {R"({"id": 1, "y": [1, 2], "acc": [3, 4]})", "acc: was not asked for"},
      {R"({"id": 1, "skip": 3})", "skip: is 3, expected a string"},
      {R"({"id": 1, "error": null})", "error: is null"},
      {R"({"id": 1, "error": ["no"]})", "error: is a list"},
  };
  for (const Hostile& row : table) {
    const std::string error = Refusal([&] { ParsePipeAnswer(row.text, 1, codes, false); });
    EXPECT_NE(error.find(row.says), std::string::npos)
        << row.text.substr(0, 100) << "\n  " << error << "\n  want: " << row.says;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
  const std::vector<Hostile> floats = {
      {R"({"id": 1, "y": [1, 2, 1e39]})", "y[2]: \"1e39\" is beyond float32"},
      {R"({"id": 1, "y": [1, 2, "0x1.0000001p+0"]})", "y[2]: is the string"},
      {R"({"id": 1, "y": [1, 2, "NaN"]})", "y[2]: is the string \"NaN\", expected a float32"},
      {R"({"id": 1, "y": [1, 2, "0.5"]})", "y[2]: is the string"},
      {R"({"id": 1, "y": [1, 2, "inf", 3]})", "y: has more than 3 values"},
  };
  for (const Hostile& row : floats) {
    const std::string error = Refusal([&] { ParsePipeAnswer(row.text, 1, FloatCase(), false); });
    EXPECT_NE(error.find(row.says), std::string::npos) << row.text << "\n  " << error;
  }
  const std::vector<Hostile> with_acc = {
      {R"({"id": 1, "acc": [1, 2]})", "y: is missing"},
      {R"({"id": 1, "acc": [1, 2], "skip": "no"})", "acc: stands without y"},
      {R"({"id": 1, "acc": [1], "y": [1, 2]})", "acc: has 1 values, expected 2"},
      {R"({"id": 1, "acc": [1, 2147483648], "y": [1, 2]})", "acc[1]: is 2147483648, expected s32"},
  };
  for (const Hostile& row : with_acc) {
    const std::string error = Refusal([&] { ParsePipeAnswer(row.text, 1, codes, true); });
    EXPECT_NE(error.find(row.says), std::string::npos) << row.text << "\n  " << error;
  }
}

}  // namespace
}  // namespace qualm
