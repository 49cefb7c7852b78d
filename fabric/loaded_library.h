// A shared library that is loaded at its first use and stays until the process ends. Free
// functions: Thread-safe.
#pragma once

#include <cstring>
#include <string>

namespace engram::fabric {

// Null on failure; then `why` is what the loader said. The signal dispositions of the process stay
// as they are, whatever the constructors of the library do to them: PSM2, which Debian's libfabric
// brings, takes over the signals of crashes. The library is never unloaded: it may start threads
// and exit handlers that must find their code.
void* LoadLibraryForGood(const std::string& file, std::string* why);

// Null on failure; then `why` is what the loader said. `version` may be null: the default one.
void* FindSymbol(void* library, const char* name, const char* version, std::string* why);

// Fills `call`, a pointer to a function of that name. False: there is none.
template <class Call>
bool FindCall(void* library, const char* name, const char* version, Call* call, std::string* why) {
  void* const symbol = FindSymbol(library, name, version, why);
  std::memcpy(call, &symbol, sizeof symbol);
  return symbol != nullptr;
}

}  // namespace engram::fabric
