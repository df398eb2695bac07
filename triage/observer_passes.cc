// SPDX-License-Identifier: Apache-2.0
#include "triage/observer_passes.h"

#include <vector>

#include "core/slice.h"
#include "triage/shrink.h"

namespace qualm::triage {
void ObserverParameters(const Case& c, const Visit& visit) {
  if (!RowOf(c.op).qparams) return;
  const auto offer = [&](const auto& edit) {
    Case simpler = ProblemOf(c);
    edit(simpler.observer);
    return simpler.observer != c.observer && visit(simpler);
  };
  if (offer([](Observer& o) { o = {}; })) return;
  const auto open_range = [](Observer& o) {
    o.quant_min = RangeOf(o.dtype).min;
    o.quant_max = RangeOf(o.dtype).max;
  };
  if (offer([&](Observer& o) {
        o.dtype = DType::kU8;
        open_range(o);
      }))
    return;
  offer(open_range);
}

void ObserverOutputs(const Case& c, const Visit& visit) {
  const int64_t batches = c.x.shape()[0];
  const auto offer = [&](Case (*cut)(const Case&, slice::Places)) {
    return [&, cut](const std::vector<int64_t>& keep) { return visit(cut(c, keep)); };
  };
  if (c.N > 1 && Shrink(c.N, 1, offer(slice::Channels))) return;
  if (c.M > 1 && Shrink(c.M, 1, offer(slice::Rows))) return;
  if (batches > 1) Shrink(batches, 1, offer(slice::Batches));
}

}  // namespace qualm::triage
