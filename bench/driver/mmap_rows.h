// The baseline of the published NVMe experiment: packed rows in one file, mapped, read by one
// thread that takes a page fault for each cold row. Thread-confined: call from the owner thread
// only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/driver/measure.h"
#include "bench/driver/paths.h"

namespace engram::bench {

class MmapRows final : public ReadPath {
 public:
  // Writes the file, the rows of `shape` without gaps, and removes it at the end.
  static absl::StatusOr<std::unique_ptr<MmapRows>> Create(const std::string& path,
                                                          const TableShape& shape);
  ~MmapRows() override;
  const std::string& name() const override { return name_; }
  absl::Status Read(std::span<const Batch> batches) override;
  // Nothing of the file is in memory any more.
  void Drop();

 private:
  MmapRows(std::string path, const TableShape& shape) : path_(std::move(path)), shape_(shape) {}
  absl::Status Write();

  const std::string path_;
  const TableShape shape_;
  const std::string name_ = "mmap_cold";
  int fd_ = -1;
  std::byte* data_ = nullptr;
};

}  // namespace engram::bench
