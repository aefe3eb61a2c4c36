//===- AttnTreeOps.td - Trees of averages of a compressed sequence -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compressed attention keeps most of a long sequence as a tree of averages
// ("VCC: Scaling Transformers to 128K Tokens or More by Prioritizing Important
// Tokens"; equation and algorithm numbers are the paper's). A tree is one plain
// tensor, see #attn.tree; the attention itself is attn.stream with log weights.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNTREEOPS_TD
#define FOVEA_DIALECT_ATTN_IR_ATTNTREEOPS_TD

include "fovea/Dialect/Attn/IR/AttnBase.td"

def Attn_TreeAttr : Attn_Attr<"Tree", "tree"> {
  let summary = "how the nodes of a tree of averages lie in a tensor";
  let description = [{
    Node `x` of level `l` stands for the `ratio^l` tokens from `x ratio^l` on; its
    row is their mean. Level 0 are the tokens, level `levels` the *roots*, of
    which there are `R = N / ratio^levels`: one in the tree of the paper, and
    `N / ratio` in its form with two resolutions, which has one level.

    The tree of `[B, N, F]` tokens is a tensor `[B, nodes, F]`, coarsest level
    first:

    | rows | hold |
    |---|---|
    | `0 .. R` | the rows of the roots |
    | the next `R ratio` | level `levels - 1`: for each node, its parent's row minus its own (15) |
    | ... | |
    | the last `N` | level 0, likewise |

    So a level is a slice, the rows of the roots are there without being fetched,
    and a tree is updated where it lies. It has `R (ratio^(levels+1) - 1) /
    (ratio - 1)` nodes, less than `N ratio / (ratio - 1)`.

    With padding, *counts* `[B, nodes]` of `i32` say how many tokens of each node
    are present. A mean is that of the present tokens. A node of padding alone
    has the mean of its padding, a count of 0 and a log weight of minus infinity:
    nothing else depends on its row.

    Example:

    ```mlir
    #binary = #attn.tree<ratio = 2, levels = 12>
    #two_resolutions = #attn.tree<ratio = 16, levels = 1>
    ```
  }];
  let parameters = (ins "int64_t":$ratio, "int64_t":$levels);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Tokens of a node of `level`.
    int64_t getSegment(int64_t level) const;
    int64_t getRootSegment() const { return getSegment(getLevels()); }
    /// Nodes under one root, which is one of them.
    int64_t getNodesPerRoot() const;
    /// Nodes of a level of a tree with `roots` roots, and the row of the first.
    int64_t getNumNodes(int64_t level, int64_t roots) const;
    int64_t getFirstRow(int64_t level, int64_t roots) const;
  }];
}

def Attn_TreeRows : AnyTypeOf<[3DTensorOf<[Attn_Float]>, MemRefRankOf<[Attn_Float], [3]>],
    "rank-3 tensor or memref of f32, f64, bf16 or f16">;
def Attn_TreeNumbers : AnyTypeOf<[2DTensorOf<[F32, F64]>, MemRefRankOf<[F32, F64], [2]>],
    "rank-2 tensor or memref of f32 or f64">;

def Attn_TreeBuildOp : Attn_Op<"tree_build", [AttrSizedOperandSegments]> {
  let summary = "the tree of averages of a sequence";
  let details = [{
    ```
    row[l, x] = mean of input[x ratio^l .. (x+1) ratio^l]                       (13)
    tree[level L, x] = row[L, x],  tree[level l < L, x] = row[l+1, x / ratio] - row[l, x]     (15)
    ```

    `mask` is true for the tokens that are present; with it, `counts` is a second
    result. See `#attn.tree` for the layout.

    $shapes

    Means and differences are computed in `f32` (`f64` for `f64`) and rounded once.
    The input is read once and the tree written once.

    Example:

    ```mlir
    %tree = attn.tree_build ins(%c : tensor<1x64x32xf32>)
        outs(%init : tensor<1x127x32xf32>)
        {shape = #attn.tree<ratio = 2, levels = 6>} -> tensor<1x127x32xf32>
    ```
  }];
  let arguments = (ins
    Attn_Arg<Attn_TreeRows, "T[B, N, F!]", "`N = roots ratio^levels`">:$input,
    Attn_Arg<Optional<Attn_TokenMask>, "[B, N]">:$mask,
    Attn_Arg<Attn_TreeRows, "T[B, #T, F!]", "`T` nodes">:$tree,
    Attn_Arg<Optional<Attn_Int2>, "i32[B, #T]", "with `mask` only">:$counts,
    Attn_TreeAttr:$shape
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $input `:` type($input) `)`
    (`mask` `(` $mask^ `:` type($mask) `)`)?
    `outs` `(` $tree (`,` $counts^)? `:` type($tree) (`,` type($counts)^)? `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

def Attn_TreeFetchOp : Attn_Op<"tree_fetch", [AttrSizedOperandSegments]> {
  let summary = "rows of some nodes of a tree";
  let details = [{
    ```
    rows[b, j] = tree[root] - tree[...] - ... - tree[level[b, j], index[b, j]]  (16)
    log_weight[b, j] = ln(tokens of the node)
    ```

    Tokens are those that are present, as `counts` says. With `whole_segments` they are
    all that the node stands for, as in the authors' code, unless none is present.

    Any nodes, in any order; neighbours in the list that share ancestors share
    their sums. Where level and index are -1, the node is *absent*: sequences of a
    batch differ in how many they have. Its row is zeros and its log weight minus
    infinity. Any other level or index that the tree does not have fails the kernel.

    $shapes

    Example:

    ```mlir
    %rows, %weight = attn.tree_fetch ins(%tree : tensor<1x127x32xf32>)
        nodes(%level, %index : tensor<1x9xi32>, tensor<1x9xi32>)
        outs(%init, %winit : tensor<1x9x32xf32>, tensor<1x9xf32>)
        {shape = #attn.tree<ratio = 2, levels = 6>} -> tensor<1x9x32xf32>, tensor<1x9xf32>
    ```
  }];
  let arguments = (ins
    Attn_Arg<Attn_TreeRows, "T[B, #T, F!]", "`T` nodes">:$tree,
    Attn_Arg<Attn_Int2, "i32[B, #R]">:$level,
    Attn_Arg<Attn_Int2, "i32[B, #R]">:$index,
    Attn_Arg<Optional<Attn_Int2>, "i32[B, #T]", "of `attn.tree_build`">:$counts,
    Attn_Arg<Attn_TreeRows, "T[B, #R, F!]">:$rows,
    Attn_Arg<Optional<Attn_TreeNumbers>,
        "sum[B, #R]",
        "minus infinity where no token is present or the node is absent">:$log_weight,
    Attn_TreeAttr:$shape,
    UnitAttr:$whole_segments
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $tree `:` type($tree) `)`
    `nodes` `(` $level `,` $index `:` type($level) `,` type($index) `)`
    (`counts` `(` $counts^ `:` type($counts) `)`)?
    `outs` `(` $rows (`,` $log_weight^)? `:` type($rows) (`,` type($log_weight)^)? `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

def Attn_TreeUpdateOp : Attn_Op<"tree_update", [Attn_UpdatesInits]> {
  let summary = "move the nodes of a tree to new rows";
  let details = [{
    Afterwards node `(level[b, j], index[b, j])` has row `rows[b, j]`, and every
    token under it has moved by as much as the node (Algorithm 2): what the tree
    says below the listed nodes stays. Only the listed nodes and their ancestors
    change, in time `O(r F)`, and of these only the ones whose row or whose
    parent's row changes: rows equal to what `attn.tree_fetch` returns leave the
    tree as it is, bit for bit.

    The nodes must cover the sequence without overlap, in order, as
    `attn.tree_select` lists them, absent ones (-1) last. Otherwise, or if the tree
    does not have one of them, the kernel fails before it has changed anything. New
    rows of nodes without a present token and of absent ones are ignored.

    $shapes

    Example:

    ```mlir
    %new = attn.tree_update ins(%rows : tensor<1x9x32xf32>)
        nodes(%level, %index : tensor<1x9xi32>, tensor<1x9xi32>)
        outs(%tree : tensor<1x127x32xf32>)
        {shape = #attn.tree<ratio = 2, levels = 6>} -> tensor<1x127x32xf32>
    ```
  }];
  let arguments = (ins
    Attn_Arg<Attn_TreeRows, "T[B, #R, F!]">:$rows,
    Attn_Arg<Attn_Int2, "i32[B, #R]">:$level,
    Attn_Arg<Attn_Int2, "i32[B, #R]">:$index,
    Attn_Arg<Optional<Attn_Int2>, "i32[B, #T]", "of `attn.tree_build`">:$counts,
    Attn_Arg<Attn_TreeRows,
        "T[B, #T, F!]", "read and written, in place where nothing else needs the old tree">:$tree,
    Attn_TreeAttr:$shape
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $rows `:` type($rows) `)`
    `nodes` `(` $level `,` $index `:` type($level) `,` type($index) `)`
    (`counts` `(` $counts^ `:` type($counts) `)`)?
    `outs` `(` $tree `:` type($tree) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

def Attn_TreeMaterializeOp : Attn_Op<"tree_materialize"> {
  let summary = "the sequence that a tree stands for";
  let details = [{
    The inverse of `attn.tree_build`: `output[b, t]` is the row of token `t`. The
    tree is read once and the output written once.

    $shapes

    Example:

    ```mlir
    %c = attn.tree_materialize ins(%tree : tensor<1x127x32xf32>)
        outs(%init : tensor<1x64x32xf32>)
        {shape = #attn.tree<ratio = 2, levels = 6>} -> tensor<1x64x32xf32>
    ```
  }];
  let arguments = (ins
    Attn_Arg<Attn_TreeRows, "T[B, #T, F!]", "`T` nodes">:$tree,
    Attn_Arg<Attn_TreeRows, "T[B, N, F!]", "`N` tokens under the nodes">:$output,
    Attn_TreeAttr:$shape
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $tree `:` type($tree) `)`
    `outs` `(` $output `:` type($output) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

def Attn_TreeSelectOp : Attn_Op<"tree_select",
    [AttrSizedOperandSegments, SingleBlock]> {
  let summary = "choose the nodes at which a sequence is read";
  let details = [{
    Algorithm 1, coarse to fine. The candidates of the top level are the roots; at
    each level, the `budgets[l - 1]` candidates of level `l` with the highest score
    are split (ties: lower index; NaN is lowest), and their children are the
    candidates of the next level. The nodes that are left cover the sequence once;
    the result lists them in order:

    ```
    r = R + sum_l budgets[l - 1] (ratio - 1)
    ```

    The region maps the rows of the candidates of a level, `[B, c, F]`, to one score
    each, `[B, c]` of `f32` or `f64`. It runs once for each level at which some
    candidates are split and some not. If it has a second argument, that is their
    log weights, `[B, c]`. Extents that differ from level to level are dynamic.
    `attn.tree_score` has the scores of the paper.

    Nodes without a present token are never split. A batch entry with fewer other
    candidates than a budget splits them all, and what its lists lack is *absent*:
    -1 in both, at the end. Absent candidates have rows of zeros and log weights of
    minus infinity, and their scores do not matter.

    No gradient goes through the choice. `straight_through` is a third result that
    one does go through: a factor for the row of each node,

    ```
    factor[b, j] = product of 1 + p - stop(p) over the scores p that an ancestor was split for
    ```

    which is 1. Rows that are multiplied with it are what they were, and the gradient
    of the factor is that of the score of every ancestor that the node is read for.

    $shapes

    Example: 4 segments of 16 tokens; the one that a token `%p` looks at most is
    read token by token:

    ```mlir
    %level, %index = attn.tree_select ins(%tree : tensor<1x68x32xf32>)
        outs(%li, %ii : tensor<1x19xi32>, tensor<1x19xi32>)
        {shape = #attn.tree<ratio = 16, levels = 1>, budgets = array<i64: 1>}
        -> tensor<1x19xi32>, tensor<1x19xi32> score {
    ^bb0(%rows: tensor<1x4x32xf32>):
      %keys = tensor.expand_shape %rows [[0, 1], [2], [3]] output_shape [1, 1, 4, 32]
          : tensor<1x4x32xf32> into tensor<1x1x4x32xf32>
      %score = attn.tree_score ins(%p, %keys : tensor<1x1x1x32xf32>, tensor<1x1x4x32xf32>)
          outs(%sinit : tensor<1x4xf32>) {exponential, scale = 1.0 : f64} -> tensor<1x4xf32>
      attn.yield %score : tensor<1x4xf32>
    }
    ```
  }];
  let arguments = (ins
    Attn_Arg<Attn_TreeRows, "T[B, #T, F!]", "`T` nodes">:$tree,
    Attn_Arg<Optional<Attn_Int2>, "i32[B, #T]", "of `attn.tree_build`">:$counts,
    Attn_Arg<Attn_Int2, "i32[B, #R]", "the nodes that the budgets leave">:$level,
    Attn_Arg<Attn_Int2, "i32[B, #R]">:$index,
    Attn_Arg<Optional<Attn_TreeNumbers>, "sum[B, #R]">:$factor,
    Attn_TreeAttr:$shape,
    DenseI64ArrayAttr:$budgets
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let regions = (region SizedRegion<1>:$score);
  let assemblyFormat = [{
    `ins` `(` $tree `:` type($tree) `)`
    (`counts` `(` $counts^ `:` type($counts) `)`)?
    `outs` `(` $level `,` $index `:` type($level) `,` type($index) `)`
    (`straight_through` `(` $factor^ `:` type($factor) `)`)?
    attr-dict (`->` type($results)^)? `score` $score
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    /// Nodes of level `level` that are split.
    int64_t getBudget(int64_t level) { return getBudgets()[level - 1]; }
    int64_t getNumRoots();
  }];
}

def Attn_YieldOp : Op<Attn_Dialect, "yield",
    [Pure, Terminator,
     ParentOneOf<["TreeSelectOp", "DenseOp", "StreamOp", "DenseBackwardOp",
                  "StreamBackwardOp"]>]> {
  let summary = "the scores that a region computes";
  let description = [{
    Ends the region of `attn.tree_select` with the scores of the candidates of a
    level, and a `score` region with the score of an entry.

    Example:

    ```mlir
    attn.yield %score : tensor<1x4xf32>
    ```
  }];
  let arguments = (ins AnyTypeOf<[AnyRankedTensor, AnyFloat]>:$scores);
  let assemblyFormat = "$scores attr-dict `:` type($scores)";
}

def Attn_TreeSplitOp : Attn_Op<"tree_split", [AttrSizedOperandSegments]> {
  let summary = "replace the best candidates of a level by their children";
  let details = [{
    One step of Algorithm 1, and what `attn.tree_select` becomes. A *frontier* is a
    list of nodes that cover the sequence in order; `candidates` are the indices of
    those of level `at`, in order. The `split` candidates with the highest score
    (ties: lower index; NaN is lowest) are replaced by their children, which are
    listed in `children` as well, in time linear in the candidates.

    Without `frontier`, the frontier and the candidates are the roots. Without
    `scores`, all candidates are split. With `counts`, candidates without a present
    token are never split. Candidates and nodes may be absent (-1), last in their
    lists; where fewer than `split` others are left, the rest of the results is.

    $shapes

    Example:

    ```mlir
    %l, %i, %children = attn.tree_split scores(%score : tensor<1x4xf32>)
        outs(%li, %ii, %ci : tensor<1x19xi32>, tensor<1x19xi32>, tensor<1x16xi32>)
        {shape = #attn.tree<ratio = 16, levels = 1>, at = 1 : i64, split = 1 : i64}
        -> tensor<1x19xi32>, tensor<1x19xi32>, tensor<1x16xi32>
    ```
  }];
  let arguments = (ins
    Attn_Arg<Optional<Attn_TreeNumbers>, "[B, #C]">:$scores,
    Attn_Arg<Optional<Attn_Int2>, "i32[B, #C]">:$candidates,
    Attn_Arg<Optional<Attn_Int2>, "i32[B, #R]", "the frontier">:$level,
    Attn_Arg<Optional<Attn_Int2>, "i32[B, #R]">:$index,
    Attn_Arg<Optional<Attn_Int2>, "i32[B, #T]">:$counts,
    Attn_Arg<Attn_Int2, "i32[B, #K]", "`K = R + split (ratio - 1)`">:$new_level,
    Attn_Arg<Attn_Int2, "i32[B, #K]">:$new_index,
    Attn_Arg<Attn_Int2, "i32[B, L]", "`L = split ratio`">:$children,
    Attn_TreeAttr:$shape,
    I64Attr:$at,
    I64Attr:$split
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    (`scores` `(` $scores^ `:` type($scores) `)`)?
    (`frontier` `(` $candidates^ `,` $level `,` $index `:` type($candidates) `,`
        type($level) `,` type($index) `)`)?
    (`counts` `(` $counts^ `:` type($counts) `)`)?
    `outs` `(` $new_level `,` $new_index `,` $children `:` type($new_level) `,`
        type($new_index) `,` type($children) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    /// Candidates, nodes of the frontier and roots: dynamic where types do not tell.
    int64_t getNumCandidates();
    int64_t getNumFrontier();
    int64_t getNumRoots();
  }];
}

def Attn_TreeScoreOp : Attn_Op<"tree_score", [AttrSizedOperandSegments]> {
  let summary = "how much VIP tokens look at the candidates of a level";
  let details = [{
    The probability that attention gives to each candidate, averaged over heads and
    VIP tokens (section 3.3):

    ```
    s[h, i, x] = scale * query[h, i] . key[h, x] + log_weight[x]
    output[x] = mean over h, i of softmax_x(s[h, i])[x]
    ```

    or, with `exponential`, the logarithm of (53), which ranks the same and does not
    overflow: `log(sum over i of exp(s[i, x]))`, for one head.

    $shapes

    `mask` is true for the VIP tokens that are present: means and sums are over these,
    whatever the rows of the others hold.

    `scale` is `1 / sqrt(D)` unless given. Without a VIP token, probabilities are zero
    and logarithms minus infinity: all scores tie. Expands to `attn.dense`, twice for
    probabilities; no matrix of them is formed.

    Example:

    ```mlir
    %score = attn.tree_score ins(%q, %k : tensor<1x12x48x64xf32>, tensor<1x12x256x64xf32>)
        outs(%init : tensor<1x256xf32>) -> tensor<1x256xf32>
    ```
  }];
  let conditions = ["H % G == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H!, #V, D!]", "VIP tokens">:$query,
    Attn_Arg<Attn_Rank4, "T[B, G!, #C, D!]", "candidates">:$key,
    Attn_Arg<Optional<Attn_TreeNumbers>, "sum[B, #C]">:$log_weight,
    Attn_Arg<Optional<Attn_TokenMask>, "[B, #V]", "all without it">:$mask,
    Attn_Arg<Attn_TreeNumbers, "sum[B, #C]">:$output,
    OptionalAttr<Attn_FiniteAttr>:$scale,
    UnitAttr:$exponential
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let hasCanonicalizer = 1;
  let assemblyFormat = [{
    `ins` `(` $query `,` $key `:` type($query) `,` type($key) `)`
    (`log_weight` `(` $log_weight^ `:` type($log_weight) `)`)?
    (`mask` `(` $mask^ `:` type($mask) `)`)?
    `outs` `(` $output `:` type($output) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    /// The factor that multiplies `q.k`: the attribute, or `1 / sqrt(D)`.
    double getScaleOrDefault();
  }];
}

#endif // FOVEA_DIALECT_ATTN_IR_ATTNTREEOPS_TD
