# cmake -D MODE=find_package|add_subdirectory -D SOURCE_DIR= -D BUILD_DIR= -D WORK_DIR= -D JOBS= -P run.cmake -- OPTION...
# Builds the project beside this file against Gemmill (its sources, its build) in WORK_DIR, and runs it. The options are
# passed on when it is configured.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  message("${output}")
  if(NOT result EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "failed (${result}): ${command}")
  endif()
endfunction()

set(options)
set(is_option FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(is_option)
    list(APPEND options "${CMAKE_ARGV${i}}")
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(is_option TRUE)
  endif()
endforeach()

file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})
if(MODE STREQUAL "find_package")
  run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
  list(APPEND options -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix)

  # Every installed header can be included, so none includes one that stays behind.
  file(GLOB_RECURSE headers RELATIVE ${WORK_DIR}/prefix/include ${WORK_DIR}/prefix/include/*.h)
  list(TRANSFORM headers REPLACE "(.+)" "#include \"\\1\"\n")
  list(JOIN headers "" headers)
  file(WRITE ${WORK_DIR}/headers.cc "${headers}")
  list(APPEND options -DEMBED_MORE_SOURCES=${WORK_DIR}/headers.cc)
else()
  list(APPEND options -DGEMMILL_SOURCE_DIR=${SOURCE_DIR})
endif()

run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK_DIR}/build ${options})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build --parallel ${JOBS} --target embed)
run(${WORK_DIR}/build/embed)
