// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --attn-prepare-products --attn-fuse-elementwise --canonicalize --cse | FileCheck %s
// RUN: fovea-opt %s --attn-cpu-pipeline="cpu=x86-64-v4" --mlir-print-ir-after=attn-outline-parallel -o /dev/null 2>&1 | FileCheck %s --check-prefix=KERNEL

// Rotary embedding of neighbours, as GPT-J's: one loop nest over pairs, whose
// first and second elements are operands.

// CHECK-DAG: #[[$SECOND:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 1)>
// CHECK-DAG: #[[$FIRST:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>

// CHECK-LABEL: func.func @turned(
//   CHECK-NOT:   tensor.concat
//       CHECK:   linalg.generic {{.*}}#[[$SECOND]], #[[$FIRST]]{{.*}}tensor<512x16x32x2xf32>
//       CHECK:     linalg.index 3
//       CHECK:     arith.select
//       CHECK:     arith.addf
//   CHECK-NOT:   linalg.generic

// Both elements of 16 pairs at once.

// KERNEL-LABEL: func.func private @turned_parallel_0(
// KERNEL-COUNT-3: vector.load {{.*}} vector<32xf32>
//       KERNEL:   vector.interleave
//   KERNEL-NOT:   memref.load
//       KERNEL:   return
#whole = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#angle = affine_map<(d0, d1, d2, d3) -> (d1, d3)>
func.func @turned(%x: tensor<1x512x16x64xf32>, %cos: tensor<512x64xf32>, %sin: tensor<512x64xf32>) -> tensor<1x512x16x64xf32> {
  %even = tensor.extract_slice %x[0, 0, 0, 0] [1, 512, 16, 32] [1, 1, 1, 2] : tensor<1x512x16x64xf32> to tensor<1x512x16x32xf32>
  %odd = tensor.extract_slice %x[0, 0, 0, 1] [1, 512, 16, 32] [1, 1, 1, 2] : tensor<1x512x16x64xf32> to tensor<1x512x16x32xf32>
  %half = tensor.empty() : tensor<1x512x16x32xf32>
  %minus = linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%odd : tensor<1x512x16x32xf32>) outs(%half : tensor<1x512x16x32xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.negf %a : f32
    linalg.yield %r : f32
  } -> tensor<1x512x16x32xf32>
  %0 = tensor.expand_shape %minus [[0], [1], [2], [3, 4]] output_shape [1, 512, 16, 32, 1] : tensor<1x512x16x32xf32> into tensor<1x512x16x32x1xf32>
  %1 = tensor.expand_shape %even [[0], [1], [2], [3, 4]] output_shape [1, 512, 16, 32, 1] : tensor<1x512x16x32xf32> into tensor<1x512x16x32x1xf32>
  %stack = tensor.concat dim(4) %0, %1 : (tensor<1x512x16x32x1xf32>, tensor<1x512x16x32x1xf32>) -> tensor<1x512x16x32x2xf32>
  %turned = tensor.collapse_shape %stack [[0], [1], [2], [3, 4]] : tensor<1x512x16x32x2xf32> into tensor<1x512x16x64xf32>
  %like = tensor.empty() : tensor<1x512x16x64xf32>
  %out = linalg.generic {indexing_maps = [#whole, #whole, #angle, #angle, #whole], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x, %turned, %cos, %sin : tensor<1x512x16x64xf32>, tensor<1x512x16x64xf32>, tensor<512x64xf32>, tensor<512x64xf32>)
      outs(%like : tensor<1x512x16x64xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %s: f32, %o: f32):
    %p = arith.mulf %a, %c : f32
    %q = arith.mulf %b, %s : f32
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<1x512x16x64xf32>
  return %out : tensor<1x512x16x64xf32>
}

// Two insertions that fill a tensor are a stack, in either order.

// CHECK-LABEL: func.func @inserted(
//   CHECK-NOT:   tensor.insert_slice
//       CHECK:   %[[PAIRS:.*]] = linalg.generic {{.*}}tensor<8x32x2xf32>
//       CHECK:   tensor.collapse_shape %[[PAIRS]]
func.func @inserted(%a: tensor<8x32xf32>, %b: tensor<8x32xf32>, %o: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %0 = tensor.insert_slice %b into %o[0, 1] [8, 32] [1, 2] : tensor<8x32xf32> into tensor<8x64xf32>
  %1 = tensor.insert_slice %a into %0[0, 0] [8, 32] [1, 2] : tensor<8x32xf32> into tensor<8x64xf32>
  return %1 : tensor<8x64xf32>
}

// One that leaves elements of the tensor is not.

// CHECK-LABEL: func.func @inserted_in_part(
// CHECK-COUNT-2:   tensor.insert_slice
func.func @inserted_in_part(%a: tensor<8x32xf32>, %b: tensor<8x32xf32>, %o: tensor<8x65xf32>) -> tensor<8x65xf32> {
  %0 = tensor.insert_slice %a into %o[0, 0] [8, 32] [1, 2] : tensor<8x32xf32> into tensor<8x65xf32>
  %1 = tensor.insert_slice %b into %0[0, 1] [8, 32] [1, 2] : tensor<8x32xf32> into tensor<8x65xf32>
  return %1 : tensor<8x65xf32>
}

// Odd rows have no second element in their last pair: what reads it would read
// behind the array.

// CHECK-LABEL: func.func @odd(
//       CHECK:   tensor.extract_slice {{.*}} [8, 33] [1, 2]
// KERNEL-LABEL: func.func private @odd_parallel_0(
//   KERNEL-NOT:   vector.deinterleave
//       KERNEL:   return
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @odd(%x: tensor<8x65xf32>) -> tensor<8x33xf32> {
  %even = tensor.extract_slice %x[0, 0] [8, 33] [1, 2] : tensor<8x65xf32> to tensor<8x33xf32>
  %e = tensor.empty() : tensor<8x33xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%even : tensor<8x33xf32>) outs(%e : tensor<8x33xf32>) {
  ^bb0(%a: f32, %o: f32):
    %m = arith.negf %a : f32
    linalg.yield %m : f32
  } -> tensor<8x33xf32>
  return %r : tensor<8x33xf32>
}

// A table of complex numbers is read for every head, as pairs.

// CHECK-LABEL: func.func @complex(
//  CHECK-SAME:    %{{.*}}: tensor<8x4x32x2xf32>, %[[TABLE:.*]]: tensor<8x32xcomplex<f32>>
//       CHECK:   %[[PAIRS:.*]] = linalg.generic {{.*}} ins(%[[TABLE]] : {{.*}} tensor<8x32x2xf32>
//       CHECK:     complex.re
//       CHECK:   linalg.generic {{.*}} ins(%[[PAIRS]], %[[PAIRS]] :
//       CHECK:     complex.create
// KERNEL-LABEL: func.func private @complex_parallel_0(
//       KERNEL:   vector.deinterleave
//       KERNEL:   vector.interleave
//   KERNEL-NOT:   memref.load
//       KERNEL:   return
#all = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#pair = affine_map<(d0, d1, d2, d3) -> (d0, d2)>
func.func @complex(%x: tensor<8x4x32x2xf32>, %table: tensor<8x32xcomplex<f32>>) -> tensor<8x4x32x2xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %e = tensor.empty() : tensor<8x4x32x2xf32>
  %r = linalg.generic {indexing_maps = [#pair, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%table : tensor<8x32xcomplex<f32>>) outs(%e : tensor<8x4x32x2xf32>) {
  ^bb0(%turn: complex<f32>, %o: f32):
    %i = linalg.index 0 : index
    %h = linalg.index 1 : index
    %j = linalg.index 2 : index
    %part = linalg.index 3 : index
    %a = tensor.extract %x[%i, %h, %j, %c0] : tensor<8x4x32x2xf32>
    %b = tensor.extract %x[%i, %h, %j, %c1] : tensor<8x4x32x2xf32>
    %z = complex.create %a, %b : complex<f32>
    %p = complex.mul %z, %turn : complex<f32>
    %re = complex.re %p : complex<f32>
    %im = complex.im %p : complex<f32>
    %is = arith.cmpi eq, %part, %c0 : index
    %one = arith.select %is, %re, %im : f32
    linalg.yield %one : f32
  } -> tensor<8x4x32x2xf32>
  return %r : tensor<8x4x32x2xf32>
}

// Where other columns are beside them, pairs are written to the result as well,
// once the others are. Both are one loop over rows.

// CHECK-LABEL: func.func @partial(
//       CHECK:   %[[PASSED:.*]] = tensor.extract_slice %{{.*}}[0, 16]
//       CHECK:   %[[WHOLE:.*]] = tensor.insert_slice %[[PASSED]] into %{{.*}}[0, 16]
//       CHECK:   %[[AS_PAIRS:.*]] = tensor.expand_shape %[[WHOLE]] {{.*}} into tensor<512x32x2xf32>
//       CHECK:   %[[PAIRS:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<512x8x2xf32>)
//       CHECK:   tensor.insert_slice %[[PAIRS]] into %[[AS_PAIRS]][0, 0, 0]
// KERNEL-LABEL: func.func @partial(
//       KERNEL:   memref.alloc(
//   KERNEL-NOT:   memref.alloc(
//       KERNEL:   return
// KERNEL-LABEL: func.func private @partial_parallel_0(
//       KERNEL:   vector.store %{{.*}} vector<16xf32>
//       KERNEL:   vector.deinterleave
//       KERNEL:   vector.interleave
//   KERNEL-NOT:   @partial_parallel_1
func.func @partial(%x: tensor<512x64xf32>, %c: tensor<512x16xf32>) -> tensor<512x64xf32> {
  %even = tensor.extract_slice %x[0, 0] [512, 8] [1, 2] : tensor<512x64xf32> to tensor<512x8xf32>
  %odd = tensor.extract_slice %x[0, 1] [512, 8] [1, 2] : tensor<512x64xf32> to tensor<512x8xf32>
  %passed = tensor.extract_slice %x[0, 16] [512, 48] [1, 1] : tensor<512x64xf32> to tensor<512x48xf32>
  %e = tensor.empty() : tensor<512x8xf32>
  %negative = linalg.negf ins(%odd : tensor<512x8xf32>) outs(%e : tensor<512x8xf32>) -> tensor<512x8xf32>
  %first = tensor.expand_shape %negative [[0], [1, 2]] output_shape [512, 8, 1] : tensor<512x8xf32> into tensor<512x8x1xf32>
  %second = tensor.expand_shape %even [[0], [1, 2]] output_shape [512, 8, 1] : tensor<512x8xf32> into tensor<512x8x1xf32>
  %stack = tensor.concat dim(2) %first, %second : (tensor<512x8x1xf32>, tensor<512x8x1xf32>) -> tensor<512x8x2xf32>
  %turned = tensor.collapse_shape %stack [[0], [1, 2]] : tensor<512x8x2xf32> into tensor<512x16xf32>
  %w = tensor.empty() : tensor<512x16xf32>
  %p = linalg.mul ins(%turned, %c : tensor<512x16xf32>, tensor<512x16xf32>) outs(%w : tensor<512x16xf32>) -> tensor<512x16xf32>
  %r = tensor.concat dim(1) %p, %passed : (tensor<512x16xf32>, tensor<512x48xf32>) -> tensor<512x64xf32>
  return %r : tensor<512x64xf32>
}

// Any number of rows.

// CHECK-LABEL: func.func @partial_of_any(
//       CHECK:   %[[PASSED:.*]] = tensor.extract_slice %{{.*}}[0, 16]
//       CHECK:   %[[WHOLE:.*]] = tensor.insert_slice %[[PASSED]] into %{{.*}}[0, 16]
//       CHECK:   %[[AS_PAIRS:.*]] = tensor.expand_shape %[[WHOLE]] {{.*}} into tensor<?x32x2xf32>
//       CHECK:   %[[PAIRS:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<?x8x2xf32>)
//       CHECK:   tensor.insert_slice %[[PAIRS]] into %[[AS_PAIRS]][0, 0, 0]
// KERNEL-LABEL: func.func @partial_of_any(
//       KERNEL:   memref.alloc(
//   KERNEL-NOT:   memref.alloc(
//       KERNEL:   return
// KERNEL-LABEL: func.func private @partial_of_any_parallel_0(
//       KERNEL:   vector.store %{{.*}} vector<16xf32>
//       KERNEL:   vector.deinterleave
//       KERNEL:   vector.interleave
//   KERNEL-NOT:   @partial_of_any_parallel_1
func.func @partial_of_any(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?x64xf32>
  %even = tensor.extract_slice %x[0, 0] [%m, 8] [1, 2] : tensor<?x64xf32> to tensor<?x8xf32>
  %odd = tensor.extract_slice %x[0, 1] [%m, 8] [1, 2] : tensor<?x64xf32> to tensor<?x8xf32>
  %passed = tensor.extract_slice %x[0, 16] [%m, 48] [1, 1] : tensor<?x64xf32> to tensor<?x48xf32>
  %e = tensor.empty(%m) : tensor<?x8xf32>
  %negative = linalg.negf ins(%odd : tensor<?x8xf32>) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
  %first = tensor.expand_shape %negative [[0], [1, 2]] output_shape [%m, 8, 1] : tensor<?x8xf32> into tensor<?x8x1xf32>
  %second = tensor.expand_shape %even [[0], [1, 2]] output_shape [%m, 8, 1] : tensor<?x8xf32> into tensor<?x8x1xf32>
  %stack = tensor.concat dim(2) %first, %second : (tensor<?x8x1xf32>, tensor<?x8x1xf32>) -> tensor<?x8x2xf32>
  %turned = tensor.collapse_shape %stack [[0], [1, 2]] : tensor<?x8x2xf32> into tensor<?x16xf32>
  %r = tensor.concat dim(1) %turned, %passed : (tensor<?x16xf32>, tensor<?x48xf32>) -> tensor<?x64xf32>
  return %r : tensor<?x64xf32>
}

// A row of an odd number of columns is no row of pairs.

// CHECK-LABEL: func.func @beside_one(
//   CHECK-NOT:   tensor.expand_shape {{.*}}x2xf32>
//       CHECK:   tensor.insert_slice %{{.*}} : tensor<512x16xf32> into tensor<512x17xf32>
func.func @beside_one(%x: tensor<512x8x2xf32>, %y: tensor<512x1xf32>) -> tensor<512x17xf32> {
  %e = tensor.empty() : tensor<512x8x2xf32>
  %n = linalg.negf ins(%x : tensor<512x8x2xf32>) outs(%e : tensor<512x8x2xf32>) -> tensor<512x8x2xf32>
  %p = tensor.collapse_shape %n [[0], [1, 2]] : tensor<512x8x2xf32> into tensor<512x16xf32>
  %r = tensor.concat dim(1) %p, %y : (tensor<512x16xf32>, tensor<512x1xf32>) -> tensor<512x17xf32>
  return %r : tensor<512x17xf32>
}
