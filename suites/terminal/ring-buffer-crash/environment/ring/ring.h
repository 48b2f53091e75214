#include <stddef.h>

struct ring {
  int *items;
  size_t capacity, head, count; /* head: place of the oldest */
};

int ring_init(struct ring *ring, size_t capacity); /* 0, or -1 without memory or for capacity 0 */
void ring_push(struct ring *ring, int value);
int ring_pop(struct ring *ring, int *value); /* 0 when empty */
int ring_last(const struct ring *ring, int *value); /* 0 when empty */
int ring_grow(struct ring *ring, size_t capacity); /* 0, or -1 without memory; the ring is then as before */
void ring_free(struct ring *ring); /* may be called twice */
