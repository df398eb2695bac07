// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/model.h"

#include <algorithm>

#include "oracles/conventions/convention.h"
#include "oracles/conventions/observers.h"

namespace qualm {
namespace {

std::vector<Model> Collect() {
  std::vector<Model> all;
  for (auto family :
       {models::FbgemmModels, models::OneDnn2Models, models::OneDnn3Models, models::QnnpackModels,
        models::AtenModels, models::XnnpackModels, models::TfliteModels, models::GemmlowpModels,
        models::RuyModels, models::OnnxRuntimeModels, models::ObserverModels, models::TorchModels,
        models::NumpyModels}) {
    for (Model& model : family()) all.push_back(std::move(model));
  }
  std::sort(all.begin(), all.end(), [](const Model& a, const Model& b) { return a.name < b.name; });
  return all;
}

}  // namespace

std::span<const Model> AllModels() {
  static const std::vector<Model> models = Collect();
  return models;
}

bool Satisfies(const Model& model, Op op, std::string_view claim) {
  if (model.part) {
    const Model* const part = model.part(op);
    return part != nullptr && Satisfies(*part, op, claim);
  }
  const std::string full = std::string(Name(op)) + "." + std::string(claim);
  return std::ranges::any_of(model.satisfies, [&](const std::string& satisfied) {
    return satisfied == claim || satisfied == full;
  });
}

const Model* FindModel(std::string_view name) {
  const std::span<const Model> models = AllModels();
  const auto at = std::find_if(models.begin(), models.end(),
                               [&](const Model& model) { return model.name == name; });
  return at == models.end() ? nullptr : &*at;
}

}  // namespace qualm
