// RUN: fovea-opt %s --convert-attn-to-gpu --canonicalize --split-input-file --verify-diagnostics | FileCheck %s

#tree = #attn.tree<ratio = 2, levels = 2>

// A loop for each level above the tokens; means wait in f32.
// CHECK-LABEL: func.func @build
// CHECK: memref.alloc() : memref<1x3x8xf32>
// CHECK-COUNT-2: scf.parallel
// CHECK-NOT: scf.parallel
// CHECK: memref.dealloc
func.func @build(%c: memref<1x4x8xf16>, %t: memref<1x7x8xf16>) {
  attn.tree_build ins(%c : memref<1x4x8xf16>) outs(%t : memref<1x7x8xf16>) {shape = #tree}
  return
}

// Changes of listed nodes, then for each level where they are and what they do.
// CHECK-LABEL: func.func @update
// CHECK-COUNT-5: scf.parallel
// CHECK-NOT: scf.parallel
// CHECK: return
func.func @update(%r: memref<1x3x8xf32>, %l: memref<1x3xi32>, %t: memref<1x7x8xf32>) {
  attn.tree_update ins(%r : memref<1x3x8xf32>) nodes(%l, %l : memref<1x3xi32>, memref<1x3xi32>) outs(%t : memref<1x7x8xf32>) {shape = #tree}
  return
}

// CHECK-LABEL: func.func @split
// CHECK: scf.parallel
// CHECK: gpu.launch {{.*}} threads({{.*}}) in (%{{.*}} = %c256,
// CHECK-COUNT-2: gpu.barrier
func.func @split(%s: memref<1x4xf32>, %l: memref<1x5xi32>, %c: memref<1x2xi32>) {
  attn.tree_split scores(%s : memref<1x4xf32>) outs(%l, %l, %c : memref<1x5xi32>, memref<1x5xi32>, memref<1x2xi32>)
      {shape = #attn.tree<ratio = 2, levels = 1>, at = 1 : i64, split = 1 : i64}
  return
}

// -----

func.func @f64(%t: memref<1x7x8xf64>, %c: memref<1x4x8xf64>) {
  // expected-error@+1 {{'attn.tree_materialize' op has data of type 'f64', but GPU kernels take f16, bf16 and f32}}
  attn.tree_materialize ins(%t : memref<1x7x8xf64>) outs(%c : memref<1x4x8xf64>) {shape = #attn.tree<ratio = 2, levels = 2>}
  return
}
