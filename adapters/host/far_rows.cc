// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/far_rows.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "adapters/host/pages.h"
#include "core/status.h"

namespace qualm {

void FarRows::Unmap() {
  if (reserved_ != nullptr) munmap(reserved_, reserved_bytes_);
  reserved_ = nullptr;
  rows_.clear();
}

uint8_t* FarRows::Prepare(size_t rows, size_t row_bytes, size_t stride_bytes, uint8_t poison) {
  const size_t page = PageBytes();
  QUALM_CHECK(rows != 0 && stride_bytes >= row_bytes + 2 * page);
  // An address has 47 bits.
  if (rows > (size_t{1} << 46) / stride_bytes) throw std::bad_alloc();
  Unmap();
  // A page in front, and one behind the last row's pages.
  reserved_bytes_ = (page + (rows - 1) * stride_bytes + row_bytes) / page * page + 2 * page;
  void* const at =
      mmap(nullptr, reserved_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  reserved_ = static_cast<uint8_t*>(at);
  row_bytes_ = row_bytes;
  poison_ = poison;
  uint8_t* const first = reserved_ + page;
  for (size_t i = 0; i < rows; ++i) {
    const size_t begin = i * stride_bytes;
    const size_t pages = begin / page * page;
    const size_t pages_end = (begin + row_bytes) / page * page + page;
    rows_.push_back({first + pages, first + begin, first + pages_end});
    if (mprotect(first + pages, pages_end - pages, PROT_READ | PROT_WRITE) != 0) {
      Unmap();
      throw std::bad_alloc();
    }
    std::memset(first + pages, poison, pages_end - pages);
  }
  return first;
}

bool FarRows::OutsideIntact() const {
  return std::ranges::all_of(rows_, [&](const Row& row) {
    return AllEqual(row.pages, row.begin, poison_) &&
           AllEqual(row.begin + row_bytes_, row.pages_end, poison_);
  });
}

}  // namespace qualm
