#include "fabric/stream/message.h"

#include "fabric/copy.h"

namespace engram::fabric::stream {
namespace {

constexpr std::size_t kHeaderWords = kRequestHeaderBytes / 8;

}  // namespace

void Message::Begin(const Shape& shape) {
  shape_ = shape;
  max_rows_ = MaxRowsOf(shape);
  ++serial_;
  run_count_ = 0;
  words_.resize(kHeaderWords);
  keys_.clear();
  cookies_.clear();
  runs_.clear();
  for (auto& to : to_) to.clear();
  for (auto& runs : segment_runs_) runs.clear();
  abandoned = false;
  encoded = false;
}

std::uint32_t Message::KeyIndex(std::uint64_t key) {
  // Keys are random bits. Two keys that share a slot are listed more than once, which is harmless.
  KeySlot& slot = key_slots_[key % kKeySlots];
  if (slot.serial != serial_ || slot.key != key) {
    slot = {key, static_cast<std::uint32_t>(keys_.size()), serial_};
    keys_.push_back(key);
  }
  return slot.index;
}

void Message::Add(const ReadOp& op) {
  words_.push_back(PackDescriptor(KeyIndex(op.region.key), op.region.address + op.offset));
  cookies_.push_back(op.cookie);
  for (std::uint32_t s = 0; s < shape_.segments; ++s) {
    std::byte* to = op.local[s].data;
    to_[s].push_back(to);
    if (run_count_ > kMaxDirectRuns) continue;
    std::vector<iovec>& runs = segment_runs_[s];
    if (!runs.empty() &&
        static_cast<std::byte*>(runs.back().iov_base) + runs.back().iov_len == to) {
      runs.back().iov_len += shape_.bytes[s];
    } else {
      runs.push_back({to, shape_.bytes[s]});
      ++run_count_;
    }
  }
}

std::span<const std::byte> Message::Encode(std::uint64_t id) {
  id_ = id;
  encoded = true;
  WriteRequestHeader(id, rows(), static_cast<std::uint32_t>(keys_.size()), shape_,
                     reinterpret_cast<std::byte*>(words_.data()));
  words_.insert(words_.end(), keys_.begin(), keys_.end());
  if (run_count_ <= kMaxDirectRuns) {
    for (std::uint32_t s = 0; s < shape_.segments; ++s) {
      runs_.insert(runs_.end(), segment_runs_[s].begin(), segment_runs_[s].end());
    }
  }
  return std::as_bytes(std::span(words_));
}

void Message::Scatter(const std::byte* payload, std::span<const ReadStatus> statuses) const {
  for (std::uint32_t s = 0; s < shape_.segments; ++s) {
    const std::uint32_t bytes = shape_.bytes[s];
    if (statuses.empty()) {
      ScatterPieces(payload, bytes, to_[s]);
    } else {
      for (std::uint32_t row = 0; row < rows(); ++row) {
        if (statuses[row] != ReadStatus::kOk) continue;
        CopyPiece(to_[s][row], payload + std::size_t{row} * bytes, bytes);
      }
    }
    payload += std::size_t{rows()} * bytes;
  }
}

}  // namespace engram::fabric::stream
