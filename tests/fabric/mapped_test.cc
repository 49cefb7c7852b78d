// What the conformance suite cannot say of mapped memory: hostile readers, hostile owners, the copy
// loop.

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engram/random.h"
#include "fabric/mapped/gather.h"
#include "fabric/mapped/mapped_fabric.h"
#include "fabric/mapped/mapped_target.h"
#include "fabric/mapped/wire.h"
#include "fabric/memory.h"

namespace engram::fabric {
namespace {

using mapped::Reply;
using mapped::Request;
using mapped::Verb;

Instant Soon() { return SystemClock::Get().Now() + std::chrono::seconds(10); }

class MappedTest : public testing::Test {
 protected:
  void SetUp() override {
    slab_ = *Slab::Create({.bytes = std::uint64_t{2} << 20, .pages = PageSize::k4KiB});
    for (std::size_t i = 0; i < slab_->bytes(); ++i) slab_->data()[i] = std::byte(i * 7);
    Open({});
  }
  void Open(MappedTargetOptions options) {
    options.incarnation = Incarnation(3);
    auto target = OpenMappedTarget(options);
    ASSERT_TRUE(target.ok()) << target.status();
    target_ = *std::move(target);
    token_ = random_.Bits<SessionTokenTag>();
    target_->Admit(token_);
    region_ = *target_->Expose({slab_.get(), 4096, 65536, 1});
    target_->Allow(token_, region_.key);
  }
  PeerAddress Address() const { return {target_->address(), token_, NodeId{"n"}, Incarnation(3)}; }
  // A connection that speaks for itself.
  int Dial() const {
    const auto address = *mapped::ParseSocketAddress(target_->address().address);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, address.get(), address.bytes), 0) << strerror(errno);
    return fd;
  }
  // Reads one whole region through a well-behaved client.
  void ExpectServes() {
    auto fabric = OpenMappedFabric();
    const auto peer = fabric->AddPeer(Address(), Soon());
    ASSERT_TRUE(peer.ok()) << peer.status();
    const auto region = fabric->Import({*peer, region_.address, region_.length, region_.key});
    ASSERT_TRUE(region.ok()) << region.status();
    EXPECT_EQ(memcmp(reinterpret_cast<const void*>(region->address), slab_->data() + 4096, 65536),
              0);
    fabric->Release(*region);
  }

  SystemRandom random_;
  std::unique_ptr<Slab> slab_;
  std::unique_ptr<Target> target_;
  SessionToken token_;
  ExposedRegion region_;
};

// What arrives on `socket`: its bytes (0: closed), and a descriptor where one came along.
ssize_t ReceiveReply(int socket, Reply* reply, int* fd) {
  iovec part{reply, sizeof *reply};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  *fd = -1;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr) {
    memcpy(fd, CMSG_DATA(header), sizeof *fd);
  }
  return bytes;
}

// Sends one request and returns the answer; its code is ~0 when the connection ends.
Reply AskOn(int socket, const Request& request, int* fd) {
  Reply reply;
  reply.code = ~0u;
  *fd = -1;
  if (send(socket, &request, sizeof request, MSG_NOSIGNAL) != sizeof request) return reply;
  if (ReceiveReply(socket, &reply, fd) != sizeof reply) reply.code = ~0u;
  return reply;
}

Request OpenRequest(const SessionToken& token) {
  Request open;
  memcpy(open.token, token.bytes.data(), sizeof open.token);
  return open;
}

Request ImportRequest(std::uint64_t key) {
  Request import;
  import.verb = Verb::kImport;
  import.key = key;
  return import;
}

// True once the other end has closed; waits for it.
bool IsCutOff(int socket) {
  Reply reply;
  int fd;
  ssize_t bytes;
  while ((bytes = ReceiveReply(socket, &reply, &fd)) > 0) continue;
  return bytes == 0 || errno == ECONNRESET;
}

std::size_t OpenDescriptors() {
  const auto folder = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(folder), end(folder)));
}

TEST_F(MappedTest, AReaderThatKeepsTheDescriptorCannotWriteByAnyWay) {
  const int socket = Dial();
  int fd = -1;
  ASSERT_EQ(AskOn(socket, OpenRequest(token_), &fd).code, 0u);  // the greeting
  Reply reply;
  ReceiveReply(socket, &reply, &fd);
  reply = AskOn(socket, ImportRequest(region_.key), &fd);
  ASSERT_EQ(reply.code, 0u);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
  const int again = open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC);
  for (int each : {fd, again}) {
    if (each < 0) continue;
    EXPECT_EQ(pwrite(each, "x", 1, 4096), -1);
    EXPECT_EQ(ftruncate(each, 0), -1);
    EXPECT_EQ(fallocate(each, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
    EXPECT_EQ(mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, each, 0), MAP_FAILED);
    void* const mapped = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, each, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    EXPECT_EQ(mprotect(mapped, 4096, PROT_READ | PROT_WRITE), -1);
    munmap(mapped, 4096);
    close(each);
  }
  close(socket);
  ExpectServes();
}

TEST_F(MappedTest, TheMappingOfAClientCannotBeMadeWritable) {
  auto fabric = OpenMappedFabric();
  const auto peer = fabric->AddPeer(Address(), Soon());
  ASSERT_TRUE(peer.ok()) << peer.status();
  const auto region = fabric->Import({*peer, region_.address, region_.length, region_.key});
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(mprotect(reinterpret_cast<void*>(region->address), 4096, PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(errno, EACCES);
}

TEST_F(MappedTest, KeepsNoDescriptorAndUnmapsAfterTheLastRegion) {
  auto fabric = OpenMappedFabric();
  const auto peer = fabric->AddPeer(Address(), Soon());
  ASSERT_TRUE(peer.ok()) << peer.status();
  const std::size_t before = OpenDescriptors();
  const RemoteRegion granted{*peer, region_.address, region_.length, region_.key};
  const auto first = fabric->Import(granted);
  const auto second = fabric->Import(granted.Slice(100, 200));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(second->address, first->address + 100);
  EXPECT_EQ(OpenDescriptors(), before);
  unsigned char resident;
  void* const page = reinterpret_cast<void*>(first->address);
  fabric->Release(*first);
  EXPECT_EQ(mincore(page, 4096, &resident), 0);
  fabric->Release(*second);
  EXPECT_EQ(mincore(page, 4096, &resident), -1);
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(MappedTest, CutsOffGarbageAndServesOthers) {
  SeededRandom random(5);
  for (std::size_t bytes : {std::size_t{1}, sizeof(Request) - 1, sizeof(Request),
                            sizeof(Request) + 1, std::size_t{60'000}}) {
    const int socket = Dial();
    std::vector<std::uint8_t> garbage(bytes);
    for (auto& byte : garbage) byte = static_cast<std::uint8_t>(random.Next());
    send(socket, garbage.data(), garbage.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(IsCutOff(socket)) << bytes;
    close(socket);
  }
  ExpectServes();
}

TEST_F(MappedTest, CutsOffRequestsInTheWrongOrder) {
  int fd;
  const int early = Dial();
  const Request import = ImportRequest(region_.key);
  send(early, &import, sizeof import, MSG_NOSIGNAL);
  EXPECT_TRUE(IsCutOff(early));
  close(early);
  const int twice = Dial();
  const Request open = OpenRequest(token_);
  AskOn(twice, open, &fd);
  send(twice, &open, sizeof open, MSG_NOSIGNAL);
  EXPECT_TRUE(IsCutOff(twice));
  close(twice);
}

TEST_F(MappedTest, SilentConnectionsGiveWay) {
  target_.reset();
  MappedTargetOptions options;
  options.max_connections = 4;
  options.open_deadline = std::chrono::hours(1);
  Open(options);
  std::vector<int> silent;
  for (int i = 0; i < 12; ++i) silent.push_back(Dial());
  ExpectServes();
  for (int socket : silent) close(socket);
}

TEST_F(MappedTest, SilentConnectionsAreCutOffInTime) {
  target_.reset();
  MappedTargetOptions options;
  options.open_deadline = std::chrono::milliseconds(20);
  Open(options);
  const int socket = Dial();
  EXPECT_TRUE(IsCutOff(socket));
  close(socket);
}

TEST_F(MappedTest, CutsOffAPeerThatDoesNotReadItsReplies) {
  const int socket = Dial();
  int fd;
  AskOn(socket, OpenRequest(token_), &fd);
  const Request import = ImportRequest(region_.key);
  int sent = 0;
  while (sent < 100'000 && send(socket, &import, sizeof import, MSG_NOSIGNAL) > 0) ++sent;
  EXPECT_LT(sent, 100'000);
  close(socket);
  ExpectServes();
}

TEST_F(MappedTest, RefusesOtherUsers) {
  target_.reset();
  MappedTargetOptions options;
  options.allowed_uids = {geteuid() + 1};
  Open(options);
  const auto peer = OpenMappedFabric()->AddPeer(Address(), Soon());
  EXPECT_TRUE(absl::IsPermissionDenied(peer.status())) << peer.status();
}

TEST_F(MappedTest, AnotherNonceIsAnotherHost) {
  PeerAddress address = Address();
  address.path.nonce ^= 1;
  const auto peer = OpenMappedFabric()->AddPeer(address, Soon());
  EXPECT_TRUE(absl::IsFailedPrecondition(peer.status())) << peer.status();
}

TEST_F(MappedTest, TakesTheSocketFileOfADeadProcessButNotOfALivingOne) {
  const std::string path = testing::TempDir() + "engram-mapped-" + std::to_string(getpid());
  const auto address = *mapped::ParseSocketAddress(path);
  const int dead = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(dead, address.get(), address.bytes), 0);
  close(dead);
  MappedTargetOptions options;
  options.address = path;
  auto living = OpenMappedTarget(options);
  ASSERT_TRUE(living.ok()) << living.status();
  const auto second = OpenMappedTarget(options);
  EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
  (*living)->Stop();
  (*living)->Stop();
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST_F(MappedTest, RefusesAddressesThatAreNone) {
  MappedTargetOptions options;
  for (const std::string& address :
       {std::string("relative"), std::string("@"), std::string(200, '/')}) {
    options.address = address;
    EXPECT_TRUE(absl::IsInvalidArgument(OpenMappedTarget(options).status())) << address;
  }
}

// An owner that hands out whatever descriptor it is told to.
class HostileOwner {
 public:
  HostileOwner(int fd, Reply import) : fd_(fd), import_(import) {
    const auto address = *mapped::ParseSocketAddress(name_);
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(listener_, address.get(), address.bytes), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~HostileOwner() {
    thread_.join();
    close(listener_);
    close(fd_);
  }
  PeerAddress address() const { return {{FabricKind::kMapped, name_, true, true, 0}, {}, {}, {}}; }

 private:
  void Serve() {
    const int peer = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const Reply fine;
    Request request;
    send(peer, &fine, sizeof fine, MSG_NOSIGNAL);
    if (recv(peer, &request, sizeof request, 0) > 0) send(peer, &fine, sizeof fine, MSG_NOSIGNAL);
    if (recv(peer, &request, sizeof request, 0) > 0) {
      iovec part{&import_, sizeof import_};
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      memcpy(CMSG_DATA(header), &fd_, sizeof fd_);
      sendmsg(peer, &message, MSG_NOSIGNAL);
    }
    close(peer);
  }

  const std::string name_ = "@engram-test-" + SystemRandom().Bits<struct TestTag>().Hex();
  const int fd_;
  Reply import_;
  int listener_ = -1;
  std::thread thread_;
};

int Memfd(std::uint64_t bytes, int seals, int flags) {
  const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(ftruncate(fd, static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
  const int reopened = open(("/proc/self/fd/" + std::to_string(fd)).c_str(), flags | O_CLOEXEC);
  close(fd);
  return reopened;
}

absl::Status ImportFrom(int fd, std::uint64_t slab_bytes, std::uint64_t length) {
  Reply import;
  import.slab_bytes = slab_bytes;
  import.page_bytes = 4096;
  import.length = length;
  HostileOwner owner(fd, import);
  auto fabric = OpenMappedFabric();
  const auto peer = fabric->AddPeer(owner.address(), Soon());
  EXPECT_TRUE(peer.ok()) << peer.status();
  return peer.ok() ? fabric->Import({*peer, 0, 4096, 1}).status() : peer.status();
}

TEST(MappedImport, TakesOnlySealedReadOnlySlabsOfTheSaidLength) {
  const std::size_t before = OpenDescriptors();
  EXPECT_TRUE(ImportFrom(Memfd(8192, kSlabSeals, O_RDONLY), 8192, 8192).ok());
  for (int missing : {F_SEAL_FUTURE_WRITE, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL}) {
    const auto status = ImportFrom(Memfd(8192, kSlabSeals & ~missing, O_RDONLY), 8192, 8192);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << missing << ": " << status;
  }
  EXPECT_FALSE(ImportFrom(Memfd(8192, kSlabSeals, O_RDWR), 8192, 8192).ok());
  EXPECT_FALSE(ImportFrom(Memfd(4096, kSlabSeals, O_RDONLY), 8192, 8192).ok());
  EXPECT_FALSE(ImportFrom(Memfd(8192, kSlabSeals, O_RDONLY), 8192, 8193).ok());
  EXPECT_FALSE(ImportFrom(open("/dev/zero", O_RDONLY | O_CLOEXEC), 8192, 8192).ok());
  EXPECT_EQ(OpenDescriptors(), before);
}

// Both copy loops, every length and misalignment: the right bytes and no others.
TEST(Gather, CopiesExactlyTheBytesWanted) {
  std::vector<std::byte> from(2048), to(2048);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = std::byte(i * 31 + i / 256);
  for (const Gathering& gather : {kGatherBaseline, ChooseGather()}) {
    for (std::uint32_t length = 0; length < 900; ++length) {
      std::fill(to.begin(), to.end(), std::byte{0xee});
      const std::size_t skew = length % 5;
      ReadOp op;
      op.region = {PeerId(1), reinterpret_cast<std::uint64_t>(from.data()), from.size(), 42};
      op.offset = 3 + skew;
      op.length = length;
      op.local[0] = {to.data() + 8 + skew, length, nullptr};
      ReadCompletion done{0, ReadStatus::kInvalid};
      gather.ops(&op, 1, 42, {&done, 0, 0});
      ASSERT_EQ(done.status, ReadStatus::kOk);
      ASSERT_EQ(memcmp(to.data() + 8 + skew, from.data() + 3 + skew, length), 0) << length;
      ASSERT_EQ(to[7 + skew], std::byte{0xee});
      ASSERT_EQ(to[8 + skew + length], std::byte{0xee}) << length;
    }
  }
}

// Rows of the widths that have loops of their own and of others, with seals and without.
TEST(Gather, RowsLandWholeAndNextToNothingElse) {
  constexpr std::size_t kRows = 40, kGap = 5;
  for (const Gathering& gather : {kGatherBaseline, ChooseGather()}) {
    for (const std::uint32_t width : {160u, 264u, 320u, 7u, 256u, 1000u}) {
      const std::size_t stored = width + 8;
      std::vector<std::byte> memory(kRows * stored), landed(kRows * (width + kGap));
      for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = std::byte(i * 31 + i / 256);
      for (const std::size_t count : {std::size_t{1}, std::size_t{9}, kRows}) {
        for (const bool sealed : {false, true}) {
          std::fill(landed.begin(), landed.end(), std::byte{0xee});
          std::vector<std::uint64_t> from, seals(count + 1, 77);
          std::vector<std::byte*> to;
          for (std::size_t i = 0; i < kRows; ++i) {
            const std::size_t row = (i * 17) % kRows;
            from.push_back(reinterpret_cast<std::uint64_t>(memory.data() + row * stored));
            to.push_back(landed.data() + i * (width + kGap));
          }
          gather.rows({width, count, from.data(), to.data(), sealed ? seals.data() : nullptr,
                       kRows - count});
          for (std::size_t i = 0; i < kRows; ++i) {
            const std::byte* const row = reinterpret_cast<const std::byte*>(from[i]);  // NOLINT
            const bool read = i < count;
            ASSERT_EQ(memcmp(to[i], row, width) == 0, read) << width << " row " << i;
            for (std::size_t gap = 0; gap < kGap; ++gap)
              ASSERT_EQ(to[i][width + gap], std::byte{0xee}) << width << " after row " << i;
            if (!read || !sealed) continue;
            ASSERT_EQ(memcmp(&seals[i], row + width, 8), 0) << width;
          }
          EXPECT_EQ(seals[sealed ? count : 0], 77u);
        }
      }
    }
  }
}

TEST(Gather, RefusesWhatItMustNotTouch) {
  std::vector<std::byte> from(512), to(512);
  ReadOp good;
  good.region = {PeerId(1), reinterpret_cast<std::uint64_t>(from.data()), from.size(), 42};
  good.length = 100;
  good.local[0] = {to.data(), 100, nullptr};
  ReadOp other_key = good, outside = good, too_long = good, no_segment = good, many = good;
  other_key.region.key = 43;
  outside.offset = 413;
  too_long.local[0].bytes = 101;
  no_segment.segments = 0;
  many.segments = 4;
  const ReadOp ops[] = {other_key, outside, too_long, no_segment, many, good};
  ReadCompletion done[8];
  for (const Gathering& gather : {kGatherBaseline, ChooseGather()}) {
    gather.ops(ops, 6, 42, {done, 7, 0});
    for (int i = 0; i < 5; ++i) EXPECT_EQ(done[i].status, ReadStatus::kRefused) << i;
    EXPECT_EQ(done[5].status, ReadStatus::kOk);
  }
}

}  // namespace
}  // namespace engram::fabric
