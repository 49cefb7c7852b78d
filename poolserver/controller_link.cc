#include "poolserver/controller_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace engram::poolserver {
namespace {

// A heartbeat stays far below gRPC's message limit of 4 MiB.
constexpr std::size_t kMaxReports = 1024;
constexpr std::size_t kMaxCrcs = std::size_t{256} << 10;

}  // namespace

ControllerLink::ControllerLink(NodeHello identity, ProtocolSwitches switches)
    : identity_(std::move(identity)), switches_(switches) {}

NodeHello ControllerLink::Connected(std::vector<ReplicaReport> replicas) {
  connected_ = true;
  welcomed_ = false;
  NodeHello hello = identity_;
  hello.request_id = absl::StrCat(identity_.process_nonce, "-", ++hellos_);
  hello.replicas = std::move(replicas);
  // Checksums follow in heartbeats, which can be split.
  for (ReplicaReport& report : hello.replicas) report.block_crcs.clear();
  for (auto& [shard, unseen] : unseen_) unseen.sent_in = 0;
  unsent_ = unseen_.size();
  seen_ = sequence_;
  return hello;
}

void ControllerLink::Lost() {
  connected_ = false;
  welcomed_ = false;
}

absl::Status ControllerLink::Welcomed(Instant now, const NodeWelcome& welcome) {
  if (!connected_) return absl::FailedPreconditionError("welcome without a hello on this stream");
  if (welcome.token < token_ && switches_.refuse_older_tokens) {
    return absl::FailedPreconditionError(
        absl::StrCat("welcome carries fencing token ", welcome.token.value(), " but ",
                     token_.value(), " was seen; an older controller is ignored"));
  }
  const bool mine =
      identity_.incarnation == Incarnation(0) || welcome.incarnation == identity_.incarnation;
  if (!mine || welcome.incarnation == Incarnation(0)) {
    return absl::AbortedError(absl::StrCat("node \"", identity_.node.name,
                                           "\" runs as incarnation ", identity_.incarnation.value(),
                                           " but was given ", welcome.incarnation.value(),
                                           "; another process took over, this one must exit"));
  }
  identity_.incarnation = welcome.incarnation;
  token_ = welcome.token;
  heartbeat_every_ = welcome.heartbeat_every;
  welcomed_ = true;
  next_beat_ = now;
  return absl::OkStatus();
}

void ControllerLink::Seen(const HeartbeatSeen& seen) {
  if (!welcomed_ || seen.sequence > sequence_ || seen.sequence <= seen_) return;
  seen_ = seen.sequence;
  map_epoch_ = seen.map_epoch;
  std::erase_if(unseen_, [&](const auto& entry) {
    return entry.second.sent_in != 0 && entry.second.sent_in <= seen.sequence;
  });
}

absl::Status ControllerLink::Check(const Command& command) {
  if (!welcomed_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "node \"", identity_.node.name, "\" is not registered on this stream; welcome it first"));
  }
  if (command.token < token_ && switches_.refuse_older_tokens) {
    return absl::AbortedError(absl::StrCat("fencing token ", command.token.value(),
                                           " is older than ", token_.value(),
                                           "; another controller leads"));
  }
  token_ = command.token;
  if (command.incarnation != identity_.incarnation && switches_.refuse_other_incarnations) {
    return absl::FailedPreconditionError(absl::StrCat(
        "command is meant for incarnation ", command.incarnation.value(), " of node \"",
        identity_.node.name, "\"; this is incarnation ", identity_.incarnation.value()));
  }
  return absl::OkStatus();
}

void ControllerLink::Changed(const ReplicaReport& report) {
  const auto [it, inserted] = unseen_.try_emplace(report.shard);
  if (inserted || it->second.sent_in != 0) ++unsent_;
  it->second = {report, 0};
}

std::optional<NodeHeartbeat> ControllerLink::Beat(Instant now) {
  if (!welcomed_) return std::nullopt;
  const bool waiting = sequence_ > seen_;
  const bool news = unsent_ > 0 && !waiting;
  if (now < next_beat_ && !news) return std::nullopt;
  next_beat_ = now + heartbeat_every_;
  NodeHeartbeat beat;
  beat.incarnation = identity_.incarnation;
  beat.seen = token_;
  beat.tiers = identity_.tiers;
  beat.sequence = ++sequence_;
  std::size_t crcs = 0;
  for (auto& [shard, unseen] : unseen_) {
    if (unseen.sent_in != 0) continue;
    if (beat.changed.size() == kMaxReports || crcs > kMaxCrcs) break;
    crcs += unseen.report.block_crcs.size();
    beat.changed.push_back(unseen.report);
    unseen.sent_in = sequence_;
    --unsent_;
  }
  return beat;
}

std::optional<Instant> ControllerLink::NextBeat() const {
  if (!welcomed_) return std::nullopt;
  return next_beat_;
}

}  // namespace engram::poolserver
