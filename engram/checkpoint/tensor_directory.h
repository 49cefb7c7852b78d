// The safetensors files of one checkpoint directory, found by tensor name whatever prefix the model
// writes. Reads only headers, each once. Thread-confined: call from the owner thread only.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engram/checkpoint/safetensors.h"

namespace engram {

class TensorDirectory {
 public:
  // Reads the index, or else takes the one model.safetensors. `name_map_json` as in
  // CheckpointSource::Open.
  static absl::StatusOr<TensorDirectory> Open(const std::string& directory,
                                              const std::string& name_map_json);

  struct Found {
    std::string path;
    std::string name;  // as the file writes it
    Tensor tensor;
  };
  // InvalidArgument or NotFound says what is missing, where it was looked for, and what is near.
  absl::StatusOr<Found> Find(const std::string& wanted);

  // InvalidArgument when the name map renames a tensor that nobody asked Find for.
  absl::Status CheckNameMapUsed() const;

 private:
  absl::StatusOr<std::string> Resolve(const std::string& wanted) const;

  std::string directory_;
  std::string listing_;                         // the file that lists the tensors
  std::map<std::string, std::string> files_;    // tensor -> file name
  std::map<std::string, std::string> renamed_;  // wanted -> name in the files
  std::map<std::string, bool> asked_;           // every name that Find was given
  std::map<std::string, Tensors> headers_;      // file name -> header
};

}  // namespace engram
