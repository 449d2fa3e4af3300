/* Unicode properties for \p{…}: what is known without tables. See regex.h. */
#include <string.h>

#include "grammar/regex.h"

bool esp_unicode_property(const char *name, size_t n_bytes, struct esp_cpset *set)
{
    if (n_bytes == 5 && memcmp(name, "ASCII", 5) == 0) {
        esp_cpset_add(set, 0, 0x7F);
        return true;
    }
    if (n_bytes == 3 && memcmp(name, "Any", 3) == 0) {
        esp_cpset_add(set, 0, 0x10FFFF);
        return true;
    }
    return false;
}
