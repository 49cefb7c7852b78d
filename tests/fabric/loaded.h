// What loading a library may change in a process.
#pragma once

#include <signal.h>

#include <fstream>
#include <string>
#include <vector>

namespace engram::fabric {

inline std::vector<void*> SignalDispositions() {
  std::vector<void*> all;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction now {};
    all.push_back(sigaction(number, nullptr, &now) == 0 ? reinterpret_cast<void*>(now.sa_sigaction)
                                                        : nullptr);
  }
  return all;
}

inline bool IsMapped(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    if (line.find(name) != std::string::npos) return true;
  }
  return false;
}

}  // namespace engram::fabric
