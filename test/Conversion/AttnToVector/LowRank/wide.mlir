// As much code for wide rows as for very wide ones: LLVM would take minutes.
// RUN: fovea-opt %s --attn-cpu-pipeline=cpu=x86-64-v3 | wc -l > %t.wide
// RUN: sed 's/x4096xf32/x32768xf32/g' %s | fovea-opt --attn-cpu-pipeline=cpu=x86-64-v3 | wc -l > %t.very-wide
// RUN: %python -c "wide, very_wide = (int(open(f).read()) for f in (r'%t.wide', r'%t.very-wide')); assert very_wide < wide + 20, (wide, very_wide)"
// RUN: sed 's/x4096xf32/x1101xf32/g' %s | fovea-run - --random=6 --compare=reference --threads=2

func.func @sums(%x: tensor<1x1x8x4096xf32>, %y: tensor<1x1x8x4096xf32>, %d: tensor<1x1x8x4096xf32>)
    -> (tensor<1x1x8x4096xf32>, tensor<1x1x8x4096xf32>, tensor<1x1x8x4096xf32>, tensor<1x1x8x4096xf32>) {
  %first = arith.constant dense<[[[0, 1, 2, 0, 3, 4, 0, 7]]]> : tensor<1x1x8xi32>
  %last = arith.constant dense<[[[0, 2, 7, 5, 3, 6, 7, 7]]]> : tensor<1x1x8xi32>
  %0 = attn.low_rank ins(%x, %y, %d : tensor<1x1x8x4096xf32>, tensor<1x1x8x4096xf32>, tensor<1x1x8x4096xf32>)
      mask(%first, %last : tensor<1x1x8xi32>, tensor<1x1x8xi32>)
      outs(%x : tensor<1x1x8x4096xf32>) {mask = #attn.row_mask<row_interval>} -> tensor<1x1x8x4096xf32>
  %1:3 = attn.low_rank_backward ins(%x, %y, %d : tensor<1x1x8x4096xf32>, tensor<1x1x8x4096xf32>, tensor<1x1x8x4096xf32>)
      forward(%0 : tensor<1x1x8x4096xf32>) gradient(%d : tensor<1x1x8x4096xf32>)
      outs(%x, %y, %d : tensor<1x1x8x4096xf32>, tensor<1x1x8x4096xf32>, tensor<1x1x8x4096xf32>)
      {mask = #attn.row_mask<causal>} -> tensor<1x1x8x4096xf32>, tensor<1x1x8x4096xf32>, tensor<1x1x8x4096xf32>
  return %0, %1#0, %1#1, %1#2 : tensor<1x1x8x4096xf32>, tensor<1x1x8x4096xf32>, tensor<1x1x8x4096xf32>, tensor<1x1x8x4096xf32>
}
