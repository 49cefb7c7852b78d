#include "client/cache/hot_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace engram::client {
namespace {

constexpr std::string_view kFileMagic = "engram-hot 1 ";
constexpr std::uint64_t kMostFileBytes = std::uint64_t{1} << 30;

absl::Status FileError(const std::string& what, const std::string& path, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat(what, " ", path));
}

// Takes a number and the one space before it, if `spaced`, off the front of `line`.
bool TakeNumber(std::string_view* line, bool spaced, std::uint64_t* value) {
  if (spaced) {
    if (line->empty() || line->front() != ' ') return false;
    line->remove_prefix(1);
  }
  const auto [end, error] = std::from_chars(line->data(), line->data() + line->size(), *value);
  if (error != std::errc() || end == line->data()) return false;
  line->remove_prefix(static_cast<std::size_t>(end - line->data()));
  return true;
}

absl::Status ParseLine(std::string_view line, const HotFileLimits& limits, HotNgram* ngram) {
  const auto malformed = [](const char* why) { return absl::InvalidArgumentError(why); };
  if (!TakeNumber(&line, false, &ngram->hits)) return malformed("it does not start with a number");
  while (!line.empty()) {
    std::uint64_t row;
    if (!TakeNumber(&line, true, &row)) return malformed("a row is not a number after one space");
    if (row >= limits.rows)
      return absl::InvalidArgumentError(
          absl::StrCat("row ", row, " does not exist: the table has ", limits.rows));
    if (ngram->ids.size() == limits.unit_rows)
      return absl::InvalidArgumentError(
          absl::StrCat("it has more than ", limits.unit_rows, " rows"));
    ngram->ids.push_back(RowId(row));
  }
  return ngram->ids.empty() ? malformed("it names no row") : absl::OkStatus();
}

}  // namespace

std::string HotText(const std::string& spec_digest, std::span<const HotNgram> ngrams) {
  std::string text = absl::StrCat(std::string(kFileMagic), spec_digest, "\n");
  for (const HotNgram& ngram : ngrams) {
    absl::StrAppend(&text, ngram.hits);
    for (const RowId id : ngram.ids) absl::StrAppend(&text, " ", id.value());
    text.push_back('\n');
  }
  return text;
}

absl::StatusOr<std::vector<HotNgram>> ParseHotText(const std::string& text,
                                                   const HotFileLimits& limits) {
  std::string_view rest = text;
  std::vector<HotNgram> ngrams;
  for (std::size_t number = 1; !rest.empty() && ngrams.size() < limits.ngrams; ++number) {
    const std::size_t end = rest.find('\n');
    if (end == rest.npos)
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, " has no end: the file was cut short"));
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (number > 1) {
      HotNgram ngram;
      if (absl::Status status = ParseLine(line, limits, &ngram); !status.ok())
        return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", status.message()));
      ngrams.push_back(std::move(ngram));
      continue;
    }
    if (!line.starts_with(kFileMagic))
      return absl::InvalidArgumentError("line 1 is not \"engram-hot 1 SPEC_DIGEST\"");
    if (line.substr(kFileMagic.size()) != limits.spec_digest)
      return absl::FailedPreconditionError(absl::StrCat(
          "it is of spec ", std::string(line.substr(kFileMagic.size(), 64)), "; the table's is ",
          limits.spec_digest, ": dump the hot n-grams of this table anew"));
  }
  if (text.empty()) return absl::InvalidArgumentError("the file is empty");
  return ngrams;
}

absl::Status WriteHotFile(const std::string& path, const std::string& spec_digest,
                          std::span<const HotNgram> ngrams) {
  const std::string text = HotText(spec_digest, ngrams);
  const std::string part = absl::StrCat(path, ".part.", getpid());
  const int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return FileError("creating", part, errno);
  std::size_t done = 0;
  int error = 0;
  while (error == 0 && done < text.size()) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) error = errno;
    if (wrote > 0) done += static_cast<std::size_t>(wrote);
  }
  if (close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(part.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  unlink(part.c_str());
  return FileError("writing", path, error);
}

absl::StatusOr<std::vector<HotNgram>> ReadHotFile(const std::string& path,
                                                  const HotFileLimits& limits) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return FileError("hot n-grams", path, errno);
  if (!S_ISREG(info.st_mode) || static_cast<std::uint64_t>(info.st_size) > kMostFileBytes)
    return absl::InvalidArgumentError(absl::StrCat(
        "hot n-grams ", path, ": it is not a regular file of at most ", kMostFileBytes, " bytes"));
  std::ifstream file(path, std::ios::binary);
  if (!file) return FileError("hot n-grams", path, errno);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  auto ngrams = ParseHotText(text, limits);
  if (ngrams.ok()) return ngrams;
  return absl::Status(ngrams.status().code(),
                      absl::StrCat("hot n-grams ", path, ": ", ngrams.status().message()));
}

}  // namespace engram::client
