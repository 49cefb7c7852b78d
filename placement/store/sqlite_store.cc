#include "placement/store/sqlite_store.h"

#include <sqlite3.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace engram::placement {
namespace {

constexpr int kApplicationId = 0x456e6772;  // "Engr"
constexpr int kBusyTimeoutMs = 2'000;  // a predecessor that was just killed lets go in this time
constexpr std::int64_t kRememberedRevisions = 10'000;  // of deleted keys, for watches

}  // namespace

// One prepared statement, finalised with its scope.
class SqliteStore::Statement {
 public:
  Statement(sqlite3* db, const char* sql) {
    code_ = sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& Bind(std::string_view text) {
    if (code_ == SQLITE_OK) {
      code_ = sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()),
                                SQLITE_TRANSIENT);
    }
    return *this;
  }
  Statement& BindBlob(std::string_view bytes) {
    if (code_ == SQLITE_OK) {
      code_ = sqlite3_bind_blob(statement_, ++bound_, bytes.data() == nullptr ? "" : bytes.data(),
                                static_cast<int>(bytes.size()), SQLITE_STATIC);
    }
    return *this;
  }
  Statement& Bind(std::int64_t number) {
    if (code_ == SQLITE_OK) code_ = sqlite3_bind_int64(statement_, ++bound_, number);
    return *this;
  }
  // SQLITE_ROW, SQLITE_DONE or an error.
  int Step() { return code_ == SQLITE_OK ? sqlite3_step(statement_) : code_; }

  std::int64_t Number(int column) const { return sqlite3_column_int64(statement_, column); }
  bool IsNull(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
  std::string Bytes(int column) const {
    const void* data = sqlite3_column_blob(statement_, column);
    const int size = sqlite3_column_bytes(statement_, column);
    return data == nullptr
               ? std::string()
               : std::string(static_cast<const char*>(data), static_cast<std::size_t>(size));
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int code_;
  int bound_ = 0;
};

class SqliteWatch final : public StoreWatch {
 public:
  SqliteWatch(SqliteStore* store, std::string prefix, Revision after)
      : store_(store), prefix_(std::move(prefix)), after_(after) {}

  absl::StatusOr<std::vector<StoreEvent>> Poll() override {
    absl::StatusOr<std::vector<StoreEvent>> events = store_->Changes(prefix_, after_);
    if (events.ok() && !events->empty()) after_ = events->back().revision;
    return events;
  }

 private:
  SqliteStore* store_;
  std::string prefix_;
  Revision after_;
};

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const Options& options) {
  sqlite3* db = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  const int code = sqlite3_open_v2(options.path.c_str(), &db, flags, nullptr);
  std::unique_ptr<SqliteStore> store(new SqliteStore(options.path, db));
  if (code != SQLITE_OK) return store->Error(code);
  if (absl::Status prepared = store->Prepare(options); !prepared.ok()) return prepared;
  return store;
}

SqliteStore::~SqliteStore() { sqlite3_close_v2(db_); }

absl::Status SqliteStore::Prepare(const Options& options) {
  sqlite3_extended_result_codes(db_, 1);
  sqlite3_busy_timeout(db_, kBusyTimeoutMs);
  // The lock is taken by the first read and kept until the process ends.
  if (absl::Status ok = Exec("PRAGMA locking_mode=EXCLUSIVE"); !ok.ok()) return ok;
  const absl::StatusOr<std::int64_t> owner = Number("PRAGMA application_id");
  if (!owner.ok()) return owner.status();
  const absl::StatusOr<std::int64_t> version = Number("PRAGMA user_version");
  if (!version.ok()) return version.status();
  const absl::StatusOr<std::int64_t> tables = Number("SELECT count(*) FROM sqlite_schema");
  if (!tables.ok()) return tables.status();
  if (*tables != 0) {
    absl::Status ours = CheckOwner(static_cast<int>(*owner), static_cast<int>(*version));
    if (!ours.ok()) return ours;
  }
  for (const char* pragma : {"PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL"}) {
    if (absl::Status ok = Exec(pragma); !ok.ok()) return ok;
  }
  if (options.max_bytes != 0) {
    const absl::StatusOr<std::int64_t> page = Number("PRAGMA page_size");
    if (!page.ok()) return page.status();
    absl::Status ok = Exec(absl::StrCat("PRAGMA max_page_count=", options.max_bytes / *page));
    if (!ok.ok()) return ok;
  }
  return *tables == 0 ? CreateSchema() : Exec("BEGIN IMMEDIATE; COMMIT");
}

absl::Status SqliteStore::CheckOwner(int application_id, int schema_version) {
  if (application_id != kApplicationId) {
    return absl::FailedPreconditionError(absl::StrCat(
        "state file ", path_, " is a SQLite file of another program; give another --state-file"));
  }
  if (schema_version > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "state file ", path_, " has schema version ", schema_version, "; this program knows up to ",
        kSchemaVersion, "; start the newer engram-placement that wrote it"));
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::CreateSchema() {
  return Exec(absl::StrCat(
      "BEGIN IMMEDIATE;"
      "CREATE TABLE entries(key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL);"
      "CREATE INDEX entries_by_revision ON entries(revision);"
      "CREATE TABLE gone(key TEXT PRIMARY KEY, revision INTEGER NOT NULL);"
      "CREATE TABLE revision(value INTEGER NOT NULL);"
      "INSERT INTO revision VALUES(0);"
      "PRAGMA application_id=",
      kApplicationId, ";PRAGMA user_version=", kSchemaVersion, ";COMMIT"));
}

absl::Status SqliteStore::Error(int code) const {
  const std::string what =
      absl::StrCat("state file ", path_, ": ", db_ == nullptr ? "" : sqlite3_errmsg(db_));
  // SQLite says of it what of a broken disk.
  if (access(path_.c_str(), F_OK) == 0 && access(path_.c_str(), W_OK) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("state file ", path_, " is not writable by this user (uid ", geteuid(),
                     "); run as its owner, or give another --state-file"));
  }
  switch (code & 0xff) {
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(
          absl::StrCat(what, "; nothing was written; free space on its file system"));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(
          absl::StrCat("state file ", path_,
                       " is in use by another process; stop that engram-placement or give another "
                       "--state-file"));
    case SQLITE_NOTADB:
      return absl::FailedPreconditionError(
          absl::StrCat("state file ", path_, " is not a state file; give another --state-file"));
    case SQLITE_CORRUPT:
      return absl::DataLossError(absl::StrCat(what, "; restore it from a backup"));
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return absl::PermissionDeniedError(
          absl::StrCat(what, "; check that its folder exists and is writable"));
    default: return absl::UnavailableError(absl::StrCat(what, "; check its file system"));
  }
}

absl::Status SqliteStore::Exec(const std::string& sql) {
  const int code = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::StatusOr<std::int64_t> SqliteStore::Number(const std::string& sql) {
  Statement statement(db_, sql.c_str());
  const int code = statement.Step();
  if (code == SQLITE_ROW) return statement.Number(0);
  return Error(code);
}

absl::StatusOr<std::optional<StoreEntry>> SqliteStore::Get(const std::string& key) {
  Statement statement(db_, "SELECT value, revision FROM entries WHERE key = ?");
  const int code = statement.Bind(key).Step();
  if (code == SQLITE_DONE) return std::optional<StoreEntry>();
  if (code != SQLITE_ROW) return Error(code);
  return std::optional<StoreEntry>(
      {key, statement.Bytes(0), Revision(static_cast<std::uint64_t>(statement.Number(1)))});
}

absl::StatusOr<StoreListing> SqliteStore::List(const std::string& prefix) {
  StoreListing listing;
  const absl::StatusOr<std::int64_t> revision = Number("SELECT value FROM revision");
  if (!revision.ok()) return revision.status();
  listing.revision = Revision(static_cast<std::uint64_t>(*revision));
  const std::string end = PrefixEnd(prefix);
  Statement statement(db_,
                      "SELECT key, value, revision FROM entries WHERE key >= ?1 AND (?2 = '' OR "
                      "key < ?2) ORDER BY key");
  statement.Bind(prefix).Bind(end);
  int code;
  while ((code = statement.Step()) == SQLITE_ROW) {
    listing.entries.push_back({statement.Bytes(0), statement.Bytes(1),
                               Revision(static_cast<std::uint64_t>(statement.Number(2)))});
  }
  if (code != SQLITE_DONE) return Error(code);
  return listing;
}

absl::Status SqliteStore::CheckCompares(const StoreTxn& txn) {
  for (const Compare& compare : txn.compares) {
    const absl::StatusOr<std::optional<StoreEntry>> entry = Get(compare.key);
    if (!entry.ok()) return entry.status();
    const Revision found = entry->has_value() ? (*entry)->revision : Revision();
    if (found == compare.revision) continue;
    return absl::AbortedError(absl::StrCat("state key ", compare.key, " is at revision ",
                                           found.value(), ", not ", compare.revision.value()));
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::Write(const StoreTxn& txn, Revision revision) {
  const auto number = static_cast<std::int64_t>(revision.value());
  for (const Put& put : txn.puts) {
    Statement insert(
        db_,
        "INSERT INTO entries(key, value, revision) VALUES(?, ?, ?) ON CONFLICT(key) DO "
        "UPDATE SET value = excluded.value, revision = excluded.revision");
    const int code = insert.Bind(put.key).BindBlob(put.value).Bind(number).Step();
    if (code != SQLITE_DONE) return Error(code);
    Statement back(db_, "DELETE FROM gone WHERE key = ?");
    if (const int done = back.Bind(put.key).Step(); done != SQLITE_DONE) return Error(done);
  }
  for (const std::string& key : txn.deletes) {
    Statement remove(db_, "DELETE FROM entries WHERE key = ?");
    if (const int done = remove.Bind(key).Step(); done != SQLITE_DONE) return Error(done);
    if (sqlite3_changes(db_) == 0) continue;
    Statement gone(db_, "INSERT OR REPLACE INTO gone(key, revision) VALUES(?, ?)");
    if (const int done = gone.Bind(key).Bind(number).Step(); done != SQLITE_DONE) {
      return Error(done);
    }
  }
  Statement forget(db_, "DELETE FROM gone WHERE revision <= ?");
  if (const int done = forget.Bind(number - kRememberedRevisions).Step(); done != SQLITE_DONE) {
    return Error(done);
  }
  Statement advance(db_, "UPDATE revision SET value = ?");
  const int code = advance.Bind(number).Step();
  return code == SQLITE_DONE ? absl::OkStatus() : Error(code);
}

absl::StatusOr<Revision> SqliteStore::Txn(const StoreTxn& txn) {
  if (absl::Status valid = ValidateTxn(txn); !valid.ok()) return valid;
  if (absl::Status begun = Exec("BEGIN IMMEDIATE"); !begun.ok()) return begun;
  const absl::StatusOr<std::int64_t> current = Number("SELECT value FROM revision");
  absl::Status status = current.ok() ? CheckCompares(txn) : current.status();
  Revision next;
  if (status.ok()) {
    next = Revision(static_cast<std::uint64_t>(*current) + 1);
    status = Write(txn, next);
  }
  if (status.ok()) status = Exec("COMMIT");
  if (status.ok()) return next;
  // A full disk may have ended the transaction already; then there is nothing to roll back.
  if (sqlite3_get_autocommit(db_) == 0) (void)Exec("ROLLBACK");
  return status;
}

absl::StatusOr<std::unique_ptr<StoreWatch>> SqliteStore::Watch(const std::string& prefix,
                                                               Revision after) {
  return std::make_unique<SqliteWatch>(this, prefix, after);
}

absl::StatusOr<std::vector<StoreEvent>> SqliteStore::Changes(const std::string& prefix,
                                                             Revision after) {
  const absl::StatusOr<std::int64_t> current = Number("SELECT value FROM revision");
  if (!current.ok()) return current.status();
  const auto from = static_cast<std::int64_t>(after.value());
  if (from < *current - kRememberedRevisions) {
    return absl::OutOfRangeError(absl::StrCat("state revision ", from, " is older than the last ",
                                              kRememberedRevisions, "; list again"));
  }
  Statement statement(db_,
                      "SELECT key, value, revision FROM entries WHERE revision > ?1 UNION ALL "
                      "SELECT key, NULL, revision FROM gone WHERE revision > ?1 ORDER BY 3, 1");
  statement.Bind(from);
  std::vector<StoreEvent> events;
  int code;
  while ((code = statement.Step()) == SQLITE_ROW) {
    StoreEvent event{statement.Bytes(0), std::nullopt,
                     Revision(static_cast<std::uint64_t>(statement.Number(2)))};
    if (event.key.compare(0, prefix.size(), prefix) != 0) continue;
    if (!statement.IsNull(1)) event.value = statement.Bytes(1);
    events.push_back(std::move(event));
  }
  if (code != SQLITE_DONE) return Error(code);
  return events;
}

}  // namespace engram::placement
