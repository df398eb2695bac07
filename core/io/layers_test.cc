// SPDX-License-Identifier: Apache-2.0
// Weight files: those of corpus/layers/make_layers.py are read, malformed ones are refused.
#include "core/io/layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/io/arrays.h"
#include "core/io/case_json.h"
#include "core/io/npy.h"
#include "core/status.h"
#include "core/text_test_util.h"

namespace qualm {
namespace {

const std::string kFolder = QUALM_SOURCE_DIR "/corpus/layers/";

std::string MessageOf(const std::string& bytes, auto parse) {
  return Refusal([&] { parse(bytes, "file"); });
}

std::string Npy(const std::string& header, const std::string& data) {
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size());
  return bytes + '\0' + header + data;
}
std::string Int8(const std::string& shape) {
  return "{'descr': '|i1', 'fortran_order': False, 'shape': " + shape + ", }\n";
}

TEST(Npy, ReadsBack) {
  const std::vector<int8_t> s8 = {1, -2, 3, -128, 127, 0};
  const std::vector<float> f32 = {1.5f, -0.0f};
  const std::vector<int32_t> s32 = {-1, 1 << 30};
  for (const Tensor& tensor : {Tensor::Of<int8_t>({2, 3}, s8), Tensor::Of<int8_t>({1, 2, 3, 1}, s8),
                               Tensor::Of<float>({2}, f32), Tensor::Of<int32_t>({1, 2}, s32),
                               Tensor(DType::kU8, {0, 4})}) {
    const std::string bytes = NpyOf(tensor);
    EXPECT_EQ((bytes.size() - tensor.bytes().size()) % 64, 0u);
    EXPECT_EQ(ParseNpy(bytes, "file"), tensor);
  }
}

// What numpy.save writes of numpy.asfortranarray(values), and of a transposed array.
TEST(Npy, ReadsFortranOrder) {
  const auto read = [](const std::string& descr, const std::string& shape,
                       const std::string& data) {
    return ParseNpy(
        Npy("{'descr': '" + descr + "', 'fortran_order': True, 'shape': " + shape + ", }", data),
        "file");
  };
  EXPECT_EQ(read("|i1", "(2, 3)", "\1\4\2\5\3\6"),
            Tensor::Of<int8_t>({2, 3}, std::vector<int8_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(read("|u1", "(2, 1, 2, 2)", "\1\5\3\7\2\6\4\10"),
            Tensor::Of<uint8_t>({2, 1, 2, 2}, std::vector<uint8_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(read("<i4", "(2, 2)", std::string("\1\0\0\0\3\0\0\0\2\0\0\0\0\1\0\0", 16)),
            Tensor::Of<int32_t>({2, 2}, std::vector<int32_t>{1, 2, 3, 256}));
  EXPECT_EQ(read("|i1", "(3,)", "\1\2\3"), Tensor::Of<int8_t>({3}, std::vector<int8_t>{1, 2, 3}));
  EXPECT_EQ(read("|i1", "(2, 0)", ""), Tensor(DType::kS8, {2, 0}));
}

TEST(Npy, RefusesWhatItDoesNotHold) {
  const auto message = [](const std::string& bytes) { return MessageOf(bytes, ParseNpy); };
  EXPECT_EQ(message(Npy(Int8("(2, 1)"), "ab")), "");
  EXPECT_EQ(message(Npy(Int8("(2,)"), "ab")), "");
  EXPECT_EQ(message(Npy(Int8("(2, 2)"), "ab")),
            "file: shape: asks for 4 bytes, expected the 2 that are there");
  EXPECT_EQ(message(Npy(Int8("(4294967296, 4294967296)"), "ab")),
            "file: shape: has a negative dimension or more than 2^28 elements, expected fewer");
  EXPECT_EQ(message(Npy(Int8("(-2, -1)"), "ab")),
            "file: header: has the dimension \"-2\", expected an integer from 0 on");
  EXPECT_EQ(message(Npy(Int8("(2"), "ab")).substr(0, 13), "file: header:");
  EXPECT_EQ(message(Npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", "12345678")),
            "file: descr: is \"<f8\", expected int8, uint8, int16, uint16, int32 or float32");
  EXPECT_EQ(message(Npy("{'descr': '>i4', 'fortran_order': False, 'shape': (1,), }", "1234")),
            "file: descr: is \">i4\", expected int8, uint8, int16, uint16, int32 or float32");
  EXPECT_EQ(message(Npy("{'descr': '|i1', 'fortran_order': 1, 'shape': (2, 2), }", "abcd")),
            "file: fortran_order: is \"1\", expected False or True");
  EXPECT_EQ(message(Npy("{'descr': '|i1', 'descr': '|i1', 'shape': (1,), }", "a")).substr(0, 30),
            "file: header: has the entry \"d");
  EXPECT_EQ(message("PK\x03\x04 and more than twelve bytes"),
            "file: file: is no .npy file, expected what numpy.save writes");
  const std::string whole = Npy(Int8("(2, 1)"), "ab");
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(message(whole.substr(0, length)), "") << length;
  }
}

TEST(Safetensors, GivesTheLayersOfTwoAndFourDimensions) {
  const std::vector<NamedLayer> layers = ReadLayers(kFolder + "mixed.safetensors", {});
  ASSERT_EQ(layers.size(), 2u);  // no bias, and no half floats beside codes
  EXPECT_EQ(layers[0].name, "fc.weight");
  EXPECT_EQ(layers[0].layer.op, Op::kLinear);
  EXPECT_EQ(layers[0].layer.w.shape(), (std::vector<int64_t>{16, 64}));
  EXPECT_EQ(layers[0].layer.w, ReadLayers(kFolder + "fc.npy", {})[0].layer.w);
  EXPECT_EQ(layers[1].layer.op, Op::kConv2d);
  EXPECT_EQ(layers[1].layer.w.shape(), (std::vector<int64_t>{8, 3, 3, 6}));
  EXPECT_EQ(layers[1].layer.K, 54);
  // PyTorch has the channels before the taps.
  const auto raw =
      ParseSafetensors(ReadBinaryFile(kFolder + "mixed.safetensors", kMaxWeightFile), "file");
  const Tensor& oihw = raw[1].values;
  for (int64_t n = 0; n < 8; ++n) {
    for (int64_t c = 0; c < 6; ++c) {
      for (int64_t tap = 0; tap < 9; ++tap) {
        ASSERT_EQ(layers[1].layer.w.IntAt((n * 9 + tap) * 6 + c),
                  oihw.IntAt((n * 6 + c) * 9 + tap));
      }
    }
  }
  LayerReading reading;
  reading.groups = 2;
  EXPECT_EQ(ReadLayers(kFolder + "mixed.safetensors", reading)[1].layer.window.in_c, 12);
  reading.groups = 3;
  EXPECT_THROW(ReadLayers(kFolder + "mixed.safetensors", reading), InputError);
  EXPECT_EQ(ReadLayers(kFolder + "float.safetensors", {})[0].layer.w.dtype(), DType::kF32);
}

TEST(Onnx, ReadsDataInFilesBesideTheModel) {
  const std::vector<NamedLayer> layers = ReadLayers(kFolder + "external.onnx", {});
  ASSERT_EQ(layers.size(), 1u);
  EXPECT_EQ(layers[0].layer.w, ReadLayers(kFolder + "fc.npy", {})[0].layer.w);
  // Bytes that come without a file have none beside them.
  std::string model = ReadBinaryFile(kFolder + "external.onnx", kMaxWeightFile);
  EXPECT_EQ(MessageOf(model, ParseOnnx),
            "file: fc.weight: has its data in another file, expected it inside");
  const auto refused = [&](const std::string& from, const std::string& to) -> std::string {
    std::string other = model;
    other.replace(other.find(from), from.size(), to);
    const std::string folder = ::testing::TempDir() + "qualm_external_onnx";
    std::filesystem::create_directories(folder);
    std::filesystem::copy_file(kFolder + "external.bin", folder + "/external.bin",
                               std::filesystem::copy_options::overwrite_existing);
    const std::string path = folder + "/model.onnx";
    std::ofstream(path, std::ios::binary) << other;
    const std::string text = Refusal([&] { ReadLayers(path, {}); });
    return text.starts_with(folder + "/") ? text.substr(folder.size() + 1) : text;
  };
  EXPECT_EQ(refused("external.bin", "external.bin"), "");
  EXPECT_EQ(
      refused("external.bin", "../ternal.in"),
      "model.onnx: fc.weight: location: is \"../ternal.in\", expected a file in the folder of "
      "the model");
  EXPECT_EQ(
      refused("external.bin", "/xternal.bin"),
      "model.onnx: fc.weight: location: is \"/xternal.bin\", expected a file in the folder of "
      "the model");
  EXPECT_EQ(refused("external.bin", "external.dat"),
            "external.dat: file: is no regular file, expected a readable one");
  EXPECT_EQ(refused("1024", "1023"),
            "model.onnx: fc.weight: shape: asks for 1024 bytes, expected the 1023 that are there");
  EXPECT_EQ(refused("1024", "2024"), "external.bin: file: has 1088 bytes, expected more");
  EXPECT_EQ(refused("1024", "10x4"),
            "model.onnx: fc.weight: length: is \"10x4\", expected a number");
}

TEST(Safetensors, FloatsOf16BitsAreReadExactly) {
  const auto floats = [](const std::string& type, const std::vector<uint16_t>& bits) {
    const auto length = std::to_string(2 * bits.size());
    const std::string header = R"({"a":{"dtype":")" + type + R"(","shape":[)" +
                               std::to_string(bits.size()) + R"(],"data_offsets":[0,)" + length +
                               "]}}";
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    bytes += header;
    for (const uint16_t b : bits) {
      bytes += static_cast<char>(b & 0xFF);
      bytes += static_cast<char>(b >> 8);
    }
    const Tensor values = ParseSafetensors(bytes, "file")[0].values;
    return std::vector<float>(values.as<float>().begin(), values.as<float>().end());
  };
  // 1, -2, the largest, the smallest normal one, the smallest one, -0.
  EXPECT_EQ(floats("F16", {0x3C00, 0xC000, 0x7BFF, 0x0400, 0x0001, 0x8000}),
            (std::vector<float>{1, -2, 65504, 0x1p-14f, 0x1p-24f, -0.0f}));
  EXPECT_EQ(floats("F16", {0x7C00, 0xFC00}), (std::vector<float>{INFINITY, -INFINITY}));
  EXPECT_TRUE(std::isnan(floats("F16", {0x7C01})[0]));
  EXPECT_EQ(floats("BF16", {0x3F80, 0xC000, 0x0001, 0x7F7F}),
            (std::vector<float>{1, -2, 0x1p-133f, 0x1.fep127f}));
}

TEST(Safetensors, RefusesWhatItDoesNotHold) {
  const auto message = [](const std::string& header, const std::string& data) {
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    return MessageOf(bytes + header + data, ParseSafetensors);
  };
  EXPECT_EQ(message(R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})", "ab"), "");
  EXPECT_EQ(message(R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,3]}})", "ab"),
            "file: a.data_offsets[1]: is 3, expected an integer in 0..2");
  EXPECT_EQ(message(R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[2,1]}})", "ab"),
            "file: a.data_offsets[0]: is 2, expected an integer in 0..1");
  EXPECT_EQ(message(R"({"a":{"dtype":"I8","shape":[3],"data_offsets":[0,2]}})", "ab"),
            "file: a: shape: asks for 3 bytes, expected the 2 that are there");
  EXPECT_EQ(message(R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,1]}})", "ab"),
            "file: a: shape: has elements of 2 bytes, expected an even number of bytes");
  EXPECT_EQ(message(R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,2]}})", "ab"),
            "file: a: shape: asks for 8 bytes, expected the 4 that are there");
  EXPECT_EQ(message(R"({"a":{"dtype":"I8","shape":[-1],"data_offsets":[0,2]}})", "ab"),
            "file: a.shape[0]: is -1, expected an integer in 0..9223372036854775807");
  EXPECT_EQ(message(R"({"a":{"dtype":"I8","shape":[1e0],"data_offsets":[0,2]}})", "ab"),
            "file: a.shape[0]: is a number, expected an integer in 0..9223372036854775807");
  EXPECT_EQ(message(R"({"a":{"dtype":"I8","shape":[],"data_offsets":[0]}})", "ab"),
            "file: a.data_offsets: has another length, expected [begin, end]");
  EXPECT_EQ(MessageOf("short", ParseSafetensors),
            "file: file: is no .safetensors file, expected a header");
  EXPECT_EQ(MessageOf(std::string(8, '\xFF') + "{}", ParseSafetensors),
            "file: header: claims 18446744073709551615 bytes, expected at most 2^26 that are "
            "there");
}

TEST(Onnx, GivesItsQuantizedLayers) {
  const std::vector<NamedLayer> layers = ReadLayers(kFolder + "model.onnx", {});
  ASSERT_EQ(layers.size(), 3u);
  const Case& conv = layers[0].layer;
  EXPECT_EQ(layers[0].name, "conv.weight");
  EXPECT_EQ(conv.op, Op::kConv2d);
  EXPECT_EQ(conv.w.shape(), (std::vector<int64_t>{8, 3, 3, 4}));
  EXPECT_EQ(conv.x.dtype(), DType::kU8);
  EXPECT_EQ(conv.x_q.zero_point, std::vector<int32_t>{0x72});
  EXPECT_EQ(conv.w_q.scale, std::vector<float>{0.02f});
  const Case& depthwise = layers[1].layer;
  EXPECT_EQ(depthwise.op, Op::kDepthwise);
  EXPECT_EQ(depthwise.window.groups, 8);
  EXPECT_TRUE(depthwise.per_channel);
  EXPECT_EQ(depthwise.w_q.scale.size(), 8u);
  EXPECT_EQ(layers[2].name, "fc.weight");
  EXPECT_EQ(layers[2].layer.op, Op::kLinear);
  EXPECT_EQ(layers[2].layer.N, 8);
  EXPECT_EQ(layers[2].layer.K, 24);
  for (const NamedLayer& layer : layers) EXPECT_EQ(Validate(layer.layer), "") << layer.name;
}

// MatMul holds [K,N], and int32_data a varint for each element.
TEST(Onnx, TransposesAndUnpacks) {
  const std::vector<NamedLayer> layers =
      ReadLayers(QUALM_SOURCE_DIR "/corpus/fuzz/weights_reader/integers.onnx", {});
  ASSERT_EQ(layers.size(), 1u);
  EXPECT_EQ(layers[0].layer.w, Tensor::Of<int8_t>({2, 2}, std::vector<int8_t>{1, -3, 2, 127}));
}

TEST(Onnx, RefusesWhatIsNoModel) {
  EXPECT_EQ(MessageOf("\x0F", ParseOnnx).substr(0, 29), "file: file: is no ONNX model ");
  const std::string whole = ReadBinaryFile(kFolder + "model.onnx", kMaxWeightFile);
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_EQ(MessageOf(whole.substr(0, length), ParseOnnx).find('\n'), std::string::npos);
  }
}

// dynamic_linear multiplies codes, of the type that its observer makes.
TEST(Layers, OfDynamicLinear) {
  Case c;
  c.op = Op::kDynamicLinear;
  c.M = c.N = 1;
  c.K = 2;
  c.x = Tensor(DType::kF32, {1, 2});
  c.w = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{100, 100});
  c.w_q.scale = {0.5f};
  c.out_dtype = DType::kF32;
  c.out_min = RangeOf(c.out_dtype).min;
  c.out_max = RangeOf(c.out_dtype).max;
  ASSERT_EQ(Validate(c), "");
  const std::string path = testing::TempDir() + "/dynamic.case.json";
  WriteCaseFile(c, path);
  const Case layer = ReadLayers(path, {})[0].layer;
  EXPECT_EQ(layer.op, Op::kLinear);
  EXPECT_EQ(layer.w, c.w);
  EXPECT_EQ(layer.w_q, c.w_q);
  EXPECT_EQ(layer.x.dtype(), DType::kU8);
  EXPECT_EQ(Validate(layer), "");
}

TEST(Layers, AreRefusedWhereThereIsNone) {
  EXPECT_THROW(ReadLayers(QUALM_SOURCE_DIR "/corpus/forum/004-add.case.json", {}), InputError);
  EXPECT_THROW(ReadLayers(kFolder + "none.npy", {}), InputError);
  const std::vector<int8_t> w(8);
  EXPECT_THROW(LayerOf(Tensor::Of<int8_t>({2, 2, 2}, w), {}, "w"), InputError);
  EXPECT_THROW(LayerOf(Tensor(DType::kS32, {2, 2}), {}, "w"), InputError);
  EXPECT_THROW(LayerOf(Tensor(DType::kS8, {0, 2}), {}, "w"), InputError);
  const Case linear = LayerOf(Tensor::Of<int8_t>({8}, w), {}, "w");
  EXPECT_EQ(linear.N, 1);
  EXPECT_EQ(linear.K, 8);
}

}  // namespace
}  // namespace qualm
