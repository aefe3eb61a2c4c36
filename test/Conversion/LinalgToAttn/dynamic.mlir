// RUN: fovea-opt %s --attn-raise --canonicalize | FileCheck %s
// RUN: fovea-opt %s --attn-raise='fully-masked=refuse' --canonicalize | FileCheck %s --check-prefix=REFUSE
// RUN: fovea-run %s --entry=causal --random --shape=2x37x8 --compare=reference
// RUN: fovea-run %s --entry=causal --random --shape=1x1x8 --compare=reference
// RUN: fovea-run %s --entry=window --random --shape=1x130x8 --compare=reference
// RUN: fovea-run %s --entry=both_sides --random --shape=3x65x8 --compare=reference
// RUN: fovea-run %s --entry=cross --random --shape=5x8 --shape=9x8 --compare=reference
// RUN: fovea-run %s --entry=cross --random --shape=9x8 --shape=5x8 --compare=reference
// RUN: fovea-run %s --entry=heads --random --shape=2x37x12 --compare=reference
// RUN: fovea-run %s --entry=found --random --shape=4x8x2 --compare=reference
// RUN: not fovea-run %s --entry=found --random --shape=4x8x3 2>&1 | FileCheck %s --check-prefix=FOUND
// FOUND: @found failed: tensor.cast: extent 1 differs from the type, expected 16, but got 24
// RUN: fovea-run %s --entry=causal --random --shape=2x37x8 --target=gpu-sim --compare=reference
// RUN: fovea-run %s --entry=window --random --shape=1x130x8 --target=gpu-sim --compare=reference
// RUN: fovea-run %s --entry=both_sides --random --shape=3x65x8 --target=gpu-sim --compare=reference
// RUN: fovea-run %s --entry=cross --random --shape=5x8 --shape=9x8 --target=gpu-sim --compare=reference
// RUN: fovea-run %s --entry=heads --random --shape=2x37x12 --target=gpu-sim --compare=reference

// Extents that are not known are compared by where they come from. Masks of positions are read from their comparisons.

#x = affine_map<(b, n, m) -> (b, n, m)>
#q = affine_map<(b, n, m, d) -> (b, n, d)>
#k = affine_map<(b, n, m, d) -> (b, m, d)>
#s = affine_map<(b, n, m, d) -> (b, n, m)>

// CHECK-LABEL: func.func @causal(
// CHECK: attn.dense {{.*}}{mask = #attn.mask<causal>
// REFUSE-LABEL: func.func @causal(
// REFUSE: attn.dense
func.func @causal(%x: tensor<?x?x8xf32>) -> tensor<?x?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %b = tensor.dim %x, %c0 : tensor<?x?x8xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?x8xf32>
  %e = tensor.empty(%b, %n, %n) : tensor<?x?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %x : tensor<?x?x8xf32>, tensor<?x?x8xf32>) outs(%z : tensor<?x?x?xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<?x?x?xf32>
  %masked = linalg.generic {indexing_maps = [#x, #x], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<?x?x?xf32>) outs(%e : tensor<?x?x?xf32>) {
  ^bb0(%score: f32, %o: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %c = arith.cmpi sge, %i, %j : index
    %t = arith.select %c, %score, %low : f32
    linalg.yield %t : f32
  } -> tensor<?x?x?xf32>
  %w = linalg.softmax dimension(2) ins(%masked : tensor<?x?x?xf32>) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %f = tensor.empty(%b, %n) : tensor<?x?x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %r = linalg.batch_matmul ins(%w, %x : tensor<?x?x?xf32>, tensor<?x?x8xf32>) outs(%g : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %r : tensor<?x?x8xf32>
}

// CHECK-LABEL: func.func @window(
// CHECK: attn.dense {{.*}}{mask = #attn.mask<causal, window = 5>
// REFUSE-LABEL: func.func @window(
// REFUSE: attn.dense
func.func @window(%x: tensor<?x?x8xf32>) -> tensor<?x?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %b = tensor.dim %x, %c0 : tensor<?x?x8xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?x8xf32>
  %e = tensor.empty(%b, %n, %n) : tensor<?x?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %x : tensor<?x?x8xf32>, tensor<?x?x8xf32>) outs(%z : tensor<?x?x?xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<?x?x?xf32>
  %masked = linalg.generic {indexing_maps = [#x, #x], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<?x?x?xf32>) outs(%e : tensor<?x?x?xf32>) {
  ^bb0(%score: f32, %o: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %i64 = arith.index_cast %i : index to i64
    %j64 = arith.index_cast %j : index to i64
    %five = arith.constant 5 : i64
    %first = arith.subi %i64, %five : i64
    %behind = arith.cmpi sgt, %j64, %first : i64
    %ahead = arith.cmpi sgt, %j64, %i64 : i64
    %true = arith.constant true
    %present = arith.xori %ahead, %true : i1
    %c = arith.andi %behind, %present : i1
    %t = arith.select %c, %score, %low : f32
    linalg.yield %t : f32
  } -> tensor<?x?x?xf32>
  %w = linalg.softmax dimension(2) ins(%masked : tensor<?x?x?xf32>) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %f = tensor.empty(%b, %n) : tensor<?x?x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %r = linalg.batch_matmul ins(%w, %x : tensor<?x?x?xf32>, tensor<?x?x8xf32>) outs(%g : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %r : tensor<?x?x8xf32>
}

// CHECK-LABEL: func.func @both_sides(
// CHECK: attn.dense {{.*}}{mask = #attn.mask<window = 4>
// REFUSE-LABEL: func.func @both_sides(
// REFUSE: attn.dense
func.func @both_sides(%x: tensor<?x?x8xf32>) -> tensor<?x?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %b = tensor.dim %x, %c0 : tensor<?x?x8xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?x8xf32>
  %e = tensor.empty(%b, %n, %n) : tensor<?x?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %x : tensor<?x?x8xf32>, tensor<?x?x8xf32>) outs(%z : tensor<?x?x?xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<?x?x?xf32>
  %masked = linalg.generic {indexing_maps = [#x, #x], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<?x?x?xf32>) outs(%e : tensor<?x?x?xf32>) {
  ^bb0(%score: f32, %o: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %three = arith.constant 3 : index
    %end = arith.addi %i, %three : index
    %low_side = arith.addi %j, %three : index
    %before = arith.cmpi sle, %j, %end : index
    %after = arith.cmpi sle, %i, %low_side : index
    %c = arith.andi %before, %after : i1
    %t = arith.select %c, %score, %low : f32
    linalg.yield %t : f32
  } -> tensor<?x?x?xf32>
  %w = linalg.softmax dimension(2) ins(%masked : tensor<?x?x?xf32>) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %f = tensor.empty(%b, %n) : tensor<?x?x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %r = linalg.batch_matmul ins(%w, %x : tensor<?x?x?xf32>, tensor<?x?x8xf32>) outs(%g : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %r : tensor<?x?x8xf32>
}

// No attribute says it, and the first query has no key.
// CHECK-LABEL: func.func @shifted(
// CHECK: attn.dense {{.*}}bias({{.*}} {scale
// REFUSE-LABEL: func.func @shifted(
// REFUSE-NOT: attn.dense
func.func @shifted(%x: tensor<?x?x8xf32>) -> tensor<?x?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %b = tensor.dim %x, %c0 : tensor<?x?x8xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?x8xf32>
  %e = tensor.empty(%b, %n, %n) : tensor<?x?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %x : tensor<?x?x8xf32>, tensor<?x?x8xf32>) outs(%z : tensor<?x?x?xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<?x?x?xf32>
  %masked = linalg.generic {indexing_maps = [#x, #x], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<?x?x?xf32>) outs(%e : tensor<?x?x?xf32>) {
  ^bb0(%score: f32, %o: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %c = arith.cmpi sgt, %i, %j : index
    %t = arith.select %c, %score, %low : f32
    linalg.yield %t : f32
  } -> tensor<?x?x?xf32>
  %w = linalg.softmax dimension(2) ins(%masked : tensor<?x?x?xf32>) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %f = tensor.empty(%b, %n) : tensor<?x?x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %r = linalg.batch_matmul ins(%w, %x : tensor<?x?x?xf32>, tensor<?x?x8xf32>) outs(%g : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %r : tensor<?x?x8xf32>
}

// 2^31 is negative in 32 bits: this holds for no query, not for all.
// CHECK-LABEL: func.func @wrapped(
// CHECK: attn.dense {{.*}}bias({{.*}} {mask = #attn.mask<causal>
func.func @wrapped(%x: tensor<?x?x8xf32>) -> tensor<?x?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2147483648 = arith.constant 2147483648 : index
  %c0_i32 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF7FFFFF : f32
  %b = tensor.dim %x, %c0 : tensor<?x?x8xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?x8xf32>
  %e = tensor.empty(%b, %n, %n) : tensor<?x?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %x : tensor<?x?x8xf32>, tensor<?x?x8xf32>) outs(%z : tensor<?x?x?xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<?x?x?xf32>
  %masked = linalg.generic {indexing_maps = [#x, #x], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<?x?x?xf32>) outs(%e : tensor<?x?x?xf32>) {
  ^bb0(%score: f32, %o: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %far = arith.addi %i, %c2147483648 : index
    %narrow_i = arith.index_cast %far : index to i64
    %query = arith.trunci %narrow_i : i64 to i32
    %holds = arith.cmpi sge, %query, %c0_i32 : i32
    %first = arith.cmpi sge, %i, %j : index
    %c = arith.andi %holds, %first : i1
    %t = arith.select %c, %score, %low : f32
    linalg.yield %t : f32
  } -> tensor<?x?x?xf32>
  %w = linalg.softmax dimension(2) ins(%masked : tensor<?x?x?xf32>) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %f = tensor.empty(%b, %n) : tensor<?x?x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %r = linalg.batch_matmul ins(%w, %x : tensor<?x?x?xf32>, tensor<?x?x8xf32>) outs(%g : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %r : tensor<?x?x8xf32>
}

// With another number of keys, the last query is that of the last key: this is none of these masks.
// CHECK-LABEL: func.func @cross(
// REFUSE-LABEL: func.func @cross(
// CHECK: attn.dense {{.*}}bias({{.*}} {scale
func.func @cross(%q: tensor<?x8xf32>, %k: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %n = tensor.dim %q, %c0 : tensor<?x8xf32>
  %m = tensor.dim %k, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%n, %m) : tensor<?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.matmul indexing_maps = [affine_map<(n, m, d) -> (n, d)>, affine_map<(n, m, d) -> (m, d)>, affine_map<(n, m, d) -> (n, m)>]
      ins(%q, %k : tensor<?x8xf32>, tensor<?x8xf32>) outs(%z : tensor<?x?xf32>) -> tensor<?x?xf32>
  %masked = linalg.generic {indexing_maps = [affine_map<(n, m) -> (n, m)>, affine_map<(n, m) -> (n, m)>], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%score: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sge, %i, %j : index
    %t = arith.select %c, %score, %low : f32
    linalg.yield %t : f32
  } -> tensor<?x?xf32>
  %w = linalg.softmax dimension(1) ins(%masked : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %f = tensor.empty(%n) : tensor<?x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<?x8xf32>) -> tensor<?x8xf32>
  %r = linalg.matmul ins(%w, %k : tensor<?x?xf32>, tensor<?x8xf32>) outs(%g : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// Batch and heads as one loop, and apart again.
// CHECK-LABEL: func.func @heads(
// REFUSE-LABEL: func.func @heads(
// CHECK: attn.dense ins({{.*}} : tensor<?x3x?x4xf32>, tensor<?x3x?x4xf32>, tensor<?x3x?x4xf32>)
func.func @heads(%x: tensor<?x?x12xf32>) -> tensor<?x?x12xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %zero = arith.constant 0.0 : f32
  %b = tensor.dim %x, %c0 : tensor<?x?x12xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?x12xf32>
  %h = arith.muli %b, %c3 : index
  %0 = tensor.expand_shape %x [[0], [1], [2, 3]] output_shape [%b, %n, 3, 4] : tensor<?x?x12xf32> into tensor<?x?x3x4xf32>
  %1 = tensor.empty(%b, %n) : tensor<?x3x?x4xf32>
  %2 = linalg.transpose ins(%0 : tensor<?x?x3x4xf32>) outs(%1 : tensor<?x3x?x4xf32>) permutation = [0, 2, 1, 3]
  %3 = tensor.collapse_shape %2 [[0, 1], [2], [3]] : tensor<?x3x?x4xf32> into tensor<?x?x4xf32>
  %e = tensor.empty(%h, %n, %n) : tensor<?x?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %s = linalg.batch_matmul indexing_maps = [#q, #k, #s] ins(%3, %3 : tensor<?x?x4xf32>, tensor<?x?x4xf32>) outs(%z : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %w = linalg.softmax dimension(2) ins(%s : tensor<?x?x?xf32>) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %f = tensor.empty(%h, %n) : tensor<?x?x4xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<?x?x4xf32>) -> tensor<?x?x4xf32>
  %r = linalg.batch_matmul ins(%w, %3 : tensor<?x?x?xf32>, tensor<?x?x4xf32>) outs(%g : tensor<?x?x4xf32>) -> tensor<?x?x4xf32>
  %batch = arith.divsi %h, %c3 : index
  %4 = tensor.expand_shape %r [[0, 1], [2], [3]] output_shape [%batch, 3, %n, 4] : tensor<?x?x4xf32> into tensor<?x3x?x4xf32>
  %5 = tensor.empty(%b, %n) : tensor<?x?x3x4xf32>
  %6 = linalg.transpose ins(%4 : tensor<?x3x?x4xf32>) outs(%5 : tensor<?x?x3x4xf32>) permutation = [0, 2, 1, 3]
  %7 = tensor.collapse_shape %6 [[0], [1], [2, 3]] : tensor<?x?x3x4xf32> into tensor<?x?x12xf32>
  return %7 : tensor<?x?x12xf32>
}

// Values of another length than keys may be: the program says nowhere that they are not.
// CHECK-LABEL: func.func @apart(
// CHECK-NOT: attn.dense
func.func @apart(%q: tensor<?x8xf32>, %k: tensor<?x8xf32>, %v: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %q, %c0 : tensor<?x8xf32>
  %m = tensor.dim %k, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%n, %m) : tensor<?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.matmul indexing_maps = [affine_map<(n, m, d) -> (n, d)>, affine_map<(n, m, d) -> (m, d)>, affine_map<(n, m, d) -> (n, m)>]
      ins(%q, %k : tensor<?x8xf32>, tensor<?x8xf32>) outs(%z : tensor<?x?xf32>) -> tensor<?x?xf32>
  %w = linalg.softmax dimension(1) ins(%s : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %f = tensor.empty(%n) : tensor<?x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<?x8xf32>) -> tensor<?x8xf32>
  %r = linalg.matmul ins(%w, %v : tensor<?x?xf32>, tensor<?x8xf32>) outs(%g : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// An extent that is found to be 16 when the program runs is 16 behind the cast, and what it is before stays out of it.

// CHECK-LABEL: func.func @found(
// CHECK: tensor.cast {{.*}} : tensor<4x?xf32> to tensor<4x16xf32>
// CHECK: attn.dense ins(%
func.func @found(%x: tensor<4x8x?xf32>) -> tensor<4x2x8xf32> {
  %zero = arith.constant 0.0 : f32
  %c = tensor.collapse_shape %x [[0], [1, 2]] : tensor<4x8x?xf32> into tensor<4x?xf32>
  %t = tensor.cast %c : tensor<4x?xf32> to tensor<4x16xf32>
  %h = tensor.expand_shape %t [[0], [1, 2]] output_shape [4, 2, 8] : tensor<4x16xf32> into tensor<4x2x8xf32>
  %e = tensor.empty() : tensor<4x2x2xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x2x2xf32>) -> tensor<4x2x2xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%h, %h : tensor<4x2x8xf32>, tensor<4x2x8xf32>) outs(%z : tensor<4x2x2xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %sum = arith.addf %p, %o : f32
    linalg.yield %sum : f32
  } -> tensor<4x2x2xf32>
  %w = linalg.softmax dimension(2) ins(%s : tensor<4x2x2xf32>) outs(%e : tensor<4x2x2xf32>) -> tensor<4x2x2xf32>
  %f = tensor.empty() : tensor<4x2x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<4x2x8xf32>) -> tensor<4x2x8xf32>
  %r = linalg.batch_matmul ins(%w, %h : tensor<4x2x2xf32>, tensor<4x2x8xf32>) outs(%g : tensor<4x2x8xf32>) -> tensor<4x2x8xf32>
  return %r : tensor<4x2x8xf32>
}
