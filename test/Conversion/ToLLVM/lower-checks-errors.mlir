// RUN: fovea-opt %s --attn-lower-checks --verify-diagnostics

func.func @tensor(%z: tensor<1x1x4xi32>, %s: index) {
  // expected-error @below {{'attn.check_codes' op expects memrefs, but got tensors}}
  attn.check_codes %z below %s {name = "codes"} : tensor<1x1x4xi32>
  return
}
