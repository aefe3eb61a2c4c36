// RUN: fovea-opt %s --attn-raise --canonicalize | FileCheck %s
// RUN: fovea-run %s --entry=near --random --shape=2x37x8 --compare=reference
// RUN: fovea-run %s --entry=near --random --shape=1x1x8 --compare=reference
// RUN: fovea-run %s --entry=sink --random --shape=2x37x8 --compare=reference
// RUN: fovea-run %s --entry=sink --random --shape=3x1x8 --compare=reference
// RUN: fovea-run %s --entry=of_rows --random --shape=65x8 --compare=reference
// RUN: fovea-run %s --entry=lengths --random --shape=2x37x8 --shape=2 --compare=reference
// RUN: fovea-run %s --entry=lengths --random --shape=3x5x8 --shape=3 --compare=reference
// RUN: fovea-run %s --entry=near --random --shape=2x37x8 --target=gpu-sim --compare=reference
// RUN: fovea-run %s --entry=sink --random --shape=2x37x8 --target=gpu-sim --compare=reference
// RUN: fovea-run %s --entry=of_rows --random --shape=65x8 --target=gpu-sim --compare=reference
// RUN: fovea-run %s --entry=lengths --random --shape=2x37x8 --shape=2 --target=gpu-sim --compare=reference

// Lengths, sinks and functions of scores where extents are not known, and what always holds of positions.

#x = affine_map<(b, n, m) -> (b, n, m)>
#q = affine_map<(b, n, m, d) -> (b, n, d)>
#k = affine_map<(b, n, m, d) -> (b, m, d)>
#s = affine_map<(b, n, m, d) -> (b, n, m)>

// Positions of 32 bits, as JAX has them: |i - j| < 4, and no position is negative.
// CHECK-LABEL: func.func @near(
// CHECK-NOT: bias(
// CHECK: attn.dense {{.*}}{mask = #attn.mask<window = 4>
func.func @near(%x: tensor<?x?x8xf32>) -> tensor<?x?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %b = tensor.dim %x, %c0 : tensor<?x?x8xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?x8xf32>
  %e = tensor.empty(%b, %n, %n) : tensor<?x?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %s = linalg.batch_matmul indexing_maps = [#q, #k, #s] ins(%x, %x : tensor<?x?x8xf32>, tensor<?x?x8xf32>) outs(%z : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %masked = linalg.generic {indexing_maps = [#x, #x], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<?x?x?xf32>) outs(%e : tensor<?x?x?xf32>) {
  ^bb0(%score: f32, %o: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %i32 = arith.index_cast %i : index to i32
    %j32 = arith.index_cast %j : index to i32
    %none = arith.constant 0 : i32
    %four = arith.constant 4 : i32
    %apart = arith.subi %i32, %j32 : i32
    %distance = math.absi %apart : i32
    %near = arith.cmpi slt, %distance, %four : i32
    %exists = arith.cmpi sge, %i32, %none : i32
    %c = arith.andi %near, %exists : i1
    %t = arith.select %c, %score, %low : f32
    linalg.yield %t : f32
  } -> tensor<?x?x?xf32>
  %w = linalg.softmax dimension(2) ins(%masked : tensor<?x?x?xf32>) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %f = tensor.empty(%b, %n) : tensor<?x?x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %r = linalg.batch_matmul ins(%w, %x : tensor<?x?x?xf32>, tensor<?x?x8xf32>) outs(%g : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %r : tensor<?x?x8xf32>
}

// |i - j| <= j is none of these bounds.
// CHECK-LABEL: func.func @not_near(
// CHECK: attn.dense {{.*}}bias({{.*}} {scale
func.func @not_near(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %n = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%n, %n) : tensor<?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.matmul indexing_maps = [affine_map<(n, m, d) -> (n, d)>, affine_map<(n, m, d) -> (m, d)>, affine_map<(n, m, d) -> (n, m)>]
      ins(%x, %x : tensor<?x8xf32>, tensor<?x8xf32>) outs(%z : tensor<?x?xf32>) -> tensor<?x?xf32>
  %masked = linalg.generic {indexing_maps = [affine_map<(n, m) -> (n, m)>, affine_map<(n, m) -> (n, m)>], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%score: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %apart = arith.subi %i, %j : index
    %distance = math.absi %apart : index
    %c = arith.cmpi sle, %distance, %j : index
    %t = arith.select %c, %score, %low : f32
    linalg.yield %t : f32
  } -> tensor<?x?xf32>
  %w = linalg.softmax dimension(1) ins(%masked : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %f = tensor.empty(%n) : tensor<?x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<?x8xf32>) -> tensor<?x8xf32>
  %r = linalg.matmul ins(%w, %x : tensor<?x?xf32>, tensor<?x8xf32>) outs(%g : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// The weight of the last column is dropped: of n + 1 columns n are kept, in the words of torch-mlir.
// CHECK-LABEL: func.func @sink(
// CHECK: attn.dense {{.*}} sink(%{{.+}} : tensor<1x1xf32>)
func.func @sink(%x: tensor<?x?x8xf32>) -> tensor<?x?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %cm1 = arith.constant -1 : index
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %b = tensor.dim %x, %c0 : tensor<?x?x8xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?x8xf32>
  %e = tensor.empty(%b, %n, %n) : tensor<?x?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %s = linalg.batch_matmul indexing_maps = [#q, #k, #s] ins(%x, %x : tensor<?x?x8xf32>, tensor<?x?x8xf32>) outs(%z : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %l = tensor.empty(%b, %n) : tensor<?x?x1xf32>
  %last = linalg.fill ins(%half : f32) outs(%l : tensor<?x?x1xf32>) -> tensor<?x?x1xf32>
  %all = tensor.concat dim(2) %s, %last : (tensor<?x?x?xf32>, tensor<?x?x1xf32>) -> tensor<?x?x?xf32>
  %more = affine.apply affine_map<()[n] -> (n + 1)>()[%n]
  %a = tensor.empty(%b, %n, %more) : tensor<?x?x?xf32>
  %w = linalg.softmax dimension(2) ins(%all : tensor<?x?x?xf32>) outs(%a : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %first = arith.minsi %more, %c0 : index
  %end = arith.addi %more, %cm1 : index
  %isLess = arith.cmpi slt, %end, %c0 : index
  %stop = arith.select %isLess, %cm1, %end : index
  %bound = arith.minsi %stop, %more : index
  %length = arith.subi %bound, %first : index
  %size = arith.maxsi %length, %c0 : index
  %kept = tensor.extract_slice %w[0, 0, %first] [%b, %n, %size] [1, 1, 1] : tensor<?x?x?xf32> to tensor<?x?x?xf32>
  %f = tensor.empty(%b, %n) : tensor<?x?x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %r = linalg.batch_matmul ins(%kept, %x : tensor<?x?x?xf32>, tensor<?x?x8xf32>) outs(%g : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %r : tensor<?x?x8xf32>
}

// As many queries as keys: a query's number is that of its row.
// CHECK-LABEL: func.func @of_rows(
// CHECK: attn.dense {{.*}} score(%{{.+}} : tensor<1x1x?x1xf32>) {
// CHECK-NEXT: ^bb0(%{{.+}}: f32, %{{.+}}: index, %{{.+}}: index, %[[I:.+]]: index, %{{.+}}: index, %[[C:.+]]: tensor<1x1x?x1xf32>):
// CHECK: tensor.extract %[[C]][%{{.+}}, %{{.+}}, %[[I]], %{{.+}}]
func.func @of_rows(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%n, %n) : tensor<?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.matmul indexing_maps = [affine_map<(n, m, d) -> (n, d)>, affine_map<(n, m, d) -> (m, d)>, affine_map<(n, m, d) -> (n, m)>]
      ins(%x, %x : tensor<?x8xf32>, tensor<?x8xf32>) outs(%z : tensor<?x?xf32>) -> tensor<?x?xf32>
  %caps = tensor.extract_slice %x[0, 0] [%n, 1] [1, 1] : tensor<?x8xf32> to tensor<?x1xf32>
  %capped = linalg.generic {indexing_maps = [affine_map<(n, m) -> (n, m)>, affine_map<(n, m) -> (n, 0)>, affine_map<(n, m) -> (n, m)>],
                            iterator_types = ["parallel", "parallel"]}
      ins(%s, %caps : tensor<?x?xf32>, tensor<?x1xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%score: f32, %cap: f32, %o: f32):
    %t = math.tanh %score : f32
    %u = arith.mulf %t, %cap : f32
    linalg.yield %u : f32
  } -> tensor<?x?xf32>
  %w = linalg.softmax dimension(1) ins(%capped : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %f = tensor.empty(%n) : tensor<?x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<?x8xf32>) -> tensor<?x8xf32>
  %r = linalg.matmul ins(%w, %x : tensor<?x?xf32>, tensor<?x8xf32>) outs(%g : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// How many more keys than queries there are is not known, and so not where a query's number is.
// CHECK-LABEL: func.func @of_other_rows(
// CHECK-NOT: attn.dense
func.func @of_other_rows(%x: tensor<?x8xf32>, %y: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x8xf32>
  %m = tensor.dim %y, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%n, %m) : tensor<?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.matmul indexing_maps = [affine_map<(n, m, d) -> (n, d)>, affine_map<(n, m, d) -> (m, d)>, affine_map<(n, m, d) -> (n, m)>]
      ins(%x, %y : tensor<?x8xf32>, tensor<?x8xf32>) outs(%z : tensor<?x?xf32>) -> tensor<?x?xf32>
  %caps = tensor.extract_slice %x[0, 0] [%n, 1] [1, 1] : tensor<?x8xf32> to tensor<?x1xf32>
  %capped = linalg.generic {indexing_maps = [affine_map<(n, m) -> (n, m)>, affine_map<(n, m) -> (n, 0)>, affine_map<(n, m) -> (n, m)>],
                            iterator_types = ["parallel", "parallel"]}
      ins(%s, %caps : tensor<?x?xf32>, tensor<?x1xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%score: f32, %cap: f32, %o: f32):
    %t = math.tanh %score : f32
    %u = arith.mulf %t, %cap : f32
    linalg.yield %u : f32
  } -> tensor<?x?xf32>
  %w = linalg.softmax dimension(1) ins(%capped : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %f = tensor.empty(%n) : tensor<?x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<?x8xf32>) -> tensor<?x8xf32>
  %r = linalg.matmul ins(%w, %y : tensor<?x?xf32>, tensor<?x8xf32>) outs(%g : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// The numbers of keys are cut at how many there are.
// CHECK-LABEL: func.func @lengths(
// CHECK-SAME: %[[X:.+]]: tensor<?x?x8xf32>, %[[N:.+]]: tensor<?xi32>)
// CHECK: arith.andi
// CHECK: %[[LENGTHS:.+]] = linalg.generic {{.*}} ins(%{{.+}} : tensor<?xi32>)
// CHECK: arith.minsi
// CHECK: attn.dense {{.*}} lengths(%[[LENGTHS]] : tensor<?xi32>)
func.func @lengths(%x: tensor<?x?x8xf32>, %lengths: tensor<?xi32>) -> tensor<?x?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %b = tensor.dim %x, %c0 : tensor<?x?x8xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?x8xf32>
  %e = tensor.empty(%b, %n, %n) : tensor<?x?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %s = linalg.batch_matmul indexing_maps = [#q, #k, #s] ins(%x, %x : tensor<?x?x8xf32>, tensor<?x?x8xf32>) outs(%z : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  // At least one key: what the program gives without keys is NaN.
  %i = tensor.empty(%b) : tensor<?xi32>
  %some = linalg.generic {indexing_maps = [affine_map<(b) -> (b)>, affine_map<(b) -> (b)>], iterator_types = ["parallel"]}
      ins(%lengths : tensor<?xi32>) outs(%i : tensor<?xi32>) {
  ^bb0(%length: i32, %o: i32):
    %mask = arith.constant 15 : i32
    %one = arith.constant 1 : i32
    %low_bits = arith.andi %length, %mask : i32
    %t = arith.addi %low_bits, %one : i32
    linalg.yield %t : i32
  } -> tensor<?xi32>
  %masked = linalg.generic {indexing_maps = [#x, affine_map<(b, n, m) -> (b)>, #x], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %some : tensor<?x?x?xf32>, tensor<?xi32>) outs(%e : tensor<?x?x?xf32>) {
  ^bb0(%score: f32, %length: i32, %o: f32):
    %j = linalg.index 2 : index
    %j32 = arith.index_cast %j : index to i32
    %c = arith.cmpi slt, %j32, %length : i32
    %t = arith.select %c, %score, %low : f32
    linalg.yield %t : f32
  } -> tensor<?x?x?xf32>
  %w = linalg.softmax dimension(2) ins(%masked : tensor<?x?x?xf32>) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %f = tensor.empty(%b, %n) : tensor<?x?x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %r = linalg.batch_matmul ins(%w, %x : tensor<?x?x?xf32>, tensor<?x?x8xf32>) outs(%g : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %r : tensor<?x?x8xf32>
}
