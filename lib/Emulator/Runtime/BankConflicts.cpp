//===- BankConflicts.cpp - Conflicts of ordinary accesses -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BankConflicts.h"

#include <algorithm>
#include <set>

using namespace fovea::simt;

void BankCounter::note(const Op *op, unsigned lane, uint32_t offset,
                       uint32_t bytes) {
  Site &site = sites[op];
  uint32_t number = site.made[lane]++;
  if (site.requests.size() <= number)
    site.requests.resize(number + 1);
  Request &request = site.requests[number];
  request.lanes |= 1u << lane;
  request.bytes = bytes;
  request.offsets[lane] = offset;
}

void BankCounter::flush(Counters &counters) {
  for (auto &[op, site] : sites) {
    for (const Request &request : site.requests) {
      // Wide accesses go by half or by quarter of a warp.
      unsigned groups = request.bytes <= 4 ? 1 : request.bytes <= 8 ? 2 : 4;
      unsigned lanes = 32 / groups;
      for (unsigned first = 0; first < 32; first += lanes) {
        // Lanes that want the same word get it together.
        std::array<std::set<uint32_t>, 32> words;
        size_t phases = 0;
        for (unsigned lane = first; lane < first + lanes; ++lane) {
          if (!(request.lanes >> lane & 1))
            continue;
          uint32_t begin = request.offsets[lane] / 4;
          uint32_t end = (request.offsets[lane] + request.bytes + 3) / 4;
          for (uint32_t word = begin; word < end; ++word) {
            words[word % 32].insert(word);
            phases = std::max(phases, words[word % 32].size());
          }
        }
        counters.accessPhases += phases;
        counters.accessPhasesIdeal += phases != 0;
      }
    }
  }
  sites.clear();
}
