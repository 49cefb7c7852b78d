// What readers can have of a tier of memory, measured for some tens of milliseconds when a node
// starts: rows at random places, by a few threads. It compares tiers and nodes with each other; a
// reader on another host has what its network gives. Free functions: Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engram/clock.h"
#include "poolserver/arena.h"

namespace engram::poolserver {

// Bytes of rows a second. 0: there is too little memory to tell.
std::uint64_t MeasureReads(std::span<const std::byte> memory);

// How much memory a probe may take after `took` for making `made` bytes of it, so that making it
// ends in less than half a second: at most `most`, `made` where more would not pay.
std::uint64_t AffordableProbe(std::uint64_t made, Duration took, std::uint64_t most);

// Of the tier that an arena with these options will be: on its device, or of memory taken for the
// moment from where its slabs will come. 0: there is none to be had.
std::uint64_t MeasureReads(const Arena::Options& tier);

}  // namespace engram::poolserver
