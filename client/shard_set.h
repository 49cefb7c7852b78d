// Shards of any tables, a bit each: what a session was granted, which may be a million of them.
// Thread-compatible.
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <utility>

#include "engram/ids.h"
#include "engram/shard_map.h"

namespace engram::client {

class ShardSet {
 public:
  void Insert(const ShardKey& key) { blocks_[BlockOf(key)].set(BitOf(key)); }
  // Whether it was there.
  bool Erase(const ShardKey& key) {
    const auto block = blocks_.find(BlockOf(key));
    if (block == blocks_.end() || !block->second.test(BitOf(key))) return false;
    block->second.reset(BitOf(key));
    if (block->second.none()) blocks_.erase(block);
    return true;
  }
  void Clear() { blocks_.clear(); }

 private:
  using Block = std::pair<TableUid, std::uint32_t>;
  static Block BlockOf(const ShardKey& key) {
    return {key.table, key.shard.value() / kChunkShards};
  }
  static std::size_t BitOf(const ShardKey& key) { return key.shard.value() % kChunkShards; }

  std::map<Block, std::bitset<kChunkShards>> blocks_;
};

}  // namespace engram::client
