#include "client/gpu/gpu_direct.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/gpu/host_model.h"
#include "engram/clock.h"
#include "engram/random.h"
#include "fabric/memory.h"

namespace engram::client::gpu {
namespace {

constexpr std::uint32_t kRowBytes = 272;
constexpr Duration kPatience = std::chrono::seconds(5);

absl::Status Lacks(const std::string& name, const char* what) {
  return absl::FailedPreconditionError(absl::StrCat(
      name, ": ", what, "; rows land in host memory instead, which needs nothing of this"));
}

}  // namespace

// One test: what it exposes, reads and checks.
class DirectTest {
 public:
  explicit DirectTest(const DirectTestOptions& options)
      : options_(options), random_(options.seed), facts_(options.device->facts()) {}
  ~DirectTest() {
    if (queue_ != nullptr) queue_->Close();
    if (imported_) options_.fabric->Release(region_);
    if (exposed_) options_.target->Hide(key_);
    if (added_) options_.fabric->RemovePeer(peer_);
    if (added_) options_.target->Dismiss(kToken);
  }

  absl::StatusOr<DirectLicence> Run() {
    if (!options_.fabric->info().device_memory)
      return Lacks(facts_.name, "the fabric was not opened for memory of a GPU");
    if (!facts_.can_land) return Lacks(facts_.name, "no NIC may write to it");
    if (!facts_.is_ordered && !facts_.can_flush)
      return Lacks(facts_.name, "NIC writes are not ordered, and there is no flush");
    if (absl::Status status = Prepare(); !status.ok()) return status;
    const DirectLicence licence(options_.device, !facts_.is_ordered);
    for (std::uint32_t round = 1; round <= options_.rounds; ++round) {
      if (absl::Status status = Round(licence, round); !status.ok()) return status;
    }
    return licence;
  }

 private:
  static constexpr SessionToken kToken{{0x67, 0x70, 0x75}};

  absl::Status Prepare();
  absl::Status Round(const DirectLicence& licence, std::uint32_t round);
  absl::Status ReadAll();

  const DirectTestOptions options_;
  SeededRandom random_;
  const LandingDevice::Facts facts_;
  std::unique_ptr<fabric::Slab> slab_;
  std::span<std::byte> memory_;
  std::unique_ptr<fabric::MemoryRegion> landing_;
  bool added_ = false, exposed_ = false, imported_ = false;
  fabric::PeerId peer_;
  std::uint64_t key_ = 0;
  fabric::RemoteRegion region_;
  std::unique_ptr<fabric::ReadQueue> queue_;
  std::vector<fabric::ReadOp> ops_;
};

absl::Status DirectTest::Prepare() {
  const std::size_t bytes = std::size_t{options_.rows} * kRowBytes;
  auto memory = options_.device->TestMemory(bytes);
  if (!memory.ok()) return memory.status();
  memory_ = *memory;
  auto landing = options_.fabric->Register(memory_, options_.device->kind());
  if (!landing.ok()) return landing.status();
  landing_ = *std::move(landing);
  fabric::SlabOptions slab;
  slab.bytes = bytes;
  slab.pages = fabric::PageSize::k4KiB;
  slab.name = "engram-direct-test";
  auto made = fabric::Slab::Create(slab);
  if (!made.ok()) return made.status();
  slab_ = *std::move(made);
  options_.target->Admit(kToken);
  fabric::PeerAddress address;
  address.path = options_.target->address();
  address.token = kToken;
  address.node = options_.node;
  address.incarnation = options_.incarnation;
  auto peer = options_.fabric->AddPeer(address, SystemClock::Get().Now() + kPatience);
  if (!peer.ok()) return peer.status();
  peer_ = *peer;
  added_ = true;
  auto exposed = options_.target->Expose({slab_.get(), 0, bytes, 8});
  if (!exposed.ok()) return exposed.status();
  key_ = exposed->key;
  exposed_ = true;
  options_.target->Allow(kToken, key_);
  auto region = options_.fabric->Import({peer_, exposed->address, exposed->length, key_});
  if (!region.ok()) return region.status();
  region_ = *region;
  imported_ = true;
  auto queue = options_.fabric->OpenQueue({});
  if (!queue.ok()) return queue.status();
  queue_ = *std::move(queue);
  for (std::uint32_t i = 0; i < options_.rows; ++i) {
    fabric::ReadOp op;
    op.region = region_;
    op.offset = std::uint64_t{i} * kRowBytes;
    op.cookie = i;
    op.length = kRowBytes;
    op.local[0] = {memory_.data() + op.offset, kRowBytes, landing_.get()};
    ops_.push_back(op);
  }
  return absl::OkStatus();
}

absl::Status DirectTest::Round(const DirectLicence& licence, std::uint32_t round) {
  const std::uint64_t seed = options_.seed + round;
  for (std::size_t i = 0; i < memory_.size() / 8; ++i) {
    const std::uint64_t word = PatternWord(seed, i);
    std::memcpy(slab_->data() + i * 8, &word, sizeof word);
  }
  for (std::size_t i = ops_.size(); i > 1; --i) std::swap(ops_[i - 1], ops_[random_.Below(i)]);
  LandingDevice& device = licence.device();
  // The kernel is running, and waiting, while the NIC writes.
  if (absl::Status status = device.StartCheck(seed, round); !status.ok()) return status;
  absl::Status read = ReadAll();
  if (read.ok() && !licence.Flush()) read = Lacks(facts_.name, "its flush fails");
  HostModel().Store(device.round_word(), round);
  const auto stale = device.FinishCheck();
  if (!read.ok()) return read;
  if (!stale.ok()) return stale.status();
  if (*stale == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      facts_.name, ": in round ", round, " of ", options_.rounds, " a kernel saw ", *stale, " of ",
      memory_.size() / 8, " words of older reads after the NIC had completed",
      licence.needs_flush() ? " and the flush" : "",
      ": nothing may land directly here; rows land in host memory instead"));
}

absl::Status DirectTest::ReadAll() {
  const Instant give_up = SystemClock::Get().Now() + kPatience;
  std::array<fabric::ReadCompletion, 64> completions;
  std::size_t submitted = 0, completed = 0;
  while (completed < ops_.size()) {
    submitted += queue_->Submit(std::span(ops_).subspan(submitted));
    const std::size_t count = queue_->Poll(completions);
    completed += count;
    for (std::size_t i = 0; i < count; ++i) {
      if (completions[i].status == ReadStatus::kOk) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          facts_.name, ": a read into its memory ended as ",
          absl::string_view(Name(completions[i].status).data(), Name(completions[i].status).size()),
          "; rows land in host memory instead"));
    }
    if (SystemClock::Get().Now() >= give_up)
      return Lacks(facts_.name, "reads into its memory do not end");
  }
  return absl::OkStatus();
}

absl::StatusOr<DirectLicence> TestDirectLanding(const DirectTestOptions& options) {
  return DirectTest(options).Run();
}

}  // namespace engram::client::gpu
