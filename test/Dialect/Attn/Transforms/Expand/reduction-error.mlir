// RUN: not fovea-opt %s --attn-expand-patterns=reduction=tree 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --attn-expand-patterns=auto-reduction=auto 2>&1 | FileCheck %s --check-prefix=AUTO
// AUTO: for the --auto-reduction option: Cannot find option named 'auto'!
// CHECK: for the --reduction option: Cannot find option named 'tree'!
func.func @f() {
  return
}
