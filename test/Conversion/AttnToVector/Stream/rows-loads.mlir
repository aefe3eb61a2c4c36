// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32 split-vectors" --convert-attn-to-vector --canonicalize --cse | FileCheck %s
// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector --canonicalize --cse | FileCheck %s --check-prefix=NONE
// NONE-NOT: llvm.inline_asm

// RUN: fovea-compile %s --entry=four --cpu=znver4 --emit=asm | FileCheck %s --check-prefix=ASM
// ASM-LABEL: four_parallel_0:
// ASM: prefetcht1 16576({{.*}}
// ASM-NOT: prefetch
// ASM-COUNT-4: vfmadd231ps {{[0-9]*}}({{.+}}), %zmm{{[0-9]+}}, %zmm

// While four rows read values from memory, each loads them for its own product.
// CHECK-LABEL: func.func @four(
// CHECK: memref.prefetch
// CHECK: llvm.inline_asm {{.*}}"", "=r,0" %{{.+}} : (i64) -> i64
// CHECK: llvm.inline_asm
// CHECK: llvm.inline_asm
// CHECK-NOT: llvm.inline_asm
// CHECK: :16 = scf.for
// CHECK: memref.prefetch
// CHECK-COUNT-16: vector.load {{.*}}strided
// CHECK-NOT: vector.load
// CHECK: scf.yield
// CHECK: return
func.func @four(%q: memref<1x4x1x128xf32>, %k: memref<1x1x512x128xf32>, %o: memref<1x4x1x128xf32>) {
  attn.stream query(%q : memref<1x4x1x128xf32>)
      source(%k, %k : memref<1x1x512x128xf32>, memref<1x1x512x128xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x4x1x128xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 16, key = 128, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  return
}

// Of eight rows the last four find them in the first cache level: they load
// them once, and ask for nothing.
// CHECK-LABEL: func.func @eight(
// CHECK-COUNT-3: llvm.inline_asm
// CHECK: :16 = scf.for
// CHECK: memref.prefetch
// CHECK-COUNT-16: vector.load {{.*}}strided
// CHECK: :16 = scf.for
// CHECK-COUNT-16: vector.load {{.*}}strided
// CHECK-NOT: llvm.inline_asm
// CHECK-NOT: memref.prefetch
// CHECK: :16 = scf.for
// CHECK-NOT: memref.prefetch
// CHECK-COUNT-4: vector.load {{.*}}strided
// CHECK-NOT: vector.load {{.*}}strided
// CHECK: scf.yield
// CHECK: return
func.func @eight(%q: memref<1x8x1x128xf32>, %k: memref<1x1x512x128xf32>, %o: memref<1x8x1x128xf32>) {
  attn.stream query(%q : memref<1x8x1x128xf32>)
      source(%k, %k : memref<1x1x512x128xf32>, memref<1x1x512x128xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x8x1x128xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 16, key = 128, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  return
}
