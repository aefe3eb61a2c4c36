// RUN: fovea-opt %s --attn-expand-patterns --canonicalize --cse --split-input-file | FileCheck %s
// RUN: fovea-opt %s --attn-expand-patterns=reduction=serial --canonicalize --cse --split-input-file | FileCheck %s --check-prefix=SERIAL

// Without a bias a query reads its own block one by one and everything older as
// codewords: block by block, a block's tokens are taken in after its queries.

// CHECK-DAG: #[[$OWN:.+]] = affine_map<(d0)[s0, s1] -> (d0 * 8, d0 * 8 + 8)>
// CHECK-DAG: #[[$ALL:.+]] = affine_map<(d0)[s0, s1] -> (0, d0 * 6)>
// CHECK-LABEL: func @causal(
// CHECK-SAME: %[[Q:[a-z0-9]+]]: {{[^%]*}}, %[[Z:[a-z0-9]+]]: {{[^%]*}}, %[[V:[a-z0-9]+]]: {{[^%]*}}, %[[C:[a-z0-9]+]]: {{[^%]*}}, %[[O:[a-z0-9]+]]:
// CHECK: %[[T:.+]] = tensor.expand_shape %[[C]] {{\[\[}}0, 1], [2], [3]] output_shape [1, 2, 6, 8]
// CHECK: scf.for %[[B:.+]] = %c0 to %c5 step %c1 iter_args(%[[OUT:.+]] = %[[O]], %[[M:.+]] = %{{.+}}, %[[N:.+]] = %{{.+}})
// CHECK: %[[QB:.+]] = tensor.extract_slice %[[Q]][0, 0, %[[ROW:.+]], 0] [1, 4, 8, 8]
// CHECK: %[[W:.+]] = attn.log_count ins(%[[N]] : tensor<1x2x6xi32>)
// CHECK: %[[S:.+]] = attn.stream query(%[[QB]] : tensor<1x4x8x8xf32>)
// CHECK-NEXT: source(%[[T]], %[[V]] : tensor<1x2x6x8xf32>, tensor<1x2x40x8xf32>) codes(%[[Z]] : tensor<1x2x40xi32>) ranges [#[[$OWN]]] mask <causal>
// CHECK-NEXT: source(%[[T]], %[[M]] : tensor<1x2x6x8xf32>, tensor<1x2x6x8xf32>) log_weight(%[[W]] : tensor<1x2x6xf32>) ranges [#[[$ALL]]]
// CHECK-NEXT: tile(%[[ROW]] of %c40) outs(%{{.+}}) {block = 8 : i64, scale = 1.000000e+00 : f64}
// CHECK: %[[NEXT:.+]] = tensor.insert_slice %[[S]] into %[[OUT]]
// CHECK: %[[ZB:.+]] = tensor.extract_slice %[[Z]]
// CHECK: %[[VB:.+]] = tensor.extract_slice %[[V]]
// CHECK: %[[A:.+]]:2 = attn.codebook_accumulate ins(%[[ZB]], %[[VB]] : tensor<1x2x8xi32>, tensor<1x2x8x8xf32>) outs(%[[M]], %[[N]] :
// CHECK: scf.yield %[[NEXT]], %[[A]]#0, %[[A]]#1

// All at once, entry b of the scan is what block b reads.
// SERIAL-LABEL: func @causal(
// SERIAL: %[[E:.+]]:2 = attn.codebook_scan ins({{.*}}) outs(%{{.+}}, %{{.+}} : tensor<1x2x5x6x8xf32>, tensor<1x2x5x6xi32>) {block = 8 : i64, reduction = #attn.reduction<serial>}
// SERIAL: %[[W:.+]] = attn.log_count ins(%[[E]]#1 : tensor<1x2x5x6xi32>)
// SERIAL: attn.stream query
// SERIAL-NEXT: source({{.*}}) codes({{.*}}) ranges [{{.*}}] mask <causal>
// SERIAL-NEXT: source(%{{.+}}, %[[E]]#0 : tensor<1x2x6x8xf32>, tensor<1x2x5x6x8xf32>) log_weight(%[[W]] : tensor<1x2x5x6xf32>)
func.func @causal(%q: tensor<1x4x40x8xf32>, %z: tensor<1x2x40xi32>, %v: tensor<1x2x40x8xf32>, %c: tensor<2x6x8xf32>, %o: tensor<1x4x40x8xf32>) -> tensor<1x4x40x8xf32> {
  %0 = attn.vq ins(%q, %z, %v, %c : tensor<1x4x40x8xf32>, tensor<1x2x40xi32>, tensor<1x2x40x8xf32>, tensor<2x6x8xf32>)
      outs(%o : tensor<1x4x40x8xf32>) {block = 8 : i64, causal} -> tensor<1x4x40x8xf32>
  return %0 : tensor<1x4x40x8xf32>
}

// -----

// Nothing asks for blocks of 200: in order, small ones leave fewer tokens to be
// read one by one. Blocks at once are kept, every one of them is stored.
// CHECK: #[[$OWN:.+]] = affine_map<(d0)[s0, s1] -> (d0 * 128, d0 * 128 + 128)>
// CHECK-LABEL: func @free_block(
// CHECK: scf.for %{{.+}} = %c0 to %c3 step
// CHECK: attn.stream query
// CHECK-NEXT: source({{.*}}) codes({{.*}}) ranges [#[[$OWN]]]
// SERIAL-LABEL: func @free_block(
// SERIAL: attn.codebook_scan {{.*}} {block = 200 : i64
func.func @free_block(%q: tensor<1x1x300x8xf32>, %z: tensor<1x1x300xi32>, %c: tensor<1x6x8xf32>) -> tensor<1x1x300x8xf32> {
  %0 = attn.vq ins(%q, %z, %q, %c : tensor<1x1x300x8xf32>, tensor<1x1x300xi32>, tensor<1x1x300x8xf32>, tensor<1x6x8xf32>)
      outs(%q : tensor<1x1x300x8xf32>) {block = 200 : i64, causal} -> tensor<1x1x300x8xf32>
  return %0 : tensor<1x1x300x8xf32>
}

// -----

// With a bias the block before is read one by one, too, and taken in one block
// later. The last block is cut.

// CHECK-DAG: #[[$TWO:.+]] = affine_map<(d0)[s0, s1] -> (d0 * 8 - 8, d0 * 8 + 8)>
// CHECK-DAG: #[[$OLD:.+]] = affine_map<(d0)[s0, s1] -> (0, d0 * 6 - 6)>
// CHECK-LABEL: func @bias(
// CHECK: scf.for %[[B:.+]] = %c0 to %c3 step
// CHECK: attn.stream query(%{{.+}} : tensor<1x1x?x8xf32>)
// CHECK-NEXT: source({{.*}}) codes({{.*}}) local_bias({{.*}} : tensor<1x1x?x16xf32>) ranges [#[[$TWO]]] mask <causal>
// CHECK-NEXT: source({{.*}}) log_weight({{.*}}) ranges [#[[$OLD]]]
// CHECK: %[[FIRST:.+]] = arith.cmpi slt, %[[B]], %c1
// CHECK: scf.if %[[FIRST]]
// CHECK: } else {
// CHECK: attn.codebook_accumulate

// SERIAL-LABEL: func @bias(
// SERIAL: attn.codebook_scan {{.*}} outs({{.*}} : tensor<1x1x2x6x8xf32>, tensor<1x1x2x6xi32>)
// SERIAL: tensor.insert_slice {{.*}} : tensor<1x1x2x6x8xf32> into tensor<1x1x4x6x8xf32>
func.func @bias(%q: tensor<1x1x20x8xf32>, %z: tensor<1x1x20xi32>, %c: tensor<1x6x8xf32>, %b: tensor<1x1x20x16xf32>) -> tensor<1x1x20x8xf32> {
  %0 = attn.vq ins(%q, %z, %q, %c : tensor<1x1x20x8xf32>, tensor<1x1x20xi32>, tensor<1x1x20x8xf32>, tensor<1x6x8xf32>)
      bias(%b : tensor<1x1x20x16xf32>) outs(%q : tensor<1x1x20x8xf32>) {block = 8 : i64, causal} -> tensor<1x1x20x8xf32>
  return %0 : tensor<1x1x20x8xf32>
}

// -----

// No token is ever older than the local ones: no codewords.
// CHECK-LABEL: func @short(
// CHECK-NOT: attn.codebook
// CHECK: attn.stream query
// CHECK-NEXT: source({{.*}}) codes({{.*}}) local_bias
// CHECK-NEXT: outs(
func.func @short(%q: tensor<1x1x16x8xf32>, %z: tensor<1x1x16xi32>, %c: tensor<1x6x8xf32>, %b: tensor<1x1x1x16xf32>) -> tensor<1x1x16x8xf32> {
  %0 = attn.vq ins(%q, %z, %q, %c : tensor<1x1x16x8xf32>, tensor<1x1x16xi32>, tensor<1x1x16x8xf32>, tensor<1x6x8xf32>)
      bias(%b : tensor<1x1x1x16xf32>) outs(%q : tensor<1x1x16x8xf32>) {block = 8 : i64, causal} -> tensor<1x1x16x8xf32>
  return %0 : tensor<1x1x16x8xf32>
}

// -----

// The encoder form: one source of codewords.
// CHECK-LABEL: func @encoder(
// CHECK: %[[A:.+]]:2 = attn.codebook_accumulate
// CHECK: attn.log_count ins(%[[A]]#1
// CHECK: attn.stream query
// CHECK-NEXT: source(%{{.+}}, %[[A]]#0 : tensor<1x1x6x8xf32>, tensor<1x1x6x8xf32>) log_weight
// CHECK-NEXT: outs({{.*}}) {block = 0 : i64, scale = 1.000000e+00 : f64, weighting = #attn.weighting<squared_relu>}
func.func @encoder(%q: tensor<1x1x?x8xf32>, %z: tensor<1x1x?xi32>, %c: tensor<1x6x8xf32>) -> tensor<1x1x?x8xf32> {
  %0 = attn.vq ins(%q, %z, %q, %c : tensor<1x1x?x8xf32>, tensor<1x1x?xi32>, tensor<1x1x?x8xf32>, tensor<1x6x8xf32>)
      outs(%q : tensor<1x1x?x8xf32>) {block = 8 : i64, weighting = #attn.weighting<squared_relu>} -> tensor<1x1x?x8xf32>
  return %0 : tensor<1x1x?x8xf32>
}

// -----

// A window: the state's tokens are two sources more, which the first two blocks
// read. Rows count from the start of the block that the window begins in.

// CHECK-DAG: #[[$OLDER:.+]] = affine_map<(d0)[s0, s1] -> (d0 * 8, s0)>
// CHECK-DAG: #[[$BEGUN:.+]] = affine_map<(d0)[s0, s1] -> (d0 * 8 - 8, s0)>
// CHECK-DAG: #[[$WINDOW:.+]] = affine_map<(d0)[s0, s1] -> (d0 * 8 + s0 - s1 - 8, d0 * 8 + s0 - s1 + 8)>
// CHECK-LABEL: func @window(
// CHECK: tensor.extract %{{.+}}[] : tensor<i64>
// CHECK: scf.for
// CHECK: attn.stream query
// CHECK-NEXT: source({{.*}}) codes({{.*}}) ranges [#[[$OLDER]]]
// CHECK-NEXT: source({{.*}}) codes({{.*}}) ranges [#[[$BEGUN]]]
// CHECK-NEXT: source({{.*}}) codes({{.*}}) ranges [#[[$WINDOW]]] mask <causal>
// CHECK-NEXT: source({{.*}}) log_weight({{.*}})
// CHECK-NEXT: tile(
func.func @window(%q: tensor<1x1x20x8xf32>, %z: tensor<1x1x20xi32>, %c: tensor<1x6x8xf32>,
    %m: tensor<1x1x6x8xf32>, %n: tensor<1x1x6xi32>, %kz: tensor<1x1x16xi32>, %kv: tensor<1x1x16x8xf32>, %p: tensor<i64>) -> tensor<1x1x20x8xf32> {
  %0 = attn.vq ins(%q, %z, %q, %c : tensor<1x1x20x8xf32>, tensor<1x1x20xi32>, tensor<1x1x20x8xf32>, tensor<1x6x8xf32>)
      state(%m, %n, %kz, %kv, %p : tensor<1x1x6x8xf32>, tensor<1x1x6xi32>, tensor<1x1x16xi32>, tensor<1x1x16x8xf32>, tensor<i64>)
      outs(%q : tensor<1x1x20x8xf32>) {block = 8 : i64, causal} -> tensor<1x1x20x8xf32>
  return %0 : tensor<1x1x20x8xf32>
}

// -----

// Entries of all blocks at once: slices keep every dimension. One that drops the
// dimension of entries has another extent of 1, that of batches, which
// canonicalization may take for it.
// CHECK-LABEL: func @entries(
// CHECK: %[[START:.+]] = tensor.expand_shape %{{.+}} {{\[}}[0], [1], [2, 3]] {{.*}} : tensor<1x2x6xi32> into tensor<1x2x1x6xi32>
// CHECK-NEXT: tensor.insert_slice %[[START]] into %{{.+}}[0, 0, 0, 0] [1, 2, 1, 6] [1, 1, 1, 1] : tensor<1x2x1x6xi32> into tensor<1x2x4x6xi32>
// CHECK: attn.codebook_scan
// CHECK: %[[ENTRY:.+]] = tensor.extract_slice %{{.+}}[0, 0, 2, 0] [1, 2, 1, 6] [1, 1, 1, 1] : tensor<1x2x4x6xi32> to tensor<1x2x1x6xi32>
// CHECK-NEXT: tensor.collapse_shape %[[ENTRY]] {{\[}}[0], [1], [2, 3]] : tensor<1x2x1x6xi32> into tensor<1x2x6xi32>
func.func @entries(%q: tensor<1x2x16x8xf32>, %z: tensor<1x2x16xi32>, %c: tensor<1x6x8xf32>,
    %m: tensor<1x2x6x8xf32>, %n: tensor<1x2x6xi32>, %kz: tensor<1x2x16xi32>, %kv: tensor<1x2x16x8xf32>, %p: tensor<i64>) -> tensor<1x2x6xi32> {
  %0:6 = attn.vq ins(%q, %z, %q, %c : tensor<1x2x16x8xf32>, tensor<1x2x16xi32>, tensor<1x2x16x8xf32>, tensor<1x6x8xf32>)
      state(%m, %n, %kz, %kv, %p : tensor<1x2x6x8xf32>, tensor<1x2x6xi32>, tensor<1x2x16xi32>, tensor<1x2x16x8xf32>, tensor<i64>)
      outs(%q : tensor<1x2x16x8xf32>)
      next_state(%m, %n, %kz, %kv, %p : tensor<1x2x6x8xf32>, tensor<1x2x6xi32>, tensor<1x2x16xi32>, tensor<1x2x16x8xf32>, tensor<i64>)
      {block = 8 : i64, causal, reduction = #attn.reduction<serial>}
      -> tensor<1x2x16x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6xi32>, tensor<1x2x16xi32>, tensor<1x2x16x8xf32>, tensor<i64>
  return %0#2 : tensor<1x2x6xi32>
}

// -----

// One token: it is kept first, then the halves of what is kept are the present
// and the previous block.
// CHECK-LABEL: func @decode(
// CHECK: %[[KZ:.+]] = tensor.insert_slice {{.*}} : tensor<1x1x1xi32> into tensor<1x1x16xi32>
// CHECK: %[[KV:.+]] = tensor.insert_slice {{.*}} : tensor<1x1x1x8xf32> into tensor<1x1x16x8xf32>
// CHECK: attn.stream query
// CHECK-NEXT: source({{.*}}) codes({{.*}} : tensor<1x1x8xi32>) ranges [{{.*}}] mask <causal>
// CHECK-NEXT: source({{.*}}) codes({{.*}} : tensor<1x1x?xi32>) ranges
// CHECK-NEXT: source({{.*}}) log_weight({{.*}} : tensor<1x1x6xf32>) ranges
// CHECK-NEXT: tile({{.*}} of %c8)
// CHECK: scf.if
// CHECK: attn.codebook_accumulate
func.func @decode(%q: tensor<1x1x1x8xf32>, %z: tensor<1x1x1xi32>, %c: tensor<1x6x8xf32>,
    %m: tensor<1x1x6x8xf32>, %n: tensor<1x1x6xi32>, %kz: tensor<1x1x16xi32>, %kv: tensor<1x1x16x8xf32>, %p: tensor<i64>)
    -> (tensor<1x1x1x8xf32>, tensor<1x1x6x8xf32>, tensor<1x1x6xi32>, tensor<1x1x16xi32>, tensor<1x1x16x8xf32>, tensor<i64>) {
  %0:6 = attn.vq_decode ins(%q, %z, %q, %c : tensor<1x1x1x8xf32>, tensor<1x1x1xi32>, tensor<1x1x1x8xf32>, tensor<1x6x8xf32>)
      outs(%q : tensor<1x1x1x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<1x1x6x8xf32>, tensor<1x1x6xi32>, tensor<1x1x16xi32>, tensor<1x1x16x8xf32>, tensor<i64>)
      {block = 8 : i64} -> tensor<1x1x1x8xf32>, tensor<1x1x6x8xf32>, tensor<1x1x6xi32>, tensor<1x1x16xi32>, tensor<1x1x16x8xf32>, tensor<i64>
  return %0#0, %0#1, %0#2, %0#3, %0#4, %0#5 : tensor<1x1x1x8xf32>, tensor<1x1x6x8xf32>, tensor<1x1x6xi32>, tensor<1x1x16xi32>, tensor<1x1x16x8xf32>, tensor<i64>
}

// -----

// The present block, then the blocks before it: what is older begins 16 tokens
// behind the present block, what is newer ends there.
// CHECK-DAG: #[[$OLDER:.*]] = affine_map<()[s0, s1] -> (-16)>
// CHECK-DAG: #[[$NEWER:.*]] = affine_map<()[s0, s1] -> (-s0)>
// CHECK-LABEL: func @decode_by_distance(
// CHECK: attn.stream query
// CHECK-NEXT: source({{.*}}) codes({{.*}} : tensor<1x1x8xi32>) relative({{.*}}) distance_bias({{.*}}) ranges [{{.*}}] mask <causal>
// CHECK-NEXT: source({{.*}}) codes({{.*}} : tensor<1x1x?xi32>) relative({{.*}}) distance_bias({{.*}}) origin #[[$OLDER]] ranges
// CHECK-NEXT: source({{.*}}) codes({{.*}} : tensor<1x1x?xi32>) relative({{.*}}) distance_bias({{.*}}) origin #[[$NEWER]] ranges
// CHECK-NEXT: source({{.*}}) log_weight({{.*}} : tensor<1x1x6xf32>) ranges
func.func @decode_by_distance(%q: tensor<1x1x1x8xf32>, %z: tensor<1x1x1xi32>, %c: tensor<1x6x8xf32>,
    %m: tensor<1x1x6x8xf32>, %n: tensor<1x1x6xi32>, %kz: tensor<1x1x24xi32>, %kv: tensor<1x1x24x8xf32>, %p: tensor<i64>,
    %r: tensor<1x24x8xf32>, %u: tensor<1x8xf32>, %t: tensor<1x24xf32>)
    -> (tensor<1x1x1x8xf32>, tensor<1x1x6x8xf32>, tensor<1x1x6xi32>, tensor<1x1x24xi32>, tensor<1x1x24x8xf32>, tensor<i64>) {
  %0:6 = attn.vq_decode ins(%q, %z, %q, %c : tensor<1x1x1x8xf32>, tensor<1x1x1xi32>, tensor<1x1x1x8xf32>, tensor<1x6x8xf32>)
      relative(%r, %u : tensor<1x24x8xf32>, tensor<1x8xf32>) distance_bias(%t : tensor<1x24xf32>)
      outs(%q : tensor<1x1x1x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<1x1x6x8xf32>, tensor<1x1x6xi32>, tensor<1x1x24xi32>, tensor<1x1x24x8xf32>, tensor<i64>)
      {block = 8 : i64, memory = 2 : i64} -> tensor<1x1x1x8xf32>, tensor<1x1x6x8xf32>, tensor<1x1x6xi32>, tensor<1x1x24xi32>, tensor<1x1x24x8xf32>, tensor<i64>
  return %0#0, %0#1, %0#2, %0#3, %0#4, %0#5 : tensor<1x1x1x8xf32>, tensor<1x1x6x8xf32>, tensor<1x1x6xi32>, tensor<1x1x24xi32>, tensor<1x1x24x8xf32>, tensor<i64>
}
