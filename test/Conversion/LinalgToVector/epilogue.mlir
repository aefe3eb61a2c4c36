// RUN: fovea-opt %s --attn-set-target="vector-bits=256 num-registers=16" --attn-vectorize-linalg --canonicalize --cse | FileCheck %s

#rows = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (j)>
#transposed = affine_map<(i, j) -> (j, i)>

// A bias and a residual are added by the tasks of the product, which is never
// in memory. The factor is freed after that.

// CHECK-LABEL: func.func @biased(
// CHECK-SAME:    %{{.*}}, %[[B:[a-z0-9]+]]: memref<32x64xf32>, %[[BIAS:[a-z0-9]+]]: memref<64xf32>, %[[OLD:[a-z0-9]+]]: memref<96x64xf32>)
//   CHECK-NOT:   memref<96x64xf32> to
//       CHECK:   %[[OUT:.*]] = memref.alloc() : memref<96x64xf32>
//   CHECK-NOT:   memref.alloc() : memref<96x64xf32>
//       CHECK:   scf.forall
//       CHECK:     vector.fma
//       CHECK:     %[[BIASES:.*]] = vector.load %[[BIAS]]
//       CHECK:     arith.addf %{{.*}}, %[[BIASES]]
//       CHECK:     vector.load %[[OLD]]
//       CHECK:     vector.store %{{.*}}, %[[OUT]]
//   CHECK-NOT:   scf.forall
//       CHECK:   memref.dealloc
//       CHECK:   return %[[OUT]]
func.func @biased(%x: memref<96x32xf32>, %b: memref<32x64xf32>, %bias: memref<64xf32>, %old: memref<96x64xf32>) -> memref<96x64xf32> {
  %zero = arith.constant 0.0 : f32
  %a = memref.alloc() : memref<96x32xf32>
  linalg.copy ins(%x : memref<96x32xf32>) outs(%a : memref<96x32xf32>)
  %product = memref.alloc() : memref<96x64xf32>
  linalg.fill ins(%zero : f32) outs(%product : memref<96x64xf32>)
  linalg.matmul ins(%a, %b : memref<96x32xf32>, memref<32x64xf32>) outs(%product : memref<96x64xf32>)
  memref.dealloc %a : memref<96x32xf32>
  %out = memref.alloc() : memref<96x64xf32>
  linalg.generic {indexing_maps = [#rows, #column, #rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%product, %bias, %old : memref<96x64xf32>, memref<64xf32>, memref<96x64xf32>) outs(%out : memref<96x64xf32>) {
  ^bb0(%p: f32, %c: f32, %o: f32, %unused: f32):
    %s = arith.addf %p, %c : f32
    %r = arith.addf %s, %o : f32
    linalg.yield %r : f32
  }
  memref.dealloc %product : memref<96x64xf32>
  return %out : memref<96x64xf32>
}

// Something else reads the product, too.

// CHECK-LABEL: func.func @read_twice(
//       CHECK:   scf.forall
//       CHECK:     vector.fma
//       CHECK:   scf.forall
//   CHECK-NOT:     vector.fma
//       CHECK:   return
func.func @read_twice(%a: memref<96x512xf32>, %b: memref<512x512xf32>) -> (memref<96x512xf32>, memref<96x512xf32>) {
  %product = memref.alloc() : memref<96x512xf32>
  linalg.matmul ins(%a, %b : memref<96x512xf32>, memref<512x512xf32>) outs(%product : memref<96x512xf32>)
  %out = memref.alloc() : memref<96x512xf32>
  linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%product : memref<96x512xf32>) outs(%out : memref<96x512xf32>) {
  ^bb0(%p: f32, %unused: f32):
    %r = math.absf %p : f32
    linalg.yield %r : f32
  }
  return %product, %out : memref<96x512xf32>, memref<96x512xf32>
}

// A factor changes before the reader: the product cannot wait for it.

// CHECK-LABEL: func.func @factor_changes(
//       CHECK:   scf.forall
//       CHECK:     vector.fma
//       CHECK:   memref.store
//       CHECK:   scf.forall
//       CHECK:   return
func.func @factor_changes(%b: memref<512x512xf32>, %x: f32) -> memref<96x512xf32> {
  %c0 = arith.constant 0 : index
  %a = memref.alloc() : memref<96x512xf32>
  linalg.fill ins(%x : f32) outs(%a : memref<96x512xf32>)
  %product = memref.alloc() : memref<96x512xf32>
  linalg.matmul ins(%a, %b : memref<96x512xf32>, memref<512x512xf32>) outs(%product : memref<96x512xf32>)
  memref.store %x, %a[%c0, %c0] : memref<96x512xf32>
  %out = memref.alloc() : memref<96x512xf32>
  linalg.generic {indexing_maps = [#rows, #rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%product, %a : memref<96x512xf32>, memref<96x512xf32>) outs(%out : memref<96x512xf32>) {
  ^bb0(%p: f32, %y: f32, %unused: f32):
    %r = arith.addf %p, %y : f32
    linalg.yield %r : f32
  }
  return %out : memref<96x512xf32>
}

// Results go over a factor, which other tasks still read; or are transposed.

// CHECK-LABEL: func.func @over_factor(
//       CHECK:   scf.forall
//       CHECK:     vector.fma
//       CHECK:   scf.forall
//       CHECK:   scf.forall
//       CHECK:     vector.fma
//       CHECK:   scf.forall
//       CHECK:   return
func.func @over_factor(%b: memref<512x512xf32>, %x: f32) -> (memref<512x512xf32>, memref<512x512xf32>) {
  %a = memref.alloc() : memref<512x512xf32>
  linalg.fill ins(%x : f32) outs(%a : memref<512x512xf32>)
  %one = memref.alloc() : memref<512x512xf32>
  linalg.matmul ins(%a, %b : memref<512x512xf32>, memref<512x512xf32>) outs(%one : memref<512x512xf32>)
  linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%one : memref<512x512xf32>) outs(%a : memref<512x512xf32>) {
  ^bb0(%p: f32, %unused: f32):
    %r = math.absf %p : f32
    linalg.yield %r : f32
  }
  %other = memref.alloc() : memref<512x512xf32>
  linalg.matmul ins(%a, %b : memref<512x512xf32>, memref<512x512xf32>) outs(%other : memref<512x512xf32>)
  %out = memref.alloc() : memref<512x512xf32>
  linalg.generic {indexing_maps = [#rows, #transposed], iterator_types = ["parallel", "parallel"]}
      ins(%other : memref<512x512xf32>) outs(%out : memref<512x512xf32>) {
  ^bb0(%p: f32, %unused: f32):
    %r = math.absf %p : f32
    linalg.yield %r : f32
  }
  return %a, %out : memref<512x512xf32>, memref<512x512xf32>
}
