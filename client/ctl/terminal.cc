#include "client/ctl/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>

namespace engram::ctl {

Terminal Terminal::Standard() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::string_view(term) == "dumb";
  const bool wanted = (no_color == nullptr || *no_color == '\0') && !dumb;
  return {std::cout, std::cerr, isatty(STDERR_FILENO) == 1 && !dumb,
          wanted && isatty(STDOUT_FILENO) == 1};
}

std::string Painted(const Terminal& terminal, Paint paint, std::string_view text) {
  if (!terminal.color || paint == Paint::kPlain) return std::string(text);
  const char* code = paint == Paint::kGood ? "32" : paint == Paint::kCaution ? "33" : "31";
  return "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m";
}

void Progress::Show(std::string_view line) {
  if (!terminal_.err_is_tty) return;
  terminal_.err << "\r\x1b[K" << line << std::flush;
  drawn_ = true;
}

void Progress::Clear() {
  if (drawn_) terminal_.err << "\r\x1b[K" << std::flush;
  drawn_ = false;
}

}  // namespace engram::ctl
