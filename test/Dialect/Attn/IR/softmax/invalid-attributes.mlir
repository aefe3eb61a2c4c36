// RUN: fovea-opt %s --split-input-file --verify-diagnostics

func.func @misspelt(%x: tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32> {
  // expected-error @below {{'attn.dense' op has no attribute 'softcap', only "mask", "scale"}}
  %0 = attn.dense ins(%x, %x, %x : tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>)
      outs(%x : tensor<1x2x8x4xf32>) {causal, softcap = 30.0} -> tensor<1x2x8x4xf32>
  return %0 : tensor<1x2x8x4xf32>
}

// -----

func.func @causal_of_a_stream(%x: tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32> {
  // expected-error @below {{'attn.stream' op has no attribute 'causal', only "block", "scale", "sources", "tiles", "weighting"}}
  %0 = attn.stream query(%x : tensor<1x2x8x4xf32>)
      source(%x, %x : tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%x : tensor<1x2x8x4xf32>) {causal, scale = 1.0 : f64} -> tensor<1x2x8x4xf32>
  return %0 : tensor<1x2x8x4xf32>
}

// -----

func.func @property(%x: tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32> {
  // expected-error @below {{for op attn.dense: has no attribute 'causal', only "mask", "scale"}}
  %0 = "attn.dense"(%x, %x, %x, %x) <{causal, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 0>}>
      : (tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32>
  return %0 : tensor<1x2x8x4xf32>
}

// -----

func.func @two_masks(%x: tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32> {
  // expected-error @below {{'attn.dense' op expects one mask, but got causal and #attn.mask<window = 4>}}
  %0 = attn.dense ins(%x, %x, %x : tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>)
      outs(%x : tensor<1x2x8x4xf32>) {causal, mask = #attn.mask<window = 4>} -> tensor<1x2x8x4xf32>
  return %0 : tensor<1x2x8x4xf32>
}

// -----

func.func @value(%x: tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32> {
  // expected-error @below {{'attn.dense' op expects causal to have no value, but got false}}
  %0 = attn.dense ins(%x, %x, %x : tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>)
      outs(%x : tensor<1x2x8x4xf32>) {causal = false} -> tensor<1x2x8x4xf32>
  return %0 : tensor<1x2x8x4xf32>
}

// -----

// Keys inside of attributes.
// expected-error @below {{expected window, prefix or stride of a mask}}
func.func private @f() attributes {a.b = #attn.mask<causal, sliding = 3>}

// -----

// expected-error @below {{expected window, prefix or stride of a mask}}
func.func private @f() attributes {a.b = #attn.mask<"causal">}

// -----

// expected-error @below {{duplicate or unknown struct parameter name: keys_of}}
func.func private @f() attributes {a.b = #attn.tiles<query = 64, keys_of = 512, lanes = 16, vectors = 4, keys = 4, columns = 4>}

// -----

// expected-error @below {{expected a prefix of at least 1, but got 0}}
#none = #attn.mask<causal, prefix = 0>

// -----

// expected-error @below {{expected a prefix of a causal mask without a window}}
#open = #attn.mask<prefix = 3>

// -----

// expected-error @below {{expected a stride of at least 1, but got 0}}
#still = #attn.mask<causal, stride = 0>

// -----

// expected-error @below {{expected a stride from 1 to 1048576, but got 2000000}}
#long = #attn.mask<causal, stride = 2000000>

// -----

// expected-error @below {{expected no stride with relative or distance_bias, whose distances are those of rows}}
#distances = #attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <causal, stride = 2>, log_weight = false, bias = false distance_bias = true>
