// As much code for wide rows as for very wide ones: LLVM would take minutes.
// RUN: fovea-opt %s --attn-cpu-pipeline=cpu=x86-64-v3 | wc -l > %t.wide
// RUN: sed 's/x4096xf32/x32768xf32/g' %s | fovea-opt --attn-cpu-pipeline=cpu=x86-64-v3 | wc -l > %t.very-wide
// RUN: %python -c "wide, very_wide = (int(open(f).read()) for f in (r'%t.wide', r'%t.very-wide')); assert very_wide < wide + 20, (wide, very_wide)"
// RUN: sed 's/x4096xf32/x1101xf32/g' %s | fovea-run - --random --compare=reference --threads=2

func.func @quantize(%k: tensor<1x1x100x4096xf32>, %c: tensor<1x16x4096xf32>, %z: tensor<1x1x100xi32>) -> tensor<1x1x100xi32> {
  %0 = attn.quantize ins(%k, %c : tensor<1x1x100x4096xf32>, tensor<1x16x4096xf32>) outs(%z : tensor<1x1x100xi32>) -> tensor<1x1x100xi32>
  return %0 : tensor<1x1x100xi32>
}
