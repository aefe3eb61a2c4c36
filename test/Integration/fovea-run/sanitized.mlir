// In a build with AddressSanitizer, kernels are instrumented like the code that
// runs them: what they read or write beside a tensor is reported.
// REQUIRES: asan
// RUN: fovea-run %s --entry=read --arg 3 --random --print | FileCheck %s --check-prefix=INSIDE
// RUN: not fovea-run %s --entry=read --arg 16 --random 2>&1 | FileCheck %s --check-prefixes=OUTSIDE,READ
// RUN: not fovea-run %s --entry=read --arg 16 --random --target=reference 2>&1 \
// RUN:     | FileCheck %s --check-prefixes=OUTSIDE,READ
// RUN: not fovea-run %s --entry=write --arg -1 --random 2>&1 | FileCheck %s --check-prefixes=OUTSIDE,WRITE
// RUN: not fovea-run %s --entry=vector --arg 16 --random 2>&1 | FileCheck %s --check-prefixes=OUTSIDE,VECTOR
// INSIDE: result 0: f32
// OUTSIDE: AddressSanitizer: heap-buffer-overflow
// READ: READ of size 4
// WRITE: WRITE of size 4
// VECTOR: READ of size 32

func.func @read(%i: index, %x: tensor<16xf32>) -> f32 {
  %y = tensor.extract %x[%i] : tensor<16xf32>
  return %y : f32
}

func.func @write(%i: index, %x: memref<16xf32>) {
  %c = arith.constant 1.0 : f32
  memref.store %c, %x[%i] : memref<16xf32>
  return
}

func.func @vector(%i: index, %x: memref<16xf32>) -> f32 {
  %v = vector.load %x[%i] : memref<16xf32>, vector<8xf32>
  %y = vector.reduction <add>, %v : vector<8xf32> into f32
  return %y : f32
}
