// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/far_rows.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>

#include "adapters/host/pages.h"
#include "core/status.h"

namespace qualm {
namespace {

// Enough for eight rows that lie 2^33 bytes apart.
constexpr size_t kKeptBytes = size_t{1} << 36;

// Address space without memory. What was given back is handed out again: qemu-user records each
// page that ever had an address, which takes hundreds of megabytes for one region like this.
class AddressSpace {
 public:
  uint8_t* Take(size_t bytes) {
    if (bytes > kKeptBytes) return Map(bytes);
    const std::lock_guard lock(mutex_);
    if (kept_.empty()) return Map(kKeptBytes);
    uint8_t* const at = kept_.back();
    kept_.pop_back();
    return at;
  }

  // No page of it can be accessed.
  void GiveBack(uint8_t* at, size_t bytes) {
    if (bytes > kKeptBytes) {
      munmap(at, bytes);
      return;
    }
    const std::lock_guard lock(mutex_);
    kept_.push_back(at);
  }

 private:
  static uint8_t* Map(size_t bytes) {
    void* const at =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return static_cast<uint8_t*>(at);
  }

  std::mutex mutex_;
  std::vector<uint8_t*> kept_;  // of kKeptBytes
};

AddressSpace& Space() {
  static auto* const space = new AddressSpace;  // outlives every static object with rows in it
  return *space;
}

}  // namespace

void FarRows::Release() {
  if (reserved_ == nullptr) return;
  // A mapping in their place also frees the memory of the pages.
  bool are_closed = true;
  for (const Row& row : rows_) {
    const auto bytes = static_cast<size_t>(row.pages_end - row.pages);
    are_closed = are_closed &&
                 mmap(row.pages, bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
  }
  if (are_closed) Space().GiveBack(reserved_, reserved_bytes_);
  reserved_ = nullptr;
  rows_.clear();
}

uint8_t* FarRows::Prepare(size_t rows, size_t row_bytes, size_t stride_bytes, uint8_t poison) {
  const size_t page = PageBytes();
  QUALM_CHECK(rows != 0 && stride_bytes >= row_bytes + 2 * page);
  // An address has 47 bits.
  if (rows > (size_t{1} << 46) / stride_bytes) throw std::bad_alloc();
  Release();
  // A page in front, and one behind the last row's pages.
  reserved_bytes_ = (page + (rows - 1) * stride_bytes + row_bytes) / page * page + 2 * page;
  reserved_ = Space().Take(reserved_bytes_);
  row_bytes_ = row_bytes;
  poison_ = poison;
  uint8_t* const first = reserved_ + page;
  for (size_t i = 0; i < rows; ++i) {
    const size_t begin = i * stride_bytes;
    const size_t pages = begin / page * page;
    const size_t pages_end = (begin + row_bytes) / page * page + page;
    if (mprotect(first + pages, pages_end - pages, PROT_READ | PROT_WRITE) != 0) {
      Release();
      throw std::bad_alloc();
    }
    rows_.push_back({first + pages, first + begin, first + pages_end});
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
