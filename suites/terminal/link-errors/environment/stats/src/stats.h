struct moments {
  long count;
  double mean, sum_of_squares;
};

long skipped = 0;

void moments_add(struct moments *moments, double value);
double moments_deviation(const struct moments *moments);
int next_number(double *value);
