// SPDX-License-Identifier: Apache-2.0
// Memory that qualm and qualm-worker share, so that a run costs a wake-up each way instead of
// messages through the kernel: one mailbox for each direction, one message in it at a time.
#ifndef QUALM_ADAPTERS_HOST_MAILBOX_H_
#define QUALM_ADAPTERS_HOST_MAILBOX_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace qualm {

// The reader trusts nothing in it: foreign code shares the worker's address space.
struct Mailbox {
  static constexpr size_t kBytesMax = size_t{1} << 20;

  // Messages posted so far. A futex: posting wakes the reader.
  alignas(64) std::atomic<uint32_t> posted = 0;
  alignas(64) std::array<uint8_t, kBytesMax> message;

  void Post();
  // Wakes the reader without a message. Safe in a signal handler.
  void Wake();
  // Waits until `posted` is no longer `seen`, at most `ms`; may return early without a reason.
  void WaitPast(uint32_t seen, int ms) const;
};

class Mailboxes {
 public:
  // A descriptor of new memory, for both processes to map; the caller closes it. Throws
  // Unavailable.
  static int Create();
  // Throws Unavailable. The descriptor may be closed afterwards.
  explicit Mailboxes(int memory);
  ~Mailboxes();
  Mailboxes(const Mailboxes&) = delete;
  Mailboxes& operator=(const Mailboxes&) = delete;

  Mailbox& to_worker() const { return boxes_[0]; }
  Mailbox& from_worker() const { return boxes_[1]; }

 private:
  Mailbox* boxes_;
};

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_MAILBOX_H_
