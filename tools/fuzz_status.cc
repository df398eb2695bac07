// SPDX-License-Identifier: Apache-2.0
#include "tools/fuzz_status.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "tools/command.h"
#include "tools/terminal.h"

namespace qualm::tools {
namespace {

std::string DistanceText(int64_t distance, int64_t none) {
  if (distance < 0) return "reached";
  return distance == none ? "not possible" : fmt::format("{} away", distance);
}

// How near the campaign came to each hazard: units of the sum, lsb of the output.
std::string DistancesText(const campaign::Progress& progress) {
  return fmt::format("saturation {}, overflow {}, ties {}", DistanceText(progress.pair, INT32_MAX),
                     DistanceText(progress.sum, INT64_MAX),
                     progress.tie == 0 ? "reached" : fmt::format("{:.2g} away", progress.tie));
}

}  // namespace

FuzzStatus::FuzzStatus(std::function<bool(const FaultRow&)> is_new)
    : is_new_(std::move(is_new)), terminal_(::isatty(STDERR_FILENO) == 1) {}

void FuzzStatus::Tell(const campaign::Progress& progress) {
  latest_ = progress;
  const double pause = terminal_ ? 0.5 : 30;
  if (progress.seconds < told_ + pause) return;
  told_ = progress.seconds;
  if (!terminal_) return TellLine(Line());
  SetStatusLine(Line());
}

void FuzzStatus::Say(const std::string& text) const {
  Erase();
  TellLine(text);
}

void FuzzStatus::End() const { Erase(); }

std::string FuzzStatus::Line() const {
  const auto seconds = static_cast<int64_t>(latest_.seconds);
  const auto news = std::ranges::count_if(latest_.rows, is_new_);
  return fmt::format(
      "{:02}:{:02}:{:02}  {} executions, {:.0f}/s  faults: {} new, {} known{}  corpus {}  {}",
      seconds / 3600, seconds / 60 % 60, seconds % 60, latest_.executions, latest_.per_second, news,
      static_cast<int64_t>(latest_.rows.size()) - news,
      latest_.waiting == 0 ? "" : fmt::format(", {} waiting", latest_.waiting), latest_.corpus,
      DistancesText(latest_));
}

void FuzzStatus::Erase() const {
  if (terminal_) EraseStatusLine();
}

}  // namespace qualm::tools
