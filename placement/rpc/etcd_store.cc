#include "placement/rpc/etcd_store.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "placement/rpc/etcd_watch.h"

namespace engram::placement {
namespace {

namespace pb = etcdserverpb;

// A page of the largest values stays within a message; one of small values is not a round trip a
// few keys.
constexpr std::int64_t kFirstPage = 32, kLargestPage = 2'048;
constexpr std::size_t kPageBytes = std::size_t{4} << 20;
constexpr int kListTries = 3;

Revision ToRevision(std::int64_t number) { return Revision(static_cast<std::uint64_t>(number)); }

// etcd takes an empty end for "this key only", and a zero byte for "no end".
std::string EndOf(const std::string& prefix) {
  std::string end = PrefixEnd(prefix);
  return end.empty() ? std::string(1, '\0') : end;
}

void AddCompare(pb::TxnRequest* request, const std::string& key, std::int64_t revision) {
  pb::Compare* compare = request->add_compare();
  compare->set_result(pb::Compare::EQUAL);
  compare->set_target(pb::Compare::MOD);
  compare->set_key(key);
  compare->set_mod_revision(revision);
}

void AddPut(pb::TxnRequest* request, const std::string& key, const std::string& value) {
  pb::PutRequest* put = request->add_success()->mutable_request_put();
  put->set_key(key);
  put->set_value(value);
}

}  // namespace

EtcdStore::EtcdStore(std::shared_ptr<EtcdClient> client, std::string prefix,
                     const std::string& name)
    : client_(std::move(client)),
      prefix_(std::move(prefix)),
      state_prefix_(prefix_ + "state/"),
      receipt_key_(prefix_ + "receipt/" + name) {}

std::string EtcdStore::Describe() const {
  return absl::StrCat("etcd:", client_->Endpoints(), prefix_);
}

absl::Status EtcdStore::Prepare() {
  if (prepared_) return absl::OkStatus();
  const Instant deadline = client_->Deadline();
  if (absl::Status format = ReadFormat(deadline); !format.ok()) return format;
  const absl::StatusOr<Receipt> receipt = ReadReceipt(deadline);
  if (!receipt.ok()) return receipt.status();
  receipt_revision_ = receipt->revision;
  prepared_ = true;
  return absl::OkStatus();
}

absl::Status EtcdStore::ReadFormat(Instant deadline) {
  pb::RangeRequest read;
  read.set_key(prefix_ + "format");
  pb::TxnRequest create;
  AddCompare(&create, read.key(), 0);
  AddPut(&create, read.key(), absl::StrCat(kFormat));
  for (;;) {
    const absl::StatusOr<pb::RangeResponse> found = client_->Range(read, deadline);
    if (!found.ok()) return found.status();
    if (found->kvs_size() > 0) {
      std::uint64_t format = 0;
      if (!absl::SimpleAtoi(found->kvs(0).value(), &format) || format == 0) {
        return absl::DataLossError(absl::StrCat("etcd key ", read.key(), " is \"",
                                                found->kvs(0).value(),
                                                "\", not a number: the prefix belongs to another "
                                                "program; give another --etcd-prefix"));
      }
      if (format <= kFormat) return absl::OkStatus();
      return absl::FailedPreconditionError(absl::StrCat(
          "the state in ", Describe(), " has format ", format, "; this program knows up to ",
          kFormat, "; start the newer engram-placement that wrote it"));
    }
    // Lost or refused: whether it is there now is read again.
    const absl::StatusOr<pb::TxnResponse> created = client_->Txn(create, deadline);
    if (!created.ok() && !EtcdClient::MaybeApplied(created.status())) return created.status();
  }
}

absl::StatusOr<EtcdStore::Receipt> EtcdStore::ReadReceipt(Instant deadline) {
  pb::RangeRequest read;
  read.set_key(receipt_key_);
  const absl::StatusOr<pb::RangeResponse> found = client_->Range(read, deadline);
  if (!found.ok()) return found.status();
  if (found->kvs_size() == 0) return Receipt();
  return Receipt{found->kvs(0).value(), found->kvs(0).mod_revision()};
}

absl::StatusOr<std::optional<StoreEntry>> EtcdStore::Get(const std::string& key) {
  if (absl::Status ready = Prepare(); !ready.ok()) return ready;
  pb::RangeRequest read;
  read.set_key(state_prefix_ + key);
  const absl::StatusOr<pb::RangeResponse> found = client_->Range(read, client_->Deadline());
  if (!found.ok()) return found.status();
  if (found->kvs_size() == 0) return std::optional<StoreEntry>();
  const pb::KeyValue& kv = found->kvs(0);
  return std::optional<StoreEntry>({key, kv.value(), ToRevision(kv.mod_revision())});
}

absl::StatusOr<StoreListing> EtcdStore::List(const std::string& prefix) {
  if (absl::Status ready = Prepare(); !ready.ok()) return ready;
  // Its revision may be compacted between two pages.
  for (int tried = 1;; ++tried) {
    absl::StatusOr<StoreListing> listing = ListOnce(prefix);
    if (!absl::IsOutOfRange(listing.status()) || tried == kListTries) return listing;
  }
}

absl::StatusOr<StoreListing> EtcdStore::ListOnce(const std::string& prefix) {
  StoreListing listing;
  pb::RangeRequest read;
  read.set_key(state_prefix_ + prefix);
  read.set_range_end(EndOf(state_prefix_ + prefix));
  read.set_limit(kFirstPage);
  for (;;) {
    const absl::StatusOr<pb::RangeResponse> page = client_->Range(read, client_->Deadline());
    if (!page.ok()) return page.status();
    if (read.revision() == 0) {
      read.set_revision(page->header().revision());
      listing.revision = ToRevision(page->header().revision());
    }
    std::size_t bytes = 0;
    for (const pb::KeyValue& kv : page->kvs()) {
      listing.entries.push_back(
          {kv.key().substr(state_prefix_.size()), kv.value(), ToRevision(kv.mod_revision())});
      bytes += kv.key().size() + kv.value().size();
    }
    if (!page->more() || page->kvs_size() == 0) return listing;
    read.set_key(page->kvs(page->kvs_size() - 1).key() + std::string(1, '\0'));
    read.set_limit(bytes > kPageBytes ? kFirstPage : std::min(read.limit() * 2, kLargestPage));
  }
}

std::string EtcdStore::NewReceipt() { return random_.Bits<struct EtcdReceiptTag>().Hex(); }

pb::TxnRequest EtcdStore::Request(const StoreTxn& txn, const std::string& receipt) const {
  pb::TxnRequest request;
  AddCompare(&request, receipt_key_, receipt_revision_);
  for (const Compare& compare : txn.compares) {
    const std::string key = state_prefix_ + compare.key;
    AddCompare(&request, key, static_cast<std::int64_t>(compare.revision.value()));
    pb::RangeRequest* read = request.add_failure()->mutable_request_range();
    read->set_key(key);
    read->set_keys_only(true);
  }
  for (const Put& put : txn.puts) AddPut(&request, state_prefix_ + put.key, put.value);
  for (const std::string& key : txn.deletes) {
    request.add_success()->mutable_request_delete_range()->set_key(state_prefix_ + key);
  }
  AddPut(&request, receipt_key_, receipt);
  return request;
}

absl::Status EtcdStore::WhyRefused(const StoreTxn& txn, const pb::TxnResponse& response) {
  for (std::size_t i = 0; i < txn.compares.size(); ++i) {
    const Compare& compare = txn.compares[i];
    std::int64_t found = 0;
    if (i < static_cast<std::size_t>(response.responses_size())) {
      const pb::RangeResponse& range = response.responses(static_cast<int>(i)).response_range();
      if (range.kvs_size() > 0) found = range.kvs(0).mod_revision();
    }
    if (ToRevision(found) == compare.revision) continue;
    return absl::AbortedError(absl::StrCat("state key ", compare.key, " is at revision ", found,
                                           ", not ", compare.revision.value()));
  }
  return absl::UnavailableError(absl::StrCat("etcd key ", receipt_key_,
                                             " was written by another process: two controllers "
                                             "have one --advertise; give each its own"));
}

absl::StatusOr<bool> EtcdStore::Settle(Instant deadline) {
  absl::Status why = absl::DeadlineExceededError("no time was left");
  while (SystemClock::Get().Now() < deadline) {
    const absl::StatusOr<Receipt> receipt = ReadReceipt(deadline);
    if (!receipt.ok()) {
      why = receipt.status();
      break;
    }
    const auto settled = [&](bool applied) {
      receipt_revision_ = receipt->revision;
      unsettled_.clear();
      replacing_.clear();
      return applied;
    };
    if (receipt->value == unsettled_) return settled(true);
    if (std::find(replacing_.begin(), replacing_.end(), receipt->value) != replacing_.end()) {
      return settled(false);
    }
    if (receipt->revision != receipt_revision_) {
      why = absl::FailedPreconditionError("another process wrote the receipt");
      receipt_revision_ = receipt->revision;
      unsettled_.clear();
      replacing_.clear();
      break;
    }
    // It may still be on its way: once the receipt is another, its compare does not hold.
    replacing_.push_back(NewReceipt());
    pb::TxnRequest replace;
    AddCompare(&replace, receipt_key_, receipt_revision_);
    AddPut(&replace, receipt_key_, replacing_.back());
    (void)client_->Txn(replace, deadline);
  }
  return absl::UnknownError(absl::StrCat("whether the last transaction was stored in ", Describe(),
                                         " is not known: its answer was lost and ", why.message(),
                                         "; the state is read anew"));
}

absl::StatusOr<Revision> EtcdStore::Txn(const StoreTxn& txn) {
  if (absl::Status valid = ValidateTxn(txn); !valid.ok()) return valid;
  if (absl::Status ready = Prepare(); !ready.ok()) return ready;
  const Instant deadline = client_->Deadline();
  // Its caller was told that nobody knows; what matters is that it is over.
  if (!unsettled_.empty()) {
    if (const absl::StatusOr<bool> settled = Settle(deadline); !settled.ok()) {
      return absl::UnavailableError(
          absl::StrCat("nothing was written: ", settled.status().message()));
    }
  }
  for (bool receipt_read = false;;) {
    const std::string receipt = NewReceipt();
    const absl::StatusOr<pb::TxnResponse> answer = client_->Txn(Request(txn, receipt), deadline);
    if (answer.ok() && answer->succeeded()) {
      receipt_revision_ = answer->header().revision();
      return ToRevision(receipt_revision_);
    }
    if (answer.ok()) {
      absl::Status why = WhyRefused(txn, *answer);
      if (absl::IsAborted(why) || receipt_read) return why;
      const absl::StatusOr<Receipt> now = ReadReceipt(deadline);
      if (!now.ok()) return now.status();
      receipt_revision_ = now->revision;
      receipt_read = true;
      continue;
    }
    if (!EtcdClient::MaybeApplied(answer.status())) return answer.status();
    unsettled_ = receipt;
    const absl::StatusOr<bool> applied = Settle(deadline);
    if (!applied.ok()) return applied.status();
    if (*applied) return ToRevision(receipt_revision_);
    if (SystemClock::Get().Now() >= deadline) return answer.status();
  }
}

absl::StatusOr<std::unique_ptr<StoreWatch>> EtcdStore::Watch(const std::string& prefix,
                                                             Revision after) {
  if (absl::Status ready = Prepare(); !ready.ok()) return ready;
  return std::make_unique<EtcdWatch>(client_, state_prefix_, prefix, after);
}

}  // namespace engram::placement
