// RUN: fovea-opt %s --attn-raise --canonicalize | FileCheck %s
// RUN: fovea-run %s --entry=asserted --random --shape=2x37x16 --shape=2x37x16 --compare=reference
// RUN: not fovea-run %s --entry=asserted --random --shape=2x37x16 --shape=2x36x16 2>&1 | FileCheck %s --check-prefix=ERROR

// Extents of several inputs are the same where that is asserted before anything is computed, and reshapes to shapes that are computed
// move numbers as those of neighbours do.

#s = affine_map<(b, h, n, m, d) -> (b, h, n, m)>
#q = affine_map<(b, h, n, m, d) -> (b, n, h, d)>
#k = affine_map<(b, h, n, m, d) -> (b, m, h, d)>
#x = affine_map<(b, h, n, e, m) -> (b, h, n, m)>
#v = affine_map<(b, h, n, e, m) -> (b, m, h, e)>
#o = affine_map<(b, h, n, e, m) -> (b, n, h, e)>
#p = affine_map<(b, h, n, m) -> (b, h, n, m)>

// CHECK-LABEL: func.func @asserted(
//       CHECK:   cf.assert
//       CHECK:   attn.dense {{.*}} tensor<?x2x?x8xf32>, tensor<?x2x?x8xf32>, tensor<?x2x?x8xf32>) outs({{.*}}) {mask = #attn.mask<causal>
// ERROR: other lengths
func.func @asserted(%q: tensor<?x?x16xf32>, %k: tensor<?x?x16xf32>) -> tensor<?x?x16xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c8 = arith.constant 8 : index
  %c16 = arith.constant 16 : index
  %b = tensor.dim %q, %c0 : tensor<?x?x16xf32>
  %n = tensor.dim %q, %c1 : tensor<?x?x16xf32>
  %a = tensor.dim %k, %c0 : tensor<?x?x16xf32>
  %m = tensor.dim %k, %c1 : tensor<?x?x16xf32>
  %sameBatch = arith.cmpi eq, %a, %b : index
  cf.assert %sameBatch, "other batches"
  %sameLength = arith.cmpi eq, %n, %m : index
  cf.assert %sameLength, "other lengths"
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %heads = tensor.from_elements %b, %n, %c2, %c8 : tensor<4xindex>
  %flat = tensor.from_elements %b, %n, %c16 : tensor<3xindex>
  %kheads = tensor.from_elements %a, %m, %c2, %c8 : tensor<4xindex>
  %qh = tensor.reshape %q(%heads) : (tensor<?x?x16xf32>, tensor<4xindex>) -> tensor<?x?x2x8xf32>
  %kh = tensor.reshape %k(%kheads) : (tensor<?x?x16xf32>, tensor<4xindex>) -> tensor<?x?x2x8xf32>
  %e = tensor.empty(%b, %n, %n) : tensor<?x2x?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x2x?x?xf32>) -> tensor<?x2x?x?xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%qh, %kh : tensor<?x?x2x8xf32>, tensor<?x?x2x8xf32>) outs(%z : tensor<?x2x?x?xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<?x2x?x?xf32>
  %masked = linalg.generic {indexing_maps = [#p, #p], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s : tensor<?x2x?x?xf32>) outs(%e : tensor<?x2x?x?xf32>) {
  ^bb0(%score: f32, %o: f32):
    %i = linalg.index 2 : index
    %j = linalg.index 3 : index
    %c = arith.cmpi sge, %i, %j : index
    %t = arith.select %c, %score, %low : f32
    linalg.yield %t : f32
  } -> tensor<?x2x?x?xf32>
  %w = linalg.softmax dimension(3) ins(%masked : tensor<?x2x?x?xf32>) outs(%e : tensor<?x2x?x?xf32>) -> tensor<?x2x?x?xf32>
  %f = tensor.empty(%b, %n) : tensor<?x?x2x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<?x?x2x8xf32>) -> tensor<?x?x2x8xf32>
  %y = linalg.generic {indexing_maps = [#x, #v, #o], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%w, %kh : tensor<?x2x?x?xf32>, tensor<?x?x2x8xf32>) outs(%g : tensor<?x?x2x8xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<?x?x2x8xf32>
  %r = tensor.reshape %y(%flat) : (tensor<?x?x2x8xf32>, tensor<3xindex>) -> tensor<?x?x16xf32>
  return %r : tensor<?x?x16xf32>
}

// What is asserted later does not hold before.

// CHECK-LABEL: func.func @asserted_late(
//   CHECK-NOT:   attn.dense
func.func @asserted_late(%q: tensor<?x?x16xf32>, %k: tensor<?x?x16xf32>) -> tensor<?x?x16xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c8 = arith.constant 8 : index
  %c16 = arith.constant 16 : index
  %b = tensor.dim %q, %c0 : tensor<?x?x16xf32>
  %n = tensor.dim %q, %c1 : tensor<?x?x16xf32>
  %a = tensor.dim %k, %c0 : tensor<?x?x16xf32>
  %m = tensor.dim %k, %c1 : tensor<?x?x16xf32>
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %heads = tensor.from_elements %b, %n, %c2, %c8 : tensor<4xindex>
  %flat = tensor.from_elements %b, %n, %c16 : tensor<3xindex>
  %kheads = tensor.from_elements %a, %m, %c2, %c8 : tensor<4xindex>
  %qh = tensor.reshape %q(%heads) : (tensor<?x?x16xf32>, tensor<4xindex>) -> tensor<?x?x2x8xf32>
  %kh = tensor.reshape %k(%kheads) : (tensor<?x?x16xf32>, tensor<4xindex>) -> tensor<?x?x2x8xf32>
  %e = tensor.empty(%b, %n, %n) : tensor<?x2x?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x2x?x?xf32>) -> tensor<?x2x?x?xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%qh, %kh : tensor<?x?x2x8xf32>, tensor<?x?x2x8xf32>) outs(%z : tensor<?x2x?x?xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<?x2x?x?xf32>
  %masked = linalg.generic {indexing_maps = [#p, #p], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s : tensor<?x2x?x?xf32>) outs(%e : tensor<?x2x?x?xf32>) {
  ^bb0(%score: f32, %o: f32):
    %i = linalg.index 2 : index
    %j = linalg.index 3 : index
    %c = arith.cmpi sge, %i, %j : index
    %t = arith.select %c, %score, %low : f32
    linalg.yield %t : f32
  } -> tensor<?x2x?x?xf32>
  %sameBatch = arith.cmpi eq, %a, %b : index
  cf.assert %sameBatch, "other batches"
  %sameLength = arith.cmpi eq, %n, %m : index
  cf.assert %sameLength, "other lengths"
  %w = linalg.softmax dimension(3) ins(%masked : tensor<?x2x?x?xf32>) outs(%e : tensor<?x2x?x?xf32>) -> tensor<?x2x?x?xf32>
  %f = tensor.empty(%b, %n) : tensor<?x?x2x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<?x?x2x8xf32>) -> tensor<?x?x2x8xf32>
  %y = linalg.generic {indexing_maps = [#x, #v, #o], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%w, %kh : tensor<?x2x?x?xf32>, tensor<?x?x2x8xf32>) outs(%g : tensor<?x?x2x8xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<?x?x2x8xf32>
  %r = tensor.reshape %y(%flat) : (tensor<?x?x2x8xf32>, tensor<3xindex>) -> tensor<?x?x16xf32>
  return %r : tensor<?x?x16xf32>
}
