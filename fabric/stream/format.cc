#include "fabric/stream/format.h"

#include <algorithm>
#include <cstring>

namespace engram::fabric::stream {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire format is the memory format");

template <class T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
std::byte* Store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
  return to + sizeof value;
}

bool AllZero(const std::byte* from, std::size_t bytes) {
  return std::all_of(from, from + bytes, [](std::byte b) { return b == std::byte{0}; });
}

bool ShapeIsSound(const Shape& shape) {
  if (shape.segments < 1 || shape.segments > kMaxLocalSegments) return false;
  std::uint64_t total = 0;
  for (std::uint32_t s = 0; s < kMaxLocalSegments; ++s) {
    if ((shape.bytes[s] != 0) != (s < shape.segments)) return false;
    total += shape.bytes[s];
  }
  return total <= kMaxOpBytes;
}

}  // namespace

std::uint32_t MaxRowsOf(const Shape& shape) {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(kMaxRows, kMaxPayloadBytes / shape.RowBytes()));
}

std::uint64_t RequestView::Descriptor(std::uint32_t row) const {
  return Load<std::uint64_t>(descriptors + std::size_t{row} * 8);
}

std::uint64_t RequestView::Key(std::uint32_t index) const {
  return Load<std::uint64_t>(key_table + std::size_t{index} * 8);
}

void WriteHello(const Hello& hello, std::byte* out) {
  out = Store(out, kMagic);
  out = Store(out, kVersion);
  out = Store(out, static_cast<std::uint8_t>(hello.lane));
  out = Store(out, std::uint8_t{0});
  out = Store(out, hello.incarnation.value());
  std::memcpy(out, hello.token.bytes.data(), hello.token.bytes.size());
}

void WriteHelloReply(const HelloReply& reply, std::byte* out) {
  out = Store(out, kMagic);
  out = Store(out, kVersion);
  out = Store(out, static_cast<std::uint8_t>(reply.result));
  out = Store(out, std::uint8_t{0});
  out = Store(out, reply.incarnation.value());
  out = Store(out, std::uint64_t{0});
  Store(out, std::uint64_t{0});
}

void WriteRequestHeader(std::uint64_t id, std::uint32_t rows, std::uint32_t keys,
                        const Shape& shape, std::byte* out) {
  out = Store(out, id);
  out = Store(out, rows);
  out = Store(out, keys);
  for (std::uint32_t bytes : shape.bytes) out = Store(out, bytes);
  out = Store(out, shape.segments);
  Store(out, std::uint64_t{0});
}

void WriteReplyHeader(const ReplyHeader& header, std::byte* out) {
  out = Store(out, header.id);
  out = Store(out, header.payload_bytes);
  out = Store(out, header.rows);
  Store(out, static_cast<std::uint32_t>(header.form));
}

Parsed ParseHello(std::span<const std::byte> bytes, Hello* hello, std::uint16_t* version) {
  const std::byte* at = bytes.data();
  if (bytes.size() >= 4 && Load<std::uint32_t>(at) != kMagic) return Parsed::kGarbage;
  if (bytes.size() < kHelloBytes) return Parsed::kShort;
  *version = Load<std::uint16_t>(at + 4);
  if (*version != kVersion) return Parsed::kOk;
  const auto lane = Load<std::uint8_t>(at + 6);
  if (lane > 1 || at[7] != std::byte{0}) return Parsed::kGarbage;
  hello->lane = static_cast<Lane>(lane);
  hello->incarnation = Incarnation(Load<std::uint64_t>(at + 8));
  std::memcpy(hello->token.bytes.data(), at + 16, hello->token.bytes.size());
  return Parsed::kOk;
}

Parsed ParseHelloReply(std::span<const std::byte> bytes, HelloReply* reply) {
  const std::byte* at = bytes.data();
  if (bytes.size() >= 4 && Load<std::uint32_t>(at) != kMagic) return Parsed::kGarbage;
  if (bytes.size() < kHelloBytes) return Parsed::kShort;
  reply->incarnation = Incarnation(Load<std::uint64_t>(at + 8));
  // What the rest of another version's reply means is not known.
  if (Load<std::uint16_t>(at + 4) != kVersion) {
    reply->result = HelloResult::kOtherVersion;
    return Parsed::kOk;
  }
  if (at[7] != std::byte{0} || !AllZero(at + 16, 16)) return Parsed::kGarbage;
  const auto result = Load<std::uint8_t>(at + 6);
  if (result > static_cast<std::uint8_t>(HelloResult::kOtherVersion)) return Parsed::kGarbage;
  reply->result = static_cast<HelloResult>(result);
  return Parsed::kOk;
}

Parsed ParseRequest(std::span<const std::byte> bytes, RequestView* request) {
  if (bytes.size() < kRequestHeaderBytes) return Parsed::kShort;
  const std::byte* at = bytes.data();
  request->id = Load<std::uint64_t>(at);
  request->rows = Load<std::uint32_t>(at + 8);
  request->keys = Load<std::uint32_t>(at + 12);
  for (std::uint32_t s = 0; s < kMaxLocalSegments; ++s) {
    request->shape.bytes[s] = Load<std::uint32_t>(at + 16 + s * 4);
  }
  request->shape.segments = Load<std::uint32_t>(at + 28);
  if (!AllZero(at + 32, 8) || !ShapeIsSound(request->shape)) return Parsed::kGarbage;
  if (request->rows < 1 || request->rows > MaxRowsOf(request->shape)) return Parsed::kGarbage;
  if (request->keys < 1 || request->keys > request->rows) return Parsed::kGarbage;
  request->descriptors = at + kRequestHeaderBytes;
  request->key_table = request->descriptors + std::size_t{request->rows} * 8;
  request->bytes = kRequestHeaderBytes + (std::size_t{request->rows} + request->keys) * 8;
  if (bytes.size() < request->bytes) return Parsed::kShort;
  for (std::uint32_t row = 0; row < request->rows; ++row) {
    if (KeyIndexOf(request->Descriptor(row)) >= request->keys) return Parsed::kGarbage;
  }
  return Parsed::kOk;
}

Parsed ParseReplyHeader(std::span<const std::byte> bytes, ReplyHeader* header) {
  if (bytes.size() < kReplyHeaderBytes) return Parsed::kShort;
  const std::byte* at = bytes.data();
  header->id = Load<std::uint64_t>(at);
  header->payload_bytes = Load<std::uint64_t>(at + 8);
  header->rows = Load<std::uint32_t>(at + 16);
  const auto form = Load<std::uint32_t>(at + 20);
  if (form > static_cast<std::uint32_t>(ReplyForm::kAllRefused)) return Parsed::kGarbage;
  header->form = static_cast<ReplyForm>(form);
  return Parsed::kOk;
}

bool SameToken(const SessionToken& a, const SessionToken& b) {
  std::uint32_t difference = 0;
  for (std::size_t i = 0; i < a.bytes.size(); ++i) {
    difference |= static_cast<std::uint32_t>(a.bytes[i] ^ b.bytes[i]);
  }
  // The barrier keeps the compiler from leaving the loop early.
  __asm__ volatile("" : "+r"(difference));
  return difference == 0;
}

}  // namespace engram::fabric::stream
