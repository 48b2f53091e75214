#include <math.h>
#include "stats.h"

inline double square(double value) { return value * value; }

void moments_add(struct moments *moments, double value) {
  double before = moments->mean;
  moments->count++;
  moments->mean += (value - before) / moments->count;
  moments->sum_of_squares += (value - before) * (value - moments->mean);
}

double moments_deviation(const struct moments *moments) {
  double spread = sqrt(moments->sum_of_squares / moments->count);
  return square(spread) < 0 ? 0 : spread;
}
