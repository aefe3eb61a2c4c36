// Trees of averages on the emulated GPU against the reference: padding, several
// batch entries and levels, types, and any order of threads.

// REQUIRES: long-tests
// RUN: fovea-run %s --entry=build --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=update --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=slices --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=tall --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=select --target=gpu-sim --random --compare=reference --schedule=seed=5 | FileCheck %s
// RUN: fovea-run %s --entry=lengths --target=gpu-sim --random --compare=reference --schedule=seed=6 | FileCheck %s
// RUN: fovea-run %s --entry=lengths --target=cpu --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=none --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=none --target=cpu --random --compare=reference | FileCheck %s
// CHECK: agrees with the reference
// CHECK-NOT: differs

#tree = #attn.tree<ratio = 3, levels = 2>
#two = #attn.tree<ratio = 2, levels = 2>
#tall = #attn.tree<ratio = 2, levels = 13>
#deep = #attn.tree<ratio = 2, levels = 4>

func.func @build(%c: tensor<2x18x5xbf16>) -> (tensor<2x26x5xbf16>, tensor<2x26xi32>, tensor<2x18x5xbf16>) {
  %mask = arith.constant dense<[
    [true, true, false, true, true, true, false, false, false, true, true, true, true, true, true, false, false, false],
    [true, true, true, true, true, true, true, true, true, false, false, false, false, false, false, false, false, false]]> : tensor<2x18xi1>
  %t = tensor.empty() : tensor<2x26x5xbf16>
  %n = tensor.empty() : tensor<2x26xi32>
  %tree, %counts = attn.tree_build ins(%c : tensor<2x18x5xbf16>) mask(%mask : tensor<2x18xi1>)
      outs(%t, %n : tensor<2x26x5xbf16>, tensor<2x26xi32>) {shape = #tree} -> tensor<2x26x5xbf16>, tensor<2x26xi32>
  %o = tensor.empty() : tensor<2x18x5xbf16>
  %d = attn.tree_materialize ins(%tree : tensor<2x26x5xbf16>) outs(%o : tensor<2x18x5xbf16>) {shape = #tree} -> tensor<2x18x5xbf16>
  return %tree, %counts, %d : tensor<2x26x5xbf16>, tensor<2x26xi32>, tensor<2x18x5xbf16>
}

// A root as it is, one split twice, and one with padding.
func.func @update(%c: tensor<1x27x33xf32>, %r: tensor<1x9x33xf32>) -> (tensor<1x39x33xf32>, tensor<1x27x33xf32>) {
  %mask = arith.constant dense<[
    [true, true, true, true, true, true, true, true, true, true, true, true, true, true, true, true, true, true,
     true, true, true, true, false, true, false, false, false]]> : tensor<1x27xi1>
  %t = tensor.empty() : tensor<1x39x33xf32>
  %n = tensor.empty() : tensor<1x39xi32>
  %tree, %counts = attn.tree_build ins(%c : tensor<1x27x33xf32>) mask(%mask : tensor<1x27xi1>)
      outs(%t, %n : tensor<1x39x33xf32>, tensor<1x39xi32>) {shape = #tree} -> tensor<1x39x33xf32>, tensor<1x39xi32>
  %l = arith.constant dense<[[2, 1, 0, 0, 0, 1, 1, 1, 1]]> : tensor<1x9xi32>
  %i = arith.constant dense<[[0, 3, 12, 13, 14, 5, 6, 7, 8]]> : tensor<1x9xi32>
  %new = attn.tree_update ins(%r : tensor<1x9x33xf32>) nodes(%l, %i : tensor<1x9xi32>, tensor<1x9xi32>) counts(%counts : tensor<1x39xi32>)
      outs(%tree : tensor<1x39x33xf32>) {shape = #tree} -> tensor<1x39x33xf32>
  %o = tensor.empty() : tensor<1x27x33xf32>
  %d = attn.tree_materialize ins(%new : tensor<1x39x33xf32>) outs(%o : tensor<1x27x33xf32>) {shape = #tree} -> tensor<1x27x33xf32>
  return %new, %d : tensor<1x39x33xf32>, tensor<1x27x33xf32>
}

// Four levels of splits, scored by two heads that share keys; rows and log
// weights of what is left.
func.func @select(%p: tensor<1x2x3x8xf32>, %c: tensor<1x48x8xf32>) -> (tensor<1x11xi32>, tensor<1x11xi32>, tensor<1x11x8xf32>, tensor<1x11xf32>) {
  %t = tensor.empty() : tensor<1x93x8xf32>
  %tree = attn.tree_build ins(%c : tensor<1x48x8xf32>) outs(%t : tensor<1x93x8xf32>) {shape = #deep} -> tensor<1x93x8xf32>
  %li = tensor.empty() : tensor<1x11xi32>
  %level, %index = attn.tree_select ins(%tree : tensor<1x93x8xf32>) outs(%li, %li : tensor<1x11xi32>, tensor<1x11xi32>)
      {shape = #deep, budgets = array<i64: 1, 2, 3, 2>} -> tensor<1x11xi32>, tensor<1x11xi32> score {
  ^bb0(%rows: tensor<1x?x8xf32>, %weights: tensor<1x?xf32>):
    %one = arith.constant 1 : index
    %n = tensor.dim %rows, %one : tensor<1x?x8xf32>
    %keys = tensor.expand_shape %rows [[0, 1], [2], [3]] output_shape [1, 1, %n, 8] : tensor<1x?x8xf32> into tensor<1x1x?x8xf32>
    %init = tensor.empty(%n) : tensor<1x?xf32>
    %score = attn.tree_score ins(%p, %keys : tensor<1x2x3x8xf32>, tensor<1x1x?x8xf32>) log_weight(%weights : tensor<1x?xf32>)
        outs(%init : tensor<1x?xf32>) -> tensor<1x?xf32>
    attn.yield %score : tensor<1x?xf32>
  }
  %ri = tensor.empty() : tensor<1x11x8xf32>
  %wi = tensor.empty() : tensor<1x11xf32>
  %rows, %weight = attn.tree_fetch ins(%tree : tensor<1x93x8xf32>) nodes(%level, %index : tensor<1x11xi32>, tensor<1x11xi32>)
      outs(%ri, %wi : tensor<1x11x8xf32>, tensor<1x11xf32>) {shape = #deep} -> tensor<1x11x8xf32>, tensor<1x11xf32>
  return %level, %index, %rows, %weight : tensor<1x11xi32>, tensor<1x11xi32>, tensor<1x11x8xf32>, tensor<1x11xf32>
}

// The second sequence has fewer candidates than both budgets: the lists end in
// absent nodes, whose rows are zeros and which an update passes over.
func.func @lengths(%c: tensor<2x18x5xf32>, %s: tensor<2x2xf32>, %t: tensor<2x6xf32>)
    -> (tensor<2x14xi32>, tensor<2x14xi32>, tensor<2x12xi32>, tensor<2x14x5xf32>, tensor<2x14xf32>, tensor<2x26x5xf32>) {
  %mask = arith.constant dense<[
    [true, true, true, true, true, true, true, true, true, true, true, true, true, true, true, true, true, true],
    [true, true, true, true, false, false, false, false, false, false, false, false, false, false, false, false, false, false]]> : tensor<2x18xi1>
  %ti = tensor.empty() : tensor<2x26x5xf32>
  %ni = tensor.empty() : tensor<2x26xi32>
  %tree, %counts = attn.tree_build ins(%c : tensor<2x18x5xf32>) mask(%mask : tensor<2x18xi1>)
      outs(%ti, %ni : tensor<2x26x5xf32>, tensor<2x26xi32>) {shape = #tree} -> tensor<2x26x5xf32>, tensor<2x26xi32>
  %l0 = tensor.empty() : tensor<2x6xi32>
  %a:3 = attn.tree_split scores(%s : tensor<2x2xf32>) counts(%counts : tensor<2x26xi32>)
      outs(%l0, %l0, %l0 : tensor<2x6xi32>, tensor<2x6xi32>, tensor<2x6xi32>)
      {shape = #tree, at = 2 : i64, split = 2 : i64} -> tensor<2x6xi32>, tensor<2x6xi32>, tensor<2x6xi32>
  %l1 = tensor.empty() : tensor<2x14xi32>
  %k1 = tensor.empty() : tensor<2x12xi32>
  %b:3 = attn.tree_split scores(%t : tensor<2x6xf32>) frontier(%a#2, %a#0, %a#1 : tensor<2x6xi32>, tensor<2x6xi32>, tensor<2x6xi32>)
      counts(%counts : tensor<2x26xi32>) outs(%l1, %l1, %k1 : tensor<2x14xi32>, tensor<2x14xi32>, tensor<2x12xi32>)
      {shape = #tree, at = 1 : i64, split = 4 : i64} -> tensor<2x14xi32>, tensor<2x14xi32>, tensor<2x12xi32>
  %ri = tensor.empty() : tensor<2x14x5xf32>
  %wi = tensor.empty() : tensor<2x14xf32>
  %rows, %weight = attn.tree_fetch ins(%tree : tensor<2x26x5xf32>) nodes(%b#0, %b#1 : tensor<2x14xi32>, tensor<2x14xi32>)
      counts(%counts : tensor<2x26xi32>) outs(%ri, %wi : tensor<2x14x5xf32>, tensor<2x14xf32>) {shape = #tree}
      -> tensor<2x14x5xf32>, tensor<2x14xf32>
  %new = arith.addf %rows, %rows : tensor<2x14x5xf32>
  %next = attn.tree_update ins(%new : tensor<2x14x5xf32>) nodes(%b#0, %b#1 : tensor<2x14xi32>, tensor<2x14xi32>)
      counts(%counts : tensor<2x26xi32>) outs(%tree : tensor<2x26x5xf32>) {shape = #tree} -> tensor<2x26x5xf32>
  return %b#0, %b#1, %b#2, %rows, %weight, %next
      : tensor<2x14xi32>, tensor<2x14xi32>, tensor<2x12xi32>, tensor<2x14x5xf32>, tensor<2x14xf32>, tensor<2x26x5xf32>
}

// Without scores, all of no candidates are split, and then all of those that
// are there.
func.func @none(%c: tensor<2x18x5xf32>) -> (tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x0xi32>, tensor<2x6xi32>, tensor<2x6xi32>, tensor<2x6xi32>) {
  %mask = arith.constant dense<[
    [true, true, true, true, true, true, true, true, true, true, true, true, true, true, true, true, true, true],
    [true, true, true, true, false, false, false, false, false, false, false, false, false, false, false, false, false, false]]> : tensor<2x18xi1>
  %ti = tensor.empty() : tensor<2x26x5xf32>
  %ni = tensor.empty() : tensor<2x26xi32>
  %tree, %counts = attn.tree_build ins(%c : tensor<2x18x5xf32>) mask(%mask : tensor<2x18xi1>)
      outs(%ti, %ni : tensor<2x26x5xf32>, tensor<2x26xi32>) {shape = #tree} -> tensor<2x26x5xf32>, tensor<2x26xi32>
  %l0 = tensor.empty() : tensor<2x2xi32>
  %k0 = tensor.empty() : tensor<2x0xi32>
  %a:3 = attn.tree_split counts(%counts : tensor<2x26xi32>)
      outs(%l0, %l0, %k0 : tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x0xi32>)
      {shape = #tree, at = 2 : i64, split = 0 : i64} -> tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x0xi32>
  %l1 = tensor.empty() : tensor<2x6xi32>
  %b:3 = attn.tree_split counts(%counts : tensor<2x26xi32>)
      outs(%l1, %l1, %l1 : tensor<2x6xi32>, tensor<2x6xi32>, tensor<2x6xi32>)
      {shape = #tree, at = 2 : i64, split = 2 : i64} -> tensor<2x6xi32>, tensor<2x6xi32>, tensor<2x6xi32>
  return %a#0, %a#1, %a#2, %b#0, %b#1, %b#2
      : tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x0xi32>, tensor<2x6xi32>, tensor<2x6xi32>, tensor<2x6xi32>
}

// More columns than a warp fetches or updates, and than any whole number of them.
func.func @slices(%c: tensor<1x8x200xf32>, %n: tensor<1x5x200xf32>) -> (tensor<1x5x200xf32>, tensor<1x5xf32>, tensor<1x14x200xf32>) {
  %l = arith.constant dense<[[1, 0, 0, 2, -1]]> : tensor<1x5xi32>
  %i = arith.constant dense<[[0, 2, 3, 1, -1]]> : tensor<1x5xi32>
  %t = tensor.empty() : tensor<1x14x200xf32>
  %tree = attn.tree_build ins(%c : tensor<1x8x200xf32>) outs(%t : tensor<1x14x200xf32>) {shape = #two} -> tensor<1x14x200xf32>
  %r = tensor.empty() : tensor<1x5x200xf32>
  %w = tensor.empty() : tensor<1x5xf32>
  %rows, %weights = attn.tree_fetch ins(%tree : tensor<1x14x200xf32>) nodes(%l, %i : tensor<1x5xi32>, tensor<1x5xi32>)
      outs(%r, %w : tensor<1x5x200xf32>, tensor<1x5xf32>) {shape = #two} -> tensor<1x5x200xf32>, tensor<1x5xf32>
  %moved = attn.tree_update ins(%n : tensor<1x5x200xf32>) nodes(%l, %i : tensor<1x5xi32>, tensor<1x5xi32>)
      outs(%tree : tensor<1x14x200xf32>) {shape = #two} -> tensor<1x14x200xf32>
  return %rows, %weights, %moved : tensor<1x5x200xf32>, tensor<1x5xf32>, tensor<1x14x200xf32>
}

// Enough nodes for warps that take a subtree of several levels, and several groups.
func.func @tall(%c: tensor<1x8192x2xf32>) -> (tensor<1x16383x2xf32>, tensor<1x8192x2xf32>) {
  %t = tensor.empty() : tensor<1x16383x2xf32>
  %tree = attn.tree_build ins(%c : tensor<1x8192x2xf32>) outs(%t : tensor<1x16383x2xf32>) {shape = #tall} -> tensor<1x16383x2xf32>
  %o = tensor.empty() : tensor<1x8192x2xf32>
  %rows = attn.tree_materialize ins(%tree : tensor<1x16383x2xf32>) outs(%o : tensor<1x8192x2xf32>) {shape = #tall} -> tensor<1x8192x2xf32>
  return %tree, %rows : tensor<1x16383x2xf32>, tensor<1x8192x2xf32>
}
