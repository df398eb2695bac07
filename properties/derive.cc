// SPDX-License-Identifier: Apache-2.0
#include "properties/derive.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "core/rng.h"
#include "oracles/exact/exact.h"
#include "properties/derive_window.h"
#include "properties/property.h"

namespace qualm::derive {
namespace {

// out[i, j] = in[row(i), column(j)].
template <class Row, class Column>
Tensor Gather(const Tensor& in, int64_t rows, int64_t columns, Row row, Column column) {
  Tensor out(in.dtype(), {rows, columns});
  const size_t size = SizeOf(in.dtype());
  const int64_t stride = in.shape().size() == 2 ? in.shape()[1] : 0;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const auto from = static_cast<size_t>(row(i) * stride + column(j)) * size;
      const auto to = static_cast<size_t>(i * columns + j) * size;
      std::memcpy(out.bytes().data() + to, in.bytes().data() + from, size);
    }
  }
  return out;
}

template <class T>
std::vector<T> Picked(const std::vector<T>& from, std::span<const int64_t> at) {
  std::vector<T> to;
  to.reserve(at.size());
  for (int64_t i : at) to.push_back(from[static_cast<size_t>(i)]);
  return to;
}

template <class T>
void PickList(std::vector<T>& list, bool per_channel, std::span<const int64_t> at) {
  if (per_channel && !list.empty()) list = Picked(list, at);
}

constexpr auto kSame = [](int64_t i) { return i; };

}  // namespace

Case Rows(const Case& c, std::span<const int64_t> rows) {
  QUALM_CHECK(!HasWindow(c.op));
  Case derived = ProblemOf(c);
  derived.M = static_cast<int64_t>(rows.size());
  const int64_t columns = c.op == Op::kLinear ? c.K : c.op == Op::kConcat ? c.x.shape()[1] : c.N;
  const auto at = [&](int64_t i) { return rows[static_cast<size_t>(i)]; };
  derived.x = Gather(c.x, derived.M, columns, at, kSame);
  if (HasTwoOperands(c.op)) derived.w = Gather(c.w, derived.M, columns, at, kSame);
  if (c.op == Op::kConcat) derived.w = Gather(c.w, derived.M, c.w.shape()[1], at, kSame);
  return derived;
}

Case Columns(const Case& c, std::span<const int64_t> columns) {
  Case derived = HasWindow(c.op) ? internal::WindowColumns(c, columns) : ProblemOf(c);
  derived.N = static_cast<int64_t>(columns.size());
  const auto at = [&](int64_t i) { return columns[static_cast<size_t>(i)]; };
  if (c.op == Op::kLinear) {
    derived.w = Gather(c.w, derived.N, c.K, at, kSame);
  } else if (c.op == Op::kConcat) {
    const int64_t first = c.x.shape()[1];
    std::vector<int64_t> of_x, of_w;
    for (int64_t column : columns) {
      (column < first ? of_x : of_w).push_back(column < first ? column : column - first);
    }
    const auto pick_from = [&](const Tensor& from, const std::vector<int64_t>& list) {
      return Gather(from, c.M, static_cast<int64_t>(list.size()), kSame,
                    [&](int64_t i) { return list[static_cast<size_t>(i)]; });
    };
    derived.x = pick_from(c.x, of_x);
    derived.w = pick_from(c.w, of_w);
  } else if (!HasWindow(c.op)) {
    derived.x = Gather(c.x, c.M, derived.N, kSame, at);
    if (HasTwoOperands(c.op)) derived.w = Gather(c.w, c.M, derived.N, kSame, at);
  }
  // Which list is per channel depends on the op; the others have one entry.
  const auto pick = [&](QParams& q, bool has_channels) {
    PickList(q.scale, c.per_channel && has_channels, columns);
    PickList(q.zero_point, c.per_channel && has_channels, columns);
  };
  pick(derived.x_q, c.op == Op::kDequantize);
  pick(derived.out_q, c.op == Op::kQuantize);
  pick(derived.w_q, HasSums(c.op) || (c.op == Op::kRequantize && c.multiplier.empty()));
  PickList(derived.multiplier, c.per_channel, columns);
  if (derived.bias) derived.bias = Picked(*c.bias, columns);
  if (derived.bias_i32) derived.bias_i32 = Picked(*c.bias_i32, columns);
  return derived;
}

Case Terms(const Case& c, std::span<const int64_t> terms, int32_t x_code, int32_t w_code) {
  Case derived = ProblemOf(c);
  derived.K = static_cast<int64_t>(terms.size());
  const auto gather = [&](const Tensor& from, int64_t rows, int32_t code) {
    Tensor to(from.dtype(), {rows, derived.K});
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < derived.K; ++k) {
        const int64_t term = terms[static_cast<size_t>(k)];
        to.SetInt(i * derived.K + k, term < 0 ? code : from.IntAt(i * c.K + term));
      }
    }
    return to;
  };
  derived.x = gather(c.x, c.M, x_code);
  derived.w = gather(c.w, c.N, w_code);
  return derived;
}

Case WithFirstChannelParams(const Case& c, bool per_channel) {
  Case derived = ProblemOf(c);
  derived.per_channel = per_channel;
  const size_t entries = per_channel ? static_cast<size_t>(c.N) : 1;
  const auto spread = [&](QParams& q) {
    const float scale = q.scale_at(0);
    const int32_t zero_point = q.zero_point_at(0);
    q.scale.assign(entries, scale);
    q.zero_point.assign(entries, zero_point);
  };
  switch (c.op) {
    case Op::kQuantize: spread(derived.out_q); break;
    case Op::kDequantize: spread(derived.x_q); break;
    case Op::kRequantize:
      if (c.multiplier.empty()) {
        spread(derived.w_q);
      } else {
        const float multiplier = c.multiplier[0];
        derived.multiplier.assign(entries, multiplier);
      }
      break;
    case Op::kLinear:
    case Op::kConv2d:
    case Op::kDepthwise: spread(derived.w_q); break;
    default: QUALM_CHECK(false);  // no other op has parameters per channel
  }
  return derived;
}

std::optional<Tensor> Shifted(const Tensor& tensor, DType dtype, int32_t shift) {
  const CodeRange range = RangeOf(dtype);
  Tensor shifted(dtype, tensor.shape());
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const int64_t code = int64_t{tensor.IntAt(i)} + shift;
    if (code < range.min || code > range.max) return std::nullopt;
    shifted.SetInt(i, static_cast<int32_t>(code));
  }
  return shifted;
}

std::optional<int32_t> ShiftedInt(int32_t value, int64_t shift) {
  const int64_t sum = int64_t{value} + shift;
  if (sum < INT32_MIN || sum > INT32_MAX) return std::nullopt;
  return static_cast<int32_t>(sum);
}

uint64_t Hash(const Case& c) {
  uint64_t hash = MixSeed(static_cast<uint64_t>(c.op), static_cast<uint64_t>(c.out_dtype));
  const auto mix = [&](uint64_t value) { hash = MixSeed(hash, value); };
  for (int64_t dim : {c.M, c.N, c.K}) mix(static_cast<uint64_t>(dim));
  for (const Tensor* tensor : {&c.x, &c.w}) {
    for (uint8_t byte : tensor->bytes()) hash = (hash ^ byte) * 0x100000001b3u;
    mix(static_cast<uint64_t>(tensor->size()));
  }
  for (const QParams* q : {&c.x_q, &c.out_q}) {
    for (int32_t zero : q->zero_point) mix(static_cast<uint32_t>(zero));
  }
  mix(c.relu ? 1 : 0);
  if (!HasWindow(c.op)) return hash;
  const Window& v = c.window;
  for (int64_t number :
       {v.batch, v.in_h, v.in_w, v.kernel_h, v.kernel_w, v.stride_h, v.stride_w, v.pad_top,
        v.pad_bottom, v.pad_left, v.pad_right, v.dilation_h, v.dilation_w, v.groups}) {
    mix(static_cast<uint64_t>(number));
  }
  return hash;
}

int64_t LowEnd(const Case& c, int64_t channel) {
  return std::min<int64_t>(LowerBound(c, channel), c.out_max);
}

Tensor ExactOf(const Case& c) {
  struct Entry {
    Case problem;
    Tensor y;
  };
  constexpr size_t kRemembered = 8;
  static thread_local std::vector<Entry> recent;
  static thread_local size_t next = 0;
  for (const Entry& entry : recent) {
    if (entry.problem == c) return entry.y;
  }
  Entry entry{c, exact::Evaluate(c)};
  if (recent.size() < kRemembered) {
    recent.push_back(std::move(entry));
    return recent.back().y;
  }
  next = (next + 1) % kRemembered;
  recent[next] = std::move(entry);
  return recent[next].y;
}

Answer Ask(Subject& subject, const Case& c, const RunContext& context) {
  Answer answer;
  if (std::string reason = subject.CannotRun(c); !reason.empty()) {
    answer.verdict = Verdict::Skipped(std::move(reason));
    return answer;
  }
  Outcome outcome = subject.Run(c, context);
  answer.verdict = BadOutcome(outcome);
  if (answer.verdict) return answer;
  if (outcome.y.dtype() != c.out_dtype || outcome.y.shape() != c.output_shape()) {
    answer.verdict = Verdict::Failed("the answer has the wrong type or shape");
    answer.verdict->kind = FindingKind::kUnknown;
    return answer;
  }
  answer.y = std::move(outcome.y);
  return answer;
}

Verdict SameAnswer(const Case& c, const Case& derived, Subject& subject, const std::string& what) {
  const Answer expected = Ask(subject, c);
  if (expected.verdict) return *expected.verdict;
  return Expect(derived, expected.y, subject, what);
}

Verdict Expect(const Case& c, const Tensor& expected, Subject& subject, const std::string& what) {
  const Answer actual = Ask(subject, c);
  if (actual.verdict) return *actual.verdict;
  return Difference(c, expected, actual.y, what).value_or(Verdict::Passed());
}

Verdict FailedAt(const Case& c, int64_t i, const std::string& expected, const std::string& actual,
                 double distance_lsb, const std::string& what) {
  const int64_t columns = std::max<int64_t>(1, c.output_shape().back());
  const std::string place =
      "[" + std::to_string(i / columns) + "," + std::to_string(i % columns) + "]";
  return Verdict::Failed(
      what + ": expected " + expected + " at output " + place + ", got " + actual,
      Divergence{i, expected, actual, distance_lsb});
}

Verdict FailedAt(const Case& c, const Tensor& expected, int64_t from, const Tensor& actual,
                 int64_t i, const std::string& what) {
  return FailedAt(c, i, ElementText(expected, from), ElementText(actual, i),
                  DistanceLsb(expected, from, actual, i), what);
}

std::optional<Verdict> Difference(const Case& c, const Tensor& expected, const Tensor& actual,
                                  const std::string& what) {
  const std::optional<Divergence> first = FirstDivergence(expected, actual);
  if (!first) return std::nullopt;
  return FailedAt(c, first->index, first->expected, first->actual, first->distance_lsb, what);
}

}  // namespace qualm::derive
