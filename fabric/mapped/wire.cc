#include "fabric/mapped/wire.h"

#include <string.h>

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace engram::fabric::mapped {

absl::StatusOr<SocketAddress> ParseSocketAddress(const std::string& text) {
  SocketAddress address;
  address.storage.sun_family = AF_UNIX;
  constexpr std::size_t kMost = sizeof address.storage.sun_path - 1;
  if (text.size() < 2 || text.size() > kMost || (text[0] != '@' && text[0] != '/')) {
    return absl::InvalidArgumentError(absl::StrCat(
        "socket address \"", text, "\" must be /path or @name of 2 to ", kMost, " characters"));
  }
  memcpy(address.storage.sun_path, text.data(), text.size());
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size());
  if (text[0] == '@') {
    address.storage.sun_path[0] = '\0';
  } else {
    address.bytes += 1;
  }
  return address;
}

}  // namespace engram::fabric::mapped
