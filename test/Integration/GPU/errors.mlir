// What GPU targets cannot do is one clear error.

// RUN: not fovea-run %s --entry=f64 --target=gpu-sim --random 2>&1 | FileCheck %s --check-prefix=TYPE
// TYPE: error: 'attn.stream' op has data of type 'f64', but GPU kernels take f16, bf16 and f32
// RUN: not fovea-run %s --entry=broad --target=gpu-sim --random 2>&1 | FileCheck %s --check-prefix=WIDTH
// WIDTH: error: 'attn.stream' op has heads of width 1100, but GPU kernels take at most 1024
// RUN: not fovea-run %s --entry=good --target=gpu-sim --chip=sm_70 --random 2>&1 | FileCheck %s --check-prefix=OLD
// OLD: error: GPU 'sm_70' is too old: kernels need 'sm_80' or later
// RUN: not fovea-run %s --entry=good --target=gpu-sim --chip=h200 --random 2>&1 | FileCheck %s --check-prefix=CHIP
// CHIP: error: unknown GPU 'h200': expected a name that LLVM knows, such as 'sm_80' or 'sm_90a'
// RUN: not fovea-run %s --entry=good --target=gpu-sim --f32=half --random 2>&1 | FileCheck %s --check-prefix=MATH
// MATH: error: unknown products of f32 data 'half'; expected 'tf32x3', 'tf32' or 'exact'
// RUN: not fovea-run %s --entry=host --target=gpu-sim --random 2>&1 | FileCheck %s --check-prefix=HOST
// HOST: error: 'memref.load' op accesses single elements in a loop on the host, but in a function for a GPU they lie on the device
// RUN: not fovea-run %s --entry=gradient --target=gpu-sim --random 2>&1 | FileCheck %s --check-prefix=GRADIENT
// GRADIENT: error: 'attn.vq_backward' op has heads of width 1100, but GPU kernels take at most 1024

// RUN: not fovea-run %s --entry=codes --target=gpu-sim --random 2>&1 | FileCheck %s --check-prefix=CODES
// CODES: attn.codebook_accumulate: codes[0, 0, {{[0-9]}}] must be -1, or at least 0 and below 3, but got
// RUN: not fovea-run %s --entry=nodes --target=gpu-sim --random 2>&1 | FileCheck %s --check-prefix=NODES
// NODES: attn.tree_fetch: level of node 1 in batch entry 0, expected 0 to 2, but got 3
// RUN: not fovea-run %s --entry=look_up --target=gpu-sim --random 2>&1 | FileCheck %s --check-prefix=INDEX
// INDEX: @look_up failed: index must be smaller than 3
// RUN: not fovea-run %s --entry=rows --target=gpu-sim --random 2>&1 | FileCheck %s --check-prefix=ROWS
// ROWS: @rows failed: a row must be below 3

// The codes are random numbers from 0 to 15.
func.func @look_up(%table: tensor<3x8xf32>, %codes: tensor<64xi32>) -> tensor<64x8xf32> {
  %o = tensor.empty() : tensor<64x8xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%codes : tensor<64xi32>) outs(%o : tensor<64x8xf32>) {
  ^bb0(%code: i32, %unused: f32):
    %c3 = arith.constant 3 : index
    %row = arith.index_cast %code : i32 to index
    %column = linalg.index 1 : index
    %below = arith.cmpi ult, %row, %c3 : index
    cf.assert %below, "index must be smaller than 3"
    %value = tensor.extract %table[%row, %column] : tensor<3x8xf32>
    linalg.yield %value : f32
  } -> tensor<64x8xf32>
  return %r : tensor<64x8xf32>
}

// A row that is not there is not copied either, although it lies far behind the table.
func.func @rows(%table: tensor<3x8xf32>, %codes: tensor<64xi32>, %old: tensor<64x8xf32>) -> tensor<64x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c64 = arith.constant 64 : index
  %far = arith.constant 1000000000 : index
  %r = scf.for %i = %c0 to %c64 step %c1 iter_args(%out = %old) -> tensor<64x8xf32> {
    %code = tensor.extract %codes[%i] : tensor<64xi32>
    %row = arith.index_cast %code : i32 to index
    %place = arith.muli %row, %far : index
    %below = arith.cmpi ult, %place, %c3 : index
    cf.assert %below, "a row must be below 3"
    %line = tensor.extract_slice %table[%place, 0] [1, 8] [1, 1] : tensor<3x8xf32> to tensor<1x8xf32>
    %next = tensor.insert_slice %line into %out[%i, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<64x8xf32>
    scf.yield %next : tensor<64x8xf32>
  }
  return %r : tensor<64x8xf32>
}

func.func @good(%q: tensor<1x1x4x8xf32>, %k: tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32> {
  %o = tensor.empty() : tensor<1x1x4x8xf32>
  %r = attn.dense ins(%q, %k, %k : tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>)
      outs(%o : tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return %r : tensor<1x1x4x8xf32>
}

func.func @f64(%q: tensor<1x1x4x8xf64>) -> tensor<1x1x4x8xf64> {
  %o = tensor.empty() : tensor<1x1x4x8xf64>
  %r = attn.dense ins(%q, %q, %q : tensor<1x1x4x8xf64>, tensor<1x1x4x8xf64>, tensor<1x1x4x8xf64>)
      outs(%o : tensor<1x1x4x8xf64>) -> tensor<1x1x4x8xf64>
  return %r : tensor<1x1x4x8xf64>
}

func.func @broad(%q: tensor<1x1x4x1100xf16>) -> tensor<1x1x4x1100xf16> {
  %o = tensor.empty() : tensor<1x1x4x1100xf16>
  %r = attn.dense ins(%q, %q, %q : tensor<1x1x4x1100xf16>, tensor<1x1x4x1100xf16>, tensor<1x1x4x1100xf16>)
      outs(%o : tensor<1x1x4x1100xf16>) -> tensor<1x1x4x1100xf16>
  return %r : tensor<1x1x4x1100xf16>
}

func.func @host(%q: tensor<4xf32>) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%s = %zero) -> f32 {
    %x = tensor.extract %q[%i] : tensor<4xf32>
    %t = arith.addf %s, %x : f32
    scf.yield %t : f32
  }
  return %r : f32
}

func.func @gradient(%q: tensor<1x1x4x1100xf32>, %z: tensor<1x1x4xi32>, %c: tensor<1x3x1100xf32>, %l: tensor<1x1x4xf32>) -> tensor<1x1x4x1100xf32> {
  %o = tensor.empty() : tensor<1x1x4x1100xf32>
  %r:3 = attn.vq_backward ins(%q, %z, %q, %c : tensor<1x1x4x1100xf32>, tensor<1x1x4xi32>, tensor<1x1x4x1100xf32>, tensor<1x3x1100xf32>)
      forward(%q, %l : tensor<1x1x4x1100xf32>, tensor<1x1x4xf32>) gradient(%q : tensor<1x1x4x1100xf32>)
      outs(%o, %o, %o : tensor<1x1x4x1100xf32>, tensor<1x1x4x1100xf32>, tensor<1x1x4x1100xf32>) {block = 2 : i64, causal}
      -> tensor<1x1x4x1100xf32>, tensor<1x1x4x1100xf32>, tensor<1x1x4x1100xf32>
  return %r#0 : tensor<1x1x4x1100xf32>
}

func.func @codes(%z: tensor<1x1x4xi32>, %v: tensor<1x1x4x8xf32>, %m: tensor<1x1x3x8xf32>, %n: tensor<1x1x3xi32>) -> tensor<1x1x3x8xf32> {
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<1x1x4xi32>, tensor<1x1x4x8xf32>) outs(%m, %n : tensor<1x1x3x8xf32>, tensor<1x1x3xi32>)
      -> tensor<1x1x3x8xf32>, tensor<1x1x3xi32>
  return %r#0 : tensor<1x1x3x8xf32>
}

func.func @nodes(%t: tensor<1x7x8xf32>) -> tensor<1x2x8xf32> {
  %l = arith.constant dense<[[1, 3]]> : tensor<1x2xi32>
  %i = arith.constant dense<[[0, 1]]> : tensor<1x2xi32>
  %o = tensor.empty() : tensor<1x2x8xf32>
  %r = attn.tree_fetch ins(%t : tensor<1x7x8xf32>) nodes(%l, %i : tensor<1x2xi32>, tensor<1x2xi32>) outs(%o : tensor<1x2x8xf32>)
      {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x2x8xf32>
  return %r : tensor<1x2x8xf32>
}
