// SPDX-License-Identifier: Apache-2.0
// Graphs as layers, layers as cases, and the run of a model: against cases that are written down
// here, and against each other where two graphs say the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/io/model_runtime.h"
#include "core/io/onnx_graph.h"
#include "core/rng.h"
#include "core/status.h"
#include "core/text_test_util.h"
#include "models/damaged_test_util.h"
#include "models/model_writer_test_util.h"
#include "models/nibbles_test_util.h"
#include "models/plan.h"
#include "models/run.h"
#include "oracles/exact/exact.h"

namespace qualm::models {
namespace {

using graph::Value;
using graph::Values;
using test::Attribute;
using test::ModelWriter;
using Shape = std::vector<int64_t>;

Tensor RandomCodes(DType dtype, Shape shape, uint64_t seed) {
  Rng rng(seed);
  Tensor codes(dtype, std::move(shape));
  const CodeRange range = RangeOf(dtype);
  for (int64_t i = 0; i < codes.size(); ++i)
    codes.SetInt(i, static_cast<int32_t>(rng.Between(range.min, range.max)));
  return codes;
}
Tensor Reals(Shape shape, std::vector<float> values) {
  return Tensor::Of<float>(std::move(shape), values);
}
Tensor Ints(Shape shape, std::vector<int32_t> values) {
  return Tensor::Of<int32_t>(std::move(shape), values);
}

ModelRun RunOn(const std::string& model, const Values& inputs, const Values& recorded = {},
               graph::ModelRuntime* runtime = nullptr) {
  const onnx::Graph graph(model, "m.onnx");
  ModelOptions options;
  options.inputs = inputs;
  options.recorded = recorded;
  options.by = "observed";
  options.runtime = runtime;
  return RunModel(graph, options);
}

std::vector<std::string> NamesOfLayers(const ModelRun& run) {
  std::vector<std::string> names;
  for (const Row& row : run.rows)
    names.push_back((row.op ? std::string(Name(*row.op)) : "-") + ": " + row.operators);
  return names;
}

Tensor TensorOf(const ModelRun& run, const std::string& name) {
  const auto at = run.values.find(name);
  EXPECT_NE(at, run.values.end()) << name;
  return at == run.values.end() ? Tensor() : at->second.tensor;
}

// x u8 [1,2,5,4], weights s8 [3,2,3,3] of one scale each, int32 biases, stride 2, padding, Relu.
struct ConvModel {
  Tensor x = RandomCodes(DType::kU8, {1, 2, 5, 4}, 1);
  Tensor w = RandomCodes(DType::kS8, {3, 2, 3, 3}, 2);
  Tensor w_scale = Reals({3}, {0.01f, 0.02f, 0.015f});
  Tensor w_zero = Tensor(DType::kS8, {3});
  Tensor bias = Ints({3}, {1000, -2000, 300});
  std::vector<Attribute> window{
      {"kernel_shape", Shape{3, 3}}, {"strides", Shape{2, 1}}, {"pads", Shape{1, 0, 1, 2}}};

  ModelWriter Constants(float bias_factor = 1) const {
    ModelWriter model;
    std::vector<float> scales;
    for (int i = 0; i < 3; ++i) scales.push_back(bias_factor * 0.5f * w_scale.FloatAt(i));
    model.Constant("w", w).Constant("w_s", w_scale).Constant("w_z", w_zero).Constant("b", bias);
    model.Constant("b_s", Reals({3}, scales)).Scale("x", 0.5f, DType::kU8, 121);
    return model.Scale("y", 0.25f, DType::kU8, 17).Input("x", graph::kUint8, {1, 2, 5, 4});
  }
  std::string Fused() const {
    return Constants()
        .Node("QLinearConv", {"x", "x_s", "x_z", "w", "w_s", "w_z", "y_s", "y_z", "b"}, {"y"},
              window)
        .Output("y")
        .Text();
  }
  std::string Qdq(bool relu, float bias_factor = 1) const {
    ModelWriter model = Constants(bias_factor);
    model.Node("DequantizeLinear", {"x", "x_s", "x_z"}, {"xr"})
        .Node("DequantizeLinear", {"w", "w_s", "w_z"}, {"wr"}, {{"axis", int64_t{0}}})
        .Node("DequantizeLinear", {"b", "b_s"}, {"br"}, {{"axis", int64_t{0}}})
        .Node("Conv", {"xr", "wr", "br"}, {"c"}, window);
    if (relu) model.Node("Relu", {"c"}, {"r"});
    return model.Node("QuantizeLinear", {relu ? "r" : "c", "y_s", "y_z"}, {"y"}).Output("y").Text();
  }
  Values Input() const { return {{"x", Value::Of(x)}}; }

  // The output in the order of the graph, [1,3,3,4].
  Tensor Expected(bool relu) const {
    Case c;
    c.op = Op::kConv2d;
    c.N = 3;
    c.window = {.batch = 1,
                .in_h = 5,
                .in_w = 4,
                .in_c = 2,
                .kernel_h = 3,
                .kernel_w = 3,
                .stride_h = 2,
                .stride_w = 1,
                .pad_top = 1,
                .pad_bottom = 1,
                .pad_left = 0,
                .pad_right = 2};
    DeriveSizes(&c);
    c.x = Tensor(DType::kU8, {1, 5, 4, 2});
    for (int64_t h = 0; h < 5; ++h)
      for (int64_t v = 0; v < 4; ++v)
        for (int64_t k = 0; k < 2; ++k)
          c.x.SetInt((h * 4 + v) * 2 + k, x.IntAt((k * 5 + h) * 4 + v));
    c.w = Tensor(DType::kS8, {3, 3, 3, 2});
    for (int64_t n = 0; n < 3; ++n)
      for (int64_t tap = 0; tap < 9; ++tap)
        for (int64_t k = 0; k < 2; ++k)
          c.w.SetInt((n * 9 + tap) * 2 + k, w.IntAt((n * 2 + k) * 9 + tap));
    c.x_q = {{0.5f}, {121}};
    c.w_q = {{0.01f, 0.02f, 0.015f}, {0, 0, 0}};
    c.per_channel = true;
    c.out_q = {{0.25f}, {17}};
    c.bias_i32.emplace(bias.as<int32_t>().begin(), bias.as<int32_t>().end());
    c.relu = relu;
    EXPECT_EQ(Validate(c), "");
    const Tensor y = exact::Evaluate(c);
    Tensor turned(DType::kU8, {1, 3, 3, 4});
    for (int64_t pixel = 0; pixel < 12; ++pixel)
      for (int64_t n = 0; n < 3; ++n) turned.SetInt(n * 12 + pixel, y.IntAt(pixel * 3 + n));
    return turned;
  }
};

TEST(Models, AQuantizedConvolutionAndItsGroupOfFloatNodesAreOneLayer) {
  const ConvModel conv;
  const ModelRun fused = RunOn(conv.Fused(), conv.Input());
  EXPECT_EQ(NamesOfLayers(fused), std::vector<std::string>{"conv2d: QLinearConv"});
  EXPECT_EQ(TensorOf(fused, "y"), conv.Expected(false));
  EXPECT_EQ(fused.rows[0].shape, "u8 [1,3,3,4]");
  const ModelRun group = RunOn(conv.Qdq(true), conv.Input());
  EXPECT_EQ(NamesOfLayers(group), std::vector<std::string>{"conv2d: Conv, Relu, QuantizeLinear"});
  EXPECT_EQ(TensorOf(group, "y"), conv.Expected(true));
  EXPECT_NE(conv.Expected(true), conv.Expected(false));
  EXPECT_EQ(TensorOf(RunOn(conv.Qdq(false), conv.Input()), "y"), conv.Expected(false));
}

// A bias with another scale than x_scale*w_scale means what its own scale says.
TEST(Models, ABiasOfAnotherScaleKeepsItsRealValue) {
  ConvModel conv;
  const Tensor twice = TensorOf(RunOn(conv.Qdq(false, 2), conv.Input()), "y");
  EXPECT_NE(twice, conv.Expected(false));
  conv.bias = Ints({3}, {2000, -4000, 600});
  EXPECT_EQ(twice, conv.Expected(false));
}

// A group whose output is read as reals too stays apart: nobody may fuse it.
TEST(Models, RealsThatSomebodyReadsAreNotFused) {
  const ConvModel conv;
  std::string model = conv.Qdq(false);
  const std::string shown = onnx::WithOutputs(model, {"c"});
  const ModelRun run = RunOn(shown, conv.Input());
  EXPECT_EQ(NamesOfLayers(run),
            (std::vector<std::string>{"conv2d: Conv", "quantize: QuantizeLinear"}));
  EXPECT_EQ(TensorOf(run, "c").dtype(), DType::kF32);
  EXPECT_EQ(run.ends.size(), 2u);
}

TEST(Models, OnlyOneRoundingDiffersFromNodeByNode) {
  // 0.5 * 3 = 1.5 and 2.5: both ties go to the even code.
  const std::string model = ModelWriter()
                                .Constant("x_s", Reals({}, {0.5f}))
                                .Constant("one", Reals({}, {1.0f}))
                                .Constant("z", Tensor(DType::kU8, {}))
                                .Input("x", graph::kUint8, {2})
                                .Node("DequantizeLinear", {"x", "x_s", "z"}, {"r"})
                                .Node("QuantizeLinear", {"r", "one", "z"}, {"y"})
                                .Output("y")
                                .Text();
  const ModelRun run =
      RunOn(model, {{"x", Value::Of(Tensor::Of<uint8_t>({2}, std::vector<uint8_t>{3, 5}))}});
  EXPECT_EQ(NamesOfLayers(run),
            std::vector<std::string>{"rescale: DequantizeLinear, QuantizeLinear"});
  EXPECT_EQ(TensorOf(run, "y"), Tensor::Of<uint8_t>({2}, std::vector<uint8_t>{2, 2}));
}

// ---- Every operator ----

struct Twin {
  const char* quantized;  // of com.microsoft, or of ONNX
  const char* real;
  const char* op;
  int operands;
  std::vector<Attribute> attributes;
  Shape shape = {1, 4, 6, 6};
  Shape second = {1, 4, 6, 6};
};

// The quantized operator and the group of float nodes are the same case.
TEST(Models, QuantizedOperatorsAreTheGroupsThatTheyStandFor) {
  const std::vector<Attribute> window{
      {"kernel_shape", Shape{3, 2}}, {"strides", Shape{2, 1}}, {"pads", Shape{1, 0, 1, 1}}};
  const std::vector<Twin> twins{
      {"QLinearAdd", "Add", "add", 2, {}},
      {"QLinearAdd", "Add", "add", 2, {}, {1, 4, 6, 6}, {4, 1, 1}},
      {"QLinearMul", "Mul", "mul", 2, {}},
      {"QLinearSigmoid", "Sigmoid", "table", 1, {}},
      {"QLinearLeakyRelu", "LeakyRelu", "table", 1, {{"alpha", 0.3f}}},
      {"QLinearAveragePool", "AveragePool", "avg_pool", 1, window},
      {"QLinearGlobalAveragePool", "GlobalAveragePool", "global_avg_pool", 1, {}},
      {"QLinearMatMul", "MatMul", "linear", 2, {}, {5, 7}, {7, 3}},
      {"QLinearMatMul", "MatMul", "linear", 2, {}, {2, 3, 5, 7}, {3, 7, 3}},
      {"QLinearMatMul", "MatMul", "linear", 2, {}, {2, 3, 5, 7}, {7, 3}},
      {"QLinearMatMul", "MatMul", "linear", 2, {}, {7}, {7, 3}},
  };
  for (const Twin& twin : twins) {
    SCOPED_TRACE(twin.real);
    const Tensor a = RandomCodes(DType::kU8, twin.shape, 3);
    const Tensor b = RandomCodes(DType::kU8, twin.second, 4);
    const auto base = [&] {
      ModelWriter model;
      model.Scale("a", 0.02f, DType::kU8, 120).Scale("b", 0.03f, DType::kU8, 99);
      model.Scale("y", 0.05f, DType::kU8, 10).Input("a", graph::kUint8, twin.shape);
      if (twin.operands == 2) model.Input("b", graph::kUint8, twin.second);
      return model;
    };
    std::vector<std::string> inputs{"a", "a_s", "a_z"}, reals{"ar"};
    if (twin.operands == 2) {
      inputs.insert(inputs.end(), {"b", "b_s", "b_z"});
      reals.emplace_back("br");
    }
    inputs.insert(inputs.end(), {"y_s", "y_z"});
    const bool standard = std::string(twin.quantized) == "QLinearMatMul";
    ModelWriter one = base(), group = base();
    one.Node(twin.quantized, inputs, {"y"}, twin.attributes, standard ? "" : "com.microsoft");
    group.Node("DequantizeLinear", {"a", "a_s", "a_z"}, {"ar"});
    if (twin.operands == 2) group.Node("DequantizeLinear", {"b", "b_s", "b_z"}, {"br"});
    group.Node(twin.real, reals, {"r"}, twin.attributes)
        .Node("QuantizeLinear", {"r", "y_s", "y_z"}, {"y"});
    Values values{{"a", Value::Of(a)}};
    if (twin.operands == 2) values["b"] = Value::Of(b);
    const ModelRun first = RunOn(one.Output("y").Text(), values);
    const ModelRun second = RunOn(group.Output("y").Text(), values);
    EXPECT_EQ(NamesOfLayers(first),
              std::vector<std::string>{std::string(twin.op) + ": " + twin.quantized});
    EXPECT_EQ(NamesOfLayers(second), std::vector<std::string>{std::string(twin.op) + ": " +
                                                              twin.real + ", QuantizeLinear"});
    const Tensor y = TensorOf(first, "y");
    EXPECT_EQ(y, TensorOf(second, "y"));
    // In double, where no code of these is near a tie.
    int distinct = 0;
    for (int64_t i = 1; i < y.size(); ++i) distinct += y.IntAt(i) != y.IntAt(0) ? 1 : 0;
    EXPECT_TRUE(y.size() == 1 || distinct > 0);
  }
}

// Products of batches against the definition, in double: no sum here is near a tie.
TEST(Models, BatchesOfProductsMeetTheirOwn) {
  const Tensor a = RandomCodes(DType::kU8, {2, 1, 4, 5}, 5),
               b = RandomCodes(DType::kS8, {3, 5, 6}, 6);
  const std::string model =
      ModelWriter()
          .Scale("a", 0.5f, DType::kU8, 100)
          .Scale("b", 0.25f, DType::kS8, 3)
          .Scale("y", 64.0f, DType::kU8, 128)
          .Input("a", graph::kUint8, {2, 1, 4, 5})
          .Input("b", graph::kInt8, {3, 5, 6})
          .Node("QLinearMatMul", {"a", "a_s", "a_z", "b", "b_s", "b_z", "y_s", "y_z"}, {"y"})
          .Output("y")
          .Text();
  const Tensor y = TensorOf(RunOn(model, {{"a", Value::Of(a)}, {"b", Value::Of(b)}}), "y");
  ASSERT_EQ(y.shape(), (Shape{2, 3, 4, 6}));
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      for (int64_t m = 0; m < 4; ++m) {
        for (int64_t n = 0; n < 6; ++n) {
          int64_t sum = 0;
          for (int64_t k = 0; k < 5; ++k) {
            sum += (a.IntAt((i * 4 + m) * 5 + k) - 100) * (b.IntAt((j * 5 + k) * 6 + n) - 3);
          }
          const double code = std::nearbyint(static_cast<double>(sum) / 512) + 128;
          ASSERT_EQ(y.IntAt(((i * 3 + j) * 4 + m) * 6 + n), std::clamp(code, 0.0, 255.0));
        }
      }
    }
  }
}

TEST(Models, GemmTurnsItsOperandsAndAddsItsBias) {
  const Tensor a = RandomCodes(DType::kU8, {7, 4}, 7), b = RandomCodes(DType::kS8, {3, 7}, 8);
  const auto gemm = [&](bool turned) {
    Tensor x = a, w = b;
    if (!turned) {
      x = Tensor(DType::kU8, {4, 7});
      w = Tensor(DType::kS8, {7, 3});
      for (int64_t m = 0; m < 4; ++m)
        for (int64_t k = 0; k < 7; ++k) x.SetInt(m * 7 + k, a.IntAt(k * 4 + m));
      for (int64_t n = 0; n < 3; ++n)
        for (int64_t k = 0; k < 7; ++k) w.SetInt(k * 3 + n, b.IntAt(n * 7 + k));
    }
    ModelWriter model;
    model.Scale("a", 0.5f, DType::kU8, 100).Scale("b", 0.25f, DType::kS8, 0);
    model.Scale("y", 64.0f, DType::kU8, 128).Input("a", graph::kUint8, x.shape()).Constant("b", w);
    model.Constant("c", Ints({3}, {512, -5120, 25600}));
    model.Node("QGemm", {"a", "a_s", "a_z", "b", "b_s", "b_z", "c", "y_s", "y_z"}, {"y"},
               {{"transA", int64_t{turned}}, {"transB", int64_t{turned}}}, "com.microsoft");
    return TensorOf(RunOn(model.Output("y").Text(), {{"a", Value::Of(x)}}), "y");
  };
  const Tensor y = gemm(true);
  EXPECT_EQ(y, gemm(false));
  int64_t sum = 25600;
  for (int64_t k = 0; k < 7; ++k) sum += (a.IntAt(k * 4) - 100) * b.IntAt(2 * 7 + k);
  EXPECT_EQ(y.IntAt(2),
            std::clamp(std::nearbyint(static_cast<double>(sum) / 512) + 128, 0.0, 255.0));
}

// Three inputs are two cases, the second of which has the last two.
TEST(Models, ConcatenationsOfAnyNumberOfInputs) {
  for (const size_t count : {1u, 2u, 3u, 4u, 5u}) {
    ModelWriter model;
    model.Scale("y", 0.5f, DType::kU8, 3).Scale("i", 0.5f, DType::kU8, 1);
    std::vector<std::string> inputs{"y_s", "y_z"};
    Values values;
    std::vector<int32_t> expected(2 * 3 * count * 2);
    for (size_t i = 0; i < count; ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      const Tensor x = RandomCodes(DType::kU8, {2, 3, 2}, i);
      model.Input(name, graph::kUint8, x.shape());
      inputs.insert(inputs.end(), {name, "i_s", "i_z"});
      values[name] = Value::Of(x);
      for (size_t at = 0; at < 12; ++at) {
        expected[(at / 6 * count + i) * 6 + at % 6] =
            std::min(x.IntAt(static_cast<int64_t>(at)) + 2, 255);
      }
    }
    model.Node("QLinearConcat", inputs, {"y"}, {{"axis", int64_t{1}}}, "com.microsoft");
    const Tensor y = TensorOf(RunOn(model.Output("y").Text(), values), "y");
    ASSERT_EQ(y.shape(), (Shape{2, static_cast<int64_t>(3 * count), 2}));
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(y.IntAt(static_cast<int64_t>(i)), expected[i]) << count << " " << i;
  }
}

TEST(Models, ClipIsAClampOfCodes) {
  const auto clipped = [&](std::vector<std::string> bounds) {
    bounds.insert(bounds.begin(), "s");
    return TensorOf(
        RunOn(ModelWriter()
                  .Scale("x", 1.0f, DType::kS8, 0)
                  .Scale("y", 0.5f, DType::kS8, -10)
                  .Constant("low", Reals({}, {-1.3f}))
                  .Constant("high", Reals({}, {6.0f}))
                  .Input("x", graph::kInt8, {4})
                  .Node("DequantizeLinear", {"x", "x_s", "x_z"}, {"r"})
                  .Node("Add", {"r", "r"}, {"s"})
                  .Node("Clip", bounds, {"c"})
                  .Node("QuantizeLinear", {"c", "y_s", "y_z"}, {"y"})
                  .Output("y")
                  .Text(),
              {{"x", Value::Of(Tensor::Of<int8_t>({4}, std::vector<int8_t>{-100, 0, 1, 100}))}}),
        "y");
  };
  // -1.3 / 0.5 = -2.6.
  EXPECT_EQ(clipped({"low", "high"}),
            Tensor::Of<int8_t>({4}, std::vector<int8_t>{-13, -10, -6, 2}));
  EXPECT_EQ(clipped({"", "high"}), Tensor::Of<int8_t>({4}, std::vector<int8_t>{-128, -10, -6, 2}));
  EXPECT_EQ(clipped({"low"}), Tensor::Of<int8_t>({4}, std::vector<int8_t>{-13, -10, -6, 127}));
}

// quantize_dynamic's nodes: the scale follows from x.
TEST(Models, DynamicProductsAreOneLayer) {
  const Tensor x = Reals({2, 3}, {-1.0f, 0.25f, 2.0f, 1.5f, 0.5f, -0.75f});
  const Tensor w = RandomCodes(DType::kS8, {3, 4}, 9);
  const std::string model = ModelWriter()
                                .Constant("w", w)
                                .Scale("w", 0.125f, DType::kS8, 0)
                                .Constant("bias", Reals({4}, {1, 2, 3, 4}))
                                .Input("x", graph::kFloat, {2, 3})
                                .Node("DynamicQuantizeLinear", {"x"}, {"q", "q_s", "q_z"})
                                .Node("MatMulInteger", {"q", "w", "q_z", "w_z"}, {"sum"})
                                .Node("Cast", {"sum"}, {"number"}, {{"to", int64_t{1}}})
                                .Node("Mul", {"q_s", "w_s"}, {"scale"})
                                .Node("Mul", {"number", "scale"}, {"product"})
                                .Node("Add", {"bias", "product"}, {"y"})
                                .Output("y")
                                .Text();
  const ModelRun run = RunOn(model, {{"x", Value::Of(x)}});
  EXPECT_EQ(NamesOfLayers(run),
            std::vector<std::string>{"dynamic_linear: Mul, MatMulInteger, Cast, Mul, Add"});
  const float scale = 3.0f / 255;
  const auto zero = static_cast<int64_t>(std::nearbyint(1.0f / scale));
  const Tensor y = TensorOf(run, "y");
  for (int64_t m = 0; m < 2; ++m) {
    for (int64_t n = 0; n < 4; ++n) {
      int64_t sum = 0;
      for (int64_t k = 0; k < 3; ++k) {
        const auto code =
            static_cast<int64_t>(std::nearbyint(x.FloatAt(m * 3 + k) / static_cast<double>(scale)));
        sum += std::clamp<int64_t>(code + zero, 0, 255) * w.IntAt(k * 4 + n) -
               zero * w.IntAt(k * 4 + n);
      }
      EXPECT_EQ(y.FloatAt(m * 4 + n),
                static_cast<float>(static_cast<double>(sum) * static_cast<double>(scale) * 0.125 +
                                   static_cast<double>(n + 1)));
    }
  }
  // Where somebody reads the codes too, the choice is a layer of its own.
  const ModelRun apart = RunOn(onnx::WithOutputs(model, {"q"}), {{"x", Value::Of(x)}});
  EXPECT_EQ(NamesOfLayers(apart)[0], "quantize: DynamicQuantizeLinear");
  EXPECT_EQ(TensorOf(apart, "q_s").FloatAt(0), scale);
  EXPECT_EQ(TensorOf(apart, "q_z").IntAt(0), zero);
}

TEST(Models, LinearAndConvolutionsOfIntegersAreSums) {
  const ConvModel conv;
  const std::string model = conv.Constants()
                                .Node("ConvInteger", {"x", "w", "x_z"}, {"s"}, conv.window)
                                .Node("Cast", {"s"}, {"r"}, {{"to", int64_t{1}}})
                                .Output("r")
                                .Text();
  const ModelRun run = RunOn(model, conv.Input());
  EXPECT_EQ(NamesOfLayers(run), std::vector<std::string>{"conv2d: ConvInteger"});
  EXPECT_EQ(run.moves, 1);
  int64_t sum = 0;  // the output at row 1, column 0 of channel 2
  for (int64_t k = 0; k < 2; ++k) {
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t s = 0; s < 3; ++s) {
        sum +=
            (conv.x.IntAt((k * 5 + 1 + r) * 4 + s) - 121) * conv.w.IntAt((4 + k) * 9 + r * 3 + s);
      }
    }
  }
  EXPECT_EQ(TensorOf(run, "s").IntAt(2 * 12 + 4), sum);
  EXPECT_EQ(TensorOf(run, "r").FloatAt(2 * 12 + 4), static_cast<float>(sum));
}

TEST(Models, MaxPoolTakesCodesAndKeepsTheirScale) {
  const Tensor x = RandomCodes(DType::kS8, {1, 2, 4, 4}, 11);
  const std::vector<Attribute> window{{"kernel_shape", Shape{2, 2}}, {"strides", Shape{2, 2}}};
  const auto base = [] {
    return ModelWriter().Scale("x", 0.5f, DType::kS8, 3).Input("x", graph::kInt8, {1, 2, 4, 4});
  };
  const ModelRun codes =
      RunOn(base().Node("MaxPool", {"x"}, {"y"}, window).Output("y").Text(), {{"x", Value::Of(x)}});
  const ModelRun group = RunOn(base()
                                   .Node("DequantizeLinear", {"x", "x_s", "x_z"}, {"r"})
                                   .Node("MaxPool", {"r"}, {"m"}, window)
                                   .Node("QuantizeLinear", {"m", "x_s", "x_z"}, {"y"})
                                   .Output("y")
                                   .Text(),
                               {{"x", Value::Of(x)}});
  EXPECT_EQ(NamesOfLayers(codes), std::vector<std::string>{"max_pool: MaxPool"});
  EXPECT_EQ(NamesOfLayers(group), std::vector<std::string>{"max_pool: MaxPool, QuantizeLinear"});
  const Tensor y = TensorOf(codes, "y");
  EXPECT_EQ(y, TensorOf(group, "y"));
  EXPECT_EQ(y.IntAt(5), std::max({x.IntAt(18), x.IntAt(19), x.IntAt(22), x.IntAt(23)}));
  // With another scale behind it the largest codes are rescaled.
  const ModelRun other = RunOn(base()
                                   .Scale("y", 1.0f, DType::kU8, 100)
                                   .Node("DequantizeLinear", {"x", "x_s", "x_z"}, {"r"})
                                   .Node("MaxPool", {"r"}, {"m"}, window)
                                   .Node("QuantizeLinear", {"m", "y_s", "y_z"}, {"y"})
                                   .Output("y")
                                   .Text(),
                               {{"x", Value::Of(x)}});
  EXPECT_EQ(NamesOfLayers(other), std::vector<std::string>{"rescale: MaxPool, QuantizeLinear"});
  for (int64_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(TensorOf(other, "y").IntAt(i),
              std::clamp(std::nearbyint((y.IntAt(i) - 3) * 0.5) + 100, 0.0, 255.0));
  }
}

TEST(Models, PerChannelQuantizationTakesAnyAxis) {
  const Tensor x = Reals({2, 3, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const ModelRun run = RunOn(ModelWriter()
                                 .Constant("s", Reals({3}, {1, 2, 4}))
                                 .Constant("z", RandomCodes(DType::kU8, {3}, 12))
                                 .Input("x", graph::kFloat, {2, 3, 2})
                                 .Node("QuantizeLinear", {"x", "s", "z"}, {"q"})
                                 .Node("DequantizeLinear", {"q", "s", "z"}, {"y"})
                                 .Output("y")
                                 .Output("q")
                                 .Text(),
                             {{"x", Value::Of(x)}});
  EXPECT_EQ(NamesOfLayers(run),
            (std::vector<std::string>{"quantize: QuantizeLinear", "dequantize: DequantizeLinear"}));
  const Tensor y = TensorOf(run, "y");
  for (int64_t i = 0; i < 12; ++i) {
    const float scale = i / 2 % 3 == 0 ? 1 : i / 2 % 3 == 1 ? 2 : 4;
    EXPECT_EQ(y.FloatAt(i), std::nearbyint(x.FloatAt(i) / scale) * scale) << i;
  }
}

// ---- Nodes that are no layers ----

TEST(Models, MovesKeepEveryElement) {
  Tensor x(DType::kU8, {2, 3, 4});
  for (int64_t i = 0; i < 24; ++i) x.SetInt(i, static_cast<int32_t>(i));
  const auto moved = [&](const std::string& op, const std::vector<Attribute>& attributes,
                         const std::vector<std::vector<int64_t>>& lists = {}) {
    ModelWriter model;
    std::vector<std::string> inputs{"x"};
    for (size_t i = 0; i < lists.size(); ++i) {
      inputs.push_back("l" + std::to_string(i));
      model.Constant(inputs.back(), lists[i]);
    }
    model.Input("x", graph::kUint8, {2, 3, 4}).Node(op, inputs, {"y"}, attributes).Output("y");
    return TensorOf(RunOn(model.Text(), {{"x", Value::Of(x)}}), "y");
  };
  const auto first = [](const Tensor& y, std::vector<int32_t> expected) {
    ASSERT_GE(y.size(), std::ssize(expected));
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(y.IntAt(static_cast<int64_t>(i)), expected[i]);
  };
  EXPECT_EQ(moved("Reshape", {}, {{0, -1}}).shape(), (Shape{2, 12}));
  EXPECT_EQ(moved("Flatten", {}).shape(), (Shape{2, 12}));
  EXPECT_EQ(moved("Unsqueeze", {}, {{0, -1}}).shape(), (Shape{1, 2, 3, 4, 1}));
  const Tensor turned = moved("Transpose", {{"perm", Shape{2, 0, 1}}});
  EXPECT_EQ(turned.shape(), (Shape{4, 2, 3}));
  first(turned, {0, 4, 8, 12, 16, 20, 1, 5});
  first(moved("Transpose", {}), {0, 12, 4, 16, 8, 20, 1});
  const Tensor part = moved("Slice", {}, {{-1, 0}, {-100, 2}, {2, 0}, {-2, 1}});
  EXPECT_EQ(part.shape(), (Shape{2, 3, 2}));
  first(part, {3, 1, 7, 5, 11, 9, 15});
  const Tensor chosen = moved("Gather", {{"axis", int64_t{1}}}, {{2, -3}});
  EXPECT_EQ(chosen.shape(), (Shape{2, 2, 4}));
  first(chosen, {8, 9, 10, 11, 0, 1, 2, 3, 20});
}

// Moves between DequantizeLinear and QuantizeLinear are a layer too, of the moved codes.
TEST(Models, MovedCodesAreRescaled) {
  Tensor x = RandomCodes(DType::kU8, {2, 3}, 13);
  const ModelRun run = RunOn(ModelWriter()
                                 .Scale("x", 0.5f, DType::kU8, 7)
                                 .Scale("y", 1.0f, DType::kU8, 9)
                                 .Constant("shape", {3, 2, 1})
                                 .Input("x", graph::kUint8, {2, 3})
                                 .Node("DequantizeLinear", {"x", "x_s", "x_z"}, {"r"})
                                 .Node("Transpose", {"r"}, {"t"})
                                 .Node("Reshape", {"t", "shape"}, {"s"})
                                 .Node("QuantizeLinear", {"s", "y_s", "y_z"}, {"y"})
                                 .Output("y")
                                 .Text(),
                             {{"x", Value::Of(x)}});
  EXPECT_EQ(NamesOfLayers(run),
            std::vector<std::string>{"rescale: Transpose, Reshape, QuantizeLinear"});
  const Tensor y = TensorOf(run, "y");
  ASSERT_EQ(y.shape(), (Shape{3, 2, 1}));
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(y.IntAt(i), std::nearbyint((x.IntAt(i % 2 * 3 + i / 2) - 7) * 0.5) + 9);
  }
}

std::string EndsInSoftmax() {
  return ModelWriter()
      .Scale("x", 0.5f, DType::kU8, 0)
      .Input("x", graph::kUint8, {1, 4})
      .Node("DequantizeLinear", {"x", "x_s", "x_z"}, {"r"})
      .Node("Softmax", {"r"}, {"p"})
      .Node("QuantizeLinear", {"p", "x_s", "x_z"}, {"q"})
      .Node("MatMulInteger", {"q", "q"}, {"y"})
      .Output("y")
      .Text();
}

// The group is no case, because of its output scale: its nodes are taken apart, and the float one
// ends what can be said.
TEST(Models, WhatNobodyComputesIsSaid) {
  const ModelRun run =
      RunOn(EndsInSoftmax(), {{"x", Value::Of(RandomCodes(DType::kU8, {1, 4}, 1))}});
  ASSERT_EQ(run.rows.size(), 3u);
  EXPECT_EQ(run.rows[0].not_run,
            "softmax has the output scale 0x1p-8 and the lowest code as zero point in qualm");
  EXPECT_EQ(run.rows[0].operators, "Softmax");
  EXPECT_EQ(run.rows[1].not_run, "behind Softmax_p");
  EXPECT_EQ(run.rows[2].not_run, "behind Softmax_p");
  EXPECT_FALSE(run.ends[0].known);
}

TEST(Models, AValueFromNowhereIsRefused) {
  EXPECT_EQ(
      Refusal([&] { RunOn(ModelWriter().Node("Relu", {"x"}, {"y"}).Output("y").Text(), {}); }),
      "m.onnx: x: is read by Relu and made by nothing, expected an input, an "
      "initializer or the output of a node");
}

// Stands in for a runtime: a single node is a copy of its first input; of a whole model it gives
// what it was told.
class FakeRuntime : public graph::ModelRuntime {
 public:
  std::string name() const override { return "Fake 1"; }
  Answer Run(const graph::Graph&, const Values&, const std::vector<std::string>& wanted) override {
    if (wanted.size() > 1) asked = wanted;
    return {wanted.size() == 1 && !plain.empty() ? plain : told, refusal};
  }
  Answer RunNode(const graph::Graph&, const graph::Node& node, const Values& inputs) override {
    return {{{node.Output(0), inputs.begin()->second}}, ""};
  }
  Values told, plain;
  std::string refusal;
  std::vector<std::string> asked;
};

// Weights of 4 bits are the codes of 8 bits that have these numbers: two in a byte, the first one
// low.
TEST(Models, WeightsOfFourBits) {
  const Tensor x = RandomCodes(DType::kU8, {2, 5}, 1);
  const auto weights = test::FifteenNibbles({5, 3});
  const Tensor& w = weights.first;
  const std::string& packed = weights.second;
  const auto product = [&](int form) {
    ModelWriter model;
    model.Input("x", graph::kUint8, {2, 5}).Scale("x", 0.5f, DType::kU8, 121);
    model.Scale("y", 0.25f, DType::kU8, 17);
    model.Constant("w_s", Reals({}, {0.125f}));
    if (form == 0) {
      model.Constant("w_z", Tensor(DType::kS8, {})).Constant("w", w);
    } else {
      model.Packed("w_z", graph::kInt4, {}, std::string(1, '\0'), form == 2);
      model.Packed("w", graph::kInt4, {5, 3}, packed, form == 2);
    }
    return model.Node("DequantizeLinear", {"x", "x_s", "x_z"}, {"xr"})
        .Node("DequantizeLinear", {"w", "w_s", "w_z"}, {"wr"})
        .Node("MatMul", {"xr", "wr"}, {"r"})
        .Node("QuantizeLinear", {"r", "y_s", "y_z"}, {"y"})
        .Output("y")
        .Text();
  };
  const Values input{{"x", Value::Of(x)}};
  const ModelRun eight = RunOn(product(0), input);
  for (const int form : {1, 2}) {
    const ModelRun four = RunOn(product(form), input);
    EXPECT_EQ(NamesOfLayers(four), NamesOfLayers(eight)) << form;
    EXPECT_EQ(TensorOf(four, "y"), TensorOf(eight, "y")) << form;
  }
  // The quantizer writes ONNX Runtime's own operators around them, for a bias of int32 too.
  const std::string bias = ModelWriter()
                               .Input("x", graph::kFloat, {2})
                               .Constant("b", Ints({2}, {100, -3}))
                               .Constant("s", Reals({1}, {0.25f}))
                               .Node("DequantizeLinear", {"b", "s"}, {"br"}, {}, "com.microsoft")
                               .Node("Add", {"x", "br"}, {"y"})
                               .Output("y")
                               .Text();
  EXPECT_EQ(TensorOf(RunOn(bias, {{"x", Value::Of(Reals({2}, {1, 2}))}}), "y"),
            Reals({2}, {26, 1.25f}));
  // What is quantized to 4 bits, no case says.
  const std::string into = ModelWriter()
                               .Input("x", graph::kFloat, {2})
                               .Constant("s", Reals({}, {0.125f}))
                               .Packed("z", graph::kInt4, {}, std::string(1, '\0'))
                               .Node("QuantizeLinear", {"x", "s", "z"}, {"y"})
                               .Output("y")
                               .Text();
  const ModelRun run = RunOn(into, {{"x", Value::Of(Reals({2}, {0.5f, 99}))}});
  EXPECT_EQ(run.rows.at(0).not_run, "its codes are of int4");
}

TEST(Models, ARuntimeRunsWhatIsNoLayerAndIsJudgedOnItsOwnInputs) {
  FakeRuntime runtime;
  const Tensor x = Tensor::Of<uint8_t>({1, 4}, std::vector<uint8_t>{1, 2, 3, 4});
  // Theirs: another q than ours, and the right product of it but for one.
  const std::string model = ModelWriter()
                                .Scale("x", 0.5f, DType::kU8, 0)
                                .Constant("w", RandomCodes(DType::kU8, {4, 3}, 5))
                                .Input("x", graph::kUint8, {1, 4})
                                .Node("DequantizeLinear", {"x", "x_s", "x_z"}, {"r"})
                                .Node("Softmax", {"r"}, {"p"})
                                .Node("QuantizeLinear", {"p", "x_s", "x_z"}, {"q"})
                                .Node("MatMulInteger", {"q", "w"}, {"y"})
                                .Output("y")
                                .Text();
  const Tensor p = Reals({1, 4}, {0.5f, 1.0f, 5.0f, 2.0f});
  const Tensor q = Tensor::Of<uint8_t>({1, 4}, std::vector<uint8_t>{1, 2, 10, 4});
  const ModelRun ours = RunOn(model, {{"x", Value::Of(x)}}, {}, &runtime);
  EXPECT_EQ(ours.rows[0].by, "Fake 1");
  EXPECT_EQ(TensorOf(ours, "q"), x);  // the copy of the reals, quantized as they were
  EXPECT_EQ(runtime.asked, (std::vector<std::string>{"y", "p", "q"}));
  const onnx::Graph graph(model, "m");
  Tensor y(DType::kS32, {1, 3});
  for (int64_t n = 0; n < 3; ++n) {
    int32_t sum = n == 1 ? 1 : 0;
    for (int64_t k = 0; k < 4; ++k)
      sum += q.IntAt(k) * graph.Read("w", *graph.FindConstant("w")).IntAt(k * 3 + n);
    y.SetInt(n, sum);
  }
  runtime.told = {{"p", Value::Of(p)}, {"q", Value::Of(q)}, {"y", Value::Of(y)}};
  const ModelRun run = RunOn(model, {{"x", Value::Of(x)}}, {}, &runtime);
  EXPECT_EQ(run.by, "Fake 1");
  ASSERT_EQ(run.rows.size(), 3u);
  ASSERT_TRUE(run.rows[1].judged && run.rows[2].judged);
  EXPECT_TRUE(run.rows[1].judged->exact());
  const Judged& judged = *run.rows[2].judged;
  EXPECT_TRUE(judged.on_own_inputs);
  EXPECT_EQ(judged.departing, 1);
  EXPECT_EQ(judged.worst_lsb, 1);
  EXPECT_TRUE(judged.is_wrong());
  ASSERT_EQ(judged.differing.size(), 1u);
  EXPECT_EQ(judged.differing[0].x.bytes()[2], 10);
  EXPECT_EQ(run.ends[0].departing, 3);
  EXPECT_EQ(run.changed, std::vector<std::string>{});
  // The end is what the runtime gives where nothing is shown.
  runtime.plain = {{"y", Value::Of(TensorOf(ours, "y"))}};
  const ModelRun plain = RunOn(model, {{"x", Value::Of(x)}}, {}, &runtime);
  EXPECT_EQ(plain.changed, std::vector<std::string>{"y"});
  EXPECT_EQ(plain.ends[0].departing, 0);
  EXPECT_EQ(plain.rows[2].judged->departing, 1);
  runtime.refusal = "no such operator";
  const ModelRun refused = RunOn(model, {{"x", Value::Of(x)}}, {}, &runtime);
  EXPECT_EQ(refused.refused, "no such operator");
  EXPECT_EQ(refused.by, "");
}

// ONNX Runtime 1.32 gave 74 for the output that is 73.4999944: it ran the group in float32, where
// that is a tie.
TEST(Models, AGroupThatIsNotFusedRunsInFloat32) {
  const float x_scale = 0x1.313adcp-5f, w_scale = 0x1.76a036p-8f;
  const std::string model =
      ModelWriter()
          .Scale("x", x_scale, DType::kS8, 0)
          .Scale("w", w_scale, DType::kS8, 0)
          .Scale("b", x_scale * w_scale, DType::kS32, 0)
          .Scale("y", 0x1.5cef88p-5f, DType::kS8, 0)
          .Constant("w", Tensor::Of<int8_t>({2, 1}, std::vector<int8_t>{127, 1}))
          .Constant("b", Ints({1}, {-1408}))
          .Input("x", graph::kInt8, {1, 2})
          .Node("DequantizeLinear", {"x", "x_s", "x_z"}, {"xr"})
          .Node("DequantizeLinear", {"w", "w_s", "w_z"}, {"wr"})
          .Node("DequantizeLinear", {"b", "b_s"}, {"br"})
          .Node("Gemm", {"xr", "wr", "br"}, {"g"})
          .Node("QuantizeLinear", {"g", "y_s", "y_z"}, {"y"})
          .Output("y")
          .Text();
  const Values input{{"x", Value::Of(Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{126, 105}))}};
  EXPECT_EQ(TensorOf(RunOn(model, input), "y").IntAt(0), 73);
  const auto judged = [&](int8_t code) {
    const Tensor y = Tensor::Of<int8_t>({1, 1}, std::vector<int8_t>{code});
    return *RunOn(model, input, {{"y", Value::Of(y)}}).rows[0].judged;
  };
  EXPECT_TRUE(judged(73).exact());
  EXPECT_TRUE(judged(74).node_by_node);
  EXPECT_EQ(judged(74).conventions, std::vector<std::string>{"torch-decomposed"});
  EXPECT_TRUE(judged(74).differing[0].bias);
  EXPECT_TRUE(judged(75).is_wrong());
  EXPECT_TRUE(judged(72).is_wrong());
}

// What somebody recorded of one value is judged on our inputs of it.
TEST(Models, ARecordedValueIsJudged) {
  const ConvModel conv;
  Tensor y = conv.Expected(true);
  const ModelRun right = RunOn(conv.Qdq(true), conv.Input(), {{"y", Value::Of(y)}});
  EXPECT_TRUE(right.rows[0].judged->exact());
  y.SetInt(7, y.IntAt(7) ^ 4);
  const ModelRun wrong = RunOn(conv.Qdq(true), conv.Input(), {{"y", Value::Of(y)}});
  ASSERT_TRUE(wrong.rows[0].judged);
  EXPECT_EQ(wrong.rows[0].judged->departing, 1);
  EXPECT_EQ(wrong.rows[0].judged->worst_lsb, 4);
  EXPECT_TRUE(wrong.rows[0].judged->is_wrong());
  EXPECT_EQ(Refusal([&] {
              RunOn(conv.Qdq(true), conv.Input(), {{"y", Value::Of(Tensor(DType::kU8, {1, 3}))}});
            }),
            "m.onnx: --observed y: is u8 [1,3], expected u8 [1,3,3,4]");
}

// MatMulNBits, K = 6 and N = 2: blocks of 4 weights of 4 bits, two in a byte, the first one lowest.
// Beyond K a row has weights that nobody reads. Row 0 is 1 2 3 4 | 5 6, row 1 is 15 0 8 7 | 9 1.
struct FewBits {
  Tensor b = Tensor::Of<uint8_t>({2, 2, 2}, std::vector<uint8_t>{0x21, 0x43, 0x65, 0xff,  //
                                                                 0x0f, 0x78, 0x19, 0xff});
  Tensor scales = Reals({4}, {0.5f, 2, 1, 0.25f});
  Tensor x = Reals({1, 2, 6}, {1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1});

  std::string Model(bool zero_points, int64_t level = 0, bool g_idx = false) const {
    ModelWriter model;
    model.Input("x", graph::kFloat, {1, 2, 6}).Constant("b", b).Constant("s", scales);
    // Zero points 8 and 1 of row 0, 2 and 8 of row 1.
    model.Constant("z", Tensor::Of<uint8_t>({2}, std::vector<uint8_t>{0x18, 0x82}));
    model.Constant("i", std::vector<int64_t>{0, 0, 0, 0, 1, 1});
    return model
        .Node("MatMulNBits", {"x", "b", "s", zero_points ? "z" : "", g_idx ? "i" : ""}, {"y"},
              {{"K", int64_t{6}},
               {"N", int64_t{2}},
               {"bits", int64_t{4}},
               {"block_size", int64_t{4}},
               {"accuracy_level", level}},
              "com.microsoft")
        .Output("y")
        .Text();
  }
  ModelRun Run(bool zero_points, const Values& recorded = {}) const {
    return RunOn(Model(zero_points), {{"x", Value::Of(x)}}, recorded);
  }
};

TEST(Models, MatMulNBitsIsALinearOfF32) {
  const FewBits few;
  // (1 - 8)/2 + (6 - 8)*2, (15 - 8) + (1 - 8)/4; the sums of the rows: (10 - 32)/2 + (11 - 16)*2,
  // (30 - 32) + (10 - 16)/4.
  EXPECT_EQ(TensorOf(few.Run(false), "y"), Reals({1, 2, 2}, {-7.5f, 5.25f, -21, -3.5f}));
  // (1 - 8)/2 + (6 - 1)*2, (15 - 2) + (1 - 8)/4; (10 - 32)/2 + (11 - 2)*2, (30 - 8) + (10 - 16)/4.
  const ModelRun with = few.Run(true);
  EXPECT_EQ(TensorOf(with, "y"), Reals({1, 2, 2}, {6.5f, 11.25f, 7, 20.5f}));
  EXPECT_EQ(NamesOfLayers(with), (std::vector<std::string>{"linear: MatMulNBits"}));
  for (const std::string& refused : {few.Model(true, 2), few.Model(true, 0, true)})
    EXPECT_FALSE(RunOn(refused, {{"x", Value::Of(few.x)}}).rows[0].op);
}

// Quantizers write blocks of negative scales, and of scale 0 where all weights are 0.
TEST(Models, BlocksOfMatMulNBitsMayBeTurnedRound) {
  FewBits few;
  few.scales = Reals({4}, {-0.5f, 2, 0, -0.25f});
  // As above, each block times the sign of its scale; the first block of row 1 is 0.
  EXPECT_EQ(TensorOf(few.Run(false), "y"), Reals({1, 2, 2}, {-0.5f, 1.75f, 1, 1.5f}));
  EXPECT_EQ(TensorOf(few.Run(true), "y"), Reals({1, 2, 2}, {13.5f, 1.75f, 29, 1.5f}));
}

// x of one block has its largest magnitude at 127, so that its codes are its reals: all agree. With
// another x they do not, and either is right.
TEST(Models, MatMulNBitsOfAccuracyLevel4MayRoundX) {
  FewBits few;
  const auto run = [&](const Values& recorded) {
    return RunOn(few.Model(true, 4), {{"x", Value::Of(few.x)}}, recorded);
  };
  few.x = Reals({1, 2, 6}, {127, 0.4f, -0.6f, 3, 0, 127, 0, 0, 0, 0, 0, 0});
  // Codes 127 0 -1 3: (127(1 - 8) - (3 - 8) + 3(4 - 8))/2 + 127(6 - 1)2; 127(15 - 2) - (8 - 2) +
  // 3(7 - 2) + 127(1 - 8)/4.
  const Tensor rounded = Reals({1, 2, 2}, {822, 1437.75f, 0, 0});
  EXPECT_EQ(TensorOf(run({}), "y"), rounded);
  const Tensor real = TensorOf(few.Run(true), "y");
  EXPECT_NE(real, rounded);
  for (const Tensor& given : {rounded, real}) {
    const Judged judged = *run({{"y", Value::Of(given)}}).rows[0].judged;
    EXPECT_TRUE(judged.exact());
    EXPECT_TRUE(judged.right());
    EXPECT_TRUE(judged.differing.empty());
  }
  Tensor wrong = rounded;
  wrong.as<float>()[0] += 1;
  EXPECT_TRUE(run({{"y", Value::Of(wrong)}}).rows[0].judged->is_wrong());
}

// The same weights, as DequantizeLinear of blocks and MatMul. Nothing there lets x be rounded.
TEST(Models, RealsByDequantizedWeights) {
  const FewBits few;
  const auto model = [&](bool gemm) {
    ModelWriter writer;
    writer.Input("x", graph::kFloat, {2, 6});
    const std::vector<uint8_t> w{1, 2, 3, 4, 5, 6, 15, 0, 8, 7, 9, 1};
    std::vector<uint8_t> turned(12);
    for (size_t i = 0; i < 12; ++i) turned[i % 6 * 2 + i / 6] = w[i];
    writer.Constant("w",
                    gemm ? Tensor::Of<uint8_t>({2, 6}, w) : Tensor::Of<uint8_t>({6, 2}, turned));
    writer.Constant("s",
                    gemm ? Reals({2, 2}, {0.5f, 2, 1, 0.25f}) : Reals({2, 2}, {0.5f, 1, 2, 0.25f}));
    writer.Constant("z", Tensor::Of<uint8_t>({2, 2}, gemm ? std::vector<uint8_t>{8, 1, 2, 8}
                                                          : std::vector<uint8_t>{8, 2, 1, 8}));
    writer.Constant("c", Reals({2}, {1, -1}));
    writer.Node("DequantizeLinear", {"w", "s", "z"}, {"wr"},
                {{"axis", int64_t{gemm ? 1 : 0}}, {"block_size", int64_t{4}}});
    if (gemm)
      writer.Node("Gemm", {"x", "wr", "c"}, {"y"}, {{"transB", int64_t{1}}});
    else
      writer.Node("MatMul", {"x", "wr"}, {"y"});
    return writer.Output("y").Text();
  };
  Tensor x = few.x;
  x = Tensor::Of<float>({2, 6}, std::vector<float>(x.as<float>().begin(), x.as<float>().end()));
  const ModelRun plain = RunOn(model(false), {{"x", Value::Of(x)}});
  EXPECT_EQ(NamesOfLayers(plain), (std::vector<std::string>{"linear: MatMul"}));
  EXPECT_EQ(TensorOf(plain, "y"), Reals({2, 2}, {6.5f, 11.25f, 7, 20.5f}));
  EXPECT_EQ(TensorOf(RunOn(model(true), {{"x", Value::Of(x)}}), "y"),
            Reals({2, 2}, {7.5f, 10.25f, 8, 19.5f}));
  const Tensor real = Reals({2, 6}, {127, 0.4f, -0.6f, 3, 0, 127, 0, 0, 0, 0, 0, 0});
  const Tensor rounded = Reals({2, 2}, {822, 1437.75f, 0, 0});
  const Judged judged =
      *RunOn(model(false), {{"x", Value::Of(real)}}, {{"y", Value::Of(rounded)}}).rows[0].judged;
  EXPECT_EQ(judged.instead, "x rounded to codes of 8 bits first, in blocks of 4");
  EXPECT_FALSE(judged.right());
  EXPECT_FALSE(judged.is_wrong());
  EXPECT_EQ(judged.diagnosis, "observed adds float32 sums of " + judged.instead);
  Tensor wrong = rounded;
  wrong.as<float>()[0] += 1;
  EXPECT_TRUE(RunOn(model(false), {{"x", Value::Of(real)}}, {{"y", Value::Of(wrong)}})
                  .rows[0]
                  .judged->is_wrong());
}

// What somebody gave is a float32 sum or not, whatever its last bits.
TEST(Models, LayersOfF32AreJudgedBySums) {
  FewBits few;
  const auto judged = [&](const std::vector<float>& y) {
    const ModelRun run = few.Run(true, {{"y", Value::Of(Reals({1, 2, 2}, y))}});
    return *run.rows[0].judged;
  };
  EXPECT_TRUE(judged({6.5f, 11.25f, 7, 20.5f}).exact());
  EXPECT_EQ(judged({6.5f, 11.25f, 7, 20.5f}).sums, (SumGrades{4, 0, 0}));
  const Judged wrong = judged({6.5f, 11.25f, 7, std::nextafter(20.5f, 0.0f)});
  EXPECT_TRUE(wrong.is_wrong()) << "every float32 sum is exact here";
  ASSERT_EQ(wrong.differing.size(), 1u);
  EXPECT_EQ(wrong.differing[0].contract, "sum");
  few.scales = Reals({4}, {0.1f, 2, 1, 0.25f});
  few.x = Reals({1, 2, 6}, {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0, 0, 0, 0, 0, 0});
  const Tensor exact = TensorOf(few.Run(true), "y");
  const float next = std::nextafter(exact.FloatAt(0), 100.0f);
  const Judged near = judged({next, exact.FloatAt(1), 0, 0});
  EXPECT_FALSE(near.exact());
  EXPECT_TRUE(near.right());
  EXPECT_TRUE(near.differing.empty());
  EXPECT_EQ(near.sums, (SumGrades{2, 2, 0}));
  EXPECT_TRUE(judged({exact.FloatAt(0) * 1.001f, exact.FloatAt(1), 0, 0}).is_wrong());
}

TEST(Models, InputsAreDrawnFromTheSeed) {
  const std::string model = ModelWriter()
                                .Scale("x", 0.5f, DType::kU8, 55)
                                .Input("x", graph::kFloat, {-1, 50, -1})
                                .Input("c", graph::kInt8, {300})
                                .Node("QuantizeLinear", {"x", "x_s", "x_z"}, {"q"})
                                .Output("q")
                                .Text();
  const onnx::Graph graph(model, "m");
  std::vector<std::string> told;
  const Values values = DrawInputs(graph, {}, 7, &told);
  EXPECT_EQ(values.at("x").shape, (Shape{1, 50, 8}));
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0],
            "x: f32 [1,50,8], random, -27.5 to 100, the range of its QuantizeLinear, open sizes "
            "are 1, 8");
  EXPECT_EQ(told[1], "c: s8 [300], random, all codes");
  const std::span<const float> x = values.at("x").tensor.as<float>();
  EXPECT_LT(std::ranges::min(x), -20);
  EXPECT_GT(std::ranges::max(x), 90);
  std::vector<std::string> unused;
  EXPECT_EQ(DrawInputs(graph, {}, 7, &unused), values);
  EXPECT_NE(DrawInputs(graph, {}, 8, &unused), values);
}

// QuantizeLinear and DequantizeLinear have codes of 16 bits; what lies between them has none here,
// and the model is told so layer by layer.
TEST(Models, CodesOfSixteenBits) {
  for (const auto& [type, lowest] :
       {std::pair{graph::kInt16, INT16_MIN}, std::pair{graph::kUint16, 0}}) {
    const std::string model = ModelWriter()
                                  .Constant("s", Tensor::Of<float>({}, std::vector<float>{0.5f}))
                                  .Packed("z", type, {}, std::string(2, '\0'))
                                  .Input("x", graph::kFloat, {3})
                                  .Node("QuantizeLinear", {"x", "s", "z"}, {"q"})
                                  .Node("DequantizeLinear", {"q", "s", "z"}, {"y"})
                                  .Output("q")
                                  .Output("y")
                                  .Text();
    const onnx::Graph graph(model, "m");
    std::vector<std::string> told;
    ModelOptions options;
    options.inputs = DrawInputs(graph, {}, 1, &told);
    ASSERT_EQ(told.size(), 1u);
    EXPECT_TRUE(
        told[0].starts_with("x: f32 [3], random, " + std::string(lowest == 0 ? "0" : "-1.6")))
        << told[0];
    options.inputs["x"] = Value::Of(Tensor::Of<float>({3}, std::vector<float>{1e9f, -1e9f, 3.3f}));
    const ModelRun run = RunModel(graph, options);
    ASSERT_EQ(run.rows.size(), 2u);
    for (const Row& row : run.rows) EXPECT_EQ(row.not_run, "");
    const Tensor q = TensorOf(run, "q"), y = TensorOf(run, "y");
    EXPECT_EQ(q.IntAt(0), RangeOf(q.dtype()).max);
    EXPECT_EQ(q.IntAt(1), lowest);
    EXPECT_EQ(q.IntAt(2), 7);
    EXPECT_EQ(y.FloatAt(2), 3.5f);
  }
}

// A MatMul of such codes between DequantizeLinear and QuantizeLinear is one layer, exact.
TEST(Models, ProductsOfCodesOfSixteenBits) {
  for (const auto& [type, dtype, zero] : {std::tuple{graph::kInt16, DType::kS16, 0},
                                          std::tuple{graph::kUint16, DType::kU16, 40000}}) {
    Tensor x(dtype, {1, 700}), w(DType::kS8, {700, 2});
    for (int64_t k = 0; k < 700; ++k) {
      x.SetInt(k, k % 7 == 0 ? zero + 3 : RangeOf(dtype).max);
      w.SetInt(2 * k, 127), w.SetInt(2 * k + 1, k % 7 == 0 ? 1 : 0);
    }
    const auto at = static_cast<uint16_t>(zero);
    const std::string zero_point(reinterpret_cast<const char*>(&at), 2);
    const ModelRun run =
        RunOn(ModelWriter()
                  .Constant("s", Tensor::Of<float>({}, std::vector<float>{1}))
                  .Constant("sy", Tensor::Of<float>({}, std::vector<float>{131072}))
                  .Packed("z", type, {}, zero_point)
                  .Constant("zw", Tensor(DType::kS8, {}))
                  .Input("x", type, {1, 700})
                  .Constant("w", w)
                  .Node("DequantizeLinear", {"x", "s", "z"}, {"dx"})
                  .Node("DequantizeLinear", {"w", "s", "zw"}, {"dw"})
                  .Node("MatMul", {"dx", "dw"}, {"m"})
                  .Node("QuantizeLinear", {"m", "sy", "z"}, {"y"})
                  .Output("y")
                  .Text(),
              {{"x", Value::Of(x)}});
    ASSERT_EQ(run.rows.size(), 1u);
    EXPECT_EQ(run.rows[0].op, Op::kLinear) << run.rows[0].not_run << run.rows[0].no_layer;
    // 600 of the 700 codes are the largest, and 100 are 3 from the zero point.
    const double sum = 127.0 * (600.0 * (RangeOf(dtype).max - zero) + 300);
    EXPECT_EQ(TensorOf(run, "y").IntAt(0), zero + std::nearbyint(sum / 131072));
    EXPECT_EQ(TensorOf(run, "y").IntAt(1), zero);
  }
}

TEST(Models, DamagedModelsAreRunOrRefused) {
  const ConvModel conv;
  const std::vector<std::string> models{conv.Fused(), conv.Qdq(true), EndsInSoftmax(),
                                        FewBits().Model(true)};
  test::ExpectRunOrRefused<onnx::Graph>(
      3000, [&](Rng& /*rng*/, uint64_t seed) { return models[seed % models.size()]; },
      [](const onnx::Graph& /*any*/) { return false; });
}

// A mean is one over rows and columns, or over other axes, which the node names.
TEST(Models, MeansAreOverTheAxesThatTheyName) {
  const Tensor x = RandomCodes(DType::kU8, {2, 3, 4, 5}, 3);
  const auto mean = [&](const std::string& op, const Shape& axes, bool listed, bool keeps) {
    ModelWriter model;
    model.Input("x", graph::kUint8, {2, 3, 4, 5}).Scale("x", 0.5f, DType::kU8, 121);
    model.Scale("y", 0.25f, DType::kU8, 17).Constant("axes", axes);
    std::vector<Attribute> more;
    if (op == "ReduceMean") more = {{"keepdims", int64_t{keeps}}};
    if (op == "ReduceMean" && !listed) more.push_back({"axes", axes});
    model.Node("DequantizeLinear", {"x", "x_s", "x_z"}, {"r"});
    model.Node(op, listed ? std::vector<std::string>{"r", "axes"} : std::vector<std::string>{"r"},
               {"m"}, more);
    model.Node("QuantizeLinear", {"m", "y_s", "y_z"}, {"y"}).Output("y");
    const ModelRun run = RunOn(model.Text(), {{"x", Value::Of(x)}});
    EXPECT_EQ(NamesOfLayers(run),
              (std::vector<std::string>{"global_avg_pool: " + op + ", QuantizeLinear"}));
    return TensorOf(run, "y");
  };
  const Tensor image = mean("GlobalAveragePool", {}, false, true);
  EXPECT_EQ(mean("ReduceMean", {2, 3}, true, true), image);
  EXPECT_EQ(mean("ReduceMean", {-1, 2}, false, true), image);
  EXPECT_EQ(mean("ReduceMean", {2, 3}, true, false).shape(), (Shape{2, 3}));
  // Over the first and the third axis.
  const Tensor apart = mean("ReduceMean", {0, 2}, true, false);
  ASSERT_EQ(apart.shape(), (Shape{3, 5}));
  for (int64_t i = 0; i < 15; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < 8; ++k)
      sum += 0.5 * (x.IntAt(k / 4 * 60 + i / 5 * 20 + k % 4 * 5 + i % 5) - 121);
    const double code = std::nearbyint(sum / 8 / 0.25) + 17;
    EXPECT_EQ(apart.IntAt(i), std::clamp(code, 0.0, 255.0)) << i;
  }
}

TEST(Models, MaxPoolOfTurnedImages) {
  const Tensor x = Tensor::Of<uint8_t>({1, 2, 2, 2}, std::vector<uint8_t>{1, 8, 2, 7, 3, 6, 4, 5});
  ModelWriter model;
  model.Input("x", graph::kUint8, {1, 2, 2, 2});
  model.Node("NhwcMaxPool", {"x"}, {"y"}, {{"kernel_shape", Shape{2, 2}}}, "com.microsoft");
  const ModelRun run = RunOn(model.Output("y").Text(), {{"x", Value::Of(x)}});
  EXPECT_EQ(TensorOf(run, "y"), Tensor::Of<uint8_t>({1, 1, 1, 2}, std::vector<uint8_t>{4, 8}));
}

// The nodes of a group that no case can say: the line of the operator says why.
TEST(Models, GroupsThatAreNoLayerSayWhy) {
  ModelWriter model;
  model.Input("x", graph::kUint16, {2, 4}).Scale("x", 0.5f, DType::kU16, 7);
  model.Node("DequantizeLinear", {"x", "x_s", "x_z"}, {"r"}).Node("Tanh", {"r"}, {"t"});
  model.Node("QuantizeLinear", {"t", "x_s", "x_z"}, {"y"}).Output("y");
  const ModelRun run = RunOn(model.Text(), {{"x", Value::Of(Tensor(DType::kU16, {2, 4}))}});
  ASSERT_FALSE(run.rows.empty());
  EXPECT_EQ(run.rows[0].operators, "Tanh");
  EXPECT_EQ(run.rows[0].not_run, "x is of uint16, expected int8 or uint8");
}

// As in the tests of ONNX, where all of an operator is an input.
TEST(Models, DrawnScalesAreScales) {
  ModelWriter model;
  model.Input("x", graph::kFloat, {3, 4}).Input("s", graph::kFloat, {4});
  model.Input("z", graph::kUint8, {4});
  const std::string text = model.Node("QuantizeLinear", {"x", "s", "z"}, {"y"}).Output("y").Text();
  const onnx::Graph graph(text, "m.onnx");
  std::vector<std::string> told;
  const Values drawn = DrawInputs(graph, {}, 1, &told);
  EXPECT_EQ(told[1], "s: f32 [4], random, 0.003906 to 0.0625, as it is a scale");
  EXPECT_EQ(NamesOfLayers(RunOn(text, drawn)),
            (std::vector<std::string>{"quantize: QuantizeLinear"}));
}

}  // namespace
}  // namespace qualm::models
