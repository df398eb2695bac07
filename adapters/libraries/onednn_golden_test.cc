// SPDX-License-Identifier: Apache-2.0
// The records of corpus/golden/onednn_direct.jsonl, and what PyTorch computed with the same version
// (torch_onednn.jsonl: 2.6, torch26.jsonl: 3.7), once more on the library of this build: the
// recordings and the plugin are several ways to call oneDNN, so they must agree.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "adapters/host/plugin_subjects.h"
#include "adapters/libraries/libraries.h"
#include "core/io/golden.h"
#include "core/status.h"

namespace qualm {
namespace {

std::string SubjectName(std::string_view isa) {
  if (isa == "SSE41") return "onednn@sse41";
  if (isa == "AVX2" || isa == "onednn-avx2" || isa == "pt26-onednn-avx2") return "onednn@avx2";
  if (isa == "AVX512_CORE" || isa == "onednn-avx512core") return "onednn@avx512core";
  if (isa == "onednn-default" || isa == "pt26-onednn-default") return "onednn@vnni";
  return isa == "AVX512_CORE_VNNI" ? "onednn@vnni" : "";
}

// Weights that are recorded K x N as the case holds them, N x K.
Case RawCase(const GoldenRecord& record) {
  Case c;
  c.M = record.Int("M");
  c.N = record.Int("N");
  c.K = record.Int("K");
  c.x = Tensor(record.Text("src_dtype") == "u8" ? DType::kU8 : DType::kS8, {c.M, c.K});
  c.w = Tensor(DType::kS8, {c.N, c.K});
  const std::vector<int64_t> x = record.Ints("x");
  const std::vector<int64_t> w = record.Ints("w");
  for (int64_t i = 0; i < c.x.size(); ++i)
    c.x.SetInt(i, static_cast<int32_t>(x.at(static_cast<size_t>(i))));
  for (int64_t k = 0; k < c.K; ++k) {
    for (int64_t n = 0; n < c.N; ++n)
      c.w.SetInt(n * c.K + k, static_cast<int32_t>(w.at(static_cast<size_t>(k * c.N + n))));
  }
  c.out_dtype = DType::kS32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  return c;
}

// A weight scale from which the plugin, which inverts twice, makes just this output scale; 0 if
// there is none.
float ScaleFor(float output_scale) {
  const auto inverse = [](float scale) {
    return static_cast<float>(1.0 / static_cast<double>(scale));
  };
  for (const float scale :
       {output_scale, std::nextafter(output_scale, 0.0f), std::nextafter(output_scale, 1e30f)}) {
    if (1.0f / inverse(scale) == output_scale) return scale;
  }
  return 0;
}

void ExpectRecorded(Subject& subject, const Case& c, const GoldenRecord& record,
                    const std::string& field) {
  const Outcome outcome = subject.Run(c, {});
  ASSERT_TRUE(outcome.ok()) << record.where << ": " << outcome.detail;
  const std::vector<int64_t> want = record.Ints(field);
  ASSERT_EQ(static_cast<int64_t>(want.size()), outcome.y.size()) << record.where;
  for (int64_t i = 0; i < outcome.y.size(); ++i) {
    ASSERT_EQ(outcome.y.IntAt(i), want[static_cast<size_t>(i)])
        << record.where << " " << field << "[" << i << "] on " << subject.name();
  }
}

// Sums of 2.6 that 3.7 forms too: not with AVX-512 alone, where 3.7 has brgemm.
bool HasTheseSums(const Subject& subject) {
  return subject.Version().starts_with("oneDNN 2.") || subject.InstructionSet() != "avx512core";
}

// One subject for each instruction set that records name and this CPU has.
class Subjects {
 public:
  Subject* For(const std::string& isa) {
    if (!made_.contains(isa)) {
      made_[isa] = nullptr;
      try {
        made_[isa] = SubjectRegistry::Get().Make(SubjectName(isa));
      } catch (const Unavailable& error) {
        GTEST_LOG_(WARNING) << "not checked here: " << error.what();
      }
    }
    return made_[isa].get();
  }

 private:
  std::map<std::string, std::unique_ptr<Subject>> made_;
};

void Fill(Tensor& tensor, const std::vector<int64_t>& values) {
  ASSERT_EQ(tensor.size(), static_cast<int64_t>(values.size()));
  for (int64_t i = 0; i < tensor.size(); ++i)
    tensor.SetInt(i, static_cast<int32_t>(values[static_cast<size_t>(i)]));
}

void SetOutput(Case& c, DType dtype) {
  c.out_dtype = dtype;
  c.out_min = RangeOf(dtype).min;
  c.out_max = RangeOf(dtype).max;
}

// A convolution of either file, its outputs s32.
Case ConvCase(const GoldenRecord& r, DType x_dtype) {
  Case c;
  c.op = Op::kConv2d;
  Window& v = c.window;
  v.batch = r.Int("N");
  v.in_h = r.Int("H");
  v.in_w = r.Int("W");
  v.in_c = r.Int("IC");
  v.kernel_h = r.Int("R");
  v.kernel_w = r.Int("S");
  v.stride_h = v.stride_w = r.Int("stride");
  v.pad_top = v.pad_bottom = v.pad_left = v.pad_right = r.Int("pad");
  v.dilation_h = v.dilation_w = r.Int("dil");
  v.groups = r.Int("G");
  c.N = r.Int("OC");
  c.x = Tensor(x_dtype, {v.batch, v.in_h, v.in_w, v.in_c});
  c.w = Tensor(DType::kS8, {c.N, v.kernel_h, v.kernel_w, v.in_c / v.groups});
  Fill(c.x, r.Ints("x"));
  Fill(c.w, r.Ints("w"));
  SetOutput(c, DType::kS32);
  DeriveSizes(&c);
  EXPECT_EQ(Validate(c), "") << r.where;
  return c;
}

class OnednnGolden : public testing::Test {
 protected:
  void SetUp() override {
    RegisterLibraries();
    if (FindModule("qualm_onednn.so").empty())
      GTEST_SKIP() << "this build has no oneDNN: install libdnnl-dev (2.x or 3.7)";
  }
};

TEST_F(OnednnGolden, TheLibraryRepeatsRawConvolutions) {
  Subjects subjects;
  int repeated = 0;
  ForEachGoldenRecord(QUALM_CORPUS_DIR "/golden/onednn_direct.jsonl", [&](const GoldenRecord& r) {
    if (r.op != "conv2d_s32" || testing::Test::HasFatalFailure()) return;
    ASSERT_NE(SubjectName(r.isa), "") << r.where;
    Subject* const subject = subjects.For(r.isa);
    if (subject == nullptr || !HasTheseSums(*subject)) return;
    const Case c = ConvCase(r, r.Text("src_dtype") == "u8" ? DType::kU8 : DType::kS8);
    ASSERT_NO_FATAL_FAILURE(ExpectRecorded(*subject, c, r, "y_s32"));
    ++repeated;
  });
  EXPECT_GE(repeated, 26) << "neither SSE4.1 nor AVX2 was checked";
}

TEST_F(OnednnGolden, TheLibraryRepeatsPyTorchsLayers) {
  Subjects subjects;
  Subject* const any = subjects.For("AVX2");
  if (any == nullptr) GTEST_SKIP() << "this CPU has no AVX2";
  const bool first = any->Version().starts_with("oneDNN 2.");
  const std::string file = first ? "torch_onednn.jsonl" : "torch26.jsonl";
  int linears = 0, convolutions = 0;
  ForEachGoldenRecord(QUALM_CORPUS_DIR "/golden/" + file, [&](const GoldenRecord& r) {
    const bool conv = r.op == "conv2d";
    if ((!conv && r.op != "linear") || testing::Test::HasFatalFailure()) return;
    if (r.isa.find("onednn") == std::string::npos) return;  // another engine
    ASSERT_NE(SubjectName(r.isa), "") << r.where;
    Subject* const subject = subjects.For(r.isa);
    if (subject == nullptr) return;
    Case c;
    if (conv) {
      c = ConvCase(r, DType::kU8);
    } else {
      c.M = r.Int("M");
      c.N = r.Int("N");
      c.K = r.Int("K");
      c.x = Tensor(DType::kU8, {c.M, c.K});
      c.w = Tensor(DType::kS8, {c.N, c.K});
      Fill(c.x, r.Ints("x"));
      Fill(c.w, r.Ints("w"));
    }
    c.x_q = {{r.Float("x_scale")}, {static_cast<int32_t>(r.Int("x_zp"))}};
    c.w_q.scale = r.Floats("w_scale");
    c.w_q.zero_point.assign(c.w_q.scale.size(), 0);
    c.per_channel = c.w_q.scale.size() != 1;
    c.out_q = {{r.Float("out_scale")}, {static_cast<int32_t>(r.Int("out_zp"))}};
    if (r.Has("bias")) c.bias = r.Floats("bias");
    c.relu = r.Int("relu") != 0;
    SetOutput(c, DType::kU8);
    ASSERT_EQ(Validate(c), "") << r.where;
    ASSERT_NO_FATAL_FAILURE(ExpectRecorded(*subject, c, r, "y"));
    ++(conv ? convolutions : linears);
  });
  EXPECT_GE(convolutions, 24);
  EXPECT_GE(linears, 60);
  std::cout << convolutions << " convolutions and " << linears << " linears repeated\n";
}

TEST_F(OnednnGolden, TheLibraryRepeatsItsProducts) {
  Subjects subjects;
  int sums = 0;
  int codes = 0;
  bool scaled = false;
  ForEachGoldenRecord(QUALM_CORPUS_DIR "/golden/onednn_direct.jsonl", [&](const GoldenRecord& r) {
    if (r.op != "matmul" || testing::Test::HasFatalFailure()) return;
    ASSERT_NE(SubjectName(r.isa), "") << r.where;
    Subject* const subject = subjects.For(r.isa);
    if (subject == nullptr || !HasTheseSums(*subject)) return;
    Case c = RawCase(r);
    ASSERT_NO_FATAL_FAILURE(ExpectRecorded(*subject, c, r, "acc_no_zp"));
    ++sums;
    if (!subject->Version().starts_with("oneDNN 2.")) return;  // other scales
    scaled = true;

    c.w_q.scale.clear();
    for (const float scale : r.Floats("output_scales")) c.w_q.scale.push_back(ScaleFor(scale));
    for (const float scale : c.w_q.scale) {
      if (scale == 0) return;
    }
    c.per_channel = c.w_q.scale.size() != 1;
    c.w_q.zero_point.assign(c.w_q.scale.size(), 0);
    c.x_q.zero_point = {static_cast<int32_t>(r.Int("src_zp"))};
    c.out_q.zero_point = {static_cast<int32_t>(r.Int("dst_zp"))};
    c.out_dtype = DType::kU8;
    c.out_min = 0;
    c.out_max = 255;
    ASSERT_NO_FATAL_FAILURE(ExpectRecorded(*subject, c, r, "y_u8"));
    ++codes;
  });
  EXPECT_GE(sums, 70) << "neither SSE4.1 nor AVX2 was checked";
  EXPECT_GE(codes, scaled ? sums / 3 : 0);
  std::cout << sums << " sums and " << codes << " outputs repeated\n";
}

}  // namespace
}  // namespace qualm
