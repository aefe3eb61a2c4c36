// RUN: fovea-opt %s --split-input-file --verify-diagnostics --attn-differentiate

// expected-error @below {{no function to differentiate: expected a public function with a body}}
module {
}

// -----

// expected-error @below {{cannot be differentiated: has no result of a floating-point type}}
func.func @integers(%x: tensor<4xf32>) -> tensor<4xi32> {
  %0 = arith.fptosi %x : tensor<4xf32> to tensor<4xi32>
  return %0 : tensor<4xi32>
}

// -----

// expected-error @below {{cannot be differentiated: has no argument of a floating-point type}}
func.func @constant(%n: index) -> f32 {
  %0 = arith.constant 0.0 : f32
  return %0 : f32
}

// -----

// expected-error @below {{cannot be differentiated: expected one block, but got 2}}
func.func @blocks(%x: f32) -> f32 {
  cf.br ^bb1
^bb1:
  return %x : f32
}

// -----

// expected-error @below {{cannot be differentiated: expected tensors and numbers, but got 'memref<4xf32>'}}
func.func @memory(%x: f32, %m: memref<4xf32>) -> f32 {
  return %x : f32
}

// -----

// expected-error @below {{cannot be differentiated: there is a function '@f_vjp' already}}
func.func @f(%x: f32) -> f32 {
  return %x : f32
}
func.func @f_vjp(%x: f32) -> f32 {
  return %x : f32
}

// -----

// Everything that has no gradient is in one error, in loops and branches as well.

func.func @branches(%x: tensor<4xf32>, %n: index, %c: i1) -> tensor<4xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %y = scf.for %i = %zero to %n step %one iter_args(%y = %x) -> tensor<4xf32> {
    // expected-error @below {{'func.call' op has no gradient, but results of '@branches' depend on it}}
    // expected-note @below {{calls can be inlined by --inline}}
    %s = func.call @step(%y) : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %s : tensor<4xf32>
  }
  %z = scf.if %c -> tensor<4xf32> {
    // expected-note @below {{'func.call' op has none, either}}
    %s = func.call @step(%y) : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %s : tensor<4xf32>
  } else {
    scf.yield %x : tensor<4xf32>
  }
  return %z : tensor<4xf32>
}
func.func private @step(tensor<4xf32>) -> tensor<4xf32>

// -----

// What an iteration reads of a state is kept for all: they have one shape.

func.func @growing(%x: tensor<?xf32>, %n: index) -> tensor<?xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  // expected-error @below {{'scf.for' op has no gradient: expected what it carries to have one shape, but the extents of value 0 of type 'tensor<?xf32>' may change}}
  %y = scf.for %i = %zero to %n step %one iter_args(%y = %x) -> tensor<?xf32> {
    %s = math.sin %y : tensor<?xf32>
    %t = tensor.concat dim(0) %s, %x : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
    scf.yield %t : tensor<?xf32>
  }
  return %y : tensor<?xf32>
}

// -----

func.func @effects(%x: f32, %n: index) -> f32 {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %m = memref.alloc() : memref<4xf32>
  %y = scf.for %i = %zero to %n step %one iter_args(%y = %x) -> f32 {
    %s = arith.mulf %y, %x : f32
    // expected-error @below {{'memref.store' op is in a loop that has no gradient, because of its side effects}}
    memref.store %s, %m[%zero] : memref<4xf32>
    scf.yield %s : f32
  }
  return %y : f32
}

// -----

func.func @vectors(%x: f32, %n: index) -> f32 {
  %v = arith.constant dense<1> : vector<4xi32>
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  // expected-error @below {{'scf.for' op has no gradient: expected it to carry tensors and numbers, but got 'vector<4xi32>'}}
  %y, %w = scf.for %i = %zero to %n step %one iter_args(%y = %x, %w = %v) -> (f32, vector<4xi32>) {
    %e = vector.extract %w[0] : i32 from vector<4xi32>
    %f = arith.sitofp %e : i32 to f32
    %s = arith.mulf %y, %f : f32
    scf.yield %s, %w : f32, vector<4xi32>
  }
  return %y : f32
}

// -----

// The keys that codes stand for are no state of a loop, nor is their gradient.

func.func @codes(%q: tensor<1x1x2x2xf32>, %k: tensor<1x1x2x2xf32>, %v: tensor<1x1x2x2xf32>, %c: tensor<1x3x2xf32>,
                 %n: index) -> tensor<1x1x2x2xf32> {
  %zi = tensor.empty() : tensor<1x1x2xi32>
  %z = attn.quantize ins(%k, %c : tensor<1x1x2x2xf32>, tensor<1x3x2xf32>) outs(%zi : tensor<1x1x2xi32>) -> tensor<1x1x2xi32>
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  // expected-error @below {{'scf.for' op has no gradient for the keys of its codes}}
  %r = scf.for %i = %zero to %n step %one iter_args(%x = %q) -> tensor<1x1x2x2xf32> {
    %o = tensor.empty() : tensor<1x1x2x2xf32>
    %y = attn.vq ins(%x, %z, %v, %c : tensor<1x1x2x2xf32>, tensor<1x1x2xi32>, tensor<1x1x2x2xf32>, tensor<1x3x2xf32>)
        outs(%o : tensor<1x1x2x2xf32>) {block = 2 : i64, causal} -> tensor<1x1x2x2xf32>
    scf.yield %y : tensor<1x1x2x2xf32>
  }
  return %r : tensor<1x1x2x2xf32>
}

// -----

func.func private @callee(tensor<4xf32>) -> tensor<4xf32>
func.func @caller(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'func.call' op has no gradient, but results of '@caller' depend on it}}
  // expected-note @below {{calls can be inlined by --inline}}
  %y = call @callee(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @product(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %one = arith.constant dense<1.0> : tensor<4xf32>
  // expected-error @below {{'linalg.reduce' op has no gradient: its body is a reduction that is neither a sum nor a maximum or minimum}}
  %y = linalg.reduce ins(%x : tensor<4x8xf32>) outs(%one : tensor<4xf32>) dimensions = [1]
      (%in: f32, %out: f32) {
        %0 = arith.mulf %in, %out : f32
        linalg.yield %0 : f32
      }
  return %y : tensor<4xf32>
}

// -----

func.func @start(%x: tensor<4x8xf32>, %low: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'linalg.reduce' op has no gradient with respect to where a maximum or minimum starts from}}
  %y = linalg.reduce ins(%x : tensor<4x8xf32>) outs(%low : tensor<4xf32>) dimensions = [1]
      (%in: f32, %out: f32) {
        %0 = arith.maximumf %in, %out : f32
        linalg.yield %0 : f32
      }
  return %y : tensor<4xf32>
}

// -----

func.func @gather(%table: tensor<16x8xf32>, %index: tensor<4xindex>) -> tensor<4x8xf32> {
  %init = tensor.empty() : tensor<4x8xf32>
  // expected-error @below {{'linalg.generic' op has no gradient with respect to a value that its body uses without being an input of it}}
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%index : tensor<4xindex>) outs(%init : tensor<4x8xf32>) {
  ^bb0(%i: index, %out: f32):
    %j = linalg.index 1 : index
    %e = tensor.extract %table[%i, %j] : tensor<16x8xf32>
    linalg.yield %e : f32
  } -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

func.func @inside(%x: tensor<4xf32>) -> tensor<4xf32> {
  %init = tensor.empty() : tensor<4xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                       iterator_types = ["parallel"]}
      ins(%x : tensor<4xf32>) outs(%init : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %one = arith.constant 1.0 : f32
    // expected-error @below {{'arith.remf' op has no gradient}}
    %r = arith.remf %in, %one : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @weighting(%q: tensor<1x1x8x16xf32>, %k: tensor<1x1x8x16xf32>, %v: tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32> {
  %init = tensor.empty() : tensor<1x1x8x16xf32>
  // expected-error @below {{'attn.stream' op has no gradient with weighting squared_relu}}
  %out = attn.stream query(%q : tensor<1x1x8x16xf32>)
      source(%k, %v : tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%init : tensor<1x1x8x16xf32>)
      {scale = 2.5e-01 : f64, weighting = #attn.weighting<squared_relu>} -> tensor<1x1x8x16xf32>
  return %out : tensor<1x1x8x16xf32>
}

// -----

func.func @codes(%q: tensor<1x1x8x16xf32>, %k: tensor<1x1x4x16xf32>, %z: tensor<1x1x8xi32>, %v: tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32> {
  %init = tensor.empty() : tensor<1x1x8x16xf32>
  // expected-error @below {{'attn.stream' op has no gradient for sources with codes, a local bias, terms by distance or an axis of query blocks}}
  %out = attn.stream query(%q : tensor<1x1x8x16xf32>)
      source(%k, %v : tensor<1x1x4x16xf32>, tensor<1x1x8x16xf32>) codes(%z : tensor<1x1x8xi32>)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%init : tensor<1x1x8x16xf32>) {scale = 2.5e-01 : f64} -> tensor<1x1x8x16xf32>
  return %out : tensor<1x1x8x16xf32>
}

// -----

// Codes may be cut, since keys are, but not put together.

func.func @codes(%q: tensor<1x1x4x2xf32>, %k: tensor<1x1x2x2xf32>, %v: tensor<1x1x4x2xf32>, %c: tensor<1x3x2xf32>) -> tensor<1x1x4x2xf32> {
  %zi = tensor.empty() : tensor<1x1x2xi32>
  %z = attn.quantize ins(%k, %c : tensor<1x1x2x2xf32>, tensor<1x3x2xf32>) outs(%zi : tensor<1x1x2xi32>) -> tensor<1x1x2xi32>
  // expected-error @below {{'tensor.concat' op has no gradient for the keys of its codes}}
  %zz = tensor.concat dim(2) %z, %z : (tensor<1x1x2xi32>, tensor<1x1x2xi32>) -> tensor<1x1x4xi32>
  %o = tensor.empty() : tensor<1x1x4x2xf32>
  %r = attn.vq ins(%q, %zz, %v, %c : tensor<1x1x4x2xf32>, tensor<1x1x4xi32>, tensor<1x1x4x2xf32>, tensor<1x3x2xf32>)
      outs(%o : tensor<1x1x4x2xf32>) {block = 2 : i64, causal} -> tensor<1x1x4x2xf32>
  return %r : tensor<1x1x4x2xf32>
}

// -----

// Gradients of most attention have none, those of dense attention do.

func.func @second(%q: tensor<1x1x4x2xf32>, %l: tensor<1x1x4xf32>, %f: tensor<1x1x4x6xf32>) -> tensor<1x1x4x2xf32> {
  %o = tensor.empty() : tensor<1x1x4x2xf32>
  %d:3 = attn.dense_backward ins(%q, %q, %q : tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>)
      forward(%q, %l : tensor<1x1x4x2xf32>, tensor<1x1x4xf32>) gradient(%q : tensor<1x1x4x2xf32>)
      outs(%o, %o, %o : tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>)
      -> tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>
  // expected-error @below {{'attn.polynomial_features_backward' op has no gradient, but results of '@second' depend on it}}
  %r = attn.polynomial_features_backward ins(%d#0 : tensor<1x1x4x2xf32>) gradient(%f : tensor<1x1x4x6xf32>)
      outs(%o : tensor<1x1x4x2xf32>) {degree = 2 : i64, scale = 1.0 : f64} -> tensor<1x1x4x2xf32>
  return %r : tensor<1x1x4x2xf32>
}

// -----

func.func @tile(%q: tensor<1x1x4x2xf32>, %row: index) -> tensor<1x1x4x2xf32> {
  // expected-error @below {{'attn.stream' op has no gradient as a tile of another}}
  %r = attn.stream query(%q : tensor<1x1x4x2xf32>) source(%q, %q : tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] tile(%row of %row)
      outs(%q : tensor<1x1x4x2xf32>) {scale = 1.0 : f64} -> tensor<1x1x4x2xf32>
  return %r : tensor<1x1x4x2xf32>
}

// -----

func.func @pad(%x: tensor<4xf32>) -> tensor<8xf32> {
  // expected-error @below {{'tensor.pad' op has no gradient: its padding is not a constant}}
  %r = tensor.pad %x low[2] high[2] {
  ^bb0(%i: index):
    %0 = arith.index_cast %i : index to i32
    %1 = arith.sitofp %0 : i32 to f32
    tensor.yield %1 : f32
  } : tensor<4xf32> to tensor<8xf32>
  return %r : tensor<8xf32>
}

// -----

// Numbers that a score region captures are constant.
func.func @capture(%q: tensor<1x1x4x2xf32>, %t: f32) -> tensor<1x1x4x2xf32> {
  // expected-error @below {{'attn.dense' op has no gradient for capture 0 of its score region, a number: a tensor of rank 0 has one}}
  %r = attn.dense ins(%q, %q, %q : tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>) score(%t : f32) {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: f32):
        %p = arith.mulf %s, %x : f32
        attn.yield %p : f32
      } outs(%q : tensor<1x1x4x2xf32>) -> tensor<1x1x4x2xf32>
  return %r : tensor<1x1x4x2xf32>
}

// -----

// A loop of unknown length is run twice.

func.func @effects(%x: f32) -> f32 {
  %y = scf.while (%s = %x) : (f32) -> f32 {
    %zero = arith.constant 0.0 : f32
    %more = arith.cmpf ogt, %s, %zero : f32
    scf.condition(%more) %s : f32
  } do {
  ^bb0(%s: f32):
    // expected-error @below {{'func.call' op is in a loop that has no gradient, because of its side effects}}
    %t = func.call @next(%s) : (f32) -> f32
    scf.yield %t : f32
  }
  return %y : f32
}
func.func private @next(f32) -> f32

// -----

func.func @twice(%q: tensor<1x1x4x2xf32>, %w: tensor<1x1x4xf32>, %o: tensor<1x1x4x2xf32>, %l: tensor<1x1x4xf32>, %d: tensor<1x1x4x2xf32>)
    -> tensor<1x1x4x2xf32> {
  %e = tensor.empty() : tensor<1x1x4x2xf32>
  // expected-error @below {{'attn.dense_backward' op has no gradient: a second derivative of attention with log weights is not known}}
  %dq, %dk, %dv = attn.dense_backward ins(%q, %q, %q : tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>)
      log_weight(%w : tensor<1x1x4xf32>) forward(%o, %l : tensor<1x1x4x2xf32>, tensor<1x1x4xf32>)
      gradient(%d : tensor<1x1x4x2xf32>)
      outs(%e, %e, %e : tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>)
      -> tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>
  return %dq : tensor<1x1x4x2xf32>
}
