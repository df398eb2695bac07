// SPDX-License-Identifier: Apache-2.0
// Numbers as people have them: printed digits, unknown numbers, decimals on the screen, files of
// weights given to a verb that reads cases.
#include <regex>
#include <string>
#include <vector>

#include "core/io/json_schema_test_util.h"
#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

using test::Json;

class NumbersOfPeople : public QualmTest {
 protected:
  // A file in the folder; its name.
  std::string Named(const std::string& name, const std::string& text) {
    Write(name, text);
    return name;
  }
  // requantize of 1000 and 3000, observed 16 and `second`.
  std::string Requantize(const std::string& multiplier, int second) {
    return Named("layer.case.json",
                 R"({"qualm_case": 1, "op": "requantize", "M": 2, "N": 1, "multiplier": )" +
                     multiplier + R"(, "out_zp": 0, "x": [1000, 3000],
                     "observed": {"by": "somebody", "y": [16, )" +
                     std::to_string(second) + "]}}");
  }
  bool Fits(const Json& document) {
    test::JsonSchema schema(test::ReadJsonFile(QUALM_SOURCE_DIR "/core/io/result.schema.json"));
    const std::string error = schema.Check(document);
    EXPECT_EQ(error, "");
    return error.empty();
  }
};

// 3 * 0.01616 = 48.48, and 0.0162 as printed makes 48.6.
TEST_F(NumbersOfPeople, PrintedDigitsComeFirst) {
  for (const auto& [multiplier, option] : std::vector<std::pair<std::string, std::string>>{
           {R"("0.0162~")", ""}, {"0.0162", "--as-printed"}}) {
    std::vector<std::string> arguments{"explain", Requantize(multiplier, 48)};
    if (!option.empty()) arguments.push_back(option);
    const Ran ran = Qualm(1, arguments);
    EXPECT_TRUE(Begins(
        ran.out,
        "observed (somebody):\n"
        "  within the printed digits the answer is exact, so its difference shows no fault:\n"
        "    with multiplier between 0.016150001 and 0.016166667 (printed 0.0162)\n"
        "requantize M=2 N=1 s32->u8 per-tensor multiplier\n"));
    // The case that a finding keeps is printed too.
    arguments.insert(arguments.end(), {"--json", "-"});
    const Json document = Document(Qualm(arguments));
    EXPECT_TRUE(Fits(document));
    EXPECT_EQ(document["layers"][0]["exact_within_printed_digits"], true);
    EXPECT_EQ(document["layers"][0]["wrong"], false);
  }
  // Nothing is taken for printed unless somebody says so.
  EXPECT_FALSE(Has(Qualm({"explain", Requantize("0.0162", 48)}).out, "printed"));
  EXPECT_NE(
      Qualm({"explain", Requantize(R"("0.0162~")", 40)})
          .out.find("  no numbers within the printed digits make the answer exact: output 1 is "
                    "48 to 49 with all of them, not 40\n"),
      std::string::npos);
}

// A scale of three digits may have been copied from a screen; 2^-6 is what it is.
TEST_F(NumbersOfPeople, AWrongAnswerOfShortScalesAsksForTheDigits) {
  EXPECT_TRUE(
      Has(Qualm({"explain", Requantize("0.0162", 40)}).out, "layer.case.json --as-printed"));
  EXPECT_FALSE(Has(Qualm({"explain", Requantize("0.015625", 40)}).out, "--as-printed"));
}

TEST_F(NumbersOfPeople, AFolderCallsNoAnswerWithinTheDigitsWrong) {
  Requantize(R"("0.0162~")", 48);
  const Ran within = Qualm({"explain", "."});
  EXPECT_TRUE(Has(within.out, "of 1 layer: 0 exact, 1 exact within the printed digits."));
  Qualm(0, {"replay", "layer.case.json", "-s", "native"});
  Requantize("0.0162", 48);
  EXPECT_TRUE(Has(Qualm({"explain", "."}).out, "1 not exact in a known way"));
  EXPECT_TRUE(Has(Qualm({"explain", ".", "--as-printed"}).out, "exact within the printed"));
}

TEST_F(NumbersOfPeople, AnUnknownNumberIsSolved) {
  const std::string file = Requantize(R"("?")", 48);
  const Ran ran = Qualm(0, {"identify", "--solve", file});
  // 47.5 / 3000 to 48.5 / 3000, and 15.5 to 16.5 thousandths; half to even takes the ends of 16
  // and 48.
  EXPECT_EQ(Lines(ran.out)[0], "layer.case.json: requantize M=2 N=1 s32->u8 per-tensor multiplier");
  EXPECT_EQ(Lines(ran.out)[1], "  observed (somebody): what it tells of the unknown numbers:");
  EXPECT_TRUE(Begins(Lines(ran.out)[2], "    multiplier: these: 0.015833335 to 0.016166667 (exact"))
      << ran.out;
  const Json document = Document(Qualm({"identify", "--solve", file, "--json", "-"}));
  EXPECT_TRUE(Fits(document));
  const Json& question = document["solve"][0]["questions"][0];
  EXPECT_EQ(question["numbers"], Json({"multiplier"}));
  EXPECT_EQ(question["solutions"][0]["arithmetics"][0], "exact");
  EXPECT_EQ(question["solutions"][0]["unique"], false);

  const std::string both = Write(
      "both.case.json",
      R"({"qualm_case": 1, "op": "requantize", "M": 2, "N": 1, "multiplier": "?", "out_zp": "?",
          "x": [1000, 3000], "observed": {"by": "somebody", "y": [16, 48]}})");
  const Ran two = Qualm({"identify", "--solve", both, "--convention", "exact"});
  EXPECT_TRUE(Has(two.out, "multiplier, out_zp: these: multiplier "));
  EXPECT_TRUE(Has(two.out, " with out_zp 0"));
}

// Each number in turn: twice the multiplier, or a zero point that both outputs share.
TEST_F(NumbersOfPeople, ANumberThatIsWrongIsFound) {
  const Ran twice = Qualm(0, {"identify", "--solve", Requantize("0.008", 48)});
  EXPECT_TRUE(Has(twice.out, "as written not exact; one number at a time, all else as written:\n"));
  EXPECT_TRUE(Has(twice.out, "0.016166667; 2^1 times what is written is one (exact)\n"));
  EXPECT_TRUE(Has(twice.out, "    out_zp: none\n"));
  // 16 and 51 are 35 apart, which a multiplier of 0.0175 makes, but not 16 of 1000.
  const Ran none = Qualm(1, {"identify", "--solve", Requantize("0.016", 251), "--json", "r.json"});
  EXPECT_FALSE(Has(Qualm({"identify", "--solve", Requantize("0.016", 48)}).out, "not exact"));
}

TEST_F(NumbersOfPeople, WhatCannotBeSolvedIsOneLine) {
  ExpectBadInput({"explain", Requantize(R"("?")", 48)},
                 "layer.case.json: multiplier: is unknown (\"?\"), expected a number; qualm "
                 "identify --solve looks for it");
  ExpectBadInput({"identify", Requantize(R"("?")", 48)}, "layer.case.json: multiplier: is unknown");
  const std::string table = R"({"qualm_case": 1, "op": "table", "function": "tanh", "M": 1, "N": 1,
      "x_scale": "?", "x_zp": 0, "out_scale": 1, "out_zp": 0, "x": [1])";
  ExpectBadInput({"identify", "--solve", Named("t.case.json", table + "}")},
                 "t.case.json: observed: is missing");
  ExpectBadInput({"identify", "--solve",
                  Named("t.case.json", table + R"(, "observed": {"by": "me", "y": [1]}})")},
                 "t.case.json: x_scale: is unknown (\"?\"), and the outputs of this case do not");
  ExpectBadInput(
      {"identify", "--solve",
       Named("two.case.json",
             R"({"qualm_case": 1, "op": "rescale", "M": 1, "N": 1, "x_scale": "?", "x_zp": 0,
                 "out_scale": "?", "out_zp": 0, "x": [1], "observed": {"by": "me", "y": [1]}})")},
      "two.case.json: x_scale: is not the only unknown scale");
  // Cases in which there is nothing to look for.
  ExpectBadInput(
      {"identify", "--solve",
       Named("real.case.json",
             R"({"qualm_case": 1, "op": "linear", "M": 1, "N": 1, "K": 1, "x_dtype": "f32",
                 "w_dtype": "s8", "out_dtype": "f32", "w_scale": 1, "w_zp": 0, "x": [1.0],
                 "w": [2], "observed": {"by": "me", "y": [3.0]}})")},
      "real.case.json: x_dtype: no number is looked for in linear of f32 x");
  ExpectBadInput({"identify", "--solve",
                  Named("cast.case.json",
                        R"({"qualm_case": 1, "op": "cast", "M": 1, "N": 1, "x_dtype": "f32",
                 "out_dtype": "f16", "x": [1.0], "observed": {"by": "me", "y": [2.0]}})")},
                 "cast.case.json: op: cast has no scale, zero point or bound");
  ExpectBadInput({"identify", "--solve"}, "--solve is about case files alone");
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{"-s", "native"},
                                             {"layer.case.json", "--contract", "exact"},
                                             {"layer.case.json", "--op", "add"},
                                             {"layer.case.json", "-o", "folder"}}) {
    std::vector<std::string> arguments{"identify", "--solve"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    ExpectBadInput(arguments, "--solve is about case files alone");
  }
}

// Every hex float of the screen has its decimal beside it; files keep the bits alone.
TEST_F(NumbersOfPeople, DecimalsStandBesideHexFloats) {
  const std::string file =
      Write("q.case.json",
            R"({"qualm_case": 1, "op": "choose_qparams", "batches": 1, "M": 1, "N": 2,
          "observer": "min_max", "x": [-1, 1]})");
  const Ran ran = Qualm({"explain", file, "--at", "0", "-s", "native", "--json", "r.json"});
  EXPECT_TRUE(Has(ran.out, "output [0, 0] (index 0), exact: 0x1.010102p-7 (0.007843138)\n"));
  EXPECT_TRUE(Has(ran.out, "(1 - -1) / 255 = 0.007843138\n"));
  const std::regex bare("0x[0-9a-f.]+p[+-][0-9]+(?! \\()");
  EXPECT_FALSE(std::regex_search(ran.out, bare)) << ran.out;
  EXPECT_TRUE(Has(ReadJson("r.json")["explanation"].get<std::string>(), "exact: 0x1.010102p-7\n"));
  const Ran zero_point = Qualm({"explain", file, "--at", "1"});
  EXPECT_TRUE(Has(zero_point.out, "round(-1 / 0.007843138 = -127.49999) = 127\n"));
}

TEST_F(NumbersOfPeople, WeightsGivenToAVerbThatReadsCases) {
  const std::string onnx = QUALM_SOURCE_DIR "/corpus/layers/model.onnx";
  const std::string npy = QUALM_SOURCE_DIR "/corpus/layers/fc.npy";
  for (const std::string& file : {onnx, npy}) {
    for (const std::vector<std::string>& arguments :
         std::vector<std::vector<std::string>>{{"identify", file},
                                               {"identify", "--solve", file},
                                               {"replay", file, "-s", "native"},
                                               {"minimize", file, "-s", "native"},
                                               {"sweep", file, "-s", "native"},
                                               {"hazards", file}}) {
      ExpectBadInput(arguments,
                     file +
                         (file == npy ? ": file: holds weights, expected a case file; "
                                      : ": file: holds a model, expected a case file; qualm "
                                        "explain runs its layers one by one; ") +
                         "qualm certify and qualm repair read weights");
    }
  }
  ExpectBadInput({"explain", npy}, npy + ": file: holds weights, expected a case file");
  EXPECT_FALSE(Has(Qualm({"explain", onnx, "--no-runtime"}).err, "holds a model"));
  ExpectBadInput({"check", onnx},
                 "OP: " + onnx +
                     " is a file, expected an operation; qualm "
                     "replay reads a case file, qualm explain a case file or a model");
  EXPECT_FALSE(Has(Qualm({"certify", npy}).err, "holds weights"));
  ExpectBadInput({"explain", Named("model.tflite", std::string("\x1c\0\0\0TFL3", 8))},
                 "model.tflite: file: is no TensorFlow Lite model (it ends too early)");
  ExpectBadInput({"certify", "model.tflite"},
                 "model.tflite: file: holds a model, expected a case file; qualm explain runs");
}

}  // namespace
}  // namespace qualm::tools
