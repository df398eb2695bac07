// SPDX-License-Identifier: Apache-2.0
// Reads the files that qualm_export.py writes for an eager and an FX model. Their observed outputs
// are, bit for bit, those of the engine's convention.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "adapters/registry.h"
#include "core/io/case_json.h"
#include "core/subject.h"
#include "oracles/conventions/convention.h"
#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;

// "": the Python whose PyTorch the subjects ask; else this one.
class ExportTest : public QualmTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    QualmTest::SetUp();
    RegisterAllSubjects();
    const auto kinds = SubjectRegistry::Get().kinds();
    const auto kind = std::ranges::find(kinds, "torch", &SubjectKind::kind);
    ASSERT_NE(kind, kinds.end());
    if (!kind->why_absent.empty()) GTEST_SKIP() << kind->why_absent;
    const std::string python = *GetParam() != 0 ? GetParam() : TorchPython();
    if (Shell(python + " -c 'import torch'").status != 0)
      GTEST_SKIP() << python << " has no PyTorch";
    const Ran ran =
        Shell(python + " " QUALM_SOURCE_DIR
                       "/tools/pytorch/export_models_test_util.py eager fx cut channels "
                       "others exported torchao");
    ASSERT_EQ(ran.status, 0) << ran.err;
    said_ = ran.out;
    wheel_ = Shell(python + " -c 'import torch; print(torch.version.__version__)'").out;
    wheel_ = wheel_.starts_with("1.13") || wheel_.starts_with("2.6") ? "torch-qnnpack"
                                                                     : "torch2.13-qnnpack";
  }

  // Files by operation, each judged.
  std::map<Op, std::vector<std::string>> Judged(const std::string& name,
                                                const std::string& by = "") {
    const Convention* const convention = FindConvention(by.empty() ? wheel_ : by);
    std::map<Op, std::vector<std::string>> files;
    for (const auto& entry : fs::directory_iterator(folder() / name)) {
      const Case c = ReadCaseFile(entry.path().string());
      EXPECT_TRUE(c.observed) << entry.path();
      EXPECT_EQ(convention->cannot_run(c), "") << entry.path();
      if (!c.observed || !convention->cannot_run(c).empty()) continue;
      EXPECT_GT(c.observed->y.size(), 0) << entry.path();
      if (!convention->also_gives || !convention->also_gives(c, c.observed->y))
        EXPECT_EQ(convention->run(c).y, c.observed->y) << entry.path();
      files[c.op].push_back(entry.path().string());
    }
    return files;
  }

  std::string said_;
  std::string wheel_;  // the convention of its engine qnnpack
};

TEST_P(ExportTest, LeavesOutWithAReason) {
  EXPECT_EQ(said_,
            "unlike: ['first', 'linear', 'second']\n"
            "reference: its module first is converted. convert_fx(m) and convert(m, inplace=True) "
            "change m: give what copy.deepcopy(m) made before\n"
            "13 files\n8 files\n"
            "left out: model aten::avg_pool2d: in an image 64 channels have more outputs than a "
            "file takes\n"
            "left out: model aten::cat: one of its 1 rows has more outputs than a file takes\n"
            "3 files\n5 files\n"
            "left out: lstm aten::quantized_lstm: not an operation of case files\n"
            "left out: model aten::clamp: not an operation of case files\n"
            "left out: model aten::mean: not an operation of case files\n"
            "left out: model aten::upsample_nearest2d: not an operation of case files\n"
            "left out: model aten::relu_: it writes over its input, which is gone when it can be "
            "seen\n"
            "2 files\n" +
                std::string(fs::exists(folder() / "exported")
                                ? "left out: model aten::mm: nothing quantizes its float32 "
                                  "output, whose last bits depend on the order of additions\n"
                                  "10 files\n"
                                : ""));
  EXPECT_EQ(Judged("others")[Op::kDynamicLinear].size(), 1u);
}

// What runs between a dequantize and a quantize is one operation of codes.
TEST_P(ExportTest, WritesWhatPt2eConverts) {
  if (!fs::exists(folder() / "exported")) GTEST_SKIP() << "PyTorch 1 exports nothing";
  auto files = Judged("exported", "torch-decomposed");
  for (const auto& [op, count] : {std::pair<Op, size_t>{Op::kQuantize, 1},
                                  {Op::kDequantize, 5},
                                  {Op::kConv2d, 1},
                                  {Op::kAdd, 1},
                                  {Op::kRescale, 1},
                                  {Op::kLinear, 1}}) {
    EXPECT_EQ(files[op].size(), count) << Name(op);
  }
  ASSERT_EQ(files[Op::kConv2d].size(), 1u);
  const Case conv = ReadCaseFile(files[Op::kConv2d][0]);
  EXPECT_TRUE(conv.relu);
  EXPECT_TRUE(conv.per_channel);
  EXPECT_TRUE(conv.bias);
  EXPECT_NE(files[Op::kConv2d][0].find("-conv-conv2d"), std::string::npos);
  const Case linear = ReadCaseFile(files[Op::kLinear].at(0));
  EXPECT_EQ(linear.out_min, -127);
  EXPECT_FALSE(linear.relu);
  const Ran replayed = Qualm({"replay", (folder() / "exported").string()});
  EXPECT_EQ(replayed.status, 0) << replayed.out << replayed.err;
}

TEST_P(ExportTest, WritesTorchaosLinear) {
  if (!fs::exists(folder() / "torchao")) GTEST_SKIP() << "torchao is not installed";
  EXPECT_EQ(Judged("torchao", "torchao@vnni")[Op::kDynamicLinear].size(), 1u);
}

TEST_P(ExportTest, WritesParametersPerChannel) {
  auto channels = Judged("channels");
  for (const Op op : {Op::kConv2d, Op::kDepthwise, Op::kLinear}) {
    ASSERT_EQ(channels[op].size(), 1u) << Name(op);
    EXPECT_TRUE(ReadCaseFile(channels[op].at(0)).per_channel) << Name(op);
  }
}

TEST_P(ExportTest, WritesWhatTheModelComputed) {
  auto eager = Judged("eager");
  for (const Op op : {Op::kQuantize, Op::kDequantize, Op::kConv2d, Op::kDepthwise, Op::kMaxPool,
                      Op::kLinear, Op::kMul, Op::kConcat, Op::kGlobalAvgPool}) {
    EXPECT_EQ(eager[op].size(), 1u) << Name(op);
  }
  EXPECT_EQ(eager[Op::kAdd].size(), 2u);
  EXPECT_EQ(eager[Op::kTable].size(), 2u);  // hardswish, relu

  auto fx = Judged("fx");
  EXPECT_EQ(fx[Op::kConv2d].size(), 2u);
  EXPECT_EQ(fx[Op::kAdd].size(), 1u);
  EXPECT_EQ(fx[Op::kLinear].size(), 1u);
  const Case add = ReadCaseFile(fx[Op::kAdd].at(0));
  EXPECT_TRUE(add.relu);
  EXPECT_EQ(add.N, 3 * 4 * 6 * 6);

  const Ran replayed = Qualm({"replay", (folder() / "eager").string(), (folder() / "fx").string(),
                              "--subject", "model:" + wheel_});
  EXPECT_EQ(replayed.status, 0) << replayed.out << replayed.err;
}

// The quantized image has 2*3*19*19 values, and a file of this export at most 1000.
TEST_P(ExportTest, CutsWhatIsTooLarge) {
  auto eager = Judged("eager");
  const Case quantize = ReadCaseFile(eager[Op::kQuantize].at(0));
  EXPECT_LE(quantize.M * quantize.N, 1000);
  EXPECT_GT(quantize.M * quantize.N, 900);
  EXPECT_NE(quantize.note.find("the first 52 of 114 rows"), std::string::npos) << quantize.note;
}

// An empty file would count as exact. avg_pool is cut behind whole vectors of channels or not at
// all.
TEST_P(ExportTest, CutsAnImageToItsChannelsAndARowToItsElements) {
  auto cut = Judged("cut");
  EXPECT_EQ(ReadCaseFile(cut[Op::kMaxPool].at(0)).window.in_c, 640 / 9);
  EXPECT_EQ(ReadCaseFile(cut[Op::kAvgPool].at(0)).window.in_c, 64);
  EXPECT_EQ(ReadCaseFile(cut[Op::kDequantize].at(0)).N, 640);
}

// 1/2 and 5/2 units: half to even gives 0 and 2, QNNPACK 1 and 3.
TEST_P(ExportTest, ExplainNamesTheArithmetic) {
  auto judged = Judged("eager");
  for (const std::string& file : judged[Op::kAdd]) {
    const Case c = ReadCaseFile(file);
    if (c.N != 3) continue;
    EXPECT_EQ(c.observed->y, Tensor::Of<uint8_t>({1, 3}, std::vector<uint8_t>{1, 2, 3}));
    const Ran explained = Qualm({"explain", file});
    EXPECT_EQ(explained.status, 1) << explained.out << explained.err;
    EXPECT_NE(explained.out.find("torch-qnnpack"), std::string::npos) << explained.out;
    EXPECT_EQ(explained.out.find("torch-onednn"), std::string::npos) << explained.out;
    return;
  }
  ADD_FAILURE() << "the sum of three ties was not written";
}

INSTANTIATE_TEST_SUITE_P(Pythons, ExportTest, testing::Values("", "/usr/bin/python3"),
                         [](const auto& python) {
                           return *python.param != 0 ? "OfTheDistribution" : "OfTheSubjects";
                         });

}  // namespace
}  // namespace qualm::tools
