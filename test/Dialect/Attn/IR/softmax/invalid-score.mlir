// RUN: fovea-opt %s --split-input-file --verify-diagnostics

// Its own arguments are five.
func.func @f(%q: tensor<1x2x4x8xf32>, %t: tensor<3xf32>, %c: i1, %n: index) {
  // expected-error @below {{'attn.dense' op expects the score region to have 5 arguments: the score, batch entry, head, query and key, and 0 captures, but got 4}}
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index):
        attn.yield %s : f32
      } outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return
}

// -----

// One more for each capture.
func.func @f(%q: tensor<1x2x4x8xf32>, %t: tensor<3xf32>, %c: i1, %n: index) {
  // expected-error @below {{'attn.dense' op expects the score region to have 6 arguments: the score, batch entry, head, query and key, and 1 captures, but got 5}}
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score(%t : tensor<3xf32>) {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        attn.yield %s : f32
      } outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return
}

// -----

// Scores have the type of sums.
func.func @f(%q: tensor<1x2x4x8xf32>, %t: tensor<3xf32>, %c: i1, %n: index) {
  // expected-error @below {{'attn.dense' op expects argument 0 of the score region to stand for 'f32', but got 'f64'}}
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score {
      ^bb0(%s: f64, %b: index, %h: index, %i: index, %j: index):
        %x = arith.constant 1.0 : f32
        attn.yield %x : f32
      } outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return
}

// -----

// A capture has the type of its operand.
func.func @f(%q: tensor<1x2x4x8xf32>, %t: tensor<3xf32>, %c: i1, %n: index) {
  // expected-error @below {{'attn.dense' op expects argument 5 of the score region to stand for 'tensor<3xf32>', but got 'tensor<4xf32>'}}
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score(%t : tensor<3xf32>) {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: tensor<4xf32>):
        attn.yield %s : f32
      } outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return
}

// -----

// And so does what is yielded.
func.func @f(%q: tensor<1x2x4x8xf32>, %t: tensor<3xf32>, %c: i1, %n: index) {
  // expected-error @below {{'attn.dense' op expects the score region to yield 'f32', but got 'f64'}}
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %x = arith.extf %s : f32 to f64
        attn.yield %x : f64
      } outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return
}

// -----

// Single bits of memory are no vectors.
func.func @f(%q: tensor<1x2x4x8xf32>, %t: tensor<3xf32>, %c: i1, %n: index) {
  // expected-error @below {{'attn.dense' op expects capture 0 to have more than one bit, but got 'i1'}}
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score(%c : i1) {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: i1):
        attn.yield %s : f32
      } outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return
}

// -----

// Other operations do not become vectors.
func.func @f(%q: tensor<1x2x4x8xf32>, %t: tensor<3xf32>, %c: i1, %n: index) {
  // expected-error @below {{'attn.dense' op expects the score region to hold operations of arith and math on numbers, and tensor.extract, but got 'scf.if'}}
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %p = arith.cmpi slt, %i, %j : index
        // expected-note @below {{this operation}}
        %x = scf.if %p -> f32 {
          scf.yield %s : f32
        } else {
          scf.yield %s : f32
        }
        attn.yield %x : f32
      } outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return
}

// -----

// Nor do those of tensors.
func.func @f(%q: tensor<1x2x4x8xf32>, %t: tensor<3xf32>, %c: i1, %n: index) {
  // expected-error @below {{'attn.dense' op expects the score region to hold operations of arith and math on numbers, and tensor.extract, but got 'arith.addf'}}
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score(%t : tensor<3xf32>) {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: tensor<3xf32>):
        // expected-note @below {{this operation}}
        %y = arith.addf %x, %x : tensor<3xf32>
        %z = tensor.extract %y[%h] : tensor<3xf32>
        attn.yield %z : f32
      } outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return
}

// -----

// Integers are divided by constants.
func.func @f(%q: tensor<1x2x4x8xf32>, %t: tensor<3xf32>, %c: i1, %n: index) {
  // expected-error @below {{'attn.dense' op expects the score region to divide integers by constants other than zero, but got 'arith.divsi'}}
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        // expected-note @below {{this operation}}
        %x = arith.divsi %j, %i : index
        %y = arith.index_cast %x : index to i32
        %z = arith.sitofp %y : i32 to f32
        attn.yield %z : f32
      } outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return
}

// -----

// Zero is none.
func.func @f(%q: tensor<1x2x4x8xf32>, %t: tensor<3xf32>, %c: i1, %n: index) {
  // expected-error @below {{'attn.dense' op expects the score region to divide integers by constants other than zero, but got 'arith.remui'}}
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %k = arith.constant 0 : index
        // expected-note @below {{this operation}}
        %x = arith.remui %j, %k : index
        %y = arith.index_cast %x : index to i32
        %z = arith.sitofp %y : i32 to f32
        attn.yield %z : f32
      } outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return
}

// -----

// What it reads is captured.
func.func @f(%q: tensor<1x2x4x8xf32>, %x: f32) {
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        // expected-error @below {{operand 1 of 'arith.addf' is not defined in the score region; capture what is outside: list it in parentheses behind 'score' or 'captures', and add an argument for it behind those of the entry}}
        %t = arith.addf %s, %x : f32
        attn.yield %t : f32
      } outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return
}

// -----

// So is what it yields, in the region of a source.
func.func @f(%q: tensor<1x2x4x8xf32>, %x: f32) {
  %0 = attn.stream query(%q : tensor<1x2x4x8xf32>) source(%q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        // expected-error @below {{operand 0 of 'attn.yield' is not defined in the score region; capture what is outside}}
        attn.yield %x : f32
      } ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x2x4x8xf32>) {scale = 0.5} -> tensor<1x2x4x8xf32>
  return
}

// -----

// And what an index is.
func.func @f(%q: tensor<1x2x4x8xf32>, %t: tensor<3xf32>, %n: index) {
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score(%t : tensor<3xf32>) {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: tensor<3xf32>):
        // expected-error @below {{operand 1 of 'tensor.extract' is not defined in the score region; capture what is outside}}
        %e = tensor.extract %x[%n] : tensor<3xf32>
        attn.yield %e : f32
      } outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return
}

// -----

// In the generic form, and where passes make it, values are found.
// expected-note @below {{this value}}
func.func @f(%q: tensor<1x2x4x8xf32>, %x: f32) {
  // expected-error @below {{'attn.dense' op expects the score region to use its arguments and what it computes, but operand 1 of 'arith.addf', 'f32', is of outside; capture what is outside: list it in parentheses behind 'score' or 'captures', and add an argument for it behind those of the entry}}
  %0 = "attn.dense"(%q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0>}> ({
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        // expected-note @below {{this operation}}
        %t = arith.addf %s, %x : f32
        attn.yield %t : f32
      }) : (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return
}

// -----

// Without a region there is nothing to capture for.
func.func @f(%q: tensor<1x2x4x8xf32>, %x: f32) {
  // expected-error @below {{'attn.dense' op expects no captures without a score region, but got 1}}
  %0 = "attn.dense"(%q, %q, %q, %x, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0>}> : (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, f32, tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return
}

// -----

// Scores of a table are those of several keys.
func.func @f(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x3x8xf32>, %z: tensor<1x2x4xi32>) {
  // expected-error @below {{'attn.stream' op expects no score region with codes, whose scores are those of a table}}
  %0 = attn.stream query(%q : tensor<1x2x4x8xf32>) source(%k, %q : tensor<1x2x3x8xf32>, tensor<1x2x4x8xf32>) codes(%z : tensor<1x2x4xi32>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %t = math.tanh %s : f32
        attn.yield %t : f32
      } outs(%q : tensor<1x2x4x8xf32>) {scale = 0.5} -> tensor<1x2x4x8xf32>
  return
}

// -----

// Zero to a negative power divides, too.
func.func @f(%q: tensor<1x2x4x8xf32>) {
  // expected-error @below {{expects the score region to divide integers by constants other than zero, but got 'math.ipowi'}}
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %n = arith.index_cast %j : index to i32
        // expected-note @below {{this operation}}
        %x = math.ipowi %n, %n : i32
        %z = arith.sitofp %x : i32 to f32
        attn.yield %z : f32
      } outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return
}

// -----

// Positions are counted in 32 bits, with room for differences.
func.func @f(%q: tensor<1x1x4x8xf32>, %k: tensor<1x1x268435456x8xf32>) {
  // expected-error @below {{expects batch entries, heads, queries and keys to be fewer than 268435456 with a score region, but got 268435456}}
  %0 = attn.dense ins(%q, %k, %k : tensor<1x1x4x8xf32>, tensor<1x1x268435456x8xf32>, tensor<1x1x268435456x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %t = math.tanh %s : f32
        attn.yield %t : f32
      } outs(%q : tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x4x8xf32>, %l: tensor<1x2x4xf32>, %t: tensor<3xf32>, %n: tensor<3xi32>, %u: tensor<4xf32>, %d: tensor<3xf64>) {
  // expected-error @below {{'attn.dense_backward' op expects d_captures to have a gradient for each of the 2 captured tensors of floating-point numbers, but got 1}}
  %0:4 = attn.dense_backward ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score(%t, %n, %t : tensor<3xf32>, tensor<3xi32>, tensor<3xf32>) {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: tensor<3xf32>, %y: tensor<3xi32>, %z: tensor<3xf32>):
        attn.yield %s : f32
      } forward(%q, %l : tensor<1x2x4x8xf32>, tensor<1x2x4xf32>) gradient(%q : tensor<1x2x4x8xf32>)
      outs(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) d_captures(%t : tensor<3xf32>)
      -> tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<3xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x4x8xf32>, %l: tensor<1x2x4xf32>, %t: tensor<3xf32>, %n: tensor<3xi32>, %u: tensor<4xf32>, %d: tensor<3xf64>) {
  // expected-error @below {{'attn.dense_backward' op expects d_captures[0] to have the shape of 'tensor<3xf32>', but got 'tensor<4xf32>'}}
  %0:4 = attn.dense_backward ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score(%t : tensor<3xf32>) {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: tensor<3xf32>):
        attn.yield %s : f32
      } forward(%q, %l : tensor<1x2x4x8xf32>, tensor<1x2x4xf32>) gradient(%q : tensor<1x2x4x8xf32>)
      outs(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) d_captures(%u : tensor<4xf32>)
      -> tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x4x8xf32>, %l: tensor<1x2x4xf32>, %t: tensor<3xf32>, %n: tensor<3xi32>, %u: tensor<4xf32>, %d: tensor<3xf64>) {
  // expected-error @below {{'attn.dense_backward' op expects d_captures[0] to hold 'f32', but got 'f64'}}
  %0:4 = attn.dense_backward ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score(%t : tensor<3xf32>) {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: tensor<3xf32>):
        attn.yield %s : f32
      } forward(%q, %l : tensor<1x2x4x8xf32>, tensor<1x2x4xf32>) gradient(%q : tensor<1x2x4x8xf32>)
      outs(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) d_captures(%d : tensor<3xf64>)
      -> tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<3xf64>
  return
}

// -----

#all = affine_map<(b)[rows, n] -> (0, rows)>

// Errors say which region it is.
func.func @f(%q: tensor<1x2x4x8xf32>, %t: tensor<3xf32>) {
  // expected-error @below {{'attn.stream' op expects the score region of source 1 to have 6 arguments: the score, batch entry, head, query and key, and 1 captures, but got 5}}
  %0 = attn.stream query(%q : tensor<1x2x4x8xf32>)
      source(%q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) ranges [#all]
      source(%q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        attn.yield %s : f32
      } ranges [#all]
      captures(%t : tensor<3xf32>) outs(%q : tensor<1x2x4x8xf32>) {scale = 0.5} -> tensor<1x2x4x8xf32>
  return
}

// -----

#all = affine_map<(b)[rows, n] -> (0, rows)>

func.func @f(%q: tensor<1x2x4x8xf32>, %n: index) {
  // expected-error @below {{'attn.stream' op expects the score region of source 0 to divide integers by constants other than zero, but got 'arith.remsi'}}
  %0 = attn.stream query(%q : tensor<1x2x4x8xf32>)
      source(%q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: index):
        // expected-note @below {{this operation}}
        %r = arith.remsi %j, %x : index
        attn.yield %s : f32
      } ranges [#all]
      captures(%n : index) outs(%q : tensor<1x2x4x8xf32>) {scale = 0.5} -> tensor<1x2x4x8xf32>
  return
}

// -----

#all = affine_map<(b)[rows, n] -> (0, rows)>

func.func @f(%q: tensor<1x2x4x8xf32>, %t: tensor<3xf32>) {
  // expected-error @below {{'attn.stream' op expects no captures without a score region, but got 1}}
  %0 = attn.stream query(%q : tensor<1x2x4x8xf32>)
      source(%q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) ranges [#all]
      captures(%t : tensor<3xf32>) outs(%q : tensor<1x2x4x8xf32>) {scale = 0.5} -> tensor<1x2x4x8xf32>
  return
}

// -----

#all = affine_map<(b)[rows, n] -> (0, rows)>

func.func @f(%q: tensor<1x2x4x8xf32>, %c: tensor<1x2x8x8xf32>, %z: tensor<1x2x4xi32>) {
  // expected-error @below {{'attn.stream' op expects no score region with codes, whose scores are those of a table}}
  %0 = attn.stream query(%q : tensor<1x2x4x8xf32>)
      source(%q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        attn.yield %s : f32
      } ranges [#all]
      source(%c, %q : tensor<1x2x8x8xf32>, tensor<1x2x4x8xf32>) codes(%z : tensor<1x2x4xi32>) ranges [#all]
      outs(%q : tensor<1x2x4x8xf32>) {scale = 0.5} -> tensor<1x2x4x8xf32>
  return
}

// -----

#all = affine_map<(b)[rows, n] -> (0, rows)>

func.func @f(%q: tensor<1x2x4x8xf32>) {
  // expected-error @below {{'attn.stream' op expects score regions of 1 sources, as they say, and one of all at most, but got 0}}
  %0 = "attn.stream"(%q, %q, %q, %q) <{block = 0 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0>,
      scale = 0.5 : f64, sources = [#attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <none>, log_weight = false, bias = false score = true>]}>
      : (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return
}
