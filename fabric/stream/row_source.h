// Where the rows of an exposed region come from: memory now, anything that can answer later (an
// NVMe device) behind the same interface. The gather answers through a completion, so a source may
// be asynchronous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "engram/read_status.h"
#include "fabric/stream/format.h"

namespace engram::fabric::stream {

// One row wanted: `shape.RowBytes()` bytes at `offset`, cut into the pieces of the shape.
struct RowWanted {
  std::uint64_t offset = 0;
  std::byte* to[kMaxLocalSegments] = {};
  ReadStatus* status = nullptr;  // kOk before; written only on failure
};

// Thread-safe. Must outlive every call of Start and its completion.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // The region's bytes if plain loads reach them (then Start is not called), else null.
  virtual const std::byte* Memory() const { return nullptr; }
  // Writes every row, or its status, then calls `done` once: before returning, or later from any
  // thread. `rows` stays valid until then. The ranges have been checked.
  virtual void Start(const Shape& shape, std::span<const RowWanted> rows,
                     std::function<void()> done) = 0;
};

// Bytes in this process's memory.
class MemoryRowSource final : public RowSource {
 public:
  explicit MemoryRowSource(const std::byte* data) : data_(data) {}
  const std::byte* Memory() const override { return data_; }
  void Start(const Shape& shape, std::span<const RowWanted> rows,
             std::function<void()> done) override;

 private:
  const std::byte* data_;
};

}  // namespace engram::fabric::stream
