#include <ctype.h>
#include <stdio.h>
#include "stats.h"

static int is_number(const char *word, double *value) {
  char *end;
  *value = strtod(word, &end);
  return *end == '\0';
}

int next_number(double *value) {
  char word[64];
  while (scanf("%63s", word) == 1) {
    if (is_number(word, value)) return 1;
    skipped++;
  }
  return 0;
}
