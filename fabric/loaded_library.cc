#include "fabric/loaded_library.h"

#include <dlfcn.h>
#include <signal.h>

#include <array>

namespace engram::fabric {
namespace {

class SignalDispositions {
 public:
  SignalDispositions() {
    for (int number = 1; number < NSIG; ++number) {
      is_known_[number] = sigaction(number, nullptr, &before_[number]) == 0;
    }
  }
  // Puts back what changed.
  ~SignalDispositions() {
    for (int number = 1; number < NSIG; ++number) {
      struct sigaction now {};
      if (!is_known_[number] || sigaction(number, nullptr, &now) != 0) continue;
      if (now.sa_sigaction != before_[number].sa_sigaction) {
        sigaction(number, &before_[number], nullptr);
      }
    }
  }
  SignalDispositions(const SignalDispositions&) = delete;
  SignalDispositions& operator=(const SignalDispositions&) = delete;

 private:
  std::array<struct sigaction, NSIG> before_{};
  std::array<bool, NSIG> is_known_{};
};

std::string LoaderError() {
  const char* const error = dlerror();
  return error == nullptr ? "no reason given" : error;
}

}  // namespace

void* LoadLibraryForGood(const std::string& file, std::string* why) {
  const SignalDispositions kept;
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) *why = LoaderError();
  return library;
}

void* FindSymbol(void* library, const char* name, const char* version, std::string* why) {
  void* const symbol = version == nullptr ? dlsym(library, name) : dlvsym(library, name, version);
  if (symbol == nullptr) *why = LoaderError();
  return symbol;
}

}  // namespace engram::fabric
