// What a mapped target and its readers say on their Unix socket (SOCK_SEQPACKET, one host, so
// numbers are in native order). One message is one Request or one Reply; anything else ends the
// connection.
//
//   target: Greeting      proves the host (nonce) and the start of the node (incarnation)
//   reader: kOpen         with the session's token; the target answers with a status
//   reader: kImport       with a key; the target answers with the slab and, as SCM_RIGHTS, a
//                         read-only descriptor of it
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/status/statusor.h"

namespace engram::fabric::mapped {

inline constexpr std::uint64_t kMagic = 0x31'70'61'6d'2e'6e'67'65;  // "eng.map1"

enum class Verb : std::uint32_t { kOpen = 1, kImport = 2 };

struct Request {
  std::uint64_t magic = kMagic;
  Verb verb = Verb::kOpen;
  std::uint32_t zero = 0;
  std::uint8_t token[16] = {};  // kOpen
  std::uint64_t key = 0;        // kImport
};
static_assert(sizeof(Request) == 40 && std::is_trivially_copyable_v<Request>);

struct Reply {
  std::uint64_t magic = kMagic;
  std::uint32_t code = 0;  // absl::StatusCode
  std::uint32_t zero = 0;
  std::uint64_t nonce = 0;        // greeting
  std::uint64_t incarnation = 0;  // greeting
  std::uint64_t slab = 0;         // import: the rest; unique within the incarnation
  std::uint64_t slab_bytes = 0;
  std::uint64_t page_bytes = 0;
  std::uint64_t offset = 0;  // of the region in the slab
  std::uint64_t length = 0;
};
static_assert(sizeof(Reply) == 72 && std::is_trivially_copyable_v<Reply>);

struct SocketAddress {
  sockaddr_un storage{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
// "@name" is an abstract socket, "/path" a file. InvalidArgument: neither, or too long.
absl::StatusOr<SocketAddress> ParseSocketAddress(const std::string& text);

}  // namespace engram::fabric::mapped
