// The link of transports whose NIC serves reads: each local segment is a ucp_get of its own.
//
// It works where UCX emulates the get, too, which only tests ask for. There a target ends itself
// when a reader leaves in the middle of a read (UCX 1.13 takes a reply that cannot be sent for a
// fault of its own), so the link gives the target the time to answer before it closes.
// Thread-confined: call from the owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/ucx/link.h"

namespace engram::fabric::ucx {

class GetLink final : public Link {
 public:
  explicit GetLink(const LinkParts& parts) : Link(parts, nullptr) {}
  ~GetLink() override;

  void Abandon() override;
  bool active() const override { return waits() || !in_flight_.empty(); }

 protected:
  void PostWaiting() override;
  void BeforeClose(ReadStatus status) override;
  void EndInFlight(ReadStatus status) override;

 private:
  struct Read {
    GetLink* link = nullptr;
    std::uint64_t cookie = 0;
    std::uint32_t parts = 0;  // not ended yet
    std::uint32_t place = 0;  // in the list of reads in flight
    bool failed = false;
  };
  // The key of a region as this connection's endpoint takes it.
  struct Key {
    std::uint64_t number = 0;
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    ucp_rkey_h handle = nullptr;
  };

  static void PartEnded(void* request, ucs_status_t status, void* read);
  void EndPart(Read* read, bool failed);
  void Post(const ReadOp& op);
  // Null: no such region, or the range is not inside of it.
  const Key* KeyFor(const ReadOp& op);
  bool LoadKey(std::uint64_t number, Key* key);
  void Settle();
  Read* TakeRead();
  void Retire(Read* read);

  // What a read that fails ends with: while the connection closes, with what it closes for.
  ReadStatus failure_ = ReadStatus::kUnreachable;
  std::vector<Key> keys_;  // by slot
  std::vector<Read*> in_flight_;
  std::vector<Read*> free_;
  std::vector<std::unique_ptr<Read>> all_;
};

}  // namespace engram::fabric::ucx
