// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --attn-vectorize-linalg --canonicalize --cse | FileCheck %s

// The steps of a norm are one loop over rows: sums along vectors, then what reads them.

#all = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>

// CHECK-LABEL: func.func @norm(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]:
//       CHECK:   scf.forall
//       CHECK:     scf.for %[[ROW:.*]] =
//       CHECK:       arith.addf %{{.*}} : vector<8xf32>
//       CHECK:       memref.store %{{.*}}, %{{.*}}[%[[ROW]]]
//       CHECK:       math.rsqrt
//       CHECK:       vector.store %{{.*}}, %{{.*}}[%[[ROW]], %{{.*}}]
//       CHECK:       memref.prefetch %[[X]][%{{.*}}, %{{.*}}], read
//   CHECK-NOT:   scf.forall
//       CHECK:   memref.dealloc
//       CHECK:   return
func.func @norm(%x: memref<640x256xf32>, %w: memref<256xf32>) -> memref<640x256xf32> {
  %zero = arith.constant 0.0 : f32
  %s = memref.alloc() : memref<640xf32>
  linalg.fill ins(%zero : f32) outs(%s : memref<640xf32>)
  linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<640x256xf32>) outs(%s : memref<640xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.mulf %a, %a : f32
    %r = arith.addf %p, %o : f32
    linalg.yield %r : f32
  }
  %out = memref.alloc() : memref<640x256xf32>
  linalg.generic {indexing_maps = [#all, #row, #column, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s, %w : memref<640x256xf32>, memref<640xf32>, memref<256xf32>) outs(%out : memref<640x256xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
    %f = math.rsqrt %b : f32
    %p = arith.mulf %a, %f : f32
    %r = arith.mulf %p, %c : f32
    linalg.yield %r : f32
  }
  memref.dealloc %s : memref<640xf32>
  return %out : memref<640x256xf32>
}

// What reads other rows of an array than it computes waits for all of them.

// CHECK-LABEL: func.func @transposed(
// CHECK-COUNT-2: scf.forall
func.func @transposed(%x: memref<640x640xf32>) -> memref<640x640xf32> {
  %t = memref.alloc() : memref<640x640xf32>
  linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<640x640xf32>) outs(%t : memref<640x640xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  }
  %out = memref.alloc() : memref<640x640xf32>
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%t, %t : memref<640x640xf32>, memref<640x640xf32>) outs(%out : memref<640x640xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  }
  memref.dealloc %t : memref<640x640xf32>
  return %out : memref<640x640xf32>
}

// Nor is there a group around what reads a step's results in between.

// CHECK-LABEL: func.func @read_between(
//       CHECK:   scf.forall
//       CHECK:   call @look
//       CHECK:   scf.forall
func.func private @look(memref<640x640xf32>)
func.func @read_between(%x: memref<640x640xf32>) -> memref<640x640xf32> {
  %t = memref.alloc() : memref<640x640xf32>
  linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<640x640xf32>) outs(%t : memref<640x640xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  }
  call @look(%t) : (memref<640x640xf32>) -> ()
  linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<640x640xf32>) outs(%t : memref<640x640xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %a, %o : f32
    linalg.yield %r : f32
  }
  return %t : memref<640x640xf32>
}

// Rows have two dimensions where sums keep them.

// CHECK-LABEL: func.func @batches(
//       CHECK:   scf.forall (%[[B:.*]], %[[C:.*]]) in
//       CHECK:     scf.for %[[ROW:.*]] =
//       CHECK:       memref.store %{{.*}}, %{{.*}}[%[[B]], %[[ROW]]]
//   CHECK-NOT:   scf.forall
//       CHECK:   return
func.func @batches(%x: memref<3x640x256xf32>) -> memref<3x640x256xf32> {
  %zero = arith.constant 0.0 : f32
  %s = memref.alloc() : memref<3x640xf32>
  linalg.fill ins(%zero : f32) outs(%s : memref<3x640xf32>)
  linalg.generic {indexing_maps = [affine_map<(b, i, j) -> (b, i, j)>, affine_map<(b, i, j) -> (b, i)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : memref<3x640x256xf32>) outs(%s : memref<3x640xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %a, %o : f32
    linalg.yield %r : f32
  }
  %out = memref.alloc() : memref<3x640x256xf32>
  linalg.generic {indexing_maps = [affine_map<(b, i, j) -> (b, i, j)>, affine_map<(b, i, j) -> (b, i)>, affine_map<(b, i, j) -> (b, i, j)>],
                  iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %s : memref<3x640x256xf32>, memref<3x640xf32>) outs(%out : memref<3x640x256xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.subf %a, %b : f32
    linalg.yield %r : f32
  }
  return %out : memref<3x640x256xf32>
}

// Halves of rows are written together, as the same rows are read for them.

// CHECK-LABEL: func.func @halves(
//       CHECK:   scf.forall
//       CHECK:     scf.for %[[ROW:.*]] =
// CHECK-COUNT-2:     vector.store %{{.*}}, %{{.*}}[%[[ROW]], %{{.*}}]
//   CHECK-NOT:   scf.forall
//       CHECK:   return
func.func @halves(%x: memref<640x256xf32>) -> memref<640x256xf32> {
  %low = memref.subview %x[0, 0] [640, 128] [1, 1] : memref<640x256xf32> to memref<640x128xf32, strided<[256, 1]>>
  %high = memref.subview %x[0, 128] [640, 128] [1, 1] : memref<640x256xf32> to memref<640x128xf32, strided<[256, 1], offset: 128>>
  %out = memref.alloc() : memref<640x256xf32>
  %first = memref.subview %out[0, 0] [640, 128] [1, 1] : memref<640x256xf32> to memref<640x128xf32, strided<[256, 1]>>
  linalg.sub ins(%low, %high : memref<640x128xf32, strided<[256, 1]>>, memref<640x128xf32, strided<[256, 1], offset: 128>>)
      outs(%first : memref<640x128xf32, strided<[256, 1]>>)
  %second = memref.subview %out[0, 128] [640, 128] [1, 1] : memref<640x256xf32> to memref<640x128xf32, strided<[256, 1], offset: 128>>
  linalg.add ins(%low, %high : memref<640x128xf32, strided<[256, 1]>>, memref<640x128xf32, strided<[256, 1], offset: 128>>)
      outs(%second : memref<640x128xf32, strided<[256, 1], offset: 128>>)
  return %out : memref<640x256xf32>
}

// So are rows of pairs and what is beside them, but where these overlap.

// CHECK-LABEL: func.func @pairs(
//       CHECK:   scf.forall
//   CHECK-NOT:   scf.forall
//       CHECK:   return
func.func @pairs(%x: memref<640x96xf32>, %y: memref<640x16x2xf32>) -> memref<640x128xf32> {
  %out = memref.alloc() : memref<640x128xf32>
  %first = memref.subview %out[0, 0] [640, 96] [1, 1] : memref<640x128xf32> to memref<640x96xf32, strided<[128, 1]>>
  linalg.exp ins(%x : memref<640x96xf32>) outs(%first : memref<640x96xf32, strided<[128, 1]>>)
  %pairs = memref.expand_shape %out [[0], [1, 2]] output_shape [640, 64, 2] : memref<640x128xf32> into memref<640x64x2xf32>
  %second = memref.subview %pairs[0, 48, 0] [640, 16, 2] [1, 1, 1] : memref<640x64x2xf32> to memref<640x16x2xf32, strided<[128, 2, 1], offset: 96>>
  linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, 1)>, affine_map<(i, j, k) -> (i, j, k)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%y : memref<640x16x2xf32>) outs(%second : memref<640x16x2xf32, strided<[128, 2, 1], offset: 96>>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.negf %a : f32
    linalg.yield %r : f32
  }
  return %out : memref<640x128xf32>
}

// CHECK-LABEL: func.func @overlapping_pairs(
// CHECK-COUNT-2: scf.forall
func.func @overlapping_pairs(%x: memref<640x98xf32>, %y: memref<640x16x2xf32>) -> memref<640x128xf32> {
  %out = memref.alloc() : memref<640x128xf32>
  %first = memref.subview %out[0, 0] [640, 98] [1, 1] : memref<640x128xf32> to memref<640x98xf32, strided<[128, 1]>>
  linalg.exp ins(%x : memref<640x98xf32>) outs(%first : memref<640x98xf32, strided<[128, 1]>>)
  %pairs = memref.expand_shape %out [[0], [1, 2]] output_shape [640, 64, 2] : memref<640x128xf32> into memref<640x64x2xf32>
  %second = memref.subview %pairs[0, 48, 0] [640, 16, 2] [1, 1, 1] : memref<640x64x2xf32> to memref<640x16x2xf32, strided<[128, 2, 1], offset: 96>>
  linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, 1)>, affine_map<(i, j, k) -> (i, j, k)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%y : memref<640x16x2xf32>) outs(%second : memref<640x16x2xf32, strided<[128, 2, 1], offset: 96>>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.negf %a : f32
    linalg.yield %r : f32
  }
  return %out : memref<640x128xf32>
}

// Parts that overlap, or are of other rows, are not.

// CHECK-LABEL: func.func @overlapping(
// CHECK-COUNT-2: scf.forall
func.func @overlapping(%x: memref<640x128xf32>) -> memref<640x256xf32> {
  %out = memref.alloc() : memref<640x256xf32>
  %first = memref.subview %out[0, 0] [640, 128] [1, 1] : memref<640x256xf32> to memref<640x128xf32, strided<[256, 1]>>
  linalg.exp ins(%x : memref<640x128xf32>) outs(%first : memref<640x128xf32, strided<[256, 1]>>)
  %second = memref.subview %out[0, 64] [640, 128] [1, 1] : memref<640x256xf32> to memref<640x128xf32, strided<[256, 1], offset: 64>>
  linalg.abs ins(%x : memref<640x128xf32>) outs(%second : memref<640x128xf32, strided<[256, 1], offset: 64>>)
  return %out : memref<640x256xf32>
}

// CHECK-LABEL: func.func @other_rows(
// CHECK-COUNT-2: scf.forall
func.func @other_rows(%x: memref<640x128xf32>) -> memref<1280x128xf32> {
  %out = memref.alloc() : memref<1280x128xf32>
  %first = memref.subview %out[0, 0] [640, 128] [1, 1] : memref<1280x128xf32> to memref<640x128xf32, strided<[128, 1]>>
  linalg.exp ins(%x : memref<640x128xf32>) outs(%first : memref<640x128xf32, strided<[128, 1]>>)
  %second = memref.subview %out[640, 0] [640, 128] [1, 1] : memref<1280x128xf32> to memref<640x128xf32, strided<[128, 1], offset: 81920>>
  linalg.abs ins(%x : memref<640x128xf32>) outs(%second : memref<640x128xf32, strided<[128, 1], offset: 81920>>)
  return %out : memref<1280x128xf32>
}
