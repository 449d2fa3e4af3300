/* Special tokens: finding them in text, and knowing which ones end an answer.
 *
 * Their texts are kept sorted; a match narrows a range of them byte by byte, so that a thousand tokens that
 * begin with `<` cost ten steps a byte. Leftmost-longest: the caller asks at each position in turn.
 * User-defined tokens match anywhere, control and unknown ones only where the text may have them.
 * Thread: read-only after create.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/utf8.h"
#include "runtime/tokenizer_impl.h"

/* Texts that mean "the answer ends here" in the chat formats of known models. */
static const char *const end_texts[] = {
    "<|im_end|>",      "<|eot_id|>",   "<|eom_id|>",      "<|end|>",           "<|endoftext|>",
    "<|end_of_text|>", "<|return|>",   "<|call|>",        "<|calls|>",         "<|flush|>",
    "<end_of_turn>",   "<|eot|>",      "<|endofturn|>",   "<|end_of_turn|>",   "<end_of_utterance>",
    "<EOT>",           "_<EOT>",       "<|EOT|>",         "[EOT]",             "[EOS]",
    "</s>",            "<eos>",        "<turn|>",         "<|tool_response>",  "<|END_OF_TURN_TOKEN|>",
    "<|END_OF_TURN|>", "<|role_end|>", "<|plamo:eos|>",
    ("<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"),
};

/* Only whole characters: cutting inside one would leave pieces that are not UTF-8. */
static bool is_special(const struct esp_tokenizer *tok, uint32_t id)
{
    size_t n;
    const char *text = esp_token_text(tok, id, &n);
    bool cut_out = tok->types[id] == ESP_TOKEN_CONTROL || tok->types[id] == ESP_TOKEN_USER ||
                   tok->types[id] == ESP_TOKEN_UNKNOWN;
    return cut_out && n > 0 && esp_utf8_valid(text, n) == n;
}

static int compare_texts(const struct esp_tokenizer *tok, uint32_t a, uint32_t b)
{
    size_t n_a, n_b;
    const char *text_a = esp_token_text(tok, a, &n_a), *text_b = esp_token_text(tok, b, &n_b);
    int order = memcmp(text_a, text_b, n_a < n_b ? n_a : n_b);
    return order != 0 ? order : (n_a > n_b) - (n_a < n_b);
}

static int compare_ids(const void *a, const void *b, void *tok)
{
    uint32_t id_a, id_b;
    memcpy(&id_a, a, sizeof id_a);
    memcpy(&id_b, b, sizeof id_b);
    return compare_texts(tok, id_a, id_b);
}

esp_status esp_specials_create(struct esp_tokenizer *tok)
{
    struct esp_specials *specials = &tok->specials;
    uint32_t n = 0;
    for (uint32_t id = 0; id < tok->n_tokens; id++) {
        n += is_special(tok, id);
    }
    specials->ids = esp_malloc(ESP_TAG_VOCAB, n * sizeof *specials->ids);
    if (specials->ids == NULL) {
        return ESP_ENOMEM;
    }
    for (uint32_t id = 0; id < tok->n_tokens; id++) {
        size_t n_bytes;
        const char *text = esp_token_text(tok, id, &n_bytes);
        if (is_special(tok, id)) {
            specials->ids[specials->n++] = id;
            specials->starts[(uint8_t)text[0]] = true;
            specials->bytes_max = n_bytes > specials->bytes_max ? (uint32_t)n_bytes : specials->bytes_max;
        }
    }
    qsort_r(specials->ids, specials->n, sizeof *specials->ids, compare_ids, tok);
    return ESP_OK;
}

/* The first of ids[low, high), which agree on depth bytes, whose next byte is at least wanted. A text that
 * ends at depth sorts before every byte. */
static uint32_t lower_bound(const struct esp_tokenizer *tok, uint32_t low, uint32_t high, size_t depth, int wanted)
{
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        size_t n;
        const char *text = esp_token_text(tok, tok->specials.ids[mid], &n);
        int byte = depth < n ? (uint8_t)text[depth] : -1;
        if (byte < wanted) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

uint32_t esp_specials_match(const struct esp_tokenizer *tok, const char *text, size_t n_bytes, size_t control_bytes,
                            size_t *ret_n_bytes)
{
    const struct esp_specials *specials = &tok->specials;
    uint32_t low = 0, high = specials->n, best = ESP_TOKEN_NONE;
    if (n_bytes == 0 || !specials->starts[(uint8_t)text[0]]) {
        return ESP_TOKEN_NONE;
    }
    for (size_t depth = 0; depth < n_bytes && low < high; depth++) {
        int byte = (uint8_t)text[depth];
        low = lower_bound(tok, low, high, depth, byte);
        high = lower_bound(tok, low, high, depth, byte + 1);
        if (low == high) {
            break;
        }
        size_t n;
        (void)esp_token_text(tok, specials->ids[low], &n);
        bool allowed = tok->types[specials->ids[low]] == ESP_TOKEN_USER || depth + 1 <= control_bytes;
        if (n == depth + 1 && allowed) {
            best = specials->ids[low];
            *ret_n_bytes = n;
        }
    }
    return best;
}

static uint32_t find_text(const struct esp_tokenizer *tok, const char *wanted)
{
    size_t n_wanted = strlen(wanted);
    for (uint32_t id = 0; id < tok->n_tokens; id++) {
        size_t n;
        const char *text = esp_token_text(tok, id, &n);
        /* A user-defined token counts only if it looks like markup of a chat format: </s> is HTML in gemma3. */
        bool counts = tok->types[id] == ESP_TOKEN_CONTROL ||
                      (tok->types[id] == ESP_TOKEN_USER && n > 2 && memcmp(text, "<|", 2) == 0);
        if (counts && n == n_wanted && memcmp(text, wanted, n) == 0) {
            return id;
        }
    }
    return ESP_TOKEN_NONE;
}

void esp_specials_mark_ends(struct esp_tokenizer *tok)
{
    if (tok->kind == ESP_TOKENIZER_WPM) {
        return; /* an encoder: it writes no answers */
    }
    /* Where answers end with <|return|> or <|call|>, <|end|> only closes a part of one. */
    bool parts = find_text(tok, "<|return|>") != ESP_TOKEN_NONE && find_text(tok, "<|call|>") != ESP_TOKEN_NONE;
    for (size_t idx = 0; idx < sizeof end_texts / sizeof end_texts[0]; idx++) {
        uint32_t id = find_text(tok, end_texts[idx]);
        if (id != ESP_TOKEN_NONE && !(parts && strcmp(end_texts[idx], "<|end|>") == 0)) {
            tok->flags[id] |= ESP_FLAG_END;
        }
    }
}
