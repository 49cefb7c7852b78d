#include "engram/checkpoint/checkpoint_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "engram/checkpoint/writer.h"
#include "engram/synthetic.h"
#include "tests/checkpoint/temporary_folder.h"

namespace engram {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kLayer5[] = "model-00002-of-00003.safetensors";

CheckpointPlan SmallPlan(const std::string& folder) {
  CheckpointPlan plan;
  plan.directory = folder;
  plan.geometry.layers = {5, 2};
  plan.geometry.heads = 2;
  plan.geometry.max_order = 3;
  plan.geometry.base_rows = 1000;
  plan.geometry.raw_vocab = 300;
  plan.seed = 9;
  return plan;
}

class CheckpointSourceTest : public testing::Test {
 protected:
  void Write(const CheckpointPlan& plan) {
    auto spec = WriteCheckpoint(plan);
    ASSERT_TRUE(spec.ok()) << spec.status();
    spec_ = *spec;
  }
  void SetUp() override { Write(SmallPlan(folder_.path())); }

  absl::Status OpenStatus(const std::string& name_map = "") {
    return CheckpointSource::Open(folder_.path(), name_map).status();
  }
  std::string OpenError(const std::string& name_map = "") {
    return std::string(OpenStatus(name_map).message());
  }
  void ChangeJson(const std::string& file, const std::function<void(json&)>& change) {
    json value = json::parse(folder_.Read(file));
    change(value);
    folder_.Write(file, value.dump());
  }
  // Rewrites the header of a safetensors file, data unchanged.
  void ChangeHeader(const std::string& file, const std::function<void(json&)>& change) {
    const std::string bytes = folder_.Read(file);
    std::uint64_t length;
    std::memcpy(&length, bytes.data(), 8);
    json header = json::parse(bytes.substr(8, length));
    change(header);
    const std::string text = header.dump();
    const std::string data = bytes.substr(8 + length);
    length = text.size();
    folder_.Write(file, std::string(reinterpret_cast<const char*>(&length), 8) + text + data);
  }
  void ExpectEveryRowRight() {
    auto source = CheckpointSource::Open(folder_.path(), "");
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ((*source)->spec(), spec_);
    EXPECT_EQ((*source)->inspection().source_bytes, spec_.Rows() * 264);
    std::vector<std::byte> rows(spec_.Rows() * 264), expected(264);
    ASSERT_TRUE((*source)->ReadRows(RowId(0), rows).ok());
    for (std::uint64_t row = 0; row < spec_.Rows(); ++row) {
      FillSyntheticRow(9, RowId(row), expected);
      ASSERT_EQ(std::memcmp(rows.data() + row * 264, expected.data(), 264), 0) << row;
    }
  }

  TemporaryFolder folder_;
  TableSpec spec_;
};

TEST_F(CheckpointSourceTest, WrittenRowsReadBackAsTheSyntheticTable) { ExpectEveryRowRight(); }

TEST_F(CheckpointSourceTest, PrefixedNamesAndNestedConfigReadTheSame) {
  for (const char* prefix : {"model.", "language_model.model."}) {
    CheckpointPlan plan = SmallPlan(folder_.path());
    plan.tensor_prefix = prefix;
    plan.nested_config = true;
    Write(plan);
    ExpectEveryRowRight();
  }
}

TEST_F(CheckpointSourceTest, ExtentsCoverTheRowsOfOnePlaneAcrossLayers) {
  const auto source = *CheckpointSource::Open(folder_.path(), "");
  const std::uint64_t edge = spec_.LayerRows(5);
  const auto extents = source->Extents(1, RowId(edge - 3), 10);
  ASSERT_EQ(extents.size(), 2u);
  EXPECT_EQ(extents[0].path, folder_.File(kLayer5));
  EXPECT_EQ(extents[0].bytes, 3u * 8);
  EXPECT_EQ(extents[1].path, folder_.File("model-00003-of-00003.safetensors"));
  EXPECT_EQ(extents[1].bytes, 7u * 8);
  const std::string file = folder_.Read(kLayer5);
  std::vector<std::byte> scale(8);
  FillSyntheticBytes(9, RowId(edge - 3), 256, scale);
  EXPECT_EQ(std::memcmp(file.data() + extents[0].offset, scale.data(), 8), 0);
  EXPECT_TRUE(source->Extents(0, RowId(7), 0).empty());
}

TEST_F(CheckpointSourceTest, OneFileWithoutIndexIsACheckpointToo) {
  CheckpointPlan plan = SmallPlan(folder_.path());
  plan.geometry.layers = {5};
  Write(plan);
  std::filesystem::rename(folder_.File("model-00002-of-00002.safetensors"),
                          folder_.File("model.safetensors"));
  std::filesystem::remove(folder_.File(kIndex));
  ExpectEveryRowRight();
}

TEST_F(CheckpointSourceTest, BytesStoredAsU8AreAccepted) {
  ChangeHeader(kLayer5, [](json& header) {
    header["layers.5.engram.embed.scale"]["dtype"] = "U8";
    header["layers.5.engram.embed.weight"]["dtype"] = "U8";
  });
  ExpectEveryRowRight();
}

TEST_F(CheckpointSourceTest, NameMapRenames) {
  ChangeHeader(kLayer5, [](json& header) {
    header["odd"] = header["layers.5.engram.embed.scale"];
    header.erase("layers.5.engram.embed.scale");
  });
  ChangeJson(kIndex, [](json& index) {
    index["weight_map"].erase("layers.5.engram.embed.scale");
    index["weight_map"]["odd"] = kLayer5;
  });
  EXPECT_THAT(OpenError(), HasSubstr("lists no tensor layers.5.engram.embed.scale"));
  EXPECT_TRUE(OpenStatus(R"({"layers.5.engram.embed.scale": "odd"})").ok());
  EXPECT_THAT(OpenError(R"({"layers.5.engram.embed.scale": "ode"})"),
              HasSubstr("did you mean odd?"));
  EXPECT_THAT(
      OpenError(R"({"layers.5.engram.embed.scale": "odd", "layers.5.engram.embed.wait": "odd"})"),
      HasSubstr("did you mean layers.5.engram.embed.weight?"));
  EXPECT_THAT(OpenError("[]"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(OpenError(R"({"a": 1})"), HasSubstr("no name"));
  EXPECT_THAT(OpenError("{"), HasSubstr("the name map does not parse"));
}

TEST_F(CheckpointSourceTest, MissingFilesAreNamed) {
  for (const char* file : {kLayer5, "config.json", "tokenizer.json", kIndex}) {
    SetUp();
    std::filesystem::remove(folder_.File(file));
    EXPECT_EQ(OpenStatus().code(), absl::StatusCode::kNotFound) << OpenStatus();
    EXPECT_THAT(OpenError(), HasSubstr(file));
  }
  EXPECT_EQ(CheckpointSource::Open("/nonexistent", "").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(CheckpointSourceTest, TruncatedTensorFileIsRefused) {
  std::filesystem::resize_file(folder_.File(kLayer5),
                               std::filesystem::file_size(folder_.File(kLayer5)) - 1);
  EXPECT_THAT(OpenError(), HasSubstr("it is truncated"));
}

TEST_F(CheckpointSourceTest, FileThatShrinksAfterOpeningIsDataLoss) {
  const auto source = *CheckpointSource::Open(folder_.path(), "");
  std::filesystem::resize_file(folder_.File(kLayer5), 5000);
  std::vector<std::byte> rows(264 * 100);
  EXPECT_EQ(source->ReadRows(RowId(50), rows).code(), absl::StatusCode::kDataLoss);
}

TEST_F(CheckpointSourceTest, WrongDtypeOrShapeIsRefused) {
  ChangeHeader(kLayer5,
               [](json& header) { header["layers.5.engram.embed.weight"]["dtype"] = "I8"; });
  EXPECT_THAT(OpenError(), HasSubstr("has dtype \"I8\"; it must be F8_E4M3"));
  SetUp();
  ChangeHeader(kLayer5,
               [](json& header) { header["layers.5.engram.embed.scale"]["dtype"] = "F8_E4M3"; });
  EXPECT_THAT(OpenError(), HasSubstr("it must be F8_E8M0"));
  SetUp();
  ChangeHeader(kLayer5, [](json& header) {
    auto& shape = header["layers.5.engram.embed.weight"]["shape"];
    std::swap(shape[0], shape[1]);
  });
  EXPECT_THAT(OpenError(),
              HasSubstr("config.json leads to [" + std::to_string(spec_.LayerRows(5)) + ", 256]"));
}

TEST_F(CheckpointSourceTest, IndexAndFilesMustAgree) {
  ChangeJson(kIndex, [](json& index) {
    index["weight_map"]["layers.5.engram.embed.weight"] = "model-00001-of-00003.safetensors";
  });
  EXPECT_THAT(OpenError(), HasSubstr("but that file does not hold it"));
  SetUp();
  ChangeJson(kIndex, [](json& index) {
    index["weight_map"]["model.layers.5.engram.embed.weight"] = kLayer5;
  });
  EXPECT_THAT(OpenError(), HasSubstr("say which one with --name-map"));
  SetUp();
  ChangeJson(kIndex, [](json& index) {
    index["weight_map"]["layers.5.engram.embed.weight"] = "gone.safetensors";
  });
  EXPECT_THAT(OpenError(), HasSubstr("gone.safetensors does not exist"));
}

TEST_F(CheckpointSourceTest, CountsThatDifferFromTheConfigAreRefused) {
  ChangeJson("config.json", [](json& config) { config["engram_compressed_vocab_size"] = 7; });
  EXPECT_THAT(OpenError(), HasSubstr("engram_compressed_vocab_size is 7"));
  SetUp();
  ChangeJson("config.json", [](json& config) { config["engram_num_embeddings"][0] = 7; });
  EXPECT_THAT(OpenError(), HasSubstr("says 7 rows for layer 5"));
  SetUp();
  folder_.Write("tokenizer.json", GenerateTokenizer(299));
  EXPECT_THAT(OpenError(), HasSubstr("299 tokens"));
  folder_.Write("tokenizer.json", "{]");
  EXPECT_THAT(OpenError(), HasSubstr("tokenizer.json does not parse as JSON"));
}

TEST(WriteCheckpointTest, FailureIsNamedAndLeavesNoCheckpoint) {
  EXPECT_EQ(WriteCheckpoint(SmallPlan("/proc/nowhere")).status().code(),
            absl::StatusCode::kResourceExhausted);
  CheckpointPlan plan = SmallPlan("/tmp");
  plan.tokenizer = "/nonexistent";
  EXPECT_EQ(WriteCheckpoint(plan).status().code(), absl::StatusCode::kNotFound);
  plan = SmallPlan("/tmp");
  plan.geometry.value_bytes = 100;
  EXPECT_THAT(std::string(WriteCheckpoint(plan).status().message()),
              HasSubstr("engram_head_dim is 100"));
  plan.geometry.raw_vocab = ~std::uint64_t{0};
  EXPECT_THAT(std::string(WriteCheckpoint(plan).status().message()),
              HasSubstr("the limit is 1048576"));
}

}  // namespace
}  // namespace engram
