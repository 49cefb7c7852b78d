# The quick variant of cxl: the same code on a DAX device that is as fast as the guest's memory.
. /suites/pool.sh
. /suites/devdax.sh
ADDRESS=127.0.0.1
LEASE=10

make_devdax() {
  load_modules nfit nd_pmem dax_pmem device_dax || return 1
  wait_until test -e /sys/bus/nd/devices/region0 || refuse "no region" || return 1
  make_devdax_namespace -f -e namespace0.0 || return 1
  describe_devdax
}

case_of "an NVDIMM becomes a DAX device" make_devdax && devdax_cases &&
  case_of "the device disappears under the node" device_disappears
