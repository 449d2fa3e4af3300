/* Zones: classes of characters that may follow a state freely, so that most of its mask is ready made.
 *
 *   state of [a-z0-9-]{0,19}"…      class  a-z 0-9 -      up to 19 characters      exits  "
 *
 *   tokens of the class alone       one slice of the class, by length (slices.c)
 *   tokens with an exit inside      a walk of the subtrees that hold an exit; all other subtrees are skipped
 *
 * A zone is found by looking at the states its class leads to, one character a level, until they repeat or
 * all stop at once. It is exact: what neither the slice nor the walk sets is not allowed.
 * Thread: any, under the store's lock.
 */
#ifndef ESP_GRAMMAR_ZONE_H
#define ESP_GRAMMAR_ZONE_H

#include "grammar/machine.h"
#include "grammar/slices.h"

#define ESP_ZONE_LEVELS_MAX ESP_TRIE_LONG_BYTES /* longer tokens are walked apart */

struct esp_zone {
    struct esp_class class;
    uint32_t n_chars;     /* ESP_EXPR_INF: any number */
    bool capped;          /* at least n_chars; what longer tokens do was not looked at */
    struct esp_class out; /* bytes that leave the class somewhere; utf8 means any byte above 0x7F */
};

/* False when the state has no zone worth having. */
bool esp_zone_find(struct esp_store *store, uint32_t conf, struct esp_zone *ret_zone);

#endif
