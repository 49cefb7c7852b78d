// What tests of a node's state and loop start from: tables cut into shards of 1 MiB, options, and
// the actions of one kind among many.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "poolserver/node_state.h"
#include "tests/actions_of.h"

namespace engram::poolserver {

inline TableRecord TableOf(std::uint8_t number) {
  TableRecord table;
  table.uid.bytes[0] = number;
  table.name = {"t", std::to_string(number)};
  table.spec.columns = {{0, 0, 0, 16'384}};
  table.spec.planes = {{"value", DType::kBytes, 256}};
  table.spec.addressing.function = "identity";
  table.spec.addressing.layers = {0};
  table.options.shard_bytes = kMinShardBytes;
  return table;
}

inline NodeOptions SmallNode() {
  NodeOptions options;
  options.node = {"node-0"};
  options.process_nonce = "abc";
  options.paths = {PathAddress{}};
  return options;
}

inline ShardKey Shard(std::uint32_t index, std::uint8_t table = 1) {
  return {TableOf(table).uid, ShardIndex(index)};
}

}  // namespace engram::poolserver
