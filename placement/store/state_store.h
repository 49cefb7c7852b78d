// The controller's durable memory: a small ordered map of keys to values with revisions,
// compare-and-swap transactions and watches (ARCHITECTURE section 5). Three stores stand behind it:
// a SQLite file (one controller), etcd (several; placement/rpc) and memory (tests and the
// simulator); the limits are etcd's. It knows nothing of tables or nodes. Thread-confined: call
// from the owner thread only.
//
// Invariants: a transaction is applied whole or not at all, and is durable when Txn returns OK;
// revisions only grow, one per transaction; every key carries the revision of its last change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/ids.h"

namespace engram::placement {

using Revision = StrongId<struct RevisionTag>;

inline constexpr std::size_t kMaxValueBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxKeyBytes = 512;
inline constexpr std::size_t kMaxTxnWrites = 64;  // puts and deletes together

struct StoreEntry {
  std::string key;
  std::string value;
  Revision revision;
  friend bool operator==(const StoreEntry&, const StoreEntry&) = default;
};

struct Compare {
  std::string key;
  Revision revision;  // 0: the key must not exist
};
struct Put {
  std::string key;
  std::string value;
};
struct StoreTxn {
  std::vector<Compare> compares;
  std::vector<Put> puts;
  std::vector<std::string> deletes;  // a key that does not exist is no error
};

struct StoreListing {
  std::vector<StoreEntry> entries;  // in byte order of the keys
  Revision revision;                // of the store, where a watch goes on
};

// A key that changed. A key that changed several times may be reported once, as it is now.
struct StoreEvent {
  std::string key;
  std::optional<std::string> value;  // none: deleted
  Revision revision;
};

class StoreWatch {
 public:
  virtual ~StoreWatch() = default;
  // Never blocks: what changed since the last call, as far as it has been heard of, in order of
  // revision. OutOfRange when the store
  // no longer remembers that far back: list again and watch from there.
  virtual absl::StatusOr<std::vector<StoreEvent>> Poll() = 0;
};

class StateStore {
 public:
  virtual ~StateStore() = default;
  virtual absl::StatusOr<std::optional<StoreEntry>> Get(const std::string& key) = 0;
  virtual absl::StatusOr<StoreListing> List(const std::string& prefix) = 0;
  // Aborted: a compare does not hold, and nothing was written. InvalidArgument: a limit above is
  // exceeded. ResourceExhausted: no room; nothing was written and reads go on. Unknown: the answer
  // was lost, so that it may have been applied, or may be until another transaction of this store
  // succeeds: what the caller believes must be read anew. After every other error nothing was
  // written.
  virtual absl::StatusOr<Revision> Txn(const StoreTxn& txn) = 0;
  // Changes of keys with `prefix` after `after`. The watch must not outlive the store.
  virtual absl::StatusOr<std::unique_ptr<StoreWatch>> Watch(const std::string& prefix,
                                                            Revision after) = 0;
  // "sqlite:/var/lib/engram/placement.db", for people.
  virtual std::string Describe() const = 0;
};

// The checks every store makes before it writes.
absl::Status ValidateTxn(const StoreTxn& txn);
// The least key above every key with `prefix`; empty when there is none.
std::string PrefixEnd(std::string prefix);

}  // namespace engram::placement
