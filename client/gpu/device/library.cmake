# libengram_gpu.so: the C ABI of the GPU path, only where nvcc is. It is a library of its own, so that libengram.so loads
# without CUDA; the CUDA runtime is linked into it. `deploy/dev/gpu-build` fetches nvcc and builds this.
include(GNUInstallDirs)

cmake_path(GET ENGRAM_NVCC PARENT_PATH cuda_bin)
cmake_path(GET cuda_bin PARENT_PATH cuda)
find_library(ENGRAM_CUDART cudart_static REQUIRED NO_DEFAULT_PATH PATHS ${cuda}/lib ${cuda}/lib64)

# Compute capabilities 8.0 (A100), 9.0 (H100, H200), 10.0 (B200), 12.0 (RTX PRO, GeForce), and PTX for what comes later.
set(architectures)
foreach(number 80 90 100 120)
  list(APPEND architectures -gencode arch=compute_${number},code=sm_${number})
endforeach()
list(APPEND architectures -gencode arch=compute_120,code=compute_120)

# engram_cuda_object(OBJECT SOURCE): compiles SOURCE into OBJECT.
function(engram_cuda_object object source)
  add_custom_command(
    OUTPUT ${object}
    DEPFILE ${object}.d
    DEPENDS ${source}
    # 20011, 20014: a function for both sides calls the model that it was given, which is for one.
    COMMAND ${ENGRAM_NVCC} -std=c++20 -O3 --expt-relaxed-constexpr -ccbin ${CMAKE_CXX_COMPILER}
            -Xcompiler=-fPIC,-Wall,-Wextra -Werror all-warnings -diag-suppress 20011,20014 ${architectures}
            -I${PROJECT_SOURCE_DIR} -MD -MF ${object}.d -c ${source} -o ${object}
    COMMENT "Compiling ${source} for sm_80, sm_90, sm_100 and sm_120"
    VERBATIM)
endfunction()
engram_cuda_object(${CMAKE_CURRENT_BINARY_DIR}/kernels.o ${CMAKE_CURRENT_SOURCE_DIR}/gpu/kernels.cu)

# Everything but the C ABI, also for the test that runs on a GPU.
file(GLOB device_sources CONFIGURE_DEPENDS gpu/device/*.cc)
list(FILTER device_sources EXCLUDE REGEX "engram_gpu\\.cc|abi_reads\\.cc")
add_library(engram_gpu_host STATIC
  ${device_sources} gpu/plans.cc gpu/ring_service.cc gpu/ring_poller.cc
  ${PROJECT_SOURCE_DIR}/fabric/memory.cc ${PROJECT_SOURCE_DIR}/fabric/dax_device.cc)  # of the fabrics the host memory only
target_include_directories(engram_gpu_host PUBLIC ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/include)
target_include_directories(engram_gpu_host SYSTEM PUBLIC ${cuda}/include)
target_link_libraries(engram_gpu_host PUBLIC engram_core PkgConfig::NUMA)

# Linked as an object, so that the order of the libraries does not matter: each calls the other.
add_library(engram_gpu_device INTERFACE)
target_link_libraries(engram_gpu_device INTERFACE
  ${CMAKE_CURRENT_BINARY_DIR}/kernels.o engram_gpu_host ${ENGRAM_CUDART} ${CMAKE_DL_LIBS} rt)
add_custom_target(engram_gpu_kernels DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/kernels.o)
add_dependencies(engram_gpu_device engram_gpu_kernels)

add_library(engram_gpu SHARED gpu/device/engram_gpu.cc gpu/device/abi_reads.cc)
set_target_properties(engram_gpu PROPERTIES
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}
  CXX_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON
  LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/gpu/device/exports.map)
target_include_directories(engram_gpu INTERFACE
  $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(engram_gpu PRIVATE engram_gpu_device)
target_link_options(engram_gpu PRIVATE
  -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/gpu/device/exports.map -Wl,--exclude-libs,ALL)
if(TARGET engram)  # else the program brings libengram.so
  target_link_libraries(engram_gpu PRIVATE engram)
endif()
install(TARGETS engram_gpu LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

# For a machine with a GPU: tests/gpu/run.sh. And the same with the CPU in its role.
engram_cuda_object(${CMAKE_CURRENT_BINARY_DIR}/quantise.o ${PROJECT_SOURCE_DIR}/tests/gpu/quantise.cu)
add_executable(engram_gpu_device_test EXCLUDE_FROM_ALL
  ${PROJECT_SOURCE_DIR}/tests/gpu/on_device.cc ${CMAKE_CURRENT_BINARY_DIR}/quantise.o)
target_link_libraries(engram_gpu_device_test PRIVATE engram_gpu_device)
add_executable(engram_gpu_cpu_test EXCLUDE_FROM_ALL
  ${PROJECT_SOURCE_DIR}/tests/gpu/on_device.cc ${PROJECT_SOURCE_DIR}/tests/gpu/cpu_cuda.cc)
target_link_libraries(engram_gpu_cpu_test PRIVATE engram_gpu_host)
