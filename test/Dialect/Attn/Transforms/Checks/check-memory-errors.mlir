// RUN: fovea-opt %s --attn-check-memory --split-input-file --verify-diagnostics

// expected-error @below {{'func.func' op has an argument of type 'tensor<35184372088832xf32>', but no process can address 2^47 bytes}}
func.func @argument(%a: tensor<35184372088832xf32>) {
  return
}

// -----

func.func @fits(%a: tensor<35184372088831xf32>, %b: tensor<0x9223372036854775807xf64>) {
  return
}

// -----

// expected-error @below {{'func.func' op has an argument of type 'memref<?x4294967296x?x4294967296xi1>'}}
func.func @dynamic(%a: memref<?x4294967296x?x4294967296xi1>) {
  return
}

// -----

// expected-error @below {{'func.func' op has an argument of type 'tensor<1x35184372088832x16x8xf32>'}}
func.func @sixteen(%a: tensor<1x35184372088832x16x8xf32>) {
  return
}

// -----

// expected-error @below {{'func.func' op has argument 0 of type 'memref<2x4xf32, strided<[1, 2]>>', but kernels need a last stride of 1}}
func.func @columns(%a: memref<2x4xf32, strided<[1, 2]>>) {
  return
}

// -----

// expected-error @below {{'func.func' op has argument 1 of type 'memref<2x4xf32, strided<[?, ?]>>', but kernels need a last stride of 1}}
func.func @unknown(%a: tensor<f32>, %b: tensor<2x4xf32> {bufferization.buffer_layout = strided<[?, ?]>}) {
  return
}

// -----

func.func @rows(%a: memref<2x4xf32, strided<[?, 1], offset: ?>>,
                %b: tensor<2x4xf32> {bufferization.buffer_layout = strided<[?, 1]>}) {
  return
}

// -----

func.func @result() -> tensor<4611686018427387904x16xbf16> {
  // expected-error @below {{'tensor.empty' op has a result of type 'tensor<4611686018427387904x16xbf16>', but no process can address 2^47 bytes}}
  %b = tensor.empty() : tensor<4611686018427387904x16xbf16>
  return %b : tensor<4611686018427387904x16xbf16>
}
