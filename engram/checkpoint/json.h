// JSON from outside, read without surprises: duplicate keys, deep nesting and numbers that a double
// cannot hold are errors, and every message names the text and the field. Not for JSON that the
// pool writes. Only sources inside engram/checkpoint include this. Thread-compatible.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace engram {

using Json = nlohmann::json;

// The largest integer that survives a reader that holds numbers as doubles.
inline constexpr std::uint64_t kMaxJsonInteger = std::uint64_t{1} << 53;

// Limits of what a description of a table may say.
inline constexpr std::size_t kMaxLayers = 1024;
inline constexpr std::uint64_t kMaxU32 = 0xffffffff;
inline constexpr std::uint64_t kMaxI64 = 0x7fffffffffffffff;
inline constexpr std::uint64_t kMaxTokenizerBytes = 64 << 20;

// InvalidArgument names `what` (a path, usually), the place and the problem.
absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view what);

// NotFound, or ResourceExhausted when the file is larger than `most`.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, std::uint64_t most);

// A non-negative integer: a JSON number up to 2^53, or a decimal string up to 2^64 - 1.
// `field` names it in errors.
absl::StatusOr<std::uint64_t> ToU64(const Json& value, std::string_view field);
absl::StatusOr<std::uint64_t> ToBoundedU64(const Json& value, std::string_view field,
                                           std::uint64_t most);
absl::StatusOr<std::vector<std::uint64_t>> ToU64List(const Json& value, std::string_view field,
                                                     std::size_t most_entries);

// InvalidArgument, "WHAT: WHY".
absl::Status Bad(std::string_view what, std::string_view why);

// For absl::StrCat.
absl::string_view View(std::string_view text);

// ", did you mean X?" or "" when nothing is near.
std::string DidYouMean(std::string_view word, std::span<const std::string> known);

// `text` between double quotes, at most 80 characters, control characters replaced: for messages.
std::string QuotedText(std::string_view text);

}  // namespace engram
