// RUN: not fovea-opt %s --attn-cpu-pipeline=cpu=i8080 2>&1 | FileCheck %s
// CHECK: error: unknown CPU 'i8080' for {{.*}}; expected 'native' {{.*}} or a name that LLVM knows

// RUN: not fovea-opt %s --attn-cpu-pipeline=gpu=one 2>&1 | FileCheck %s --check-prefix=OPTION
// OPTION: no such option gpu
func.func @nothing() {
  return
}
