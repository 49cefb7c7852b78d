# How the tests run under the sanitizers: leaks count, one finding ends a program, and what the daemons of the integration
# tests report ends up in a folder that the last test looks at.
set(options
  "ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_SOURCE_DIR}/lsan_suppressions.txt:print_suppressions=0"
  "TSAN_OPTIONS=halt_on_error=1:report_signal_unsafe=0:suppressions=${CMAKE_CURRENT_SOURCE_DIR}/tsan_suppressions.txt"
  # Every seed costs some fifty times what it costs otherwise.
  "ENGRAM_SIM_SEEDS=2")
get_property(all DIRECTORY PROPERTY TESTS)
foreach(test ${all})
  get_test_property(${test} TIMEOUT seconds)
  math(EXPR seconds "3 * ${seconds}")
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT "${options}")
  set_tests_properties(${test} PROPERTIES TIMEOUT ${seconds})
endforeach()

set(reports ${PROJECT_BINARY_DIR}/sanitizer_reports)
add_test(NAME sanitizer_reports_clear COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/sanitizer_reports.sh clear ${reports})
add_test(NAME sanitizer_reports COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/sanitizer_reports.sh check ${reports})
set_tests_properties(sanitizer_reports_clear PROPERTIES FIXTURES_SETUP reports)
set_tests_properties(sanitizer_reports PROPERTIES FIXTURES_CLEANUP reports)
string(REPLACE "detect_leaks=1" "detect_leaks=1:log_path=${reports}/report" logged "${options}")
foreach(test ${programs} engram_placement_rpc_test_1 engram_placement_rpc_test_2 engram_placement_rpc_test_3)
  if(TEST ${test})
    set_tests_properties(${test} PROPERTIES ENVIRONMENT "${logged}" FIXTURES_REQUIRED reports)
  endif()
endforeach()
