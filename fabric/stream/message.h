// One request message of a client's queue, from the first read put into it until its reply has
// landed. Knows where every byte of the reply belongs: as a few long runs where the destinations
// are contiguous (then the socket reads straight into them), else row by row from staging.
// Thread-confined: call from the owner thread only.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/stream/format.h"

namespace engram::fabric::stream {

// Beyond this many runs one copy out of staging is cheaper than so many pieces in the kernel.
inline constexpr std::size_t kMaxDirectRuns = 32;

class Message {
 public:
  Message() : key_slots_(kKeySlots) {}

  void Begin(const Shape& shape);
  bool Takes(const Shape& shape) const { return shape == shape_ && rows() < max_rows_; }
  // True when the read's parts are those of this message's shape.
  bool Fits(const ReadOp& op) const {
    if (op.segments != shape_.segments) return false;
    for (std::uint32_t s = 0; s < op.segments; ++s) {
      if (op.local[s].bytes != shape_.bytes[s]) return false;
    }
    return true;
  }
  bool full() const { return rows() == max_rows_; }
  // REQUIRES: Takes(the shape of op).
  void Add(const ReadOp& op);
  // The bytes to send. Nothing may be added afterwards.
  std::span<const std::byte> Encode(std::uint64_t id);

  std::uint64_t id() const { return id_; }
  std::uint32_t rows() const { return static_cast<std::uint32_t>(cookies_.size()); }
  const Shape& shape() const { return shape_; }
  std::uint64_t payload_bytes() const { return std::uint64_t{rows()} * shape_.RowBytes(); }
  std::span<const std::uint64_t> cookies() const { return cookies_; }

  // Valid after Encode. Empty when the reply must go through staging.
  std::span<const iovec> runs() const { return runs_; }
  // Copies a staged payload to its places; rows with a status other than kOk are left alone.
  // `statuses` is empty when every row is there.
  void Scatter(const std::byte* payload, std::span<const ReadStatus> statuses) const;

  bool abandoned = false;  // its reads are completed; the reply is thrown away
  bool encoded = false;
  Message* next = nullptr;  // in a MessageQueue

 private:
  static constexpr std::size_t kKeySlots = 256;
  struct KeySlot {
    std::uint64_t key = 0;
    std::uint32_t index = 0;
    std::uint32_t serial = 0;  // of the message that wrote it
  };
  std::uint32_t KeyIndex(std::uint64_t key);

  std::uint64_t id_ = 0;
  Shape shape_;
  std::uint32_t max_rows_ = 0;
  std::uint32_t serial_ = 0;
  std::size_t run_count_ = 0;
  std::vector<std::uint64_t> words_;  // header, then descriptors, then keys
  std::vector<std::uint64_t> keys_;
  std::vector<std::uint64_t> cookies_;
  std::array<std::vector<std::byte*>, kMaxLocalSegments> to_;
  std::array<std::vector<iovec>, kMaxLocalSegments> segment_runs_;
  std::vector<iovec> runs_;
  std::vector<KeySlot> key_slots_;
};

// First in, first out, through the messages themselves: no allocation. Does not own them.
class MessageQueue {
 public:
  bool empty() const { return front_ == nullptr; }
  Message* front() const { return front_; }
  Message* back() const { return back_; }
  void push_back(Message* message) {
    message->next = nullptr;
    (empty() ? front_ : back_->next) = message;
    back_ = message;
  }
  // REQUIRES: !empty().
  void pop_front() { front_ = front_->next; }

 private:
  Message* front_ = nullptr;
  Message* back_ = nullptr;  // of a queue that is not empty
};

}  // namespace engram::fabric::stream
