//===- Ops.h - Operations of the device -------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An operation is one call in device code of an intrinsic or of inline
// assembly. Its operands and results travel in 64-bit slots.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EMULATOR_RUNTIME_OPS_H
#define FOVEA_LIB_EMULATOR_RUNTIME_OPS_H

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fovea::simt {

using Slot = uint64_t;

struct AsmProgram;
struct Op;
struct Thread;
struct Warp;
struct Warpgroup;

/// Most operands and most results of an operation.
constexpr unsigned kMaxSlots = 320;

enum class OpKind : uint8_t {
  /// Each thread for itself.
  Lane,
  /// All lanes of a mask together; the last to arrive does the work.
  Warp,
  /// All 128 threads of a warpgroup together.
  Warpgroup,
  /// A sequence of instructions in inline assembly.
  Program
};

using LaneHandler = void (*)(Thread &thread, const Op &op, const Slot *in,
                             Slot *out);
/// in[lane] and out[lane] are set for the lanes of `mask`.
using WarpHandler = void (*)(Warp &warp, const Op &op, const Slot *const *in,
                             Slot *const *out, uint32_t mask);
using GroupHandler = void (*)(Warpgroup &group, const Op &op,
                              const Slot *const *in, Slot *const *out);

/// Operands that are no member mask.
enum MaskOperand : int8_t {
  /// All 32 lanes take part; the warp must be whole.
  AllLanes = -1,
  /// The lanes that have not left the kernel take part.
  LiveLanes = -2
};

struct Op {
  /// Intrinsic or PTX instruction.
  std::string name;
  /// Where it is in the kernel, for messages.
  std::string where;
  OpKind kind = OpKind::Lane;
  LaneHandler lane = nullptr;
  WarpHandler warp = nullptr;
  GroupHandler group = nullptr;
  /// Operand with the member mask of a warp operation, or a MaskOperand.
  int8_t mask = AllLanes;
  /// It only looks whether something has changed.
  bool polls = false;
  unsigned numIn = 0, numOut = 0;
  /// What the handler needs to know of the name: shapes, types, variants.
  int param[8] = {};
  std::shared_ptr<AsmProgram> program;
  /// Position in the counters of the module.
  unsigned index = 0;
};

/// Operations of a module. Addresses of the elements are in its code.
struct OpTable {
  std::vector<std::unique_ptr<Op>> ops;

  Op &add(std::string name, std::string where) {
    ops.push_back(std::make_unique<Op>());
    Op &op = *ops.back();
    op.name = std::move(name);
    op.where = std::move(where);
    op.index = ops.size() - 1;
    return op;
  }
};

/// Fills handler, kind and parameters of the intrinsic `op.name`, whose numbers
/// of operands and results are set. False if it is not known.
bool bindIntrinsic(Op &op);

/// The same for a PTX instruction; sets the number of results among `numSlots`
/// operands. False if it is not known.
bool bindInstruction(Op &op, unsigned numSlots);

/// Parses inline assembly whose placeholders $0, $1, ... number first the
/// results and then the operands of `op`. Operand i of `op` is the initial
/// value of result tied[i] unless that is -1. Returns an error text, empty on
/// success.
std::string bindAsm(OpTable &table, Op &op, const std::string &text,
                    const std::vector<int> &tied);

/// Number of the special register, -1 if unknown, of
/// llvm.nvvm.read.ptx.sreg.<name> or %<name>.
int findSpecialRegister(const std::string &name);

} // namespace fovea::simt

extern "C" {
// What rewritten code calls.
void fovea_simt_execute(const fovea::simt::Op *op, const uint64_t *in,
                        uint64_t *out);
/// The value of a special register; narrower ones use its low bits.
uint64_t fovea_simt_register(uint32_t number);
char *fovea_simt_shared(void);
/// The value of a register that a warpgroup product may have written.
uint32_t fovea_simt_accumulator(uint32_t bits, const fovea::simt::Op *op);
/// After a register was written that a warpgroup product takes: a stamp, by
/// which the product checks that a fence came in between.
uint32_t fovea_simt_written(void);
void fovea_simt_check_written(uint32_t stamp, const fovea::simt::Op *op);
/// Before a load (kind 0), a store (1) or an atomic operation (2).
void fovea_simt_access(const void *address, uint32_t bytes, uint32_t kind,
                       uint32_t alignment, const fovea::simt::Op *op);
/// Before what Work says of a piece of code; `work` is one.
void fovea_simt_spend(const void *work);
/// At the end of a loop that may wait for another thread.
void fovea_simt_pause(const fovea::simt::Op *op);
void fovea_simt_trap(const fovea::simt::Op *op);
}

#endif // FOVEA_LIB_EMULATOR_RUNTIME_OPS_H
