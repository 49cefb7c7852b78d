#include "fabric/ucx/ask_link.h"

#include <cstring>
#include <utility>

#include "fabric/copy.h"

namespace engram::fabric::ucx {
namespace {

// Bytes that are asked for and not answered; a message more may be.
constexpr std::uint64_t kWindow = std::uint64_t{4} << 20;
constexpr std::uint64_t kPlaces = std::uint64_t{1} << 24;

// Lands one read; `from` has op.length bytes.
void Scatter(const ReadOp& op, const std::byte* from) {
  for (std::uint8_t s = 0; s < op.segments; ++s) {
    const LocalSegment& to = op.local[s];
    if (to.bytes == 0) continue;
    CopyPiece(to.data, from, to.bytes);
    from += to.bytes;
  }
}

// What the tail of a sound answer to `ops` is long; 0 where it is not sound.
std::size_t SoundSize(std::span<const ReadOp> ops, std::span<const std::byte> tail) {
  if (tail.size() < ops.size()) return 0;
  std::size_t bytes = ops.size();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (tail[i] == std::byte{1}) bytes += ops[i].length;
  }
  return bytes;
}

}  // namespace

AskLink::~AskLink() { End(ReadStatus::kFlushed); }

AskLink::Batch* AskLink::TakeBatch() {
  if (free_.empty()) {
    auto made = std::make_unique<Batch>();
    made->link = this;
    made->request = all_.size();
    free_.push_back(made.get());
    all_.push_back(std::move(made));
  }
  Batch* batch = free_.back();
  free_.pop_back();
  batch->request = ++uses_ * kPlaces + batch->request % kPlaces;
  batch->ops.clear();
  batch->bytes = 0;
  batch->in_use = true;
  batch->sent = batch->answered = batch->dropped = false;
  return batch;
}

void AskLink::PostWaiting() {
  while (waits() && bytes_asked_ < kWindow && !broken_) {
    Batch* batch = TakeBatch();
    Fill(batch);
    Posted(batch->ops.size());
    reads_in_flight_ += batch->ops.size();
    bytes_asked_ += batch->bytes;
    Post(batch);
  }
}

void AskLink::Fill(Batch* batch) {
  for (const ReadOp& op : waiting()) {
    if (!batch->ops.empty() &&
        (batch->ops.size() == kMostRanges || batch->bytes + op.length > kMostBytes)) {
      break;
    }
    batch->ops.push_back(op);
    batch->bytes += op.length;
  }
  Ask ask = connection_.NewAsk(Verb::kRead);
  ask.count = static_cast<std::uint32_t>(batch->ops.size());
  ask.request = batch->request;
  batch->message.resize(sizeof ask + ask.count * sizeof(Range));
  std::memcpy(batch->message.data(), &ask, sizeof ask);
  std::byte* at = batch->message.data() + sizeof ask;
  for (const ReadOp& op : batch->ops) {
    const Range range{op.region.key, op.region.address + op.offset, op.length, 0};
    std::memcpy(at, &range, sizeof range);
    at += sizeof range;
  }
}

void AskLink::Post(Batch* batch) {
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  param.cb.send = &AskLink::Sent;
  param.user_data = batch;
  const ucs_status_ptr_t request =
      library_.am_send_nbx(connection_.endpoint(), kAskId, nullptr, 0, batch->message.data(),
                           batch->message.size(), &param);
  broken_ = broken_ || UCS_PTR_IS_ERR(request);
  if (!UCS_PTR_IS_PTR(request)) batch->sent = true;
}

void AskLink::Sent(void* request, ucs_status_t status, void* batch) {
  auto* const one = static_cast<Batch*>(batch);
  one->link->library_.request_free(request);
  one->link->broken_ = one->link->broken_ || status != UCS_OK;
  one->sent = true;
  one->link->RetireIfDone(one);
}

void AskLink::Land(const Answer& head, std::span<const std::byte> tail) {
  const std::uint64_t place = head.request % kPlaces;
  Batch* const batch = place < all_.size() ? all_[place].get() : nullptr;
  if (batch == nullptr || !batch->in_use || batch->request != head.request || batch->answered ||
      SoundSize(batch->ops, tail) != tail.size()) {
    broken_ = true;
    return;
  }
  if (!batch->dropped) {
    const std::byte* rows = tail.data() + batch->ops.size();
    for (std::size_t i = 0; i < batch->ops.size(); ++i) {
      const ReadOp& op = batch->ops[i];
      const bool read = tail[i] == std::byte{1};
      if (read) Scatter(op, std::exchange(rows, rows + op.length));
      sink_->Complete(op.cookie, read ? ReadStatus::kOk : ReadStatus::kRefused);
    }
    reads_in_flight_ -= batch->ops.size();
  }
  batch->answered = true;
  bytes_asked_ -= batch->bytes;
  RetireIfDone(batch);
}

void AskLink::RetireIfDone(Batch* batch) {
  if (!batch->in_use || !batch->sent || !batch->answered) return;
  batch->in_use = false;
  free_.push_back(batch);
}

void AskLink::Drop(Batch* batch, ReadStatus status) {
  if (!batch->in_use || batch->answered || batch->dropped) return;
  for (const ReadOp& op : batch->ops) sink_->Complete(op.cookie, status);
  reads_in_flight_ -= batch->ops.size();
  batch->dropped = true;
}

void AskLink::Abandon() {
  EndWaiting(ReadStatus::kFlushed);
  for (auto& batch : all_) Drop(batch.get(), ReadStatus::kFlushed);
}

void AskLink::EndInFlight(ReadStatus status) {
  for (auto& batch : all_) {
    Drop(batch.get(), status);
    batch->sent = batch->answered = true;
    RetireIfDone(batch.get());
  }
  bytes_asked_ = 0;
}

}  // namespace engram::fabric::ucx
