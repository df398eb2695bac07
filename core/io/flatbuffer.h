// SPDX-License-Identifier: Apache-2.0
// Reads tables of a flatbuffer (flatbuffers.dev, "internals"): a table begins with the distance
// back to its vtable, which says where in the table each field lies. Every place is checked against
// the bytes. Offsets lead forward, so nothing is cyclic, but many of them may lead to one place:
// what is copied is counted, and no more is copied than a file without that has.
#ifndef QUALM_CORE_IO_FLATBUFFER_H_
#define QUALM_CORE_IO_FLATBUFFER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qualm::flatbuffer {

// Thrown for bytes that are no such tables.
struct Broken {
  std::string what;
};

class Buffer {
 public:
  explicit Buffer(std::string_view bytes) : bytes_(bytes), left_(4096 + 2 * bytes.size()) {}

  std::string_view bytes() const { return bytes_; }
  template <class T>
  T At(uint64_t place) const {
    if (place > bytes_.size() || bytes_.size() - place < sizeof(T))
      throw Broken{"it ends too early"};
    T value;
    std::memcpy(&value, bytes_.data() + place, sizeof(T));
    return value;
  }
  // Where the offset at `place` leads.
  uint64_t Follow(uint64_t place) const { return place + At<uint32_t>(place); }
  // The elements of a vector: their number stands before them.
  std::string_view Elements(uint64_t place, size_t size) const {
    const uint64_t count = At<uint32_t>(place), begin = place + sizeof(uint32_t);
    if ((bytes_.size() - begin) / size < count)
      throw Broken{"a vector of " + std::to_string(count) + " elements is longer than the file"};
    return bytes_.substr(begin, count * size);
  }
  void Count(size_t copied) {
    if (copied > left_) throw Broken{"its vectors overlap"};
    left_ -= copied;
  }

 private:
  std::string_view bytes_;
  size_t left_;
};

class Table {
 public:
  Table(Buffer* buffer, uint64_t place) : buffer_(buffer), place_(place) {
    buffer_->Count(1);
    const int64_t vtable = static_cast<int64_t>(place) - int64_t{buffer_->At<int32_t>(place)};
    if (vtable < 0) throw Broken{"a table has no vtable"};
    vtable_ = static_cast<uint64_t>(vtable);
    size_ = buffer_->At<uint16_t>(vtable_);
  }
  // The table that the whole buffer is.
  static Table Root(Buffer* buffer) { return {buffer, buffer->Follow(0)}; }

  bool Has(int field) const { return PlaceOf(field) != 0; }
  template <class T>
  T Number(int field, T otherwise) const {
    const uint64_t at = PlaceOf(field);
    return at == 0 ? otherwise : buffer_->At<T>(at);
  }
  std::optional<Table> Child(int field) const {
    const uint64_t at = PlaceOf(field);
    if (at == 0) return std::nullopt;
    return Table(buffer_, buffer_->Follow(at));
  }
  // The elements of a vector of numbers of this size, as they lie there; "" where it is absent.
  std::string_view Raw(int field, size_t size) const {
    const uint64_t at = PlaceOf(field);
    return at == 0 ? std::string_view() : buffer_->Elements(buffer_->Follow(at), size);
  }
  std::string Text(int field) const {
    const std::string_view text = Raw(field, 1);
    buffer_->Count(text.size());
    return std::string(text);
  }
  template <class T>
  std::vector<T> Numbers(int field) const {
    const std::string_view raw = Raw(field, sizeof(T));
    buffer_->Count(raw.size());
    std::vector<T> numbers(raw.size() / sizeof(T));
    if (!raw.empty()) std::memcpy(numbers.data(), raw.data(), raw.size());
    return numbers;
  }
  std::vector<Table> Tables(int field) const {
    const std::string_view raw = Raw(field, sizeof(uint32_t));
    buffer_->Count(raw.size());
    std::vector<Table> tables;
    for (size_t i = 0; i < raw.size(); i += sizeof(uint32_t)) {
      const auto at = static_cast<uint64_t>(raw.data() - buffer_->bytes().data()) + i;
      tables.emplace_back(buffer_, buffer_->Follow(at));
    }
    return tables;
  }

 private:
  // 0: the field is absent.
  uint64_t PlaceOf(int field) const {
    const uint64_t entry = 4 + 2 * static_cast<uint64_t>(field);
    if (entry + 2 > size_) return 0;
    const uint16_t offset = buffer_->At<uint16_t>(vtable_ + entry);
    return offset == 0 ? 0 : place_ + offset;
  }

  Buffer* buffer_;
  uint64_t place_, vtable_ = 0;
  uint16_t size_ = 0;
};

}  // namespace qualm::flatbuffer

#endif  // QUALM_CORE_IO_FLATBUFFER_H_
