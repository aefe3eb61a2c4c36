// Hardly more code for very wide rows than for wide ones: LLVM would take minutes.
// RUN: fovea-opt %s --attn-cpu-pipeline=cpu=x86-64-v3 | wc -l > %t.wide
// RUN: sed 's/x4096xf32/x32768xf32/g' %s | fovea-opt --attn-cpu-pipeline=cpu=x86-64-v3 | wc -l > %t.very-wide
// RUN: %python -c "wide, very_wide = (int(open(f).read()) for f in (r'%t.wide', r'%t.very-wide')); assert very_wide < wide + 20, (wide, very_wide)"
// RUN: sed 's/x4096xf32/x1101xf32/g' %s | fovea-run - --random --compare=reference --threads=2

func.func @gradient(%q: tensor<1x1x64x4096xf32>, %k: tensor<1x1x64x4096xf32>, %v: tensor<1x1x64x4096xf32>,
                    %o: tensor<1x1x64x4096xf32>, %l: tensor<1x1x64xf32>, %d: tensor<1x1x64x4096xf32>)
    -> (tensor<1x1x64x4096xf32>, tensor<1x1x64x4096xf32>, tensor<1x1x64x4096xf32>) {
  %0:3 = attn.dense_backward
      ins(%q, %k, %v : tensor<1x1x64x4096xf32>, tensor<1x1x64x4096xf32>, tensor<1x1x64x4096xf32>)
      forward(%o, %l : tensor<1x1x64x4096xf32>, tensor<1x1x64xf32>) gradient(%d : tensor<1x1x64x4096xf32>)
      outs(%q, %k, %v : tensor<1x1x64x4096xf32>, tensor<1x1x64x4096xf32>, tensor<1x1x64x4096xf32>)
      {scale = 0.0001} -> tensor<1x1x64x4096xf32>, tensor<1x1x64x4096xf32>, tensor<1x1x64x4096xf32>
  return %0#0, %0#1, %0#2 : tensor<1x1x64x4096xf32>, tensor<1x1x64x4096xf32>, tensor<1x1x64x4096xf32>
}
