// SPDX-License-Identifier: Apache-2.0
// Whole models on a library's wheel, in a Python process (models_child.py says how it is asked), or
// on its npm package.
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
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "adapters/host/child_process.h"
#include "adapters/host/plugin_subjects.h"
#include "adapters/libraries/libraries.h"
#include "core/io/arrays.h"
#include "core/io/asked_runtime.h"
#include "core/io/json_text.h"
#include "core/io/model_runtime.h"
#include "core/status.h"

namespace qualm {
namespace {

namespace fs = std::filesystem;
using graph::ModelRuntime;
using graph::Value;
using graph::Values;

// A runtime of whole models; the first of a format that is there is the one that users get.
struct RuntimeRow {
  graph::Format format;
  std::string_view name;     // as its subjects are called
  std::string_view wheel;    // as scripts/install-wheel calls it; "" of an npm package
  std::string_view program;  // beside this file
  std::string_view option;
};
constexpr std::array kRuntimes{
    RuntimeRow{graph::Format::kOnnx, "onnxruntime", "onnxruntime", "onnxruntime_models.py", ""},
    RuntimeRow{graph::Format::kOnnx, "onnxruntime@npm", "", "onnxruntime_models.mjs", ""},
    RuntimeRow{graph::Format::kTflite, "tflite", "litert", "litert_models.py", "xnnpack"},
    RuntimeRow{graph::Format::kTflite, "tflite@builtin", "litert", "litert_models.py", "builtin"},
    RuntimeRow{graph::Format::kTflite, "tflite@reference", "litert", "litert_models.py",
               "reference"}};
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
      file.write(reinterpret_cast<const char*>(&element),
                 static_cast<std::streamsize>(graph::SizeOfType(value.type)));
    }
  }
  if (!file.flush()) throw Unavailable("cannot write " + path.string());
}

Value ReadElements(const fs::path& path, int64_t type, std::vector<int64_t> shape) {
  const std::string bytes = ReadBinaryFile(path.string(), kMaxWeightFile);
  if (const std::optional<DType> held = graph::HeldBy(type))
    return Value::Of(TensorOfBytes(*held, shape, bytes, path.string()));
  const size_t size = graph::SizeOfType(type);
  std::vector<int64_t> integers;
  for (size_t at = 0; size != 0 && at + size <= bytes.size(); at += size) {
    int64_t element = 0;
    std::memcpy(&element, bytes.data() + at, size);
    integers.push_back(element);
  }
  return Value::Of(type, std::move(shape), std::move(integers));
}

std::string WhyAbsent(const RuntimeRow& row) {
  if (row.wheel.empty()) return WhyNoNodePackage(row.program);
  if (std::string reason = WhyNoWheel(row.wheel); !reason.empty()) return reason;
  if (!FindModule(std::string(row.program)).empty()) return "";
  return std::string(row.program) + " not found: set QUALM_PLUGIN_DIR to its folder";
}

class ChildModels : public graph::AskedRuntime {
 public:
  explicit ChildModels(const RuntimeRow& row) {
    if (const std::string reason = WhyAbsent(row); !reason.empty()) throw Unavailable(reason);
    auto [child_in, ours_out] = MakePipe();
    auto [ours_in, child_out] = MakePipe();
    const std::string errors = (folder_.path() / "errors.txt").string();
    const FileDescriptor log(open(errors.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ChildOptions options;
    options.arguments = row.wheel.empty() ? NodeCommand(row.program)
                                          : std::vector{WheelPython(row.wheel), std::string("-B"),
                                                        FindModule(std::string(row.program)),
                                                        std::string(row.option)};
    options.descriptors = {{child_in.get(), 0}, {child_out.get(), 1}, {log.get(), 2}};
    process_.emplace(options);
    to_child_ = std::move(ours_out);
    from_child_ = std::move(ours_in);
    child_in.Close();
    child_out.Close();
    const std::optional<std::string> hello = NextLine(kStartLimitMs);
    if (!hello || !hello->starts_with("hello ")) {
      const std::string end = process_->EndAndReap(/*dying=*/true);
      std::string words = ReadBinaryFile(errors, size_t{1} << 20);
      words = words.substr(0, words.find_last_not_of('\n') + 1);
      words = words.substr(words.rfind('\n') == std::string::npos ? 0 : words.rfind('\n') + 1);
      throw Unavailable(std::string(row.name) + ": " + (words.empty() ? end : OneLine(words)));
    }
    name_ = hello->substr(6);
  }

  std::string name() const override { return name_; }

 private:
  Values Ask(const graph::Graph& graph, const Question& asked, const Values& inputs,
             const std::vector<std::string>& outputs) override {
    if (!process_) throw Unavailable(name_ + " has ended before");
    const fs::path question = folder_.path() / "question";
    fs::remove_all(question);
    fs::create_directories(question);
    std::ofstream(question / "model", std::ios::binary) << asked.model;
    std::ofstream text(question / "question.txt", std::ios::binary);
    text << "folder " << fs::absolute(asked.folder.empty() ? "." : asked.folder).string() << "\n";
    if (asked.node) text << "node " << *asked.node << "\n";
    int place = 0;
    for (const auto& [name, value] : inputs) {
      text << "input " << place << " " << value.type << " " << DimsText(value.shape) << " "
           << NameFor(graph, name) << "\n";
      WriteElements(question / (std::to_string(place++) + ".bin"), value);
    }
    for (size_t i = 0; i < outputs.size(); ++i)
      text << "output " << i << " " << NameFor(graph, outputs[i]) << "\n";
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
    Values values;
    std::ifstream given(question / "answer.txt");
    for (std::string at, type, dims; given >> at >> type >> dims;) {
      values[outputs.at(std::stoul(at))] =
          ReadElements(question / ("answer-" + at + ".bin"), std::stoll(type), DimsOf(dims));
    }
    return values;
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
  graph::SetModelRuntime([](graph::Format format, const std::string& name) {
    const RuntimeRow* first = nullptr;
    std::string known;
    for (const RuntimeRow& row : kRuntimes) {
      if (row.format != format) continue;
      if (first == nullptr) first = &row;
      if (name.empty() ? WhyAbsent(row).empty() : name == row.name)
        return std::unique_ptr<ModelRuntime>(std::make_unique<ChildModels>(row));
      known += (known.empty() ? "" : ", ") + std::string(row.name);
    }
    if (name.empty() && first != nullptr) throw Unavailable(WhyAbsent(*first));
    throw InputError("--runtime: is " + Shown(name) + ", expected " + known);
  });
}

}  // namespace qualm
