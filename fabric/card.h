// The text form of a target's card: "LABEL!HEX", where the label says whom it concerns (a provider)
// and the bytes are the fabric's own. Free functions: Thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace engram::fabric {

struct Card {
  std::string label;
  std::vector<std::byte> bytes;
};

std::string FormatCard(std::string_view label, std::span<const std::byte> bytes);
// Nothing unless `text` is a label, a mark and whole bytes in lower case.
std::optional<Card> ParseCard(std::string_view text);

}  // namespace engram::fabric
