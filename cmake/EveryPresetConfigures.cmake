# SPDX-License-Identifier: Apache-2.0
# cmake -D FOLDER=DIR -P EveryPresetConfigures.cmake: fails if a preset that the suite does not
# build cannot be configured. Without it, a line that only a sanitizer's build reads breaks unseen.
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
foreach(preset asan tsan fuzz coverage release)
  execute_process(
    COMMAND ${CMAKE_COMMAND} --preset ${preset} -B ${FOLDER}/${preset} -D QUALM_LIBRARIES=OFF
    WORKING_DIRECTORY ${root}
    OUTPUT_VARIABLE told ERROR_VARIABLE told RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(SEND_ERROR "preset ${preset}: ${told}")
  endif()
endforeach()
file(REMOVE_RECURSE ${FOLDER})
