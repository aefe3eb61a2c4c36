// RUN: fovea-opt %s --attn-raise=fully-masked=refuse --canonicalize --remarks-filter='attn-raise' --remark-policy=all 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK --input-file=%t
// RUN: fovea-run %s --entry=bias --random --compare=reference

// A guard that looks for rows without keys in the largest number that is added, as ONNX defines it, or in the largest score.

#x = affine_map<(n, m) -> (n, m)>
#row = affine_map<(n, m) -> (n)>

// CHECK-LABEL: func.func @bias(
// CHECK:         attn.dense {{.*}} bias(%{{.*}} : tensor<1x1x5x7xf32>)
func.func @bias(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %bias: tensor<5x7xf32>, %other: tensor<5x7xf32>) -> tensor<5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.matmul indexing_maps = [affine_map<(n, m, d) -> (n, d)>, affine_map<(n, m, d) -> (m, d)>, affine_map<(n, m, d) -> (n, m)>]
      ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>) outs(%z : tensor<5x7xf32>) -> tensor<5x7xf32>
  %sum = linalg.add ins(%s, %bias : tensor<5x7xf32>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %p = linalg.softmax dimension(1) ins(%sum : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %h = tensor.empty() : tensor<5xf32>
  %l = linalg.fill ins(%low : f32) outs(%h : tensor<5xf32>) -> tensor<5xf32>
  %max = linalg.reduce ins(%bias : tensor<5x7xf32>) outs(%l : tensor<5xf32>) dimensions = [1]
    (%a: f32, %b: f32) {
      %t = arith.maximumf %a, %b : f32
      linalg.yield %t : f32
    }
  %w = linalg.generic {indexing_maps = [#row, #x, #x], iterator_types = ["parallel", "parallel"]}
      ins(%max, %p : tensor<5xf32>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %c = arith.cmpf oeq, %a, %low : f32
    %t = arith.select %c, %zero, %b : f32
    linalg.yield %t : f32
  } -> tensor<5x7xf32>
  %f = tensor.empty() : tensor<5x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<5x8xf32>) -> tensor<5x8xf32>
  %r = linalg.matmul ins(%w, %k : tensor<5x7xf32>, tensor<7x8xf32>) outs(%g : tensor<5x8xf32>) -> tensor<5x8xf32>
  return %r : tensor<5x8xf32>
}

// CHECK-LABEL: func.func @scores(
// CHECK:         attn.dense {{.*}} bias(%{{.*}} : tensor<1x1x5x7xf32>)
func.func @scores(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %bias: tensor<5x7xf32>, %other: tensor<5x7xf32>) -> tensor<5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.matmul indexing_maps = [affine_map<(n, m, d) -> (n, d)>, affine_map<(n, m, d) -> (m, d)>, affine_map<(n, m, d) -> (n, m)>]
      ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>) outs(%z : tensor<5x7xf32>) -> tensor<5x7xf32>
  %sum = linalg.add ins(%s, %bias : tensor<5x7xf32>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %p = linalg.softmax dimension(1) ins(%sum : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %h = tensor.empty() : tensor<5xf32>
  %l = linalg.fill ins(%low : f32) outs(%h : tensor<5xf32>) -> tensor<5xf32>
  %max = linalg.reduce ins(%sum : tensor<5x7xf32>) outs(%l : tensor<5xf32>) dimensions = [1]
    (%a: f32, %b: f32) {
      %t = arith.maximumf %a, %b : f32
      linalg.yield %t : f32
    }
  %w = linalg.generic {indexing_maps = [#row, #x, #x], iterator_types = ["parallel", "parallel"]}
      ins(%max, %p : tensor<5xf32>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %c = arith.cmpf oeq, %a, %low : f32
    %t = arith.select %c, %zero, %b : f32
    linalg.yield %t : f32
  } -> tensor<5x7xf32>
  %f = tensor.empty() : tensor<5x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<5x8xf32>) -> tensor<5x8xf32>
  %r = linalg.matmul ins(%w, %k : tensor<5x7xf32>, tensor<7x8xf32>) outs(%g : tensor<5x8xf32>) -> tensor<5x8xf32>
  return %r : tensor<5x8xf32>
}

// CHECK-LABEL: func.func @other(
// CHECK-NOT:     attn.dense
// REMARK: weights are set to zero, but not where all scores are -inf, at 'linalg.softmax'
func.func @other(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %bias: tensor<5x7xf32>, %other: tensor<5x7xf32>) -> tensor<5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.matmul indexing_maps = [affine_map<(n, m, d) -> (n, d)>, affine_map<(n, m, d) -> (m, d)>, affine_map<(n, m, d) -> (n, m)>]
      ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>) outs(%z : tensor<5x7xf32>) -> tensor<5x7xf32>
  %sum = linalg.add ins(%s, %bias : tensor<5x7xf32>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %p = linalg.softmax dimension(1) ins(%sum : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %h = tensor.empty() : tensor<5xf32>
  %l = linalg.fill ins(%low : f32) outs(%h : tensor<5xf32>) -> tensor<5xf32>
  %max = linalg.reduce ins(%other : tensor<5x7xf32>) outs(%l : tensor<5xf32>) dimensions = [1]
    (%a: f32, %b: f32) {
      %t = arith.maximumf %a, %b : f32
      linalg.yield %t : f32
    }
  %w = linalg.generic {indexing_maps = [#row, #x, #x], iterator_types = ["parallel", "parallel"]}
      ins(%max, %p : tensor<5xf32>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %c = arith.cmpf oeq, %a, %low : f32
    %t = arith.select %c, %zero, %b : f32
    linalg.yield %t : f32
  } -> tensor<5x7xf32>
  %f = tensor.empty() : tensor<5x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<5x8xf32>) -> tensor<5x8xf32>
  %r = linalg.matmul ins(%w, %k : tensor<5x7xf32>, tensor<7x8xf32>) outs(%g : tensor<5x8xf32>) -> tensor<5x8xf32>
  return %r : tensor<5x8xf32>
}

// CHECK-LABEL: func.func @weights(
// CHECK-NOT:     attn.dense
// REMARK: weights are set to zero, but not where all scores are -inf, at 'linalg.softmax'
func.func @weights(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %bias: tensor<5x7xf32>, %other: tensor<5x7xf32>) -> tensor<5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.matmul indexing_maps = [affine_map<(n, m, d) -> (n, d)>, affine_map<(n, m, d) -> (m, d)>, affine_map<(n, m, d) -> (n, m)>]
      ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>) outs(%z : tensor<5x7xf32>) -> tensor<5x7xf32>
  %sum = linalg.add ins(%s, %bias : tensor<5x7xf32>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %p = linalg.softmax dimension(1) ins(%sum : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %h = tensor.empty() : tensor<5xf32>
  %l = linalg.fill ins(%low : f32) outs(%h : tensor<5xf32>) -> tensor<5xf32>
  %max = linalg.reduce ins(%p : tensor<5x7xf32>) outs(%l : tensor<5xf32>) dimensions = [1]
    (%a: f32, %b: f32) {
      %t = arith.maximumf %a, %b : f32
      linalg.yield %t : f32
    }
  %w = linalg.generic {indexing_maps = [#row, #x, #x], iterator_types = ["parallel", "parallel"]}
      ins(%max, %p : tensor<5xf32>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %c = arith.cmpf oeq, %a, %low : f32
    %t = arith.select %c, %zero, %b : f32
    linalg.yield %t : f32
  } -> tensor<5x7xf32>
  %f = tensor.empty() : tensor<5x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<5x8xf32>) -> tensor<5x8xf32>
  %r = linalg.matmul ins(%w, %k : tensor<5x7xf32>, tensor<7x8xf32>) outs(%g : tensor<5x8xf32>) -> tensor<5x8xf32>
  return %r : tensor<5x8xf32>
}
