#include "poolserver/load_source.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engram/checkpoint/checkpoint_source.h"
#include "engram/synthetic.h"

namespace engram::poolserver {
namespace {

std::uint64_t TotalRows(std::span<const RowRun> runs) {
  std::uint64_t rows = 0;
  for (const RowRun& run : runs) rows += run.rows;
  return rows;
}

class CheckpointRows final : public LoadSource {
 public:
  static absl::StatusOr<std::unique_ptr<LoadSource>> Open(const TableRecord& table,
                                                          Checkpoints* checkpoints) {
    auto checkpoint = checkpoints->Open(table.source.checkpoint_dir, table.source.name_map_json);
    if (!checkpoint.ok()) return checkpoint.status();
    if ((*checkpoint)->spec() != table.spec) {
      return absl::FailedPreconditionError(
          absl::StrCat("checkpoint ", table.source.checkpoint_dir, " holds a table of digest ",
                       (*checkpoint)->spec().Digest(), ", but ", table.name.Full(), " has digest ",
                       table.spec_digest,
                       "; the directory has changed, or differs from what another node sees"));
    }
    std::unique_ptr<CheckpointRows> out(new CheckpointRows(table, *std::move(checkpoint)));
    if (absl::Status opened = out->OpenFiles(); !opened.ok()) return opened;
    return out;
  }

  absl::Status Fill(std::span<const RowRun> runs, Scratch* scratch) const override {
    const std::uint64_t rows = TotalRows(runs);
    const std::size_t planes = spec_.planes.size();
    if (scratch->size() < planes) scratch->resize(planes);
    std::vector<const std::byte*> at(planes);
    for (std::uint32_t plane = 0; plane < planes; ++plane) {
      const std::vector<Extent> extents = checkpoint_->Extents(plane, runs.front().first, rows);
      if (extents.size() != 1) return absl::InternalError("a stripe of rows spans layers");
      auto bytes =
          files_.at(extents[0].path)->Read(extents[0].offset, extents[0].bytes, &(*scratch)[plane]);
      if (!bytes.ok()) return bytes.status();
      at[plane] = *bytes;
    }
    for (const RowRun& run : runs) {
      packer_.Pack(at, run);
      for (std::uint32_t plane = 0; plane < planes; ++plane) {
        at[plane] += run.rows * spec_.planes[plane].bytes;
      }
    }
    return absl::OkStatus();
  }

 private:
  CheckpointRows(const TableRecord& table, std::shared_ptr<const CheckpointSource> checkpoint)
      : spec_(table.spec), packer_(table), checkpoint_(std::move(checkpoint)) {}

  absl::Status OpenFiles() {
    for (std::uint32_t plane = 0; plane < spec_.planes.size(); ++plane) {
      for (const Extent& extent : checkpoint_->Extents(plane, RowId(0), spec_.Rows())) {
        if (files_.count(extent.path) != 0) continue;
        auto file = DirectFile::Open(extent.path);
        if (!file.ok()) return file.status();
        files_[extent.path] = *std::move(file);
      }
    }
    return absl::OkStatus();
  }

  const TableSpec spec_;
  const RowPacker packer_;
  const std::shared_ptr<const CheckpointSource> checkpoint_;
  std::map<std::string, std::unique_ptr<DirectFile>> files_;
};

class SyntheticRows final : public LoadSource {
 public:
  explicit SyntheticRows(const TableRecord& table)
      : seed_(table.source.seed), row_bytes_(table.spec.RowBytes()), packer_(table) {}

  absl::Status Fill(std::span<const RowRun> runs, Scratch*) const override {
    for (const RowRun& run : runs) {
      for (std::uint64_t row = 0; row < run.rows; ++row) {
        FillSyntheticRow(seed_, RowId(run.first.value() + row),
                         {run.out + row * packer_.stride(), row_bytes_});
      }
      packer_.Seal(run);
    }
    return absl::OkStatus();
  }

 private:
  const std::uint64_t seed_;
  const std::uint32_t row_bytes_;
  const RowPacker packer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadSource>> LoadSource::Open(const TableRecord& table,
                                                             Checkpoints* checkpoints) {
  if (table.source.kind == TableSource::Kind::kCheckpoint) {
    return CheckpointRows::Open(table, checkpoints);
  }
  return std::make_unique<SyntheticRows>(table);
}

absl::StatusOr<Inspection> LoadSource::Inspect(const TableName& table, const TableSource& source,
                                               Checkpoints* checkpoints) {
  if (source.kind == TableSource::Kind::kCheckpoint) {
    auto checkpoint = checkpoints->Open(source.checkpoint_dir, source.name_map_json);
    if (!checkpoint.ok()) return checkpoint.status();
    return (*checkpoint)->inspection();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("table ", table.Full(),
                   " is synthetic: its geometry comes with the request, no node can look it up"));
}

}  // namespace engram::poolserver
