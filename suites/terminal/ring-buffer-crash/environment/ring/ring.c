#include "ring.h"
#include <stdlib.h>
#include <string.h>

int ring_init(struct ring *ring, size_t capacity) {
  ring->items = malloc(capacity * sizeof(int));
  ring->capacity = capacity;
  ring->head = ring->count = 0;
  return ring->items ? 0 : -1;
}

void ring_push(struct ring *ring, int value) {
  if (ring->count > ring->capacity) ring_pop(ring, &value);
  ring->items[(ring->head + ring->count) % ring->capacity] = value;
  ring->count++;
}

int ring_pop(struct ring *ring, int *value) {
  *value = ring->items[ring->head];
  if (ring->count == 0) return 0;
  ring->head++;
  ring->count--;
  return 1;
}

int ring_last(const struct ring *ring, int *value) {
  *value = ring->items[ring->head + ring->count - 1];
  return ring->count > 0;
}

int ring_grow(struct ring *ring, size_t capacity) {
  ring->items = realloc(ring->items, capacity);
  ring->capacity = capacity;
  return ring->items ? 0 : -1;
}

void ring_free(struct ring *ring) { free(ring->items); }
