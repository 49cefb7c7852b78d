// The current ClusterState and the one way to change it: commit to the store, then to memory, then
// bump the epoch (ARCHITECTURE section 5). Thread-confined: call from the owner thread only; the
// states it hands out may be read anywhere.
//
// Invariants: memory never holds what the store does not; the epoch grows with every change that
// readers of the map can see, and at every start; a change that failed changed nothing in memory.
// After another controller took the store every Commit is Aborted.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "placement/state/cluster_state.h"
#include "placement/store/state_store.h"

namespace engram::placement {

// What to change. Values replace what was there. A change of more than 60 values takes several
// store transactions, tables last: a table exists once its record does, and is gone with it.
struct Change {
  struct Sums {
    TableUid table;
    std::vector<std::uint64_t> sums;  // one per shard of the table
  };
  std::vector<NodeRecord> nodes;
  std::vector<NodeId> nodes_removed;  // no replica is theirs
  std::vector<StoredTable> tables;
  std::vector<TableUid> tables_removed;
  std::vector<StoredTable> deletes_remembered;  // at most kRememberedDeletes are kept
  std::vector<MapChunk> chunks;                 // of tables in the state or in `tables`
  std::vector<Sums> sums;
  std::vector<TokenMap> token_maps;
  std::vector<MoveRecord> moves;
  std::vector<ShardKey> moves_removed;  // those of removed tables go with them
  std::vector<TenantRecord> tenants;    // one that says nothing is removed
  std::optional<Incarnation> last_incarnation;
  // Readers of the map see no difference.
  bool empty() const {
    return nodes.empty() && nodes_removed.empty() && tables.empty() && tables_removed.empty() &&
           chunks.empty();
  }
  bool nothing() const {
    return empty() && moves.empty() && moves_removed.empty() && tenants.empty();
  }
};

inline constexpr std::size_t kRememberedDeletes = 1024;

class Registry {
 public:
  // Takes a new fencing token, reads everything, and removes what a crash left half-made.
  // `store` must outlive the registry.
  static absl::StatusOr<std::unique_ptr<Registry>> Open(StateStore* store);

  const ClusterState& state() const { return *state_; }
  std::shared_ptr<const ClusterState> snapshot() const { return state_; }
  StateStore& store() const { return *store_; }

  // Returns the map's delta; null when readers of the map see no difference.
  absl::StatusOr<std::shared_ptr<const MapDelta>> Commit(Change change);
  // Memory only: what nodes said of themselves, and why moves wait.
  void SetLive(std::map<NodeId, std::shared_ptr<const NodeLive>> live,
               std::map<ShardKey, std::string> move_notes,
               std::map<TableUid, std::string> table_notes);

 private:
  struct Write {
    std::string key;
    std::optional<std::string> value;  // none: delete
  };
  explicit Registry(StateStore* store) : store_(store) {}
  absl::Status TakeToken();
  absl::Status ReadNodes(ClusterState* state);
  absl::Status ReadTables(ClusterState* state);
  absl::Status ReadTokenMaps(ClusterState* state);
  absl::Status ReadDeleted(ClusterState* state);
  absl::Status ReadMoves(ClusterState* state);
  absl::Status ReadTenants(ClusterState* state);
  absl::Status RemoveOrphans(const ClusterState& state);
  absl::StatusOr<std::vector<std::string>> Keys(const std::string& prefix);
  absl::StatusOr<std::vector<Write>> Writes(const Change& change);
  absl::Status WriteAll(const std::vector<Write>& writes, const std::vector<Put>& in_each);

  StateStore* store_;
  Revision fencing_revision_;
  std::shared_ptr<const ClusterState> state_;
};

}  // namespace engram::placement
