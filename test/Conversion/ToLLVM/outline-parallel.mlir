// RUN: fovea-opt %s -attn-outline-parallel | FileCheck %s

// Three dimensions: the last varies slowest, so the runtime, which hands out the
// highest index first, starts with the last block of every head.

// CHECK-LABEL: func.func @blocks(
// CHECK-SAME:    %[[X:.*]]: memref<2x8x16x64xf32>, %[[F:.*]]: f32)
//       CHECK:   %[[MEMORY:.*]] = llvm.alloca %{{.*}} x !llvm.struct<(f32, ptr)>
//       CHECK:   %[[COUNT:.*]] = arith.index_cast %{{.*}} : index to i64
//       CHECK:   %[[BYTES:.*]] = llvm.mlir.constant(0 : i64)
//       CHECK:   %[[BODY:.*]] = constant @blocks_parallel_0
//       CHECK:   %[[ADDRESS:.*]] = builtin.unrealized_conversion_cast %[[BODY]]
//       CHECK:   llvm.insertvalue %[[F]]
//       CHECK:   %[[POINTER:.*]] = llvm.extractvalue %{{.*}}[1]
//       CHECK:   %[[CONTEXT:.*]] = llvm.insertvalue %[[POINTER]]
//       CHECK:   llvm.store %[[CONTEXT]], %[[MEMORY]]
//       CHECK:   llvm.call @fovea_rt_parallel_for(%[[COUNT]], %[[BYTES]], %[[ADDRESS]], %[[MEMORY]])
//   CHECK-NOT:   scf.forall
func.func @blocks(%x: memref<2x8x16x64xf32>, %f: f32) {
  %c3 = arith.constant 3 : index
  scf.forall (%b, %h, %t) in (2, 8, 16) {
    memref.store %f, %x[%b, %h, %t, %c3] : memref<2x8x16x64xf32>
  }
  return
}

// The constant is repeated in the body; the scalar and the address of the buffer
// are passed.

// CHECK-LABEL: func.func private @blocks_parallel_0(
// CHECK-SAME:    %[[INDEX:.*]]: i64, %{{.*}}: !llvm.ptr {llvm.noalias}, %[[CONTEXT:[a-z0-9]+]]: !llvm.ptr {llvm.noalias})
// CHECK-SAME:    llvm.linkage = #llvm.linkage<internal>
//   CHECK-DAG:   %[[FIELDS:.*]] = llvm.load %[[CONTEXT]]
//   CHECK-DAG:   %[[FIELD:.*]] = llvm.extractvalue %[[FIELDS]][1]
//   CHECK-DAG:   llvm.insertvalue %[[FIELD]], %{{.*}}[1]
//   CHECK-DAG:   %[[X:.*]] = builtin.unrealized_conversion_cast %{{.*}} : {{.*}} to memref<2x8x16x64xf32>
//   CHECK-DAG:   %[[F:.*]] = llvm.extractvalue %[[FIELDS]][0]
//   CHECK-DAG:   %[[C3:.*]] = arith.constant 3 : index
//       CHECK:   %[[I:.*]] = arith.index_cast %[[INDEX]] : i64 to index
//       CHECK:   %[[C8:.*]] = arith.constant 8 : index
//       CHECK:   %[[H:.*]] = arith.remui %[[I]], %[[C8]]
//       CHECK:   %[[REST:.*]] = arith.divui %[[I]], %[[C8]]
//       CHECK:   %[[C2:.*]] = arith.constant 2 : index
//       CHECK:   %[[B:.*]] = arith.remui %[[REST]], %[[C2]]
//       CHECK:   %[[T:.*]] = arith.divui %[[REST]], %[[C2]]
//       CHECK:   arith.muli %[[B]]
//       CHECK:   %[[VB:.*]] = arith.addi
//       CHECK:   arith.muli %[[H]]
//       CHECK:   %[[VH:.*]] = arith.addi
//       CHECK:   arith.muli %[[T]]
//       CHECK:   %[[VT:.*]] = arith.addi
//       CHECK:   memref.store %[[F]], %[[X]][%[[VB]], %[[VH]], %[[VT]], %[[C3]]]
//       CHECK:   return

// Bounds known only at run time: an empty dimension counts zero iterations.

// CHECK-LABEL: func.func @dynamic_bounds(
//       CHECK:   %[[DISTANCE:.*]] = arith.subi
//       CHECK:   %[[CLAMPED:.*]] = arith.maxsi %[[DISTANCE]]
//       CHECK:   arith.ceildivsi %[[CLAMPED]]
//       CHECK:   llvm.call @fovea_rt_parallel_for
// CHECK-LABEL: func.func private @dynamic_bounds_parallel_0(
//       CHECK:   arith.remui
//       CHECK:   arith.divui
func.func @dynamic_bounds(%x: memref<?x?xf32>, %f: f32, %lb: index, %ub: index,
                          %step: index) {
  scf.forall (%i, %j) = (0, %lb) to (%ub, 7) step (%step, 2) {
    memref.store %f, %x[%i, %j] : memref<?x?xf32>
  }
  return
}

// Nothing to pass: the context is null.

// CHECK-LABEL: func.func @no_context(
//       CHECK:   %[[NULL:.*]] = llvm.mlir.zero : !llvm.ptr
//       CHECK:   llvm.call @fovea_rt_parallel_for(%{{.*}}, %{{.*}}, %{{.*}}, %[[NULL]])
// CHECK-LABEL: func.func private @no_context_parallel_0(
//   CHECK-NOT:   llvm.load
//       CHECK:   call @work
func.func private @work(index)
func.func @no_context() {
  scf.forall (%i) in (4) {
    func.call @work(%i) : (index) -> ()
  }
  return
}

// Two loops of one function; the stack slots lie in the entry block although one
// loop is repeated.

// CHECK-LABEL: func.func @two(
//       CHECK:   llvm.alloca
//       CHECK:   llvm.alloca
//       CHECK:   scf.for
//       CHECK:     constant @two_parallel_0
//       CHECK:     llvm.call @fovea_rt_parallel_for
//       CHECK:   constant @two_parallel_1
//       CHECK:   llvm.call @fovea_rt_parallel_for
//   CHECK-DAG: func.func private @two_parallel_0
//   CHECK-DAG: func.func private @two_parallel_1
func.func @two(%x: memref<8xf32>, %f: f32, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %k = %c0 to %n step %c1 {
    scf.forall (%i) in (8) {
      memref.store %f, %x[%i] : memref<8xf32>
    }
  }
  scf.forall (%i) in (8) {
    memref.store %f, %x[%i] : memref<8xf32>
  } {mapping = [#gpu.block<x>]}
  return
}

// A loop without dimensions runs once.

// CHECK-LABEL: func.func @once(
//       CHECK:   %[[ONE:.*]] = arith.constant 1 : index
//       CHECK:   %[[COUNT:.*]] = arith.index_cast %[[ONE]]
//       CHECK:   llvm.call @fovea_rt_parallel_for(%[[COUNT]],
// CHECK-LABEL: func.func private @once_parallel_0(
//       CHECK:   call @one_task
func.func private @one_task()
func.func @once() {
  scf.forall () in () {
    func.call @one_task() : () -> ()
  }
  return
}

// A buffer of one branch, which an inner branch passes on, is scratch memory as
// well: it is freed nowhere.

// CHECK-LABEL: func.func private @branches_parallel_0(
//   CHECK-NOT:   memref.alloc
//       CHECK:   scf.if
//   CHECK-NOT:   memref.alloc
//   CHECK-NOT:   memref.dealloc
//       CHECK:   memref.store
//       CHECK:   return
func.func @branches(%x: memref<4xf32>, %y: memref<4xf32>, %f: f32, %outer: i1, %inner: i1) {
  scf.forall (%i) in (4) {
    scf.if %outer {
      %own = memref.alloc() : memref<4xf32>
      %either = scf.if %inner -> memref<4xf32> {
        scf.yield %own : memref<4xf32>
      } else {
        scf.yield %x : memref<4xf32>
      }
      memref.store %f, %either[%i] : memref<4xf32>
      memref.dealloc %own : memref<4xf32>
    }
  }
  return
}
