# Everything the project links, found once. README says why each is there.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(GTest REQUIRED)
find_package(ICU REQUIRED COMPONENTS uc)
find_package(nlohmann_json REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(CLI11 REQUIRED)
find_package(yaml-cpp REQUIRED)
pkg_check_modules(NUMA REQUIRED IMPORTED_TARGET numa)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(FABRIC REQUIRED libfabric)  # the headers; nothing links it
pkg_check_modules(UCX REQUIRED ucx)  # the headers; nothing links it
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
if(ENGRAM_WITH_GRPC)
  find_package(Protobuf REQUIRED)
  find_package(gRPC CONFIG REQUIRED)
  find_package(prometheus-cpp CONFIG REQUIRED)
endif()
