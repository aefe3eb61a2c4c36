// RUN: fovea-opt %s --convert-elementwise-to-linalg --attn-fuse-elementwise | FileCheck %s

// A chain becomes one loop nest.

// CHECK-LABEL: func.func @chain(
//       CHECK:   linalg.generic
//       CHECK:     arith.mulf
//       CHECK:     math.exp
//   CHECK-NOT:   linalg.generic
func.func @chain(%a: tensor<8x16xf32>, %b: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %0 = arith.mulf %a, %b : tensor<8x16xf32>
  %1 = math.exp %0 : tensor<8x16xf32>
  return %1 : tensor<8x16xf32>
}

// A product keeps its operands: the exponential is taken once an element.

// CHECK-LABEL: func.func @product(
//       CHECK:   %[[EXP:.*]] = linalg.generic
//       CHECK:     math.exp
//       CHECK:   linalg.generic {{.*}} ins(%[[EXP]], %{{.*}} :
//   CHECK-NOT:     math.exp
#left = affine_map<(i, j, k) -> (i, k)>
#right = affine_map<(i, j, k) -> (k, j)>
#out = affine_map<(i, j, k) -> (i, j)>
func.func @product(%a: tensor<8x16xf32>, %b: tensor<16x4xf32>,
                   %init: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = math.exp %a : tensor<8x16xf32>
  %1 = linalg.generic {indexing_maps = [#left, #right, #out],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%0, %b : tensor<8x16xf32>, tensor<16x4xf32>)
      outs(%init : tensor<8x4xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %2 = arith.mulf %x, %y : f32
    %3 = arith.addf %sum, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}

// Nor is it taken again for every patch that an element is in.

// CHECK-LABEL: func.func @patches(
//       CHECK:   %[[EXP:.*]] = linalg.generic
//       CHECK:     math.exp
//       CHECK:   linalg.generic {{.*}} ins(%[[EXP]] :
//   CHECK-NOT:     math.exp
#window = affine_map<(i, j) -> (i + j)>
#identity = affine_map<(i, j) -> (i, j)>
func.func @patches(%a: tensor<18xf32>, %init: tensor<16x3xf32>) -> tensor<16x3xf32> {
  %0 = math.exp %a : tensor<18xf32>
  %1 = linalg.generic {indexing_maps = [#window, #identity], iterator_types = ["parallel", "parallel"]}
      ins(%0 : tensor<18xf32>) outs(%init : tensor<16x3xf32>) {
  ^bb0(%x: f32, %old: f32):
    linalg.yield %x : f32
  } -> tensor<16x3xf32>
  return %1 : tensor<16x3xf32>
}

// Numbers are widened by each user.

// CHECK-LABEL: func.func @widened(
//  CHECK-SAME:   %[[X:.*]]: tensor<8x16xf32>
//       CHECK:   linalg.generic {{.*}} ins(%[[X]] : tensor<8x16xf32>)
//       CHECK:     arith.extf
//       CHECK:   linalg.generic {{.*}} ins(%[[X]], %{{.*}} : tensor<8x16xf32>, tensor<8xf64>)
//       CHECK:     arith.extf
#row = affine_map<(i, j) -> (i)>
func.func @widened(%x: tensor<8x16xf32>, %zeros: tensor<8xf64>) -> tensor<8xf64> {
  %0 = arith.extf %x : tensor<8x16xf32> to tensor<8x16xf64>
  %1 = linalg.generic {indexing_maps = [#identity, #row], iterator_types = ["parallel", "reduction"]}
      ins(%0 : tensor<8x16xf64>) outs(%zeros : tensor<8xf64>) {
  ^bb0(%a: f64, %sum: f64):
    %3 = arith.addf %a, %sum : f64
    linalg.yield %3 : f64
  } -> tensor<8xf64>
  %2 = linalg.generic {indexing_maps = [#identity, #row, #row], iterator_types = ["parallel", "reduction"]}
      ins(%0, %1 : tensor<8x16xf64>, tensor<8xf64>) outs(%zeros : tensor<8xf64>) {
  ^bb0(%a: f64, %b: f64, %sum: f64):
    %3 = arith.subf %a, %b : f64
    %4 = arith.addf %3, %sum : f64
    linalg.yield %4 : f64
  } -> tensor<8xf64>
  return %2 : tensor<8xf64>
}

// Differences from the mean of a row are computed by both that read them: no
// array holds them.

// CHECK-LABEL: func.func @norm(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<8x64xf32>
//       CHECK:   linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[X]],
//       CHECK:     arith.subf
//       CHECK:   linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} ins(%[[X]],
//       CHECK:     arith.subf
//   CHECK-NOT:   linalg.generic
//       CHECK:   return
func.func @norm(%x: tensor<8x64xf32>, %mean: tensor<8xf32>, %zeros: tensor<8xf32>) -> tensor<8x64xf32> {
  %e = tensor.empty() : tensor<8x64xf32>
  %d = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x, %mean : tensor<8x64xf32>, tensor<8xf32>) outs(%e : tensor<8x64xf32>) {
  ^bb0(%a: f32, %m: f32, %old: f32):
    %r = arith.subf %a, %m : f32
    linalg.yield %r : f32
  } -> tensor<8x64xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%d : tensor<8x64xf32>) outs(%zeros : tensor<8xf32>) {
  ^bb0(%a: f32, %old: f32):
    %p = arith.mulf %a, %a : f32
    %r = arith.addf %p, %old : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %o = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%d, %s : tensor<8x64xf32>, tensor<8xf32>) outs(%e : tensor<8x64xf32>) {
  ^bb0(%a: f32, %v: f32, %old: f32):
    %root = math.rsqrt %v : f32
    %r = arith.mulf %a, %root : f32
    linalg.yield %r : f32
  } -> tensor<8x64xf32>
  return %o : tensor<8x64xf32>
}

// What reads rows of a table becomes part of what adds them, with its checks;
// no loop over the same rows is left for these alone.

// CHECK-LABEL: func.func @embedding(
//       CHECK:   linalg.generic
//       CHECK:     cf.assert
//       CHECK:     tensor.extract
//       CHECK:     arith.addf
//   CHECK-NOT:   linalg.generic
//       CHECK:   return
func.func @embedding(%ids: tensor<8xi64>, %table: tensor<9x64xf32>, %x: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %c9 = arith.constant 9 : index
  %e = tensor.empty() : tensor<8x64xf32>
  %rows = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<8xi64>) outs(%e : tensor<8x64xf32>) {
  ^bb0(%id: i64, %old: f32):
    %i = arith.index_cast %id : i64 to index
    %j = linalg.index 1 : index
    %exists = arith.cmpi ult, %i, %c9 : index
    cf.assert %exists, "index must be smaller than dim size"
    %r = tensor.extract %table[%i, %j] : tensor<9x64xf32>
    linalg.yield %r : f32
  } -> tensor<8x64xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                         iterator_types = ["parallel", "parallel"]}
      ins(%rows, %x : tensor<8x64xf32>, tensor<8x64xf32>) outs(%e : tensor<8x64xf32>) {
  ^bb0(%a: f32, %b: f32, %old: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<8x64xf32>
  return %sum : tensor<8x64xf32>
}

// Places that take a logarithm are computed once, not for each column.

// CHECK-LABEL: func.func @buckets(
//       CHECK:   linalg.generic
//       CHECK:     math.log
//       CHECK:   linalg.generic
//   CHECK-NOT:     math.log
//       CHECK:     tensor.extract
func.func @buckets(%x: tensor<8xf32>, %table: tensor<9x64xf32>) -> tensor<8x64xf32> {
  %e = tensor.empty() : tensor<8xi64>
  %places = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xi64>) {
  ^bb0(%a: f32, %old: i64):
    %l = math.log %a : f32
    %r = arith.fptosi %l : f32 to i64
    linalg.yield %r : i64
  } -> tensor<8xi64>
  %o = tensor.empty() : tensor<8x64xf32>
  %rows = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%places : tensor<8xi64>) outs(%o : tensor<8x64xf32>) {
  ^bb0(%id: i64, %old: f32):
    %i = arith.index_cast %id : i64 to index
    %j = linalg.index 1 : index
    %r = tensor.extract %table[%i, %j] : tensor<9x64xf32>
    linalg.yield %r : f32
  } -> tensor<8x64xf32>
  return %rows : tensor<8x64xf32>
}

// Sines of angles are computed once for all heads, but with what reads each once.

// CHECK-LABEL: func.func @turns(
//       CHECK:   linalg.generic
//       CHECK:     math.sin
//       CHECK:   linalg.generic
//   CHECK-NOT:     math.sin
//       CHECK:     arith.mulf
//       CHECK:   linalg.generic
//       CHECK:     math.sin
//       CHECK:     arith.mulf
func.func @turns(%angles: tensor<8x16xf32>, %x: tensor<8x4x16xf32>, %y: tensor<8x16xf32>)
    -> (tensor<8x4x16xf32>, tensor<8x16xf32>) {
  %e = tensor.empty() : tensor<8x16xf32>
  %table = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%angles : tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%a: f32, %old: f32):
    %s = math.sin %a : f32
    linalg.yield %s : f32
  } -> tensor<8x16xf32>
  %o = tensor.empty() : tensor<8x4x16xf32>
  %heads = linalg.generic {indexing_maps = [affine_map<(i, h, j) -> (i, j)>, affine_map<(i, h, j) -> (i, h, j)>, affine_map<(i, h, j) -> (i, h, j)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%table, %x : tensor<8x16xf32>, tensor<8x4x16xf32>) outs(%o : tensor<8x4x16xf32>) {
  ^bb0(%s: f32, %a: f32, %old: f32):
    %m = arith.mulf %s, %a : f32
    linalg.yield %m : f32
  } -> tensor<8x4x16xf32>
  %more = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%a: f32, %old: f32):
    %s = math.sin %a : f32
    linalg.yield %s : f32
  } -> tensor<8x16xf32>
  %once = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%more, %y : tensor<8x16xf32>, tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%s: f32, %a: f32, %old: f32):
    %m = arith.mulf %s, %a : f32
    linalg.yield %m : f32
  } -> tensor<8x16xf32>
  return %heads, %once : tensor<8x4x16xf32>, tensor<8x16xf32>
}

// What adds to its output is no part of a loop that visits its results more than once.

// CHECK-LABEL: func.func @accumulate(
//       CHECK:   %[[SUM:.*]] = linalg.generic
//  CHECK-SAME:     outs(%arg1 : tensor<8xf32>)
//       CHECK:     arith.addf
//       CHECK:   linalg.generic
//  CHECK-SAME:     ins(%[[SUM]] : tensor<8xf32>)
//   CHECK-NOT:     arith.addf
//       CHECK:     arith.negf
func.func @accumulate(%x: tensor<8xf32>, %old: tensor<8xf32>) -> tensor<8x64xf32> {
  %s = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%old : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %a, %o : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %e = tensor.empty() : tensor<8x64xf32>
  %n = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<8xf32>) outs(%e : tensor<8x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.negf %a : f32
    linalg.yield %r : f32
  } -> tensor<8x64xf32>
  return %n : tensor<8x64xf32>
}

// What an operation is the last to read, element by element, has its results; not where a view of it is read later.

// CHECK-LABEL: func.func @read_last(
//       CHECK:   %[[E:.*]] = linalg.generic
//       CHECK:     math.exp
//       CHECK:   %[[S:.*]] = linalg.generic {{.*}} ins(%[[E]] :
//       CHECK:   linalg.generic {{.*}} ins(%[[E]], %[[S]] : {{.*}}) outs(%[[E]] :
func.func @read_last(%x: tensor<4x8xf32>, %zeros: tensor<4xf32>) -> tensor<4x8xf32> {
  %empty = tensor.empty() : tensor<4x8xf32>
  %e = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf32>) outs(%empty : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  } -> tensor<4x8xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%e : tensor<4x8xf32>) outs(%zeros : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %a, %o : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %q = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%e, %s : tensor<4x8xf32>, tensor<4xf32>) outs(%empty : tensor<4x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.divf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<4x8xf32>
  return %q : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @viewed(
//       CHECK:   %[[E:.*]] = linalg.generic
//       CHECK:     math.exp
//       CHECK:   tensor.collapse_shape %[[E]]
//       CHECK:   linalg.generic {{.*}} ins(%[[E]], %{{.*}} : {{.*}}) outs(%{{[0-9]+}} :
func.func @viewed(%x: tensor<4x8xf32>, %s: tensor<4xf32>) -> (tensor<4x8xf32>, tensor<32xf32>) {
  %empty = tensor.empty() : tensor<4x8xf32>
  %e = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf32>) outs(%empty : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = math.exp %a : f32
    %t = math.exp %p : f32
    %u = math.exp %t : f32
    %v = math.exp %u : f32
    %w = math.exp %v : f32
    %y = math.exp %w : f32
    %z = math.exp %y : f32
    %r = math.exp %z : f32
    linalg.yield %r : f32
  } -> tensor<4x8xf32>
  %view = tensor.collapse_shape %e [[0, 1]] : tensor<4x8xf32> into tensor<32xf32>
  %q = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%e, %s : tensor<4x8xf32>, tensor<4xf32>) outs(%empty : tensor<4x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.divf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<4x8xf32>
  return %q, %view : tensor<4x8xf32>, tensor<32xf32>
}

// What reads a concatenation is done part by part, with what makes the parts,
// and writes to places of the result.

// CHECK-LABEL: func.func @rotate(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<8x64xf32>, %[[C:[a-z0-9]+]]: tensor<8x64xf32>
//   CHECK-NOT:   tensor.concat
//       CHECK:   %[[LOW:.*]] = tensor.extract_slice %[[X]][0, 0] [8, 32] [1, 1]
//       CHECK:   %[[HIGH:.*]] = tensor.extract_slice %[[X]][0, 32] [8, 32] [1, 1]
//       CHECK:   %[[FIRST:.*]] = linalg.generic {{.*}} ins({{.*}}%[[HIGH]]
//       CHECK:     arith.negf
//       CHECK:     arith.mulf
//       CHECK:     arith.addf
//       CHECK:   %[[SECOND:.*]] = linalg.generic {{.*}} ins({{.*}}%[[LOW]]
//   CHECK-NOT:     arith.negf
//       CHECK:     arith.addf
//       CHECK:   %[[DONE:.*]] = tensor.insert_slice %[[FIRST]] into %{{.*}}[0, 0] [8, 32] [1, 1]
//       CHECK:   tensor.insert_slice %[[SECOND]] into %[[DONE]][0, 32] [8, 32] [1, 1]
func.func @rotate(%x: tensor<8x64xf32>, %c: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %low = tensor.extract_slice %x[0, 0] [8, 32] [1, 1] : tensor<8x64xf32> to tensor<8x32xf32>
  %high = tensor.extract_slice %x[0, 32] [8, 32] [1, 1] : tensor<8x64xf32> to tensor<8x32xf32>
  %negative = arith.negf %high : tensor<8x32xf32>
  %turned = tensor.concat dim(1) %negative, %low : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x64xf32>
  %p = arith.mulf %turned, %c : tensor<8x64xf32>
  %r = arith.addf %p, %x : tensor<8x64xf32>
  return %r : tensor<8x64xf32>
}

// Parts of single elements are no vectors: they are written side by side. So is
// what others read, too.

// CHECK-LABEL: func.func @pairs(
// CHECK-COUNT-2: tensor.insert_slice
//       CHECK:   linalg.generic
//       CHECK:     arith.mulf
//   CHECK-NOT:   linalg.generic
func.func @pairs(%x: tensor<8x1xf32>, %y: tensor<8x1xf32>, %c: tensor<8x2xf32>) -> tensor<8x2xf32> {
  %pairs = tensor.concat dim(1) %x, %y : (tensor<8x1xf32>, tensor<8x1xf32>) -> tensor<8x2xf32>
  %r = arith.mulf %pairs, %c : tensor<8x2xf32>
  return %r : tensor<8x2xf32>
}

// CHECK-LABEL: func.func @kept(
// CHECK-COUNT-2: tensor.insert_slice
//       CHECK:   linalg.generic
//   CHECK-NOT:   linalg.generic
func.func @kept(%x: tensor<8x16xf32>, %c: tensor<8x32xf32>) -> (tensor<8x32xf32>, tensor<8x32xf32>) {
  %both = tensor.concat dim(1) %x, %x : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x32xf32>
  %r = arith.mulf %both, %c : tensor<8x32xf32>
  return %both, %r : tensor<8x32xf32>, tensor<8x32xf32>
}

// Parts that are reshaped alike are put together before.

// CHECK-LABEL: func.func @reshaped(
//       CHECK:   %[[A:.*]] = linalg.generic
//       CHECK:   %[[B:.*]] = linalg.generic
//       CHECK:   tensor.insert_slice %[[A]] into
//       CHECK:   %[[WHOLE:.*]] = tensor.insert_slice %[[B]] into
//       CHECK:   tensor.expand_shape %[[WHOLE]] {{.*}} into tensor<1x4x32xf32>
func.func @reshaped(%x: tensor<4x16xf32>) -> tensor<1x4x32xf32> {
  %a = math.exp %x : tensor<4x16xf32>
  %b = math.absf %x : tensor<4x16xf32>
  %c = tensor.expand_shape %a [[0, 1], [2]] output_shape [1, 4, 16] : tensor<4x16xf32> into tensor<1x4x16xf32>
  %d = tensor.expand_shape %b [[0, 1], [2]] output_shape [1, 4, 16] : tensor<4x16xf32> into tensor<1x4x16xf32>
  %r = tensor.concat dim(2) %c, %d : (tensor<1x4x16xf32>, tensor<1x4x16xf32>) -> tensor<1x4x32xf32>
  return %r : tensor<1x4x32xf32>
}

// A rotary embedding of some columns is computed beside the others, which are
// passed on; dimensions of extent 1 of these are dropped.

// CHECK-LABEL: func.func @partial(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<1x8x96xf32>
//       CHECK:   %[[FIRST:.*]] = linalg.generic {{.*}} outs({{.*}} : tensor<8x16xf32>)
//       CHECK:     arith.negf
//       CHECK:   %[[SECOND:.*]] = linalg.generic {{.*}} outs({{.*}} : tensor<8x16xf32>)
//       CHECK:   %[[PASSED:.*]] = tensor.collapse_shape {{.*}} : tensor<1x8x64xf32> into tensor<8x64xf32>
//       CHECK:   %[[A:.*]] = tensor.insert_slice %[[FIRST]] into %{{.*}}[0, 0] [8, 16] [1, 1] : tensor<8x16xf32> into tensor<8x96xf32>
//       CHECK:   %[[B:.*]] = tensor.insert_slice %[[SECOND]] into %[[A]][0, 16]
//       CHECK:   %[[WHOLE:.*]] = tensor.insert_slice %[[PASSED]] into %[[B]][0, 32]
//       CHECK:   tensor.expand_shape %[[WHOLE]] {{.*}} into tensor<1x8x96xf32>
func.func @partial(%x: tensor<1x8x96xf32>, %c: tensor<8x32xf32>) -> tensor<1x8x96xf32> {
  %low = tensor.extract_slice %x[0, 0, 0] [1, 8, 16] [1, 1, 1] : tensor<1x8x96xf32> to tensor<8x16xf32>
  %high = tensor.extract_slice %x[0, 0, 16] [1, 8, 16] [1, 1, 1] : tensor<1x8x96xf32> to tensor<8x16xf32>
  %passed = tensor.extract_slice %x[0, 0, 32] [1, 8, 64] [1, 1, 1] : tensor<1x8x96xf32> to tensor<1x8x64xf32>
  %negative = arith.negf %high : tensor<8x16xf32>
  %turned = tensor.concat dim(1) %negative, %low : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x32xf32>
  %p = arith.mulf %turned, %c : tensor<8x32xf32>
  %e = tensor.expand_shape %p [[0, 1], [2]] output_shape [1, 8, 32] : tensor<8x32xf32> into tensor<1x8x32xf32>
  %r = tensor.concat dim(2) %e, %passed : (tensor<1x8x32xf32>, tensor<1x8x64xf32>) -> tensor<1x8x96xf32>
  return %r : tensor<1x8x96xf32>
}

// Extents that are not known are those of what is read, before parts are.

// CHECK-LABEL: func.func @partial_of_any(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<?x96xf32>
//       CHECK:   %[[ROWS:.*]] = tensor.dim %[[X]]
//   CHECK-NOT:   tensor.dim
//       CHECK:   linalg.generic
func.func @partial_of_any(%x: tensor<?x96xf32>) -> tensor<?x96xf32> {
  %zero = arith.constant 0 : index
  %m = tensor.dim %x, %zero : tensor<?x96xf32>
  %low = tensor.extract_slice %x[0, 0] [%m, 16] [1, 1] : tensor<?x96xf32> to tensor<?x16xf32>
  %passed = tensor.extract_slice %x[0, 16] [%m, 80] [1, 1] : tensor<?x96xf32> to tensor<?x80xf32>
  %negative = arith.negf %low : tensor<?x16xf32>
  %r = tensor.concat dim(1) %negative, %passed : (tensor<?x16xf32>, tensor<?x80xf32>) -> tensor<?x96xf32>
  return %r : tensor<?x96xf32>
}

// Operations with a name fuse like others; products and what moves keep theirs.

// CHECK-LABEL: func.func @named(
//       CHECK:   linalg.transpose
//       CHECK:   linalg.generic
//       CHECK:     arith.negf
//       CHECK:     arith.addf
//   CHECK-NOT:   linalg.generic
//       CHECK:   linalg.matmul
func.func @named(%x: tensor<4x8xf32>, %y: tensor<8x4xf32>, %o: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  %t = linalg.transpose ins(%y : tensor<8x4xf32>) outs(%e : tensor<4x8xf32>) permutation = [1, 0]
  %n = linalg.negf ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %s = linalg.add ins(%n, %t : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %r = linalg.matmul ins(%y, %s : tensor<8x4xf32>, tensor<4x8xf32>) outs(%o : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %r : tensor<8x8xf32>
}

// A check of one number has no operands once its result is computed where it is
// read: it becomes part of the function.

// CHECK-LABEL: func.func @check_of_a_number(
//       CHECK:   %[[IS_INSIDE:.*]] = arith.cmpi ult
//       CHECK:   cf.assert %[[IS_INSIDE]]
//       CHECK:   %[[R:.*]] = linalg.generic {{.*}}outs(
//       CHECK:     cf.assert
//       CHECK:     math.exp
//       CHECK:   return %[[R]]
func.func @check_of_a_number(%x: tensor<5xf32>, %i: index) -> tensor<f32> {
  %e = tensor.empty() : tensor<f32>
  %size = arith.constant 5 : index
  %a = linalg.generic {indexing_maps = [affine_map<() -> ()>], iterator_types = []} outs(%e : tensor<f32>) {
  ^bb0(%o: f32):
    %is_inside = arith.cmpi ult, %i, %size : index
    cf.assert %is_inside, "out of bounds"
    %v = tensor.extract %x[%i] : tensor<5xf32>
    linalg.yield %v : f32
  } -> tensor<f32>
  %r = math.exp %a : tensor<f32>
  return %r : tensor<f32>
}
