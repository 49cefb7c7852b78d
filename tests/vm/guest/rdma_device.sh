# A soft-RoCE device on an interface, and the conformance suite over it.

# make_rdma_device INTERFACE ADDRESS/BITS
make_rdma_device() {
  load_modules crc32_generic rdma_rxe ib_uverbs rdma_ucm || return 1
  ip addr add "$2" dev "$1" && ip link set "$1" up || return 1
  rdma link add rxe0 type rxe netdev "$1" || return 1
  wait_until grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state || return 1
  ulimit -l unlimited
  rdma link show
  detail "soft-RoCE rxe0 on $1, $2"
}

# conformance RIG: every test of the suite on that fabric.
conformance() {
  local failed passed skipped code
  # Only the providers that are tested: each is asked at every start, and this machine is slow.
  FI_PROVIDER=verbs,ofi_rxm timeout -s KILL 2400 \
    engram_conformance_test --gtest_filter="*/$1" >/tmp/conformance.log 2>&1
  code=$?
  grep -E '^\[ +(OK|FAILED|SKIPPED|PASSED) +\]' /tmp/conformance.log >/dev/console
  passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' /tmp/conformance.log)
  skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' /tmp/conformance.log)
  failed=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' /tmp/conformance.log)
  detail "${passed:-0} passed, ${skipped:-0} skipped, ${failed:-0} failed"
  [ $code = 0 ] && [ "${passed:-0}" -gt 0 ] && return 0
  grep -vE '^\[ +(OK|RUN|SKIPPED) ' /tmp/conformance.log | head -n 25
  grep -E '^\[  FAILED ' /tmp/conformance.log | sort -u
  [ $code = 137 ] && tail -n 1 /tmp/conformance.log && echo "killed: it took too long"
  return 1
}
