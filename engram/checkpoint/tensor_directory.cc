#include "engram/checkpoint/tensor_directory.h"

#include <sys/stat.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "engram/checkpoint/json.h"

namespace engram {
namespace {

constexpr std::uint64_t kMaxIndexBytes = 64 << 20;
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kSingle[] = "model.safetensors";
constexpr std::string_view kPrefixes[] = {"", "model.", "language_model.model.", "language_model.",
                                          "model.language_model."};

bool Exists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

absl::StatusOr<std::map<std::string, std::string>> ParseNameMap(const std::string& text) {
  std::map<std::string, std::string> renamed;
  if (text.empty()) return renamed;
  auto json = ParseJson(text, "the name map");
  if (!json.ok()) return json.status();
  if (!json->is_object()) {
    return absl::InvalidArgumentError(
        "the name map must be a JSON object {wanted tensor name: name in the files}");
  }
  for (const auto& [wanted, name] : json->items()) {
    if (!name.is_string()) {
      return absl::InvalidArgumentError(absl::StrCat("the name map renames ", QuotedText(wanted),
                                                     " to something that is no name"));
    }
    renamed.emplace(wanted, name.get<std::string>());
  }
  return renamed;
}

template <class Map>
std::vector<std::string> Keys(const Map& map) {
  std::vector<std::string> keys;
  keys.reserve(map.size());
  for (const auto& [key, value] : map) keys.push_back(key);
  return keys;
}

}  // namespace

absl::StatusOr<TensorDirectory> TensorDirectory::Open(const std::string& directory,
                                                      const std::string& name_map_json) {
  TensorDirectory out;
  out.directory_ = directory;
  auto renamed = ParseNameMap(name_map_json);
  if (!renamed.ok()) return renamed.status();
  out.renamed_ = *std::move(renamed);
  const std::string index = absl::StrCat(directory, "/", kIndex);
  const std::string single = absl::StrCat(directory, "/", kSingle);
  if (Exists(index)) {
    auto text = ReadSmallFile(index, kMaxIndexBytes);
    if (!text.ok()) return text.status();
    auto files = ParseSafetensorsIndex(*text, index);
    if (!files.ok()) return files.status();
    out.listing_ = index;
    out.files_ = *std::move(files);
    return out;
  }
  if (!Exists(single)) {
    return absl::NotFoundError(absl::StrCat(directory, " has neither ", kIndex, " nor ", kSingle,
                                            ": it is not a checkpoint directory"));
  }
  auto header = ReadSafetensorsHeader(single);
  if (!header.ok()) return header.status();
  out.listing_ = single;
  for (const auto& [name, tensor] : *header) out.files_.emplace(name, kSingle);
  out.headers_.emplace(kSingle, *std::move(header));
  return out;
}

absl::StatusOr<std::string> TensorDirectory::Resolve(const std::string& wanted) const {
  if (const auto renamed = renamed_.find(wanted); renamed != renamed_.end()) {
    if (files_.contains(renamed->second)) return renamed->second;
    return absl::InvalidArgumentError(absl::StrCat(
        "the name map renames ", wanted, " to ", QuotedText(renamed->second), ", which ", listing_,
        " does not list", DidYouMean(renamed->second, Keys(files_))));
  }
  std::string found;
  for (std::string_view prefix : kPrefixes) {
    const std::string name = std::string(prefix) + wanted;
    if (!files_.contains(name)) continue;
    if (!found.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(listing_, " lists both ", found, " and ", name,
                                                     "; say which one with --name-map"));
    }
    found = name;
  }
  if (!found.empty()) return found;
  return absl::InvalidArgumentError(absl::StrCat(
      listing_, " lists no tensor ", wanted, ", with or without the prefix model. or ",
      "language_model.model.", DidYouMean(wanted, Keys(files_)), " Rename with --name-map"));
}

absl::StatusOr<TensorDirectory::Found> TensorDirectory::Find(const std::string& wanted) {
  asked_[wanted] = true;
  auto name = Resolve(wanted);
  if (!name.ok()) return name.status();
  const std::string& file = files_.at(*name);
  const std::string path = absl::StrCat(directory_, "/", file);
  if (!headers_.contains(file)) {
    if (!Exists(path)) {
      return absl::NotFoundError(absl::StrCat(listing_, " says that ", *name, " is in ", file,
                                              ", but ", path, " does not exist"));
    }
    auto header = ReadSafetensorsHeader(path);
    if (!header.ok()) return header.status();
    headers_.emplace(file, *std::move(header));
  }
  const Tensors& tensors = headers_.at(file);
  const auto tensor = tensors.find(*name);
  if (tensor == tensors.end()) {
    return absl::InvalidArgumentError(absl::StrCat(listing_, " says that ", *name, " is in ", file,
                                                   ", but that file does not hold it",
                                                   DidYouMean(*name, Keys(tensors))));
  }
  return Found{path, *name, tensor->second};
}

absl::Status TensorDirectory::CheckNameMapUsed() const {
  for (const auto& [wanted, name] : renamed_) {
    if (asked_.contains(wanted)) continue;
    return absl::InvalidArgumentError(absl::StrCat("the name map renames ", QuotedText(wanted),
                                                   ", which this table does not need",
                                                   DidYouMean(wanted, Keys(asked_))));
  }
  return absl::OkStatus();
}

}  // namespace engram
