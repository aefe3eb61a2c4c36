/*===- embed.c - Fovea inside a C program -------------------------*- C -*-===*\
|*                                                                            *|
|* Part of the Fovea Project, under the Apache License v2.0 with LLVM         *|
|* Exceptions. See the LICENSE file for license information.                  *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
|*===----------------------------------------------------------------------===*|
|*                                                                            *|
|* Compiles a function from IR and runs it. Nothing of LLVM or C++ shows.     *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#include "fovea-c/fovea.h"
#include <stdio.h>
#include <string.h>

static const char *module =
    "func.func @attend(%x: tensor<1x1x4x2xf32>) -> tensor<1x1x4x2xf32> {\n"
    "  %init = tensor.empty() : tensor<1x1x4x2xf32>\n"
    "  %out = attn.dense ins(%x, %x, %x : tensor<1x1x4x2xf32>,\n"
    "      tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>)\n"
    "      outs(%init : tensor<1x1x4x2xf32>) {mask = #attn.mask<causal>}\n"
    "      -> tensor<1x1x4x2xf32>\n"
    "  return %out : tensor<1x1x4x2xf32>\n"
    "}\n";

static int fail(void) {
  fprintf(stderr, "embed: error: %s\n", fovea_last_error());
  return 1;
}

int main(void) {
  const float x[8] = {3, 1, 4, 1, 5, 9, 2, 6};
  const int64_t shape[4] = {1, 1, 4, 2};
  fovea_tensor input, output;
  fovea_kernel *kernel;
  fovea_result *result;
  if (fovea_compile(module, strlen(module), NULL, &kernel) != FOVEA_SUCCESS)
    return fail();
  memset(&input, 0, sizeof input);
  input.data = (void *)x;
  input.type = FOVEA_F32;
  input.rank = 4;
  input.shape = shape;
  input.is_read_only = 1;
  if (fovea_kernel_invoke(kernel, &input, 1, &result, 1) != FOVEA_SUCCESS)
    return fail();
  output = fovea_result_tensor(result);
  /* The first token sees only itself. */
  printf("fovea %s: the first token is %g %g\n", fovea_version(),
         ((const float *)output.data)[0], ((const float *)output.data)[1]);
  fovea_result_destroy(result);
  fovea_kernel_destroy(kernel);
  return 0;
}
