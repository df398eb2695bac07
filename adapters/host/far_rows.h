// SPDX-License-Identifier: Apache-2.0
// Rows of a tensor that lie so far apart that 32 bits do not hold the distance. Only the pages that
// hold a row can be accessed; the gaps are address space without memory, so that a row costs a page
// or two however far the next one is.
#ifndef QUALM_ADAPTERS_HOST_FAR_ROWS_H_
#define QUALM_ADAPTERS_HOST_FAR_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace qualm {

// Rows with gaps of this many bytes and more are laid out in FarRows, others in a GuardedBuffer,
// which fills and compares its gaps.
inline constexpr size_t kFarGapBytes = size_t{1} << 28;

class FarRows {
 public:
  FarRows() = default;
  FarRows(const FarRows&) = delete;
  FarRows& operator=(const FarRows&) = delete;
  ~FarRows() { Release(); }

  // Places `rows` rows of `row_bytes`, their beginnings `stride_bytes` apart, fills their pages
  // with `poison` and returns the first row. What an earlier call placed is gone. The first row
  // begins a page; `stride_bytes` decides where in a page the others begin, and the gaps must leave
  // a page between two rows. Throws std::bad_alloc where the system has no such address space.
  uint8_t* Prepare(size_t rows, size_t row_bytes, size_t stride_bytes, uint8_t poison);
  // True if every byte of the pages outside the rows still holds the poison.
  bool OutsideIntact() const;
  // Gives the address space to the next that asks. Rows can no longer be accessed.
  void Release();

  size_t rows() const { return rows_.size(); }
  uint8_t* row(size_t i) const { return rows_[i].begin; }
  size_t row_bytes() const { return row_bytes_; }

 private:
  struct Row {
    uint8_t* pages;
    uint8_t* begin;
    uint8_t* pages_end;
  };
  uint8_t* reserved_ = nullptr;
  size_t reserved_bytes_ = 0;
  std::vector<Row> rows_;
  size_t row_bytes_ = 0;
  uint8_t poison_ = 0;
};

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_FAR_ROWS_H_
