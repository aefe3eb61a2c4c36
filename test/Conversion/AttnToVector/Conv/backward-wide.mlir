// As much code for wide rows as for very wide ones: LLVM would take minutes.
// RUN: fovea-opt %s --attn-cpu-pipeline=cpu=x86-64-v3 | wc -l > %t.wide
// RUN: sed 's/x4096xf32/x32768xf32/g' %s | fovea-opt --attn-cpu-pipeline=cpu=x86-64-v3 | wc -l > %t.very-wide
// RUN: %python -c "wide, very_wide = (int(open(f).read()) for f in (r'%t.wide', r'%t.very-wide')); assert very_wide < wide + 20, (wide, very_wide)"
// RUN: sed 's/x4096xf32/x1101xf32/g' %s | fovea-run - --random --compare=reference --threads=2

func.func @gradient(%b: tensor<1x1x2x32xf32>, %v: tensor<1x1x32x4096xf32>, %o: tensor<1x1x32x4096xf32>, %d: tensor<1x1x32x4096xf32>)
    -> (tensor<1x1x2x32xf32>, tensor<1x1x32x4096xf32>) {
  %m = arith.constant dense<[[[32, 16]]]> : tensor<1x1x2xi32>
  %0:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<1x1x2x32xf32>, tensor<1x1x2xi32>, tensor<1x1x32x4096xf32>)
      forward(%o : tensor<1x1x32x4096xf32>) gradient(%d : tensor<1x1x32x4096xf32>)
      outs(%b, %v : tensor<1x1x2x32xf32>, tensor<1x1x32x4096xf32>) -> tensor<1x1x2x32xf32>, tensor<1x1x32x4096xf32>
  return %0#0, %0#1 : tensor<1x1x2x32xf32>, tensor<1x1x32x4096xf32>
}
