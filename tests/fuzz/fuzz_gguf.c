/* GGUF files with bytes changed at random: whatever is in a file, it is read in full or refused with a place.
 *
 * The corpus is shared/data/gguf, where it is there, and a file made here. What opens is then used: every key
 * and tensor is read to its last byte, described as JSON, and asked for hyper-parameters. The sanitizers see
 * any byte read outside. The seed is printed; a failing file stays under /tmp.
 */
#include <dirent.h>

#include "runtime/base/file.h"
#include "runtime/base/utf8.h"
#include "runtime/model.h"
#include "tests/esptest.h"
#include "tests/unit/runtime/gguf_writer.h"

#define N_MUTATIONS 150

static struct esp_buf seeds[80];
static size_t n_seeds;
static uint64_t n_opened, n_refused;

static void add_seed(const void *data, size_t n)
{
    if (n_seeds < sizeof seeds / sizeof seeds[0]) {
        esp_buf_init(&seeds[n_seeds], ESP_TAG_MISC, 1 << 20);
        esp_buf_add(&seeds[n_seeds++], data, n);
    }
}

/* A file with a model's keys, so that mutations reach the hyper-parameters as well. */
static void add_own_seed(void)
{
    static const char *const keys[] = {
        "llama.block_count", "llama.embedding_length", "llama.feed_forward_length", "llama.attention.head_count",
        "llama.attention.head_count_kv", "llama.context_length", "llama.rope.dimension_count"};
    static const uint32_t values[] = {1, 64, 96, 2, 1, 128, 32};
    begin(2, 10);
    put_kv_str("general.architecture", "llama");
    for (size_t idx = 0; idx < sizeof values / sizeof values[0]; idx++) {
        put_kv(keys[idx], ESP_GGUF_U32, values[idx], 4);
    }
    put_kv_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    put_str("tokenizer.ggml.tokens");
    put_u32(ESP_GGUF_ARRAY);
    put_u32(ESP_GGUF_STRING);
    put_u64(3);
    put_str("a");
    put_str("");
    put_str("\xff");
    put_tensor("token_embd.weight", 64, 0);
    put_tensor("output_norm.weight", 64, 256);
    pad();
    for (int idx = 0; idx < 128; idx++) {
        put_u32(0x3f800000);
    }
    add_seed(out.data, out.n);
}

static void load_seeds(void)
{
    const char *folder = esp_test_shared("data/gguf");
    DIR *d = folder == NULL ? NULL : opendir(folder);
    for (struct dirent *e = d == NULL ? NULL : readdir(d); e != NULL; e = readdir(d)) {
        char path[1400];
        struct esp_file file;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (strstr(e->d_name, ".gguf") != NULL && esp_file_map(path, &file, NULL) == ESP_OK) {
            add_seed(file.n_bytes == 0 ? (const void *)"" : file.data, file.n_bytes);
            esp_file_unmap(&file);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    add_own_seed();
}

/* Everything that a reader may touch. */
static void use(const struct esp_gguf *gguf)
{
    uint64_t sum = 0;
    for (size_t idx = 0; idx < esp_gguf_n_kv(gguf); idx++) {
        const struct esp_gguf_kv *kv = esp_gguf_kv_at(gguf, idx);
        struct esp_gguf_string_iter iter = esp_gguf_strings(kv);
        struct esp_gguf_string s;
        for (uint64_t item = 0; item < kv->n; item++) {
            if (kv->item_type != ESP_GGUF_STRING) {
                sum += (uint64_t)esp_gguf_array_int(kv, item) + (esp_gguf_array_float(kv, item) > 0.0);
            } else if (esp_gguf_next_string(&iter, &s)) {
                sum += s.n_bytes == 0 ? 0 : (uint8_t)s.data[s.n_bytes - 1];
            }
        }
    }
    for (size_t idx = 0; idx < esp_gguf_n_tensors(gguf); idx++) {
        const struct esp_gguf_tensor *t = esp_gguf_tensor_at(gguf, idx);
        sum += t->n_bytes == 0 ? 0 : (uint64_t)t->data[0] + t->data[t->n_bytes - 1];
    }
    struct esp_buf text;
    struct esp_err err = {0};
    struct esp_hparams hp;
    esp_buf_init(&text, ESP_TAG_MISC, 1 << 22);
    esp_status status = esp_gguf_describe(gguf, "", sum % 2 == 0, sum % 3 == 0, &text);
    CHECK(status != ESP_OK || esp_utf8_valid(text.data, text.n) == text.n, "description is not UTF-8");
    esp_buf_finish(&text);
    status = esp_hparams_read(gguf, &hp, &err);
    CHECK(status == ESP_OK || err.message[0] != '\0', "an error without a message");
}

static bool try_bytes(const uint8_t *data, size_t n)
{
    esp_buf_finish(&out);
    esp_buf_init(&out, ESP_TAG_MISC, 1 << 20);
    put(data, n);
    struct esp_gguf *gguf = NULL;
    struct esp_err err = {0};
    const char *path = save("fuzz.gguf");
    esp_status status = esp_gguf_open(path, &gguf, &err);
    if (status == ESP_OK) {
        n_opened++;
        use(gguf);
    } else {
        n_refused++;
        CHECK(err.message[0] != '\0' && strchr(err.message, '\n') == NULL && gguf == NULL, "%s", err.message);
    }
    esp_gguf_close(gguf);
    if (esp_test_state.n_failed == 0) {
        drop("fuzz.gguf");
    }
    return esp_test_state.n_failed == 0;
}

static uint64_t below(uint64_t n)
{
    return esp_rng_next(&esp_test_state.rng) % n;
}

/* One to four changes: a byte, a word of an interesting size, a cut, or a piece moved elsewhere. */
static size_t mutate(uint8_t *data, size_t n)
{
    static const uint64_t words[] = {0,          1,          0x7f,       0xff,      0x7fffffff,
                                     0xffffffff, 1ull << 32, 1ull << 60, INT64_MAX, UINT64_MAX};
    for (uint64_t left = 1 + below(4); left > 0 && n > 8; left--) {
        size_t at = below(n);
        size_t span = below(2) == 0 ? 4 : 8;
        switch (below(5)) {
        case 0: data[at] ^= (uint8_t)(1u << below(8)); break;
        case 1: data[at] = (uint8_t)below(256); break;
        case 2:
            if (at + span <= n) {
                memcpy(data + at, &words[below(sizeof words / sizeof words[0])], span);
            }
            break;
        case 3: n -= below(8) == 0 ? below(n) : 0; break;
        default:
            if (at + span <= n) {
                memmove(data + at, data + below(n - span + 1), span);
            }
            break;
        }
    }
    return n;
}

static void test_mutations(void)
{
    load_seeds();
    for (size_t idx = 0; idx < n_seeds; idx++) {
        const uint8_t *seed = (const uint8_t *)(seeds[idx].n == 0 ? "" : seeds[idx].data);
        REQUIRE(try_bytes(seed, seeds[idx].n), "seed %zu as it is", idx);
        /* The file of this program is the only one with a model's keys: it gets more. */
        int n_turns = idx + 1 == n_seeds ? 40 * N_MUTATIONS : N_MUTATIONS;
        for (int turn = 0; turn < n_turns; turn++) {
            uint8_t *copy = malloc(seeds[idx].n + 1);
            REQUIRE(copy != NULL);
            memcpy(copy, seed, seeds[idx].n);
            size_t n = mutate(copy, seeds[idx].n);
            bool ok = try_bytes(copy, n);
            free(copy);
            REQUIRE(ok, "seed %zu, turn %d", idx, turn);
        }
        esp_buf_finish(&seeds[idx]);
    }
    printf("# %llu opened, %llu refused\n", (unsigned long long)n_opened, (unsigned long long)n_refused);
    CHECK(n_opened > 100 && n_refused > 1000);
    finish_writer();
    esp_test_state.skip = NULL; /* the own seed ran even without shared/ */
}

ESP_TEST_MAIN(T(test_mutations))
