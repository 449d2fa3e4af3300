/* The most memory that this process has had at once.
 *
 * As the system counts it (VmHWM of proc(5)). The figure of getrusage will not do: it is at least what the process
 * that started this one had. Thread: any.
 */
#ifndef ESP_FRONTEND_PEAK_H
#define ESP_FRONTEND_PEAK_H

#include <stdint.h>

uint64_t esp_peak_bytes(void); /* 0 when it cannot be read */

#endif
