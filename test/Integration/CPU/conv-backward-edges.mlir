// The last vector of lags begins in the last window of a head, not at a vector
// of it, and there is no other window behind: 30 blocks, 30 windows, and zeros
// before and after make two whole vectors. With sanitizers this is a test of
// what is read, too.

// RUN: fovea-run %s --random=1 --compare=reference | FileCheck %s
// CHECK-COUNT-2: agrees with the reference

!bases = tensor<1x1x1x480xf32>
!values = tensor<1x1x480x32xf32>

func.func @gradient(%b: !bases, %v: !values, %o: !values, %d: !values) -> (!bases, !values) {
  %m = arith.constant dense<475> : tensor<1x1x1xi32>
  %i = tensor.empty() : !bases
  %j = tensor.empty() : !values
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : !bases, tensor<1x1x1xi32>, !values)
      forward(%o : !values) gradient(%d : !values) outs(%i, %j : !bases, !values)
      {algorithm = #attn.conv_algorithm<partitioned>, block = 16 : i64} -> !bases, !values
  return %r#0, %r#1 : !bases, !values
}
