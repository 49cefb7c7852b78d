// A StoreWatch on an etcd watch stream, opened anew on another endpoint when it breaks, from where
// it was; etcd's progress notices move that place on where nothing changes. Thread-confined: call
// from the owner thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "placement/rpc/etcd_client.h"
#include "placement/store/state_store.h"

namespace engram::placement {

class EtcdWatchStream;

class EtcdWatch final : public StoreWatch {
 public:
  // Watches keys that begin with `hidden` + `prefix`; events name them without `hidden`.
  EtcdWatch(std::shared_ptr<EtcdClient> client, std::string hidden, std::string prefix,
            Revision after);
  ~EtcdWatch() override;

  absl::StatusOr<std::vector<StoreEvent>> Poll() override;

 private:
  void Open();

  const std::shared_ptr<EtcdClient> client_;
  const std::string hidden_, prefix_;
  Revision after_;
  absl::Status failed_;  // for good
  Instant reopen_at_{};
  std::unique_ptr<EtcdWatchStream> stream_;
};

}  // namespace engram::placement
