// The floor of ucx: a bare ucp_get loop, one get a row with its seal, and a forked target that only
// makes progress.
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "bench/driver/paths.h"
#include "engram/clock.h"
#include "fabric/ucx/messages.h"
#include "fabric/ucx/transport.h"

namespace engram::bench {
namespace {

namespace ucx = fabric::ucx;

constexpr std::uint32_t kMostOutstanding = 4096;
constexpr Duration kServerSpin = std::chrono::microseconds(50);
constexpr std::size_t kMostGreeting = 1 << 16;

ucx::TransportOptions BareOptions(const std::string& transports) {
  ucx::TransportOptions options;
  options.transports = transports;
  options.emulate_get = true;
  return options;
}

bool WriteAll(int fd, const void* bytes, std::size_t size) {
  return write(fd, bytes, size) == static_cast<ssize_t>(size);
}

// A length, then so many bytes.
bool WriteBytes(int fd, const std::vector<std::byte>& bytes) {
  const std::uint64_t size = bytes.size();
  return WriteAll(fd, &size, sizeof size) && WriteAll(fd, bytes.data(), bytes.size());
}

bool ReadBytes(int fd, std::vector<std::byte>* bytes) {
  std::uint64_t size = 0;
  if (read(fd, &size, sizeof size) != sizeof size || size > kMostGreeting) return false;
  bytes->resize(size);
  return read(fd, bytes->data(), size) == static_cast<ssize_t>(size);
}

[[noreturn]] void ServeUcp(BenchTable& table, const std::string& transports, int fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto transport = ucx::Transport::Open(BareOptions(transports));
  if (!transport.ok()) _exit(1);
  const ucx::Libucx& library = (*transport)->library();
  auto worker = (*transport)->OpenWorker();
  auto memory = (*transport)
                    ->Register({table.data(), table.bytes()},
                               UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_REMOTE_READ);
  if (!worker.ok() || !memory.ok()) _exit(1);
  const auto key = (*transport)->PackKey(*memory);
  const auto address = (*transport)->AddressOf(*worker);
  pollfd wait{-1, POLLIN, 0};
  if (!key.ok() || !address.ok() || library.worker_get_efd(worker->get(), &wait.fd) != UCS_OK ||
      !WriteBytes(fd, *address) || !WriteBytes(fd, *key))
    _exit(1);
  Instant idle_from = SystemClock::Get().Now();
  for (;;) {
    if (library.worker_progress(worker->get()) != 0) {
      idle_from = SystemClock::Get().Now();
    } else if (SystemClock::Get().Now() - idle_from > kServerSpin &&
               library.worker_arm(worker->get()) == UCS_OK) {
      poll(&wait, 1, 100);
    }
  }
}

class UcpGet final : public ReadPath {
 public:
  UcpGet(std::shared_ptr<const UcpTarget> target, std::uint32_t outstanding)
      : name_(absl::StrCat("bare_ucp_get_", target->transports)),
        target_(std::move(target)),
        under_way_(outstanding) {
    for (UnderWay& batch : under_way_) batch.path = this;
  }
  ~UcpGet() override {
    if (key_ != nullptr) library_->rkey_destroy(key_);
    worker_.reset();  // closes the endpoint
  }
  const std::string& name() const override { return name_; }

  absl::Status Open() {
    auto transport = ucx::Transport::Open(BareOptions(target_->transports));
    if (!transport.ok()) return transport.status();
    transport_ = *std::move(transport);
    library_ = &transport_->library();
    auto worker = transport_->OpenWorker();
    if (!worker.ok()) return worker.status();
    worker_ = *std::move(worker);
    endpoint_ = ucx::OpenEndpoint(*library_, worker_.get(), ucx::ToWorker(target_->address),
                                  &UcpGet::Failed, this);
    if (endpoint_ == nullptr ||
        library_->ep_rkey_unpack(endpoint_, target_->key.data(), &key_) != UCS_OK)
      return absl::UnavailableError(absl::StrCat(name_, ": the target cannot be reached"));
    return absl::OkStatus();
  }

  absl::Status Read(std::span<const Batch> batches) override {
    const std::size_t stride = target_->stride;
    std::size_t posting = 0, row = 0, over = 0;  // batches, and a row of the one that is posted
    while (over < batches.size()) {
      while (posting < batches.size() && posting - over < under_way_.size() &&
             outstanding_ < kMostOutstanding && !failed_) {
        const Batch& batch = batches[posting];
        UnderWay& under_way = At(posting);
        if (row == 0) under_way.Begin(batch.ids.size(), stride);
        Post(batch.ids[row].value() * stride, &under_way.landing[row * stride], &under_way);
        if (++row < batch.ids.size()) continue;
        row = 0;
        ++posting;
      }
      library_->worker_progress(worker_.get());
      if (failed_) return absl::UnavailableError("a ucp_get failed");
      for (; over < posting && At(over).left == 0; ++over) Deliver(batches[over], At(over));
    }
    return absl::OkStatus();
  }

 private:
  // A batch whose rows are being read.
  struct UnderWay {
    void Begin(std::size_t rows, std::size_t stride) {
      left = rows;
      landing.resize(rows * stride);
    }
    UcpGet* path = nullptr;
    std::size_t left = 0;
    std::vector<std::byte> landing;
  };
  UnderWay& At(std::size_t batch) { return under_way_[batch % under_way_.size()]; }

  void Deliver(const Batch& batch, const UnderWay& from) const {
    for (std::size_t i = 0; i < batch.ids.size(); ++i)
      std::memcpy(batch.out + i * target_->row_bytes, &from.landing[i * target_->stride],
                  target_->row_bytes);
  }
  static void Failed(void* path, ucp_ep_h, ucs_status_t) {
    static_cast<UcpGet*>(path)->failed_ = true;
  }
  static void Landed(void* request, ucs_status_t status, void* data) {
    auto* const under_way = static_cast<UnderWay*>(data);
    UcpGet& self = *under_way->path;
    self.library_->request_free(request);
    self.failed_ |= status != UCS_OK;
    --self.outstanding_;
    --under_way->left;
  }
  void Post(std::uint64_t offset, std::byte* to, UnderWay* under_way) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = &UcpGet::Landed;
    param.user_data = under_way;
    const ucs_status_ptr_t request =
        library_->get_nbx(endpoint_, to, target_->stride, target_->base + offset, key_, &param);
    if (UCS_PTR_IS_ERR(request)) {
      failed_ = true;
    } else if (request == nullptr) {
      --under_way->left;
    } else {
      ++outstanding_;
    }
  }

  const std::string name_;
  const std::shared_ptr<const UcpTarget> target_;
  std::shared_ptr<ucx::Transport> transport_;
  const ucx::Libucx* library_ = nullptr;
  ucx::Worker worker_;
  ucp_ep_h endpoint_ = nullptr;
  ucp_rkey_h key_ = nullptr;
  std::vector<UnderWay> under_way_;
  std::size_t outstanding_ = 0;  // rows
  bool failed_ = false;
};

}  // namespace

UcpTarget::~UcpTarget() {
  if (server <= 0) return;
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
}

absl::StatusOr<std::shared_ptr<const UcpTarget>> UcpTarget::Fork(BenchTable& table,
                                                                 const std::string& transports) {
  auto target = std::make_shared<UcpTarget>();
  target->transports = transports;
  target->base = reinterpret_cast<std::uint64_t>(table.data());
  target->stride = table.stride();
  target->row_bytes = table.row_bytes();
  int fds[2];
  if (pipe(fds) != 0) return absl::UnavailableError("pipe failed");
  target->server = fork();
  if (target->server == 0) {
    close(fds[0]);
    ServeUcp(table, transports, fds[1]);
  }
  close(fds[1]);
  const bool greeted = ReadBytes(fds[0], &target->address) && ReadBytes(fds[0], &target->key);
  close(fds[0]);
  if (greeted) return target;
  return absl::UnavailableError(absl::StrCat("the ucp_get target did not start over ", transports,
                                             "; is the package libucx0 there?"));
}

absl::StatusOr<std::unique_ptr<ReadPath>> BareUcpGet(std::shared_ptr<const UcpTarget> target,
                                                     std::uint32_t outstanding) {
  auto path = std::make_unique<UcpGet>(std::move(target), outstanding);
  if (absl::Status ok = path->Open(); !ok.ok()) return ok;
  return path;
}

}  // namespace engram::bench
