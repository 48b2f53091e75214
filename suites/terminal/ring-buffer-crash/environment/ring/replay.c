#include <stdio.h>
#include <string.h>
#include "ring.h"

int main(int argc, char **argv) {
  FILE *trace = argc == 2 ? fopen(argv[1], "r") : NULL;
  struct ring ring;
  char line[64];
  int value;
  unsigned long number;
  if (!trace || ring_init(&ring, 3) != 0) return 2;
  while (fgets(line, sizeof line, trace)) {
    if (sscanf(line, "push %d", &value) == 1) ring_push(&ring, value);
    else if (sscanf(line, "grow %lu", &number) == 1) ring_grow(&ring, number);
    else if (strcmp(line, "size\n") == 0) printf("%zu\n", ring.count);
    else if (strcmp(line, "pop\n") == 0) ring_pop(&ring, &value) ? printf("%d\n", value) : puts("empty");
    else if (strcmp(line, "last\n") == 0) ring_last(&ring, &value) ? printf("%d\n", value) : puts("empty");
  }
  ring_free(&ring);
  fclose(trace);
  return 0;
}
