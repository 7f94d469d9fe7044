# gemmill_options(TARGET): the language level, warnings and sanitizers that all of Gemmill's own code is compiled with.
function(gemmill_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wno-missing-field-initializers -Werror -ffp-contract=off>
    # GCC 12 is wrong about absl::InlinedVector, of which shapes are made.
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>
    $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --expt-relaxed-constexpr -fmad=false -Werror=all-warnings
      -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers,-Werror,-ffp-contract=off>)
  if(GEMMILL_SANITIZE)
    target_compile_options(${target} PUBLIC
      $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${GEMMILL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
    target_link_options(${target} PUBLIC -fsanitize=${GEMMILL_SANITIZE})
  endif()
endfunction()

# gemmill_floor(NAME LINKS...): the static library of one folder, all of its .cc files, exported as gemmill::NAME.
function(gemmill_floor name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc ${CMAKE_CURRENT_SOURCE_DIR}/training/*.cc
       ${CMAKE_CURRENT_SOURCE_DIR}/cpu/*.cc ${CMAKE_CURRENT_SOURCE_DIR}/passes/*.cc
       ${CMAKE_CURRENT_SOURCE_DIR}/schedule/*.cc ${CMAKE_CURRENT_SOURCE_DIR}/comm/*.cc)
  add_library(gemmill_${name} STATIC ${sources})
  add_library(gemmill::${name} ALIAS gemmill_${name})
  set_target_properties(gemmill_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_include_directories(gemmill_${name} PUBLIC $<BUILD_INTERFACE:${GEMMILL_INCLUDE}> $<INSTALL_INTERFACE:include>)
  target_link_libraries(gemmill_${name} PUBLIC ${ARGN})
  gemmill_options(gemmill_${name})
endfunction()
