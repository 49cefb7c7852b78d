// The settings of a pool node's nvme tier and what they mean. Free functions: Thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engram/settings/settings.h"
#include "poolserver/nvme/nvme_store.h"

namespace engram::poolserver {

std::vector<Setting> NvmeSettings();

// Nothing: the node has no nvme tier. InvalidArgument: a directory without a size, or the reverse.
absl::StatusOr<std::optional<nvme::NvmeStore::Options>> NvmeTierFrom(const Settings& settings);

}  // namespace engram::poolserver
