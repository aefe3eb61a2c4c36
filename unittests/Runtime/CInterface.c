/*===- CInterface.c - The runtime used from C -----------------------------===*/
/*
 * Part of the Fovea Project, under the Apache License v2.0 with LLVM
 * Exceptions. See LICENSE for license information.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 */

#include "fovea_rt/fovea_rt.h"
#include "fovea_rt/gpu.h"

int foveaRuntimeCInterfaceTest(void);

static void square(int64_t index, void *scratch, void *context) {
  int64_t *local = scratch;
  local[0] = index;
  ((int64_t *)context)[index] = local[0] * index;
}

static void kernel(void **args) {
  int64_t *values = fovea_rt_alloc(10 * (int64_t)sizeof(int64_t), 64);
  fovea_rt_parallel_for(10, (int64_t)sizeof(int64_t), square, values);
  *(int64_t **)args[0] = values;
}

static void failingKernel(void **args) {
  (void)args;
  fovea_rt_fail(FOVEA_RT_INTERNAL, "from C");
}

/* Returns zero, or the number of the check that failed. */
int foveaRuntimeCInterfaceTest(void) {
  int64_t *values = 0;
  void *args[1];
  int64_t i;
  args[0] = &values;
  if (fovea_rt_invoke(kernel, args) != FOVEA_RT_OK)
    return 1;
  for (i = 0; i < 10; ++i)
    if (values[i] != i * i)
      return 2;
  fovea_rt_free(values);
  if (fovea_rt_invoke(failingKernel, args) != FOVEA_RT_INTERNAL)
    return 3;
  return fovea_rt_last_error()[0] == 'f' ? 0 : 4;
}
