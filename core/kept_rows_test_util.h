// SPDX-License-Identifier: Apache-2.0
// Files of digests that tests compare with what the code does now. A line is "NAME: ROW"; lines
// that begin with # are for people.
#ifndef QUALM_CORE_KEPT_ROWS_TEST_UTIL_H_
#define QUALM_CORE_KEPT_ROWS_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

#include "core/content_name.h"

namespace qualm::test {

using KeptRows = std::map<std::string, std::string>;  // by name

inline KeptRows ReadKeptRows(const std::string& path) {
  KeptRows rows;
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t colon = line.find(": ");
    rows[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return rows;
}

inline std::string RowDigest(const std::string& bytes) {
  return ShortContentName(bytes).substr(0, 8);
}

}  // namespace qualm::test

#endif  // QUALM_CORE_KEPT_ROWS_TEST_UTIL_H_
