// RUN: fovea-opt %s --attn-loops-to-gpu --split-input-file --verify-diagnostics

func.func @tensors(%x: tensor<64xf32>) -> tensor<64xf32> {
  // expected-error @below {{'scf.forall' op cannot be lowered to loops on buffers}}
  %0 = scf.forall (%i) in (64) shared_outs(%o = %x) -> tensor<64xf32> {
    %s = tensor.extract_slice %o[%i] [1] [1] : tensor<64xf32> to tensor<1xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[%i] [1] [1] : tensor<1xf32> into tensor<64xf32>
    }
  }
  return %0 : tensor<64xf32>
}
