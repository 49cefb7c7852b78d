#include "client/abi/memory.h"

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"

namespace engram::client::abi {

std::string Address(const void* memory) {
  return absl::StrCat("0x", absl::Hex(reinterpret_cast<std::uintptr_t>(memory)));
}

absl::Status CheckWritable(const std::string& what, const void* memory, std::size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  const auto first = reinterpret_cast<std::uintptr_t>(memory);
  if (first + bytes < first)
    return absl::InvalidArgumentError(
        absl::StrCat(what, " of ", bytes, " bytes at ", Address(memory), " ends beyond memory"));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(std::fopen("/proc/self/maps", "re"),
                                                             std::fclose);
  if (maps == nullptr) return absl::OkStatus();
  // Mappings come in order of their addresses; those that cover the memory follow each other.
  std::uintptr_t at = first;
  char line[512];
  while (at < first + bytes && std::fgets(line, sizeof line, maps.get()) != nullptr) {
    std::uintptr_t begin, end;
    char rights[5];
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, rights) != 3) continue;
    if (end <= at) continue;
    if (begin > at) break;
    if (rights[1] != 'w')
      return absl::InvalidArgumentError(
          absl::StrCat(what, " of ", bytes, " bytes at ", Address(memory), " is read-only at ",
                       "0x", absl::Hex(at), ": give memory that can be written"));
    at = end;
  }
  if (at >= first + bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " of ", bytes, " bytes at ", Address(memory),
                                                 " is not mapped at ", "0x", absl::Hex(at),
                                                 ": was it freed?"));
}

}  // namespace engram::client::abi
