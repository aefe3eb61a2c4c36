// Elements and rows whose neighbours a thread has at once, and rows that lanes
// share, on the emulated GPU. Sums of integers are exact; the reference adds
// floats one after the other.

// RUN: fovea-run %s --entry=norms --target=gpu-sim --random --compare=reference --tolerance=1e-4 --schedule=seed=3 | FileCheck %s --check-prefix=NORMS
// NORMS-COUNT-4: agrees with the reference
// NORMS-NOT: differs

// Lengths of which whole vectors are a part, none, or all.
// RUN: fovea-run %s --entry=elements --target=gpu-sim --random --shape=3x37x8 --shape=3x37 --compare=reference | FileCheck %s --check-prefix=ELEMENTS
// RUN: fovea-run %s --entry=elements --target=gpu-sim --random --shape=1x1x8 --shape=1x3 --compare=reference | FileCheck %s --check-prefix=ELEMENTS
// RUN: fovea-run %s --entry=elements --target=gpu-sim --random --shape=2x32x8 --shape=2x32 --compare=reference | FileCheck %s --check-prefix=ELEMENTS
// ELEMENTS-COUNT-2: agrees with the reference
// ELEMENTS-NOT: differs

// RUN: fovea-run %s --entry=reductions --target=gpu-sim --random --shape=5x70 --compare=reference --schedule=seed=5 | FileCheck %s --check-prefix=REDUCTIONS
// RUN: fovea-run %s --entry=reductions --target=gpu-sim --random --shape=5x0 --compare=reference | FileCheck %s --check-prefix=REDUCTIONS
// REDUCTIONS-COUNT-5: agrees with the reference
// REDUCTIONS-NOT: differs

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#j = affine_map<(i, j) -> (j)>
#ijk = affine_map<(i, j, k) -> (i, j, k)>
#ijo = affine_map<(i, j, k) -> (i, j)>
#k = affine_map<(i, j, k) -> (k)>

// RMS norms of rows of 264 in bf16, a layer norm of rows of 40 in f32, soft-max
// of rows of 24 and of 33, which start anywhere.
func.func @norms(%x: tensor<2x11x264xbf16>, %w: tensor<264xbf16>, %y: tensor<9x40xf32>, %s: tensor<19x24xf32>, %o: tensor<5x33xf32>)
    -> (tensor<2x11x264xbf16>, tensor<9x40xf32>, tensor<19x24xf32>, tensor<5x33xf32>) {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e0 = tensor.empty() : tensor<2x11xf32>
  %z0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<2x11xf32>) -> tensor<2x11xf32>
  %squares = linalg.generic {indexing_maps = [#ijk, #ijo], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<2x11x264xbf16>) outs(%z0 : tensor<2x11xf32>) {
  ^bb0(%v: bf16, %sum: f32):
    %f = arith.extf %v : bf16 to f32
    %square = arith.mulf %f, %f : f32
    %next = arith.addf %sum, %square : f32
    linalg.yield %next : f32
  } -> tensor<2x11xf32>
  %e1 = tensor.empty() : tensor<2x11x264xbf16>
  %rms = linalg.generic {indexing_maps = [#ijk, #ijo, #k, #ijk], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %squares, %w : tensor<2x11x264xbf16>, tensor<2x11xf32>, tensor<264xbf16>) outs(%e1 : tensor<2x11x264xbf16>) {
  ^bb0(%v: bf16, %sum: f32, %g: bf16, %old: bf16):
    %count = arith.constant 264.0 : f32
    %eps = arith.constant 1.0e-5 : f32
    %mean = arith.divf %sum, %count : f32
    %more = arith.addf %mean, %eps : f32
    %scale = math.rsqrt %more : f32
    %f = arith.extf %v : bf16 to f32
    %gf = arith.extf %g : bf16 to f32
    %a = arith.mulf %f, %scale : f32
    %b = arith.mulf %a, %gf : f32
    %c = arith.truncf %b : f32 to bf16
    linalg.yield %c : bf16
  } -> tensor<2x11x264xbf16>

  %e2 = tensor.empty() : tensor<9xf32>
  %z2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<9xf32>) -> tensor<9xf32>
  %sums = linalg.reduce {arith.addf} ins(%y : tensor<9x40xf32>) outs(%z2 : tensor<9xf32>) dimensions = [1]
  %deviations = linalg.generic {indexing_maps = [#ij, #i, #i], iterator_types = ["parallel", "reduction"]}
      ins(%y, %sums : tensor<9x40xf32>, tensor<9xf32>) outs(%z2 : tensor<9xf32>) {
  ^bb0(%v: f32, %all: f32, %sum: f32):
    %count = arith.constant 40.0 : f32
    %mean = arith.divf %all, %count : f32
    %d = arith.subf %v, %mean : f32
    %square = arith.mulf %d, %d : f32
    %next = arith.addf %sum, %square : f32
    linalg.yield %next : f32
  } -> tensor<9xf32>
  %e3 = tensor.empty() : tensor<9x40xf32>
  %layer = linalg.generic {indexing_maps = [#ij, #i, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%y, %sums, %deviations : tensor<9x40xf32>, tensor<9xf32>, tensor<9xf32>) outs(%e3 : tensor<9x40xf32>) {
  ^bb0(%v: f32, %all: f32, %squared: f32, %old: f32):
    %count = arith.constant 40.0 : f32
    %eps = arith.constant 1.0e-5 : f32
    %mean = arith.divf %all, %count : f32
    %d = arith.subf %v, %mean : f32
    %var = arith.divf %squared, %count : f32
    %more = arith.addf %var, %eps : f32
    %scale = math.rsqrt %more : f32
    %r = arith.mulf %d, %scale : f32
    linalg.yield %r : f32
  } -> tensor<9x40xf32>

  %e4 = tensor.empty() : tensor<19xf32>
  %l4 = linalg.fill ins(%low : f32) outs(%e4 : tensor<19xf32>) -> tensor<19xf32>
  %z4 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<19xf32>) -> tensor<19xf32>
  %most = linalg.reduce {arith.maximumf} ins(%s : tensor<19x24xf32>) outs(%l4 : tensor<19xf32>) dimensions = [1]
  %weights = linalg.generic {indexing_maps = [#ij, #i, #i], iterator_types = ["parallel", "reduction"]}
      ins(%s, %most : tensor<19x24xf32>, tensor<19xf32>) outs(%z4 : tensor<19xf32>) {
  ^bb0(%v: f32, %top: f32, %sum: f32):
    %d = arith.subf %v, %top : f32
    %p = math.exp %d : f32
    %next = arith.addf %sum, %p : f32
    linalg.yield %next : f32
  } -> tensor<19xf32>
  %e5 = tensor.empty() : tensor<19x24xf32>
  %soft = linalg.generic {indexing_maps = [#ij, #i, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %most, %weights : tensor<19x24xf32>, tensor<19xf32>, tensor<19xf32>) outs(%e5 : tensor<19x24xf32>) {
  ^bb0(%v: f32, %top: f32, %sum: f32, %old: f32):
    %d = arith.subf %v, %top : f32
    %p = math.exp %d : f32
    %r = arith.divf %p, %sum : f32
    linalg.yield %r : f32
  } -> tensor<19x24xf32>

  %e6 = tensor.empty() : tensor<5xf32>
  %z6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<5xf32>) -> tensor<5xf32>
  %odd = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%o : tensor<5x33xf32>) outs(%z6 : tensor<5xf32>) {
  ^bb0(%v: f32, %sum: f32):
    %square = arith.mulf %v, %v : f32
    %next = arith.addf %sum, %square : f32
    linalg.yield %next : f32
  } -> tensor<5xf32>
  %e7 = tensor.empty() : tensor<5x33xf32>
  %shares = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%o, %odd : tensor<5x33xf32>, tensor<5xf32>) outs(%e7 : tensor<5x33xf32>) {
  ^bb0(%v: f32, %sum: f32, %old: f32):
    %r = arith.divf %v, %sum : f32
    linalg.yield %r : f32
  } -> tensor<5x33xf32>
  return %rms, %layer, %soft, %shares : tensor<2x11x264xbf16>, tensor<9x40xf32>, tensor<19x24xf32>, tensor<5x33xf32>
}

// A sum of two rows of 8 columns, and the numbers of its places, of which the
// innermost extent is known or not.
func.func @elements(%x: tensor<?x?x8xbf16>, %y: tensor<?x?xf32>) -> (tensor<?x?x8xbf16>, tensor<?x?xf32>) {
  %sum = arith.addf %x, %x : tensor<?x?x8xbf16>
  %r = linalg.generic {indexing_maps = [#ijk], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%sum : tensor<?x?x8xbf16>) {
  ^bb0(%old: bf16):
    %i = linalg.index 1 : index
    %k = linalg.index 2 : index
    %at = arith.addi %i, %k : index
    %n = arith.index_cast %at : index to i32
    %f = arith.sitofp %n : i32 to bf16
    %next = arith.addf %old, %f : bf16
    linalg.yield %next : bf16
  } -> tensor<?x?x8xbf16>
  %twice = arith.addf %y, %y : tensor<?x?xf32>
  %exp = math.absf %twice : tensor<?x?xf32>
  return %r, %exp : tensor<?x?x8xbf16>, tensor<?x?xf32>
}

// Rows of any length, of 100 in a narrow type whose sums are narrow as well, of
// bits, of 64-bit numbers, and of two axes at once.
func.func @reductions(%m: tensor<?x?xf32>, %n: tensor<7x100xbf16>, %b: tensor<9x80xi1>, %l: tensor<3x130xi64>, %t: tensor<4x5x36xi32>)
    -> (tensor<?xf32>, tensor<7xbf16>, tensor<9xi1>, tensor<3xi64>, tensor<4xi32>) {
  %c0 = arith.constant 0 : index
  %low = arith.constant -4.0 : f32
  %narrow = arith.constant -4.0 : bf16
  %false = arith.constant false
  %none64 = arith.constant 7 : i64
  %none = arith.constant 5 : i32
  %size = tensor.dim %m, %c0 : tensor<?x?xf32>
  %e0 = tensor.empty(%size) : tensor<?xf32>
  %z0 = linalg.fill ins(%low : f32) outs(%e0 : tensor<?xf32>) -> tensor<?xf32>
  %most = linalg.reduce {arith.maximumf} ins(%m : tensor<?x?xf32>) outs(%z0 : tensor<?xf32>) dimensions = [1]
  %e1 = tensor.empty() : tensor<7xbf16>
  %z1 = linalg.fill ins(%narrow : bf16) outs(%e1 : tensor<7xbf16>) -> tensor<7xbf16>
  %greatest = linalg.reduce {arith.maximumf} ins(%n : tensor<7x100xbf16>) outs(%z1 : tensor<7xbf16>) dimensions = [1]
  %e2 = tensor.empty() : tensor<9xi1>
  %z2 = linalg.fill ins(%false : i1) outs(%e2 : tensor<9xi1>) -> tensor<9xi1>
  %some = linalg.reduce {arith.ori} ins(%b : tensor<9x80xi1>) outs(%z2 : tensor<9xi1>) dimensions = [1]
  %e3 = tensor.empty() : tensor<3xi64>
  %z3 = linalg.fill ins(%none64 : i64) outs(%e3 : tensor<3xi64>) -> tensor<3xi64>
  %count = linalg.reduce {arith.addi} ins(%l : tensor<3x130xi64>) outs(%z3 : tensor<3xi64>) dimensions = [1]
  %e4 = tensor.empty() : tensor<4xi32>
  %z4 = linalg.fill ins(%none : i32) outs(%e4 : tensor<4xi32>) -> tensor<4xi32>
  %both = linalg.reduce {arith.addi} ins(%t : tensor<4x5x36xi32>) outs(%z4 : tensor<4xi32>) dimensions = [1, 2]
  return %most, %greatest, %some, %count, %both : tensor<?xf32>, tensor<7xbf16>, tensor<9xi1>, tensor<3xi64>, tensor<4xi32>
}
