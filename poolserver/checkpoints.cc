#include "poolserver/checkpoints.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace engram::poolserver {
namespace {

// Each holds a token map of half a megabyte.
constexpr std::size_t kMaxOpened = 4;

// Equal only while nothing was written, replaced, added or removed. Empty: it cannot be listed.
std::string FilesOf(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> files;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    struct stat info {};
    if (stat(at->path().c_str(), &info) != 0) continue;
    files.push_back(absl::StrCat(at->path().filename().string(), "|", info.st_dev, "|", info.st_ino,
                                 "|", info.st_size, "|", info.st_mtim.tv_sec, "|",
                                 info.st_mtim.tv_nsec, "|", info.st_ctim.tv_sec, "|",
                                 info.st_ctim.tv_nsec));
  }
  if (error) return "";
  std::sort(files.begin(), files.end());
  return absl::StrJoin(files, "\n");
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CheckpointSource>> Checkpoints::Open(
    const std::string& directory, const std::string& name_map_json) {
  // Listed before it is opened: what changes meanwhile makes the next use open it again.
  Opened wanted{directory, name_map_json, FilesOf(directory), nullptr};
  if (auto known = Find(wanted); known != nullptr) return known;
  auto source = CheckpointSource::Open(directory, name_map_json);
  if (!source.ok()) return source.status();
  wanted.source = *std::move(source);
  std::shared_ptr<const CheckpointSource> out = wanted.source;
  MutexLock lock(&mutex_);
  opened_.push_front(std::move(wanted));
  if (opened_.size() > kMaxOpened) opened_.pop_back();
  return out;
}

std::shared_ptr<const CheckpointSource> Checkpoints::Find(const Opened& wanted) {
  if (wanted.files.empty()) return nullptr;
  MutexLock lock(&mutex_);
  const auto same_place = [&](const Opened& one) {
    return one.directory == wanted.directory && one.name_map_json == wanted.name_map_json;
  };
  std::erase_if(opened_,
                [&](const Opened& one) { return same_place(one) && one.files != wanted.files; });
  const auto found = std::find_if(opened_.begin(), opened_.end(), same_place);
  if (found == opened_.end()) return nullptr;
  std::rotate(opened_.begin(), found, found + 1);
  return opened_.front().source;
}

}  // namespace engram::poolserver
