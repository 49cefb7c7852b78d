// A StateStore in one SQLite file: write-ahead log, synchronous=FULL, one process at a time (an
// exclusive lock that dies with the process), so a kill at any point loses no committed
// transaction. Thread-confined: call from the owner thread only.
#pragma once

#include "placement/store/state_store.h"

struct sqlite3;
struct sqlite3_stmt;

namespace engram::placement {

class SqliteStore final : public StateStore {
 public:
  // The file format this program writes; a file with a larger number is refused.
  static constexpr int kSchemaVersion = 1;

  struct Options {
    std::string path;
    std::uint64_t max_bytes = 0;  // of the file; 0 = as much as the disk has
  };
  // FailedPrecondition: another controller holds the file, its schema is newer, or it is not ours.
  // Each message names the path and what to do.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const Options& options);
  ~SqliteStore() override;
  SqliteStore(const SqliteStore&) = delete;
  SqliteStore& operator=(const SqliteStore&) = delete;

  absl::StatusOr<std::optional<StoreEntry>> Get(const std::string& key) override;
  absl::StatusOr<StoreListing> List(const std::string& prefix) override;
  absl::StatusOr<Revision> Txn(const StoreTxn& txn) override;
  absl::StatusOr<std::unique_ptr<StoreWatch>> Watch(const std::string& prefix,
                                                    Revision after) override;
  std::string Describe() const override { return "sqlite:" + path_; }

 private:
  friend class SqliteWatch;
  class Statement;
  SqliteStore(std::string path, sqlite3* db) : path_(std::move(path)), db_(db) {}

  absl::Status Prepare(const Options& options);
  absl::Status CheckOwner(int application_id, int schema_version);
  absl::Status CreateSchema();
  absl::Status Exec(const std::string& sql);
  absl::StatusOr<std::int64_t> Number(const std::string& sql);
  absl::Status CheckCompares(const StoreTxn& txn);
  absl::Status Write(const StoreTxn& txn, Revision revision);
  absl::Status Error(int code) const;
  absl::StatusOr<std::vector<StoreEvent>> Changes(const std::string& prefix, Revision after);

  std::string path_;
  sqlite3* db_;
};

}  // namespace engram::placement
