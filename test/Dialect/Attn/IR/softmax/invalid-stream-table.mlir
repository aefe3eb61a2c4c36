// RUN: fovea-opt %s --split-input-file --verify-diagnostics

// Sources whose keys are rows of a table, or whose operands differ by block.

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x5x8xf32>, %v: tensor<2x2x16x8xf32>, %z: tensor<2x2x15xi32>) {
  // expected-error @below {{'attn.stream' op expects extent 2 of values of source 0 to be 15 (extent 2 of codes of source 0), but got 16}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x5x8xf32>, tensor<2x2x16x8xf32>) codes(%z : tensor<2x2x15xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x5x8xf32>, %v: tensor<2x2x16x8xf32>, %z: tensor<2x1x16xi32>) {
  // expected-error @below {{'attn.stream' op expects extent 1 of keys of source 0 to be 1 (extent 1 of codes of source 0), but got 2}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x5x8xf32>, tensor<2x2x16x8xf32>) codes(%z : tensor<2x1x16xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x5x8xf32>, %v: tensor<2x2x16x8xf32>, %z: tensor<1x2x16xi32>) {
  // expected-error @below {{'attn.stream' op expects extent 0 of keys of source 0 to be 1 (extent 0 of codes of source 0), but got 2}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x5x8xf32>, tensor<2x2x16x8xf32>) codes(%z : tensor<1x2x16xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x5x4xf32>, %v: tensor<2x2x16x8xf32>, %z: tensor<2x2x16xi32>) {
  // expected-error @below {{'attn.stream' op expects extent 3 of keys of source 0 to be 8 (extent 3 of query), but got 4}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x5x4xf32>, tensor<2x2x16x8xf32>) codes(%z : tensor<2x2x16xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x4x5x8xf32>, %v: tensor<2x2x16x8xf32>, %z: tensor<2x2x16xi32>) {
  // expected-error @below {{'attn.stream' op expects extent 1 of keys of source 0 to be 2 or 1 (extent 1 of codes of source 0), but got 4}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x4x5x8xf32>, tensor<2x2x16x8xf32>) codes(%z : tensor<2x2x16xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<3x2x5x8xf32>, %v: tensor<2x2x16x8xf32>, %z: tensor<2x2x16xi32>) {
  // expected-error @below {{'attn.stream' op expects extent 0 of keys of source 0 to be 2 or 1 (extent 0 of query), but got 3}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<3x2x5x8xf32>, tensor<2x2x16x8xf32>) codes(%z : tensor<2x2x16xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x5x8xf32>, %v: tensor<1x2x16x8xf32>, %z: tensor<1x2x16xi32>) {
  // expected-error @below {{'attn.stream' op expects extent 0 of keys of source 0 to be 1 (extent 0 of codes of source 0), but got 2}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x5x8xf32>, tensor<1x2x16x8xf32>) codes(%z : tensor<1x2x16xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<1x1x5x8xf32>, %v: tensor<2x3x16x8xf32>, %z: tensor<2x3x16xi32>) {
  // expected-error @below {{'attn.stream' op expects extent 1 of query to be a multiple of extent 1 of codes of source 0, but got 4 and 3}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<1x1x5x8xf32>, tensor<2x3x16x8xf32>) codes(%z : tensor<2x3x16xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x?x8xf32>, %v: tensor<2x2x16x8xf32>, %z: tensor<2x2x16xi32>) {
  // expected-error @below {{'attn.stream' op expects extent 2 of keys of source 0 to be static, but got a dynamic extent}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x?x8xf32>, tensor<2x2x16x8xf32>) codes(%z : tensor<2x2x16xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x0x8xf32>, %v: tensor<2x2x16x8xf32>, %z: tensor<2x2x16xi32>) {
  // expected-error @below {{'attn.stream' op expects extent 2 of keys of source 0 to be at least 1, but got 0}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x0x8xf32>, tensor<2x2x16x8xf32>) codes(%z : tensor<2x2x16xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x5x8xf64>, %v: tensor<2x2x16x8xf32>, %z: tensor<2x2x16xi32>) {
  // expected-error @below {{'attn.stream' op expects keys of source 0 not to hold f64, since query holds 'f32', but got 'f64'}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x5x8xf64>, tensor<2x2x16x8xf32>) codes(%z : tensor<2x2x16xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf64>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x5x8xf64>, %v: tensor<2x2x16x8xf64>, %z: tensor<2x2x16xi32>) {
  // expected-error @below {{'attn.stream' op expects output to hold f64, since query holds 'f64', but got 'f32'}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf64>) source(%c, %v : tensor<2x2x5x8xf64>, tensor<2x2x16x8xf64>) codes(%z : tensor<2x2x16xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x5x8xf32>, %v: tensor<2x2x16x?xf32>, %z: tensor<2x2x16xi32>) {
  // expected-error @below {{'attn.stream' op expects extent 3 of values of source 0 to be static, but got a dynamic extent}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x5x8xf32>, tensor<2x2x16x?xf32>) codes(%z : tensor<2x2x16xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x0xf32>, %c: tensor<2x2x5x8xf32>, %v: tensor<2x2x16x0xf32>, %z: tensor<2x2x16xi32>) {
  // expected-error @below {{'attn.stream' op expects extent 3 of output to be at least 1, but got 0}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x5x8xf32>, tensor<2x2x16x0xf32>) codes(%z : tensor<2x2x16xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x0xf32>) {scale = 0.5} -> tensor<2x4x16x0xf32>
  return
}

// -----

// An axis of query blocks.
func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x5x8xf32>, %v: tensor<2x2x4x16x8xf32>, %z: tensor<2x2x16xi32>) {
  // expected-error @below {{'attn.stream' op expects a block size, since values of source 0 has an axis of query blocks}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x5x8xf32>, tensor<2x2x4x16x8xf32>) codes(%z : tensor<2x2x16xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x5x8xf32>, %v: tensor<2x2x3x16x8xf32>, %z: tensor<2x2x16xi32>) {
  // expected-error @below {{'attn.stream' op expects values of source 0 to have an entry for each of the 4 query blocks, but got 3}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x5x8xf32>, tensor<2x2x3x16x8xf32>) codes(%z : tensor<2x2x16xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5, block = 4} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x5x8xf32>, %v: tensor<2x2x4x15x8xf32>, %z: tensor<2x2x16xi32>) {
  // expected-error @below {{'attn.stream' op expects extent 3 of values of source 0 to be 16 (extent 2 of codes of source 0), but got 15}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x5x8xf32>, tensor<2x2x4x15x8xf32>) codes(%z : tensor<2x2x16xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5, block = 4} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x5x8xf32>, %v: tensor<2x2x16x8xf32>, %z: tensor<2x2x16xi32>, %w: tensor<2x2x2x16xf32>) {
  // expected-error @below {{'attn.stream' op expects log_weight of source 0 to have an entry for each of the 4 query blocks, but got 2}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x5x8xf32>, tensor<2x2x16x8xf32>) codes(%z : tensor<2x2x16xi32>) log_weight(%w : tensor<2x2x2x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5, block = 4} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x5x8xf32>, %v: tensor<2x2x16x8xf32>, %z: tensor<2x2x16xi32>, %w: tensor<2x2x4x5xf32>) {
  // expected-error @below {{'attn.stream' op expects extent 3 of log_weight of source 0 to be 16 or 1 (extent 2 of codes of source 0), but got 5}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x5x8xf32>, tensor<2x2x16x8xf32>) codes(%z : tensor<2x2x16xi32>) log_weight(%w : tensor<2x2x4x5xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5, block = 4} -> tensor<2x4x16x8xf32>
  return
}

// -----

// A local bias.
func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x5x8xf32>, %v: tensor<2x2x16x8xf32>, %z: tensor<2x2x16xi32>, %w: tensor<2x4x16x?xf32>) {
  // expected-error @below {{'attn.stream' op expects extent 3 of local_bias of source 0 to be static, but got a dynamic extent}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x5x8xf32>, tensor<2x2x16x8xf32>) codes(%z : tensor<2x2x16xi32>) local_bias(%w : tensor<2x4x16x?xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x5x8xf32>, %v: tensor<2x2x16x8xf32>, %z: tensor<2x2x16xi32>, %w: tensor<2x4x5x8xf32>) {
  // expected-error @below {{'attn.stream' op expects extent 2 of local_bias of source 0 to be 16 or 1 (extent 2 of query), but got 5}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x5x8xf32>, tensor<2x2x16x8xf32>) codes(%z : tensor<2x2x16xi32>) local_bias(%w : tensor<2x4x5x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x5x8xf32>, %v: tensor<2x2x16x8xf32>, %z: tensor<2x2x16xi32>, %w: tensor<2x4x16x5xf32>) {
  // expected-error @below {{'attn.stream' op expects extent 3 of bias of source 0 to be 16 or 1 (extent 2 of codes of source 0), but got 5}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x5x8xf32>, tensor<2x2x16x8xf32>) codes(%z : tensor<2x2x16xi32>) bias(%w : tensor<2x4x16x5xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

// Weightings.
func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x5x8xf32>, %v: tensor<2x2x16x8xf32>, %z: tensor<2x2x16xi32>, %l: tensor<2x4x16xf32>) {
  // expected-error @below {{'attn.stream' op expects no lse with weighting squared_relu, which has no normaliser}}
  %0:2 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x5x8xf32>, tensor<2x2x16x8xf32>) codes(%z : tensor<2x2x16xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o, %l : tensor<2x4x16x8xf32>, tensor<2x4x16xf32>) {scale = 0.5, weighting = #attn.weighting<squared_relu>} -> tensor<2x4x16x8xf32>, tensor<2x4x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x8xf32>, %c: tensor<2x2x5x8xf32>, %v: tensor<2x2x16x4xf32>, %z: tensor<2x2x16xi32>) {
  // expected-error @below {{'attn.stream' op expects extent 3 of values of source 0 to be 8 (extent 3 of output), but got 4}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%c, %v : tensor<2x2x5x8xf32>, tensor<2x2x16x4xf32>) codes(%z : tensor<2x2x16xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

// Sources that do not say what they have.
func.func @f(%q: tensor<1x1x4x8xf32>, %z: tensor<1x1x4xi32>) {
  // expected-error @below {{'attn.stream' op expects codes for 0 sources, as they say, but got 1}}
  %0 = "attn.stream"(%q, %q, %q, %z, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0>, scale = 1.0, sources = [#attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <none>, log_weight = false, bias = false>]}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4xi32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

// expected-error @below {{expected a bias and one range with a local bias, but got 2 ranges and a bias}}
#two = #attn.source<ranges = [(b)[rows, n] -> (0, 1), (b)[rows, n] -> (b, n)], mask = <none>, log_weight = false, bias = true local_bias = true>
