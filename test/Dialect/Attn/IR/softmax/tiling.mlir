// RUN: fovea-opt %s --transform-interpreter --canonicalize --cse --split-input-file | FileCheck %s

// One query head and 24 of 64 rows: the key head that query head h reads is
// h / (8 / 2), extents of 1 are not cut, keys and values stay whole.
// CHECK-DAG: #[[$ROW:.*]] = affine_map<(d0) -> (d0 * 24)>
// CHECK-DAG: #[[$SIZE:.*]] = affine_map<(d0) -> (d0 * -24 + 64, 24)>
// CHECK-DAG: #[[$HEAD:.*]] = affine_map<(d0) -> (d0 floordiv 4)>
// CHECK-LABEL: func @dense_gqa(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<2x8x64x16xf32>, %[[K:[^:]*]]: tensor<2x2x96x16xf32>, %[[V:[^:]*]]: tensor<2x2x96x4xf32>, %[[W:[^:]*]]: tensor<1x2x96xf32>, %[[B:[^:]*]]: tensor<2x1x64x96xf32>, %[[E:[^:]*]]: tensor<1x8xf32>, %[[O:[^:]*]]: tensor<2x8x64x4xf32>, %[[L:[^:]*]]: tensor<2x8x64xf32>
// CHECK: scf.forall (%[[I:.*]], %[[H:.*]], %[[T:.*]]) in (2, 8, 3) shared_outs(%[[OO:.*]] = %[[O]], %[[LL:.*]] = %[[L]])
// CHECK-DAG: %[[R:.*]] = affine.apply #[[$ROW]](%[[T]])
// CHECK-DAG: %[[S:.*]] = affine.min #[[$SIZE]](%[[T]])
// CHECK-DAG: %[[G:.*]] = affine.apply #[[$HEAD]](%[[H]])
// CHECK-DAG: %[[QT:.*]] = tensor.extract_slice %[[Q]][%[[I]], %[[H]], %[[R]], 0] [1, 1, %[[S]], 16]
// CHECK-DAG: %[[KT:.*]] = tensor.extract_slice %[[K]][%[[I]], %[[G]], 0, 0] [1, 1, 96, 16]
// CHECK-DAG: %[[VT:.*]] = tensor.extract_slice %[[V]][%[[I]], %[[G]], 0, 0] [1, 1, 96, 4]
// CHECK-DAG: %[[WT:.*]] = tensor.extract_slice %[[W]][0, %[[G]], 0] [1, 1, 96]
// CHECK-DAG: %[[BT:.*]] = tensor.extract_slice %[[B]][%[[I]], 0, %[[R]], 0] [1, 1, %[[S]], 96]
// CHECK-DAG: %[[ET:.*]] = tensor.extract_slice %[[E]][0, %[[H]]] [1, 1]
// CHECK-DAG: %[[OT:.*]] = tensor.extract_slice %[[OO]][%[[I]], %[[H]], %[[R]], 0] [1, 1, %[[S]], 4]
// CHECK-DAG: %[[LT:.*]] = tensor.extract_slice %[[LL]][%[[I]], %[[H]], %[[R]]] [1, 1, %[[S]]]
// CHECK: %[[D:.*]]:2 = attn.dense ins(%[[QT]], %[[KT]], %[[VT]] : {{.*}}) log_weight(%[[WT]] : {{.*}}) bias(%[[BT]] : {{.*}}) sink(%[[ET]] : {{.*}}) outs(%[[OT]], %[[LT]] : {{.*}}) {scale = 5.000000e-01 : f64}
// CHECK-DAG: tensor.parallel_insert_slice %[[D]]#0 into %[[OO]][%[[I]], %[[H]], %[[R]], 0] [1, 1, %[[S]], 4]
// CHECK-DAG: tensor.parallel_insert_slice %[[D]]#1 into %[[LL]][%[[I]], %[[H]], %[[R]]] [1, 1, %[[S]]]
func.func @dense_gqa(%q: tensor<2x8x64x16xf32>, %k: tensor<2x2x96x16xf32>, %v: tensor<2x2x96x4xf32>, %w: tensor<1x2x96xf32>, %b: tensor<2x1x64x96xf32>, %e: tensor<1x8xf32>, %o: tensor<2x8x64x4xf32>, %l: tensor<2x8x64xf32>)
    -> (tensor<2x8x64x4xf32>, tensor<2x8x64xf32>) {
  %0, %1 = attn.dense ins(%q, %k, %v : tensor<2x8x64x16xf32>, tensor<2x2x96x16xf32>, tensor<2x2x96x4xf32>) log_weight(%w : tensor<1x2x96xf32>) bias(%b : tensor<2x1x64x96xf32>) sink(%e : tensor<1x8xf32>)
      outs(%o, %l : tensor<2x8x64x4xf32>, tensor<2x8x64xf32>) {scale = 0.5} -> tensor<2x8x64x4xf32>, tensor<2x8x64xf32>
  return %0, %1 : tensor<2x8x64x4xf32>, tensor<2x8x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.dense"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 1, 24] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// Where every query head has keys of its own, heads may be tiled by any number.
// CHECK-LABEL: func @dense_own_heads(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<1x8x64x16xf32>, %[[K:[^:]*]]: tensor<1x8x96x16xf32>
// CHECK: scf.forall (%[[T:.*]]) in (2)
// CHECK: %[[H:.*]] = affine.apply
// CHECK: tensor.extract_slice %[[Q]][0, %[[H]], 0, 0] [1, 4, 64, 16]
// CHECK: tensor.extract_slice %[[K]][0, %[[H]], 0, 0] [1, 4, 96, 16]
// CHECK: attn.dense {{.*}} {mask = #attn.mask<causal>} -> tensor<1x4x64x16xf32>
func.func @dense_own_heads(%q: tensor<1x8x64x16xf32>, %k: tensor<1x8x96x16xf32>) -> tensor<1x8x64x16xf32> {
  %0 = attn.dense ins(%q, %k, %k : tensor<1x8x64x16xf32>, tensor<1x8x96x16xf32>, tensor<1x8x96x16xf32>)
      outs(%q : tensor<1x8x64x16xf32>) {mask = #attn.mask<causal>} -> tensor<1x8x64x16xf32>
  return %0 : tensor<1x8x64x16xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.dense"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [0, 4] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// All heads and rows at once, though their numbers are unknown: so the mask is
// no obstacle.
// CHECK-LABEL: func @dense_dynamic(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<?x?x?x16xf32>, %[[K:[^:]*]]: tensor<?x?x?x16xf32>, %[[O:[^:]*]]: tensor<?x?x?x16xf32>
// CHECK-DAG: %[[C0:.*]] = arith.constant 0 : index
// CHECK-DAG: %[[C1:.*]] = arith.constant 1 : index
// CHECK-DAG: %[[C2:.*]] = arith.constant 2 : index
// CHECK-DAG: %[[BATCH:.*]] = tensor.dim %[[Q]], %[[C0]]
// CHECK-DAG: %[[H:.*]] = tensor.dim %[[Q]], %[[C1]]
// CHECK-DAG: %[[N:.*]] = tensor.dim %[[Q]], %[[C2]]
// CHECK: scf.forall (%[[I:.*]]) in (%[[BATCH]]) shared_outs(%[[OO:.*]] = %[[O]])
// CHECK-DAG: %[[G:.*]] = tensor.dim %[[K]], %[[C1]]
// CHECK-DAG: %[[M:.*]] = tensor.dim %[[K]], %[[C2]]
// CHECK-DAG: tensor.extract_slice %[[Q]][%[[I]], 0, 0, 0] [1, %[[H]], %[[N]], 16]
// CHECK-DAG: tensor.extract_slice %[[K]][%[[I]], 0, 0, 0] [1, %[[G]], %[[M]], 16]
// CHECK: attn.dense {{.*}} {mask = #attn.mask<window = 7>}
// CHECK: tensor.parallel_insert_slice {{.*}} into %[[OO]][%[[I]], 0, 0, 0] [1, %[[H]], %[[N]], 16]
func.func @dense_dynamic(%q: tensor<?x?x?x16xf32>, %k: tensor<?x?x?x16xf32>, %o: tensor<?x?x?x16xf32>) -> tensor<?x?x?x16xf32> {
  %0 = attn.dense ins(%q, %k, %k : tensor<?x?x?x16xf32>, tensor<?x?x?x16xf32>, tensor<?x?x?x16xf32>)
      outs(%o : tensor<?x?x?x16xf32>) {mask = #attn.mask<window = 7>} -> tensor<?x?x?x16xf32>
  return %0 : tensor<?x?x?x16xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.dense"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// Dynamic head counts: the division is computed.
// CHECK: #[[$HEAD:.*]] = affine_map<(d0)[s0, s1] -> (d0 floordiv (s0 floordiv s1))>
// CHECK-LABEL: func @dense_dynamic_heads(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<1x?x4x8xf32>, %[[K:[^:]*]]: tensor<1x?x6x8xf32>
// CHECK: scf.forall (%[[H:.*]]) in
// CHECK: %[[G:.*]] = affine.apply #[[$HEAD]](%[[H]])[%{{.*}}, %{{.*}}]
// CHECK: tensor.extract_slice %[[K]][0, %[[G]], 0, 0] [1, 1, 6, 8]
func.func @dense_dynamic_heads(%q: tensor<1x?x4x8xf32>, %k: tensor<1x?x6x8xf32>) -> tensor<1x?x4x8xf32> {
  %0 = attn.dense ins(%q, %k, %k : tensor<1x?x4x8xf32>, tensor<1x?x6x8xf32>, tensor<1x?x6x8xf32>) outs(%q : tensor<1x?x4x8xf32>) -> tensor<1x?x4x8xf32>
  return %0 : tensor<1x?x4x8xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.dense"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [0, 1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// No heads: no tiles, and no division by zero.
// CHECK-LABEL: func @dense_no_heads(
// CHECK-SAME: %{{.*}}, %{{.*}}, %[[O:.*]]: tensor<1x0x4x8xf32>)
// CHECK-NEXT: return %[[O]]
func.func @dense_no_heads(%q: tensor<1x0x4x8xf32>, %k: tensor<1x2x6x8xf32>, %o: tensor<1x0x4x8xf32>) -> tensor<1x0x4x8xf32> {
  %0 = attn.dense ins(%q, %k, %k : tensor<1x0x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x8xf32>) outs(%o : tensor<1x0x4x8xf32>) -> tensor<1x0x4x8xf32>
  return %0 : tensor<1x0x4x8xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.dense"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [0, 1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// A tile of a stream says which rows of the sequence it holds; blocks and masks
// refer to those. Its sources stay whole.
// CHECK-DAG: #[[$ALL:.*]] = affine_map<(d0)[s0, s1] -> (0, d0)>
// CHECK-DAG: #[[$ROW:.*]] = affine_map<(d0) -> (d0 * 32)>
// CHECK-LABEL: func @stream(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<1x4x70x16xf32>, %[[K:[^:]*]]: tensor<1x2x70x16xf32>, %[[S:[^:]*]]: tensor<1x2x8x16xf32>, %[[W:[^:]*]]: tensor<1x1x8xf32>, %[[B:[^:]*]]: tensor<1x4x70x70xf32>
// CHECK: %[[N:.*]] = arith.constant 70 : index
// CHECK: scf.forall (%[[H:.*]], %[[T:.*]]) in (4, 3)
// CHECK-DAG: %[[R:.*]] = affine.apply #[[$ROW]](%[[T]])
// CHECK-DAG: %[[G:.*]] = affine.apply {{.*}}(%[[H]])
// CHECK-DAG: %[[KT:.*]] = tensor.extract_slice %[[K]][0, %[[G]], 0, 0] [1, 1, 70, 16]
// CHECK-DAG: %[[ST:.*]] = tensor.extract_slice %[[S]][0, %[[G]], 0, 0] [1, 1, 8, 16]
// CHECK-DAG: %[[BT:.*]] = tensor.extract_slice %[[B]][0, %[[H]], %[[R]], 0] [1, 1, %{{.*}}, 70]
// CHECK: attn.stream query(%{{.*}} : tensor<1x1x?x16xf32>)
// CHECK-NEXT: source(%[[KT]], %[[KT]] : {{.*}}) bias(%[[BT]] : {{.*}}) ranges [{{.*}}] mask <causal>
// CHECK-NEXT: source(%[[ST]], %[[ST]] : {{.*}}) log_weight(%[[W]] : tensor<1x1x8xf32>) ranges [#[[$ALL]]]
// CHECK-NEXT: tile(%[[R]] of %[[N]]) outs(%{{.*}}, %{{.*}} : tensor<1x1x?x16xf32>, tensor<1x1x?xf32>)
// CHECK-SAME: {block = 8 : i64, scale = 1.000000e+00 : f64, tiles = #attn.tiles<query = 32, key = 8, lanes = 8, vectors = 1, keys = 8, columns = 4>}
func.func @stream(%q: tensor<1x4x70x16xf32>, %k: tensor<1x2x70x16xf32>, %s: tensor<1x2x8x16xf32>, %w: tensor<1x1x8xf32>, %b: tensor<1x4x70x70xf32>, %l: tensor<1x4x70xf32>)
    -> (tensor<1x4x70x16xf32>, tensor<1x4x70xf32>) {
  %0, %1 = attn.stream query(%q : tensor<1x4x70x16xf32>)
      source(%k, %k : tensor<1x2x70x16xf32>, tensor<1x2x70x16xf32>) bias(%b : tensor<1x4x70x70xf32>) ranges [affine_map<(b)[rows, n] -> (b * 8, rows)>] mask <causal>
      source(%s, %s : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) log_weight(%w : tensor<1x1x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, b)>]
      outs(%q, %l : tensor<1x4x70x16xf32>, tensor<1x4x70xf32>)
      {block = 8 : i64, scale = 1.0, tiles = #attn.tiles<query = 32, key = 8, lanes = 8, vectors = 1, keys = 8, columns = 4>} -> tensor<1x4x70x16xf32>, tensor<1x4x70xf32>
  return %0, %1 : tensor<1x4x70x16xf32>, tensor<1x4x70xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.stream"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 1, 32] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// A tile of a tile counts from the start of the sequence.
// CHECK-LABEL: func @stream_tile_of_tile(
// CHECK-SAME: %{{.*}}: tensor<1x1x64x16xf32>, %[[FIRST:.*]]: index, %[[N:.*]]: index
// CHECK: scf.forall (%[[T:.*]]) in (2)
// CHECK: %[[R:.*]] = affine.apply #{{.*}}(%[[T]])
// CHECK: %[[START:.*]] = arith.addi %[[FIRST]], %[[R]] : index
// CHECK: tile(%[[START]] of %[[N]])
func.func @stream_tile_of_tile(%q: tensor<1x1x64x16xf32>, %first: index, %n: index) -> tensor<1x1x64x16xf32> {
  %0 = attn.stream query(%q : tensor<1x1x64x16xf32>) source(%q, %q : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      tile(%first of %n) outs(%q : tensor<1x1x64x16xf32>) {scale = 1.0} -> tensor<1x1x64x16xf32>
  return %0 : tensor<1x1x64x16xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.stream"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [0, 0, 32] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// A dynamic number of queries.
// CHECK-LABEL: func @stream_dynamic(
// CHECK-SAME: %[[Q:.*]]: tensor<?x?x?x16xf32>)
// CHECK: %[[C2:.*]] = arith.constant 2 : index
// CHECK: %[[N:.*]] = tensor.dim %[[Q]], %[[C2]]
// CHECK: scf.forall (%[[I:.*]], %[[H:.*]], %[[T:.*]]) in
// CHECK: %[[R:.*]] = affine.apply #{{.*}}(%[[T]])
// CHECK: tile(%[[R]] of %[[N]]) outs(%{{.*}} : tensor<1x1x?x16xf32>)
func.func @stream_dynamic(%q: tensor<?x?x?x16xf32>) -> tensor<?x?x?x16xf32> {
  %0 = attn.stream query(%q : tensor<?x?x?x16xf32>) source(%q, %q : tensor<?x?x?x16xf32>, tensor<?x?x?x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<?x?x?x16xf32>) {scale = 1.0} -> tensor<?x?x?x16xf32>
  return %0 : tensor<?x?x?x16xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.stream"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 1, 32] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// A table that two sources share is one slice for both; a shared head of it is no
// slice of heads. Operands with an axis of query blocks keep the axis.
// CHECK-LABEL: func @stream_of_table(
// CHECK-SAME: %{{.*}}: tensor<1x4x64x16xf32>, %[[C:[^:]*]]: tensor<1x1x8x16xf32>, %[[Z:[^:]*]]: tensor<1x2x64xi32>, %{{.*}}: tensor<1x2x64x16xf32>, %[[M:[^:]*]]: tensor<1x2x4x8x16xf32>, %[[L:[^:]*]]: tensor<1x2x4x8xf32>
// CHECK: scf.forall (%[[H:.*]], %[[T:.*]]) in (4, 2)
// CHECK-DAG: %[[G:.*]] = affine.apply {{.*}}(%[[H]])
// CHECK-DAG: %[[ZT:.*]] = tensor.extract_slice %[[Z]][0, %[[G]], 0] [1, 1, 64]
// CHECK-DAG: %[[MT:.*]] = tensor.extract_slice %[[M]][0, %[[G]], 0, 0, 0] [1, 1, 4, 8, 16]
// CHECK-DAG: %[[LT:.*]] = tensor.extract_slice %[[L]][0, %[[G]], 0, 0] [1, 1, 4, 8]
// CHECK: attn.stream query
// CHECK-NEXT: source(%[[C]], %{{.*}}) codes(%[[ZT]] : tensor<1x1x64xi32>)
// CHECK-NEXT: source(%[[C]], %[[MT]] : {{.*}}) log_weight(%[[LT]] : {{.*}})
// CHECK: weighting = #attn.weighting<squared_relu>
func.func @stream_of_table(%q: tensor<1x4x64x16xf32>, %c: tensor<1x1x8x16xf32>, %z: tensor<1x2x64xi32>, %v: tensor<1x2x64x16xf32>,
    %mean: tensor<1x2x4x8x16xf32>, %log: tensor<1x2x4x8xf32>) -> tensor<1x4x64x16xf32> {
  %out = attn.stream query(%q : tensor<1x4x64x16xf32>)
      source(%c, %v : tensor<1x1x8x16xf32>, tensor<1x2x64x16xf32>) codes(%z : tensor<1x2x64xi32>) ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>] mask <causal>
      source(%c, %mean : tensor<1x1x8x16xf32>, tensor<1x2x4x8x16xf32>) log_weight(%log : tensor<1x2x4x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x4x64x16xf32>) {block = 16 : i64, scale = 1.0, weighting = #attn.weighting<squared_relu>} -> tensor<1x4x64x16xf32>
  return %out : tensor<1x4x64x16xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.stream"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 1, 32] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// A tile's batch entries and heads count from the first one, which its score
// region captures; what it does not look at, it does not.
// CHECK-LABEL: func @score(
// CHECK-SAME: %{{.*}}: tensor<2x4x8x16xf32>, %[[T:[^:]*]]: tensor<4xf32>
// CHECK: scf.forall (%{{.*}}, %[[H:.*]]) in (2, 4)
// CHECK: attn.dense {{.*}} score(%[[T]], %[[H]] : tensor<4xf32>, index) {
// CHECK-NEXT: ^bb0(%{{.*}}: f32, %{{.*}}: index, %[[OWN:.*]]: index, %{{.*}}: index, %{{.*}}: index, %[[X:.*]]: tensor<4xf32>, %[[FIRST:.*]]: index):
// CHECK-NEXT: %[[SUM:.*]] = arith.addi %[[OWN]], %[[FIRST]] : index
// CHECK-NEXT: tensor.extract %[[X]][%[[SUM]]]
func.func @score(%q: tensor<2x4x8x16xf32>, %t: tensor<4xf32>) -> tensor<2x4x8x16xf32> {
  %0 = attn.dense ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>) score(%t : tensor<4xf32>) {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: tensor<4xf32>):
        %e = tensor.extract %x[%h] : tensor<4xf32>
        %r = arith.addf %s, %e : f32
        attn.yield %r : f32
      } outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return %0 : tensor<2x4x8x16xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.dense"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
