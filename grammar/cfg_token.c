/* Tokens named in grammars: by name or id, in sets and all but a set. See gbnf.h. Thread: the owner's. */
#include <string.h>

#include "grammar/gbnf.h"
#include "grammar/trie.h"

esp_status esp_cfg_find_token(struct esp_cfg *cfg, size_t at, const char *name, size_t n_bytes, uint32_t *ret_token)
{
    const struct esp_trie *trie = cfg->g->trie;
    uint32_t token = UINT32_MAX;
    if (n_bytes > 4 && name[1] == '[' && name[n_bytes - 2] == ']') {
        token = 0;
        for (size_t idx = 2; idx + 2 < n_bytes && token < ESP_TRIE_TOKENS_MAX; idx++) {
            bool digit = name[idx] >= '0' && name[idx] <= '9';
            token = digit ? token * 10 + (uint32_t)(name[idx] - '0') : UINT32_MAX;
        }
    } else {
        token = esp_trie_find(trie, name, n_bytes);
    }
    if (token >= trie->n_tokens) {
        return esp_cfg_fail(cfg, ESP_EINVAL, at, "the vocabulary has no token %.*s", (int)(n_bytes > 99 ? 99 : n_bytes),
                            name);
    }
    if (trie->roles[token] == ESP_ROLE_END) {
        return esp_cfg_fail(cfg, ESP_EINVAL, at,
                            "the token %.*s ends every answer and comes by itself when all is "
                            "complete",
                            (int)(n_bytes > 99 ? 99 : n_bytes), name);
    }
    *ret_token = token;
    return ESP_OK;
}

static bool in_pairs(const uint32_t *pairs, uint32_t n_pairs, uint32_t token)
{
    for (uint32_t idx = 0; idx < n_pairs; idx++) {
        if (token >= pairs[2 * idx] && token <= pairs[2 * idx + 1]) {
            return true;
        }
    }
    return false;
}

/* End tokens and text tokens without text cannot be taken. */
static bool takes(const struct esp_trie *trie, uint32_t token)
{
    uint32_t n;
    esp_trie_token(trie, token, &n);
    return trie->roles[token] == ESP_ROLE_CONTROL || (trie->roles[token] == ESP_ROLE_TEXT && n > 0);
}

esp_status esp_cfg_token_node(struct esp_cfg *cfg, size_t at, const uint32_t *pairs, uint32_t n_pairs, bool others,
                              struct esp_cfg_node **ret_node)
{
    const struct esp_trie *trie = cfg->g->trie;
    uint32_t n = 0, *list = esp_malloc(ESP_TAG_GRAMMAR, ((size_t)trie->n_tokens + 2) * sizeof *list);
    if (list == NULL) {
        return ESP_ENOMEM;
    }
    for (uint32_t token = 0; token < trie->n_tokens; token++) {
        if (!takes(trie, token) || in_pairs(pairs, n_pairs, token) == others) {
            continue;
        }
        if (n > 0 && list[2 * n - 1] + 1 == token) {
            list[2 * n - 1] = token;
        } else {
            list[2 * n] = list[2 * n + 1] = token;
            n++;
        }
    }
    *ret_node = esp_cfg_node(cfg, ESP_CFG_EXPR, esp_expr_token(cfg->x, list, n), at);
    esp_free(list);
    return *ret_node == NULL ? ESP_ENOMEM : ESP_OK;
}
