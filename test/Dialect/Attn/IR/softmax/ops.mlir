// RUN: fovea-opt %s | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --mlir-print-op-generic | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --emit-bytecode | fovea-opt | FileCheck %s

// CHECK-DAG: #[[$ALL:.*]] = affine_map<(d0)[s0, s1] -> (0, s0)>
// CHECK-DAG: #[[$NEAR:.*]] = affine_map<(d0)[s0, s1] -> (d0 * 16 - 16, d0 * 16 + 16)>
// CHECK-DAG: #[[$EVEN:.*]] = affine_map<(d0)[s0, s1] -> ((d0 mod 2) * 4, d0 floordiv 2)>

//===----------------------------------------------------------------------===//
// attn.dense
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @dense(
// CHECK-SAME: %[[Q:.*]]: tensor<2x4x8x16xf32>, %[[K:.*]]: tensor<2x2x12x16xf32>, %[[V:.*]]: tensor<2x2x12x24xf32>, %[[O:.*]]: tensor<2x4x8x24xf32>
// CHECK: attn.dense ins(%[[Q]], %[[K]], %[[V]] : tensor<2x4x8x16xf32>, tensor<2x2x12x16xf32>, tensor<2x2x12x24xf32>) outs(%[[O]] : tensor<2x4x8x24xf32>) -> tensor<2x4x8x24xf32>
func.func @dense(%q: tensor<2x4x8x16xf32>, %k: tensor<2x2x12x16xf32>, %v: tensor<2x2x12x24xf32>, %o: tensor<2x4x8x24xf32>) -> tensor<2x4x8x24xf32> {
  %0 = attn.dense ins(%q, %k, %v : tensor<2x4x8x16xf32>, tensor<2x2x12x16xf32>, tensor<2x2x12x24xf32>)
      outs(%o : tensor<2x4x8x24xf32>) -> tensor<2x4x8x24xf32>
  return %0 : tensor<2x4x8x24xf32>
}

// CHECK-LABEL: func @dense_everything(
// CHECK: attn.dense ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<2x4x8x16xbf16>, tensor<2x1x12x16xbf16>, tensor<2x1x12x24xbf16>)
// CHECK-SAME: log_weight(%{{.*}} : tensor<1x1x12xf32>)
// CHECK-SAME: bias(%{{.*}} : tensor<1x4x1x12xbf16>)
// CHECK-SAME: outs(%{{.*}}, %{{.*}} : tensor<2x4x8x24xbf16>, tensor<2x4x8xf32>)
// CHECK-SAME: {mask = #attn.mask<causal, window = 5>, scale = 1.250000e-01 : f64}
// CHECK-SAME: -> tensor<2x4x8x24xbf16>, tensor<2x4x8xf32>
func.func @dense_everything(%q: tensor<2x4x8x16xbf16>, %k: tensor<2x1x12x16xbf16>, %v: tensor<2x1x12x24xbf16>, %w: tensor<1x1x12xf32>,
    %b: tensor<1x4x1x12xbf16>, %o: tensor<2x4x8x24xbf16>, %l: tensor<2x4x8xf32>) -> (tensor<2x4x8x24xbf16>, tensor<2x4x8xf32>) {
  %0, %lse = attn.dense ins(%q, %k, %v : tensor<2x4x8x16xbf16>, tensor<2x1x12x16xbf16>, tensor<2x1x12x24xbf16>)
      log_weight(%w : tensor<1x1x12xf32>) bias(%b : tensor<1x4x1x12xbf16>)
      outs(%o, %l : tensor<2x4x8x24xbf16>, tensor<2x4x8xf32>)
      {scale = 0.125 : f64, mask = #attn.mask<causal, window = 5>} -> tensor<2x4x8x24xbf16>, tensor<2x4x8xf32>
  return %0, %lse : tensor<2x4x8x24xbf16>, tensor<2x4x8xf32>
}

// A window alone, and a mask that admits everything.
// CHECK-LABEL: func @dense_masks(
// CHECK: attn.dense {{.*}} {mask = #attn.mask<window = 3>}
// CHECK: attn.dense {{.*}} {mask = #attn.mask<none>}
// CHECK: attn.dense {{.*}} {mask = #attn.mask<causal>}
func.func @dense_masks(%q: tensor<1x1x4x2xf64>) -> (tensor<1x1x4x2xf64>, tensor<1x1x4x2xf64>, tensor<1x1x4x2xf64>) {
  %0 = attn.dense ins(%q, %q, %q : tensor<1x1x4x2xf64>, tensor<1x1x4x2xf64>, tensor<1x1x4x2xf64>)
      outs(%q : tensor<1x1x4x2xf64>) {mask = #attn.mask<window = 3>} -> tensor<1x1x4x2xf64>
  %1 = attn.dense ins(%q, %q, %q : tensor<1x1x4x2xf64>, tensor<1x1x4x2xf64>, tensor<1x1x4x2xf64>)
      outs(%q : tensor<1x1x4x2xf64>) {mask = #attn.mask<none>} -> tensor<1x1x4x2xf64>
  %2 = attn.dense ins(%q, %q, %q : tensor<1x1x4x2xf64>, tensor<1x1x4x2xf64>, tensor<1x1x4x2xf64>)
      outs(%q : tensor<1x1x4x2xf64>) {mask = #attn.mask<causal>} -> tensor<1x1x4x2xf64>
  return %0, %1, %2 : tensor<1x1x4x2xf64>, tensor<1x1x4x2xf64>, tensor<1x1x4x2xf64>
}

// f64 data has an f64 lse.
// CHECK-LABEL: func @dense_f64(
// CHECK: log_weight(%{{.*}} : tensor<1x2x6xf64>) outs(%{{.*}}, %{{.*}} : tensor<1x2x4x2xf64>, tensor<1x2x4xf64>)
func.func @dense_f64(%q: tensor<1x2x4x2xf64>, %k: tensor<1x2x6x2xf64>, %w: tensor<1x2x6xf64>, %l: tensor<1x2x4xf64>) -> tensor<1x2x4xf64> {
  %0, %lse = attn.dense ins(%q, %k, %k : tensor<1x2x4x2xf64>, tensor<1x2x6x2xf64>, tensor<1x2x6x2xf64>) log_weight(%w : tensor<1x2x6xf64>)
      outs(%q, %l : tensor<1x2x4x2xf64>, tensor<1x2x4xf64>) -> tensor<1x2x4x2xf64>, tensor<1x2x4xf64>
  return %lse : tensor<1x2x4xf64>
}

// Batch, heads and both sequence extents may be dynamic.
// CHECK-LABEL: func @dense_dynamic(
// CHECK: attn.dense ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<?x?x?x16xf16>, tensor<?x?x?x16xf16>, tensor<?x?x?x8xf16>)
// CHECK-SAME: log_weight(%{{.*}} : tensor<?x?x?xf16>) bias(%{{.*}} : tensor<1x1x?x?xf32>) outs(%{{.*}}, %{{.*}} : tensor<?x?x?x8xf16>, tensor<?x?x?xf32>)
func.func @dense_dynamic(%q: tensor<?x?x?x16xf16>, %k: tensor<?x?x?x16xf16>, %v: tensor<?x?x?x8xf16>, %w: tensor<?x?x?xf16>,
    %b: tensor<1x1x?x?xf32>, %o: tensor<?x?x?x8xf16>, %l: tensor<?x?x?xf32>) -> tensor<?x?x?x8xf16> {
  %0, %lse = attn.dense ins(%q, %k, %v : tensor<?x?x?x16xf16>, tensor<?x?x?x16xf16>, tensor<?x?x?x8xf16>)
      log_weight(%w : tensor<?x?x?xf16>) bias(%b : tensor<1x1x?x?xf32>)
      outs(%o, %l : tensor<?x?x?x8xf16>, tensor<?x?x?xf32>) -> tensor<?x?x?x8xf16>, tensor<?x?x?xf32>
  return %0 : tensor<?x?x?x8xf16>
}

// After bufferization: no results, any strided layout.
// CHECK-LABEL: func @dense_memref(
// CHECK: attn.dense ins({{.*}} : memref<1x2x4x8xf32, strided<[?, ?, ?, 1], offset: ?>>, memref<1x2x6x8xf32>, memref<1x2x6x8xf32>)
// CHECK-SAME: log_weight(%{{.*}} : memref<1x1x6xf32>) bias(%{{.*}} : memref<1x1x4x6xf32>) outs(%{{.*}}, %{{.*}} : memref<1x2x4x8xf32>, memref<1x2x4xf32>){{$}}
func.func @dense_memref(%q: memref<1x2x4x8xf32, strided<[?, ?, ?, 1], offset: ?>>, %k: memref<1x2x6x8xf32>, %w: memref<1x1x6xf32>,
    %b: memref<1x1x4x6xf32>, %o: memref<1x2x4x8xf32>, %l: memref<1x2x4xf32>) {
  attn.dense ins(%q, %k, %k : memref<1x2x4x8xf32, strided<[?, ?, ?, 1], offset: ?>>, memref<1x2x6x8xf32>, memref<1x2x6x8xf32>)
      log_weight(%w : memref<1x1x6xf32>) bias(%b : memref<1x1x4x6xf32>) outs(%o, %l : memref<1x2x4x8xf32>, memref<1x2x4xf32>)
  return
}

// Nothing to compute is not an error: no batch, no heads, no queries, no keys.
// CHECK-LABEL: func @dense_empty(
// CHECK-COUNT-4: attn.dense
func.func @dense_empty(%b: tensor<0x2x4x8xf32>, %h: tensor<1x0x4x8xf32>, %n: tensor<1x2x0x8xf32>, %f: tensor<1x2x4x8xf32>)
    -> (tensor<0x2x4x8xf32>, tensor<1x0x4x8xf32>, tensor<1x2x0x8xf32>, tensor<1x2x4x8xf32>) {
  %0 = attn.dense ins(%b, %b, %b : tensor<0x2x4x8xf32>, tensor<0x2x4x8xf32>, tensor<0x2x4x8xf32>)
      outs(%b : tensor<0x2x4x8xf32>) -> tensor<0x2x4x8xf32>
  %1 = attn.dense ins(%h, %f, %f : tensor<1x0x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      outs(%h : tensor<1x0x4x8xf32>) -> tensor<1x0x4x8xf32>
  %2 = attn.dense ins(%n, %f, %f : tensor<1x2x0x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
      outs(%n : tensor<1x2x0x8xf32>) -> tensor<1x2x0x8xf32>
  %3 = attn.dense ins(%f, %n, %n : tensor<1x2x4x8xf32>, tensor<1x2x0x8xf32>, tensor<1x2x0x8xf32>)
      outs(%f : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return %0, %1, %2, %3 : tensor<0x2x4x8xf32>, tensor<1x0x4x8xf32>, tensor<1x2x0x8xf32>, tensor<1x2x4x8xf32>
}

// Extents are 64 bits wide.
// CHECK-LABEL: func @dense_huge(
// CHECK: tensor<1x1x4294967297x8xf32>, tensor<1x1x4611686018427387904x8xf32>
func.func @dense_huge(%q: tensor<1x1x4294967297x8xf32>, %k: tensor<1x1x4611686018427387904x8xf32>) -> tensor<1x1x4294967297x8xf32> {
  %0 = attn.dense ins(%q, %k, %k : tensor<1x1x4294967297x8xf32>, tensor<1x1x4611686018427387904x8xf32>, tensor<1x1x4611686018427387904x8xf32>)
      outs(%q : tensor<1x1x4294967297x8xf32>) {mask = #attn.mask<window = 9223372036854775807>} -> tensor<1x1x4294967297x8xf32>
  return %0 : tensor<1x1x4294967297x8xf32>
}

//===----------------------------------------------------------------------===//
// attn.stream
//===----------------------------------------------------------------------===//

#all = affine_map<(b)[rows, n] -> (0, rows)>
#near = affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>
#even = affine_map<(b)[rows, n] -> ((b mod 2) * 4, b floordiv 2)>

// CHECK-LABEL: func @stream(
// CHECK-SAME: %[[Q:.*]]: tensor<1x2x64x16xf32>, %[[O:.*]]: tensor
// CHECK: attn.stream query(%[[Q]] : tensor<1x2x64x16xf32>)
// CHECK-NEXT: source(%[[Q]], %[[Q]] : tensor<1x2x64x16xf32>, tensor<1x2x64x16xf32>) ranges [#[[$ALL]]]
// CHECK-NEXT: outs(%[[O]] : tensor<1x2x64x16xf32>) {block = 0 : i64, scale = 2.500000e-01 : f64} -> tensor<1x2x64x16xf32>
func.func @stream(%q: tensor<1x2x64x16xf32>, %o: tensor<1x2x64x16xf32>) -> tensor<1x2x64x16xf32> {
  %0 = attn.stream query(%q : tensor<1x2x64x16xf32>)
      source(%q, %q : tensor<1x2x64x16xf32>, tensor<1x2x64x16xf32>) ranges [#all]
      outs(%o : tensor<1x2x64x16xf32>) {scale = 0.25} -> tensor<1x2x64x16xf32>
  return %0 : tensor<1x2x64x16xf32>
}

// Log weights and biases belong to the sources that have them, in order; a
// source may have several ranges.
// CHECK-LABEL: func @stream_everything(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<1x4x64x16xf16>, %[[K:[^:]*]]: tensor<1x2x64x16xf16>, %[[S:[^:]*]]: tensor<1x2x8x16xf16>,
// CHECK-SAME: %[[W0:[^:]*]]: tensor<1x1x64xf16>, %[[W2:[^:]*]]: tensor<1x2x8xf32>, %[[B1:[^:]*]]: tensor<1x4x64x8xf16>, %[[B2:[^:]*]]: tensor<1x1x1x8xf32>,
// CHECK-SAME: %[[I:[^:]*]]: index, %[[N:[^:]*]]: index
// CHECK: %{{.*}}:2 = attn.stream query(%[[Q]] : tensor<1x4x64x16xf16>)
// CHECK-NEXT: source(%[[K]], %[[K]] : tensor<1x2x64x16xf16>, tensor<1x2x64x16xf16>) log_weight(%[[W0]] : tensor<1x1x64xf16>) ranges [#[[$NEAR]], #[[$EVEN]]] mask <causal, window = 20>
// CHECK-NEXT: source(%[[S]], %[[S]] : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>) bias(%[[B1]] : tensor<1x4x64x8xf16>) ranges [#[[$ALL]]] mask <window = 7>
// CHECK-NEXT: source(%[[S]], %[[S]] : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>) log_weight(%[[W2]] : tensor<1x2x8xf32>) bias(%[[B2]] : tensor<1x1x1x8xf32>) ranges [#[[$ALL]]]
// CHECK-NEXT: tile(%[[I]] of %[[N]]) outs(%{{.*}}, %{{.*}} : tensor<1x4x64x16xf16>, tensor<1x4x64xf32>)
// CHECK-SAME: {block = 16 : i64, my.note = "kept", scale = 2.500000e-01 : f64, tiles = #attn.tiles<query = 64, key = 32, lanes = 16, vectors = 2, keys = 8, columns = 4>}
// CHECK-SAME: -> tensor<1x4x64x16xf16>, tensor<1x4x64xf32>
func.func @stream_everything(%q: tensor<1x4x64x16xf16>, %k: tensor<1x2x64x16xf16>, %s: tensor<1x2x8x16xf16>, %w0: tensor<1x1x64xf16>,
    %w2: tensor<1x2x8xf32>, %b1: tensor<1x4x64x8xf16>, %b2: tensor<1x1x1x8xf32>, %i: index, %n: index,
    %o: tensor<1x4x64x16xf16>, %l: tensor<1x4x64xf32>) -> (tensor<1x4x64x16xf16>, tensor<1x4x64xf32>) {
  %0, %lse = attn.stream query(%q : tensor<1x4x64x16xf16>)
      source(%k, %k : tensor<1x2x64x16xf16>, tensor<1x2x64x16xf16>) log_weight(%w0 : tensor<1x1x64xf16>) ranges [#near, #even] mask <causal, window = 20>
      source(%s, %s : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>) bias(%b1 : tensor<1x4x64x8xf16>) ranges [#all] mask <window = 7>
      source(%s, %s : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>) log_weight(%w2 : tensor<1x2x8xf32>) bias(%b2 : tensor<1x1x1x8xf32>) ranges [#all] mask <none>
      tile(%i of %n) outs(%o, %l : tensor<1x4x64x16xf16>, tensor<1x4x64xf32>)
      {block = 16 : i64, scale = 0.25, my.note = "kept", tiles = #attn.tiles<query = 64, key = 32, lanes = 16, vectors = 2, keys = 8, columns = 4>}
      -> tensor<1x4x64x16xf16>, tensor<1x4x64xf32>
  return %0, %lse : tensor<1x4x64x16xf16>, tensor<1x4x64xf32>
}

// Sources and output have element types of their own.
// CHECK-LABEL: func @stream_mixed_types(
// CHECK: attn.stream query(%{{.*}} : tensor<1x4x64x16xbf16>)
// CHECK-NEXT: source(%{{.*}}, %{{.*}} : tensor<1x2x64x16xbf16>, tensor<1x2x64x16xf16>)
// CHECK-NEXT: source(%{{.*}}, %{{.*}} : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
// CHECK-NEXT: outs(%{{.*}} : tensor<1x4x64x16xf32>)
func.func @stream_mixed_types(%q: tensor<1x4x64x16xbf16>, %k: tensor<1x2x64x16xbf16>, %v: tensor<1x2x64x16xf16>, %s: tensor<1x2x8x16xf32>,
    %o: tensor<1x4x64x16xf32>) -> tensor<1x4x64x16xf32> {
  %0 = attn.stream query(%q : tensor<1x4x64x16xbf16>)
      source(%k, %v : tensor<1x2x64x16xbf16>, tensor<1x2x64x16xf16>) ranges [#near]
      source(%s, %s : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) ranges [#all]
      outs(%o : tensor<1x4x64x16xf32>) {block = 16 : i64, scale = 0.25} -> tensor<1x4x64x16xf32>
  return %0 : tensor<1x4x64x16xf32>
}

// CHECK-LABEL: func @stream_dynamic_memref(
// CHECK: attn.stream query(%{{.*}} : memref<?x?x?x16xf64, strided<[?, ?, ?, 1], offset: ?>>)
// CHECK-NEXT: source(%{{.*}}, %{{.*}} : memref<?x?x?x16xf64>, memref<?x?x?x8xf64>) log_weight(%{{.*}} : memref<?x?x?xf64>) bias(%{{.*}} : memref<?x1x?x?xf64>)
// CHECK-NEXT: outs(%{{.*}}, %{{.*}} : memref<?x?x?x8xf64>, memref<?x?x?xf64>) {block = 8 : i64, scale = 1.000000e+00 : f64}{{$}}
func.func @stream_dynamic_memref(%q: memref<?x?x?x16xf64, strided<[?, ?, ?, 1], offset: ?>>, %k: memref<?x?x?x16xf64>, %v: memref<?x?x?x8xf64>,
    %w: memref<?x?x?xf64>, %b: memref<?x1x?x?xf64>, %o: memref<?x?x?x8xf64>, %l: memref<?x?x?xf64>) {
  attn.stream query(%q : memref<?x?x?x16xf64, strided<[?, ?, ?, 1], offset: ?>>)
      source(%k, %v : memref<?x?x?x16xf64>, memref<?x?x?x8xf64>) log_weight(%w : memref<?x?x?xf64>) bias(%b : memref<?x1x?x?xf64>) ranges [#near]
      outs(%o, %l : memref<?x?x?x8xf64>, memref<?x?x?xf64>) {block = 8 : i64, scale = 1.0}
  return
}

// A source described in generic form, with one range and with two.
// CHECK-LABEL: func @source_attribute(
// CHECK-SAME: a.one = #attn.source<ranges = [(d0)[s0, s1] -> (0, s0)], mask = <none>, log_weight = true, bias = false>
// CHECK-SAME: a.two = #attn.source<ranges = [(d0)[s0, s1] -> (0, 1), (d0)[s0, s1] -> (d0, s1)], mask = <causal, window = 2>, log_weight = false, bias = true>
func.func @source_attribute() attributes {
    a.one = #attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <none>, log_weight = true, bias = false>,
    a.two = #attn.source<ranges = [(b)[rows, n] -> (0, 1), (b)[rows, n] -> (b, n)], mask = <causal, window = 2>, log_weight = false, bias = true>} {
  return
}

// CHECK-LABEL: func @stream_of_table(
// CHECK: attn.stream query
// CHECK-NEXT: source(%{{.*}}, %{{.*}} : tensor<1x1x8x16xf32>, tensor<2x2x?x4xf32>) codes(%{{.*}} : tensor<2x2x?xi32>) log_weight(%{{.*}} : tensor<2x2x?xf32>) local_bias(%{{.*}} : tensor<1x4x1x32xf32>) ranges [#{{.*}}] mask <causal>
// CHECK-NEXT: source(%{{.*}}, %{{.*}} : tensor<1x1x8x16xf32>, tensor<2x2x?x8x4xf32>) log_weight(%{{.*}} : tensor<1x1x?x8xf32>) ranges [#{{.*}}]
// CHECK-NEXT: tile(%{{.*}} of %{{.*}}) outs(%{{.*}} : tensor<2x4x?x4xf32>)
// CHECK-SAME: {block = 16 : i64, scale = 1.000000e+00 : f64, weighting = #attn.weighting<squared_relu>}
func.func @stream_of_table(%q: tensor<2x4x?x16xf32>, %c: tensor<1x1x8x16xf32>, %z: tensor<2x2x?xi32>, %v: tensor<2x2x?x4xf32>, %w: tensor<2x2x?xf32>,
    %bias: tensor<1x4x1x32xf32>, %mean: tensor<2x2x?x8x4xf32>, %log: tensor<1x1x?x8xf32>, %init: tensor<2x4x?x4xf32>, %first: index, %n: index) -> tensor<2x4x?x4xf32> {
  %out = attn.stream query(%q : tensor<2x4x?x16xf32>)
      source(%c, %v : tensor<1x1x8x16xf32>, tensor<2x2x?x4xf32>) codes(%z : tensor<2x2x?xi32>) log_weight(%w : tensor<2x2x?xf32>) local_bias(%bias : tensor<1x4x1x32xf32>) ranges [#near] mask <causal>
      source(%c, %mean : tensor<1x1x8x16xf32>, tensor<2x2x?x8x4xf32>) log_weight(%log : tensor<1x1x?x8xf32>) ranges [#all]
      tile(%first of %n) outs(%init : tensor<2x4x?x4xf32>)
      {block = 16 : i64, scale = 1.0 : f64, weighting = #attn.weighting<squared_relu>} -> tensor<2x4x?x4xf32>
  return %out : tensor<2x4x?x4xf32>
}

// CHECK-LABEL: func @table_source_attribute(
// CHECK-SAME: a.codes = #attn.source<ranges = [(d0)[s0, s1] -> (0, s0)], mask = <none>, log_weight = false, bias = false codes = true>
// CHECK-SAME: a.local = #attn.source<ranges = [(d0)[s0, s1] -> (d0, s1)], mask = <none>, log_weight = false, bias = true local_bias = true>
func.func @table_source_attribute() attributes {
    a.codes = #attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <none>, log_weight = false, bias = false codes = true>,
    a.local = #attn.source<ranges = [(b)[rows, n] -> (b, n)], mask = <none>, log_weight = false, bias = true local_bias = true>} {
  return
}

// `causal` alone is short for a mask.
// CHECK-LABEL: func @causal(
func.func @causal(%x: tensor<1x2x8x4xf32>, %lse: tensor<1x2x8xf32>) -> (tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>) {
  // CHECK: attn.dense ins
  // CHECK-SAME: {mask = #attn.mask<causal>}
  %0 = attn.dense ins(%x, %x, %x : tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>)
      outs(%x : tensor<1x2x8x4xf32>) {causal} -> tensor<1x2x8x4xf32>
  // CHECK: attn.dense_backward ins
  // CHECK-SAME: {mask = #attn.mask<causal>, tool.note}
  %1:3 = attn.dense_backward ins(%x, %x, %x : tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>)
      forward(%0, %lse : tensor<1x2x8x4xf32>, tensor<1x2x8xf32>) gradient(%x : tensor<1x2x8x4xf32>)
      outs(%x, %x, %x : tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>)
      {causal, mask = #attn.mask<causal>, tool.note} -> tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>
  return %0, %1#0 : tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>
}
