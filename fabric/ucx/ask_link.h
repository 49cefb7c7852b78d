// The link of transports on which the target's program serves reads anyway: it asks for many rows
// in one message and copies them from the answer to where they belong. UCX's own emulation of
// one-sided reads is not used there: its target reads and writes whatever address a peer names.
// Thread-confined: call from the owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fabric/ucx/link.h"

namespace engram::fabric::ucx {

class AskLink final : public Link, private AnswerSink {
 public:
  explicit AskLink(const LinkParts& parts) : Link(parts, this) {}
  ~AskLink() override;

  // The connection stays: rows of answers that come later are dropped.
  void Abandon() override;
  bool active() const override { return waits() || reads_in_flight_ > 0; }

 protected:
  void PostWaiting() override;
  void BeforeClose(ReadStatus) override {}
  void EndInFlight(ReadStatus status) override;

 private:
  // The reads of one message. Used again when it is both sent and answered.
  struct Batch {
    AskLink* link = nullptr;
    std::uint64_t request = 0;  // its place in all_, under a number that is new at each use
    std::vector<std::byte> message;
    std::vector<ReadOp> ops;
    std::uint32_t bytes = 0;
    bool in_use = false;
    bool sent = false;
    bool answered = false;
    bool dropped = false;  // its reads have ended
  };

  void Land(const Answer& head, std::span<const std::byte> tail) override;
  static void Sent(void* request, ucs_status_t status, void* batch);
  Batch* TakeBatch();
  void Fill(Batch* batch);
  void Post(Batch* batch);
  // Its reads end with `status`, and what is answered later is dropped.
  void Drop(Batch* batch, ReadStatus status);
  void RetireIfDone(Batch* batch);

  std::uint64_t uses_ = 0;
  std::size_t reads_in_flight_ = 0;
  std::uint64_t bytes_asked_ = 0;
  std::vector<Batch*> free_;
  std::vector<std::unique_ptr<Batch>> all_;
};

}  // namespace engram::fabric::ucx
