// RUN: env FOVEA_POISON_MEMORY=1 fovea-run %s --print | FileCheck %s

// Memory that no operation has written is full of NaNs where that is asked for,
// as in all of these tests.

func.func @nothing() -> tensor<3xf32> {
  %empty = tensor.empty() : tensor<3xf32>
  return %empty : tensor<3xf32>
}
// CHECK: nan{{.*}}nan{{.*}}nan
