/* esp_vocab through espalier.h: counts and room, metadata, what the token trie is told, arguments. */
#include <pthread.h>

#include "tests/unit/runtime/fakegrammar.h"
#include "tests/unit/runtime/vocabkit.h"

static const char *const merges[] = {"a b"};
static const struct kit_token extra[] = {{"ab", 1, 0},    {"<bos>", 3, 0}, {"<|im_end|>", 3, 0}, {"<unk>", 2, 0},
                                         {"unused", 5, 0}, {"<u>", 4, 0},  {"<eos>", 1, 0}};
enum { AB = 256, BOS, IM_END, UNK, UNUSED, USER, EOS };

static esp_vocab *small_vocab(void)
{
    struct kit kit;
    kit_init(&kit);
    kit_str(&kit, "tokenizer.chat_template", "{{ x }}");
    kit_str(&kit, "general.name", "");
    kit_bpe(&kit, "gpt-2", extra, 7, merges, 1);
    kit_u32(&kit, KIT_KEY("bos_token_id"), BOS);
    kit_u32(&kit, KIT_KEY("eos_token_id"), EOS);
    kit_bool(&kit, KIT_KEY("add_bos_token"), true);
    struct esp_gguf *gguf = NULL;
    esp_vocab *vocab = NULL;
    struct esp_err err = {0};
    CHECK(kit_open_gguf(&kit, &gguf, &err) == ESP_OK && esp_vocab_from_gguf(gguf, &vocab, &err) == ESP_OK, "%s",
          err.message);
    esp_gguf_close(gguf);
    esp_buf_finish(&kit.kvs);
    return vocab;
}

static void test_text(void)
{
    esp_vocab *vocab = small_vocab();
    REQUIRE(vocab != NULL, "open");
    struct esp_span span = {"ab<bos>ab", 9, true};
    uint32_t ids[4] = {9, 9, 9, 9};
    CHECK(esp_tokenize(vocab, &span, 1, NULL, 0, NULL) == 3, "count");
    CHECK(esp_tokenize(vocab, &span, 1, ids, 2, NULL) == 3, "count with little room");
    CHECK(ids[0] == AB && ids[1] == BOS && ids[2] == 9, "no more than asked for");
    CHECK(esp_tokenize(vocab, &span, 1, ids, 4, NULL) == 3 && ids[2] == AB && ids[3] == 9, "all");
    char text[16] = "................";
    CHECK(esp_detokenize(vocab, ids, 3, true, NULL, 0) == 9, "bytes");
    CHECK(esp_detokenize(vocab, ids, 3, true, text, 3) == 9 && memcmp(text, "ab<.", 4) == 0, "little room");
    CHECK(esp_detokenize(vocab, ids, 3, false, text, 16) == 4 && memcmp(text, "abab", 4) == 0, "hidden");
    CHECK(esp_detokenize(vocab, ids, 4, false, text, 16) == 5, "a raw byte");
    ids[0] = 99999;
    CHECK(esp_detokenize(vocab, ids, 1, false, text, 16) == ESP_EINVAL, "no such id");
    CHECK(esp_tokenize(NULL, &span, 1, NULL, 0, NULL) == ESP_EINVAL, "no vocabulary");
    CHECK(esp_tokenize(vocab, NULL, 1, NULL, 0, NULL) == ESP_EINVAL, "no spans");
    CHECK(esp_tokenize(vocab, &span, 1, NULL, 1, NULL) == ESP_EINVAL, "no room given");
    CHECK(esp_detokenize(vocab, NULL, 1, false, text, 1) == ESP_EINVAL, "no ids");
    esp_vocab_close(vocab);
}

static void test_facts(void)
{
    esp_vocab *vocab = small_vocab();
    REQUIRE(vocab != NULL, "open");
    CHECK(esp_vocab_n_tokens(vocab) == 263 && esp_vocab_n_tokens(NULL) == 0, "count");
    CHECK(esp_vocab_bos(vocab) == BOS && esp_vocab_eos(vocab) == EOS && esp_vocab_adds_bos(vocab), "special ids");
    CHECK(esp_vocab_is_end(vocab, IM_END) && esp_vocab_is_end(vocab, EOS) && !esp_vocab_is_end(vocab, BOS), "ends");
    CHECK(strcmp(esp_vocab_meta(vocab, "tokenizer.chat_template"), "{{ x }}") == 0, "template");
    CHECK(strcmp(esp_vocab_meta(vocab, "general.name"), "") == 0, "an empty string is one");
    CHECK(esp_vocab_meta(vocab, "tokenizer.ggml.bos_token_id") == NULL, "no string");
    CHECK(esp_vocab_meta(vocab, "nothing") == NULL && esp_vocab_meta(vocab, NULL) == NULL, "absent");
    esp_vocab_close(vocab);
    esp_vocab_close(NULL);
    struct esp_err err = {0};
    CHECK(esp_vocab_open("/nonexistent", &vocab, &err) == ESP_EIO && err.message[0] != '\0', "%s", err.message);
    CHECK(esp_vocab_open(NULL, &vocab, &err) == ESP_EINVAL, "no path");
}

static void test_roles(void)
{
    static const enum esp_token_role want[] = {ESP_ROLE_TEXT,    ESP_ROLE_CONTROL, ESP_ROLE_END, ESP_ROLE_CONTROL,
                                               ESP_ROLE_CONTROL, ESP_ROLE_TEXT,    ESP_ROLE_END};
    esp_vocab *vocab = small_vocab();
    REQUIRE(vocab != NULL, "open");
    int before = fake_tries;
    const struct esp_trie *trie, *again;
    REQUIRE(esp_vocab_trie(vocab, &trie, NULL) == ESP_OK && esp_vocab_trie(vocab, &again, NULL) == ESP_OK, "trie");
    CHECK(trie == again && fake_tries == before + 1, "built once");
    CHECK(trie->n_tokens == 263, "%u tokens", trie->n_tokens);
    for (uint32_t id = 0; id < 256; id++) {
        const struct esp_trie_token *token = &trie->tokens[id];
        CHECK(token->role == ESP_ROLE_TEXT && token->n_bytes == 1, "byte %u", id);
        CHECK(*(const uint8_t *)token->bytes == id, "byte %u", id);
    }
    for (uint32_t idx = 0; idx < 7; idx++) {
        CHECK(trie->tokens[AB + idx].role == want[idx], "%s", extra[idx].text);
    }
    CHECK(trie->tokens[USER].n_bytes == 3 && trie->tokens[BOS].n_bytes == strlen(extra[BOS - AB].text),
          "bytes of running text; a control token's are its name");
    esp_vocab_close(vocab);
}

static void test_grammar(void)
{
    esp_vocab *vocab = small_vocab();
    REQUIRE(vocab != NULL, "open");
    esp_grammar *a, *b, *c;
    struct esp_err err = {0};
    CHECK(esp_vocab_grammar(vocab, "regex", "a+", 2, NULL, &a, &err) == ESP_OK, "%s", err.message);
    CHECK(esp_vocab_grammar(vocab, "regex", "a+", 2, "{\"lenient\":false}", &b, &err) == ESP_OK, "%s", err.message);
    CHECK(esp_vocab_grammar(vocab, "regex", "a+", 2, "{\"order\":\"any\"}", &c, &err) == ESP_OK, "%s", err.message);
    CHECK(a == b && a != c, "the same content, and other options");
    esp_grammar_unref(a);
    esp_grammar_unref(b);
    esp_grammar_unref(c);
    CHECK(esp_vocab_grammar(vocab, "json", "x", 1, NULL, &a, &err) == ESP_OK, "%s", err.message);
    CHECK(esp_vocab_grammar(vocab, "json", NULL, 0, NULL, &b, &err) == ESP_OK && a == b, "text is not used");
    esp_grammar_unref(a);
    esp_grammar_unref(b);
    CHECK(esp_vocab_grammar(vocab, "regexp", "a", 1, NULL, &a, &err) == ESP_EINVAL, "kind");
    CHECK(strstr(err.message, "regexp") != NULL, "%s", err.message);
    CHECK(esp_vocab_grammar(vocab, "regex", "a", 1, "{\"x\":1}", &a, &err) == ESP_EINVAL, "options");
    CHECK(strcmp(err.keyword, "x") == 0, "%s", err.keyword);
    CHECK(esp_vocab_grammar(vocab, "schema", "fail", 4, NULL, &a, &err) == ESP_EUNSUPPORTED, "refused");
    CHECK(strcmp(err.place, "/a") == 0, "%s", err.place);
    CHECK(esp_vocab_grammar(vocab, "regex", NULL, 1, NULL, &a, &err) == ESP_EINVAL, "no text");
    esp_vocab_close(vocab);
    CHECK(fake_live == 0, "%d grammars live", fake_live);
}

static void *first_use(void *arg)
{
    esp_grammar *grammar = NULL;
    struct esp_err err = {0};
    CHECK(esp_vocab_grammar(arg, "regex", "b", 1, NULL, &grammar, &err) == ESP_OK, "%s", err.message);
    esp_grammar_unref(grammar);
    return NULL;
}

static void test_first_use_by_many(void)
{
    esp_vocab *vocab = small_vocab();
    REQUIRE(vocab != NULL, "open");
    int tries = fake_tries, compiled = fake_compiled;
    pthread_t threads[8];
    for (size_t idx = 0; idx < 8; idx++) {
        REQUIRE(pthread_create(&threads[idx], NULL, first_use, vocab) == 0, "thread");
    }
    for (size_t idx = 0; idx < 8; idx++) {
        pthread_join(threads[idx], NULL);
    }
    CHECK(fake_tries == tries + 1 && fake_compiled == compiled + 1, "one trie, one grammar");
    esp_vocab_close(vocab);
}

ESP_TEST_MAIN(T(test_text), T(test_facts), T(test_roles), T(test_grammar), T(test_first_use_by_many))
