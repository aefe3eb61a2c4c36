// RUN: fovea-opt %s -attn-outline-parallel -split-input-file -verify-diagnostics

func.func @tensor_results(%x: tensor<4xf32>, %f: tensor<1xf32>) -> tensor<4xf32> {
  // expected-error @below {{'scf.forall' op expects a parallel loop on buffers, but got one with tensor results}}
  %r = scf.forall (%i) in (4) shared_outs(%o = %x) -> tensor<4xf32> {
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %f into %o[%i] [1] [1] : tensor<1xf32> into tensor<4xf32>
    }
  }
  return %r : tensor<4xf32>
}

// -----

func.func @dynamic_buffer(%f: f32, %n: index) {
  scf.forall (%i) in (4) {
    // expected-error @below {{'memref.alloca' op expects a buffer allocated in a parallel loop to have a static shape, but got 'memref<?xf32>'}}
    %a = memref.alloca(%n) : memref<?xf32>
    memref.store %f, %a[%i] : memref<?xf32>
  }
  return
}

// -----

func.func @layout(%f: f32) {
  scf.forall (%i) in (4) {
    // expected-error @below {{expects a buffer allocated in a parallel loop to have the identity layout and no memory space, but got 'memref<4xf32, strided<[2]>>'}}
    %a = memref.alloc() : memref<4xf32, strided<[2]>>
    memref.store %f, %a[%i] : memref<4xf32, strided<[2]>>
  }
  return
}

// -----

func.func @alignment(%f: f32) {
  scf.forall (%i) in (4) {
    // expected-error @below {{expects a buffer allocated in a parallel loop to be aligned to at most 64 bytes, but got 128}}
    %a = memref.alloc() {alignment = 128 : i64} : memref<4xf32>
    memref.store %f, %a[%i] : memref<4xf32>
  }
  return
}

// -----

func.func @carried(%f: f32, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.forall (%i) in (4) {
    %first = memref.alloc() : memref<4xf32>
    %last = scf.for %k = %c0 to %n step %c1 iter_args(%old = %first) -> memref<4xf32> {
      // expected-error @below {{expects a buffer allocated in an inner block of a parallel loop to stay in that block, but it is passed on}}
      %new = memref.alloc() : memref<4xf32>
      %v = memref.load %old[%i] : memref<4xf32>
      memref.store %v, %new[%i] : memref<4xf32>
      // expected-note @below {{passed on here}}
      scf.yield %new : memref<4xf32>
    }
    memref.store %f, %last[%i] : memref<4xf32>
  }
  return
}

// -----

func.func private @use(tensor<4xf32>, index)
func.func @tensor_value(%x: tensor<4xf32>) {
  // expected-error @below {{expects the loop to use buffers and scalars only, but it uses a value of type 'tensor<4xf32>'}}
  scf.forall (%i) in (4) {
    func.call @use(%x, %i) : (tensor<4xf32>, index) -> ()
  }
  return
}
