#include "fabric/ofi/link.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <utility>

namespace engram::fabric::ofi {
namespace {

constexpr std::size_t kCompletionsPerRead = 64;
constexpr std::size_t kCompletionQueue = 8192;
constexpr Duration kSettle = std::chrono::seconds(2);
// shm says nothing to a reader whose key it refuses.
constexpr Duration kSilence = std::chrono::seconds(3);

// The target answered, and said no.
bool IsRefusal(int error) {
  return error == FI_EACCES || error == FI_EPERM || error == FI_EKEYREJECTED ||
         error == FI_EINVAL || error == FI_EREMOTEIO;
}

}  // namespace

Link::Link(std::shared_ptr<const Provider> provider, std::shared_ptr<const OfiPeer> peer,
           Duration connect_timeout, ReadSink* sink, PostCounters* counters)
    : ReadLink(sink),
      provider_(std::move(provider)),
      peer_(std::move(peer)),
      connect_timeout_(connect_timeout),
      counters_(counters) {}

Link::~Link() {
  Settle();
  endpoint_.ep.reset();
  endpoint_.cq.reset();
}

Bundle* Link::TakeBundle() {
  if (free_.empty()) {
    all_.push_back(std::make_unique<Bundle>());
    free_.push_back(all_.back().get());
  }
  Bundle* bundle = free_.back();
  free_.pop_back();
  bundle->reads = 0;
  bundle->is_hello = false;
  bundle->place = static_cast<std::uint32_t>(in_flight_.size());
  in_flight_.push_back(bundle);
  return bundle;
}

void Link::Retire(Bundle* bundle) {
  ++completed_;
  in_flight_[bundle->place] = in_flight_.back();
  in_flight_[bundle->place]->place = bundle->place;
  in_flight_.pop_back();
  free_.push_back(bundle);
}

absl::Status Link::Open() {
  auto endpoint = provider_->OpenEndpoint(kCompletionQueue, false);
  if (!endpoint.ok()) return endpoint.status();
  endpoint_ = *std::move(endpoint);
  if (provider_->needs_local_registration() && hello_registration_.mr == nullptr) {
    auto registration = provider_->Register(std::as_bytes(std::span(&hello_, 1)), FI_READ);
    if (!registration.ok()) return registration.status();
    hello_registration_ = *std::move(registration);
  }
  if (const int inserted =
          fi_av_insert(endpoint_.av.get(), peer_->location.name.data(), 1, &address_, 0, nullptr);
      inserted != 1) {
    return provider_->Failed("fi_av_insert", inserted < 0 ? inserted : FI_EADDRNOTAVAIL);
  }
  hello_ = {0, 0};
  state_ = State::kGreeting;
  greet_deadline_ = clock_.Now() + connect_timeout_;
  next_look_ = clock_.Now();
  return absl::OkStatus();
}

// Posted again while the provider connects. False: it cannot.
bool Link::TryHello() {
  Bundle* bundle = TakeBundle();
  bundle->is_hello = true;
  void* descriptor =
      hello_registration_.mr == nullptr ? nullptr : fi_mr_desc(hello_registration_.mr.get());
  const ssize_t rc =
      fi_read(endpoint_.ep.get(), &hello_, sizeof hello_, descriptor, address_,
              peer_->location.hello_address, peer_->location.hello_key, &bundle->context);
  if (rc == 0) return true;
  Retire(bundle);
  if (rc != -FI_EAGAIN) trouble_ = provider_->Failed("fi_read", static_cast<int>(rc));
  return rc == -FI_EAGAIN;
}

bool Link::TargetIsGone() {
  if (!peer_->owner) return false;
  if (gone_ || peer_->owner->IsGone()) return true;
  const Instant now = clock_.Now();
  if (now < next_look_) return false;
  next_look_ = now + std::chrono::milliseconds(5);
  gone_ = peer_->owner->ClosedEndpoint();
  return gone_;
}

// A target of the shm provider faults when a reader leaves in the middle of connecting or of a
// read: give it the time to answer, unless it cannot.
void Link::Settle() {
  if (!provider_->is_shm() || state_ == State::kClosed) return;
  const Instant limit = clock_.Now() + kSettle;
  while ((state_ == State::kGreeting || !in_flight_.empty()) && clock_.Now() < limit &&
         !TargetIsGone()) {
    if (in_flight_.empty() && !TryHello()) return;
    fi_cq_entry entry;
    if (fi_cq_read(endpoint_.cq.get(), &entry, 1) != 1) continue;
    auto* bundle = static_cast<Bundle*>(entry.op_context);
    if (bundle->is_hello) state_ = State::kOpen;
    for (std::uint32_t r = 0; r < bundle->reads; ++r) {
      sink_->Complete(bundle->cookies[r], ReadStatus::kOk);
    }
    Retire(bundle);
  }
}

void Link::Abandon() {
  EndWaiting(ReadStatus::kFlushed);
  // While it greets only its own memory is a destination.
  if (state_ == State::kGreeting) return;
  Settle();
  if (!in_flight_.empty()) End(ReadStatus::kFlushed);
}

void Link::Drive() {
  if (!active()) return;
  if (state_ == State::kClosed) {
    trouble_ = Open();
    if (!trouble_.ok()) return End(ReadStatus::kUnreachable);
  }
  if (TargetIsGone()) return End(ReadStatus::kUnreachable);
  if (state_ == State::kGreeting && in_flight_.empty() && !TryHello()) {
    return End(ReadStatus::kUnreachable);
  }
  // A post that was pushed back needs the provider to move before it is tried again, and so does a
  // connection that is being made.
  if (state_ != State::kClosed && !Collect()) return;
  if (state_ == State::kGreeting && clock_.Now() >= greet_deadline_) {
    return End(ReadStatus::kUnreachable);
  }
  if (state_ == State::kOpen) PostWaiting();
  if (IsSilent()) End(ReadStatus::kUnreachable);
}

bool Link::IsSilent() {
  if (!provider_->is_shm() || in_flight_.empty()) return false;
  if (completed_ != completed_before_ || silence_from_ == Instant()) {
    completed_before_ = completed_;
    silence_from_ = clock_.Now();
  }
  return clock_.Now() - silence_from_ >= kSilence;
}

std::size_t Link::Pack() {
  const std::size_t most = std::min(
      {std::size_t{provider_->remote_iov_limit()}, std::size_t{kMaxBundle}, waiting().size()});
  const std::size_t iov_limit = provider_->local_iov_limit();
  std::uint64_t bytes = 0;
  std::size_t reads = 0;
  locals_ = 0;
  for (; reads < most; ++reads) {
    const ReadOp& op = waiting()[reads];
    const std::size_t before = locals_;
    bytes += op.length;
    for (std::uint32_t s = 0; s < op.segments; ++s) {
      const LocalSegment& to = op.local[s];
      void* descriptor =
          to.region == nullptr ? nullptr : static_cast<const OfiRegion*>(to.region)->descriptor();
      descriptors_[locals_] = descriptor;
      local_[locals_++] = {to.data, to.bytes};
    }
    const bool fits = locals_ <= iov_limit && bytes <= provider_->max_message_bytes();
    if (!fits && reads > 0) {
      locals_ = before;
      break;
    }
    remote_[reads] = {op.region.address + op.offset, op.length, op.region.key};
  }
  return reads;
}

void Link::PostWaiting() {
  while (waits()) {
    const std::size_t reads = Pack();
    Bundle* bundle = TakeBundle();
    bundle->reads = static_cast<std::uint32_t>(reads);
    for (std::size_t i = 0; i < reads; ++i) {
      bundle->cookies[i] = waiting()[i].cookie;
    }
    fi_msg_rma message{};
    message.msg_iov = local_.data();
    message.desc = descriptors_.data();
    message.iov_count = locals_;
    message.addr = address_;
    message.rma_iov = remote_.data();
    message.rma_iov_count = reads;
    message.context = &bundle->context;
    // The doorbell rings with the last of the batch, and with the last that the provider has room
    // for: what is held back behind FI_MORE frees no room.
    const bool more = reads < waiting().size() && in_flight_.size() < provider_->messages_at_once();
    const ssize_t rc =
        fi_readmsg(endpoint_.ep.get(), &message, FI_COMPLETION | (more ? FI_MORE : 0));
    if (rc == -FI_EAGAIN) {
      Retire(bundle);
      return JudgePushBack();
    }
    if (rc != 0) {
      // Not posted: its reads are still among those that wait, and end with them.
      Retire(bundle);
      return End(ReadStatus::kUnreachable);
    }
    ++counters_->messages;
    if (!more) ++counters_->doorbells;
    Posted(reads);
    stuck_deadline_ = Instant::max();
  }
}

// With reads in flight, push-back means a full queue. With none it means that the provider lost its
// connection and makes another one to a target that may be gone.
void Link::JudgePushBack() {
  const Instant now = clock_.Now();
  if (!in_flight_.empty()) {
    stuck_deadline_ = Instant::max();
  } else if (stuck_deadline_ == Instant::max()) {
    stuck_deadline_ = now + connect_timeout_;
  } else if (now >= stuck_deadline_) {
    End(ReadStatus::kUnreachable);
  }
}

// False: the link was ended.
bool Link::Collect() {
  fi_cq_entry entries[kCompletionsPerRead];
  while (true) {
    const ssize_t got = fi_cq_read(endpoint_.cq.get(), entries, kCompletionsPerRead);
    if (got == -FI_EAGAIN || got == 0) return true;
    if (got < 0) {
      FailedRead();
      return false;
    }
    for (ssize_t i = 0; i < got; ++i) {
      auto* bundle = static_cast<Bundle*>(entries[i].op_context);
      if (bundle->is_hello) {
        const bool same = hello_.magic == HelloRegion().magic &&
                          hello_.incarnation == peer_->location.incarnation.value();
        Retire(bundle);
        if (!same) {
          End(ReadStatus::kUnreachable);
          return false;
        }
        state_ = State::kOpen;
        continue;
      }
      ++counters_->completions;
      for (std::uint32_t r = 0; r < bundle->reads; ++r) {
        sink_->Complete(bundle->cookies[r], ReadStatus::kOk);
      }
      Retire(bundle);
    }
    if (got < static_cast<ssize_t>(kCompletionsPerRead)) return true;
  }
}

void Link::FailedRead() {
  fi_cq_err_entry error{};
  const bool known = fi_cq_readerr(endpoint_.cq.get(), &error, 0) == 1;
  if (known && error.op_context != nullptr && IsRefusal(error.err)) {
    auto* bundle = static_cast<Bundle*>(error.op_context);
    if (!bundle->is_hello) {
      for (std::uint32_t r = 0; r < bundle->reads; ++r) {
        sink_->Complete(bundle->cookies[r], ReadStatus::kRefused);
      }
      Retire(bundle);
    }
  }
  if (known && state_ == State::kGreeting) trouble_ = provider_->Failed("connecting", error.err);
  End(ReadStatus::kUnreachable);
}

void Link::End(ReadStatus status) {
  Settle();
  endpoint_.ep.reset();
  endpoint_.cq.reset();
  endpoint_.av.reset();
  endpoint_.counted.reset();
  state_ = State::kClosed;
  silence_from_ = Instant();
  stuck_deadline_ = Instant::max();
  for (Bundle* bundle : in_flight_) {
    for (std::uint32_t r = 0; r < bundle->reads; ++r) sink_->Complete(bundle->cookies[r], status);
    free_.push_back(bundle);
  }
  in_flight_.clear();
  EndWaiting(status);
}

}  // namespace engram::fabric::ofi
