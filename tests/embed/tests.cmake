# The tests of Gemmill as a dependency: tests/embed built against the installed package, and with the sources inside it.
cmake_host_system_information(RESULT jobs QUERY NUMBER_OF_LOGICAL_CORES)

# Where this build found what an outside project has to find again.
set(found)
foreach(package absl dnnl)
  if(${package}_DIR)
    list(APPEND found -D${package}_DIR=${${package}_DIR})
  endif()
endforeach()

# embed_test(MODE OPTION...)
function(embed_test mode)
  add_test(NAME embed.${mode}
           COMMAND ${CMAKE_COMMAND} -D MODE=${mode} -D SOURCE_DIR=${PROJECT_SOURCE_DIR} -D BUILD_DIR=${PROJECT_BINARY_DIR}
                   -D WORK_DIR=${PROJECT_BINARY_DIR}/tests/embed/${mode} -D JOBS=${jobs}
                   -P ${PROJECT_SOURCE_DIR}/tests/embed/run.cmake --
                   -G ${CMAKE_GENERATOR} -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
                   -DCMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER} ${found} ${ARGN})
  set_tests_properties(embed.${mode} PROPERTIES TIMEOUT 1200 PROCESSORS ${jobs} LABELS embed)
endfunction()

embed_test(find_package -DCMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE})
# Without optimisation: this compiles all of Gemmill once more.
embed_test(add_subdirectory -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DGEMMILL_NATIVE=OFF
           -DGEMMILL_SANITIZE=${GEMMILL_SANITIZE} -DGEMMILL_WITH_ONEDNN=${GEMMILL_WITH_ONEDNN}
           -DGEMMILL_WITH_OPENMP=${GEMMILL_WITH_OPENMP})
