// RUN: fovea-opt %s --convert-attn-to-gpu --canonicalize --split-input-file --verify-diagnostics | FileCheck %s

#tree = #attn.tree<ratio = 2, levels = 2>

// A tree too small for many warps is built by a launch for each level above the
// tokens, with a warp for each node; means wait in f32.
// CHECK-LABEL: func.func @build
// CHECK: %[[MEANS:.*]] = memref.alloc() {{.*}} : memref<1x2x8xf32>
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c2, {{.*}} threads({{.*}}) in (%{{.*}} = %c32,
// CHECK-NOT: memref.prefetch
// CHECK: memref.store %{{.*}}, %[[MEANS]]
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c1, {{.*}} threads({{.*}}) in (%{{.*}} = %c32,
// CHECK: memref.load %[[MEANS]]
// CHECK-NOT: gpu.launch
// CHECK: memref.dealloc %[[MEANS]]
func.func @build(%c: memref<1x4x8xf16>, %t: memref<1x7x8xf16>) {
  attn.tree_build ins(%c : memref<1x4x8xf16>) outs(%t : memref<1x7x8xf16>) {shape = #tree}
  return
}

// A warp for each 32 columns goes through the list, with changes that wait in
// shared memory. Lanes read which rows of the path are known before one changes that.
// CHECK-LABEL: func.func @update
// CHECK-NOT: memref.alloc
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c2, {{.*}} threads({{.*}}) in (%{{.*}} = %c32,
// CHECK: memref<5x32xf32, #gpu.address_space<workgroup>>
// CHECK: scf.while
// CHECK: nvvm.bar.warp.sync
// CHECK: memref.load %arg2
// CHECK: nvvm.bar.warp.sync
// CHECK-NOT: gpu.launch
// CHECK: return
func.func @update(%r: memref<1x3x64xf32>, %l: memref<1x3xi32>, %t: memref<1x7x64xf32>) {
  attn.tree_update ins(%r : memref<1x3x64xf32>) nodes(%l, %l : memref<1x3xi32>, memref<1x3xi32>) outs(%t : memref<1x7x64xf32>) {shape = #tree}
  return
}

// Lists of many roots are divided among warps: 4 of eight nodes for each of two
// slices of columns.
// CHECK-LABEL: func.func @roots
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c8,
// CHECK-COUNT-3: scf.while
func.func @roots(%r: memref<1x32x64xf32>, %l: memref<1x32xi32>, %t: memref<1x56x64xf32>) {
  attn.tree_update ins(%r : memref<1x32x64xf32>) nodes(%l, %l : memref<1x32xi32>, memref<1x32xi32>) outs(%t : memref<1x56x64xf32>) {shape = #tree}
  return
}

// A warp for each listed node, of which one lane stores the weight.
// CHECK-LABEL: func.func @fetch
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c3,
// CHECK: scf.if
// CHECK: memref.store %{{.*}}, %arg3
// CHECK: nvvm.bar.warp.sync
func.func @fetch(%t: memref<1x7x8xf32>, %l: memref<1x3xi32>, %r: memref<1x3x8xf32>, %w: memref<1x3xf32>) {
  attn.tree_fetch ins(%t : memref<1x7x8xf32>) nodes(%l, %l : memref<1x3xi32>, memref<1x3xi32>) outs(%r, %w : memref<1x3x8xf32>, memref<1x3xf32>) {shape = #tree}
  return
}

// A warp for each batch entry: 32 bits of the least score that is split, and
// lists in order.
// CHECK-LABEL: func.func @split
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c1, {{.*}} threads({{.*}}) in (%{{.*}} = %c32,
// CHECK: scf.for {{.*}} to %c32 {{.*}} -> (i32, i32)
// CHECK: arith.cmpf oge
// CHECK-COUNT-5: nvvm.shfl.sync bfly
// CHECK: nvvm.vote.sync ballot
// CHECK-NOT: gpu.launch
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
