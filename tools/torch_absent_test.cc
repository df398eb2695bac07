// SPDX-License-Identifier: Apache-2.0
// A PyTorch that is broken is absent for a reason, or a finding of its kind: QUALM_PYTHON names a
// small script in the place of a Python.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>

#include "adapters/registry.h"
#include "core/io/case_json.h"
#include "core/status.h"
#include "core/subject.h"
#include "tools/python_in_place_test_util.h"

namespace qualm {
namespace {

class TorchAbsent : public PythonInPlace {
 protected:
  TorchAbsent() : PythonInPlace("QUALM_PYTHON", "torch@fbgemm") {}

  void WritePackage(const std::string& text) const {
    Write("torch/__init__.py", text);
    WritePython();
  }
  // A child that offers linear, and then does this with its first case.
  void WriteChild(const std::string& then) const {
    Write("python",
          "#!/bin/sh\nread hello\necho '{\"qualm_pipe\":1,\"name\":\"PyTorch\",\"version\":"
          "\"9\",\"contract\":\"exact\",\"ops\":{\"linear\":{}}}'\nread request\n" +
              then + "\n");
  }
  Outcome FirstAnswer() const {
    return Make()->Run(ReadCaseFile(QUALM_SOURCE_DIR "/corpus/forum/002-linear-2x2.case.json"), {});
  }
};

TEST_F(TorchAbsent, APackageForAnotherPython) {
  WritePackage("raise ImportError('torch._C was built for another Python:\\n cp39')\n");
  ExpectAbsent("ImportError: torch._C was built for another Python: cp39");
}

TEST_F(TorchAbsent, AHalfInstalledPackage) {
  WritePackage("");
  ExpectAbsent("AttributeError: module 'torch' has no attribute '__version__'");
}

TEST_F(TorchAbsent, APackageThatPrintsWhenItIsImported) {
  WritePackage("print('{\"qualm_pipe\": 1}', flush=True)\nraise OSError('libtorch.so: no file')\n");
  ExpectAbsent("OSError: libtorch.so: no file");
}

TEST_F(TorchAbsent, APackageThatEndsTheProcess) {
  WritePackage("import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n");
  ExpectAbsent("SIGILL");
}

TEST_F(TorchAbsent, APythonThatIsNone) {
  ExpectAbsent("python");
  Write("python", "#!/bin/sh\necho Python 3.11.2; exit 0\n");
  ExpectAbsent("is no JSON");
}

TEST_F(TorchAbsent, AnImportMayTakeItsTime) {
  WritePackage("import time\ntime.sleep(2)\nraise ImportError('late')\n");
  ExpectAbsent("ImportError: late");
}

// What torch_child.py asks of a wheel before it says what it is.
TEST_F(TorchAbsent, AnotherVersionIsJudgedByTheNearestAndSaysSo) {
  const auto version_of = [&](const std::string& version) {
    WritePackage(
        "import types\n"
        "__version__ = '" +
        version +
        "'\n"
        "quint8 = qint8 = uint8 = int8 = None\n"
        "__config__ = types.SimpleNamespace(show=lambda: 'MKL-DNN v3.20.1 -DUSE_FBGEMM')\n"
        "backends = types.SimpleNamespace(\n"
        "    quantized=types.SimpleNamespace(supported_engines=['qnnpack'], engine=''))\n"
        "def set_num_threads(n): pass\n"
        "def tensor(values): return values\n"
        "def quantize_per_tensor(*_): return types.SimpleNamespace(int_repr=lambda: [2])\n");
    const std::unique_ptr<Subject> subject = SubjectRegistry::Get().Make("torch@qnnpack");
    EXPECT_EQ(subject->contract().text(), "model:torch2.13-qnnpack");
    return subject->Version();
  };
  EXPECT_EQ(version_of("2.13.1+cpu"), "PyTorch 2.13.1+cpu");
  EXPECT_EQ(version_of("2.15.0"), "PyTorch 2.15.0 (judged by what was made for 2.11 to 2.13)");
}

TEST_F(TorchAbsent, AChildThatDiesIsACrash) {
  WriteChild("kill -SEGV $$");
  EXPECT_EQ(FirstAnswer().status, RunStatus::kCrashed);
}

TEST_F(TorchAbsent, AChildThatStaysSilentIsAHang) {
  setenv("QUALM_TIME_LIMIT_MS", "300", 1);
  WriteChild("sleep 60");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(FirstAnswer().status, RunStatus::kHung);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(45));
}

TEST_F(TorchAbsent, AChildThatPrintsIsNonsense) {
  WriteChild("echo 'Warning: deprecated'");
  const Outcome outcome = FirstAnswer();
  EXPECT_FALSE(outcome.ok());
  EXPECT_NE(outcome.status, RunStatus::kSkipped) << outcome.detail;
}

}  // namespace
}  // namespace qualm
