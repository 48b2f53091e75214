#!/bin/bash
set -e
cd /app/ring
cat > ring.c <<'C'
#include "ring.h"
#include <stdint.h>
#include <stdlib.h>

int ring_init(struct ring *ring, size_t capacity) {
  ring->items = capacity == 0 || capacity > SIZE_MAX / sizeof(int) ? NULL : malloc(capacity * sizeof(int));
  ring->capacity = ring->items ? capacity : 0;
  ring->head = ring->count = 0;
  return ring->items ? 0 : -1;
}

void ring_push(struct ring *ring, int value) {
  int dropped;
  if (ring->capacity == 0) return;
  if (ring->count == ring->capacity) ring_pop(ring, &dropped);
  ring->items[(ring->head + ring->count) % ring->capacity] = value;
  ring->count++;
}

int ring_pop(struct ring *ring, int *value) {
  if (ring->count == 0) return 0;
  *value = ring->items[ring->head];
  ring->head = (ring->head + 1) % ring->capacity;
  ring->count--;
  return 1;
}

int ring_last(const struct ring *ring, int *value) {
  if (ring->count == 0) return 0;
  *value = ring->items[(ring->head + ring->count - 1) % ring->capacity];
  return 1;
}

int ring_grow(struct ring *ring, size_t capacity) {
  if (capacity <= ring->capacity) return 0;
  if (capacity > SIZE_MAX / sizeof(int)) return -1;
  int *items = malloc(capacity * sizeof(int));
  if (!items) return -1;
  for (size_t place = 0; place < ring->count; place++) items[place] = ring->items[(ring->head + place) % ring->capacity];
  free(ring->items);
  ring->items = items;
  ring->capacity = capacity;
  ring->head = 0;
  return 0;
}

void ring_free(struct ring *ring) {
  free(ring->items);
  ring->items = NULL;
  ring->capacity = ring->head = ring->count = 0;
}
C
make
