// SPDX-License-Identifier: Apache-2.0
// Highway for intervals is in one file (highway.h); sources that include this name get it too.
#include "hwy/highway.h"
