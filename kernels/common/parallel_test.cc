// SPDX-License-Identifier: Apache-2.0
// The same bits on any number of threads, whatever state the threads are in.
#include "kernels/common/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/common/dispatch.h"
#include "kernels/conv.h"
#include "kernels/linear.h"
#include "kernels/sums/accumulate.h"
#include "kernels/sums/conv_testing.h"
#include "kernels/sums/linear_testing.h"
#include "kernels/targets.h"

namespace qualm::kernels {
namespace {

using testing::Choices;
using testing::Collect;
using testing::ConvProblem;
using testing::Data;
using testing::Elements;
using testing::Fill;
using testing::FillBoth;
using testing::FillOrdinary;
using testing::FloatRoundingMode;
using testing::GuardedBytes;
using testing::ImageBytes;
using testing::ImagesAt;
using testing::PackProblem;
using testing::PlainOutputs;
using testing::Problem;
using testing::SizeOf;
using testing::Spread;
using testing::SpreadImages;

// Every task on a new thread, which rounds in a direction of its own.
class TestPool final : public ThreadPool {
 public:
  explicit TestPool(int64_t threads) : threads_(threads) {}

  int64_t Threads() const override { return threads_; }

  void Run(int64_t tasks, void (*fn)(void* arg, int64_t task), void* arg) override {
    most_tasks_ = std::max(most_tasks_, tasks);
    std::vector<std::thread> threads;
    for (int64_t task = tasks - 1; task >= 0; --task) {
      threads.emplace_back([=, this] {
        const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
        const int mode = modes[task % 3];
        std::fesetround(mode);
        fn(arg, task);
        if (FloatRoundingMode() != mode) ++modes_lost_;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  int64_t most_tasks() const { return most_tasks_; }
  int modes_lost() const { return modes_lost_; }

 private:
  int64_t threads_;
  int64_t most_tasks_ = 0;
  std::atomic<int> modes_lost_{0};
};

// Multipliers without a short exact form, so that a rounding mode would show; codes of every kind.
void MakeRoundingVisible(Problem* p) {
  p->x_scale = 0.3f;
  p->w_scale = {0.7f};
  p->x_zero = 100;
  p->w_zero = {3};
  p->y_scale = 77.7f;
  p->y_zero = 128;
}

Problem RandomProblem(int64_t m, int64_t n, int64_t k, Choices& choices) {
  Problem p;
  p.m = m;
  p.n = n;
  p.k = k;
  p.x.resize(static_cast<size_t>(p.m * p.k));
  p.w.resize(static_cast<size_t>(p.n * p.k));
  Fill(choices, Data::kRandom, p.x_type, p.x);
  Fill(choices, Data::kRandom, p.w_type, p.w);
  MakeRoundingVisible(&p);
  return p;
}

// 10 row blocks.
Problem ManyRows() {
  Choices choices(51);
  return RandomProblem(577, 33, 21, choices);
}

// Blocks of panels, whose activations move (sums/pairing.h).
Problem ManyPanels() {
  Choices choices(53);
  Problem p = RandomProblem(20, 1000, 96, choices);
  FillOrdinary(choices, p.k, p.w);
  return p;
}

// 675 output pixels; gathered, depthwise and in place.
std::vector<ConvProblem> ManyPixels() {
  std::vector<ConvProblem> problems(3);
  Choices choices(52);
  for (size_t i = 0; i < problems.size(); ++i) {
    ConvProblem& p = problems[i];
    p.batch = 3;
    p.height = p.width = 15;
    p.in_channels = i == 1 ? 19 : 6;
    p.groups = i == 1 ? 19 : 2;
    p.layer.n = i == 1 ? 38 : 20;
    if (i == 2) {
      p.row_gap = 3;
    } else {
      p.window.kernel_h = p.window.kernel_w = 3;
      p.window.pad_top = p.window.pad_bottom = p.window.pad_left = p.window.pad_right = 1;
    }
    FillBoth(choices, Data::kRandom, p);
    MakeRoundingVisible(&p.layer);
    if (i == 0) p.layer.x_zero = 256;  // padding is no code
  }
  return problems;
}

void ExpectTheSameBitsOnAnyNumberOfThreads(Problem p) {
  for (const ElementType type : {ElementType::kU8, ElementType::kF32}) {
    p.y_type = type;
    std::vector<uint8_t> x(static_cast<size_t>(p.m * p.k));
    Spread(p.x, p.m, p.k, 0, x.data());
    for (const std::string& target : SupportedTargets()) {
      const ScopedTarget scoped(target);
      PackedLinear packed;
      ASSERT_TRUE(PackProblem(p, &packed).ok());
      const auto run = [&](ThreadPool* pool, bool own_scratch) {
        const GuardedBytes y(Elements(p.m, p.n, 0) * SizeOf(type));
        const GuardedBytes scratch(own_scratch ? packed.ScratchBytes(p.m, pool) : 0, 0xFF);
        const Status status =
            packed.Run({x.data(), p.x_type, p.m, p.k, p.k}, {y.data(), type, p.m, p.n, p.n},
                       {scratch.data(), scratch.size()}, pool);
        EXPECT_TRUE(status.ok()) << status.error;
        return Collect(type, p.n, 0, 0xA5, y);
      };
      const std::vector<int32_t> expected = run(nullptr, false);
      for (const int64_t count : {1, 2, 3, 7}) {
        TestPool pool(count);
        for (const bool own_scratch : {false, true}) {
          ASSERT_EQ(run(&pool, own_scratch), expected) << target << " threads " << count;
        }
        EXPECT_EQ(pool.most_tasks(), count == 1 ? 0 : count);
        EXPECT_EQ(pool.modes_lost(), 0);
      }
    }
  }
}

TEST(Threads, LinearHasTheSameBitsOnAnyNumber) {
  ExpectTheSameBitsOnAnyNumberOfThreads(ManyRows());
}

TEST(Threads, PanelsHaveTheSameBitsOnAnyNumber) {
  ExpectTheSameBitsOnAnyNumberOfThreads(ManyPanels());
}

TEST(Threads, ConvolutionsHaveTheSameBitsOnAnyNumber) {
  for (const ConvProblem& p : ManyPixels()) {
    const std::vector<int32_t> expected = PlainOutputs(p);
    std::vector<uint8_t> x(ImageBytes(p));
    SpreadImages(p, x.data());
    for (const std::string& target : SupportedTargets()) {
      const ScopedTarget scoped(target);
      PackedConv packed;
      ASSERT_TRUE(PackProblem(p, &packed).ok());
      for (const int64_t count : {1, 2, 3, 7}) {
        TestPool pool(count);
        for (const bool own_scratch : {false, true}) {
          const GuardedBytes y(Elements(p.layer.m, p.layer.n, 0));
          const GuardedBytes scratch(
              own_scratch ? packed.ScratchBytes(p.batch, p.height, p.width, &pool) : 0, 0xFF);
          const Status status = packed.Run(
              ImagesAt(p, x.data()), {y.data(), p.layer.y_type, p.layer.m, p.layer.n, p.layer.n},
              {scratch.data(), scratch.size()}, &pool);
          ASSERT_TRUE(status.ok()) << status.error;
          ASSERT_EQ(Collect(p.layer.y_type, p.layer.n, 0, 0xA5, y), expected)
              << target << " threads " << count << " " << p.Describe();
        }
        EXPECT_EQ(pool.most_tasks(), count == 1 ? 0 : count);
        EXPECT_EQ(pool.modes_lost(), 0);
      }
    }
  }
}

// A pool may have more threads than there are blocks, and a pool may claim to have none.
TEST(Threads, ScratchGrowsWithTheTasksThatCanRun) {
  const Problem p = ManyRows();
  const TestPool none(0), three(3), many(INT64_MAX);
  for (const std::string& target : SupportedTargets()) {
    SCOPED_TRACE(target);
    const ScopedTarget scoped(target);
    PackedLinear packed;
    ASSERT_TRUE(PackProblem(p, &packed).ok());
    const auto width = static_cast<size_t>(CurrentAccumulateTraits().panel_width);
    const size_t panels = (static_cast<size_t>(p.n) + width - 1) / width;
    const size_t one = packed.ScratchBytes(p.m);
    ASSERT_GT(one, 0u);
    EXPECT_EQ(packed.ScratchBytes(p.m, &none), one);
    EXPECT_EQ(packed.ScratchBytes(p.m, &three), 3 * one);
    // A task has one panel of channels and not less than 12 rows.
    EXPECT_EQ(packed.ScratchBytes(p.m, &many), static_cast<size_t>((p.m + 11) / 12) * panels * one);
    EXPECT_EQ(packed.ScratchBytes(64, &many), 6 * panels * packed.ScratchBytes(64));
    EXPECT_EQ(packed.ScratchBytes(0, &many), 0u);
    EXPECT_EQ(packed.ScratchBytes(INT64_MAX, &many), 1024 * one);
  }
}

TEST(Threads, EveryBlockRunsOnceOnTheTargetOfTheCaller) {
  for (const std::string& target : SupportedTargets()) {
    const ScopedTarget scoped(target);
    const int64_t id = internal::TargetId();
    for (const int64_t tasks : {1, 2, 5}) {
      TestPool pool(tasks);
      std::vector<std::atomic<int>> runs(100);
      std::vector<std::atomic<int>> running(static_cast<size_t>(tasks));
      std::atomic<int> wrong{0};
      const auto run = [&](int64_t task, int64_t block) {
        // No two calls of one task at the same time: they would share its scratch.
        if (running[static_cast<size_t>(task)]++ != 0) ++wrong;
        if (internal::TargetId() != id || FloatRoundingMode() != FE_TONEAREST) ++wrong;
        ++runs[static_cast<size_t>(block)];
        --running[static_cast<size_t>(task)];
      };
      internal::ForEachBlock(&pool, tasks, 100, run);
      EXPECT_EQ(wrong, 0) << target;
      for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
    }
  }
}

}  // namespace
}  // namespace qualm::kernels
