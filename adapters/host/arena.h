// SPDX-License-Identifier: Apache-2.0
// Guarded buffers: each lies in a mapping of its own between inaccessible pages, and the rest of
// the mapping holds a pattern (the poison), so that stray accesses of foreign code are seen.
#ifndef QUALM_ADAPTERS_HOST_ARENA_H_
#define QUALM_ADAPTERS_HOST_ARENA_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/subject.h"
#include "core/tensor.h"

namespace qualm {

// One guarded buffer. It keeps its mappings from run to run, because mmap costs more than a small
// case: one for each of a few sizes, so that a small buffer lies in a small mapping. There the
// guard pages are near, and little is filled and compared.
class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  // Lays out `bytes` usable bytes for this run and fills the mapping with context.poison. In the
  // default context, that of most runs, it fills three parts only, so that no whole page is filled
  // and compared: the buffer, everything behind it, the last kNear bytes before it. The memory
  // properties run in other contexts, which find a write further in front. What a check has found
  // to hold the poison is not filled again. With end_at_guard the last byte (after `slack` readable
  // bytes) touches the guard page, as far as the alignment of the first byte to `element_size` (a
  // power of two) allows. Without it the first byte follows the guard page, moved off 64-byte
  // alignment by align_offset in steps of `element_size`. A buffer of 0 bytes and no slack lies on
  // the guard page: any access to it is seen. Throws std::bad_alloc where the system has no such
  // memory. An input, which is written at once, need not be filled (kLeft).
  enum class Inside : uint8_t { kPoisoned, kLeft };
  uint8_t* Prepare(size_t bytes, size_t slack, size_t element_size, const RunContext& context,
                   Inside inside = Inside::kPoisoned);
  // This run has no such buffer.
  void Drop() { used_ = nullptr; }

  uint8_t* data() const { return data_; }
  size_t size() const { return bytes_; }
  // True if every byte that was filled outside [data, data+bytes) still holds the poison.
  bool OutsideIntact() const;

  static constexpr size_t kNear = 256;

 private:
  // Guard page, body, guard page.
  class Mapping {
   public:
    Mapping() = default;
    ~Mapping() { Unmap(); }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    void Map(size_t body_bytes);
    void Unmap();
    uint8_t* body() const { return body_; }
    uint8_t* end() const { return body_ + bytes_; }
    size_t bytes() const { return bytes_; }  // of the body; 0: nothing is mapped

    // The bytes from `from` to the end hold `poison`, but for the buffer of an earlier run.
    struct Filled {
      const uint8_t* from = nullptr;  // nullptr: nothing is known
      uint8_t poison = 0;
      uint8_t* data = nullptr;
      size_t bytes = 0;
    };
    Filled filled;

   private:
    uint8_t* body_ = nullptr;
    size_t bytes_ = 0;
  };
  Mapping& MappingFor(size_t bytes);
  void Fill(Mapping& mapping, uint8_t* from, Inside inside);

  std::array<Mapping, 9> small_;  // bodies of 1, 2, 4, ... 256 pages
  Mapping large_;
  Mapping* used_ = nullptr;
  const uint8_t* filled_from_ = nullptr;
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
  uint8_t poison_ = 0;
};

// A tensor as rows of its last dimension: the rows of a matrix, the pixels of images.
struct Rows {
  int64_t count = 0;
  int64_t columns = 0;
};
Rows RowsOf(const std::vector<int64_t>& shape);

// Copies a tensor with `gap` untouched elements between its rows, and back. Behind the last row
// there is no gap, so the last element still touches the guard page.
void Scatter(const Tensor& tensor, int64_t gap, uint8_t* to);
// The same with `rows` of any length that hold all elements, instead of rows of the last dimension.
void Scatter(const Tensor& tensor, const Rows& rows, int64_t gap, uint8_t* to);
// Bytes Scatter needs.
size_t ScatteredBytes(DType dtype, int64_t rows, int64_t columns, int64_t gap);
Tensor Gather(DType dtype, std::vector<int64_t> shape, int64_t gap, const uint8_t* from);
// True if all gaps still hold the poison.
bool GapsIntact(DType dtype, int64_t rows, int64_t columns, int64_t gap, uint8_t poison,
                const uint8_t* at);

// The floating-point control of this thread: rounding, denormals and masked exceptions, without the
// exceptions that have been raised.
uint64_t ControlWords();

// If the elements differ, copies `other` to `y`, which has the same rows and stride, and returns
// true. Called for the output of each caller of a layer, it leaves in y one that differs.
bool TakeIfDifferent(const uint8_t* other, DType dtype, const Rows& rows, int64_t stride,
                     uint8_t* y);

// Sets rounding mode and FTZ/DAZ as asked, restores on destruction.
class ScopedEnvironment {
 public:
  explicit ScopedEnvironment(const RunContext& context);
  ~ScopedEnvironment();
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

  uint64_t words() const { return words_; }  // ControlWords as it has set them

 private:
  int saved_rounding_;      // as <cfenv> has it: on x86 the x87 control word
  uint32_t saved_control_;  // MXCSR or FPCR
  uint64_t words_;
};

// The sentence of CallTrapped if a mapped but inaccessible page was touched: our guard pages.
inline constexpr std::string_view kGuardPageTrap = "SIGSEGV: access to a guard page";

// Calls `body` and turns SIGSEGV, SIGBUS, SIGFPE and SIGILL raised inside it on this thread into a
// sentence (kGuardPageTrap); "" if none. For code that runs in this process, not for libraries:
// after a signal no destructor of `body` has run, so what it had allocated is leaked, and a
// floating-point control word it had set is lost. Exceptions pass through. Calls may nest and run
// on any threads. The signal handlers are installed for the call, inside a Burst (core/burst.h)
// until that ends.
std::string CallTrapped(void (*body)(void*), void* argument);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_ARENA_H_
