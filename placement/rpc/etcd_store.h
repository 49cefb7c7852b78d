// A StateStore in etcd v3, for several controllers. Everything stands under a prefix:
//
//   PREFIX format          the number of this layout; a larger one is refused
//   PREFIX state/KEY       the entries
//   PREFIX receipt/NAME    what the store of that name wrote last
//
// A transaction whose answer is lost is never guessed about: each compares and writes the store's
// receipt, so that reading the receipt tells whether it was applied, and writing it anew makes sure
// that it never will be. Where that cannot be settled within the limit, Txn is Unknown.
//
// Values above about 1.4 MiB in one transaction need etcd's --max-request-bytes. Several stores may
// share one client. Thread-confined: call from the owner thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engram/random.h"
#include "placement/rpc/etcd_client.h"
#include "placement/store/state_store.h"

namespace engram::placement {

class EtcdStore final : public StateStore {
 public:
  static constexpr std::uint64_t kFormat = 1;

  // `name` tells the stores that write under one prefix apart: HOST:PORT of the controller, and
  // what for. Calls no one; Prepare, or the first operation, does.
  EtcdStore(std::shared_ptr<EtcdClient> client, std::string prefix, const std::string& name);

  // Reads or writes the format. FailedPrecondition: it is newer than this program.
  absl::Status Prepare();

  absl::StatusOr<std::optional<StoreEntry>> Get(const std::string& key) override;
  absl::StatusOr<StoreListing> List(const std::string& prefix) override;
  absl::StatusOr<Revision> Txn(const StoreTxn& txn) override;
  // Events come on a stream: what Poll returns may be a moment old.
  absl::StatusOr<std::unique_ptr<StoreWatch>> Watch(const std::string& prefix,
                                                    Revision after) override;
  std::string Describe() const override;

 private:
  struct Receipt {
    std::string value;
    std::int64_t revision = 0;
  };
  absl::Status ReadFormat(Instant deadline);
  absl::StatusOr<StoreListing> ListOnce(const std::string& prefix);
  absl::StatusOr<Receipt> ReadReceipt(Instant deadline);
  std::string NewReceipt();
  etcdserverpb::TxnRequest Request(const StoreTxn& txn, const std::string& receipt) const;
  // Aborted with the key that differs; Unavailable when it is the receipt alone, which is then read
  // anew.
  absl::Status WhyRefused(const StoreTxn& txn, const etcdserverpb::TxnResponse& response);
  // What became of the transaction with the receipt `unsettled_`: true, it was applied; false, it
  // was not and never will be. Unknown: no time was left.
  absl::StatusOr<bool> Settle(Instant deadline);

  const std::shared_ptr<EtcdClient> client_;
  const std::string prefix_;
  const std::string state_prefix_;
  const std::string receipt_key_;
  SystemRandom random_;
  bool prepared_ = false;
  std::int64_t receipt_revision_ = 0;   // of the last receipt that is known; 0: there is none
  std::string unsettled_;               // empty: nothing is
  std::vector<std::string> replacing_;  // receipts written to settle it
};

}  // namespace engram::placement
