// Gradients of heads and values that several blocks of threads share, on the emulated GPU.

// REQUIRES: long-tests
// Sanitizers see the same loops in backward.mlir, and take minutes for these.
// UNSUPPORTED: asan
// RUN: fovea-run %s --entry=wide_values --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=wide_heads --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: env FOVEA_SIMT=seed=4 fovea-run %s --entry=latent --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=latent --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=wide_lists --target=gpu-sim --random --compare=reference | FileCheck %s
// CHECK-COUNT-3: agrees with the reference
// CHECK-NOT: differs

// Blocks of threads share the columns of values that are wider than heads may be.
func.func @wide_values(%q: tensor<1x2x70x8xf32>, %k: tensor<1x1x90x8xf32>, %v: tensor<1x1x90x300xf32>, %out: tensor<1x2x70x300xf32>, %l: tensor<1x2x70xf32>)
    -> (tensor<1x2x70x8xf32>, tensor<1x1x90x8xf32>, tensor<1x1x90x300xf32>) {
  %r:3 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x70x8xf32>, tensor<1x1x90x8xf32>, tensor<1x1x90x300xf32>)
      forward(%out, %l : tensor<1x2x70x300xf32>, tensor<1x2x70xf32>) gradient(%out : tensor<1x2x70x300xf32>)
      outs(%q, %k, %v : tensor<1x2x70x8xf32>, tensor<1x1x90x8xf32>, tensor<1x1x90x300xf32>) {mask = #attn.mask<causal>}
      -> tensor<1x2x70x8xf32>, tensor<1x1x90x8xf32>, tensor<1x1x90x300xf32>
  return %r#0, %r#1, %r#2 : tensor<1x2x70x8xf32>, tensor<1x1x90x8xf32>, tensor<1x1x90x300xf32>
}

// The same of heads: two blocks for keys, and for queries.
func.func @wide_heads(%q: tensor<1x2x70x320xf32>, %k: tensor<1x1x90x320xf32>, %v: tensor<1x1x90x24xf32>, %out: tensor<1x2x70x24xf32>, %l: tensor<1x2x70xf32>)
    -> (tensor<1x2x70x320xf32>, tensor<1x1x90x320xf32>, tensor<1x1x90x24xf32>) {
  %r:3 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x70x320xf32>, tensor<1x1x90x320xf32>, tensor<1x1x90x24xf32>)
      forward(%out, %l : tensor<1x2x70x24xf32>, tensor<1x2x70xf32>) gradient(%out : tensor<1x2x70x24xf32>)
      outs(%q, %k, %v : tensor<1x2x70x320xf32>, tensor<1x1x90x320xf32>, tensor<1x1x90x24xf32>) {mask = #attn.mask<causal>}
      -> tensor<1x2x70x320xf32>, tensor<1x1x90x320xf32>, tensor<1x1x90x24xf32>
  return %r#0, %r#1, %r#2 : tensor<1x2x70x320xf32>, tensor<1x1x90x320xf32>, tensor<1x1x90x24xf32>
}

// Latent attention: keys of 576 columns, of which 512 are values.
func.func @latent(%q: tensor<1x2x70x576xbf16>, %k: tensor<1x1x90x576xbf16>, %out: tensor<1x2x70x512xbf16>, %l: tensor<1x2x70xf32>)
    -> (tensor<1x2x70x576xbf16>, tensor<1x1x90x576xbf16>, tensor<1x1x90x512xbf16>) {
  %v = tensor.extract_slice %k[0, 0, 0, 0] [1, 1, 90, 512] [1, 1, 1, 1] : tensor<1x1x90x576xbf16> to tensor<1x1x90x512xbf16>
  %dv = tensor.empty() : tensor<1x1x90x512xbf16>
  %r:3 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x70x576xbf16>, tensor<1x1x90x576xbf16>, tensor<1x1x90x512xbf16>)
      forward(%out, %l : tensor<1x2x70x512xbf16>, tensor<1x2x70xf32>) gradient(%out : tensor<1x2x70x512xbf16>)
      outs(%q, %k, %dv : tensor<1x2x70x576xbf16>, tensor<1x1x90x576xbf16>, tensor<1x1x90x512xbf16>) {mask = #attn.mask<causal>}
      -> tensor<1x2x70x576xbf16>, tensor<1x1x90x576xbf16>, tensor<1x1x90x512xbf16>
  return %r#0, %r#1, %r#2 : tensor<1x2x70x576xbf16>, tensor<1x1x90x576xbf16>, tensor<1x1x90x512xbf16>
}

// Lists of rows of such heads.
func.func @wide_lists(%q: tensor<1x2x40x320xf32>, %k: tensor<1x1x90x320xf32>, %v: tensor<1x1x90x24xf32>, %out: tensor<1x2x40x24xf32>, %l: tensor<1x2x40xf32>)
    -> (tensor<1x2x40x320xf32>, tensor<1x1x90x320xf32>, tensor<1x1x90x24xf32>) {
  %list = arith.constant dense<[[[[4, 0, -1, 7]]]]> : tensor<1x1x1x4xi32>
  %r:3 = attn.stream_backward query(%q : tensor<1x2x40x320xf32>)
      source(%k, %v : tensor<1x1x90x320xf32>, tensor<1x1x90x24xf32>) rows(%list : tensor<1x1x1x4xi32>) unit = 8
          ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%out, %l : tensor<1x2x40x24xf32>, tensor<1x2x40xf32>) gradient(%out : tensor<1x2x40x24xf32>)
      outs(%q, %k, %v : tensor<1x2x40x320xf32>, tensor<1x1x90x320xf32>, tensor<1x1x90x24xf32>) {scale = 1.0e-01 : f64}
      -> tensor<1x2x40x320xf32>, tensor<1x1x90x320xf32>, tensor<1x1x90x24xf32>
  return %r#0, %r#1, %r#2 : tensor<1x2x40x320xf32>, tensor<1x1x90x320xf32>, tensor<1x1x90x24xf32>
}
