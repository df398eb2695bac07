// SPDX-License-Identifier: Apache-2.0
// The proofs about layers as a file that anyone can check again: the same weights give the same
// text.
#ifndef QUALM_PROOFS_LAYER_CERTIFICATE_H_
#define QUALM_PROOFS_LAYER_CERTIFICATE_H_

#include <span>
#include <string>
#include <string_view>

#include "core/case.h"
#include "core/io/json_writer.h"
#include "proofs/certify.h"

namespace qualm::proofs {

// 128 bits in hex: tells other bytes apart, keeps no secret.
std::string HashOf(std::string_view bytes);

// One layer under one scheme. Names no file, so that the file may move.
JsonValue CertificateOf(std::string_view name, const Case& layer, const Scheme& scheme, Codes x,
                        const Proof& proof);
// The document of these certificates, with its hash.
std::string CertificateText(std::span<const JsonValue> certificates);

// Throws InputError "PATH: FIELD: what, expected what" unless the file is CertificateText of these,
// because it was changed or is about other weights, activations, schemes or another version.
void RequireSame(const std::string& path, std::span<const JsonValue> certificates);

}  // namespace qualm::proofs

#endif  // QUALM_PROOFS_LAYER_CERTIFICATE_H_
