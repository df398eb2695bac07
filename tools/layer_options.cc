// SPDX-License-Identifier: Apache-2.0
#include "tools/layer_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <utility>

#include "core/io/arrays.h"
#include "core/io/case_json.h"
#include "core/io/json_text.h"
#include "core/io/npy.h"
#include "core/status.h"
#include "proofs/weights.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;
using proofs::Codes;
using proofs::Scheme;

// A folder stands for its case files that have weights: what qualm_export writes of a model.
std::vector<std::string> LayerFiles(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) throw InputError(path + ": no such file or folder");
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const std::string file = entry.path().string();
    if (file.ends_with(".case.json") && HasLayer(ReadCaseFile(file))) files.push_back(file);
  }
  if (files.empty()) {
    throw InputError(path + ": holds no *.case.json with weights, expected at least one");
  }
  std::ranges::sort(files);
  return files;
}

Codes RangeOption(const LayerOptions& options, DType x) {
  const CodeRange type = RangeOf(x);
  if (options.x_range.empty()) return {type.min, type.max};
  const size_t colon = options.x_range.find(':');
  // A bound that is no number becomes INT32_MIN, outside every type: the check below refuses it.
  const auto number = [](const std::string& text) {
    return ParseInteger<int32_t>(text).value_or(INT32_MIN);
  };
  const int32_t lo = number(options.x_range.substr(0, colon));
  const int32_t hi =
      colon == std::string::npos ? INT32_MIN : number(options.x_range.substr(colon + 1));
  if (lo < type.min || lo > hi || hi > type.max) {
    throw InputError(fmt::format("--x-range: is '{}', expected LO:HI inside {}..{}",
                                 options.x_range, type.min, type.max));
  }
  return {lo, hi};
}

// A list of terms, two by two; -1 stands for a product 0.
Scheme PairingOption(const LayerOptions& options, const Case& layer, const std::string& title) {
  const Tensor order = ParseNpy(ReadBinaryFile(options.pairing, kMaxWeightFile), options.pairing);
  const auto fail = [&](const std::string& what) {
    throw InputError(OneLine(options.pairing) + ": order: " + what);
  };
  if (order.dtype() != DType::kS32) fail("is no int32, expected places of terms");
  const std::span<const int32_t> terms = order.as<int32_t>();
  std::vector<bool> seen(static_cast<size_t>(proofs::TermsOf(layer).count()));
  for (const int32_t k : terms) {
    if (k == proofs::kNoTerm) continue;
    const auto at = static_cast<size_t>(k);
    if (k < 0 || at >= seen.size() || seen[at]) {
      fail(
          fmt::format("has {} at a wrong place or twice, expected each term of {} once", k, title));
    }
    seen[at] = true;
  }
  if (std::ranges::count(seen, false) != 0) fail("lacks a term of " + title + ", expected all");
  return proofs::GivenPairs({terms.begin(), terms.end()});
}

Layer Prepared(const LayerOptions& options, const std::string& file, NamedLayer found) {
  Layer result{file, OneLine(found.name), std::move(found.layer), {}, {}};
  Case& layer = result.layer;
  if (BitsOf(layer.w.dtype()) < 8) {
    throw InputError(OneLine(result.title()) + ": w_dtype: is " +
                     std::string(Name(layer.w.dtype())) + ", expected s8 or u8");
  }
  if (layer.w.dtype() == DType::kF32) {
    if (options.quantize.empty()) {
      throw InputError(OneLine(result.title()) +
                       ": weights: are float32, expected codes, or --quantize tensor or channel");
    }
    try {
      layer = proofs::WithCodes(layer, options.quantize == "channel");
    } catch (const InputError& error) {
      throw InputError(OneLine(result.title()) + ": weights: " + error.what() +
                       ", expected finite ones");
    }
  }
  if (!options.x_type.empty() && *ParseDType(options.x_type) != layer.x.dtype()) {
    layer = ProblemOf(layer);
    layer.M = 0;
    layer.window.batch = 0;
    if (IsConv(layer.op)) DeriveSizes(&layer);
    layer.x = Tensor(*ParseDType(options.x_type), ShapeOfX(layer));
  }
  result.x = proofs::WithPadding(layer, RangeOption(options, layer.x.dtype()));
  for (const std::string& name : options.schemes) {
    result.schemes.push_back(proofs::SchemeOf(name, layer));
  }
  if (!options.pairing.empty()) {
    result.schemes.push_back(PairingOption(options, layer, result.title()));
  }
  if (result.schemes.empty()) result.schemes = proofs::SchemesOfConventions(layer);
  return result;
}

}  // namespace

std::string Layer::stem() const {
  std::string text = fs::path(file).stem().string();
  if (text.ends_with(".case")) text.resize(text.size() - 5);
  if (!name.empty()) text += "." + name;
  std::ranges::replace_if(text, [](char ch) { return ch == '/' || ch == ' ' || ch == ':'; }, '_');
  return text;
}

std::vector<Layer> ReadLayers(const LayerOptions& options) {
  std::vector<Layer> layers;
  for (const std::string& path : options.paths) {
    const std::vector<std::string> files = LayerFiles(path);
    for (const std::string& file : files) {
      for (NamedLayer& found : ReadLayers(file, options.reading)) {
        if (!options.only.empty() && found.name != options.only) continue;
        layers.push_back(Prepared(options, file, std::move(found)));
      }
    }
  }
  if (layers.empty()) throw InputError("--tensor: no layer is called '" + options.only + "'");
  return layers;
}

std::string SchemeText(const Scheme& scheme) {
  std::vector<std::string> others;
  std::ranges::copy_if(scheme.conventions, std::back_inserter(others),
                       [&](const std::string& name) { return name != scheme.name; });
  if (others.empty()) return scheme.name;
  constexpr size_t kMost = 3;
  const std::string more =
      others.size() > kMost ? fmt::format(" and {} more", others.size() - kMost) : "";
  others.resize(std::min(others.size(), kMost));
  return fmt::format("{} (as {}{})", scheme.name, fmt::join(others, ", "), more);
}

std::string RangeText(Codes x) { return fmt::format("x in {}..{}", x.lo, x.hi); }
JsonValue RangeJson(Codes x) { return std::array{x.lo, x.hi}; }

void AddLayerOptions(Verb& verb, LayerOptions& options) {
  verb.Texts("PATH", options.paths,
             "weights: .npy, .safetensors, .onnx, a case file, or a folder of case files")
      .Required();
  verb.Text("--x-range", options.x_range,
            "LO:HI, the codes that activations may take (default: all)");
  verb.Text("--x-type", options.x_type, "type of the activations (default: the file's, or u8)")
      .OneOf({"u8", "s8"});
  verb.Texts("--scheme", options.schemes,
             "how products are added: pairs, pairs-in-tap, acc16, neon-mlal, float32, or as a "
             "convention adds them (repeatable; default: every way of the conventions)");
  verb.Text("--pairing", options.pairing,
            "a .npy of int32: the terms that meet in int16, two by two, -1 for none");
  verb.Text("--quantize", options.quantize,
            "make s8 codes of float32 weights, one scale per tensor or per channel")
      .OneOf({"tensor", "channel"});
  verb.Text("--tensor", options.only, "only the layer with these weights");
  verb.Flag("--channels-last", options.reading.channels_last,
            "convolutions in .npy and .safetensors are [OC,R,S,IC/groups]");
  verb.Integer("--groups", options.reading.groups, 1, 1 << 20,
               "groups of the convolutions in .npy and .safetensors");
  AddOutputOptions(verb, options);
}

}  // namespace qualm::tools
