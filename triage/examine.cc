// SPDX-License-Identifier: Apache-2.0
#include "triage/examine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "core/rng.h"
#include "oracles/exact/exact.h"
#include "properties/adapt.h"
#include "properties/gen/gen.h"
#include "triage/causes.h"
#include "triage/cover.h"
#include "triage/vary.h"

namespace qualm::triage {
namespace {

// Numbers of answers that bear a cause out: enough for a cause, enough for a cause with a
// condition, and so many that no more are looked for.
constexpr size_t kEnough = 3, kEnoughForShape = 4, kPlenty = 6;
constexpr int64_t kEnoughForValues = 6, kOften = 12;
// The least number of drawn cases on which a cause is compared with the subject, even if borne out.
constexpr int kDrawn = 6;

// The properties of a case on which a fault may depend: sizes, and modes such as types.
struct Shape {
  int64_t k = 0, n = 0, m = 0;
  std::array<std::string, 15> modes;
  friend bool operator==(const Shape&, const Shape&) = default;
};
constexpr std::array<std::pair<const char*, int64_t Shape::*>, 3> kSizes{
    {{"K", &Shape::k}, {"N", &Shape::n}, {"M", &Shape::m}}};
// Modes from this index on are about values; one of these many always differs by chance.
constexpr size_t kFirstOfValues = 6;

bool AllZero(const std::vector<int32_t>& list) {
  return std::ranges::all_of(list, [](int32_t value) { return value == 0; });
}

// Every code of the tensor lies in [low, high].
bool AllWithin(const Tensor& tensor, int32_t low, int32_t high) {
  if (!IsCode(tensor.dtype())) return false;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (tensor.IntAt(i) < low || tensor.IntAt(i) > high) return false;
  }
  return true;
}

Shape ShapeOf(const Case& c) {
  const auto type = [](const char* what, const Tensor& tensor) {
    return fmt::format("where {} is {}", what, Name(tensor.dtype()));
  };
  const auto flag = [](const char* what, bool value) {
    return fmt::format("where {} is {}", what, value);
  };
  const auto whether = [](const char* yes, const char* no, bool value) {
    return std::string("where ") + (value ? yes : no);
  };
  return {
      c.K,
      c.N,
      c.M,
      {type("x", c.x), type("w", c.w), fmt::format("where the output is {}", Name(c.out_dtype)),
       flag("per_channel", c.per_channel), flag("ceil_mode", c.window.ceil_mode),
       flag("count_include_pad", c.window.count_include_pad),
       whether("there is a bias", "there is no bias", c.bias || c.bias_i32),
       whether("there is a relu", "there is no relu", c.relu),
       whether("the zero point of x is 0", "the zero point of x is not 0",
               AllZero(c.x_q.zero_point)),
       whether("the zero points of w are 0", "a zero point of w is not 0",
               AllZero(c.w_q.zero_point)),
       whether("the output zero point is 0", "the output zero point is not 0",
               AllZero(c.out_q.zero_point)),
       whether("no weight lies beyond 64", "a weight lies beyond 64", AllWithin(c.w, -64, 64)),
       whether("no weight is below 0", "a weight is below 0", AllWithin(c.w, 0, 255)),
       whether("no code of x is above 127", "a code of x is above 127", AllWithin(c.x, -128, 127)),
       whether("no code of x is below 0", "a code of x is below 0", AllWithin(c.x, 0, 255))}};
}

struct Tested {
  Hypothesis causes;
  size_t order = 0;
  std::vector<Shape> bearing_out, against;
  int64_t telling = 0;    // answers that bear it out, with at least one code off the clamp
  int64_t otherwise = 0;  // answers that depart in another way as well
  std::string where;
  bool refuted = false;
  int drawn = 0;

  size_t answers() const { return bearing_out.size() + against.size(); }
  bool settled() const {
    return refuted || (against.empty() ? bearing_out.size() >= kPlenty : answers() >= 4 * kPlenty);
  }
  // Whether none of the causes is about the last digit only, which other causes may give by chance,
  // and none holds in some places only.
  bool about_numbers() const {
    return std::ranges::none_of(causes, [](const Cause* cause) {
      return cause->stage == CauseStage::kRound || cause->stage == CauseStage::kClamp ||
             cause->stage == CauseStage::kPlace;
    });
  }
};

// The condition that separates the cases bearing a hypothesis out from the cases that contradict
// it: "" if there is none.
std::string Separating(const Tested& tested) {
  if (tested.bearing_out.size() < kEnoughForShape) return "";
  const auto mode_from = [&](size_t from, size_t to) -> std::string {
    for (size_t i = from; i < to; ++i) {
      const std::string& mode = tested.bearing_out.front().modes[i];
      const auto is_mode = [&](const Shape& shape) { return shape.modes[i] == mode; };
      if (std::ranges::all_of(tested.bearing_out, is_mode) &&
          std::ranges::none_of(tested.against, is_mode))
        return mode;
    }
    return "";
  };
  if (const std::string mode = mode_from(0, kFirstOfValues); !mode.empty()) return mode;
  for (const auto& [name, size_of] : kSizes) {
    std::set<int64_t> in, out;
    for (const Shape& shape : tested.bearing_out) in.insert(shape.*size_of);
    for (const Shape& shape : tested.against) out.insert(shape.*size_of);
    const int64_t least = *in.begin(), most = *out.rbegin();
    if (most < least) {
      // Nobody has asked about the sizes between the two: a smaller case may be one of them.
      const std::string gap =
          most + 1 < least ? fmt::format(", and not where it is {} or less", most) : "";
      return fmt::format("where {} is {} or more{}", name, least, gap);
    }
    if (in.size() < 2 || out.size() < 2) continue;
    for (const int64_t lanes : {4, 8, 16, 32, 64}) {
      // Two sizes have the same remainder by chance, unless many others have none such.
      if (in.size() < 3 && std::ssize(out) < lanes) continue;
      const int64_t rest = *in.begin() % lanes;
      const auto has_rest = [&](int64_t size) { return size % lanes == rest; };
      if (std::ranges::all_of(in, has_rest) && std::ranges::none_of(out, has_rest)) {
        return fmt::format("where {} % {} is {}", name, lanes, rest);
      }
    }
  }
  if (!tested.about_numbers() || tested.telling < kEnoughForValues) return "";
  if (tested.against.size() >= kEnough) {
    const std::string mode = mode_from(kFirstOfValues, Shape().modes.size());
    if (!mode.empty()) return mode;
  }
  // A sum that is often wrong in this way, and in no other way, is not so by chance.
  const bool often = tested.telling >= kOften && tested.otherwise == 0;
  return often ? "in some cases" : "";
}

// Whether the output is at an end of its range, where every number beyond that end goes too.
bool AtAnEnd(const Case& c, const Tensor& y, int64_t i) {
  if (y.dtype() == DType::kF32) return std::isinf(y.FloatAt(i));
  const int32_t value = y.IntAt(i);
  return value == c.out_min || value == c.out_max || value == LowerBound(c, i % c.N);
}

// What a subject answers that has certain faults: these alone, or these and the established ones.
struct Predicted {
  Tensor alone, together;
  bool Has(int64_t i, uint32_t bits) const {
    return alone.BitsAt(i) == bits || together.BitsAt(i) == bits;
  }
  friend bool operator==(const Predicted&, const Predicted&) = default;
};

class Examiner {
 public:
  Examiner(const Case& c, const RunContext& context, const std::vector<Hypothesis>& hypotheses,
           Subject& subject, std::span<const Hypothesis> established, const ExamineLimits& limits)
      : base_(c),
        context_(context),
        subject_(subject),
        model_(ModelOf(subject.contract())),
        established_(established),
        limits_(limits) {
    for (const Hypothesis& causes : hypotheses) {
      tested_.emplace_back().order = tested_.size();
      tested_.back().causes = causes;
    }
    about_rounding_ = std::ranges::any_of(tested_, [](const Tested& tested) {
      return std::ranges::any_of(
          tested.causes, [](const Cause* cause) { return cause->stage == CauseStage::kRound; });
    });
  }

  Examination Run() {
    constexpr uint64_t kMostTries = 2000;
    // Another poison than that of other questions: the subject runs, nothing is remembered.
    context_.poison = 0x3C;
    // At least this many drawn cases are tried: they may contradict what near cases bear out.
    constexpr uint64_t kLeastTries = 600;
    for (uint64_t i = 0; i < kMostTries && !(Done() && (i >= kLeastTries || Spent())); ++i) {
      const bool near = i % 4 != 3;
      const std::optional<Case> c = near ? Varied(base_, MixSeed(kSeed, i)) : Drawn(i);
      if (c) Try(*c, near);
    }
    return Result();
  }

 private:
  static constexpr uint64_t kSeed = 20261123;

  bool Spent() const {
    return examination_.asked >= limits_.most_calls || work_ >= limits_.most_work || Alive() == 0;
  }
  bool Done() const {
    return Spent() ||
           (std::ranges::all_of(tested_, &Tested::settled) && (Alive() < 2 || alike_ > kMostAlike));
  }
  int64_t Alive() const {
    return std::ranges::count_if(tested_, [](const Tested& tested) { return !tested.refuted; });
  }

  // A small case of the operation, drawn without regard to the case found.
  std::optional<Case> Drawn(uint64_t i) const {
    const uint64_t seed = MixSeed(kSeed, i);
    const bool tie = about_rounding_ && i % 8 == 3;
    const Case c = tie ? gen::Draw(base_.op, gen::Theme::kTies, seed) : gen::Draw(base_.op, seed);
    if (c.x.size() + c.w.size() > 4096 || c.M * c.N * std::max<int64_t>(c.K, 1) > 16384)
      return std::nullopt;
    return AdaptTo(subject_, c);
  }

  // What the causes give, or the right output where they change nothing.
  Predicted Predict(const Case& c, const Hypothesis& causes, const Tensor& right) const {
    Tensor alone = causes.empty() ? right : Counterfactual(c, causes, model_).value_or(right);
    const Hypothesis all = Together(c, established_, model_, causes);
    if (all.size() == causes.size()) return {alone, alone};
    return {alone, Counterfactual(c, all, model_).value_or(alone)};
  }

  // Whether the case tells of the place, if the causes end with one: in a row of 7 columns all are
  // among the last N % 16.
  bool TellsOfPlace(const Case& c, const Predicted& predicted, Hypothesis causes) const {
    if (causes.back()->stage != CauseStage::kPlace) return true;
    causes.pop_back();
    return Counterfactual(c, causes, model_) != predicted.alone;
  }

  void Try(const Case& c, bool near) {
    const Tensor right = RightOutput(c, model_);
    const Predicted without = Predict(c, {}, right);
    work_ += (Alive() + 1) * (c.M * c.N * std::max<int64_t>(c.K, 1) + c.x.size() + c.w.size());
    std::vector<std::optional<Predicted>> predicted;
    bool worth = false;
    std::optional<Predicted> first;
    bool differ = false;
    for (const Tested& tested : tested_) {
      if (tested.refuted) {
        predicted.emplace_back();
        continue;
      }
      Predicted y = Predict(c, tested.causes, right);
      worth |= (!tested.settled() || (!near && tested.drawn < kDrawn)) && y != without;
      differ |= first && *first != y;
      if (!first) first = y;
      predicted.emplace_back(std::move(y));
    }
    alike_ = differ ? 0 : alike_ + 1;
    // The second half of the questions is kept for cases that tell the remaining causes apart.
    if (2 * examination_.asked >= limits_.most_calls && Alive() > 1) worth = false;
    const bool refused =
        !subject_.CannotRun(c).empty() || (model_ != nullptr && !model_->cannot_run(c).empty());
    if ((!worth && !differ) || refused) return;
    const Outcome outcome = subject_.Run(c, context_);
    ++examination_.asked;
    if (!outcome.ok() || outcome.y.shape() != right.shape()) return;
    for (size_t i = 0; i < tested_.size(); ++i) {
      if (predicted[i]) Hold(*predicted[i], c, without, outcome.y, near, tested_[i]);
    }
  }

  // Compares an answer with the prediction of a hypothesis, and with the answer of a subject that
  // is `without` it.
  void Hold(const Predicted& predicted, const Case& c, const Predicted& without,
            const Tensor& actual, bool near, Tested& tested) const {
    int64_t given = 0, right = 0, other = 0, more = 0, inside = 0;
    for (int64_t i = 0; i < actual.size(); ++i) {
      const uint32_t is = actual.BitsAt(i);
      const bool said = predicted.Has(i, is), said_without = without.Has(i, is);
      const bool acts = predicted.alone.BitsAt(i) != without.alone.BitsAt(i) ||
                        predicted.together.BitsAt(i) != without.together.BitsAt(i);
      if (!acts) {
        more += said_without ? 0 : 1;
      } else if (!said || !said_without) {  // else nothing is told
        (said ? given : said_without ? right : other) += 1;
        inside += AtAnEnd(c, actual, i) ? 0 : 1;
      }
    }
    const Shape shape = ShapeOf(c);
    if (right > 0) {
      tested.against.push_back(shape);
      // A hypothesis that was never right, and wrong several times, will not be right.
      tested.refuted |= shape == ShapeOf(base_) && !tested.about_numbers();
      tested.refuted |=
          tested.against.size() >= kPlenty && tested.against.size() > 3 * tested.bearing_out.size();
    } else if (given > 0 && other == 0 && TellsOfPlace(c, predicted, tested.causes)) {
      tested.bearing_out.push_back(shape);
      tested.telling += inside > 0 ? 1 : 0;
    }
    tested.drawn += !near && given + right + other > 0;
    // A drawn case may show another fault of the subject.
    if (other > 0 || (more > 0 && near)) ++tested.otherwise;
  }

  Examination Result() {
    for (Tested& tested : tested_) {
      if (!tested.against.empty()) {
        tested.where = Separating(tested);
        tested.refuted |= tested.where.empty();
      }
      if (tested.refuted) examination_.contradicted.push_back(tested.causes);
    }
    std::erase_if(tested_, [](const Tested& tested) { return tested.refuted; });
    // A cause that holds everywhere is likelier than one that holds for some sizes.
    std::ranges::sort(tested_, {}, [](const Tested& tested) {
      return std::tuple(!tested.where.empty(), tested.otherwise, tested.order);
    });
    for (const Tested& tested : tested_) {
      const auto bearing_out = static_cast<int64_t>(tested.bearing_out.size());
      // One departure in another way, for four that are explained, may be another fault.
      const bool in_place = tested.causes.back()->stage == CauseStage::kPlace;
      const size_t enough = in_place ? kPlenty : kEnough;  // there are many places to choose from
      // Many pairs of causes give an end of the range, where every number beyond it goes too.
      const bool by_chance = tested.causes.size() > 1 && !in_place && tested.telling == 0;
      if (tested.bearing_out.size() >= enough && 4 * tested.otherwise <= bearing_out &&
          !by_chance) {
        examination_.borne_out.push_back(
            {tested.causes, tested.where, 2 * tested.otherwise + !tested.where.empty()});
      } else if (tested.otherwise == 0) {
        examination_.open.push_back(tested.causes);
      } else {
        examination_.contradicted.push_back(tested.causes);
      }
    }
    return std::move(examination_);
  }

  // The examination ends after this many cases on which all remaining causes predict the same.
  static constexpr int64_t kMostAlike = 150;

  const Case& base_;
  RunContext context_;
  Subject& subject_;
  const Convention* const model_;
  const std::span<const Hypothesis> established_;
  const ExamineLimits& limits_;
  std::vector<Tested> tested_;
  bool about_rounding_ = false;
  int64_t alike_ = 0;
  Examination examination_;
  int64_t work_ = 0;
};

}  // namespace

Examination Examine(const Case& c, const RunContext& context,
                    const std::vector<Hypothesis>& hypotheses, Subject& subject,
                    std::span<const Hypothesis> established, const ExamineLimits& limits) {
  return Examiner(c, context, hypotheses, subject, established, limits).Run();
}

}  // namespace qualm::triage
