#include "engram/log.h"

#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace engram {
namespace {

std::string& Name() {
  static std::string* const name = new std::string("engram");
  return *name;
}

}  // namespace

void SetLogName(std::string_view program) { Name() = program; }

void Log(std::string_view line) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  gmtime_r(&now.tv_sec, &utc);
  char stamp[40];
  const std::size_t length = strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
  char fraction[8];
  std::snprintf(fraction, sizeof fraction, ".%03dZ ", static_cast<int>(now.tv_nsec / 1'000'000));
  std::string text(stamp, length);
  text += fraction;
  text += Name();
  text += ' ';
  text += line;
  text += '\n';
  // One write: lines of several threads do not mix. Nobody can be told when it fails.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace engram
