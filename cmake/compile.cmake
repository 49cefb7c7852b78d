# Flags of every target, and the three ways a target of this project is made.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1")

# Where CMAKE_UNITY_BUILD is on, a dozen files of a target are one translation unit: most of a compile is headers. So names are
# distinct within a folder, those in anonymous namespaces, too.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)
if(CMAKE_UNITY_BUILD)
  # GCC takes a source that another one includes for a header, whose classes must not hold what is in anonymous namespaces.
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()

# With ccache a second checkout of the same sources compiles next to nothing where CMAKE_UNITY_BUILD is off; unity files name
# their sources by absolute paths, so there only the same place does.
find_program(CCACHE ccache)
if(CCACHE)
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=true
      CCACHE_SLOPPINESS=time_macros,include_file_ctime,include_file_mtime ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
endif()

add_compile_options(-Wall -Wextra -Werror)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64")
  # Baseline of every machine we know; wider instructions are chosen at run time.
  add_compile_options(-march=x86-64-v2)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_options(-Wthread-safety)
endif()
if(ENGRAM_SANITIZE)
  add_compile_options(-fsanitize=${ENGRAM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${ENGRAM_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    add_compile_options(-fsanitize-ignorelist=${PROJECT_SOURCE_DIR}/cmake/sanitize_ignore.txt)
  endif()
endif()

# engram_library(NAME [SOURCES globs...] [LINK libs...]): a static library of this project.
function(engram_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${ARG_SOURCES})
  if(NOT sources)
    return()
  endif()
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
endfunction()

# engram_program(NAME MAIN file [LINK libs...]): a program in build/bin.
function(engram_program name)
  cmake_parse_arguments(ARG "" "MAIN" "LINK" ${ARGN})
  if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_MAIN})
    return()
  endif()
  add_executable(${name} ${ARG_MAIN})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
endfunction()

# engram_test(NAME [SOURCES globs...] [LINK libs...] [LABEL label] [TIMEOUT s] [SHARDS n]): one GoogleTest
# program, run as a whole or as n tests, each with its share of the cases. Where the checkout lies is in "checkout.h" for those who open its files.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/tests/include/checkout.h CONTENT
"// Written by CMake: where the checkout and this build lie.
#pragma once
#define ENGRAM_SOURCE_DIR \"${PROJECT_SOURCE_DIR}\"
#define ENGRAM_BINARY_DIR \"${PROJECT_BINARY_DIR}\"
")
function(engram_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT;SHARDS" "SOURCES;LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${ARG_SOURCES})
  if(NOT sources)
    return()
  endif()
  foreach(library ${ARG_LINK})
    if(library MATCHES "^engram_" AND NOT TARGET ${library})
      return()
    endif()
  endforeach()
  add_executable(${name} ${sources})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_BINARY_DIR}/tests/include)
  if(NOT ARG_LABEL STREQUAL "simulation")
    target_compile_options(${name} PRIVATE -O0)  # what is tested is optimized; a test that is compiles three times as long
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set(tests ${name})
  if(ARG_SHARDS)
    set(tests)
    foreach(shard RANGE 1 ${ARG_SHARDS})
      list(APPEND tests ${name}_${shard})
    endforeach()
  endif()
  set(index 0)
  foreach(test ${tests})
    add_test(NAME ${test} COMMAND ${name})
    set_tests_properties(${test} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT})
    if(ARG_SHARDS)
      set_tests_properties(${test} PROPERTIES
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}")
    endif()
    math(EXPR index "${index} + 1")
  endforeach()
endfunction()
