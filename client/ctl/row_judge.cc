#include "client/ctl/row_judge.h"

#include "absl/strings/str_cat.h"
#include "client/ctl/outcome.h"
#include "engram/checkpoint/checkpoint_source.h"
#include "engram/synthetic.h"

namespace engram::ctl {
namespace {

class SyntheticJudge final : public RowJudge {
 public:
  SyntheticJudge(std::uint64_t seed, std::uint32_t row_bytes)
      : seed_(seed), row_bytes_(row_bytes) {}

  absl::Status Expected(RowId first, std::span<std::byte> out) const override {
    for (std::size_t at = 0; at < out.size(); at += row_bytes_) {
      FillSyntheticRow(seed_, RowId(first.value() + at / row_bytes_), out.subspan(at, row_bytes_));
    }
    return absl::OkStatus();
  }
  std::string Name() const override { return absl::StrCat("the synthetic function, seed ", seed_); }

 private:
  std::uint64_t seed_;
  std::uint32_t row_bytes_;
};

class CheckpointJudge final : public RowJudge {
 public:
  CheckpointJudge(std::unique_ptr<CheckpointSource> source, std::string directory)
      : source_(std::move(source)), directory_(std::move(directory)) {}

  absl::Status Expected(RowId first, std::span<std::byte> out) const override {
    return source_->ReadRows(first, out);
  }
  std::string Name() const override { return "the files in " + directory_; }

 private:
  std::unique_ptr<CheckpointSource> source_;
  std::string directory_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowJudge>> RowJudge::Open(const TableRecord& table,
                                                         const std::string& checkpoint_dir) {
  if (table.source.kind == TableSource::Kind::kSynthetic && checkpoint_dir.empty()) {
    return std::make_unique<SyntheticJudge>(table.source.seed, table.spec.RowBytes());
  }
  const std::string directory =
      checkpoint_dir.empty() ? table.source.checkpoint_dir : checkpoint_dir;
  auto source = CheckpointSource::Open(directory, table.source.name_map_json);
  if (!source.ok()) {
    return checkpoint_dir.empty()
               ? Annotated(source.status(),
                           "the checkpoint that the table came from (name another "
                           "place with --checkpoint)")
               : source.status();
  }
  const std::string digest = (*source)->spec().Digest();
  if (digest != table.spec_digest) {
    return absl::FailedPreconditionError(
        absl::StrCat("the checkpoint in ", directory, " is another table: its spec digest is ",
                     digest, ", that of ", table.name.Full(), " is ", table.spec_digest));
  }
  return std::make_unique<CheckpointJudge>(*std::move(source), directory);
}

}  // namespace engram::ctl
