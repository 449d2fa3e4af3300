/* Formats of strings, as regular expressions over the decoded text. Only exact ones are built.
 *
 * date, time and date-time follow RFC 3339 (month lengths, leap years, leap seconds at 23:59:60 UTC), ipv4
 * is dotted decimal without leading zeros, uuid is RFC 4122's text form, json-pointer RFC 6901.
 * Names that some draft defines and that are not here are refused when formats are asserted.
 * Thread: the owner's.
 */
#include <string.h>

#include "grammar/regex.h"
#include "grammar/schema.h"

#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define LEAP "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
#define DATE                                                                                                           \
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"              \
    "02-(?:0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define OFFSET "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define FRACTION "(?:\\.[0-9]+)?"
#define PLAIN_TIME "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]" FRACTION OFFSET

static const struct {
    const char *name, *regex; /* NULL: known, not built; "": made by code */
} formats[] = {
    {"date", DATE},
    {"date-time", ""},
    {"duration", NULL},
    {"email", NULL},
    {"hostname", NULL},
    {"idn-email", NULL},
    {"idn-hostname", NULL},
    {"ipv4", OCTET "(?:\\." OCTET "){3}"},
    {"ipv6", NULL},
    {"iri", NULL},
    {"iri-reference", NULL},
    {"json-pointer", "(?:/(?:[^~/]|~[01])*)*"},
    {"regex", NULL},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)"},
    {"time", ""},
    {"uri", NULL},
    {"uri-reference", NULL},
    {"uri-template", NULL},
    {"uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
};

_Static_assert(sizeof formats / sizeof formats[0] <= ESP_SCHEMA_FORMATS_MAX, "room for every row");

static uint32_t from_regex(struct esp_schema *s, const char *regex)
{
    uint32_t id = ESP_EXPR_EMPTY;
    esp_regex_compile(s->x, s->spelling, false, regex, strlen(regex), &id, NULL);
    return id;
}

static void two_digits(char *out, unsigned value)
{
    out[0] = (char)('0' + value / 10);
    out[1] = (char)('0' + value % 10);
}

/* A leap second is 23:59:60 in UTC: for each offset there is one local hour and minute. */
static uint32_t leap_seconds(struct esp_schema *s)
{
    struct esp_exprs *x = s->x;
    uint32_t mark = x->n_scratch;
    uint32_t middle = from_regex(s, ":60" FRACTION);
    esp_exprs_push(x, from_regex(s, "23:59:60" FRACTION "[Zz]"));
    for (unsigned local = 0; local < 1440; local++) {
        /* local = 23:59 + offset (east) or − offset (west), modulo a day */
        unsigned east = (local + 1) % 1440, west = (1439 + 1440 - local) % 1440;
        char start[6] = "00:00", offset[7] = "+00:00";
        two_digits(start, local / 60);
        two_digits(start + 3, local % 60);
        two_digits(offset + 1, east / 60);
        two_digits(offset + 4, east % 60);
        uint32_t ends[2];
        ends[0] = esp_expr_text(x, offset);
        offset[0] = '-';
        two_digits(offset + 1, west / 60);
        two_digits(offset + 4, west % 60);
        ends[1] = esp_expr_text(x, offset);
        uint32_t tail = esp_expr_cat(x, middle, esp_expr_alt(x, ends, 2));
        esp_exprs_push(x, esp_expr_cat(x, esp_expr_text(x, start), tail));
    }
    uint32_t id = esp_expr_alt(x, x->scratch + mark, x->n_scratch - mark);
    x->n_scratch = mark;
    return id;
}

static uint32_t make(struct esp_schema *s, size_t idx)
{
    if (formats[idx].regex == NULL) {
        return 0;
    }
    if (formats[idx].regex[0] != '\0') {
        return from_regex(s, formats[idx].regex);
    }
    uint32_t time = esp_expr_alt2(s->x, from_regex(s, PLAIN_TIME), leap_seconds(s));
    return strcmp(formats[idx].name, "time") == 0 ? time : esp_expr_cat(s->x, from_regex(s, DATE "[Tt]"), time);
}

uint32_t esp_schema_format(struct esp_schema *s, const struct esp_jv *name)
{
    for (size_t idx = 0; idx < sizeof formats / sizeof formats[0]; idx++) {
        if (esp_jv_is(name, formats[idx].name)) {
            if (s->formats[idx] == 0 && !s->options.formats_annotate) {
                uint32_t id = make(s, idx);
                s->formats[idx] = id;
            }
            return s->formats[idx];
        }
    }
    return UINT32_MAX;
}
