#include "engram/addressing.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engram/addressing/functions.h"

namespace engram {
namespace {

using Factory = absl::StatusOr<std::unique_ptr<Addressing>> (*)(const TableSpec&, TokenMap);
constexpr struct {
  std::string_view name;
  Factory make;
} kFunctions[] = {{"deepseek-v4.1", MakeDeepseekV41}};

absl::Status CheckIdentity(const AddressingSpec& addressing) {
  if (!addressing.token_map_digest.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the table wants the token map with digest ", addressing.token_map_digest,
                     ", but none was given; pass the map that was stored with the table"));
  }
  if (addressing.compressed_vocab != addressing.raw_vocab) {
    return absl::InvalidArgumentError(
        absl::StrCat("without a token map the compressed vocabulary must equal the raw one: ",
                     addressing.compressed_vocab, " is not ", addressing.raw_vocab));
  }
  return absl::OkStatus();
}

absl::Status CheckMap(const AddressingSpec& addressing, const TokenMap& map) {
  if (map.size() != addressing.raw_vocab) {
    return absl::InvalidArgumentError(absl::StrCat("token map has ", map.size(),
                                                   " entries; the table's raw vocabulary has ",
                                                   addressing.raw_vocab));
  }
  const auto [least, most] = std::minmax_element(map.begin(), map.end());
  if (*least < 0) {
    return absl::InvalidArgumentError(absl::StrCat("token map entry ", least - map.begin(), " is ",
                                                   *least, "; compressed ids start at 0"));
  }
  const std::uint64_t count = static_cast<std::uint64_t>(*most) + 1;
  if (count != addressing.compressed_vocab) {
    return absl::InvalidArgumentError(
        absl::StrCat("token map has ", count, " compressed ids; the table was made for ",
                     addressing.compressed_vocab, ": this is the map of another tokenizer"));
  }
  if (const std::string digest = Digest(map); digest != addressing.token_map_digest) {
    return absl::InvalidArgumentError(absl::StrCat(
        "token map has digest ", digest, "; the table wants ", addressing.token_map_digest));
  }
  return absl::OkStatus();
}

}  // namespace

std::string Digest(const TokenMap& map) {
  std::string bytes;
  bytes.reserve(map.size() * 4);
  for (std::int32_t value : map) {
    for (int i = 0; i < 4; ++i) {
      bytes.push_back(static_cast<char>(static_cast<std::uint32_t>(value) >> (8 * i)));
    }
  }
  return Sha256Hex(bytes);
}

absl::StatusOr<std::unique_ptr<Addressing>> Addressing::Make(const TableSpec& spec, TokenMap map) {
  if (absl::Status valid = spec.Validate(); !valid.ok()) return valid;
  std::string known;
  for (const auto& function : kFunctions) {
    if (function.name != spec.addressing.function) {
      absl::StrAppend(&known, known.empty() ? "" : ", ", function.name.data());
      continue;
    }
    absl::Status map_ok =
        map.empty() ? CheckIdentity(spec.addressing) : CheckMap(spec.addressing, map);
    if (!map_ok.ok()) return map_ok;
    return function.make(spec, std::move(map));
  }
  return absl::InvalidArgumentError(absl::StrCat("address function \"", spec.addressing.function,
                                                 "\" is unknown; this program knows ", known));
}

}  // namespace engram
