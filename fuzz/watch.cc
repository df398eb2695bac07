// SPDX-License-Identifier: Apache-2.0
#include "fuzz/watch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "core/status.h"

namespace qualm::fuzz {
namespace {

[[noreturn]] void Fail(const std::string& path, const std::string& why) {
  throw InputError(path + ": file: cannot be mapped (" + why + "), expected a watch page");
}

WatchPage* Map(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_RDWR | O_CLOEXEC, 0666);
  if (fd < 0) Fail(path, std::strerror(errno));
  struct stat found = {};
  const bool sized = (flags & O_CREAT) == 0
                         ? ::fstat(fd, &found) == 0 && found.st_size == sizeof(WatchPage)
                         : ::ftruncate(fd, sizeof(WatchPage)) == 0;
  void* page = sized ? ::mmap(nullptr, sizeof(WatchPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                     : MAP_FAILED;
  const std::string why = sized ? std::strerror(errno) : "has the wrong size";
  ::close(fd);
  if (page == MAP_FAILED) Fail(path, why);
  return static_cast<WatchPage*>(page);
}

template <class Value>
void Lower(std::atomic<Value>& least, Value value) {
  if (value < least.load(std::memory_order_relaxed)) least.store(value, std::memory_order_relaxed);
}

}  // namespace

std::vector<uint8_t> LastInput(const WatchPage& page) {
  const uint64_t count = page.inputs;
  if (count == 0) return {};
  const WatchPage::Slot& slot = page.slots[(count - 1) % WatchPage::kSlots];
  const size_t size = std::min<size_t>(slot.size, slot.bytes.size());
  return {slot.bytes.begin(), slot.bytes.begin() + static_cast<std::ptrdiff_t>(size)};
}

MappedWatch MappedWatch::Create(const std::string& path) {
  return MappedWatch(new (Map(path, O_CREAT | O_TRUNC)) WatchPage);
}

MappedWatch MappedWatch::Open(const std::string& path) { return MappedWatch(Map(path, 0)); }

MappedWatch::~MappedWatch() {
  if (page_ != nullptr) ::munmap(page_, sizeof(WatchPage));
}

WatchPage* Watched() {
  static const std::unique_ptr<MappedWatch> watch = [] {
    const char* path = std::getenv("QUALM_FUZZ_WATCH");
    return path == nullptr ? nullptr : std::make_unique<MappedWatch>(MappedWatch::Open(path));
  }();
  return watch == nullptr ? nullptr : &watch->page();
}

void NoteInput(const uint8_t* data, size_t size) {
  WatchPage* page = Watched();
  if (page == nullptr) return;
  WatchPage::Slot& slot = page->slots[page->inputs % page->slots.size()];
  slot.size = static_cast<uint32_t>(std::min(size, slot.bytes.size()));
  std::copy_n(data, slot.size, slot.bytes.begin());
  ++page->inputs;
  ++page->executions;
}

void NoteDistances(const headroom::Headroom& measures) {
  WatchPage* page = Watched();
  if (page == nullptr) return;
  Lower<int64_t>(page->pair, measures.pair_min);
  Lower(page->sum, measures.acc_min);
  Lower(page->tie, measures.tie_min);
}

}  // namespace qualm::fuzz
