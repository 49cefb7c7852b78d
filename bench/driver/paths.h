// One way to read rows, so that a floor and the product run the same batches in the same rounds.
//
// A ReadPath reads batches of rows of the bench's table: `rows` rows of `row_bytes`, each filled by
// the synthetic function of the table's seed. Thread-confined: call from the owner thread only.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/ids.h"

namespace engram::bench {

struct Batch {
  std::span<const RowId> ids;
  std::byte* out = nullptr;  // ids.size() packed rows
};

class ReadPath {
 public:
  virtual ~ReadPath() = default;
  virtual const std::string& name() const = 0;
  // Reads all batches, with up to the path's number of batches outstanding, and returns when the
  // last has landed.
  virtual absl::Status Read(std::span<const Batch> batches) = 0;
};

// A table in this process's memory on huge pages, shared with children that fork after it was made.
class BenchTable {
 public:
  // Fills rows x stride bytes (stride >= row_bytes) on huge pages where there are any.
  static absl::StatusOr<std::unique_ptr<BenchTable>> Create(std::uint64_t rows,
                                                            std::uint32_t row_bytes,
                                                            std::uint32_t stride,
                                                            std::uint64_t seed);
  ~BenchTable();
  BenchTable(const BenchTable&) = delete;
  BenchTable& operator=(const BenchTable&) = delete;

  const std::byte* row(RowId id) const { return data_ + id.value() * stride_; }
  std::byte* data() { return data_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t rows() const { return rows_; }
  std::uint32_t row_bytes() const { return row_bytes_; }
  std::uint32_t stride() const { return stride_; }
  std::uint64_t seed() const { return seed_; }

 private:
  BenchTable() = default;
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0, rows_ = 0, seed_ = 0;
  std::uint32_t row_bytes_ = 0, stride_ = 0;
};

// ---- floors: the least that each transport can cost, as simple as possible ----

// The gather of one's own memory: prefetch 8 rows ahead, 32-byte copies (FABRIC 1e).
std::unique_ptr<ReadPath> RawGather(const BenchTable& table);

enum class SocketKind : std::uint8_t { kTcp, kUnix };
// A forked server that gathers, one message out with 8-byte row numbers, one back with the rows;
// both ends spin 50 us, then block.
absl::StatusOr<std::unique_ptr<ReadPath>> RawSocket(const BenchTable& table, SocketKind kind,
                                                    std::uint32_t outstanding);

// A bare fi_read loop over a libfabric provider: one read a row of `segments` local parts, against
// a forked target that waits in fi_cq_sread. Unavailable names the provider.
absl::StatusOr<std::unique_ptr<ReadPath>> BareFiRead(BenchTable& table, const std::string& provider,
                                                     std::uint32_t segments,
                                                     std::uint32_t outstanding);

// The target of a bare ucp_get loop: a forked process that only makes progress. UCX does not
// survive a fork: fork before this process uses it.
struct UcpTarget {
  // Unavailable: UCX is not there, or cannot use the transports.
  static absl::StatusOr<std::shared_ptr<const UcpTarget>> Fork(BenchTable& table,
                                                               const std::string& transports);
  UcpTarget() = default;
  ~UcpTarget();
  UcpTarget(const UcpTarget&) = delete;
  UcpTarget& operator=(const UcpTarget&) = delete;

  pid_t server = -1;
  std::string transports;               // as UCX_TLS
  std::vector<std::byte> address, key;  // of its worker and of the table
  std::uint64_t base = 0;
  std::uint32_t stride = 0, row_bytes = 0;
};
// One ucp_get a row; where no NIC serves gets UCX emulates them.
absl::StatusOr<std::unique_ptr<ReadPath>> BareUcpGet(std::shared_ptr<const UcpTarget> target,
                                                     std::uint32_t outstanding);

}  // namespace engram::bench
