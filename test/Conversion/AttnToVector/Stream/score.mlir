// RUN: fovea-opt %s --convert-attn-to-vector --canonicalize --cse --split-input-file | FileCheck %s

// Entries of a register tile have one distance in common, and each vector a
// constant, a conversion and a sum with a product. A slope that is not there is
// NaN, so that no score needs a flag.

// CHECK-LABEL: func @alibi
// CHECK: scf.if %{{.+}} -> (f32)
// CHECK: vector.fma
// CHECK: %[[APART:.+]] = vector.broadcast %{{.+}} : i32 to vector<8xi32>
// CHECK: %[[VECTOR:.+]] = arith.addi %[[APART]], %{{.+}} : vector<8xi32>
// CHECK: arith.sitofp %[[VECTOR]] : vector<8xi32> to vector<8xf32>
// CHECK: math.fma
// CHECK: arith.addi %[[APART]], %{{.+}} : vector<8xi32>
// CHECK: return
func.func @alibi(%i: index, %q: memref<1x2x16x16xf32>, %k: memref<1x2x4096x16xf32>, %slopes: memref<?xf32>,
                 %o: memref<1x2x16x16xf32>) {
  %n = arith.constant 4096 : index
  attn.stream query(%q : memref<1x2x16x16xf32>)
      source(%k, %k : memref<1x2x4096x16xf32>, memref<1x2x4096x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      score(%slopes : memref<?xf32>) {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %j: index, %c: tensor<?xf32>):
        %slope = tensor.extract %c[%h] : tensor<?xf32>
        %distance = arith.subi %j, %p : index
        %wide = arith.index_cast %distance : index to i64
        %number = arith.sitofp %wide : i64 to f32
        %term = arith.mulf %slope, %number : f32
        %t = arith.addf %s, %term : f32
        attn.yield %t : f32
      }
      tile(%i of %n) outs(%o : memref<1x2x16x16xf32>)
      {scale = 0.25 : f64, tiles = #attn.tiles<query = 16, key = 128, lanes = 8, vectors = 2, keys = 4, columns = 4>}
  return
}

// -----

// A condition on positions compares a constant with how far apart they are.

// CHECK-LABEL: func @causal
// CHECK: %[[APART:.+]] = vector.broadcast %{{.+}} : i32 to vector<8xi32>
// CHECK: arith.cmpi s{{.+}} %[[APART]]{{.*}} : vector<8xi32>
// CHECK: arith.cmpi s{{.+}} %[[APART]]{{.*}} : vector<8xi32>
// CHECK: return
func.func @causal(%i: index, %q: memref<1x1x16x16xf32>, %k: memref<1x1x4096x16xf32>, %o: memref<1x1x16x16xf32>) {
  %n = arith.constant 4096 : index
  attn.stream query(%q : memref<1x1x16x16xf32>)
      source(%k, %k : memref<1x1x4096x16xf32>, memref<1x1x4096x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      score {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %j: index):
        %admits = arith.cmpi sge, %p, %j : index
        %removed = arith.constant 0xFF800000 : f32
        %t = arith.select %admits, %s, %removed : f32
        attn.yield %t : f32
      }
      tile(%i of %n) outs(%o : memref<1x1x16x16xf32>)
      {scale = 0.25 : f64, tiles = #attn.tiles<query = 16, key = 128, lanes = 8, vectors = 2, keys = 4, columns = 4>}
  return
}

// -----

// A remainder of how far entries are apart is taken once for a register tile,
// and every tile has all of them: none is looked at by parts.

// Sums are looked at once for a block of queries, rather than those of each
// tile.

// CHECK-LABEL: func @dilated
// CHECK-NOT: arith.floordivsi
// CHECK: scf.while
// CHECK: %[[REST:.+]] = arith.andi %{{.+}}, %c3
// CHECK: %[[NARROW:.+]] = arith.index_cast %[[REST]] : index to i32
// CHECK: %[[APART:.+]] = vector.broadcast %[[NARROW]] : i32 to vector<8xi32>
// CHECK-COUNT-4: arith.cmpi eq, %[[APART]], %{{.+}} : vector<8xi32>
// CHECK-NOT: arith.cmpi eq, %[[APART]]
// CHECK-NOT: arith.cmpf uno
// CHECK: arith.cmpf uno
// CHECK: scf.condition
// CHECK-NOT: arith.cmpf uno
// CHECK: return
func.func @dilated(%i: index, %q: memref<1x1x16x16xf32>, %k: memref<1x1x4096x16xf32>, %o: memref<1x1x16x16xf32>) {
  %n = arith.constant 4096 : index
  attn.stream query(%q : memref<1x1x16x16xf32>)
      source(%k, %k : memref<1x1x4096x16xf32>, memref<1x1x4096x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      score {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %j: index):
        %zero = arith.constant 0 : index
        %four = arith.constant 4 : index
        %apart = arith.subi %p, %j : index
        %quotient = arith.floordivsi %apart, %four : index
        %multiple = arith.muli %quotient, %four : index
        %rest = arith.subi %apart, %multiple : index
        %admits = arith.cmpi eq, %rest, %zero : index
        %removed = arith.constant 0xFF800000 : f32
        %t = arith.select %admits, %s, %removed : f32
        attn.yield %t : f32
      }
      tile(%i of %n) outs(%o : memref<1x1x16x16xf32>)
      {scale = 0.25 : f64, tiles = #attn.tiles<query = 16, key = 128, lanes = 8, vectors = 2, keys = 4, columns = 4>}
  return
}

// -----

// Rows before the first tile that a region may admit something of are passed
// over, those of four tiles at a time.

// CHECK-LABEL: func @documents
// CHECK: scf.while
// CHECK: %[[FIRST:.+]]:2 = scf.while (%{{.+}} = %c0, %{{.+}} = %c512)
// CHECK: scf.for %{{.+}} = %[[FIRST]]#0 to %{{.+}} step %c128
// CHECK: return
func.func @documents(%i: index, %q: memref<1x1x16x16xf32>, %k: memref<1x1x4096x16xf32>, %ids: memref<4096xi64>,
                     %o: memref<1x1x16x16xf32>) {
  %n = arith.constant 4096 : index
  attn.stream query(%q : memref<1x1x16x16xf32>)
      source(%k, %k : memref<1x1x4096x16xf32>, memref<1x1x4096x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      score(%ids : memref<4096xi64>) {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %j: index, %of: tensor<4096xi64>):
        %own = tensor.extract %of[%p] : tensor<4096xi64>
        %other = tensor.extract %of[%j] : tensor<4096xi64>
        %admits = arith.cmpi eq, %own, %other : i64
        %removed = arith.constant 0xFF800000 : f32
        %t = arith.select %admits, %s, %removed : f32
        attn.yield %t : f32
      }
      tile(%i of %n) outs(%o : memref<1x1x16x16xf32>)
      {scale = 0.25 : f64, tiles = #attn.tiles<query = 16, key = 128, lanes = 8, vectors = 2, keys = 4, columns = 4>}
  return
}

// -----

// Where tasks share integers that are read by key, the bounds of runs of 64 are
// computed before, and tiles are passed over by these alone.

// CHECK-LABEL: func @runs
// CHECK-DAG: %[[LEAST:.+]] = memref.alloc() {{.*}}: memref<2x64xi64>
// CHECK-DAG: %[[GREATEST:.+]] = memref.alloc() {{.*}}: memref<2x64xi64>
// CHECK: scf.for %[[ROW:.+]] = %c0 to %c2 step %c1
// CHECK: scf.for %[[EACH:.+]] = %c0 to %c64 step %c1
// CHECK: memref.store %{{.+}}, %{{.+}}[%[[ROW]], %[[EACH]]]
// CHECK: memref.store %{{.+}}, %{{.+}}[%[[ROW]], %[[EACH]]]
// CHECK: scf.forall
// CHECK: scf.while (%{{.+}} = %c0, %{{.+}} = %c512)
// CHECK: vector.load %[[LEAST]]
// CHECK: vector.load %[[GREATEST]]
// CHECK: scf.for %{{.+}} step %c128
// CHECK-NOT: %[[LEAST]][
// CHECK: memref.dealloc %[[LEAST]]
// CHECK: memref.dealloc %[[GREATEST]]
// CHECK: return
func.func @runs(%q: memref<2x1x4096x16xf32>, %ids: memref<2x4096xi64>, %o: memref<2x1x4096x16xf32>) {
  %n = arith.constant 4096 : index
  scf.forall (%i) = (0) to (4096) step (16) {
    %queries = memref.subview %q[0, 0, %i, 0] [2, 1, 16, 16] [1, 1, 1, 1]
        : memref<2x1x4096x16xf32> to memref<2x1x16x16xf32, strided<[65536, 65536, 16, 1], offset: ?>>
    %out = memref.subview %o[0, 0, %i, 0] [2, 1, 16, 16] [1, 1, 1, 1]
        : memref<2x1x4096x16xf32> to memref<2x1x16x16xf32, strided<[65536, 65536, 16, 1], offset: ?>>
    attn.stream query(%queries : memref<2x1x16x16xf32, strided<[65536, 65536, 16, 1], offset: ?>>)
        source(%q, %q : memref<2x1x4096x16xf32>, memref<2x1x4096x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
        score(%ids : memref<2x4096xi64>) {
        ^bb0(%s: f32, %b: index, %h: index, %p: index, %j: index, %of: tensor<2x4096xi64>):
          %own = tensor.extract %of[%b, %p] : tensor<2x4096xi64>
          %other = tensor.extract %of[%b, %j] : tensor<2x4096xi64>
          %admits = arith.cmpi eq, %own, %other : i64
          %removed = arith.constant 0xFF800000 : f32
          %t = arith.select %admits, %s, %removed : f32
          attn.yield %t : f32
        }
        tile(%i of %n) outs(%out : memref<2x1x16x16xf32, strided<[65536, 65536, 16, 1], offset: ?>>)
        {scale = 0.25 : f64, tiles = #attn.tiles<query = 16, key = 128, lanes = 8, vectors = 2, keys = 4, columns = 4>}
  }
  return
}

// -----

// Each query reads a row of its own.

// CHECK-LABEL: func @rows_of_queries
// CHECK-NOT: memref.alloc
// CHECK: scf.forall
// CHECK: return
func.func @rows_of_queries(%q: memref<1x1x4096x16xf32>, %pairs: memref<4096x4096xi8>, %o: memref<1x1x4096x16xf32>) {
  %n = arith.constant 4096 : index
  scf.forall (%i) = (0) to (4096) step (16) {
    %queries = memref.subview %q[0, 0, %i, 0] [1, 1, 16, 16] [1, 1, 1, 1]
        : memref<1x1x4096x16xf32> to memref<1x1x16x16xf32, strided<[65536, 65536, 16, 1], offset: ?>>
    %out = memref.subview %o[0, 0, %i, 0] [1, 1, 16, 16] [1, 1, 1, 1]
        : memref<1x1x4096x16xf32> to memref<1x1x16x16xf32, strided<[65536, 65536, 16, 1], offset: ?>>
    attn.stream query(%queries : memref<1x1x16x16xf32, strided<[65536, 65536, 16, 1], offset: ?>>)
        source(%q, %q : memref<1x1x4096x16xf32>, memref<1x1x4096x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
        score(%pairs : memref<4096x4096xi8>) {
        ^bb0(%s: f32, %b: index, %h: index, %p: index, %j: index, %of: tensor<4096x4096xi8>):
          %zero = arith.constant 0 : i8
          %pair = tensor.extract %of[%p, %j] : tensor<4096x4096xi8>
          %admits = arith.cmpi ne, %pair, %zero : i8
          %removed = arith.constant 0xFF800000 : f32
          %t = arith.select %admits, %s, %removed : f32
          attn.yield %t : f32
        }
        tile(%i of %n) outs(%out : memref<1x1x16x16xf32, strided<[65536, 65536, 16, 1], offset: ?>>)
        {scale = 0.25 : f64, tiles = #attn.tiles<query = 16, key = 128, lanes = 8, vectors = 2, keys = 4, columns = 4>}
  }
  return
}

// -----

// A diagonal that a region admits whole is scored without its condition: rows
// of either triangle up to the count, or none.

// CHECK-LABEL: func @diagonal
// CHECK: scf.for %{{.+}} = %c0 to %{{.+}} step %c16 iter_args({{.+}}) -> (vector<8xf32>
// CHECK: %[[END:.+]] = arith.select %{{.+}}, %{{.+}}, %c0 : index
// CHECK: %[[HIGH:.+]] = arith.minsi %{{.+}}, %[[END]] : index
// CHECK: %[[COUNT:.+]] = arith.subi %[[HIGH]], %[[LOW:.+]] : index
// CHECK: scf.for %{{.+}} = %[[LOW]] to %{{.+}} step %c4
// CHECK-NOT: vector<8xi64>
// CHECK: scf.for %{{.+}} = %{{.+}} to %[[HIGH]] step %c1
// CHECK-NOT: vector<8xi64>
// CHECK: scf.for %{{.+}} step %c4
// CHECK: arith.cmpi eq, %{{.+}} : vector<8xi64>
// CHECK: return
func.func @diagonal(%i: index, %q: memref<1x1x16x16xf32>, %k: memref<1x1x4096x16xf32>, %ids: memref<4096xi64>,
                    %o: memref<1x1x16x16xf32>) {
  %n = arith.constant 4096 : index
  attn.stream query(%q : memref<1x1x16x16xf32>)
      source(%k, %k : memref<1x1x4096x16xf32>, memref<1x1x4096x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      score(%ids : memref<4096xi64>) {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %j: index, %of: tensor<4096xi64>):
        %own = tensor.extract %of[%p] : tensor<4096xi64>
        %other = tensor.extract %of[%j] : tensor<4096xi64>
        %admits = arith.cmpi eq, %own, %other : i64
        %removed = arith.constant 0xFF800000 : f32
        %t = arith.select %admits, %s, %removed : f32
        attn.yield %t : f32
      }
      tile(%i of %n) outs(%o : memref<1x1x16x16xf32>)
      {scale = 0.25 : f64, tiles = #attn.tiles<query = 16, key = 128, lanes = 8, vectors = 2, keys = 4, columns = 4>}
  return
}

// -----

// Keys are looked through once for a tile of a gradient, rather than each sum.

// CHECK-LABEL: func @gradient
// CHECK: %[[SPECIAL:.+]] = vector.reduction <or>
// CHECK: scf.if %{{.+}} -> {{.*}}vector<8xf32>
// CHECK: arith.cmpf ord
// CHECK: return
func.func @gradient(%q: memref<1x2x128x16xf32>, %l: memref<1x2x128xf32>, %d: memref<1x2x128x16xf32>,
                    %dq: memref<1x2x128x16xf32>, %dk: memref<1x2x128x16xf32>, %dv: memref<1x2x128x16xf32>) {
  attn.stream_backward query(%q : memref<1x2x128x16xf32>)
      source(%q, %q : memref<1x2x128x16xf32>, memref<1x2x128x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      score {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %j: index):
        %term = arith.constant 0.5 : f32
        %t = arith.addf %s, %term : f32
        attn.yield %t : f32
      }
      forward(%q, %l : memref<1x2x128x16xf32>, memref<1x2x128xf32>) gradient(%d : memref<1x2x128x16xf32>)
      outs(%dq, %dk, %dv : memref<1x2x128x16xf32>, memref<1x2x128x16xf32>, memref<1x2x128x16xf32>)
      {scale = 1.0 : f64, tiles = #attn.tiles<query = 16, key = 64, lanes = 8, vectors = 2, keys = 4, columns = 4>}
  return
}
