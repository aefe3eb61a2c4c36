//===- AttnSoftmaxOps.td - Dense and streaming soft-max operations -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNSOFTMAXOPS_TD
#define FOVEA_DIALECT_ATTN_IR_ATTNSOFTMAXOPS_TD

include "fovea/Dialect/Attn/IR/AttnBase.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"

def Attn_DenseOp : Attn_TiledOp<"dense", 3, "getQuery()",
                                [AttrSizedOperandSegments, IsolatedFromAbove]> {
  let summary = "soft-max attention over all keys";
  let details = [{
    Computes, for every query row,

    ```
    s   = scale * q k^T + log_weight[key] + bias[query, key] + mask
    lse = log(sum(exp(s)) + exp(sink))
    out = exp(s - lse) v
    ```

    $shapes

    `scale` is `1 / sqrt(D)` unless given, and `causal` alone is short for
    `mask = #attn.mask<causal>`. A query row that may attend to nothing
    gives zeros in `output`, and `-inf` in `lse` or the sink of its head, if there
    is one. Time is `O(N M (D + E))`; the score matrix is never formed.

    With `lengths` and `query_lengths` batch entry `b` has `lengths[b]` keys and
    `query_lengths[b]` queries: rows behind do not exist, whatever they hold, and
    masks line up the last query with the last key that there is. Query rows that do
    not exist give zeros and `-inf`. `--attn-check-codes` checks lengths at run time.

    With `score` a region makes the score of each entry of what it would be without
    log weight, bias and mask, which come behind:

    ```
    s = f(scale * q k^T, b, h, i, j) + log_weight[key] + bias[query, key] + mask
    ```

    Its first arguments are the product `scale * q k^T`, in the type that sums are kept
    in, the batch entry, the query head, and the positions of query and key; those
    of queries are positions among the keys, as in masks: the last query stands at
    the last key. Its other arguments are the operands behind `score`, tensors and
    numbers that it may read. It holds elementwise operations of `arith` and `math`
    on numbers, `tensor.extract` from its arguments, and `attn.yield`; integers are
    divided by constants only.
    A result of minus infinity removes the entry, as a mask does. An entry for which
    the region reads a tensor out of bounds has the score NaN, unless a mask or a term
    removes it. Positions are less than `2^28`.

    Example:

    ```mlir
    %out = attn.dense
        ins(%q, %k, %v : tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>)
        outs(%init : tensor<1x8x512x64xf32>)
        {mask = #attn.mask<causal>} -> tensor<1x8x512x64xf32>
    %short = attn.dense
        ins(%q, %k, %v : tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>)
        lengths(%n : tensor<1xi32>) query_lengths(%n : tensor<1xi32>)
        outs(%init : tensor<1x8x512x64xf32>)
        {mask = #attn.mask<causal>} -> tensor<1x8x512x64xf32>
    %sunk = attn.dense
        ins(%q, %k, %v : tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>)
        sink(%s : tensor<1x8xf32>)
        outs(%init : tensor<1x8x512x64xf32>) -> tensor<1x8x512x64xf32>
    ```

    A slope for each head, times the distance of query and key:

    ```mlir
    %alibi = attn.dense
        ins(%q, %k, %v : tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>)
        score(%slopes : tensor<8xf32>) {
        ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %slope_of: tensor<8xf32>):
          %slope = tensor.extract %slope_of[%h] : tensor<8xf32>
          %distance = arith.subi %j, %i : index
          %integer = arith.index_cast %distance : index to i32
          %number = arith.sitofp %integer : i32 to f32
          %term = arith.mulf %slope, %number : f32
          %t = arith.addf %s, %term : f32
          attn.yield %t : f32
        }
        outs(%init : tensor<1x8x512x64xf32>)
        {mask = #attn.mask<causal>} -> tensor<1x8x512x64xf32>
    ```
  }];
  let conditions = ["H % G == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$query,
    Attn_Arg<Attn_Rank4, "T[B, G, M, D!]">:$key,
    Attn_Arg<Attn_Rank4, "T[B, G, M, E!]">:$value,
    Attn_Arg<Optional<Attn_Rank3>,
        "T|sum[B~, G~, M~]", "logarithm of how many tokens a key stands for">:$log_weight,
    Attn_Arg<Optional<Attn_Rank4>, "T|sum[B~, H~, N~, M~]">:$bias,
    Attn_Arg<Optional<Attn_Rank2>,
        "T|sum[B~, H~]", "score of an entry without a value that every row of a head has">:$sink,
    Attn_Arg<Optional<Attn_Int1>, "i32[B]", "keys of each batch entry, from 0 to `M`">:$lengths,
    Attn_Arg<Optional<Attn_Int1>, "i32[B]", "queries, from 0 to `N`">:$query_lengths,
    Variadic<Attn_Captured>:$captures,
    Attn_Arg<Attn_Rank4, "T[B, H, N, E!]">:$output,
    Attn_Arg<Optional<Attn_Rank3>, "sum[B, H, N]", "natural logarithm">:$lse,
    OptionalAttr<Attn_FiniteAttr>:$scale,
    OptionalAttr<Attn_MaskAttr>:$mask
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let regions = (region VariadicRegion<SizedRegion<1>>:$score);
  let assemblyFormat = [{
    `ins` `(` $query `,` $key `,` $value `:`
        type($query) `,` type($key) `,` type($value) `)`
    (`log_weight` `(` $log_weight^ `:` type($log_weight) `)`)?
    (`bias` `(` $bias^ `:` type($bias) `)`)?
    (`sink` `(` $sink^ `:` type($sink) `)`)?
    (`lengths` `(` $lengths^ `:` type($lengths) `)`)?
    (`query_lengths` `(` $query_lengths^ `:` type($query_lengths) `)`)?
    custom<ScoreRegion>($captures, type($captures), $score)
    `outs` `(` $output (`,` $lse^)? `:` type($output) (`,` type($lse)^)? `)`
    attr-dict (`->` type($results)^)?
  }];
  let hasVerifier = 1;
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    /// The factor that multiplies `q.k`: the attribute, or `1 / sqrt(D)`.
    double getScaleOrDefault();
    /// The mask, trivial when absent.
    MaskAttr getMaskOrNone();
  }];
}

def Attn_StreamOp : Attn_TiledOp<"stream", 3, "getQuery()",
                                 [AttrSizedOperandSegments, IsolatedFromAbove,
                                  DeclareOpInterfaceMethods<RegionBranchOpInterface>]> {
  let summary = "one streaming soft-max over the union of several sources";
  let details = [{
    The shared core of every soft-max pattern. A *source* is a pair of keys and
    values with optional log weights and bias; for each block of `block`
    consecutive queries it contributes the key rows that its ranges name (see
    `#attn.source`). The result is one soft-max over the union of all sources:

    ```
    s[i, (u, j)] = scale * q[i] . key_u[j] + log_weight_u[j] + bias_u[i, j] + distance_u[i, i - j]
                                                               for rows j that block(i) reads and mask_u admits
    out[i] = sum_(u,j) exp(s[i, (u, j)] - lse[i]) * values_u[j]
    lse[i] = log(sum_(u,j) exp(s[i, (u, j)]) + exp(sink))
    key_u[j] = keys_u[codes_u[j]] with codes, keys_u[j] without
    distance_u[i, d] = scale * (q[i] + v_u) . r_u[d] + t_u[d]    with relative(r_u, v_u) and distance_bias(t_u)
    ```

    With `weighting = squared_relu` the weight of an entry is
    `exp(log_weight) max(scale * q . key + bias, 0)^2` instead; there is no
    normaliser then, no `lse` and no sink.

    `sink` is an entry that every row of a head has beside those of the sources:
    it takes its share of the weights and brings no value.

    `lengths` of a source and `query_lengths` are as in `attn.dense`: ranges and
    masks see as many rows and queries as the batch entry has.

    `score` regions are as in `attn.dense`, too. One behind the sources is for the entries
    of all of them; one of a source is for its own entries and comes first: its result is
    the score that the region of all is given, unless it removes the entry. Positions are
    those of the source that the key is a row of. What regions capture are operands of the operation, behind the
    `score` of all sources, or behind `captures` where there is none, and arguments of every
    region behind its own. Regions need keys of the sources' own, not codes.

    $shapes

    An axis of `T` query blocks makes values and log weights differ block by block:
    block `b` reads entry `b`, and `T` is at least the number of blocks.

    Keys that are rows of a table need no product of their own: the scores of the
    `S_u` rows of a table are computed once for a tile of queries, and the score of
    a row is looked up by its code. Sources that name the same table, with codes or
    as their keys, share these scores. Codes outside `0 .. S_u - 1` are undefined;
    `attn.check_codes` refuses them.

    Terms by distance are those of Transformer-XL: a key `r[d]` and a number `t[d]`
    for each distance `d = i - j`, and a bias `v` of queries. `i` and `j` are positions:
    the last query lines up with the last row, as in masks, unless the source says
    by `origin` where its row 0 stands among the queries. Every distance of an entry
    that is read is from 0 to `R - 1`: what the verifier cannot tell,
    `--attn-check-shapes` checks. The products of a tile of queries with the keys of
    its distances are shifted inside the tile; they are never stored. They go with
    neither `score` nor `lengths` nor `query_lengths`.

    With `rows(list) unit = u`, query block `t` reads the rows that `list[b, g, t, :]`
    names: for each entry `x >= 0` the `u` rows from `u x` on, as far as they exist.
    An entry of -1 names nothing, and rows that are named twice count twice. Other entries are
    refused by `--attn-check-codes`. A list for all blocks has `T = 1`, and `block = 1` gives
    a list to every query. Rows that no list names may hold anything.
    With `positions = listed` a row stands where it is listed, as in a paged cache: keys and
    values are a pool of pages then, which batch entries share if its batch extent is 1,
    and `lengths` counts listed rows. Lists go with neither codes nor `local_bias` nor terms
    by distance nor an axis of blocks, and `positions = listed` with no bias.

    Sources, and the output, may have element types of their own: any of `f32`,
    `bf16` and `f16` together, or all `f64`. Data is never rounded to a narrower
    type on the way: so summaries of `bf16` tokens that are kept in `f32` leave
    `lse` as exact as they are.

    `block` is 0 when no range depends on the block index. `first_row` and
    `num_rows` are present on a tile: query row 0 of the tile is row `first_row`
    of `num_rows` in all, and the block index and mask positions refer to those.
    `tiles` are the sizes of tiles that the lowering is to use; it has no say in
    what is computed.

    Example: a window of two blocks, and one far summary for every 16 tokens:

    ```mlir
    %out = attn.stream query(%q : tensor<1x1x64x16xf32>)
        source(%k, %v : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>)
            ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>] mask <causal>
        source(%ks, %vs : tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>)
            log_weight(%w : tensor<1x1x4xf32>)
            ranges [affine_map<(b)[rows, n] -> (0, b - 1)>]
        outs(%init : tensor<1x1x64x16xf32>)
        {block = 16 : i64, scale = 2.5e-01 : f64} -> tensor<1x1x64x16xf32>
    ```

    A sink for each head:

    ```mlir
    %out, %lse = attn.stream query(%q : tensor<2x4x64x16xf32>)
        source(%k, %v : tensor<2x2x64x16xf32>, tensor<2x2x64x16xf32>)
            ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal, window = 16>
        sink(%s : tensor<1x4xf32>)
        outs(%init, %ilse : tensor<2x4x64x16xf32>, tensor<2x4x64xf32>)
        {scale = 2.5e-01 : f64} -> tensor<2x4x64x16xf32>, tensor<2x4x64xf32>
    ```

    Scores of a window that fade with the distance, and summaries whose do not; all are capped:

    ```mlir
    %out = attn.stream query(%q : tensor<1x4x64x16xf32>)
        source(%k, %v : tensor<1x2x64x16xf32>, tensor<1x2x64x16xf32>)
            score {
            ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %slope_of: tensor<4xf32>):
              %slope = tensor.extract %slope_of[%h] : tensor<4xf32>
              %distance = arith.subi %j, %i : index
              %integer = arith.index_cast %distance : index to i32
              %number = arith.sitofp %integer : i32 to f32
              %term = arith.mulf %slope, %number : f32
              %t = arith.addf %s, %term : f32
              attn.yield %t : f32
            }
            ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal, window = 16>
        source(%ks, %vs : tensor<1x2x4x16xf32>, tensor<1x2x4x16xf32>)
            ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal, stride = 16>
        score(%slopes : tensor<4xf32>) {
        ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %slope_of: tensor<4xf32>):
          %most = arith.constant 5.0 : f32
          %part = arith.divf %s, %most : f32
          %bent = math.tanh %part : f32
          %t = arith.mulf %bent, %most : f32
          attn.yield %t : f32
        }
        outs(%init : tensor<1x4x64x16xf32>) {scale = 2.5e-01 : f64} -> tensor<1x4x64x16xf32>
    ```

    Sequences of a batch that end somewhere:

    ```mlir
    %out = attn.stream query(%q : tensor<2x4x64x16xf32>)
        source(%k, %v : tensor<2x2x64x16xf32>, tensor<2x2x64x16xf32>) lengths(%n : tensor<2xi32>)
            ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
        query_lengths(%n : tensor<2xi32>)
        outs(%init : tensor<2x4x64x16xf32>) {scale = 2.5e-01 : f64} -> tensor<2x4x64x16xf32>
    ```

    Blocks of 16 rows that were chosen for each block of queries:

    ```mlir
    %out = attn.stream query(%q : tensor<1x4x64x16xf32>)
        source(%k, %v : tensor<1x2x64x16xf32>, tensor<1x2x64x16xf32>)
            rows(%chosen : tensor<1x2x4x3xi32>) unit = 16
            ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
        outs(%init : tensor<1x4x64x16xf32>)
        {block = 16 : i64, scale = 2.5e-01 : f64} -> tensor<1x4x64x16xf32>
    ```

    Pages of 16 rows, in the order of each sequence:

    ```mlir
    %out = attn.stream query(%q : tensor<2x4x1x16xf32>)
        source(%k, %v : tensor<1x2x512x16xf32>, tensor<1x2x512x16xf32>) lengths(%n : tensor<2xi32>)
            rows(%pages : tensor<2x1x1x8xi32>) unit = 16 positions = listed
            ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
        outs(%init : tensor<2x4x1x16xf32>) {scale = 2.5e-01 : f64} -> tensor<2x4x1x16xf32>
    ```

    Quantized keys: two blocks through their codes, and all older tokens as one
    mean value per code, which differs from block to block:

    ```mlir
    %out = attn.stream query(%q : tensor<1x1x64x16xf32>)
        source(%c, %v : tensor<1x1x8x16xf32>, tensor<1x1x64x16xf32>) codes(%z : tensor<1x1x64xi32>)
            local_bias(%bias : tensor<1x1x64x32xf32>)
            ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>] mask <causal>
        source(%c, %mean : tensor<1x1x8x16xf32>, tensor<1x1x4x8x16xf32>)
            log_weight(%log : tensor<1x1x4x8xf32>)
            ranges [affine_map<(b)[rows, n] -> (0, rows)>]
        outs(%init : tensor<1x1x64x16xf32>)
        {block = 16 : i64, scale = 1.0 : f64} -> tensor<1x1x64x16xf32>
    ```

    Terms by distance for the 32 distances that a window of two blocks has:

    ```mlir
    %out = attn.stream query(%q : tensor<1x1x64x16xf32>)
        source(%k, %v : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>)
            relative(%r, %u : tensor<1x32x16xf32>, tensor<1x16xf32>)
            distance_bias(%t : tensor<1x32xf32>)
            ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>] mask <causal>
        outs(%init : tensor<1x1x64x16xf32>)
        {block = 16 : i64, scale = 2.5e-01 : f64} -> tensor<1x1x64x16xf32>
    ```
  }];
  let conditions = ["H % G == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$query,
    Attn_Arg<Variadic<Attn_Rank4>,
        "",
        "`[B, G, M_u, D]` for source `u`; with codes a table `[B, G, S_u, D]`; static extents of 1 of batch and heads broadcast">:$keys,
    Attn_Arg<Variadic<Attn_Rank4Or5>, "", "`[B, G, M_u, E]` or `[B, G, T, M_u, E]`">:$values,
    Attn_Arg<Variadic<Attn_Rank3Or4>,
        "",
        "`[B, G, M_u]` or `[B, G, T, M_u]`, static extents of 1 broadcast; one for each source that says `log_weight`">:$log_weights,
    Attn_Arg<Variadic<Attn_Rank4>,
        "",
        "`[B, H, N, M_u]`, static extents of 1 broadcast; columns as the ranges say with `local_bias`; one for each source that says `bias` or `local_bias`">:$biases,
    Attn_Arg<Variadic<Attn_Int3>,
        "", "`[B, G, M_u]`, one for each source that says `codes`">:$codes,
    Attn_Arg<Variadic<Attn_Int1>, "", "`[B]`, one for each source that says `lengths`">:$lengths,
    Attn_Arg<Variadic<Attn_Int4>,
        "", "`[B, G', T, R]` with `G'` one of 1, `G` and `H`; static extents of 1 broadcast; one for each source that says `rows`">:$row_lists,
    Attn_Arg<Variadic<Attn_Rank3>,
        "", "`[H, R, D]`, static extents of 1 of heads broadcast; with `relative_biases`, one for each source that says `relative`">:$relative_keys,
    Attn_Arg<Variadic<Attn_Rank2>, "", "`[H, D]`, likewise">:$relative_biases,
    Attn_Arg<Variadic<Attn_Rank2>,
        "", "`[H, R]`, likewise; one for each source that says `distance_bias`">:$distance_biases,
    Attn_Arg<Optional<Attn_Rank2>, "T|sum[B~, H~]">:$sink,
    Attn_Arg<Optional<Attn_Int1>, "i32[B]">:$query_lengths,
    Variadic<Attn_Captured>:$captures,
    Optional<Index>:$first_row,
    Optional<Index>:$num_rows,
    Attn_Arg<Attn_Rank4, "~T[B, H, N, E!]">:$output,
    Attn_Arg<Optional<Attn_Rank3>, "sum[B, H, N]", "natural logarithm">:$lse,
    Attn_SourceArrayAttr:$sources,
    DefaultValuedAttr<I64Attr, "0">:$block,
    Attn_FiniteAttr:$scale,
    DefaultValuedAttr<Attn_WeightingAttr,
                      "::fovea::attn::Weighting::Softmax">:$weighting,
    OptionalAttr<Attn_TilesAttr>:$tiles
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let regions = (region VariadicRegion<SizedRegion<1>>:$scores);
  let hasVerifier = 1;
  let hasCanonicalizer = 1;
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    ::llvm::LogicalResult verifyOperandCounts();
    void addOpenOperands(::fovea::attn::ContractOperands &operands);

    using Source = StreamSource;
    ::llvm::SmallVector<Source> getSourceList();
    /// The score region for the entries of all sources, or null.
    ::mlir::Region *getCommonScore();
  }];
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

def Attn_DenseBackwardOp : Attn_TiledOp<"dense_backward", 1, "getQuery()",
                                        [AttrSizedOperandSegments, Attn_SeparateInits, IsolatedFromAbove]> {
  let summary = "the gradient of attn.dense";
  let details = [{
    For the `attn.dense` with the same query, key, value, log weight, bias, sink,
    lengths, scale and mask, and its results `output` and `lse`: the gradients of a scalar whose
    gradients for these results are `d_output` and `d_lse`, the latter zero if
    absent. `causal` is short for a mask, as in `attn.dense`. With scores `s` as
    there:

    ```
    P       = exp(s - lse)
    delta   = rowsum(d_output * output) - d_lse
    dS      = P * (d_output value^T - delta)
    d_query = scale dS key     d_key = scale dS^T query     d_value = P^T d_output
    d_log_weight = colsum(dS)  d_bias = dS
    d_sink  = -sum(exp(sink - lse) delta)
    ```

    With a `score` region `f`, as in `attn.dense`, `dS f'(scale q k^T)` takes the place
    of `dS` in `d_query` and `d_key`. `d_captures`, if there are any, are the gradients
    of the floating-point tensors that the region captures, one for each of them in
    their order. What an entry reads of them gets its share:

    ```
    d_capture[x] = sum over all entries, and what they read at x, of dS df/d(what is read)
    ```

    All else that the region captures is constant: integers, and numbers, which a
    tensor of rank 0 can hold.

    $shapes

    Gradients of keys and values are summed over the query heads that share
    them, those of `log_weight`, `bias` and `sink` over the axes along which these
    were broadcast. Element types and the order of sums are as in
    `attn.stream_backward`. Time is `O(N M (D + E))`; nothing of size `N x M` is
    stored, except `d_bias` where it has that size.

    Example:

    ```mlir
    %dq, %dk, %dv = attn.dense_backward
        ins(%q, %k, %v : tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>)
        forward(%out, %lse : tensor<1x8x512x64xf32>, tensor<1x8x512xf32>)
        gradient(%dout : tensor<1x8x512x64xf32>)
        outs(%iq, %ik, %iv : tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>)
        {mask = #attn.mask<causal>}
        -> tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>
    ```

    With the gradient of a term for each head:

    ```mlir
    %dq, %dk, %dv, %dt = attn.dense_backward
        ins(%q, %k, %v : tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>)
        score(%terms : tensor<8xf32>) {
        ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %term_of: tensor<8xf32>):
          %term = tensor.extract %term_of[%h] : tensor<8xf32>
          %t = arith.addf %s, %term : f32
          attn.yield %t : f32
        }
        forward(%out, %lse : tensor<1x8x512x64xf32>, tensor<1x8x512xf32>)
        gradient(%dout : tensor<1x8x512x64xf32>)
        outs(%iq, %ik, %iv : tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>)
        d_captures(%it : tensor<8xf32>)
        -> tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>, tensor<8xf32>
    ```
  }];
  let conditions = ["H % G == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$query,
    Attn_Arg<Attn_Rank4, "T[B, G, M, D!]">:$key,
    Attn_Arg<Attn_Rank4, "T[B, G, M, E!]">:$value,
    Attn_Arg<Optional<Attn_Rank3>, "T|sum[B~, G~, M~]">:$log_weight,
    Attn_Arg<Optional<Attn_Rank4>, "T|sum[B~, H~, N~, M~]">:$bias,
    Attn_Arg<Optional<Attn_Rank2>, "T|sum[B~, H~]">:$sink,
    Attn_Arg<Optional<Attn_Int1>, "i32[B]">:$lengths,
    Attn_Arg<Optional<Attn_Int1>, "i32[B]">:$query_lengths,
    Variadic<Attn_Captured>:$captures,
    Attn_Arg<Attn_Rank4, "T[B, H, N, E!]">:$output,
    Attn_Arg<Attn_Rank3, "sum[B, H, N]">:$lse,
    Attn_Arg<Attn_Rank4, "~T[= output]">:$d_output,
    Attn_Arg<Optional<Attn_Rank3>, "~T[= lse]">:$d_lse,
    Attn_Arg<Attn_Rank4, "gradient of query">:$d_query,
    Attn_Arg<Attn_Rank4, "gradient of key">:$d_key,
    Attn_Arg<Attn_Rank4, "gradient of value">:$d_value,
    Attn_Arg<Optional<Attn_Rank3>, "gradient of log_weight">:$d_log_weight,
    Attn_Arg<Optional<Attn_Rank4>, "gradient of bias">:$d_bias,
    Attn_Arg<Optional<Attn_Rank2>, "gradient of sink">:$d_sink,
    Attn_Arg<Variadic<Attn_CapturedGradient>,
        "", "as each floating-point tensor of `captures`, of its elements or their sums, or none">:$d_captures,
    OptionalAttr<Attn_FiniteAttr>:$scale,
    OptionalAttr<Attn_MaskAttr>:$mask
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let regions = (region VariadicRegion<SizedRegion<1>>:$score);
  let assemblyFormat = [{
    `ins` `(` $query `,` $key `,` $value `:`
        type($query) `,` type($key) `,` type($value) `)`
    (`log_weight` `(` $log_weight^ `:` type($log_weight) `)`)?
    (`bias` `(` $bias^ `:` type($bias) `)`)?
    (`sink` `(` $sink^ `:` type($sink) `)`)?
    (`lengths` `(` $lengths^ `:` type($lengths) `)`)?
    (`query_lengths` `(` $query_lengths^ `:` type($query_lengths) `)`)?
    custom<ScoreRegion>($captures, type($captures), $score)
    `forward` `(` $output `,` $lse `:` type($output) `,` type($lse) `)`
    `gradient` `(` $d_output (`,` $d_lse^)? `:`
        type($d_output) (`,` type($d_lse)^)? `)`
    `outs` `(` $d_query `,` $d_key `,` $d_value `:`
        type($d_query) `,` type($d_key) `,` type($d_value) `)`
    (`d_log_weight` `(` $d_log_weight^ `:` type($d_log_weight) `)`)?
    (`d_bias` `(` $d_bias^ `:` type($d_bias) `)`)?
    (`d_sink` `(` $d_sink^ `:` type($d_sink) `)`)?
    (`d_captures` `(` $d_captures^ `:` type($d_captures) `)`)?
    attr-dict (`->` type($results)^)?
  }];
  let hasVerifier = 1;
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    double getScaleOrDefault();
    MaskAttr getMaskOrNone();
  }];
}

def Attn_StreamBackwardOp : Attn_TiledOp<"stream_backward", 1, "getQuery()",
                                         [AttrSizedOperandSegments, Attn_SeparateInits, IsolatedFromAbove,
                                          DeclareOpInterfaceMethods<RegionBranchOpInterface>]> {
  let summary = "the gradient of attn.stream";
  let details = [{
    The shared core of the gradients of all soft-max patterns. For the
    `attn.stream` with the same query, sources, lengths, `block` and `scale`, its results
    `output` and `lse`, and a scalar `L` with `d_output = dL / d output` and, if
    given, `d_lse = dL / d lse`:

    ```
    P[i, (u, j)]  = exp(s[i, (u, j)] - lse[i])                  scores s as in attn.stream
    delta[i]      = sum_e d_output[i, e] output[i, e] - d_lse[i]
    dS[i, (u, j)] = P[i, (u, j)] (sum_e d_output[i, e] values_u[j, e] - delta[i])
    d_query[i]    = scale sum_(u,j) dS[i, (u, j)] keys_u[j]
    d_keys_u[j]   = scale sum_i dS[i, (u, j)] query[i]
    d_values_u[j] = sum_i P[i, (u, j)] d_output[i]
    d_log_weight_u[j] = sum_i dS[i, (u, j)]    d_bias_u[i, j] = dS[i, (u, j)]
    d_sink        = -sum_i exp(sink - lse[i]) delta[i]
    ```

    With `score` regions, as in `attn.stream`, that together make `f_u` for source `u`,
    `dS f_u'(scale q . key)` takes the place of `dS` in `d_query` and `d_keys_u`.
    `d_captures` are as in `attn.dense_backward`, sums over all regions that read.

    Scores are computed again, and nothing of size `N x M` is stored. Sums run
    over the query heads that share a key head, and over the axes along which a
    log weight, a bias or a sink was broadcast. A row whose `lse` is `-inf` read nothing
    and passes nothing on.

    $shapes

    Every gradient has the element type of its operand, or the type that sums are
    kept in, `f32` (`f64` for `f64` data). Gradients are summed in that type, in
    an order that does not depend on the number of threads, and rounded once.

    Sources have keys of their own: no codes, no axis of query blocks, no
    `local_bias`, no pool that batch entries share. The iteration domain is the batch: all query heads and rows add
    to the same gradients of keys and values. `tiles` is as in `attn.stream`.

    Example:

    ```mlir
    %dq, %dk, %dks, %dv, %dvs = attn.stream_backward query(%q : tensor<1x1x64x16xf32>)
        source(%k, %v : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>)
            ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>] mask <causal>
        source(%ks, %vs : tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>)
            log_weight(%w : tensor<1x1x4xf32>)
            ranges [affine_map<(b)[rows, n] -> (0, b - 1)>]
        forward(%out, %lse : tensor<1x1x64x16xf32>, tensor<1x1x64xf32>)
        gradient(%dout : tensor<1x1x64x16xf32>)
        outs(%iq, %ik, %iks, %iv, %ivs : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x4x16xf32>,
             tensor<1x1x64x16xf32>, tensor<1x1x4x16xf32>)
        {block = 16 : i64, scale = 2.5e-01 : f64}
        -> tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x4x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x4x16xf32>
    ```
  }];
  let conditions = ["H % G == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$query,
    Attn_Arg<Variadic<Attn_Rank4>,
        "~T[B, G, m, D!]", "element `u` of each list is that of source `u`">:$keys,
    Attn_Arg<Variadic<Attn_Rank4>, "~T[B, G, m, E!]">:$values,
    Attn_Arg<Variadic<Attn_Rank3>, "", "as in `attn.stream`">:$log_weights,
    Attn_Arg<Variadic<Attn_Rank4>, "", "as in `attn.stream`">:$biases,
    Attn_Arg<Variadic<Attn_Int1>, "", "as in `attn.stream`">:$lengths,
    Attn_Arg<Variadic<Attn_Int4>, "", "as in `attn.stream`">:$row_lists,
    Attn_Arg<Optional<Attn_Rank2>, "T|sum[B~, H~]">:$sink,
    Attn_Arg<Optional<Attn_Int1>, "i32[B]">:$query_lengths,
    Variadic<Attn_Captured>:$captures,
    Attn_Arg<Attn_Rank4, "~T[B, H, N, E!]">:$output,
    Attn_Arg<Attn_Rank3, "sum[B, H, N]">:$lse,
    Attn_Arg<Attn_Rank4, "~T[= output]">:$d_output,
    Attn_Arg<Optional<Attn_Rank3>, "~T[= lse]">:$d_lse,
    Attn_Arg<Attn_Rank4, "gradient of query">:$d_query,
    Attn_Arg<Variadic<Attn_Rank4>, "gradient of keys">:$d_keys,
    Attn_Arg<Variadic<Attn_Rank4>, "gradient of values">:$d_values,
    Attn_Arg<Variadic<Attn_Rank3>, "gradient of log_weights, or none">:$d_log_weights,
    Attn_Arg<Variadic<Attn_Rank4>, "gradient of biases, or none">:$d_biases,
    Attn_Arg<Optional<Attn_Rank2>, "gradient of sink">:$d_sink,
    Attn_Arg<Variadic<Attn_CapturedGradient>,
        "", "as each floating-point tensor of `captures`, of its elements or their sums, or none">:$d_captures,
    Attn_SourceArrayAttr:$sources,
    DefaultValuedAttr<I64Attr, "0">:$block,
    Attn_FiniteAttr:$scale,
    OptionalAttr<Attn_TilesAttr>:$tiles
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let regions = (region VariadicRegion<SizedRegion<1>>:$scores);
  let hasVerifier = 1;
  let hasCanonicalizer = 1;
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    ::llvm::LogicalResult verifyOperandCounts();
    void addOpenOperands(::fovea::attn::ContractOperands &operands);

    ::llvm::SmallVector<StreamSourceGradient> getSourceList();
    ::mlir::Region *getCommonScore();
  }];
}

#endif // FOVEA_DIALECT_ATTN_IR_ATTNSOFTMAXOPS_TD
