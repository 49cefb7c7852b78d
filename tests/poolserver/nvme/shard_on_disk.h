// A small table whose rows are known, and a directory on the build folder's disk, for the tests of
// the NVMe tier. Thread-compatible.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "checkout.h"
#include "engram/shard_layout.h"
#include "engram/synthetic.h"
#include "engram/table_spec.h"
#include "poolserver/nvme/nvme_store.h"
#include "poolserver/row_packer.h"

namespace engram::poolserver::nvme {

// Not under /tmp, which may be memory.
class DiskFolder {
 public:
  DiskFolder() {
    std::string name = std::string(ENGRAM_BINARY_DIR) + "/nvme-test-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "cannot make " << name;
    path_ = name;
  }
  ~DiskFolder() { std::filesystem::remove_all(path_); }
  DiskFolder(const DiskFolder&) = delete;
  DiskFolder& operator=(const DiskFolder&) = delete;
  const std::string& path() const { return path_; }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

// Rows of `row_bytes` in columns of `rows`: one shard a column while that fits a shard.
inline TableRecord SmallTable(std::uint64_t rows, std::uint32_t row_bytes = 264,
                              std::uint32_t columns = 1) {
  TableRecord table;
  table.uid.bytes.fill(7);
  table.name = {"small", "1"};
  for (std::uint32_t i = 0; i < columns; ++i) table.spec.columns.push_back({0, 2, i, rows});
  table.spec.planes = {{"bytes", DType::kBytes, row_bytes}};
  table.spec_digest = table.spec.Digest();
  return table;
}

// The rows of one shard as they are stored, and their block checksums.
struct StoredShard {
  StoredShard(const TableRecord& table, ShardIndex shard, std::uint64_t seed = 5)
      : layout(table.spec, table.options), range(layout.Range(shard)) {
    bytes.resize(range.rows * layout.stride());
    crcs.resize((range.rows + kBlockRows - 1) / kBlockRows);
    for (std::uint64_t row = 0; row < range.rows; ++row) {
      FillSyntheticRow(seed, RowId(range.first.value() + row),
                       {bytes.data() + row * layout.stride(), layout.row_bytes()});
    }
    RowPacker(table).Seal({range.first, range.rows, bytes.data(), crcs.data()});
  }
  const std::byte* row(std::uint64_t slot) const { return bytes.data() + slot * layout.stride(); }

  ShardLayout layout;
  ShardRange range;
  std::vector<std::byte> bytes;
  std::vector<std::uint32_t> crcs;
};

inline absl::Status ReserveShards(NvmeStore& store, const TableRecord& table,
                                  const std::vector<ShardIndex>& shards) {
  const ShardLayout layout(table.spec, table.options);
  std::vector<NvmeStore::Wanted> wanted;
  for (const ShardIndex shard : shards) wanted.push_back({shard, layout.Range(shard).rows});
  return store.Reserve({table.uid, table.name.Full(), layout.stride(), table.spec_digest}, wanted);
}

// Writes a whole shard in uneven pieces and commits it.
inline absl::Status Put(NvmeStore& store, const ShardKey& key, const StoredShard& shard) {
  const std::uint64_t cuts[] = {0, 256, 1024, shard.range.rows};
  for (std::size_t i = 3; i > 0; --i) {
    const std::uint64_t first = std::min(cuts[i - 1], shard.range.rows);
    const std::uint64_t rows = std::min(cuts[i], shard.range.rows) - first;
    if (rows == 0) continue;
    if (absl::Status ok = store.Write(key, first, rows, shard.row(first)); !ok.ok()) return ok;
  }
  return store.Commit(key, shard.crcs);
}

struct GatheredRow {
  std::vector<std::byte> bytes;
  ReadStatus status = ReadStatus::kOk;
};

// Reads ranges of `bytes` at `offsets` through the source, as the gather does: in two pieces, the
// seal apart.
inline std::vector<GatheredRow> Gather(fabric::stream::RowSource& source,
                                       const std::vector<std::uint64_t>& offsets,
                                       std::uint32_t bytes) {
  std::vector<GatheredRow> rows(offsets.size());
  std::vector<fabric::stream::RowWanted> wanted(offsets.size());
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    rows[i].bytes.resize(bytes);
    wanted[i].offset = offsets[i];
    wanted[i].to[0] = rows[i].bytes.data();
    wanted[i].to[1] = rows[i].bytes.data() + bytes - 8;
    wanted[i].status = &rows[i].status;
  }
  std::promise<void> done;
  source.Start({2, {bytes - 8, 8}}, wanted, [&] { done.set_value(); });
  EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  return rows;
}

}  // namespace engram::poolserver::nvme
