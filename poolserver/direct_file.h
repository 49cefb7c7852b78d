// A file of rows that is read once and in large pieces: O_DIRECT where the file system has it, so
// that loading does not push other memory out of the page cache. Reads from any thread:
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace engram::poolserver {

// Page-aligned scratch of one reader; grows on demand. Thread-compatible.
class ReadBuffer {
 public:
  ReadBuffer() = default;
  ReadBuffer(const ReadBuffer&) = delete;
  ReadBuffer& operator=(const ReadBuffer&) = delete;
  ~ReadBuffer();
  std::byte* Ensure(std::size_t bytes);

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

class DirectFile {
 public:
  // NotFound, PermissionDenied, ... name the path and what the kernel said.
  static absl::StatusOr<std::unique_ptr<DirectFile>> Open(const std::string& path);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  // Bytes [offset, offset + bytes) of the file, inside `buffer`; valid until its next use.
  // DataLoss: the file ends before that, or the device failed; names file, offset and bytes.
  absl::StatusOr<const std::byte*> Read(std::uint64_t offset, std::uint64_t bytes,
                                        ReadBuffer* buffer) const;
  const std::string& path() const { return path_; }
  bool direct() const { return direct_; }

 private:
  DirectFile(std::string path, int fd, bool direct)
      : path_(std::move(path)), fd_(fd), direct_(direct) {}
  std::string path_;
  int fd_;
  bool direct_;
};

}  // namespace engram::poolserver
