#include "engram/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/temporary_folder.h"

namespace engram {
namespace {

using testing::HasSubstr;

// Header and data as one file.
std::string File(const std::string& header, std::uint64_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(header.size() >> (8 * i)));
  return file + header + std::string(data_bytes, 'x');
}
std::string HeaderError(const std::string& header, std::uint64_t data_bytes) {
  return std::string(
      ParseSafetensorsHeader(header, 8 + header.size() + data_bytes, "f").status().message());
}

constexpr char kTwo[] = R"({"__metadata__": {"format": "pt"},
  "b": {"dtype": "F8_E8M0", "shape": [2, 3], "data_offsets": [4, 10]},
  "a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}})";

TEST(SafetensorsTest, ReadsTensorsWithOffsetsInTheFile) {
  const auto tensors = ParseSafetensorsHeader(kTwo, 8 + sizeof kTwo - 1 + 10, "f");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  const Tensor& b = tensors->at("b");
  EXPECT_EQ(b.dtype, "F8_E8M0");
  EXPECT_EQ(b.shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(b.offset, 8 + sizeof kTwo - 1 + 4);
  EXPECT_EQ(b.bytes, 6u);
}

TEST(SafetensorsTest, TruncatedAndOverlongFilesAreRefused) {
  EXPECT_THAT(HeaderError(kTwo, 9), HasSubstr("it is truncated"));
  EXPECT_THAT(HeaderError(kTwo, 11), HasSubstr("after the last tensor"));
}

TEST(SafetensorsTest, OverlapsAndHolesAreRefused) {
  const auto two = [](const char* first, const char* second) {
    return std::string(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": )") + first +
           R"(}, "b": {"dtype": "U8", "shape": [4], "data_offsets": )" + second + "}}";
  };
  EXPECT_TRUE(
      ParseSafetensorsHeader(two("[0, 4]", "[4, 8]"), 8 + two("[0, 4]", "[4, 8]").size() + 8, "f")
          .ok());
  EXPECT_THAT(HeaderError(two("[0, 4]", "[3, 7]"), 7), HasSubstr("\"b\" overlaps"));
  EXPECT_THAT(HeaderError(two("[0, 4]", "[0, 4]"), 4), HasSubstr("overlaps"));
  EXPECT_THAT(HeaderError(two("[0, 4]", "[5, 9]"), 9), HasSubstr("leaves a hole"));
  EXPECT_THAT(HeaderError(two("[1, 5]", "[5, 9]"), 9), HasSubstr("leaves a hole"));
}

TEST(SafetensorsTest, ShapeMustMatchTheBytes) {
  const auto one = [](const char* dtype, const char* shape, const char* offsets) {
    return std::string(R"({"a": {"dtype": )") + dtype + R"(, "shape": )" + shape +
           R"(, "data_offsets": )" + offsets + "}}";
  };
  EXPECT_THAT(HeaderError(one("\"BF16\"", "[3]", "[0, 4]"), 4), HasSubstr("need 6"));
  EXPECT_THAT(HeaderError(one("\"U8\"", "[4294967296, 4294967296, 4]", "[0, 4]"), 4),
              HasSubstr("2^64 bits"));
  EXPECT_THAT(HeaderError(one("\"F4\"", "[3]", "[0, 1]"), 1), HasSubstr("inside a byte"));
  EXPECT_THAT(HeaderError(one("\"U8\"", "[-1]", "[0, 4]"), 4), HasSubstr("at least 0"));
  EXPECT_THAT(HeaderError(one("\"U8\"", "4", "[0, 4]"), 4), HasSubstr("must be a list"));
  EXPECT_THAT(HeaderError(one("\"U8\"", "[1,1,1,1,1,1,1,1,4]", "[0, 4]"), 4),
              HasSubstr("at most 8"));
  EXPECT_THAT(HeaderError(one("\"U8\"", "[4]", "[4, 0]"), 4), HasSubstr("begin <= end"));
  EXPECT_THAT(HeaderError(one("\"U8\"", "[4]", "[0]"), 4), HasSubstr("[begin, end]"));
  EXPECT_THAT(HeaderError(one("\"U8\"", "[4]", "[0, 9007199254740993]"), 4),
              HasSubstr("above 2^53"));
  EXPECT_THAT(HeaderError(one("\"U8\"", "[4]", "[\"0\", \"18446744073709551615\"]"), 4),
              HasSubstr("2^53"));
  EXPECT_THAT(HeaderError(one("7", "[4]", "[0, 4]"), 4), HasSubstr("lacks dtype"));
}

TEST(SafetensorsTest, BrokenHeadersAreRefused) {
  EXPECT_THAT(HeaderError("", 0), HasSubstr("does not parse"));
  EXPECT_THAT(HeaderError("[]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(HeaderError(R"({"a": 1})", 0), HasSubstr("\"a\" lacks dtype"));
  EXPECT_THAT(HeaderError(R"({"a": {"dtype": "U8", "dtype": "U8"}})", 0), HasSubstr("twice"));
}

TEST(SafetensorsTest, HostileHeaderLengthsAreRefusedBeforeAnythingIsAllocated) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& bytes) {
    folder.Write("f", bytes);
    return std::string(ReadSafetensorsHeader(folder.File("f")).status().message());
  };
  EXPECT_THAT(refused(""), HasSubstr("no 8-byte header length"));
  EXPECT_THAT(refused("1234567"), HasSubstr("no 8-byte header length"));
  EXPECT_THAT(refused(std::string(8, '\xff')), HasSubstr("claims 18446744073709551615 bytes"));
  EXPECT_THAT(refused(std::string("\x03\0\0\0\0\0\0\0{}", 10)),
              HasSubstr("claims 3 bytes; this file allows 2"));
  EXPECT_THAT(refused(File("{}", 3)), HasSubstr("after the last tensor"));
  folder.Write("f", File("{}", 0));
  EXPECT_TRUE(ReadSafetensorsHeader(folder.File("f")).ok());
  EXPECT_FALSE(ReadSafetensorsHeader(folder.path()).ok()) << "a folder";
  EXPECT_EQ(ReadSafetensorsHeader(folder.File("g")).status().code(), absl::StatusCode::kNotFound);
}

TEST(SafetensorsIndexTest, FileNamesMustStayInTheFolder) {
  const auto index = [](const std::string& file) {
    return ParseSafetensorsIndex(R"({"weight_map": {"a": )" + file + "}}", "i");
  };
  EXPECT_EQ(index("\"model-1.safetensors\"")->at("a"), "model-1.safetensors");
  for (const char* file :
       {"\"../x\"", "\"/etc/passwd\"", "\"\"", "\"..\"", "7", "null", "\"a\\u0000b\""}) {
    EXPECT_THAT(std::string(index(file).status().message()), HasSubstr("plain name")) << file;
  }
  EXPECT_THAT(std::string(ParseSafetensorsIndex("{}", "i").status().message()),
              HasSubstr("weight_map"));
}

}  // namespace
}  // namespace engram
