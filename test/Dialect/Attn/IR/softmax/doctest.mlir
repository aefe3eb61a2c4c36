// RUN: fovea-opt %s | fovea-opt | FileCheck %s

// The examples of the descriptions in AttnSoftmaxOps.td and AttnAttributes.td,
// word for word: utils/check_doc_examples.py compares them.

#past = #attn.mask<causal>
#near = #attn.mask<window = 128>
#recent = #attn.mask<causal, window = 128>
#prefix = #attn.mask<causal, prefix = 64>
#summaries = #attn.mask<causal, stride = 128>
#previous_and_own_block = #attn.source<
    ranges = [(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)], mask = <causal>,
    log_weight = false, bias = true>
#elementwise = #attn.weighting<squared_relu>
#tiles = #attn.tiles<query = 64, key = 512, lanes = 16, vectors = 4, keys = 4, columns = 4>

// CHECK-LABEL: func @attributes()
// CHECK-SAME: a.near = #attn.mask<window = 128>
// CHECK-SAME: a.past = #attn.mask<causal>
// CHECK-SAME: a.prefix = #attn.mask<causal, prefix = 64>
// CHECK-SAME: a.recent = #attn.mask<causal, window = 128>
// CHECK-SAME: a.source = #attn.source<ranges = [(d0)[s0, s1] -> (d0 * 16 - 16, d0 * 16 + 16)], mask = <causal>, log_weight = false, bias = true>
// CHECK-SAME: a.summaries = #attn.mask<causal, stride = 128>
// CHECK-SAME: a.tiles = #attn.tiles<query = 64, key = 512, lanes = 16, vectors = 4, keys = 4, columns = 4>
// CHECK-SAME: a.weighting = #attn.weighting<squared_relu>
func.func @attributes() attributes {a.past = #past, a.near = #near, a.prefix = #prefix, a.recent = #recent, a.source = #previous_and_own_block, a.summaries = #summaries, a.weighting = #elementwise, a.tiles = #tiles} {
  return
}

// CHECK-LABEL: func @dense(
// CHECK: attn.dense ins
func.func @dense(%q: tensor<1x8x512x64xf32>, %k: tensor<1x2x512x64xf32>, %v: tensor<1x2x512x64xf32>, %init: tensor<1x8x512x64xf32>) -> tensor<1x8x512x64xf32> {
    %out = attn.dense
        ins(%q, %k, %v : tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>)
        outs(%init : tensor<1x8x512x64xf32>)
        {mask = #attn.mask<causal>} -> tensor<1x8x512x64xf32>
  return %out : tensor<1x8x512x64xf32>
}

// CHECK-LABEL: func @dense_sink(
// CHECK: attn.dense ins({{.*}}) sink(%{{.*}} : tensor<1x8xf32>) outs
func.func @dense_sink(%q: tensor<1x8x512x64xf32>, %k: tensor<1x2x512x64xf32>, %v: tensor<1x2x512x64xf32>, %s: tensor<1x8xf32>, %init: tensor<1x8x512x64xf32>) -> tensor<1x8x512x64xf32> {
    %sunk = attn.dense
        ins(%q, %k, %v : tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>)
        sink(%s : tensor<1x8xf32>)
        outs(%init : tensor<1x8x512x64xf32>) -> tensor<1x8x512x64xf32>
  return %sunk : tensor<1x8x512x64xf32>
}

// CHECK-LABEL: func @dense_score(
// CHECK: attn.dense ins({{.*}}) score(%{{.*}} : tensor<8xf32>) {
func.func @dense_score(%q: tensor<1x8x512x64xf32>, %k: tensor<1x2x512x64xf32>, %v: tensor<1x2x512x64xf32>, %slopes: tensor<8xf32>, %init: tensor<1x8x512x64xf32>) -> tensor<1x8x512x64xf32> {
    %alibi = attn.dense
        ins(%q, %k, %v : tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>)
        score(%slopes : tensor<8xf32>) {
        ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %slope_of: tensor<8xf32>):
          %slope = tensor.extract %slope_of[%h] : tensor<8xf32>
          %distance = arith.subi %j, %i : index
          %integer = arith.index_cast %distance : index to i32
          %number = arith.sitofp %integer : i32 to f32
          %term = arith.mulf %slope, %number : f32
          %t = arith.addf %s, %term : f32
          attn.yield %t : f32
        }
        outs(%init : tensor<1x8x512x64xf32>)
        {mask = #attn.mask<causal>} -> tensor<1x8x512x64xf32>
  return %alibi : tensor<1x8x512x64xf32>
}

// CHECK-LABEL: func @dense_lengths(
// CHECK: attn.dense ins({{.*}}) lengths(%{{.*}} : tensor<1xi32>) query_lengths(%{{.*}} : tensor<1xi32>) outs
func.func @dense_lengths(%q: tensor<1x8x512x64xf32>, %k: tensor<1x2x512x64xf32>, %v: tensor<1x2x512x64xf32>, %n: tensor<1xi32>, %init: tensor<1x8x512x64xf32>) -> tensor<1x8x512x64xf32> {
    %short = attn.dense
        ins(%q, %k, %v : tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>)
        lengths(%n : tensor<1xi32>) query_lengths(%n : tensor<1xi32>)
        outs(%init : tensor<1x8x512x64xf32>)
        {mask = #attn.mask<causal>} -> tensor<1x8x512x64xf32>
  return %short : tensor<1x8x512x64xf32>
}

// CHECK-LABEL: func @stream_lengths(
// CHECK: attn.stream query
// CHECK-NEXT: source({{.*}}) lengths(%{{.*}} : tensor<2xi32>) ranges
// CHECK-NEXT: query_lengths(%{{.*}} : tensor<2xi32>)
// CHECK-NEXT: outs
func.func @stream_lengths(%q: tensor<2x4x64x16xf32>, %k: tensor<2x2x64x16xf32>, %v: tensor<2x2x64x16xf32>, %n: tensor<2xi32>, %init: tensor<2x4x64x16xf32>) -> tensor<2x4x64x16xf32> {
    %out = attn.stream query(%q : tensor<2x4x64x16xf32>)
        source(%k, %v : tensor<2x2x64x16xf32>, tensor<2x2x64x16xf32>) lengths(%n : tensor<2xi32>)
            ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
        query_lengths(%n : tensor<2xi32>)
        outs(%init : tensor<2x4x64x16xf32>) {scale = 2.5e-01 : f64} -> tensor<2x4x64x16xf32>
  return %out : tensor<2x4x64x16xf32>
}

// CHECK-LABEL: func @stream_sink(
// CHECK: attn.stream query
// CHECK: sink(%{{.*}} : tensor<1x4xf32>)
// CHECK-NEXT: outs
func.func @stream_sink(%q: tensor<2x4x64x16xf32>, %k: tensor<2x2x64x16xf32>, %v: tensor<2x2x64x16xf32>, %s: tensor<1x4xf32>,
    %init: tensor<2x4x64x16xf32>, %ilse: tensor<2x4x64xf32>) -> (tensor<2x4x64x16xf32>, tensor<2x4x64xf32>) {
    %out, %lse = attn.stream query(%q : tensor<2x4x64x16xf32>)
        source(%k, %v : tensor<2x2x64x16xf32>, tensor<2x2x64x16xf32>)
            ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal, window = 16>
        sink(%s : tensor<1x4xf32>)
        outs(%init, %ilse : tensor<2x4x64x16xf32>, tensor<2x4x64xf32>)
        {scale = 2.5e-01 : f64} -> tensor<2x4x64x16xf32>, tensor<2x4x64xf32>
  return %out, %lse : tensor<2x4x64x16xf32>, tensor<2x4x64xf32>
}

// CHECK-LABEL: func @stream(
// CHECK: attn.stream query
// CHECK-COUNT-2: source(
func.func @stream(%q: tensor<1x1x64x16xf32>, %k: tensor<1x1x64x16xf32>, %v: tensor<1x1x64x16xf32>, %ks: tensor<1x1x4x16xf32>,
    %vs: tensor<1x1x4x16xf32>, %w: tensor<1x1x4xf32>, %init: tensor<1x1x64x16xf32>) -> tensor<1x1x64x16xf32> {
    %out = attn.stream query(%q : tensor<1x1x64x16xf32>)
        source(%k, %v : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>)
            ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>] mask <causal>
        source(%ks, %vs : tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>)
            log_weight(%w : tensor<1x1x4xf32>)
            ranges [affine_map<(b)[rows, n] -> (0, b - 1)>]
        outs(%init : tensor<1x1x64x16xf32>)
        {block = 16 : i64, scale = 2.5e-01 : f64} -> tensor<1x1x64x16xf32>
  return %out : tensor<1x1x64x16xf32>
}

// CHECK-LABEL: func @stream_of_table(
// CHECK: attn.stream query
// CHECK-NEXT: source({{.*}}) codes({{.*}}) local_bias({{.*}}) ranges
// CHECK-NEXT: source({{.*}} : tensor<1x1x8x16xf32>, tensor<1x1x4x8x16xf32>) log_weight({{.*}} : tensor<1x1x4x8xf32>)
func.func @stream_of_table(%q: tensor<1x1x64x16xf32>, %c: tensor<1x1x8x16xf32>, %z: tensor<1x1x64xi32>, %v: tensor<1x1x64x16xf32>,
    %bias: tensor<1x1x64x32xf32>, %mean: tensor<1x1x4x8x16xf32>, %log: tensor<1x1x4x8xf32>, %init: tensor<1x1x64x16xf32>) -> tensor<1x1x64x16xf32> {
    %out = attn.stream query(%q : tensor<1x1x64x16xf32>)
        source(%c, %v : tensor<1x1x8x16xf32>, tensor<1x1x64x16xf32>) codes(%z : tensor<1x1x64xi32>)
            local_bias(%bias : tensor<1x1x64x32xf32>)
            ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>] mask <causal>
        source(%c, %mean : tensor<1x1x8x16xf32>, tensor<1x1x4x8x16xf32>)
            log_weight(%log : tensor<1x1x4x8xf32>)
            ranges [affine_map<(b)[rows, n] -> (0, rows)>]
        outs(%init : tensor<1x1x64x16xf32>)
        {block = 16 : i64, scale = 1.0 : f64} -> tensor<1x1x64x16xf32>
  return %out : tensor<1x1x64x16xf32>
}

// CHECK-LABEL: func @stream_by_distance(
// CHECK: attn.stream query
// CHECK-NEXT: source({{.*}}) relative({{.*}} : tensor<1x32x16xf32>, tensor<1x16xf32>) distance_bias({{.*}} : tensor<1x32xf32>) ranges
func.func @stream_by_distance(%q: tensor<1x1x64x16xf32>, %k: tensor<1x1x64x16xf32>, %v: tensor<1x1x64x16xf32>, %r: tensor<1x32x16xf32>,
    %u: tensor<1x16xf32>, %t: tensor<1x32xf32>, %init: tensor<1x1x64x16xf32>) -> tensor<1x1x64x16xf32> {
    %out = attn.stream query(%q : tensor<1x1x64x16xf32>)
        source(%k, %v : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>)
            relative(%r, %u : tensor<1x32x16xf32>, tensor<1x16xf32>)
            distance_bias(%t : tensor<1x32xf32>)
            ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>] mask <causal>
        outs(%init : tensor<1x1x64x16xf32>)
        {block = 16 : i64, scale = 2.5e-01 : f64} -> tensor<1x1x64x16xf32>
  return %out : tensor<1x1x64x16xf32>
}

// CHECK-LABEL: func @stream_lists(
// CHECK: source({{.*}}) rows(%{{.*}} : tensor<1x2x4x3xi32>) unit = 16 ranges
func.func @stream_lists(%q: tensor<1x4x64x16xf32>, %k: tensor<1x2x64x16xf32>, %v: tensor<1x2x64x16xf32>, %chosen: tensor<1x2x4x3xi32>, %init: tensor<1x4x64x16xf32>) -> tensor<1x4x64x16xf32> {
    %out = attn.stream query(%q : tensor<1x4x64x16xf32>)
        source(%k, %v : tensor<1x2x64x16xf32>, tensor<1x2x64x16xf32>)
            rows(%chosen : tensor<1x2x4x3xi32>) unit = 16
            ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
        outs(%init : tensor<1x4x64x16xf32>)
        {block = 16 : i64, scale = 2.5e-01 : f64} -> tensor<1x4x64x16xf32>
  return %out : tensor<1x4x64x16xf32>
}

// CHECK-LABEL: func @stream_pages(
// CHECK: source({{.*}}) lengths({{.*}}) rows(%{{.*}} : tensor<2x1x1x8xi32>) unit = 16 positions = listed ranges
func.func @stream_pages(%q: tensor<2x4x1x16xf32>, %k: tensor<1x2x512x16xf32>, %v: tensor<1x2x512x16xf32>, %n: tensor<2xi32>, %pages: tensor<2x1x1x8xi32>, %init: tensor<2x4x1x16xf32>) -> tensor<2x4x1x16xf32> {
    %out = attn.stream query(%q : tensor<2x4x1x16xf32>)
        source(%k, %v : tensor<1x2x512x16xf32>, tensor<1x2x512x16xf32>) lengths(%n : tensor<2xi32>)
            rows(%pages : tensor<2x1x1x8xi32>) unit = 16 positions = listed
            ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
        outs(%init : tensor<2x4x1x16xf32>) {scale = 2.5e-01 : f64} -> tensor<2x4x1x16xf32>
  return %out : tensor<2x4x1x16xf32>
}
