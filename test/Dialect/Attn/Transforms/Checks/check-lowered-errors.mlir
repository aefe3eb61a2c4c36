// RUN: fovea-opt %s --split-input-file --attn-check-lowered --verify-diagnostics

llvm.func @lowered(%x: f32) -> f32 {
  %0 = llvm.fadd %x, %x : f32
  llvm.return %0 : f32
}

// -----

llvm.func @operation(%x: i8) -> i8 {
  %0 = builtin.unrealized_conversion_cast %x : i8 to f8E4M3FN
  // expected-error @below {{'arith.addf' op on 'f8E4M3FN' cannot be compiled: nothing lowers it to LLVM}}
  %1 = arith.addf %0, %0 : f8E4M3FN
  %2 = builtin.unrealized_conversion_cast %1 : f8E4M3FN to i8
  llvm.return %2 : i8
}

// -----

llvm.func @without_operands() {
  // expected-error @below {{'arith.constant' op cannot be compiled}}
  %0 = arith.constant 1.0 : f32
  llvm.return
}

// -----

llvm.func @cast(%x: i8) {
  // expected-error @below {{'builtin.unrealized_conversion_cast' op on 'i8' cannot be compiled}}
  %0 = builtin.unrealized_conversion_cast %x : i8 to index
  llvm.return
}

// -----

// Functions that conversions add have no place of their own.
module {
  llvm.func @caller(%x: i8) -> i8 {
    // expected-error @below {{'arith.addf' op on 'f8E4M3FN' cannot be compiled}}
    %0 = llvm.call @added(%x) : (i8) -> i8
    llvm.return %0 : i8
  }
  llvm.func @added(%x: i8) -> i8 {
    %0 = builtin.unrealized_conversion_cast %x : i8 to f8E4M3FN
    %1 = arith.addf %0, %0 : f8E4M3FN loc("module")
    %2 = builtin.unrealized_conversion_cast %1 : f8E4M3FN to i8
    llvm.return %2 : i8
  }
} loc("module")
