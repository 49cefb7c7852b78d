#include "fabric/card.h"

namespace engram::fabric {

std::string FormatCard(std::string_view label, std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(label);
  text.push_back('!');
  for (std::byte byte : bytes) {
    text.push_back(kDigits[static_cast<std::size_t>(byte) >> 4]);
    text.push_back(kDigits[static_cast<std::size_t>(byte) & 15]);
  }
  return text;
}

std::optional<Card> ParseCard(std::string_view text) {
  const std::size_t mark = text.find('!');
  if (mark == std::string_view::npos || mark == 0 || (text.size() - mark) % 2 == 0) return {};
  Card card{std::string(text.substr(0, mark)), {}};
  for (std::size_t at = mark + 1; at + 1 < text.size(); at += 2) {
    int value = 0;
    for (const char c : text.substr(at, 2)) {
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
      if (digit < 0) return {};
      value = value * 16 + digit;
    }
    card.bytes.push_back(static_cast<std::byte>(value));
  }
  return card;
}

}  // namespace engram::fabric
