// SPDX-License-Identifier: Apache-2.0
// TensorFlow Lite graphs as layers: against loops over the definition, where no sum is near a tie,
// and against what nobody may say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "core/io/model_runtime.h"
#include "core/io/tflite_graph.h"
#include "core/rng.h"
#include "core/status.h"
#include "core/text_test_util.h"
#include "models/damaged_test_util.h"
#include "models/nibbles_test_util.h"
#include "models/run.h"
#include "models/tflite_writer_test_util.h"

namespace qualm::models {
namespace {

using graph::Value;
using graph::Values;
using test::FlatTable;
using test::LiteQ;
using test::TfliteWriter;
using Shape = std::vector<int64_t>;
using Index = std::vector<int32_t>;

Tensor RandomCodes(DType dtype, Shape shape, uint64_t seed) {
  Rng rng(seed);
  Tensor codes(dtype, std::move(shape));
  const CodeRange range = RangeOf(dtype);
  for (int64_t i = 0; i < codes.size(); ++i)
    codes.SetInt(i, static_cast<int32_t>(rng.Between(range.min, range.max)));
  return codes;
}

ModelRun RunOn(const std::string& model, const Values& inputs,
               graph::ModelRuntime* runtime = nullptr) {
  const tflite::Graph graph(model, "m.tflite");
  ModelOptions options;
  options.inputs = inputs;
  options.runtime = runtime;
  return RunModel(graph, options);
}

Tensor TensorOf(const ModelRun& run, const std::string& name) {
  const auto at = run.values.find(name);
  EXPECT_NE(at, run.values.end()) << name;
  return at == run.values.end() ? Tensor() : at->second.tensor;
}

std::string LayersOf(const ModelRun& run) {
  std::string text;
  for (const Row& row : run.rows) {
    text += (text.empty() ? "" : ", ") + row.operators + ": " +
            (row.op                ? std::string(Name(*row.op))
             : row.not_run.empty() ? row.no_layer
                                   : row.not_run);
  }
  return text;
}

const LiteQ kX{{0.5f}, {3}}, kY{{0.75f}, {-7}};

// What a real value becomes.
int32_t Code(double real, const LiteQ& q, double low = -HUGE_VAL, double high = HUGE_VAL) {
  const double scale = static_cast<double>(q.scale[0]);
  const double code = std::nearbyint(std::clamp(real, low, high) / scale);
  return static_cast<int32_t>(
      std::clamp(code + static_cast<double>(q.zero_point[0]), -128.0, 127.0));
}

FlatTable Window(int padding, int stride_h, int stride_w, int place_of_activation, int activation) {
  FlatTable options;
  options.Number(0, static_cast<int8_t>(padding)).Number(1, stride_w).Number(2, stride_h);
  return options.Number(place_of_activation, static_cast<int8_t>(activation));
}

// x s8 [1,7,6,4]; a window of 3 rows and 2 columns, SAME, stride 2 and 1: one row of padding before
// and behind, one column behind.
struct Image {
  Tensor x = RandomCodes(DType::kS8, {1, 7, 6, 4}, 1);
  static constexpr int64_t kRows = 4, kColumns = 6;

  // visit(pixel of the output, tap, pixel of x), -1 in the padding.
  static void Taps(const std::function<void(int64_t, int64_t, int64_t)>& visit) {
    for (int64_t h = 0; h < kRows; ++h)
      for (int64_t v = 0; v < kColumns; ++v)
        for (int64_t r = 0; r < 3; ++r)
          for (int64_t s = 0; s < 2; ++s) {
            const int64_t row = 2 * h + r - 1, column = v + s;
            const bool inside = row >= 0 && row < 7 && column < 6;
            visit(h * kColumns + v, r * 2 + s, inside ? row * 6 + column : -1);
          }
  }
  // 0 in the padding.
  double Real(int64_t pixel, int64_t channel) const {
    return pixel < 0 ? 0 : 0.5 * (x.IntAt(pixel * 4 + channel) - 3);
  }
};

TEST(Tflite, ConvolutionsHaveTheirLayoutPaddingScalesAndActivation) {
  const Image image;
  for (const bool depthwise : {false, true}) {
    const int64_t out = depthwise ? 8 : 3, in = depthwise ? 1 : 4;
    const Tensor w = RandomCodes(DType::kS8, depthwise ? Shape{1, 3, 2, 8} : Shape{3, 3, 2, 4}, 2);
    LiteQ wq{{}, {}, depthwise ? 3 : 0}, bq;
    Tensor bias(DType::kS32, {out});
    for (int64_t n = 0; n < out; ++n) {
      wq.scale.push_back(0.01f * static_cast<float>(n + 1));
      wq.zero_point.push_back(0);
      bq.scale.push_back(0.5f * wq.scale.back());
      bq.zero_point.push_back(0);
      bias.SetInt(n, static_cast<int32_t>(1000 - 700 * n));
    }
    // RELU6 in codes of 0.04: its upper bound, code 143, is beyond the last one; in codes of 0.05
    // it is 113.
    for (const float scale : {0.04f, 0.05f}) {
      const LiteQ yq{{scale}, {-7}};
      TfliteWriter model;
      const int32_t x = model.Tensor("x", test::kLiteInt8, {1, 7, 6, 4}, kX);
      const int32_t y =
          model.Tensor("y", test::kLiteInt8, {1, 4, 6, static_cast<int32_t>(out)}, yq);
      model.Op(depthwise ? 4 : 3, {x, model.Constant("w", w, wq), model.Constant("b", bias, bq)},
               {y}, depthwise ? test::kDepthwiseOptions : test::kConv2dOptions,
               Window(0, 2, 1, depthwise ? 4 : 3, 3));
      const ModelRun run =
          RunOn(model.Inputs({x}).Outputs({y}).Text(), {{"x", Value::Of(image.x)}});
      EXPECT_EQ(LayersOf(run), depthwise ? "DEPTHWISE_CONV_2D: depthwise" : "CONV_2D: conv2d");
      std::vector<double> sums(static_cast<size_t>(24 * out));
      Image::Taps([&](int64_t pixel, int64_t tap, int64_t from) {
        for (int64_t n = 0; n < out; ++n)
          for (int64_t k = 0; k < in; ++k) {
            const int64_t at = depthwise ? tap * 8 + n : (n * 6 + tap) * 4 + k;
            sums[static_cast<size_t>(pixel * out + n)] +=
                image.Real(from, depthwise ? n / 2 : k) * w.IntAt(at) *
                static_cast<double>(wq.scale[static_cast<size_t>(n)]);
          }
      });
      const Tensor got = TensorOf(run, "y");
      ASSERT_EQ(got.shape(), (Shape{1, 4, 6, out}));
      int clipped = 0;
      for (int64_t i = 0; i < got.size(); ++i) {
        const auto n = static_cast<size_t>(i % out);
        const double real =
            sums[static_cast<size_t>(i)] + bias.IntAt(i % out) * static_cast<double>(bq.scale[n]);
        EXPECT_EQ(got.IntAt(i), Code(real, yq, 0, 6)) << i;
        clipped += real > 6 ? 1 : 0;
      }
      EXPECT_GT(clipped, 5);
      EXPECT_LT(clipped, got.size() / 2 + 10);
    }
  }
}

TEST(Tflite, PoolsLeaveThePaddingOut) {
  const Image image;
  for (const bool mean : {false, true}) {
    TfliteWriter model;
    const int32_t x = model.Tensor("x", test::kLiteInt8, {1, 7, 6, 4}, kX);
    const int32_t y = model.Tensor("y", test::kLiteInt8, {1, 4, 6, 4}, kX);
    FlatTable options = Window(0, 2, 1, 5, mean ? 0 : 1);
    options.Number(3, 2).Number(4, 3);
    model.Op(mean ? 1 : 17, {x}, {y}, test::kPoolOptions, options);
    const ModelRun run = RunOn(model.Inputs({x}).Outputs({y}).Text(), {{"x", Value::Of(image.x)}});
    EXPECT_EQ(LayersOf(run), mean ? "AVERAGE_POOL_2D: avg_pool" : "MAX_POOL_2D: max_pool");
    std::vector<double> sums(96), largest(96, -HUGE_VAL), count(96);
    Image::Taps([&](int64_t pixel, int64_t, int64_t from) {
      for (int64_t c = 0; c < 4 && from >= 0; ++c) {
        const auto at = static_cast<size_t>(pixel * 4 + c);
        sums[at] += image.Real(from, c);
        largest[at] = std::max(largest[at], image.Real(from, c));
        ++count[at];
      }
    });
    const Tensor got = TensorOf(run, "y");
    for (int64_t i = 0; i < 96; ++i) {
      const auto at = static_cast<size_t>(i);
      EXPECT_EQ(got.IntAt(i), mean ? Code(sums[at] / count[at], kX) : Code(largest[at], kX, 0))
          << i;
    }
  }
}

TEST(Tflite, OperatorsOfElementsAndRowsAreWhatTheySay) {
  const Tensor a = RandomCodes(DType::kS8, {2, 6}, 3), b = RandomCodes(DType::kS8, {2, 6}, 4);
  const auto x = [&](int64_t i) { return 0.5 * (a.IntAt(i) - 3); };
  const auto w = [&](int64_t i) { return 0.75 * (b.IntAt(i) + 7); };
  const LiteQ sixth{{1.0f / 6}, {5}}, share{{0x1p-8f}, {-128}};
  struct Operator {
    std::string layers;
    int32_t code;
    int operands;
    LiteQ out;
    std::function<double(int64_t)> real;
    test::LiteOptions type = test::kNoOptions;
    FlatTable options = {};
  };
  const auto relu = [](int field) { return FlatTable().Number(field, int8_t{1}); };
  const std::vector<Operator> operators{
      {"ADD: add",
       0,
       2,
       {{1.5f}, {11}},
       [&](int64_t i) { return std::max(0.0, x(i) + w(i)); },
       test::kAddOptions,
       relu(0)},
      {"SUB: sub", 41, 2, {{1.5f}, {11}}, [&](int64_t i) { return x(i) - w(i); }},
      {"MUL: mul",
       18,
       2,
       {{37.0f}, {1}},
       [&](int64_t i) { return std::max(0.0, x(i) * w(i)); },
       test::kMulOptions,
       relu(0)},
      {"LOGISTIC: table", 14, 1, share, [&](int64_t i) { return 1 / (1 + std::exp(-x(i))); }},
      {"TANH: table", 28, 1, {{0x1p-7f}, {0}}, [&](int64_t i) { return std::tanh(x(i)); }},
      {"HARD_SWISH: table", 117, 1, sixth,
       [&](int64_t i) { return x(i) * std::clamp(x(i) + 3, 0.0, 6.0) / 6; }},
      {"LEAKY_RELU: table", 98, 1, sixth,
       [&](int64_t i) { return x(i) > 0 ? x(i) : static_cast<double>(0.3f) * x(i); },
       test::kLeakyReluOptions, FlatTable().Number(0, 0.3f)},
      {"RELU: table", 19, 1, sixth, [&](int64_t i) { return std::max(0.0, x(i)); }},
      {"RELU6: rescale", 21, 1, sixth, [&](int64_t i) { return std::clamp(x(i), 0.0, 6.0); }},
      {"QUANTIZE: rescale", 114, 1, {{0.7f}, {-9}}, x},
      {"SOFTMAX: softmax", 25, 1, share,
       [&](int64_t i) {
         double sum = 0;
         for (int64_t k = 0; k < 6; ++k) sum += std::exp(x(i / 6 * 6 + k) - x(i));
         return 1 / sum;
       },
       test::kSoftmaxOptions, FlatTable().Number(0, 1.0f)},
  };
  for (const Operator& one : operators) {
    SCOPED_TRACE(one.layers);
    TfliteWriter model;
    const Index inputs{model.Tensor("a", test::kLiteInt8, {2, 6}, kX),
                       model.Tensor("b", test::kLiteInt8, {2, 6}, kY)};
    const int32_t y = model.Tensor("y", test::kLiteInt8, {2, 6}, one.out);
    model.Op(one.code, {inputs.begin(), inputs.begin() + one.operands}, {y}, one.type, one.options);
    const ModelRun run =
        RunOn(model.Inputs(inputs).Outputs({y}).Text(), {{"a", Value::Of(a)}, {"b", Value::Of(b)}});
    EXPECT_EQ(LayersOf(run), one.layers);
    const Tensor got = TensorOf(run, "y");
    for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(got.IntAt(i), Code(one.real(i), one.out)) << i;
  }
}

TEST(Tflite, RowsMeansAndConcatenationsHaveTheirShapes) {
  const Tensor x = RandomCodes(DType::kS8, {1, 2, 3, 4}, 5), w = RandomCodes(DType::kS8, {5, 4}, 6);
  for (const bool keeps : {false, true}) {
    TfliteWriter model;
    const int32_t in = model.Tensor("x", test::kLiteInt8, {1, 2, 3, 4}, kX);
    const int32_t rows = model.Tensor("rows", test::kLiteInt8, {6, 5}, {{20.0f}, {1}});
    const int32_t mean = model.Tensor("mean", test::kLiteInt8, {1, 1, 1, 4}, kY);
    const int32_t joined = model.Tensor("joined", test::kLiteInt8, {1, 2, 9, 4}, kX);
    FlatTable full, reducer, axis;
    full.Number(2, static_cast<int8_t>(keeps));
    model.Op(9, {in, model.Constant("w", w, {{0.25f}, {0}}), -1}, {rows},
             test::kFullyConnectedOptions, full);
    model.Op(40, {in, model.Integers("axes", {-3, 2})}, {mean}, test::kReducerOptions,
             reducer.Number(0, static_cast<int8_t>(keeps)));
    model.Op(2, {in, in, in}, {joined}, test::kConcatenationOptions, axis.Number(0, -2));
    const ModelRun run =
        RunOn(model.Inputs({in}).Outputs({rows, mean, joined}).Text(), {{"x", Value::Of(x)}});
    EXPECT_EQ(LayersOf(run),
              "FULLY_CONNECTED: linear, MEAN: global_avg_pool, CONCATENATION: concat");
    EXPECT_EQ(TensorOf(run, "rows").shape(), keeps ? (Shape{1, 2, 3, 5}) : (Shape{6, 5}));
    for (int64_t i = 0; i < 30; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < 4; ++k)
        sum += 0.5 * (x.IntAt(i / 5 * 4 + k) - 3) * 0.25 * w.IntAt(i % 5 * 4 + k);
      EXPECT_EQ(TensorOf(run, "rows").IntAt(i), Code(sum, {{20.0f}, {1}})) << i;
    }
    EXPECT_EQ(TensorOf(run, "mean").shape(), keeps ? (Shape{1, 1, 1, 4}) : (Shape{1, 4}));
    for (int64_t c = 0; c < 4; ++c) {
      double sum = 0;
      for (int64_t pixel = 0; pixel < 6; ++pixel) sum += 0.5 * (x.IntAt(pixel * 4 + c) - 3);
      EXPECT_EQ(TensorOf(run, "mean").IntAt(c), Code(sum / 6, kY)) << c;
    }
    ASSERT_EQ(TensorOf(run, "joined").shape(), (Shape{1, 2, 9, 4}));
    for (int64_t i = 0; i < 72; ++i)
      EXPECT_EQ(TensorOf(run, "joined").IntAt(i), x.IntAt(i / 36 * 12 + i % 12)) << i;
  }
}

// What Keras writes where a Dense has images: the rows of all but the last axis, by SHAPE.
TEST(Tflite, ProductsOfSizes) {
  TfliteWriter model;
  const int32_t x = model.Tensor("x", test::kLiteInt8, {2, 3, 4}, kX);
  const int32_t all = model.Tensor("all", test::kLiteInt32, {3});
  const int32_t product = model.Tensor("product", test::kLiteInt32, {1});
  const int32_t y = model.Tensor("y", test::kLiteInt8, {24}, kX);
  model.Op(77, {x}, {all})
      .Op(81, {all, model.Integers("axes", {0})}, {product}, test::kReducerOptions,
          FlatTable().Number(0, int8_t{1}));
  model.Op(22, {x, product}, {y}).Inputs({x}).Outputs({y});
  const Tensor codes = RandomCodes(DType::kS8, {2, 3, 4}, 5);
  EXPECT_EQ(TensorOf(RunOn(model.Text(), {{"x", Value::Of(codes)}}), "y").shape(), (Shape{24}));
}

// Gives the variables ones, and runs no node.
class StatefulRuntime : public graph::ModelRuntime {
 public:
  std::string name() const override { return "Fake 2"; }
  Answer Run(const graph::Graph&, const Values&, const std::vector<std::string>& wanted) override {
    Answer answer;
    for (const std::string& name : wanted) {
      if (name == "kept")
        answer.values[name] = Value::Of(Tensor::Of<int8_t>({2}, std::vector<int8_t>{1, 1}));
    }
    return answer;
  }
  Answer RunNode(const graph::Graph&, const graph::Node&, const Values&) override {
    return {{}, "no"};
  }
};

TEST(Tflite, WhatAModelKeepsIsAsTheRuntimeHasIt) {
  TfliteWriter model;
  constexpr int8_t kResource = 13;
  const int32_t x = model.Tensor("x", test::kLiteInt8, {2}, kX);
  const int32_t handle = model.Tensor("handle", kResource, {});
  const int32_t kept = model.Tensor("kept", test::kLiteInt8, {2}, kX);
  const int32_t y = model.Tensor("y", test::kLiteInt8, {4}, kX);
  model.Op(129, {}, {}).Op(142, {}, {handle}).Op(143, {handle}, {kept});
  model.Op(2, {kept, x}, {y}, test::kConcatenationOptions, FlatTable().Number(0, int32_t{0}));
  model.Op(144, {handle, x}, {}).Inputs({x}).Outputs({y});
  const Values inputs{{"x", Value::Of(Tensor::Of<int8_t>({2}, std::vector<int8_t>{5, 6}))}};
  StatefulRuntime runtime;
  const ModelRun run = RunOn(model.Text(), inputs, &runtime);
  EXPECT_EQ(LayersOf(run), "CONCATENATION: concat");
  EXPECT_EQ(TensorOf(run, "y"), Tensor::Of<int8_t>({4}, std::vector<int8_t>{1, 1, 5, 6}));
  EXPECT_EQ(run.state_of, "Fake 2");
  EXPECT_EQ(LayersOf(RunOn(model.Text(), inputs)),
            "READ_VARIABLE: what the model keeps between calls, which only a runtime knows, "
            "CONCATENATION: behind kept");
}

TEST(Tflite, BatchesAreTurnedAsTheySay) {
  const Tensor a = RandomCodes(DType::kS8, {2, 3, 4}, 7), b = RandomCodes(DType::kS8, {2, 5, 3}, 8);
  TfliteWriter model;
  const int32_t x = model.Tensor("a", test::kLiteInt8, {2, 3, 4}, {{0.5f}, {0}});
  const int32_t w = model.Tensor("b", test::kLiteInt8, {2, 5, 3}, {{0.25f}, {0}});
  const int32_t y = model.Tensor("y", test::kLiteInt8, {2, 4, 5}, {{20.0f}, {1}});
  FlatTable turned;
  turned.Number(0, int8_t{1}).Number(1, int8_t{1});
  model.Op(126, {x, w}, {y}, static_cast<test::LiteOptions>(101), turned);
  const ModelRun run =
      RunOn(model.Inputs({x, w}).Outputs({y}).Text(), {{"a", Value::Of(a)}, {"b", Value::Of(b)}});
  ASSERT_EQ(TensorOf(run, "y").shape(), (Shape{2, 4, 5}));
  for (int64_t i = 0; i < 40; ++i) {
    const int64_t batch = i / 20, m = i / 5 % 4, n = i % 5;
    double sum = 0;
    for (int64_t k = 0; k < 3; ++k)
      sum += 0.125 * a.IntAt((batch * 3 + k) * 4 + m) * b.IntAt((batch * 5 + n) * 3 + k);
    EXPECT_EQ(TensorOf(run, "y").IntAt(i), Code(sum, {{20.0f}, {1}})) << i;
  }
}

TEST(Tflite, RealsAreQuantizedAndBack) {
  TfliteWriter model;
  const int32_t x = model.Tensor("x", test::kLiteFloat, {4});
  const int32_t q = model.Tensor("q", test::kLiteUint8, {4}, {{0.5f}, {10}});
  const int32_t y = model.Tensor("y", test::kLiteFloat, {4});
  model.Op(114, {x}, {q}).Op(6, {q}, {y}).Inputs({x}).Outputs({y});
  const ModelRun run = RunOn(
      model.Text(),
      {{"x", Value::Of(Tensor::Of<float>({4}, std::vector<float>{0.2f, 0.3f, -9.0f, 400.0f}))}});
  EXPECT_EQ(LayersOf(run), "QUANTIZE: quantize, DEQUANTIZE: dequantize");
  EXPECT_EQ(TensorOf(run, "y"),
            Tensor::Of<float>({4}, std::vector<float>{0.0f, 0.5f, -5.0f, 122.5f}));
  std::vector<std::string> told;
  const std::string text = model.Text();
  DrawInputs(tflite::Graph(text, "m"), {}, 1, &told);
  EXPECT_EQ(told[0], "x: f32 [4], random, -5 to 122.5, the range of its QuantizeLinear");
}

TEST(Tflite, MovesKeepEveryElement) {
  Tensor x(DType::kS8, {2, 3, 4});
  for (int64_t i = 0; i < 24; ++i) x.SetInt(i, static_cast<int32_t>(i));
  struct Move {
    int32_t code;
    std::vector<Index> lists;  // behind x
    Shape shape;
    std::vector<int32_t> first;  // of the last output
    test::LiteOptions type = test::kNoOptions;
    FlatTable options = {};
    int outputs = 1;
    bool list_first = false;
  };
  const auto mask = [](int field) { return FlatTable().Number(field, int32_t{1}); };
  const std::vector<Move> moves{
      {22, {{4, -1}}, {4, 6}, {0, 1}},
      {22, {}, {6, 4}, {0, 1}, test::kReshapeOptions, FlatTable().Numbers(0, Index{6, -1})},
      {39, {{2, 0, 1}}, {4, 2, 3}, {0, 4, 8, 12, 16, 20, 1}},
      {65, {{1, 0, 1}, {1, -1, 2}}, {1, 3, 2}, {13, 14, 17, 18, 21, 22}},
      {45, {{-1, 0, 1}, {2, 3, 4}, {1, 2, 2}}, {1, 2, 2}, {13, 15, 21, 23}},
      {45,
       {{1, 2, 1}, {2, 3, 4}, {1, 1, 2}},
       {3, 2},
       {13, 15, 17, 19, 21, 23},
       test::kStridedSliceOptions,
       mask(4).Number(0, int32_t{2})},
      {70, {{-1}}, {2, 3, 4, 1}, {0, 1}},
      {36, {{1, 0}}, {2, 3, 4}, {12, 13, 14}},
      {34, {{0, 1, 1, 0, 0, 2}}, {3, 4, 6}, {3, 3, 3, 3, 3, 3, 0, 1, 2, 3, 3, 3, 4}},
      {49, {{2}}, {2, 3, 2}, {2, 3, 6, 7}, test::kNoOptions, {}, 2, true},
      {102, {{1, -1}, {1}}, {2, 2, 4}, {4, 5, 6, 7, 8}, test::kNoOptions, {}, 2},
      {88, {}, {2, 4}, {8, 9, 10, 11, 20}, test::kUnpackOptions, FlatTable().Number(1, 1), 3},
      {83, {}, {2, 1, 3, 4}, {0, 1}, test::kPackOptions, FlatTable().Number(1, 1)},
  };
  for (const Move& move : moves) {
    SCOPED_TRACE(move.code);
    TfliteWriter model;
    const int32_t in = model.Tensor("x", test::kLiteInt8, {2, 3, 4}, kX);
    Index inputs{in}, outputs;
    for (const Index& list : move.lists)
      inputs.insert(move.list_first ? inputs.begin() : inputs.end(), model.Integers("", list));
    for (int i = 0; i < move.outputs; ++i)
      outputs.push_back(model.Tensor("y" + std::to_string(i), test::kLiteInt8, {}, kX));
    model.Op(move.code, inputs, outputs, move.type, move.options);
    const ModelRun run = RunOn(model.Inputs({in}).Outputs(outputs).Text(), {{"x", Value::Of(x)}});
    EXPECT_EQ(LayersOf(run), "");
    const Tensor y = TensorOf(run, "y" + std::to_string(move.outputs - 1));
    EXPECT_EQ(y.shape(), move.shape);
    ASSERT_GE(y.size(), std::ssize(move.first));
    for (size_t i = 0; i < move.first.size(); ++i)
      EXPECT_EQ(y.IntAt(static_cast<int64_t>(i)), move.first[i]) << i;
  }
}

// Gives every value zeros of 16 bits, and says what it was asked.
class FakeRuntime : public graph::ModelRuntime {
 public:
  std::string name() const override { return "Fake 1"; }
  Answer Run(const graph::Graph&, const Values&, const std::vector<std::string>&) override {
    return {};
  }
  Answer RunNode(const graph::Graph&, const graph::Node& node, const Values& inputs) override {
    for (const auto& [name, value] : inputs) asked += node.op + " " + name + "; ";
    return {{{node.Output(0), Value::Of(Tensor(DType::kS16, {2}))}}, ""};
  }
  std::string asked;
};

// Two codes in a byte, the first one low; the last of an odd number is alone.
TEST(Tflite, WeightsOfFourBits) {
  const auto nibbles = test::FifteenNibbles({3, 5});
  const Tensor& w = nibbles.first;
  const std::string& packed = nibbles.second;
  const LiteQ scales{{0.125f, 0.25f, 0.5f}, {0, 0, 0}};
  const auto product = [&](bool four) {
    TfliteWriter model;
    const int32_t x = model.Tensor("x", test::kLiteInt8, {2, 5}, kX);
    const int32_t weights = four ? model.Tensor("w", test::kLiteInt4, {3, 5}, scales, packed)
                                 : model.Constant("w", w, scales);
    const int32_t y = model.Tensor("y", test::kLiteInt8, {2, 3}, kY);
    return model.Op(9, {x, weights, -1}, {y}).Inputs({x}).Outputs({y}).Text();
  };
  const Values inputs{{"x", Value::Of(RandomCodes(DType::kS8, {2, 5}, 1))}};
  const ModelRun eight = RunOn(product(false), inputs), run = RunOn(product(true), inputs);
  EXPECT_EQ(LayersOf(run), LayersOf(eight));
  EXPECT_EQ(TensorOf(run, "y"), TensorOf(eight, "y"));
}

// 16x8: sums leave int32, and a bias of int64 is one of int32, or no case.
TEST(Tflite, SixteenByEight) {
  const Tensor codes = RandomCodes(DType::kS16, {2, 600}, 1);
  Tensor w = RandomCodes(DType::kS8, {3, 600}, 2);
  for (int64_t k = 0; k < 600; ++k) w.SetInt(k, codes.IntAt(k) < 0 ? -128 : 127);
  for (const int64_t bias : {int64_t{INT32_MAX}, int64_t{INT32_MAX} + 1}) {
    const std::vector<int64_t> biases{bias, -1, 7};
    TfliteWriter model;
    const int32_t x = model.Tensor("x", test::kLiteInt16, {2, 600}, {{0.5f}, {0}});
    const int32_t weights = model.Constant("w", w, {{0.25f, 0.5f, 1}, {0, 0, 0}});
    const int32_t b = model.Tensor("b", test::kLiteInt64, {3}, {}, test::Raw(biases));
    const int32_t y = model.Tensor("y", test::kLiteInt16, {2, 3}, {{32768}, {0}});
    const std::string text = model.Op(9, {x, weights, b}, {y}).Inputs({x}).Outputs({y}).Text();
    const ModelRun run = RunOn(text, {{"x", Value::Of(codes)}});
    if (bias > INT32_MAX) {
      EXPECT_EQ(LayersOf(run), "FULLY_CONNECTED: b has 2147483648, expected numbers of int32");
      continue;
    }
    EXPECT_EQ(LayersOf(run), "FULLY_CONNECTED: linear");
    const Tensor given = TensorOf(run, "y");
    for (int64_t i = 0; i < given.size(); ++i) {
      const int64_t n = i % 3;
      int64_t sum = biases[static_cast<size_t>(n)];
      for (int64_t k = 0; k < 600; ++k)
        sum += int64_t{codes.IntAt(i / 3 * 600 + k)} * w.IntAt(n * 600 + k);
      const double code = std::nearbyint(static_cast<double>(sum << n) / 8 / 32768);
      EXPECT_EQ(given.IntAt(i), std::clamp(code, -32768.0, 32767.0)) << i;
    }
    EXPECT_GT(given.IntAt(0), 10000) << "2^31 bias, and more from products";
  }
}

TEST(Tflite, WhatNoCaseSaysTheRuntimeRuns) {
  TfliteWriter model;
  const int32_t x = model.Tensor("x", test::kLiteFloat, {1, 2});
  const int32_t q = model.Tensor("q", test::kLiteInt16, {1, 2}, kX);
  const int32_t y = model.Tensor("y", test::kLiteInt16, {1, 2}, kX);
  const int32_t hybrid = model.Tensor("hybrid", test::kLiteFloat, {1, 2});
  const int32_t w = model.Constant("w", RandomCodes(DType::kS8, {2, 2}, 1), {{0.5f}, {0}});
  // Of 4 bits weights are codes, and activations are not.
  const int32_t packed = model.Tensor("packed", test::kLiteInt4, {1, 2}, {{0.5f}, {0}});
  const int32_t z = model.Tensor("z", test::kLiteInt8, {1, 2}, kX);
  const int32_t v = model.Tensor("v", test::kLiteFloat, {1, 2});
  model.Op(114, {x}, {q}).Op(0, {q, q}, {y}).Op(9, {x, w, -1}, {hybrid});
  model.Op(114, {z}, {packed}).Op(0, {hybrid, hybrid}, {v});
  const std::string text = model.Inputs({x, z}).Outputs({y, hybrid, z, v}).Text();
  const Values inputs{{"x", Value::Of(Tensor(DType::kF32, {1, 2}))},
                      {"z", Value::Of(Tensor(DType::kS8, {1, 2}))}};
  FakeRuntime runtime;
  EXPECT_EQ(LayersOf(RunOn(text, inputs, &runtime)),
            "QUANTIZE: quantize, ADD: q is of int16, expected int8 or uint8, "
            "FULLY_CONNECTED: x is of float, expected int8, uint8 or int16, "
            "QUANTIZE: packed is of int4, expected int8 or uint8, ADD: ");
  EXPECT_EQ(runtime.asked, "ADD q; FULLY_CONNECTED x; QUANTIZE z; ADD hybrid; ");
  EXPECT_EQ(LayersOf(RunOn(text, inputs)),
            "QUANTIZE: quantize, ADD: q is of int16, expected int8 or uint8, "
            "FULLY_CONNECTED: x is of float, expected int8, uint8 or int16, "
            "QUANTIZE: packed is of int4, expected int8 or uint8");
}

std::string SmallModel() {
  TfliteWriter model;
  const int32_t x = model.Tensor("x", test::kLiteInt8, {1, 4, 4, 2}, kX);
  const int32_t c = model.Tensor("c", test::kLiteInt8, {1, 4, 4, 3}, kY);
  const int32_t p = model.Tensor("p", test::kLiteInt8, {1, 2, 2, 3}, kY);
  const int32_t r = model.Tensor("r", test::kLiteInt8, {1, 12}, kY);
  const int32_t y = model.Tensor("y", test::kLiteInt8, {1, 5}, kX);
  const LiteQ of_w{{0.01f, 0.02f, 0.03f}, {0, 0, 0}};
  model.Op(3, {x, model.Constant("w", RandomCodes(DType::kS8, {3, 3, 3, 2}, 1), of_w), -1}, {c},
           test::kConv2dOptions, Window(0, 1, 1, 3, 1));
  FlatTable pool = Window(1, 2, 2, 5, 0);
  model.Op(17, {c}, {p}, test::kPoolOptions, pool.Number(3, 2).Number(4, 2));
  model.Op(22, {p, model.Integers("shape", {1, -1})}, {r});
  model.Op(9, {r, model.Constant("f", RandomCodes(DType::kS8, {5, 12}, 2), {{0.02f}, {0}}), -1},
           {y}, test::kFullyConnectedOptions);
  return model.Inputs({x}).Outputs({y}).Text();
}

TEST(Tflite, BrokenFilesAreRefusedInOneLine) {
  const auto refused = [](std::string model, const std::string& expected) {
    EXPECT_EQ(Refusal([&] { const tflite::Graph graph(model, "m"); }), expected);
  };
  const auto broken = [&](std::string model, const std::string& why) {
    refused(std::move(model),
            "m: file: is no TensorFlow Lite model (" + why + "), expected a flatbuffer");
  };
  broken("", "no TFL3 at byte 4");
  std::string model = SmallModel();
  model[7] = '2';
  broken(model, "no TFL3 at byte 4");
  broken(SmallModel().substr(0, 40), "it ends too early");
  FlatTable other;
  refused(test::FlatWriter::Text(other.Number(0, uint32_t{2}), "TFL3"),
          "m: version: is 2, expected 3");
  refused(test::FlatWriter::Text(other.Number(0, uint32_t{3}), "TFL3"),
          "m: subgraphs: has none, expected one");
  // A root before the file, and offsets to themselves, which say nothing.
  broken(std::string("\x08\0\0\0TFL3\x7f\0\0\0\0\0\0\0", 16), "a table has no vtable");
  refused(std::string("\x08\0\0\0TFL3\0\0\0\0\0\0\0\0", 16), "m: version: is 0, expected 3");
  refused(std::string("\0\0\0\0TFL3\0\0\0\0\0\0\0\0", 16), "m: version: is 0, expected 3");
  other.vectors[2] = {uint32_t{1} << 30, "", {}};
  broken(test::FlatWriter::Text(other, "TFL3"),
         "a vector of 1073741824 elements is longer than the file");
  TfliteWriter writer;
  const int32_t x = writer.Tensor("x", test::kLiteInt8, {1}, {{1.0f}, {300}});
  refused(writer.Inputs({x}).Text(), "m: x: zero_point: is 300, expected -128 to 127");
  refused(TfliteWriter().Inputs({5}).Text(),
          "m: subgraph: names tensor 5 of 0, expected one of them");
  refused(TfliteWriter().Op(0, {-2}, {}).Text(),
          "m: operator inputs: names tensor -2 of 0, expected one of them");
}

// Many offsets to one long list: no more is copied than the file is long.
TEST(Tflite, OverlappingListsAreRefused) {
  const Index zeros(20'000, 0);
  TfliteWriter writer;
  const int32_t x = writer.Tensor("x", test::kLiteInt8, {1}, kX);
  writer.Op(0, zeros, {x});
  std::string model = writer.Inputs({x}).Text();
  EXPECT_EQ(tflite::Graph(model, "m").nodes().size(), 1u);
  // A list of 20000 operators, each of which is the one that is there.
  FlatTable graph, all, op, tensor, code;
  op.Number(0, uint32_t{0}).Numbers(1, zeros).Numbers(2, Index{0});
  tensor.Numbers(0, Index{1}).Number(1, int8_t{9}).Text(3, "x");
  graph.Tables(0, {tensor}).Tables(3, std::vector<FlatTable>(20'000, FlatTable()));
  all.Number(0, uint32_t{3}).Tables(1, {code}).Tables(2, {graph}).Tables(4, {FlatTable()});
  model = test::FlatWriter::Text(all, "TFL3");
  const size_t begin = model.size();
  const std::string alone = test::FlatWriter::Text(op, "TFL3");
  model += alone;
  uint32_t place = 0;
  std::memcpy(&place, alone.data(), sizeof place);
  const std::string count = test::Raw(std::vector<uint32_t>{20'000});
  const size_t list = model.find(count);
  ASSERT_NE(list, std::string::npos);
  for (size_t i = 0; i < 20'000; ++i) {
    const size_t at = list + 4 + 4 * i;
    const auto offset = static_cast<uint32_t>(begin + place - at);
    std::memcpy(model.data() + at, &offset, sizeof offset);
  }
  EXPECT_EQ(Refusal([&] { const tflite::Graph read(model, "m"); }),
            "m: file: is no TensorFlow Lite model (its vectors overlap), expected a flatbuffer");
}

// Some are cut off too.
TEST(Tflite, DamagedModelsAreRunOrRefused) {
  const std::string whole = SmallModel();
  test::ExpectRunOrRefused<tflite::Graph>(
      4000,
      [&](Rng& rng, uint64_t seed) {
        return seed % 8 == 0 ? whole.substr(0, rng.Below(whole.size())) : whole;
      },
      // Images of many millions are run, but not a thousand times.
      [](const tflite::Graph& graph) {
        return std::ranges::any_of(graph.inputs(), [](const graph::Port& port) {
          return ElementCount(*port.shape, 1 << 12) < 0;
        });
      });
}

}  // namespace
}  // namespace qualm::models
