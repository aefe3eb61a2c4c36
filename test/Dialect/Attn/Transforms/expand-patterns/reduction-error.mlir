// RUN: not fovea-opt %s --attn-expand-patterns=reduction=tree 2>&1 | FileCheck %s
// CHECK: error: expects reduction to be auto, serial, matmul, associative or input_scan, but got tree
func.func @f() {
  return
}
