#include <stdio.h>
#include "stats.h"

int main(void) {
  struct moments moments = {0, 0.0, 0.0};
  double value;
  while (next_number(&value)) moments_add(&moments, value);
  printf("n=%ld mean=%.3f sd=%.3f skipped=%ld\n", moments.count, moments.mean, moments_deviation(&moments), skipped);
  return 0;
}
