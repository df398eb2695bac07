# SPDX-License-Identifier: Apache-2.0
# ONNX Runtime behind a pipe: qualm::onnxruntime. Nothing of it is needed to build: Node and the npm
# package are looked for at run time.
qualm_library(onnxruntime SOURCES libraries/onnxruntime.cc DEPS qualm::plugins)

# Where FindPlugin looks (cmake/QualmInstall.cmake installs them).
foreach(script child model operators values)
  configure_file(libraries/onnxruntime_${script}.mjs
    ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/onnxruntime_${script}.mjs COPYONLY)
endforeach()
