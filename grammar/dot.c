/* The automaton of a grammar as a picture in the language of Graphviz, from the start as far as it is asked for.
 *
 *   q0 ──{──► q1 ──"──► q2 …      one node a configuration, one edge for all bytes that lead the same way
 *
 * States that were not looked at any more are drawn dashed. Thread: any; takes the store's lock.
 */
#include <string.h>

#include "grammar/matcher.h"
#include "grammar/vec.h"

#define LABEL_BYTES_MAX 48u

static void label_byte(unsigned byte, struct esp_buf *buf)
{
    if (byte == '"' || byte == '\\') {
        esp_buf_printf(buf, "\\%c", (char)byte);
    } else if (byte > 0x20 && byte < 0x7F) {
        esp_buf_char(buf, (char)byte);
    } else {
        esp_buf_printf(buf, "x%02X", byte);
    }
}

/* The bytes from `first` on that lead where it leads, as ranges; they are taken out of `open`. */
static void label(const uint32_t *targets, unsigned first, bool *open, struct esp_buf *buf)
{
    size_t begin = buf->n;
    for (unsigned byte = first; byte < 256; byte++) {
        unsigned last = byte;
        if (targets[byte] != targets[first]) {
            continue;
        }
        while (last < 255 && targets[last + 1] == targets[first]) {
            last++;
        }
        for (unsigned at = byte; at <= last; at++) {
            open[at] = false;
        }
        if (buf->n - begin < LABEL_BYTES_MAX) {
            esp_buf_str(buf, buf->n > begin ? " " : "");
            label_byte(byte, buf);
            if (last > byte) {
                esp_buf_str(buf, last > byte + 1 ? "–" : " ");
                label_byte(last, buf);
            }
        } else if (buf->n - begin < LABEL_BYTES_MAX + 16) {
            esp_buf_str(buf, " …");
            begin -= LABEL_BYTES_MAX + 16; /* said once */
        }
        byte = last;
    }
}

struct picture {
    struct esp_map map; /* configuration → node */
    uint32_t *confs;
    uint32_t n, cap;
};

static uint32_t node_of(struct picture *p, uint32_t conf)
{
    uint32_t node = esp_map_get(&p->map, conf);
    if (node == ESP_MAP_NONE && esp_vec_grow(&p->confs, &p->cap, (uint64_t)p->n + 1) &&
        esp_map_put(&p->map, conf, p->n) == ESP_OK) {
        node = p->n;
        p->confs[p->n++] = conf;
    }
    return node;
}

static void draw_edges(struct esp_store *store, struct picture *p, uint32_t from, struct esp_buf *buf)
{
    uint32_t targets[256];
    bool open[256];
    for (unsigned byte = 0; byte < 256; byte++) {
        targets[byte] = esp_conf_step(store, p->confs[from], byte);
        open[byte] = targets[byte] != ESP_CONF_DEAD;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        if (open[byte]) {
            esp_buf_printf(buf, "  q%u -> q%u [label=\"", from, node_of(p, targets[byte]));
            label(targets, byte, open, buf);
            esp_buf_str(buf, "\"];\n");
        }
    }
}

void esp_grammar_dot(struct esp_grammar *grammar, uint32_t n_states_max, struct esp_buf *buf)
{
    struct esp_store *store = grammar->store;
    struct picture p = {.confs = NULL};
    uint32_t drawn = 0;
    esp_map_init(&p.map, ESP_TAG_GRAMMAR);
    pthread_mutex_lock(&store->lock);
    esp_buf_str(buf, "digraph grammar {\n  rankdir=LR;\n  node [shape=circle];\n");
    node_of(&p, esp_conf_start(store, 0));
    for (; drawn < p.n && drawn < n_states_max && store->x.failed == ESP_OK; drawn++) {
        draw_edges(store, &p, drawn, buf);
    }
    for (uint32_t node = 0; node < p.n; node++) {
        const char *shape = store->confs[p.confs[node]].complete ? "doublecircle" : "circle";
        esp_buf_printf(buf, "  q%u [shape=%s%s];\n", node, shape, node < drawn ? "" : ", style=dashed");
    }
    esp_buf_str(buf, "}\n");
    pthread_mutex_unlock(&store->lock);
    esp_free(p.confs);
    esp_map_finish(&p.map);
}
