/* Finding zones. See zone.h. */
#include "grammar/zone.h"

#include <string.h>

#define LEVEL_MAX 12u /* states of one level */
#define SEEN_MAX 96u
#define TRIES_MAX 8  /* classes, each smaller than the one before */
#define CLASS_MIN 4  /* smaller classes are walked as fast */
#define ALIVE_MIN 16 /* likewise states with fewer bytes to choose from: numbers, where each digit leads elsewhere */

struct level {
    uint32_t confs[LEVEL_MAX];
    uint32_t n;
};

static bool add_conf(struct level *level, uint32_t conf)
{
    for (uint32_t idx = 0; idx < level->n; idx++) {
        if (level->confs[idx] == conf) {
            return true;
        }
    }
    if (level->n == LEVEL_MAX) {
        return false;
    }
    level->confs[level->n++] = conf;
    return true;
}

static bool is_high(const struct esp_byteset *set)
{
    return (set->w[2] | set->w[3]) != 0;
}

/* Where n more bytes of a character lead, the first of them in first … last: to `level`. False when some
 * character is not taken, or leads to too many states. */
static bool tail_targets(struct esp_store *s, uint32_t conf, unsigned n, unsigned first, unsigned last,
                         struct level *level)
{
    uint32_t before = ESP_CONF_DEAD;
    for (unsigned byte = first; byte <= last; byte++) {
        if (!esp_byteset_has(&s->x.alphabet, byte)) {
            continue;
        }
        uint32_t target = esp_conf_step(s, conf, byte);
        if (target == ESP_CONF_DEAD) {
            return false;
        }
        if (target != before &&
            !(n == 1 ? add_conf(level, target) : tail_targets(s, target, n - 1, 0x80, 0xBF, level))) {
            return false;
        }
        before = target;
    }
    return true;
}

/* Where characters above U+007F lead. */
static bool high_targets(struct esp_store *s, uint32_t conf, struct level *level)
{
    uint32_t known = ESP_CONF_DEAD;
    unsigned known_first = 0, known_last = 0;
    for (unsigned lead = 0xC2; lead <= 0xF4; lead++) {
        unsigned first = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        unsigned last = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (!esp_byteset_has(&s->x.alphabet, lead)) {
            continue;
        }
        uint32_t target = esp_conf_step(s, conf, lead);
        if (target == ESP_CONF_DEAD) {
            return false;
        }
        if (target == known && first == known_first && last == known_last) {
            continue;
        }
        if (!tail_targets(s, target, lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3, first, last, level)) {
            return false;
        }
        known = target;
        known_first = first;
        known_last = last;
    }
    return true;
}

static int count_bits(const uint64_t *ascii)
{
    return __builtin_popcountll(ascii[0]) + __builtin_popcountll(ascii[1]);
}

/* The bytes after which about the same bytes may follow again: not those that end a string or begin an escape. */
static void first_class(struct esp_store *s, uint32_t conf, struct esp_class *class)
{
    struct esp_byteset alive = esp_conf_alive(s, conf);
    struct level level = {.n = 0};
    uint32_t before = ESP_CONF_DEAD;
    bool similar = false;
    memset(class, 0, sizeof *class);
    for (unsigned byte = 0; byte < 128 && s->x.failed == ESP_OK; byte++) {
        uint32_t target = esp_conf_step(s, conf, byte);
        if (target == ESP_CONF_DEAD) {
            continue;
        }
        if (target != before) {
            struct esp_byteset next = esp_conf_alive(s, target);
            uint64_t both[2] = {alive.w[0] & next.w[0], alive.w[1] & next.w[1]};
            similar = count_bits(both) * 2 >= count_bits(alive.w);
            before = target;
        }
        if (similar) {
            class->ascii[byte >> 6] |= (uint64_t)1 << (byte & 63);
        }
    }
    class->utf8 = is_high(&alive) && high_targets(s, conf, &level);
}

/* The bytes that lead where most of them lead: text that is free but for the beginning of something. */
static void common_class(struct esp_store *s, uint32_t conf, struct esp_class *class)
{
    struct esp_byteset alive = esp_conf_alive(s, conf);
    struct level level = {.n = 0};
    uint32_t targets[128], best = ESP_CONF_DEAD;
    int n_best = 0;
    memset(class, 0, sizeof *class);
    for (unsigned byte = 0; byte < 128; byte++) {
        targets[byte] = esp_conf_step(s, conf, byte);
    }
    for (unsigned byte = 0; byte < 128; byte++) {
        int n = 0;
        for (unsigned other = byte; other < 128 && (byte == 0 || targets[byte] != targets[byte - 1]); other++) {
            n += targets[other] == targets[byte];
        }
        if (targets[byte] != ESP_CONF_DEAD && n > n_best) {
            n_best = n;
            best = targets[byte];
        }
    }
    for (unsigned byte = 0; byte < 128 && best != ESP_CONF_DEAD; byte++) {
        class->ascii[byte >> 6] |= (uint64_t)(targets[byte] == best) << (byte & 63);
    }
    class->utf8 = is_high(&alive) && high_targets(s, conf, &level);
}

enum verdict { LEVEL_GOES_ON, LEVEL_STOPS, LEVEL_SHRINKS, LEVEL_MIXED };

/* What the class does in the states of a level. LEVEL_SHRINKS: the class was made smaller, start again. */
static enum verdict judge(struct esp_store *s, const struct level *level, struct esp_zone *zone)
{
    uint32_t n_stop = 0;
    struct esp_class *class = &zone->class;
    for (uint32_t idx = 0; idx < level->n; idx++) {
        struct esp_byteset alive = esp_conf_alive(s, level->confs[idx]);
        bool high = is_high(&alive);
        uint64_t inside[2] = {class->ascii[0] & alive.w[0], class->ascii[1] & alive.w[1]};
        zone->out.ascii[0] |= alive.w[0] & ~class->ascii[0];
        zone->out.ascii[1] |= alive.w[1] & ~class->ascii[1];
        zone->out.utf8 = zone->out.utf8 || (high && !class->utf8);
        if ((inside[0] | inside[1]) == 0 && !(class->utf8 && high)) {
            n_stop++;
        } else if (memcmp(inside, class->ascii, sizeof inside) != 0) {
            memcpy(class->ascii, inside, sizeof inside);
            return LEVEL_SHRINKS;
        }
    }
    return n_stop == 0 ? LEVEL_GOES_ON : n_stop == level->n ? LEVEL_STOPS : LEVEL_MIXED;
}

/* The states one character of the class further. False: too many; the class may have lost utf8 (*ret_again). */
static bool next_level(struct esp_store *s, const struct level *level, struct esp_zone *zone, struct level *ret,
                       bool *ret_again)
{
    ret->n = 0;
    for (uint32_t idx = 0; idx < level->n; idx++) {
        uint32_t before = ESP_CONF_DEAD;
        for (unsigned word = 0; word < 2; word++) {
            for (uint64_t bits = zone->class.ascii[word]; bits != 0; bits &= bits - 1) {
                unsigned byte = word * 64 + (unsigned)__builtin_ctzll(bits);
                uint32_t target = esp_conf_step(s, level->confs[idx], byte);
                if (target != before && !add_conf(ret, target)) {
                    return false;
                }
                before = target;
            }
        }
        if (zone->class.utf8 && !high_targets(s, level->confs[idx], ret)) {
            zone->class.utf8 = false;
            *ret_again = true;
            return false;
        }
    }
    return s->x.failed == ESP_OK;
}

/* Are all states of the level among the seen ones? Adds them. */
static bool all_seen(uint32_t *seen, uint32_t *n_seen, const struct level *level)
{
    bool all = true;
    for (uint32_t idx = 0; idx < level->n; idx++) {
        uint32_t at = 0;
        while (at < *n_seen && seen[at] != level->confs[idx]) {
            at++;
        }
        if (at == *n_seen) {
            all = false;
            if (*n_seen < SEEN_MAX) {
                seen[(*n_seen)++] = level->confs[idx];
            }
        }
    }
    return all;
}

/* One attempt with the class as it is. False: no zone, or with *ret_again another attempt with a smaller class. */
static bool attempt(struct esp_store *s, uint32_t conf, struct esp_zone *zone, bool *ret_again)
{
    struct level level = {{conf}, 1}, next;
    uint32_t seen[SEEN_MAX] = {conf}, n_seen = 1;
    memset(&zone->out, 0, sizeof zone->out);
    zone->capped = false;
    for (uint32_t n = 0;; n++) {
        enum verdict verdict = judge(s, &level, zone);
        zone->n_chars = n;
        *ret_again = verdict == LEVEL_SHRINKS;
        if (verdict == LEVEL_STOPS) {
            return n > 0;
        }
        if (verdict != LEVEL_GOES_ON) {
            return false;
        }
        if (n == ESP_ZONE_LEVELS_MAX) {
            zone->capped = true;
            return true;
        }
        if (!next_level(s, &level, zone, &next, ret_again)) {
            return false;
        }
        if (all_seen(seen, &n_seen, &next)) {
            zone->n_chars = ESP_EXPR_INF;
            return true;
        }
        level = next;
    }
}

/* Attempts with the class of *zone and smaller ones. */
static bool try_class(struct esp_store *s, uint32_t conf, struct esp_zone *zone)
{
    for (int idx = 0; idx < TRIES_MAX && s->x.failed == ESP_OK; idx++) {
        bool again = false;
        if (count_bits(zone->class.ascii) < CLASS_MIN && !zone->class.utf8) {
            return false;
        }
        if (attempt(s, conf, zone, &again)) {
            return s->x.failed == ESP_OK;
        }
        if (!again) {
            return false;
        }
    }
    return false;
}

bool esp_zone_find(struct esp_store *s, uint32_t conf, struct esp_zone *ret_zone)
{
    struct esp_zone zone;
    struct esp_byteset alive = esp_conf_alive(s, conf);
    if (count_bits(alive.w) < ALIVE_MIN && !is_high(&alive)) {
        return false;
    }
    first_class(s, conf, &zone.class);
    bool found = try_class(s, conf, &zone);
    if (!found && s->x.failed == ESP_OK) {
        common_class(s, conf, &zone.class);
        found = try_class(s, conf, &zone);
    }
    if (found) {
        *ret_zone = zone;
    }
    return found;
}
