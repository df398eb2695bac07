// SPDX-License-Identifier: Apache-2.0
#include "proofs/scheme.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <optional>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "core/nearest.h"
#include "core/status.h"
#include "oracles/conventions/accumulation.h"
#include "oracles/conventions/convention.h"

namespace qualm::proofs {
namespace {

using conventions::Accumulation;
using Kind = Scheme::Kind;

constexpr int32_t kLow = INT16_MIN, kHigh = INT16_MAX;
constexpr std::array<std::string_view, 5> kNames{"pairs", "pairs-in-tap", "acc16", "neon-mlal",
                                                 "float32"};

std::vector<int32_t> PairsInTap(const Terms& terms) {
  if (terms.depth % 2 == 0) return {};
  std::vector<int32_t> order;
  for (int64_t k = 0; k < terms.count(); ++k) {
    order.push_back(static_cast<int32_t>(k));
    if ((k + 1) % terms.depth == 0) order.push_back(kNoTerm);
  }
  return order;
}

// Two blocks, the first one padded to an even length.
std::vector<int32_t> TwoBlocks(int64_t first, int64_t count) {
  if (first % 2 == 0) return {};
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  order.insert(order.begin() + first, kNoTerm);
  return order;
}

// Vectors of eight products: smull of one, smlal of the next, then both are widened.
std::vector<int32_t> NeonChains(int64_t count, int64_t length) {
  std::vector<int32_t> order;
  for (int64_t block = 0; block < count; block += 8 * length) {
    for (int64_t lane = 0; lane < 8; ++lane) {
      for (int64_t i = 0; i < length; ++i) {
        const int64_t k = block + 8 * i + lane;
        order.push_back(k < count ? static_cast<int32_t>(k) : kNoTerm);
      }
    }
  }
  return order;
}

// nullopt for sums that no order of products describes: halved weights.
std::optional<Scheme> SchemeOf(const Accumulation& accumulation, const Case& layer) {
  const Terms terms = TermsOf(layer);
  Scheme scheme;
  switch (accumulation.kind) {
    case Accumulation::Kind::kExact: scheme.kind = Kind::kExact; break;
    case Accumulation::Kind::kPairs: break;
    case Accumulation::Kind::kPairsXPlus128: scheme.x_plus = 128; break;
    case Accumulation::Kind::kPairsWPlus128: scheme.w_plus = 128; break;
    case Accumulation::Kind::kPairsInto16: scheme.kind = Kind::kRuns; break;
    case Accumulation::Kind::kHalvedWeights: return std::nullopt;
  }
  scheme.order = accumulation.pairs_within_tap ? PairsInTap(terms)
                                               : TwoBlocks(accumulation.first_block, terms.count());
  return scheme;
}

// How the convention adds the layer; nullopt where it does not, or in no order of products.
std::optional<Scheme> SchemeOf(const Convention& convention, const Case& layer) {
  const Convention* const one = convention.for_op ? convention.for_op(layer.op) : &convention;
  if (one == nullptr || !one->accumulation || !one->cannot_run(layer).empty()) return std::nullopt;
  std::optional<Scheme> scheme = SchemeOf(one->accumulation(layer), layer);
  if (scheme) scheme->conventions = {convention.name};
  return scheme;
}

int32_t Sat16(int64_t value) {
  return static_cast<int32_t>(std::clamp<int64_t>(value, kLow, kHigh));
}

}  // namespace

bool AddsAlike(const Scheme& a, const Scheme& b) {
  const auto key = [](const Scheme& s) {
    return std::tie(s.kind, s.length, s.spill, s.x_plus, s.w_plus, s.order);
  };
  return key(a) == key(b);
}

Terms TermsOf(const Case& layer) {
  if (!IsConv(layer.op)) return {1, layer.K};
  const Window& v = layer.window;
  return {v.kernel_h * v.kernel_w, v.in_c / v.groups};
}

namespace {

// The number behind the colon of "acc16:128", at least 1; `otherwise` without one.
int64_t Suffix(const std::string& name, int64_t otherwise) {
  const size_t colon = name.find(':');
  if (colon == std::string::npos) return otherwise;
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(name.data() + colon + 1, name.data() + name.size(), value);
  const bool read = error == std::errc() && end == name.data() + name.size();
  if (!read || value < 1 || value > (1 << 20)) {
    throw InputError("--scheme: '" + name + "' has a wrong number, expected 1..2^20 after ':'");
  }
  return value;
}

Scheme OfConvention(const std::string& name, const Case& layer) {
  const Convention* const convention = FindConvention(name);
  if (convention == nullptr) {
    std::vector<std::string_view> names(kNames.begin(), kNames.end());
    for (const Convention& each : AllConventions()) names.push_back(each.name);
    throw InputError("--scheme: unknown scheme '" + name + "', nearest is '" +
                     std::string(NearestName(name, names)) + "'");
  }
  std::optional<Scheme> scheme = SchemeOf(*convention, layer);
  if (scheme) return std::move(*scheme);
  const std::string why = convention->cannot_run(layer);
  throw InputError("--scheme: " + name + " does not add products of this layer in order" +
                   (why.empty() ? "" : " (" + why + ")") + ", expected another scheme");
}

}  // namespace

Scheme SchemeOf(const std::string& name, const Case& layer) {
  Scheme scheme;
  const Terms terms = TermsOf(layer);
  const std::string base = name.substr(0, name.find(':'));
  const bool s8 = layer.x.dtype() == DType::kS8;
  if (std::ranges::find(kNames, base) != kNames.end() && layer.w.dtype() != DType::kS8) {
    throw InputError("--scheme: " + name + " multiplies s8 weights, and these are u8");
  }
  // Such kernels multiply u8 by s8: activations of s8 are shifted.
  scheme.x_plus = s8 ? 128 : 0;
  if (name == "pairs-in-tap") {
    scheme.order = PairsInTap(terms);
  } else if (base == "acc16") {
    scheme.kind = Kind::kRuns;
    scheme.spill = Suffix(name, scheme.spill);
    if (scheme.spill % 2 != 0) {
      throw InputError("--scheme: " + name + " ends inside a pair, expected an even number");
    }
  } else if (base == "neon-mlal") {
    if (!s8) throw InputError("--scheme: neon-mlal multiplies s8 by s8, expected --x-type s8");
    scheme.kind = Kind::kChains;
    scheme.x_plus = 0;
    scheme.length = Suffix(name, scheme.length);
    scheme.order = NeonChains(terms.count(), scheme.length);
  } else if (name == "float32") {
    scheme.kind = Kind::kFloat32;
    scheme.length = 1;
    scheme.x_plus = 0;
  } else if (name != "pairs") {
    scheme = OfConvention(name, layer);
  }
  scheme.name = name;
  return scheme;
}

std::vector<Scheme> SchemesOfConventions(const Case& layer) {
  std::vector<Scheme> schemes;
  for (const Convention& convention : AllConventions()) {
    std::optional<Scheme> scheme = SchemeOf(convention, layer);
    if (!scheme || scheme->kind == Kind::kExact) continue;
    const auto at = std::ranges::find_if(
        schemes, [&](const Scheme& known) { return AddsAlike(known, *scheme); });
    if (at == schemes.end()) {
      scheme->name = convention.name;
      schemes.push_back(std::move(*scheme));
    } else {
      at->conventions.push_back(convention.name);
    }
  }
  return schemes;
}

Scheme GivenPairs(std::vector<int32_t> order) {
  Scheme scheme;
  scheme.name = kGiven;
  scheme.order = std::move(order);
  return scheme;
}

Scheme SchemeFor(const Scheme& scheme, const Case& layer) {
  if (scheme.name != kGiven) return SchemeOf(scheme.name, layer);
  Scheme longer = scheme;
  const Terms terms = TermsOf(layer);
  for (auto k = static_cast<int64_t>(scheme.order.size()); k < terms.count(); ++k) {
    longer.order.push_back(static_cast<int32_t>(k));
  }
  return longer;
}

int64_t Simulate(const Scheme& scheme, const std::vector<int32_t>& x,
                 const std::vector<int32_t>& w) {
  const size_t places = scheme.order.empty() ? w.size() : scheme.order.size();
  const auto length = static_cast<size_t>(scheme.length);
  int64_t sum = 0, run = 0;
  float real = 0;
  for (size_t begin = 0; begin < places; begin += length) {
    int64_t narrow = 0;
    for (size_t place = begin; place < std::min(begin + length, places); ++place) {
      const int32_t k = scheme.order.empty() ? static_cast<int32_t>(place) : scheme.order[place];
      if (k == kNoTerm) continue;
      const auto at = static_cast<size_t>(k);
      narrow += int64_t{x[at] + scheme.x_plus} * (w[at] + scheme.w_plus);
    }
    switch (scheme.kind) {
      case Kind::kExact: sum += narrow; break;
      case Kind::kPairs: sum += Sat16(narrow); break;
      case Kind::kChains: sum += static_cast<int16_t>(narrow); break;
      case Kind::kFloat32: real += static_cast<float>(narrow); break;
      case Kind::kRuns:
        if (begin % static_cast<size_t>(scheme.spill) == 0) {
          sum += run;
          run = 0;
        }
        run = Sat16(run + Sat16(narrow));
        break;
    }
  }
  return scheme.kind == Kind::kFloat32 ? static_cast<int64_t>(real) : sum + run;
}

}  // namespace qualm::proofs
