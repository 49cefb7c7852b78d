// The one-sided floor: a bare fi_read loop, and a forked target that only makes progress.
#include <errno.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "bench/driver/paths.h"
#include "fabric/ofi/libfabric.h"

namespace engram::bench {
namespace {

constexpr std::size_t kMaxAddress = 256;

using fabric::ofi::Libfabric;

absl::Status Failed(const char* call, int rc) {
  const auto library = fabric::ofi::LoadLibfabric();
  return absl::UnavailableError(
      absl::StrCat(call, ": ", library.ok() ? (*library)->Explain(rc) : absl::StrCat(rc)));
}

template <class Object>
void CloseFid(Object* object) {
  if (object != nullptr) fi_close(&object->fid);
}

// An endpoint with its completion queue and address vector; one for each side.
struct Side {
  fabric::ofi::Info info;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_av* av = nullptr;
  fid_cq* cq = nullptr;
  fid_ep* ep = nullptr;
  fid_mr* mr = nullptr;

  Side() = default;
  Side(const Side&) = delete;
  ~Side() {
    CloseFid(ep);
    CloseFid(mr);
    CloseFid(cq);
    CloseFid(av);
    CloseFid(domain);
    CloseFid(fabric);
  }

  absl::Status Open(const std::string& provider, bool sleeps) {
    const auto loaded = fabric::ofi::LoadLibfabric();
    if (!loaded.ok()) return loaded.status();
    const Libfabric& library = **loaded;
    fabric::ofi::Info hints(library.dupinfo(nullptr), {&library});
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_RMA | FI_READ | FI_REMOTE_READ;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup(provider.c_str());
    const bool by_ip = provider != "shm";
    fi_info* found = nullptr;
    int rc = library.getinfo(FI_VERSION(1, 17), by_ip ? "127.0.0.1" : nullptr, nullptr,
                             by_ip ? FI_SOURCE : 0, hints.get(), &found);
    info = fabric::ofi::Info(found, {&library});
    if (rc != 0) return Failed(absl::StrCat("fi_getinfo for provider ", provider).c_str(), rc);
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_CONTEXT;
    cq_attr.size = 4096;
    cq_attr.wait_obj = sleeps ? FI_WAIT_UNSPEC : FI_WAIT_NONE;
    fi_av_attr av_attr{};
    av_attr.type = FI_AV_TABLE;
    if ((rc = library.fabric(info->fabric_attr, &fabric, nullptr)) != 0)
      return Failed("fi_fabric", rc);
    if ((rc = fi_domain(fabric, info.get(), &domain, nullptr)) != 0) return Failed("fi_domain", rc);
    if ((rc = fi_av_open(domain, &av_attr, &av, nullptr)) != 0) return Failed("fi_av_open", rc);
    if ((rc = fi_cq_open(domain, &cq_attr, &cq, nullptr)) != 0) return Failed("fi_cq_open", rc);
    if ((rc = fi_endpoint(domain, info.get(), &ep, nullptr)) != 0) return Failed("fi_endpoint", rc);
    if ((rc = fi_ep_bind(ep, &av->fid, 0)) != 0) return Failed("fi_ep_bind", rc);
    if ((rc = fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV)) != 0)
      return Failed("fi_ep_bind", rc);
    if ((rc = fi_enable(ep)) != 0) return Failed("fi_enable", rc);
    return absl::OkStatus();
  }

  absl::Status Register(void* memory, std::size_t bytes, std::uint64_t access) {
    const int rc = fi_mr_reg(domain, memory, bytes, access, 0, 77, 0, &mr, nullptr);
    return rc == 0 ? absl::OkStatus() : Failed("fi_mr_reg", rc);
  }
};

struct Greeting {
  std::uint64_t base, key;
  std::size_t address_bytes;
  char address[kMaxAddress];
};

[[noreturn]] void Serve(BenchTable& table, const std::string& provider, int fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Side side;
  Greeting greeting{};
  greeting.address_bytes = sizeof greeting.address;
  if (!side.Open(provider, true).ok() ||
      !side.Register(table.data(), table.bytes(), FI_REMOTE_READ).ok() ||
      fi_getname(&side.ep->fid, greeting.address, &greeting.address_bytes) != 0) {
    _exit(1);
  }
  greeting.base = (side.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
                      ? reinterpret_cast<std::uint64_t>(table.data())
                      : 0;
  greeting.key = fi_mr_key(side.mr);
  if (write(fd, &greeting, sizeof greeting) != sizeof greeting) _exit(1);
  while (true) {
    fi_cq_entry entry;
    fi_cq_sread(side.cq, &entry, 1, nullptr, 100);
  }
}

class FiRead final : public ReadPath {
 public:
  FiRead(std::string name, std::uint32_t outstanding)
      : name_(std::move(name)), outstanding_(outstanding), left_(outstanding) {}
  ~FiRead() override {
    if (server_ > 0) {
      kill(server_, SIGKILL);
      waitpid(server_, nullptr, 0);
    }
    unlink(
        absl::StrCat("/dev/shm/", server_, ":0:0").c_str());  // what the shm provider leaves behind
  }
  const std::string& name() const override { return name_; }

  absl::Status Open(BenchTable& table, const std::string& provider, std::uint32_t segments) {
    stride_ = table.stride();
    row_bytes_ = table.row_bytes();
    segments_ = segments;
    int fds[2];
    if (pipe(fds) != 0) return absl::UnavailableError("pipe failed");
    server_ = fork();
    if (server_ == 0) {
      close(fds[0]);
      Serve(table, provider, fds[1]);
    }
    close(fds[1]);
    const bool greeted = read(fds[0], &greeting_, sizeof greeting_) == sizeof greeting_;
    close(fds[0]);
    if (!greeted)
      return absl::UnavailableError(
          absl::StrCat("the fi_read target did not start on provider ", provider));
    if (absl::Status ok = side_.Open(provider, false); !ok.ok()) return ok;
    if (fi_av_insert(side_.av, greeting_.address, 1, &peer_, 0, nullptr) != 1) {
      return absl::UnavailableError("fi_av_insert refused the target's address");
    }
    return absl::OkStatus();
  }

  absl::Status Read(std::span<const Batch> batches) override {
    seals_.resize(outstanding_ * batches[0].ids.size());
    std::size_t posting = 0, row = 0, over = 0;  // batches, and a row of the one that is posted
    while (over < batches.size()) {
      while (posting < batches.size() && posting - over < outstanding_) {
        const Batch& batch = batches[posting];
        if (row == 0) left_[posting % outstanding_] = batch.ids.size();
        if (!Post(batch, posting % outstanding_, row)) break;
        if (++row < batch.ids.size()) continue;
        row = 0;
        ++posting;
      }
      fi_cq_entry entries[64];
      const ssize_t got = fi_cq_read(side_.cq, entries, 64);
      if (got < 0 && got != -FI_EAGAIN) return Failed("fi_cq_read", static_cast<int>(got));
      for (ssize_t i = 0; i < got; ++i) --*static_cast<std::size_t*>(entries[i].op_context);
      while (over < posting && left_[over % outstanding_] == 0) ++over;
    }
    return absl::OkStatus();
  }

 private:
  bool Post(const Batch& batch, std::size_t place, std::size_t i) {
    std::uint64_t* const seal = &seals_[place * batch.ids.size() + i];
    iovec local[2] = {{batch.out + i * row_bytes_, row_bytes_}, {seal, 8}};
    const std::size_t bytes = segments_ == 2 ? row_bytes_ + 8 : row_bytes_;
    fi_rma_iov remote{greeting_.base + batch.ids[i].value() * stride_, bytes, greeting_.key};
    fi_msg_rma message{};
    message.msg_iov = local;
    message.iov_count = segments_;
    message.addr = peer_;
    message.rma_iov = &remote;
    message.rma_iov_count = 1;
    message.context = &left_[place];
    return fi_readmsg(side_.ep, &message, FI_COMPLETION) == 0;
  }

  const std::string name_;
  const std::uint32_t outstanding_;
  std::vector<std::size_t> left_;  // rows of each batch under way
  Side side_;
  Greeting greeting_{};
  fi_addr_t peer_ = 0;
  pid_t server_ = -1;
  std::uint32_t stride_ = 0, row_bytes_ = 0, segments_ = 1;
  std::vector<std::uint64_t> seals_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ReadPath>> BareFiRead(BenchTable& table, const std::string& provider,
                                                     std::uint32_t segments,
                                                     std::uint32_t outstanding) {
  auto path = std::make_unique<FiRead>(absl::StrCat("bare_fi_read_", provider), outstanding);
  if (absl::Status ok = path->Open(table, provider, segments); !ok.ok()) return ok;
  return path;
}

}  // namespace engram::bench
