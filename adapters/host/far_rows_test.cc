// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/far_rows.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <list>
#include <new>

#include "adapters/host/arena.h"
#include "core/sanitized.h"

namespace qualm {
namespace {

constexpr size_t kStride = (size_t{1} << 31) + 64;

TEST(FarRows, LieAStrideApartAndHoldThePoison) {
  FarRows rows;
  uint8_t* const first = rows.Prepare(3, 5, kStride, 0xA5);
  ASSERT_EQ(rows.rows(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(rows.row(i), first + i * kStride);
    for (size_t byte = 0; byte < 5; ++byte) EXPECT_EQ(rows.row(i)[byte], 0xA5);
    std::memset(rows.row(i), static_cast<int>(i), 5);
  }
  EXPECT_TRUE(rows.OutsideIntact());
}

TEST(FarRows, SeeAWriteBesideEachRow) {
  FarRows rows;
  for (size_t row = 0; row < 3; ++row) {
    rows.Prepare(3, 5, kStride, 0xA5);
    rows.row(row)[5] = 0;
    EXPECT_FALSE(rows.OutsideIntact()) << row;
  }
  rows.Prepare(3, 5, kStride, 0xA5);
  rows.row(1)[-1] = 0;  // the first row begins its page
  EXPECT_FALSE(rows.OutsideIntact());
  rows.Prepare(3, 5, kStride, 0xA5);
  EXPECT_TRUE(rows.OutsideIntact());
}

TEST(FarRows, TrapAccessesToTheGaps) {
  FarRows rows;
  uint8_t* const first = rows.Prepare(3, 5, kStride, 0);
  struct Access {
    volatile uint8_t* at;
  };
  for (const ptrdiff_t offset : {ptrdiff_t{-1}, ptrdiff_t{1} << 30, ptrdiff_t{1} << 13,
                                 ptrdiff_t{kStride} + (1 << 13), ptrdiff_t{kStride} + (1 << 30)}) {
    Access access{first + offset};
    const auto read = [](void* it) { (void)*static_cast<Access*>(it)->at; };
    EXPECT_EQ(CallTrapped(read, &access), kGuardPageTrap) << offset;
  }
}

TEST(FarRows, WhatWasReleasedIsAGapOfTheNextOwner) {
  uint8_t* second_row = nullptr;
  {
    FarRows rows;
    rows.Prepare(3, 5, kStride, 0);
    second_row = rows.row(1);
  }
  FarRows rows;
  uint8_t* const first = rows.Prepare(2, 5, 2 * kStride, 0xA5);
  ASSERT_LT(first, second_row);  // the same address space
  ASSERT_LT(second_row, rows.row(1));
  const auto read = [](void* at) { (void)*static_cast<volatile uint8_t*>(at); };
  EXPECT_EQ(CallTrapped(read, second_row), kGuardPageTrap);
  EXPECT_TRUE(rows.OutsideIntact());
}

TEST(FarRows, TwoOwnersHaveAddressesOfTheirOwn) {
  FarRows one;
  FarRows two;
  one.Prepare(2, 5, kStride, 1);
  two.Prepare(2, 5, kStride, 2);
  EXPECT_EQ(one.row(1)[0], 1);
  EXPECT_EQ(two.row(1)[0], 2);
  one.Release();
  one.Release();
  EXPECT_EQ(one.rows(), 0u);
  EXPECT_TRUE(two.OutsideIntact());
}

// What was given back twice would be two owners' at once.
TEST(FarRows, AreGivenBackOnce) {
  FarRows one;
  one.Prepare(2, 5, kStride, 1);
  one.Release();
  one.Release();
  FarRows two;
  FarRows three;
  EXPECT_NE(two.Prepare(2, 5, kStride, 2), three.Prepare(2, 5, kStride, 3));
  EXPECT_EQ(two.row(0)[0], 2);
}

// Beyond 2^36 bytes the addresses are not kept: nothing lies there any more.
TEST(FarRows, OfTheLargestCasesGoBackToTheSystem) {
  FarRows rows;
  constexpr size_t kLarge = (size_t{1} << 35) + 64;
  uint8_t* const first = rows.Prepare(3, 4096, kLarge, 0xA5);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(rows.row(i), first + i * kLarge);
    std::memset(rows.row(i), 1, 4096);
  }
  EXPECT_TRUE(rows.OutsideIntact());
  rows.row(2)[4096] = 0;
  EXPECT_FALSE(rows.OutsideIntact());
  rows.Release();
  const auto read = [](void* at) { (void)*static_cast<volatile uint8_t*>(at); };
  for (const size_t offset : {size_t{0}, kLarge, 2 * kLarge + 4096}) {
    EXPECT_EQ(CallTrapped(read, first + offset), "SIGSEGV: access to an unmapped address");
  }
}

TEST(FarRows, AskForNoMoreThanThereIs) {
  FarRows rows;
  EXPECT_THROW(rows.Prepare(size_t{1} << 20, 5, kStride, 0), std::bad_alloc);
  rows.Prepare(2, 5, kStride, 0);
  EXPECT_TRUE(rows.OutsideIntact());
  // One row lies nowhere else, however far the next one would be.
  rows.Prepare(1, 5, size_t{1} << 46, 0xA5);
  EXPECT_EQ(rows.row(0)[4], 0xA5);
}

// 2^33 + 1 rows, 2^31 bytes apart, are a row more than 64 bits count: where the rest fits, the rows
// of others would lie under them.
TEST(FarRows, OfMoreThan64BitsAreNoneOfOthers) {
  std::array<FarRows, 4> others;
  for (FarRows& other : others) {
    other.Prepare(3, 5, kStride, 0xA5);
    std::memset(other.row(0), 1, 5);
  }
  // What is released is had next: addresses below those of the others.
  std::ranges::min_element(others, {}, [](const FarRows& other) {
    return other.row(0);
  })->Release();
  FarRows rows;
  EXPECT_THROW(rows.Prepare((size_t{1} << 33) + 1, 5, size_t{1} << 31, 0), std::bad_alloc);
  for (const FarRows& other : others) {
    if (other.rows() == 0) continue;
    EXPECT_EQ(other.row(0)[0], 1);
    EXPECT_TRUE(other.OutsideIntact());
  }
}

#if defined(__x86_64__)  // qemu takes no such limits

// Half of all addresses are few enough.
TEST(FarRows, MayTakeHalfOfTheAddresses) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs addresses itself";
  FarRows rows;
  rows.Prepare(2, 5, size_t{1} << 45, 0xA5);
  EXPECT_EQ(rows.row(1), rows.row(0) + (size_t{1} << 45));
  EXPECT_EQ(rows.row(1)[4], 0xA5);
}

// Calls `act` where this process may take no more of `resource` than it has, but for `more` bytes.
// Whether it found no memory.
bool ThrowsWithin(decltype(RLIMIT_AS) resource, size_t more, const std::function<void()>& act) {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  for (int i = 0; i <= (resource == RLIMIT_AS ? 0 : 5); ++i) file >> pages;
  struct rlimit limit = {};
  getrlimit(resource, &limit);
  const struct rlimit before = limit;
  limit.rlim_cur = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + more;
  setrlimit(resource, &limit);
  bool threw = false;
  try {
    act();
  } catch (const std::bad_alloc&) {
    threw = true;
  }
  setrlimit(resource, &before);
  return threw;
}

TEST(FarRows, AreHadAgainWhereTheSystemHadNone) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs addresses itself";
  EXPECT_EXIT(
      {
        std::list<FarRows> all;  // what earlier rows have left is taken first
        const bool threw = ThrowsWithin(RLIMIT_AS, 1 << 20, [&] {
          for (int i = 0; i < 1000; ++i) all.emplace_back().Prepare(2, 5, kStride, 0);
        });
        all.back().Prepare(2, 5, kStride, 1);
        std::_Exit(threw && all.back().row(1)[4] == 1 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(FarRows, WithoutMemoryForAllRowsThereIsNone) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs memory itself";
  EXPECT_EXIT(
      {
        FarRows rows;
        const bool threw =
            ThrowsWithin(RLIMIT_DATA, 3 << 20, [&] { rows.Prepare(8, 1 << 20, kStride, 0); });
        std::_Exit(threw && rows.rows() == 0 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace qualm
