// Where a command writes: data on `out`, messages and progress on `err`. Progress is drawn only
// when `err` is a terminal; colour only when `out` is one and NO_COLOR is unset.
//
// Thread-confined: call from the owner thread only.
#pragma once

#include <ostream>
#include <string>
#include <string_view>

namespace engram::ctl {

struct Terminal {
  std::ostream& out;
  std::ostream& err;
  bool err_is_tty = false;
  bool color = false;

  // The process's own stdout and stderr.
  static Terminal Standard();
};

enum class Paint { kPlain, kGood, kCaution, kBad };
// `text`, wrapped in the escape codes of `paint` when the terminal shows colour.
std::string Painted(const Terminal& terminal, Paint paint, std::string_view text);

// One line on `err`, rewritten in place; nothing at all unless `err` is a terminal. The line is
// wiped when the object goes.
class Progress {
 public:
  explicit Progress(const Terminal& terminal) : terminal_(terminal) {}
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(std::string_view line);
  void Clear();

 private:
  const Terminal& terminal_;
  bool drawn_ = false;
};

}  // namespace engram::ctl
