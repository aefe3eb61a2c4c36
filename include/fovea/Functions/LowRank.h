//===- LowRank.h - Low-rank attention of arrays under masks --- -*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_LOWRANK_H
#define FOVEA_FUNCTIONS_LOWRANK_H

#include "fovea/Functions/Dense.h"
#include "fovea/Functions/Tokens.h"

namespace fovea {

struct PolynomialFeaturesOptions {
  Target target = Target::CPU;
  ResultMemory out;
};

/// Rows phi with phi(q).phi(k) = sum_(g <= degree) (scale q.k)^g / g!, for x
/// [B,H,N,D]: the monomials by degree and then in lexicographic order.
llvm::Expected<OwnedTensor>
polynomial_features(const TensorRef &x, int64_t degree, double scale,
                    const PolynomialFeaturesOptions &options = {});

/// Which columns a row of low-rank weights keeps, and the arrays that say so.
/// These are of i32 (i1 where they are entries of a mask) and may lack [B,H] or
/// have 1 there. Refers to the shapes of the arrays as `TensorRef` does.
class RowMask {
public:
  enum class Kind {
    Causal,
    RowInterval,
    RowChange,
    DistinctRows,
    DistinctColumns
  };

  /// Row i keeps columns j <= i + M - N.
  static RowMask causal() { return {Kind::Causal, {}}; }
  /// Row i keeps columns first[i] .. last[i], the last one included; both are
  /// [B,H,N].
  static RowMask rowInterval(const TensorRef &first, const TensorRef &last) {
    return {Kind::RowInterval, {first, last}};
  }
  /// Row i keeps what row i - 1 does, but for columns[ends[i - 1] .. ends[i] -
  /// 1] (from 0 for row 0): one that is there leaves, one that is not enters.
  /// Ends are [B,H,N] and do not decrease; columns are [B,H,K].
  static RowMask rowChange(const TensorRef &ends, const TensorRef &columns) {
    return {Kind::RowChange, {ends, columns}};
  }
  /// Row i keeps the columns that are true in rows[group[i]]; group is [B,H,N]
  /// and rows [B,H,R,M].
  static RowMask distinctRows(const TensorRef &group, const TensorRef &rows) {
    return {Kind::DistinctRows, {group, rows}};
  }
  /// Column j is kept by the rows that are true in columns[group[j]]; group is
  /// [B,H,M] and columns [B,H,R,N].
  static RowMask distinctColumns(const TensorRef &group,
                                 const TensorRef &columns) {
    return {Kind::DistinctColumns, {group, columns}};
  }

  Kind getKind() const { return kind; }
  llvm::ArrayRef<TensorRef> getParts() const { return parts; }

private:
  RowMask(Kind kind, std::initializer_list<TensorRef> parts)
      : kind(kind), parts(parts) {}

  Kind kind;
  llvm::SmallVector<TensorRef, 2> parts;
};

struct LowRankOptions {
  /// The rows of u1, and those of u2 and v, that are present. The others have
  /// no weight, whatever they hold.
  TokenOptions queries, keys;
  Target target = Target::CPU;
  ResultMemory out;
};

/// D^-1 (W o U1 U2^T) V for u1 [B,H,N,r], u2 [B,G,M,r] and v [B,G,M,E], where W
/// is `mask` and D has the sums of the weights of every row; where that is 0
/// the row is zeros.
llvm::Expected<OwnedTensor> low_rank(const TensorRef &u1, const TensorRef &u2,
                                     const TensorRef &v, const RowMask &mask,
                                     const LowRankOptions &options = {});

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// The gradient of `polynomial_features` for x from that of its result.
llvm::Expected<OwnedTensor>
polynomial_features_backward(const TensorRef &dOut, const TensorRef &x,
                             int64_t degree, double scale,
                             const PolynomialFeaturesOptions &options = {});

struct LowRankBackwardOptions {
  /// As for `low_rank`.
  TokenOptions queries, keys;
  Target target = Target::CPU;
  GradientMemory gradients;
};

struct LowRankGradients {
  OwnedTensor u1, u2, v;
};

/// The gradients of `low_rank` from that of its output; `out` is what it
/// returned. A row whose sum of weights is 0 passes nothing on.
llvm::Expected<LowRankGradients>
low_rank_backward(const TensorRef &dOut, const TensorRef &u1,
                  const TensorRef &u2, const TensorRef &v, const TensorRef &out,
                  const RowMask &mask,
                  const LowRankBackwardOptions &options = {});

} // namespace fovea

#endif // FOVEA_FUNCTIONS_LOWRANK_H
