// SPDX-License-Identifier: Apache-2.0
// The installed PyTorch against its conventions: the recordings once more, and drawn cases under
// its own contract.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "adapters/registry.h"
#include "core/io/case_json.h"
#include "core/io/golden.h"
#include "core/status.h"
#include "core/subject.h"
#include "oracles/golden/judge.h"
#include "tools/drawn_contract_test_util.h"

namespace qualm {
namespace {

class Torch : public testing::Test {
 protected:
  void SetUp() override {
    // No answer is timed here, and the machine may be busy.
    setenv("QUALM_TIME_LIMIT_MS", "300000", 1);
    RegisterAllSubjects();
    const auto kinds = SubjectRegistry::Get().kinds();
    const auto kind = std::ranges::find(kinds, "torch", &SubjectKind::kind);
    ASSERT_NE(kind, kinds.end());
    if (!kind->why_absent.empty()) GTEST_SKIP() << kind->why_absent;
  }

  // nullptr, with the reason printed, where this CPU lacks the instruction set.
  static std::unique_ptr<Subject> Make(const std::string& name) {
    try {
      return SubjectRegistry::Get().Make(name);
    } catch (const Unavailable& error) {
      GTEST_LOG_(WARNING) << "not checked here: " << error.what();
      return nullptr;
    }
  }

  // All properties that the contract makes theorems, on drawn cases of the sums of products.
  static void CheckSums(const std::string& name) {
    const std::unique_ptr<Subject> subject = Make(name);
    if (subject == nullptr) GTEST_SKIP() << name << " cannot be had here";
    ExpectNoFindings(name, {Op::kLinear, Op::kConv2d, Op::kDepthwise, Op::kDynamicLinear}, 60);
  }
  // And of what the engines share, which is ATen's.
  static void CheckAll(const std::string& name) {
    CheckSums(name);
    if (IsSkipped()) return;
    ExpectNoFindings(name,
                     {Op::kQuantize, Op::kDequantize, Op::kAdd, Op::kMul, Op::kConcat, Op::kTable,
                      Op::kMaxPool, Op::kSoftmax, Op::kChooseQParams},
                     30);
  }

  static void ExpectNoFindings(const std::string& name, const std::vector<Op>& ops, int64_t cases) {
    ExpectContract({.subject = name, .ops = ops, .cases = cases, .judged = 4});
  }
};

// "PyTorch 2.13.0+cpu"
bool IsWheel(const Subject& subject) { return subject.Version().starts_with("PyTorch 2."); }

TEST_F(Torch, SaysWhatItIs) {
  const std::unique_ptr<Subject> qnnpack = Make("torch@qnnpack");
  ASSERT_NE(qnnpack, nullptr);
  EXPECT_TRUE(qnnpack->contract().text().ends_with("-qnnpack")) << qnnpack->contract().text();
  EXPECT_EQ(qnnpack->Version().substr(0, 8), "PyTorch ");
  for (const char* isa : {"sse41", "avx2"}) {
    const std::unique_ptr<Subject> onednn = Make("torch@onednn+" + std::string(isa));
    if (onednn == nullptr) continue;
    EXPECT_EQ(onednn->InstructionSet(), isa);
    EXPECT_TRUE(onednn->contracts().of(Op::kLinear).text().ends_with("@" + std::string(isa)));
  }
  for (const char* isa : {"avx2", "avx512", "vnni"}) {
    const std::unique_ptr<Subject> fbgemm = Make("torch@fbgemm+" + std::string(isa));
    if (fbgemm == nullptr) continue;
    EXPECT_EQ(fbgemm->InstructionSet(), isa);
    EXPECT_EQ(fbgemm->contracts().of(Op::kLinear).text(), "model:fbgemm@" + std::string(isa));
  }
  EXPECT_THROW(SubjectRegistry::Get().Make("torch@gemmlowp"), InputError);
}

// Which outputs of the forum's sweep go up and down.
std::vector<int64_t> BentOutputs(Subject& subject) {
  const Case c = ReadCaseFile(QUALM_SOURCE_DIR "/corpus/forum/000-linear-sweep.case.json");
  const Outcome outcome = subject.Run(c, {});
  EXPECT_TRUE(outcome.ok()) << outcome.detail;
  std::vector<int64_t> bent;
  for (int64_t n = 0; outcome.ok() && n < c.N; ++n) {
    bool up = false, down = false;
    for (int64_t m = 1; m < c.M; ++m) {
      const int32_t step = outcome.y.IntAt(m * c.N + n) - outcome.y.IntAt((m - 1) * c.N + n);
      up = up || step > 0;
      down = down || step < 0;
    }
    if (up && down) bent.push_back(n);
  }
  return bent;
}

TEST_F(Torch, FbgemmBendsTheSweepOfTheForumWithoutVnni) {
  const std::unique_ptr<Subject> avx2 = Make("torch@fbgemm+avx2");
  if (avx2 == nullptr) GTEST_SKIP() << "torch@fbgemm+avx2 cannot be had here";
  EXPECT_EQ(BentOutputs(*avx2), (std::vector<int64_t>{0, 3, 7, 8}));
  for (const char* name : {"torch@fbgemm+vnni", "torch@qnnpack"}) {
    const std::unique_ptr<Subject> subject = Make(name);
    if (subject != nullptr) EXPECT_EQ(BentOutputs(*subject), std::vector<int64_t>{}) << name;
  }
}

// What the threads printed, asked of the library itself.
TEST_F(Torch, FbgemmRepeatsTheForumsConvolutionAndAdd) {
  const std::unique_ptr<Subject> avx2 = Make("torch@fbgemm+avx2");
  if (avx2 == nullptr) GTEST_SKIP() << "torch@fbgemm+avx2 cannot be had here";
  for (const char* file : {"003-conv1", "004-add"}) {
    const Case c =
        ReadCaseFile(std::string(QUALM_SOURCE_DIR "/corpus/forum/") + file + ".case.json");
    ASSERT_TRUE(c.observed) << file;
    const Outcome outcome = avx2->Run(c, {});
    ASSERT_TRUE(outcome.ok()) << outcome.detail;
    EXPECT_EQ(outcome.y, c.observed->y) << file;
  }
}

// Recordings of other machines' PyTorch: the operators are called as they were.
TEST_F(Torch, RepeatsItsRecordings) {
  struct Recorded {
    const char *subject, *file, *isa;
    std::vector<const char*> ops;
  };
  for (const Recorded& recorded : {
           Recorded{"torch@qnnpack", "torch_qnnpack", "", {"linear", "conv2d", "add"}},
           Recorded{"torch@fbgemm+avx2", "torch211_fbgemm", "pt211-fbgemmAVX2", {"linear", "add"}},
           Recorded{"torch@fbgemm+vnni", "torch211_fbgemm", "pt211-default", {"linear", "conv2d"}},
           Recorded{
               "torch@onednn+avx512core", "torch211_onednn", "pt211-onednnAVX512_CORE", {"linear"}},
       }) {
    SCOPED_TRACE(recorded.subject);
    const std::unique_ptr<Subject> subject = Make(recorded.subject);
    if (subject == nullptr) continue;
    const bool of_2 = std::string_view(recorded.isa).starts_with("pt211");
    if (of_2 && !IsWheel(*subject)) continue;
    std::map<std::string, int> repeated;
    ForEachGoldenRecord(QUALM_SOURCE_DIR "/corpus/golden/" + std::string(recorded.file) + ".jsonl",
                        [&](const GoldenRecord& record) {
                          if (*recorded.isa != 0 && record.isa != recorded.isa) return;
                          // 2.13 quantizes in another way than the versions that were recorded.
                          if (record.op == "quantize" || record.op == "linear_dynamic") return;
                          if (!GoldenHasCase(record) || repeated[record.op] == 30) return;
                          const Case c = GoldenCase(record);
                          if (!c.observed || !subject->CannotRun(c).empty()) return;
                          const Outcome outcome = subject->Run(c, {});
                          if (outcome.status == RunStatus::kSkipped) return;
                          ASSERT_TRUE(outcome.ok()) << record.where << ": " << outcome.detail;
                          EXPECT_EQ(outcome.y, c.observed->y) << record.where;
                          ++repeated[record.op];
                        });
    for (const char* op : recorded.ops) EXPECT_GE(repeated[op], 10) << op;
  }
}

// One image whose codes are all 3, weights that are all 2, and scales that are all 1.
Case Convolution(const Window& window, int64_t channels) {
  Case c;
  c.op = Op::kConv2d;
  c.window = window;
  c.window.batch = 1;
  c.N = channels;
  DeriveSizes(&c);
  const int64_t depth = window.in_c / window.groups;
  c.x = Tensor(DType::kU8, {1, window.in_h, window.in_w, window.in_c});
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, 3);
  c.w = Tensor(DType::kS8, {channels, window.kernel_h, window.kernel_w, depth});
  for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, 2);
  return c;
}

// The first code, or why there is none.
std::string FirstCode(Subject& subject, const Case& c) {
  EXPECT_EQ(Validate(c), "");
  const Outcome outcome = subject.Run(c, {});
  return outcome.ok() ? std::to_string(outcome.y.IntAt(0)) : outcome.detail;
}

TEST_F(Torch, OnednnIsNotAskedForWhatIdeepLaysWeightsOutBy) {
  const std::unique_ptr<Subject> avx2 = Make("torch@onednn+avx2");
  if (avx2 == nullptr) GTEST_SKIP() << "torch@onednn+avx2 is not to be had here";
  if (IsWheel(*avx2)) GTEST_SKIP() << "PyTorch 1.13 is asked here, this is " << avx2->Version();
  const Case dummy = Convolution({.in_h = 4, .in_w = 4, .in_c = 1}, 1);
  EXPECT_EQ(FirstCode(*avx2, dummy).find("PyTorch writes int32 over the codes"), 0);
  Case c = dummy;
  c.w_q.scale = {0.5f};
  EXPECT_EQ(FirstCode(*avx2, c), "3");
  c = dummy;
  c.relu = true;
  EXPECT_EQ(FirstCode(*avx2, c), "6");
  c = dummy;
  c.bias = {1.0f};
  EXPECT_EQ(FirstCode(*avx2, c), "7");
  EXPECT_EQ(FirstCode(*avx2, Convolution({.in_h = 4, .in_w = 3, .in_c = 1}, 1)), "6");
}

TEST_F(Torch, OnednnOnAmxIsNotAskedWhatItGetsWrong) {
  const std::unique_ptr<Subject> amx = Make("torch@onednn");
  if (amx == nullptr) GTEST_SKIP() << "torch@onednn is not to be had here";
  if (amx->InstructionSet() != "amx") GTEST_SKIP() << "this CPU has no AMX";
  if (IsWheel(*amx)) GTEST_SKIP() << "PyTorch 1.13 is asked here, this is " << amx->Version();
  const std::unique_ptr<Subject> avx2 = Make("torch@onednn+avx2");
  // Taps 6 rows apart on 5 rows: the middle one meets the image, with padding on both sides.
  const Case around = Convolution({.in_h = 5,
                                   .in_w = 3,
                                   .in_c = 1,
                                   .kernel_h = 3,
                                   .pad_top = 6,
                                   .pad_bottom = 6,
                                   .dilation_h = 6},
                                  1);
  EXPECT_NE(FirstCode(*amx, around).find("larger than the image"), std::string::npos);
  EXPECT_EQ(FirstCode(*avx2, around), "6");
  // 8 output channels by 8 taps in groups that no kernel but the gemm takes.
  Case grouped = Convolution({.in_h = 8, .in_w = 3, .in_c = 4, .kernel_h = 8, .groups = 4}, 8);
  grouped.x_q.zero_point = {1};
  EXPECT_NE(FirstCode(*amx, grouped).find("loses the compensation"), std::string::npos);
  EXPECT_EQ(FirstCode(*avx2, grouped), "32");
}

// An assertion of PyTorch is a declared fault, whatever the claim.
void ExpectDeclaredRefusal(Subject& subject, const Case& c, std::string_view words) {
  ASSERT_EQ(Validate(c), "");
  const Outcome outcome = subject.Run(c, {});
  EXPECT_EQ(outcome.status, RunStatus::kRefused);
  EXPECT_NE(outcome.detail.find(words), std::string::npos) << outcome.detail;
  CheckResult result;
  Judging judging;
  judging.attribute = [](const Case&, const Verdict& verdict, Subject&) {
    return verdict.kind.value_or(FindingKind::kUnknown);
  };
  CheckCase(c, {&subject}, "*", result, judging);
  EXPECT_GT(result.totals.of(Judgement::kExpected), 3);
  EXPECT_EQ(result.totals.of(Judgement::kFailed), 0);
  EXPECT_EQ(result.totals.of(Judgement::kPassed), 0);
}

// 0.05*0.1 * 8 * (200-100)*5 / 0.3 is 67. The cache's key lacks zero points (docs/pytorch.md).
TEST_F(Torch, OnednnForgetsItsPrimitivesSoon) {
  unsetenv("LRU_CACHE_CAPACITY");
  const std::unique_ptr<Subject> subject = Make("torch@onednn");
  if (subject == nullptr) GTEST_SKIP() << "torch@onednn cannot be had here";
  if (IsWheel(*subject))
    GTEST_SKIP() << "ideep of PyTorch 1.13 is asked here, this is " << subject->Version();
  Case c;
  c.op = Op::kLinear;
  c.M = 2, c.N = 4, c.K = 8;
  c.x = Tensor::Of<uint8_t>({c.M, c.K}, std::vector<uint8_t>(16, 200));
  c.w = Tensor::Of<int8_t>({c.N, c.K}, std::vector<int8_t>(32, 5));
  c.x_q = {{0.05f}, {100}};
  c.w_q = {{0.1f}, {0}};
  c.out_q = {{0.3f}, {7}};
  EXPECT_EQ(FirstCode(*subject, c), "74");
  c.out_q.zero_point = {99};
  EXPECT_EQ(FirstCode(*subject, c), "74");  // wrong: of the primitive before
  Case other = c;
  for (int i = 1; i <= 36; ++i) {
    other.x_q.scale = {0.001f * static_cast<float>(i)};
    FirstCode(*subject, other);
  }
  EXPECT_EQ(FirstCode(*subject, c), "166");
}

// Three taps, the first of them in the padding: 100 + 0.5 * (-2*100 - 4*50) / 4. The image is as
// wide as the kernel, because with AMX oneDNN is not asked about a smaller one.
TEST_F(Torch, KeptLayersRememberTheirFirstRun) {
  Window window{.in_h = 1, .in_w = 3, .in_c = 1, .kernel_h = 1, .kernel_w = 3};
  window.pad_left = window.pad_right = 1;
  Case first = Convolution(window, 1);
  first.x = Tensor::Of<uint8_t>(first.x.shape(), std::vector<uint8_t>{100, 50, 0});
  first.w = Tensor::Of<int8_t>(first.w.shape(), std::vector<int8_t>{-4, -2, -4});
  first.w_q.scale = {0.5f};
  first.out_q = {{4.0f}, {100}};
  struct Asked {
    std::string engine;
    void (*change)(Case& c);
    std::string anew, kept;
  };
  for (const Asked& asked : {
           Asked{"qnnpack", [](Case& c) { c.x_q.zero_point = {100}; }, "125", "175"},
           Asked{"qnnpack", [](Case& c) { c.out_q.scale = {8.0f}; }, "75", "50"},
           Asked{"onednn", [](Case& c) { c.relu = true; }, "100", "50"},
       }) {
    Case second = first;
    asked.change(second);
    SCOPED_TRACE(asked.engine + ": " + asked.anew);
    const std::unique_ptr<Subject> anew = Make("torch@" + asked.engine);
    const std::unique_ptr<Subject> kept = Make("torch@" + asked.engine + "+kept");
    if (anew == nullptr || kept == nullptr) continue;
    for (Subject* subject : {anew.get(), kept.get()}) EXPECT_EQ(FirstCode(*subject, first), "50");
    EXPECT_EQ(FirstCode(*anew, second), asked.anew);
    EXPECT_EQ(FirstCode(*kept, second), asked.kept);
  }
}

TEST_F(Torch, QnnpackAddsNoReluAtTheLastCode) {
  const std::unique_ptr<Subject> subject = Make("torch@qnnpack");
  ASSERT_NE(subject, nullptr);
  Case c;
  c.op = Op::kAdd;
  c.M = 1;
  c.N = 2;
  c.x = c.w = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{1, 200});
  c.out_q.zero_point = {255};
  c.relu = true;
  ExpectDeclaredRefusal(*subject, c, "failed to create QNNPACK Add operator");
  c.out_q.zero_point = {254};
  EXPECT_EQ(FirstCode(*subject, c), "255");
}

// No engine is asked, each for its own reason: only QNNPACK refuses them.
TEST_F(Torch, IsNotAskedDynamicLayersOfNaN) {
  Case c;
  c.op = Op::kDynamicLinear;
  c.M = c.N = c.K = 1;
  c.x = Tensor::Of<float>({1, 1}, std::vector<float>{std::numeric_limits<float>::quiet_NaN()});
  c.w = Tensor::Of<int8_t>({1, 1}, std::vector<int8_t>{1});
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  c.rule = QParamsRule::kAten;
  for (const auto& [name, why] :
       {std::pair<std::string, std::string>{"torch@qnnpack",
                                            "x holds NaN or infinities, which QNNPACK refuses"},
        {"torch@fbgemm",
         "x holds NaN or infinities, for which no convention says what "
         "linear_dynamic answers"}}) {
    const std::unique_ptr<Subject> subject = Make(name);
    if (subject == nullptr) continue;
    const Outcome outcome = subject->Run(c, {});
    EXPECT_EQ(outcome.status, RunStatus::kSkipped);
    EXPECT_EQ(outcome.detail, why);
  }
}

// -4 + 1*(v + 4) is one ulp above 0 + 1*(v - 0).
TEST_F(Torch, HasNoParametersWhereMovingAveragesCross) {
  const std::unique_ptr<Subject> subject = Make("torch@qnnpack");
  ASSERT_NE(subject, nullptr);
  Case c;
  c.op = Op::kChooseQParams;
  c.M = 1;
  c.N = 2;
  c.out_dtype = DType::kF32;
  c.out_min = RangeOf(DType::kF32).min;
  c.out_max = RangeOf(DType::kF32).max;
  c.w = Tensor(DType::kU8, {0});
  c.observer.kind = Observer::Kind::kMovingAverage;
  c.observer.averaging_constant = 1.0f;
  c.x = Tensor::Of<float>({2, 1, 2}, std::vector<float>{-4, 0, 0x1.aea43ep+3f, 0x1.aea43ep+3f});
  ExpectDeclaredRefusal(*subject, c, "should be less than max");
  c.x = Tensor::Of<float>({2, 1, 2}, std::vector<float>{0, 0, 0x1.aea43ep+3f, 0x1.aea43ep+3f});
  EXPECT_TRUE(subject->Run(c, {}).ok());
}

TEST_F(Torch, QnnpackKeepsItsContract) { CheckAll("torch@qnnpack"); }
TEST_F(Torch, OnednnKeepsItsContract) { CheckAll("torch@onednn"); }
TEST_F(Torch, OnednnOnAvx2KeepsItsContract) { CheckAll("torch@onednn+avx2"); }
TEST_F(Torch, FbgemmKeepsItsContract) { CheckSums("torch@fbgemm"); }
TEST_F(Torch, FbgemmOnAvx2KeepsItsContract) { CheckSums("torch@fbgemm+avx2"); }
TEST_F(Torch, DecomposedKeepsItsContract) {
  const std::unique_ptr<Subject> subject = Make("torch@decomposed");
  if (subject == nullptr) GTEST_SKIP() << "torch@decomposed cannot be had here";
  ExpectNoFindings("torch@decomposed",
                   {Op::kQuantize, Op::kDequantize, Op::kRescale, Op::kAdd, Op::kSub, Op::kMul},
                   200);
}
TEST_F(Torch, X86KeepsItsContract) { CheckSums("torch@x86"); }

}  // namespace
}  // namespace qualm
