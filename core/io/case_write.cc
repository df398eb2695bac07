// SPDX-License-Identifier: Apache-2.0
// Writes cases: every field that has a meaning for the op, in the order of CaseKey.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/float_text.h"
#include "core/io/case_fields.h"
#include "core/io/case_json.h"
#include "core/io/json_text.h"
#include "core/status.h"

namespace qualm {
namespace {

std::string Token(int64_t value) { return std::to_string(value); }
std::string Token(int32_t value) { return std::to_string(value); }
std::string Token(float value) { return '"' + FloatText(value) + '"'; }

class Writer {
 public:
  explicit Writer(bool pretty) : pretty_(pretty) {}

  std::string Write(const Case& c) {
    QUALM_CHECK(IsListed(c.op));  // no other has a spelling in case files
    const bool linear = c.op == Op::kLinear;
    Put(CaseKey::kVersion, Token(kCaseFormatVersion));
    Put(CaseKey::kOp, JsonQuote(Name(c.op)));
    if (!c.property.empty()) Put(CaseKey::kProperty, JsonQuote(c.property));
    if (!c.note.empty()) Put(CaseKey::kNote, JsonQuote(c.note));
    Put(CaseKey::kM, Token(c.M));
    Put(CaseKey::kN, Token(c.N));
    if (linear) Put(CaseKey::kK, Token(c.K));
    Put(CaseKey::kGran, c.per_channel ? "\"channel\"" : "\"tensor\"");
    Put(CaseKey::kXDType, JsonQuote(Name(c.x.dtype())));
    if (linear) Put(CaseKey::kWDType, JsonQuote(Name(c.w.dtype())));
    Put(CaseKey::kOutDType, JsonQuote(Name(c.out_dtype)));
    WriteQParams(c);
    WritePostOp(c);
    Put(CaseKey::kX, Matrix(c.x));
    if (linear) Put(CaseKey::kW, Matrix(c.w));
    if (c.expected) Put(CaseKey::kExpected, Matrix(*c.expected));
    if (c.observed) {
      Put(CaseKey::kObserved,
          "{\"by\": " + JsonQuote(c.observed->by) + ", \"y\": " + Matrix(c.observed->y) + "}");
    }
    return "{" + body_ + (pretty_ ? "\n}\n" : "}");
  }

 private:
  void Put(CaseKey key, const std::string& value) {
    if (!body_.empty()) body_ += pretty_ ? "," : ", ";
    if (pretty_) body_ += "\n  ";
    body_ += JsonQuote(FieldName(key)) + ": " + value;
  }

  // One number per tensor, a list per channel.
  template <class T>
  void PutParams(CaseKey key, const std::vector<T>& values, bool per_channel) {
    Put(key, per_channel || values.size() != 1 ? List(values) : Token(values[0]));
  }

  template <class T>
  static std::string List(const std::vector<T>& values) {
    std::string text = "[";
    for (size_t i = 0; i < values.size(); ++i) text += (i != 0 ? ", " : "") + Token(values[i]);
    return text + "]";
  }

  // Row by row; each row on its own line where there are several.
  std::string Matrix(const Tensor& tensor) const {
    const int64_t columns = tensor.shape().back();
    const bool lines = pretty_ && tensor.size() > columns;
    std::string text = "[";
    for (int64_t i = 0; i < tensor.size(); ++i) {
      if (i != 0) text += lines && i % columns == 0 ? "," : ", ";
      if (lines && i % columns == 0) text += "\n    ";
      text += tensor.dtype() == DType::kF32 ? Token(tensor.FloatAt(i)) : Token(tensor.IntAt(i));
    }
    return text + (lines ? "\n  ]" : "]");
  }

  void WriteQParams(const Case& c) {
    const bool quotient = c.op == Op::kRequantize && !UsesMultiplier(c);
    const bool linear = c.op == Op::kLinear;
    if (linear || quotient || c.op == Op::kDequantize) {
      const bool per_channel = c.op == Op::kDequantize && c.per_channel;
      PutParams(CaseKey::kXScale, c.x_q.scale, per_channel);
      PutParams(CaseKey::kXZp, c.x_q.zero_point, per_channel);
    }
    if (linear || quotient) {
      PutParams(CaseKey::kWScale, c.w_q.scale, c.per_channel);
      PutParams(CaseKey::kWZp, c.w_q.zero_point, c.per_channel);
    }
    if (c.op == Op::kRequantize && !quotient) {
      PutParams(CaseKey::kMultiplier, c.multiplier, c.per_channel);
    }
    if (c.op != Op::kDequantize) {
      const bool per_channel = c.op == Op::kQuantize && c.per_channel;
      PutParams(CaseKey::kOutScale, c.out_q.scale, per_channel);
      PutParams(CaseKey::kOutZp, c.out_q.zero_point, per_channel);
    }
  }

  // An empty multiplier is a list of no channels unless the scales of the quotient are there.
  static bool UsesMultiplier(const Case& c) {
    if (!c.multiplier.empty()) return true;
    return c.per_channel && c.N == 0 && c.x_q == QParams{} && c.w_q == QParams{};
  }

  void WritePostOp(const Case& c) {
    if (c.bias) Put(CaseKey::kBias, List(*c.bias));
    if (c.bias_i32) Put(CaseKey::kBiasI32, List(*c.bias_i32));
    if (c.op == Op::kDequantize) return;
    Put(CaseKey::kRelu, c.relu ? "true" : "false");
    if (c.out_dtype != DType::kF32) {
      Put(CaseKey::kOutMin, Token(c.out_min));
      Put(CaseKey::kOutMax, Token(c.out_max));
    }
    if (c.op != Op::kQuantize) Put(CaseKey::kRequant, "\"exact\"");
  }

  bool pretty_;
  std::string body_;
};

[[noreturn]] void CannotWrite(const std::string& path, const std::string& what) {
  const std::string reason = std::strerror(errno);
  FailCase(path, "file", what + " (" + reason + "), expected a writable path");
}

}  // namespace

std::string CaseToJson(const Case& c) { return Writer(/*pretty=*/true).Write(c); }
std::string CaseToJsonLine(const Case& c) { return Writer(/*pretty=*/false).Write(c); }

void WriteCaseFile(const Case& c, const std::string& path) {
  const std::string text = CaseToJson(c);
  std::string temporary = path + ".XXXXXX";
  const int fd = ::mkstemp(temporary.data());
  if (fd < 0) CannotWrite(path, "cannot be created");
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    done += static_cast<size_t>(count);
  }
  // mkstemp makes it private; case files are for everybody.
  const bool written = done == text.size() && ::fchmod(fd, 0644) == 0 && ::fsync(fd) == 0;
  if (::close(fd) != 0 || !written || ::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    errno = error;
    CannotWrite(path, "cannot be written");
  }
  // The rename itself is durable only once the folder is.
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const int folder_fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (folder_fd >= 0) {
    ::fsync(folder_fd);
    ::close(folder_fd);
  }
}

}  // namespace qualm
