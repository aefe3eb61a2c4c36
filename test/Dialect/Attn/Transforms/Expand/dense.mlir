// RUN: fovea-opt %s --attn-expand-patterns | FileCheck %s

// CHECK-DAG: #[[$ALL:.+]] = affine_map<(d0)[s0, s1] -> (0, s0)>

// The default scale is resolved: 1 / sqrt(16).
// CHECK-LABEL: func @plain
// CHECK: attn.stream query(%{{.*}} : tensor<2x4x10x16xf32>)
// CHECK-NEXT: source(%{{.*}}, %{{.*}} : tensor<2x2x12x16xf32>, tensor<2x2x12x8xf32>) ranges [#[[$ALL]]]{{$}}
// CHECK-NEXT: outs(%{{.*}} : tensor<2x4x10x8xf32>) {block = 0 : i64, scale = 2.500000e-01 : f64}
func.func @plain(%q: tensor<2x4x10x16xf32>, %k: tensor<2x2x12x16xf32>,
                 %v: tensor<2x2x12x8xf32>, %o: tensor<2x4x10x8xf32>)
    -> tensor<2x4x10x8xf32> {
  %out = attn.dense
      ins(%q, %k, %v : tensor<2x4x10x16xf32>, tensor<2x2x12x16xf32>, tensor<2x2x12x8xf32>)
      outs(%o : tensor<2x4x10x8xf32>) -> tensor<2x4x10x8xf32>
  return %out : tensor<2x4x10x8xf32>
}

// Every operand and attribute arrives at the source.
// CHECK-LABEL: func @everything
// CHECK-SAME: (%[[Q:[a-z0-9]+]]: {{.*}}, %[[K:[a-z0-9]+]]: {{.*}}, %[[V:[a-z0-9]+]]: {{.*}}, %[[W:[a-z0-9]+]]: {{.*}}, %[[B:[a-z0-9]+]]: {{.*}}, %[[O:[a-z0-9]+]]: {{.*}}, %[[L:[a-z0-9]+]]: {{.*}})
// CHECK-NEXT: %[[OUT:.+]]:2 = attn.stream query(%[[Q]] : tensor<?x4x?x16xbf16>)
// CHECK-NEXT: source(%[[K]], %[[V]] : tensor<?x1x?x16xbf16>, tensor<?x1x?x8xbf16>) log_weight(%[[W]] : tensor<1x1x?xf32>) bias(%[[B]] : tensor<1x4x?x?xbf16>) ranges [#[[$ALL]]] mask <causal, window = 5>{{$}}
// CHECK-NEXT: outs(%[[O]], %[[L]] : tensor<?x4x?x8xbf16>, tensor<?x4x?xf32>) {block = 0 : i64, scale = 3.000000e-01 : f64} -> tensor<?x4x?x8xbf16>, tensor<?x4x?xf32>
// CHECK-NEXT: return %[[OUT]]#0, %[[OUT]]#1
func.func @everything(%q: tensor<?x4x?x16xbf16>, %k: tensor<?x1x?x16xbf16>,
                      %v: tensor<?x1x?x8xbf16>, %w: tensor<1x1x?xf32>,
                      %b: tensor<1x4x?x?xbf16>, %o: tensor<?x4x?x8xbf16>,
                      %l: tensor<?x4x?xf32>)
    -> (tensor<?x4x?x8xbf16>, tensor<?x4x?xf32>) {
  %out:2 = attn.dense
      ins(%q, %k, %v : tensor<?x4x?x16xbf16>, tensor<?x1x?x16xbf16>, tensor<?x1x?x8xbf16>)
      log_weight(%w : tensor<1x1x?xf32>) bias(%b : tensor<1x4x?x?xbf16>)
      outs(%o, %l : tensor<?x4x?x8xbf16>, tensor<?x4x?xf32>)
      {scale = 0.3 : f64, mask = #attn.mask<causal, window = 5>}
      -> tensor<?x4x?x8xbf16>, tensor<?x4x?xf32>
  return %out#0, %out#1 : tensor<?x4x?x8xbf16>, tensor<?x4x?xf32>
}

// Needs no tensor of its own, so buffers are as good.
// CHECK-LABEL: func @buffers
// CHECK: attn.stream
// CHECK-NOT: ->
// CHECK: return
func.func @buffers(%q: memref<1x1x8x4xf32>, %o: memref<1x1x8x4xf32>) {
  attn.dense ins(%q, %q, %q : memref<1x1x8x4xf32>, memref<1x1x8x4xf32>, memref<1x1x8x4xf32>)
      outs(%o : memref<1x1x8x4xf32>)
  return
}
