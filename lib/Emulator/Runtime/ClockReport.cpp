//===- ClockReport.cpp - What clocks say of a launch ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Replay.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>

using namespace fovea::simt;
using namespace fovea::simt::rates;

static_assert(kLevelsOfDevice == kNumLevels);

/// The GPU that all but estimates are about.
constexpr size_t kHopper = 0;

/// Most lines of waits that a report has.
constexpr size_t kMostWaits = 12;

/// Blocks that a multiprocessor holds: of its threads, its shared memory, of
/// which it keeps 1 KiB for each, and 32 at most. Registers are not known.
static unsigned countResident(unsigned threads, size_t shared) {
  constexpr size_t sharedBytes = 228 << 10, reserved = 1 << 10;
  size_t fit = std::min<size_t>(2048 / ((threads + 31) / 32 * 32),
                                sharedBytes / (shared + reserved));
  return std::clamp<size_t>(fit, 1, 32);
}

Stopwatch::Stopwatch(uint64_t clusters, unsigned clusterBlocks,
                     unsigned threads, size_t shared)
    : threads(threads), warps((threads + 31) / 32) {
  result.clusterBlocks = clusterBlocks;
  for (size_t i = 0; i < grids.size(); ++i) {
    grids[i].clusters.resize(clusters);
    // A grid that does not fill the device is spread over it.
    uint64_t places = kDevices[i].multiprocessors;
    uint64_t needed = (clusters * clusterBlocks + places - 1) / places;
    grids[i].resident =
        std::min<uint64_t>(countResident(threads, shared), needed);
  }
}

std::string Stopwatch::nameRole(unsigned warp) const {
  unsigned first = warp % warps / 4 * 128;
  return "threads " + std::to_string(first) + "-" +
         std::to_string(std::min(first + 128, threads) - 1);
}

/// "mbarrier.try_wait, operation 7"; products are many, and have no number.
static std::string nameOperation(const Op *op) {
  if (!op)
    return "end";
  std::string name = op->name;
  if (name.compare(0, 10, "llvm.nvvm.") == 0)
    name = name.substr(10);
  size_t end = name.find('.');
  if (end != std::string::npos)
    end = name.find('.', end + 1);
  if (op->kind == OpKind::Warpgroup)
    return name.substr(0, end);
  std::string where = op->where;
  if (size_t of = where.find(" of '"); of != std::string::npos)
    where = where.substr(0, of);
  return name.substr(0, end) + ", " + where;
}

bool Stopwatch::add(uint64_t number, const Recording &recording) {
  unsigned blocks = result.clusterBlocks;
  hasWarpgroups |= recording.numProducts > 0;
  for (size_t device = kHopper + 1; device < grids.size(); ++device) {
    if (hasWarpgroups && !kDevices[device].hasWarpgroups)
      continue;
    for (unsigned i = 0; i < kNumLevels; ++i) {
      std::optional<Replayed> replayed =
          replay(recording, blocks, grids[device].resident, kDevices[device],
                 kDevices[device].levels[i]);
      if (!replayed)
        return false;
      grids[device].clusters[number][i] = replayed->cycles;
    }
  }
  const Device &hopper = kDevices[kHopper];
  Times &times = grids[kHopper].clusters[number];
  Replayed middle;
  Times besideRounds = {};
  for (unsigned i = 0; i < kNumLevels; ++i) {
    std::optional<Replayed> replayed = replay(
        recording, blocks, grids[kHopper].resident, hopper, hopper.levels[i]);
    if (!replayed)
      return false;
    times[i] = replayed->cycles;
    rounds[i].insert(rounds[i].end(), replayed->rounds.begin(),
                     replayed->rounds.end());
    besideRounds[i] =
        std::accumulate(replayed->rounds.begin(), replayed->rounds.end(),
                        times[i], std::minus<>());
    if (i == kMiddle)
      middle = std::move(*replayed);
  }
  totalCycles += middle.cycles * blocks;
  for (size_t i = 0; i < busy.size(); ++i)
    busy[i] += middle.busy[i];
  if (middle.cycles > longest) {
    longest = middle.cycles;
    result.tiles = middle.tiles;
    result.besideCycles = besideRounds;
    tilesBeside = middle.tilesBeside;
  }
  for (const auto &[key, cycles] : middle.waited) {
    auto [warp, op, cause] = key;
    std::string whom = cause == Copies     ? "copies"
                       : cause == Products ? "tensor cores"
                       : cause == Loads    ? "loads"
                                           : nameRole(cause);
    if (cause >= 0 && unsigned(cause) / warps != warp / warps)
      whom += " of another block";
    Waits &line = waits[{nameRole(warp), nameOperation(op), whom}];
    line.cycles += cycles;
    ++line.warps;
  }
  return true;
}

static double getMedianOf(std::vector<double> numbers) {
  if (numbers.empty())
    return 0;
  std::sort(numbers.begin(), numbers.end());
  return numbers[(numbers.size() - 1) / 2];
}

/// Cycles of a launch whose clusters go to the multiprocessors that are free
/// first.
static Times fill(const std::vector<Times> &clusters, unsigned clusterBlocks,
                  unsigned resident, const Device &device) {
  Times total = {};
  size_t places =
      std::max(1.0, device.multiprocessors / clusterBlocks) * resident;
  for (unsigned i = 0; i < kNumLevels; ++i) {
    std::priority_queue<double, std::vector<double>, std::greater<>> free;
    for (size_t place = 0; place < places; ++place)
      free.push(0);
    for (const Times &times : clusters) {
      double end = free.top() + times[i];
      free.pop();
      free.push(end);
      total[i] = std::max(total[i], end);
    }
  }
  return total;
}

LaunchClocks Stopwatch::finish() {
  // Of the four quarters together, or of the multiprocessor.
  static const std::pair<const char *, double> names[] = {
      {"issue", 4},  {"f32", 4},      {"integers", 4},     {"exponentials", 4},
      {"memory", 4}, {"mma.sync", 4}, {"tensor cores", 1}, {"copies", 1}};
  for (size_t i = 0; i < grids.size(); ++i) {
    const Device &device = kDevices[i];
    std::optional<Times> milliseconds;
    if (!hasWarpgroups || device.hasWarpgroups) {
      milliseconds = fill(grids[i].clusters, result.clusterBlocks,
                          grids[i].resident, device);
      for (double &time : *milliseconds)
        time *= 1e-6 / device.gigahertz;
    }
    result.estimates.push_back({device.names, device.gigahertz, milliseconds});
  }
  result.clusters = std::move(grids[kHopper].clusters);
  result.resident = grids[kHopper].resident;
  double capacity = totalCycles / result.resident;
  for (size_t i = 0; i < busy.size(); ++i)
    result.pipes.push_back(
        {names[i].first, capacity ? busy[i] / capacity / names[i].second : 0});
  for (unsigned i = 0; i < kNumLevels; ++i) {
    result.tileCycles[i] = getMedianOf(std::move(rounds[i]));
    result.besideCycles[i] -= tilesBeside * result.tileCycles[i];
  }
  double mean = totalCycles / result.clusters.size() / result.clusterBlocks;
  for (const auto &[key, line] : waits) {
    const auto &[who, where, whom] = key;
    double cycles = line.cycles / line.warps;
    result.waits.push_back({who, where, whom, cycles, cycles / mean});
  }
  std::sort(result.waits.begin(), result.waits.end(),
            [](const auto &a, const auto &b) {
              return std::tie(b.cycles, a.who, a.where, a.whom) <
                     std::tie(a.cycles, b.who, b.where, b.whom);
            });
  return std::move(result);
}

//===----------------------------------------------------------------------===//
// The launch
//===----------------------------------------------------------------------===//

Times LaunchClocks::getLongest() const {
  Times longest = {};
  for (const Times &times : clusters)
    for (unsigned i = 0; i < kNumLevels; ++i)
      longest[i] = std::max(longest[i], times[i]);
  return longest;
}

Times LaunchClocks::getMedian() const {
  Times median = {};
  for (unsigned i = 0; i < kNumLevels; ++i) {
    std::vector<double> all;
    for (const Times &times : clusters)
      all.push_back(times[i]);
    median[i] = getMedianOf(std::move(all));
  }
  return median;
}

Times LaunchClocks::getTotal() const {
  return fill(clusters, clusterBlocks, resident, kDevices[kHopper]);
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

template <typename... Args>
static std::string format(const char *text, Args... args) {
  char line[256];
  snprintf(line, sizeof(line), text, args...);
  return line;
}

static std::string listTimes(const Times &times) {
  return format("%.0f, %.0f, %.0f, %.0f", times[0], times[1], times[2],
                times[3]);
}

std::string fovea::simt::describeClocks(const std::string &kernel,
                                        const LaunchClocks &clocks) {
  std::string text =
      "kernel '" + kernel + "' by clocks: modelled, not measured\n";
  text +=
      format("  blocks    %zu", clocks.clusters.size() * clocks.clusterBlocks);
  if (clocks.clusterBlocks > 1)
    text += format(" in clusters of %u", clocks.clusterBlocks);
  text += format(", %u of a multiprocessor by threads and shared memory\n",
                 clocks.resident);
  text += "  loads     L2, middle, HBM, all\n";
  text +=
      "  longest   " + listTimes(clocks.getLongest()) + " cycles of a block\n";
  text += "  median    " + listTimes(clocks.getMedian()) + "\n";
  if (clocks.tiles > 0) {
    text += "  tile      " + listTimes(clocks.tileCycles) +
            format(" cycles, half of the rounds; the longest block has %.4g\n",
                   clocks.tiles);
    text += "  beside    " + listTimes(clocks.besideCycles) +
            " cycles of the longest block\n";
  }
  text += "  busy      ";
  bool isFirst = true;
  for (const auto &[pipe, share] : clocks.pipes)
    if (share >= 0.005) {
      text += format("%s%s %.0f %%", isFirst ? "" : ", ", pipe.c_str(),
                     100 * share);
      isFirst = false;
    }
  text += "\n  waits     cycles of a warp in a block, share of its time\n";
  for (size_t i = 0; i < clocks.waits.size() && i < kMostWaits; ++i) {
    const LaunchClocks::Wait &wait = clocks.waits[i];
    text += format("%12.0f %5.1f %%  ", wait.cycles, 100 * wait.share) +
            wait.who + " at " + wait.where + ", for " + wait.whom + "\n";
  }
  const char *title = "  estimate  ";
  for (const LaunchClocks::Estimate &estimate : clocks.estimates) {
    text += title + estimate.device;
    if (const std::optional<Times> &times = estimate.milliseconds) {
      auto [least, most] = std::minmax_element(times->begin(), times->end());
      text += format(": %.4g ms, %.4g to %.4g, at %.4g GHz, without the "
                     "launch\n",
                     (*times)[kMiddle], *least, *most, estimate.gigahertz);
    } else {
      text += ": none, as it has no products of warpgroups; compile for "
              "--chip=sm_100\n";
    }
    title = "            ";
  }
  return text;
}
