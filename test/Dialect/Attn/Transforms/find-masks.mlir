// RUN: fovea-opt %s --canonicalize --attn-find-masks --split-input-file | FileCheck %s
// RUN: fovea-opt %s --canonicalize --attn-find-masks --split-input-file --remarks-filter='attn.*' --remark-policy=all --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// Conditions of regions that are masks become masks. What is left stays.

// -----

// Positions are those of masks, whatever the numbers of queries and keys.
// REMARK: [Passed] ConditionsAreMasks | Category:attn.dense | Left=0, Mask=#attn.mask<causal>, Taken=1
// CHECK-LABEL: func @causal(
// CHECK-NOT: score
// CHECK: mask = #attn.mask<causal>
func.func @causal(%q: tensor<1x2x7x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x7x8xf32>) -> tensor<1x2x7x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x7x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %admits = arith.cmpi sle, %j, %i : index
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x7x8xf32>) -> tensor<1x2x7x8xf32>
  return %out : tensor<1x2x7x8xf32>
}

// -----

// The other way round, and as a distance.
// CHECK-LABEL: func @turned(
// CHECK-NOT: score
// CHECK: mask = #attn.mask<causal>
func.func @turned(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %d = arith.subi %i, %j : index
      %k0 = arith.constant 0 : index
      %admits = arith.cmpi sge, %d, %k0 : index
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// `i + 1 > j`.
// CHECK-LABEL: func @one_more(
// CHECK-NOT: score
// CHECK: mask = #attn.mask<causal>
func.func @one_more(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %one = arith.constant 1 : index
      %n = arith.addi %i, %one : index
      %admits = arith.cmpi sgt, %n, %j : index
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// `not (j > i)`, and a score for what is removed.
// CHECK-LABEL: func @not_behind(
// CHECK-NOT: score
// CHECK: mask = #attn.mask<causal>
func.func @not_behind(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %behind = arith.cmpi sgt, %j, %i : index
      %admits = arith.xori %behind, %true : i1
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// A window of past keys is two conditions.
// CHECK-LABEL: func @window(
// CHECK-NOT: score
// CHECK: mask = #attn.mask<causal, window = 4>
func.func @window(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %n4 = arith.constant 4 : index
      %d = arith.subi %i, %j : index
      %past = arith.cmpi sle, %j, %i : index
      %near = arith.cmpi slt, %d, %n4 : index
      %admits = arith.andi %past, %near : i1
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// The maximum of a number and its opposite is its absolute value.
// CHECK-LABEL: func @both_sides(
// CHECK-NOT: score
// CHECK: mask = #attn.mask<window = 4>
func.func @both_sides(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %n4 = arith.constant 4 : index
      %n0 = arith.constant 0 : index
      %d = arith.subi %i, %j : index
      %e = arith.subi %n0, %d : index
      %a = arith.maxsi %d, %e : index
      %admits = arith.cmpi slt, %a, %n4 : index
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// As an operation.
// CHECK-LABEL: func @absolute(
// CHECK-NOT: score
// CHECK: mask = #attn.mask<window = 4>
func.func @absolute(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %n4 = arith.constant 4 : index
      %d = arith.subi %i, %j : index
      %a = math.absi %d : index
      %admits = arith.cmpi slt, %a, %n4 : index
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// A window of 1.
// CHECK-LABEL: func @itself(
// CHECK-NOT: score
// CHECK: mask = #attn.mask<causal, window = 1>
func.func @itself(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %n1 = arith.constant 1 : index
      %d = arith.subi %i, %j : index
      %past = arith.cmpi sle, %j, %i : index
      %near = arith.cmpi slt, %d, %n1 : index
      %admits = arith.andi %past, %near : i1
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// A prefix that all queries see.
// REMARK: [Passed] ConditionsAreMasks | Category:attn.dense | Left=0, Mask="#attn.mask<causal, prefix = 4>", Taken=1
// CHECK-LABEL: func @prefix(
// CHECK-NOT: score
// CHECK: mask = #attn.mask<causal, prefix = 4>
func.func @prefix(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %n4 = arith.constant 4 : index
      %past = arith.cmpi sle, %j, %i : index
      %first = arith.cmpi slt, %j, %n4 : index
      %admits = arith.ori %first, %past : i1
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// The same as `j <= max(i, 3)`.
// CHECK-LABEL: func @prefix_as_maximum(
// CHECK-NOT: score
// CHECK: mask = #attn.mask<causal, prefix = 4>
func.func @prefix_as_maximum(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %n3 = arith.constant 3 : index
      %last = arith.maxsi %i, %n3 : index
      %admits = arith.cmpi sle, %j, %last : index
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// A prefix of all keys leaves nothing to mask.
// CHECK-LABEL: func @prefix_beyond(
// CHECK-NOT: score
// CHECK: outs
// CHECK-NOT: mask =
func.func @prefix_beyond(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %n12 = arith.constant 12 : index
      %past = arith.cmpi sle, %j, %i : index
      %first = arith.cmpi slt, %j, %n12 : index
      %admits = arith.ori %first, %past : i1
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// One of no keys.
// CHECK-LABEL: func @no_prefix(
// CHECK-NOT: score
// CHECK: mask = #attn.mask<causal>
func.func @no_prefix(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %n-2 = arith.constant -2 : index
      %past = arith.cmpi sle, %j, %i : index
      %first = arith.cmpi slt, %j, %n-2 : index
      %admits = arith.ori %first, %past : i1
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// In 32 bits.
// CHECK-LABEL: func @narrow(
// CHECK-NOT: score
// CHECK: mask = #attn.mask<causal>
func.func @narrow(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %i32 = arith.index_cast %i : index to i32
      %j32 = arith.index_cast %j : index to i32
      %admits = arith.cmpi sle, %j32, %i32 : i32
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// `where(j > i, false, i - j < 4)`.
// CHECK-LABEL: func @selected(
// CHECK-NOT: score
// CHECK: mask = #attn.mask<causal, window = 4>
func.func @selected(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %n4 = arith.constant 4 : index
      %false = arith.constant false
      %d = arith.subi %i, %j : index
      %behind = arith.cmpi sgt, %j, %i : index
      %near = arith.cmpi slt, %d, %n4 : index
      %admits = arith.select %behind, %false, %near : i1
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// Beside a mask: the narrower one.
// CHECK-LABEL: func @tighter(
// CHECK-NOT: score
// CHECK: mask = #attn.mask<causal, window = 4>
func.func @tighter(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %n4 = arith.constant 4 : index
      %d = arith.subi %i, %j : index
      %admits = arith.cmpi slt, %d, %n4 : index
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) {mask = #attn.mask<causal, window = 6>} -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// What holds for all entries that the mask leaves goes.
// CHECK-LABEL: func @wider(
// CHECK-NOT: score
// CHECK: mask = #attn.mask<causal, window = 4>
func.func @wider(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %n6 = arith.constant 6 : index
      %d = arith.subi %i, %j : index
      %admits = arith.cmpi slt, %d, %n6 : index
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) {mask = #attn.mask<causal, window = 4>} -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// Of a conjunction the rest stays.
// REMARK: Left=1, Mask=#attn.mask<causal>, Taken=1
// CHECK-LABEL: func @dilated(
// CHECK: score
// CHECK: %[[EQUAL:.*]] = arith.cmpi eq
// CHECK: arith.select %[[EQUAL]]
// CHECK: mask = #attn.mask<causal>
func.func @dilated(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %n4 = arith.constant 4 : index
      %n0 = arith.constant 0 : index
      %d = arith.subi %i, %j : index
      %past = arith.cmpi sle, %j, %i : index
      %r = arith.remsi %d, %n4 : index
      %same = arith.cmpi eq, %r, %n0 : index
      %admits = arith.andi %same, %past : i1
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// Keys stand at 0 or behind it.
// CHECK-LABEL: func @always(
// CHECK-NOT: score
// CHECK: outs
// CHECK-NOT: mask =
func.func @always(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %n0 = arith.constant 0 : index
      %admits = arith.cmpi sge, %j, %n0 : index
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// Near misses. A query that does not see its own key.
// CHECK-LABEL: func @strict(
// CHECK: score
// CHECK: arith.cmpi slt, %{{.*}}, %{{.*}}
// CHECK: arith.select
// CHECK-NOT: mask =
func.func @strict(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %admits = arith.cmpi slt, %j, %i : index
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// Another offset.
// CHECK-LABEL: func @shifted(
// CHECK: score
// CHECK: arith.cmpi sle
// CHECK: arith.select
// CHECK-NOT: mask =
func.func @shifted(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %n1 = arith.constant 1 : index
      %n = arith.addi %i, %n1 : index
      %admits = arith.cmpi sle, %j, %n : index
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// Positions of queries may be negative.
// CHECK-LABEL: func @unsigned(
// CHECK: score
// CHECK: arith.cmpi ule
// CHECK: arith.select
// CHECK-NOT: mask =
func.func @unsigned(%q: tensor<1x2x14x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x14x8xf32>) -> tensor<1x2x14x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x14x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %admits = arith.cmpi ule, %j, %i : index
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x14x8xf32>) -> tensor<1x2x14x8xf32>
  return %out : tensor<1x2x14x8xf32>
}

// -----

// A window without causality that is not the same on both sides.
// CHECK-LABEL: func @far_side(
// CHECK: score
// CHECK: arith.cmpi slt
// CHECK: arith.select
// CHECK-NOT: mask =
func.func @far_side(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %n4 = arith.constant 4 : index
      %d = arith.subi %i, %j : index
      %admits = arith.cmpi slt, %d, %n4 : index
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// Keys of a prefix alone.
// CHECK-LABEL: func @first_keys(
// CHECK: score
// CHECK: arith.cmpi slt
// CHECK: arith.select
// CHECK-NOT: mask =
func.func @first_keys(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %n4 = arith.constant 4 : index
      %admits = arith.cmpi slt, %j, %n4 : index
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// No entry. Half of the condition is a mask.
// CHECK-LABEL: func @empty(
// CHECK: score
// CHECK: arith.cmpi slt
// CHECK: mask = #attn.mask<causal>
func.func @empty(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %n0 = arith.constant 0 : index
      %d = arith.subi %i, %j : index
      %past = arith.cmpi sle, %j, %i : index
      %near = arith.cmpi slt, %d, %n0 : index
      %admits = arith.andi %past, %near : i1
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// A prefix beside a window.
// CHECK-LABEL: func @either_window(
// CHECK: score
// CHECK: arith.select
// CHECK-NOT: mask =
func.func @either_window(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %n4 = arith.constant 4 : index
      %d = arith.subi %i, %j : index
      %past = arith.cmpi sle, %j, %i : index
      %near = arith.cmpi slt, %d, %n4 : index
      %w = arith.andi %past, %near : i1
      %first = arith.cmpi slt, %j, %n4 : index
      %admits = arith.ori %w, %first : i1
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// What 8 bits cannot hold.
// CHECK-LABEL: func @wraps(
// CHECK: score
// CHECK: arith.cmpi sle
// CHECK: arith.select
// CHECK-NOT: mask =
func.func @wraps(%q: tensor<1x2x500x8xf32>, %k: tensor<1x2x500x8xf32>, %init: tensor<1x2x500x8xf32>) -> tensor<1x2x500x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x500x8xf32>, tensor<1x2x500x8xf32>, tensor<1x2x500x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %i8 = arith.index_cast %i : index to i8
      %j8 = arith.index_cast %j : index to i8
      %admits = arith.cmpi sle, %j8, %i8 : i8
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x500x8xf32>) -> tensor<1x2x500x8xf32>
  return %out : tensor<1x2x500x8xf32>
}

// -----

// A sum that may wrap.
// CHECK-LABEL: func @overflows(
// CHECK: score
// CHECK: arith.cmpi sle
// CHECK: arith.select
// CHECK-NOT: mask =
func.func @overflows(%q: tensor<1x2x14x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x14x8xf32>) -> tensor<1x2x14x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x14x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %big = arith.constant 9223372036854775807 : index
      %n = arith.addi %i, %big : index
      %l = arith.addi %j, %big : index
      %admits = arith.cmpi sle, %l, %n : index
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x14x8xf32>) -> tensor<1x2x14x8xf32>
  return %out : tensor<1x2x14x8xf32>
}

// -----

// A number that is captured.
// CHECK-LABEL: func @of_heads(
// CHECK: score
// CHECK: arith.cmpi slt
// CHECK: arith.select
// CHECK-NOT: mask =
func.func @of_heads(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %ws: tensor<2xi64>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score(%ws : tensor<2xi64>) {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %widths: tensor<2xi64>):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %d = arith.subi %i, %j : index
      %w = tensor.extract %widths[%h] : tensor<2xi64>
      %width = arith.index_cast %w : i64 to index
      %admits = arith.cmpi slt, %d, %width : index
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// A score that is not a number.
// CHECK-LABEL: func @scores(
// CHECK: score
// CHECK: arith.cmpf
// CHECK: arith.select
// CHECK-NOT: mask =
func.func @scores(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %past = arith.cmpi sle, %j, %i : index
      %admits = arith.cmpf olt, %s, %s : f32
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// Documents, and causality.
// CHECK-LABEL: func @documents(
// CHECK: score
// CHECK: arith.cmpi eq
// CHECK: arith.select
// CHECK: mask = #attn.mask<causal>
func.func @documents(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %id: tensor<12xi64>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score(%id : tensor<12xi64>) {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %ids: tensor<12xi64>):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %past = arith.cmpi sle, %j, %i : index
      %x = tensor.extract %ids[%j] : tensor<12xi64>
      %y = tensor.extract %ids[%i] : tensor<12xi64>
      %same = arith.cmpi eq, %x, %y : i64
      %admits = arith.andi %same, %past : i1
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// Entries that are removed are NaN here, too: key 11 has no number.
// CHECK-LABEL: func @out_of_bounds(
// CHECK: score
// CHECK: arith.cmpi sle
// CHECK: arith.select
// CHECK-NOT: mask =
func.func @out_of_bounds(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %id: tensor<11xi64>, %init: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score(%id : tensor<11xi64>) {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %ids: tensor<11xi64>):
      %removed = arith.constant 0xFF800000 : f32
      %true = arith.constant true
      %past = arith.cmpi sle, %j, %i : index
      %x = tensor.extract %ids[%j] : tensor<11xi64>
      %y = tensor.extract %ids[%b] : tensor<11xi64>
      %same = arith.cmpi eq, %x, %y : i64
      %admits = arith.andi %same, %past : i1
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
  return %out : tensor<1x2x12x8xf32>
}

// -----

// Gradients. A region that only had the mask goes, unless what it captures has gradients.
// CHECK-LABEL: func @backward(
// CHECK: attn.dense_backward
// CHECK-NOT: score
// CHECK: mask = #attn.mask<causal>
// CHECK: attn.dense_backward
// CHECK: score(
// CHECK: attn.yield %{{.*}} : f32
// CHECK: d_captures
// CHECK: mask = #attn.mask<causal>
func.func @backward(%q: tensor<1x2x12x8xf32>, %lse: tensor<1x2x12xf32>, %table: tensor<2xf32>, %d: tensor<1x2x12x8xf32>, %dt: tensor<2xf32>) -> (tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<2xf32>) {
  %dq:3 = attn.dense_backward ins(%q, %q, %q : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %admits = arith.cmpi sge, %i, %j : index
      %removed = arith.constant 0xFF800000 : f32
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    forward(%q, %lse : tensor<1x2x12x8xf32>, tensor<1x2x12xf32>) gradient(%q : tensor<1x2x12x8xf32>)
    outs(%d, %d, %d : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>
  %other:4 = attn.dense_backward ins(%q, %q, %q : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
    score(%table : tensor<2xf32>) {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %of: tensor<2xf32>):
      %admits = arith.cmpi sge, %i, %j : index
      %removed = arith.constant 0xFF800000 : f32
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    forward(%q, %lse : tensor<1x2x12x8xf32>, tensor<1x2x12xf32>) gradient(%q : tensor<1x2x12x8xf32>)
    outs(%d, %d, %d : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>) d_captures(%dt : tensor<2xf32>) -> tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<2xf32>
  return %dq#0, %dq#1, %dq#2, %other#0, %other#1, %other#2, %other#3 : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>, tensor<2xf32>
}

// -----

// Of a stream: what a source removes, and what all of them do, if it is a mask of each.
// CHECK-LABEL: func @sources(
// CHECK: attn.stream
// CHECK-NOT: score
// CHECK: mask <causal, window = 4>
// CHECK: mask <causal, prefix = 3>
// CHECK: attn.stream
// CHECK-NOT: score
// CHECK: mask <window = 3>
// CHECK-NOT: score
// CHECK: mask <causal>
// CHECK: score {
// CHECK: arith.cmpi sle
func.func @sources(%q: tensor<1x2x12x8xf32>, %k: tensor<1x2x12x8xf32>, %o: tensor<1x2x12x8xf32>) -> (tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>) {
  %a = attn.stream query(%q : tensor<1x2x12x8xf32>)
    source(%k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
      score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %width = arith.constant 4 : index
        %removed = arith.constant 0xFF800000 : f32
        %d = arith.subi %i, %j : index
        %admits = arith.cmpi slt, %d, %width : index
        %t = arith.select %admits, %s, %removed : f32
        attn.yield %t : f32
      }
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
    source(%q, %q : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
      score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %last = arith.constant 2 : index
        %removed = arith.constant 0xFF800000 : f32
        %m = arith.maxsi %i, %last : index
        %admits = arith.cmpi sle, %j, %m : index
        %t = arith.select %admits, %s, %removed : f32
        attn.yield %t : f32
      }
      ranges [affine_map<(b)[rows, n] -> (0, rows)>]
    outs(%o : tensor<1x2x12x8xf32>) {scale = 1.0 : f64} -> tensor<1x2x12x8xf32>
  %c = attn.stream query(%q : tensor<1x2x12x8xf32>)
    source(%k, %k : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
      score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %width = arith.constant 3 : index
        %removed = arith.constant 0xFF800000 : f32
        %d = arith.subi %i, %j : index
        %a2 = math.absi %d : index
        %admits = arith.cmpi slt, %a2, %width : index
        %t = arith.select %admits, %s, %removed : f32
        attn.yield %t : f32
      }
      ranges [affine_map<(b)[rows, n] -> (0, rows)>]
    source(%q, %q : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %three = arith.constant 3 : index
      %removed = arith.constant 0xFF800000 : f32
      %last = arith.maxsi %i, %three : index
      %admits = arith.cmpi sle, %j, %last : index
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%o : tensor<1x2x12x8xf32>) {scale = 1.0 : f64} -> tensor<1x2x12x8xf32>
  return %a, %c : tensor<1x2x12x8xf32>, tensor<1x2x12x8xf32>
}

// -----

// Beside a slope of each head, of however many: one that is not there is
// missing for all that the mask leaves.
// CHECK-LABEL: func @slopes(
// CHECK: score
// CHECK: tensor.extract
// CHECK-NOT: arith.select
// CHECK: mask = #attn.mask<causal>
func.func @slopes(%q: tensor<?x?x?x8xf32>, %k: tensor<?x?x?x8xf32>, %slopes: tensor<?xf32>, %init: tensor<?x?x?x8xf32>) -> tensor<?x?x?x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<?x?x?x8xf32>, tensor<?x?x?x8xf32>, tensor<?x?x?x8xf32>)
    score(%slopes : tensor<?xf32>) {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: tensor<?xf32>):
      %removed = arith.constant 0xFF800000 : f32
      %d = arith.subi %j, %i : index
      %wide = arith.index_cast %d : index to i64
      %number = arith.sitofp %wide : i64 to f32
      %slope = tensor.extract %c[%h] : tensor<?xf32>
      %term = arith.mulf %slope, %number : f32
      %sum = arith.addf %s, %term : f32
      %admits = arith.cmpi sge, %i, %j : index
      %t = arith.select %admits, %sum, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<?x?x?x8xf32>) -> tensor<?x?x?x8xf32>
  return %out : tensor<?x?x?x8xf32>
}

// -----

// A table by distance may be too short for some of them.
// CHECK-LABEL: func @table(
// CHECK: score
// CHECK: arith.select
// CHECK-NOT: mask =
func.func @table(%q: tensor<?x?x?x8xf32>, %k: tensor<?x?x?x8xf32>, %terms: tensor<?xf32>, %init: tensor<?x?x?x8xf32>) -> tensor<?x?x?x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<?x?x?x8xf32>, tensor<?x?x?x8xf32>, tensor<?x?x?x8xf32>)
    score(%terms : tensor<?xf32>) {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %c: tensor<?xf32>):
      %removed = arith.constant 0xFF800000 : f32
      %term = tensor.extract %c[%j] : tensor<?xf32>
      %sum = arith.addf %s, %term : f32
      %admits = arith.cmpi sge, %i, %j : index
      %t = arith.select %admits, %sum, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<?x?x?x8xf32>) -> tensor<?x?x?x8xf32>
  return %out : tensor<?x?x?x8xf32>
}
