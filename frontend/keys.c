/* API keys from a file, one a line; lines that begin with # are comments. Read again on SIGHUP.
 *
 * A given key is compared with every key of the file, in a time that depends on the given key's length only. A file
 * that cannot be read again leaves the old keys in force. Thread: main loads; the I/O threads ask, under the
 * server's lock.
 */
#include <string.h>

#include "frontend/http.h"
#include "runtime/base/file.h"

#define KEYS_MAX 1024u
#define KEY_BYTES_MAX 1024u

struct esp_keys {
    uint32_t n;
    char *key[KEYS_MAX];
};

void esp_keys_destroy(struct esp_keys *keys)
{
    for (uint32_t idx = 0; keys != NULL && idx < keys->n; idx++) {
        esp_free(keys->key[idx]);
    }
    esp_free(keys);
}

static esp_status add_line(struct esp_keys *keys, const char *path, const char *line, size_t n, struct esp_err *err)
{
    while (n > 0 && (line[n - 1] == ' ' || line[n - 1] == '\t')) {
        n--;
    }
    if (n == 0 || line[0] == '#') {
        return ESP_OK;
    }
    if (keys->n == KEYS_MAX || n > KEY_BYTES_MAX) {
        return esp_fail(err, ESP_ELIMIT, "%s: at most %u keys of at most %u bytes are taken", path, KEYS_MAX,
                        KEY_BYTES_MAX);
    }
    char *key = esp_strndup(ESP_TAG_HTTP, line, n);
    if (key == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory");
    }
    keys->key[keys->n++] = key;
    return ESP_OK;
}

static esp_status read_keys(const char *path, struct esp_keys *keys, struct esp_err *err)
{
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_HTTP, 2u * 1024u * 1024u);
    esp_status status = esp_file_read(path, &text, err);
    const char *at = status == ESP_OK && text.n > 0 ? text.data : "";
    while (*at != '\0' && status == ESP_OK) {
        size_t n = strcspn(at, "\r\n");
        status = add_line(keys, path, at, n, err);
        at += n + (at[n] != '\0');
    }
    esp_buf_finish(&text);
    if (status == ESP_OK && keys->n == 0) {
        status = esp_fail(err, ESP_EINVAL, "%s: no API key in this file", path);
    }
    return status;
}

esp_status esp_keys_load(struct esp_server *server, struct esp_err *err)
{
    struct esp_keys *keys = esp_calloc(ESP_TAG_HTTP, 1, sizeof *keys);
    if (keys == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory");
    }
    esp_status status = read_keys(server->options->api_key_file, keys, err);
    if (status != ESP_OK) {
        esp_keys_destroy(keys);
        return status;
    }
    pthread_mutex_lock(&server->lock);
    struct esp_keys *old = server->keys;
    server->keys = keys;
    pthread_mutex_unlock(&server->lock);
    esp_keys_destroy(old);
    return ESP_OK;
}

static bool keys_equal(const char *given, const char *key)
{
    size_t n_given = strlen(given), n_key = strlen(key);
    unsigned diff = n_given != n_key;
    for (size_t idx = 0; idx < n_given; idx++) {
        diff |= (unsigned char)given[idx] ^ (unsigned char)key[idx % n_key];
    }
    return diff == 0;
}

bool esp_keys_allow(struct esp_server *server, const char *given)
{
    pthread_mutex_lock(&server->lock);
    const struct esp_keys *keys = server->keys;
    bool known = keys == NULL;
    for (uint32_t idx = 0; given != NULL && keys != NULL && idx < keys->n; idx++) {
        known |= keys_equal(given, keys->key[idx]);
    }
    pthread_mutex_unlock(&server->lock);
    return known;
}
