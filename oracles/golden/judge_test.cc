// SPDX-License-Identifier: Apache-2.0
// Every recording in the corpus, bit for bit; and records that lie.
#include "oracles/golden/judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/float_text.h"
#include "core/status.h"
#include "oracles/accepted.h"
#include "oracles/conventions/convention.h"
#include "oracles/golden/records.h"

namespace qualm {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::filesystem::path> Recordings() {
  std::vector<std::filesystem::path> files;
  const std::filesystem::path corpus = std::string(QUALM_SOURCE_DIR) + "/corpus/golden";
  for (const auto& entry : std::filesystem::directory_iterator(corpus)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void ForEachRecord(
    const std::function<void(const std::string& file, const GoldenRecord& record)>& visit) {
  for (const auto& path : Recordings()) {
    ForEachGoldenRecord(path.string(), [&](const GoldenRecord& record) {
      visit(path.filename().string(), record);
    });
  }
}

struct Count {
  int64_t passed = 0;
  int64_t failed = 0;
  int64_t skipped = 0;
  int64_t outputs = 0;
};

// What `explain` and `identify` say of products of floats.
TEST(GoldenProducts, AreToldStepByStepAndByTheirArithmetic) {
  int told = 0, named = 0;
  ForEachGoldenRecord(QUALM_SOURCE_DIR "/corpus/golden/mma.jsonl", [&](const GoldenRecord& record) {
    GoldenRecord asked = record;
    asked.tell = 1;
    const GoldenVerdict judged = JudgeGolden(asked);
    const bool integers = record.id.find(".s32.") != std::string::npos;
    ASSERT_EQ(judged.steps.empty(), false) << record.id;
    if (integers) {
      EXPECT_EQ(GoldenArithmetics(record), std::nullopt) << record.id;
      return;
    }
    // A NaN or an infinity is no sum.
    told += judged.steps.size() > 1 ? 1 : 0;
    const auto ways = GoldenArithmetics(record);
    ASSERT_TRUE(ways && !ways->empty()) << record.id;
    const bool bytes =
        record.id.find("e4m3") != std::string::npos || record.id.find("e5m2") != std::string::npos;
    const std::string own =
        bytes ? record.id.starts_with("wgmma") ? "fused sums of 32 products, cut at 13 bits"
                                               : "pairs of float16 in two fused sums"
        : record.id.find("tf32") != std::string::npos ? "fused sums of 8 products, cut at 25 bits"
                                                      : "fused sums of 16 products, cut at 25 bits";
    EXPECT_NE(std::ranges::find(*ways, own), ways->end()) << record.id;
    named += ways->size() == 1 ? 1 : 0;
  });
  EXPECT_GT(told, 200);
  EXPECT_GT(named, 150);
}

TEST(GoldenJudgeTest, EveryRecordOfAKnownOpIsReproduced) {
  std::map<std::string, Count> by_file;
  std::map<std::string, int64_t> outputs_by_model;
  std::map<std::string, int64_t> skips;
  int64_t failures = 0;
  ForEachRecord([&](const std::string& file, const GoldenRecord& record) {
    const GoldenVerdict verdict = JudgeGolden(record);
    Count& count = by_file[file];
    if (verdict.verdict.judgement == Judgement::kSkipped) {
      ++count.skipped;
      ++skips[verdict.verdict.reason];
    } else if (verdict.verdict.judgement == Judgement::kPassed) {
      ++count.passed;
      count.outputs += verdict.outputs;
      outputs_by_model[verdict.convention] += verdict.outputs;
    } else {
      ++count.failed;
      if (++failures <= 20) ADD_FAILURE() << verdict.verdict.reason;
    }
  });
  EXPECT_EQ(failures, 0);
  for (const auto& [file, count] : by_file) {
    std::cout << file << ": passed " << count.passed << ", failed " << count.failed << ", skipped "
              << count.skipped << ", outputs " << count.outputs << "\n";
  }
  for (const auto& [reason, count] : skips)
    std::cout << "skipped " << count << ": " << reason << "\n";
  // A convention has recordings or stands here: no convention loses its recordings unnoticed.
  const std::set<std::string> without{"aten@avx2+pt26",
                                      "xnnpack2024@avx2",
                                      "xnnpack2024@avx512",
                                      "xnnpack2026@avx2",
                                      "ctranslate2",
                                      "fbgemm@avx2+acc16+nofma",
                                      "fbgemm@avx512+acc16+nofma",
                                      "fbgemm@vnni+acc16+nofma",
                                      "gemmlowp@sse4",
                                      "ggml@avx",
                                      "ggml@c",
                                      "mnn",
                                      "ncnn",
                                      "numpy@float32",
                                      "numpy@float32+half_clip",
                                      "numpy@float64",
                                      "numpy@float64+w_zp_from_x",
                                      "onednn2@amx",
                                      "onednn2@avx2vnni",
                                      "onednn3@avx512core",
                                      "onednn3@sse41",
                                      "onednn3.10@vnni",
                                      "onnx@reference",
                                      "onnxruntime@wasm",  // asked live: tools/onnxruntime_test.cc
                                      "plain@away",
                                      "plain@away+zp_first",
                                      "plain@even+zp_first",
                                      "plain@float32+away",
                                      "plain@floor",
                                      "plain@truncate",
                                      "plain@truncate+zp_first",
                                      "plain@up",
                                      "ruy",
                                      "stablehlo",
                                      "torch-fbgemm@avx2",
                                      "torch-fbgemm@avx512",
                                      "torch-fbgemm@avx512+held",
                                      "torch-onednn@amx",
                                      "torch-onednn@avx2",
                                      "torch-onednn@avx2vnni",
                                      "torch-onednn@avx512core",
                                      "torch-onednn@sse41",
                                      "torch-onednn@vnni",
                                      "torch-qnnpack",
                                      "torch-x86@avx2",
                                      "torch-x86@avx512core",
                                      "torch-x86@vnni",
                                      "torchao-mx",
                                      "torch2.13-aten@avx2",
                                      "torch2.13-cast@cpu",  // asked live: tools/wheels_test.cc
                                      "torch2.13-aten@avx512",
                                      "torch2.13-qnnpack",
                                      "tract",
                                      "openvino",
                                      "openvino@avx2",
                                      "tvm"};
  for (const Convention& convention : AllConventions()) {
    EXPECT_EQ(outputs_by_model[convention.name] == 0, without.contains(convention.name))
        << convention.name;
  }
  // The only reason to skip is a function that has no meaning here yet.
  for (const auto& [reason, count] : skips) {
    EXPECT_TRUE(reason.ends_with("is not known yet")) << reason;
  }
}

TEST(GoldenJudgeTest, TracesEndInTheRecordedOutput) {
  std::map<std::string, int64_t> traced;
  ForEachRecord([&](const std::string&, const GoldenRecord& record) {
    // The codes of a direct matmul are scaled by output_scales themselves, not by their quotient.
    if (!GoldenHasCase(record) || record.op == "matmul") return;
    const Case c = GoldenCase(record);
    ASSERT_TRUE(c.observed.has_value()) << record.where;
    const GoldenVerdict verdict = JudgeGolden(record);
    // The last judged variant of an element-wise record is the scalar one; its case is the other.
    const Convention* convention =
        FindConvention(verdict.convention == "fbgemm@scalar" ? "fbgemm@avx2" : verdict.convention);
    ASSERT_NE(convention, nullptr) << record.where;
    const Tensor& y = c.observed->y;
    for (const int64_t i : {int64_t{0}, y.size() / 2, y.size() - 1}) {
      const Trace trace = convention->trace(c, i);
      ASSERT_FALSE(trace.empty());
      EXPECT_EQ(trace.back().value, ElementText(y, i)) << record.where << " output " << i;
      for (const TraceStep& step : trace) EXPECT_EQ(step.text.find('{'), std::string::npos);
    }
    ++traced[convention->name];
  });
  EXPECT_GT(traced["fbgemm@avx2"], 0);
  EXPECT_GT(traced["onednn2@avx2"], 0);
  EXPECT_GT(traced["qnnpack"], 0);
  EXPECT_GT(traced["xnnpack@rndnu"], 0);
}

GoldenRecord RecordOf(const std::string& line) { return ParseGoldenLine(line, "f", 1); }
GoldenVerdict JudgeText(const std::string& line) { return JudgeGolden(RecordOf(line)); }
GoldenVerdict JudgeJson(const Json& record) { return JudgeText(record.dump()); }

// Packed arrays as plain lists, so that a test can change a number.
Json Unpacked(Json record) {
  const GoldenRecord read = RecordOf(record.dump());
  for (auto& [field, value] : record.items()) {
    if (!value.is_object() || field == "params" || field == "masks") continue;
    if (value["dtype"].get<std::string>().starts_with("float")) {
      value = Json::array();
      for (const float number : read.Floats(field)) value.push_back(FloatText(number));
    } else {
      value = read.Ints(field);
    }
  }
  return record;
}

// Calls visit(record, verdict) for the first record of each operation and set of fields that is
// reproduced.
void ForEachKind(
    const std::function<void(const Json& record, const GoldenVerdict& verdict)>& visit) {
  std::set<std::string> kinds;
  for (const auto& path : Recordings()) {
    std::ifstream file(path);
    std::map<std::string, Json> input_sets;
    for (std::string line; std::getline(file, line);) {
      Json record = Json::parse(line);
      if (record["op"] == "input_set") input_sets[record["id"]] = record["bits"];
      if (record.contains("bits_in")) {  // each record is judged alone here
        record["bits"] = input_sets.at(record["bits_in"]);
        record.erase("bits_in");
      }
      if (!record.contains("id")) record["id"] = record["op"];
      std::string kind = record["op"];
      for (const auto& [field, value] : record.items()) {
        if (!value.is_null()) kind += " " + field;
      }
      if (kinds.contains(kind)) continue;
      const GoldenVerdict verdict = JudgeJson(record);
      if (verdict.verdict.judgement != Judgement::kPassed) continue;
      kinds.insert(kind);
      visit(Unpacked(record), verdict);
    }
  }
}

// The fields of a record that a library computed.
std::vector<std::string> OutputsOf(const Json& record) {
  const std::string op = record["op"];
  std::set<std::string> more;
  if (op == "choose_qparams" || op.starts_with("observer")) more = {"scale", "zp"};
  if (op == "DynamicQuantizeLinear") more = {"scale", "zp"};
  if (op.starts_with("decomposed.quantize")) more = {"q"};
  if (op.starts_with("decomposed.choose")) more = {"scale", "zp", "q"};
  if (op.starts_with("observer")) more.insert({"min_val", "max_val", "q"});
  if (op == "cast") more = {"codes_out"};
  if (op == "mma") more = {"d_bits"};
  if (op == "decode") more = {"f32_bits"};
  if (op == "tree") more = {"leaves_of_common_subtree", "tree"};
  if (op == "quantize_per_tensor") more = {"q", "fake_quantize"};
  if (op.starts_with("quantized.embedding_bag")) more = {"packed", "unpacked"};
  if (op == "aten_choose_qparams") more = {"scale_double", "zp"};
  if (op == "multiply_by_quantized_multiplier") more = {"quantized_multiplier", "shift"};
  if (op == "tflite_fully_connected") more = {"multiplier", "shift"};
  std::vector<std::string> outputs;
  for (const auto& [field, value] : record.items()) {
    const bool output =
        field.starts_with("y") || field.starts_with("acc") || field.starts_with("deq");
    if (!value.is_null() && field != "acc_kind" && field != "accuracy_level" && field != "y_type" &&
        (output || more.contains(field)))
      outputs.push_back(field);
  }
  return outputs;
}

// Another number of the same type.
Json Other(const Json& number) {
  if (number.is_string()) return number == "0x1.8p+0" ? "0x1p+0" : "0x1.8p+0";
  return number.get<int64_t>() > 0 ? number.get<int64_t>() - 1 : number.get<int64_t>() + 1;
}

// Whatever a library computed is compared, to the last element and in every field.
TEST(GoldenJudgeTest, AWrongNumberInAnyOutputFails) {
  std::set<std::string> ops;
  ForEachKind([&](const Json& record, const GoldenVerdict& good) {
    ops.insert(record["op"]);
    ASSERT_FALSE(good.convention.empty());
    size_t compared = 0;
    for (const std::string& field : OutputsOf(record)) {
      SCOPED_TRACE(record["id"].get<std::string>() + " " + field);
      const Json& value = record[field];
      const size_t count = value.is_array() ? value.size() : 1;
      compared += count;
      for (const size_t at : std::set<size_t>{0, count / 2, count - 1}) {
        Json wrong = record;
        Json& changed = value.is_array() ? wrong[field][at] : wrong[field];
        changed = Other(changed);
        const Verdict verdict = JudgeJson(wrong).verdict;
        EXPECT_TRUE(verdict.failed()) << at;
        const bool by_index = verdict.reason.find(": " + field + "[" + std::to_string(at) + "]:") !=
                              std::string::npos;
        EXPECT_TRUE(by_index || verdict.reason.find(": " + field + ": ") != std::string::npos)
            << verdict.reason;
        const std::string convention = field.ends_with("_scalar") ? "fbgemm@scalar"
                                       : field.ends_with("_avx2") ? "fbgemm@avx2"
                                                                  : good.convention;
        EXPECT_NE(verdict.reason.find(convention + " gives "), std::string::npos) << verdict.reason;
      }
    }
    EXPECT_EQ(good.outputs, static_cast<int64_t>(compared)) << record["id"];
  });
  EXPECT_GE(ops.size(), 24u);
}

// Outputs that not every recorder wrote may be missing; what is left is judged.
TEST(GoldenJudgeTest, OutputsMayBeMissingButNotAll) {
  const std::set<std::string> optional{
      "acc",  "acc_no_zp", "y_thread",   "y_avx2",  "y_scalar", "y_float", "y_u8_i32bias",
      "y_u8", "deq",       "deq_thread", "min_val", "max_val",  "q",       "multiplier"};
  ForEachKind([&](const Json& record, const GoldenVerdict& good) {
    const std::string op = record["op"];
    const std::vector<std::string> outputs = OutputsOf(record);
    Json none = record;
    bool may_have_none = true;
    for (const std::string& field : outputs) {
      SCOPED_TRACE(record["id"].get<std::string>() + " " + field);
      Json less = record;
      less.erase(field);
      const bool whole =
          (op.starts_with("decomposed.") && op != "decomposed.quantize_per_tensor") ||
          op == "quantize_per_tensor";
      const bool may_be_missing = (optional.contains(field) && !whole) ||
                                  (op == "tflite_fully_connected" && field == "shift") ||
                                  (op.ends_with("quantize") && field == "y");
      may_have_none = may_have_none && may_be_missing;
      none.erase(field);
      if (!may_be_missing) {
        EXPECT_THROW(JudgeJson(less), InputError);
        continue;
      }
      const GoldenVerdict judged = JudgeJson(less);
      const Verdict& verdict = judged.verdict;
      if (outputs.size() == 1) {
        EXPECT_TRUE(verdict.reason.ends_with(": has no output to judge")) << verdict.reason;
      } else if ((field == "y" || field == "q") && record.contains("deq")) {
        // What was dequantized is not known.
        EXPECT_TRUE(verdict.reason.ends_with(": deq: an output that nothing here computes"))
            << verdict.reason;
      } else {
        EXPECT_EQ(verdict.judgement, Judgement::kPassed) << verdict.reason;
        EXPECT_LT(judged.outputs, good.outputs);
      }
    }
    if (!may_have_none) return;
    const Verdict verdict = JudgeJson(none).verdict;
    EXPECT_TRUE(verdict.reason.ends_with(": has no output to judge"))
        << record["id"] << " " << verdict.reason;
  });
}

using Fields = std::map<std::string, std::string>;

// `fields` with some replaced ("" removes one), as a line.
std::string LineOf(Fields fields, const Fields& changes) {
  for (const auto& [name, value] : changes) fields[name] = value;
  std::string line = "{";
  for (const auto& [name, value] : fields) {
    if (value.empty()) continue;
    line += (line.size() > 1 ? "," : "") + ("\"" + name + "\":" + value);
  }
  return line + "}";
}

// A good record.
std::string Line(const Fields& changes) {
  const Fields fields = {{"id", R"("r")"},
                         {"op", R"("linear")"},
                         {"backend", R"("fbgemm@71d6f8b")"},
                         {"isa", R"("avx2")"},
                         {"gran", R"("tensor")"},
                         {"relu", "0"},
                         {"M", "1"},
                         {"N", "1"},
                         {"K", "2"},
                         {"x_scale", R"("0x1p+0")"},
                         {"x_zp", "0"},
                         {"w_scale", R"(["0x1p+0"])"},
                         {"w_zp", "[0]"},
                         {"out_scale", R"("0x1p+10")"},
                         {"out_zp", "0"},
                         {"bias", "null"},
                         {"x", "[255,255]"},
                         {"w", "[127,127]"},
                         {"acc", "[32767]"},
                         {"y", "[32]"}};
  return LineOf(fields, changes);
}

// Good records of other operations: 1x3 pixels of one channel under a 1x3 kernel with padding 1,
// and two sums.
std::string ConvLine(const Fields& changes) {
  const Fields fields = {{"id", R"("r")"},
                         {"op", R"("conv2d")"},
                         {"backend", R"("fbgemm@71d6f8b")"},
                         {"isa", R"("avx2")"},
                         {"layout", R"("x:NHWC w:KRSC y:NHWC")"},
                         {"gran", R"("tensor")"},
                         {"relu", "0"},
                         {"N", "1"},
                         {"H", "1"},
                         {"W", "3"},
                         {"IC", "1"},
                         {"OC", "1"},
                         {"G", "1"},
                         {"R", "3"},
                         {"S", "3"},
                         {"stride", "1"},
                         {"pad", "1"},
                         {"dil", "1"},
                         {"OH", "1"},
                         {"OW", "3"},
                         {"x_scale", R"("0x1p+0")"},
                         {"x_zp", "0"},
                         {"w_scale", R"(["0x1p+0"])"},
                         {"w_zp", "[0]"},
                         {"out_scale", R"("0x1p+10")"},
                         {"out_zp", "0"},
                         {"bias", "null"},
                         {"x", "[255,255,255]"},
                         {"w", "[0,0,0,0,127,127,0,0,0]"},
                         {"y", "[32,32,32]"}};
  return LineOf(fields, changes);
}
std::string AddLine(const Fields& changes) {
  const Fields fields = {{"id", R"("r")"},
                         {"op", R"("add")"},
                         {"backend", R"("pytorch-1.13.1")"},
                         {"isa", R"("aten-avx2")"},
                         {"relu", "0"},
                         {"n", "2"},
                         {"a_scale", R"("0x1p+0")"},
                         {"a_zp", "1"},
                         {"b_scale", R"("0x1p+0")"},
                         {"b_zp", "2"},
                         {"out_scale", R"("0x1p+1")"},
                         {"out_zp", "3"},
                         {"a", "[11,21]"},
                         {"b", "[12,23]"},
                         {"y", "[13,23]"}};
  return LineOf(fields, changes);
}

// Two rows of weights, of which the second is negative.
std::string MatmulLine(const Fields& changes) {
  const Fields fields = {{"id", R"("r")"},
                         {"op", R"("matmul")"},
                         {"backend", R"("onednn-2.6.3")"},
                         {"isa", R"("AVX512_CORE_VNNI")"},
                         {"src_dtype", R"("u8")"},
                         {"M", "1"},
                         {"N", "1"},
                         {"K", "2"},
                         {"output_scales", R"(["0x1p-1"])"},
                         {"src_zp", "1"},
                         {"dst_zp", "3"},
                         {"w_layout", R"("KxN")"},
                         {"x", "[10,20]"},
                         {"w", "[4,-1]"},
                         {"acc_no_zp", "[20]"},
                         {"y_u8", "[12]"}};  // (20 - 3) / 2 is 8.5
  return LineOf(fields, changes);
}
std::string ChooseLine(const Fields& changes) {
  const Fields fields = {{"id", R"("r")"},
                         {"op", R"("choose_qparams")"},
                         {"backend", R"("fbgemm@71d6f8b")"},
                         {"min", R"("0x0p+0")"},
                         {"max", R"("0x1.fep+7")"},
                         {"qmin", "0"},
                         {"qmax", "255"},
                         {"preserve_sparsity", "0"},
                         {"force_pow2", "0"},
                         {"scale", R"("0x1p+0")"},
                         {"zp", "0"}};
  return LineOf(fields, changes);
}
// A constant input of zeros.
std::string Depthwise3dLine(const Fields& changes) {
  std::string zeros = "[0";
  for (int i = 1; i < 343; ++i) zeros += ",0";
  const Fields fields = {{"id", R"("r")"},
                         {"op", R"("depthwise3d_7x7x7_const")"},
                         {"backend", R"("fbgemm@71d6f8b")"},
                         {"isa", R"("any-x86")"},
                         {"x_const", "0"},
                         {"w_zp", "0"},
                         {"out_scale", R"("0x1p+0")"},
                         {"y_center", "0"},
                         {"y_channel0", zeros + "]"}};
  return LineOf(fields, changes);
}

// What is wrong with a record, or its verdict.
std::string ErrorOf(const std::string& line) {
  try {
    const Verdict verdict = JudgeText(line).verdict;
    return "no error: " + std::string(Name(verdict.judgement)) + " " + verdict.reason;
  } catch (const InputError& caught) {
    return caught.what();
  }
}

GoldenVerdict JudgeLine(const std::map<std::string, std::string>& changes) {
  return JudgeText(Line(changes));
}

TEST(GoldenJudgeTest, AnyWrongOutputFails) {
  const GoldenVerdict good = JudgeLine({});
  EXPECT_EQ(good.verdict.judgement, Judgement::kPassed) << good.verdict.reason;
  EXPECT_EQ(good.convention, "fbgemm@avx2");
  EXPECT_EQ(good.outputs, 2);
  const GoldenVerdict y = JudgeLine({{"y", "[33]"}});
  EXPECT_TRUE(y.verdict.failed());
  EXPECT_EQ(y.verdict.reason, "f:1: r: y[0]: recorded 33, fbgemm@avx2 gives 32");
  ASSERT_TRUE(y.verdict.divergence.has_value());
  EXPECT_EQ(y.verdict.divergence->expected, "33");
  EXPECT_TRUE(JudgeLine({{"acc", "[32766]"}}).verdict.failed());
  EXPECT_TRUE(JudgeLine({{"isa", R"("avx512_vnni")"}}).verdict.failed());
  EXPECT_TRUE(JudgeLine({{"y_other", "[1]"}}).verdict.failed()) << "an unknown output";
  EXPECT_TRUE(JudgeLine({{"acc_other", "[1]"}}).verdict.failed()) << "an unknown accumulator";
  EXPECT_TRUE(JudgeLine({{"deq", "[1]"}}).verdict.failed()) << "numbers that nothing computes";
  // Sums of a convention that tells none are not compared with anything.
  EXPECT_TRUE(JudgeText(AddLine({{"acc", "[1,2]"}}))
                  .verdict.reason.ends_with(": acc: an output that nothing here computes"));
}

// The first wrong output is named, whatever is wrong behind it.
TEST(GoldenJudgeTest, TheFirstWrongOutputIsNamed) {
  EXPECT_EQ(JudgeLine({{"acc", "[32766]"}, {"y", "[33]"}}).verdict.reason,
            "f:1: r: acc[0]: recorded 32766, fbgemm@avx2 gives 32767");
  const Verdict verdict = JudgeText(ChooseLine({{"scale", R"("0x1p-1")"}, {"zp", "9"}})).verdict;
  EXPECT_EQ(verdict.reason, "f:1: r: scale: recorded 0x1p-1, observers@fbgemm gives 0x1p+0");
}

// The scalar code of FBGEMM adds the zero point in 64 bits, the vector code in 32.
TEST(GoldenJudgeTest, FixedPointRequantizationIsOfTwoCodes) {
  const auto judge = [](const char* vector, const char* scalar) {
    return JudgeText(LineOf({{"id", R"("r")"},
                             {"op", R"("requantize_fixedpoint")"},
                             {"backend", R"("fbgemm@71d6f8b")"},
                             {"multiplier", "1073741824"},
                             {"right_shift", "30"},
                             {"zp", "255"},
                             {"x", "[2147483647,0,0,0,0,0,0,0,2147483647]"},
                             {"y_avx2", vector},
                             {"y_scalar", scalar}},
                            {}))
        .verdict;
  };
  const char* const wraps = "[0,255,255,255,255,255,255,255,255]";
  const char* const clamps = "[255,255,255,255,255,255,255,255,255]";
  EXPECT_EQ(judge(wraps, clamps).judgement, Judgement::kPassed) << judge(wraps, clamps).reason;
  EXPECT_TRUE(judge(clamps, clamps).failed());
  EXPECT_TRUE(judge(wraps, wraps).failed());
}

TEST(GoldenJudgeTest, WhatHasNoConventionIsSkippedWithAReason) {
  const auto reason = [](const std::map<std::string, std::string>& changes) {
    const GoldenVerdict verdict = JudgeLine(changes);
    EXPECT_EQ(verdict.verdict.judgement, Judgement::kSkipped);
    return verdict.verdict.reason;
  };
  EXPECT_EQ(reason({{"op", R"("transpose")"}}), "op transpose is not known yet");
  EXPECT_EQ(reason({{"backend", R"("somebody@1")"}}),
            "no convention for backend somebody@1, isa avx2");
  EXPECT_EQ(reason({{"isa", R"("riscv")"}}), "no convention for backend fbgemm@71d6f8b, isa riscv");
  EXPECT_EQ(reason({{"backend", R"("pytorch-1.13.1")"},
                    {"isa", R"("qnnpack-x86")"},
                    {"acc", ""},
                    {"out_zp", "256"}}),
            "qnnpack: output zero point must be a code of the output type");
  EXPECT_EQ(
      reason({{"op", R"("multiply_by_quantized_multiplier")"}, {"backend", R"("tflite-triple")"}}),
      "no convention for tflite-triple");
  const auto skipped = [](const std::string& line) {
    const GoldenVerdict verdict = JudgeText(line);
    EXPECT_EQ(verdict.verdict.judgement, Judgement::kSkipped) << line;
    return verdict.verdict.reason;
  };
  EXPECT_EQ(skipped(MatmulLine({{"isa", R"("RISCV")"}})),
            "no convention for backend onednn-2.6.3, isa RISCV");
  EXPECT_EQ(skipped(Depthwise3dLine({{"isa", R"("riscv")"}})),
            "no convention for backend fbgemm@71d6f8b, isa riscv");
  // A convention of others is none of this operation.
  EXPECT_EQ(
      skipped(Depthwise3dLine({{"backend", R"("pytorch-1.13.1")"}, {"isa", R"("aten-avx2")"}})),
      "no convention for backend pytorch-1.13.1, isa aten-avx2");
}

TEST(GoldenJudgeTest, LyingRecordsAreRefusedWithFileLineAndField) {
  using Changes = std::map<std::string, std::string>;
  const std::pair<Changes, const char*> table[] = {
      {{{"x", ""}}, "f:1: r: x: missing"},
      {{{"x", "[1]"}}, "f:1: r: x: has 1 entries, expected 1x2"},
      {{{"x", "[1,2,3]"}}, "f:1: r: x: has 3 entries, expected 1x2"},
      {{{"x", "[256,0]"}}, "f:1: r: x: entry 0 is 256, outside u8"},
      {{{"x", "[-1,0]"}}, "f:1: r: x: entry 0 is -1, outside u8"},
      {{{"x", R"(["a","b"])"}}, "f:1: r: x: expected a list of integers"},
      {{{"w", "[128,0]"}}, "f:1: r: w: entry 0 is 128, outside s8"},
      {{{"M", "-1"}}, "f:1: r: M: expected 0..2^28"},
      {{{"M", "99999999999999"}}, "f:1: r: M: expected 0..2^28"},
      {{{"M", "268435456"}, {"N", "268435456"}}, "f:1: r: x: has 2 entries"},
      {{{"M", "268435456"}, {"K", "0"}, {"x", "[]"}, {"w", "[]"}}, "f:1: r: y: has 1 entries"},
      {{{"K", "1.5"}}, "f:1: r: K: expected an integer"},
      {{{"K", "9223372036854775807"}}, "f:1: r: K: expected 0..2^28"},
      {{{"x_scale", R"("inf")"}}, "f:1: r: x_scale: entry 0 must be finite"},
      {{{"x_scale", R"("-0x1p+0")"}}, "f:1: r: x_scale: entry 0 must be finite"},
      {{{"w_scale", R"(["nan:7fc00000"])"}}, "f:1: r: w_scale: entry 0 must be finite"},
      {{{"w_scale", R"(["0x1p+0","0x1p+0"])"}}, "f:1: r: w_scale: has 2 entries, expected 1"},
      {{{"w_scale", "[]"}}, "f:1: r: w_scale: has 0 entries"},
      {{{"w_zp", "[]"}}, "f:1: r: w_zp: has 0 entries"},
      {{{"w_zp", "[2147483648]"}}, "f:1: r: w_zp: outside int32"},
      {{{"out_scale", R"("0x0p+0")"}}, "f:1: r: out_scale: entry 0 must be finite"},
      {{{"out_zp", "4294967296"}}, "f:1: r: out_zp: is 4294967296"},
      {{{"bias", R"(["inf"])"}}, "f:1: r: bias: entry 0 must be finite"},
      {{{"bias", "[]"}}, "f:1: r: bias: expected one entry per output channel"},
      {{{"relu", "2"}}, "f:1: r: relu: is 2, expected 0..1"},
      {{{"gran", R"("row")"}}, "f:1: r: gran: expected tensor or channel"},
      {{{"y", "[]"}}, "f:1: r: y: has 0 entries"},
      {{{"y", "[256]"}}, "f:1: r: y: entry 0 is 256, outside u8"},
      {{{"y", ""}}, "f:1: r: y: missing"},
      {{{"acc", "[2147483648]"}}, "f:1: r: acc: entry 0 is 2147483648, outside s32"},
      {{{"op", R"("gemmlowp_rounding_divide_by_pot")"}, {"exponent", "32"}},
       "f:1: r: exponent: is 32, expected 0..31"},
      {{{"op", R"("requantize_fixedpoint")"}, {"multiplier", "1"}, {"right_shift", "64"}},
       "f:1: r: right_shift: is 64, expected 1..62"},
      {{{"op", R"("multiply_by_quantized_multiplier")"},
        {"backend", R"("tflite-double")"},
        {"y", "[0,0]"},
        {"double_multiplier", R"("0x1p-1")"},
        {"quantized_multiplier", "1"},
        {"shift", "40"}},
       "f:1: r: shift: is 40, expected -31..31"},
      {{{"op", R"("quantize")"}, {"dtype", R"("s32")"}}, "f:1: r: dtype: expected u8 or s8"},
      {{{"op", R"("quantize")"}, {"dtype", R"("u8")"}, {"scale", R"("inf")"}, {"zp", "0"}},
       "f:1: r: out_scale: entry 0 must be finite"},
      {{{"op", R"("requantize_float")"}, {"mult", R"("nan:7fc00000")"}, {"zp", "0"}},
       "f:1: r: multiplier: entry 0 must be finite"},
      {{{"op", R"("aten_choose_qparams")"}, {"x", "[]"}}, "f:1: r: x: must not be empty"},
      {{{"op", R"("matmul")"}, {"w_layout", R"("NxK")"}, {"src_dtype", R"("u8")"}},
       "f:1: r: w_layout: expected KxN"},
      {{{"op", R"("multiply_by_quantized_multiplier")"},
        {"backend", R"("tflite-single")"},
        {"y", "[0,0]"},
        {"double_multiplier", R"("0x1p-1")"},
        {"quantized_multiplier", "1"},
        {"shift", "31"}},
       "f:1: r: shift: is 31, expected -31..30"},
      {{{"op", R"("multiply_by_quantized_multiplier")"},
        {"backend", R"("tflite-single")"},
        {"double_multiplier", R"("inf")"}},
       "f:1: r: double_multiplier: expected a float64"},
      {{{"op", R"("aten_choose_qparams")"}, {"x", R"(["0x1p+0","inf"])"}},
       "f:1: r: x: must be finite"},
  };
  for (const auto& [changes, expected] : table) {
    const std::string error = ErrorOf(Line(changes));
    EXPECT_TRUE(error.starts_with(expected)) << Line(changes) << "\n  " << error;
  }
  for (const auto& [line, expected] : std::vector<std::pair<std::string, std::string>>{
           {ChooseLine({{"min", R"("-inf")"}}), "f:1: r: min: the range must be finite"},
           {ChooseLine({{"max", R"("inf")"}}), "f:1: r: min: the range must be finite"},
           {ChooseLine({{"min", R"("0x1p+9")"}}), "f:1: r: min: is greater than max"},
           {ChooseLine({{"qmin", "255"}}), "f:1: r: qmin: must be less than qmax"},
           {ChooseLine({{"qmin", "256"}}), "f:1: r: qmin: must be less than qmax"},
           {ChooseLine({{"qmin", "-65537"}}), "f:1: r: qmin: is -65537"},
           {Depthwise3dLine({{"out_scale", R"("inf")"}}), "f:1: r: out_scale: must be finite"},
           {Depthwise3dLine({{"out_scale", R"("0x0p+0")"}}), "f:1: r: out_scale: must be finite"},
           {Depthwise3dLine({{"out_scale", R"("-0x1p+0")"}}), "f:1: r: out_scale: must be finite"},
           {MatmulLine({{"output_scales", R"(["0x0p+0"])"}}), "f:1: r: "},
           {MatmulLine({{"output_scales", R"(["-0x1p+0"])"}}), "f:1: r: "}}) {
    EXPECT_TRUE(ErrorOf(line).starts_with(expected)) << line << "\n  " << ErrorOf(line);
  }
}

TEST(GoldenJudgeTest, ConvolutionsAndSumsAreJudged) {
  // Taps 4 and 5 are one pair, in which two of the three pixels have both.
  for (const auto& [line, convention] :
       {std::pair{ConvLine({}), "fbgemm@avx2"}, {AddLine({}), "aten@avx2"}}) {
    const GoldenVerdict good = JudgeText(line);
    EXPECT_EQ(good.verdict.judgement, Judgement::kPassed) << good.verdict.reason;
    EXPECT_EQ(good.convention, convention);
  }
  EXPECT_TRUE(JudgeText(ConvLine({{"y", "[32,33,32]"}})).verdict.failed());
  const Fields exact = {{"isa", R"("avx512_vnni")"}, {"y", "[63,63,32]"}};
  EXPECT_EQ(JudgeText(ConvLine(exact)).verdict.judgement, Judgement::kPassed);
  EXPECT_TRUE(JudgeText(AddLine({{"y", "[13,24]"}})).verdict.failed());
  EXPECT_TRUE(JudgeText(AddLine({{"y_thread", "[14,23]"}})).verdict.failed());
  EXPECT_EQ(JudgeText(AddLine({{"isa", R"("aten-riscv")"}})).verdict.judgement,
            Judgement::kSkipped);
  EXPECT_EQ(JudgeText(AddLine({{"isa", R"("aten-avx512-pt26")"}})).convention, "aten@avx512+pt26");
  EXPECT_EQ(JudgeText(Depthwise3dLine({})).verdict.judgement, Judgement::kPassed);
  EXPECT_EQ(JudgeText(Depthwise3dLine({})).convention, "fbgemm@avx2");
  EXPECT_THROW(JudgeText(Depthwise3dLine({{"y_channel0", "[0]"}})), InputError);
  EXPECT_EQ(ErrorOf(MatmulLine({})), "no error: passed ");
}

TEST(GoldenJudgeTest, LyingConvolutionsAndSumsAreRefused) {
  const std::pair<std::string, const char*> table[] = {
      {ConvLine({{"layout", R"("x:NCHW w:KCRS y:NCHW")"}}), "f:1: r: layout: expected x:NHWC"},
      {ConvLine({{"W", "4"}}), "f:1: r: x: has 3 entries, expected 1x1x4x1"},
      {ConvLine({{"H", "268435456"}, {"W", "268435456"}}), "f:1: r: x: has 3 entries"},
      {ConvLine({{"W", "-1"}}), "f:1: r: W: expected 0..2^28"},
      {ConvLine({{"R", "0"}}), "f:1: r: R: is 0, expected 1..1048576"},
      {ConvLine({{"S", "2"}}), "f:1: r: w: has 9 entries, expected 1x3x2x1"},
      {ConvLine({{"stride", "0"}}), "f:1: r: stride: is 0, expected 1..1048576"},
      {ConvLine({{"stride", "9223372036854775807"}}), "f:1: r: stride: is 9223372036854775807"},
      {ConvLine({{"dil", "0"}}), "f:1: r: dil: is 0, expected 1..1048576"},
      {ConvLine({{"pad", "-1"}}), "f:1: r: pad: is -1, expected 0..1048576"},
      {ConvLine({{"pad", "1048577"}}), "f:1: r: pad: is 1048577"},
      {ConvLine({{"pad", "1048576"}}), "f:1: r: OH: makes too many outputs"},
      {ConvLine({{"pad", "3"}}), "f:1: r: OH: does not follow"},
      {ConvLine({{"G", "0"}}), "f:1: r: G: is 0"},
      {ConvLine({{"G", "2"}}), "f:1: r: G: does not divide"},
      {ConvLine({{"OH", "2"}}), "f:1: r: OH: does not follow from the window"},
      {ConvLine({{"OW", ""}}), "f:1: r: OW: missing"},
      {ConvLine({{"gran", R"("channel")"}, {"w_zp", "[]"}}), "f:1: r: w_zp: has 0 entries"},
      {ConvLine({{"y", "[63,63]"}}), "f:1: r: y: has 2 entries, expected 1x1x3x1"},
      {ConvLine({{"op", R"("qlinear_conv")"}, {"w_dtype", R"("f32")"}}),
       "f:1: r: w_dtype: expected u8 or s8"},
      {AddLine({{"n", "3"}}), "f:1: r: a: has 2 entries, expected 1x3"},
      {AddLine({{"b", "[1]"}}), "f:1: r: b: has 1 entries, expected 1x2"},
      {AddLine({{"a", "[1,256]"}}), "f:1: r: a: entry 1 is 256, outside u8"},
      {AddLine({{"op", R"("tflite_add")"}, {"a", "[1,128]"}}),
       "f:1: r: a: entry 1 is 128, outside s8"},
      {AddLine({{"b_scale", R"("0x0p+0")"}}), "f:1: r: w_scale: entry 0 must be finite"},
      {AddLine({{"a_zp", "2147483648"}}), "f:1: r: a_zp: is 2147483648"},
  };
  for (const auto& [line, expected] : table) {
    const std::string error = ErrorOf(line);
    EXPECT_TRUE(error.starts_with(expected)) << line << "\n  " << error;
  }
}

// 1 * (9 - 8) * 0.5 + 2 * (6 - 8) * 0.5, and the tree of three products.
Fields NBits() {
  return {{"id", R"("r")"},
          {"stack", R"("s")"},
          {"op", R"("MatMulNBits")"},
          {"a_type", R"("f32")"},
          {"bits", "4"},
          {"block_size", "16"},
          {"accuracy_level", "0"},
          {"M", "1"},
          {"N", "1"},
          {"K", "2"},
          {"a", "[1,2]"},
          {"q", "[9,6]"},
          {"scales", R"(["0x1p-1"])"},
          {"y", R"(["-0x1.8p+0"])"}};
}
Fields TreeOfThree() {
  return {{"id", R"("r")"},
          {"stack", R"("s")"},
          {"op", R"("tree")"},
          {"n", "3"},
          {"what", R"("torch.matmul f32 2xKx3")"},
          {"device", R"("cpu")"},
          {"masks", R"({"big":"0x1p+40","unit":1})"},
          {"tree", "\"((0+1)+2)\""},
          {"leaves_of_common_subtree", "[2,3,3]"}};
}

// The contract `sum` accepts what ONNX Runtime gave for f32 x, and refuses each answer in the place
// of another.
TEST(GoldenJudgeTest, RecordedSumsOfFloatsAreFloat32Sums) {
  const Contract sum = ParseContract("sum");
  int64_t outputs = 0, inexact = 0, swapped = 0, refused = 0;
  ForEachRecord([&](const std::string&, const GoldenRecord& record) {
    if (record.op != "MatMulNBits" || record.Text("a_type") != "f32" ||
        record.Int("accuracy_level") > 1)
      return;
    const Case c = golden::CaseOfNBits(record);
    ASSERT_EQ(Validate(c), "") << record.where;
    const Tensor y = Tensor::Of<float>({c.M, c.N}, record.Floats("y"));
    const Accepted accepted = AcceptedBy(sum, c);
    EXPECT_FALSE(accepted.First(y)) << record.where;
    for (int64_t i = 0; i < y.size(); ++i) {
      ++outputs;
      inexact += y.SameAt(i, accepted.nominal()) ? 0 : 1;
      Tensor other = y;
      other.as<float>()[static_cast<size_t>(i)] = y.FloatAt((i + 1) % y.size());
      if (other == y) continue;
      ++swapped;
      refused += accepted.Holds(other, i) ? 0 : 1;
    }
  });
  EXPECT_GT(outputs, 500);
  EXPECT_GT(inexact, 100);
  EXPECT_EQ(refused, swapped);
}

TEST(GoldenJudgeTest, LyingSumsOfFloatsAreRefused) {
  EXPECT_EQ(ErrorOf(LineOf(NBits(), {})), "no error: passed ");
  EXPECT_EQ(ErrorOf(LineOf(TreeOfThree(), {})), "no error: passed ");
  const std::pair<std::string, const char*> table[] = {
      {LineOf(NBits(), {{"y", "[0]"}}), "no error: failed "},
      {LineOf(NBits(), {{"bits", "3"}}), "no error: skipped "},
      {LineOf(NBits(), {{"accuracy_level", "4"}}), "no error: failed "},  // 1 is code 64 of 2 / 127
      {LineOf(NBits(), {{"accuracy_level", "4"}, {"y", R"(["-0x1.7efdfcp+0"])"}}),
       "no error: passed "},
      {LineOf(NBits(), {{"accuracy_level", "4"}, {"a", R"([1,"inf"])"}}), "no error: skipped "},
      {LineOf(NBits(), {{"a_type", R"("bf16")"}}), "no error: skipped "},
      {LineOf(NBits(), {{"block_size", "0"}}), "f:1: r: block_size: expected at least 1"},
      {LineOf(NBits(), {{"block_size", "1"}}), "f:1: r: scales: has 1 entries, expected 2"},
      {LineOf(NBits(), {{"q", "[9]"}}), "f:1: r: q: has 1 entries"},
      {LineOf(NBits(), {{"q", "[9,256]"}}), "f:1: r: q: entry 1 is 256"},
      {LineOf(NBits(), {{"zp", "[8,8]"}}), "f:1: r: zp: has 2 entries"},
      {LineOf(NBits(), {{"M", "65537"}}), "f:1: r: M: the product is too large"},
      {LineOf(TreeOfThree(), {{"leaves_of_common_subtree", "[3,3,2]"}}), "no error: failed "},
      {LineOf(TreeOfThree(), {{"tree", "\"(0+(1+2))\""}}), "no error: failed "},
      {LineOf(TreeOfThree(), {{"what", R"("torch.dot")"}}), "no error: skipped "},
      {LineOf(TreeOfThree(), {{"n", "0"}}), "f:1: r: n: expected 1 to 1024 products"},
      {LineOf(TreeOfThree(), {{"n", "4"}}), "f:1: r: leaves_of_common_subtree: has 3 entries"},
      {LineOf(TreeOfThree(), {{"M", "1"}, {"N", "1"}, {"K", "65537"}, {"dtype", R"("f16")"}}),
       "f:1: r: K: the sum is too long"},
  };
  for (const auto& [line, expected] : table) {
    const std::string error = ErrorOf(line);
    EXPECT_TRUE(error.starts_with(expected)) << line << "\n  " << error;
  }
}

TEST(GoldenJudgeTest, LyingRecordsOfObserversAreRefused) {
  const std::string start =
      R"({"id":"r","backend":"pytorch-1.13.1","op":"observer","observer":"MinMaxObserver",)";
  const std::string end = R"("scale":["0x1p+0"],"zp":[0]})";
  const auto error = [&](const std::string& fields) -> std::string {
    try {
      const Verdict verdict = JudgeText(start + fields + end).verdict;
      return std::string(Name(verdict.judgement)) + " " + verdict.reason;
    } catch (const InputError& caught) {
      return caught.what();
    }
  };
  const std::string reduce = R"("reduce_range":0,)";
  EXPECT_EQ(error(reduce + R"("batches":[["0x0p+0","0x1.fep+7"],["0x1p+0"]],)"), "passed ");
  EXPECT_TRUE(error(reduce + R"("batches":[["0x0p+0","0x1p+7"]],)").starts_with("failed"));
  for (const auto& [fields, expected] : std::vector<std::pair<std::string, std::string>>{
           {R"("batches":[["0x1p+0"]],)", "f:1: r: reduce_range: missing"},
           {R"("reduce_range":2,"batches":[["0x1p+0"]],)", "f:1: r: reduce_range: expected"},
           {reduce + R"("batches":[],)", "f:1: r: batches: must not be empty"},
           {reduce + R"("batches":[["0x1p+0"],[]],)", "f:1: r: x: must not be empty"},
           {reduce + R"("batches":["0x1p+0"],)", "f:1: r: batches: expected a list of lists"},
           {reduce + R"("batches":[["inf"]],)", "f:1: r: x: has a value that is not finite"},
           {reduce + R"("batches":[["0x1p+0"]],"dtype":"f32",)", "f:1: r: dtype: expected u8"},
           {reduce + R"("batches":[["0x1p+0"]],"qscheme":"odd",)", "f:1: r: qscheme: expected"},
           {reduce + R"("batches":[["0x1p+0"]],"quant_max":256,)", "f:1: r: quant_max: outside"},
           {reduce + R"("batches":[["0x1p+0"]],"quant_min":9,"quant_max":8,)",
            "f:1: r: quant_min: expected"}}) {
    EXPECT_TRUE(error(fields).starts_with(expected)) << fields << "\n  " << error(fields);
  }
}

TEST(GoldenJudgeTest, CasesCarryWhatWasRecorded) {
  const GoldenRecord record = RecordOf(Line({}));
  ASSERT_TRUE(GoldenHasCase(record));
  const Case c = GoldenCase(record);
  EXPECT_EQ(Validate(c), "");
  ASSERT_TRUE(c.observed.has_value());
  EXPECT_EQ(c.observed->by, "fbgemm@71d6f8b avx2");
  EXPECT_EQ(c.observed->y.IntAt(0), 32);
  EXPECT_EQ(c.note, "recorded as r");
  const auto observed = [](const Fields& changes) {
    return GoldenCase(RecordOf(Line(changes))).observed;
  };
  EXPECT_EQ(observed({{"isa", ""}})->by, "fbgemm@71d6f8b");
  EXPECT_EQ(observed({{"y", ""}}), std::nullopt);
  // The output of a case comes before those of other instruction sets.
  EXPECT_EQ(observed({{"y_avx2", "[7]"}})->y.IntAt(0), 32);
  EXPECT_EQ(observed({{"y", ""}, {"y_avx2", "[7]"}})->y.IntAt(0), 7);
  const GoldenRecord other = RecordOf(Line({{"op", R"("transpose")"}}));
  EXPECT_FALSE(GoldenHasCase(other));
  EXPECT_THROW(GoldenCase(other), InputError);
}

}  // namespace
}  // namespace qualm
