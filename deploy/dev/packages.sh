# Debian 12 packages the project needs, by purpose. Sourced by deploy/dev/install-tools.
packages_build=(
  g++ cmake ninja-build ccache pkg-config python3 git
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev prometheus-cpp-dev
  libabsl-dev libssl-dev libsqlite3-dev libicu-dev libcli11-dev libyaml-cpp-dev nlohmann-json3-dev
  libfabric-dev libucx-dev libnuma-dev liburing-dev libzstd-dev libgtest-dev libgmock-dev
)
packages_test=(
  clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev iproute2 strace zstd jq python3-venv patchelf etcd-server etcd-client openssl iptables fio
)
# What ./dev vm boots and puts into its guests.
packages_vm=(
  qemu-system-x86 seabios busybox-static kmod iproute2 rdma-core ibverbs-providers ndctl daxctl numactl
)
