//===- Recording.cpp - What warps did, in their order ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "State.h"

#include <algorithm>

using namespace fovea::simt;

void Work::add(const Work &other) {
  for (unsigned pipe = 0; pipe < NumPipes; ++pipe)
    cycles[pipe] += other.cycles[pipe];
  loads += other.loads;
  bytes += other.bytes;
}

void Work::subtract(const Work &other) {
  for (unsigned pipe = 0; pipe < NumPipes; ++pipe)
    cycles[pipe] = std::max(cycles[pipe] - other.cycles[pipe], 0.0f);
  loads = std::max(loads - other.loads, 0.0f);
}

void Work::takeMost(const Work &other) {
  for (unsigned pipe = 0; pipe < NumPipes; ++pipe)
    cycles[pipe] = std::max(cycles[pipe], other.cycles[pipe]);
  loads = std::max(loads, other.loads);
  // Each lane has its own.
  bytes += other.bytes;
}

static bool isBlocking(EventKind kind) {
  switch (kind) {
  case EventKind::Sync:
  case EventKind::Wait:
  case EventKind::WaitForMBarrier:
  case EventKind::WaitForProducts:
  case EventKind::WaitForStores:
  case EventKind::WaitForCopies:
    return true;
  default:
    return false;
  }
}

static bool contributes(EventKind kind) {
  switch (kind) {
  case EventKind::Arrive:
  case EventKind::ArriveAtMBarrier:
  case EventKind::Sync:
  case EventKind::Load:
  case EventKind::ArriveAfterCopies:
    return true;
  default:
    return false;
  }
}

void Recording::arrive(Trace &trace, unsigned lane, size_t at) {
  Work &work = trace.work[lane];
  for (size_t skipped = trace.cursors[lane]; skipped < at; ++skipped)
    work.subtract(trace.events[skipped].work);
  trace.events[at].work.takeMost(work);
  trace.events[at].lanes |= 1u << lane;
  work = Work();
  trace.cursors[lane] = at + 1;
}

void Recording::add(unsigned warp, unsigned lane, Event event) {
  Trace &trace = traces[warp];
  std::vector<Event> &events = trace.events;
  const uint32_t &cursor = trace.cursors[lane];
  auto found = std::find_if(
      events.begin() + cursor, events.end(), [&](const Event &other) {
        return other.op == event.op && other.kind == event.kind &&
               other.point == event.point && !(other.lanes >> lane & 1);
      });
  if (found != events.end()) {
    if (event.kind == EventKind::Copy)
      found->amount += event.amount;
  } else {
    // A wait stays behind all that was done before it ended. Nothing waits in
    // what does not wait, so that it may be where the lane is.
    size_t at = isBlocking(event.kind) ? events.size() : cursor;
    if (contributes(event.kind))
      ++needed[event.point];
    found = events.insert(events.begin() + at, event);
    for (uint32_t &other : trace.cursors)
      other += &other != &cursor && other > at;
    // Other lanes went past it to the next.
    if (at + 1 < events.size())
      events[at + 1].work.subtract(trace.work[lane]);
  }
  arrive(trace, lane, found - events.begin());
}

void Recording::addTogether(unsigned warp, uint32_t mask, Event event) {
  Trace &trace = traces[warp];
  if (contributes(event.kind))
    ++needed[event.point];
  trace.events.push_back(event);
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1)
      arrive(trace, lane, trace.events.size() - 1);
}

//===----------------------------------------------------------------------===//
// Of the running cluster
//===----------------------------------------------------------------------===//

static Recording *getRecording(const Block &block) {
  return block.cluster->recording.get();
}

static Event makeEvent(const Op *op, EventKind kind, uint32_t amount,
                       bool flag) {
  Event event;
  event.op = op;
  event.kind = kind;
  event.amount = amount;
  event.flag = flag;
  return event;
}

void fovea::simt::note(Thread &thread, const Op *op, EventKind kind,
                       uint32_t amount, bool flag) {
  if (Recording *recording = getRecording(*thread.block))
    recording->add(thread.warp->agent, thread.lane,
                   makeEvent(op, kind, amount, flag));
}

void fovea::simt::note(Warp &warp, uint32_t mask, const Op &op, EventKind kind,
                       uint32_t amount) {
  if (Recording *recording = getRecording(*warp.block))
    recording->addTogether(warp.agent, mask,
                           makeEvent(&op, kind, amount, /*flag=*/false));
}

/// Of `event`, and if need be a new one.
static void setPoint(Recording &recording, Event &event, uint32_t &point) {
  if (point == 0)
    point = recording.addPoint();
  event.point = point;
}

void fovea::simt::noteArrival(Thread &thread, const Op &op, EventKind kind,
                              uint32_t &point, const Block &block,
                              uint32_t amount, bool flag) {
  Recording *recording = getRecording(*thread.block);
  if (!recording)
    return;
  Event event = makeEvent(&op, kind, amount, flag);
  event.block = block.rank;
  setPoint(*recording, event, point);
  recording->add(thread.warp->agent, thread.lane, event);
}

void fovea::simt::noteArrival(Warp &warp, uint32_t mask, const Op &op,
                              EventKind kind, uint32_t &point) {
  Recording *recording = getRecording(*warp.block);
  if (!recording)
    return;
  Event event = makeEvent(&op, kind, /*amount=*/0, /*flag=*/false);
  setPoint(*recording, event, point);
  recording->addTogether(warp.agent, mask, event);
}

void fovea::simt::noteWait(Thread &thread, const Op &op, EventKind kind,
                           uint32_t point) {
  Recording *recording = getRecording(*thread.block);
  if (!recording || point == 0)
    return;
  Event event = makeEvent(&op, kind, /*amount=*/0, /*flag=*/false);
  event.point = point;
  recording->add(thread.warp->agent, thread.lane, event);
}

void fovea::simt::noteProduct(Warpgroup &group, const Op &op, uint32_t columns,
                              bool fromShared) {
  Recording *recording = getRecording(*group.block);
  if (!recording)
    return;
  Event event = makeEvent(&op, EventKind::Product, columns, fromShared);
  event.point = recording->addProduct();
  for (unsigned warp = 0; warp < 4; ++warp)
    recording->addTogether(group.getThread(warp * 32).warp->agent, ~0u, event);
}

void fovea_simt_spend(const void *work) {
  const Block &block = *currentBlock;
  const Thread &thread = *block.current;
  if (Recording *recording = getRecording(block))
    recording->spend(thread.warp->agent, thread.lane,
                     *static_cast<const Work *>(work));
}
