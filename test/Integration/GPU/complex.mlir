// Buffers of complex numbers on the emulated GPU: products, quotients, magnitudes, and a constant.

// RUN: fovea-run %s --target=gpu-sim --random --compare=reference | FileCheck %s
// CHECK: result 0: {{.*}} agrees with the reference
// CHECK: result 1: {{.*}} agrees with the reference
// CHECK-NOT: differs
// RUN: fovea-compile %s --target=nvvm --chip=sm_80 --emit=ptx -o %t.ptx
// RUN: FileCheck %s --check-prefix=PTX --input-file=%t.ptx
// PTX-COUNT-2: .entry
// PTX-NOT: call.uni

#id = affine_map<(i, j) -> (i, j)>
#turned = affine_map<(i, j) -> (j, i)>
#row = affine_map<(i, j) -> (j)>
func.func @numbers(%x: tensor<5x5xf32>, %y: tensor<5x5xf32>) -> (tensor<5x5xf32>, tensor<5x5xf32>) {
  %table = arith.constant dense<[(1.0, 0.0), (0.0, 1.0), (0.5, -0.5), (2.0, 1.0), (-1.0, 3.0)]> : tensor<5xcomplex<f32>>
  %empty = tensor.empty() : tensor<5x5xcomplex<f32>>
  %c = linalg.generic {indexing_maps = [#id, #id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y, %table : tensor<5x5xf32>, tensor<5x5xf32>, tensor<5xcomplex<f32>>)
      outs(%empty : tensor<5x5xcomplex<f32>>) {
  ^bb0(%re: f32, %im: f32, %factor: complex<f32>, %old: complex<f32>):
    %0 = complex.create %re, %im : complex<f32>
    %1 = complex.mul %0, %factor : complex<f32>
    linalg.yield %1 : complex<f32>
  } -> tensor<5x5xcomplex<f32>>
  %real = tensor.empty() : tensor<5x5xf32>
  %r:2 = linalg.generic {indexing_maps = [#id, #turned, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c, %c : tensor<5x5xcomplex<f32>>, tensor<5x5xcomplex<f32>>) outs(%real, %real : tensor<5x5xf32>, tensor<5x5xf32>) {
  ^bb0(%a: complex<f32>, %b: complex<f32>, %old: f32, %other: f32):
    %size = complex.abs %b : complex<f32>
    %one = arith.constant 1.0 : f32
    %more = arith.addf %size, %one : f32
    %divisor = complex.create %more, %one : complex<f32>
    %quotient = complex.div %a, %divisor : complex<f32>
    %0 = complex.re %quotient : complex<f32>
    %1 = complex.im %quotient : complex<f32>
    linalg.yield %0, %1 : f32, f32
  } -> (tensor<5x5xf32>, tensor<5x5xf32>)
  return %r#0, %r#1 : tensor<5x5xf32>, tensor<5x5xf32>
}
