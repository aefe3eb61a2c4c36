// Reductions of all elements to one number, and loops over single elements, on
// the emulated GPU. Sums of integers are exact; the reference adds floats one after
// the other, in f32.

// RUN: fovea-run %s --entry=sums --target=gpu-sim --random --shape=37x411 --compare=reference --tolerance=1e-4 | FileCheck %s
// RUN: env FOVEA_SIMT=seed=3 fovea-run %s --entry=sums --target=gpu-sim --random --shape=0x5 --compare=reference --tolerance=1e-4 | FileCheck %s
// CHECK-COUNT-4: agrees with the reference
// CHECK-NOT: differs

// RUN: fovea-run %s --entry=prefix --target=gpu-sim --random --compare=reference --schedule=seed=3 | FileCheck %s --check-prefix=PREFIX
// PREFIX-COUNT-2: agrees with the reference
// PREFIX-NOT: differs

#all = affine_map<(a, b, c) -> (a, b, c)>
#none = affine_map<(a, b, c) -> ()>

func.func @sums(%x: tensor<3x700x33xf32>, %m: tensor<?x?xbf16>, %n: tensor<70001xi32>, %i: tensor<i32>)
    -> (tensor<f32>, tensor<f32>, tensor<bf16>, tensor<i32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<f32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<f32>) -> tensor<f32>
  // The first two of three, by position.
  %s = linalg.generic {indexing_maps = [#all, #none], iterator_types = ["reduction", "reduction", "reduction"]}
      ins(%x : tensor<3x700x33xf32>) outs(%z : tensor<f32>) {
  ^bb0(%v: f32, %sum: f32):
    %at = linalg.index 0 : index
    %two = arith.constant 2 : index
    %is = arith.cmpi slt, %at, %two : index
    %square = arith.mulf %v, %v : f32
    %term = arith.select %is, %square, %zero : f32
    %next = arith.addf %sum, %term : f32
    linalg.yield %next : f32
  } -> tensor<f32>
  // On top of what is there.
  %t = linalg.generic {indexing_maps = [#all, #none], iterator_types = ["reduction", "reduction", "reduction"]}
      ins(%x : tensor<3x700x33xf32>) outs(%s : tensor<f32>) {
  ^bb0(%v: f32, %sum: f32):
    %square = arith.mulf %v, %v : f32
    %next = arith.addf %sum, %square : f32
    linalg.yield %next : f32
  } -> tensor<f32>
  %low = arith.constant -1.0 : bf16
  %be = tensor.empty() : tensor<bf16>
  %bz = linalg.fill ins(%low : bf16) outs(%be : tensor<bf16>) -> tensor<bf16>
  %greatest = linalg.reduce { arith.maximumf } ins(%m : tensor<?x?xbf16>) outs(%bz : tensor<bf16>) dimensions = [0, 1]
  %count = linalg.reduce { arith.addi } ins(%n : tensor<70001xi32>) outs(%i : tensor<i32>) dimensions = [0]
  return %s, %t, %greatest, %count : tensor<f32>, tensor<f32>, tensor<bf16>, tensor<i32>
}

// Each row is added to that of a number in a list, and the list counts on: rows and
// single elements that later iterations read.
func.func @prefix(%x: tensor<9x300xf32>, %start: tensor<12x300xf32>) -> (tensor<12x300xf32>, tensor<10xi32>) {
  %list = arith.constant dense<[3, 1, 0, 2, 2, 1, 0, 4, 1, 0]> : tensor<10xi32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c9 = arith.constant 9 : index
  %e = tensor.empty() : tensor<10xi32>
  %copy = linalg.copy ins(%list : tensor<10xi32>) outs(%e : tensor<10xi32>) -> tensor<10xi32>
  %r:2 = scf.for %n = %c0 to %c9 step %c1 iter_args(%sums = %start, %counted = %copy) -> (tensor<12x300xf32>, tensor<10xi32>) {
    %number = tensor.extract %counted[%n] : tensor<10xi32>
    %row = arith.index_cast %number : i32 to index
    %old = tensor.extract_slice %sums[%row, 0] [1, 300] [1, 1] : tensor<12x300xf32> to tensor<1x300xf32>
    %add = tensor.extract_slice %x[%n, 0] [1, 300] [1, 1] : tensor<9x300xf32> to tensor<1x300xf32>
    %new = arith.addf %old, %add : tensor<1x300xf32>
    %next = tensor.insert_slice %new into %sums[%row, 0] [1, 300] [1, 1] : tensor<1x300xf32> into tensor<12x300xf32>
    %after = arith.addi %n, %c1 : index
    %later = tensor.extract %counted[%after] : tensor<10xi32>
    %one = arith.constant 1 : i32
    %more = arith.addi %later, %one : i32
    %changed = tensor.insert %more into %counted[%after] : tensor<10xi32>
    scf.yield %next, %changed : tensor<12x300xf32>, tensor<10xi32>
  }
  return %r#0, %r#1 : tensor<12x300xf32>, tensor<10xi32>
}
