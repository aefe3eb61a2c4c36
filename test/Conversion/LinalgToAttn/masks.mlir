// Prefixes of causal masks, and keys of each batch entry.

// RUN: fovea-opt %s --attn-raise --canonicalize | FileCheck %s
// RUN: fovea-opt %s --attn-raise=fully-masked=refuse --canonicalize | FileCheck %s --check-prefix=REFUSE
// RUN: fovea-run %s --entry=prefix --random --compare=reference
// RUN: fovea-run %s --entry=by_batch --random --compare=reference

#all = affine_map<(b, n, m) -> (b, n, m)>

// CHECK-LABEL: func.func @prefix(
// CHECK:         attn.dense {{.*}}mask = #attn.mask<causal, prefix = 3>
// REFUSE-LABEL: func.func @prefix(
// REFUSE:         attn.dense
func.func @prefix(%q: tensor<2x6x8xf32>, %k: tensor<2x6x8xf32>, %v: tensor<2x6x8xf32>) -> tensor<2x6x8xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %three = arith.constant 3 : index
  %scores = tensor.empty() : tensor<2x6x6xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%scores : tensor<2x6x6xf32>) -> tensor<2x6x6xf32>
  %s = linalg.batch_matmul
      indexing_maps = [affine_map<(b, n, m, d) -> (b, n, d)>, affine_map<(b, n, m, d) -> (b, m, d)>, affine_map<(b, n, m, d) -> (b, n, m)>]
      ins(%q, %k : tensor<2x6x8xf32>, tensor<2x6x8xf32>) outs(%zeros : tensor<2x6x6xf32>) -> tensor<2x6x6xf32>
  %x = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<2x6x6xf32>) outs(%scores : tensor<2x6x6xf32>) {
  ^bb0(%a: f32, %o: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %past = arith.cmpi ule, %j, %i : index
    %near = arith.cmpi ult, %j, %three : index
    %c = arith.ori %past, %near : i1
    %r = arith.select %c, %a, %low : f32
    linalg.yield %r : f32
  } -> tensor<2x6x6xf32>
  %p = linalg.softmax dimension(2) ins(%x : tensor<2x6x6xf32>) outs(%scores : tensor<2x6x6xf32>) -> tensor<2x6x6xf32>
  %result = tensor.empty() : tensor<2x6x8xf32>
  %none = linalg.fill ins(%zero : f32) outs(%result : tensor<2x6x8xf32>) -> tensor<2x6x8xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<2x6x6xf32>, tensor<2x6x8xf32>) outs(%none : tensor<2x6x8xf32>) -> tensor<2x6x8xf32>
  return %o : tensor<2x6x8xf32>
}

// CHECK-LABEL: func.func @lengths(
// CHECK-SAME:    %[[LAST:[^ ]+]]: tensor<2xi64>)
// CHECK-DAG:     %[[C5:.+]] = arith.constant 5 : i64
// CHECK-DAG:     %[[C1:.+]] = arith.constant 1 : i64
// CHECK-DAG:     %[[CM1:.+]] = arith.constant -1 : i64
// CHECK:         %[[LENGTHS:.+]] = linalg.generic {{.*}} ins(%[[LAST]] : tensor<2xi64>)
// CHECK:           %[[LOW:.+]] = arith.maxsi %{{.+}}, %[[CM1]] : i64
// CHECK:           %[[HIGH:.+]] = arith.minsi %[[LOW]], %[[C5]] : i64
// CHECK:           %[[N:.+]] = arith.addi %[[HIGH]], %[[C1]] : i64
// CHECK:           arith.trunci %[[N]] : i64 to i32
// CHECK:         attn.dense {{.*}} lengths(%[[LENGTHS]] : tensor<2xi32>)
// REFUSE-LABEL: func.func @lengths(
// REFUSE-NOT:     attn.dense
func.func @lengths(%q: tensor<2x4x8xf32>, %k: tensor<2x6x8xf32>, %v: tensor<2x6x8xf32>, %last: tensor<2xi64>) -> tensor<2x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %scores = tensor.empty() : tensor<2x4x6xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%scores : tensor<2x4x6xf32>) -> tensor<2x4x6xf32>
  %s = linalg.batch_matmul
      indexing_maps = [affine_map<(b, n, m, d) -> (b, n, d)>, affine_map<(b, n, m, d) -> (b, m, d)>, affine_map<(b, n, m, d) -> (b, n, m)>]
      ins(%q, %k : tensor<2x4x8xf32>, tensor<2x6x8xf32>) outs(%zeros : tensor<2x4x6xf32>) -> tensor<2x4x6xf32>
  // A key behind the last is hidden.
  %x = linalg.generic {indexing_maps = [#all, affine_map<(b, n, m) -> (b)>, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %last : tensor<2x4x6xf32>, tensor<2xi64>) outs(%scores : tensor<2x4x6xf32>) {
  ^bb0(%a: f32, %l: i64, %o: f32):
    %m = linalg.index 2 : index
    %j = arith.index_cast %m : index to i64
    %c = arith.cmpi slt, %l, %j : i64
    %r = arith.select %c, %low, %a : f32
    linalg.yield %r : f32
  } -> tensor<2x4x6xf32>
  %p = linalg.softmax dimension(2) ins(%x : tensor<2x4x6xf32>) outs(%scores : tensor<2x4x6xf32>) -> tensor<2x4x6xf32>
  %result = tensor.empty() : tensor<2x4x8xf32>
  %none = linalg.fill ins(%zero : f32) outs(%result : tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<2x4x6xf32>, tensor<2x6x8xf32>) outs(%none : tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %o : tensor<2x4x8xf32>
}

// Positions that are read for each batch entry, but are the same for all.
// CHECK-LABEL: func.func @by_batch(
// CHECK:         attn.dense {{.*}} {mask = #attn.mask<causal>
// REFUSE-LABEL: func.func @by_batch(
// REFUSE:         attn.dense
func.func @by_batch(%q: tensor<2x6x8xf32>) -> tensor<2x6x8xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %scores = tensor.empty() : tensor<2x6x6xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%scores : tensor<2x6x6xf32>) -> tensor<2x6x6xf32>
  %s = linalg.batch_matmul
      indexing_maps = [affine_map<(b, n, m, d) -> (b, n, d)>, affine_map<(b, n, m, d) -> (b, m, d)>, affine_map<(b, n, m, d) -> (b, n, m)>]
      ins(%q, %q : tensor<2x6x8xf32>, tensor<2x6x8xf32>) outs(%zeros : tensor<2x6x6xf32>) -> tensor<2x6x6xf32>
  %e = tensor.empty() : tensor<2x6xindex>
  %positions = linalg.generic {indexing_maps = [affine_map<(b, n) -> (b, n)>], iterator_types = ["parallel", "parallel"]}
      outs(%e : tensor<2x6xindex>) {
  ^bb0(%o: index):
    %n = linalg.index 1 : index
    linalg.yield %n : index
  } -> tensor<2x6xindex>
  %x = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<2x6x6xf32>) outs(%scores : tensor<2x6x6xf32>) {
  ^bb0(%a: f32, %o: f32):
    %b = linalg.index 0 : index
    %n = linalg.index 1 : index
    %m = linalg.index 2 : index
    %i = tensor.extract %positions[%b, %n] : tensor<2x6xindex>
    %j = tensor.extract %positions[%b, %m] : tensor<2x6xindex>
    %c = arith.cmpi sle, %j, %i : index
    %r = arith.select %c, %a, %low : f32
    linalg.yield %r : f32
  } -> tensor<2x6x6xf32>
  %p = linalg.softmax dimension(2) ins(%x : tensor<2x6x6xf32>) outs(%scores : tensor<2x6x6xf32>) -> tensor<2x6x6xf32>
  %result = tensor.empty() : tensor<2x6x8xf32>
  %none = linalg.fill ins(%zero : f32) outs(%result : tensor<2x6x8xf32>) -> tensor<2x6x8xf32>
  %o = linalg.batch_matmul ins(%p, %q : tensor<2x6x6xf32>, tensor<2x6x8xf32>) outs(%none : tensor<2x6x8xf32>) -> tensor<2x6x8xf32>
  return %o : tensor<2x6x8xf32>
}
