// The bytes of the stream fabric: one message out with many (region, offset), one back with the
// rows packed. Pure encoding and parsing, no sockets. Thread-compatible.
//
// All integers are little-endian. One connection carries one lane of one read session.
//
//   hello (client, once)          32 B   magic u32, version u16, lane u8, 0 u8, incarnation u64,
//                                        session token 16 B
//   hello reply (target, once)    32 B   magic u32, version u16, result u8, 0 u8, incarnation u64
//                                        (0 unless the token is good), 0 u64, 0 u64
//   request                       40 B   request id u64, rows u32, keys u32, segment bytes 3 x u32,
//                                        segments u8, 0 x 3, 0 u64
//     then rows x 8 B                    descriptor: key index in bits 48..63, byte offset in bits
//                                        0..47
//     then keys x 8 B                    region keys; a descriptor's key index points into them
//   reply                         24 B   request id u64, payload bytes u64, rows u32, form u8, 0 x
//   3
//     form kAllOk                        payload = all first segments in request order, then all
//                                        second ones, then all third ones
//     form kMixed                        rows x 1 B ReadStatus, padded with zeros to 8 B, then the
//                                        payload as above with zeros for the rows that failed
//     form kAllRefused                   nothing follows
//
// Bounds, checked by both sides: rows in [1, kMaxRows], keys in [1, rows], segments in [1, 3], each
// segment in [1, kMaxOpBytes], the bytes of a row <= kMaxOpBytes, rows x row bytes <=
// kMaxPayloadBytes, every key index < keys. Bytes marked 0 are sent as 0 and must be 0. A target
// answers the requests of a connection in any order and drops a connection that breaks a rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engram/ids.h"
#include "fabric/fabric.h"

namespace engram::fabric::stream {

inline constexpr std::uint32_t kMagic = 0x53474e45;  // "ENGS"
inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::size_t kHelloBytes = 32;
inline constexpr std::size_t kRequestHeaderBytes = 40;
inline constexpr std::size_t kReplyHeaderBytes = 24;
inline constexpr std::uint32_t kMaxRows = 1536;
inline constexpr std::uint32_t kMaxOpBytes = std::uint32_t{1} << 20;
inline constexpr std::uint64_t kMaxPayloadBytes = std::uint64_t{4} << 20;
inline constexpr std::uint64_t kMaxOffset = (std::uint64_t{1} << 48) - 1;
inline constexpr std::size_t kMaxRequestBytes = kRequestHeaderBytes + kMaxRows * 16;
// Requests that a connection may have unanswered; a target reads no further until one is answered.
inline constexpr std::uint32_t kMaxRequestsInFlight = 4;

struct Hello {
  Lane lane = Lane::kUrgent;
  Incarnation incarnation;
  SessionToken token;
};

enum class HelloResult : std::uint8_t {
  kWelcome = 0,
  kTokenRefused = 1,
  kOtherIncarnation = 2,
  kOtherVersion = 3,
};

struct HelloReply {
  HelloResult result = HelloResult::kWelcome;
  Incarnation incarnation;
};

// The lengths of one row's parts, shared by every row of a message.
struct Shape {
  std::uint32_t segments = 1;
  std::uint32_t bytes[kMaxLocalSegments] = {};

  std::uint32_t RowBytes() const { return bytes[0] + bytes[1] + bytes[2]; }
  friend bool operator==(const Shape&, const Shape&) = default;
};

// Rows of this shape that one message may carry. REQUIRES: 0 < shape.RowBytes() <= kMaxOpBytes.
std::uint32_t MaxRowsOf(const Shape& shape);

// A request as it lies in the receive buffer: spans into the parsed bytes, unaligned.
struct RequestView {
  std::uint64_t id = 0;
  std::uint32_t rows = 0;
  std::uint32_t keys = 0;
  Shape shape;
  std::size_t bytes = 0;  // of the whole request
  const std::byte* descriptors = nullptr;
  const std::byte* key_table = nullptr;

  std::uint64_t Descriptor(std::uint32_t row) const;
  std::uint64_t Key(std::uint32_t index) const;
};

constexpr std::uint64_t PackDescriptor(std::uint32_t key_index, std::uint64_t offset) {
  return std::uint64_t{key_index} << 48 | offset;
}
constexpr std::uint32_t KeyIndexOf(std::uint64_t descriptor) {
  return static_cast<std::uint32_t>(descriptor >> 48);
}
constexpr std::uint64_t OffsetOf(std::uint64_t descriptor) { return descriptor & kMaxOffset; }

enum class ReplyForm : std::uint8_t { kAllOk = 0, kMixed = 1, kAllRefused = 2 };

struct ReplyHeader {
  std::uint64_t id = 0;
  std::uint64_t payload_bytes = 0;  // everything that follows the header
  std::uint32_t rows = 0;
  ReplyForm form = ReplyForm::kAllOk;
};

// Bytes that the status array of a kMixed reply takes.
constexpr std::uint32_t StatusBytes(std::uint32_t rows) { return (rows + 7) / 8 * 8; }

enum class Parsed : std::uint8_t {
  kOk,
  kShort,    // more bytes are needed
  kGarbage,  // no continuation can make it right: drop the connection
};

// REQUIRES: `out` has room for the fixed size of what is written.
void WriteHello(const Hello& hello, std::byte* out);
void WriteHelloReply(const HelloReply& reply, std::byte* out);
void WriteRequestHeader(std::uint64_t id, std::uint32_t rows, std::uint32_t keys,
                        const Shape& shape, std::byte* out);
void WriteReplyHeader(const ReplyHeader& header, std::byte* out);

// Another version parses as kOk with *version set, so that the target can answer kOtherVersion.
Parsed ParseHello(std::span<const std::byte> bytes, Hello* hello, std::uint16_t* version);
Parsed ParseHelloReply(std::span<const std::byte> bytes, HelloReply* reply);
// kGarbage is reported as soon as the header shows it.
Parsed ParseRequest(std::span<const std::byte> bytes, RequestView* request);
Parsed ParseReplyHeader(std::span<const std::byte> bytes, ReplyHeader* header);

// Takes the same time wherever the tokens differ.
bool SameToken(const SessionToken& a, const SessionToken& b);

}  // namespace engram::fabric::stream
