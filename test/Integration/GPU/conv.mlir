// Sums of convolutions on the emulated GPU: bases found and applied, whole and
// in pairs of groups, with intermediates on the device. Any order of threads
// gives the same result.

// REQUIRES: long-tests
// RUN: fovea-run %s --entry=whole --target=gpu-sim --random --compare=reference --schedule=seed=3 --schedule=seed=8,eager | FileCheck %s
// RUN: fovea-run %s --entry=groups --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: env FOVEA_SIMT=seed=5 fovea-run %s --entry=apply --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=apply --target=gpu-sim --f32=exact --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=partitioned --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: env FOVEA_SIMT=seed=4 fovea-run %s --entry=single --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=long --target=gpu-sim --random --compare=reference | FileCheck %s
// Without transforms, auto multiplies.
// RUN: env FOVEA_SIMT=transforms=0 fovea-run %s --entry=long --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=every --target=gpu-sim --random --compare=reference | FileCheck %s
// CHECK: agrees with the reference
// CHECK-NOT: differs
// RUN: env FOVEA_SIMT=seed=6 fovea-run %s --entry=gradient --target=gpu-sim --random --compare=reference | FileCheck %s --check-prefix=GRADIENT
// RUN: fovea-run %s --entry=gradient_groups --target=gpu-sim --random --compare=reference | FileCheck %s --check-prefix=GRADIENT
// RUN: env FOVEA_SIMT=seed=7 fovea-run %s --entry=gradient_partitioned --target=gpu-sim --random --compare=reference | FileCheck %s --check-prefix=APPLIED
// RUN: env FOVEA_SIMT=seed=2,eager fovea-run %s --entry=gradient_single --target=gpu-sim --random --compare=reference | FileCheck %s --check-prefix=APPLIED
// RUN: fovea-run %s --entry=gradient_long --target=gpu-sim --random --compare=reference | FileCheck %s --check-prefix=APPLIED
// RUN: env FOVEA_SIMT=transforms=0 fovea-run %s --entry=gradient_long --target=gpu-sim --random --compare=reference | FileCheck %s --check-prefix=APPLIED
// APPLIED-COUNT-2: agrees with the reference
// APPLIED-NOT: differs
// GRADIENT-COUNT-3: agrees with the reference
// GRADIENT-NOT: differs

// RUN: not fovea-run %s --entry=rising --target=gpu-sim --random 2>&1 | FileCheck %s --check-prefix=SIZES
// RUN: not env FOVEA_SIMT=transforms=0 fovea-run %s --entry=single --target=gpu-sim --random 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: not env FOVEA_SIMT=transforms=0 fovea-run %s --entry=gradient_single --target=gpu-sim --random 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: error: @{{.*}}single failed: Fourier transforms on a GPU need cuFFT, which FOVEA_SIMT says is missing
// SIZES: attn.conv_apply: sizes[0, 0, 1] must be from 0 to 2, since sizes decrease down to zeros, but got 3

!rows = tensor<1x4x70x8xf32>
!keys = tensor<1x2x70x8xf32>
!count = tensor<1x4xi32>

func.func @whole(%q: !rows, %k: !keys, %v: tensor<1x2x70x9xf32>) -> tensor<1x4x70x9xf32> {
  %o = tensor.empty() : tensor<1x4x70x9xf32>
  %n = tensor.empty() : !count
  %r:3 = attn.conv ins(%q, %k, %v : !rows, !keys, tensor<1x2x70x9xf32>) outs(%o, %n, %n : tensor<1x4x70x9xf32>, !count, !count)
      {num_basis = 5 : i64, window = 4 : i64, delta = 1.0 : f64, epsilon = 1.0e-02 : f64} -> tensor<1x4x70x9xf32>, !count, !count
  return %r#0 : tensor<1x4x70x9xf32>
}

// Four pairs of groups, the last one shorter.
func.func @groups(%q: !rows, %k: !keys, %v: !keys) -> (!rows, !count) {
  %o = tensor.empty() : !rows
  %n = tensor.empty() : !count
  %r:3 = attn.conv ins(%q, %k, %v : !rows, !keys, !keys) outs(%o, %n, %n : !rows, !count, !count)
      {num_basis = 3 : i64, window = 2 : i64, delta = 1.0 : f64, epsilon = 1.0e-02 : f64, group = 16 : i64} -> !rows, !count, !count
  return %r#0, %r#1 : !rows, !count
}

// Every column is a basis: causal attention.
func.func @every(%q: tensor<1x1x40x8xf32>, %k: tensor<1x1x40x8xf32>) -> (tensor<1x1x40x8xf32>, tensor<1x1xi32>) {
  %o = tensor.empty() : tensor<1x1x40x8xf32>
  %n = tensor.empty() : tensor<1x1xi32>
  %r:3 = attn.conv ins(%q, %k, %k : tensor<1x1x40x8xf32>, tensor<1x1x40x8xf32>, tensor<1x1x40x8xf32>)
      outs(%o, %n, %n : tensor<1x1x40x8xf32>, tensor<1x1xi32>, tensor<1x1xi32>)
      {num_basis = 40 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64} -> tensor<1x1x40x8xf32>, tensor<1x1xi32>, tensor<1x1xi32>
  return %r#0, %r#1 : tensor<1x1x40x8xf32>, tensor<1x1xi32>
}

func.func @apply(%b: tensor<1x2x3x300xf32>, %v: tensor<1x1x300x5xf32>) -> tensor<1x2x300x5xf32> {
  %sizes = arith.constant dense<[[[299, 130, 2], [300, 0, 0]]]> : tensor<1x2x3xi32>
  %o = tensor.empty() : tensor<1x2x300x5xf32>
  %n = tensor.empty() : tensor<1x2xi32>
  %r:2 = attn.conv_apply ins(%b, %sizes, %v : tensor<1x2x3x300xf32>, tensor<1x2x3xi32>, tensor<1x1x300x5xf32>)
      outs(%o, %n : tensor<1x2x300x5xf32>, tensor<1x2xi32>) -> tensor<1x2x300x5xf32>, tensor<1x2xi32>
  return %r#0 : tensor<1x2x300x5xf32>
}

func.func @rising(%b: tensor<1x1x2x3xf32>, %v: tensor<1x1x3x5xf32>) -> tensor<1x1x3x5xf32> {
  %sizes = arith.constant dense<[[[3, 3]]]> : tensor<1x1x2xi32>
  %o = tensor.empty() : tensor<1x1x3x5xf32>
  %n = tensor.empty() : tensor<1x1xi32>
  %r:2 = attn.conv_apply ins(%b, %sizes, %v : tensor<1x1x2x3xf32>, tensor<1x1x2xi32>, tensor<1x1x3x5xf32>)
      outs(%o, %n : tensor<1x1x3x5xf32>, tensor<1x1xi32>) -> tensor<1x1x3x5xf32>, tensor<1x1xi32>
  return %r#0 : tensor<1x1x3x5xf32>
}

// Four blocks, cut where segments begin.
func.func @partitioned(%b: tensor<1x2x3x300xf32>, %v: tensor<1x1x300x5xf32>) -> tensor<1x2x300x5xf32> {
  %sizes = arith.constant dense<[[[299, 130, 2], [300, 0, 0]]]> : tensor<1x2x3xi32>
  %o = tensor.empty() : tensor<1x2x300x5xf32>
  %n = tensor.empty() : tensor<1x2xi32>
  %r:2 = attn.conv_apply ins(%b, %sizes, %v : tensor<1x2x3x300xf32>, tensor<1x2x3xi32>, tensor<1x1x300x5xf32>)
      outs(%o, %n : tensor<1x2x300x5xf32>, tensor<1x2xi32>)
      {algorithm = #attn.conv_algorithm<partitioned>, block = 64 : i64} -> tensor<1x2x300x5xf32>, tensor<1x2xi32>
  return %r#0 : tensor<1x2x300x5xf32>
}

func.func @single(%b: tensor<1x1x1x90xf32>, %v: tensor<1x1x90x4xf16>) -> tensor<1x1x90x4xf16> {
  %sizes = arith.constant dense<80> : tensor<1x1x1xi32>
  %o = tensor.empty() : tensor<1x1x90x4xf16>
  %n = tensor.empty() : tensor<1x1xi32>
  %r:2 = attn.conv_apply ins(%b, %sizes, %v : tensor<1x1x1x90xf32>, tensor<1x1x1xi32>, tensor<1x1x90x4xf16>)
      outs(%o, %n : tensor<1x1x90x4xf16>, tensor<1x1xi32>) {algorithm = #attn.conv_algorithm<single>} -> tensor<1x1x90x4xf16>, tensor<1x1xi32>
  return %r#0 : tensor<1x1x90x4xf16>
}

func.func @long(%b: tensor<1x1x1x4100xf32>, %v: tensor<1x1x4100x1xf32>) -> tensor<1x1x4100x1xf32> {
  %sizes = arith.constant dense<600> : tensor<1x1x1xi32>
  %o = tensor.empty() : tensor<1x1x4100x1xf32>
  %n = tensor.empty() : tensor<1x1xi32>
  %r:2 = attn.conv_apply ins(%b, %sizes, %v : tensor<1x1x1x4100xf32>, tensor<1x1x1xi32>, tensor<1x1x4100x1xf32>)
      outs(%o, %n : tensor<1x1x4100x1xf32>, tensor<1x1xi32>) -> tensor<1x1x4100x1xf32>, tensor<1x1xi32>
  return %r#0 : tensor<1x1x4100x1xf32>
}

func.func @gradient(%q: !rows, %k: !keys, %v: tensor<1x2x70x9xf32>, %out: tensor<1x4x70x9xf32>, %d: tensor<1x4x70x9xf32>)
    -> (!rows, !keys, tensor<1x2x70x9xf32>) {
  %iq = tensor.empty() : !rows
  %ik = tensor.empty() : !keys
  %iv = tensor.empty() : tensor<1x2x70x9xf32>
  %r:3 = attn.conv_backward ins(%q, %k, %v : !rows, !keys, tensor<1x2x70x9xf32>)
      forward(%out : tensor<1x4x70x9xf32>) gradient(%d : tensor<1x4x70x9xf32>) outs(%iq, %ik, %iv : !rows, !keys, tensor<1x2x70x9xf32>)
      {num_basis = 5 : i64, window = 4 : i64, delta = 1.0 : f64, epsilon = 1.0e-02 : f64} -> !rows, !keys, tensor<1x2x70x9xf32>
  return %r#0, %r#1, %r#2 : !rows, !keys, tensor<1x2x70x9xf32>
}

func.func @gradient_groups(%q: !rows, %k: !keys, %v: !keys, %out: !rows, %d: !rows) -> (!rows, !keys, !keys) {
  %iq = tensor.empty() : !rows
  %ik = tensor.empty() : !keys
  %r:3 = attn.conv_backward ins(%q, %k, %v : !rows, !keys, !keys) forward(%out : !rows) gradient(%d : !rows)
      outs(%iq, %ik, %ik : !rows, !keys, !keys)
      {num_basis = 3 : i64, window = 2 : i64, delta = 1.0 : f64, epsilon = 1.0e-02 : f64, group = 16 : i64} -> !rows, !keys, !keys
  return %r#0, %r#1, %r#2 : !rows, !keys, !keys
}

// Pieces of two segments in a block, heads that share values.
func.func @gradient_partitioned(%b: tensor<2x2x3x211xf32>, %v: tensor<2x1x211x5xf32>, %out: tensor<2x2x211x5xf32>, %d: tensor<2x2x211x5xf32>)
    -> (tensor<2x2x3x211xf32>, tensor<2x1x211x5xf32>) {
  %sizes = arith.constant dense<[[[210, 130, 2], [211, 0, 0]], [[0, 0, 0], [211, 200, 199]]]> : tensor<2x2x3xi32>
  %ib = tensor.empty() : tensor<2x2x3x211xf32>
  %iv = tensor.empty() : tensor<2x1x211x5xf32>
  %r:2 = attn.conv_apply_backward ins(%b, %sizes, %v : tensor<2x2x3x211xf32>, tensor<2x2x3xi32>, tensor<2x1x211x5xf32>)
      forward(%out : tensor<2x2x211x5xf32>) gradient(%d : tensor<2x2x211x5xf32>) outs(%ib, %iv : tensor<2x2x3x211xf32>, tensor<2x1x211x5xf32>)
      {algorithm = #attn.conv_algorithm<partitioned>, block = 64 : i64} -> tensor<2x2x3x211xf32>, tensor<2x1x211x5xf32>
  return %r#0, %r#1 : tensor<2x2x3x211xf32>, tensor<2x1x211x5xf32>
}

func.func @gradient_single(%b: tensor<1x1x1x90xf32>, %v: tensor<1x1x90x4xf16>, %out: tensor<1x1x90x4xf16>, %d: tensor<1x1x90x4xf16>)
    -> (tensor<1x1x1x90xf32>, tensor<1x1x90x4xf16>) {
  %sizes = arith.constant dense<80> : tensor<1x1x1xi32>
  %ib = tensor.empty() : tensor<1x1x1x90xf32>
  %iv = tensor.empty() : tensor<1x1x90x4xf16>
  %r:2 = attn.conv_apply_backward ins(%b, %sizes, %v : tensor<1x1x1x90xf32>, tensor<1x1x1xi32>, tensor<1x1x90x4xf16>)
      forward(%out : tensor<1x1x90x4xf16>) gradient(%d : tensor<1x1x90x4xf16>) outs(%ib, %iv : tensor<1x1x1x90xf32>, tensor<1x1x90x4xf16>)
      {algorithm = #attn.conv_algorithm<single>} -> tensor<1x1x1x90xf32>, tensor<1x1x90x4xf16>
  return %r#0, %r#1 : tensor<1x1x1x90xf32>, tensor<1x1x90x4xf16>
}

func.func @gradient_long(%b: tensor<1x1x1x4100xf32>, %v: tensor<1x1x4100x1xf32>, %out: tensor<1x1x4100x1xf32>, %d: tensor<1x1x4100x1xf32>)
    -> (tensor<1x1x1x4100xf32>, tensor<1x1x4100x1xf32>) {
  %sizes = arith.constant dense<600> : tensor<1x1x1xi32>
  %ib = tensor.empty() : tensor<1x1x1x4100xf32>
  %iv = tensor.empty() : tensor<1x1x4100x1xf32>
  %r:2 = attn.conv_apply_backward ins(%b, %sizes, %v : tensor<1x1x1x4100xf32>, tensor<1x1x1xi32>, tensor<1x1x4100x1xf32>)
      forward(%out : tensor<1x1x4100x1xf32>) gradient(%d : tensor<1x1x4100x1xf32>) outs(%ib, %iv : tensor<1x1x1x4100xf32>, tensor<1x1x4100x1xf32>)
      -> tensor<1x1x1x4100xf32>, tensor<1x1x4100x1xf32>
  return %r#0, %r#1 : tensor<1x1x1x4100xf32>, tensor<1x1x4100x1xf32>
}
