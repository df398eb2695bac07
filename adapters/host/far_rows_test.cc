// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/far_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <new>

#include "adapters/host/arena.h"

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
  uint8_t* const first = rows.Prepare(2, 5, kStride, 0);
  struct Access {
    volatile uint8_t* at;
  };
  for (const ptrdiff_t offset : {ptrdiff_t{-1}, ptrdiff_t{1} << 30, ptrdiff_t{1} << 13}) {
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
}

}  // namespace
}  // namespace qualm
