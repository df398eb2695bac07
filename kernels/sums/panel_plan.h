// SPDX-License-Identifier: Apache-2.0
// How the outputs of a product of rows and panels of channels are shared out. Internal to kernels/.
#ifndef QUALM_KERNELS_SUMS_PANEL_PLAN_H_
#define QUALM_KERNELS_SUMS_PANEL_PLAN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/parallel.h"
#include "kernels/sums/row_block.h"
#include "kernels/types.h"

namespace qualm::kernels::internal {

// Blocks of rows times blocks of panels. Without rows or panels there are no tasks.
struct PanelPlan {
  // `tile`: rows of a tile. `arranged`: each task arranges a block of rows in its scratch.
  PanelPlan(int64_t rows, int64_t row_bytes, int64_t tile, int64_t panels, bool arranged,
            const ThreadPool* pool) {
    // Rows of one block should stay in the L2 cache beside a panel.
    constexpr int64_t kRowsBytes = 256 * 1024;
    if (rows <= 0 || panels == 0) return;
    const int64_t fit = row_bytes == 0 ? rows : kRowsBytes / row_bytes / tile * tile;
    rows_of_block = std::min(rows, std::max(fit, tile));
    row_blocks = (rows - 1) / rows_of_block + 1;
    // Where there are fewer blocks of rows than two for each thread, panels are cut too.
    const int64_t threads = TaskCount(pool, INT64_MAX);
    const int64_t cuts =
        threads == 1 ? 1 : std::clamp<int64_t>(2 * threads / row_blocks, 1, panels);
    panels_of_block = (panels + cuts - 1) / cuts;
    panel_blocks = (panels + panels_of_block - 1) / panels_of_block;
    tasks = TaskCount(pool, row_blocks * panel_blocks);
    if (arranged) scratch.Add(rows_of_block * row_bytes);
  }
  size_t bytes() const { return scratch.bytes() * static_cast<size_t>(tasks); }

  ScratchLayout scratch;
  int64_t rows_of_block = 0, row_blocks = 0;
  int64_t panels_of_block = 0, panel_blocks = 0;
  int64_t tasks = 0;
};

}  // namespace qualm::kernels::internal

#endif  // QUALM_KERNELS_SUMS_PANEL_PLAN_H_
