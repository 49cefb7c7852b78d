#include "engram/checkpoint/json.h"

#include <errno.h>
#include <string.h>

#include <fstream>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engram/settings/nearest.h"

namespace engram {
namespace {

constexpr int kMaxDepth = 64;

// What ends a parse early; never leaves ParseJson.
struct Refused {
  std::string why;
};

// Sees every key and bracket: the parser itself keeps the last of two equal keys without a word.
class Watch {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) throw Refused{absl::StrCat("nests deeper than ", kMaxDepth, " levels")};
    switch (event) {
      case Json::parse_event_t::object_start: keys_.emplace_back(); break;
      case Json::parse_event_t::object_end: keys_.pop_back(); break;
      case Json::parse_event_t::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!keys_.back().insert(key).second) {
          throw Refused{absl::StrCat("has the key ", QuotedText(key), " twice")};
        }
        break;
      }
      default: break;
    }
    return true;
  }

 private:
  std::vector<std::set<std::string>> keys_;
};

// nlohmann's messages start with "[json.exception.parse_error.101] ".
std::string Plain(std::string_view message) {
  const std::size_t end = message.find("] ");
  std::string plain(end == std::string_view::npos ? message : message.substr(end + 2));
  return plain.substr(0, 200);
}

}  // namespace

std::string QuotedText(std::string_view text) {
  constexpr std::size_t kMost = 80;
  std::string out = "\"";
  for (char c : text.substr(0, kMost)) {
    out.push_back(static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c);
  }
  return out + (text.size() > kMost ? "...\"" : "\"");
}

std::string DidYouMean(std::string_view word, std::span<const std::string> known) {
  const std::string nearest = NearestWord(word, known);
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

absl::Status Bad(std::string_view what, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(View(what), ": ", View(why)));
}

absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view what) {
  std::string why;
  try {
    Watch watch;
    return Json::parse(text, [&watch](int depth, Json::parse_event_t event, Json& parsed) {
      return watch(depth, event, parsed);
    });
  } catch (const Refused& refused) {
    why = refused.why;
  } catch (const Json::exception& error) {
    why = absl::StrCat("does not parse as JSON: ", Plain(error.what()));
  }
  return absl::InvalidArgumentError(absl::StrCat(View(what), " ", why));
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, std::uint64_t most) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open ", path, ": ", strerror(errno)));
  std::vector<char> piece(1 << 16);
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0) {
    text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
    if (text.size() > most) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, " has more than ", most, " bytes; is this the right file?"));
    }
  }
  if (file.bad()) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return text;
}

absl::StatusOr<std::uint64_t> ToU64(const Json& value, std::string_view field) {
  if (value.is_string()) {
    std::uint64_t number;
    const auto& text = value.get_ref<const std::string&>();
    if (!text.empty() && text[0] >= '0' && text[0] <= '9' && absl::SimpleAtoi(text, &number)) {
      return number;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        View(field), " is ", QuotedText(text), "; it must be a whole number from 0 to 2^64 - 1"));
  }
  if (value.is_number_unsigned() && value.get<std::uint64_t>() <= kMaxJsonInteger) {
    return value.get<std::uint64_t>();
  }
  if (value.is_number_unsigned() || (value.is_number_float() && value.get<double>() >= 9e15)) {
    return absl::InvalidArgumentError(
        absl::StrCat(View(field), " is ", value.dump(),
                     ", above 2^53, where a JSON number may lose digits; write it as a string"));
  }
  return absl::InvalidArgumentError(absl::StrCat(View(field), " is ",
                                                 QuotedText(value.dump(-1, ' ', true)),
                                                 "; it must be a whole number, at least 0"));
}

absl::StatusOr<std::uint64_t> ToBoundedU64(const Json& value, std::string_view field,
                                           std::uint64_t most) {
  auto number = ToU64(value, field);
  if (number.ok() && *number > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(View(field), " is ", *number, "; the limit is ", most));
  }
  return number;
}

absl::StatusOr<std::vector<std::uint64_t>> ToU64List(const Json& value, std::string_view field,
                                                     std::size_t most_entries) {
  if (!value.is_array() || value.size() > most_entries) {
    return absl::InvalidArgumentError(
        absl::StrCat(View(field), " must be a list of at most ", most_entries, " whole numbers"));
  }
  std::vector<std::uint64_t> out;
  for (std::size_t i = 0; i < value.size(); ++i) {
    auto number = ToU64(value[i], absl::StrCat(View(field), "[", i, "]"));
    if (!number.ok()) return number.status();
    out.push_back(*number);
  }
  return out;
}

}  // namespace engram
