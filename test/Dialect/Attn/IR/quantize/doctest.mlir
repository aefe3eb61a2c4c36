// RUN: fovea-opt %s | fovea-opt | FileCheck %s

// The examples of the descriptions in AttnQuantizeOps.td, word for word:
// utils/check_doc_examples.py compares them.

// CHECK-LABEL: func @quantize(
// CHECK: attn.quantize ins
func.func @quantize(%k: tensor<1x2x1024x64xf32>, %codebook: tensor<2x512x64xf32>,
    %codes_init: tensor<1x2x1024xi32>, %k_init: tensor<1x2x1024x64xf32>) -> (tensor<1x2x1024xi32>, tensor<1x2x1024x64xf32>) {
    %codes, %quantized = attn.quantize
        ins(%k, %codebook : tensor<1x2x1024x64xf32>, tensor<2x512x64xf32>)
        outs(%codes_init, %k_init : tensor<1x2x1024xi32>, tensor<1x2x1024x64xf32>)
        -> tensor<1x2x1024xi32>, tensor<1x2x1024x64xf32>
  return %codes, %quantized : tensor<1x2x1024xi32>, tensor<1x2x1024x64xf32>
}

// CHECK-LABEL: func @codebook_accumulate(
// CHECK: attn.codebook_accumulate ins
func.func @codebook_accumulate(%codes: tensor<1x2x128xi32>, %values: tensor<1x2x128x64xbf16>,
    %mean0: tensor<1x2x512x64xf32>, %count0: tensor<1x2x512xi32>) -> (tensor<1x2x512x64xf32>, tensor<1x2x512xi32>) {
    %mean, %count = attn.codebook_accumulate
        ins(%codes, %values : tensor<1x2x128xi32>, tensor<1x2x128x64xbf16>)
        outs(%mean0, %count0 : tensor<1x2x512x64xf32>, tensor<1x2x512xi32>)
        -> tensor<1x2x512x64xf32>, tensor<1x2x512xi32>
  return %mean, %count : tensor<1x2x512x64xf32>, tensor<1x2x512xi32>
}

// CHECK-LABEL: func @codebook_scan(
// CHECK: attn.codebook_scan ins
func.func @codebook_scan(%codes: tensor<1x2x1024xi32>, %values: tensor<1x2x1024x64xf32>,
    %mean0: tensor<1x2x16x64xf32>, %count0: tensor<1x2x16xi32>,
    %mean_init: tensor<1x2x8x16x64xf32>, %count_init: tensor<1x2x8x16xi32>) -> (tensor<1x2x8x16x64xf32>, tensor<1x2x8x16xi32>) {
    %mean, %count = attn.codebook_scan
        ins(%codes, %values, %mean0, %count0 : tensor<1x2x1024xi32>, tensor<1x2x1024x64xf32>,
            tensor<1x2x16x64xf32>, tensor<1x2x16xi32>)
        outs(%mean_init, %count_init : tensor<1x2x8x16x64xf32>, tensor<1x2x8x16xi32>)
        {block = 128 : i64, reduction = #attn.reduction<serial>}
        -> tensor<1x2x8x16x64xf32>, tensor<1x2x8x16xi32>
  return %mean, %count : tensor<1x2x8x16x64xf32>, tensor<1x2x8x16xi32>
}

// CHECK-LABEL: func @log_count(
// CHECK: attn.log_count ins
func.func @log_count(%count: tensor<1x2x512xi32>, %init: tensor<1x2x512xf32>) -> tensor<1x2x512xf32> {
    %w = attn.log_count ins(%count : tensor<1x2x512xi32>)
        outs(%init : tensor<1x2x512xf32>) -> tensor<1x2x512xf32>
  return %w : tensor<1x2x512xf32>
}

// CHECK-LABEL: func @codebook_update(
// CHECK: attn.codebook_update ins
func.func @codebook_update(%k: tensor<1x2x1024x64xf32>, %codes: tensor<1x2x1024xi32>, %codebook_init: tensor<2x512x64xf32>,
    %sums0: tensor<2x512x64xf32>, %counts0: tensor<2x512xf32>) -> (tensor<2x512x64xf32>, tensor<2x512x64xf32>, tensor<2x512xf32>) {
    %codebook, %sums, %counts = attn.codebook_update
        ins(%k, %codes : tensor<1x2x1024x64xf32>, tensor<1x2x1024xi32>)
        outs(%codebook_init, %sums0, %counts0 :
             tensor<2x512x64xf32>, tensor<2x512x64xf32>, tensor<2x512xf32>)
        {rate = 9.9e-01 : f64}
        -> tensor<2x512x64xf32>, tensor<2x512x64xf32>, tensor<2x512xf32>
  return %codebook, %sums, %counts : tensor<2x512x64xf32>, tensor<2x512x64xf32>, tensor<2x512xf32>
}

// CHECK-LABEL: func @check_codes(
// CHECK: attn.check_codes %{{.*}} below
func.func @check_codes(%codes: tensor<1x2x1024xi32>, %num_codes: index) {
    attn.check_codes %codes below %num_codes {name = "attn.vq: codes"} : tensor<1x2x1024xi32>
  return
}

// CHECK-LABEL: func @reduction(
// CHECK-SAME: #attn.reduction<associative>
#blocks_at_once = #attn.reduction<associative>
func.func @reduction() attributes {test.reduction = #blocks_at_once} {
  return
}
