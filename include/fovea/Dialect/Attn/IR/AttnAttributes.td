//===- AttnAttributes.td - Attributes of the attention dialect -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNATTRIBUTES_TD
#define FOVEA_DIALECT_ATTN_IR_ATTNATTRIBUTES_TD

include "fovea/Dialect/Attn/IR/AttnDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

class Attn_Attr<string name, string mnemonicName> : AttrDef<Attn_Dialect, name> {
  let mnemonic = mnemonicName;
}

def Attn_MaskAttr : Attn_Attr<"Mask", "mask"> {
  let summary = "mask of the keys that a query may attend to, by position";
  let description = [{
    Query row `i` of `N` has position `i + M - N` among the `M` key rows: the
    last query lines up with the last key.

    | mask | key row `j` is admitted when, with `p = i + M - N` |
    |---|---|
    | `causal` | `j <= p` |
    | `window = w` | `abs(p - j) < w` |
    | `causal, window = w` | `0 <= p - j < w` |
    | `causal, prefix = m` | `j <= p` or `j < m` |

    `window = 0` means no window and is not printed, nor is `prefix = 0`.

    With `stride = r`, which may follow each of them or stand alone, key rows are summaries of
    `r` tokens: row `j` stands at the last of its tokens, position `(j + 1) r - 1`, which
    takes the place of `j` above, and for which `window` and `prefix` count tokens. The last
    query lines up with the last token. `M` rows stand for `M r` tokens, and for up
    to `r - 1` more that make no row yet, as many as there are queries for:
    `p = i + T - N` with `T = M r + min(max(N - M r, 0), r - 1)`. So a query of a whole sequence
    stands at its own token, and a single one behind all rows. Of a source with
    lengths these are numbers of tokens: `T = lengths[b]`, of which `T / r` rows exist.
    Functions of scores are given these positions, too.

    Example:

    ```mlir
    #past = #attn.mask<causal>
    #near = #attn.mask<window = 128>
    #recent = #attn.mask<causal, window = 128>
    #prefix = #attn.mask<causal, prefix = 64>
    #summaries = #attn.mask<causal, stride = 128>
    ```
  }];
  let parameters = (ins "bool":$causal, "int64_t":$window, "int64_t":$prefix,
                        "int64_t":$stride);
  let builders = [AttrBuilder<(ins "bool":$causal, "int64_t":$window,
                               CArg<"int64_t", "0">:$prefix), [{
    return $_get($_ctxt, causal, window, prefix, /*stride=*/1);
  }]>];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    bool hasWindow() const { return getWindow() > 0; }
    bool hasPrefix() const { return getPrefix() > 0; }
    bool hasStride() const { return getStride() > 1; }
    static constexpr int64_t kMaxStride = 1 << 20;
    /// The same mask for rows that are one token each.
    MaskAttr withoutStride() const;
    /// True when the mask admits everything.
    bool isTrivial() const { return !getCausal() && !hasWindow(); }
  }];
}

def Attn_SourceAttr : Attn_Attr<"Source", "source"> {
  let summary = "rows of one key/value source that a block of queries reads";
  let description = [{
    Describes one source of `attn.stream`:

    - `ranges`: affine maps `(b)[rows, n] -> (begin, end)`, with constant
      positive divisors in `floordiv`, `ceildiv` and `mod`. For query block `b`
      the source contributes key rows `begin <= j < end` of every map, clamped to
      `[0, rows)`, where `rows` is the source's row count and `n` the number of
      queries. A map with four results, `(begin, end, lower, upper)`, is clamped
      to `[lower, upper)` first: so one source can hold several levels of
      summaries one after the other.

      Ranges of one source must not overlap: a row would count twice. The verifier
      refuses those that share a row in some block, where the extents are static,
      and in block 0 if their bounds there are constants. Where it depends on
      extents that are known at run time only, `--attn-check-shapes` adds a check
      of every block; ranges that are apart for all extents need none.
    - `mask`: an optional mask that cuts single entries inside the ranges.
    - `log_weight`, `bias`, `codes`, `lengths`: whether the source has that operand.
      With lengths, `rows` is that of the batch entry, and there is at most one range.
    - `local_bias`: whether the bias counts its columns from where the range
      begins instead of from row 0 of the source. There is one range then, and
      row `j` takes column `j - begin`, with the `begin` that the map gives, before
      it is clamped. The range ends with the last column at the latest.
    - `unit`: with lists of rows, how many rows an entry names; else 0. Entry `x` names rows
      `unit x <= j < unit (x + 1)` that exist, and -1 none. Of these, the source
      contributes those that its ranges name, too, as often as the list names them.
    - `listed_positions`: whether rows stand where they are listed, those of entry `e`
      of a list from position `unit e` on, instead of row `j` at `j`. The source is
      then a sequence of the listed rows: `rows` is `unit` times the length of a list, or
      that of the batch entry, and ranges and masks see positions.
    - `relative`, `distance_bias`: whether the source has terms by distance, which
      is `p - j - origin` between the query at row `p` of the sequence and row `j`.
      `origin`, a map `()[rows, n] -> (position)`, is where row 0 stands among the
      queries: at `n - rows` unless given, as in masks.
    - `score`: whether the source has a score region of its own.

    The custom form of `attn.stream` writes all of it beside the operands. Alone:

    ```mlir
    #previous_and_own_block = #attn.source<
        ranges = [(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)], mask = <causal>,
        log_weight = false, bias = true>
    ```
  }];
  let parameters = (ins
    ArrayRefParameter<"::mlir::AffineMap">:$ranges,
    "::fovea::attn::MaskAttr":$mask,
    "bool":$hasLogWeight,
    "bool":$hasBias,
    DefaultValuedParameter<"bool", "false">:$hasCodes,
    DefaultValuedParameter<"bool", "false">:$hasLocalBias,
    DefaultValuedParameter<"bool", "false">:$hasLengths,
    DefaultValuedParameter<"bool", "false">:$hasRelative,
    DefaultValuedParameter<"bool", "false">:$hasDistanceBias,
    OptionalParameter<"::mlir::AffineMap">:$origin,
    DefaultValuedParameter<"int64_t", "0">:$unit,
    DefaultValuedParameter<"bool", "false">:$hasListedPositions,
    DefaultValuedParameter<"bool", "false">:$hasScore
  );
  let assemblyFormat = [{
    `<` `ranges` `=` custom<Ranges>($ranges) `,` `mask` `=` $mask `,`
    `log_weight` `=` $hasLogWeight `,` `bias` `=` $hasBias
    (`codes` `=` $hasCodes^)? (`local_bias` `=` $hasLocalBias^)?
    (`lengths` `=` $hasLengths^)?
    (`relative` `=` $hasRelative^)? (`distance_bias` `=` $hasDistanceBias^)?
    (`origin` `=` $origin^)? (`unit` `=` $unit^)?
    (`listed_positions` `=` $hasListedPositions^)?
    (`score` `=` $hasScore^)? `>`
  }];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Whether rows are read that lists name.
    bool hasRowLists() const { return getUnit() > 0; }
    /// Whether scores have terms that depend on the distance.
    bool hasDistances() const { return getHasRelative() || getHasDistanceBias(); }
    /// The position of row 0 among the queries, of symbols `rows` and `n`.
    ::mlir::AffineExpr getOriginExpr() const;
    /// The same source with a score region of its own, or without.
    SourceAttr withScore(bool hasScore) const;
  }];
}

def Attn_SourceArrayAttr
    : TypedArrayAttrBase<Attn_SourceAttr, "array of source descriptions">;

def Attn_Weighting : I32Enum<"Weighting", "how scores become weights", [
    I32EnumCase<"Softmax", 0, "softmax">,
    I32EnumCase<"SquaredRelu", 1, "squared_relu">]> {
  let cppNamespace = "::fovea::attn";
}

def Attn_WeightingAttr : EnumAttr<Attn_Dialect, Attn_Weighting, "weighting"> {
  let summary = "how scores become weights";
  let description = [{
    | weighting | weight of an entry with score `s` and log weight `w` |
    |---|---|
    | `softmax` | `exp(s + w)`, divided by the sum over the entries of the row |
    | `squared_relu` | `exp(w) max(s, 0)^2`: element by element, without a sum |

    Example:

    ```mlir
    #elementwise = #attn.weighting<squared_relu>
    ```
  }];
  let assemblyFormat = "`<` $value `>`";
}

def Attn_TilesAttr : Attn_Attr<"Tiles", "tiles"> {
  let summary = "tile sizes chosen for the streaming core";
  let description = [{
    | parameter | meaning |
    |---|---|
    | `query` | query rows of one parallel task |
    | `key` | key rows scored before the running maximum is updated |
    | `lanes` | query rows held by one vector; on a GPU, by one warp: 16 |
    | `vectors` | vectors of queries in a register tile; on a GPU, warps of a block |
    | `keys` | key rows in a register tile |
    | `columns` | value columns in a register tile |
    | `cluster` | blocks of a cluster of `sm_90a` that share tiles of keys, 1 or 2; 1 if not given |

    `query` and `key` are at most 2^20, the others at most 64, and a register tile
    holds at most 256 vectors of scores and of values. `key` is a multiple of `keys`.

    Chosen by `--attn-select-tiles` from the target CPU, or by
    `--attn-select-gpu-tiles`; may be written by hand:

    ```mlir
    #tiles = #attn.tiles<query = 64, key = 512, lanes = 16, vectors = 4, keys = 4, columns = 4>
    ```
  }];
  let parameters = (ins "int64_t":$query, "int64_t":$key, "int64_t":$lanes,
                        "int64_t":$vectors, "int64_t":$keys,
                        "int64_t":$columns,
                        DefaultValuedParameter<"int64_t", "1">:$cluster);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let builders = [AttrBuilder<(ins "int64_t":$query, "int64_t":$key,
                                   "int64_t":$lanes, "int64_t":$vectors,
                                   "int64_t":$keys, "int64_t":$columns), [{
    return $_get($_ctxt, query, key, lanes, vectors, keys, columns,
                 /*cluster=*/1);
  }]>];
  let extraClassDeclaration = [{
    /// Query rows covered by one register tile.
    int64_t getQueryLanes() const { return getLanes() * getVectors(); }
  }];
}

def Attn_Reduction : I32Enum<"Reduction", "how summaries of blocks are accumulated across blocks", [
    I32EnumCase<"Auto", 0, "auto">,
    I32EnumCase<"Serial", 1, "serial">,
    I32EnumCase<"Matmul", 2, "matmul">,
    I32EnumCase<"Associative", 3, "associative">,
    I32EnumCase<"InputScan", 4, "input_scan">]> {
  let cppNamespace = "::fovea::attn";
}

def Attn_ReductionAttr : EnumAttr<Attn_Dialect, Attn_Reduction, "reduction"> {
  let summary = "how summaries of blocks are accumulated across blocks";
  let description = [{
    Choices of evaluation with the same result, to rounding (Transformer-VQ,
    appendices B and E); counts are exact in all of them. With `T` blocks of `L`
    tokens, `S` codes and values of width `E`, for one head:

    | reduction | evaluation | time | stored |
    |---|---|---|---|
    | `serial` | a running state, copied after every block | `T (L + S) E` | `T S E` |
    | `matmul` | blocks on their own, then a product with the lower triangle of ones | `T (L + T S) E` | `2 T S E` |
    | `associative` | blocks on their own, then a tree of merged pairs | `T (L + 2 S) E` | `T S E` |
    | `input_scan` | the consumer runs inside the loop over blocks | `T L E` | `S E` |
    | `auto` | what the cost model finds best | | |

    Example:

    ```mlir
    #blocks_at_once = #attn.reduction<associative>
    ```
  }];
  let assemblyFormat = "`<` $value `>`";
}

#endif // FOVEA_DIALECT_ATTN_IR_ATTNATTRIBUTES_TD
