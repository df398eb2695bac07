// SPDX-License-Identifier: Apache-2.0
// Where a case's tensors live while foreign code touches them: each in its own mapping between
// inaccessible pages, poisoned outside, so that every stray access is seen.
#ifndef QUALM_ADAPTERS_ARENA_H_
#define QUALM_ADAPTERS_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/subject.h"
#include "core/tensor.h"

namespace qualm {

// One guarded buffer. Reused between runs: growing only, so that mmap is not paid per case.
class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  // Lays out `bytes` usable bytes for this run and fills the whole mapping with context.poison.
  // end_at_guard: the last byte (after `slack` readable bytes) touches the guard page; else the
  // first byte follows the guard page. align_offset moves the start off 64-byte alignment as far
  // as the element size allows.
  uint8_t* Prepare(size_t bytes, size_t slack, size_t element_size, const RunContext& context);

  uint8_t* data() const { return data_; }
  // True if every byte of the mapping outside [data, data+bytes) still holds the poison.
  bool OutsideIntact() const;

 private:
  uint8_t* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
  uint8_t poison_ = 0;
};

// Copies a [rows, columns] tensor with `gap` poisoned elements after each row, and back.
void Scatter(const Tensor& tensor, int64_t gap, uint8_t* to);
// Bytes Scatter needs.
size_t ScatteredBytes(DType dtype, int64_t rows, int64_t columns, int64_t gap);
Tensor Gather(DType dtype, int64_t rows, int64_t columns, int64_t gap, const uint8_t* from);
// True if all gaps still hold the poison.
bool GapsIntact(DType dtype, int64_t rows, int64_t columns, int64_t gap, uint8_t poison,
                const uint8_t* at);

// Sets rounding mode and FTZ/DAZ as asked, restores on destruction.
class ScopedEnvironment {
 public:
  explicit ScopedEnvironment(const RunContext& context);
  ~ScopedEnvironment();
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  uint32_t saved_mxcsr_ = 0;
};

// Calls `body` and turns SIGSEGV, SIGBUS, SIGFPE and SIGILL raised inside it on this thread into a
// sentence ("SIGSEGV: access to a guard page"); "" if none. For our own kernels and planted faults
// only: after a signal, what `body` had allocated is leaked.
std::string CallTrapped(void (*body)(void*), void* argument);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_ARENA_H_
