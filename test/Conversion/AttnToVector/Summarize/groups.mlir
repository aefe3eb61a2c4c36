// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector \
// RUN:     --remarks-filter='attn.summarize' --remark-policy=all 2>&1 >/dev/null \
// RUN:   | FileCheck %s --implicit-check-not=remark:
// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector \
// RUN:   | FileCheck %s --check-prefix=CODE

// Two levels of one input.

// CHECK: remark: {{.*}}one nest for intervals of 64, 128 rows: chunks of 32 rows, tiles of 2 sums by 4 intervals by 16 columns

// CODE-LABEL: func.func @two_levels(
//       CODE:   scf.forall
//   CODE-NOT:   scf.forall
//       CODE:   return
func.func @two_levels(%x: memref<1x2x512x16xf32>, %w1: memref<1x2x64x16xf32>, %w2: memref<1x2x128x16xf32>)
    -> (memref<1x2x16x16xf32>, memref<1x2x8x16xf32>) {
  %o1 = memref.alloc() : memref<1x2x16x16xf32>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w1 : memref<1x2x64x16xf32>)
      outs(%o1 : memref<1x2x16x16xf32>)
  %o2 = memref.alloc() : memref<1x2x8x16xf32>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w2 : memref<1x2x128x16xf32>)
      outs(%o2 : memref<1x2x8x16xf32>)
  return %o1, %o2 : memref<1x2x16x16xf32>, memref<1x2x8x16xf32>
}

// Levels of keys and values that take turns.

// CHECK: remark: {{.*}}one nest for intervals of 64, 128 rows
// CHECK: remark: {{.*}}one nest for intervals of 64, 128 rows

// CODE-LABEL: func.func @keys_and_values(
//       CODE:   scf.forall
//       CODE:   scf.forall
//   CODE-NOT:   scf.forall
//       CODE:   return
func.func @keys_and_values(%x: memref<1x2x512x16xf32>, %y: memref<1x2x512x16xf32>, %w1: memref<1x2x64x16xf32>, %w2: memref<1x2x128x16xf32>)
    -> (memref<1x2x16x16xf32>, memref<1x2x8x16xf32>, memref<1x2x16x16xf32>, memref<1x2x8x16xf32>) {
  %o1 = memref.alloc() : memref<1x2x16x16xf32>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w1 : memref<1x2x64x16xf32>)
      outs(%o1 : memref<1x2x16x16xf32>)
  %p1 = memref.alloc() : memref<1x2x16x16xf32>
  attn.summarize ins(%y : memref<1x2x512x16xf32>) weights(%w1 : memref<1x2x64x16xf32>)
      outs(%p1 : memref<1x2x16x16xf32>)
  %o2 = memref.alloc() : memref<1x2x8x16xf32>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w2 : memref<1x2x128x16xf32>)
      outs(%o2 : memref<1x2x8x16xf32>)
  %p2 = memref.alloc() : memref<1x2x8x16xf32>
  attn.summarize ins(%y : memref<1x2x512x16xf32>) weights(%w2 : memref<1x2x128x16xf32>)
      outs(%p2 : memref<1x2x8x16xf32>)
  return %o1, %o2, %p1, %p2 : memref<1x2x16x16xf32>, memref<1x2x8x16xf32>, memref<1x2x16x16xf32>, memref<1x2x8x16xf32>
}

// Outputs that are parts of one buffer, and apart.

// CHECK: remark: {{.*}}one nest for intervals of 64, 128 rows

// CODE-LABEL: func.func @pooled(
//       CODE:   scf.forall
//   CODE-NOT:   scf.forall
//       CODE:   return
func.func @pooled(%x: memref<1x2x512x16xf32>, %w1: memref<1x2x64x16xf32>, %w2: memref<1x2x128x16xf32>)
    -> memref<1x2x24x16xf32> {
  %pool = memref.alloc() : memref<1x2x24x16xf32>
  %o1 = memref.subview %pool[0, 0, 0, 0] [1, 2, 16, 16] [1, 1, 1, 1] : memref<1x2x24x16xf32> to memref<1x2x16x16xf32, strided<[768, 384, 16, 1]>>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w1 : memref<1x2x64x16xf32>)
      outs(%o1 : memref<1x2x16x16xf32, strided<[768, 384, 16, 1]>>)
  %o2 = memref.subview %pool[0, 0, 16, 0] [1, 2, 8, 16] [1, 1, 1, 1] : memref<1x2x24x16xf32> to memref<1x2x8x16xf32, strided<[768, 384, 16, 1], offset: 256>>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w2 : memref<1x2x128x16xf32>)
      outs(%o2 : memref<1x2x8x16xf32, strided<[768, 384, 16, 1], offset: 256>>)
  return %pool : memref<1x2x24x16xf32>
}

// Outputs that overlap: the order of the writes counts.

// CHECK: remark: {{.*}}one nest for intervals of {{[0-9]+}} rows
// CHECK: remark: {{.*}}one nest for intervals of {{[0-9]+}} rows

// CODE-LABEL: func.func @overlap(
//       CODE:   scf.forall
//       CODE:   scf.forall
//   CODE-NOT:   scf.forall
//       CODE:   return
func.func @overlap(%x: memref<1x2x512x16xf32>, %w1: memref<1x2x64x16xf32>, %w2: memref<1x2x128x16xf32>)
    -> memref<1x2x24x16xf32> {
  %pool = memref.alloc() : memref<1x2x24x16xf32>
  %o1 = memref.subview %pool[0, 0, 0, 0] [1, 2, 16, 16] [1, 1, 1, 1] : memref<1x2x24x16xf32> to memref<1x2x16x16xf32, strided<[768, 384, 16, 1]>>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w1 : memref<1x2x64x16xf32>)
      outs(%o1 : memref<1x2x16x16xf32, strided<[768, 384, 16, 1]>>)
  %o2 = memref.subview %pool[0, 0, 8, 0] [1, 2, 8, 16] [1, 1, 1, 1] : memref<1x2x24x16xf32> to memref<1x2x8x16xf32, strided<[768, 384, 16, 1], offset: 128>>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w2 : memref<1x2x128x16xf32>)
      outs(%o2 : memref<1x2x8x16xf32, strided<[768, 384, 16, 1], offset: 128>>)
  return %pool : memref<1x2x24x16xf32>
}

// Intervals that are equal, as those that a group of tokens belongs to at all
// levels. Heads that have one each lie side by side.

// CHECK: remark: {{.*}}one nest for intervals of 64, 64 rows: chunks of 64 rows, tiles of 2 sums by 4 heads by 16 columns

// CODE-LABEL: func.func @same_interval(
//       CODE:   scf.forall
//   CODE-NOT:   scf.forall
//       CODE:   return
func.func @same_interval(%x: memref<1x8x64x16xf32>, %w1: memref<1x2x64x16xf32>, %w2: memref<1x2x64x16xf32>)
    -> (memref<1x8x2x16xf32>, memref<1x8x2x16xf32>) {
  %o1 = memref.alloc() : memref<1x8x2x16xf32>
  attn.summarize ins(%x : memref<1x8x64x16xf32>) weights(%w1 : memref<1x2x64x16xf32>)
      outs(%o1 : memref<1x8x2x16xf32>)
  %o2 = memref.alloc() : memref<1x8x2x16xf32>
  attn.summarize ins(%x : memref<1x8x64x16xf32>) weights(%w2 : memref<1x2x64x16xf32>)
      outs(%o2 : memref<1x8x2x16xf32>)
  return %o1, %o2 : memref<1x8x2x16xf32>, memref<1x8x2x16xf32>
}

// Intervals that are neither.

// CHECK: remark: {{.*}}one nest for intervals of {{[0-9]+}} rows
// CHECK: remark: {{.*}}one nest for intervals of {{[0-9]+}} rows

// CODE-LABEL: func.func @other_interval(
//       CODE:   scf.forall
//       CODE:   scf.forall
//   CODE-NOT:   scf.forall
//       CODE:   return
func.func @other_interval(%x: memref<1x2x512x16xf32>, %w1: memref<1x2x64x16xf32>, %w2: memref<1x2x256x16xf32>)
    -> (memref<1x2x16x16xf32>, memref<1x2x4x16xf32>) {
  %o1 = memref.alloc() : memref<1x2x16x16xf32>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w1 : memref<1x2x64x16xf32>)
      outs(%o1 : memref<1x2x16x16xf32>)
  %o2 = memref.alloc() : memref<1x2x4x16xf32>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w2 : memref<1x2x256x16xf32>)
      outs(%o2 : memref<1x2x4x16xf32>)
  return %o1, %o2 : memref<1x2x16x16xf32>, memref<1x2x4x16xf32>
}

// Another rank.

// CHECK: remark: {{.*}}one nest for intervals of {{[0-9]+}} rows
// CHECK: remark: {{.*}}one nest for intervals of {{[0-9]+}} rows

// CODE-LABEL: func.func @other_rank(
//       CODE:   scf.forall
//       CODE:   scf.forall
//   CODE-NOT:   scf.forall
//       CODE:   return
func.func @other_rank(%x: memref<1x2x512x16xf32>, %w1: memref<1x2x64x16xf32>, %w2: memref<1x4x128x16xf32>)
    -> (memref<1x2x16x16xf32>, memref<1x2x16x16xf32>) {
  %o1 = memref.alloc() : memref<1x2x16x16xf32>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w1 : memref<1x2x64x16xf32>)
      outs(%o1 : memref<1x2x16x16xf32>)
  %o2 = memref.alloc() : memref<1x2x16x16xf32>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w2 : memref<1x4x128x16xf32>)
      outs(%o2 : memref<1x2x16x16xf32>)
  return %o1, %o2 : memref<1x2x16x16xf32>, memref<1x2x16x16xf32>
}

// Another number of sets of weights.

// CHECK: remark: {{.*}}one nest for intervals of {{[0-9]+}} rows
// CHECK: remark: {{.*}}one nest for intervals of {{[0-9]+}} rows

// CODE-LABEL: func.func @other_sets(
//       CODE:   scf.forall
//       CODE:   scf.forall
//   CODE-NOT:   scf.forall
//       CODE:   return
func.func @other_sets(%x: memref<1x2x512x16xf32>, %w1: memref<1x2x64x16xf32>, %w2: memref<2x2x128x16xf32>)
    -> (memref<1x2x16x16xf32>, memref<1x2x8x16xf32>) {
  %o1 = memref.alloc() : memref<1x2x16x16xf32>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w1 : memref<1x2x64x16xf32>)
      outs(%o1 : memref<1x2x16x16xf32>)
  %o2 = memref.alloc() : memref<1x2x8x16xf32>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w2 : memref<2x2x128x16xf32>)
      outs(%o2 : memref<1x2x8x16xf32>)
  return %o1, %o2 : memref<1x2x16x16xf32>, memref<1x2x8x16xf32>
}

// The input changes between the levels.

// CHECK: remark: {{.*}}one nest for intervals of {{[0-9]+}} rows
// CHECK: remark: {{.*}}one nest for intervals of {{[0-9]+}} rows

// CODE-LABEL: func.func @input_written(
//       CODE:   scf.forall
//       CODE:   scf.forall
//   CODE-NOT:   scf.forall
//       CODE:   return
func.func @input_written(%x: memref<1x2x512x16xf32>, %w1: memref<1x2x64x16xf32>, %w2: memref<1x2x128x16xf32>, %f: f32, %i: index)
    -> (memref<1x2x16x16xf32>, memref<1x2x8x16xf32>) {
  %o1 = memref.alloc() : memref<1x2x16x16xf32>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w1 : memref<1x2x64x16xf32>)
      outs(%o1 : memref<1x2x16x16xf32>)
  memref.store %f, %x[%i, %i, %i, %i] : memref<1x2x512x16xf32>
  %o2 = memref.alloc() : memref<1x2x8x16xf32>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w2 : memref<1x2x128x16xf32>)
      outs(%o2 : memref<1x2x8x16xf32>)
  return %o1, %o2 : memref<1x2x16x16xf32>, memref<1x2x8x16xf32>
}

// The first level is read before the second is computed.

// CHECK: remark: {{.*}}one nest for intervals of {{[0-9]+}} rows
// CHECK: remark: {{.*}}one nest for intervals of {{[0-9]+}} rows

// CODE-LABEL: func.func @output_read(
//       CODE:   scf.forall
//       CODE:   scf.forall
//   CODE-NOT:   scf.forall
//       CODE:   return
func.func @output_read(%x: memref<1x2x512x16xf32>, %w1: memref<1x2x64x16xf32>, %w2: memref<1x2x128x16xf32>, %i: index)
    -> (memref<1x2x16x16xf32>, memref<1x2x8x16xf32>, f32) {
  %o1 = memref.alloc() : memref<1x2x16x16xf32>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w1 : memref<1x2x64x16xf32>)
      outs(%o1 : memref<1x2x16x16xf32>)
  %f = memref.load %o1[%i, %i, %i, %i] : memref<1x2x16x16xf32>
  %o2 = memref.alloc() : memref<1x2x8x16xf32>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w2 : memref<1x2x128x16xf32>)
      outs(%o2 : memref<1x2x8x16xf32>)
  return %o1, %o2, %f : memref<1x2x16x16xf32>, memref<1x2x8x16xf32>, f32
}

// Buffers of unknown origin may be the same.

// CHECK: remark: {{.*}}one nest for intervals of {{[0-9]+}} rows
// CHECK: remark: {{.*}}one nest for intervals of {{[0-9]+}} rows

// CODE-LABEL: func.func @arguments(
//       CODE:   scf.forall
//       CODE:   scf.forall
//   CODE-NOT:   scf.forall
//       CODE:   return
func.func @arguments(%x: memref<1x2x512x16xf32>, %w1: memref<1x2x64x16xf32>, %w2: memref<1x2x128x16xf32>, %o1: memref<1x2x16x16xf32>, %o2: memref<1x2x8x16xf32>) {
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w1 : memref<1x2x64x16xf32>)
      outs(%o1 : memref<1x2x16x16xf32>)
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w2 : memref<1x2x128x16xf32>)
      outs(%o2 : memref<1x2x8x16xf32>)
  return
}

// Nothing is known of a call.

// CHECK: remark: {{.*}}one nest for intervals of {{[0-9]+}} rows
// CHECK: remark: {{.*}}one nest for intervals of {{[0-9]+}} rows

// CODE-LABEL: func.func @call(
//       CODE:   scf.forall
//       CODE:   scf.forall
//   CODE-NOT:   scf.forall
//       CODE:   return
func.func private @unknown()

func.func @call(%x: memref<1x2x512x16xf32>, %w1: memref<1x2x64x16xf32>, %w2: memref<1x2x128x16xf32>)
    -> (memref<1x2x16x16xf32>, memref<1x2x8x16xf32>) {
  %o1 = memref.alloc() : memref<1x2x16x16xf32>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w1 : memref<1x2x64x16xf32>)
      outs(%o1 : memref<1x2x16x16xf32>)
  func.call @unknown() : () -> ()
  %o2 = memref.alloc() : memref<1x2x8x16xf32>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w2 : memref<1x2x128x16xf32>)
      outs(%o2 : memref<1x2x8x16xf32>)
  return %o1, %o2 : memref<1x2x16x16xf32>, memref<1x2x8x16xf32>
}

// Parts of one buffer whose places are known only at run time may overlap.

// CHECK: remark: {{.*}}one nest for intervals of {{[0-9]+}} rows
// CHECK: remark: {{.*}}one nest for intervals of {{[0-9]+}} rows

// CODE-LABEL: func.func @dynamic_parts(
//       CODE:   scf.forall
//       CODE:   scf.forall
//   CODE-NOT:   scf.forall
//       CODE:   return
func.func @dynamic_parts(%x: memref<1x2x512x16xf32>, %w1: memref<1x2x64x16xf32>, %w2: memref<1x2x128x16xf32>, %i: index)
    -> memref<1x2x24x16xf32> {
  %pool = memref.alloc() : memref<1x2x24x16xf32>
  %o1 = memref.subview %pool[0, 0, %i, 0] [1, 2, 16, 16] [1, 1, 1, 1]
      : memref<1x2x24x16xf32> to memref<1x2x16x16xf32, strided<[768, 384, 16, 1], offset: ?>>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w1 : memref<1x2x64x16xf32>)
      outs(%o1 : memref<1x2x16x16xf32, strided<[768, 384, 16, 1], offset: ?>>)
  %o2 = memref.subview %pool[0, 0, 16, 0] [1, 2, 8, 16] [1, 1, 1, 1]
      : memref<1x2x24x16xf32> to memref<1x2x8x16xf32, strided<[768, 384, 16, 1], offset: 256>>
  attn.summarize ins(%x : memref<1x2x512x16xf32>) weights(%w2 : memref<1x2x128x16xf32>)
      outs(%o2 : memref<1x2x8x16xf32, strided<[768, 384, 16, 1], offset: 256>>)
  return %pool : memref<1x2x24x16xf32>
}
