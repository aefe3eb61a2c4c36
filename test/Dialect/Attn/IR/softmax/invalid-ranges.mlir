// RUN: fovea-opt %s --split-input-file --verify-diagnostics

// A row that two ranges of a source name would count twice.
func.func @constants(%x: tensor<1x1x64x4xf32>) -> tensor<1x1x64x4xf32> {
  // expected-error @below {{expects ranges of one source not to overlap, but for block 0 found rows 0 .. 31 in range 0 and 16 .. 63 in range 1 of source 0; rows that shall count twice are two sources}}
  %0 = attn.stream query(%x : tensor<1x1x64x4xf32>)
      source(%x, %x : tensor<1x1x64x4xf32>, tensor<1x1x64x4xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, 32)>, affine_map<(b)[rows, n] -> (16, 64)>]
      outs(%x : tensor<1x1x64x4xf32>) {scale = 1.0 : f64} -> tensor<1x1x64x4xf32>
  return %0 : tensor<1x1x64x4xf32>
}

// -----

// In block 0 whatever the extents are: bounds are constant there.
func.func @dynamic(%x: tensor<1x1x?x4xf32>) -> tensor<1x1x?x4xf32> {
  // expected-error @below {{but for block 0 found rows 0 .. 15 in range 0 and 8 .. 23 in range 2 of source 1}}
  %0 = attn.stream query(%x : tensor<1x1x?x4xf32>)
      source(%x, %x : tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      source(%x, %x : tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>, affine_map<(b)[rows, n] -> (b * 16 + 16, b * 16 + 18)>,
                  affine_map<(b)[rows, n] -> (b * 16 + 8, b * 16 + 24)>]
      outs(%x : tensor<1x1x?x4xf32>) {block = 16 : i64, scale = 1.0 : f64} -> tensor<1x1x?x4xf32>
  return %0 : tensor<1x1x?x4xf32>
}

// -----

// Not in block 0, where the second range sticks out.
func.func @later(%x: tensor<1x1x64x4xf32>) -> tensor<1x1x64x4xf32> {
  // expected-error @below {{but for block 1 found rows 0 .. 31 in range 0 and 0 .. 15 in range 1 of source 0}}
  %0 = attn.stream query(%x : tensor<1x1x64x4xf32>)
      source(%x, %x : tensor<1x1x64x4xf32>, tensor<1x1x64x4xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>, affine_map<(b)[rows, n] -> (b * 16 - 32, b * 16)>]
      outs(%x : tensor<1x1x64x4xf32>) {block = 32 : i64, scale = 1.0 : f64} -> tensor<1x1x64x4xf32>
  return %0 : tensor<1x1x64x4xf32>
}

// -----

func.func @divided(%x: tensor<1x1x64x4xf32>) -> tensor<1x1x64x4xf32> {
  // expected-error @below {{but for block 3 found rows 8 .. 11 in range 0 and 10 .. 11 in range 1 of source 0}}
  %0 = attn.stream query(%x : tensor<1x1x64x4xf32>)
      source(%x, %x : tensor<1x1x64x4xf32>, tensor<1x1x64x4xf32>)
          ranges [affine_map<(b)[rows, n] -> ((b floordiv 2) * 8, (b floordiv 2) * 8 + 4)>,
                  affine_map<(b)[rows, n] -> ((b mod 3) * 2 + 10, (b mod 3) * 2 + 12)>]
      outs(%x : tensor<1x1x64x4xf32>) {block = 16 : i64, scale = 1.0 : f64} -> tensor<1x1x64x4xf32>
  return %0 : tensor<1x1x64x4xf32>
}

// -----

// Through the symbols, which are 64.
func.func @symbols(%x: tensor<1x1x64x4xf32>) -> tensor<1x1x64x4xf32> {
  // expected-error @below {{but for block 0 found rows 0 .. 31 in range 0 and 31 .. 63 in range 1 of source 0}}
  %0 = attn.stream query(%x : tensor<1x1x64x4xf32>)
      source(%x, %x : tensor<1x1x64x4xf32>, tensor<1x1x64x4xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, n floordiv 2)>, affine_map<(b)[rows, n] -> (rows floordiv 2 - 1, rows)>]
      outs(%x : tensor<1x1x64x4xf32>) {scale = 1.0 : f64} -> tensor<1x1x64x4xf32>
  return %0 : tensor<1x1x64x4xf32>
}

// -----

func.func @limits(%x: tensor<1x1x64x4xf32>) -> tensor<1x1x64x4xf32> {
  // expected-error @below {{but for block 0 found rows 8 .. 23 in range 0 and 16 .. 31 in range 1 of source 0}}
  %0 = attn.stream query(%x : tensor<1x1x64x4xf32>)
      source(%x, %x : tensor<1x1x64x4xf32>, tensor<1x1x64x4xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, 64, 8, 24)>, affine_map<(b)[rows, n] -> (0, 64, 16, 32)>]
      outs(%x : tensor<1x1x64x4xf32>) {scale = 1.0 : f64} -> tensor<1x1x64x4xf32>
  return %0 : tensor<1x1x64x4xf32>
}

// -----

func.func @gradient(%x: tensor<1x1x64x4xf32>, %lse: tensor<1x1x64xf32>) -> tensor<1x1x64x4xf32> {
  // expected-error @below {{'attn.stream_backward' op expects ranges of one source not to overlap, but for block 0 found rows 0 .. 31 in range 0 and 16 .. 63 in range 1 of source 0}}
  %0:3 = attn.stream_backward query(%x : tensor<1x1x64x4xf32>)
      source(%x, %x : tensor<1x1x64x4xf32>, tensor<1x1x64x4xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, 32)>, affine_map<(b)[rows, n] -> (16, 64)>]
      forward(%x, %lse : tensor<1x1x64x4xf32>, tensor<1x1x64xf32>) gradient(%x : tensor<1x1x64x4xf32>)
      outs(%x, %x, %x : tensor<1x1x64x4xf32>, tensor<1x1x64x4xf32>, tensor<1x1x64x4xf32>)
      {scale = 1.0 : f64} -> tensor<1x1x64x4xf32>, tensor<1x1x64x4xf32>, tensor<1x1x64x4xf32>
  return %0#0 : tensor<1x1x64x4xf32>
}

// -----

// Ranges that meet, that are empty, that stick out at both ends, that no block of
// these queries has, and rows that two sources share.
func.func @apart(%x: tensor<1x1x64x4xf32>) -> tensor<1x1x64x4xf32> {
  %0 = attn.stream query(%x : tensor<1x1x64x4xf32>)
      source(%x, %x : tensor<1x1x64x4xf32>, tensor<1x1x64x4xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, 32)>, affine_map<(b)[rows, n] -> (32, 64)>, affine_map<(b)[rows, n] -> (16, 8)>]
      source(%x, %x : tensor<1x1x64x4xf32>, tensor<1x1x64x4xf32>)
          ranges [affine_map<(b)[rows, n] -> (-32, 0)>, affine_map<(b)[rows, n] -> (-16, 8)>, affine_map<(b)[rows, n] -> (60, rows)>,
                  affine_map<(b)[rows, n] -> (64, 80)>, affine_map<(b)[rows, n] -> (rows, 70)>]
      source(%x, %x : tensor<1x1x64x4xf32>, tensor<1x1x64x4xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 16 - 48, b * 16 - 40)>, affine_map<(b)[rows, n] -> (b * 8, b * 8 + 8)>]
      outs(%x : tensor<1x1x64x4xf32>) {block = 16 : i64, scale = 1.0 : f64} -> tensor<1x1x64x4xf32>
  return %0 : tensor<1x1x64x4xf32>
}

// -----

// Known at run time only: --attn-check-shapes adds a check.
func.func @open(%x: tensor<1x1x?x4xf32>) -> tensor<1x1x?x4xf32> {
  %0 = attn.stream query(%x : tensor<1x1x?x4xf32>)
      source(%x, %x : tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, 16)>, affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16)>]
      outs(%x : tensor<1x1x?x4xf32>) {block = 16 : i64, scale = 1.0 : f64} -> tensor<1x1x?x4xf32>
  return %0 : tensor<1x1x?x4xf32>
}

// -----

// A source is for rows that something reads. Types may say that it has none, as
// an empty cache of a program whose extents become known.
func.func @none(%x: tensor<1x1x4x4xf32>, %z: tensor<1x1x0x4xf32>) -> tensor<1x1x4x4xf32> {
  %0 = attn.stream query(%x : tensor<1x1x4x4xf32>)
      source(%z, %z : tensor<1x1x0x4xf32>, tensor<1x1x0x4xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%x : tensor<1x1x4x4xf32>) {scale = 1.0 : f64} -> tensor<1x1x4x4xf32>
  %1 = attn.stream query(%0 : tensor<1x1x4x4xf32>)
      // expected-error @below {{expected at least one range of a source, as affine_map<(b)[rows, n] -> (0, rows)> for all rows; leave out a source that nothing reads}}
      source(%x, %x : tensor<1x1x4x4xf32>, tensor<1x1x4x4xf32>) ranges []
      outs(%x : tensor<1x1x4x4xf32>) {scale = 1.0 : f64} -> tensor<1x1x4x4xf32>
  return %1 : tensor<1x1x4x4xf32>
}

// -----

func.func @none_of_a_gradient(%x: tensor<1x1x64x4xf32>, %lse: tensor<1x1x64xf32>) -> tensor<1x1x64x4xf32> {
  %0:3 = attn.stream_backward query(%x : tensor<1x1x64x4xf32>)
      // expected-error @below {{expected at least one range of a source}}
      source(%x, %x : tensor<1x1x64x4xf32>, tensor<1x1x64x4xf32>) ranges []
      forward(%x, %lse : tensor<1x1x64x4xf32>, tensor<1x1x64xf32>) gradient(%x : tensor<1x1x64x4xf32>)
      outs(%x, %x, %x : tensor<1x1x64x4xf32>, tensor<1x1x64x4xf32>, tensor<1x1x64x4xf32>)
      {scale = 1.0 : f64} -> tensor<1x1x64x4xf32>, tensor<1x1x64x4xf32>, tensor<1x1x64x4xf32>
  return %0#0 : tensor<1x1x64x4xf32>
}
