// RUN: fovea-opt %s --attn-cpu-pipeline --split-input-file --remarks-filter='attn.*' --remark-policy=all --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s
// RUN: fovea-opt %s --attn-expand-patterns --attn-select-tiles --split-input-file | FileCheck %s --check-prefix=STREAM

// What a region removes by integers is skipped in tiles; the condition is the
// same for a tile of the gradient. It is causal, but none that becomes a mask.
// CHECK: [Passed] ScoreTilesSkipped | Category:attn.stream | Bounded=1, Conditions=1
// STREAM: attn.stream query
func.func @causal(%q: tensor<1x1x300x16xf32>, %init: tensor<1x1x300x16xf32>) -> tensor<1x1x300x16xf32> {
  %out = attn.dense ins(%q, %q, %q : tensor<1x1x300x16xf32>, tensor<1x1x300x16xf32>, tensor<1x1x300x16xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %width = arith.constant 1024 : index
      %zero = arith.constant 0 : index
      %distance = arith.subi %i, %j : index
      %quotient = arith.floordivsi %distance, %width : index
      %admits = arith.cmpi sge, %quotient, %zero : index
      %removed = arith.constant 0xFF800000 : f32
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x1x300x16xf32>) -> tensor<1x1x300x16xf32>
  return %out : tensor<1x1x300x16xf32>
}

// -----

// Of two conditions one is bounded: by the numbers of documents of a tile.
// CHECK: [Passed] ScoreTilesSkipped | Category:attn.stream | Bounded=1, Conditions=2
// STREAM: attn.stream query
func.func @documents(%q: tensor<1x1x300x16xf32>, %ids: tensor<1x300xi64>, %init: tensor<1x1x300x16xf32>)
    -> tensor<1x1x300x16xf32> {
  %out = attn.dense ins(%q, %q, %q : tensor<1x1x300x16xf32>, tensor<1x1x300x16xf32>, tensor<1x1x300x16xf32>)
    score(%ids : tensor<1x300xi64>) {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %id: tensor<1x300xi64>):
      %own = tensor.extract %id[%b, %i] : tensor<1x300xi64>
      %other = tensor.extract %id[%b, %j] : tensor<1x300xi64>
      %same = arith.cmpi eq, %own, %other : i64
      %removed = arith.constant 0xFF800000 : f32
      %t = arith.select %same, %s, %removed : f32
      %zero = arith.constant 0.0 : f32
      %negative = arith.cmpf olt, %t, %zero : f32
      %u = arith.select %negative, %removed, %t : f32
      attn.yield %u : f32
    }
    outs(%init : tensor<1x1x300x16xf32>) -> tensor<1x1x300x16xf32>
  return %out : tensor<1x1x300x16xf32>
}

// -----

// Numbers are not bounded, nor are reads at an index that is computed from them.
// CHECK: [Missed] ScoreTilesSkipped | Category:attn.stream | Bounded=0, Conditions=1
// STREAM: attn.stream query
func.func @numbers(%q: tensor<1x1x300x16xf32>, %table: tensor<8xf32>, %init: tensor<1x1x300x16xf32>)
    -> tensor<1x1x300x16xf32> {
  %out = attn.dense ins(%q, %q, %q : tensor<1x1x300x16xf32>, tensor<1x1x300x16xf32>, tensor<1x1x300x16xf32>)
    score(%table : tensor<8xf32>) {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: tensor<8xf32>):
      %bucket = arith.fptosi %s : f32 to i64
      %index = arith.index_cast %bucket : i64 to index
      %term = tensor.extract %t[%index] : tensor<8xf32>
      %sum = arith.addf %s, %term : f32
      %admits = arith.cmpi sge, %i, %j : index
      %removed = arith.constant 0xFF800000 : f32
      %u = arith.select %admits, %sum, %removed : f32
      attn.yield %u : f32
    }
    outs(%init : tensor<1x1x300x16xf32>) -> tensor<1x1x300x16xf32>
  return %out : tensor<1x1x300x16xf32>
}

// -----

// Few queries have a kernel of their own.
// CHECK: [Passed] ScoreTilesSkipped | Category:attn.stream | Bounded=1, Conditions=1
// STREAM: attn.stream query
func.func @few(%q: tensor<1x1x4x16xf32>, %k: tensor<1x1x300x16xf32>, %init: tensor<1x1x4x16xf32>) -> tensor<1x1x4x16xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x1x4x16xf32>, tensor<1x1x300x16xf32>, tensor<1x1x300x16xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c256 = arith.constant 256 : index
      %distance = arith.subi %i, %j : index
      %admits = arith.cmpi slt, %distance, %c256 : index
      %removed = arith.constant 0xFF800000 : f32
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x1x4x16xf32>) -> tensor<1x1x4x16xf32>
  return %out : tensor<1x1x4x16xf32>
}

// -----

// What holds for some entries of every tile skips none.
// CHECK: [Missed] ScoreTilesSkipped | Category:attn.stream | Bounded=0, Conditions=1
// STREAM: attn.stream query
func.func @dilated(%q: tensor<1x1x300x16xf32>, %init: tensor<1x1x300x16xf32>) -> tensor<1x1x300x16xf32> {
  %out = attn.dense ins(%q, %q, %q : tensor<1x1x300x16xf32>, tensor<1x1x300x16xf32>, tensor<1x1x300x16xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c4 = arith.constant 4 : index
      %zero = arith.constant 0 : index
      %distance = arith.subi %i, %j : index
      %residue = arith.remsi %distance, %c4 : index
      %admits = arith.cmpi eq, %residue, %zero : index
      %removed = arith.constant 0xFF800000 : f32
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x1x300x16xf32>) -> tensor<1x1x300x16xf32>
  return %out : tensor<1x1x300x16xf32>
}

// -----

// Keys of a prefix, or up to the one before the query: one condition, bounded as both are.
// CHECK: [Passed] ScoreTilesSkipped | Category:attn.stream | Bounded=1, Conditions=1
// STREAM: attn.stream query
func.func @prefix(%q: tensor<1x1x300x16xf32>, %init: tensor<1x1x300x16xf32>) -> tensor<1x1x300x16xf32> {
  %out = attn.dense ins(%q, %q, %q : tensor<1x1x300x16xf32>, tensor<1x1x300x16xf32>, tensor<1x1x300x16xf32>)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c150 = arith.constant 150 : index
      %is_prefix = arith.cmpi slt, %j, %c150 : index
      %is_past = arith.cmpi sgt, %i, %j : index
      %admits = arith.ori %is_prefix, %is_past : i1
      %removed = arith.constant 0xFF800000 : f32
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    }
    outs(%init : tensor<1x1x300x16xf32>) -> tensor<1x1x300x16xf32>
  return %out : tensor<1x1x300x16xf32>
}
