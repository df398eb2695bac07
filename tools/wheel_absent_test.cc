// SPDX-License-Identifier: Apache-2.0
// A Python package that is broken is absent for a reason, or a finding of its kind:
// QUALM_ONNXRUNTIME_PYTHON names a small script in the place of a Python.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "adapters/registry.h"
#include "core/status.h"
#include "core/subject.h"
#include "tools/python_in_place_test_util.h"
#include "tools/run_qualm_test_util.h"

namespace qualm {
namespace {

class WheelAbsent : public PythonInPlace {
 protected:
  WheelAbsent() : PythonInPlace("QUALM_ONNXRUNTIME_PYTHON", "onnxruntime-py") {}

  // The system's Python with a package onnxruntime of this text, and a NumPy that is enough for
  // quantize: it only holds the lists that it is given.
  void WritePackage(const std::string& text) const {
    Write("onnxruntime.py", text);
    Write("numpy.py",
          "class Array:\n"
          "  dtype = type('', (), {'name': 'uint8'})\n"
          "  shape = ()\n"
          "  def reshape(self, *_): return self\n"
          "  def view(self, _): return self\n"
          "  def tobytes(self): return b''\n"
          "def array(*_, **__): return Array()\n");
    WritePython();
  }
  // A package that offers itself and then does this with each case.
  void WriteSession(const std::string& then) const {
    WritePackage(
        "import os, sys, time, types\n"
        "__version__ = '1.99.0'\n"
        "GraphOptimizationLevel = types.SimpleNamespace(ORT_DISABLE_ALL=0)\n"
        "class SessionOptions: pass\n"
        "class InferenceSession:\n"
        "  def __init__(self, *_, **__): pass\n"
        "  def run(self, *_):\n    " +
        then + "\n");
  }
  Outcome FirstAnswer() const {
    Case c;
    c.op = Op::kQuantize;
    c.M = c.N = 1;
    c.x = Tensor::Of<float>({1, 1}, std::vector<float>{1});
    EXPECT_EQ(Validate(c), "");
    return Make()->Run(c, {});
  }
};

TEST_F(WheelAbsent, APackageThatCannotBeImported) {
  WritePackage("raise ImportError('built for another Python:\\n cp39')\n");
  ExpectAbsent("ImportError: built for another Python: cp39");
  WritePackage("");
  ExpectAbsent("AttributeError");
  WritePackage("print('{\"qualm_pipe\": 1}', flush=True)\nraise OSError('no such file')\n");
  ExpectAbsent("OSError: no such file");
  WritePackage("import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n");
  ExpectAbsent("SIGILL");
  WritePackage("import sys\nsys.exit(0)\n");
  ExpectAbsent("exit");
}

TEST_F(WheelAbsent, APythonThatIsNone) {
  ExpectAbsent("python");
  Write("python", "#!/bin/sh\necho Python 3.11.2; exit 0\n");
  ExpectAbsent("is no JSON");
}

TEST_F(WheelAbsent, AnImportMayTakeMoreTimeThanAnAnswer) {
  setenv("QUALM_TIME_LIMIT_MS", "300", 1);
  WritePackage("import time\ntime.sleep(1)\nraise ImportError('late')\n");
  ExpectAbsent("ImportError: late");
}

TEST_F(WheelAbsent, AnotherVersionSaysSo) {
  WriteSession("pass");
  EXPECT_EQ(Make()->Version(), "ONNX Runtime 1.99.0 (judged by what was made for 1.21 to 1.32)");
}

TEST_F(WheelAbsent, WhatItPrintsAndReadsIsNotOfTheProtocol) {
  // Its answer is the text of the error: what it read of an empty stdin.
  WriteSession(
      "print('{\"id\":1,\"y\":[7]}', flush=True); os.write(1, b'warning'); "
      "raise ValueError('read %r' % os.read(0, 9))");
  const Outcome outcome = FirstAnswer();
  EXPECT_EQ(Name(outcome.status), Name(RunStatus::kRefused)) << outcome.detail;
  EXPECT_NE(outcome.detail.find("ValueError: read b''"), std::string::npos) << outcome.detail;
}

TEST_F(WheelAbsent, OneThatDiesOrSleepsIsAFinding) {
  WriteSession("os.abort()");
  EXPECT_EQ(FirstAnswer().status, RunStatus::kCrashed);
  WriteSession("sys.exit(0)");
  EXPECT_EQ(FirstAnswer().status, RunStatus::kCrashed);
  setenv("QUALM_TIME_LIMIT_MS", "300", 1);
  WriteSession("time.sleep(60)");
  EXPECT_EQ(FirstAnswer().status, RunStatus::kHung);
}

class WheelMissing : public tools::QualmTest {};

TEST_F(WheelMissing, SaysHowToGetIt) {
  const tools::Ran ran = Qualm({"check", "--subject", "tflite", "--op", "linear"},
                               {"QUALM_CACHE_DIR=" + folder().string()});
  EXPECT_EQ(ran.status, 3);
  EXPECT_NE(ran.err.find("the Python package litert not found: run scripts/bootstrap "
                         "--with-libraries"),
            std::string::npos)
      << ran.err;
}

}  // namespace
}  // namespace qualm
