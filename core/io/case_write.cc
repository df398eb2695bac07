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
#include "core/io/case_keys.h"
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
    const OperandKeys keys = OperandKeysOf(c.op);
    const bool has_w = HasKey(c.op, keys.w);
    Put(CaseKey::kVersion, Token(kCaseFormatVersion));
    Put(CaseKey::kOp, JsonQuote(Name(c.op)));
    if (!c.property.empty()) Put(CaseKey::kProperty, JsonQuote(c.property));
    if (!c.note.empty()) Put(CaseKey::kNote, JsonQuote(c.note));
    if (c.op == Op::kTable) WriteFunction(c);
    if (c.op == Op::kChooseQParams) WriteObserver(c.observer);
    WriteSizes(c);
    Put(CaseKey::kGran, c.per_channel ? "\"channel\"" : "\"tensor\"");
    Put(CaseKey::kXDType, JsonQuote(Name(c.x.dtype())));
    if (HasSums(c.op)) Put(CaseKey::kWDType, JsonQuote(Name(c.w.dtype())));
    Put(CaseKey::kOutDType, JsonQuote(Name(c.out_dtype)));
    WriteQParams(c);
    WritePostOp(c);
    Put(keys.x, Matrix(c.x));
    if (has_w) Put(keys.w, Matrix(c.w));
    if (c.expected) Put(CaseKey::kExpected, Matrix(*c.expected));
    if (c.observed) {
      Put(CaseKey::kObserved,
          "{\"by\": " + JsonQuote(c.observed->by) + ", \"y\": " + Matrix(c.observed->y) + "}");
    }
    return "{" + body_ + (pretty_ ? "\n}\n" : "}");
  }

 private:
  void Put(CaseKey key, std::string_view value) {
    if (!body_.empty()) body_ += pretty_ ? "," : ", ";
    if (pretty_) body_ += "\n  ";
    body_ += JsonQuote(FieldName(key)) + ": ";
    body_ += value;
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

  // Row by row; each row on its own line where there are several. A row of an image has all its
  // channels.
  std::string Matrix(const Tensor& tensor) const {
    const std::vector<int64_t>& shape = tensor.shape();
    const int64_t columns = shape.size() == 4 ? shape[2] * shape[3] : shape.back();
    const bool lines = pretty_ && tensor.size() > columns;
    std::string text = "[";
    for (int64_t i = 0; i < tensor.size(); ++i) {
      if (i != 0) text += lines && i % columns == 0 ? "," : ", ";
      if (lines && i % columns == 0) text += "\n    ";
      text += tensor.dtype() == DType::kF32 ? Token(tensor.FloatAt(i)) : Token(tensor.IntAt(i));
    }
    return text + (lines ? "\n  ]" : "]");
  }

  static std::string_view Flag(bool value) { return value ? "true" : "false"; }

  void WriteFunction(const Case& c) {
    Put(CaseKey::kFunction, JsonQuote(Name(c.function)));
    if (c.function == Function::kLeakyRelu) {
      Put(CaseKey::kNegativeSlope, Token(c.negative_slope));
    }
  }

  void WriteObserver(const Observer& o) {
    Put(CaseKey::kObserver, JsonQuote(Name(o.kind)));
    Put(CaseKey::kSymmetric, Flag(o.symmetric));
    Put(CaseKey::kReduceRange, Flag(o.reduce_range));
    Put(CaseKey::kDType, JsonQuote(Name(o.dtype)));
    Put(CaseKey::kQuantMin, Token(o.quant_min));
    Put(CaseKey::kQuantMax, Token(o.quant_max));
    Put(CaseKey::kAveragingConstant, Token(o.averaging_constant));
  }

  // What the op has of it.
  void PutSize(const Case& c, CaseKey key, int64_t value) {
    if (HasKey(c.op, key)) Put(key, Token(value));
  }

  void WriteSizes(const Case& c) {
    if (!HasWindow(c.op)) {
      if (c.op == Op::kChooseQParams) Put(CaseKey::kBatches, Token(c.x.shape()[0]));
      Put(CaseKey::kM, Token(c.M));
      PutSize(c, CaseKey::kN, c.N);
      if (c.op == Op::kConcat) {
        Put(CaseKey::kNA, Token(c.x.shape()[1]));
        Put(CaseKey::kNB, Token(c.w.shape()[1]));
      }
      PutSize(c, CaseKey::kK, c.K);
      return;
    }
    const Window& v = c.window;
    Put(CaseKey::kN, Token(v.batch));
    Put(CaseKey::kH, Token(v.in_h));
    Put(CaseKey::kWidth, Token(v.in_w));
    PutSize(c, CaseKey::kC, v.in_c);
    PutSize(c, CaseKey::kIC, v.in_c);
    PutSize(c, CaseKey::kOC, c.N);
    PutSize(c, CaseKey::kR, v.kernel_h);
    PutSize(c, CaseKey::kS, v.kernel_w);
    const auto tuple = [&](CaseKey key, const std::vector<int64_t>& values) {
      if (HasKey(c.op, key)) Put(key, List(values));
    };
    tuple(CaseKey::kStride, {v.stride_h, v.stride_w});
    tuple(CaseKey::kPad, {v.pad_top, v.pad_bottom, v.pad_left, v.pad_right});
    tuple(CaseKey::kDilation, {v.dilation_h, v.dilation_w});
    PutSize(c, CaseKey::kGroups, v.groups);
    if (HasKey(c.op, CaseKey::kCeilMode)) Put(CaseKey::kCeilMode, Flag(v.ceil_mode));
    if (HasKey(c.op, CaseKey::kCountIncludePad)) {
      Put(CaseKey::kCountIncludePad, Flag(v.count_include_pad));
    }
  }

  void WriteQParams(const Case& c) {
    const OperandKeys keys = OperandKeysOf(c.op);
    const bool multiplier = c.op == Op::kRequantize && UsesMultiplier(c);
    if (HasKey(c.op, keys.x_scale) && !multiplier) {
      const bool per_channel = c.op == Op::kDequantize && c.per_channel;
      PutParams(keys.x_scale, c.x_q.scale, per_channel);
      PutParams(keys.x_zp, c.x_q.zero_point, per_channel);
    }
    if (HasKey(c.op, keys.w_scale) && !multiplier) {
      PutParams(keys.w_scale, c.w_q.scale, c.per_channel);
      PutParams(keys.w_zp, c.w_q.zero_point, c.per_channel);
    }
    if (multiplier) PutParams(CaseKey::kMultiplier, c.multiplier, c.per_channel);
    if (HasKey(c.op, CaseKey::kOutScale)) {
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
    if (HasKey(c.op, CaseKey::kRelu)) Put(CaseKey::kRelu, Flag(c.relu));
    if (HasKey(c.op, CaseKey::kOutMin) && c.out_dtype != DType::kF32) {
      Put(CaseKey::kOutMin, Token(c.out_min));
      Put(CaseKey::kOutMax, Token(c.out_max));
    }
    if (HasKey(c.op, CaseKey::kRequant)) Put(CaseKey::kRequant, JsonQuote(Name(c.requant)));
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

namespace {

// All of the text; leaves errno where it cannot.
bool WriteAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    done += static_cast<size_t>(count);
  }
  return true;
}

}  // namespace

void WriteCaseFile(const Case& c, const std::string& path) {
  const std::string text = CaseToJson(c);
  std::error_code ignored;
  const auto type = std::filesystem::symlink_status(path, ignored).type();
  if (type != std::filesystem::file_type::regular &&
      type != std::filesystem::file_type::not_found) {
    // A rename would put a file in the place of a device, a pipe or a link.
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) CannotWrite(path, "cannot be created");
    const bool written = WriteAll(fd, text);
    const int error = errno;
    const bool closed = ::close(fd) == 0;
    if (!written) errno = error;
    if (!written || !closed) CannotWrite(path, "cannot be written");
    return;
  }
  std::string temporary = path + ".XXXXXX";
  const int fd = ::mkstemp(temporary.data());
  if (fd < 0) CannotWrite(path, "cannot be created");
  // mkstemp makes it private; case files are for everybody.
  const bool written = WriteAll(fd, text) && ::fchmod(fd, 0644) == 0 && ::fsync(fd) == 0;
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
