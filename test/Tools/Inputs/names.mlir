func.func @names(%int: tensor<?x4xf32>, %results: tensor<4xf32>, %q_tensor: f32, %q: tensor<f64>, %q_weights: tensor<2xf32>, %int64_t: f32, %_Bool: f32, %linux: f32, %fovea_rt_invoke: f32) -> (tensor<?x4xf32>, f32) {
  return %int, %q_tensor : tensor<?x4xf32>, f32
}
