// As much code for wide rows as for very wide ones: LLVM would take minutes.
// RUN: fovea-opt %s --attn-cpu-pipeline=cpu=x86-64-v3 | wc -l > %t.wide
// RUN: sed 's/x4096xf32/x32768xf32/g' %s | fovea-opt --attn-cpu-pipeline=cpu=x86-64-v3 | wc -l > %t.very-wide
// RUN: %python -c "wide, very_wide = (int(open(f).read()) for f in (r'%t.wide', r'%t.very-wide')); assert very_wide < wide + 20, (wide, very_wide)"
// RUN: sed 's/x4096xf32/x1101xf32/g' %s | fovea-run - --random --compare=reference --threads=2
// RUN: sed 's/x4096xf32/x1101xf32/g; s/toeplitz/partitioned/' %s | fovea-run - --random --compare=reference --threads=2

func.func @conv(%q: tensor<1x1x32x4096xf32>, %k: tensor<1x1x32x4096xf32>, %v: tensor<1x1x32x4096xf32>, %n: tensor<1x1xi32>) -> tensor<1x1x32x4096xf32> {
  %0:3 = attn.conv ins(%q, %k, %v : tensor<1x1x32x4096xf32>, tensor<1x1x32x4096xf32>, tensor<1x1x32x4096xf32>)
      outs(%v, %n, %n : tensor<1x1x32x4096xf32>, tensor<1x1xi32>, tensor<1x1xi32>)
      {num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64, scale = 0.001, algorithm = #attn.conv_algorithm<toeplitz>}
      -> tensor<1x1x32x4096xf32>, tensor<1x1xi32>, tensor<1x1xi32>
  return %0#0 : tensor<1x1x32x4096xf32>
}
