// RUN: not fovea-opt %s --attn-differentiate=function=g 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: not fovea-opt %s --attn-differentiate=arguments=3 2>&1 | FileCheck %s --check-prefix=NUMBER
// RUN: not fovea-opt %s --attn-differentiate=arguments=1 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: not fovea-opt %s --attn-differentiate=arguments=0,0 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not fovea-opt %s --attn-differentiate=function=@declared 2>&1 | FileCheck %s --check-prefix=BODY

// NAME: error: no function to differentiate: expected one that is called '@g'
// NUMBER: error: 'func.func' op cannot be differentiated with respect to argument 3: it has 3 arguments
// TYPE: error: 'func.func' op cannot be differentiated with respect to argument 1: expected a floating-point type, but got 'index'
// TWICE: error: 'func.func' op cannot be differentiated with respect to argument 0 twice
// BODY: error: 'func.func' op cannot be differentiated: has no body

func.func private @declared(%x: f32) -> f32
func.func @f(%x: f32, %i: index, %y: f32) -> f32 {
  %0 = arith.mulf %x, %y : f32
  return %0 : f32
}
