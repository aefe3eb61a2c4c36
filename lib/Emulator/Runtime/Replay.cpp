//===- Replay.cpp - Clocks of a multiprocessor ----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Replay.h"

#include <algorithm>
#include <deque>

using namespace fovea::simt;
using namespace fovea::simt::rates;

namespace {

/// Instructions that a warp issues before others of its quarter get a turn.
constexpr double kTurn = 32;

struct Quarter {
  std::array<double, NumPipes> free = {};
};

struct Multiprocessor {
  std::array<Quarter, 4> quarters;
  /// When the tensor cores, shared memory for them, and copies are free.
  double tensor = 0, shared = 0, link = 0;
  /// Ends of products, which are one after another.
  std::deque<double> products;
};

struct Point {
  uint32_t missing = 0;
  double time = 0;
  int last = Copies;
};

struct ProductTime {
  unsigned arrived = 0;
  double time = 0;
  /// Negative until all four warps have come.
  double end = -1;
};

struct StoreTime {
  double read = 0, done = 0;
};

struct Warp {
  const std::vector<Event> *events = nullptr;
  size_t at = 0;
  double time = 0;
  /// Of the work ahead of the event, the part that is left.
  double left = 1;
  /// It has arrived at the barrier at which it waits.
  bool hasArrived = false;
  /// Which of the copies of the cluster it is in, which block of it, its number
  /// among the warps of the cluster, and the quarter that it runs on.
  unsigned copy = 0, block = 0, agent = 0, quarter = 0;
  std::vector<uint32_t> openProducts;
  std::deque<std::vector<uint32_t>> productGroups;
  std::vector<double> openCopies;
  std::deque<std::vector<double>> copyGroups;
  std::vector<StoreTime> openStores;
  std::deque<std::vector<StoreTime>> storeGroups;

  bool isDone() const { return at == events->size(); }
};

class Replay {
public:
  Replay(const Recording &recording, unsigned blocks, unsigned copies,
         const Device &device, const Level &level);

  std::optional<Replayed> run();

private:
  /// Does a part of the work ahead of an event. True if there was any.
  bool doWork(Warp &warp, const Event &event);
  enum class Outcome {
    Done,
    /// Once more, at the time that the warp has now.
    Later,
    /// Once more when another warp has done something.
    Stuck
  };
  Outcome doEvent(Warp &warp, const Event &event);
  Outcome startProduct(Warp &warp, const Event &event);
  void load(Multiprocessor &place, double time, double bytes, double &arrival);
  void contribute(Warp &warp, uint32_t number, double time, int who);
  /// Goes on at `time`, if that is later.
  void wait(Warp &warp, const Event &event, double time, int cause);
  void findTiles();

  Point &getPoint(const Warp &warp, uint32_t number) {
    return points[warp.copy * pointsOfCluster + number];
  }
  ProductTime &getProduct(const Warp &warp, uint32_t number) {
    return products[warp.copy * productsOfCluster + number];
  }
  Multiprocessor &getPlace(const Warp &warp) { return places[warp.block]; }

  const Recording &recording;
  const Device &device;
  const Level &level;
  unsigned copies;
  size_t pointsOfCluster, productsOfCluster;
  std::vector<Multiprocessor> places;
  std::vector<Point> points;
  std::vector<ProductTime> products;
  std::vector<Warp> warps;
  /// Of the first copy, when warps came to their products and waits.
  std::vector<std::map<const Op *, std::vector<double>>> visits;
  std::vector<double> tensorCycles;
  /// A warp has contributed to a point.
  bool hasContributed = false;
  Replayed result;
};

} // namespace

Replay::Replay(const Recording &recording, unsigned blocks, unsigned copies,
               const Device &device, const Level &level)
    : recording(recording), device(device), level(level), copies(copies),
      pointsOfCluster(recording.needed.size()),
      productsOfCluster(recording.numProducts), places(blocks),
      points(copies * pointsOfCluster), products(copies * productsOfCluster),
      visits(recording.traces.size()), tensorCycles(recording.traces.size()) {
  unsigned warpsOfBlock = recording.traces.size() / blocks;
  for (unsigned copy = 0; copy < copies; ++copy) {
    for (size_t i = 0; i < pointsOfCluster; ++i)
      points[copy * pointsOfCluster + i].missing = recording.needed[i];
    for (unsigned agent = 0; agent < recording.traces.size(); ++agent) {
      Warp warp;
      warp.events = &recording.traces[agent].events;
      warp.copy = copy;
      warp.block = agent / warpsOfBlock;
      warp.quarter = (copy * warpsOfBlock + agent % warpsOfBlock) % 4;
      warp.agent = agent;
      warps.push_back(std::move(warp));
    }
  }
}

void Replay::wait(Warp &warp, const Event &event, double time, int cause) {
  if (time <= warp.time)
    return;
  if (warp.copy == 0)
    result.waited[{warp.agent, event.op, cause}] += time - warp.time;
  warp.time = time;
}

void Replay::contribute(Warp &warp, uint32_t number, double time, int who) {
  Point &point = getPoint(warp, number);
  if (time >= point.time) {
    point.time = time;
    point.last = who;
  }
  --point.missing;
  hasContributed = true;
}

void Replay::load(Multiprocessor &place, double time, double bytes,
                  double &arrival) {
  double cycles = bytes / level.rate;
  place.link = std::max(place.link, time) + cycles;
  result.busy[NumPipes + 1] += cycles;
  arrival = place.link + level.latency;
}

bool Replay::doWork(Warp &warp, const Event &event) {
  const Work &work = event.work;
  if (warp.left <= 0)
    return false;
  double part = work.cycles[Issue] * warp.left > kTurn
                    ? kTurn / work.cycles[Issue]
                    : warp.left;
  Quarter &quarter = getPlace(warp).quarters[warp.quarter];
  double end = warp.time + kIssueAlone * part * work.cycles[Issue];
  for (unsigned pipe = 0; pipe < NumPipes; ++pipe) {
    double cycles = part * work.cycles[pipe];
    if (cycles == 0)
      continue;
    if (pipe == Multiply)
      cycles *= device.product / kProduct;
    quarter.free[pipe] = std::max(quarter.free[pipe], warp.time) + cycles;
    result.busy[pipe] += cycles;
    end = std::max(end, quarter.free[pipe]);
  }
  warp.time = end;
  warp.left -= part;
  if (warp.left > 0 || (work.bytes == 0 && work.loads == 0))
    return true;
  // Loads of one basic block are under way together.
  double arrival;
  load(getPlace(warp), warp.time, work.bytes, arrival);
  if (work.loads > 0)
    wait(warp, event, arrival + level.latency * (work.loads - 1), Loads);
  return true;
}

Replay::Outcome Replay::startProduct(Warp &warp, const Event &event) {
  Multiprocessor &place = getPlace(warp);
  // The queue holds so many.
  std::deque<double> &queue = place.products;
  while (!queue.empty() && queue.front() <= warp.time)
    queue.pop_front();
  if (queue.size() >= kProductsInFlight) {
    wait(warp, event, queue[queue.size() - size_t(kProductsInFlight)],
         Products);
    return Outcome::Later;
  }
  if (warp.copy == 0)
    tensorCycles[warp.agent] += event.amount / 2.0;
  ProductTime &product = getProduct(warp, event.point);
  product.time = std::max(product.time, warp.time);
  warp.openProducts.push_back(event.point);
  if (++product.arrived < 4)
    return Outcome::Done;
  // 64 x n x 16: of operands in shared memory, 32 bytes of each row.
  double cycles = event.amount / 2.0;
  double rows = event.amount + (event.flag ? 64 : 0);
  double start = std::max(place.tensor, product.time + kProductStart);
  place.shared = std::max(place.shared, start) + rows * 32 / kSharedBytes;
  product.end = std::max(start + cycles, place.shared);
  place.tensor = product.end;
  queue.push_back(product.end);
  result.busy[NumPipes] += cycles;
  return Outcome::Done;
}

Replay::Outcome Replay::doEvent(Warp &warp, const Event &event) {
  bool mayBeTile = event.kind == EventKind::Product ||
                   event.kind == EventKind::WaitForCopies;
  double came = warp.time;
  switch (event.kind) {
  case EventKind::Nothing:
    break;
  case EventKind::Arrive:
    contribute(warp, event.point, warp.time, warp.agent);
    break;
  case EventKind::ArriveAtMBarrier:
    // Who waits takes kWake until it goes on.
    contribute(warp, event.point,
               warp.time + (event.flag ? kArriveThere : kArrive) - kWake,
               warp.agent);
    break;
  case EventKind::Sync:
    if (!warp.hasArrived)
      contribute(warp, event.point, warp.time, warp.agent);
    warp.hasArrived = true;
    [[fallthrough]];
  case EventKind::Wait:
  case EventKind::WaitForMBarrier: {
    Point &point = getPoint(warp, event.point);
    if (point.missing)
      return Outcome::Stuck;
    bool isMBarrier = event.kind == EventKind::WaitForMBarrier;
    bool isCluster = event.kind == EventKind::Wait && places.size() > 1;
    double latency = isMBarrier ? kWake : isCluster ? kArriveThere : kBarrier;
    if (point.time > warp.time)
      wait(warp, event, point.time + latency, point.last);
    else
      warp.time += isMBarrier ? kTryWait : latency;
    warp.hasArrived = false;
    break;
  }
  case EventKind::Product:
    if (startProduct(warp, event) == Outcome::Later)
      return Outcome::Later;
    break;
  case EventKind::CommitProducts:
    warp.productGroups.push_back(std::move(warp.openProducts));
    warp.openProducts.clear();
    break;
  case EventKind::WaitForProducts: {
    double end = 0;
    size_t groups = warp.productGroups.size();
    for (size_t i = 0; i + event.amount < groups; ++i)
      for (uint32_t number : warp.productGroups[i]) {
        double time = getProduct(warp, number).end;
        if (time < 0)
          return Outcome::Stuck;
        end = std::max(end, time + level.tail);
      }
    while (warp.productGroups.size() > event.amount)
      warp.productGroups.pop_front();
    wait(warp, event, end, Products);
    break;
  }
  case EventKind::Load: {
    if (!event.flag)
      warp.time += kCopyStart;
    double arrival;
    load(places[event.block], warp.time, event.amount, arrival);
    contribute(warp, event.point, arrival, Copies);
    break;
  }
  case EventKind::Store: {
    warp.time += kCopyStart;
    StoreTime store;
    load(getPlace(warp), warp.time, event.amount, store.done);
    store.read = store.done - level.latency;
    warp.openStores.push_back(store);
    break;
  }
  case EventKind::CommitStores:
    warp.storeGroups.push_back(std::move(warp.openStores));
    warp.openStores.clear();
    break;
  case EventKind::WaitForStores: {
    double end = 0;
    for (; warp.storeGroups.size() > event.amount; warp.storeGroups.pop_front())
      for (const StoreTime &store : warp.storeGroups.front())
        end = std::max(end, event.flag ? store.read : store.done);
    wait(warp, event, end, Copies);
    break;
  }
  case EventKind::Copy: {
    double arrival;
    load(getPlace(warp), warp.time, event.amount, arrival);
    warp.openCopies.push_back(arrival);
    break;
  }
  case EventKind::CommitCopies:
    warp.copyGroups.push_back(std::move(warp.openCopies));
    warp.openCopies.clear();
    break;
  case EventKind::WaitForCopies: {
    double end = 0;
    for (; warp.copyGroups.size() > event.amount; warp.copyGroups.pop_front())
      for (double arrival : warp.copyGroups.front())
        end = std::max(end, arrival);
    wait(warp, event, end, Copies);
    break;
  }
  case EventKind::ArriveAfterCopies: {
    double end = warp.time;
    for (const auto &group : warp.copyGroups)
      for (double arrival : group)
        end = std::max(end, arrival);
    for (double arrival : warp.openCopies)
      end = std::max(end, arrival);
    warp.copyGroups.clear();
    warp.openCopies.clear();
    contribute(warp, event.point, end, Copies);
    break;
  }
  }
  if (mayBeTile && warp.copy == 0)
    visits[warp.agent][event.op].push_back(came);
  return Outcome::Done;
}

/// A tile is a round of a warp through the product that it starts most often,
/// or, if it has none, through the wait for copies; what is ahead of the loop
/// and behind it counts by its products.
void Replay::findTiles() {
  size_t most = 1;
  for (unsigned agent = 0; agent < recording.traces.size(); ++agent) {
    size_t rounds = 0;
    const Op *first = nullptr;
    double ofRounds = 0;
    bool hasProducts = tensorCycles[agent] > 0;
    for (const Event &event : recording.traces[agent].events) {
      if (event.kind !=
          (hasProducts ? EventKind::Product : EventKind::WaitForCopies))
        continue;
      size_t times = visits[agent][event.op].size();
      if (times > rounds) {
        rounds = times;
        first = event.op;
      }
    }
    if (rounds <= most)
      continue;
    most = rounds;
    for (const Event &event : recording.traces[agent].events)
      if (event.kind == EventKind::Product &&
          visits[agent][event.op].size() == rounds)
        ofRounds += event.amount / 2.0;
    const std::vector<double> &times = visits[agent][first];
    result.tiles = rounds;
    result.tilesBeside = 1;
    if (hasProducts) {
      // Ahead of the first round, and from the last visit on.
      double ahead = 0, behind = 0;
      size_t visit = 0;
      for (const Event &event : recording.traces[agent].events) {
        if (event.kind != EventKind::Product)
          continue;
        if (event.op == first)
          ++visit;
        if (visit == 0)
          ahead += event.amount / 2.0;
        if (visit == rounds)
          behind += event.amount / 2.0;
      }
      double ofTile = ofRounds / rounds;
      result.tiles = tensorCycles[agent] / ofTile;
      result.tilesBeside = (ahead + behind) / ofTile;
    }
    result.rounds.clear();
    for (size_t i = 1; i < times.size(); ++i)
      result.rounds.push_back(times[i] - times[i - 1]);
  }
}

std::optional<Replayed> Replay::run() {
  std::vector<bool> isStuck(warps.size());
  for (;;) {
    Warp *next = nullptr;
    bool isLeft = false;
    for (size_t i = 0; i < warps.size(); ++i) {
      Warp &warp = warps[i];
      if (warp.isDone())
        continue;
      isLeft = true;
      if (!isStuck[i] && (!next || warp.time < next->time))
        next = &warp;
    }
    if (!isLeft)
      break;
    if (!next)
      return std::nullopt;
    const Event &event = (*next->events)[next->at];
    if (doWork(*next, event))
      continue;
    hasContributed = false;
    Outcome outcome = doEvent(*next, event);
    // What it did may be what others lack.
    if (outcome == Outcome::Done || hasContributed)
      isStuck.assign(warps.size(), false);
    if (outcome == Outcome::Stuck)
      isStuck[next - warps.data()] = true;
    if (outcome != Outcome::Done)
      continue;
    ++next->at;
    next->left = 1;
  }
  findTiles();
  std::vector<double> ends(copies);
  for (const Warp &warp : warps)
    ends[warp.copy] = std::max(ends[warp.copy], warp.time);
  // What has been stored must have left.
  for (double &end : ends)
    for (const Multiprocessor &place : places)
      end = std::max(end, place.link);
  for (double end : ends)
    result.cycles += end / copies;
  for (double &cycles : result.busy)
    cycles /= copies;
  return std::move(result);
}

std::optional<Replayed> fovea::simt::replay(const Recording &recording,
                                            unsigned blocks, unsigned copies,
                                            const Device &device,
                                            const Level &level) {
  Replay replay(recording, blocks, copies, device, level);
  return replay.run();
}
