// SPDX-License-Identifier: Apache-2.0
// qualm explain MODEL, as users start it: exact, against recorded values, and, where they are
// installed, against ONNX Runtime and LiteRT.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/io/npy.h"
#include "core/rng.h"
#include "models/model_writer_test_util.h"
#include "models/tflite_writer_test_util.h"
#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

using models::test::Attribute;
using models::test::ModelWriter;
using test::Json;
using Shape = std::vector<int64_t>;

Tensor Random(DType dtype, Shape shape, uint64_t seed, int32_t low, int32_t high) {
  Rng rng(seed);
  Tensor tensor(dtype, std::move(shape));
  for (int64_t i = 0; i < tensor.size(); ++i)
    tensor.SetInt(i, static_cast<int32_t>(rng.Between(low, high)));
  return tensor;
}

// What a quantizer makes of Conv, Relu, AveragePool, a residual Add, Flatten and Gemm: each
// operator between DequantizeLinear and QuantizeLinear; at the end a float Softmax.
class Qdq {
 public:
  Qdq() {
    model_.Input("x", graph::kFloat, {1, 3, 8, 8}).Scale("x", 0.03f, DType::kU8, 120);
    model_.Scale("p", 0.02f, DType::kU8, 0).Scale("f", 0.1f, DType::kU8, 128);
    Quantize("x", "xq", "x");
    Conv("xq", "x", "conv1", "c1", 3);
    Conv("c1", "p", "conv2", "c2", 4);
    Dequantize("c1", "p", "c1r");
    Dequantize("c2", "p", "c2r");
    model_.Node("Add", {"c1r", "c2r"}, {"sum"});
    Quantize("sum", "s", "p");
    Dequantize("s", "p", "sr");
    model_.Node("AveragePool", {"sr"}, {"ar"},
                {{"kernel_shape", Shape{2, 2}}, {"strides", Shape{2, 2}}});
    Quantize("ar", "a", "p");
    Dequantize("a", "p", "a2");
    model_.Node("Flatten", {"a2"}, {"flat"});
    Quantize("flat", "fq", "p");
    Dequantize("fq", "p", "f2");
    model_.Constant("g", Random(DType::kS8, {5, 4 * 16}, 9, -127, 127));
    model_.Scale("g", 0.004f, DType::kS8, 0);
    Dequantize("g", "g", "gr");
    model_.Node("Gemm", {"f2", "gr"}, {"fc"}, {{"transB", int64_t{1}}});
    Quantize("fc", "y", "f");
    Dequantize("y", "f", "logits");
    model_.Node("Softmax", {"logits"}, {"p"}, {{"axis", int64_t{1}}}).Output("p");
  }
  std::string Text() const { return model_.Text(); }

 private:
  void Quantize(const std::string& x, const std::string& y, const std::string& q) {
    model_.Node("QuantizeLinear", {x, q + "_s", q + "_z"}, {y});
  }
  void Dequantize(const std::string& x, const std::string& q, const std::string& y) {
    model_.Node("DequantizeLinear", {x, q + "_s", q + "_z"}, {y});
  }
  // 3 by 3, four channels, and Relu.
  void Conv(const std::string& x, const std::string& q, const std::string& name,
            const std::string& y, uint64_t seed) {
    const int64_t in = x == "xq" ? 3 : 4;
    model_.Constant(name, Random(DType::kS8, {4, in, 3, 3}, seed, -127, 127));
    model_.Scale(name, 0.003f, DType::kS8, 0);
    const float product = (x == "xq" ? 0.03f : 0.02f) * 0.003f;
    model_.Scale(name + "b", product, DType::kS32, 0);
    model_.Constant(name + "b", Random(DType::kS32, {4}, seed + 10, -5000, 5000));
    Dequantize(x, q, name + "x");
    Dequantize(name, name, name + "w");
    model_.Node("DequantizeLinear", {name + "b", name + "b_s"}, {name + "br"});
    model_.Node("Conv", {name + "x", name + "w", name + "br"}, {name + "c"},
                {{"kernel_shape", Shape{3, 3}}, {"pads", Shape{1, 1, 1, 1}}});
    model_.Node("Relu", {name + "c"}, {name + "r"});
    Quantize(name + "r", y, "p");
  }

  ModelWriter model_;
};

class ExplainModel : public QualmTest {
 protected:
  // Whether ONNX Runtime is installed; what the command says where it is not.
  std::string Absent(const Ran& ran) {
    const size_t at = ran.out.find("exact results alone: ");
    return at == std::string::npos ? "" : ran.out.substr(at, ran.out.find('\n', at) - at);
  }
  static const Json& Layer(const Json& model, const std::string& value) {
    for (const Json& layer : model["layers"]) {
      if (layer["value"] == value) return layer;
    }
    ADD_FAILURE() << "no layer makes " << value;
    return model["layers"][0];
  }
};

TEST_F(ExplainModel, ExactLayerByLayer) {
  Write("net.onnx", Qdq().Text());
  const Ran ran = Qualm(0, {"explain", "net.onnx", "--no-runtime", "--json", "r.json"});
  EXPECT_TRUE(Has(ran.out, "exact, layer by layer\n"));
  EXPECT_TRUE(Has(ran.out, "not run: operator Softmax\n"));
  EXPECT_TRUE(Has(ran.out, "output p: not known\n"));
  EXPECT_TRUE(Has(ran.out, "random, -3.6 to 4.05, the range of its QuantizeLinear (--seed 1)"));
  const Json model = ReadJson("r.json")["model"];
  EXPECT_EQ(Layer(model, "c1")["op"], "conv2d");
  EXPECT_EQ(Layer(model, "c1")["operators"], "Conv, Relu, QuantizeLinear");
  EXPECT_EQ(Layer(model, "s")["op"], "add");
  EXPECT_EQ(Layer(model, "a")["op"], "avg_pool");
  EXPECT_EQ(Layer(model, "y")["op"], "linear");
  EXPECT_EQ(Layer(model, "y")["output"], "u8 [1,5]");
  EXPECT_EQ(Layer(model, "p")["not_run"], "operator Softmax");
}

TEST_F(ExplainModel, RecordedValuesAreJudgedAndBecomeCases) {
  Write("net.onnx", Qdq().Text());
  Write("s.npy", NpyOf(Tensor(DType::kU8, {1, 4, 8, 8})));
  const Ran ran = Qualm(1, {"explain", "net.onnx", "--no-runtime", "--observed", "s=s.npy", "-o",
                            "cases", "--json", "r.json"});
  EXPECT_TRUE(Has(ran.out, "NO KNOWN ARITHMETIC, on exact inputs"));
  const Json layer = Layer(ReadJson("r.json")["model"], "s");
  EXPECT_EQ(layer["wrong"], true);
  EXPECT_EQ(layer["on_own_inputs"], false);
  ASSERT_EQ(layer["cases"].size(), 1u);
  const std::string file = layer["cases"][0];
  const Ran explained = Qualm(1, {"explain", file});
  EXPECT_TRUE(Has(explained.out, "observed (observed)"));
  // With the inputs that they had, the layer stands alone.
  Write("c.npy", NpyOf(Tensor(DType::kU8, {1, 4, 8, 8})));
  const Ran own = Qualm(1, {"explain", "net.onnx", "--no-runtime", "--observed", "s=s.npy",
                            "--observed", "c1=c.npy", "--observed", "c2=c.npy", "--json", "-"});
  const Json again = Layer(Document(own)["model"], "s");
  EXPECT_EQ(again["not_exact"], 0);
  EXPECT_EQ(again["on_own_inputs"], true);
}

TEST_F(ExplainModel, NoVerdictWithoutAJudge) {
  Write("net.onnx", Qdq().Text());
  Write("p.npy", NpyOf(Tensor(DType::kF32, {1, 5})));
  const Ran ran = Qualm(2, {"explain", "net.onnx", "--no-runtime", "--observed", "p=p.npy"});
  EXPECT_TRUE(Has(ran.out, "exact, layer by layer\n") || Has(ran.out, "observed, layer by layer"));
  EXPECT_EQ(Lines(ran.err).back(), "qualm: nothing was judged: operator Softmax");
}

// The error of a layer in parts, in JSON and as a page with bars.
TEST_F(ExplainModel, APageShowsEachErrorInParts) {
  Write("net.onnx", Qdq().Text());
  Write("s.npy", NpyOf(Tensor(DType::kU8, {1, 4, 8, 8})));
  const Ran ran = Qualm(1, {"explain", "net.onnx", "--no-runtime", "--observed", "s=s.npy",
                            "--page", "net.html", "--json", "r.json"});
  EXPECT_TRUE(Has(ran.out, "page: net.html"));
  const Json error = Layer(ReadJson("r.json")["model"], "s")["error"];
  EXPECT_EQ(error["reference"], "operands");
  // Every code is 0: what is exact is the error.
  EXPECT_GT(error["kernel"]["rms"], 1);
  EXPECT_LT(error["quantization"]["rms"], error["kernel"]["rms"]);
  EXPECT_LT(error["sqnr_db"], 1);
  const std::string page = Read("net.html");
  EXPECT_TRUE(Has(page, "1 WRONG: Add_sum")) << page.substr(0, 2000);
  EXPECT_TRUE(Has(page, "error of 1 layer: quantization beside the error of the kernel"));
  EXPECT_TRUE(Has(page, "histogram of "));
  ExpectBadInput({"explain", "net.onnx", "--no-runtime", "--page", "no/net.html"},
                 "--page: no/net.html");
}

class OfOnnxruntime : public ExplainModel, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Packages, OfOnnxruntime, testing::Values("onnxruntime", "onnxruntime@npm"),
                         [](const auto& package) { return package.index == 0 ? "wheel" : "npm"; });
TEST_P(OfOnnxruntime, IsJudgedLayerByLayer) {
  Write("net.onnx", Qdq().Text());
  const Ran ran =
      Qualm({"explain", "net.onnx", "--seed", "3", "--json", "r.json", "--runtime", GetParam()});
  if (const std::string why = Absent(ran); !why.empty()) GTEST_SKIP() << why;
  ASSERT_LE(ran.status, 1) << ran.err;
  const Json model = ReadJson("r.json")["model"];
  EXPECT_EQ(model["by"].get<std::string>().substr(0, 13), "ONNX Runtime ");
  for (const char* value : {"xq", "c1", "c2", "s", "a", "fq", "y"}) {
    const Json& layer = Layer(model, value);
    EXPECT_TRUE(layer.contains("outputs")) << value << " " << layer.dump();
    EXPECT_EQ(layer.value("wrong", true), false) << value << " " << layer.dump();
    EXPECT_EQ(layer.value("on_own_inputs", false), true) << value;
  }
  EXPECT_EQ(Layer(model, "p")["ran_by"], model["by"]);
  EXPECT_EQ(model["outputs"][0]["compared"], true);
}

// A folder of libraries that has the npm package alone.
TEST_F(ExplainModel, TheNpmPackageRunsModelsWhereNoWheelIs) {
  Write("net.onnx", Qdq().Text());
  const Ran npm = Qualm({"explain", "net.onnx", "--runtime", "onnxruntime@npm"});
  if (const std::string why = Absent(npm); !why.empty()) GTEST_SKIP() << why;
  const std::string own = "QUALM_CACHE_DIR=" + (folder() / "cache").string();
  EXPECT_TRUE(Has(Qualm({"explain", "net.onnx"}, {own}).out,
                  "exact results alone: the Python package onnxruntime not found"));
  Shell(
      "mkdir cache && ln -s \"${QUALM_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/qualm}/"
      "onnxruntime-node\" cache");
  const Ran ran = Qualm({"explain", "net.onnx"}, {own});
  EXPECT_EQ(ran.out, npm.out);
}

// Each layer on what the subject gave for those before.
TEST_F(ExplainModel, ASubjectAnswersTheLayers) {
  Write("net.onnx", Qdq().Text());
  const auto explain = [&](int status, const std::string& subject) {
    return Qualm(status, {"explain", "net.onnx", "--no-runtime", "--subject", subject, "--json",
                          "r.json", "-o", "cases"});
  };
  const Ran ours = explain(0, "native");
  EXPECT_TRUE(Has(ours.out, "native, layer by layer, each on its own inputs"));
  EXPECT_TRUE(Has(ours.out, "of 8 layers: 8 exact; 1 node not run.")) << ours.out;
  EXPECT_EQ(ReadJson("r.json")["model"]["by"], "native");

  // Pairs saturate in the convolutions; of the rest the exact outputs go on.
  const Ran theirs = explain(1, "model:fbgemm@avx2");
  const Json model = ReadJson("r.json")["model"];
  EXPECT_EQ(Layer(model, "c1")["arithmetic"][0], "fbgemm@avx2");
  EXPECT_GT(Layer(model, "c1")["not_exact"], 0);
  EXPECT_EQ(Layer(model, "c2")["on_own_inputs"], true);
  EXPECT_EQ(Layer(model, "a")["not_judged"],
            "model:fbgemm@avx2 does not run it: this convention has no avg_pool");
  EXPECT_TRUE(Has(theirs.out, "did not answer the exact outputs go on"));
  EXPECT_TRUE(Has(theirs.out, " not judged; 1 node not run."));
  const std::string file = Layer(model, "c1")["cases"][0];
  EXPECT_TRUE(Has(theirs.out, "qualm explain " + file + " --subject model:fbgemm@avx2"));
  EXPECT_TRUE(Has(Qualm(1, {"explain", file, "--subject", "model:fbgemm@avx2"}).out, "* pair k="));

  // A mistake that no convention makes is explained.
  const Ran wrong = explain(1, "faulty:padding-is-code-zero");
  EXPECT_TRUE(Has(wrong.out, "NO KNOWN ARITHMETIC"));
  EXPECT_TRUE(Has(wrong.out, "Conv_conv1c: the subject fills the padding with code 0"));

  // Whoever answers nothing is not judged, end to end neither.
  const Ran none = explain(2, "faulty:taps-int16");
  EXPECT_FALSE(Has(none.out, "end to end")) << none.out;
  EXPECT_TRUE(Has(Lines(none.err).back(), "nothing was judged: faulty:taps-int16 does not run it"));

  Write("s.npy", NpyOf(Tensor(DType::kU8, {1, 4, 8, 8})));
  ExpectBadInput({"explain", "net.onnx", "--subject", "native", "--subject", "model:fbgemm@avx2"},
                 "--subject: are 2, expected one to answer the layers of a model");
  ExpectBadInput({"explain", "net.onnx", "--subject", "native", "--observed", "s=s.npy"},
                 "--observed: is what somebody gave, expected no --subject");
}

// A convolution, a depthwise one with a residual, a pool, a dense layer and a softmax of s8 codes;
// and a sum of 16 bits, which no case says.
std::string LiteNet() {
  using models::test::FlatTable;
  using models::test::LiteQ;
  models::test::TfliteWriter model;
  const LiteQ x_q{{0.03f}, {-5}}, h_q{{0.02f}, {-128}}, share{{0x1p-8f}, {-128}};
  const auto window = [](int64_t activation_at) {
    FlatTable options;
    options.Number(0, int8_t{0}).Number(1, 1).Number(2, 1);
    return options.Number(static_cast<int>(activation_at), int8_t{1});
  };
  const auto bias = [&](const std::string& name, int64_t n, float scale) {
    return model.Constant(name, Random(DType::kS32, {n}, 7, -3000, 3000), {{scale}, {0}});
  };
  const auto s8 = [&](const std::string& name, const std::vector<int32_t>& shape, const LiteQ& q) {
    return model.Tensor(name, models::test::kLiteInt8, shape, q);
  };
  const int32_t x = s8("x", {1, 8, 8, 3}, x_q), c = s8("c", {1, 8, 8, 4}, h_q);
  const int32_t d = s8("d", {1, 8, 8, 4}, h_q), r = s8("r", {1, 8, 8, 4}, h_q);
  const int32_t p = s8("p", {1, 4, 4, 4}, h_q), f = s8("f", {1, 5}, {{0.1f}, {0}});
  const int32_t y = s8("y", {1, 5}, share);
  const Tensor cw = Random(DType::kS8, {4, 3, 3, 3}, 1, -127, 127);
  const Tensor dw = Random(DType::kS8, {1, 3, 3, 4}, 2, -127, 127);
  const Tensor fw = Random(DType::kS8, {5, 64}, 3, -127, 127);
  model.Op(3, {x, model.Constant("cw", cw, {{0.002f}, {0}}), bias("cb", 4, 0.03f * 0.002f)}, {c},
           models::test::kConv2dOptions, window(3), 3);
  FlatTable depthwise = window(4);
  depthwise.Number(3, 1);
  model.Op(4, {c, model.Constant("dw", dw, {{0.003f}, {0}}), bias("db", 4, 0.02f * 0.003f)}, {d},
           models::test::kDepthwiseOptions, depthwise, 3);
  model.Op(0, {c, d}, {r}, models::test::kAddOptions, FlatTable().Number(0, int8_t{0}), 2);
  FlatTable pool;
  pool.Number(0, int8_t{1}).Number(1, 2).Number(2, 2).Number(3, 2).Number(4, 2);
  model.Op(1, {r}, {p}, models::test::kPoolOptions, pool, 2);
  model.Op(9, {p, model.Constant("fw", fw, {{0.004f}, {0}}), bias("fb", 5, 0.02f * 0.004f)}, {f},
           models::test::kFullyConnectedOptions, FlatTable().Number(0, int8_t{0}), 4);
  model.Op(25, {f}, {y}, models::test::kSoftmaxOptions, FlatTable().Number(0, 1.0f), 2);
  const LiteQ wide{{0.001f}, {0}};
  const int32_t a = model.Tensor("a", models::test::kLiteInt16, {1, 5}, wide);
  const int32_t b = model.Tensor("b", models::test::kLiteInt16, {1, 5}, wide);
  model.Op(0, {a, a}, {b}, models::test::kAddOptions, FlatTable().Number(1, int8_t{0}), 2);
  return model.Inputs({x, a}).Outputs({y, b}).Text();
}

TEST_F(ExplainModel, LitertIsJudgedLayerByLayer) {
  Write("net.tflite", LiteNet());
  for (const std::string runtime : {"tflite", "tflite@builtin", "tflite@reference"}) {
    SCOPED_TRACE(runtime);
    const Ran ran = Qualm({"explain", "net.tflite", "--runtime", runtime, "--json", "r.json"});
    if (const std::string why = Absent(ran); !why.empty()) GTEST_SKIP() << why;
    ASSERT_LE(ran.status, 1) << ran.err;
    const Json model = ReadJson("r.json")["model"];
    EXPECT_EQ(model["by"].get<std::string>().substr(0, 7), "LiteRT ") << ran.out;
    for (const char* value : {"c", "d", "r", "p", "f", "y"}) {
      const Json& layer = Layer(model, value);
      EXPECT_TRUE(layer.contains("outputs")) << value << " " << layer.dump();
      EXPECT_EQ(layer.value("wrong", true), false) << value << " " << layer.dump();
      EXPECT_EQ(layer.value("on_own_inputs", false), true) << value;
    }
    EXPECT_EQ(Layer(model, "b")["ran_by"], model["by"]);
    EXPECT_EQ(Layer(model, "b")["no_layer"], "a is of int16, expected int8 or uint8");
    EXPECT_EQ(model["outputs"][0]["compared"], true);
  }
}

TEST_F(ExplainModel, RefusesInOneLine) {
  Write("net.onnx", Qdq().Text());
  Write("x.npy", NpyOf(Tensor(DType::kF32, {1, 3, 8, 9})));
  ExpectBadInput({"explain", "net.onnx", "--input", "x"},
                 "--input: is \"x\", expected NAME=FILE.npy or NAME=FILE.pb");
  Write("x.pb", std::string("\x08\x02\x08\x03\x10\x01", 6) + std::string("\x4A\x04\0\0\0\0", 6));
  ExpectBadInput({"explain", "net.onnx", "--input", "x=x.pb"}, "x.pb: array: ");
  // A TensorProto of the right shape: dims, data_type, raw_data of 768 bytes.
  Write("fits.pb", std::string("\x08\x01\x08\x03\x08\x08\x08\x08\x10\x01\x4A\x80\x06") +
                       std::string(768, '\0'));
  Qualm(0, {"explain", "net.onnx", "--no-runtime", "--input", "x=fits.pb"});
  Write("bad.pb", "no message");
  ExpectBadInput({"explain", "net.onnx", "--input", "x=bad.pb"}, "bad.pb: ");
  ExpectBadInput({"explain", "net.onnx", "--input", "z=x.npy"},
                 "--input: the model has no input \"z\", expected one of its names");
  ExpectBadInput({"explain", "net.onnx", "--input", "x=x.npy"},
                 "net.onnx: --input x: is float [1,3,8,9], expected float [1,3,8,8]");
  ExpectBadInput({"explain", "net.onnx", "--no-runtime", "--observed", "s=x.npy"},
                 "net.onnx: --observed s: is f32 [1,3,8,9], expected u8 [1,4,8,8]");
  ExpectBadInput({"explain", "net.onnx", "--observed", "x=x.npy"},
                 "--observed: the model has no value \"x\"");
  ExpectBadInput({"explain", "net.onnx", "--at", "3"}, "--at, --ask, --emit");
  ExpectBadInput({"explain", Corpus("forum/004-add.case.json"), "--no-runtime"},
                 "--input, --observed, --runtime, --page and --no-runtime are about a model");
  ExpectBadInput({"explain", Corpus("forum/004-add.case.json"), "-o", "x"},
                 "--output: is for --emit, expected --emit KIND too");
  Write("bad.onnx", "\x0F");
  ExpectBadInput({"explain", "bad.onnx"}, "bad.onnx: file: is no ONNX model");
  Write("bad.tflite", "TFL3");
  ExpectBadInput({"explain", "bad.tflite"}, "bad.tflite: file: is no TensorFlow Lite model");
  Write("net.tflite", LiteNet());
  ExpectBadInput(
      {"explain", "net.tflite", "--runtime", "onnxruntime"},
      "--runtime: is \"onnxruntime\", expected tflite, tflite@builtin, tflite@reference");
  Write("empty.onnx", "");
  ExpectBadInput({"explain", "empty.onnx"}, "empty.onnx: file: has no nodes, expected a model");
}

}  // namespace
}  // namespace qualm::tools
