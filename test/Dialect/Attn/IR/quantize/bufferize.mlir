// RUN: fovea-opt %s --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" --canonicalize --split-input-file | FileCheck %s

// CHECK-LABEL: func @quantize(
// CHECK-SAME: %[[K:[^:]*]]: memref<1x1x9x8xf32>, %[[C:[^:]*]]: memref<1x4x8xf32>, %[[Z:[^:]*]]: memref<1x1x9xi32>, %[[O:[^:]*]]: memref<1x1x9x8xf32>, %[[S:[^:]*]]: index
// CHECK-NOT: memref.{{alloc|copy}}
// CHECK: attn.quantize ins(%[[K]], %[[C]] : {{.*}}) outs(%[[Z]], %[[O]] : memref<1x1x9xi32>, memref<1x1x9x8xf32>){{$}}
// CHECK-NEXT: attn.check_codes %[[Z]] below %[[S]] {name = "codes"} : memref<1x1x9xi32>
// CHECK-NEXT: return %[[Z]], %[[O]]
func.func @quantize(%k: tensor<1x1x9x8xf32>, %c: tensor<1x4x8xf32>, %z: tensor<1x1x9xi32>, %o: tensor<1x1x9x8xf32>, %s: index) -> (tensor<1x1x9xi32>, tensor<1x1x9x8xf32>) {
  %0:2 = attn.quantize ins(%k, %c : tensor<1x1x9x8xf32>, tensor<1x4x8xf32>) outs(%z, %o : tensor<1x1x9xi32>, tensor<1x1x9x8xf32>)
      -> tensor<1x1x9xi32>, tensor<1x1x9x8xf32>
  attn.check_codes %0#0 below %s {name = "codes"} : tensor<1x1x9xi32>
  return %0#0, %0#1 : tensor<1x1x9xi32>, tensor<1x1x9x8xf32>
}

// -----

// A state that is not needed afterwards is updated in place, also block by block.
// CHECK-LABEL: func @blocks(
// CHECK-SAME: %[[Z:[^:]*]]: memref<1x1x8xi32>, %[[V:[^:]*]]: memref<1x1x8x4xf32>, %[[M:[^:]*]]: memref<1x1x5x4xf32>, %[[N:[^:]*]]: memref<1x1x5xi32>
// CHECK-NOT: memref.{{alloc|copy}}
// CHECK: scf.for
// CHECK: attn.codebook_accumulate ins({{.*}}) outs(%[[M]], %[[N]] : memref<1x1x5x4xf32>, memref<1x1x5xi32>){{$}}
// CHECK-NOT: memref.{{alloc|copy}}
// CHECK: return %[[M]], %[[N]]
func.func @blocks(%z: tensor<1x1x8xi32>, %v: tensor<1x1x8x4xf32>, %m: tensor<1x1x5x4xf32>, %n: tensor<1x1x5xi32>) -> (tensor<1x1x5x4xf32>, tensor<1x1x5xi32>) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c8 = arith.constant 8 : index
  %0:2 = scf.for %i = %c0 to %c8 step %c2 iter_args(%a = %m, %b = %n) -> (tensor<1x1x5x4xf32>, tensor<1x1x5xi32>) {
    %zi = tensor.extract_slice %z[0, 0, %i] [1, 1, 2] [1, 1, 1] : tensor<1x1x8xi32> to tensor<1x1x2xi32>
    %vi = tensor.extract_slice %v[0, 0, %i, 0] [1, 1, 2, 4] [1, 1, 1, 1] : tensor<1x1x8x4xf32> to tensor<1x1x2x4xf32>
    %1:2 = attn.codebook_accumulate ins(%zi, %vi : tensor<1x1x2xi32>, tensor<1x1x2x4xf32>) outs(%a, %b : tensor<1x1x5x4xf32>, tensor<1x1x5xi32>)
        -> tensor<1x1x5x4xf32>, tensor<1x1x5xi32>
    scf.yield %1#0, %1#1 : tensor<1x1x5x4xf32>, tensor<1x1x5xi32>
  }
  return %0#0, %0#1 : tensor<1x1x5x4xf32>, tensor<1x1x5xi32>
}

// -----

// One that is needed is copied first.
// CHECK-LABEL: func @kept(
// CHECK-SAME: %[[M:[^:]*]]: memref<1x1x5x4xf32>, %[[N:[^:]*]]: memref<1x1x5xi32>)
// CHECK: %[[A:.*]] = memref.alloc() {{.*}} : memref<1x1x5x{{.*}}
// CHECK: memref.copy
// CHECK: memref.copy
// CHECK: attn.codebook_accumulate
// CHECK: return
func.func @kept(%z: tensor<1x1x8xi32>, %v: tensor<1x1x8x4xf32>, %m: tensor<1x1x5x4xf32>, %n: tensor<1x1x5xi32>) -> (tensor<1x1x5x4xf32>, tensor<1x1x5xi32>, tensor<1x1x5x4xf32>, tensor<1x1x5xi32>) {
  %1:2 = attn.codebook_accumulate ins(%z, %v : tensor<1x1x8xi32>, tensor<1x1x8x4xf32>) outs(%m, %n : tensor<1x1x5x4xf32>, tensor<1x1x5xi32>)
      -> tensor<1x1x5x4xf32>, tensor<1x1x5xi32>
  return %1#0, %1#1, %m, %n : tensor<1x1x5x4xf32>, tensor<1x1x5xi32>, tensor<1x1x5x4xf32>, tensor<1x1x5xi32>
}

// -----

// The others, without a copy.
// CHECK-LABEL: func @rest(
// CHECK-NOT: memref.{{alloc|copy}}
// CHECK: attn.codebook_scan ins({{.*}} : memref<1x1x8xi32>, memref<1x1x8x4xf32>, memref<1x1x5x4xf32>, memref<1x1x5xi32>) outs({{.*}}) {block = 4 : i64}{{$}}
// CHECK: attn.log_count ins(%{{.*}} : memref<1x1x5xi32>) outs(%{{.*}} : memref<1x1x5xf32>){{$}}
// CHECK: attn.codebook_update ins({{.*}}) outs({{.*}}){{$}}
// CHECK-NEXT: return
func.func @rest(%z: tensor<1x1x8xi32>, %v: tensor<1x1x8x4xf32>, %m: tensor<1x1x5x4xf32>, %n: tensor<1x1x5xi32>, %ms: tensor<1x1x3x5x4xf32>, %ns: tensor<1x1x3x5xi32>,
    %w: tensor<1x1x5xf32>, %c: tensor<1x5x4xf32>, %s: tensor<1x5x4xf32>, %f: tensor<1x5xf32>)
    -> (tensor<1x1x3x5x4xf32>, tensor<1x1x3x5xi32>, tensor<1x1x5xf32>, tensor<1x5x4xf32>, tensor<1x5x4xf32>, tensor<1x5xf32>) {
  %0:2 = attn.codebook_scan ins(%z, %v, %m, %n : tensor<1x1x8xi32>, tensor<1x1x8x4xf32>, tensor<1x1x5x4xf32>, tensor<1x1x5xi32>)
      outs(%ms, %ns : tensor<1x1x3x5x4xf32>, tensor<1x1x3x5xi32>) {block = 4 : i64} -> tensor<1x1x3x5x4xf32>, tensor<1x1x3x5xi32>
  %1 = attn.log_count ins(%n : tensor<1x1x5xi32>) outs(%w : tensor<1x1x5xf32>) -> tensor<1x1x5xf32>
  %2:3 = attn.codebook_update ins(%v, %z : tensor<1x1x8x4xf32>, tensor<1x1x8xi32>) outs(%c, %s, %f : tensor<1x5x4xf32>, tensor<1x5x4xf32>, tensor<1x5xf32>)
      -> tensor<1x5x4xf32>, tensor<1x5x4xf32>, tensor<1x5xf32>
  return %0#0, %0#1, %1, %2#0, %2#1, %2#2 : tensor<1x1x3x5x4xf32>, tensor<1x1x3x5xi32>, tensor<1x1x5xf32>, tensor<1x5x4xf32>, tensor<1x5x4xf32>, tensor<1x5xf32>
}
