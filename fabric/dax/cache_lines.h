// Moving cache lines between this processor and memory that other hosts have attached, too. What
// one host stored is seen by another one when the first has written its lines back and the second
// has dropped those that it held (ARCHITECTURE section 4, "A shared CXL device").
//
//   owner:   stores the rows, WriteBack, stores the word that tells of them, WriteBack
//   reader:  learns of it, Invalidate, loads
//
// A virtual class, so that tests put two hosts that share no cache in its place. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace engram::fabric::dax {

class CacheLines {
 public:
  virtual ~CacheLines() = default;

  // When it returns the lines of [data, data + bytes) are in memory; no later store is there before
  // them.
  virtual void WriteBack(const std::byte* data, std::uint64_t bytes) const = 0;
  // Later loads of [data, data + bytes) come from memory. A mapping for reading is enough.
  virtual void Invalidate(const std::byte* data, std::uint64_t bytes) const = 0;
  // For people: "clwb+sfence, clflushopt+mfence".
  virtual std::string_view instructions() const = 0;

  // The best that this processor has, chosen once.
  static const CacheLines& OfThisProcessor();
};

}  // namespace engram::fabric::dax
