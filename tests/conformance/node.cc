#include "tests/conformance/node.h"

#include <string.h>

#include <iostream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fabric/memory.h"

namespace engram::fabric::conformance {
namespace {

std::uint64_t PatternWord(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::uint64_t PatternSeed(Incarnation incarnation, std::uint32_t slab) {
  return (incarnation.value() << 48) + (std::uint64_t{slab} << 40) + 0x9e3779b97f4a7c15u;
}

class NodeHere final : public Node {
 public:
  NodeHere(std::vector<std::unique_ptr<Slab>> slabs, std::unique_ptr<Target> target)
      : slabs_(std::move(slabs)), target_(std::move(target)) {}

  PathAddress address() const override { return target_->address(); }
  absl::StatusOr<ExposedRegion> Expose(const MemoryPlace& place) override {
    return target_->Expose(
        {slabs_.at(place.slab).get(), place.offset, place.length, place.alignment});
  }
  void Hide(std::uint64_t key) override { target_->Hide(key); }
  void Admit(const SessionToken& session) override { target_->Admit(session); }
  void Dismiss(const SessionToken& session) override { target_->Dismiss(session); }
  void Allow(const SessionToken& session, std::uint64_t key) override {
    target_->Allow(session, key);
  }
  void Disallow(const SessionToken& session, std::uint64_t key) override {
    target_->Disallow(session, key);
  }
  void Stop() override { target_->Stop(); }

 private:
  const std::vector<std::unique_ptr<Slab>> slabs_;
  const std::unique_ptr<Target> target_;  // ends before its slabs
};

// One command line; returns the answer line.
std::string Serve(Node& node, const std::string& line) {
  std::istringstream in(line);
  std::string verb, hex;
  in >> verb;
  SessionToken session;
  std::uint64_t key = 0;
  if (verb == "expose") {
    MemoryPlace place;
    in >> place.slab >> place.offset >> place.length >> place.alignment;
    const auto region = node.Expose(place);
    if (!region.ok()) return absl::StrCat("error ", std::string(region.status().message()));
    return absl::StrCat("ok ", region->address, " ", region->length, " ", region->key);
  }
  if (verb == "hide") {
    in >> key;
    node.Hide(key);
    return "ok";
  }
  in >> hex >> key;
  if (!SessionToken::Parse(hex, &session)) return "error no token in: " + line;
  if (verb == "admit") node.Admit(session);
  if (verb == "dismiss") node.Dismiss(session);
  if (verb == "allow") node.Allow(session, key);
  if (verb == "disallow") node.Disallow(session, key);
  return "ok";
}

}  // namespace

std::byte PatternByte(Incarnation incarnation, std::uint32_t slab, std::uint64_t offset) {
  const std::uint64_t word = PatternWord(PatternSeed(incarnation, slab) + offset / 8);
  return static_cast<std::byte>(word >> (offset % 8 * 8));
}

absl::StatusOr<std::unique_ptr<Node>> StartNodeHere(const Rig& rig, const TargetPlace& place) {
  auto target = rig.OpenTarget(place);
  if (!target.ok()) return target.status();
  std::vector<std::unique_ptr<Slab>> slabs;
  for (std::uint32_t i = 0; i < kSlabs; ++i) {
    auto slab =
        rig.MakeSlab(**target, {.bytes = kSlabBytes, .name = absl::StrCat("conformance-", i)});
    if (!slab.ok()) return slab.status();
    for (std::uint64_t at = 0; at < kSlabBytes; at += 8) {
      const std::uint64_t word = PatternWord(PatternSeed(place.incarnation, i) + at / 8);
      memcpy((*slab)->data() + at, &word, 8);
    }
    slabs.push_back(*std::move(slab));
  }
  return std::make_unique<NodeHere>(std::move(slabs), *std::move(target));
}

int ServeNode(const Rig& rig, const TargetPlace& place) {
  auto node = StartNodeHere(rig, place);
  if (!node.ok()) {
    std::cout << "error " << node.status() << std::endl;
    return 1;
  }
  const PathAddress at = (*node)->address();
  std::cout << "ok " << static_cast<int>(at.fabric) << " " << at.one_sided << " " << at.offloaded
            << " " << at.nonce << " " << at.address << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << Serve(**node, line) << std::endl;
  }
  (*node)->Stop();
  return 0;
}

}  // namespace engram::fabric::conformance
