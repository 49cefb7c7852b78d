// ENGRAM_CHECK(condition): an invariant of ours. Always on; a failure prints the condition and its
// place and aborts. What the outside world controls is an error, never a check. Thread-safe.
#pragma once

#include <cstdio>
#include <cstdlib>

#define ENGRAM_CHECK(condition)                                                              \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      std::fprintf(stderr, "%s:%d: invariant broken: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)
