/* Part of the Fovea Project, under the Apache License v2.0 with LLVM
   Exceptions. See LICENSE for license information. SPDX-License-Identifier:
   Apache-2.0 WITH LLVM-exception */

/* Calls attention that was compiled ahead of time and checks a result. */

#include <math.h>
#include <stdio.h>

enum { H = 4, G = 2, N = 7, M = 9, D = 16 };
static float q[H * N * D], k[G * M * D], v[G * M * D];

int main(void) {
  for (int i = 0; i < H * N * D; ++i)
    q[i] = sinf(0.7f * (float)i);
  for (int i = 0; i < G * M * D; ++i) {
    k[i] = cosf(1.3f * (float)i);
    v[i] = sinf(0.3f * (float)i);
  }
  attend_results results;
  if (attend(q, N, k, M, v, M, &results) != FOVEA_RT_OK) {
    printf("attend failed: %s\n", fovea_rt_last_error());
    return 0;
  }
  float worst = 0;
  for (int h = 0; h < H; ++h)
    for (int i = 0; i < N; ++i) {
      const float *keys = k + h / (H / G) * M * D;
      const float *values = v + h / (H / G) * M * D;
      double weight[M], total = 0;
      for (int j = 0; j < M; ++j) {
        double score = 0;
        for (int d = 0; d < D; ++d)
          score += (double)q[(h * N + i) * D + d] * keys[j * D + d];
        total += weight[j] = exp(score / 4);
      }
      worst = fmaxf(worst,
                    fabsf(results.result1.data[h * N + i] - (float)log(total)));
      for (int d = 0; d < D; ++d) {
        double sum = 0;
        for (int j = 0; j < M; ++j)
          sum += weight[j] / total * values[j * D + d];
        worst = fmaxf(worst, fabsf(results.result0.data[(h * N + i) * D + d] -
                                   (float)sum));
      }
    }
  attend_release(&results);
  printf("%d tokens: largest error %g\n", N, worst);
  return !(worst < 1e-5f);
}
