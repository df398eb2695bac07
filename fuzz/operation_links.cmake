# SPDX-License-Identifier: Apache-2.0
# cmake -P, after op_fuzz or op_replay (-D kind=fuzz or replay) is linked in -D folder: a link
# NAME_fuzz or NAME_replay to it for each operation of -D list, which op_replay printed.
file(STRINGS ${list} operations)
foreach(name ${operations})
  file(CREATE_LINK op_${kind} ${folder}/${name}_${kind} SYMBOLIC)
endforeach()
