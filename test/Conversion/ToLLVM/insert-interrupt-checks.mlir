// RUN: fovea-opt %s --attn-insert-interrupt-checks | FileCheck %s

// Tiles of keys: long iterations, though every loop inside is short.
// CHECK-LABEL: func.func @tiles
// CHECK:       scf.for
// CHECK-NEXT:    llvm.call @fovea_rt_check_interrupt() : () -> ()
// CHECK-NEXT:    scf.for
// CHECK-NEXT:      scf.for
// CHECK-NOT:         check_interrupt
// CHECK:       return
func.func @tiles(%n: index, %m: memref<64x64x512xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  scf.for %tile = %c0 to %n step %c1 {
    scf.for %i = %c0 to %c64 step %c1 {
      scf.for %j = %c0 to %c64 step %c1 {
        %z = arith.constant 0.0 : f32
        %v = vector.transfer_read %m[%i, %j, %c0], %z {in_bounds = [true]} : memref<64x64x512xf32>, vector<512xf32>
        vector.transfer_write %v, %m[%j, %i, %c0] {in_bounds = [true]} : vector<512xf32>, memref<64x64x512xf32>
      }
    }
  }
  return
}

// Nobody knows how long the inner loop is; the middle one looks now and then,
// since a call would count if it is short. The outer one ends before its first
// check and has none.
// CHECK-LABEL: func.func @rows
// CHECK:       scf.for
// CHECK-NEXT:    scf.for %[[ROW:.*]] = %{{.*}} to
// CHECK-NEXT:      %[[LAST:.*]] = arith.constant 3 : index
// CHECK-NEXT:      %[[TURN:.*]] = arith.andi %[[ROW]], %[[LAST]] : index
// CHECK-NEXT:      %[[DUE:.*]] = arith.cmpi eq, %[[TURN]], %[[LAST]] : index
// CHECK-NEXT:      scf.if %[[DUE]] {
// CHECK-NEXT:        llvm.call @fovea_rt_check_interrupt() : () -> ()
// CHECK-NEXT:      }
// CHECK-NEXT:      scf.for
// CHECK-NEXT:        scf.for
// CHECK-NOT:           check_interrupt
// CHECK:       return
func.func @rows(%n: index, %m: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c64 = arith.constant 64 : index
  scf.for %twice = %c0 to %c2 step %c1 {
    scf.for %row = %c0 to %n step %c1 {
      scf.for %key = %c0 to %n step %c1 {
        scf.for %i = %c0 to %c64 step %c1 {
          %x = memref.load %m[%i] : memref<64xf32>
          %y = arith.addf %x, %x : f32
          memref.store %y, %m[%i] : memref<64xf32>
        }
      }
    }
  }
  return
}

// A loop that may end before its first check leaves it to the next one, which
// counts its own iterations, whatever they begin with and step over.
// CHECK-LABEL: func.func @steps
// CHECK-SAME:    %[[N:.*]]: index, %[[STEP:[^:]*]]: index
// CHECK:       scf.for %[[BLOCK:.*]] = %[[N]] to %{{.*}} step %[[STEP]]
// CHECK:         %[[DONE:.*]] = arith.subi %[[BLOCK]], %[[N]] : index
// CHECK-NEXT:    %[[TURN:.*]] = arith.divui %[[DONE]], %[[STEP]] : index
// CHECK:         arith.andi %[[TURN]]
// CHECK:         scf.if
// CHECK-NEXT:      llvm.call @fovea_rt_check_interrupt() : () -> ()
// CHECK:         scf.for
// CHECK:           scf.if
// CHECK-NEXT:        llvm.call @fovea_rt_check_interrupt() : () -> ()
// CHECK:       return
func.func @steps(%n: index, %step: index, %m: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c4096 = arith.constant 4096 : index
  scf.for %block = %n to %c4096 step %step {
    scf.for %row = %c0 to %n step %c1 {
      scf.for %key = %c0 to %n step %c1 {
        scf.for %i = %c0 to %c64 step %c1 {
          %x = memref.load %m[%i] : memref<64xf32>
          %y = arith.addf %x, %x : f32
          memref.store %y, %m[%i] : memref<64xf32>
        }
      }
    }
  }
  return
}

// What a scf.while repeats is its second region.
// CHECK-LABEL: func.func @while
// CHECK:       scf.while
// CHECK-NOT:     check_interrupt
// CHECK:       do {
// CHECK-NEXT:    llvm.call @fovea_rt_check_interrupt() : () -> ()
func.func @while(%go: i1, %m: memref<512xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c10000 = arith.constant 10000 : index
  scf.while : () -> () {
    scf.condition(%go)
  } do {
    scf.for %i = %c0 to %c10000 step %c1 {
      %x = memref.load %m[%c0] : memref<512xf32>
      memref.store %x, %m[%c1] : memref<512xf32>
    }
    scf.yield
  }
  return
}

// A call would count in short iterations.
// CHECK-LABEL: func.func @short
// CHECK-NOT:   check_interrupt
func.func @short(%n: index, %m: memref<512xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c512 = arith.constant 512 : index
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %c512 step %c1 {
      %x = memref.load %m[%j] : memref<512xf32>
      memref.store %x, %m[%j] : memref<512xf32>
    }
  }
  return
}
