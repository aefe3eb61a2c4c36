// RUN: fovea-opt %s --split-input-file --verify-diagnostics

// One case for each error of the verifiers.

func.func @build(%c: tensor<1x6x4xf32>, %t: tensor<1x7x4xf32>) -> tensor<1x7x4xf32> {
  // expected-error @below {{'attn.tree_build' op expects extent 1 of input to be a positive multiple of 4, the tokens of a root, but got 6}}
  %0 = attn.tree_build ins(%c : tensor<1x6x4xf32>) outs(%t : tensor<1x7x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x7x4xf32>
  return %0 : tensor<1x7x4xf32>
}

// -----

func.func @build(%c: tensor<1x0x4xf32>, %t: tensor<1x7x4xf32>) -> tensor<1x7x4xf32> {
  // expected-error @below {{'attn.tree_build' op expects extent 1 of input to be a positive multiple of 4, the tokens of a root, but got 0}}
  %0 = attn.tree_build ins(%c : tensor<1x0x4xf32>) outs(%t : tensor<1x7x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x7x4xf32>
  return %0 : tensor<1x7x4xf32>
}

// -----

func.func @build(%c: tensor<1x8x4xf32>, %t: tensor<1x7x4xf32>) -> tensor<1x7x4xf32> {
  // expected-error @below {{'attn.tree_build' op expects extent 1 of tree to be 14 (nodes over the tokens of input), but got 7}}
  %0 = attn.tree_build ins(%c : tensor<1x8x4xf32>) outs(%t : tensor<1x7x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x7x4xf32>
  return %0 : tensor<1x7x4xf32>
}

// -----

func.func @build(%c: tensor<1x4x4xf32>, %t: tensor<1x8x4xf32>) -> tensor<1x8x4xf32> {
  // expected-error @below {{'attn.tree_build' op expects the nodes of tree to be a positive multiple of 7 for #attn.tree<ratio = 2, levels = 2>, but got 8}}
  %0 = attn.tree_build ins(%c : tensor<1x4x4xf32>) outs(%t : tensor<1x8x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x8x4xf32>
  return %0 : tensor<1x8x4xf32>
}

// -----

func.func @build(%c: tensor<1x4x0xf32>, %t: tensor<1x7x0xf32>) -> tensor<1x7x0xf32> {
  // expected-error @below {{'attn.tree_build' op expects extent 2 of input to be at least 1, but got 0}}
  %0 = attn.tree_build ins(%c : tensor<1x4x0xf32>) outs(%t : tensor<1x7x0xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x7x0xf32>
  return %0 : tensor<1x7x0xf32>
}

// -----

func.func @build(%c: tensor<1x4x4xf16>, %t: tensor<1x7x4xf32>) -> tensor<1x7x4xf32> {
  // expected-error @below {{'attn.tree_build' op expects tree to have the element type of input, 'f16', but got 'f32'}}
  %0 = attn.tree_build ins(%c : tensor<1x4x4xf16>) outs(%t : tensor<1x7x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x7x4xf32>
  return %0 : tensor<1x7x4xf32>
}

// -----

func.func @build(%c: tensor<2x4x4xf32>, %t: tensor<1x7x4xf32>) -> tensor<1x7x4xf32> {
  // expected-error @below {{'attn.tree_build' op expects extent 0 of tree to be 2 (extent 0 of input), but got 1}}
  %0 = attn.tree_build ins(%c : tensor<2x4x4xf32>) outs(%t : tensor<1x7x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x7x4xf32>
  return %0 : tensor<1x7x4xf32>
}

// -----

func.func @build(%c: tensor<1x4x5xf32>, %t: tensor<1x7x4xf32>) -> tensor<1x7x4xf32> {
  // expected-error @below {{'attn.tree_build' op expects extent 2 of tree to be 5 (extent 2 of input), but got 4}}
  %0 = attn.tree_build ins(%c : tensor<1x4x5xf32>) outs(%t : tensor<1x7x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x7x4xf32>
  return %0 : tensor<1x7x4xf32>
}

// -----

func.func @build(%c: tensor<1x4x4xf32>, %t: tensor<1x7x4xf32>) -> tensor<1x8x4xf32> {
  // expected-error @below {{'attn.tree_build' op expects the result type to be that of its destination, 'tensor<1x7x4xf32>', but got 'tensor<1x8x4xf32>'}}
  %0 = attn.tree_build ins(%c : tensor<1x4x4xf32>) outs(%t : tensor<1x7x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x8x4xf32>
  return %0 : tensor<1x8x4xf32>
}

// -----

// expected-error @below {{expected a ratio of at least 2, but got 1}}
func.func private @f() attributes {a = #attn.tree<ratio = 1, levels = 2>}

// -----

// expected-error @below {{expected at least 1 level above the tokens, but got 0}}
func.func private @f() attributes {a = #attn.tree<ratio = 2, levels = 0>}

// -----

// expected-error @below {{expected roots of at most 2147483647 tokens, but got 2 to the power of 31}}
func.func private @f() attributes {a = #attn.tree<ratio = 2, levels = 31>}

// -----

func.func @build(%c: tensor<1x4x4xf32>, %m: tensor<1x4xi1>, %t: tensor<1x7x4xf32>) -> tensor<1x7x4xf32> {
  // expected-error @below {{'attn.tree_build' op expects counts in outs with a mask, and none without}}
  %0 = attn.tree_build ins(%c : tensor<1x4x4xf32>) mask(%m : tensor<1x4xi1>) outs(%t : tensor<1x7x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x7x4xf32>
  return %0 : tensor<1x7x4xf32>
}

// -----

func.func @build(%c: tensor<1x4x4xf32>, %m: tensor<1x5xi1>, %t: tensor<1x7x4xf32>, %n: tensor<1x7xi32>) -> tensor<1x7x4xf32> {
  // expected-error @below {{'attn.tree_build' op expects extent 1 of mask to be 4 (extent 1 of input), but got 5}}
  %0, %1 = attn.tree_build ins(%c : tensor<1x4x4xf32>) mask(%m : tensor<1x5xi1>) outs(%t, %n : tensor<1x7x4xf32>, tensor<1x7xi32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x7x4xf32>, tensor<1x7xi32>
  return %0 : tensor<1x7x4xf32>
}

// -----

func.func @fetch(%t: tensor<1x7x4xf32>, %l: tensor<1x3xi32>, %r: tensor<1x2x4xf32>) -> tensor<1x2x4xf32> {
  // expected-error @below {{'attn.tree_fetch' op expects extent 1 of rows to be 3 (extent 1 of level), but got 2}}
  %0 = attn.tree_fetch ins(%t : tensor<1x7x4xf32>) nodes(%l, %l : tensor<1x3xi32>, tensor<1x3xi32>) outs(%r : tensor<1x2x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x2x4xf32>
  return %0 : tensor<1x2x4xf32>
}

// -----

func.func @fetch(%t: tensor<1x7x4xf32>, %l: tensor<2x2xi32>, %r: tensor<1x2x4xf32>) -> tensor<1x2x4xf32> {
  // expected-error @below {{'attn.tree_fetch' op expects extent 0 of level to be 1 (extent 0 of tree), but got 2}}
  %0 = attn.tree_fetch ins(%t : tensor<1x7x4xf32>) nodes(%l, %l : tensor<2x2xi32>, tensor<2x2xi32>) outs(%r : tensor<1x2x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x2x4xf32>
  return %0 : tensor<1x2x4xf32>
}

// -----

func.func @fetch(%t: tensor<1x7x4xf32>, %l: tensor<1x2xi32>, %r: tensor<1x2x5xf32>) -> tensor<1x2x5xf32> {
  // expected-error @below {{'attn.tree_fetch' op expects extent 2 of rows to be 4 (extent 2 of tree), but got 5}}
  %0 = attn.tree_fetch ins(%t : tensor<1x7x4xf32>) nodes(%l, %l : tensor<1x2xi32>, tensor<1x2xi32>) outs(%r : tensor<1x2x5xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x2x5xf32>
  return %0 : tensor<1x2x5xf32>
}

// -----

func.func @fetch(%t: tensor<1x7x4xf32>, %l: tensor<1x2xi32>, %r: tensor<1x2x4xf64>) -> tensor<1x2x4xf64> {
  // expected-error @below {{'attn.tree_fetch' op expects rows to have the element type of tree, 'f32', but got 'f64'}}
  %0 = attn.tree_fetch ins(%t : tensor<1x7x4xf32>) nodes(%l, %l : tensor<1x2xi32>, tensor<1x2xi32>) outs(%r : tensor<1x2x4xf64>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x2x4xf64>
  return %0 : tensor<1x2x4xf64>
}

// -----

func.func @fetch(%t: tensor<1x7x4xf32>, %l: tensor<1x2xi32>, %r: tensor<1x2x?xf32>) -> tensor<1x2x?xf32> {
  // expected-error @below {{'attn.tree_fetch' op expects extent 2 of rows to be static, but got a dynamic extent}}
  %0 = attn.tree_fetch ins(%t : tensor<1x7x4xf32>) nodes(%l, %l : tensor<1x2xi32>, tensor<1x2xi32>) outs(%r : tensor<1x2x?xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x2x?xf32>
  return %0 : tensor<1x2x?xf32>
}

// -----

func.func @fetch(%t: tensor<1x7x4xf32>, %l: tensor<1x2xi32>, %r: tensor<1x2x4xf32>, %n: tensor<1x8xi32>) -> tensor<1x2x4xf32> {
  // expected-error @below {{'attn.tree_fetch' op expects extent 1 of counts to be 7 (extent 1 of tree), but got 8}}
  %0 = attn.tree_fetch ins(%t : tensor<1x7x4xf32>) nodes(%l, %l : tensor<1x2xi32>, tensor<1x2xi32>) counts(%n : tensor<1x8xi32>) outs(%r : tensor<1x2x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x2x4xf32>
  return %0 : tensor<1x2x4xf32>
}

// -----

func.func @fetch(%t: tensor<1x7x4xf32>, %l: tensor<1x2xi32>, %r: tensor<1x2x4xf32>, %w: tensor<1x2xf64>) -> tensor<1x2x4xf32> {
  // expected-error @below {{'attn.tree_fetch' op expects log_weight to hold 'f32', but got 'f64'}}
  %0, %1 = attn.tree_fetch ins(%t : tensor<1x7x4xf32>) nodes(%l, %l : tensor<1x2xi32>, tensor<1x2xi32>) outs(%r, %w : tensor<1x2x4xf32>, tensor<1x2xf64>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x2x4xf32>, tensor<1x2xf64>
  return %0 : tensor<1x2x4xf32>
}

// -----

func.func @fetch(%t: tensor<1x7x4xf32>, %l: tensor<1x2xi32>, %r: tensor<1x2x4xf32>, %w: tensor<1x3xf32>) -> tensor<1x2x4xf32> {
  // expected-error @below {{'attn.tree_fetch' op expects extent 1 of log_weight to be 2 (extent 1 of level), but got 3}}
  %0, %1 = attn.tree_fetch ins(%t : tensor<1x7x4xf32>) nodes(%l, %l : tensor<1x2xi32>, tensor<1x2xi32>) outs(%r, %w : tensor<1x2x4xf32>, tensor<1x3xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x2x4xf32>, tensor<1x3xf32>
  return %0 : tensor<1x2x4xf32>
}

// -----

func.func @update(%r: tensor<1x5x4xf32>, %l: tensor<1x5xi32>, %t: tensor<1x7x4xf32>) -> tensor<1x7x4xf32> {
  // expected-error @below {{'attn.tree_update' op expects a number of nodes that can cover the sequence, 1 and a multiple of 1 up to 4 in all, but got 5}}
  %0 = attn.tree_update ins(%r : tensor<1x5x4xf32>) nodes(%l, %l : tensor<1x5xi32>, tensor<1x5xi32>) outs(%t : tensor<1x7x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x7x4xf32>
  return %0 : tensor<1x7x4xf32>
}

// -----

func.func @update(%r: tensor<1x0x4xf32>, %l: tensor<1x0xi32>, %t: tensor<1x7x4xf32>) -> tensor<1x7x4xf32> {
  // expected-error @below {{'attn.tree_update' op expects a number of nodes that can cover the sequence, 1 and a multiple of 1 up to 4 in all, but got 0}}
  %0 = attn.tree_update ins(%r : tensor<1x0x4xf32>) nodes(%l, %l : tensor<1x0xi32>, tensor<1x0xi32>) outs(%t : tensor<1x7x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x7x4xf32>
  return %0 : tensor<1x7x4xf32>
}

// -----

func.func @materialize(%t: tensor<1x7x4xf32>, %o: tensor<1x5x4xf32>) -> tensor<1x5x4xf32> {
  // expected-error @below {{'attn.tree_materialize' op expects extent 1 of output to be 4 (tokens under the nodes of tree), but got 5}}
  %0 = attn.tree_materialize ins(%t : tensor<1x7x4xf32>) outs(%o : tensor<1x5x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x5x4xf32>
  return %0 : tensor<1x5x4xf32>
}

// -----

func.func @select(%t: tensor<1x7x4xf32>, %l: tensor<1x3xi32>, %s: tensor<1x?xf32>) -> tensor<1x3xi32> {
  // expected-error @below {{'attn.tree_select' op expects a budget for each of the 2 levels from 1 on, but got 1}}
  %0, %1 = attn.tree_select ins(%t : tensor<1x7x4xf32>) outs(%l, %l : tensor<1x3xi32>, tensor<1x3xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, budgets = array<i64: 1>} -> tensor<1x3xi32>, tensor<1x3xi32> score {
  ^bb0(%rows: tensor<1x?x4xf32>):
    attn.yield %s : tensor<1x?xf32>
  }
  return %0 : tensor<1x3xi32>
}

// -----

func.func @select(%t: tensor<1x7x4xf32>, %l: tensor<1x3xi32>, %s: tensor<1x?xf32>) -> tensor<1x3xi32> {
  // expected-error @below {{'attn.tree_select' op expects a budget of 0 to 1 at level 2, which has as many candidates, but got 2}}
  %0, %1 = attn.tree_select ins(%t : tensor<1x7x4xf32>) outs(%l, %l : tensor<1x3xi32>, tensor<1x3xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, budgets = array<i64: 1, 2>} -> tensor<1x3xi32>, tensor<1x3xi32> score {
  ^bb0(%rows: tensor<1x?x4xf32>):
    attn.yield %s : tensor<1x?xf32>
  }
  return %0 : tensor<1x3xi32>
}

// -----

func.func @select(%t: tensor<1x7x4xf32>, %l: tensor<1x3xi32>, %s: tensor<1x?xf32>) -> tensor<1x3xi32> {
  // expected-error @below {{'attn.tree_select' op expects a budget of 0 to 2 at level 1, which has as many candidates, but got 3}}
  %0, %1 = attn.tree_select ins(%t : tensor<1x7x4xf32>) outs(%l, %l : tensor<1x3xi32>, tensor<1x3xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, budgets = array<i64: 3, 1>} -> tensor<1x3xi32>, tensor<1x3xi32> score {
  ^bb0(%rows: tensor<1x?x4xf32>):
    attn.yield %s : tensor<1x?xf32>
  }
  return %0 : tensor<1x3xi32>
}

// -----

func.func @select(%t: tensor<1x7x4xf32>, %l: tensor<1x3xi32>, %s: tensor<1x?xf32>) -> tensor<1x3xi32> {
  // expected-error @below {{'attn.tree_select' op expects a budget of 0 to 0 at level 1, which has as many candidates, but got 1}}
  %0, %1 = attn.tree_select ins(%t : tensor<1x7x4xf32>) outs(%l, %l : tensor<1x3xi32>, tensor<1x3xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, budgets = array<i64: 1, 0>} -> tensor<1x3xi32>, tensor<1x3xi32> score {
  ^bb0(%rows: tensor<1x?x4xf32>):
    attn.yield %s : tensor<1x?xf32>
  }
  return %0 : tensor<1x3xi32>
}

// -----

func.func @select(%t: tensor<1x7x4xf32>, %l: tensor<1x4xi32>, %s: tensor<1x?xf32>) -> tensor<1x4xi32> {
  // expected-error @below {{'attn.tree_select' op expects extent 1 of level to be 3 (nodes that the budgets leave), but got 4}}
  %0, %1 = attn.tree_select ins(%t : tensor<1x7x4xf32>) outs(%l, %l : tensor<1x4xi32>, tensor<1x4xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, budgets = array<i64: 1, 1>} -> tensor<1x4xi32>, tensor<1x4xi32> score {
  ^bb0(%rows: tensor<1x?x4xf32>):
    attn.yield %s : tensor<1x?xf32>
  }
  return %0 : tensor<1x4xi32>
}

// -----

func.func @select(%t: tensor<1x7x4xf32>, %l: tensor<1x3xi32>, %s: tensor<1x?xf32>) -> tensor<1x3xi32> {
  // expected-error @below {{'attn.tree_select' op expects a region that takes rows of the 2 candidates of level 1, but got 'tensor<1x3x4xf32>'}}
  %0, %1 = attn.tree_select ins(%t : tensor<1x7x4xf32>) outs(%l, %l : tensor<1x3xi32>, tensor<1x3xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, budgets = array<i64: 1, 1>} -> tensor<1x3xi32>, tensor<1x3xi32> score {
  ^bb0(%rows: tensor<1x3x4xf32>):
    attn.yield %s : tensor<1x?xf32>
  }
  return %0 : tensor<1x3xi32>
}

// -----

func.func @select(%t: tensor<1x7x4xf32>, %l: tensor<1x3xi32>, %s: tensor<1x?xf32>) -> tensor<1x3xi32> {
  // expected-error @below {{'attn.tree_select' op expects a region that takes 'f32' log weights of the 2 candidates of level 1, but got 'tensor<1x?xf64>'}}
  %0, %1 = attn.tree_select ins(%t : tensor<1x7x4xf32>) outs(%l, %l : tensor<1x3xi32>, tensor<1x3xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, budgets = array<i64: 1, 1>} -> tensor<1x3xi32>, tensor<1x3xi32> score {
  ^bb0(%rows: tensor<1x?x4xf32>, %w: tensor<1x?xf64>):
    attn.yield %s : tensor<1x?xf32>
  }
  return %0 : tensor<1x3xi32>
}

// -----

func.func @select(%t: tensor<1x7x4xf32>, %l: tensor<1x3xi32>, %s: tensor<1x?xf32>) -> tensor<1x3xi32> {
  // expected-error @below {{'attn.tree_select' op expects a region of 1 or 2 arguments, the rows and log weights of candidates, but got 3}}
  %0, %1 = attn.tree_select ins(%t : tensor<1x7x4xf32>) outs(%l, %l : tensor<1x3xi32>, tensor<1x3xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, budgets = array<i64: 1, 1>} -> tensor<1x3xi32>, tensor<1x3xi32> score {
  ^bb0(%rows: tensor<1x?x4xf32>, %w: tensor<1x?xf32>, %x: tensor<1x?xf32>):
    attn.yield %s : tensor<1x?xf32>
  }
  return %0 : tensor<1x3xi32>
}

// -----

func.func @select(%t: tensor<1x7x4xf32>, %l: tensor<1x3xi32>, %s: tensor<1x3xf32>) -> tensor<1x3xi32> {
  // expected-error @below {{'attn.tree_select' op expects scores of the 2 candidates of level 1, but got 'tensor<1x3xf32>'}}
  %0, %1 = attn.tree_select ins(%t : tensor<1x7x4xf32>) outs(%l, %l : tensor<1x3xi32>, tensor<1x3xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, budgets = array<i64: 1, 1>} -> tensor<1x3xi32>, tensor<1x3xi32> score {
  ^bb0(%rows: tensor<1x?x4xf32>):
    attn.yield %s : tensor<1x3xf32>
  }
  return %0 : tensor<1x3xi32>
}

// -----

func.func @select(%t: tensor<1x7x4xf32>, %l: tensor<1x3xi32>, %s: tensor<1x?xi32>) -> tensor<1x3xi32> {
  // expected-error @below {{'attn.tree_select' op expects scores of f32 or f64, but got 'tensor<1x?xi32>'}}
  %0, %1 = attn.tree_select ins(%t : tensor<1x7x4xf32>) outs(%l, %l : tensor<1x3xi32>, tensor<1x3xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, budgets = array<i64: 1, 1>} -> tensor<1x3xi32>, tensor<1x3xi32> score {
  ^bb0(%rows: tensor<1x?x4xf32>):
    attn.yield %s : tensor<1x?xi32>
  }
  return %0 : tensor<1x3xi32>
}

// -----

func.func @split(%s: tensor<1x1xf32>, %r: tensor<1x2xi32>, %c: tensor<1x2xi32>) -> tensor<1x2xi32> {
  // expected-error @below {{'attn.tree_split' op expects a level of 1 to 2 to split, but got 3}}
  %0, %1, %2 = attn.tree_split scores(%s : tensor<1x1xf32>) outs(%r, %r, %c : tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, at = 3 : i64, split = 1 : i64} -> tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>
  return %0 : tensor<1x2xi32>
}

// -----

func.func @split(%s: tensor<1x1xf32>, %r: tensor<1x2xi32>, %c: tensor<1x2xi32>) -> tensor<1x2xi32> {
  // expected-error @below {{'attn.tree_split' op expects a frontier to split level 1, which is not that of the roots}}
  %0, %1, %2 = attn.tree_split scores(%s : tensor<1x1xf32>) outs(%r, %r, %c : tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, at = 1 : i64, split = 1 : i64} -> tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>
  return %0 : tensor<1x2xi32>
}

// -----

func.func @split(%s: tensor<1x1xf32>, %r: tensor<1x2xi32>, %c: tensor<1x2xi32>) -> tensor<1x2xi32> {
  // expected-error @below {{'attn.tree_split' op expects to split 0 to 0 candidates, but got 2}}
  %0, %1, %2 = attn.tree_split scores(%s : tensor<1x1xf32>) outs(%r, %r, %c : tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, at = 2 : i64, split = 2 : i64} -> tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>
  return %0 : tensor<1x2xi32>
}

// -----

func.func @split(%s: tensor<1x1xf32>, %r: tensor<1x4xi32>, %c: tensor<1x2xi32>) -> tensor<1x4xi32> {
  // expected-error @below {{'attn.tree_split' op expects scores to choose 1 of 3 candidates}}
  %0, %1, %2 = attn.tree_split outs(%r, %r, %c : tensor<1x4xi32>, tensor<1x4xi32>, tensor<1x2xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, at = 2 : i64, split = 1 : i64} -> tensor<1x4xi32>, tensor<1x4xi32>, tensor<1x2xi32>
  return %0 : tensor<1x4xi32>
}

// -----

func.func @split(%s: tensor<1x2xf32>, %r: tensor<1x2xi32>, %c: tensor<1x2xi32>) -> tensor<1x2xi32> {
  // expected-error @below {{'attn.tree_split' op expects extent 1 of scores to be 1 (candidates), but got 2}}
  %0, %1, %2 = attn.tree_split scores(%s : tensor<1x2xf32>) outs(%r, %r, %c : tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, at = 2 : i64, split = 1 : i64} -> tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>
  return %0 : tensor<1x2xi32>
}

// -----

func.func @split(%s: tensor<1x1xf32>, %r: tensor<1x2xi32>, %c: tensor<1x3xi32>) -> tensor<1x2xi32> {
  // expected-error @below {{'attn.tree_split' op expects extent 1 of children to be 2 (children of the split nodes), but got 3}}
  %0, %1, %2 = attn.tree_split scores(%s : tensor<1x1xf32>) outs(%r, %r, %c : tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x3xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, at = 2 : i64, split = 1 : i64} -> tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x3xi32>
  return %0 : tensor<1x2xi32>
}

// -----

func.func @split(%s: tensor<1x1xf32>, %r: tensor<1x2xi32>, %c: tensor<1x2xi32>, %n: tensor<1x8xi32>) -> tensor<1x2xi32> {
  // expected-error @below {{'attn.tree_split' op expects the nodes of counts to be a positive multiple of 7 for #attn.tree<ratio = 2, levels = 2>, but got 'tensor<1x8xi32>'}}
  %0, %1, %2 = attn.tree_split scores(%s : tensor<1x1xf32>) counts(%n : tensor<1x8xi32>) outs(%r, %r, %c : tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, at = 2 : i64, split = 1 : i64} -> tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>
  return %0 : tensor<1x2xi32>
}

// -----

func.func @split(%s: tensor<1x1xf32>, %r: tensor<1x2xi32>, %c: tensor<1x2xi32>, %n: tensor<1x14xi32>) -> tensor<1x2xi32> {
  // expected-error @below {{'attn.tree_split' op expects counts of a tree with 1 roots, but got 2}}
  %0, %1, %2 = attn.tree_split scores(%s : tensor<1x1xf32>) counts(%n : tensor<1x14xi32>) outs(%r, %r, %c : tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, at = 2 : i64, split = 1 : i64} -> tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>
  return %0 : tensor<1x2xi32>
}

// -----

func.func @score(%q: tensor<1x4x3x8xf32>, %k: tensor<1x2x5x8xf64>, %o: tensor<1x5xf32>) -> tensor<1x5xf32> {
  // expected-error @below {{'attn.tree_score' op expects key to have the element type of query, 'f32', but got 'f64'}}
  %0 = attn.tree_score ins(%q, %k : tensor<1x4x3x8xf32>, tensor<1x2x5x8xf64>) outs(%o : tensor<1x5xf32>) {} -> tensor<1x5xf32>
  return %0 : tensor<1x5xf32>
}

// -----

func.func @score(%q: tensor<1x4x3x8xf32>, %k: tensor<1x3x5x8xf32>, %o: tensor<1x5xf32>) -> tensor<1x5xf32> {
  // expected-error @below {{'attn.tree_score' op expects extent 1 of query to be a multiple of extent 1 of key, but got 4 and 3}}
  %0 = attn.tree_score ins(%q, %k : tensor<1x4x3x8xf32>, tensor<1x3x5x8xf32>) outs(%o : tensor<1x5xf32>) {} -> tensor<1x5xf32>
  return %0 : tensor<1x5xf32>
}

// -----

func.func @score(%q: tensor<1x4x3x8xf32>, %k: tensor<1x?x5x8xf32>, %o: tensor<1x5xf32>) -> tensor<1x5xf32> {
  // expected-error @below {{'attn.tree_score' op expects extent 1 of key to be static, but got a dynamic extent}}
  %0 = attn.tree_score ins(%q, %k : tensor<1x4x3x8xf32>, tensor<1x?x5x8xf32>) outs(%o : tensor<1x5xf32>) {} -> tensor<1x5xf32>
  return %0 : tensor<1x5xf32>
}

// -----

func.func @score(%q: tensor<1x4x3x?xf32>, %k: tensor<1x2x5x8xf32>, %o: tensor<1x5xf32>) -> tensor<1x5xf32> {
  // expected-error @below {{'attn.tree_score' op expects extent 3 of query to be static, but got a dynamic extent}}
  %0 = attn.tree_score ins(%q, %k : tensor<1x4x3x?xf32>, tensor<1x2x5x8xf32>) outs(%o : tensor<1x5xf32>) {} -> tensor<1x5xf32>
  return %0 : tensor<1x5xf32>
}

// -----

func.func @score(%q: tensor<1x4x3x8xf32>, %k: tensor<1x2x5x8xf32>, %o: tensor<1x5xf32>) -> tensor<1x5xf32> {
  // expected-error @below {{'attn.tree_score' op expects one head with exponential, but got 4}}
  %0 = attn.tree_score ins(%q, %k : tensor<1x4x3x8xf32>, tensor<1x2x5x8xf32>) outs(%o : tensor<1x5xf32>) {exponential} -> tensor<1x5xf32>
  return %0 : tensor<1x5xf32>
}

// -----

func.func @score(%q: tensor<1x4x3x8xf32>, %k: tensor<1x2x5x8xf32>, %o: tensor<1x5xf32>) -> tensor<1x5xf32> {
  // expected-error @below {{'attn.tree_score' op attribute 'scale' failed to satisfy constraint: 64-bit float attribute which is finite}}
  %0 = attn.tree_score ins(%q, %k : tensor<1x4x3x8xf32>, tensor<1x2x5x8xf32>) outs(%o : tensor<1x5xf32>) {scale = 0x7FF0000000000000 : f64} -> tensor<1x5xf32>
  return %0 : tensor<1x5xf32>
}

// -----

func.func @score(%q: tensor<1x4x3x8xf32>, %k: tensor<1x2x5x9xf32>, %o: tensor<1x5xf32>) -> tensor<1x5xf32> {
  // expected-error @below {{'attn.tree_score' op expects extent 3 of key to be 8 (extent 3 of query), but got 9}}
  %0 = attn.tree_score ins(%q, %k : tensor<1x4x3x8xf32>, tensor<1x2x5x9xf32>) outs(%o : tensor<1x5xf32>) {} -> tensor<1x5xf32>
  return %0 : tensor<1x5xf32>
}

// -----

func.func @score(%q: tensor<1x4x3x8xf32>, %k: tensor<1x2x5x8xf32>, %o: tensor<1x6xf32>) -> tensor<1x6xf32> {
  // expected-error @below {{'attn.tree_score' op expects extent 1 of output to be 5 (extent 2 of key), but got 6}}
  %0 = attn.tree_score ins(%q, %k : tensor<1x4x3x8xf32>, tensor<1x2x5x8xf32>) outs(%o : tensor<1x6xf32>) {} -> tensor<1x6xf32>
  return %0 : tensor<1x6xf32>
}

// -----

func.func @score(%q: tensor<1x4x3x8xf32>, %k: tensor<1x2x5x8xf32>, %o: tensor<1x5xf64>) -> tensor<1x5xf64> {
  // expected-error @below {{'attn.tree_score' op expects output to hold 'f32', but got 'f64'}}
  %0 = attn.tree_score ins(%q, %k : tensor<1x4x3x8xf32>, tensor<1x2x5x8xf32>) outs(%o : tensor<1x5xf64>) {} -> tensor<1x5xf64>
  return %0 : tensor<1x5xf64>
}

// -----

func.func @score(%q: tensor<1x1x3x8xf32>, %k: tensor<1x1x5x8xf32>, %o: tensor<1x5xf32>, %w: tensor<1x5xf32>) -> tensor<1x5xf32> {
  // expected-error @below {{'attn.tree_score' op expects no log weights with exponential}}
  %0 = attn.tree_score ins(%q, %k : tensor<1x1x3x8xf32>, tensor<1x1x5x8xf32>) log_weight(%w : tensor<1x5xf32>) outs(%o : tensor<1x5xf32>) {exponential} -> tensor<1x5xf32>
  return %0 : tensor<1x5xf32>
}

// -----

func.func @split(%s: tensor<1x1xf32>, %r: tensor<1x2xi32>, %c: tensor<1x2xi32>) -> tensor<1x2xi32> {
  // expected-error @below {{'attn.tree_split' op expects to split 0 to 2 nodes, but got 4611686018427387904}}
  %0, %1, %2 = attn.tree_split scores(%s : tensor<1x1xf32>) outs(%r, %r, %c : tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, at = 2 : i64, split = 4611686018427387904 : i64} -> tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>
  return %0 : tensor<1x2xi32>
}

// -----

func.func @select(%t: tensor<1x7x4xf32>, %l: tensor<1x3xi32>) -> tensor<1x3xi32> {
  // expected-error @below {{'attn.tree_select' op expects a region that ends in attn.yield of one tensor}}
  %0, %1 = attn.tree_select ins(%t : tensor<1x7x4xf32>) outs(%l, %l : tensor<1x3xi32>, tensor<1x3xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, budgets = array<i64: 1, 1>} -> tensor<1x3xi32>, tensor<1x3xi32> score {
  ^bb0(%rows: tensor<1x?x4xf32>):
    func.return
  }
  return %0 : tensor<1x3xi32>
}

// -----

func.func @select(%t: memref<1x7x4xf32>, %l: memref<1x3xi32>, %s: tensor<1x?xf32>) {
  // expected-error @below {{'attn.tree_select' op expects tensors: expand it before bufferization}}
  attn.tree_select ins(%t : memref<1x7x4xf32>) outs(%l, %l : memref<1x3xi32>, memref<1x3xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, budgets = array<i64: 1, 1>} score {
  ^bb0(%rows: tensor<1x?x4xf32>):
    attn.yield %s : tensor<1x?xf32>
  }
  return
}

// -----

func.func @select(%t: tensor<1x7x4xf32>, %l: tensor<1x3xi32>, %s: tensor<1x?xf32>, %f: tensor<1x3xf64>) -> tensor<1x3xi32> {
  // expected-error @below {{'attn.tree_select' op expects factor to hold 'f32', but got 'f64'}}
  %0, %1, %2 = attn.tree_select ins(%t : tensor<1x7x4xf32>) outs(%l, %l : tensor<1x3xi32>, tensor<1x3xi32>) straight_through(%f : tensor<1x3xf64>) {shape = #attn.tree<ratio = 2, levels = 2>, budgets = array<i64: 1, 1>} -> tensor<1x3xi32>, tensor<1x3xi32>, tensor<1x3xf64> score {
  ^bb0(%rows: tensor<1x?x4xf32>):
    attn.yield %s : tensor<1x?xf32>
  }
  return %0 : tensor<1x3xi32>
}

// -----

func.func @select(%t: tensor<1x7x4xf32>, %l: tensor<1x3xi32>, %s: tensor<1x?xf32>, %f: tensor<1x4xf32>) -> tensor<1x3xi32> {
  // expected-error @below {{'attn.tree_select' op expects extent 1 of factor to be 3 (extent 1 of level), but got 4}}
  %0, %1, %2 = attn.tree_select ins(%t : tensor<1x7x4xf32>) outs(%l, %l : tensor<1x3xi32>, tensor<1x3xi32>) straight_through(%f : tensor<1x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>, budgets = array<i64: 1, 1>} -> tensor<1x3xi32>, tensor<1x3xi32>, tensor<1x4xf32> score {
  ^bb0(%rows: tensor<1x?x4xf32>):
    attn.yield %s : tensor<1x?xf32>
  }
  return %0 : tensor<1x3xi32>
}

// -----

func.func @build(%c: tensor<1x1227133520x4xf32>, %t: tensor<1x2147483660x4xf32>) -> tensor<1x2147483660x4xf32> {
  // expected-error @below {{'attn.tree_build' op expects at most 2147483647 nodes, but got 2147483660}}
  %0 = attn.tree_build ins(%c : tensor<1x1227133520x4xf32>) outs(%t : tensor<1x2147483660x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x2147483660x4xf32>
  return %0 : tensor<1x2147483660x4xf32>
}

// -----

// Only the generic form can leave a part of a frontier out.
func.func @split(%s: tensor<1x1xf32>, %n: tensor<1x1xi32>, %r: tensor<1x2xi32>, %c: tensor<1x2xi32>) -> tensor<1x2xi32> {
  // expected-error @below {{'attn.tree_split' op expects a frontier of candidates, level and index}}
  %0, %1, %2 = "attn.tree_split"(%s, %n, %r, %r, %c) <{operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 1, 1, 1>, shape = #attn.tree<ratio = 2, levels = 2>, at = 1 : i64, split = 1 : i64}> : (tensor<1x1xf32>, tensor<1x1xi32>, tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>) -> (tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>)
  return %0 : tensor<1x2xi32>
}

// -----

func.func @split(%s: tensor<1x2xf32>, %n: tensor<1x2xi32>, %l: tensor<1x1xi32>, %r: tensor<1x2xi32>, %c: tensor<1x2xi32>) -> tensor<1x2xi32> {
  // expected-error @below {{'attn.tree_split' op expects a frontier of at least 2 nodes, but got 1}}
  %0, %1, %2 = attn.tree_split scores(%s : tensor<1x2xf32>) frontier(%n, %l, %l : tensor<1x2xi32>, tensor<1x1xi32>, tensor<1x1xi32>) outs(%r, %r, %c : tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, at = 1 : i64, split = 1 : i64} -> tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>
  return %0 : tensor<1x2xi32>
}

// -----

func.func @build(%c: tensor<1x9223372036854775804x4xf32>, %t: tensor<1x7x4xf32>) -> tensor<1x7x4xf32> {
  // expected-error @below {{'attn.tree_build' op expects at most 2147483647 tokens, but got 9223372036854775804}}
  %0 = attn.tree_build ins(%c : tensor<1x9223372036854775804x4xf32>) outs(%t : tensor<1x7x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x7x4xf32>
  return %0 : tensor<1x7x4xf32>
}

// -----

func.func @split(%s: tensor<1x1xf32>, %r: tensor<1x9223372036854775807xi32>, %c: tensor<1x2xi32>) {
  // expected-error @below {{'attn.tree_split' op expects at most 2147483647 nodes of new_level, but got 9223372036854775807}}
  %0, %1, %2 = attn.tree_split scores(%s : tensor<1x1xf32>) outs(%r, %r, %c : tensor<1x9223372036854775807xi32>, tensor<1x9223372036854775807xi32>, tensor<1x2xi32>) {shape = #attn.tree<ratio = 1073741824, levels = 1>, at = 1 : i64, split = 9223372036854775807 : i64} -> tensor<1x9223372036854775807xi32>, tensor<1x9223372036854775807xi32>, tensor<1x2xi32>
  return
}

// -----

func.func @dynamic_children(%s: tensor<1x1xf32>, %r: tensor<1x2xi32>, %c: tensor<1x?xi32>) {
  // expected-error @below {{'attn.tree_split' op expects a static extent 1 of children}}
  %0, %1, %2 = attn.tree_split scores(%s : tensor<1x1xf32>) outs(%r, %r, %c : tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x?xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, at = 2 : i64, split = 1 : i64} -> tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x?xi32>
  return
}

// -----

func.func @select_index(%t: tensor<1x7x4xf32>, %l: tensor<1x?xi32>, %i: tensor<1x4xi32>, %s: tensor<1x?xf32>, %f: tensor<1x?xf32>) -> tensor<1x?xi32> {
  // expected-error @below {{'attn.tree_select' op expects extent 1 of index to be 3 (nodes that the budgets leave), but got 4}}
  %0, %1, %2 = attn.tree_select ins(%t : tensor<1x7x4xf32>) outs(%l, %i : tensor<1x?xi32>, tensor<1x4xi32>) straight_through(%f : tensor<1x?xf32>) {shape = #attn.tree<ratio = 2, levels = 2>, budgets = array<i64: 1, 1>} -> tensor<1x?xi32>, tensor<1x4xi32>, tensor<1x?xf32> score {
  ^bb0(%rows: tensor<1x?x4xf32>):
    attn.yield %s : tensor<1x?xf32>
  }
  return %0 : tensor<1x?xi32>
}

// -----

func.func @select_of_any_roots(%t: tensor<?x?x4xf32>, %l: tensor<?x?xi32>, %s: tensor<?x?xf32>) -> tensor<?x?xi32> {
  // expected-error @below {{'attn.tree_select' op expects a budget of 0 to 2 at level 1, which has as many candidates, but got 3}}
  %0, %1 = attn.tree_select ins(%t : tensor<?x?x4xf32>) outs(%l, %l : tensor<?x?xi32>, tensor<?x?xi32>) {shape = #attn.tree<ratio = 2, levels = 2>, budgets = array<i64: 3, 1>} -> tensor<?x?xi32>, tensor<?x?xi32> score {
  ^bb0(%rows: tensor<?x?x4xf32>):
    attn.yield %s : tensor<?x?xf32>
  }
  return %0 : tensor<?x?xi32>
}
