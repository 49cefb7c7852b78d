// One request being answered: pins its regions, gathers slice by slice into its reply buffer, and
// holds the reply until it is sent. Thread-confined: call from the owner thread only (its poller);
// only the completions of asynchronous sources come from elsewhere.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "fabric/stream/format.h"
#include "fabric/stream/grants.h"

namespace engram::fabric::stream {

class Gather {
 public:
  // Takes the request over; the view may go afterwards. Keeps its buffers from one use to the next.
  void Begin(const RequestView& request);

  // Gathers the next `rows` rows. Returns true when they are done; false when an asynchronous
  // source works on some: then `resume` is called once, from any thread, and the owner goes on with
  // Advance. The first slice pins.
  bool Advance(Grants* grants, const Grants::Session& session, std::uint32_t rows,
               const std::function<void()>& resume);
  bool Done() const { return next_row_ == rows_; }
  // Unpins and writes the reply's header. REQUIRES: Done() and no source works.
  void Finish(Grants* grants);
  // Unpins without a reply. REQUIRES: no source works.
  void Drop(Grants* grants);

  // The finished reply. Valid until the next Begin.
  std::span<const std::byte> reply() const { return reply_; }
  std::uint32_t rows() const { return rows_; }

 private:
  std::byte* Payload() const;
  // Fills from_ for rows [first, first + count); rows of other sources go to wanted_.
  void Resolve(std::uint32_t first, std::uint32_t count);
  bool StartSources(const std::function<void()>& resume);

  struct OtherRow {
    RowSource* source = nullptr;
    RowWanted wanted;
  };

  std::uint64_t id_ = 0;
  std::uint32_t rows_ = 0;
  std::uint32_t next_row_ = 0;
  Shape shape_;
  bool pinned_ = false;
  std::uint32_t failed_ = 0;
  std::vector<std::uint64_t> keys_;
  std::vector<std::uint64_t> descriptors_;
  std::vector<Grants::Region*> regions_;
  std::vector<ReadStatus> statuses_;
  std::vector<const std::byte*> from_;
  std::vector<OtherRow> others_;
  std::vector<RowWanted> wanted_;
  std::atomic<std::uint32_t> working_{0};  // sources at work, plus the starter
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t capacity_ = 0;
  std::span<const std::byte> reply_;
};

}  // namespace engram::fabric::stream
