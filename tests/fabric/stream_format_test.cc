#include "fabric/stream/format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace engram::fabric::stream {
namespace {

// A sound request for `rows` rows over two keys, sealed shape.
std::vector<std::byte> Request(std::uint32_t rows) {
  const Shape shape{2, {264, 8, 0}};
  std::vector<std::byte> bytes(kRequestHeaderBytes + rows * 8 + 2 * 8);
  WriteRequestHeader(7, rows, 2, shape, bytes.data());
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::uint64_t descriptor = PackDescriptor(row % 2, row * 272);
    std::memcpy(bytes.data() + kRequestHeaderBytes + row * 8, &descriptor, 8);
  }
  const std::uint64_t keys[] = {0x1111, 0x2222};
  std::memcpy(bytes.data() + kRequestHeaderBytes + rows * 8, keys, sizeof keys);
  return bytes;
}

Parsed Parse(const std::vector<std::byte>& bytes) {
  RequestView view;
  return ParseRequest(bytes, &view);
}

std::vector<std::byte> With32(std::vector<std::byte> bytes, std::size_t at, std::uint32_t value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

TEST(StreamFormat, ARequestComesBackAsItWasWritten) {
  const auto bytes = Request(48);
  RequestView view;
  ASSERT_EQ(ParseRequest(bytes, &view), Parsed::kOk);
  EXPECT_EQ(view.id, 7u);
  EXPECT_EQ(view.rows, 48u);
  EXPECT_EQ(view.bytes, bytes.size());
  EXPECT_EQ(view.shape, (Shape{2, {264, 8, 0}}));
  EXPECT_EQ(view.Key(KeyIndexOf(view.Descriptor(5))), 0x2222u);
  EXPECT_EQ(OffsetOf(view.Descriptor(5)), 5u * 272);
}

TEST(StreamFormat, EveryProperPrefixOfARequestIsShort) {
  auto bytes = Request(3);
  while (!bytes.empty()) {
    bytes.pop_back();
    EXPECT_EQ(Parse(bytes), Parsed::kShort) << bytes.size();
  }
}

TEST(StreamFormat, RefusesEveryBrokenRule) {
  const auto good = Request(4);
  EXPECT_EQ(Parse(With32(good, 8, 0)), Parsed::kGarbage) << "no rows";
  EXPECT_EQ(Parse(With32(good, 8, kMaxRows + 1)), Parsed::kGarbage) << "too many rows";
  EXPECT_EQ(Parse(With32(good, 12, 0)), Parsed::kGarbage) << "no keys";
  EXPECT_EQ(Parse(With32(good, 12, 5)), Parsed::kGarbage) << "more keys than rows";
  EXPECT_EQ(Parse(With32(good, 12, 1)), Parsed::kGarbage) << "a key index beyond the keys";
  EXPECT_EQ(Parse(With32(good, 16, 0)), Parsed::kGarbage) << "an empty segment";
  EXPECT_EQ(Parse(With32(good, 16, kMaxOpBytes)), Parsed::kGarbage) << "a row too long";
  EXPECT_EQ(Parse(With32(good, 16, 0xffffffff)), Parsed::kGarbage) << "lengths that overflow";
  EXPECT_EQ(Parse(With32(good, 24, 4)), Parsed::kGarbage) << "bytes of a third segment of two";
  EXPECT_EQ(Parse(With32(good, 28, 0)), Parsed::kGarbage) << "no segment";
  EXPECT_EQ(Parse(With32(good, 28, 4)), Parsed::kGarbage) << "four segments";
  EXPECT_EQ(Parse(With32(good, 28, 0x102)), Parsed::kGarbage) << "bytes that must be zero";
  EXPECT_EQ(Parse(With32(good, 36, 1)), Parsed::kGarbage) << "bytes that must be zero";
  EXPECT_EQ(Parse(good), Parsed::kOk);
}

TEST(StreamFormat, AMessageCarriesNoMoreThanThePayloadBound) {
  EXPECT_EQ(MaxRowsOf({2, {264, 8, 0}}), kMaxRows);
  const Shape large{1, {kMaxOpBytes, 0, 0}};
  EXPECT_EQ(MaxRowsOf(large), kMaxPayloadBytes / kMaxOpBytes);
  std::vector<std::byte> bytes(kRequestHeaderBytes + 5 * 16);
  WriteRequestHeader(1, 5, 1, large, bytes.data());
  EXPECT_EQ(Parse(bytes), Parsed::kGarbage);
}

TEST(StreamFormat, AHelloComesBackAsItWasWritten) {
  Hello hello{Lane::kBulk, Incarnation(77), {}};
  hello.token.bytes[3] = 9;
  std::byte bytes[kHelloBytes];
  WriteHello(hello, bytes);
  Hello read;
  std::uint16_t version = 0;
  ASSERT_EQ(ParseHello(bytes, &read, &version), Parsed::kOk);
  EXPECT_EQ(version, kVersion);
  EXPECT_EQ(read.lane, Lane::kBulk);
  EXPECT_EQ(read.incarnation, Incarnation(77));
  EXPECT_TRUE(SameToken(read.token, hello.token));
  EXPECT_EQ(ParseHello(std::span(bytes).first(31), &read, &version), Parsed::kShort);
  bytes[6] = std::byte{2};
  EXPECT_EQ(ParseHello(bytes, &read, &version), Parsed::kGarbage);
  bytes[4] = std::byte{9};
  EXPECT_EQ(ParseHello(bytes, &read, &version), Parsed::kOk) << "another version is an answer";
  EXPECT_EQ(version, 9);
  bytes[0] = std::byte{'G'};
  EXPECT_EQ(ParseHello(std::span(bytes).first(4), &read, &version), Parsed::kGarbage);
}

TEST(StreamFormat, AHelloReplyOfThisVersionHasItsZerosAndOneOfAnotherIsToldApart) {
  for (const std::size_t at : {std::size_t{6}, std::size_t{7}, std::size_t{16}, std::size_t{31}}) {
    std::byte bytes[kHelloBytes];
    WriteHelloReply({HelloResult::kWelcome, Incarnation(8)}, bytes);
    bytes[at] = std::byte{9};
    HelloReply reply;
    EXPECT_EQ(ParseHelloReply(bytes, &reply), Parsed::kGarbage) << "byte " << at;
    bytes[4] = std::byte{2};
    ASSERT_EQ(ParseHelloReply(bytes, &reply), Parsed::kOk) << "byte " << at;
    EXPECT_EQ(reply.result, HelloResult::kOtherVersion);
  }
}

TEST(StreamFormat, RepliesComeBackAsTheyWereWritten) {
  std::byte bytes[kHelloBytes];
  WriteHelloReply({HelloResult::kOtherIncarnation, Incarnation(8)}, bytes);
  HelloReply hello;
  ASSERT_EQ(ParseHelloReply(bytes, &hello), Parsed::kOk);
  EXPECT_EQ(hello.result, HelloResult::kOtherIncarnation);
  EXPECT_EQ(hello.incarnation, Incarnation(8));

  WriteReplyHeader({5, 816, 3, ReplyForm::kMixed}, bytes);
  ReplyHeader reply;
  ASSERT_EQ(ParseReplyHeader(bytes, &reply), Parsed::kOk);
  EXPECT_EQ(reply.id, 5u);
  EXPECT_EQ(reply.payload_bytes, 816u);
  EXPECT_EQ(reply.rows, 3u);
  EXPECT_EQ(reply.form, ReplyForm::kMixed);
  bytes[20] = std::byte{3};
  EXPECT_EQ(ParseReplyHeader(bytes, &reply), Parsed::kGarbage);
}

TEST(StreamFormat, TokensAreTheSameOnlyWhenEveryByteIs) {
  SessionToken a;
  for (std::size_t i = 0; i < a.bytes.size(); ++i) {
    SessionToken b = a;
    EXPECT_TRUE(SameToken(a, b));
    b.bytes[i] ^= 0x80;
    EXPECT_FALSE(SameToken(a, b)) << i;
  }
}

}  // namespace
}  // namespace engram::fabric::stream
