// What to say about a word that is not known. Thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace engram::ctl {

// `there is no KIND "WORD"; did you mean "NEAREST"?`, or the known words when nothing is near.
std::string UnknownWord(std::string_view kind, std::string_view word,
                        std::span<const std::string> known);

}  // namespace engram::ctl
