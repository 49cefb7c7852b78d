// The checkpoint directories that a node opened lately. Opening one reads and compresses a
// tokenizer, which takes longer than loading a small table: the look before a table is made and the
// loads that follow share one opening, for as long as no file of the directory changed.
// Thread-safe.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engram/checkpoint/checkpoint_source.h"
#include "engram/mutex.h"

namespace engram::poolserver {

class Checkpoints {
 public:
  // As CheckpointSource::Open.
  absl::StatusOr<std::shared_ptr<const CheckpointSource>> Open(const std::string& directory,
                                                               const std::string& name_map_json);

 private:
  struct Opened {
    std::string directory;
    std::string name_map_json;
    std::string files;  // what the directory held then: names, sizes, times
    std::shared_ptr<const CheckpointSource> source;
  };
  std::shared_ptr<const CheckpointSource> Find(const Opened& wanted);

  Mutex mutex_;
  std::deque<Opened> opened_ ABSL_GUARDED_BY(mutex_);  // the last used comes first
};

}  // namespace engram::poolserver
