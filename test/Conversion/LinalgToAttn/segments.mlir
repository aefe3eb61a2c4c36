// RUN: fovea-opt %s --attn-raise --canonicalize | FileCheck %s
// RUN: fovea-run %s --entry=documents --random --compare=reference
// RUN: fovea-run %s --entry=documents --random --target=gpu-sim --compare=reference
// RUN: fovea-run %s --entry=causal_documents --random --compare=reference
// RUN: fovea-run %s --entry=order --random --compare=reference
// RUN: sed -e 's/cmpi sle, %%b, %%a/cmpi ule, %%b, %%a/' %s > %t.mlir
// RUN: fovea-opt %t.mlir --attn-raise --canonicalize | FileCheck %s --check-prefix=UNSIGNED
// RUN: fovea-run %t.mlir --entry=order --random --compare=reference
// RUN: fovea-run %s --entry=weighs --random --compare=reference

// Integers of queries and keys that are compared, such as documents of packed sequences, need no number for each pair.

#two = affine_map<(b, n) -> (b, n)>
#x = affine_map<(b, h, n, m) -> (b, h, n, m)>
#row = affine_map<(b, h, n, m) -> (b, h, n)>
#i = affine_map<(b, h, n, m) -> (b, n)>
#j = affine_map<(b, h, n, m) -> (b, m)>
#q = affine_map<(b, h, n, m, d) -> (b, h, n, d)>
#k = affine_map<(b, h, n, m, d) -> (b, h, m, d)>
#s = affine_map<(b, h, n, m, d) -> (b, h, n, m)>
#x5 = affine_map<(b, h, n, e, m) -> (b, h, n, m)>
#v = affine_map<(b, h, n, e, m) -> (b, h, m, e)>
#o = affine_map<(b, h, n, e, m) -> (b, h, n, e)>

// CHECK-LABEL: func.func @documents(
// CHECK-NOT:     bias
// CHECK:         attn.dense {{.*}} score(%{{.*}}, %{{.*}} : tensor<2x1x37x1xi64>, tensor<2x1x1x150xi64>)
// CHECK:         ^bb0(%[[S:.*]]: f32, %[[B:.*]]: index, %{{.*}}: index, %[[I:.*]]: index, %[[J:.*]]: index, %[[L:.*]]: tensor<2x1x37x1xi64>, %[[R:.*]]: tensor<2x1x1x150xi64>):
// CHECK:           %[[ROW:.*]] = arith.subi %[[I]], %c113
// CHECK:           %[[A:.*]] = tensor.extract %[[L]][%[[B]], %c0{{.*}}, %[[ROW]], %c0{{.*}}]
// CHECK:           %[[C:.*]] = tensor.extract %[[R]][%[[B]], %c0{{.*}}, %c0{{.*}}, %[[J]]]
// CHECK:           arith.cmpi eq, %[[A]], %[[C]] : i64
func.func @documents(%q: tensor<2x3x37x8xf32>, %k: tensor<2x3x150x8xf32>, %marks: tensor<2x37xf32>, %others: tensor<2x150xf32>) -> tensor<2x3x37x8xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %ten = arith.constant -1.0e4 : f32
  %i = tensor.empty() : tensor<2x37xi64>
  %ids = linalg.generic {indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]}
      ins(%marks : tensor<2x37xf32>) outs(%i : tensor<2x37xi64>) {
  ^bb0(%a: f32, %o: i64):
    %t = arith.fptosi %a : f32 to i64
    linalg.yield %t : i64
  } -> tensor<2x37xi64>
  %j = tensor.empty() : tensor<2x150xi64>
  %jds = linalg.generic {indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]}
      ins(%others : tensor<2x150xf32>) outs(%j : tensor<2x150xi64>) {
  ^bb0(%a: f32, %o: i64):
    %t = arith.fptosi %a : f32 to i64
    linalg.yield %t : i64
  } -> tensor<2x150xi64>
  %e = tensor.empty() : tensor<2x3x37x150xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x3x37x150xf32>) -> tensor<2x3x37x150xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<2x3x37x8xf32>, tensor<2x3x150x8xf32>) outs(%z : tensor<2x3x37x150xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<2x3x37x150xf32>
  %masked = linalg.generic {indexing_maps = [#x, #i, #j, #x], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s, %ids, %jds : tensor<2x3x37x150xf32>, tensor<2x37xi64>, tensor<2x150xi64>) outs(%e : tensor<2x3x37x150xf32>) {
  ^bb0(%score: f32, %a: i64, %b: i64, %o: f32):
    %c = arith.cmpi eq, %a, %b : i64
    %t = arith.select %c, %score, %low : f32
    linalg.yield %t : f32
  } -> tensor<2x3x37x150xf32>
  %true = arith.constant true
  %h = tensor.empty() : tensor<2x3x37xi1>
  %y = linalg.fill ins(%true : i1) outs(%h : tensor<2x3x37xi1>) -> tensor<2x3x37xi1>
  %all = linalg.generic {indexing_maps = [#x, #row], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%masked : tensor<2x3x37x150xf32>) outs(%y : tensor<2x3x37xi1>) {
  ^bb0(%score: f32, %o: i1):
    %c = arith.cmpf oeq, %score, %low : f32
    %t = arith.andi %o, %c : i1
    linalg.yield %t : i1
  } -> tensor<2x3x37xi1>
  %p0 = linalg.softmax dimension(3) ins(%masked : tensor<2x3x37x150xf32>) outs(%e : tensor<2x3x37x150xf32>) -> tensor<2x3x37x150xf32>
  %w = linalg.generic {indexing_maps = [#row, #x, #x], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%all, %p0 : tensor<2x3x37xi1>, tensor<2x3x37x150xf32>) outs(%e : tensor<2x3x37x150xf32>) {
  ^bb0(%c: i1, %p: f32, %o: f32):
    %t = arith.select %c, %zero, %p : f32
    linalg.yield %t : f32
  } -> tensor<2x3x37x150xf32>
  %f = tensor.empty() : tensor<2x3x37x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<2x3x37x8xf32>) -> tensor<2x3x37x8xf32>
  %r = linalg.generic {indexing_maps = [#x5, #v, #o], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%w, %k : tensor<2x3x37x150xf32>, tensor<2x3x150x8xf32>) outs(%g : tensor<2x3x37x8xf32>) {
  ^bb0(%l: f32, %c: f32, %o: f32):
    %p = arith.mulf %l, %c : f32
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<2x3x37x8xf32>
  return %r : tensor<2x3x37x8xf32>
}

// The mask of positions is one still.

// CHECK-LABEL: func.func @causal_documents(
// CHECK-NOT:     bias
// CHECK:         attn.dense {{.*}} score(
// CHECK:           arith.cmpi eq, %{{.*}}, %{{.*}} : i32
// CHECK:         mask = #attn.mask<causal>
func.func @causal_documents(%q: tensor<2x3x40x8xf32>, %k: tensor<2x3x40x8xf32>, %marks: tensor<2x40xf32>, %others: tensor<2x40xf32>) -> tensor<2x3x40x8xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %ten = arith.constant -1.0e4 : f32
  %i = tensor.empty() : tensor<2x40xi32>
  %ids = linalg.generic {indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]}
      ins(%marks : tensor<2x40xf32>) outs(%i : tensor<2x40xi32>) {
  ^bb0(%a: f32, %o: i32):
    %t = arith.fptosi %a : f32 to i32
    linalg.yield %t : i32
  } -> tensor<2x40xi32>
  %j = tensor.empty() : tensor<2x40xi32>
  %jds = linalg.generic {indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]}
      ins(%others : tensor<2x40xf32>) outs(%j : tensor<2x40xi32>) {
  ^bb0(%a: f32, %o: i32):
    %t = arith.fptosi %a : f32 to i32
    linalg.yield %t : i32
  } -> tensor<2x40xi32>
  %e = tensor.empty() : tensor<2x3x40x40xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x3x40x40xf32>) -> tensor<2x3x40x40xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<2x3x40x8xf32>, tensor<2x3x40x8xf32>) outs(%z : tensor<2x3x40x40xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<2x3x40x40xf32>
  %masked = linalg.generic {indexing_maps = [#x, #i, #j, #x], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s, %ids, %jds : tensor<2x3x40x40xf32>, tensor<2x40xi32>, tensor<2x40xi32>) outs(%e : tensor<2x3x40x40xf32>) {
  ^bb0(%score: f32, %a: i32, %b: i32, %o: f32):
    %n = linalg.index 2 : index
    %m = linalg.index 3 : index
    %d = arith.cmpi eq, %a, %b : i32
    %p = arith.cmpi ule, %m, %n : index
    %c = arith.andi %d, %p : i1
    %t = arith.select %c, %score, %low : f32
    linalg.yield %t : f32
  } -> tensor<2x3x40x40xf32>
  %true = arith.constant true
  %h = tensor.empty() : tensor<2x3x40xi1>
  %y = linalg.fill ins(%true : i1) outs(%h : tensor<2x3x40xi1>) -> tensor<2x3x40xi1>
  %all = linalg.generic {indexing_maps = [#x, #row], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%masked : tensor<2x3x40x40xf32>) outs(%y : tensor<2x3x40xi1>) {
  ^bb0(%score: f32, %o: i1):
    %c = arith.cmpf oeq, %score, %low : f32
    %t = arith.andi %o, %c : i1
    linalg.yield %t : i1
  } -> tensor<2x3x40xi1>
  %p0 = linalg.softmax dimension(3) ins(%masked : tensor<2x3x40x40xf32>) outs(%e : tensor<2x3x40x40xf32>) -> tensor<2x3x40x40xf32>
  %w = linalg.generic {indexing_maps = [#row, #x, #x], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%all, %p0 : tensor<2x3x40xi1>, tensor<2x3x40x40xf32>) outs(%e : tensor<2x3x40x40xf32>) {
  ^bb0(%c: i1, %p: f32, %o: f32):
    %t = arith.select %c, %zero, %p : f32
    linalg.yield %t : f32
  } -> tensor<2x3x40x40xf32>
  %f = tensor.empty() : tensor<2x3x40x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<2x3x40x8xf32>) -> tensor<2x3x40x8xf32>
  %r = linalg.generic {indexing_maps = [#x5, #v, #o], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%w, %k : tensor<2x3x40x40xf32>, tensor<2x3x40x8xf32>) outs(%g : tensor<2x3x40x8xf32>) {
  ^bb0(%l: f32, %c: f32, %o: f32):
    %p = arith.mulf %l, %c : f32
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<2x3x40x8xf32>
  return %r : tensor<2x3x40x8xf32>
}

// Other comparisons, and the key first.

// CHECK-LABEL: func.func @order(
// CHECK-NOT:     bias
// CHECK:         attn.dense {{.*}} score(
// CHECK:           arith.cmpi sge, %{{.*}}, %{{.*}} : i64
// UNSIGNED-LABEL: func.func @order(
// UNSIGNED:        attn.dense {{.*}} score(
// UNSIGNED:          arith.cmpi uge, %{{.*}}, %{{.*}} : i64
func.func @order(%q: tensor<2x3x5x8xf32>, %k: tensor<2x3x9x8xf32>, %marks: tensor<2x5xf32>, %others: tensor<2x9xf32>) -> tensor<2x3x5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %ten = arith.constant -1.0e4 : f32
  %i = tensor.empty() : tensor<2x5xi64>
  %ids = linalg.generic {indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]}
      ins(%marks : tensor<2x5xf32>) outs(%i : tensor<2x5xi64>) {
  ^bb0(%a: f32, %o: i64):
    %t = arith.fptosi %a : f32 to i64
    linalg.yield %t : i64
  } -> tensor<2x5xi64>
  %j = tensor.empty() : tensor<2x9xi64>
  %jds = linalg.generic {indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]}
      ins(%others : tensor<2x9xf32>) outs(%j : tensor<2x9xi64>) {
  ^bb0(%a: f32, %o: i64):
    %t = arith.fptosi %a : f32 to i64
    linalg.yield %t : i64
  } -> tensor<2x9xi64>
  %e = tensor.empty() : tensor<2x3x5x9xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x3x5x9xf32>) -> tensor<2x3x5x9xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<2x3x5x8xf32>, tensor<2x3x9x8xf32>) outs(%z : tensor<2x3x5x9xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<2x3x5x9xf32>
  %masked = linalg.generic {indexing_maps = [#x, #i, #j, #x], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s, %ids, %jds : tensor<2x3x5x9xf32>, tensor<2x5xi64>, tensor<2x9xi64>) outs(%e : tensor<2x3x5x9xf32>) {
  ^bb0(%score: f32, %a: i64, %b: i64, %o: f32):
    %c = arith.cmpi sle, %b, %a : i64
    %t = arith.select %c, %score, %low : f32
    linalg.yield %t : f32
  } -> tensor<2x3x5x9xf32>
  %true = arith.constant true
  %h = tensor.empty() : tensor<2x3x5xi1>
  %y = linalg.fill ins(%true : i1) outs(%h : tensor<2x3x5xi1>) -> tensor<2x3x5xi1>
  %all = linalg.generic {indexing_maps = [#x, #row], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%masked : tensor<2x3x5x9xf32>) outs(%y : tensor<2x3x5xi1>) {
  ^bb0(%score: f32, %o: i1):
    %c = arith.cmpf oeq, %score, %low : f32
    %t = arith.andi %o, %c : i1
    linalg.yield %t : i1
  } -> tensor<2x3x5xi1>
  %p0 = linalg.softmax dimension(3) ins(%masked : tensor<2x3x5x9xf32>) outs(%e : tensor<2x3x5x9xf32>) -> tensor<2x3x5x9xf32>
  %w = linalg.generic {indexing_maps = [#row, #x, #x], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%all, %p0 : tensor<2x3x5xi1>, tensor<2x3x5x9xf32>) outs(%e : tensor<2x3x5x9xf32>) {
  ^bb0(%c: i1, %p: f32, %o: f32):
    %t = arith.select %c, %zero, %p : f32
    linalg.yield %t : f32
  } -> tensor<2x3x5x9xf32>
  %f = tensor.empty() : tensor<2x3x5x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<2x3x5x8xf32>) -> tensor<2x3x5x8xf32>
  %r = linalg.generic {indexing_maps = [#x5, #v, #o], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%w, %k : tensor<2x3x5x9xf32>, tensor<2x3x9x8xf32>) outs(%g : tensor<2x3x5x8xf32>) {
  ^bb0(%l: f32, %c: f32, %o: f32):
    %p = arith.mulf %l, %c : f32
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<2x3x5x8xf32>
  return %r : tensor<2x3x5x8xf32>
}

// What is added and does not hide is a bias.

// CHECK-LABEL: func.func @weighs(
// CHECK:         attn.dense {{.*}} bias(%{{.*}} : tensor<2x1x5x9xf32>)
func.func @weighs(%q: tensor<2x3x5x8xf32>, %k: tensor<2x3x9x8xf32>, %marks: tensor<2x5xf32>, %others: tensor<2x9xf32>) -> tensor<2x3x5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %ten = arith.constant -1.0e4 : f32
  %i = tensor.empty() : tensor<2x5xi64>
  %ids = linalg.generic {indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]}
      ins(%marks : tensor<2x5xf32>) outs(%i : tensor<2x5xi64>) {
  ^bb0(%a: f32, %o: i64):
    %t = arith.fptosi %a : f32 to i64
    linalg.yield %t : i64
  } -> tensor<2x5xi64>
  %j = tensor.empty() : tensor<2x9xi64>
  %jds = linalg.generic {indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]}
      ins(%others : tensor<2x9xf32>) outs(%j : tensor<2x9xi64>) {
  ^bb0(%a: f32, %o: i64):
    %t = arith.fptosi %a : f32 to i64
    linalg.yield %t : i64
  } -> tensor<2x9xi64>
  %e = tensor.empty() : tensor<2x3x5x9xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x3x5x9xf32>) -> tensor<2x3x5x9xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<2x3x5x8xf32>, tensor<2x3x9x8xf32>) outs(%z : tensor<2x3x5x9xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<2x3x5x9xf32>
  %masked = linalg.generic {indexing_maps = [#x, #i, #j, #x], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s, %ids, %jds : tensor<2x3x5x9xf32>, tensor<2x5xi64>, tensor<2x9xi64>) outs(%e : tensor<2x3x5x9xf32>) {
  ^bb0(%score: f32, %a: i64, %b: i64, %o: f32):
    %c = arith.cmpi eq, %a, %b : i64
    %u = arith.select %c, %zero, %ten : f32
    %t = arith.addf %score, %u : f32
    linalg.yield %t : f32
  } -> tensor<2x3x5x9xf32>
  %true = arith.constant true
  %h = tensor.empty() : tensor<2x3x5xi1>
  %y = linalg.fill ins(%true : i1) outs(%h : tensor<2x3x5xi1>) -> tensor<2x3x5xi1>
  %all = linalg.generic {indexing_maps = [#x, #row], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%masked : tensor<2x3x5x9xf32>) outs(%y : tensor<2x3x5xi1>) {
  ^bb0(%score: f32, %o: i1):
    %c = arith.cmpf oeq, %score, %low : f32
    %t = arith.andi %o, %c : i1
    linalg.yield %t : i1
  } -> tensor<2x3x5xi1>
  %p0 = linalg.softmax dimension(3) ins(%masked : tensor<2x3x5x9xf32>) outs(%e : tensor<2x3x5x9xf32>) -> tensor<2x3x5x9xf32>
  %w = linalg.generic {indexing_maps = [#row, #x, #x], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%all, %p0 : tensor<2x3x5xi1>, tensor<2x3x5x9xf32>) outs(%e : tensor<2x3x5x9xf32>) {
  ^bb0(%c: i1, %p: f32, %o: f32):
    %t = arith.select %c, %zero, %p : f32
    linalg.yield %t : f32
  } -> tensor<2x3x5x9xf32>
  %f = tensor.empty() : tensor<2x3x5x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<2x3x5x8xf32>) -> tensor<2x3x5x8xf32>
  %r = linalg.generic {indexing_maps = [#x5, #v, #o], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%w, %k : tensor<2x3x5x9xf32>, tensor<2x3x9x8xf32>) outs(%g : tensor<2x3x5x8xf32>) {
  ^bb0(%l: f32, %c: f32, %o: f32):
    %p = arith.mulf %l, %c : f32
    %t = arith.addf %p, %o : f32
    linalg.yield %t : f32
  } -> tensor<2x3x5x8xf32>
  return %r : tensor<2x3x5x8xf32>
}
