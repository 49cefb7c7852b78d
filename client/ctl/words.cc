#include "client/ctl/words.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engram/settings/nearest.h"

namespace engram::ctl {

std::string UnknownWord(std::string_view kind, std::string_view word,
                        std::span<const std::string> known) {
  const std::string near = NearestWord(word, known);
  const std::string start = "there is no " + std::string(kind) + " \"" + std::string(word) + "\"";
  if (!near.empty()) return start + "; did you mean \"" + near + "\"?";
  return absl::StrCat(start, "; there are: ", absl::StrJoin(known, ", "));
}

}  // namespace engram::ctl
