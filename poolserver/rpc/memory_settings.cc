#include "poolserver/rpc/memory_settings.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/settings/units.h"
#include "fabric/memory.h"

namespace engram::poolserver {
namespace {

using fabric::PageSize;

std::uint64_t FreePages(PageSize pages) {
  std::uint64_t free = 0;
  std::ifstream(absl::StrCat("/sys/kernel/mm/hugepages/hugepages-",
                             static_cast<std::uint64_t>(pages) >> 10, "kB/free_hugepages")) >>
      free;
  return free;
}

bool Enough(PageSize pages, std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(pages);
  return FreePages(pages) >= (bytes + page - 1) / page;
}

absl::Status NotEnough(const std::string& mode, const std::string& setting, PageSize pages,
                       std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(pages);
  const std::uint64_t needed = (bytes + page - 1) / page;
  return absl::ResourceExhaustedError(absl::StrCat(
      "--huge-pages ", mode, " with ", setting, " ", FormatSize(bytes), " needs ", needed,
      " pages of ", FormatSize(page), ", and ", FreePages(pages), " are free; reserve them (",
      pages == PageSize::k2MiB
          ? absl::StrCat("sysctl vm.nr_hugepages=", needed)
          : absl::StrCat("echo ", needed,
                         " > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"),
      "), lower ", setting, ", or take --huge-pages auto"));
}

absl::Status SetPages(const std::string& mode, Arena::Options* memory) {
  memory->allow_smaller_pages = mode == "auto";
  if (mode == "off" || (mode == "auto" && FreePages(PageSize::k2MiB) == 0)) {
    memory->pages = PageSize::k4KiB;
  } else if (mode == "1GiB" ||
             (mode == "required" && Enough(PageSize::k1GiB, memory->capacity_bytes))) {
    memory->pages = PageSize::k1GiB;
  } else {
    memory->pages = PageSize::k2MiB;
  }
  if (mode == "auto" || mode == "off" || Enough(memory->pages, memory->capacity_bytes)) {
    return absl::OkStatus();
  }
  return NotEnough(mode, memory->capacity_setting, memory->pages, memory->capacity_bytes);
}

absl::Status CheckFits(const Arena::Options& memory) {
  const auto machine = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                       static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const auto there = memory.numa_node < 0 ? machine : fabric::NumaNodeBytes(memory.numa_node);
  if (!there.ok()) {
    return absl::Status(there.status().code(), absl::StrCat(memory.capacity_setting, " ",
                                                            FormatSize(memory.capacity_bytes), ": ",
                                                            there.status().message()));
  }
  if (memory.capacity_bytes <= *there) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      memory.capacity_setting, " ", FormatSize(memory.capacity_bytes), " is more than ",
      memory.numa_node < 0 ? std::string("this machine's")
                           : absl::StrCat("NUMA node ", memory.numa_node, "'s"),
      " ", RoundSize(*there), "; lower it"));
}

using OwnedDevices = std::vector<std::shared_ptr<fabric::dax::OwnedDevice>>;

absl::Status ForDevices(const absl::Status& refused) {
  return absl::Status(refused.code(), absl::StrCat("--cxl-devices ", refused.message()));
}

absl::Status TooMuch(const Arena::Options& memory, std::uint64_t room) {
  return absl::ResourceExhaustedError(
      absl::StrCat("--cxl-memory ", FormatSize(memory.capacity_bytes), " is more than the ",
                   RoundSize(room), " of --cxl-devices; lower it, 0 takes all"));
}

// Opens the devices and judges their superblocks; nothing is written yet. Their alignment decides
// the pages.
absl::Status UseDevices(const Settings& settings, Arena::Options* memory, OwnedDevices* devices) {
  std::vector<fabric::DaxDescription> described;
  std::uint64_t bytes = 0, room = 0;
  for (const std::string& path : settings.List("cxl_devices")) {
    auto device = fabric::DescribeDax(path);
    if (!device.ok()) return ForDevices(device.status());
    bytes += device->bytes;
    described.push_back(*std::move(device));
  }
  if (memory->capacity_bytes > bytes) return TooMuch(*memory, bytes);
  const fabric::dax::Ownership wanted{NodeId{settings.Text("node_id")}, settings.Time("lease"),
                                      settings.List("take_over_device")};
  memory->pages = PageSize::k4KiB;
  for (const fabric::DaxDescription& one : described) {
    auto device = fabric::dax::OwnedDevice::Open(one, wanted);
    if (!device.ok()) return ForDevices(device.status());
    room += (*device)->capacity();
    for (PageSize pages : {PageSize::k2MiB, PageSize::k1GiB}) {
      if (one.alignment >= static_cast<std::uint64_t>(pages)) {
        memory->pages = std::max(memory->pages, pages);
      }
    }
    memory->devices.push_back((*device)->memory());
    devices->push_back(*std::move(device));
  }
  if (memory->capacity_bytes == 0) memory->capacity_bytes = room;
  return memory->capacity_bytes <= room ? absl::OkStatus() : TooMuch(*memory, room);
}

// Memory of the kernel: how much, on which pages.
absl::Status UseKernelMemory(const Settings& settings, Arena::Options* memory) {
  if (absl::Status ok = CheckFits(*memory); !ok.ok()) return ok;
  return SetPages(settings.Text("huge_pages"), memory);
}

absl::Status UseCxl(const Settings& settings, Arena::Options* memory, OwnedDevices* owned) {
  memory->tier = Tier::kCxl;
  memory->capacity_setting = "--cxl-memory";
  memory->capacity_bytes = settings.Size("cxl_memory");
  memory->read_bytes_per_second = settings.Size("cxl_read_rate");
  memory->numa_node = static_cast<int>(settings.Integer("cxl_numa_node"));
  const std::vector<std::string>& devices = settings.List("cxl_devices");
  if (!devices.empty() && memory->numa_node >= 0) {
    return absl::InvalidArgumentError(
        "--cxl-devices and --cxl-numa-node are two forms of one tier: the device is either in "
        "devdax mode or system RAM; give one of them");
  }
  if (!devices.empty()) return UseDevices(settings, memory, owned);
  if (memory->numa_node < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--cxl-memory ", FormatSize(memory->capacity_bytes),
                     " says how much, not where: give --cxl-numa-node N (numactl -H lists nodes; "
                     "CXL memory has no CPUs) or --cxl-devices"));
  }
  if (memory->capacity_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--cxl-numa-node ", memory->numa_node,
                     " says where, not how much: give --cxl-memory a size"));
  }
  return UseKernelMemory(settings, memory);
}

}  // namespace

std::vector<Setting> MemorySettings() {
  return {
      Setting::Size("memory", "1GiB", "Memory for replicas: the dram tier; 0: this node has none.",
                    "0", "64TiB"),
      Setting::Choice("huge_pages", "auto",
                      "auto: 2 MiB pages where reserved, else 4 KiB; 1GiB, 2MiB: these or refuse "
                      "to start; required: either of them or refuse; off: 4 KiB.",
                      {"auto", "1GiB", "2MiB", "off", "required"}),
      Setting::Integer("numa_node", "-1", "NUMA node of --memory; -1: any.", "-1", "1023"),
      Setting::Size("memory_read_rate", "0",
                    "Bytes of rows per second that readers can have of --memory together, for "
                    "placement; 0: as measured when the node starts.",
                    "0", "64TiB"),
      Setting::Size("cxl_memory", "0",
                    "Memory of the cxl tier: on --cxl-numa-node, or a part of --cxl-devices (0: "
                    "all of them).",
                    "0", "64TiB"),
      Setting::Integer("cxl_numa_node", "-1",
                       "NUMA node without CPUs that is CXL memory; all of --cxl-memory lies there "
                       "or loading fails.",
                       "-1", "1023"),
      Setting::List("cxl_devices", "",
                    "DAX devices that are CXL memory: /dev/dax0.0,/dev/dax1.0, together one cxl "
                    "tier; file:PATH is a file in the place of one, to try it out. Tables there "
                    "must be sealed."),
      Setting::List("take_over_device", "",
                    "Take a device of --cxl-devices from another node, OWNER@INCARNATION as its "
                    "superblock names it, or unreadable where it names none. Only when that node "
                    "is stopped and its host fenced."),
      Setting::Size("cxl_read_rate", "0",
                    "Bytes of rows per second that readers can have of the cxl tier together; 0: "
                    "as measured when the node starts.",
                    "0", "64TiB"),
      Setting::Size("slab_size", "256MiB",
                    "Memory is taken from the kernel in pieces of this size.", "2MiB", "64GiB"),
      Setting::Integer("load_threads", "4", "Threads that read and pack while loading.", "1",
                       "256"),
      Setting::Size("move_rate", "256MiB",
                    "Bytes per second that this node pulls from other nodes and copies between its "
                    "tiers, all moves together; 0: no limit.",
                    "0", "1TiB"),
      Setting::Size(
          "scrub_rate", "32MiB",
          "Bytes per second of served replicas that are compared with their checksums; 0: none.",
          "0", "1TiB"),
  };
}

absl::StatusOr<std::vector<Arena::Options>> MemoryTiersFrom(const Settings& settings,
                                                            OwnedDevices* devices) {
  std::vector<Arena::Options> tiers;
  Arena::Options dram;
  dram.capacity_bytes = settings.Size("memory");
  dram.numa_node = static_cast<int>(settings.Integer("numa_node"));
  dram.slab_bytes = settings.Size("slab_size");
  dram.read_bytes_per_second = settings.Size("memory_read_rate");
  Arena::Options cxl = dram;
  if (dram.capacity_bytes > 0) {
    if (absl::Status ok = UseKernelMemory(settings, &dram); !ok.ok()) return ok;
    tiers.push_back(std::move(dram));
  }
  const bool wanted = settings.Size("cxl_memory") > 0 || settings.Integer("cxl_numa_node") >= 0 ||
                      !settings.List("cxl_devices").empty();
  if (wanted) {
    if (absl::Status ok = UseCxl(settings, &cxl, devices); !ok.ok()) return ok;
    tiers.push_back(std::move(cxl));
  }
  return tiers;
}

}  // namespace engram::poolserver
