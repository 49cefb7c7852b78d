// The words between a reader and a target: active messages, in the byte order of the machine, as
// UCX addresses and keys are. A connection begins with a hello, which says whom the reader means
// and who it is; on it the reader asks for keys (where the NIC serves reads) or for rows
// (elsewhere: then the target looks at every read, as the stream fabric does). A target ignores
// messages that it does not understand. Free functions: Thread-safe.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "engram/ids.h"
#include "engram/mutex.h"
#include "fabric/ucx/libucx.h"

namespace engram::fabric::ucx {

inline constexpr unsigned kAskId = 101;     // reader to target
inline constexpr unsigned kAnswerId = 102;  // target to reader
inline constexpr std::uint64_t kMagic = 0x4d415247'4e450101;

enum class Verb : std::uint32_t {
  kHello = 1,    // a new connection; in shared memory followed by the reader's worker address
  kImport = 2,   // what is needed to read the region `key`?
  kRead = 3,     // followed by `count` of Range
  kGoodbye = 4,  // the reader leaves; no answer
  kGone = 5,     // an answer to nothing: the target leaves
};

enum class Outcome : std::uint32_t {
  kOk = 0,
  kNoSession = 1,
  kOtherIncarnation = 2,
  kNoSuchKey = 3,
};

struct Ask {
  std::uint64_t magic = kMagic;
  Verb verb = Verb::kHello;
  std::uint32_t count = 0;
  std::uint64_t incarnation = 0;
  SessionToken token;
  std::uint64_t connection = 0;  // random: names the reader's end
  std::uint64_t request = 0;     // kImport: the key; kRead: comes back with the answer
};

// One read of a kRead. At most kMostRanges in a message, whose bytes together are at most
// kMostBytes, or one range of at most kMostRangeBytes.
struct Range {
  std::uint64_t key = 0;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  std::uint32_t reserved = 0;
};
inline constexpr std::uint32_t kMostRanges = 256;
inline constexpr std::uint32_t kMostBytes = 256 << 10;
inline constexpr std::uint32_t kMostRangeBytes = 4 << 20;

struct Answer {
  std::uint64_t magic = kMagic;
  Verb verb = Verb::kHello;
  Outcome outcome = Outcome::kOk;
  std::uint64_t request = 0;
  // kImport: of the region; followed by its packed remote key. kRead: followed by a byte for each
  // range, 1 or 0 (refused), and the bytes of those that were not refused.
  std::uint64_t address = 0;
  std::uint64_t length = 0;
};

// A message with what follows it.
template <class Head>
struct Received {
  Head head;
  std::vector<std::byte> tail;
};

template <class Head>
std::vector<std::byte> Pack(const Head& head, std::span<const std::byte> tail) {
  std::vector<std::byte> out(sizeof head + tail.size());
  std::memcpy(out.data(), &head, sizeof head);
  if (!tail.empty()) std::memcpy(out.data() + sizeof head, tail.data(), tail.size());
  return out;
}

// False: not a message of this version.
template <class Head>
bool Unpack(const void* data, std::size_t bytes, Head* head, std::span<const std::byte>* tail) {
  if (bytes < sizeof *head) return false;
  std::memcpy(head, data, sizeof *head);
  *tail = {static_cast<const std::byte*>(data) + sizeof *head, bytes - sizeof *head};
  return head->magic == kMagic;
}

// Sends and forgets; what becomes of it shows at the endpoint. `unsent` may be null; else it is
// the bytes that UCX has not taken yet, this message included, and outlives it. Asks tell the
// target the endpoint to answer at.
void Send(const Libucx& library, ucp_ep_h endpoint, unsigned id, std::vector<std::byte> message,
          std::size_t* unsent);

// `receive(argument, ..., data, bytes, ...)` for every message of that id, inside
// ucp_worker_progress.
void SetReceiver(const Libucx& library, ucp_worker_h worker, unsigned id,
                 ucp_am_recv_callback_t receive, void* argument);

// Held while descriptors of UCX are made or closed. UCX 1.13 keeps an event that came while the
// worker was busy by the number of its descriptor, until the worker's next progress; when another
// worker of the process has got that number from the kernel by then, UCX ends the process
// (async.c, "handler->async == async"). So workers and endpoints are opened one at a time, and who
// closes one lets UCX look before the next is opened.
Mutex& DescriptorTurn();

// Begins to close without asking the peer: what is outstanding ends as cancelled. Null: it is done;
// else a request to check and free.
void* CloseByForce(const Libucx& library, ucp_ep_h endpoint);

// An endpoint to where `params` says, whose failure is told to `failed(argument, ...)`. Null: it
// cannot be made.
ucp_ep_h OpenEndpoint(const Libucx& library, ucp_worker_h worker, ucp_ep_params_t params,
                      ucp_err_handler_cb_t failed, void* argument);
// `params` of a worker's address, of an address on which a target listens, and of a reader that
// connected. What they point to outlives the call of OpenEndpoint.
ucp_ep_params_t ToWorker(std::span<const std::byte> address);
ucp_ep_params_t ToSocket(std::span<const std::byte> address);
ucp_ep_params_t ToCaller(ucp_conn_request_h caller);

}  // namespace engram::fabric::ucx
