/* Emptiness of what the constructors cannot see through: AND, NOT, and LEN over something else than Σ*.
 *
 *   esp_live_and   explores every state of an AND or NOT and marks the dead ones, so that derivatives become EMPTY
 *   esp_live_len   explores every state of r and stores for each which lengths (code points) its texts have
 *
 *   state   length 0 1 2 3 4 …            lengths of all states settle after `n` columns (then they
 *   q7             . . 1 1 1 1 1…         stay as the last one), or are known up to the bound asked for
 *
 * Both run at compile time under a limit of states; the tables are read-only afterwards and shared.
 * Thread: the owner's at compile, any for queries.
 */
#ifndef ESP_GRAMMAR_LIVE_H
#define ESP_GRAMMAR_LIVE_H

#include "grammar/expr.h"

#define ESP_LIVE_STATES_MAX 20000u
#define ESP_LIVE_CELLS_MAX (64u * 1024 * 1024)

struct esp_lens;
struct esp_lens *esp_lens_create(void);
void esp_lens_destroy(struct esp_lens *lens); /* NULL is fine */
size_t esp_lens_bytes(const struct esp_lens *lens);

/* Both latch ESP_ELIMIT in x when the exploration is too large. */
void esp_live_and(struct esp_exprs *x, uint32_t id);
void esp_live_len(struct esp_exprs *x, struct esp_lens *lens, uint32_t r, uint32_t lo, uint32_t hi);

/* Is there a text of r, read from the given phase, with lo to hi characters to come? */
bool esp_lens_ask(const struct esp_exprs *x, uint32_t r, uint32_t phase, uint32_t lo, uint32_t hi);
/* Counters this high or higher make no difference any more for r; 0 = they always do. */
uint32_t esp_lens_settled(const struct esp_exprs *x, uint32_t r, uint32_t phase);

/* Does every safe character (see trie.h) lead from state r back to r? */
bool esp_live_closed(struct esp_exprs *x, uint32_t r);

#endif
