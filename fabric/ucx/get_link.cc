#include "fabric/ucx/get_link.h"

#include <utility>

namespace engram::fabric::ucx {
namespace {

constexpr Duration kSettle = std::chrono::seconds(2);

}  // namespace

GetLink::~GetLink() { End(ReadStatus::kFlushed); }

GetLink::Read* GetLink::TakeRead() {
  if (free_.empty()) {
    all_.push_back(std::make_unique<Read>());
    free_.push_back(all_.back().get());
  }
  Read* read = free_.back();
  free_.pop_back();
  read->link = this;
  read->failed = false;
  read->place = static_cast<std::uint32_t>(in_flight_.size());
  in_flight_.push_back(read);
  return read;
}

void GetLink::Retire(Read* read) {
  in_flight_[read->place] = in_flight_.back();
  in_flight_[read->place]->place = read->place;
  in_flight_.pop_back();
  free_.push_back(read);
}

void GetLink::PostWaiting() {
  while (waits() && !broken_) {
    Post(waiting().front());
    Posted(1);
  }
}

void GetLink::Post(const ReadOp& op) {
  const Key* key = KeyFor(op);
  if (key == nullptr) return sink_->Complete(op.cookie, ReadStatus::kRefused);
  Read* read = TakeRead();
  read->cookie = op.cookie;
  read->parts = op.segments;
  std::uint64_t from = op.region.address + op.offset;
  // The last part may end inside of its call, and the read with it: nothing of `read` after that.
  for (std::uint32_t s = 0, parts = op.segments; s < parts; ++s) {
    const LocalSegment& to = op.local[s];
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = &GetLink::PartEnded;
    param.user_data = read;
    if (to.region != nullptr && static_cast<const UcxRegion*>(to.region)->handle() != nullptr) {
      param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
      param.memh = static_cast<const UcxRegion*>(to.region)->handle();
    }
    ucs_status_ptr_t request = nullptr;
    if (to.bytes > 0) {
      request =
          library_.get_nbx(connection_.endpoint(), to.data, to.bytes, from, key->handle, &param);
    }
    from += to.bytes;
    if (!UCS_PTR_IS_PTR(request)) EndPart(read, UCS_PTR_IS_ERR(request));
  }
}

void GetLink::PartEnded(void* request, ucs_status_t status, void* read) {
  auto* const one = static_cast<Read*>(read);
  one->link->library_.request_free(request);
  one->link->EndPart(one, status != UCS_OK);
}

void GetLink::EndPart(Read* read, bool failed) {
  read->failed = read->failed || failed;
  if (--read->parts > 0) return;
  broken_ = broken_ || read->failed;
  sink_->Complete(read->cookie, read->failed ? failure_ : ReadStatus::kOk);
  Retire(read);
}

const GetLink::Key* GetLink::KeyFor(const ReadOp& op) {
  const std::uint64_t number = op.region.key;
  const std::size_t slot = ImportedKeys::SlotOf(number);
  if (slot >= keys_.size() || keys_[slot].handle == nullptr || keys_[slot].number != number) {
    Key loaded;
    if (!LoadKey(number, &loaded)) return nullptr;
    if (slot >= keys_.size()) keys_.resize(slot + 1);
    if (keys_[slot].handle != nullptr) library_.rkey_destroy(keys_[slot].handle);
    keys_[slot] = loaded;
  }
  const Key& key = keys_[slot];
  const std::uint64_t first = op.region.address - key.address + op.offset;
  if (first > key.length || key.length - first < op.length) return nullptr;
  return &key;
}

bool GetLink::LoadKey(std::uint64_t number, Key* key) {
  const auto imported = peer_->keys.Find(number);
  if (!imported) return false;
  key->number = number;
  key->address = imported->address;
  key->length = imported->length;
  return library_.ep_rkey_unpack(connection_.endpoint(), imported->packed.data(), &key->handle) ==
         UCS_OK;
}

void GetLink::Abandon() {
  EndWaiting(ReadStatus::kFlushed);
  if (!transport_->offloaded()) Settle();
  // While it greets no read is a destination.
  if (!in_flight_.empty()) End(ReadStatus::kFlushed);
}

void GetLink::Settle() {
  const SystemClock clock;
  const Instant limit = clock.Now() + kSettle;
  while (!in_flight_.empty() && !broken_ && connection_.state() == Connection::State::kOpen &&
         clock.Now() < limit) {
    connection_.Progress();
  }
}

void GetLink::BeforeClose(ReadStatus status) {
  if (!transport_->offloaded()) Settle();
  failure_ = status;
  for (const Key& key : keys_) {
    if (key.handle != nullptr) library_.rkey_destroy(key.handle);
  }
  keys_.clear();
}

void GetLink::EndInFlight(ReadStatus status) {
  while (!in_flight_.empty()) {
    Read* read = in_flight_.back();
    sink_->Complete(read->cookie, status);
    Retire(read);
  }
  failure_ = ReadStatus::kUnreachable;
}

}  // namespace engram::fabric::ucx
