// SPDX-License-Identifier: Apache-2.0
#include "hwy/highway.h"
