// RUN: fovea-opt %s | fovea-opt | FileCheck %s

// The examples of gradients in AttnSoftmaxOps.td and AttnHierarchicalOps.td, word
// for word: utils/check_doc_examples.py compares them.

// CHECK-LABEL: func @stream_backward(
// CHECK: attn.stream_backward query
func.func @stream_backward(%q: tensor<1x1x64x16xf32>, %k: tensor<1x1x64x16xf32>, %v: tensor<1x1x64x16xf32>, %ks: tensor<1x1x4x16xf32>, %vs: tensor<1x1x4x16xf32>, %w: tensor<1x1x4xf32>, %out: tensor<1x1x64x16xf32>, %lse: tensor<1x1x64xf32>, %dout: tensor<1x1x64x16xf32>, %iq: tensor<1x1x64x16xf32>, %ik: tensor<1x1x64x16xf32>, %iks: tensor<1x1x4x16xf32>, %iv: tensor<1x1x64x16xf32>, %ivs: tensor<1x1x4x16xf32>) -> (tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x4x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x4x16xf32>) {
    %dq, %dk, %dks, %dv, %dvs = attn.stream_backward query(%q : tensor<1x1x64x16xf32>)
        source(%k, %v : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>)
            ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>] mask <causal>
        source(%ks, %vs : tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>)
            log_weight(%w : tensor<1x1x4xf32>)
            ranges [affine_map<(b)[rows, n] -> (0, b - 1)>]
        forward(%out, %lse : tensor<1x1x64x16xf32>, tensor<1x1x64xf32>)
        gradient(%dout : tensor<1x1x64x16xf32>)
        outs(%iq, %ik, %iks, %iv, %ivs : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x4x16xf32>,
             tensor<1x1x64x16xf32>, tensor<1x1x4x16xf32>)
        {block = 16 : i64, scale = 2.5e-01 : f64}
        -> tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x4x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x4x16xf32>
    return %dq, %dk, %dks, %dv, %dvs : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x4x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x4x16xf32>
}

// CHECK-LABEL: func @dense_backward(
// CHECK: attn.dense_backward ins
func.func @dense_backward(%q: tensor<1x8x512x64xf32>, %k: tensor<1x2x512x64xf32>, %v: tensor<1x2x512x64xf32>, %out: tensor<1x8x512x64xf32>, %lse: tensor<1x8x512xf32>, %dout: tensor<1x8x512x64xf32>, %iq: tensor<1x8x512x64xf32>, %ik: tensor<1x2x512x64xf32>, %iv: tensor<1x2x512x64xf32>) -> (tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>) {
    %dq, %dk, %dv = attn.dense_backward
        ins(%q, %k, %v : tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>)
        forward(%out, %lse : tensor<1x8x512x64xf32>, tensor<1x8x512xf32>)
        gradient(%dout : tensor<1x8x512x64xf32>)
        outs(%iq, %ik, %iv : tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>)
        {mask = #attn.mask<causal>}
        -> tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>
    return %dq, %dk, %dv : tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>
}

// CHECK-LABEL: func @summarize_backward(
// CHECK: attn.summarize_backward ins
func.func @summarize_backward(%x: tensor<1x8x1024x64xf32>, %w: tensor<1x4x64x64xf32>, %ds: tensor<1x8x64x64xf32>, %ix: tensor<1x8x1024x64xf32>, %iw: tensor<1x4x64x64xf32>) -> (tensor<1x8x1024x64xf32>, tensor<1x4x64x64xf32>) {
    %dx, %dw = attn.summarize_backward ins(%x : tensor<1x8x1024x64xf32>)
        weights(%w : tensor<1x4x64x64xf32>)
        gradient(%ds : tensor<1x8x64x64xf32>)
        outs(%ix, %iw : tensor<1x8x1024x64xf32>, tensor<1x4x64x64xf32>)
        -> tensor<1x8x1024x64xf32>, tensor<1x4x64x64xf32>
    return %dx, %dw : tensor<1x8x1024x64xf32>, tensor<1x4x64x64xf32>
}

// CHECK-LABEL: func @fast_multipole_backward(
// CHECK: attn.fast_multipole_backward ins
func.func @fast_multipole_backward(%q: tensor<1x8x256x64xf32>, %k: tensor<1x8x256x64xf32>, %v: tensor<1x8x256x64xf32>, %kw: tensor<1x4x64x64xf32>, %vw: tensor<1x4x64x64xf32>, %out: tensor<1x8x256x64xf32>, %lse: tensor<1x8x256xf32>, %dout: tensor<1x8x256x64xf32>, %iq: tensor<1x8x256x64xf32>, %ik: tensor<1x8x256x64xf32>, %iv: tensor<1x8x256x64xf32>, %ikw: tensor<1x4x64x64xf32>, %ivw: tensor<1x4x64x64xf32>) -> (tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>, tensor<1x4x64x64xf32>, tensor<1x4x64x64xf32>) {
    %dq, %dk, %dv, %dkw, %dvw = attn.fast_multipole_backward
        ins(%q, %k, %v : tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>)
        key_weights(%kw : tensor<1x4x64x64xf32>) value_weights(%vw : tensor<1x4x64x64xf32>)
        forward(%out, %lse : tensor<1x8x256x64xf32>, tensor<1x8x256xf32>)
        gradient(%dout : tensor<1x8x256x64xf32>)
        outs(%iq, %ik, %iv : tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>)
        d_key_weights(%ikw : tensor<1x4x64x64xf32>) d_value_weights(%ivw : tensor<1x4x64x64xf32>)
        {group = 64 : i64, causal}
        -> tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>, tensor<1x4x64x64xf32>, tensor<1x4x64x64xf32>
    return %dq, %dk, %dv, %dkw, %dvw : tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>, tensor<1x4x64x64xf32>, tensor<1x4x64x64xf32>
}

// CHECK-LABEL: func @fast_multipole_linear_backward(
// CHECK: attn.fast_multipole_linear_backward ins
func.func @fast_multipole_linear_backward(%q: tensor<1x2x128x16xf32>, %k: tensor<1x2x128x16xf32>, %v: tensor<1x2x128x16xf32>, %qw: tensor<1x2x32x16xf32>, %kw: tensor<1x2x32x16xf32>, %vw: tensor<1x2x32x16xf32>, %dout: tensor<1x2x128x16xf32>, %iq: tensor<1x2x128x16xf32>, %ik: tensor<1x2x128x16xf32>, %iv: tensor<1x2x128x16xf32>, %iqw: tensor<1x2x32x16xf32>, %ikw: tensor<1x2x32x16xf32>, %ivw: tensor<1x2x32x16xf32>) -> (tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>, tensor<1x2x32x16xf32>, tensor<1x2x32x16xf32>, tensor<1x2x32x16xf32>) {
    %dq, %dk, %dv, %dqw, %dkw, %dvw = attn.fast_multipole_linear_backward
        ins(%q, %k, %v : tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>)
        query_weights(%qw : tensor<1x2x32x16xf32>) key_weights(%kw : tensor<1x2x32x16xf32>)
        value_weights(%vw : tensor<1x2x32x16xf32>)
        gradient(%dout : tensor<1x2x128x16xf32>)
        outs(%iq, %ik, %iv : tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>)
        d_query_weights(%iqw : tensor<1x2x32x16xf32>) d_key_weights(%ikw : tensor<1x2x32x16xf32>)
        d_value_weights(%ivw : tensor<1x2x32x16xf32>)
        {group = 32 : i64}
        -> tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>,
           tensor<1x2x32x16xf32>, tensor<1x2x32x16xf32>, tensor<1x2x32x16xf32>
    return %dq, %dk, %dv, %dqw, %dkw, %dvw : tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>, tensor<1x2x32x16xf32>, tensor<1x2x32x16xf32>, tensor<1x2x32x16xf32>
}
