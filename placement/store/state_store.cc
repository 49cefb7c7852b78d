#include "placement/store/state_store.h"

#include <set>

#include "absl/strings/str_cat.h"

namespace engram::placement {
namespace {

absl::Status ValidateKey(const std::string& key) {
  if (!key.empty() && key.size() <= kMaxKeyBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a state key has ", key.size(), " bytes; it needs 1 to ", kMaxKeyBytes));
}

}  // namespace

absl::Status ValidateTxn(const StoreTxn& txn) {
  const std::size_t writes = txn.puts.size() + txn.deletes.size();
  if (writes > kMaxTxnWrites) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a state transaction has ", writes, " writes; the limit is ", kMaxTxnWrites, "; split it"));
  }
  std::set<std::string_view> written;
  for (const Put& put : txn.puts) {
    if (absl::Status ok = ValidateKey(put.key); !ok.ok()) return ok;
    if (put.value.size() > kMaxValueBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the value of state key ", put.key, " has ",
                                                     put.value.size(), " bytes; the limit is ",
                                                     kMaxValueBytes, "; store it in pieces"));
    }
    if (!written.insert(put.key).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("a state transaction writes key ", put.key, " twice"));
    }
  }
  for (const std::string& key : txn.deletes) {
    if (absl::Status ok = ValidateKey(key); !ok.ok()) return ok;
    if (!written.insert(key).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("a state transaction writes key ", key, " twice"));
    }
  }
  return absl::OkStatus();
}

std::string PrefixEnd(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 0xff) prefix.pop_back();
  if (!prefix.empty()) ++prefix.back();
  return prefix;
}

}  // namespace engram::placement
