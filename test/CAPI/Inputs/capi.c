/*===- capi.c - Test of the C interface ---------------------------*- C -*-===*\
|*                                                                            *|
|* Part of the Fovea Project, under the Apache License v2.0 with LLVM         *|
|* Exceptions. See the LICENSE file for license information.                  *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#include "fovea-c/fovea.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *module =
    "func.func @scale(%x: tensor<2x?xf32>, %by: f32) -> tensor<2x?xf32> {\n"
    "  %c1 = arith.constant 1 : index\n"
    "  %n = tensor.dim %x, %c1 : tensor<2x?xf32>\n"
    "  %init = tensor.empty(%n) : tensor<2x?xf32>\n"
    "  %all = linalg.fill ins(%by : f32) outs(%init : tensor<2x?xf32>)\n"
    "      -> tensor<2x?xf32>\n"
    "  %out = linalg.mul ins(%x, %all : tensor<2x?xf32>, tensor<2x?xf32>)\n"
    "      outs(%init : tensor<2x?xf32>) -> tensor<2x?xf32>\n"
    "  return %out : tensor<2x?xf32>\n"
    "}\n";

static void check(int condition, const char *what) {
  if (condition)
    return;
  fprintf(stderr, "failed: %s; last error: %s\n", what, fovea_last_error());
  exit(1);
}
#define CHECK(condition) check(condition, #condition)

static void checkErrors(const fovea_kernel *kernel, fovea_tensor *inputs) {
  fovea_kernel *none = NULL;
  fovea_result *result = NULL;
  fovea_value_spec spec;
  fovea_compile_options options;
  CHECK(fovea_compile("nonsense", 8, NULL, &none) == FOVEA_FAILURE);
  CHECK(none == NULL);
  CHECK(strstr(fovea_last_error(), "<kernel>:1:1: error: ") != NULL);
  memset(&options, 0, sizeof options);
  options.source_name = "named.mlir";
  CHECK(fovea_compile("nonsense", 8, &options, &none) == FOVEA_FAILURE);
  CHECK(strstr(fovea_last_error(), "named.mlir:1:1: error: ") != NULL);
  options.target = "abacus";
  CHECK(fovea_compile(module, strlen(module), &options, &none) ==
        FOVEA_FAILURE);
  CHECK(strstr(fovea_last_error(), "unknown target 'abacus'") != NULL);
  options.target = "reference";
  options.entry = "missing";
  CHECK(fovea_compile(module, strlen(module), &options, &none) ==
        FOVEA_FAILURE);
  CHECK(strstr(fovea_last_error(), "@scale") != NULL);
  CHECK(fovea_compile(NULL, 0, NULL, &none) == FOVEA_FAILURE);

  CHECK(fovea_kernel_argument(kernel, 2, &spec) == FOVEA_FAILURE);
  CHECK(fovea_kernel_argument(kernel, 0, NULL) == FOVEA_FAILURE);
  CHECK(fovea_kernel_result(NULL, 0, &spec) == FOVEA_FAILURE);
  CHECK(strstr(fovea_last_error(), "but got null") != NULL);
  CHECK(fovea_kernel_invoke(kernel, inputs, 1, &result, 1) == FOVEA_FAILURE);
  CHECK(strstr(fovea_last_error(), "expects 2 arguments") != NULL);
  CHECK(fovea_kernel_invoke(kernel, inputs, 2, NULL, 0) == FOVEA_FAILURE);
  CHECK(strstr(fovea_last_error(), "has 1 results") != NULL);
  inputs[0].type = (fovea_element_type)99;
  CHECK(fovea_kernel_invoke(kernel, inputs, 2, &result, 1) == FOVEA_FAILURE);
  CHECK(strstr(fovea_last_error(), "but got the value 99") != NULL);
  inputs[0].type = FOVEA_F64;
  CHECK(fovea_kernel_invoke(kernel, inputs, 2, &result, 1) == FOVEA_FAILURE);
  CHECK(strstr(fovea_last_error(), "(%x) of @scale: expected elements") !=
        NULL);
  CHECK(result == NULL);
  inputs[0].type = FOVEA_F32;
  CHECK(fovea_set_num_threads(-1) == FOVEA_FAILURE);
  CHECK(strcmp(fovea_kernel_name(NULL), "") == 0);
  CHECK(fovea_kernel_num_arguments(NULL) == 0);
  CHECK(fovea_kernel_num_results(NULL) == 0);
  CHECK(fovea_result_tensor(NULL).data == NULL);
}

/* Of one loop that nobody could wait for. */
static const char endless[] =
    "func.func @endless(%x: memref<512xf32>) {\n"
    "  %c0 = arith.constant 0 : index\n"
    "  %c1 = arith.constant 1 : index\n"
    "  %n = arith.constant 100000000000 : index\n"
    "  %m = arith.constant 16384 : index\n"
    "  scf.for %i = %c0 to %n step %c1 {\n"
    "    scf.for %j = %c0 to %m step %c1 {\n"
    "      %a = memref.load %x[%c0] : memref<512xf32>\n"
    "      memref.store %a, %x[%c1] : memref<512xf32>\n"
    "    }\n"
    "  }\n"
    "  return\n"
    "}\n";

static int32_t stop(void *count) { return ++*(int *)count == 2; }

static void checkInterrupt(void) {
  fovea_kernel *kernel = NULL;
  float x[512] = {0};
  const int64_t shape[] = {512};
  fovea_tensor input;
  int count = 0;
  memset(&input, 0, sizeof input);
  input.data = x;
  input.type = FOVEA_F32;
  input.rank = 1;
  input.shape = shape;
  CHECK(fovea_compile(endless, strlen(endless), NULL, &kernel) ==
        FOVEA_SUCCESS);
  fovea_set_interrupt_check(stop, &count);
  CHECK(fovea_kernel_invoke(kernel, &input, 1, NULL, 0) == FOVEA_FAILURE);
  CHECK(strcmp(fovea_last_error(), "@endless failed: interrupted") == 0);
  CHECK(count == 2);
  fovea_set_interrupt_check(NULL, NULL);
  fovea_kernel_destroy(kernel);
}

/* Rows of three numbers, five numbers apart. */
static void checkStrides(void) {
  static const char text[] =
      "func.func @negate(%x: memref<2x3xf32, strided<[?, 1]>>, %y: "
      "memref<2x3xf32>) {\n"
      "  linalg.negf ins(%x : memref<2x3xf32, strided<[?, 1]>>) outs(%y : "
      "memref<2x3xf32>)\n  return\n}";
  static const float x[] = {1, 2, 3, 0, 0, 4, 5, 6};
  static const int64_t shape[] = {2, 3}, strides[] = {5, 1};
  float y[6];
  fovea_kernel *kernel;
  fovea_value_spec spec;
  fovea_tensor inputs[2];
  int i;
  CHECK(fovea_compile(text, strlen(text), NULL, &kernel) == FOVEA_SUCCESS);
  CHECK(fovea_kernel_argument(kernel, 0, &spec) == FOVEA_SUCCESS);
  CHECK(spec.strides && spec.strides[0] == FOVEA_DYNAMIC_EXTENT &&
        spec.strides[1] == 1);
  CHECK(fovea_kernel_argument(kernel, 1, &spec) == FOVEA_SUCCESS);
  CHECK(!spec.strides);
  for (i = 0; i < 2; ++i) {
    inputs[i].data = i ? y : (float *)x;
    inputs[i].type = FOVEA_F32;
    inputs[i].rank = 2;
    inputs[i].shape = shape;
    inputs[i].strides = i ? NULL : strides;
    inputs[i].is_read_only = 0;
  }
  CHECK(fovea_kernel_invoke(kernel, inputs, 2, NULL, 0) == FOVEA_SUCCESS);
  for (i = 0; i < 6; ++i)
    CHECK(y[i] == -(i + 1));
  inputs[1].strides = strides;
  CHECK(fovea_kernel_invoke(kernel, inputs, 2, NULL, 0) == FOVEA_FAILURE);
  CHECK(strstr(fovea_last_error(), "contiguous") != NULL);
  fovea_kernel_destroy(kernel);
}

int main(void) {
  fovea_compile_options options;
  fovea_kernel *kernel = NULL, *again = NULL;
  fovea_value_spec spec;
  float x[] = {1, 2, 3, 4, 5, 6}, by = 10;
  const int64_t shape[] = {2, 3};
  fovea_tensor inputs[2], output;
  fovea_result *result = NULL;
  int64_t argument;
  int i;

  memset(&options, 0, sizeof options);
  options.use_cache = 1;
  CHECK(fovea_compile(module, strlen(module), &options, &kernel) ==
        FOVEA_SUCCESS);
  CHECK(fovea_compile(module, strlen(module), &options, &again) ==
        FOVEA_SUCCESS);
  fovea_kernel_destroy(again);

  CHECK(strcmp(fovea_kernel_name(kernel), "scale") == 0);
  CHECK(fovea_kernel_num_arguments(kernel) == 2);
  CHECK(fovea_kernel_num_results(kernel) == 1);
  CHECK(fovea_kernel_argument(kernel, 0, &spec) == FOVEA_SUCCESS);
  CHECK(strcmp(spec.name, "%x") == 0 && spec.type == FOVEA_F32 &&
        !spec.is_scalar && !spec.is_written && spec.rank == 2 &&
        spec.shape[0] == 2 && spec.shape[1] == FOVEA_DYNAMIC_EXTENT);
  CHECK(fovea_kernel_argument(kernel, 1, &spec) == FOVEA_SUCCESS);
  CHECK(spec.is_scalar && spec.rank == 0);
  CHECK(fovea_kernel_result(kernel, 0, &spec) == FOVEA_SUCCESS);
  CHECK(strcmp(spec.name, "") == 0 && spec.rank == 2);

  memset(inputs, 0, sizeof inputs);
  inputs[0].data = x;
  inputs[0].type = FOVEA_F32;
  inputs[0].rank = 2;
  inputs[0].shape = shape;
  inputs[0].is_read_only = 1;
  inputs[1].data = &by;
  inputs[1].type = FOVEA_F32;
  checkErrors(kernel, inputs);

  CHECK(fovea_set_num_threads(1) == FOVEA_SUCCESS);
  CHECK(fovea_num_threads() == 1);
  CHECK(fovea_kernel_invoke(kernel, inputs, 2, &result, 1) == FOVEA_SUCCESS);

  /* The gradient for the factor alone: the sum of x. */
  CHECK(fovea_kernel_vjp(kernel, NULL, 1, 0, &again) == FOVEA_FAILURE);
  argument = 7;
  CHECK(fovea_kernel_vjp(kernel, &argument, 1, 0, &again) == FOVEA_FAILURE);
  CHECK(strstr(fovea_last_error(), "with respect to argument 7") != NULL);
  argument = 1;
  CHECK(fovea_kernel_vjp(kernel, &argument, 1, 0, &again) == FOVEA_SUCCESS);
  CHECK(fovea_kernel_num_arguments(again) == 3);
  CHECK(fovea_kernel_num_results(again) == 1);
  fovea_kernel_destroy(again);

  fovea_kernel_destroy(kernel);
  output = fovea_result_tensor(result);
  CHECK(output.type == FOVEA_F32 && output.rank == 2 && output.shape[0] == 2 &&
        output.shape[1] == 3 && output.strides == NULL);
  for (i = 0; i < 6; ++i)
    CHECK(((float *)output.data)[i] == 10 * x[i]);
  fovea_result_destroy(result);
  fovea_result_destroy(NULL);
  fovea_kernel_destroy(NULL);
  checkStrides();
  checkInterrupt();
  printf("fovea %s works from C\n", fovea_version());
  return 0;
}
