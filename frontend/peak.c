/* Reads the peak from /proc/self/status. See peak.h.
 *
 * A line of that file is `VmHWM:	   1234 kB`. Thread: any.
 */
#include "frontend/peak.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/file.h"

#define STATUS_BYTES_MAX 65536u

uint64_t esp_peak_bytes(void)
{
    struct esp_buf text;
    uint64_t kib = 0;
    esp_buf_init(&text, ESP_TAG_MISC, STATUS_BYTES_MAX);
    if (esp_file_read("/proc/self/status", &text, NULL) == ESP_OK && text.n > 0) {
        const char *line = strstr(text.data, "\nVmHWM:");
        kib = line == NULL ? 0 : strtoull(line + 7, NULL, 10);
    }
    esp_buf_finish(&text);
    return kib * 1024;
}
