// SPDX-License-Identifier: Apache-2.0
#include "proofs/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "core/enclosure.h"
#include "core/status.h"
#include "proofs/reference.h"

namespace qualm::proofs {
namespace {

int64_t CountOf(const std::optional<Certificate::Scales>& scales) {
  if (!scales) return 1;
  const auto place = [](float scale) { return int64_t{std::bit_cast<uint32_t>(scale)}; };
  return (place(scales->last) - place(scales->first)) / scales->stride + 1;
}

int64_t CountOf(const std::optional<Certificate::ZeroPoints>& zero_points) {
  return zero_points ? int64_t{zero_points->last} - zero_points->first + 1 : 1;
}

Case Elementwise(Op op, DType x, DType out, const Case& like) {
  Case c;
  c.op = op;
  c.M = c.N = 1;
  c.x = Tensor(x, {1, 1});
  c.out_dtype = out;
  c.out_min = RangeOf(out).min;
  c.out_max = RangeOf(out).max;
  if (RowOf(op).clamp && out == like.out_dtype) {
    c.out_min = like.out_min;
    c.out_max = like.out_max;
    c.relu = like.relu;
  }
  return c;
}

QParams AtChannel(const QParams& q, int64_t channel) {
  return {{q.scale_at(channel)}, {q.zero_point_at(channel)}};
}

// A case with parameters per channel becomes one case per tensor for each channel.
std::vector<Case> ByChannel(const Case& c) {
  if (!c.per_channel || c.op == Op::kLinear) return {c};
  std::vector<Case> channels;
  for (int64_t n = 0; n < c.N; ++n) {
    Case one = Elementwise(c.op, c.x.dtype(), c.out_dtype, c);
    one.x_q = AtChannel(c.x_q, n);
    one.w_q = AtChannel(c.w_q, n);
    one.out_q = AtChannel(c.out_q, n);
    one.requant = c.requant;
    if (!c.multiplier.empty()) one.multiplier = {c.multiplier[static_cast<size_t>(n)]};
    channels.push_back(std::move(one));
  }
  return channels;
}

std::vector<Case> RequantizesOf(const Case& c) {
  std::vector<Case> problems;
  for (size_t n = 0; n < c.w_q.scale.size(); ++n) {
    Case one = Elementwise(Op::kRequantize, DType::kS32, c.out_dtype, c);
    one.x_q.scale = c.x_q.scale;
    one.w_q.scale = {c.w_q.scale[n]};
    one.out_q = c.out_q;
    one.requant = c.requant;
    problems.push_back(std::move(one));
  }
  return problems;
}

// Hands out pieces of the uncovered part to threads.
class Pieces {
 public:
  Pieces(const Certificate& certificate, int64_t first, int64_t last, int64_t piece) {
    const auto cut = [&](int64_t from, int64_t to) {
      for (int64_t at = std::max(from, first); at < std::min(to, last); at += piece)
        pieces_.emplace_back(at, std::min({at + piece, to, last}));
    };
    int64_t at = 0;
    for (const auto& [from, to] : certificate.covered) {
      cut(at, from);
      at = to;
    }
    cut(at, certificate.whole);
    for (const auto& [from, to] : pieces_) all_ += to - from;
  }
  int64_t all() const { return all_; }
  std::optional<std::pair<int64_t, int64_t>> Next() {
    const size_t at = next_++;
    return at < pieces_.size() ? std::optional(pieces_[at]) : std::nullopt;
  }

 private:
  std::vector<std::pair<int64_t, int64_t>> pieces_;
  int64_t all_ = 0;
  std::atomic<size_t> next_ = 0;
};

void Cover(Certificate* certificate, int64_t first, int64_t last) {
  if (first == last) return;
  auto& covered = certificate->covered;
  covered.insert(std::ranges::lower_bound(covered, std::pair(first, last)), {first, last});
  std::vector<std::pair<int64_t, int64_t>> joined;
  for (const auto& range : covered) {
    if (!joined.empty() && joined.back().second == range.first) {
      joined.back().second = range.second;
    } else {
      joined.push_back(range);
    }
  }
  covered = std::move(joined);
}

using CertifiedWrong = std::optional<Certificate::Wrong>;

auto Order(const Certificate::Wrong& wrong) {
  return std::tuple(wrong.nan, wrong.set, wrong.number);
}

void TakeFirst(CertifiedWrong* mine, const CertifiedWrong& other) {
  if (other && (!*mine || Order(*other) < Order(**mine))) *mine = other;
}
void TakeWorst(CertifiedWrong* mine, const CertifiedWrong& other) {
  if (!other) return;
  const auto goodness = [](const Certificate::Wrong& w) {
    return std::tuple(w.nan, -w.distance, w.set, w.number);
  };
  const bool worse = !*mine || goodness(*other) < goodness(**mine);
  if (worse) *mine = other;
}

void AddCounts(Certificate* certificate, const Certificate& other) {
  certificate->judged += other.judged;
  certificate->asked += other.asked;
  certificate->wrong += other.wrong;
  certificate->wrong_nan += other.wrong_nan;
  TakeFirst(&certificate->first, other.first);
  TakeWorst(&certificate->worst, other.worst);
}

// The part of a certificate that a tally gives.
Certificate Part(const Domain& domain, int64_t set, const Tally& tally) {
  const auto told = [&](const std::optional<Wrong>& wrong) -> CertifiedWrong {
    if (!wrong) return std::nullopt;
    return Certificate::Wrong{set,
                              static_cast<int64_t>(wrong->number),
                              wrong->expected,
                              wrong->actual,
                              static_cast<int64_t>(wrong->distance),
                              wrong->nan,
                              domain.TextOf(wrong->number)};
  };
  Certificate part;
  part.judged = static_cast<int64_t>(tally.judged);
  part.asked = static_cast<int64_t>(tally.asked);
  part.wrong = static_cast<int64_t>(tally.wrong);
  part.wrong_nan = static_cast<int64_t>(tally.wrong_nan);
  part.first = told(tally.first);
  part.worst = told(tally.worst);
  return part;
}

bool SameFindings(const Tally& a, const Tally& b) {
  return a.wrong == b.wrong && a.first == b.first && a.worst == b.worst;
}

class Runner {
 public:
  Runner(Certificate* certificate, const RunOptions& options)
      : certificate_(*certificate),
        options_(options),
        contract_(ParseContract(certificate->contract)),
        single_(SetsOf(*certificate) == 1),
        pieces_(*certificate, options.first, options.last, PieceOf(*certificate, options)) {}

  std::string Run() {
    std::vector<std::thread> threads;
    for (int i = 1; i < options_.jobs; ++i) threads.emplace_back([this] { Work(); });
    Work();
    for (std::thread& thread : threads) thread.join();
    return failed_;
  }
  int64_t falls() const { return falls_; }

 private:
  // The number of inputs, or of parameter sets, in one piece of work. Several sets: some sets. One
  // set by its steps: all of it. One set in full: a second or so of a fast subject.
  static int64_t PieceOf(const Certificate& certificate, const RunOptions& options) {
    const bool fast = certificate.method == Certificate::Method::kSteps && options.full_every == 0;
    if (SetsOf(certificate) > 1) return fast ? 256 : 1;
    if (TakesSteps(certificate)) return certificate.whole;
    const auto granule = static_cast<int64_t>(Domain(certificate.problems[0]).granule());
    return std::max(int64_t{1}, (int64_t{1} << 27) / granule) * granule;
  }

  void Work() {
    try {
      const std::unique_ptr<Subject> subject = options_.make();
      while (!Ended()) {
        const auto piece = pieces_.Next();
        if (!piece) return;
        if (single_) {
          JudgePart(*subject, piece->first, piece->second);
        } else {
          JudgeSets(*subject, piece->first, piece->second);
        }
      }
    } catch (const std::exception& error) {
      Fail(error.what());
    }
  }

  bool Ended() {
    const std::scoped_lock lock(mutex_);
    return !failed_.empty() || (options_.stop && options_.stop());
  }

  void Fail(const std::string& why) {
    const std::scoped_lock lock(mutex_);
    if (failed_.empty()) failed_ = why;
  }

  void Done(int64_t first, int64_t last, const Certificate& part) {
    const std::scoped_lock lock(mutex_);
    Cover(&certificate_, first, last);
    AddCounts(&certificate_, part);
    done_ += last - first;
    Show(0);
    if (options_.save) options_.save(certificate_);
  }

  void Show(int64_t more) {
    if (options_.progress) options_.progress(done_ + more, pieces_.all(), certificate_.wrong);
  }

  Tally Steps(const Domain& domain, Reference& reference, Subject& subject) const {
    return BySteps(domain, reference, subject,
                   certificate_.method == Certificate::Method::kIntervals);
  }

  Tally Full(const Domain& domain, Reference& reference, Subject& subject, Range range) {
    FullOptions options;
    options.each = certificate_.method == Certificate::Method::kEach;
    options.per_call = static_cast<uint64_t>(certificate_.per_call);
    if (single_) {
      options.progress = [this](const Tally&, uint64_t done) {
        const std::scoped_lock lock(mutex_);
        Show(static_cast<int64_t>(done));
        return failed_.empty() && !(options_.stop && options_.stop());
      };
    }
    return InFull(domain, reference, subject, range, options);
  }

  // Outputs [first, last) of the only problem.
  void JudgePart(Subject& subject, int64_t first, int64_t last) {
    const Domain domain(ProblemAt(certificate_, 0));
    Reference reference(domain, contract_);
    const bool steps = TakesSteps(certificate_);
    const Tally tally = steps ? Steps(domain, reference, subject)
                              : Full(domain, reference, subject,
                                     {static_cast<uint64_t>(first), static_cast<uint64_t>(last)});
    if (!tally.failed.empty()) return Fail(tally.failed);
    falls_ += static_cast<int64_t>(tally.falls);
    Done(first, first + static_cast<int64_t>(tally.judged), Part(domain, 0, tally));
  }

  void JudgeSets(Subject& subject, int64_t first, int64_t last) {
    Certificate part;
    int64_t set = first;
    for (; set < last && !Ended(); ++set) {
      const Domain domain(ProblemAt(certificate_, set));
      Reference reference(domain, contract_);
      const bool steps = TakesSteps(certificate_);
      const Range all{0, domain.size()};
      Tally tally =
          steps ? Steps(domain, reference, subject) : Full(domain, reference, subject, all);
      if (steps && options_.full_every != 0 && set % options_.full_every == 0 &&
          tally.failed.empty()) {
        const Tally full = Full(domain, reference, subject, all);
        if (!SameFindings(tally, full))
          tally.failed = "steps and the full sweep do not agree: the subject does not rise";
      }
      if (!tally.failed.empty()) {
        return Fail(fmt::format("parameter set {} ({}): {}", set, Describe(domain.problem()),
                                tally.failed));
      }
      falls_ += static_cast<int64_t>(tally.falls);
      AddCounts(&part, Part(domain, set, tally));
    }
    Done(first, set, part);
  }

  Certificate& certificate_;
  const RunOptions& options_;
  const Contract contract_;
  const bool single_;
  Pieces pieces_;
  std::mutex mutex_;
  std::string failed_;
  int64_t done_ = 0;
  std::atomic<int64_t> falls_ = 0;
};

// The sentence of a complete certificate about why so few questions speak for so many outputs.
std::string MonotoneOf(const Certificate& certificate, int64_t falls, const RunOptions& options) {
  if (TakesSteps(certificate)) {
    std::string text = "assumed";
    if (certificate.method == Certificate::Method::kIntervals) {
      const auto subject = options.make();
      text = "shown by interval evaluation of " +
             dynamic_cast<const EnclosingSubject&>(*subject).Evaluates(certificate.problems[0]);
      if (falls != 0) text += fmt::format(", which falls {} time{}", falls, falls == 1 ? "" : "s");
    } else if (falls != 0) {
      text += fmt::format(" on both sides of {} fall{}", falls, falls == 1 ? "" : "s");
    }
    if (options.full_every == 0) return text;
    return fmt::format("{}; the full sweep agrees for every {}th parameter set", text,
                       options.full_every);
  }
  const Domain domain(ProblemAt(certificate, 0));
  if (SetsOf(certificate) > 1 || !HasSteps(domain) || !certificate.complete()) return "not needed";
  Reference reference(domain, ParseContract(certificate.contract));
  const Tally tally = BySteps(domain, reference, *options.make());
  if (!tally.failed.empty()) return "no: " + tally.failed;
  const Certificate part = Part(domain, 0, tally);
  const bool agrees = part.wrong == certificate.wrong && part.first == certificate.first &&
                      part.worst == certificate.worst;
  return agrees ? "shown by the full sweep: the steps give the same"
                : "no: the steps give another result";
}

std::string WrongText(const Certificate::Wrong& wrong) {
  return fmt::format("{}: expected {}, actual {}", wrong.input, wrong.expected, wrong.actual);
}

}  // namespace

std::vector<Case> ProblemsFor(const Case& c, Op op) {
  if (c.op == op) return ByChannel(c);
  if (op == Op::kRequantize && HasSums(c) && IsCode(c.out_dtype)) return RequantizesOf(c);
  std::vector<Case> problems;
  const auto add = [&](Case one, QParams Case::* member, const QParams& q) {
    one.*member = AtChannel(q, 0);
    problems.push_back(std::move(one));
  };
  if (op == Op::kQuantize && HasXQParams(c) && IsCode(c.x.dtype()))
    add(Elementwise(op, DType::kF32, c.x.dtype(), {}), &Case::out_q, c.x_q);
  if (op == Op::kDequantize && HasOutQParams(c.op) && IsCode(c.out_dtype))
    add(Elementwise(op, c.out_dtype, DType::kF32, {}), &Case::x_q, c.out_q);
  if (problems.empty())
    throw InputError(fmt::format("op: is {}, which has no {}", Name(c.op), Name(op)));
  return problems;
}

bool TakesSteps(const Certificate& certificate) {
  return certificate.method == Certificate::Method::kSteps ||
         certificate.method == Certificate::Method::kIntervals;
}

int64_t SetsOf(const Certificate& certificate) {
  return static_cast<int64_t>(certificate.problems.size()) * CountOf(certificate.scales) *
         CountOf(certificate.zero_points);
}

Case ProblemAt(const Certificate& certificate, int64_t set) {
  const int64_t scales = CountOf(certificate.scales);
  const int64_t zero_points = CountOf(certificate.zero_points);
  Case c = certificate.problems[static_cast<size_t>(set / scales / zero_points)];
  if (certificate.any_weights) c.w = Tensor(c.w.dtype(), {0});
  if (certificate.scales) {
    const auto place = std::bit_cast<uint32_t>(certificate.scales->first) +
                       static_cast<uint32_t>(set % scales * certificate.scales->stride);
    std::vector<float>& list = c.op == Op::kRequantize ? c.multiplier
                               : c.op == Op::kQuantize ? c.out_q.scale
                                                       : c.x_q.scale;
    list = {std::bit_cast<float>(place)};
    if (c.op == Op::kRequantize) {  // a given multiplier takes the place of scales
      c.x_q.scale = c.w_q.scale = c.out_q.scale = {1.0f};
    }
  }
  if (certificate.zero_points) {
    const bool of_output = c.op == Op::kRequantize || c.op == Op::kQuantize;
    (of_output ? c.out_q : c.x_q).zero_point = {
        static_cast<int32_t>(certificate.zero_points->first + set / scales % zero_points)};
  }
  return c;
}

int64_t WholeOf(const Certificate& certificate) {
  const Op op = certificate.problems.front().op;
  for (const Case& problem : certificate.problems) {
    if (problem.op != op)
      throw InputError(
          fmt::format("problems: {} and {}, expected one operation", Name(op), Name(problem.op)));
  }
  const int64_t sets = SetsOf(certificate);
  const Domain domain(ProblemAt(certificate, 0));
  for (size_t i = 1; i < certificate.problems.size(); ++i) Domain{certificate.problems[i]};
  if (TakesSteps(certificate) && !HasSteps(domain)) {
    throw InputError(fmt::format("--full: is missing, {} has no steps to find", Name(op)));
  }
  return sets == 1 ? static_cast<int64_t>(domain.size()) : sets;
}

void Plan(const std::vector<Case>& problems, Certificate::Method method, Certificate* plan) {
  for (const Case& problem : problems) {
    const Domain domain(problem);
    plan->any_weights |= domain.inputs() == Inputs::kQuads;
    plan->problems.push_back(domain.Alone(0).first);
  }
  const bool by_steps =
      method == Certificate::Method::kSteps && !HasSteps(Domain(problems.front()));
  plan->method = by_steps ? Certificate::Method::kFull : method;
  plan->compiler = Compiler();
  plan->whole = WholeOf(*plan);
}

std::string Compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

std::string SummaryOf(const Certificate& c) {
  const Domain domain(ProblemAt(c, 0));
  const int64_t sets = SetsOf(c);
  std::string text = fmt::format("{} on {}: {}{}, {} of {} outputs wrong against {} (asked {})\n",
                                 c.subject, Name(c.problems[0].op), Name(domain.inputs()),
                                 sets > 1 ? fmt::format(" for {} parameter sets", sets) : "",
                                 c.wrong, c.judged, c.contract, c.asked);
  if (c.wrong_nan != 0) text += fmt::format("  {} of them are NaN\n", c.wrong_nan);
  const std::string set =
      sets > 1 && c.worst ? fmt::format("parameter set {}, ", c.worst->set) : "";
  if (c.worst) text += "  worst: " + set + WrongText(*c.worst) + "\n";
  if (c.first && c.first != c.worst) text += "  first: " + WrongText(*c.first) + "\n";
  if (!c.complete()) {
    int64_t done = 0;
    for (const auto& [first, last] : c.covered) done += last - first;
    text += fmt::format("  part of the whole: {} of {}\n", done, c.whole);
  }
  return text + "  rises with its input: " + c.monotone + "\n";
}

std::string Exhaust(Certificate* certificate, const RunOptions& options) {
  Runner runner(certificate, options);
  const std::string failed = runner.Run();
  if (failed.empty()) certificate->monotone = MonotoneOf(*certificate, runner.falls(), options);
  return failed;
}

bool SamePlan(const Certificate& a, const Certificate& b) {
  const auto plan = [](Certificate c) {
    c.covered.clear();
    c.judged = c.asked = c.wrong = c.wrong_nan = 0;
    c.first.reset();
    c.worst.reset();
    c.monotone.clear();
    return c;
  };
  return plan(a) == plan(b);
}

Certificate Merged(const Certificate& a, const Certificate& b) {
  if (!SamePlan(a, b)) throw InputError("is of another run, expected parts of one");
  Certificate merged = a;
  for (const auto& [first, last] : b.covered) {
    for (const auto& [from, to] : a.covered) {
      if (first < to && from < last)
        throw InputError(
            fmt::format("covers [{}, {}) again, expected each part once", first, last));
    }
    Cover(&merged, first, last);
  }
  AddCounts(&merged, b);
  return merged;
}

}  // namespace qualm::proofs
