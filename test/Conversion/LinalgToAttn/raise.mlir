// RUN: fovea-opt %s --attn-raise --canonicalize | FileCheck %s
// RUN: fovea-opt %s --attn-raise --remarks-filter='attn.*' --remark-policy=all --remark-format=emitRemark 2>&1 >/dev/null \
// RUN:   | FileCheck %s --check-prefix=REMARK
// RUN: fovea-opt %s --attn-raise=fully-masked=refuse --canonicalize | FileCheck %s --check-prefix=REFUSE
// RUN: fovea-opt %s --attn-raise=max-mask-elements=8 --canonicalize | FileCheck %s --check-prefix=UNKNOWN

// Heads in the middle, a scale on the keys, a causal mask of positions, and one
// of run time for keys.
#bhnd = affine_map<(b, n, h, m, d) -> (b, n, h, d)>
#bhmd = affine_map<(b, n, h, m, d) -> (b, m, h, d)>
#bhnm = affine_map<(b, n, h, m, d) -> (b, h, n, m)>
#all = affine_map<(b, h, n, m) -> (b, h, n, m)>
#row = affine_map<(b, h, n, m) -> (b, h, n)>
#keep = affine_map<(b, h, n, m) -> (b, m)>

// CHECK-LABEL: func.func @heads_in_the_middle(
// CHECK-SAME:    %[[Q:.+]]: tensor<2x6x3x8xf32>, %[[K:.+]]: tensor<2x6x3x8xf32>, %[[V:.+]]: tensor<2x6x3x8xf32>, %[[KEEP:.+]]: tensor<2x6xi1>)
// CHECK-NOT:     math.exp
// CHECK:         %[[QT:.+]] = linalg.transpose ins(%[[Q]] : {{.*}} permutation = [0, 2, 1, 3]
// CHECK:         %[[KT:.+]] = linalg.transpose ins(%[[K]] : {{.*}} permutation = [0, 2, 1, 3]
// CHECK:         %[[VT:.+]] = linalg.transpose ins(%[[V]] : {{.*}} permutation = [0, 2, 1, 3]
// CHECK:         %[[P:.+]] = tensor.expand_shape %[[KEEP]] {{.*}} tensor<2x6xi1> into tensor<2x1x1x6xi1>
// CHECK:         %[[BIAS:.+]] = linalg.generic {{.*}} ins(%[[P]] : tensor<2x1x1x6xi1>)
// CHECK:           arith.select %{{.*}}, %{{.*}}, %{{.*}} : f32
// CHECK:         %[[O:.+]] = attn.dense ins(%[[QT]], %[[KT]], %[[VT]] : {{.*}}) bias(%[[BIAS]] : tensor<2x1x1x6xf32>)
// CHECK-SAME:      {mask = #attn.mask<causal>, scale = 2.500000e-01 : f64} -> tensor<2x3x6x8xf32>
// CHECK:         return %[[O]]

// REMARK: remark: [Passed] AttentionRaised | Category:attn-raise | Scale=2.5{{.*}}, Terms=1

// REFUSE-LABEL: func.func @heads_in_the_middle(
// REFUSE-NOT:     attn.dense
// REFUSE:         linalg.softmax

// UNKNOWN-LABEL: func.func @heads_in_the_middle(
// UNKNOWN:         attn.dense {{.*}} bias(%{{.*}} : tensor<2x1x6x6xf32>) {{.*}} {scale = 2.500000e-01 : f64}
func.func @heads_in_the_middle(%q: tensor<2x6x3x8xf32>, %k: tensor<2x6x3x8xf32>, %v: tensor<2x6x3x8xf32>,
                               %keep: tensor<2x6xi1>) -> tensor<2x3x6x8xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %quarter = arith.constant dense<2.5e-01> : tensor<2x6x3x8xf32>
  %scaled = arith.mulf %k, %quarter : tensor<2x6x3x8xf32>
  %scores = tensor.empty() : tensor<2x3x6x6xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%scores : tensor<2x3x6x6xf32>) -> tensor<2x3x6x6xf32>
  %s = linalg.generic {indexing_maps = [#bhnd, #bhmd, #bhnm],
                       iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %scaled : tensor<2x6x3x8xf32>, tensor<2x6x3x8xf32>) outs(%zeros : tensor<2x3x6x6xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %r = arith.addf %p, %o : f32
    linalg.yield %r : f32
  } -> tensor<2x3x6x6xf32>
  %x = linalg.generic {indexing_maps = [#all, #keep, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s, %keep : tensor<2x3x6x6xf32>, tensor<2x6xi1>) outs(%scores : tensor<2x3x6x6xf32>) {
  ^bb0(%a: f32, %c: i1, %o: f32):
    %i = linalg.index 2 : index
    %j = linalg.index 3 : index
    %causal = arith.cmpi sle, %j, %i : index
    %both = arith.andi %causal, %c : i1
    %r = arith.select %both, %a, %low : f32
    linalg.yield %r : f32
  } -> tensor<2x3x6x6xf32>
  %p = linalg.softmax dimension(3) ins(%x : tensor<2x3x6x6xf32>) outs(%scores : tensor<2x3x6x6xf32>) -> tensor<2x3x6x6xf32>
  %result = tensor.empty() : tensor<2x3x6x8xf32>
  %none = linalg.fill ins(%zero : f32) outs(%result : tensor<2x3x6x8xf32>) -> tensor<2x3x6x8xf32>
  %o = linalg.generic {indexing_maps = [#bhnm, #bhmd, affine_map<(b, n, h, m, d) -> (b, h, n, d)>],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction", "parallel"]}
      ins(%p, %v : tensor<2x3x6x6xf32>, tensor<2x6x3x8xf32>) outs(%none : tensor<2x3x6x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %m, %o : f32
    linalg.yield %r : f32
  } -> tensor<2x3x6x8xf32>
  return %o : tensor<2x3x6x8xf32>
}

// Weights that are returned as well stay, for that.
// CHECK-LABEL: func.func @weights_too(
// CHECK:         linalg.softmax
// CHECK:         attn.dense
// CHECK:         return
func.func @weights_too(%q: tensor<4x8xf32>, %k: tensor<6x8xf32>, %v: tensor<6x8xf32>) -> (tensor<4x8xf32>, tensor<4x6xf32>) {
  %zero = arith.constant 0.0 : f32
  %scores = tensor.empty() : tensor<4x6xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%scores : tensor<4x6xf32>) -> tensor<4x6xf32>
  %s = linalg.matmul indexing_maps = [affine_map<(n, m, d) -> (n, d)>, affine_map<(n, m, d) -> (m, d)>, affine_map<(n, m, d) -> (n, m)>]
      ins(%q, %k : tensor<4x8xf32>, tensor<6x8xf32>) outs(%zeros : tensor<4x6xf32>) -> tensor<4x6xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<4x6xf32>) outs(%scores : tensor<4x6xf32>) -> tensor<4x6xf32>
  %result = tensor.empty() : tensor<4x8xf32>
  %none = linalg.fill ins(%zero : f32) outs(%result : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x6xf32>, tensor<6x8xf32>) outs(%none : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o, %p : tensor<4x8xf32>, tensor<4x6xf32>
}
