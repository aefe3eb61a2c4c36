def Attn_SilentOp : Attn_Op<"silent"> {
  let summary = "an operation without an example";
}

def Attn_UntestedOp : Attn_Op<"untested"> {
  let summary = "an operation whose example no test has";
  let description = [{
    ```mlir
    %0 = attn.untested
    ```
  }];
}
