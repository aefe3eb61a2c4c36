//===- Matrices.cpp - Matrices of a warp ----------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Handlers.h"
#include "Numbers.h"

#include <algorithm>
#include <cstring>

using namespace fovea::simt;

//===----------------------------------------------------------------------===//
// ldmatrix and stmatrix
//===----------------------------------------------------------------------===//

/// Offsets of the eight rows of matrix `number`, given by eight lanes.
static void getRows(Warp &warp, const Op &op, const Slot *const *in,
                    unsigned number, uint32_t (&rows)[8]) {
  Block &block = *warp.block;
  unsigned perBank[8] = {};
  unsigned phases = 0;
  for (unsigned row = 0; row < 8; ++row) {
    rows[row] = block.getOffset(in[number * 8 + row][0], 16, op);
    if (rows[row] % 16 != 0)
      fail(&op, "the row at shared +%u is not aligned to 16 bytes", rows[row]);
    phases = std::max(phases, ++perBank[rows[row] / 16 % 8]);
  }
  block.counters->matrixPhases += phases;
  ++block.counters->matrixPhasesIdeal;
}

FOVEA_SIMT_WARP(fovea::simt::loadMatrix) {
  Block &block = *warp.block;
  Slot results[32][4];
  for (int number = 0; number < op.param[0]; ++number) {
    uint32_t rows[8];
    getRows(warp, op, in, number, rows);
    uint16_t matrix[8][8];
    for (unsigned row = 0; row < 8; ++row) {
      block.races.access(warp, rows[row], 16, Access::Read, op);
      memcpy(matrix[row], block.shared + rows[row], 16);
    }
    for (unsigned lane = 0; lane < 32; ++lane) {
      unsigned row = lane / 4, column = lane % 4 * 2;
      results[lane][number] =
          op.param[1]
              ? matrix[column][row] | uint32_t(matrix[column + 1][row]) << 16
              : matrix[row][column] | uint32_t(matrix[row][column + 1]) << 16;
    }
  }
  for (unsigned lane = 0; lane < 32; ++lane)
    std::copy_n(results[lane], op.param[0], out[lane]);
}

FOVEA_SIMT_WARP(fovea::simt::storeMatrix) {
  Block &block = *warp.block;
  for (int number = 0; number < op.param[0]; ++number) {
    uint32_t rows[8];
    getRows(warp, op, in, number, rows);
    uint16_t matrix[8][8];
    for (unsigned lane = 0; lane < 32; ++lane) {
      unsigned row = lane / 4, column = lane % 4 * 2;
      uint32_t pair = in[lane][1 + number];
      (op.param[1] ? matrix[column][row] : matrix[row][column]) = pair;
      (op.param[1] ? matrix[column + 1][row] : matrix[row][column + 1]) =
          pair >> 16;
    }
    for (unsigned row = 0; row < 8; ++row) {
      block.races.access(warp, rows[row], 16, Access::Write, op);
      memcpy(block.shared + rows[row], matrix[row], 16);
    }
  }
}

//===----------------------------------------------------------------------===//
// mma.sync
//===----------------------------------------------------------------------===//
//
// Lane 4 g + q holds, of A (m x k), rows g, g + 8, ... and of each group of
// columns those that q numbers; of B (k x n) the same with rows and columns
// exchanged; of C and D rows g, g + 8, ... and columns 2 q, 2 q + 1.

/// A and B of 16-bit elements: two columns to a register.
static void gatherHalves(const Op &op, const Slot *const *in, unsigned k,
                         float (&left)[16][16], float (&right)[16][8]) {
  unsigned numLeft = k / 4, numRight = k / 8;
  bool bf16 = op.param[3] == BF16;
  for (unsigned lane = 0; lane < 32; ++lane) {
    unsigned g = lane / 4, q = lane % 4;
    for (unsigned i = 0; i < numLeft + numRight; ++i)
      for (unsigned half = 0; half < 2; ++half) {
        float value = halfToFloat(bf16, in[lane][i], half);
        if (i < numLeft)
          left[g + i % 2 * 8][q * 2 + half + i / 2 * 8] = value;
        else
          right[q * 2 + half + (i - numLeft) * 8][g] = value;
      }
  }
}

static void gatherTF32(const Slot *const *in, unsigned k, float (&left)[16][16],
                       float (&right)[16][8]) {
  unsigned numLeft = k / 2;
  for (unsigned lane = 0; lane < 32; ++lane) {
    unsigned g = lane / 4, q = lane % 4;
    for (unsigned i = 0; i < numLeft; ++i)
      left[g + i % 2 * 8][q + i / 2 * 4] = tf32ToFloat(in[lane][i]);
    for (unsigned i = 0; i < k / 4; ++i)
      right[q + i * 4][g] = tf32ToFloat(in[lane][numLeft + i]);
  }
}

static void multiplyDoubles(const Op &op, const Slot *const *in,
                            Slot *const *out) {
  unsigned m = op.param[0], k = op.param[2];
  double left[16][16], right[16][8], sum[16][8];
  unsigned numLeft = m * k / 32, numRight = k * 8 / 32, numSums = m * 8 / 32;
  for (unsigned lane = 0; lane < 32; ++lane) {
    unsigned g = lane / 4, q = lane % 4;
    for (unsigned i = 0; i < numLeft; ++i) {
      // m8n8k4 has one row group.
      unsigned groups = m / 8;
      left[g + i % groups * 8][q + i / groups * 4] = toDouble(in[lane][i]);
    }
    for (unsigned i = 0; i < numRight; ++i)
      right[q + i * 4][g] = toDouble(in[lane][numLeft + i]);
    for (unsigned i = 0; i < numSums; ++i)
      sum[g + i / 2 * 8][q * 2 + i % 2] =
          toDouble(in[lane][numLeft + numRight + i]);
  }
  for (unsigned row = 0; row < m; ++row)
    for (unsigned i = 0; i < k; ++i)
      for (unsigned column = 0; column < 8; ++column)
        sum[row][column] =
            std::fma(left[row][i], right[i][column], sum[row][column]);
  for (unsigned lane = 0; lane < 32; ++lane)
    for (unsigned i = 0; i < numSums; ++i)
      out[lane][i] = toBits(sum[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2]);
}

FOVEA_SIMT_WARP(fovea::simt::multiplyMatrix) {
  if (op.param[3] == F64)
    return multiplyDoubles(op, in, out);
  float left[16][16], right[16][8], sum[16][8];
  unsigned k = op.param[2];
  bool tf32 = op.param[3] == TF32;
  if (tf32)
    gatherTF32(in, k, left, right);
  else
    gatherHalves(op, in, k, left, right);
  unsigned first = tf32 ? k / 2 + k / 4 : k / 4 + k / 8;
  bool halfSums = op.param[4];
  for (unsigned lane = 0; lane < 32; ++lane)
    for (unsigned i = 0; i < 4; ++i)
      sum[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] =
          halfSums
              ? halfToFloat(/*isBF16=*/false, in[lane][first + i / 2], i % 2)
              : toFloat(in[lane][first + i]);
  for (unsigned row = 0; row < 16; ++row)
    for (unsigned i = 0; i < k; ++i)
      for (unsigned column = 0; column < 8; ++column)
        sum[row][column] += left[row][i] * right[i][column];
  for (unsigned lane = 0; lane < 32; ++lane) {
    const float (*rows)[8] = &sum[lane / 4];
    unsigned column = lane % 4 * 2;
    for (unsigned i = 0; i < 2; ++i)
      if (halfSums) {
        out[lane][i] = toHalfBits(false, rows[i * 8][column]) |
                       toHalfBits(false, rows[i * 8][column + 1]) << 16;
      } else {
        out[lane][2 * i] = toBits(rows[i * 8][column]);
        out[lane][2 * i + 1] = toBits(rows[i * 8][column + 1]);
      }
  }
}
