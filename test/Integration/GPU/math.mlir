// Elementary functions that are no instructions of GPUs, on the emulated GPU.

// RUN: fovea-run %s --target=gpu-sim --random --compare=reference | FileCheck %s
// CHECK: result 0: {{.*}} agrees with the reference
// CHECK-NOT: differs

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (j)>
func.func @functions(%x: tensor<67xf32>) -> tensor<21x67xf32> {
  %empty = tensor.empty() : tensor<21x67xf32>
  %r = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<67xf32>) outs(%empty : tensor<21x67xf32>) {
  ^bb0(%a: f32, %old: f32):
    %i = linalg.index 0 : index
    %c2 = arith.constant 2.0 : f32
    %half = arith.constant 0.5 : f32
    %c3 = arith.constant 3 : i32
    // Between -1 and 1, and between 1 and 3.
    %t = math.tanh %a : f32
    %s = arith.mulf %t, %half : f32
    %u = arith.addf %t, %c2 : f32
    %f0 = math.acos %s : f32
    %f1 = math.asin %s : f32
    %f2 = math.atanh %s : f32
    %f3 = math.acosh %u : f32
    %f4 = math.asinh %a : f32
    %f5 = math.atan %a : f32
    %f6 = math.atan2 %a, %u : f32
    %f7 = math.cbrt %a : f32
    %f8 = math.cos %a : f32
    %f9 = math.cosh %t : f32
    %f10 = math.erf %a : f32
    %f11 = math.erfc %a : f32
    %f12 = math.expm1 %s : f32
    %f13 = math.fpowi %t, %c3 : f32, i32
    %f14 = math.log1p %s : f32
    %f15 = math.powf %u, %t : f32
    %f16 = math.sin %a : f32
    %f17 = math.sinh %t : f32
    %f18 = math.tan %s : f32
    %f19 = math.log10 %u : f32
    %f20 = math.copysign %u, %a : f32
    %zero = arith.constant 0.0 : f32
    %v:1 = scf.index_switch %i -> f32
    case 0 { scf.yield %f0 : f32 }
    case 1 { scf.yield %f1 : f32 }
    case 2 { scf.yield %f2 : f32 }
    case 3 { scf.yield %f3 : f32 }
    case 4 { scf.yield %f4 : f32 }
    case 5 { scf.yield %f5 : f32 }
    case 6 { scf.yield %f6 : f32 }
    case 7 { scf.yield %f7 : f32 }
    case 8 { scf.yield %f8 : f32 }
    case 9 { scf.yield %f9 : f32 }
    case 10 { scf.yield %f10 : f32 }
    case 11 { scf.yield %f11 : f32 }
    case 12 { scf.yield %f12 : f32 }
    case 13 { scf.yield %f13 : f32 }
    case 14 { scf.yield %f14 : f32 }
    case 15 { scf.yield %f15 : f32 }
    case 16 { scf.yield %f16 : f32 }
    case 17 { scf.yield %f17 : f32 }
    case 18 { scf.yield %f18 : f32 }
    case 19 { scf.yield %f19 : f32 }
    case 20 { scf.yield %f20 : f32 }
    default { scf.yield %zero : f32 }
    linalg.yield %v : f32
  } -> tensor<21x67xf32>
  return %r : tensor<21x67xf32>
}
