// SPDX-License-Identifier: Apache-2.0
// qualm exhaust as users start it: exit status, certificates, what is refused.
#include <string>
#include <vector>

#include "core/io/case_json.h"
#include "core/io/certificate_json.h"
#include "tools/run_qualm_test_util.h"

namespace qualm::tools {
namespace {

using test::Json;

class ExhaustVerb : public QualmTest {
 protected:
  std::string Path(const char* name) const { return (folder() / name).string(); }
  // The words of a run of one wrong input, "acc 1".
  static std::vector<std::string> OneTie(const std::vector<std::string>& more) {
    std::vector<std::string> words{"exhaust", "--op", "requantize",    "--multiplier",
                                   "0.5",     "-s",   "faulty:one-tie"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(ExhaustVerb, ProvesTheNativeKernels) {
  const std::string certificate = Path("c.json");
  const Ran ran = Qualm(0, {"exhaust", "--op", "quantize", "--scale", "0x1.99999ap-5",
                            "--zero-point", "3", "-s", "native", "-o", certificate});
  EXPECT_TRUE(Has(ran.out, "0 of 4294967296 outputs wrong against exact"));
  EXPECT_TRUE(ReadCertificateFile(certificate).complete());
  const Ran again = Qualm(0, {"exhaust", "--verify", certificate});
  EXPECT_TRUE(Has(again.out, "holds"));
}

// Nothing is assumed where the arithmetic is evaluated on intervals.
TEST_F(ExhaustVerb, IntervalsShowTheSteps) {
  const std::string certificate = Path("native.json");
  const auto words = [&](const std::string& subject) {
    return std::vector<std::string>{"exhaust", "--op",  "quantize",    "--scale", "0x1.99999ap-5",
                                    "-s",      subject, "--intervals", "-o",      certificate};
  };
  Qualm(0, words("native"));
  const Certificate c = ReadCertificateFile(certificate);
  EXPECT_EQ(c.method, Certificate::Method::kIntervals);
  EXPECT_EQ(c.judged, int64_t{1} << 32);
  EXPECT_LT(c.asked, 10000);
  EXPECT_TRUE(Begins(c.monotone, "shown by interval evaluation of the source of the kernel"));
  Qualm(0, {"exhaust", "--verify", certificate});
  // The same for a convention, whose output falls once.
  const Ran model = Qualm(1, words("model:aten@default"));
  EXPECT_EQ(ReadCertificateFile(certificate).monotone,
            "shown by interval evaluation of the steps of the convention, which falls 1 time");
  const Ran unknown = Qualm(words("faulty:none"));
  EXPECT_TRUE(Has(unknown.out, "the arithmetic of faulty:none is not known here, expected --full"));
}

TEST_F(ExhaustVerb, RefutesOneWrongInput) {
  const std::string worst = Path("worst.case.json"), certificate = Path("c.json");
  const Ran ran = Qualm(1, OneTie({"--worst", worst, "-o", certificate, "--json", "-"}));
  const Json document = Document(ran);
  EXPECT_EQ(document["exhaust"][0]["wrong"], 1);
  EXPECT_EQ(document["findings"][0]["first_divergence"]["actual"], 1);
  const Case c = ReadCaseFile(worst);
  EXPECT_EQ(c.x.IntAt(0), 1);
  Qualm(1, {"replay", worst, "-s", "faulty:one-tie"});
  // The certificate says that this input is wrong, and verifies.
  Qualm(0, {"exhaust", "--verify", certificate});
}

TEST_F(ExhaustVerb, ACertificateThatDoesNotFitIsRefused) {
  const std::string path = Path("c.json");
  ASSERT_EQ(Qualm(OneTie({"-o", path})).status, 1);
  const Certificate good = ReadCertificateFile(path);
  const auto verify = [&](const Certificate& certificate) {
    return std::vector<std::string>{"exhaust", "--verify",
                                    Write("bad.json", CertificateToJson(certificate))};
  };
  Certificate other = good;
  other.instruction_set = "AVX9";
  ExpectBadInput(verify(other), Path("bad.json") + ": instruction_set: is 'AVX9', expected");
  other = good;
  other.version = "7";
  ExpectBadInput(verify(other), Path("bad.json") + ": version: is '7', expected");
  other = good;
  other.qualm = "9.9";  // judged again all the same
  const Ran told = Qualm(verify(other));
  EXPECT_EQ(told.status, 0);
  EXPECT_TRUE(Has(told.err, ": qualm: is '9.9', here it is '"));
  std::string text = CertificateToJson(good);
  text.replace(text.find("\"wrong\": 1"), 10, "\"wrong\": 0");
  ExpectBadInput({"exhaust", "--verify", Write("bad.json", text)}, Path("bad.json") + ": hash: is");
  // The certificate fits, but a number in it is false.
  other = good;
  other.wrong = 0;
  other.first.reset();
  other.worst.reset();
  const Ran ran = Qualm(1, verify(other));
  EXPECT_TRUE(Has(ran.out, "does not hold"));
}

TEST_F(ExhaustVerb, ShardsMergeAndStatesContinue) {
  const std::vector<std::string> family{"exhaust",
                                        "--op",
                                        "add",
                                        "--scale",
                                        "0.4",
                                        "--dtype",
                                        "s8",
                                        "-s",
                                        "faulty:left-shift-dropped",
                                        "--zero-points",
                                        "-3:6"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = family;
    words.insert(words.end(), more.begin(), more.end());
    return Qualm(words);
  };
  ASSERT_EQ(with({"-o", Path("whole")}).status, 1);
  ASSERT_EQ(with({"--shard", "0/2", "-o", Path("a")}).status, 1);
  ASSERT_EQ(with({"--shard", "1/2", "-o", Path("b")}).status, 1);
  Qualm(1, {"exhaust", "--merge", Path("b"), Path("a"), "-o", Path("merged")});
  EXPECT_EQ(Read("merged"), Read("whole"));
  ExpectBadInput({"exhaust", "--merge", Path("a"), Path("a")}, Path("a") + ": covers [0, 5) again");
  // A saved state of half the work, and the run that continues it.
  ASSERT_EQ(with({"--shard", "0/2", "--state", Path("state")}).status, 1);
  ASSERT_EQ(with({"--state", Path("state"), "-j", "2"}).status, 1);
  EXPECT_EQ(ReadCertificateFile(Path("state")), ReadCertificateFile(Path("whole")));
  ExpectBadInput(OneTie({"--state", Path("state")}), Path("state") + ": is the state of another");
}

TEST_F(ExhaustVerb, SweepsTheParametersOfAModel) {
  const Ran ran = Qualm(0, {"exhaust", Corpus("forum/003-conv1.case.json"), "--op", "requantize",
                            "-s", "native@all", "--json", "-"});
  const Json document = Document(ran);
  ASSERT_GE(document["exhaust"].size(), 1u);
  const Json& problem = document["exhaust"][0]["problems"][0];
  EXPECT_EQ(problem["op"], "requantize");
  EXPECT_EQ(problem["x_scale"], "0x1.31b334p-6");
  EXPECT_EQ(problem["out_zp"], 122);
}

TEST_F(ExhaustVerb, SaysWhatIsWrongWithItsOptions) {
  ExpectBadInput({"exhaust", "-s", "native"}, "--op: is missing");
  ExpectBadInput({"exhaust", "--op", "quantize"}, "--subject: is missing");
  ExpectBadInput({"exhaust", "--op", "quantise", "-s", "native"}, "--op: unknown");
  ExpectBadInput({"exhaust", "--op", "max_pool", "-s", "native"}, "op: is max_pool");
  ExpectBadInput({"exhaust", "--op", "rescale", "--dtype", "s16", "-s", "native"},
                 "--dtype: is 's16', expected u8 or s8; of quantize");
  ExpectBadInput({"exhaust", "--op", "quantize", "--scale", "-1", "-s", "native"},
                 "--scale: '-1' is no scale");
  ExpectBadInput({"exhaust", "--op", "quantize", "--scales", "2:1", "-s", "native"},
                 "--scales: '2:1' ends before it begins");
  ExpectBadInput({"exhaust", "--op", "quantize", "--zero-points", "x", "-s", "native"},
                 "--zero-points: 'x' is no range");
  ExpectBadInput({"exhaust", "--op", "quantize", "--shard", "1/2", "-s", "native"},
                 "--shard: a few hundred questions");
  ExpectBadInput({"exhaust", "--op", "linear", "--weights", "1,2,3", "-s", "native"},
                 "--weights: '1,2,3' are no pairs");
}

}  // namespace
}  // namespace qualm::tools
