// Values that are columns of the keys are a view of them: they are not copied, and
// their gradient is a part of that of the keys.

// RUN: fovea-opt %s --attn-cpu-pipeline="cpu=native" --mlir-print-ir-after=one-shot-bufferize -o /dev/null 2>&1 \
// RUN:   | FileCheck %s
// RUN: fovea-run %s --entry=single --random --compare=reference | FileCheck %s --check-prefix=SAME
// RUN: fovea-run %s --entry=blocks --random --compare=reference | FileCheck %s --check-prefix=SAME
// RUN: fovea-run %s --entry=dynamic --random --shape=2x8x5x40 --shape=2x2x130x40 --compare=reference \
// RUN:   | FileCheck %s --check-prefix=SAME
// RUN: fovea-run %s --entry=dynamic --random --shape=2x8x5x40 --shape=2x2x130x40 --compare=reference --target=gpu-sim \
// RUN:   | FileCheck %s --check-prefix=SAME

// SAME: agrees with the reference

// CHECK-LABEL: func.func @single
// CHECK-SAME:    %[[KEYS:[a-z0-9]+]]: memref<1x1x2048x576xf32>
// CHECK:         %[[VALUES:.*]] = memref.subview %[[KEYS]][0, 0, 0, 0] [1, 1, 2048, 512]
// CHECK-NOT:     memref.alloc{{.*}}2048x512
// CHECK:         source(%[[KEYS]], %[[VALUES]]
func.func @single(%q: tensor<1x4x1x576xf32>, %k: tensor<1x1x2048x576xf32>) -> tensor<1x4x1x512xf32> {
  %v = tensor.extract_slice %k[0, 0, 0, 0] [1, 1, 2048, 512] [1, 1, 1, 1]
      : tensor<1x1x2048x576xf32> to tensor<1x1x2048x512xf32>
  %init = tensor.empty() : tensor<1x4x1x512xf32>
  %out = attn.dense ins(%q, %k, %v : tensor<1x4x1x576xf32>, tensor<1x1x2048x576xf32>, tensor<1x1x2048x512xf32>)
      outs(%init : tensor<1x4x1x512xf32>) -> tensor<1x4x1x512xf32>
  return %out : tensor<1x4x1x512xf32>
}

// CHECK-LABEL: func.func @blocks
// CHECK-NOT:     memref.alloc{{.*}}200x512
// CHECK:         memref.subview %{{.*}}[0, 0, 0, 0] [1, 1, 200, 512]
// CHECK-NOT:     memref.alloc{{.*}}200x512
// CHECK:         return
func.func @blocks(%q: tensor<1x4x70x576xf32>, %k: tensor<1x1x200x576xf32>) -> tensor<1x4x70x512xf32> {
  %v = tensor.extract_slice %k[0, 0, 0, 0] [1, 1, 200, 512] [1, 1, 1, 1]
      : tensor<1x1x200x576xf32> to tensor<1x1x200x512xf32>
  %init = tensor.empty() : tensor<1x4x70x512xf32>
  %out = attn.dense ins(%q, %k, %v : tensor<1x4x70x576xf32>, tensor<1x1x200x576xf32>, tensor<1x1x200x512xf32>)
      outs(%init : tensor<1x4x70x512xf32>) {mask = #attn.mask<causal>} -> tensor<1x4x70x512xf32>
  return %out : tensor<1x4x70x512xf32>
}

func.func @dynamic(%q: tensor<2x8x?x40xf32>, %k: tensor<2x2x?x40xf32>) -> tensor<2x8x?x32xf32> {
  %c2 = arith.constant 2 : index
  %n = tensor.dim %q, %c2 : tensor<2x8x?x40xf32>
  %m = tensor.dim %k, %c2 : tensor<2x2x?x40xf32>
  %v = tensor.extract_slice %k[0, 0, 0, 0] [2, 2, %m, 32] [1, 1, 1, 1]
      : tensor<2x2x?x40xf32> to tensor<2x2x?x32xf32>
  %init = tensor.empty(%n) : tensor<2x8x?x32xf32>
  %out = attn.dense ins(%q, %k, %v : tensor<2x8x?x40xf32>, tensor<2x2x?x40xf32>, tensor<2x2x?x32xf32>)
      outs(%init : tensor<2x8x?x32xf32>) {mask = #attn.mask<causal>} -> tensor<2x8x?x32xf32>
  return %out : tensor<2x8x?x32xf32>
}
