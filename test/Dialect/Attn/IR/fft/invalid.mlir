// RUN: fovea-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{expected lanes to be a power of two of at most 64, but got 12}}
#form = #attn.spectrum<lanes = 12, radices = [8]>

// -----

// expected-error @below {{expected lanes to be a power of two of at most 64, but got 128}}
#form = #attn.spectrum<lanes = 128, radices = [8]>

// -----

// expected-error @below {{expected radices of 2, 4 or 8, but got 16}}
#form = #attn.spectrum<lanes = 16, radices = [16, 4]>

// -----

// expected-error @below {{expected a transform of at most 2^26 rows}}
#form = #attn.spectrum<lanes = 16, radices = [8, 8, 8, 8, 8, 8, 8, 8, 8]>

// -----

func.func @f(%x: tensor<2x20x48xf64>, %s: tensor<2x32x64xf32>) {
  // expected-error @below {{'attn.fft_forward' op expects spectrum to hold 'f64', but got 'f32'}}
  %r = attn.fft_forward ins(%x : tensor<2x20x48xf64>) outs(%s : tensor<2x32x64xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x32x64xf32>
  return
}

// -----

func.func @f(%x: tensor<2x20x48xbf16>, %s: tensor<2x32x64xbf16>) {
  // expected-error @below {{'attn.fft_forward' op operand #1 must be rank-3 tensor or memref of f32 or f64, but got 'tensor<2x32x64xbf16>'}}
  %r = attn.fft_forward ins(%x : tensor<2x20x48xbf16>) outs(%s : tensor<2x32x64xbf16>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x32x64xbf16>
  return
}

// -----

func.func @f(%x: tensor<2x20x48xf32>, %s: tensor<1x32x64xf32>) {
  // expected-error @below {{'attn.fft_forward' op expects extent 0 of spectrum to be 2 (batch of input), but got 1}}
  %r = attn.fft_forward ins(%x : tensor<2x20x48xf32>) outs(%s : tensor<1x32x64xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<1x32x64xf32>
  return
}

// -----

func.func @f(%x: tensor<2x20x48xf32>, %s: tensor<2x64x64xf32>) {
  // expected-error @below {{'attn.fft_forward' op expects extent 1 of spectrum to be 32 (product of the radices), but got 64}}
  %r = attn.fft_forward ins(%x : tensor<2x20x48xf32>) outs(%s : tensor<2x64x64xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x64x64xf32>
  return
}

// -----

func.func @f(%x: tensor<2x20x48xf32>, %s: tensor<2x32x48xf32>) {
  // expected-error @below {{'attn.fft_forward' op expects extent 2 of spectrum to be 64 (whole groups of the columns of input), but got 48}}
  %r = attn.fft_forward ins(%x : tensor<2x20x48xf32>) outs(%s : tensor<2x32x48xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x32x48xf32>
  return
}

// -----

func.func @f(%x: tensor<2x20x?xf32>, %s: tensor<2x32x64xf32>) {
  // expected-error @below {{'attn.fft_forward' op expects a static width of input}}
  %r = attn.fft_forward ins(%x : tensor<2x20x?xf32>) outs(%s : tensor<2x32x64xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x32x64xf32>
  return
}

// -----

func.func @f(%x: tensor<2x?x48xf32>, %s: tensor<2x32x64xf32>) {
  // expected-error @below {{'attn.fft_forward' op expects a static number of rows of input}}
  %r = attn.fft_forward ins(%x : tensor<2x?x48xf32>) outs(%s : tensor<2x32x64xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x32x64xf32>
  return
}

// -----

func.func @f(%x: tensor<2x20x48xf32>, %s: tensor<2x?x64xf32>) {
  // expected-error @below {{'attn.fft_forward' op expects a static shape of a spectrum}}
  %r = attn.fft_forward ins(%x : tensor<2x20x48xf32>) outs(%s : tensor<2x?x64xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x?x64xf32>
  return
}

// -----

func.func @f(%x: tensor<2x33x48xf32>, %s: tensor<2x32x64xf32>) {
  // expected-error @below {{'attn.fft_forward' op expects input to be rows of a transform of 32, but got rows 0 to 33}}
  %r = attn.fft_forward ins(%x : tensor<2x33x48xf32>) outs(%s : tensor<2x32x64xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x32x64xf32>
  return
}

// -----

func.func @f(%s: tensor<2x32x64xf32>, %y: tensor<2x16x48xf32>) {
  // expected-error @below {{'attn.fft_inverse' op expects output to be rows of a transform of 32, but got rows 17 to 33}}
  %r = attn.fft_inverse ins(%s : tensor<2x32x64xf32>) outs(%y : tensor<2x16x48xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>, first = 17 : i64} -> tensor<2x16x48xf32>
  return
}

// -----

func.func @f(%s: tensor<2x32x64xf32>, %y: tensor<2x16x48xf32>) {
  // expected-error @below {{'attn.fft_inverse' op expects output to be rows of a transform of 32, but got rows -1 to 15}}
  %r = attn.fft_inverse ins(%s : tensor<2x32x64xf32>) outs(%y : tensor<2x16x48xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>, first = -1 : i64} -> tensor<2x16x48xf32>
  return
}

// -----

func.func @f(%s: tensor<2x32x64xf32>, %y: tensor<2x16x48xf32>) {
  // expected-error @below {{'attn.fft_inverse' op expects one result for each tensor in outs, that is 1, but got 0}}
  attn.fft_inverse ins(%s : tensor<2x32x64xf32>) outs(%y : tensor<2x16x48xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>, first = 0 : i64}
  return
}

// -----

func.func @f(%s: tensor<2x16x64xf32>, %k: tensor<1x32x32xf32>, %o: tensor<2x16x64xf32>) {
  // expected-error @below {{'attn.fft_multiply' op expects extent 1 of spectrum to be 32 (product of the radices), but got 16}}
  %r = attn.fft_multiply ins(%s, %k : tensor<2x16x64xf32>, tensor<1x32x32xf32>) outs(%o : tensor<2x16x64xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x16x64xf32>
  return
}

// -----

func.func @f(%s: tensor<2x32x64xf32>, %k: tensor<3x32x32xf32>, %o: tensor<2x32x64xf32>) {
  // expected-error @below {{'attn.fft_multiply' op expects extent 0 of factor to be 2 or 1 (batch of spectrum), but got 3}}
  %r = attn.fft_multiply ins(%s, %k : tensor<2x32x64xf32>, tensor<3x32x32xf32>) outs(%o : tensor<2x32x64xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x32x64xf32>
  return
}

// -----

func.func @f(%s: tensor<2x32x64xf32>, %k: tensor<1x32x32xf64>, %o: tensor<2x32x64xf32>) {
  // expected-error @below {{'attn.fft_multiply' op expects factor to hold 'f32', but got 'f64'}}
  %r = attn.fft_multiply ins(%s, %k : tensor<2x32x64xf32>, tensor<1x32x32xf64>) outs(%o : tensor<2x32x64xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x32x64xf32>
  return
}

// -----

func.func @f(%s: tensor<2x32x64xf32>, %k: tensor<1x32x32xf32>, %o: tensor<2x32x32xf32>) {
  // expected-error @below {{'attn.fft_accumulate' op expects extent 2 of output to be 64 (from spectrum), but got 32}}
  %r = attn.fft_accumulate ins(%s, %k : tensor<2x32x64xf32>, tensor<1x32x32xf32>) outs(%o : tensor<2x32x32xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x32x32xf32>
  return
}

// -----

func.func @f(%s: tensor<2x32x64xf32>, %k: tensor<1x32x48xf32>, %o: tensor<2x32x64xf32>) {
  // expected-error @below {{'attn.fft_accumulate' op expects spectra of whole groups of 32 columns, but got 48}}
  %r = attn.fft_accumulate ins(%s, %k : tensor<2x32x64xf32>, tensor<1x32x48xf32>) outs(%o : tensor<2x32x64xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x32x64xf32>
  return
}
