# libengram.so: the C ABI. Only engram_* leaves it; gRPC and abseil stay inside or behind it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

file(GLOB ENGRAM_ABI_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cc)
foreach(file ${ENGRAM_ABI_ARGUMENTS})
  list(REMOVE_ITEM ENGRAM_ABI_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/${file})
endforeach()
add_library(engram SHARED ${ENGRAM_ABI_SOURCES})
set_target_properties(engram PROPERTIES
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}
  C_VISIBILITY_PRESET hidden
  CXX_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON
  LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/exports.map)
target_compile_definitions(engram PRIVATE ENGRAM_VERSION="${PROJECT_VERSION}")
target_include_directories(engram INTERFACE
  $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(engram PRIVATE engram_abi_arguments engram_client_rpc)
# Never unloaded: threads of gRPC's may still run, and fork calls back into it.
target_link_options(engram PRIVATE
  -Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/exports.map -Wl,--exclude-libs,ALL -Wl,-z,defs -Wl,-z,nodelete)
if(ENGRAM_SANITIZE)
  # The sanitizers' runtime is in the program, not in the library.
  target_link_options(engram PRIVATE -Wl,-z,undefs)
endif()

install(TARGETS engram EXPORT engram LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/include/engram
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(EXPORT engram FILE engram-targets.cmake NAMESPACE engram::
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/engram)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/engram-config.cmake
  "include(\${CMAKE_CURRENT_LIST_DIR}/engram-targets.cmake)\n")
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/engram-config-version.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMajorVersion)
# Relative, so that it is right under whatever prefix it is installed.
file(RELATIVE_PATH ENGRAM_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/engram.pc.in ${CMAKE_CURRENT_BINARY_DIR}/engram.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/engram-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/engram-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/engram)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/engram.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
