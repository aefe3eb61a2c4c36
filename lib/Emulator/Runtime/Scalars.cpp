//===- Scalars.cpp - Arithmetic and special registers ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Approximate instructions are computed to the last bit: kernels must not rely
// on more than the device gives, which numerical tests see.
//
//===----------------------------------------------------------------------===//

#include "Handlers.h"
#include "Numbers.h"

#include <chrono>
#include <map>

using namespace fovea::simt;

namespace {

/// What op.param[1] says of the operands.
enum Type {
  TypeF32,
  TypeF64,
  TypeF16,
  TypeBF16,
  TypeF16x2,
  TypeBF16x2,
  TypeU32,
  TypeS32,
  TypeU64,
  TypeS64,
  TypePred,
  NoType
};

} // namespace

static Type findType(const std::string &word) {
  static const std::map<std::string, Type> types = {
      {"f", TypeF32},         {"f32", TypeF32},     {"d", TypeF64},
      {"f64", TypeF64},       {"f16", TypeF16},     {"bf16", TypeBF16},
      {"f16x2", TypeF16x2},   {"v2f16", TypeF16x2}, {"bf16x2", TypeBF16x2},
      {"v2bf16", TypeBF16x2}, {"u32", TypeU32},     {"b32", TypeU32},
      {"s32", TypeS32},       {"u64", TypeU64},     {"b64", TypeU64},
      {"s64", TypeS64},       {"pred", TypePred},   {"i32", TypeS32},
      {"u16", TypeU32},       {"b16", TypeU32},     {"i", TypeS32}};
  auto it = types.find(word);
  return it == types.end() ? NoType : it->second;
}

//===----------------------------------------------------------------------===//
// Floating point
//===----------------------------------------------------------------------===//

/// Applies `function` to the operands as floats or doubles, or to each half.
template <unsigned N, typename Function>
static void compute(const Op &op, const Slot *in, Slot *out,
                    Function function) {
  Type type = Type(op.param[1]);
  if (type == TypeF64) {
    double value[3] = {};
    for (unsigned i = 0; i < N; ++i)
      value[i] = toDouble(in[i]);
    out[0] = toBits(function(value));
    return;
  }
  auto single = [&](auto load) {
    float value[3] = {};
    for (unsigned i = 0; i < N; ++i) {
      value[i] = load(in[i]);
      if (op.param[0])
        value[i] = flush(value[i]);
    }
    float result = function(value);
    return op.param[0] ? flush(result) : result;
  };
  if (type == TypeF32) {
    out[0] = toBits(single([](Slot bits) { return toFloat(bits); }));
    return;
  }
  unsigned halves = type == TypeF16x2 || type == TypeBF16x2 ? 2 : 1;
  bool bf16 = type == TypeBF16 || type == TypeBF16x2;
  uint32_t result = 0;
  for (unsigned half = 0; half < halves; ++half) {
    float value =
        single([&](Slot bits) { return halfToFloat(bf16, bits, half); });
    result |= toHalfBits(bf16, value) << 16 * half;
  }
  out[0] = result;
}

#define FOVEA_FLOAT(name, count, expression)                                   \
  static FOVEA_SIMT_LANE(name) {                                               \
    compute<count>(op, in, out, [](auto *x) { return expression; });           \
  }
FOVEA_FLOAT(ex2, 1, std::exp2(x[0]))
FOVEA_FLOAT(lg2, 1, std::log2(x[0]))
FOVEA_FLOAT(rcp, 1, 1 / x[0])
FOVEA_FLOAT(rsqrt, 1, 1 / std::sqrt(x[0]))
FOVEA_FLOAT(root, 1, std::sqrt(x[0]))
FOVEA_FLOAT(sine, 1, std::sin(x[0]))
FOVEA_FLOAT(cosine, 1, std::cos(x[0]))
FOVEA_FLOAT(tangent, 1, std::tanh(x[0]))
FOVEA_FLOAT(absolute, 1, std::fabs(x[0]))
FOVEA_FLOAT(negative, 1, -x[0])
FOVEA_FLOAT(fusedMultiplyAdd, 3, std::fma(x[0], x[1], x[2]))
FOVEA_FLOAT(addFloats, 2, x[0] + x[1])
FOVEA_FLOAT(subtractFloats, 2, x[0] - x[1])
FOVEA_FLOAT(multiplyFloats, 2, x[0] * x[1])
FOVEA_FLOAT(divideFloats, 2, x[0] / x[1])
FOVEA_FLOAT(maximum, 2, std::fmax(x[0], x[1]))
FOVEA_FLOAT(minimum, 2, std::fmin(x[0], x[1]))
FOVEA_FLOAT(maximumOrNaN, 2,
            x[0] != x[0] || x[1] != x[1] ? x[0] + x[1] : std::fmax(x[0], x[1]))
FOVEA_FLOAT(minimumOrNaN, 2,
            x[0] != x[0] || x[1] != x[1] ? x[0] + x[1] : std::fmin(x[0], x[1]))
#undef FOVEA_FLOAT

/// Two floats to one register; the first operand goes to the upper half.
static FOVEA_SIMT_LANE(packHalves) {
  bool bf16 = op.param[1] == TypeBF16x2;
  auto convert = [&](Slot bits) {
    float value = toFloat(bits);
    if (op.param[2])
      value = value > 0 ? value : 0;
    return toHalfBits(bf16, value);
  };
  out[0] = convert(in[0]) << 16 | convert(in[1]);
}

static FOVEA_SIMT_LANE(toHalf) {
  out[0] = toHalfBits(op.param[1] == TypeBF16, toFloat(in[0]));
}

static FOVEA_SIMT_LANE(fromHalf) {
  out[0] = toBits(halfToFloat(op.param[1] == TypeBF16, in[0]));
}

/// To nearest, ties away from zero.
static FOVEA_SIMT_LANE(toTF32) {
  uint32_t bits = in[0];
  out[0] =
      (bits & 0x7f800000) == 0x7f800000 ? bits : (bits + 0x1000) & 0xffffe000;
}

//===----------------------------------------------------------------------===//
// Integers, as inline assembly uses them
//===----------------------------------------------------------------------===//

static FOVEA_SIMT_LANE(copySlot) { out[0] = in[0]; }

static bool isWide(const Op &op) {
  return op.param[1] == TypeU64 || op.param[1] == TypeS64;
}
static bool isSigned(const Op &op) {
  return op.param[1] == TypeS32 || op.param[1] == TypeS64;
}
static Slot narrow(const Op &op, Slot value) {
  if (op.param[1] == TypePred)
    return value & 1;
  return isWide(op) ? value : uint32_t(value);
}

#define FOVEA_INTEGER(name, expression)                                        \
  static FOVEA_SIMT_LANE(name) {                                               \
    Slot a = narrow(op, in[0]), b = op.numIn > 1 ? narrow(op, in[1]) : 0;      \
    (void)b;                                                                   \
    out[0] = narrow(op, expression);                                           \
  }
FOVEA_INTEGER(addIntegers, a + b)
FOVEA_INTEGER(subtractIntegers, a - b)
FOVEA_INTEGER(multiplyIntegers, a *b)
FOVEA_INTEGER(bitAnd, a &b)
FOVEA_INTEGER(bitOr, a | b)
FOVEA_INTEGER(bitXor, a ^ b)
FOVEA_INTEGER(bitNot, ~a)
FOVEA_INTEGER(shiftLeft, b > 63 ? 0 : a << b)
FOVEA_INTEGER(shiftRight,
              isSigned(op)
                  ? (isWide(op) ? Slot(int64_t(a) >> (b > 63 ? 63 : b))
                                : Slot(int32_t(a) >> (b > 31 ? 31 : b)))
                  : (b > 63 ? 0 : a >> b))
#undef FOVEA_INTEGER

static FOVEA_SIMT_LANE(selectSlot) { out[0] = in[2] & 1 ? in[0] : in[1]; }

/// param[2]: 0 eq, 1 ne, 2 lt, 3 le, 4 gt, 5 ge.
static FOVEA_SIMT_LANE(compare) {
  auto decide = [&](auto a, auto b) -> bool {
    switch (op.param[2]) {
    case 0:
      return a == b;
    case 1:
      return a != b;
    case 2:
      return a < b;
    case 3:
      return a <= b;
    case 4:
      return a > b;
    default:
      return a >= b;
    }
  };
  switch (op.param[1]) {
  case TypeF32:
    out[0] = decide(toFloat(in[0]), toFloat(in[1]));
    break;
  case TypeF64:
    out[0] = decide(toDouble(in[0]), toDouble(in[1]));
    break;
  case TypeS32:
    out[0] = decide(int32_t(in[0]), int32_t(in[1]));
    break;
  case TypeS64:
    out[0] = decide(int64_t(in[0]), int64_t(in[1]));
    break;
  default:
    out[0] = decide(narrow(op, in[0]), narrow(op, in[1]));
    break;
  }
}

//===----------------------------------------------------------------------===//
// Binding
//===----------------------------------------------------------------------===//

bool fovea::simt::bindScalar(Op &op, const Words &words) {
  const std::string &base = words[0];
  op.param[0] = contains(words, "ftz");
  Type type = NoType;
  for (const std::string &word : words)
    if (Type found = findType(word); found != NoType)
      type = found;
  op.param[1] = type;
  bool isFloat = type <= TypeBF16x2;
  auto use = [&](LaneHandler handler, bool known = true) {
    op.lane = handler;
    return known;
  };

  static const std::map<std::string, LaneHandler> floats = {
      {"ex2", ex2},         {"lg2", lg2},      {"rcp", rcp},
      {"rsqrt", rsqrt},     {"sqrt", root},    {"sin", sine},
      {"cos", cosine},      {"tanh", tangent}, {"abs", absolute},
      {"fabs", absolute},   {"neg", negative}, {"fma", fusedMultiplyAdd},
      {"div", divideFloats}};
  auto it = floats.find(base);
  // Other roundings than to nearest are not emulated.
  bool otherRounding = contains(words, "rz") || contains(words, "rm") ||
                       contains(words, "rp") || contains(words, "sat");
  if (it != floats.end())
    return use(it->second, isFloat && !otherRounding);
  bool nan = contains(words, "NaN") || contains(words, "nan");
  if (base == "max" || base == "fmax")
    return use(nan ? maximumOrNaN : maximum, isFloat && op.numIn == 2);
  if (base == "min" || base == "fmin")
    return use(nan ? minimumOrNaN : minimum, isFloat && op.numIn == 2);
  if (base == "add")
    return use(isFloat ? addFloats : addIntegers,
               type != NoType && !otherRounding);
  if (base == "sub")
    return use(isFloat ? subtractFloats : subtractIntegers,
               type != NoType && !otherRounding);
  if (base == "mul")
    return use(isFloat ? multiplyFloats : multiplyIntegers,
               type != NoType && !otherRounding &&
                   (isFloat || contains(words, "lo")));
  static const std::map<std::string, LaneHandler> integers = {
      {"and", bitAnd}, {"or", bitOr},      {"xor", bitXor},
      {"not", bitNot}, {"shl", shiftLeft}, {"shr", shiftRight}};
  if (auto other = integers.find(base); other != integers.end())
    return use(other->second, type != NoType);
  if (base == "mov" || base == "cvta")
    return use(copySlot);
  if (base == "selp")
    return use(selectSlot, op.numIn == 3);
  if (base == "setp") {
    op.param[2] = findAny(words, {"eq", "ne", "lt", "le", "gt", "ge"});
    return use(compare, op.param[2] >= 0 && op.numIn == 2);
  }
  // cvt.rn.bf16x2.f32 and its like; llvm.nvvm.ff2bf16x2.rn.
  bool relu = contains(words, "relu");
  op.param[2] = relu;
  if (base == "ff2bf16x2" || base == "ff2f16x2") {
    op.param[1] = base == "ff2bf16x2" ? TypeBF16x2 : TypeF16x2;
    return use(packHalves, !otherRounding);
  }
  if (base == "f2bf16" || base == "f2f16") {
    op.param[1] = base == "f2bf16" ? TypeBF16 : TypeF16;
    return use(toHalf, !otherRounding && !relu);
  }
  if (base == "f2tf32")
    return use(toTF32, contains(words, "rna"));
  if (base == "cvt" && words.size() >= 3 && !contains(words, "sat")) {
    const std::string &to = words[words.size() - 2], &from = words.back();
    op.param[1] = findType(to);
    if ((to == "bf16x2" || to == "f16x2") && from == "f32")
      return use(packHalves, contains(words, "rn") && op.numIn == 2);
    if ((to == "bf16" || to == "f16") && from == "f32")
      return use(toHalf, contains(words, "rn") && !relu);
    if (to == "f32" && (from == "bf16" || from == "f16")) {
      op.param[1] = findType(from);
      return use(fromHalf);
    }
    if (to == "tf32" && from == "f32")
      return use(toTF32, contains(words, "rna"));
    // The upper half of a slot is not looked at.
    if ((to == "u32" || to == "u64" || to == "b32") && from[0] == 'u')
      return use(addIntegers);
  }
  return false;
}

//===----------------------------------------------------------------------===//
// Special registers
//===----------------------------------------------------------------------===//

static uint64_t getNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

namespace {
struct SpecialRegister {
  const char *name;
  uint64_t (*read)(const Block &block, const Thread &thread);
};
} // namespace

/// Of clusters, from numbers of blocks.
static Dim3 countClusters(const Block &block, Dim3 blocks) {
  Dim3 extent = block.cluster->extent;
  return {blocks.x / extent.x, blocks.y / extent.y, blocks.z / extent.z};
}

#define FOVEA_REGISTER(name, value)                                            \
  SpecialRegister {                                                            \
    name, [](const Block &block, const Thread &thread) -> uint64_t {           \
      return value;                                                            \
    }                                                                          \
  }
#define FOVEA_VECTOR(name, value)                                              \
  FOVEA_REGISTER(name ".x", value.x), FOVEA_REGISTER(name ".y", value.y),      \
      FOVEA_REGISTER(name ".z", value.z)
static const SpecialRegister specialRegisters[] = {
    FOVEA_VECTOR("tid", thread.position),
    FOVEA_VECTOR("ntid", block.extent),
    FOVEA_VECTOR("ctaid", block.index),
    FOVEA_VECTOR("nctaid", block.grid),
    FOVEA_VECTOR("cluster.ctaid", block.place),
    FOVEA_VECTOR("cluster.nctaid", block.cluster->extent),
    FOVEA_VECTOR("clusterid", countClusters(block, block.index)),
    FOVEA_VECTOR("nclusterid", countClusters(block, block.grid)),
    FOVEA_REGISTER("cluster.ctarank", block.rank),
    FOVEA_REGISTER("cluster.nctarank", block.cluster->blocks.size()),
    FOVEA_REGISTER("laneid", thread.lane),
    FOVEA_REGISTER("lanemask.eq", 1u << thread.lane),
    FOVEA_REGISTER("lanemask.lt", (1u << thread.lane) - 1),
    FOVEA_REGISTER("lanemask.le", (2u << thread.lane) - 1),
    FOVEA_REGISTER("lanemask.gt", uint32_t(-(2u << thread.lane))),
    FOVEA_REGISTER("lanemask.ge", uint32_t(-(1u << thread.lane))),
    FOVEA_REGISTER("warpid", thread.warp->id),
    FOVEA_REGISTER("nwarpid", block.warps.size()),
    FOVEA_REGISTER("warpsize", 32),
    FOVEA_REGISTER("smid", 0),
    FOVEA_REGISTER("nsmid", 1),
    FOVEA_REGISTER("gridid", 0),
    FOVEA_REGISTER("clock", getNanoseconds()),
    FOVEA_REGISTER("clock64", getNanoseconds()),
    FOVEA_REGISTER("globaltimer", getNanoseconds()),
    FOVEA_REGISTER("globaltimer.lo", getNanoseconds()),
    FOVEA_REGISTER("dynamic_smem_size", block.dynamicShared),
    FOVEA_REGISTER("total_smem_size", block.sharedBytes)};
#undef FOVEA_VECTOR
#undef FOVEA_REGISTER

int fovea::simt::findSpecialRegister(const std::string &name) {
  std::string wanted = name;
  // PTX writes lanemask_eq where intrinsics write lanemask.eq.
  if (wanted.rfind("lanemask_", 0) == 0)
    wanted[8] = '.';
  int number = 0;
  for (const SpecialRegister &known : specialRegisters) {
    if (wanted == known.name)
      return number;
    ++number;
  }
  return -1;
}

uint64_t fovea_simt_register(uint32_t number) {
  const Block &block = *currentBlock;
  return specialRegisters[number].read(block, *block.current);
}
