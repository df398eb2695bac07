// SPDX-License-Identifier: Apache-2.0
// The whole of 2^32 inputs.
#include <gtest/gtest.h>

#include "adapters/registry.h"
#include "proofs/exhaust.h"

namespace qualm::proofs {
namespace {

TEST(ExhaustLong, TheFullSweepRefutesOneTie) {
  RegisterAllSubjects();
  Case c;
  c.op = Op::kRequantize;
  c.x = Tensor(DType::kS32, {0});
  c.multiplier = {0.5f};
  const Domain domain(c);
  Reference reference(domain, {});
  const auto subject = SubjectRegistry::Get().Make("faulty:one-tie");
  const Tally steps = BySteps(domain, reference, *subject);
  const Tally full = InFull(domain, reference, *subject, {0, domain.size()}, {});
  EXPECT_EQ(full.judged, uint64_t{1} << 32);
  EXPECT_EQ(full.wrong, 1u);
  EXPECT_EQ(domain.TextOf(full.first->number), "acc 1");
  EXPECT_EQ(steps.first, full.first);
}

// Computed for each input by itself, which assumes nothing of steps.
TEST(ExhaustLong, NativeKernelsAreExactOnEveryInput) {
  RegisterAllSubjects();
  for (const std::string& name : SubjectRegistry::Get().Expand("native@all")) {
    const auto subject = SubjectRegistry::Get().Make(name);
    for (const Op op : {Op::kQuantize, Op::kRequantize}) {
      Case c;
      c.op = op;
      c.x = Tensor(RowOf(op).x_types.front(), {0});
      c.out_q = {{0x1.99999ap-5f}, {3}};
      if (op == Op::kRequantize) c.multiplier = {0x1.930be0p-7f};
      const Domain domain(c);
      Reference reference(domain, {});
      FullOptions options;
      options.each = true;
      const Tally tally = InFull(domain, reference, *subject, {0, domain.size()}, options);
      EXPECT_EQ(tally.judged, uint64_t{1} << 32) << name << tally.failed;
      EXPECT_EQ(tally.wrong, 0u) << name;
    }
  }
}

}  // namespace
}  // namespace qualm::proofs
