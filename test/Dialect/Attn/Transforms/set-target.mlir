// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32 bf16-pairs amx" | FileCheck %s --check-prefix=CPU
// RUN: fovea-opt %s --attn-set-target="gpu shared-bytes=49152" | FileCheck %s --check-prefix=GPU
// RUN: fovea-opt %s --attn-set-target=gpu --attn-set-target | FileCheck %s --check-prefix=LAST

// CPU: module attributes {dlti.target_system_spec = #dlti.target_system_spec<"CPU" = #dlti.target_device_spec<
// CPU-SAME: "vector_bits" = 512 : i64, "num_registers" = 32 : i64, "separate_adds" = false, "split_vectors" = false, "bf16_pairs" = true, "amx" = true>>
// GPU: module attributes {dlti.target_system_spec = #dlti.target_system_spec<"GPU" = #dlti.target_device_spec<
// GPU-SAME: "shared_bytes" = 49152 : i64, "warpgroups" = false>>
// LAST-NOT: "GPU"
// LAST: "CPU" = #dlti.target_device_spec<"vector_bits" = 256 : i64
// LAST-NOT: "GPU"
func.func @nothing() {
  return
}
