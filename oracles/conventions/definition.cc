// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/definition.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <iterator>
#include <memory>
#include <utility>

#include "core/slice.h"
#include "core/status.h"
#include "oracles/conventions/requirements.h"

namespace qualm::conventions {
namespace {

void Store(Tensor& y, int64_t i, const Value& value) {
  if (y.dtype() == DType::kF32) {
    QUALM_CHECK(value.real);
    y.as<float>()[static_cast<size_t>(i)] = value.number;
  } else {
    QUALM_CHECK(!value.real);
    y.SetInt(i, static_cast<int32_t>(value.integer));
  }
}

// The element of x, and of w where there are two operands.
Value ElementOf(const Case& c, int64_t index) {
  Value value;
  if (c.x.dtype() == DType::kF32) {
    value.SetReal(c.x.FloatAt(index));
  } else {
    value.SetInt(c.x.IntAt(index));
  }
  if (HasTwoOperands(c.op)) value.second = c.w.IntAt(index);
  return value;
}

// What the steps begin with, output by output.
class InputOf {
 public:
  InputOf(const Definition& definition, const Case& c)
      : case_(c), gather_(definition.gather ? definition.gather(c) : nullptr) {}
  Value operator()(int64_t index, Trace* trace) const {
    if (gather_) {
      if (const std::optional<Value> gathered = gather_(index, trace)) return *gathered;
    }
    return ElementOf(case_, index);
  }

 private:
  const Case& case_;
  Definition::Gatherer gather_;
};

Channel ChannelOf(const Definition& definition, const Case& c, int64_t index) {
  Channel channel = definition.channel(c, index % c.N);
  channel.element.index = index;
  channel.element.count = c.M * c.N;
  channel.element.columns = c.N;
  return channel;
}

// The steps of every element: those of the body, then those of the tail.
class StepsOf {
 public:
  StepsOf(const Definition& definition, const Case& c)
      : body_(definition.body ? definition.body(c) : c.M * c.N),
        steps_(definition.steps(c)),
        tail_(body_ < c.M * c.N ? definition.tail_steps(c) : std::vector<Step>{}) {}
  std::span<const Step> operator()(int64_t index) const { return index < body_ ? steps_ : tail_; }

 private:
  int64_t body_;
  std::vector<Step> steps_, tail_;
};

bool HasAccumulators(const Definition& definition, const Case& c) {
  return definition.accumulation && HasSums(c) && !IsWideCode(c.x.dtype());
}

ConventionOutput Run(const Definition& definition, const Case& c) {
  ConventionOutput output;
  output.y = Tensor(c.out_dtype, c.output_shape());
  const bool has_sums = HasAccumulators(definition, c);
  if (has_sums) output.acc = Tensor(DType::kS32, c.output_shape());
  if (output.y.empty()) return output;
  std::vector<Channel> channels;
  channels.reserve(static_cast<size_t>(c.N));
  for (int64_t n = 0; n < c.N; ++n) channels.push_back(ChannelOf(definition, c, n));
  const StepsOf steps(definition, c);
  std::optional<Sums> sums;
  if (has_sums) sums.emplace(c, definition.accumulation(c));
  const InputOf input(definition, c);
  for (int64_t i = 0; i < c.M * c.N; ++i) {
    Channel& channel = channels[static_cast<size_t>(i % c.N)];
    channel.element.index = i;
    Value value;
    if (sums) {
      const Sums::Sum sum = sums->At(i, nullptr);
      output.acc->SetInt(i, sum.accumulator);
      value = sum.value;
    } else {
      value = input(i, nullptr);
    }
    Apply(steps(i), channel, value, nullptr);
    Store(output.y, i, value);
  }
  return output;
}

bool Same(const Value& a, const Value& b) {
  if (a.real != b.real || a.is_wide || b.is_wide) return false;
  if (!a.real) return a.integer == b.integer;
  return std::bit_cast<uint32_t>(a.number) == std::bit_cast<uint32_t>(b.number) ||
         (std::isnan(a.number) && std::isnan(b.number));
}

// Applies the steps to both ends; false where the values between may not lie between the results.
bool ApplyToEnds(std::span<const Step> steps, const Channel& channel, Value& lo, Value& hi) {
  // Products with these rise.
  for (const float factor : {channel.multiplier, channel.reciprocal, channel.scale}) {
    if (!(factor > 0) || std::isinf(factor)) return false;
  }
  for (const Step& step : steps) {
    const Rise rise = RiseOf(step);
    if (rise == Rise::kUnknown) return false;
    const bool same = Same(lo, hi);
    const bool positive = lo.real && lo.number > 0, negative = hi.real && hi.number < 0;
    lo.lossy = hi.lossy = false;
    step.apply(lo, channel);
    step.apply(hi, channel);
    if (same || rise == Rise::kAlways) continue;
    // Both ends were too large for the step's type and gave one result: numbers between them do
    // too.
    const bool both = lo.lossy && hi.lossy && (positive || negative) && Same(lo, hi);
    if (!both && (lo.lossy || hi.lossy)) return false;
  }
  return true;
}

std::optional<CodeRange> Enclose(const Definition& definition, const Case& ends) {
  const bool known = (ends.op == Op::kQuantize || ends.op == Op::kRequantize) && !ends.per_channel;
  if (!known || !IsCode(ends.out_dtype)) return std::nullopt;
  const Channel channel = ChannelOf(definition, ends, 0);
  std::vector<std::vector<Step>> variants{definition.steps(ends)};
  // The element may lie in a block or in the tail behind the blocks. If the convention has a tail,
  // two elements alone lie in it.
  if (definition.body && definition.body(ends) < ends.M * ends.N)
    variants.push_back(definition.tail_steps(ends));
  const InputOf input(definition, ends);
  CodeRange all{INT32_MAX, INT32_MIN};
  for (const std::vector<Step>& steps : variants) {
    Value lo = input(0, nullptr), hi = input(1, nullptr);
    if (!ApplyToEnds(steps, channel, lo, hi) || lo.real || hi.real) return std::nullopt;
    all.min = std::min(all.min, static_cast<int32_t>(lo.integer));
    all.max = std::max(all.max, static_cast<int32_t>(hi.integer));
  }
  return all;
}

Trace TraceOf(const Definition& definition, const Case& c, int64_t index) {
  QUALM_CHECK(index >= 0);
  QUALM_CHECK_LT(index, c.M * c.N);
  Trace trace;
  Value value = HasAccumulators(definition, c)
                    ? Sums(c, definition.accumulation(c)).At(index, &trace).value
                    : InputOf(definition, c)(index, &trace);
  const StepsOf steps(definition, c);
  Apply(steps(index), ChannelOf(definition, c, index), value, &trace);
  return trace;
}

}  // namespace

Definition::Gatherer EachAlone(const Case& c, Value (*make)(const Case&, int64_t, Trace*)) {
  return [&c, make](int64_t index, Trace* trace) { return make(c, index, trace); };
}

void Append(std::vector<std::string>& list, std::initializer_list<const char*> more) {
  list.insert(list.end(), more.begin(), more.end());
}

void AddExactConvClaims(std::vector<std::string>& satisfies) {
  Append(satisfies, {"batch_independence", "depthwise_is_grouped", "dilation_is_zero_stuffed",
                     "groups_are_separate", "one_by_one_is_linear", "padding_is_explicit",
                     "stride_is_subsample"});
}

void SortVariations(std::vector<std::string>& ids) {
  std::ranges::sort(ids, {}, [](const std::string& id) { return std::pair(id.size(), id); });
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
}

Convention MakeConvention(Definition definition) {
  Convention convention;
  convention.name = definition.name;
  convention.description = definition.description;
  convention.source = definition.source;
  convention.pair_saturates = definition.pair_saturates;
  convention.satisfies = definition.satisfies;
  convention.variations = definition.variations;
  SortVariations(convention.variations);
  std::ranges::copy_if(AllOps(), std::back_inserter(convention.ops), [&](Op op) {
    return std::ranges::find(definition.ops, op) != definition.ops.end();
  });
  convention.cannot_run = [reason = definition.cannot_run, ops = convention.ops,
                           wide = definition.wide_codes, small = definition.small_codes,
                           blocks = definition.element_blocks,
                           wide_sums = definition.wide_sums](const Case& c) {
    if (std::ranges::find(ops, c.op) == ops.end())
      return "this convention has no " + std::string(Name(c.op));
    // A convention has one requantization, which no mode of a case replaces.
    if (c.requant != Requant::kExact)
      return "a model has no requantization mode, the case asks for " +
             std::string(Name(c.requant));
    if (HasWideCodes(c) && !(HasSums(c) ? wide_sums : wide)) {
      return "this convention has no " + std::string(kOfWideCodes) +
             (wide ? " of " + std::string(Name(c.op)) : "");
    }
    if (HasSmallCodes(c) && !small) return "this convention has no " + std::string(kOfSmallCodes);
    if (HasElementBlocks(c))
      return blocks ? reason(slice::BlocksAsChannels(c))
                    : "this convention has no " + std::string(kElementsInBlocks);
    const std::string packed = WeightsArePlain(c);
    return packed.empty() ? reason(c) : packed;
  };
  convention.accumulation = definition.accumulation;
  const auto shared = std::make_shared<const Definition>(std::move(definition));
  convention.run = [shared](const Case& c) {
    if (!HasElementBlocks(c)) return Run(*shared, c);
    ConventionOutput flat = Run(*shared, slice::BlocksAsChannels(c));
    flat.y = slice::InRowsOf(c, flat.y);
    return flat;
  };
  convention.enclose = [shared](const Case& ends) { return Enclose(*shared, ends); };
  convention.trace = [shared](const Case& c, int64_t index) {
    return TraceOf(*shared, slice::BlocksAsChannels(c), index);
  };
  return convention;
}

void AddOperation(Convention& all, Convention one) {
  const Op op = one.ops.front();
  all.ops.push_back(op);
  for (const std::string& claim : one.satisfies)
    all.satisfies.push_back(std::string(Name(op)) + "." + claim);
  std::ranges::copy(one.variations, std::back_inserter(all.variations));
  SortVariations(all.variations);
  const auto others = std::make_shared<const Convention>(all);
  const auto own = std::make_shared<const Convention>(std::move(one));
  const auto of = [=](const Case& c) -> const Convention& { return c.op == op ? *own : *others; };
  all.cannot_run = [of](const Case& c) { return of(c).cannot_run(c); };
  all.run = [of](const Case& c) { return of(c).run(c); };
  all.enclose = [of](const Case& ends) { return EncloseBy(of(ends), ends); };
  all.trace = [of](const Case& c, int64_t index) { return of(c).trace(c, index); };
}

Convention WithNarrowWeights(Convention bytes, Convention nibbles) {
  const auto shared = std::make_shared<const Convention>(bytes);
  const auto of_s4 = std::make_shared<const Convention>(std::move(nibbles));
  const auto is_narrow = [](const Case& c) {
    const bool is_signed = RangeOf(c.x.dtype()).min < 0 && RangeOf(c.w.dtype()).min < 0;
    return c.op == Op::kLinear && BitsOf(c.w.dtype()) < 8 && is_signed && !HasFloatX(c) &&
           c.w_block == 0;
  };
  const auto of = [=](const Case& c) -> const Convention& {
    return c.w.dtype() == DType::kS4 ? *of_s4 : *shared;
  };
  const auto in_bytes = [](Case c) {
    c.w = InBytes(c.w);
    return c;
  };
  bytes.cannot_run = [=](const Case& c) {
    return is_narrow(c) ? of(c).cannot_run(in_bytes(c)) : shared->cannot_run(c);
  };
  bytes.run = [=](const Case& c) { return is_narrow(c) ? of(c).run(in_bytes(c)) : shared->run(c); };
  bytes.trace = [=](const Case& c, int64_t index) {
    return is_narrow(c) ? of(c).trace(in_bytes(c), index) : shared->trace(c, index);
  };
  return bytes;
}

}  // namespace qualm::conventions
