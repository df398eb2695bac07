#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What OSS-Fuzz and ClusterFuzzLite run as $SRC/build.sh. The work is in the tree, so that it changes
# with the tree.
exec bash "$SRC/qualm/fuzz/ossfuzz.sh"
