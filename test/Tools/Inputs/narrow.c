/* Part of the Fovea Project, under the Apache License v2.0 with LLVM
   Exceptions. See LICENSE for license information. SPDX-License-Identifier:
   Apache-2.0 WITH LLVM-exception */

/* Squares numbers of 16 bits by code for a CPU that has none. */

#include <stdio.h>

int main(void) {
  uint16_t x[15], y[15];
  for (int i = 0; i < 15; ++i) {
    /* 1 + i / 128 and 1 + i / 1024. */
    x[i] = 0x3f80 + i;
    y[i] = 0x3c00 + i;
  }
  narrow_results results;
  if (narrow(x, y, 0x3fc0, 0x3e00, &results) != FOVEA_RT_OK) {
    printf("narrow failed: %s\n", fovea_rt_last_error());
    return 0;
  }
  for (int i = 0; i < 15; ++i)
    printf("%x %x\n", results.result0.data[i], results.result1.data[i]);
  printf("%x %x\n", results.result2, results.result3);
  narrow_release(&results);
  return 0;
}
