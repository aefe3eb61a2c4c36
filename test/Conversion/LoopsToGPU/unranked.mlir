// RUN: not fovea-opt %s --attn-nvvm-pipeline 2>&1 | FileCheck %s
// CHECK: [[@LINE+1]]:1: error: 'func.func' op has a value of type 'memref<*xf32>', but buffers of GPUs have a rank
func.func @copy(%x: tensor<*xf32>, %s: tensor<?xindex>) -> tensor<*xf32> {
  %0 = tensor.reshape %x(%s) : (tensor<*xf32>, tensor<?xindex>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}
