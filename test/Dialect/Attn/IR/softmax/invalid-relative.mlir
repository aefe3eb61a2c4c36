// RUN: fovea-opt %s --split-input-file --verify-diagnostics

// Sources with terms by distance.

func.func @few(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x40x8xf32>, %r: tensor<1x31x8xf32>, %u: tensor<4x8xf32>) {
  // expected-error @below {{'attn.stream' op expects relative of source 0 to have a row for each distance, but for block 1 found distances 0 .. 31 and 31 rows}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %k : tensor<2x2x40x8xf32>, tensor<2x2x40x8xf32>) relative(%r, %u : tensor<1x31x8xf32>, tensor<4x8xf32>) ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>] mask <causal> outs(%q : tensor<2x4x40x8xf32>) {block = 16 : i64, scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @few_numbers(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x40x8xf32>, %t: tensor<4x39xf32>) {
  // expected-error @below {{'attn.stream' op expects distance_bias of source 0 to have a row for each distance, but for block 0 found distances 0 .. 39 and 39 rows}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %k : tensor<2x2x40x8xf32>, tensor<2x2x40x8xf32>) distance_bias(%t : tensor<4x39xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal> outs(%q : tensor<2x4x40x8xf32>) {scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

// Queries that read rows behind them.
func.func @negative(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x40x8xf32>, %t: tensor<4x40xf32>) {
  // expected-error @below {{'attn.stream' op expects distance_bias of source 0 to have a row for each distance, but for block 0 found distances -39 .. 39 and 40 rows}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %k : tensor<2x2x40x8xf32>, tensor<2x2x40x8xf32>) distance_bias(%t : tensor<4x40xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<2x4x40x8xf32>) {scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

// A prefix is read by queries before it.
func.func @prefix(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x40x8xf32>, %t: tensor<4x40xf32>) {
  // expected-error @below {{'attn.stream' op expects distance_bias of source 0 to have a row for each distance, but for block 0 found distances -39 .. 39 and 40 rows}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %k : tensor<2x2x40x8xf32>, tensor<2x2x40x8xf32>) distance_bias(%t : tensor<4x40xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal, prefix = 4> outs(%q : tensor<2x4x40x8xf32>) {scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @lengths(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x40x8xf32>, %t: tensor<4x40xf32>, %n: tensor<2xi32>) {
  // expected-error @below {{'attn.stream' op expects no distance_bias of source 0 beside lengths}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %k : tensor<2x2x40x8xf32>, tensor<2x2x40x8xf32>) lengths(%n : tensor<2xi32>) distance_bias(%t : tensor<4x40xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal> outs(%q : tensor<2x4x40x8xf32>) {scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @query_lengths(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x40x8xf32>, %r: tensor<1x40x8xf32>, %u: tensor<4x8xf32>, %n: tensor<2xi32>) {
  // expected-error @below {{'attn.stream' op expects no relative of source 0 beside query_lengths}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %k : tensor<2x2x40x8xf32>, tensor<2x2x40x8xf32>) relative(%r, %u : tensor<1x40x8xf32>, tensor<4x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal> query_lengths(%n : tensor<2xi32>) outs(%q : tensor<2x4x40x8xf32>) {scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @score(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x40x8xf32>, %t: tensor<4x40xf32>) {
  // expected-error @below {{'attn.stream' op expects no distance_bias of source 0 beside a score region}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %k : tensor<2x2x40x8xf32>, tensor<2x2x40x8xf32>) distance_bias(%t : tensor<4x40xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %t0 = math.tanh %s : f32
        attn.yield %t0 : f32
      }
      outs(%q : tensor<2x4x40x8xf32>) {scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @width(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x40x8xf32>, %r: tensor<1x40x4xf32>, %u: tensor<4x8xf32>) {
  // expected-error @below {{'attn.stream' op expects extent 2 of relative of source 0 to be 8 (extent 3 of query), but got 4}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %k : tensor<2x2x40x8xf32>, tensor<2x2x40x8xf32>) relative(%r, %u : tensor<1x40x4xf32>, tensor<4x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal> outs(%q : tensor<2x4x40x8xf32>) {scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @heads(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x40x8xf32>, %r: tensor<2x40x8xf32>, %u: tensor<4x8xf32>) {
  // expected-error @below {{'attn.stream' op expects extent 0 of relative of source 0 to be 4 or 1 (extent 1 of query), but got 2}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %k : tensor<2x2x40x8xf32>, tensor<2x2x40x8xf32>) relative(%r, %u : tensor<2x40x8xf32>, tensor<4x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal> outs(%q : tensor<2x4x40x8xf32>) {scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

// expected-error @below {{expected no origin without relative or distance_bias, whose distances it is for}}
#source = #attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <causal>, log_weight = false, bias = false origin = ()[rows, n] -> (0)>

// -----

// expected-error @below {{expected an origin of the form ()[rows, n] -> (position), but got affine_map<(d0)[s0] -> (d0)>}}
#source = #attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <causal>, log_weight = false, bias = false relative = true origin = (b)[n] -> (b)>
