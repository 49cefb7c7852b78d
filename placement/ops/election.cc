#include "placement/ops/election.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "placement/state/codec.h"

namespace engram::placement {
namespace {

constexpr std::uint8_t kLeaderFormat = 1;

}  // namespace

std::string Encode(const LeaderRecord& record) {
  Encoder out(kLeaderFormat);
  out.Text(record.holder);
  out.Text(record.address);
  out.Number(record.term);
  out.Number(record.renewal);
  out.Number(static_cast<std::uint64_t>(record.lease.count()));
  return out.Take();
}

absl::StatusOr<LeaderRecord> DecodeLeader(std::string_view bytes) {
  Decoder in(bytes, kLeaderFormat);
  LeaderRecord record;
  record.holder = in.Text();
  record.address = in.Text();
  record.term = in.Number();
  record.renewal = in.Number();
  record.lease = Duration(in.Signed());
  if (in.AtEnd()) return record;
  return absl::DataLossError(
      absl::StrCat("state key ", kLeaderKey,
                   " does not read as a leader's record; a newer engram-placement may have written "
                   "it: run one version, or delete the key"));
}

std::vector<Election::Action> Election::OnEvent(Instant now, const Event& event) {
  // A lease that has run out is lost, whatever is still under way.
  if (leads_ && now >= until_) StepBack(now, "");
  if (std::holds_alternative<Tick>(event)) {
    OnTick(now);
  } else if (const auto* read = std::get_if<RecordRead>(&event)) {
    OnRead(now, *read);
  } else if (const auto* written = std::get_if<RecordWritten>(&event)) {
    OnWritten(now, *written);
  } else if (leads_ && !waiting_) {
    LeaderRecord nobody{"", "", mine_.term, mine_.renewal + 1, options_.lease};
    StepBack(now, "");
    Write(now, std::move(nobody));
  }
  return std::exchange(actions_, {});
}

void Election::OnTick(Instant now) {
  if (waiting_ || now < next_) return;
  if (leads_ && !read_first_) {
    LeaderRecord renewed = mine_;
    ++renewed.renewal;
    return Write(now, std::move(renewed));
  }
  waiting_ = true;
  actions_.emplace_back(std::in_place_type<ReadRecord>);
}

void Election::Write(Instant now, LeaderRecord record) {
  waiting_ = true;
  sent_ = now;
  mine_ = std::move(record);
  WriteRecord& write =
      std::get<WriteRecord>(actions_.emplace_back(std::in_place_type<WriteRecord>));
  write.txn.compares = {{kLeaderKey, revision_}};
  write.txn.puts = {{kLeaderKey, Encode(mine_)}};
}

void Election::Claim(Instant now, std::uint64_t term) {
  Write(now, {options_.holder, options_.address, term, 1, options_.lease});
}

void Election::StepBack(Instant now, std::string leader) {
  leads_ = false;
  read_first_ = true;
  seen_.reset();
  next_ = now;
  followed_ = leader;
  actions_.emplace_back(Follow{std::move(leader)});
}

void Election::OnRead(Instant now, const RecordRead& read) {
  waiting_ = false;
  next_ = now + PollEvery();
  if (!read.entry.ok()) return;
  LeaderRecord record;
  revision_ = Revision();
  if (const std::optional<StoreEntry>& entry = *read.entry) {
    absl::StatusOr<LeaderRecord> decoded = DecodeLeader(entry->value);
    if (!decoded.ok()) return;  // nobody takes what nobody can read
    record = *std::move(decoded);
    revision_ = entry->revision;
  }
  if (leads_) {
    if (record.holder != options_.holder) return StepBack(now, record.address);
    read_first_ = false;
    mine_ = std::move(record);
    next_ = now;
    return OnTick(now);
  }
  // Ours, but without a lease: a write of which nobody knew whether it was stored.
  if (record.holder.empty() || record.holder == options_.holder) {
    return Claim(now, record.term + 1);
  }
  if (record.address != followed_) {
    followed_ = record.address;
    actions_.emplace_back(Follow{record.address});
  }
  if (!seen_ || seen_->first != revision_) {
    seen_ = {revision_, now};
  } else if (now - seen_->second >= record.lease + Margin(record.lease)) {
    Claim(now, record.term + 1);
  }
}

void Election::OnWritten(Instant now, const RecordWritten& written) {
  waiting_ = false;
  if (!written.revision.ok()) {
    // Whose the record is now is read; until then what was held is held.
    read_first_ = true;
    next_ = now + (absl::IsAborted(written.revision.status()) ? Duration::zero() : PollEvery() / 4);
    return;
  }
  revision_ = *written.revision;
  if (mine_.holder.empty()) {  // resigned
    next_ = now + PollEvery();
    return;
  }
  if (!switches_.count_lease_from_request) sent_ = now;
  if (now >= sent_ + options_.lease) {
    next_ = now;
    return;
  }
  leads_ = true;
  read_first_ = false;
  seen_.reset();
  until_ = sent_ + options_.lease;
  next_ = sent_ + options_.lease / 3;
  followed_ = options_.address;
  actions_.emplace_back(Lead{until_, mine_.term});
}

}  // namespace engram::placement
