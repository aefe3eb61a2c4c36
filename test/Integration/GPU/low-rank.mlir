// A layer of low-rank attention on the emulated GPU: rotated rows, their
// features, and sums under masks; and its gradients. Any order of threads gives
// the same result.

// REQUIRES: long-tests
// RUN: fovea-run %s --entry=causal --target=gpu-sim --random --compare=reference --schedule=seed=3 --schedule=seed=8,eager | FileCheck %s
// RUN: fovea-run %s --entry=causal --target=gpu-sim --f32=exact --random --compare=reference | FileCheck %s
// RUN: env FOVEA_SIMT=seed=5 fovea-run %s --entry=interval --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: env FOVEA_SIMT=seed=6 fovea-run %s --entry=changes --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: env FOVEA_SIMT=seed=7 fovea-run %s --entry=groups --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=rope_gradient --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: env FOVEA_SIMT=seed=3 fovea-run %s --entry=features_gradient --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=broad --target=gpu-sim --random --compare=reference | FileCheck %s
// CHECK: agrees with the reference
// CHECK-NOT: differs

// RUN: not fovea-run %s --entry=reversed --target=gpu-sim --random 2>&1 | FileCheck %s --check-prefix=REVERSED
// REVERSED: attn.low_rank: interval[0, 0, 1] must have 0 <= first <= last < 4, but got 3 and 2
// RUN: not fovea-run %s --entry=beyond --target=gpu-sim --random 2>&1 | FileCheck %s --check-prefix=BEYOND
// BEYOND: attn.low_rank: group[0, 0, 2] must be at least 0 and below 2, but got 2

// RUN: env FOVEA_SIMT=seed=4 fovea-run %s --entry=causal_gradient --target=gpu-sim --random --compare=reference | FileCheck %s --check-prefix=ALL
// RUN: env FOVEA_SIMT=seed=5,eager fovea-run %s --entry=interval_gradient --target=gpu-sim --random --compare=reference | FileCheck %s --check-prefix=ALL
// RUN: env FOVEA_SIMT=seed=6 fovea-run %s --entry=changes_gradient --target=gpu-sim --random --compare=reference | FileCheck %s --check-prefix=ALL
// ALL-COUNT-3: agrees with the reference
// ALL-NOT: differs

!rows = tensor<1x2x70x4xf32>
!features = tensor<1x2x70x15xf32>

func.func @causal(%q: !rows, %k: !rows, %v: tensor<1x2x70x33xf32>) -> tensor<1x2x70x33xf32> {
  %rows = tensor.empty() : !rows
  %positions = arith.constant dense<1000000> : tensor<1x1x1xi32>
  %tq = attn.rope ins(%q, %positions : !rows, tensor<1x1x1xi32>) outs(%rows : !rows) -> !rows
  %tk = attn.rope ins(%k, %positions : !rows, tensor<1x1x1xi32>) outs(%rows : !rows) -> !rows
  %fu1 = tensor.empty() : !features
  %u1 = attn.polynomial_features ins(%tq : !rows) outs(%fu1 : !features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !features
  %fu2 = tensor.empty() : !features
  %u2 = attn.polynomial_features ins(%tk : !rows) outs(%fu2 : !features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !features
  %o = tensor.empty() : tensor<1x2x70x33xf32>
  %r = attn.low_rank ins(%u1, %u2, %v : !features, !features, tensor<1x2x70x33xf32>)
      outs(%o : tensor<1x2x70x33xf32>) {mask = #attn.row_mask<causal>} -> tensor<1x2x70x33xf32>
  return %r : tensor<1x2x70x33xf32>
}

// Two whole runs of 32 keys for most rows.
func.func @interval(%q: !rows, %k: !rows, %v: !rows) -> !rows {
  %first = arith.constant dense<3> : tensor<1x1x70xi32>
  %last = arith.constant dense<68> : tensor<1x1x70xi32>
  %fu1 = tensor.empty() : !features
  %u1 = attn.polynomial_features ins(%q : !rows) outs(%fu1 : !features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !features
  %fu2 = tensor.empty() : !features
  %u2 = attn.polynomial_features ins(%k : !rows) outs(%fu2 : !features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !features
  %o = tensor.empty() : !rows
  %r = attn.low_rank ins(%u1, %u2, %v : !features, !features, !rows)
      mask(%first, %last : tensor<1x1x70xi32>, tensor<1x1x70xi32>)
      outs(%o : !rows) {mask = #attn.row_mask<row_interval>} -> !rows
  return %r : !rows
}

// A key that enters and leaves, and a row with none.
func.func @changes(%q: !rows, %k: !rows, %v: !rows) -> !rows {
  %four = arith.constant dense<4> : tensor<1x1x68xi32>
  %begin = arith.constant dense<[[[1, 2]]]> : tensor<1x1x2xi32>
  %ends = tensor.concat dim(2) %begin, %four : (tensor<1x1x2xi32>, tensor<1x1x68xi32>) -> tensor<1x1x70xi32>
  %columns = arith.constant dense<[[[5, 5, 69, 7]]]> : tensor<1x1x4xi32>
  %fu1 = tensor.empty() : !features
  %u1 = attn.polynomial_features ins(%q : !rows) outs(%fu1 : !features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !features
  %fu2 = tensor.empty() : !features
  %u2 = attn.polynomial_features ins(%k : !rows) outs(%fu2 : !features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !features
  %o = tensor.empty() : !rows
  %r = attn.low_rank ins(%u1, %u2, %v : !features, !features, !rows)
      mask(%ends, %columns : tensor<1x1x70xi32>, tensor<1x1x4xi32>)
      outs(%o : !rows) {mask = #attn.row_mask<row_change>} -> !rows
  return %r : !rows
}

func.func @groups(%q: !rows, %k: !rows, %v: !rows, %entries: tensor<1x1x3x70xi1>) -> !rows {
  %group = arith.constant dense<2> : tensor<1x1x70xi32>
  %fu1 = tensor.empty() : !features
  %u1 = attn.polynomial_features ins(%q : !rows) outs(%fu1 : !features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !features
  %fu2 = tensor.empty() : !features
  %u2 = attn.polynomial_features ins(%k : !rows) outs(%fu2 : !features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !features
  %o = tensor.empty() : !rows
  %r = attn.low_rank ins(%u1, %u2, %v : !features, !features, !rows)
      mask(%group, %entries : tensor<1x1x70xi32>, tensor<1x1x3x70xi1>)
      outs(%o : !rows) {mask = #attn.row_mask<distinct_rows>} -> !rows
  return %r : !rows
}

func.func @reversed(%u: tensor<1x1x4x2xf32>) -> tensor<1x1x4x2xf32> {
  %first = arith.constant dense<[[[0, 3, 0, 0]]]> : tensor<1x1x4xi32>
  %last = arith.constant dense<[[[3, 2, 0, 0]]]> : tensor<1x1x4xi32>
  %o = tensor.empty() : tensor<1x1x4x2xf32>
  %r = attn.low_rank ins(%u, %u, %u : tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>)
      mask(%first, %last : tensor<1x1x4xi32>, tensor<1x1x4xi32>)
      outs(%o : tensor<1x1x4x2xf32>) {mask = #attn.row_mask<row_interval>} -> tensor<1x1x4x2xf32>
  return %r : tensor<1x1x4x2xf32>
}

func.func @beyond(%u: tensor<1x1x4x2xf32>) -> tensor<1x1x4x2xf32> {
  %group = arith.constant dense<[[[0, 1, 2, 0]]]> : tensor<1x1x4xi32>
  %entries = arith.constant dense<true> : tensor<1x1x2x4xi1>
  %o = tensor.empty() : tensor<1x1x4x2xf32>
  %r = attn.low_rank ins(%u, %u, %u : tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>)
      mask(%group, %entries : tensor<1x1x4xi32>, tensor<1x1x2x4xi1>)
      outs(%o : tensor<1x1x4x2xf32>) {mask = #attn.row_mask<distinct_columns>} -> tensor<1x1x4x2xf32>
  return %r : tensor<1x1x4x2xf32>
}

// Gradients: rows turned back, features, and sums under transposed masks.

!short_rows = tensor<1x2x40x6xf32>
!short_values = tensor<1x2x40x33xf32>
!short_features = tensor<1x2x40x28xf32>

func.func @rope_gradient(%d: tensor<2x2x70x34xf16>) -> tensor<2x2x70x34xf32> {
  %positions = arith.constant dense<-1000000> : tensor<1x1x1xi32>
  %o = tensor.empty() : tensor<2x2x70x34xf32>
  %r = attn.rope_backward ins(%positions : tensor<1x1x1xi32>) gradient(%d : tensor<2x2x70x34xf16>)
      outs(%o : tensor<2x2x70x34xf32>) -> tensor<2x2x70x34xf32>
  return %r : tensor<2x2x70x34xf32>
}

// More columns than a warp has lanes.
func.func @features_gradient(%x: tensor<1x2x5x37xf32>, %d: tensor<1x2x5x9880xf32>) -> tensor<1x2x5x37xf32> {
  %o = tensor.empty() : tensor<1x2x5x37xf32>
  %r = attn.polynomial_features_backward ins(%x : tensor<1x2x5x37xf32>) gradient(%d : tensor<1x2x5x9880xf32>)
      outs(%o : tensor<1x2x5x37xf32>) {degree = 3 : i64, scale = 2.5e-01 : f64} -> tensor<1x2x5x37xf32>
  return %r : tensor<1x2x5x37xf32>
}

// Rows that are no longer in shared memory.
func.func @broad(%x: tensor<1x1x1x12289xf32>, %d: tensor<1x1x1x12290xf32>) -> tensor<1x1x1x12289xf32> {
  %o = tensor.empty() : tensor<1x1x1x12289xf32>
  %r = attn.polynomial_features_backward ins(%x : tensor<1x1x1x12289xf32>) gradient(%d : tensor<1x1x1x12290xf32>)
      outs(%o : tensor<1x1x1x12289xf32>) {degree = 1 : i64, scale = 1.0 : f64} -> tensor<1x1x1x12289xf32>
  return %r : tensor<1x1x1x12289xf32>
}

func.func @causal_gradient(%q: !short_rows, %k: !short_rows, %v: !short_values, %out: !short_values, %d: !short_values)
    -> (!short_features, !short_features, !short_values) {
  %iu = tensor.empty() : !short_features
  %u1 = attn.polynomial_features ins(%q : !short_rows) outs(%iu : !short_features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !short_features
  %u2 = attn.polynomial_features ins(%k : !short_rows) outs(%iu : !short_features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !short_features
  %iv = tensor.empty() : !short_values
  %r:3 = attn.low_rank_backward ins(%u1, %u2, %v : !short_features, !short_features, !short_values)
      forward(%out : !short_values) gradient(%d : !short_values) outs(%iu, %iu, %iv : !short_features, !short_features, !short_values)
      {mask = #attn.row_mask<causal>} -> !short_features, !short_features, !short_values
  return %r#0, %r#1, %r#2 : !short_features, !short_features, !short_values
}

// For keys these are changes.
func.func @interval_gradient(%q: !short_rows, %k: !short_rows, %v: !short_values, %out: !short_values, %d: !short_values)
    -> (!short_features, !short_features, !short_values) {
  %first = arith.constant dense<3> : tensor<1x1x40xi32>
  %last = arith.constant dense<38> : tensor<1x1x40xi32>
  %iu = tensor.empty() : !short_features
  %u1 = attn.polynomial_features ins(%q : !short_rows) outs(%iu : !short_features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !short_features
  %u2 = attn.polynomial_features ins(%k : !short_rows) outs(%iu : !short_features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !short_features
  %iv = tensor.empty() : !short_values
  %r:3 = attn.low_rank_backward ins(%u1, %u2, %v : !short_features, !short_features, !short_values)
      mask(%first, %last : tensor<1x1x40xi32>, tensor<1x1x40xi32>)
      forward(%out : !short_values) gradient(%d : !short_values) outs(%iu, %iu, %iv : !short_features, !short_features, !short_values)
      {mask = #attn.row_mask<row_interval>} -> !short_features, !short_features, !short_values
  return %r#0, %r#1, %r#2 : !short_features, !short_features, !short_values
}

// For keys these are intervals: one that ends, and one that does not.
func.func @changes_gradient(%q: !short_rows, %k: !short_rows, %v: !short_values, %out: !short_values, %d: !short_values)
    -> (!short_features, !short_features, !short_values) {
  %four = arith.constant dense<4> : tensor<1x1x38xi32>
  %begin = arith.constant dense<[[[1, 2]]]> : tensor<1x1x2xi32>
  %ends = tensor.concat dim(2) %begin, %four : (tensor<1x1x2xi32>, tensor<1x1x38xi32>) -> tensor<1x1x40xi32>
  %columns = arith.constant dense<[[[5, 5, 39, 7]]]> : tensor<1x1x4xi32>
  %iu = tensor.empty() : !short_features
  %u1 = attn.polynomial_features ins(%q : !short_rows) outs(%iu : !short_features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !short_features
  %u2 = attn.polynomial_features ins(%k : !short_rows) outs(%iu : !short_features) {degree = 2 : i64, scale = 2.5e-01 : f64} -> !short_features
  %iv = tensor.empty() : !short_values
  %r:3 = attn.low_rank_backward ins(%u1, %u2, %v : !short_features, !short_features, !short_values)
      mask(%ends, %columns : tensor<1x1x40xi32>, tensor<1x1x4xi32>)
      forward(%out : !short_values) gradient(%d : !short_values) outs(%iu, %iu, %iv : !short_features, !short_features, !short_values)
      {mask = #attn.row_mask<row_change>} -> !short_features, !short_features, !short_values
  return %r#0, %r#1, %r#2 : !short_features, !short_features, !short_values
}
