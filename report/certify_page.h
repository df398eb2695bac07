// SPDX-License-Identifier: Apache-2.0
// The page of qualm certify: which channels of each layer have narrow sums that may overflow.
#ifndef QUALM_REPORT_CERTIFY_PAGE_H_
#define QUALM_REPORT_CERTIFY_PAGE_H_

#include <string>
#include <vector>

#include "proofs/certify.h"
#include "report/document.h"

namespace qualm::report {

// A layer as one scheme adds it.
struct ProvenLayer {
  std::string name;
  std::string says;    // "conv2d ..., x in 0..255"
  std::string scheme;  // in words
  proofs::Proof proof;
};

// A bar for each unsafe channel, as high as it has unsafe sums; of many channels one for several.
// Empty where all are safe.
Svg UnsafeChannels(const proofs::Proof& proof);

// A whole page of HTML.
std::string CertifyPage(const std::vector<ProvenLayer>& layers);

}  // namespace qualm::report

#endif  // QUALM_REPORT_CERTIFY_PAGE_H_
