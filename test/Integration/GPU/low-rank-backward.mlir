// Gradients of a layer of low-rank attention on the emulated GPU: rows turned
// back, gradients of features, and sums under transposed masks. Any order of
// threads gives the same result.

// REQUIRES: long-tests
// RUN: fovea-run %s --entry=rope --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: env FOVEA_SIMT=seed=3 fovea-run %s --entry=features --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: env FOVEA_SIMT=seed=4 fovea-run %s --entry=causal --target=gpu-sim --random --compare=reference | FileCheck %s --check-prefix=ALL
// RUN: env FOVEA_SIMT=seed=5,eager fovea-run %s --entry=interval --target=gpu-sim --random --compare=reference | FileCheck %s --check-prefix=ALL
// RUN: env FOVEA_SIMT=seed=6 fovea-run %s --entry=changes --target=gpu-sim --random --compare=reference | FileCheck %s --check-prefix=ALL
// CHECK: agrees with the reference
// CHECK-NOT: differs
// ALL-COUNT-3: agrees with the reference
// ALL-NOT: differs

// RUN: not fovea-run %s --entry=broad --target=gpu-sim --random 2>&1 | FileCheck %s --check-prefix=BROAD
// BROAD: error: 'attn.polynomial_features_backward' op has rows of 12289 columns, but GPU kernels take at most 12288

!rows = tensor<1x2x40x6xf32>
!values = tensor<1x2x40x33xf32>
!features = tensor<1x2x40x28xf32>

func.func @rope(%d: tensor<2x2x70x34xf16>) -> tensor<2x2x70x34xf32> {
  %positions = arith.constant dense<-1000000> : tensor<1x1x1xi32>
  %o = tensor.empty() : tensor<2x2x70x34xf32>
  %r = attn.rope_backward ins(%positions : tensor<1x1x1xi32>) gradient(%d : tensor<2x2x70x34xf16>)
      outs(%o : tensor<2x2x70x34xf32>) -> tensor<2x2x70x34xf32>
  return %r : tensor<2x2x70x34xf32>
}

// More columns than a warp has lanes.
func.func @features(%x: tensor<1x2x5x37xf32>, %d: tensor<1x2x5x9880xf32>) -> tensor<1x2x5x37xf32> {
  %o = tensor.empty() : tensor<1x2x5x37xf32>
  %r = attn.polynomial_features_backward ins(%x : tensor<1x2x5x37xf32>) gradient(%d : tensor<1x2x5x9880xf32>)
      outs(%o : tensor<1x2x5x37xf32>) {degree = 3 : i64, scale = 2.5e-01 : f64} -> tensor<1x2x5x37xf32>
  return %r : tensor<1x2x5x37xf32>
}

func.func @broad(%x: tensor<1x1x1x12289xf32>, %d: tensor<1x1x1x12290xf32>) -> tensor<1x1x1x12289xf32> {
  %o = tensor.empty() : tensor<1x1x1x12289xf32>
  %r = attn.polynomial_features_backward ins(%x : tensor<1x1x1x12289xf32>) gradient(%d : tensor<1x1x1x12290xf32>)
      outs(%o : tensor<1x1x1x12289xf32>) {degree = 1 : i64, scale = 1.0 : f64} -> tensor<1x1x1x12289xf32>
  return %r : tensor<1x1x1x12289xf32>
}

func.func @causal(%q: !rows, %k: !rows, %v: !values, %out: !values, %d: !values)
    -> (!features, !features, !values) {
  %iu = tensor.empty() : !features
  %u1 = attn.polynomial_features ins(%q : !rows) outs(%iu : !features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !features
  %u2 = attn.polynomial_features ins(%k : !rows) outs(%iu : !features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !features
  %iv = tensor.empty() : !values
  %r:3 = attn.low_rank_backward ins(%u1, %u2, %v : !features, !features, !values)
      forward(%out : !values) gradient(%d : !values) outs(%iu, %iu, %iv : !features, !features, !values)
      {mask = #attn.row_mask<causal>} -> !features, !features, !values
  return %r#0, %r#1, %r#2 : !features, !features, !values
}

// For keys these are changes.
func.func @interval(%q: !rows, %k: !rows, %v: !values, %out: !values, %d: !values)
    -> (!features, !features, !values) {
  %first = arith.constant dense<3> : tensor<1x1x40xi32>
  %last = arith.constant dense<38> : tensor<1x1x40xi32>
  %iu = tensor.empty() : !features
  %u1 = attn.polynomial_features ins(%q : !rows) outs(%iu : !features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !features
  %u2 = attn.polynomial_features ins(%k : !rows) outs(%iu : !features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !features
  %iv = tensor.empty() : !values
  %r:3 = attn.low_rank_backward ins(%u1, %u2, %v : !features, !features, !values)
      mask(%first, %last : tensor<1x1x40xi32>, tensor<1x1x40xi32>)
      forward(%out : !values) gradient(%d : !values) outs(%iu, %iu, %iv : !features, !features, !values)
      {mask = #attn.row_mask<row_interval>} -> !features, !features, !values
  return %r#0, %r#1, %r#2 : !features, !features, !values
}

// For keys these are intervals: one that ends, and one that does not.
func.func @changes(%q: !rows, %k: !rows, %v: !values, %out: !values, %d: !values)
    -> (!features, !features, !values) {
  %four = arith.constant dense<4> : tensor<1x1x38xi32>
  %begin = arith.constant dense<[[[1, 2]]]> : tensor<1x1x2xi32>
  %ends = tensor.concat dim(2) %begin, %four : (tensor<1x1x2xi32>, tensor<1x1x38xi32>) -> tensor<1x1x40xi32>
  %columns = arith.constant dense<[[[5, 5, 39, 7]]]> : tensor<1x1x4xi32>
  %iu = tensor.empty() : !features
  %u1 = attn.polynomial_features ins(%q : !rows) outs(%iu : !features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !features
  %u2 = attn.polynomial_features ins(%k : !rows) outs(%iu : !features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !features
  %iv = tensor.empty() : !values
  %r:3 = attn.low_rank_backward ins(%u1, %u2, %v : !features, !features, !values)
      mask(%ends, %columns : tensor<1x1x40xi32>, tensor<1x1x4xi32>)
      forward(%out : !values) gradient(%d : !values) outs(%iu, %iu, %iv : !features, !features, !values)
      {mask = #attn.row_mask<row_change>} -> !features, !features, !values
  return %r#0, %r#1, %r#2 : !features, !features, !values
}
