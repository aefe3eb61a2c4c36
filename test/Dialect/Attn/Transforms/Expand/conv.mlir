// RUN: fovea-opt %s --attn-expand-conv --split-input-file --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @conv(
//  CHECK-SAME:   %[[Q:[a-z0-9]+]]: tensor<1x4x20x6xbf16>, %[[K:[a-z0-9]+]]: tensor<1x2x20x6xbf16>, %[[V:[a-z0-9]+]]: tensor<1x2x20x5xbf16>, %[[O:[a-z0-9]+]]: tensor<1x4x20x5xbf16>, %[[N:[a-z0-9]+]]: tensor<1x4xi32>, %[[C:[a-z0-9]+]]: tensor<1x4xi32>
//   CHECK-DAG:   %[[B:.*]] = tensor.empty() : tensor<1x4x3x20xf32>
//   CHECK-DAG:   %[[M:.*]] = tensor.empty() : tensor<1x4x3xi32>
//       CHECK:   %[[R:.*]]:3 = attn.conv_recover ins(%[[Q]], %[[K]] : {{.*}}) outs(%[[B]], %[[M]], %[[N]] : {{.*}}) {delta = 1.000000e+00 : f64, epsilon = 1.000000e-02 : f64, scale = 2.000000e+00 : f64, window = 4 : i64}
//       CHECK:   %[[A:.*]]:2 = attn.conv_apply ins(%[[R]]#0, %[[R]]#1, %[[V]] : {{.*}}) outs(%[[O]], %[[C]] : {{.*}}) {algorithm = #attn.conv_algorithm<partitioned>}
//       CHECK:   return %[[A]]#0, %[[R]]#2, %[[A]]#1
func.func @conv(%q: tensor<1x4x20x6xbf16>, %k: tensor<1x2x20x6xbf16>, %v: tensor<1x2x20x5xbf16>, %o: tensor<1x4x20x5xbf16>, %n: tensor<1x4xi32>, %c: tensor<1x4xi32>)
    -> (tensor<1x4x20x5xbf16>, tensor<1x4xi32>, tensor<1x4xi32>) {
  %0:3 = attn.conv ins(%q, %k, %v : tensor<1x4x20x6xbf16>, tensor<1x2x20x6xbf16>, tensor<1x2x20x5xbf16>)
      outs(%o, %n, %c : tensor<1x4x20x5xbf16>, tensor<1x4xi32>, tensor<1x4xi32>)
      {num_basis = 3 : i64, window = 4 : i64, delta = 1.0 : f64, epsilon = 1.0e-02 : f64, scale = 2.0 : f64, algorithm = #attn.conv_algorithm<partitioned>}
      -> tensor<1x4x20x5xbf16>, tensor<1x4xi32>, tensor<1x4xi32>
  return %0#0, %0#1, %0#2 : tensor<1x4x20x5xbf16>, tensor<1x4xi32>, tensor<1x4xi32>
}

// -----

// Groups of 4 of 22 tokens: rows 0 to 7, then rows 8 to 11 among 4 to 11, and so
// on to row 19, and rows 20 and 21 among 16 to 21.

// CHECK-LABEL: func.func @groups(
//  CHECK-SAME:   %[[Q:[a-z0-9]+]]: tensor<1x1x22x6xf32>, %[[O:[a-z0-9]+]]: tensor<1x1x22x6xf32>, %[[N:[a-z0-9]+]]: tensor<1x1xi32>
//       CHECK:   %[[ZERO:.*]] = linalg.fill
//       CHECK:   tensor.extract_slice %[[Q]][0, 0, 0, 0] [1, 1, 8, 6]
//       CHECK:   attn.conv_recover {{.*}} tensor<1x1x2x8xf32>
//       CHECK:   attn.conv_apply
//       CHECK:   tensor.insert_slice %{{.*}} into %[[O]][0, 0, 0, 0] [1, 1, 8, 6]
//       CHECK:   linalg.generic {{.*}} outs(%[[ZERO]] : tensor<1x1xi32>)
//       CHECK:     arith.addi
//       CHECK:   %[[LOOP:.*]]:3 = scf.for %[[I:.*]] = %c1 to %c4 step %c1
//       CHECK:     %[[ROW:.*]] = affine.apply {{.*}}(%[[I]])
//       CHECK:     tensor.extract_slice %[[Q]][0, 0, %[[ROW]], 0] [1, 1, 8, 6]
//       CHECK:     attn.conv_recover
//       CHECK:     %[[A:.*]]:2 = attn.conv_apply
//       CHECK:     %[[KEPT:.*]] = tensor.extract_slice %[[A]]#0[0, 0, 4, 0] [1, 1, 4, 6]
//       CHECK:     %[[AT:.*]] = affine.apply {{.*}}(%[[I]])
//       CHECK:     tensor.insert_slice %[[KEPT]] into %{{.*}}[0, 0, %[[AT]], 0] [1, 1, 4, 6]
//       CHECK:   tensor.extract_slice %[[Q]][0, 0, 16, 0] [1, 1, 6, 6]
//       CHECK:   attn.conv_recover {{.*}} tensor<1x1x2x6xf32>
//       CHECK:   tensor.insert_slice %{{.*}} into %[[LOOP]]#0[0, 0, 20, 0] [1, 1, 2, 6]
func.func @groups(%q: tensor<1x1x22x6xf32>, %o: tensor<1x1x22x6xf32>, %n: tensor<1x1xi32>) -> (tensor<1x1x22x6xf32>, tensor<1x1xi32>, tensor<1x1xi32>) {
  %0:3 = attn.conv ins(%q, %q, %q : tensor<1x1x22x6xf32>, tensor<1x1x22x6xf32>, tensor<1x1x22x6xf32>)
      outs(%o, %n, %n : tensor<1x1x22x6xf32>, tensor<1x1xi32>, tensor<1x1xi32>)
      {num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64, group = 4 : i64} -> tensor<1x1x22x6xf32>, tensor<1x1xi32>, tensor<1x1xi32>
  return %0#0, %0#1, %0#2 : tensor<1x1x22x6xf32>, tensor<1x1xi32>, tensor<1x1xi32>
}

// -----

// A group as long as the sequence is no mask.

// CHECK-LABEL: func.func @whole(
//   CHECK-NOT:   slice
//       CHECK:   attn.conv_apply
//   CHECK-NOT:   slice
func.func @whole(%q: tensor<1x1x22x6xf32>, %n: tensor<1x1xi32>) -> tensor<1x1x22x6xf32> {
  %0:3 = attn.conv ins(%q, %q, %q : tensor<1x1x22x6xf32>, tensor<1x1x22x6xf32>, tensor<1x1x22x6xf32>)
      outs(%q, %n, %n : tensor<1x1x22x6xf32>, tensor<1x1xi32>, tensor<1x1xi32>)
      {num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64, group = 22 : i64} -> tensor<1x1x22x6xf32>, tensor<1x1xi32>, tensor<1x1xi32>
  return %0#0 : tensor<1x1x22x6xf32>
}

// -----

// The gradient searches once more.

// CHECK-LABEL: func.func @backward(
//  CHECK-SAME:   %[[Q:[a-z0-9]+]]: tensor<1x4x20x6xbf16>, %[[K:[a-z0-9]+]]: tensor<1x2x20x6xbf16>, %[[V:[a-z0-9]+]]: tensor<1x2x20x5xbf16>, %[[O:[a-z0-9]+]]: tensor<1x4x20x5xbf16>,
//  CHECK-SAME:   %[[DQ:[a-z0-9]+]]: tensor<1x4x20x6xbf16>, %[[DK:[a-z0-9]+]]: tensor<1x2x20x6xf32>, %[[DV:[a-z0-9]+]]: tensor<1x2x20x5xf32>
//       CHECK:   %[[R:.*]]:3 = attn.conv_recover ins(%[[Q]], %[[K]] : {{.*}}) {delta = 1.000000e+00 : f64, epsilon = 1.000000e-02 : f64, scale = 2.000000e+00 : f64, window = 4 : i64}
//       CHECK:   %[[A:.*]]:2 = attn.conv_apply_backward ins(%[[R]]#0, %[[R]]#1, %[[V]] : {{.*}}) forward(%[[O]] : {{.*}}) gradient(%[[O]] : {{.*}}) outs(%{{.*}}, %[[DV]] : tensor<1x4x3x20xf32>, tensor<1x2x20x5xf32>) {algorithm = #attn.conv_algorithm<partitioned>}
//       CHECK:   %[[S:.*]]:2 = attn.conv_recover_backward ins(%[[Q]], %[[K]], %[[R]]#1 : {{.*}}) gradient(%[[A]]#0 : {{.*}}) outs(%[[DQ]], %[[DK]] : {{.*}}) {scale = 2.000000e+00 : f64}
//       CHECK:   return %[[S]]#0, %[[S]]#1, %[[A]]#1
func.func @backward(%q: tensor<1x4x20x6xbf16>, %k: tensor<1x2x20x6xbf16>, %v: tensor<1x2x20x5xbf16>, %o: tensor<1x4x20x5xbf16>,
                    %dq: tensor<1x4x20x6xbf16>, %dk: tensor<1x2x20x6xf32>, %dv: tensor<1x2x20x5xf32>)
    -> (tensor<1x4x20x6xbf16>, tensor<1x2x20x6xf32>, tensor<1x2x20x5xf32>) {
  %0:3 = attn.conv_backward ins(%q, %k, %v : tensor<1x4x20x6xbf16>, tensor<1x2x20x6xbf16>, tensor<1x2x20x5xbf16>)
      forward(%o : tensor<1x4x20x5xbf16>) gradient(%o : tensor<1x4x20x5xbf16>)
      outs(%dq, %dk, %dv : tensor<1x4x20x6xbf16>, tensor<1x2x20x6xf32>, tensor<1x2x20x5xf32>)
      {num_basis = 3 : i64, window = 4 : i64, delta = 1.0 : f64, epsilon = 1.0e-02 : f64, scale = 2.0 : f64, algorithm = #attn.conv_algorithm<partitioned>}
      -> tensor<1x4x20x6xbf16>, tensor<1x2x20x6xf32>, tensor<1x2x20x5xf32>
  return %0#0, %0#1, %0#2 : tensor<1x4x20x6xbf16>, tensor<1x2x20x6xf32>, tensor<1x2x20x5xf32>
}

// -----

// Pairs of groups add to sums, which are rounded once; rows of the pair before
// have no gradient.

// CHECK-LABEL: func.func @backward_groups(
//  CHECK-SAME:   %[[Q:[a-z0-9]+]]: tensor<1x1x22x6xbf16>, %[[D:[a-z0-9]+]]: tensor<1x1x22x6xbf16>)
//       CHECK:   attn.conv_recover_backward {{.*}} tensor<1x1x8x6xf32>
//       CHECK:   %[[LOOP:.*]]:3 = scf.for
//       CHECK:     %[[OWN:.*]] = tensor.extract_slice %[[D]]{{.*}} [1, 1, 4, 6]
//       CHECK:     %[[ROWS:.*]] = tensor.insert_slice %[[OWN]] into %{{.*}}[0, 0, 4, 0] [1, 1, 4, 6]
//       CHECK:     attn.conv_apply_backward {{.*}} gradient(%[[ROWS]] :
//       CHECK:     arith.addf
//       CHECK:   attn.conv_apply_backward {{.*}} tensor<1x1x6x6xf32>
//       CHECK:   arith.truncf %{{.*}} : tensor<1x1x22x6xf32> to tensor<1x1x22x6xbf16>
func.func @backward_groups(%q: tensor<1x1x22x6xbf16>, %d: tensor<1x1x22x6xbf16>) -> tensor<1x1x22x6xbf16> {
  %0:3 = attn.conv_backward ins(%q, %q, %q : tensor<1x1x22x6xbf16>, tensor<1x1x22x6xbf16>, tensor<1x1x22x6xbf16>)
      forward(%q : tensor<1x1x22x6xbf16>) gradient(%d : tensor<1x1x22x6xbf16>)
      outs(%q, %q, %q : tensor<1x1x22x6xbf16>, tensor<1x1x22x6xbf16>, tensor<1x1x22x6xbf16>)
      {num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64, group = 4 : i64}
      -> tensor<1x1x22x6xbf16>, tensor<1x1x22x6xbf16>, tensor<1x1x22x6xbf16>
  return %0#1 : tensor<1x1x22x6xbf16>
}

// The tokens that are present are packed, and searched up to their number.

// CHECK-LABEL: func @masked(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<2x4x9x6xf32>, %[[K:[^:]*]]: tensor<2x2x9x6xf32>, %[[M:[^:]*]]: tensor<2x9xi1>
// CHECK: %[[T:.*]]:3 = attn.list_tokens ins(%[[M]]
// CHECK: %[[QP:.*]] = attn.take_rows ins(%[[Q]], %[[T]]#0
// CHECK: %[[KP:.*]] = attn.take_rows ins(%[[K]], %[[T]]#0
// CHECK: %[[VP:.*]] = attn.take_rows ins(%[[K]], %[[T]]#0
// CHECK: attn.conv_recover ins(%[[QP]], %[[KP]] {{.*}}) lengths(%[[T]]#2 : tensor<2xi32>)
// CHECK: %[[OUT:.*]]:2 = attn.conv_apply ins({{.*}}, %[[VP]]
// CHECK: attn.take_rows ins(%[[OUT]]#0, %[[T]]#1
func.func @masked(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %m: tensor<2x9xi1>, %n: tensor<2x4xi32>) -> tensor<2x4x9x6xf32> {
  %0:3 = attn.conv ins(%q, %k, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x6xf32>) mask(%m : tensor<2x9xi1>) outs(%q, %n, %n : tensor<2x4x9x6xf32>, tensor<2x4xi32>, tensor<2x4xi32>)
      {num_basis = 2 : i64, window = 2 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x6xf32>, tensor<2x4xi32>, tensor<2x4xi32>
  return %0#0 : tensor<2x4x9x6xf32>
}

// A pair of groups has what is left of the tokens from its first row on.

// CHECK-LABEL: func @masked_groups(
// CHECK: %[[T:.*]]:3 = attn.list_tokens
// CHECK: attn.conv_recover {{.*}} lengths(%[[T]]#2 : tensor<2xi32>)
// CHECK: %[[REST:.*]] = linalg.generic {{.*}} ins(%[[T]]#2
// CHECK: arith.subi
// CHECK: attn.conv_recover {{.*}} lengths(%[[REST]] : tensor<2xi32>)
func.func @masked_groups(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %m: tensor<2x9xi1>, %n: tensor<2x4xi32>) -> tensor<2x4x9x6xf32> {
  %0:3 = attn.conv ins(%q, %k, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x6xf32>) mask(%m : tensor<2x9xi1>) outs(%q, %n, %n : tensor<2x4x9x6xf32>, tensor<2x4xi32>, tensor<2x4xi32>)
      {num_basis = 2 : i64, window = 2 : i64, group = 3 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x6xf32>, tensor<2x4xi32>, tensor<2x4xi32>
  return %0#0 : tensor<2x4x9x6xf32>
}

// CHECK-LABEL: func @masked_backward(
// CHECK: %[[T:.*]]:3 = attn.list_tokens
// CHECK-COUNT-5: attn.take_rows ins(%{{.*}}, %[[T]]#0
// CHECK: attn.conv_recover_backward
// CHECK-COUNT-3: attn.take_rows ins(%{{.*}}, %[[T]]#1
func.func @masked_backward(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %m: tensor<2x9xi1>) -> (tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x6xf32>) {
  %0:3 = attn.conv_backward ins(%q, %k, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x6xf32>) mask(%m : tensor<2x9xi1>) forward(%q : tensor<2x4x9x6xf32>) gradient(%q : tensor<2x4x9x6xf32>)
      outs(%q, %k, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x6xf32>) {num_basis = 2 : i64, window = 2 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x6xf32>
  return %0#0, %0#1, %0#2 : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x6xf32>
}
