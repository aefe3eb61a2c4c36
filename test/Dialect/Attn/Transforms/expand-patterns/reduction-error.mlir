// RUN: not fovea-opt %s --attn-expand-patterns=reduction=tree 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --attn-expand-patterns=auto-reduction=auto 2>&1 | FileCheck %s --check-prefix=AUTO
// AUTO: error: expects auto-reduction to be serial, matmul, associative or input_scan, but got auto
// CHECK: error: expects reduction to be auto, serial, matmul, associative or input_scan, but got tree
func.func @f() {
  return
}
