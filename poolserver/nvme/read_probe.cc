#include "poolserver/nvme/read_probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <utility>
#include <vector>

#include "engram/random.h"
#include "poolserver/nvme/row_file.h"

namespace engram::poolserver::nvme {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::uint64_t kProbeFileBytes = std::uint64_t{16} << 20;
constexpr std::uint32_t kProbeStride = 272;
constexpr std::size_t kProbeBlocks = 1024;  // of one batch
constexpr auto kProbeTime = std::chrono::milliseconds(100);

class ProbeBatch final : public BlockBatch {
 public:
  void Landed(std::size_t, const std::byte* bytes) override { failed_ += bytes == nullptr; }
  void Ended() override {
    ended_.store(true);
    ended_.notify_one();
  }
  absl::Status Await() {
    ended_.wait(false);
    return failed_ == 0 ? absl::OkStatus() : absl::DataLossError("a block could not be read");
  }

 private:
  std::uint64_t failed_ = 0;
  std::atomic<bool> ended_ = false;
};

RowFileHeader ProbeHeader() {
  RowFileHeader header;
  header.stride = kProbeStride;
  header.block_bytes = RowFileLayout(kProbeStride, 1).block_bytes();
  header.rows = kProbeFileBytes / kProbeStride;
  header.file_id = 1;
  header.spec_digest = std::string(kSpecDigestBytes, '0');
  return header;
}

absl::Status WriteProbe(Disk* disk, const std::string& path, const RowFileHeader& header) {
  auto writer = RowFileWriter::Create(disk, path, header);
  if (!writer.ok()) return writer.status();
  const std::vector<std::byte> rows(header.rows * header.stride);
  if (absl::Status ok = (*writer)->Write(0, header.rows, rows.data()); !ok.ok()) return ok;
  return (*writer)->Commit(
      std::vector<std::uint32_t>(RowFileLayout(header.stride, header.rows).checksums()));
}

absl::StatusOr<std::uint64_t> ReadProbe(Disk* disk, Ring* ring, const std::string& path,
                                        const RowFileHeader& header) {
  auto opened = RowFile::Open(disk, path, header);
  if (!opened.ok()) return opened.status();
  const std::shared_ptr<RowFile> file = *std::move(opened);
  std::vector<std::uint32_t> blocks(file->layout().data_blocks());
  std::iota(blocks.begin(), blocks.end(), 1);
  SeededRandom random(1);
  for (std::size_t i = blocks.size(); i > 1; --i) std::swap(blocks[i - 1], blocks[random.Below(i)]);
  const auto start = Steady::now();
  std::size_t read = 0;
  while (read < blocks.size() && Steady::now() - start < kProbeTime) {
    const std::size_t count = std::min(kProbeBlocks, blocks.size() - read);
    const auto from = blocks.begin() + static_cast<std::ptrdiff_t>(read);
    ProbeBatch batch;
    batch.file = file;
    batch.blocks.assign(from, from + static_cast<std::ptrdiff_t>(count));
    ring->Read(&batch);
    if (absl::Status landed = batch.Await(); !landed.ok()) return landed;
    read += count;
  }
  const double seconds = std::chrono::duration<double>(Steady::now() - start).count();
  return static_cast<std::uint64_t>(static_cast<double>(read) / seconds * kProbeStride);
}

}  // namespace

absl::StatusOr<std::uint64_t> MeasureRowReads(Disk* disk, Ring* ring,
                                              const std::string& directory) {
  const std::string path = directory + "/PROBE.rows";
  const auto remove = [&] {
    disk->Remove(path + kPartialSuffix);  // of a node that was killed meanwhile
    disk->Remove(path);
  };
  remove();
  const RowFileHeader header = ProbeHeader();
  const absl::Status written = WriteProbe(disk, path, header);
  const auto rate =
      written.ok() ? ReadProbe(disk, ring, path, header) : absl::StatusOr<std::uint64_t>(written);
  remove();
  return rate;
}

}  // namespace engram::poolserver::nvme
