#include "fabric/mapped/mapped_queue.h"

#include <algorithm>
#include <bit>

namespace engram::fabric {

MappedQueue::MappedQueue(std::uint64_t key, std::size_t depth)
    : gather_(ChooseGather()), key_(key), depth_(depth), ring_(std::bit_ceil(depth)) {}

std::size_t MappedQueue::Submit(std::span<const ReadOp> ops) {
  if (closed_) return 0;
  const std::size_t accepted = std::min(ops.size(), depth_ - (head_ - tail_));
  gather_.ops(ops.data(), accepted, key_, {ring_.data(), ring_.size() - 1, head_});
  head_ += accepted;
  return accepted;
}

bool MappedQueue::ReadNow(const RowsNow& rows) {
  if (closed_) return false;
  gather_.rows(rows);
  return true;
}

std::size_t MappedQueue::Poll(std::span<ReadCompletion> out) {
  const std::size_t count = std::min(out.size(), head_ - tail_);
  const std::size_t at = tail_ & (ring_.size() - 1);
  const std::size_t before_wrap = std::min(count, ring_.size() - at);
  std::copy_n(ring_.begin() + at, before_wrap, out.begin());
  std::copy_n(ring_.begin(), count - before_wrap, out.begin() + before_wrap);
  tail_ += count;
  return count;
}

void MappedQueue::Close() {
  closed_ = true;
  tail_ = head_;
}

}  // namespace engram::fabric
