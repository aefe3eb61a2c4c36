// RUN: fovea-opt %s --attn-cpu-pipeline=cpu=x86-64-v4 --mlir-disable-threading --mlir-print-ir-module-scope \
// RUN:     --mlir-print-ir-after=attn-vectorize-linalg -o /dev/null 2>&1 | fovea-opt --canonicalize --cse | FileCheck %s

// The sum over the levels of attn.fast_multipole_linear is a loop of whole
// vectors, whose last step rounds: nothing is added one by one.

// CHECK-LABEL: func.func @linear(
// CHECK-NOT:   memref.load
// CHECK-NOT:   linalg.
// CHECK:       %[[NEAR:.*]] = vector.load %{{.*}} : memref<1x2x100x64xf32>, vector<16xf32>
// CHECK-NOT:   memref.load
// CHECK:       %[[FAR:.*]] = vector.load %{{.*}} : memref<1x2x16x64xf32>, vector<16xf32>
// CHECK:       %[[SUM:.*]] = arith.addf %[[NEAR]], %[[FAR]] : vector<16xf32>
// CHECK:       %[[OUT:.*]] = arith.truncf %[[SUM]] : vector<16xf32> to vector<16xbf16>
// CHECK:       vector.store %[[OUT]], %{{.*}} : memref<1x2x100x64xbf16>, vector<16xbf16>
// CHECK-NOT:   memref.load
// CHECK:       return
func.func @linear(%q: tensor<1x2x100x64xbf16>, %k: tensor<1x1x100x64xbf16>, %v: tensor<1x1x100x64xbf16>,
                  %w: tensor<1x4x32x64xbf16>, %o: tensor<1x2x100x64xbf16>) -> tensor<1x2x100x64xbf16> {
  %out = attn.fast_multipole_linear
      ins(%q, %k, %v : tensor<1x2x100x64xbf16>, tensor<1x1x100x64xbf16>, tensor<1x1x100x64xbf16>)
      query_weights(%w : tensor<1x4x32x64xbf16>) key_weights(%w : tensor<1x4x32x64xbf16>)
      value_weights(%w : tensor<1x4x32x64xbf16>)
      outs(%o : tensor<1x2x100x64xbf16>) {group = 32 : i64} -> tensor<1x2x100x64xbf16>
  return %out : tensor<1x2x100x64xbf16>
}
