/* Formats of strings, as regular expressions over the decoded text. Only exact ones are built.
 *
 * date, time and date-time follow RFC 3339 (month lengths, leap years, leap seconds at 23:59:60 UTC), ipv4
 * is dotted decimal without leading zeros, ipv6 RFC 4291's text forms, uuid RFC 4122's, json-pointer RFC 6901,
 * email a mailbox of RFC 5321 (idn-email of RFC 6531), hostname a name of RFC 1123 without xn-- labels, uri and iri
 * RFC 3986 and RFC 3987, uri-template RFC 6570, duration RFC 3339's appendix.
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
#define SECONDS "[0-9]+S"
#define MINUTES "[0-9]+M(?:" SECONDS ")?"
#define HOURS "[0-9]+H(?:" MINUTES ")?"
#define TIME_SPAN "T(?:" HOURS "|" MINUTES "|" SECONDS ")"
#define DAYS "[0-9]+D"
#define MONTHS "[0-9]+M(?:" DAYS ")?"
#define YEARS "[0-9]+Y(?:" MONTHS ")?"
#define DURATION "P(?:(?:" DAYS "|" MONTHS "|" YEARS ")(?:" TIME_SPAN ")?|" TIME_SPAN "|[0-9]+W)"

#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                                           \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32 "|(?:(?:" H16            \
    ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16 ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16      \
    ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16 ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16   \
    "|(?:(?:" H16 ":){0,6}" H16 ")?::)"

/* RFC 5321: a mailbox. */
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define LOCAL_PART "(?:" ATOM "(?:\\." ATOM ")*|\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\")"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
#define EMAIL LOCAL_PART "@(?:" LABEL "(?:\\." LABEL ")*|\\[(?:" IPV4 "|IPv6:" IPV6 ")\\])"

/* RFC 1123: labels of at most 63 characters. Since draft-07 those with -- in the third and fourth place are reserved,
 * and whether one that begins with xn-- is valid cannot be told by its letters: they are never written. */
#define LDH "[A-Za-z0-9-]"
#define ALNUM "[A-Za-z0-9]"
#define LABEL63 ALNUM "(?:(?:" LDH "{0,2}|" LDH "(?:" ALNUM LDH "|-" ALNUM ")" LDH "{0,58})" ALNUM ")?"
#define OLD_LABEL63 ALNUM "(?:" LDH "{0,61}" ALNUM ")?"

/* RFC 6531: any character above U+007F beside those of RFC 5321. */
#define HIGH "\\u{80}-\\u{D7FF}\\u{E000}-\\u{10FFFF}"
#define IDN_ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" HIGH "-]+"
#define IDN_LOCAL "(?:" IDN_ATOM "(?:\\." IDN_ATOM ")*|\"(?:[ !#-\\[\\]-~" HIGH "]|\\\\[ -~])*\")"
#define IDN_LABEL "[A-Za-z0-9" HIGH "](?:[A-Za-z0-9" HIGH "-]*[A-Za-z0-9" HIGH "])?"
#define IDN_EMAIL IDN_LOCAL "@(?:" IDN_LABEL "(?:\\." IDN_LABEL ")*|\\[(?:" IPV4 "|IPv6:" IPV6 ")\\])"

/* RFC 3986, and RFC 3987 with U: the characters it adds. P: those it adds to the query. */
#define UCS                                                                                                            \
    "\\u{A0}-\\u{D7FF}\\u{F900}-\\u{FDCF}\\u{FDF0}-\\u{FFEF}\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}"                \
    "\\u{30000}-\\u{3FFFD}\\u{40000}-\\u{4FFFD}\\u{50000}-\\u{5FFFD}\\u{60000}-\\u{6FFFD}\\u{70000}-\\u{7FFFD}"        \
    "\\u{80000}-\\u{8FFFD}\\u{90000}-\\u{9FFFD}\\u{A0000}-\\u{AFFFD}\\u{B0000}-\\u{BFFFD}\\u{C0000}-\\u{CFFFD}"        \
    "\\u{D0000}-\\u{DFFFD}\\u{E1000}-\\u{EFFFD}"
#define UCS_PRIVATE "\\u{E000}-\\u{F8FF}\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}"
#define PCT "%[0-9A-Fa-f]{2}"
#define PLAIN "-A-Za-z0-9._~!$&'()*+,;="
#define CHARS(U, MORE) "(?:[" PLAIN MORE U "]|" PCT ")"
#define HOST(U) "(?:\\[(?:" IPV6 "|[vV][0-9A-Fa-f]+\\.[" PLAIN ":]+)\\]|" CHARS(U, "") "*)"
#define AUTHORITY(U) "(?:" CHARS(U, ":") "*@)?" HOST(U) "(?::[0-9]*)?"
#define SEGMENTS(U) "(?:/" CHARS(U, ":@") "*)*"
#define ABSOLUTE(U) "/(?:" CHARS(U, ":@") "+" SEGMENTS(U) ")?"
#define TAIL(U, P) "(?:\\?" CHARS(U P, ":@/?") "*)?(?:#" CHARS(U, ":@/?") "*)?"
#define URI(U, P)                                                                                                      \
    "[A-Za-z][A-Za-z0-9+.-]*:(?://" AUTHORITY(U) SEGMENTS(U) "|" ABSOLUTE(U) "|" CHARS(U, ":@") "+" SEGMENTS(U) "|)"   \
    TAIL(U, P)
#define RELATIVE(U, P)                                                                                                 \
    "(?://" AUTHORITY(U) SEGMENTS(U) "|" ABSOLUTE(U) "|" CHARS(U, "@") "+" SEGMENTS(U) "|)" TAIL(U, P)

/* RFC 6570 */
#define VARCHAR "(?:[A-Za-z0-9_]|" PCT ")"
#define VARSPEC VARCHAR "(?:\\.?" VARCHAR ")*(?::[1-9][0-9]{0,3}|\\*)?"
#define TEMPLATE                                                                                                       \
    "(?:[!#$&-;=?-\\[\\]_a-z~" UCS UCS_PRIVATE "]|" PCT "|\\{[+#./;?&=,!@|]?" VARSPEC "(?:," VARSPEC ")*\\})*"

#define PLAIN_TIME "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]" FRACTION OFFSET

static const struct {
    const char *name, *regex; /* NULL: known, not built; "": made by code */
} formats[] = {
    {"date", DATE},
    {"date-time", ""},
    {"duration", DURATION},
    {"email", EMAIL},
    {"hostname", ""},
    {"idn-email", IDN_EMAIL},
    {"idn-hostname", NULL},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"iri", URI(UCS, UCS_PRIVATE)},
    {"iri-reference", "(?:" URI(UCS, UCS_PRIVATE) "|" RELATIVE(UCS, UCS_PRIVATE) ")"},
    {"json-pointer", "(?:/(?:[^~/]|~[01])*)*"},
    {"regex", NULL},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)"},
    {"time", ""},
    {"uri", URI("", "")},
    {"uri-reference", "(?:" URI("", "") "|" RELATIVE("", "") ")"},
    {"uri-template", TEMPLATE},
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

/* a, then what stands between, then b, for two numbers of two digits. */
static uint32_t pair(struct esp_exprs *x, unsigned a, uint32_t between, unsigned b, uint32_t tail)
{
    char first[3] = "00", last[3] = "00";
    two_digits(first, a);
    two_digits(last, b);
    uint32_t end = esp_expr_cat(x, esp_expr_text(x, last), tail);
    return esp_expr_cat(x, esp_expr_text(x, first), esp_expr_cat(x, between, end));
}

/* A leap second is 23:59:60 in UTC: the local time and the offset belong together,
 *   hh:mm:60+hh:MM  with MM = mm + 1, or hh:59:60+HH:00 with HH = hh + 1      hh:mm:60-HH:MM  with sums 23 and 59
 * so each is what the hours allow and the minutes allow, which nothing that has begun can fail to complete. */
static uint32_t leap_seconds(struct esp_schema *s)
{
    struct esp_exprs *x = s->x;
    uint32_t mark = x->n_scratch, digits = from_regex(s, "[0-9]{2}");
    uint32_t east = from_regex(s, ":[0-9]{2}:60" FRACTION "[+]"), west = from_regex(s, ":[0-9]{2}:60" FRACTION "-");
    uint32_t east_on = from_regex(s, ":60" FRACTION "[+][0-9]{2}:");
    uint32_t west_on = from_regex(s, ":60" FRACTION "-[0-9]{2}:");
    uint32_t whole = from_regex(s, ":59:60" FRACTION "[+]"), zeros = esp_expr_text(x, ":00");
    uint32_t colon = esp_expr_byte(x, ':'), rest = esp_expr_cat(x, colon, digits), sets[4], n_hours = 24;
    for (unsigned hour = 0; hour < n_hours; hour++) {
        esp_exprs_push(x, pair(x, hour, east, hour, rest));
    }
    sets[0] = esp_expr_alt(x, x->scratch + mark, n_hours);
    x->n_scratch = mark;
    for (unsigned hour = 0; hour < n_hours; hour++) {
        esp_exprs_push(x, pair(x, hour, west, 23 - hour, rest));
    }
    sets[1] = esp_expr_alt(x, x->scratch + mark, n_hours);
    x->n_scratch = mark;
    uint32_t hours = esp_expr_cat(x, digits, colon);
    for (unsigned minute = 0; minute < 59; minute++) {
        esp_exprs_push(x, pair(x, minute, east_on, minute + 1, ESP_EXPR_EPS));
    }
    sets[2] = esp_expr_cat(x, hours, esp_expr_alt(x, x->scratch + mark, 59));
    x->n_scratch = mark;
    for (unsigned minute = 0; minute < 60; minute++) {
        esp_exprs_push(x, pair(x, minute, west_on, 59 - minute, ESP_EXPR_EPS));
    }
    sets[3] = esp_expr_cat(x, hours, esp_expr_alt(x, x->scratch + mark, 60));
    x->n_scratch = mark;
    for (unsigned hour = 0; hour < n_hours; hour++) {
        esp_exprs_push(x, pair(x, hour, whole, (hour + 1) % 24, zeros));
    }
    uint32_t easts[2] = {sets[0], sets[2]}, wests[2] = {sets[1], sets[3]};
    esp_exprs_push(x, esp_expr_and(x, easts, 2));
    esp_exprs_push(x, esp_expr_and(x, wests, 2));
    esp_exprs_push(x, from_regex(s, "23:59:60" FRACTION "[Zz]"));
    uint32_t id = esp_expr_alt(x, x->scratch + mark, x->n_scratch - mark);
    x->n_scratch = mark;
    return id;
}

/* A name of RFC 1123: at most 253 characters. */
static uint32_t host_name(struct esp_schema *s)
{
    bool old = s->draft_given && (s->draft & (ESP_DRAFT4 | ESP_DRAFT6)) != 0;
    uint32_t labels = from_regex(s, old ? OLD_LABEL63 "(?:\\." OLD_LABEL63 ")*" : LABEL63 "(?:\\." LABEL63 ")*");
    if (labels != ESP_EXPR_EMPTY) {
        esp_live_len(s->x, s->lens, labels, 1, 253);
    }
    return esp_expr_len(s->x, labels, 0, 1, 253);
}

static uint32_t make(struct esp_schema *s, size_t idx)
{
    if (formats[idx].regex == NULL) {
        return 0;
    }
    if (formats[idx].regex[0] != '\0') {
        return from_regex(s, formats[idx].regex);
    }
    if (strcmp(formats[idx].name, "hostname") == 0) {
        return host_name(s);
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
