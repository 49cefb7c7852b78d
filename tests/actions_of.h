// What a state machine asked for, of one kind.
#pragma once

#include <variant>
#include <vector>

namespace engram {

template <class T, class... Of>
std::vector<T> All(const std::vector<std::variant<Of...>>& actions) {
  std::vector<T> out;
  for (const auto& action : actions) {
    if (const T* found = std::get_if<T>(&action)) out.push_back(*found);
  }
  return out;
}

}  // namespace engram
