# What `cmake --install` puts under a prefix: the headers a user may include, the static libraries, and a package that
# find_package(gemmill) finds, with targets gemmill::gemmill, gemmill::layers, gemmill::autograd, gemmill::data and
# gemmill::runtime.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gemmill)

# Headers of runtime/cpu and runtime/cuda stay behind: kernels live there, and nothing outside includes them. So do
# those that only the .cc files of their own folder include.
foreach(folder runtime runtime/comm runtime/passes runtime/schedule autograd layers layers/training data)
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.h)
  list(REMOVE_ITEM headers ${PROJECT_SOURCE_DIR}/layers/gemmill.h ${PROJECT_SOURCE_DIR}/runtime/infer_rules.h
       ${PROJECT_SOURCE_DIR}/runtime/json.h ${PROJECT_SOURCE_DIR}/runtime/file_calls.h ${PROJECT_SOURCE_DIR}/autograd/vjp.h ${PROJECT_SOURCE_DIR}/data/byte_stream.h
       ${PROJECT_SOURCE_DIR}/data/csv_rows.h ${PROJECT_SOURCE_DIR}/data/order.h ${PROJECT_SOURCE_DIR}/data/visit.h)
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gemmill/${folder})
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/layers/gemmill.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gemmill)

install(TARGETS gemmill gemmill_layers gemmill_autograd gemmill_data gemmill_runtime EXPORT gemmill
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT gemmill NAMESPACE gemmill:: FILE gemmillTargets.cmake DESTINATION ${package_dir})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/gemmillConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/gemmillConfig.cmake INSTALL_DESTINATION ${package_dir}
                              NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gemmillConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gemmillConfig.cmake ${PROJECT_BINARY_DIR}/gemmillConfigVersion.cmake
        DESTINATION ${package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
