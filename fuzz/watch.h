// SPDX-License-Identifier: Apache-2.0
// A page of facts from a fuzz target to the process that started it: a file that both have mapped,
// named by QUALM_FUZZ_WATCH. Any engine will do, and the page outlives a killed fuzz target.
#ifndef QUALM_FUZZ_WATCH_H_
#define QUALM_FUZZ_WATCH_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "oracles/headroom/headroom.h"

namespace qualm::fuzz {

// Bytes of an input of a campaign. Longer ones run, but are not in the page.
inline constexpr size_t kWatchedBytes = 4096;

struct WatchPage {
  std::atomic<int64_t> executions{0};
  std::array<std::atomic<int64_t>, 6> verdicts{};  // by Judgement
  // The smallest distances so far (headroom::Headroom).
  std::atomic<int64_t> pair{INT32_MAX};
  std::atomic<int64_t> sum{INT64_MAX};
  std::atomic<double> tie{1.0};

  // The input in hand, and the one before it, which stays whole while the next is written.
  static constexpr size_t kSlots = 2;
  struct Slot {
    uint32_t size = 0;
    std::array<uint8_t, kWatchedBytes> bytes{};
  };
  std::atomic<uint64_t> inputs{0};  // so far; the last lies in slot (inputs - 1) % kSlots
  std::array<Slot, kSlots> slots{};
};
static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<double>::is_always_lock_free,
              "two processes share the page");

// The input in hand; empty before the first.
std::vector<uint8_t> LastInput(const WatchPage& page);

// A page in a file.
class MappedWatch {
 public:
  // Makes the file, with a fresh page. Throws InputError.
  static MappedWatch Create(const std::string& path);
  // Throws InputError where the file holds no page.
  static MappedWatch Open(const std::string& path);
  MappedWatch(MappedWatch&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}
  MappedWatch& operator=(MappedWatch&& other) noexcept {
    std::swap(page_, other.page_);
    return *this;
  }
  ~MappedWatch();

  WatchPage& page() const { return *page_; }

 private:
  explicit MappedWatch(WatchPage* page) : page_(page) {}
  WatchPage* page_;
};

// The page of this process, nullptr if no process watches.
WatchPage* Watched();
void NoteInput(const uint8_t* data, size_t size);
void NoteDistances(const headroom::Headroom& measures);

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_WATCH_H_
