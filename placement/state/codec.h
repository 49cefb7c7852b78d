// Bytes of stored values: unsigned LEB128 numbers and length-prefixed texts, after one format byte.
// Not a wire format: only this program writes and reads it. Thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace engram::placement {

class Encoder {
 public:
  explicit Encoder(std::uint8_t format) { out_.push_back(static_cast<char>(format)); }
  void Number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<char>(value | 0x80));
    out_.push_back(static_cast<char>(value));
  }
  void Signed(std::int64_t value) { Number(static_cast<std::uint64_t>(value)); }
  void Text(std::string_view text) {
    Number(text.size());
    out_.append(text);
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads what Encoder wrote. After the first error every read returns 0 or "" and ok() is false.
class Decoder {
 public:
  Decoder(std::string_view bytes, std::uint8_t format) : bytes_(bytes) {
    ok_ = !bytes.empty() && static_cast<std::uint8_t>(bytes[0]) == format;
    if (ok_) bytes_.remove_prefix(1);
  }
  std::uint64_t Number() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; ok_ && shift < 64; shift += 7) {
      if (bytes_.empty()) break;
      const auto byte = static_cast<std::uint8_t>(bytes_[0]);
      bytes_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }
  std::int64_t Signed() { return static_cast<std::int64_t>(Number()); }
  std::string Text() {
    const std::uint64_t size = Number();
    if (!ok_ || size > bytes_.size()) {
      ok_ = false;
      return {};
    }
    std::string text(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return text;
  }
  // A count of elements that each take at least one byte.
  std::uint64_t Count() {
    const std::uint64_t count = Number();
    ok_ = ok_ && count <= bytes_.size();
    return ok_ ? count : 0;
  }
  bool ok() const { return ok_; }
  bool AtEnd() const { return ok_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool ok_;
};

}  // namespace engram::placement
