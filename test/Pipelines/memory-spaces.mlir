// Buffers outside of kernels lie where callers and the host have them.
// RUN: not fovea-opt %s --split-input-file --attn-cpu-pipeline -o /dev/null 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --split-input-file --attn-reference-pipeline -o /dev/null 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --split-input-file --attn-nvvm-pipeline -o /dev/null 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --split-input-file --attn-nvvm-pipeline=emulate=true -o /dev/null 2>&1 | FileCheck %s
// CHECK-COUNT-6: but outside of GPU kernels buffers have no memory space
// CHECK-NOT:     error:

!workgroup = memref<1x1x64x16xf32, #gpu.address_space<workgroup>>
func.func @workgroup(%v: !workgroup, %c: memref<1x1xi32>) {
  return
}

// -----

func.func @conv(%b: memref<1x1x8x4096xf32>, %m: memref<1x1x8xi32>, %v: memref<1x1x4096x16xf32, #gpu.address_space<workgroup>>, %o: memref<1x1x4096x16xf32, #gpu.address_space<workgroup>>, %c: memref<1x1xi32>) {
  attn.conv_apply ins(%b, %m, %v : memref<1x1x8x4096xf32>, memref<1x1x8xi32>, memref<1x1x4096x16xf32, #gpu.address_space<workgroup>>)
      outs(%o, %c : memref<1x1x4096x16xf32, #gpu.address_space<workgroup>>, memref<1x1xi32>) {algorithm = #attn.conv_algorithm<partitioned>, block = 128 : i64}
  return
}

// -----

func.func @result() -> memref<4xf32, 1> {
  %a = memref.alloc() : memref<4xf32, 1>
  return %a : memref<4xf32, 1>
}

// -----

func.func @inside() {
  %a = memref.alloc() : memref<4xf32, #gpu.address_space<private>>
  %x = arith.constant 0.0 : f32
  linalg.fill ins(%x : f32) outs(%a : memref<4xf32, #gpu.address_space<private>>)
  return
}

// -----

func.func @unranked(%a: memref<*xf32, "anywhere">) {
  return
}

// -----

func.func @tensor() -> tensor<10xf32> {
  %0 = bufferization.alloc_tensor() {memory_space = 1 : ui64} : tensor<10xf32>
  return %0 : tensor<10xf32>
}
