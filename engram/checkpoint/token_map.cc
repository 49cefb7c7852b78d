#include "engram/checkpoint/token_map.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engram/checkpoint/json.h"

namespace engram {
namespace {

constexpr std::uint64_t kMaxTokenId = (1 << 28) - 1;
constexpr char32_t kReplacement = 0xfffd;

// The byte-level alphabet: printable bytes stand for themselves, the others for U+0100 upwards in
// byte order. Index = character, value = byte or -1.
std::array<int, 0x144> MakeByteOf() {
  std::array<int, 0x144> byte_of;
  byte_of.fill(-1);
  std::size_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    byte_of[printable ? static_cast<std::size_t>(byte) : next++] = byte;
  }
  return byte_of;
}

bool HasByteLevel(const Json& decoder) {
  if (!decoder.is_object()) return false;
  const auto type = decoder.find("type");
  if (type != decoder.end() && *type == "ByteLevel") return true;
  const auto parts = decoder.find("decoders");
  return parts != decoder.end() && parts->is_array() &&
         std::any_of(parts->begin(), parts->end(), [](const Json& part) {
           return part.is_object() && part.contains("type") && part["type"] == "ByteLevel";
         });
}

// id -> token. A map, because a hostile id must not cost memory.
using TokensById = std::map<std::uint64_t, std::string>;

absl::Status AddVocabulary(const Json& vocab, std::string_view what, TokensById& tokens) {
  for (const auto& [token, value] : vocab.items()) {
    auto id = ToBoundedU64(value, "the id", kMaxTokenId);
    if (!id.ok()) {
      return Bad(what, absl::StrCat("token ", QuotedText(token), ": ", id.status().message()));
    }
    const auto [at, fresh] = tokens.emplace(*id, token);
    if (!fresh) {
      return Bad(what, absl::StrCat("id ", *id, " belongs to ", QuotedText(at->second), " and to ",
                                    QuotedText(token)));
    }
  }
  return absl::OkStatus();
}

absl::Status AddAddedTokens(const Json& added, std::string_view what, TokensById& tokens) {
  if (!added.is_array()) return Bad(what, "added_tokens is not a list");
  std::map<std::uint64_t, std::string> seen;
  for (const Json& entry : added) {
    if (!entry.is_object() || !entry.contains("id") || !entry.contains("content") ||
        !entry["content"].is_string()) {
      return Bad(what, "an entry of added_tokens has no id or no content");
    }
    auto id = ToBoundedU64(entry["id"], "the id of an added token", kMaxTokenId);
    if (!id.ok()) return Bad(what, std::string(id.status().message()));
    const auto& content = entry["content"].get_ref<const std::string&>();
    if (!seen.emplace(*id, content).second) {
      return Bad(what, absl::StrCat("added token id ", *id, " is listed twice"));
    }
    tokens[*id] = content;  // an added token hides the vocabulary entry of its id
  }
  return absl::OkStatus();
}

bool IsSpace(UChar32 c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// Valid UTF-8 without U+FFFD: text that decoding did not have to repair.
bool DecodesCleanly(std::string_view text) {
  const auto length = static_cast<std::int32_t>(text.size());
  for (std::int32_t at = 0; at < length;) {
    UChar32 c;
    U8_NEXT(text.data(), at, length, c);
    if (c < 0 || c == static_cast<UChar32>(kReplacement)) return false;
  }
  return true;
}

// Drops combining marks, lowercases, and turns each run of space, tab, CR, LF into one space.
icu::UnicodeString Simplify(const icu::UnicodeString& text) {
  icu::UnicodeString out;
  bool in_space = false;
  for (std::int32_t at = 0; at < text.length();) {
    const UChar32 c = text.char32At(at);
    at += U16_LENGTH(c);
    if ((U_GET_GC_MASK(c) & U_GC_M_MASK) != 0) continue;
    const bool space = IsSpace(c);
    if (!space || !in_space) out.append(space ? UChar32{' '} : u_tolower(c));
    in_space = space;
  }
  return out;
}

icu::UnicodeString Strip(const icu::UnicodeString& text) {
  std::int32_t begin = 0;
  std::int32_t end = text.length();
  // White_Space has no character outside the basic plane.
  while (begin < end && u_isUWhiteSpace(text.charAt(begin))) ++begin;
  while (end > begin && u_isUWhiteSpace(text.charAt(end - 1))) --end;
  return text.tempSubStringBetween(begin, end);
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// What Normalise does to text that no normalisation form changes, for most tokens of a vocabulary.
std::string NormaliseAscii(const std::string& text) {
  std::string simple;
  for (const char c : text) {
    const bool space = IsSpace(c);
    if (space && !simple.empty() && simple.back() == ' ') continue;
    simple.push_back(space ? ' ' : absl::ascii_tolower(static_cast<unsigned char>(c)));
  }
  if (simple == " ") return simple;
  constexpr std::string_view kWhite = " \t\n\v\f\r";
  const std::size_t begin = simple.find_first_not_of(kWhite);
  if (begin == std::string::npos) return "";
  return simple.substr(begin, simple.find_last_not_of(kWhite) + 1 - begin);
}

// "" when ICU fails or nothing is left: the caller then keeps the text as it was.
std::string Normalise(const std::string& text) {
  if (IsAscii(text)) return NormaliseAscii(text);
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* nfkc = icu::Normalizer2::getNFKCInstance(error);
  const icu::Normalizer2* nfd = icu::Normalizer2::getNFDInstance(error);
  if (U_FAILURE(error)) return "";
  const auto composed = nfkc->normalize(icu::UnicodeString::fromUTF8(text), error);
  const auto decomposed = nfd->normalize(composed, error);
  if (U_FAILURE(error)) return "";
  const icu::UnicodeString simple = Simplify(decomposed);
  std::string out;
  if (simple.length() == 1 && simple.charAt(0) == ' ') return " ";
  Strip(simple).toUTF8String(out);
  return out;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseTokenizer(std::string_view json,
                                                        std::string_view what) {
  auto root = ParseJson(json, what);
  if (!root.ok()) return root.status();
  if (!root->is_object() || !root->contains("model") || !(*root)["model"].is_object()) {
    return Bad(what, "there is no \"model\" object: this is not a Hugging Face tokenizer.json");
  }
  const Json& model = (*root)["model"];
  if (!model.contains("vocab") || !model["vocab"].is_object() ||
      (model.contains("type") && model["type"] != "BPE")) {
    return Bad(what, "the model is not BPE with a vocabulary; only byte-level BPE can be read");
  }
  if (!root->contains("decoder") || !HasByteLevel((*root)["decoder"])) {
    return Bad(what, "the decoder is not ByteLevel; only byte-level BPE can be read");
  }
  TokensById by_id;
  if (absl::Status vocab = AddVocabulary(model["vocab"], what, by_id); !vocab.ok()) return vocab;
  if (root->contains("added_tokens")) {
    absl::Status added = AddAddedTokens((*root)["added_tokens"], what, by_id);
    if (!added.ok()) return added;
  }
  std::vector<std::string> tokens;
  for (auto& [id, token] : by_id) {
    if (id != tokens.size()) {
      return Bad(what, absl::StrCat("no token has id ", tokens.size(), ", though ", id,
                                    " exists; ids must have no gap"));
    }
    tokens.push_back(std::move(token));
  }
  if (tokens.empty()) return Bad(what, "the vocabulary is empty");
  return tokens;
}

std::string DecodeToken(std::string_view token) {
  static const auto kByteOf = MakeByteOf();
  std::string bytes;
  const auto length = static_cast<std::int32_t>(token.size());
  for (std::int32_t at = 0; at < length;) {
    UChar32 c;
    U8_NEXT(token.data(), at, length, c);
    const bool known = c >= 0 && static_cast<std::size_t>(c) < kByteOf.size();
    const int byte = known ? kByteOf[static_cast<std::size_t>(c)] : -1;
    // One character outside the alphabet (added tokens have them): the token is plain text.
    if (byte < 0) return std::string(token);
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

std::string CompressionKey(std::string_view token) {
  const std::string text = DecodeToken(token);
  if (!DecodesCleanly(text)) return std::string(token);
  std::string key = Normalise(text);
  return key.empty() ? text : key;
}

TokenMap MapOf(const std::vector<std::string>& tokens) {
  std::unordered_map<std::string, std::int32_t> ids;  // looked up, never walked through
  TokenMap map;
  ids.reserve(tokens.size());
  map.reserve(tokens.size());
  for (const std::string& token : tokens) {
    map.push_back(
        ids.emplace(CompressionKey(token), static_cast<std::int32_t>(ids.size())).first->second);
  }
  return map;
}

std::uint64_t CompressedCount(const TokenMap& map) {
  return map.empty() ? 0
                     : static_cast<std::uint64_t>(*std::max_element(map.begin(), map.end())) + 1;
}

absl::StatusOr<TokenMap> ReadTokenizer(const std::string& path) {
  auto text = ReadSmallFile(path, kMaxTokenizerBytes);
  if (!text.ok()) return text.status();
  auto tokens = ParseTokenizer(*text, path);
  if (!tokens.ok()) return tokens.status();
  return MapOf(*tokens);
}

}  // namespace engram
