// RUN: fovea-opt %s --convert-attn-to-vector --canonicalize | FileCheck %s

// The only query block reads no row of the second source, which then has no
// table of rows, and no use.
// CHECK-LABEL: func @unread
// CHECK-SAME: %{{[^:]*}}: memref<1x1x64x16xf32>, %[[S:[^:]*]]: memref<1x1x4x16xf32>, %[[W:[^:]*]]: memref<1x1x4xf32>, %[[O:[^:]*]]: memref<1x1x64x16xf32>
// CHECK-NOT: subview %[[S]][
// CHECK-NOT: subview %[[W]][
// CHECK: subview %[[O]][
// CHECK-NOT: subview %[[S]][
// CHECK-NOT: subview %[[W]][
// CHECK: return
func.func @unread(%q: memref<1x1x64x16xf32>, %s: memref<1x1x4x16xf32>, %w: memref<1x1x4xf32>, %o: memref<1x1x64x16xf32>) {
  attn.stream query(%q : memref<1x1x64x16xf32>)
      source(%q, %q : memref<1x1x64x16xf32>, memref<1x1x64x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      source(%s, %s : memref<1x1x4x16xf32>, memref<1x1x4x16xf32>) log_weight(%w : memref<1x1x4xf32>) ranges [affine_map<(b)[rows, n] -> (0, b)>]
      outs(%o : memref<1x1x64x16xf32>)
      {block = 64 : i64, scale = 0.25, tiles = #attn.tiles<query = 64, key = 64, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}
