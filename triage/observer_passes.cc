// SPDX-License-Identifier: Apache-2.0
#include "triage/observer_passes.h"

#include <vector>

#include "triage/shrink.h"

namespace qualm::triage {
namespace {

bool HasWholeRange(const Observer& o) {
  return CodeRange{o.quant_min, o.quant_max} == RangeOf(o.dtype);
}

// The chosen batches, rows and columns.
Case Keep(const Case& c, const std::vector<int64_t>& batches, const std::vector<int64_t>& rows,
          const std::vector<int64_t>& columns) {
  Case smaller = ProblemOf(c);
  smaller.M = static_cast<int64_t>(rows.size());
  smaller.N = static_cast<int64_t>(columns.size());
  smaller.x = Tensor(DType::kF32, {static_cast<int64_t>(batches.size()), smaller.M, smaller.N});
  size_t at = 0;
  for (const int64_t b : batches) {
    for (const int64_t m : rows) {
      for (const int64_t n : columns) {
        smaller.x.as<float>()[at++] = c.x.FloatAt((b * c.M + m) * c.N + n);
      }
    }
  }
  return smaller;
}

}  // namespace

int64_t ObserverComplexity(const Case& c) {
  if (c.op != Op::kChooseQParams) return 0;
  const Observer& o = c.observer;
  return static_cast<int64_t>(o.kind) + (o.symmetric ? 1 : 0) + (o.reduce_range ? 1 : 0) +
         (o.dtype != DType::kU8 ? 1 : 0) + (HasWholeRange(o) ? 0 : 1) +
         (o.averaging_constant != Observer{}.averaging_constant ? 1 : 0);
}

void ObserverParameters(const Case& c, const Visit& visit) {
  if (c.op != Op::kChooseQParams) return;
  const auto offer = [&](const auto& edit) {
    Case simpler = ProblemOf(c);
    edit(simpler.observer);
    return simpler.observer != c.observer && visit(simpler);
  };
  if (offer([](Observer& o) { o = {}; })) return;
  if (offer([](Observer& o) { o.kind = Observer::Kind::kMinMax; })) return;
  if (offer([](Observer& o) { o.symmetric = false; })) return;
  if (offer([](Observer& o) { o.reduce_range = false; })) return;
  if (offer([](Observer& o) {
        o.dtype = DType::kU8;
        o.quant_min = RangeOf(o.dtype).min;
        o.quant_max = RangeOf(o.dtype).max;
      }))
    return;
  if (offer([](Observer& o) {
        o.quant_min = RangeOf(o.dtype).min;
        o.quant_max = RangeOf(o.dtype).max;
      }))
    return;
  offer([](Observer& o) { o.averaging_constant = Observer{}.averaging_constant; });
}

void ObserverOutputs(const Case& c, const Visit& visit) {
  const int64_t batches = c.x.shape()[0];
  const std::vector<int64_t> all_batches = Range(0, batches), rows = Range(0, c.M),
                             columns = Range(0, c.N);
  const auto offer = [&](const auto& make) {
    return [&](const std::vector<int64_t>& keep) { return visit(make(keep)); };
  };
  if (c.N > 1 && Shrink(c.N, 1, offer([&](const std::vector<int64_t>& keep) {
                          return Keep(c, all_batches, rows, keep);
                        })))
    return;
  if (c.M > 1 && Shrink(c.M, 1, offer([&](const std::vector<int64_t>& keep) {
                          return Keep(c, all_batches, keep, columns);
                        })))
    return;
  if (batches > 1) {
    Shrink(batches, 1,
           offer([&](const std::vector<int64_t>& keep) { return Keep(c, keep, rows, columns); }));
  }
}

}  // namespace qualm::triage
