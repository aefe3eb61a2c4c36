// RUN: fovea-opt %s --split-input-file --verify-diagnostics

// Sources with lists of rows.

func.func @no_unit(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x48x8xf32>, %v: tensor<2x2x48x8xf32>, %r: tensor<2x2x3x5xi32>) {
  // expected-error @below {{expected 'unit'}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %v : tensor<2x2x48x8xf32>, tensor<2x2x48x8xf32>) rows(%r : tensor<2x2x3x5xi32>)  ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<2x4x40x8xf32>) {block = 16 : i64, scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @zero_unit(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x48x8xf32>, %v: tensor<2x2x48x8xf32>, %r: tensor<2x2x3x5xi32>) {
  // expected-error @below {{expected a unit of at least 1, but got 0}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %v : tensor<2x2x48x8xf32>, tensor<2x2x48x8xf32>) rows(%r : tensor<2x2x3x5xi32>) unit = 0 ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<2x4x40x8xf32>) {block = 16 : i64, scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @absurd_unit(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x48x8xf32>, %v: tensor<2x2x48x8xf32>, %r: tensor<2x2x3x5xi32>) {
  // expected-error @below {{expected a unit of at most 1073741824 rows, but got 1073741825}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %v : tensor<2x2x48x8xf32>, tensor<2x2x48x8xf32>) rows(%r : tensor<2x2x3x5xi32>) unit = 1073741825 ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<2x4x40x8xf32>) {block = 16 : i64, scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @positions(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x48x8xf32>, %v: tensor<2x2x48x8xf32>, %r: tensor<2x2x3x5xi32>) {
  // expected-error @below {{expected 'stored'}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %v : tensor<2x2x48x8xf32>, tensor<2x2x48x8xf32>) rows(%r : tensor<2x2x3x5xi32>) unit = 4 positions = random ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<2x4x40x8xf32>) {block = 16 : i64, scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @heads(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x48x8xf32>, %v: tensor<2x2x48x8xf32>, %r: tensor<2x3x3x5xi32>) {
  // expected-error @below {{'attn.stream' op expects extent 1 of rows of source 0 to be 1, 2 (key heads) or 4 (query heads), but got 3}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %v : tensor<2x2x48x8xf32>, tensor<2x2x48x8xf32>) rows(%r : tensor<2x3x3x5xi32>) unit = 4 ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<2x4x40x8xf32>) {block = 16 : i64, scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @batch(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x48x8xf32>, %v: tensor<2x2x48x8xf32>, %r: tensor<3x2x3x5xi32>) {
  // expected-error @below {{'attn.stream' op expects extent 0 of rows of source 0 to be 2 or 1 (extent 0 of query), but got 3}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %v : tensor<2x2x48x8xf32>, tensor<2x2x48x8xf32>) rows(%r : tensor<3x2x3x5xi32>) unit = 4 ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<2x4x40x8xf32>) {block = 16 : i64, scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @blocks(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x48x8xf32>, %v: tensor<2x2x48x8xf32>, %r: tensor<2x2x2x5xi32>) {
  // expected-error @below {{'attn.stream' op expects rows of source 0 to have an entry for each of the 3 query blocks, but got 2}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %v : tensor<2x2x48x8xf32>, tensor<2x2x48x8xf32>) rows(%r : tensor<2x2x2x5xi32>) unit = 4 ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<2x4x40x8xf32>) {block = 16 : i64, scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @no_block(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x48x8xf32>, %v: tensor<2x2x48x8xf32>, %r: tensor<2x2x3x5xi32>) {
  // expected-error @below {{'attn.stream' op expects a block size, since rows of source 0 has an axis of query blocks}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %v : tensor<2x2x48x8xf32>, tensor<2x2x48x8xf32>) rows(%r : tensor<2x2x3x5xi32>) unit = 4 ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<2x4x40x8xf32>) {scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @type(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x48x8xf32>, %v: tensor<2x2x48x8xf32>, %r: tensor<2x2x3x5xi64>) {
  // expected-error @below {{'attn.stream' op operand #3 must be variadic of rank-4 tensor or memref of i32, but got 'tensor<2x2x3x5xi64>'}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %v : tensor<2x2x48x8xf32>, tensor<2x2x48x8xf32>) rows(%r : tensor<2x2x3x5xi64>) unit = 4 ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<2x4x40x8xf32>) {block = 16 : i64, scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @pool(%q: tensor<2x4x40x8xf32>, %k: tensor<1x2x48x8xf32>, %v: tensor<1x2x48x8xf32>, %r: tensor<2x2x3x5xi32>) {
  // expected-error @below {{'attn.stream' op expects extent 0 of values of source 0 to be 2 (extent 0 of query), but got 1}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %v : tensor<1x2x48x8xf32>, tensor<1x2x48x8xf32>) rows(%r : tensor<2x2x3x5xi32>) unit = 4 ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<2x4x40x8xf32>) {block = 16 : i64, scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @codes(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x48x8xf32>, %v: tensor<2x2x48x8xf32>, %r: tensor<2x2x3x5xi32>, %z: tensor<2x2x48xi32>) {
  // expected-error @below {{expected no lists of rows beside codes}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %v : tensor<2x2x48x8xf32>, tensor<2x2x48x8xf32>) codes(%z : tensor<2x2x48xi32>) rows(%r : tensor<2x2x3x5xi32>) unit = 4 ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<2x4x40x8xf32>) {block = 16 : i64, scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @local_bias(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x48x8xf32>, %v: tensor<2x2x48x8xf32>, %r: tensor<2x2x3x5xi32>, %z: tensor<2x4x40x9xf32>) {
  // expected-error @below {{expected no lists of rows beside local_bias}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %v : tensor<2x2x48x8xf32>, tensor<2x2x48x8xf32>) local_bias(%z : tensor<2x4x40x9xf32>) rows(%r : tensor<2x2x3x5xi32>) unit = 4 ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<2x4x40x8xf32>) {block = 16 : i64, scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @distances(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x48x8xf32>, %v: tensor<2x2x48x8xf32>, %r: tensor<2x2x3x5xi32>, %z: tensor<4x48xf32>) {
  // expected-error @below {{expected no lists of rows beside distance_bias}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %v : tensor<2x2x48x8xf32>, tensor<2x2x48x8xf32>) rows(%r : tensor<2x2x3x5xi32>) unit = 4 distance_bias(%z : tensor<4x48xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<2x4x40x8xf32>) {block = 16 : i64, scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @bias(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x48x8xf32>, %v: tensor<2x2x48x8xf32>, %r: tensor<2x2x3x5xi32>, %z: tensor<2x4x40x48xf32>) {
  // expected-error @below {{expected no bias beside listed positions}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %v : tensor<2x2x48x8xf32>, tensor<2x2x48x8xf32>) bias(%z : tensor<2x4x40x48xf32>) rows(%r : tensor<2x2x3x5xi32>) unit = 4 positions = listed ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<2x4x40x8xf32>) {block = 16 : i64, scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @ranges(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x48x8xf32>, %v: tensor<2x2x48x8xf32>, %r: tensor<2x2x3x5xi32>) {
  // expected-error @below {{expected at most one range beside listed positions, but got 2}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %v : tensor<2x2x48x8xf32>, tensor<2x2x48x8xf32>) rows(%r : tensor<2x2x3x5xi32>) unit = 4 positions = listed ranges [affine_map<(b)[rows, n] -> (0, 3)>, affine_map<(b)[rows, n] -> (5, rows)>] outs(%q : tensor<2x4x40x8xf32>) {block = 16 : i64, scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

func.func @axis(%q: tensor<2x4x40x8xf32>, %k: tensor<2x2x48x8xf32>, %v: tensor<2x2x3x48x8xf32>, %r: tensor<2x2x3x5xi32>) {
  // expected-error @below {{'attn.stream' op expects no axis of query blocks of values beside rows of source 0}}
  %0 = attn.stream query(%q : tensor<2x4x40x8xf32>) source(%k, %v : tensor<2x2x48x8xf32>, tensor<2x2x3x48x8xf32>) rows(%r : tensor<2x2x3x5xi32>) unit = 4 ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<2x4x40x8xf32>) {block = 16 : i64, scale = 0.5} -> tensor<2x4x40x8xf32>
  return
}

// -----

// expected-error @below {{expected a unit that is not negative, but got -1}}
#source = #attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <none>, log_weight = false, bias = false unit = -1>

// -----

// expected-error @below {{expected no listed positions without lists of rows}}
#source = #attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <none>, log_weight = false, bias = false listed_positions = true>

// -----

func.func @count(%q: tensor<1x1x8x8xf32>) {
  // expected-error @below {{'attn.stream' op expects lists of rows for 1 sources, as they say, but got 0}}
  %0 = "attn.stream"(%q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0>, scale = 1.0 : f64, sources = [#attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <none>, log_weight = false, bias = false unit = 4>]}> : (tensor<1x1x8x8xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x8xf32>) -> tensor<1x1x8x8xf32>
  return
}

// -----

func.func @backward(%q: tensor<2x4x40x8xf32>, %k: tensor<1x2x48x8xf32>, %r: tensor<2x1x1x12xi32>, %l: tensor<2x4x40xf32>) {
  // expected-error @below {{'attn.stream_backward' op expects extent 0 of keys[0] to be 2 (extent 0 of query), but got 1}}
  %0:3 = attn.stream_backward query(%q : tensor<2x4x40x8xf32>) source(%k, %k : tensor<1x2x48x8xf32>, tensor<1x2x48x8xf32>) rows(%r : tensor<2x1x1x12xi32>) unit = 4 positions = listed ranges [affine_map<(b)[rows, n] -> (0, rows)>] forward(%q, %l : tensor<2x4x40x8xf32>, tensor<2x4x40xf32>) gradient(%q : tensor<2x4x40x8xf32>) outs(%q, %k, %k : tensor<2x4x40x8xf32>, tensor<1x2x48x8xf32>, tensor<1x2x48x8xf32>) {scale = 0.5} -> tensor<2x4x40x8xf32>, tensor<1x2x48x8xf32>, tensor<1x2x48x8xf32>
  return
}
