#include "placement/store/memory_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace engram::placement {

class MemoryWatch final : public StoreWatch {
 public:
  MemoryWatch(MemoryStore* store, std::string prefix, Revision after)
      : store_(store), prefix_(std::move(prefix)), after_(after) {}

  absl::StatusOr<std::vector<StoreEvent>> Poll() override {
    std::vector<StoreEvent> events;
    for (auto it = store_->cells_.lower_bound(prefix_); it != store_->cells_.end(); ++it) {
      if (it->first.compare(0, prefix_.size(), prefix_) != 0) break;
      if (it->second.revision > after_) {
        events.push_back({it->first, it->second.value, it->second.revision});
      }
    }
    std::stable_sort(events.begin(), events.end(),
                     [](const auto& a, const auto& b) { return a.revision < b.revision; });
    after_ = store_->revision_;
    return events;
  }

 private:
  MemoryStore* store_;
  std::string prefix_;
  Revision after_;
};

Revision MemoryStore::RevisionOf(const std::string& key) const {
  const auto it = cells_.find(key);
  return it == cells_.end() || !it->second.value ? Revision() : it->second.revision;
}

absl::StatusOr<std::optional<StoreEntry>> MemoryStore::Get(const std::string& key) {
  const auto it = cells_.find(key);
  if (it == cells_.end() || !it->second.value) return std::optional<StoreEntry>();
  return std::optional<StoreEntry>({key, *it->second.value, it->second.revision});
}

absl::StatusOr<StoreListing> MemoryStore::List(const std::string& prefix) {
  StoreListing listing;
  listing.revision = revision_;
  for (auto it = cells_.lower_bound(prefix); it != cells_.end(); ++it) {
    if (it->first.compare(0, prefix.size(), prefix) != 0) break;
    if (it->second.value) {
      listing.entries.push_back({it->first, *it->second.value, it->second.revision});
    }
  }
  return listing;
}

absl::StatusOr<Revision> MemoryStore::Txn(const StoreTxn& txn) {
  if (absl::Status valid = ValidateTxn(txn); !valid.ok()) return valid;
  if (!failure_.ok()) return failure_;
  for (const Compare& compare : txn.compares) {
    const Revision found = RevisionOf(compare.key);
    if (found == compare.revision) continue;
    return absl::AbortedError(absl::StrCat("state key ", compare.key, " is at revision ",
                                           found.value(), ", not ", compare.revision.value()));
  }
  revision_ = Revision(revision_.value() + 1);
  for (const Put& put : txn.puts) cells_[put.key] = {put.value, revision_};
  for (const std::string& key : txn.deletes) {
    const auto it = cells_.find(key);
    if (it != cells_.end() && it->second.value) it->second = {std::nullopt, revision_};
  }
  return revision_;
}

absl::StatusOr<std::unique_ptr<StoreWatch>> MemoryStore::Watch(const std::string& prefix,
                                                               Revision after) {
  return std::make_unique<MemoryWatch>(this, prefix, after);
}

}  // namespace engram::placement
