// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/mailbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "core/status.h"

namespace qualm {
namespace {

constexpr size_t kBytes = 2 * sizeof(Mailbox);
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

[[noreturn]] void Fail(const char* what) {
  throw Unavailable("qualm-worker: " + std::string(what) + ": " + std::strerror(errno));
}

}  // namespace

void Mailbox::Post() {
  posted.fetch_add(1, std::memory_order_release);
  Wake();
}

void Mailbox::Wake() { syscall(SYS_futex, &posted, FUTEX_WAKE, 1, nullptr, nullptr, 0); }

void Mailbox::WaitPast(uint32_t seen, int ms) const {
  const timespec most{.tv_sec = ms / 1000, .tv_nsec = long{ms % 1000} * 1'000'000};
  syscall(SYS_futex, &posted, FUTEX_WAIT, seen, &most, nullptr, 0);
}

int Mailboxes::Create() {
  // A low number could be that of another descriptor in the child, and lost before it is handed on.
  constexpr int kLowest = 10;
  const int memory = memfd_create("qualm-worker", MFD_CLOEXEC);
  const int high = memory < 0 ? -1 : fcntl(memory, F_DUPFD_CLOEXEC, kLowest);
  if (memory >= 0) close(memory);
  if (high >= 0 && ftruncate(high, kBytes) == 0) return high;
  if (high >= 0) close(high);
  Fail("no shared memory");
}

Mailboxes::Mailboxes(int memory) {
  void* const at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (at == MAP_FAILED) Fail("cannot map the shared memory");
  boxes_ = static_cast<Mailbox*>(at);  // all zeros: empty mailboxes
}

Mailboxes::~Mailboxes() { munmap(boxes_, kBytes); }

}  // namespace qualm
