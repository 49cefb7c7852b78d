#include "fabric/stream/gather.h"

#include <algorithm>
#include <cstring>

#include "fabric/copy.h"

namespace engram::fabric::stream {
namespace {

// Where the payload starts in the buffer: room for the header and the statuses right before it, so
// that either form of reply is contiguous without moving a row.
std::size_t PayloadOffset(std::uint32_t rows) {
  return (kReplyHeaderBytes + StatusBytes(rows) + 63) / 64 * 64;
}

}  // namespace

void Gather::Begin(const RequestView& request) {
  id_ = request.id;
  rows_ = request.rows;
  next_row_ = 0;
  shape_ = request.shape;
  failed_ = 0;
  keys_.resize(request.keys);
  std::memcpy(keys_.data(), request.key_table, keys_.size() * 8);
  descriptors_.resize(rows_);
  std::memcpy(descriptors_.data(), request.descriptors, descriptors_.size() * 8);
  regions_.resize(keys_.size());
  statuses_.assign(rows_, ReadStatus::kOk);
  const std::size_t needed = PayloadOffset(rows_) + std::size_t{rows_} * shape_.RowBytes();
  if (needed > capacity_) {
    // Not zeroed: every byte of a reply is written before it is sent.
    buffer_.reset(new std::byte[needed]);
    capacity_ = needed;
  }
}

std::byte* Gather::Payload() const { return buffer_.get() + PayloadOffset(rows_); }

void Gather::Resolve(std::uint32_t first, std::uint32_t count) {
  from_.resize(count);
  others_.clear();
  const std::uint32_t row_bytes = shape_.RowBytes();
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t descriptor = descriptors_[first + i];
    const Grants::Region* region = regions_[KeyIndexOf(descriptor)];
    const std::uint64_t offset = OffsetOf(descriptor);
    from_[i] = nullptr;
    if (region == nullptr || offset > region->length || region->length - offset < row_bytes) {
      statuses_[first + i] = ReadStatus::kRefused;
      ++failed_;
    } else if (region->memory != nullptr) {
      from_[i] = region->memory + offset;
    } else {
      OtherRow other{region->source.get(), {offset, {}, &statuses_[first + i]}};
      std::byte* base = Payload();
      for (std::uint32_t s = 0; s < shape_.segments; ++s) {
        other.wanted.to[s] = base + std::size_t{first + i} * shape_.bytes[s];
        base += std::size_t{rows_} * shape_.bytes[s];
      }
      others_.push_back(other);
    }
  }
}

bool Gather::Advance(Grants* grants, const Grants::Session& session, std::uint32_t rows,
                     const std::function<void()>& resume) {
  if (!pinned_) {
    grants->Pin(session, keys_, regions_.data());
    pinned_ = true;
  }
  const std::uint32_t first = next_row_;
  const std::uint32_t count = std::min(rows, rows_ - first);
  Resolve(first, count);
  std::byte* to[kMaxLocalSegments] = {};
  std::byte* base = Payload();
  for (std::uint32_t s = 0; s < shape_.segments; ++s) {
    to[s] = base + std::size_t{first} * shape_.bytes[s];
    base += std::size_t{rows_} * shape_.bytes[s];
  }
  GatherRows(from_, {shape_.bytes, shape_.segments}, to);
  next_row_ += count;
  return others_.empty() || StartSources(resume);
}

bool Gather::StartSources(const std::function<void()>& resume) {
  std::stable_sort(others_.begin(), others_.end(), [](const OtherRow& a, const OtherRow& b) {
    return std::less<>()(a.source, b.source);
  });
  wanted_.clear();
  for (const OtherRow& other : others_) wanted_.push_back(other.wanted);
  working_.store(1, std::memory_order_relaxed);
  std::size_t begin = 0;
  while (begin < others_.size()) {
    std::size_t end = begin;
    while (end < others_.size() && others_[end].source == others_[begin].source) ++end;
    working_.fetch_add(1, std::memory_order_relaxed);
    others_[begin].source->Start(shape_, {wanted_.data() + begin, end - begin}, [this, &resume] {
      if (working_.fetch_sub(1, std::memory_order_acq_rel) == 1) resume();
    });
    begin = end;
  }
  return working_.fetch_sub(1, std::memory_order_acq_rel) == 1;
}

void Gather::Finish(Grants* grants) {
  Drop(grants);
  failed_ = 0;
  for (ReadStatus status : statuses_) failed_ += status != ReadStatus::kOk;
  const bool all_refused = std::all_of(statuses_.begin(), statuses_.end(), [](ReadStatus status) {
    return status == ReadStatus::kRefused;
  });
  const std::uint64_t payload = std::uint64_t{rows_} * shape_.RowBytes();
  ReplyHeader header{id_, payload, rows_, ReplyForm::kAllOk};
  std::byte* start = Payload() - kReplyHeaderBytes;
  std::size_t bytes = kReplyHeaderBytes + payload;
  if (all_refused) {
    header.form = ReplyForm::kAllRefused;
    header.payload_bytes = 0;
    bytes = kReplyHeaderBytes;
  } else if (failed_ > 0) {
    header.form = ReplyForm::kMixed;
    header.payload_bytes += StatusBytes(rows_);
    start -= StatusBytes(rows_);
    bytes += StatusBytes(rows_);
    std::memset(start + kReplyHeaderBytes, 0, StatusBytes(rows_));
    std::memcpy(start + kReplyHeaderBytes, statuses_.data(), rows_);
  }
  WriteReplyHeader(header, start);
  reply_ = {start, bytes};
}

void Gather::Drop(Grants* grants) {
  if (pinned_) grants->Unpin(regions_);
  pinned_ = false;
}

}  // namespace engram::fabric::stream
