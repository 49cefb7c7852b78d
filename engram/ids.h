// Strong identifiers shared by every program of the pool.
//
// Two different ids never convert into each other or into an integer; `value()` is the one way out.
// Thread-compatible.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace engram {

template <class Tag, class Rep = std::uint64_t>
class StrongId {
 public:
  using rep = Rep;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;

 private:
  Rep value_{};
};

// A row of a whole table: layers concatenated in order, columns concatenated inside a layer.
using RowId = StrongId<struct RowIdTag>;
// A shard of one table, numbered from 0 in row order.
using ShardIndex = StrongId<struct ShardIndexTag, std::uint32_t>;
// Version of the shard map; only grows.
using Epoch = StrongId<struct EpochTag>;
// One start of a node, issued by the state store; only grows. 0 = not issued yet.
using Incarnation = StrongId<struct IncarnationTag>;
// Names one leadership of the controller; nodes refuse a smaller one than they have seen.
using FencingToken = StrongId<struct FencingTokenTag>;
// Numbers the grant updates of one read session, from 1.
using GrantRevision = StrongId<struct GrantRevisionTag>;
// A read session of one node.
using SessionId = StrongId<struct SessionIdTag>;

// 128 opaque bits, printed as 32 lower-case hexadecimal digits.
template <class Tag>
struct Bits128 {
  std::array<std::uint8_t, 16> bytes{};

  friend constexpr auto operator<=>(const Bits128&, const Bits128&) = default;
  bool IsZero() const { return *this == Bits128{}; }
  std::string Hex() const {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string out;
    for (std::uint8_t byte : bytes) {
      out.push_back(kDigits[byte >> 4]);
      out.push_back(kDigits[byte & 15]);
    }
    return out;
  }
  // Returns false unless `hex` is exactly 32 hexadecimal digits.
  static bool Parse(std::string_view hex, Bits128* out) {
    if (hex.size() != 32) return false;
    for (std::size_t i = 0; i < 32; ++i) {
      const char c = hex[i];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return false;
      auto& byte = out->bytes[i / 2];
      byte = static_cast<std::uint8_t>(i % 2 == 0 ? digit << 4 : byte | digit);
    }
    return true;
  }
};

// Made at random when a table is created: in every seal, grant, cache key and map entry.
using TableUid = Bits128<struct TableUidTag>;
// What a data connection presents to prove that it belongs to a read session.
using SessionToken = Bits128<struct SessionTokenTag>;

// A pool node's stable name (a host name, a StatefulSet pod name, ...).
struct NodeId {
  std::string name;
  friend auto operator<=>(const NodeId&, const NodeId&) = default;
};

// One shard of one table.
struct ShardKey {
  TableUid table;
  ShardIndex shard;
  friend auto operator<=>(const ShardKey&, const ShardKey&) = default;
};

}  // namespace engram

template <class Tag, class Rep>
struct std::hash<engram::StrongId<Tag, Rep>> {
  std::size_t operator()(engram::StrongId<Tag, Rep> id) const noexcept {
    return std::hash<Rep>{}(id.value());
  }
};

template <class Tag>
struct std::hash<engram::Bits128<Tag>> {
  std::size_t operator()(const engram::Bits128<Tag>& bits) const noexcept {
    std::uint64_t word;
    std::memcpy(&word, bits.bytes.data(), sizeof word);
    return word;
  }
};

template <>
struct std::hash<engram::ShardKey> {
  std::size_t operator()(const engram::ShardKey& key) const noexcept {
    return std::hash<engram::TableUid>{}(key.table) ^ (key.shard.value() * 0x9e3779b97f4a7c15u);
  }
};
