// RUN: fovea-opt %s -attn-prepare-entry-points | FileCheck %s

// CHECK: func.func @public(%{{.*}}: tensor<4xf32> {bufferization.writable = false}, %{{.*}}: f32, %{{.*}}: tensor<4xf32> {attn.written, bufferization.writable = true}) attributes {llvm.emit_c_interface}
func.func @public(%x: tensor<4xf32>, %f: f32, %y: tensor<4xf32> {bufferization.writable = true}) {
  return
}

// CHECK: func.func private @private(%{{.*}}: tensor<4xf32>) {
func.func private @private(%x: tensor<4xf32>) {
  return
}

// CHECK: func.func private @external(tensor<4xf32>)
// CHECK-NOT: emit_c_interface
func.func private @external(tensor<4xf32>)
