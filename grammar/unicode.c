/* Unicode properties for \p{…}: general categories by their short and long names, Any, ASCII, Assigned. See regex.h.
 *
 * Halves of surrogate pairs (Cs) are no characters here. Scripts and binary properties are not known.
 */
#include <string.h>

#include "grammar/regex.h"
#include "grammar/unicode_tables.h"

#define UNASSIGNED ((uint64_t)1 << 63)
#define BIT(n) ((uint64_t)1 << (n))

static const struct {
    const char *names[3];
    uint64_t categories; /* bits, in the order of the table's numbers */
} properties[] = {
    {{"Lu", "Uppercase_Letter", NULL}, BIT(0)},
    {{"Ll", "Lowercase_Letter", NULL}, BIT(1)},
    {{"Lt", "Titlecase_Letter", NULL}, BIT(2)},
    {{"LC", "Cased_Letter", NULL}, BIT(0) | BIT(1) | BIT(2)},
    {{"Lm", "Modifier_Letter", NULL}, BIT(3)},
    {{"Lo", "Other_Letter", NULL}, BIT(4)},
    {{"L", "Letter", NULL}, 0x1F},
    {{"Mn", "Nonspacing_Mark", NULL}, BIT(5)},
    {{"Mc", "Spacing_Mark", NULL}, BIT(6)},
    {{"Me", "Enclosing_Mark", NULL}, BIT(7)},
    {{"M", "Mark", "Combining_Mark"}, 0xE0},
    {{"Nd", "Decimal_Number", "digit"}, BIT(8)},
    {{"Nl", "Letter_Number", NULL}, BIT(9)},
    {{"No", "Other_Number", NULL}, BIT(10)},
    {{"N", "Number", NULL}, BIT(8) | BIT(9) | BIT(10)},
    {{"Pc", "Connector_Punctuation", NULL}, BIT(11)},
    {{"Pd", "Dash_Punctuation", NULL}, BIT(12)},
    {{"Ps", "Open_Punctuation", NULL}, BIT(13)},
    {{"Pe", "Close_Punctuation", NULL}, BIT(14)},
    {{"Pi", "Initial_Punctuation", NULL}, BIT(15)},
    {{"Pf", "Final_Punctuation", NULL}, BIT(16)},
    {{"Po", "Other_Punctuation", NULL}, BIT(17)},
    {{"P", "Punctuation", "punct"}, BIT(18) - BIT(11)},
    {{"Sm", "Math_Symbol", NULL}, BIT(18)},
    {{"Sc", "Currency_Symbol", NULL}, BIT(19)},
    {{"Sk", "Modifier_Symbol", NULL}, BIT(20)},
    {{"So", "Other_Symbol", NULL}, BIT(21)},
    {{"S", "Symbol", NULL}, BIT(22) - BIT(18)},
    {{"Zs", "Space_Separator", NULL}, BIT(22)},
    {{"Zl", "Line_Separator", NULL}, BIT(23)},
    {{"Zp", "Paragraph_Separator", NULL}, BIT(24)},
    {{"Z", "Separator", NULL}, BIT(25) - BIT(22)},
    {{"Cc", "Control", "cntrl"}, BIT(25)},
    {{"Cf", "Format", NULL}, BIT(26)},
    {{"Co", "Private_Use", NULL}, BIT(27)},
    {{"Cn", "Unassigned", NULL}, UNASSIGNED},
    {{"C", "Other", NULL}, BIT(25) | BIT(26) | BIT(27) | UNASSIGNED},
    {{"Assigned", NULL, NULL}, BIT(28) - 1},
    {{"Any", NULL, NULL}, ~(uint64_t)0},
};

static bool is_named(const char *name, size_t n_bytes, const char *known)
{
    return known != NULL && strlen(known) == n_bytes && memcmp(name, known, n_bytes) == 0;
}

static void add_categories(uint64_t categories, struct esp_cpset *set)
{
    uint32_t next = 0;
    for (size_t idx = 0; idx < esp_unicode_n_ranges; idx++) {
        const struct esp_unicode_range *range = &esp_unicode_ranges[idx];
        if (range->first > next && (categories & UNASSIGNED)) {
            esp_cpset_add(set, next, range->first - 1);
        }
        if (categories >> range->category & 1) {
            esp_cpset_add(set, range->first, range->last);
        }
        next = range->last + 1;
    }
    if (next <= 0x10FFFF && (categories & UNASSIGNED)) {
        esp_cpset_add(set, next, 0x10FFFF);
    }
}

bool esp_unicode_property(const char *name, size_t n_bytes, struct esp_cpset *set)
{
    static const char *const prefixes[] = {"General_Category=", "gc="};
    bool category = false;
    for (size_t idx = 0; idx < 2; idx++) {
        size_t n = strlen(prefixes[idx]);
        if (!category && n_bytes > n && memcmp(name, prefixes[idx], n) == 0) {
            category = true;
            name += n;
            n_bytes -= n;
        }
    }
    if (!category && is_named(name, n_bytes, "ASCII")) {
        esp_cpset_add(set, 0, 0x7F);
        return true;
    }
    for (size_t idx = 0; idx < sizeof properties / sizeof properties[0]; idx++) {
        const char *const *names = properties[idx].names;
        bool whole = names[1] == NULL; /* Any and Assigned are no categories */
        if ((!category || !whole) && (is_named(name, n_bytes, names[0]) || is_named(name, n_bytes, names[1]) ||
                                      is_named(name, n_bytes, names[2]))) {
            add_categories(properties[idx].categories, set);
            return true;
        }
    }
    return false;
}
