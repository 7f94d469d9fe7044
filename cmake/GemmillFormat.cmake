# Targets `format` (clang-format in place) and `check` (clang-format and clang-tidy, changing nothing; any finding fails),
# over the sources that git tracks. Where a tool is missing, its target says so and fails.
foreach(tool clang-format clang-tidy run-clang-tidy)
  string(MAKE_C_IDENTIFIER GEMMILL_${tool} variable)
  string(TOUPPER ${variable} variable)
  find_program(${variable} NAMES ${tool} ${tool}-14)
  mark_as_advanced(${variable})
endforeach()

foreach(target format check)
  add_custom_target(${target}
    COMMAND ${CMAKE_COMMAND} -E env
            "CLANG_FORMAT=${GEMMILL_CLANG_FORMAT}" "CLANG_TIDY=${GEMMILL_CLANG_TIDY}"
            "RUN_CLANG_TIDY=${GEMMILL_RUN_CLANG_TIDY}"
            bash ${CMAKE_CURRENT_LIST_DIR}/format.sh ${target} ${PROJECT_BINARY_DIR}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    USES_TERMINAL VERBATIM)
endforeach()
