// What a peer of the stream fabric may send: hello, hello reply, request and reply header, all
// parsed from the same bytes. Whatever parses keeps the bounds of format.h, written again gives the
// same bytes, and is never judged otherwise when it arrives in pieces.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "fabric/stream/format.h"

namespace {

using namespace engram::fabric;
using namespace engram::fabric::stream;
using Bytes = std::span<const std::byte>;

void Require(bool holds) {
  if (!holds) std::abort();
}

void Hellos(Bytes bytes) {
  Hello hello;
  std::uint16_t version = 0;
  std::byte again[kHelloBytes];
  if (ParseHello(bytes, &hello, &version) == Parsed::kOk && version == kVersion) {
    Require(hello.lane == Lane::kUrgent || hello.lane == Lane::kBulk);
    WriteHello(hello, again);
    Require(std::equal(again, again + kHelloBytes, bytes.data()));
    Require(SameToken(hello.token, hello.token));
    engram::SessionToken other = hello.token;
    other.bytes[static_cast<std::size_t>(bytes[8]) % other.bytes.size()] ^= 1;
    Require(!SameToken(hello.token, other));
  }
  HelloReply reply;
  if (ParseHelloReply(bytes, &reply) != Parsed::kOk) return;
  Require(reply.result <= HelloResult::kOtherVersion);
  WriteHelloReply(reply, again);
  std::memcpy(&version, bytes.data() + 4, sizeof version);
  Require(version == kVersion ? std::equal(again, again + kHelloBytes, bytes.data())
                              : reply.result == HelloResult::kOtherVersion);
  HelloReply same;
  Require(ParseHelloReply(again, &same) == Parsed::kOk);
  Require(same.result == reply.result && same.incarnation == reply.incarnation);
}

void CheckBounds(const RequestView& request, Bytes bytes) {
  const Shape& shape = request.shape;
  Require(request.rows >= 1 && request.rows <= kMaxRows);
  Require(request.keys >= 1 && request.keys <= request.rows);
  Require(shape.segments >= 1 && shape.segments <= kMaxLocalSegments);
  std::uint64_t row_bytes = 0;
  for (std::uint32_t s = 0; s < kMaxLocalSegments; ++s) {
    Require((shape.bytes[s] != 0) == (s < shape.segments));
    row_bytes += shape.bytes[s];
  }
  Require(row_bytes <= kMaxOpBytes && request.rows * row_bytes <= kMaxPayloadBytes);
  Require(request.bytes <= bytes.size() && request.bytes <= kMaxRequestBytes);
  const std::byte* end = request.key_table + std::size_t{request.keys} * 8;
  Require(request.key_table == request.descriptors + std::size_t{request.rows} * 8);
  Require(end == bytes.data() + request.bytes);
}

// The parts written again are the bytes that were parsed.
void CheckRewritten(const RequestView& request, Bytes bytes) {
  std::vector<std::byte> again(request.bytes);
  WriteRequestHeader(request.id, request.rows, request.keys, request.shape, again.data());
  std::byte* to = again.data() + kRequestHeaderBytes;
  for (std::uint32_t row = 0; row < request.rows; ++row, to += 8) {
    const std::uint64_t descriptor = request.Descriptor(row);
    Require(KeyIndexOf(descriptor) < request.keys && OffsetOf(descriptor) <= kMaxOffset);
    const std::uint64_t packed = PackDescriptor(KeyIndexOf(descriptor), OffsetOf(descriptor));
    std::memcpy(to, &packed, 8);
  }
  for (std::uint32_t key = 0; key < request.keys; ++key, to += 8) {
    const std::uint64_t value = request.Key(key);
    std::memcpy(to, &value, 8);
  }
  Require(std::equal(again.begin(), again.end(), bytes.begin()));
}

void Requests(Bytes bytes) {
  RequestView request;
  const Parsed whole = ParseRequest(bytes, &request);
  if (whole == Parsed::kOk) {
    CheckBounds(request, bytes);
    CheckRewritten(request, bytes);
  }
  // A shorter piece is short or already garbage, never another request, and garbage stays garbage.
  const std::size_t limit = whole == Parsed::kOk ? request.bytes : bytes.size();
  for (std::size_t size : {std::size_t{0}, kRequestHeaderBytes - 1, kRequestHeaderBytes, limit / 2,
                           limit == 0 ? 0 : limit - 1}) {
    if (size >= limit) continue;
    // An own allocation, so that reading past the piece is seen.
    const std::vector<std::byte> piece(bytes.begin(), bytes.begin() + size);
    RequestView part;
    const Parsed parsed = ParseRequest(piece, &part);
    if (whole != Parsed::kGarbage) Require(parsed == Parsed::kShort);
  }
}

void Replies(Bytes bytes) {
  ReplyHeader header;
  if (ParseReplyHeader(bytes, &header) != Parsed::kOk) return;
  Require(header.form <= ReplyForm::kAllRefused);
  std::byte again[kReplyHeaderBytes];
  WriteReplyHeader(header, again);
  Require(std::equal(again, again + kReplyHeaderBytes, bytes.data()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  Hellos(bytes);
  Requests(bytes);
  Replies(bytes);
  return 0;
}
