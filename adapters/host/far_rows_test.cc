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

TEST(FarRows, AskForNoMoreThanThereIs) {
  FarRows rows;
  EXPECT_THROW(rows.Prepare(size_t{1} << 20, 5, kStride, 0), std::bad_alloc);
  rows.Prepare(2, 5, kStride, 0);
  EXPECT_TRUE(rows.OutsideIntact());
}

}  // namespace
}  // namespace qualm
