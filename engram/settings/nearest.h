// Which known word somebody meant: "unknown key; did you mean ...". Pure functions: Thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace engram {

// The known word with the fewest edits (insert, delete, replace, swap of neighbours), the first of
// equals; empty when even that one differs in more than half of its letters.
std::string NearestWord(std::string_view word, std::span<const std::string> known);

}  // namespace engram
