/* Prints the results of the function of constants.py for these arguments. */
#include "embed.h"
#include <stdio.h>

int main(void) {
  int64_t ids[5] = {6, 0, 3, 3, 1};
  float bias[3] = {1, 2, 3};
  embed_results results;
  if (embed(ids, bias, 3, &results) != FOVEA_RT_OK) {
    printf("error: %s\n", fovea_rt_last_error());
    return 1;
  }
  /* Row 1 is hidden, so that it is the bias. */
  for (int j = 0; j < 3; ++j)
    printf("%g ", results.result0.data[3 + j]);
  for (int i = 0; i < 5; ++i)
    printf("%d ", (int)results.result1.data[i]);
  embed_release(&results);
  if (embed(ids, bias, 2, &results) != FOVEA_RT_OK)
    printf("error: %s\n", fovea_rt_last_error());
  return 0;
}
