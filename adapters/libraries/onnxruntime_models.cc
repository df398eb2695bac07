// SPDX-License-Identifier: Apache-2.0
// Whole models on ONNX Runtime's wheel, in a Python process (onnxruntime_models.py says how it is
// asked).
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "adapters/host/child_process.h"
#include "adapters/host/plugin_subjects.h"
#include "adapters/libraries/libraries.h"
#include "core/io/arrays.h"
#include "core/io/json_text.h"
#include "core/io/model_runtime.h"
#include "core/io/onnx_graph.h"
#include "core/status.h"

namespace qualm {
namespace {

namespace fs = std::filesystem;
using onnx::ModelRuntime;
using onnx::Value;
using onnx::Values;

constexpr std::string_view kProgram = "onnxruntime_models.py";
constexpr std::string_view kWheel = "onnxruntime";
constexpr int kStartLimitMs = 300'000;  // a package that a disk has to bring
constexpr int kRunLimitMs = 600'000;

// A folder of its own for each process, gone with it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "qualm-model-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      throw Unavailable("cannot make " + name + ": " + std::strerror(errno));
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::array<FileDescriptor, 2> MakePipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Unavailable(std::string("no pipe to be had: ") + std::strerror(errno));
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::string DimsText(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ",") + std::to_string(size);
  return text.empty() ? "-" : text;
}

std::vector<int64_t> DimsOf(const std::string& text) {
  std::vector<int64_t> shape;
  if (text == "-") return shape;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) shape.push_back(std::stoll(part));
  return shape;
}

void WriteElements(const fs::path& path, const Value& value) {
  std::ofstream file(path, std::ios::binary);
  if (value.holds_tensor()) {
    const auto bytes = value.tensor.bytes();
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  } else {
    for (const int64_t element : value.integers) {
      file.write(reinterpret_cast<const char*>(&element), value.type == onnx::kBool ? 1 : 8);
    }
  }
  if (!file.flush()) throw Unavailable("cannot write " + path.string());
}

Value ReadElements(const fs::path& path, int64_t type, std::vector<int64_t> shape) {
  const std::string bytes = ReadBinaryFile(path.string(), kMaxWeightFile);
  if (const std::optional<DType> held = onnx::HeldBy(type))
    return Value::Of(TensorOfBytes(*held, shape, bytes, path.string()));
  std::vector<int64_t> integers;
  if (type == onnx::kBool) {
    integers.assign(bytes.begin(), bytes.end());
  } else {
    integers.resize(bytes.size() / sizeof(int64_t));
    if (!integers.empty()) std::memcpy(integers.data(), bytes.data(), integers.size() * 8);
  }
  return Value::Of(type, std::move(shape), std::move(integers));
}

class OnnxruntimeModels : public ModelRuntime {
 public:
  OnnxruntimeModels() {
    if (const std::string reason = WhyNoWheel(kWheel); !reason.empty()) throw Unavailable(reason);
    const std::string program = FindModule(std::string(kProgram));
    if (program.empty())
      throw Unavailable(std::string(kProgram) + " not found: set QUALM_PLUGIN_DIR to its folder");
    auto [child_in, ours_out] = MakePipe();
    auto [ours_in, child_out] = MakePipe();
    const std::string errors = (folder_.path() / "errors.txt").string();
    const FileDescriptor log(open(errors.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ChildOptions options;
    options.arguments = {WheelPython(kWheel), "-B", program};
    options.descriptors = {{child_in.get(), 0}, {child_out.get(), 1}, {log.get(), 2}};
    process_.emplace(options);
    to_child_ = std::move(ours_out);
    from_child_ = std::move(ours_in);
    child_in.Close();
    child_out.Close();
    const std::optional<std::string> hello = NextLine(kStartLimitMs);
    if (!hello || !hello->starts_with("ONNX Runtime ")) {
      const std::string end = process_->EndAndReap(/*dying=*/true);
      std::string words = ReadBinaryFile(errors, size_t{1} << 20);
      words = words.substr(0, words.find_last_not_of('\n') + 1);
      words = words.substr(words.rfind('\n') == std::string::npos ? 0 : words.rfind('\n') + 1);
      throw Unavailable("onnxruntime: " + (words.empty() ? end : OneLine(words)));
    }
    name_ = *hello;
  }

  std::string name() const override { return name_; }

  Answer Run(std::string_view model, const std::string& folder, const Values& inputs,
             const std::vector<std::string>& outputs) override {
    Answer answer;
    try {
      Ask(model, folder, inputs, outputs, &answer);
    } catch (const std::exception& error) {
      answer.error = OneLine(error.what());
    }
    return answer;
  }

 private:
  void Ask(std::string_view model, const std::string& folder, const Values& inputs,
           const std::vector<std::string>& outputs, Answer* answer) {
    if (!process_) throw Unavailable(name_ + " has ended before");
    const fs::path question = folder_.path() / "question";
    fs::remove_all(question);
    fs::create_directories(question);
    std::ofstream(question / "model.onnx", std::ios::binary) << model;
    std::ofstream text(question / "question.txt", std::ios::binary);
    text << "folder " << fs::absolute(folder.empty() ? "." : folder).string() << "\n";
    int place = 0;
    for (const auto& [name, value] : inputs) {
      text << "input " << place << " " << value.type << " " << DimsText(value.shape) << " " << name
           << "\n";
      WriteElements(question / (std::to_string(place++) + ".bin"), value);
    }
    for (size_t i = 0; i < outputs.size(); ++i) text << "output " << i << " " << outputs[i] << "\n";
    text.close();
    const std::string line = question.string() + "\n";
    if (write(to_child_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      throw Unavailable(name_ + " has ended");
    const std::optional<std::string> told = NextLine(kRunLimitMs);
    if (!told) {
      const bool ended = process_->Ended();
      const std::string end = process_->EndAndReap(ended);
      process_.reset();
      throw Unavailable(ended ? name_ + ": " + end : name_ + " gave no answer in ten minutes");
    }
    if (*told != "ok") throw Unavailable(told->starts_with("error ") ? told->substr(6) : *told);
    std::ifstream given(question / "answer.txt");
    for (std::string at, type, dims; given >> at >> type >> dims;) {
      answer->values[outputs.at(std::stoul(at))] =
          ReadElements(question / ("answer-" + at + ".bin"), std::stoll(type), DimsOf(dims));
    }
  }

  // nullopt: the child has closed its stdout, or says nothing.
  std::optional<std::string> NextLine(int limit_ms) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    for (;;) {
      if (const size_t at = read_.find('\n'); at != std::string::npos) {
        std::string line = read_.substr(0, at);
        read_.erase(0, at + 1);
        return line;
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      pollfd waiting{from_child_.get(), POLLIN, 0};
      const int ready = left.count() <= 0 ? 0 : poll(&waiting, 1, static_cast<int>(left.count()));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) return std::nullopt;
      std::array<char, 4096> piece{};
      const ssize_t got = read(from_child_.get(), piece.data(), piece.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return std::nullopt;
      read_.append(piece.data(), static_cast<size_t>(got));
    }
  }

  TemporaryFolder folder_;
  std::string name_;
  std::string read_;
  FileDescriptor to_child_, from_child_;
  std::optional<ChildProcess> process_;
};

}  // namespace

void RegisterModelRuntime() {
  onnx::SetModelRuntime(
      []() -> std::unique_ptr<ModelRuntime> { return std::make_unique<OnnxruntimeModels>(); });
}

}  // namespace qualm
