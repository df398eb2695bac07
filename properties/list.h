// SPDX-License-Identifier: Apache-2.0
// The rows of the property list, one function per file of properties; AllProperties() (property.cc)
// puts them together in this order.
#ifndef QUALM_PROPERTIES_LIST_H_
#define QUALM_PROPERTIES_LIST_H_

#include <vector>

#include "properties/property.h"

namespace qualm {

// For the claims that hold for every operation.
inline std::vector<Op> EveryOp() { return {AllOps().begin(), AllOps().end()}; }

// For claims about rows and columns of outputs; choose_qparams gives parameters instead.
constexpr bool IsOnElements(Op op) { return RowOf(op).layout != Layout::kBatches; }
inline std::vector<Op> EveryOpOnElements() { return OpsWhere(IsOnElements); }
// For claims about columns that do not depend on each other; those of softmax share a row.
inline std::vector<Op> EveryOpOnColumns() {
  return OpsWhere([](Op op) { return IsOnElements(op) && RowOf(op).out_q != OutQParams::kFixed; });
}

// Comparisons and the clamp judge every drawn case. Relations judge one of this many (OneIn), and
// so do properties that ask many times, or that are about the place of the data or the state around
// the call; these say so, because fuzz targets pick them less often than relations.
inline constexpr int kInTurn = 4;
inline constexpr int kSeldom = 8;  // the dearest: whole sweeps, new threads, a chain of cases

std::vector<Property> DifferentialProperties();
std::vector<Property> SweepProperties();
std::vector<Property> ClampProperties();
std::vector<Property> RoundTripProperties();
std::vector<Property> AlgebraProperties();
std::vector<Property> MetamorphicProperties();
std::vector<Property> WindowProperties();
std::vector<Property> OperandProperties();
std::vector<Property> TableProperties();
std::vector<Property> ObserverProperties();
std::vector<Property> MemoryProperties();
std::vector<Property> StateProperties();
std::vector<Property> EnvironmentProperties();

}  // namespace qualm

#endif  // QUALM_PROPERTIES_LIST_H_
