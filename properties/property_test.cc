// SPDX-License-Identifier: Apache-2.0
// Each property passes on the exact oracle and fails on a fault planted for it: a property that
// cannot fail proves nothing.
#include "properties/property.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "core/float_text.h"
#include "core/layer_test_util.h"
#include "core/slice.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/dynamic_linear.h"
#include "oracles/headroom/headroom.h"
#include "properties/gen/gen.h"
#include "properties/relation.h"
#include "properties/test_subject.h"

namespace qualm {
namespace {

using RunFunction = TestSubject::RunFunction;

// --- Faults -------------------------------------------------------------------------------------

// The case is changed before it is computed.
template <class Change>
RunFunction Instead(Change change) {
  return [change = std::move(change)](const Case& c, const RunContext&) {
    Case changed = ProblemOf(c);
    change(changed);
    return TestSubject::Good(exact::Evaluate(changed));
  };
}
// The exact output is changed afterwards.
template <class Change>
RunFunction Afterwards(Change change) {
  return [change = std::move(change)](const Case& c, const RunContext& context) {
    Tensor y = exact::Evaluate(c);
    change(c, context, y);
    return TestSubject::Good(std::move(y));
  };
}

void Nudge(const Case& c, Tensor& y, int64_t i) {
  if (y.dtype() == DType::kF32) {
    float& value = y.as<float>()[static_cast<size_t>(i)];
    value = std::isfinite(value) ? std::nextafter(value, INFINITY) : 0.0f;
  } else {
    y.SetInt(i, y.IntAt(i) > c.out_min ? y.IntAt(i) - 1 : std::min(c.out_max, c.out_min + 1));
  }
}

// vpmaddubsw: products of two neighbours are added in a saturating int16.
Outcome PairSaturation(const Case& c, const RunContext&) {
  if (!headroom::HasPairs(c)) return TestSubject::Good(exact::Evaluate(c));
  std::vector<__int128> sums = exact::CorrectedSums(c);
  for (int64_t i = 0; i < c.M * c.N; ++i) {
    for (const headroom::Pair& pair : headroom::SaturatingPairs(c, i / c.N, i % c.N)) {
      sums[static_cast<size_t>(i)] -= pair.lost();
    }
  }
  return TestSubject::Good(exact::EvaluateFromSums(c, sums));
}

Outcome Broken(RunStatus status, const std::string& detail) {
  Outcome outcome;
  outcome.status = status;
  outcome.detail = detail;
  return outcome;
}

// Packed weights reused whenever the next problem has the same shape.
struct StaleWeights {
  std::shared_ptr<Tensor> packed = std::make_shared<Tensor>();
  Outcome operator()(const Case& c, const RunContext&) const {
    if (packed->shape() != c.w.shape() || packed->dtype() != c.w.dtype()) *packed = c.w;
    Case stale = ProblemOf(c);
    stale.w = *packed;
    return TestSubject::Good(exact::Evaluate(stale));
  }
};

// Zero points kept from the first problem of the same shape and scales (ideep).
struct StaleZeroPoints {
  std::shared_ptr<std::map<std::string, QParams>> kept =
      std::make_shared<std::map<std::string, QParams>>();
  Outcome operator()(const Case& c, const RunContext&) const {
    std::string key = Describe(c);
    for (const float scale : c.out_q.scale) key += " " + FloatText(scale);
    Case stale = ProblemOf(c);
    stale.out_q = kept->try_emplace(key, c.out_q).first->second;
    return TestSubject::Good(exact::Evaluate(stale));
  }
};

const std::vector<Op>& OpsOf(const char* claim) { return FindProperty(claim)->ops; }

struct Plant {
  const char* claim;
  Op op;
  const char* fault;
  std::function<RunFunction()> make;
};

// The last output is off by one wherever `when` says so: a path of its own for such cases.
template <class When>
std::function<RunFunction()> OffByOneWhen(When when) {
  return [when] {
    return Afterwards([when](const Case& c, const RunContext&, Tensor& y) {
      if (when(c) && !y.empty()) Nudge(c, y, y.size() - 1);
    });
  };
}

void PlantInWindows(std::vector<Plant>& plants) {
  const auto add = [&](const char* claim, const char* fault,
                       const std::function<RunFunction()>& make) {
    for (Op op : OpsOf(claim)) plants.push_back({claim, op, fault, make});
  };
  const auto swapped_pads = [] {
    return Instead([](Case& c) {
      std::swap(c.window.pad_top, c.window.pad_bottom);
      if (c.op == Op::kLinear) {  // its own way to mix up positions
        for (int64_t i = 0; i < c.w.size() && c.K > 1; ++i) {
          const int64_t k = i % c.K;
          if (k < c.K / 2) {
            const int32_t code = c.w.IntAt(i);
            c.w.SetInt(i, c.w.IntAt(i + c.K - 1 - 2 * k));
            c.w.SetInt(i + c.K - 1 - 2 * k, code);
          }
        }
      }
    });
  };
  add("identity_weights", "taps in the wrong place", swapped_pads);
  add("padding_is_explicit", "padding is code 0", [] {
    return Instead([](Case& c) {
      if (!c.window.ceil_mode && (c.op != Op::kAvgPool || c.window.count_include_pad))
        c = slice::ExplicitPadding(c, 0);
    });
  });
  plants.push_back({"padding_is_explicit", Op::kConv2d, "top and bottom mixed up", swapped_pads});
  add("groups_are_separate", "the scale of channel n mod N/groups", [] {
    return Instead([](Case& c) {
      if (!c.per_channel) return;
      for (int64_t n = c.N - 1; n >= 0; --n) {
        c.w_q.scale[size_t(n)] = c.w_q.scale_at(n % (c.N / c.window.groups));
      }
    });
  });
  add("depthwise_is_grouped", "only the depthwise kernel saturates pairs", [] {
    return [](const Case& c, const RunContext& context) {
      return c.op == Op::kDepthwise ? PairSaturation(c, context) : TestSubject::Exact(c, context);
    };
  });
  add("one_by_one_is_linear", "the 1x1 path ignores the zero point when strided",
      OffByOneWhen([](const Case& c) {
        return IsConv(c.op) && c.window.kernel_h * c.window.kernel_w == 1 && c.window.stride_h > 1;
      }));
  add("dilation_is_zero_stuffed", "the dilated path rounds down",
      OffByOneWhen([](const Case& c) { return c.window.dilation_w > 1; }));
  add("stride_is_subsample", "the strided path rounds down",
      OffByOneWhen([](const Case& c) { return c.window.stride_w > 1; }));
  add("batch_independence", "the last image is a row short",
      OffByOneWhen([](const Case& c) { return c.window.batch > 1; }));
  plants.push_back({"constants_pool_to_themselves", Op::kMaxPool, "starts at the second code", [] {
                      return Afterwards([](const Case& c, const RunContext&, Tensor& y) {
                        const int32_t second = RangeOf(c.out_dtype).min + 1;
                        for (int64_t i = 0; i < y.size(); ++i) {
                          y.SetInt(i, std::max(y.IntAt(i), std::min(second, c.out_max)));
                        }
                      });
                    }});
  plants.push_back({"zero_point_shift", Op::kMaxPool, "starts at -127", [] {
                      return Afterwards([](const Case& c, const RunContext&, Tensor& y) {
                        for (int64_t i = 0; i < y.size(); ++i) {
                          y.SetInt(i, std::max(y.IntAt(i), std::min(-127, c.out_max)));
                        }
                      });
                    }});
  plants.push_back({"constants_pool_to_themselves", Op::kAvgPool, "the divisor counts padding",
                    [] { return Instead([](Case& c) { c.window.count_include_pad = true; }); }});
  plants.push_back({"constants_pool_to_themselves", Op::kGlobalAvgPool, "16-bit sums",
                    OffByOneWhen([](const Case& c) { return c.K > 257; })});
  add("counts_only_padding_that_is", "the divisor counts what ceil mode adds",
      OffByOneWhen([](const Case& c) { return c.window.count_include_pad && c.window.ceil_mode; }));
  add("global_is_whole_window", "the global kernel rounds down",
      OffByOneWhen([](const Case& c) { return c.op == Op::kGlobalAvgPool && c.N % 4 != 0; }));
  plants.push_back({"k_permutation", Op::kGlobalAvgPool, "the first pixel is read twice", [] {
                      return Instead([](Case& c) {
                        const int64_t depth = c.window.in_c;
                        if (c.K < 2) return;
                        for (int64_t i = 0; i < depth && 2 * depth <= c.x.size(); ++i) {
                          c.x.SetInt(depth + i, c.x.IntAt(i));
                        }
                      });
                    }});
}

void PlantInOperands(std::vector<Plant>& plants) {
  const auto add = [&](const char* claim, const char* fault,
                       const std::function<RunFunction()>& make) {
    for (Op op : OpsOf(claim)) plants.push_back({claim, op, fault, make});
  };
  for (Op op : OpsOf("is_monotone")) {
    plants.push_back({"is_monotone", op, "the upper end wraps to the lower", [] {
                        return Afterwards([](const Case& c, const RunContext&, Tensor& y) {
                          for (int64_t i = 0; i < y.size(); ++i) {
                            if (y.IntAt(i) == c.out_max) y.SetInt(i, c.out_min);
                          }
                        });
                      }});
  }
  add("commutes", "b's zero point is kept in int8", [] {
    return Instead([](Case& c) {
      for (int32_t& zero : c.w_q.zero_point) zero = std::clamp(zero, -128, 127);
    });
  });
  add("neutral_operand_is_rescale", "multipliers above 1 lose their left shift", [] {
    return Instead([](Case& c) {
      if (HasTwoOperands(c.op)) c.x_q.scale[0] = std::min(c.x_q.scale[0], c.out_q.scale[0]);
    });
  });
  add("equal_qparams_is_identity", "the zero point is kept in int8", [] {
    return Instead([](Case& c) {
      for (int32_t& zero : c.out_q.zero_point) zero = std::clamp(zero, -128, 127);
    });
  });
}

void PlantInTables(std::vector<Plant>& plants) {
  plants.push_back({"parts_are_rescaled", Op::kConcat, "the first input's parameters for both",
                    [] { return Instead([](Case& c) { c.w_q = c.x_q; }); }});
  plants.push_back({"relu_is_rescale", Op::kTable, "one entry of the table is off by one",
                    OffByOneWhen([](const Case& c) { return c.op == Op::kTable; })});
  plants.push_back({"zero_point_shift", Op::kSoftmax, "a path of its own for s8",
                    OffByOneWhen([](const Case& c) { return c.x.dtype() == DType::kS8; })});
  plants.push_back({"row_permutation", Op::kSoftmax, "the first code is not looked at", [] {
                      return Instead([](Case& c) {
                        for (int64_t m = 0; c.N > 1 && m < c.M; ++m) {
                          c.x.SetInt(m * c.N, c.x.IntAt(m * c.N + 1));
                        }
                      });
                    }});
  plants.push_back({"added_constant", Op::kSoftmax, "codes saturate below the highest one", [] {
                      return Instead([](Case& c) {
                        const int32_t most = RangeOf(c.x.dtype()).max - 8;
                        for (int64_t i = 0; i < c.x.size(); ++i) {
                          c.x.SetInt(i, std::min(c.x.IntAt(i), most));
                        }
                      });
                    }});
  plants.push_back(
      {"input_zero_point_is_irrelevant", Op::kSoftmax, "codes below real 0 are cut", [] {
         return Instead([](Case& c) {
           const CodeRange range = RangeOf(c.x.dtype());
           const int32_t zero = std::clamp(c.x_q.zero_point[0], range.min, range.max);
           for (int64_t i = 0; i < c.x.size(); ++i) {
             c.x.SetInt(i, std::max(c.x.IntAt(i), zero));
           }
         });
       }});
}

void PlantInObservers(std::vector<Plant>& plants) {
  const auto add = [&](const char* claim, const char* fault,
                       const std::function<RunFunction()>& make) {
    plants.push_back({claim, Op::kChooseQParams, fault, make});
  };
  // Changes every scale and zero point.
  const auto each = [](auto change) {
    return [change] {
      return Afterwards([change](const Case& c, const RunContext&, Tensor& y) {
        const auto columns = static_cast<size_t>(ChosenCount(c));
        for (size_t m = 0; m < columns; ++m) {
          change(c, y.as<float>()[m], y.as<float>()[columns + m]);
        }
      });
    };
  };
  add("value_permutation", "the first value is not looked at", [] {
    return Instead([](Case& c) {
      if (c.N > 1) c.x.as<float>()[0] = c.x.as<float>()[1];
    });
  });
  add("zero_append", "a path of its own for positive values", OffByOneWhen([](const Case& c) {
        return std::ranges::all_of(c.x.as<float>(), [](float x) { return x > 0; });
      }));
  add("symmetric_negation", "only the sign of the first value counts",
      OffByOneWhen([](const Case& c) { return c.observer.symmetric && c.x.FloatAt(0) < 0; }));
  add("doubling", "another floor",
      each([](const Case&, float& scale, float&) { scale = std::max(scale, 0.01f); }));
  add("rows_are_tensors", "another path when per channel",
      OffByOneWhen([](const Case& c) { return c.per_channel; }));
  add("zero_is_representable", "no floor", each([](const Case&, float& scale, float&) {
        if (scale == 0x1p-23f) scale = 0;
      }));
  add("zero_is_representable", "the zero point is not clamped",
      each([](const Case& c, float&, float& zero_point) {
        if (zero_point == static_cast<float>(c.observer.quant_max)) zero_point += 1;
      }));
  add("range_is_covered", "spread over twice as many codes",
      each([](const Case&, float& scale, float&) { scale *= 0.5f; }));
  add("codes_are_near", "codes wrap where they should saturate", [] {
    return Afterwards([](const Case& c, const RunContext&, Tensor& y) {
      for (int64_t i = 2 * ChosenCount(c); i < y.size() && c.codes; ++i) {
        if (y.FloatAt(i) == 255) y.as<float>()[static_cast<size_t>(i)] = 0;
      }
    });
  });
  add("reduce_range_halves", "reduce_range is ignored",
      [] { return Instead([](Case& c) { c.observer.reduce_range = false; }); });
}

std::vector<Plant> Plants() {
  std::vector<Plant> plants;
  const auto add = [&](const char* claim, Op op, const char* fault,
                       std::function<RunFunction()> make) {
    plants.push_back({claim, op, fault, std::move(make)});
  };
  add("matches_exact", Op::kCast, "subnormals become zero", [] {
    return Afterwards([](const Case& c, const RunContext&, Tensor& y) {
      const uint32_t sign = SignOf(c.out_dtype);
      const uint32_t normal = 1u << InfoOf(c.out_dtype).floating.fraction_bits;
      for (int64_t i = 0; i < y.size(); ++i) {
        if ((y.BitsAt(i) & ~sign) < normal && !IsNanCode(c.out_dtype, y.BitsAt(i)))
          y.SetBits(i, y.BitsAt(i) & sign);
      }
    });
  });
  add("matches_exact", Op::kCast, "what overflows becomes infinity",
      [] { return Instead([](Case& c) { c.overflow = FloatOverflow::kInfinity; }); });
  add("matches_exact", Op::kCast, "fractions are cut off",
      [] { return Instead([](Case& c) { c.rounding = FloatRounding::kTowardZero; }); });
  for (Op op : AllOps()) {
    add("matches_exact", op, "one output is off by one", [] {
      return Afterwards([](const Case& c, const RunContext&, Tensor& y) {
        if (c.M * c.N % 8 == 7) Nudge(c, y, y.size() - 1);
      });
    });
    add("no_stray_access", op, "reads before the buffer", [] {
      return [](const Case& c, const RunContext& context) {
        return context.end_at_guard ? TestSubject::Exact(c, context)
                                    : Broken(RunStatus::kTouchedOutside, "read before x");
      };
    });
    add("inputs_unmodified", op, "writes into the gaps of x", [] {
      return [](const Case& c, const RunContext& context) {
        return context.x_row_gap == 0 ? TestSubject::Exact(c, context)
                                      : Broken(RunStatus::kModifiedInput, "x changed");
      };
    });
    add("alignment_and_stride", op, "an aligned load", [] {
      return Afterwards([](const Case& c, const RunContext& context, Tensor& y) {
        if (context.align_offset % 16 != 0 && !y.empty()) Nudge(c, y, 0);
      });
    });
    add("alignment_and_stride", op, "row stride taken for row length", [] {
      return Afterwards([](const Case& c, const RunContext& context, Tensor& y) {
        const int64_t second_row = y.shape().back();
        if (context.y_row_gap != 0 && second_row < y.size()) Nudge(c, y, second_row);
      });
    });
    if (CanRunInPlace(op)) {
      add("in_place", op, "the last element is read after it was written", [] {
        return Afterwards([](const Case& c, const RunContext& context, Tensor& y) {
          if (context.in_place && c.N % 8 != 0 && !y.empty()) Nudge(c, y, y.size() - 1);
        });
      });
    }
    add("same_bits_twice", op, "an uninitialised value", [] {
      auto calls = std::make_shared<int>(0);
      return Afterwards([calls](const Case& c, const RunContext&, Tensor& y) {
        if (++*calls % 2 == 0 && !y.empty()) Nudge(c, y, 0);
      });
    });
    add("one_thing_changed", op, "answers what it answered before", [] {
      auto last = std::make_shared<std::optional<Tensor>>();
      return Afterwards([last](const Case&, const RunContext&, Tensor& y) {
        if (*last && (*last)->shape() == y.shape() && (*last)->dtype() == y.dtype()) {
          y = **last;
        } else {
          *last = y;
        }
      });
    });
    add("leaves_nothing_behind", op, "a signal is blocked", [] {
      return [](const Case& c, const RunContext& context) {
        if (context.watch) return Broken(RunStatus::kLeftBehind, "left another signal mask");
        return TestSubject::Good(exact::Evaluate(c));
      };
    });
    add("poison_is_irrelevant", op, "the last output is not written", [] {
      return Afterwards([](const Case& c, const RunContext& context, Tensor& y) {
        if (c.N % 8 == 7 && context.poison == 0x7F) Nudge(c, y, y.size() - 1);
      });
    });
    add("environment", op, "rounds in the caller's mode", [] {
      return Afterwards([](const Case& c, const RunContext& context, Tensor& y) {
        if (context.rounding == Rounding::kDown && !y.empty()) Nudge(c, y, y.size() - 1);
      });
    });
    add("environment", op, "flushes with the caller's denormals", [] {
      return Afterwards([](const Case& c, const RunContext& context, Tensor& y) {
        if (context.flush_denormals && !y.empty()) Nudge(c, y, 0);
      });
    });
  }
  const auto when = [](bool (*holds)(const RunContext&)) {
    return [holds]() -> TestSubject::RunFunction {
      return Afterwards([holds](const Case& c, const RunContext& context, Tensor& y) {
        if (holds(context) && !y.empty()) Nudge(c, y, y.size() - 1);
      });
    };
  };
  for (Op op : AllOps()) {
    add("several_threads", op, "threads share scratch memory",
        when([](const RunContext& context) { return context.threads > 1; }));
    add("several_threads", op, "threads round in the caller's mode",
        when([](const RunContext& context) {
          return context.threads > 1 && context.rounding == Rounding::kUp;
        }));
  }
  for (Op op : OpsOf("packed_once")) {
    add("packed_once", op, "an accumulator is not cleared",
        when([](const RunContext& context) { return context.calls > 1; }));
    add("concurrent_calls", op, "callers share scratch memory",
        when([](const RunContext& context) { return context.callers > 1; }));
    add("layer_strides", op, "weights taken to be dense",
        when([](const RunContext& context) { return context.w_row_gap > 0; }));
  }
  for (Op op : OpsOf("layer_strides")) {
    if (!HasWindow(op)) continue;
    add("layer_strides", op, "lines taken to be dense",
        when([](const RunContext& context) { return context.x_line_gap > 0; }));
  }
  for (Op op : OpsOf("far_rows")) {
    add("far_rows", op, "the distance of rows in 32 bits",
        when([](const RunContext& context) { return context.y_row_gap > INT32_MAX / 2; }));
    if (!HasWeights(op)) continue;
    add("far_rows", op, "the distance of weights in 32 bits",
        when([](const RunContext& context) { return context.w_row_gap > INT32_MAX / 2; }));
  }
  for (Op op : OpsOf("aliased_operands")) {
    add("aliased_operands", op, "the second operand is read after it was written",
        when([](const RunContext& context) { return context.over_w; }));
    add("aliased_operands", op, "one buffer, one scale",
        when([](const RunContext& context) { return context.shared_inputs; }));
  }
  for (Op op : OpsOf("column_independence")) {
    add("column_independence", op, "the tail rounds differently", [] {
      return Afterwards([](const Case& c, const RunContext&, Tensor& y) {
        if (c.N > 4 && c.N % 4 == 1 && c.M > 0) Nudge(c, y, c.N - 1);
      });
    });
  }
  for (Op op : OpsOf("row_independence")) {
    add("row_independence", op, "the last row is stored one off", [] {
      return Afterwards([](const Case& c, const RunContext&, Tensor& y) {
        if (c.M < 2 || c.N < 2) return;
        const int64_t i = (c.M - 1) * c.N;
        if (y.dtype() == DType::kF32) {
          std::swap(y.as<float>()[size_t(i)], y.as<float>()[size_t(i) + 1]);
        } else {
          const int32_t first = y.IntAt(i);
          y.SetInt(i, y.IntAt(i + 1));
          y.SetInt(i + 1, first);
        }
      });
    });
  }
  for (Op op : OpsOf("per_channel_equals_per_tensor")) {
    add("per_channel_equals_per_tensor", op, "another path when per channel", [] {
      return Afterwards([](const Case& c, const RunContext&, Tensor& y) {
        if (c.per_channel && !y.empty()) Nudge(c, y, y.size() - 1);
      });
    });
  }
  for (Op op : {Op::kQuantize, Op::kRequantize}) {
    add("is_monotone", op, "wraps past 2^20 steps", [] {
      return Afterwards([](const Case& c, const RunContext&, Tensor& y) {
        for (int64_t i = 0; i < y.size(); ++i) {
          const double x = c.op == Op::kQuantize ? c.x.FloatAt(i) : c.x.IntAt(i);
          const double step =
              c.op == Op::kQuantize ? c.out_q.scale_at(relation::ChannelOf(c, i)) : 1.0;
          if (x > step * 0x1p20) y.SetInt(i, c.out_min);
        }
      });
    });
  }
  for (Op op : OpsOf("negation")) {
    add("negation", op, "rounds negative values down", [] {
      return Afterwards([](const Case& c, const RunContext&, Tensor& y) {
        for (int64_t i = 0; i < y.size(); ++i) {
          const int64_t zero = c.out_q.zero_point_at(relation::ChannelOf(c, i));
          if (y.IntAt(i) < zero && y.IntAt(i) - 1 > c.out_min) y.SetInt(i, y.IntAt(i) - 1);
        }
      });
    });
  }
  for (Op op : OpsOf("clamp")) {
    add("clamp", op, "the clamp is the type's range", [] {
      return Instead([](Case& c) {
        if (c.out_dtype == DType::kF32) return;
        c.out_min = RangeOf(c.out_dtype).min;
        c.out_max = RangeOf(c.out_dtype).max;
      });
    });
    add("clamp", op, "the upper end is never reached", [] {
      return Afterwards([](const Case& c, const RunContext&, Tensor& y) {
        if (y.dtype() == DType::kF32) return;
        for (int64_t i = 0; i < y.size(); ++i) {
          if (y.IntAt(i) == c.out_max && c.out_max > c.out_min) y.SetInt(i, c.out_max - 1);
        }
      });
    });
    if (op == Op::kTable || op == Op::kSoftmax) continue;  // which have no fused relu
    add("clamp", op, "relu cuts at code 0 instead of the zero point", [] {
      return Instead([](Case& c) {
        if (!c.relu || c.out_dtype == DType::kF32) return;
        c.relu = false;
        c.out_min = std::clamp(0, c.out_min, c.out_max);
      });
    });
  }
  for (Op op : OpsOf("zero_point_shift")) {
    if (!HasOutQParams(op)) continue;
    add("zero_point_shift", op, "the output zero point is kept in int8", [] {
      return Instead([](Case& c) {
        for (int32_t& zero : c.out_q.zero_point) zero = std::clamp(zero, -128, 127);
      });
    });
  }
  for (Op op : OpsOf("gauge")) {
    add("gauge", op, "the output scale is bounded", [] {
      return Instead([](Case& c) {
        for (float& scale : c.out_q.scale) scale = std::min(scale, 0.01f);
      });
    });
  }
  for (Op op : {Op::kQuantize, Op::kRequantize, Op::kLinear}) {
    add("clamp", op, "relu has another rounding when per channel", [] {
      return Afterwards([](const Case& c, const RunContext&, Tensor& y) {
        if (y.dtype() == DType::kF32 || !c.relu || !c.per_channel || c.N < 2) return;
        for (int64_t i = 0; i < y.size(); ++i) {
          // Strictly inside the clamp, where no end of it tells.
          const int64_t low = relation::LowEnd(c, relation::ChannelOf(c, i));
          if (y.IntAt(i) > low && y.IntAt(i) + 1 < c.out_max) y.SetInt(i, y.IntAt(i) + 1);
        }
      });
    });
  }
  add("clamp", Op::kQuantize, "relu cuts every channel at the first one's zero point", [] {
    return Instead([](Case& c) {
      if (!c.relu || c.out_q.zero_point.size() < 2) return;
      c.out_min = static_cast<int32_t>(relation::LowEnd(c, 0));
      c.relu = false;
    });
  });
  add("clamp", Op::kLinear, "f32 relu forgets the last output", [] {
    return [](const Case& c, const RunContext&) {
      Tensor y = exact::Evaluate(c);
      if (c.out_dtype != DType::kF32 || !c.relu || y.empty()) return TestSubject::Good(y);
      Case plain = c;
      plain.relu = false;
      y.as<float>().back() = exact::Evaluate(plain).as<float>().back();
      return TestSubject::Good(y);
    };
  });
  add("round_trip", Op::kQuantize, "rounds down", [] {
    return Instead([](Case& c) {
      if (c.op != Op::kQuantize) return;
      for (int64_t i = 0; i < c.x.size(); ++i) {
        float& x = c.x.as<float>()[static_cast<size_t>(i)];
        x -= 0.49f * c.out_q.scale_at(relation::ChannelOf(c, i));
      }
    });
  });
  add("round_trip", Op::kDequantize, "q - z saturates in int8", [] {
    return Instead([](Case& c) {
      if (c.op != Op::kDequantize) return;
      for (int64_t i = 0; i < c.x.size(); ++i) {
        const int64_t zero = c.x_q.zero_point_at(relation::ChannelOf(c, i));
        if (c.x.dtype() == DType::kS8 && c.x.IntAt(i) - zero < -128 && zero - 128 >= -128) {
          c.x.SetInt(i, static_cast<int32_t>(zero - 128));
        }
      }
    });
  });
  add("zero_maps_to_zero_point", Op::kQuantize, "-0 counts as negative", [] {
    return Afterwards([](const Case& c, const RunContext&, Tensor& y) {
      for (int64_t i = 0; i < y.size(); ++i) {
        const float x = c.x.FloatAt(i);
        if (x == 0.0f && std::signbit(x) && y.IntAt(i) > c.out_min) y.SetInt(i, y.IntAt(i) - 1);
      }
    });
  });
  add("zero_point_shift", Op::kDequantize, "the zero point is kept in int8", [] {
    return Instead([](Case& c) {
      for (int32_t& zero : c.x_q.zero_point) zero = std::clamp(zero, -128, 127);
    });
  });
  for (const Op op : {Op::kLinear, Op::kDynamicLinear}) {
    add("zero_point_shift", op, "the weights' zero point is kept in int8", [] {
      return Instead([](Case& c) {
        for (int32_t& zero : c.w_q.zero_point) zero = std::clamp(zero, -128, 127);
      });
    });
  }
  for (const char* claim : {"row_independence", "column_independence", "matches_exact"}) {
    add(claim, Op::kDynamicLinear, "the last output is one step off", [] {
      return Afterwards([](const Case& c, const RunContext&, Tensor& y) {
        if (!y.empty() && (c.M > 1 || c.N > 1)) Nudge(c, y, y.size() - 1);
      });
    });
  }
  add("row_order", Op::kDynamicLinear, "row 0 chooses for all rows", [] {
    return [](const Case& c, const RunContext&) {
      if (c.M == 0) return TestSubject::Good(exact::Evaluate(c));
      const auto row = c.x.as<float>().first(static_cast<size_t>(c.K));
      const exact::ChosenQParams chosen = exact::ChosenFor(c, exact::FiniteRange(row));
      const Tensor codes = exact::Evaluate(exact::QuantizeOf(c, 0, c.M, chosen));
      return TestSubject::Good(exact::Evaluate(exact::SumsCaseOf(c, codes, chosen)));
    };
  });
  add("weight_scale_doubling", Op::kDynamicLinear, "scales of w are kept in 16384ths", [] {
    return Instead([](Case& c) {
      for (float& scale : c.w_q.scale)
        scale = std::max(std::nearbyint(scale * 0x1p14f), 1.0f) * 0x1p-14f;
    });
  });
  for (const char* claim :
       {"sweep_is_monotone", "sweep_is_linear", "k_permutation", "split_k", "zero_term_append"}) {
    for (Op op : OpsOf(claim)) {
      if (HasSums(op)) add(claim, op, "pair-sum saturation", [] { return PairSaturation; });
    }
  }
  for (const char* claim : {"split_k", "zero_term_append"}) {
    add(claim, Op::kLinear, "the last term of K % 4 = 1 is dropped", [] {
      return Instead([](Case& c) {
        if (c.K % 4 != 1) return;
        std::vector<int64_t> terms(static_cast<size_t>(c.K) - 1);
        for (size_t k = 0; k < terms.size(); ++k) terms[k] = static_cast<int64_t>(k);
        c = slice::Terms(c, terms);
      });
    });
  }
  for (Op op : {Op::kLinear, Op::kConv2d, Op::kDepthwise}) {
    add("answer_independent_of_history", op, "stale packed weights", [] { return StaleWeights(); });
  }
  for (Op op : {Op::kLinear, Op::kConv2d, Op::kAdd, Op::kQuantize}) {
    add("answer_independent_of_history", op, "stale zero points", [] { return StaleZeroPoints(); });
  }
  PlantInWindows(plants);
  PlantInObservers(plants);
  PlantInOperands(plants);
  PlantInTables(plants);
  return plants;
}

// --- Tests --------------------------------------------------------------------------------------

constexpr uint64_t kCases = 150;

TEST(Properties, HaveUniqueClaimsAndSentences) {
  std::set<std::string_view> claims;
  for (const Property& property : AllProperties()) {
    EXPECT_TRUE(claims.insert(property.claim).second) << property.claim;
    EXPECT_FALSE(property.ops.empty()) << property.claim;
    EXPECT_TRUE(property.sentence.ends_with(".")) << property.claim;
    EXPECT_EQ(FindProperty(property.claim), &property);
    for (Op op : property.ops) {
      EXPECT_EQ(FindProperty(FullName(op, property)), &property) << FullName(op, property);
    }
  }
  EXPECT_EQ(FindProperty("no_such_claim"), nullptr);
  EXPECT_EQ(FindProperty("dequantize.clamp"), nullptr);  // known claim, wrong op
  EXPECT_EQ(FindProperty("no_such_op.clamp"), nullptr);
}

TEST(Properties, GlobsMatchClaimsAndFullNames) {
  const struct {
    const char* glob;
    bool matches;  // linear.sweep_is_linear
  } rows[]{
      {"*", true},
      {"sweep_is_linear", true},
      {"linear.sweep_is_linear", true},
      {"sweep_*", true},
      {"linear.*", true},
      {"*linear", true},
      {"*_linear", true},
      {"*ear.*", true},
      {"l*_is_*", true},
      {"linear.sweep_is_linea?", true},
      {"?inear.sweep_is_linear", true},
      {"sweep_is_linear*", true},
      {"sweep_is_linear**", true},
      {"*s*s*", true},
      {"", false},
      {"sweep", false},
      {"linear", false},
      {"quantize.*", false},
      {"sweep_is_linear?", false},
      {"?sweep_is_linear", false},
      {"sweep_is_linear*x", false},
      {"*linear.", false},
      {"*x*", false},
      {"s*s*s", false},
      {"sweep_is_li*linear", false},  // not before what stands before the star
      {"sweep_is_lineaR", false},
      // Lists: the last one that matches decides.
      {"clamp,sweep_*", true},
      {"sweep_*,clamp", true},
      {"clamp,quantize.*", false},
      {"!clamp", true},
      {"!sweep_*", false},
      {"!*,sweep_is_linear", true},
      {"*,!sweep_*", false},
      {"*,!clamp", true},
      {"*,!sweep_*,linear.*", true},
      {"clamp,!quantize.*", false},
      {"clamp,sweep_*,quantize.*", true},
      {"clamp,sweep_is_linear,!quantize.*", true},
      {",sweep_is_linear", true},
      {"sweep_is_linear,", true},
  };
  const Property& property = *FindProperty("sweep_is_linear");
  for (const auto& [glob, matches] : rows)
    EXPECT_EQ(MatchesGlob(glob, Op::kLinear, property), matches) << glob;
  EXPECT_FALSE(MatchesGlob("*", Op::kQuantize, property)) << "it says nothing about quantize";
  const std::vector<const Property*> sweeps = PropertiesAbout(Op::kLinear, "sweep_*");
  EXPECT_EQ(sweeps.size(), 2u);
  EXPECT_EQ(PropertiesAbout(Op::kLinear, "sweep_*"), sweeps) << "asked again";
  EXPECT_EQ(PropertiesAbout(Op::kLinear, "!sweep_*").size() + 2,
            PropertiesAbout(Op::kLinear).size());
  EXPECT_TRUE(PropertiesAbout(Op::kQuantize, "sweep_*").empty()) << "of another operation";
}

void ExpectNoFalseAlarm(const Case& c, const std::string& drawn,
                        std::map<std::string, std::map<Judgement, int>>& counts) {
  TestSubject subject;
  MemoSubject memo(subject);
  for (const Property& property : AllProperties()) {
    const Verdict verdict = Judge(property, c, memo);
    ASSERT_FALSE(verdict.failed())
        << FullName(c.op, property) << " " << drawn << " " << Describe(c) << ": " << verdict.reason;
    EXPECT_EQ(verdict.judgement == Judgement::kPassed, verdict.reason.empty());
    ++counts[std::string(property.claim)][verdict.judgement];
  }
}

// No false alarm, and no property that is always vacuous.
TEST(Properties, HoldForTheExactOracle) {
  for (Op op : AllOps()) {
    std::map<std::string, std::map<Judgement, int>> counts;
    for (uint64_t seed = 0; seed < 2 * kCases; ++seed) {
      ExpectNoFalseAlarm(gen::Draw(op, seed), "seed " + std::to_string(seed), counts);
    }
    for (const Property& property : AllProperties()) {
      auto& count = counts[std::string(property.claim)];
      const bool about = property.about(op);
      if (!about) {
        EXPECT_EQ(count[Judgement::kNotApplicable], 2 * kCases) << FullName(op, property);
      } else if (property.claim != "matches_model" && property.claim != "targets_agree") {
        EXPECT_GE(count[Judgement::kPassed], int(2 * kCases / 8)) << FullName(op, property);
      }
    }
  }
}

// Themes that the mixture draws rarely: empty tensors and lists, the longest K, extreme scales.
TEST(Properties, HoldForTheExactOracleInEveryTheme) {
  std::map<std::string, std::map<Judgement, int>> counts;
  for (Op op : AllOps()) {
    for (gen::Theme theme : gen::AllThemes()) {
      for (uint64_t seed = 0; seed < 12; ++seed) {
        ExpectNoFalseAlarm(gen::Draw(op, theme, seed), std::string(gen::Name(theme)), counts);
      }
    }
  }
}

TEST(Properties, FailOnTheFaultsPlantedForThem) {
  std::set<std::string> planted;
  for (const Plant& plant : Plants()) {
    const Property& property = *FindProperty(plant.claim);
    planted.insert(plant.claim);
    int failed = 0;
    for (uint64_t seed = 0; seed < 2 * kCases && failed == 0; ++seed) {
      TestSubject subject(plant.make());
      MemoSubject memo(subject);
      const Verdict verdict = Judge(property, gen::Draw(plant.op, seed), memo);
      failed += verdict.failed();
      EXPECT_TRUE(!verdict.failed() || !verdict.reason.empty());
    }
    EXPECT_GT(failed, 0) << FullName(plant.op, property) << ": " << plant.fault;
  }
  // These two have tests of their own below.
  planted.insert("matches_model");
  planted.insert("targets_agree");
  for (const Property& property : AllProperties()) {
    EXPECT_TRUE(planted.contains(std::string(property.claim))) << property.claim;
  }
}

TEST(TargetsAgree, ComparesWithSiblings) {
  SubjectRegistry::Get().Add({"twin",
                              "test",
                              "",
                              [] { return std::vector<std::string>{"twin@good", "twin@bad"}; },
                              [](const std::string& name) -> std::unique_ptr<Subject> {
                                if (name == "twin@good")
                                  return std::make_unique<TestSubject>(TestSubject::Exact, name);
                                if (name == "twin@absent") throw Unavailable("not on this machine");
                                return std::make_unique<TestSubject>(
                                    Afterwards([](const Case& c, const RunContext&, Tensor& y) {
                                      if (!y.empty()) Nudge(c, y, 0);
                                    }),
                                    name);
                              },
                              {}});
  const Property& property = *FindProperty("targets_agree");
  const Case c = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  ASSERT_GT(c.M * c.N, 0);
  TestSubject subject;
  EXPECT_EQ(Judge(property, c, subject).judgement, Judgement::kVacuous);
  subject.siblings = {"test", "twin@absent"};
  EXPECT_EQ(Judge(property, c, subject).judgement, Judgement::kVacuous);
  subject.siblings = {"twin@good"};
  EXPECT_EQ(Judge(property, c, subject).judgement, Judgement::kPassed);
  subject.siblings = {"twin@good", "twin@bad"};
  const Verdict verdict = Judge(property, c, subject);
  EXPECT_TRUE(verdict.failed());
  EXPECT_NE(verdict.reason.find("twin@bad"), std::string::npos) << verdict.reason;
}

// A subject whose answers change in some runs.
TestSubject WrongWhere(std::function<bool(const RunContext&)> wrong) {
  return TestSubject([wrong](const Case& c, const RunContext& context) {
    Tensor y = exact::Evaluate(c);
    if (!y.empty() && wrong(context)) y.bytes()[0] ^= 1;
    return TestSubject::Good(std::move(y));
  });
}

TEST(Control, ADifferenceThatComesByChanceIsNotPutDownToTheContext) {
  const Case c = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  for (const char* const claim : {"alignment_and_stride", "environment", "layer_strides",
                                  "packed_once", "concurrent_calls", "poison_is_irrelevant"}) {
    int runs = 0;
    TestSubject subject = WrongWhere([&](const RunContext&) { return ++runs % 2 == 0; });
    const Verdict verdict = Judge(*FindProperty(claim), c, subject);
    if (verdict.failed()) EXPECT_EQ(verdict.kind, FindingKind::kNondeterminism) << claim;
    if (verdict.failed()) EXPECT_NE(verdict.reason.find("asked again"), std::string::npos) << claim;
  }
}

TEST(Control, ASplitOfThreadsAndARaceAreToldApart) {
  const Case c = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  const Property& property = *FindProperty("several_threads");
  TestSubject split = WrongWhere([](const RunContext& context) { return context.threads > 1; });
  EXPECT_NE(Judge(property, c, split).reason.find("result, the same way each time"),
            std::string::npos);
  int runs = 0;
  TestSubject race =
      WrongWhere([&](const RunContext& context) { return context.threads > 1 && ++runs % 2 == 1; });
  EXPECT_NE(Judge(property, c, race).reason.find("not the same way each time"), std::string::npos);
}

TEST(Contracts, DecideWhatApplies) {
  Case c = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  c.requant = Requant::kExact;  // under another one no sweep is linear
  TestSubject subject;
  EXPECT_EQ(Judge(*FindProperty("matches_model"), c, subject).judgement, Judgement::kNotApplicable);
  ASSERT_FALSE(AllConventions().empty());
  for (const Convention& convention : AllConventions()) {
    subject.set_contract({convention.name});
    for (const Property& property : AllProperties()) {
      const bool declared = Satisfies(convention, c.op, property.claim);
      const bool about = property.about(c.op);
      const bool applies = Judge(property, c, subject).judgement != Judgement::kNotApplicable;
      EXPECT_EQ(applies, about && (property.any_contract || declared))
          << convention.name << " " << property.claim;
    }
  }
}

TEST(Contracts, NoTheoremHoldsUnderAnUnknownConvention) {
  const Case c = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  TestSubject subject;
  subject.set_contract({"no such convention"});
  const Verdict verdict = Judge(*FindProperty("k_permutation"), c, subject);
  EXPECT_EQ(verdict.judgement, Judgement::kNotApplicable);
  EXPECT_EQ(verdict.reason, "no theorem under contract model:no such convention");
  EXPECT_EQ(subject.runs, 0);
}

TEST(Contracts, MatchesConventionJudgesEveryConvention) {
  const Property& property = *FindProperty("matches_model");
  for (const Convention& convention : AllConventions()) {
    TestSubject same(
        [&](const Case& c, const RunContext&) { return TestSubject::Good(convention.run(c).y); });
    TestSubject off([&](const Case& c, const RunContext&) {
      Tensor y = convention.run(c).y;
      if (!y.empty()) Nudge(c, y, 0);
      return TestSubject::Good(y);
    });
    for (TestSubject* subject : {&same, &off}) subject->set_contract({convention.name});
    int passed = 0;
    // What few conventions take is seldom drawn (s8 into float32 without zero points, torchao's
    // dynamic_linear).
    for (uint64_t seed = 0; seed < kCases || (passed == 0 && seed < 100 * kCases); ++seed) {
      for (Op op : AllOps()) {
        const Case c = gen::Draw(op, seed);
        if (!convention.cannot_run(c).empty()) {
          EXPECT_EQ(Judge(property, c, same).judgement, Judgement::kSkipped);
          continue;
        }
        const Verdict verdict = Judge(property, c, same);
        EXPECT_FALSE(verdict.failed()) << convention.name << ": " << verdict.reason;
        if (verdict.judgement != Judgement::kPassed) continue;
        ++passed;
        // A clamp to a single code leaves no other answer to give.
        EXPECT_EQ(Judge(property, c, off).failed(), c.out_min < c.out_max) << convention.name;
      }
    }
    EXPECT_GT(passed, 0) << convention.name;
  }
}

TEST(Judge, SkipsWhatTheSubjectCannotDo) {
  const Case c = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  TestSubject subject;
  subject.cannot_run = [](const Case&) { return "K must be a multiple of 4"; };
  const Verdict verdict = Judge(*FindProperty("matches_exact"), c, subject);
  EXPECT_EQ(verdict.judgement, Judgement::kSkipped);
  EXPECT_EQ(verdict.reason, "K must be a multiple of 4");
  EXPECT_EQ(subject.runs, 0);
}

TEST(Judge, SkipsWhenOnlyTheDerivedCaseCannotBeDone) {
  const Case c = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  TestSubject subject;
  subject.cannot_run = [&](const Case& asked) { return asked.K == c.K ? "" : "another K"; };
  const Verdict verdict = Judge(*FindProperty("zero_term_append"), c, subject);
  EXPECT_EQ(verdict.judgement, Judgement::kSkipped);
}

TEST(Judge, TurnsBadRunsIntoFindingsOfTheirKind) {
  const std::vector<std::pair<RunStatus, FindingKind>> kinds{
      {RunStatus::kCrashed, FindingKind::kCrash},
      {RunStatus::kHung, FindingKind::kHang},
      {RunStatus::kTouchedOutside, FindingKind::kMemory},
      {RunStatus::kModifiedInput, FindingKind::kMemory},
      {RunStatus::kRefused, FindingKind::kUnknown},
      {RunStatus::kGarbage, FindingKind::kUnknown}};
  for (Op op : AllOps()) {
    // A case in which every property of the op has something to ask.
    const Case c = gen::Draw(op, gen::Theme::kUniform, 5);
    for (const auto& [status, kind] : kinds) {
      TestSubject subject([&](const Case&, const RunContext&) { return Broken(status, "why"); });
      const Verdict verdict = Judge(*FindProperty("matches_exact"), c, subject);
      EXPECT_TRUE(verdict.failed());
      EXPECT_EQ(verdict.kind, kind) << Name(status);
      for (const Property& property : AllProperties()) {
        const Judgement judgement = Judge(property, c, subject).judgement;
        EXPECT_NE(judgement, Judgement::kPassed) << FullName(op, property) << " " << Name(status);
      }
    }
  }
}

TEST(Judge, AnAnswerOfTheWrongShapeIsAFailure) {
  const Case c = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  TestSubject subject([](const Case& asked, const RunContext&) {
    return TestSubject::Good(Tensor(asked.out_dtype, {asked.M, asked.N + 1}));
  });
  for (const Property& property : AllProperties()) {
    EXPECT_NE(Judge(property, c, subject).judgement, Judgement::kPassed) << property.claim;
  }
}

// One output of a tiny image between paddings, or under steps, of 2^20: what other windows say
// about it is too large to build. Nothing of it may be built.
TEST(Judge, DoesNotBuildHugeComparisons) {
  Case c;
  c.op = Op::kConv2d;
  c.N = 1;
  c.window = {.batch = 1, .in_h = 4, .in_w = 4, .in_c = 1};
  c.x = Tensor(DType::kU8, {1, 4, 4, 1});
  c.w = Tensor(DType::kS8, {1, 1, 1, 1});
  c.x.SetInt(5, 9);
  c.w.SetInt(0, 2);
  constexpr int64_t kMost = int64_t{1} << 20;
  Window& v = c.window;
  v.pad_top = v.pad_bottom = v.pad_left = v.pad_right = kMost;
  v.stride_h = v.stride_w = kMost;
  Case dilated = c;
  dilated.window.kernel_h = dilated.window.kernel_w = 2;
  dilated.window.dilation_h = dilated.window.dilation_w = kMost;
  dilated.w = Tensor(DType::kS8, {1, 2, 2, 1});
  Case pool = c;
  pool.op = Op::kAvgPool;
  pool.window.count_include_pad = true;
  pool.w = Tensor();
  for (Case* huge : {&c, &dilated, &pool}) {
    DeriveSizes(huge);
    ASSERT_EQ(Validate(*huge), "");
    int too_large = 0;
    for (const Property& property : AllProperties()) {
      TestSubject subject;
      const Verdict verdict = Judge(property, *huge, subject);
      EXPECT_FALSE(verdict.failed()) << property.claim << ": " << verdict.reason;
      too_large += verdict.judgement == Judgement::kVacuous &&
                   verdict.reason == "the case to compare with would be too large";
    }
    EXPECT_GE(too_large, huge == &dilated ? 3 : 2) << Describe(*huge);
  }
}

TEST(MemoSubject, RunsTheCommonBaseOnce) {
  const Case c = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  TestSubject subject;
  MemoSubject memo(subject);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Judge(*FindProperty("matches_exact"), c, memo).judgement, Judgement::kPassed);
  }
  EXPECT_EQ(memo.runs(), 1);
  EXPECT_EQ(subject.runs, 1);
  RunContext other;
  other.poison = 1;
  memo.Run(c, other);
  memo.Run(c, other);
  EXPECT_EQ(memo.runs(), 3);  // what a property asks to be run is run
  for (uint64_t seed = 0; seed < 20; ++seed) memo.Run(gen::Draw(Op::kQuantize, seed), {});
  memo.Run(c, {});
  EXPECT_EQ(memo.runs(), 23);  // and the base is never forgotten
  int64_t runs = 23;
  for (const RunContext& context :
       {RunContext{.x_row_gap = 3}, RunContext{.y_row_gap = 3}, RunContext{.end_at_guard = false},
        RunContext{.end_at_guard = false, .x_row_gap = 3, .y_row_gap = 2}}) {
    for (int i = 0; i < 3; ++i) memo.Run(c, context);
    EXPECT_EQ(memo.runs(), ++runs) << "several properties ask for the same placement";
  }
}

TEST(MemoSubject, IsToldWhatWasAskedAtOnce) {
  const std::vector<Case> cases{gen::Draw(Op::kLinear, gen::Theme::kUniform, 1),
                                gen::Draw(Op::kLinear, gen::Theme::kUniform, 2)};
  TestSubject subject;
  MemoSubject memo(subject);
  const std::vector<Outcome> outcomes = memo.RunMany(cases, {});
  ASSERT_EQ(outcomes.size(), 2u);
  EXPECT_EQ(subject.runs, 2);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(outcomes[i].y, exact::Evaluate(cases[i]));
    memo.Remember(cases[i], outcomes[i]);
    EXPECT_EQ(Judge(*FindProperty("matches_exact"), cases[i], memo).judgement, Judgement::kPassed);
  }
  EXPECT_EQ(subject.runs, 2);
}

TEST(JudgeInTurn, TheComparisonsAlwaysJudgeAndEveryPropertyHasItsTurn) {
  std::set<std::string_view> met;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    TestSubject subject;
    MemoSubject memo(subject);
    std::vector<std::string_view> judged;
    JudgeInTurn(c, memo, "*", [&](const Property& property, const Verdict& verdict) {
      EXPECT_FALSE(verdict.failed()) << property.claim << ": " << verdict.reason;
      judged.push_back(property.claim);
      return true;
    });
    EXPECT_EQ(judged.size(), 4u);
    EXPECT_EQ(std::ranges::count(judged, "matches_exact"), 1);
    EXPECT_EQ(std::ranges::count(judged, "matches_model"), 1);
    EXPECT_EQ(std::set(judged.begin(), judged.end()).size(), judged.size());
    const std::vector<const Property*> again = PropertiesInTurn(c);
    EXPECT_TRUE(std::ranges::equal(judged, again, {}, {}, &Property::claim));
    met.insert(judged.begin(), judged.end());
  }
  EXPECT_EQ(met.size(), PropertiesAbout(Op::kLinear).size());
}

// Many cases for which the property has its turn or has not.
Case Numbered(int32_t number) {
  Case c = CaseOver(Op::kRescale, Tensor(DType::kU8, {1, 2}), DType::kU8);
  c.x.SetInt(0, number % 256);
  c.x.SetInt(1, number / 256);
  return c;
}

TEST(JudgeInTurn, DearPropertiesGiveWay) {
  constexpr int kMany = 6000;
  std::map<const Property*, int> turns;
  for (int i = 0; i < kMany; ++i) {
    for (const Property* property : PropertiesInTurn(Numbered(i))) ++turns[property];
  }
  double cheap = 0, cheapest = 0;
  for (const Property* property : PropertiesAbout(Op::kRescale)) {
    if (property->claim.starts_with("matches_")) {
      EXPECT_EQ(turns[property], kMany) << property->claim;
    } else if (property->one_in == 1) {
      cheap += turns[property], ++cheapest;
    }
  }
  cheap /= cheapest;
  for (const Property* property : PropertiesAbout(Op::kRescale)) {
    if (property->claim.starts_with("matches_")) continue;
    const double expected = cheap / property->one_in;
    EXPECT_GT(turns[property], 0.5 * expected - 5) << property->claim;
    EXPECT_LT(turns[property], 2 * expected + 10) << property->claim;
  }
}

TEST(JudgeInTurn, DearPropertiesJudgeWhereThereAreNoOthers) {
  for (const auto& [glob, expected] : std::vector<std::pair<const char*, size_t>>{
           {"matches_*", 2},
           {"matches_*,far_rows", 3},
           {"matches_*,far_rows,environment", 4},
           {"matches_*,far_rows,environment,in_place", 4},
           {"far_rows", 1},
           {"far_rows,environment,in_place", 2},
           {"matches_exact,far_rows,environment,in_place", 3}}) {
    std::set<const Property*> met;
    for (int i = 0; i < 400; ++i) {
      const std::vector<const Property*> judges = PropertiesInTurn(Numbered(i), glob);
      ASSERT_EQ(judges.size(), expected) << glob;
      ASSERT_EQ(std::set(judges.begin(), judges.end()).size(), expected) << glob;
      for (const Property* property : judges) {
        ASSERT_TRUE(MatchesGlob(glob, Op::kRescale, *property)) << property->claim;
        met.insert(property);
      }
    }
    EXPECT_EQ(met.size(), PropertiesAbout(Op::kRescale, glob).size()) << glob;
  }
}

// Properties that share runs judge the same drawn cases, all others their own.
TEST(JudgeAll, PropertiesHaveTurnsOfTheirOwn) {
  std::map<std::string_view, std::set<uint64_t>> turns;  // which drawn numbers each judges
  const Case c = Numbered(7);
  constexpr uint64_t kMany = 400;
  for (uint64_t drawn = 0; drawn < kMany; ++drawn) {
    TestSubject subject;
    MemoSubject memo(subject);
    JudgeAll(
        c, memo, "*",
        [&](const Property& property, const Verdict&) {
          turns[property.claim].insert(drawn);
          return true;
        },
        drawn);
  }
  for (const Property* one : PropertiesAbout(Op::kRescale)) {
    const auto seldom = static_cast<double>(kMany) / OneIn(*one);
    EXPECT_GT(static_cast<double>(turns[one->claim].size()), 0.3 * seldom - 4) << one->claim;
    EXPECT_LT(static_cast<double>(turns[one->claim].size()), 2 * seldom + 8) << one->claim;
    for (const Property* other : PropertiesAbout(Op::kRescale)) {
      if (one == other || OneIn(*one) == 1 || OneIn(*one) != OneIn(*other)) continue;
      if (turns[one->claim].size() < 5) continue;
      EXPECT_EQ(turns[one->claim] == turns[other->claim],
                !one->turn.empty() && one->turn == other->turn)
          << one->claim << " and " << other->claim;
    }
  }
}

TEST(JudgeInTurn, FewPropertiesAllJudge) {
  const Case c = gen::Draw(Op::kLinear, 1);
  EXPECT_EQ(PropertiesInTurn(c, "sweep_*"), PropertiesAbout(Op::kLinear, "sweep_*"));
  EXPECT_TRUE(PropertiesInTurn(c, "conv2d.*").empty());
}

TEST(Hash, SeesTheWindow) {
  Case c = gen::Draw(Op::kConv2d, 1);
  const uint64_t before = relation::Hash(c);
  ++c.window.pad_top;
  EXPECT_NE(relation::Hash(c), before);
}

}  // namespace
}  // namespace qualm
