// SPDX-License-Identifier: Apache-2.0
#include "properties/distinct.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/slice.h"

namespace qualm {
namespace {

// Below these the search costs more than it saves.
constexpr int64_t kManyOutputs = 2048;
constexpr int64_t kManyProducts = int64_t{1} << 17;

// Bytes that are equal for equal parts.
class Key {
 public:
  template <class T>
  void Add(const T& value) {
    key_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  // Elements [from, from + count).
  void Add(const Tensor& tensor, int64_t from, int64_t count) {
    if (BitsOf(tensor.dtype()) < 8) {
      for (int64_t i = 0; i < count; ++i) Add(tensor.IntAt(from + i));
      return;
    }
    const auto size = static_cast<int64_t>(SizeOf(tensor.dtype()));
    key_.append(reinterpret_cast<const char*>(tensor.bytes().data()) + from * size,
                static_cast<size_t>(count * size));
  }
  std::string Take() { return std::exchange(key_, {}); }

 private:
  std::string key_;
};

// The first of each class of equal keys, and the class of each place.
struct Classes {
  std::vector<int64_t> firsts, class_of;
};
template <class AddTo>
Classes ClassesOf(int64_t count, const AddTo& add_to) {
  Classes classes;
  std::unordered_map<std::string, int64_t> known;
  Key key;
  for (int64_t i = 0; i < count; ++i) {
    add_to(i, key);
    const auto [at, fresh] = known.emplace(key.Take(), static_cast<int64_t>(classes.firsts.size()));
    if (fresh) classes.firsts.push_back(i);
    classes.class_of.push_back(at->second);
  }
  return classes;
}

bool RowsAreIndependent(const Case& c) {
  return !HasWindow(c.op) && RowOf(c.op).layout != Layout::kBatches && !RowsShareQParams(c);
}
bool ColumnsAreIndependent(const Case& c) {
  const OpRow& row = RowOf(c.op);
  return (row.layout == Layout::kElements && row.out_q != OutQParams::kFixed) ||
         row.layout == Layout::kProducts;
}

// What a row has of q, `blocks` entries.
void AddBlocks(const QParams& q, int64_t row, int64_t blocks, Key& key) {
  for (int64_t i = row * blocks; i < (row + 1) * blocks; ++i) {
    key.Add(q.scale[static_cast<size_t>(i)]);
    key.Add(q.zero_point[static_cast<size_t>(i)]);
  }
}

void AddRow(const Case& c, int64_t m, Key& key) {
  for (const Tensor* tensor : {&c.x, &c.w}) {
    if (tensor == &c.w && !HasTwoInputs(c.op)) continue;
    const int64_t columns = tensor->shape().back();
    key.Add(*tensor, m * columns, columns);
  }
  if (HasElementBlocks(c)) {
    ForEachChannelQParams(c, [&](const QParams& q) { AddBlocks(q, m, ElementBlocks(c), key); });
  } else if (c.x_block != 0) {
    AddBlocks(c.x_q, m, RowBlocks(c), key);
  }
}

void AddColumn(const Case& c, int64_t n, Key& key) {
  if (RowOf(c.op).layout == Layout::kProducts) {
    key.Add(c.w, n * c.K, c.K);
    if (c.bias) key.Add((*c.bias)[static_cast<size_t>(n)]);
    if (c.bias_i32) key.Add((*c.bias_i32)[static_cast<size_t>(n)]);
  } else {
    for (int64_t m = 0; m < c.M; ++m) {
      key.Add(c.x, m * c.N + n, 1);
      if (HasTwoInputs(c.op)) key.Add(c.w, m * c.N + n, 1);
    }
  }
  if (HasElementBlocks(c)) {
    for (int64_t m = 0; m < c.M; ++m)
      ForEachChannelQParams(
          c, [&](const QParams& q) { AddBlocks(q, m * ElementBlocks(c) + n / c.x_block, 1, key); });
  }
  if (!c.per_channel) return;
  if (!c.multiplier.empty()) return key.Add(c.multiplier[static_cast<size_t>(n)]);
  if (!HasChannelList(c.op)) return;
  if (c.w_block != 0) return AddBlocks(c.w_q, n, RowBlocks(c), key);
  ForEachChannelQParams(c, [&](const QParams& q) {
    key.Add(q.scale_at(n));
    key.Add(q.zero_point_at(n));
  });
}

}  // namespace

Tensor Distinct::Expanded(const Tensor& y, std::vector<int64_t> shape) const {
  Tensor expanded(y.dtype(), std::move(shape));
  if (BitsOf(y.dtype()) < 8) {
    int64_t to = 0;
    for (const int64_t row : row_of) {
      for (const int64_t column : column_of) expanded.CopyFrom(y, row * c.N + column, 1, to++);
    }
    return expanded;
  }
  const size_t size = SizeOf(y.dtype());
  uint8_t* to = expanded.bytes().data();
  for (const int64_t row : row_of) {
    const uint8_t* const from = y.bytes().data() + static_cast<size_t>(row * c.N) * size;
    for (const int64_t column : column_of) {
      std::memcpy(to, from + static_cast<size_t>(column) * size, size);
      to += size;
    }
  }
  expanded.CopyFrom(y, 0, 0, 0);  // whether any NaN is right
  return expanded;
}

std::optional<Distinct> DistinctPartsOf(const Case& c) {
  if (c.M * c.N < kManyOutputs && c.M * c.N * std::max<int64_t>(c.K, 1) < kManyProducts)
    return std::nullopt;
  if (!RowsAreIndependent(c) && !ColumnsAreIndependent(c)) return std::nullopt;
  Distinct distinct{ProblemOf(c), slice::Range(0, c.M), slice::Range(0, c.N)};
  if (c.M > 4 && RowsAreIndependent(c)) {
    Classes rows = ClassesOf(c.M, [&](int64_t m, Key& key) { AddRow(c, m, key); });
    distinct.c = slice::Rows(distinct.c, rows.firsts);
    distinct.row_of = std::move(rows.class_of);
  }
  if (c.N > 4 && ColumnsAreIndependent(c)) {
    Classes columns = ClassesOf(c.N, [&](int64_t n, Key& key) { AddColumn(distinct.c, n, key); });
    distinct.c = slice::Channels(distinct.c, columns.firsts);
    distinct.column_of = std::move(columns.class_of);
  }
  return distinct;
}

}  // namespace qualm
