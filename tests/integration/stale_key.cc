// engram_stale_key: a client that keeps what it was told. It opens a read session with a node,
// takes the first key of ofi that it is granted, and reads by it for as long as that works,
// whatever becomes of the session.
//
//   engram_stale_key ENDPOINT NODE INCARNATION TABLE-UID CERT KEY CA [SECONDS]
//
// Prints "reading" after the first read, then "refused reads=N" (exit status 0) when the node is
// still there and the key is worth nothing, or "still reads" (1) after SECONDS, 60 if not said.
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>

#include "absl/strings/escaping.h"
#include "engram/v1/pool_node.grpc.pb.h"
#include "fabric/ofi/ofi_fabric.h"
#include "proto/convert.h"
#include "proto/credentials.h"
#include "proto/grpc_server.h"

namespace engram {
namespace {

using std::chrono::seconds;
using Stream = grpc::ClientReaderWriter<v1::ReadSessionRequest, v1::ReadSessionResponse>;

struct Stolen {
  fabric::PeerAddress address;
  GrantPath path;
};

// The session's first grant on ofi, with where it is read.
std::optional<Stolen> TakeKey(Stream& stream, const OpenSession& open) {
  stream.Write(wire::ToWire(ClientMessage(open)));
  SessionOpened opened;
  v1::ReadSessionResponse said;
  while (stream.Read(&said)) {
    const auto message = wire::FromWire(said);
    if (!message.ok()) return std::nullopt;
    if (const auto* told = std::get_if<SessionOpened>(&*message)) opened = *told;
    const auto* update = std::get_if<GrantUpdate>(&*message);
    if (update == nullptr || update->granted.empty()) continue;
    for (const NumberedPath& path : update->paths) {
      opened.paths.resize(std::max<std::size_t>(opened.paths.size(), path.path + 1));
      opened.paths[path.path] = path.address;
    }
    for (const GrantPath& path : update->granted.front().paths) {
      const PathAddress& address = opened.paths.at(path.path);
      if (address.fabric != FabricKind::kOfi) continue;
      return Stolen{{address, opened.token, opened.node, opened.incarnation}, path};
    }
  }
  return std::nullopt;
}

// One read by the key over a connection of its own; nothing when the node cannot be reached.
std::optional<bool> Reads(fabric::Fabric& fabric, const Stolen& stolen) {
  const Instant deadline = SystemClock::Get().Now() + seconds(5);
  const auto peer = fabric.AddPeer(stolen.address, deadline);
  if (!peer.ok()) return std::nullopt;
  auto queue = fabric.OpenQueue({});
  if (!queue.ok()) return std::nullopt;
  std::byte landing[256] = {};
  const auto registered = fabric.Register(landing, {});
  if (!registered.ok()) return std::nullopt;
  fabric::ReadOp op;
  op.region = {*peer, stolen.path.address, stolen.path.length, stolen.path.key};
  op.length = sizeof landing;
  op.local[0] = {landing, sizeof landing, registered->get()};
  fabric::ReadCompletion done;
  done.status = ReadStatus::kInvalid;
  if ((*queue)->Submit({&op, 1}) == 1) {
    while ((*queue)->Poll({&done, 1}) == 0 && SystemClock::Get().Now() < deadline) {
    }
  }
  (*queue)->Close();
  fabric.RemovePeer(*peer);
  return done.status == ReadStatus::kOk;
}

int Run(char** words, int limit_seconds) {
  const auto credentials = wire::Credentials::Open({words[5], words[6], words[7]}, {Role::kClient});
  if (!credentials.ok()) {
    std::fprintf(stderr, "%s\n", credentials.status().ToString().c_str());
    return 2;
  }
  OpenSession open;
  open.client = "stale";
  open.request_id = "stale-key";
  open.node = {words[2]};
  open.incarnation = Incarnation(std::strtoull(words[3], nullptr, 10));
  open.tables = {*wire::TableUidFromWire(absl::HexStringToBytes(words[4]))};
  const auto channel = wire::Connect(words[1], *credentials, {Role::kNode, words[2]});
  const auto stub = v1::ReadSessionService::NewStub(channel);
  grpc::ClientContext call;
  const std::unique_ptr<Stream> stream = stub->ReadSession(&call);
  const std::optional<Stolen> stolen = TakeKey(*stream, open);
  auto fabric = fabric::ofi::OfiFabric::Open({});
  if (!stolen || !fabric.ok() || Reads(**fabric, *stolen) != true) {
    std::fprintf(stderr, "no key of ofi was granted, or it does not read\n");
    return 2;
  }
  std::printf("reading\n");
  std::fflush(stdout);
  const Instant limit = SystemClock::Get().Now() + seconds(limit_seconds);
  for (std::uint64_t reads = 1; SystemClock::Get().Now() < limit; ++reads) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (Reads(**fabric, *stolen) != false) continue;
    std::printf("refused reads=%llu\n", static_cast<unsigned long long>(reads));
    return 0;
  }
  std::printf("still reads\n");
  return 1;
}

}  // namespace
}  // namespace engram

int main(int count, char** words) {
  if (count < 8) return 2;
  return engram::Run(words, count > 8 ? std::atoi(words[8]) : 60);
}
