// RUN: fovea-opt %s --split-input-file --attn-prepare-input --verify-diagnostics

func.func @dim_of_slice(%x: tensor<?x8xf32>, %n: index) -> index {
  %c = arith.constant -1 : index
  // expected-error @below {{'tensor.dim' op has dimension -1 of a value with 2 dimensions}}
  %d = tensor.dim %x, %c : tensor<?x8xf32>
  return %d : index
}

// -----

func.func @dim_of_buffer(%x: memref<?x8xf32>) -> index {
  %c = arith.constant 2 : index
  // expected-error @below {{'memref.dim' op has dimension 2 of a value with 2 dimensions}}
  %d = memref.dim %x, %c : memref<?x8xf32>
  return %d : index
}

// -----

// expected-error @below {{'func.func' op has a scalable vector of type 'vector<[4]xf32>', which no target}}
func.func @scalable(%x: vector<[4]xf32>) {
  return
}

// -----

func.func @scalable_inside(%x: f32) {
  // expected-error @below {{'vector.broadcast' op has a scalable vector}}
  %v = vector.broadcast %x : f32 to vector<[4]xf32>
  return
}

// -----

func.func @resource() -> tensor<1xi64> {
  // expected-error @below {{has elements in the resource '__elided__', which the module does not hold}}
  %c = arith.constant dense_resource<__elided__> : tensor<1xi64>
  return %c : tensor<1xi64>
}

// -----

func.func @ambiguous(%x: memref<1x8x8x8xf32>) {
  // expected-error @below {{'memref.subview' op has strides that are not 1 and drops some}}
  %s = memref.subview %x[0, 0, 0, 0] [1, 2, 1, 4] [1, 4, 1, 1]
      : memref<1x8x8x8xf32> to memref<1x2x4xf32, strided<[512, 256, 1]>>
  return
}
