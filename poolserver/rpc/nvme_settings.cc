#include "poolserver/rpc/nvme_settings.h"

#include "absl/strings/str_cat.h"
#include "engram/settings/units.h"

namespace engram::poolserver {

std::vector<Setting> NvmeSettings() {
  return {
      Setting::Text("nvme_dir", "",
                    "Directory of the nvme tier, one for each node, on the device that holds it; "
                    "empty: this node has none."),
      Setting::Size("nvme", "0", "Room of the nvme tier in --nvme-dir.", "0", "1024TiB"),
      Setting::Size("nvme_cache", "64MiB",
                    "Memory for rows of the nvme tier that were read lately; 0: none.", "0",
                    "64TiB"),
      Setting::Integer("nvme_depth", "128", "Reads of the nvme tier that are in flight at most.",
                       "1", "4096"),
      Setting::Size("nvme_read_rate", "0",
                    "Bytes of rows per second that readers can have of the nvme tier together, for "
                    "placement; 0: as measured when the node starts.",
                    "0", "64TiB"),
  };
}

absl::StatusOr<std::optional<nvme::NvmeStore::Options>> NvmeTierFrom(const Settings& settings) {
  nvme::NvmeStore::Options options;
  options.owner = NodeId{settings.Text("node_id")};
  options.directory = settings.Text("nvme_dir");
  options.capacity_bytes = settings.Size("nvme");
  options.cache_bytes = settings.Size("nvme_cache");
  options.depth = static_cast<std::uint32_t>(settings.Integer("nvme_depth"));
  options.read_bytes_per_second = settings.Size("nvme_read_rate");
  options.measure = options.read_bytes_per_second == 0;
  if (options.directory.empty() && options.capacity_bytes == 0) return std::nullopt;
  if (options.directory.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--nvme ", FormatSize(options.capacity_bytes),
                     " says how much, not where: give --nvme-dir, on the device"));
  }
  if (options.capacity_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--nvme-dir ", options.directory, " says where, not how much: give --nvme"));
  }
  return options;
}

}  // namespace engram::poolserver
