// SPDX-License-Identifier: Apache-2.0
// The keys that a case of an op may have, and the names of its operands, for the reader and the
// writer of case files. Private to core/io.
#ifndef QUALM_CORE_IO_CASE_KEYS_H_
#define QUALM_CORE_IO_CASE_KEYS_H_

#include <bitset>

#include "core/io/case_fields.h"
#include "core/op.h"

namespace qualm {

using CaseKeySet = std::bitset<kCaseKeys>;

// Every key that may stand in a case of `op`, required or not.
const CaseKeySet& KeysOf(Op op);
inline bool HasKey(Op op, CaseKey key) { return KeysOf(op)[static_cast<size_t>(key)]; }

// The keys of Case::x and Case::w: "x" and "w", or "a" and "b" where the op has two operands of
// equal rank.
struct OperandKeys {
  CaseKey x, x_scale, x_zp;
  CaseKey w, w_scale, w_zp;
};
OperandKeys OperandKeysOf(Op op);

}  // namespace qualm

#endif  // QUALM_CORE_IO_CASE_KEYS_H_
