/* Part of the Fovea Project, under the Apache License v2.0 with LLVM
   Exceptions. See LICENSE for license information. SPDX-License-Identifier:
   Apache-2.0 WITH LLVM-exception */

/* Writes a gradient behind what it is of, then one element into that. */

#include <stdio.h>

enum { N = 3, SIZE = 2 * N * 4 };
static int32_t positions[N];
static float memory[2 * SIZE];

static void write(float *d_input) {
  fovea_rt_status status = gradient(positions, N, memory, N, d_input, N);
  printf("status %d: %s\n", status, fovea_rt_last_error());
}

int main(void) {
  for (int i = 0; i < SIZE; ++i)
    memory[i] = (float)i;
  write(memory + SIZE);
  printf("last of both: %g, %g\n", memory[SIZE - 1], memory[2 * SIZE - 1]);
  write(memory + SIZE - 1);
  printf("last of both: %g, %g\n", memory[SIZE - 1], memory[2 * SIZE - 1]);
  return 0;
}
