/* Filling the histograms of espalier.h: bounds that double, counts that are cumulative, as Prometheus has
 * them. Every bucket whose bound is not below the value counts it; the last one counts all.
 * Thread: the owner's.
 */
#ifndef ESP_RUNTIME_HISTOGRAM_H
#define ESP_RUNTIME_HISTOGRAM_H

#include "runtime/espalier.h"

void esp_histogram_init(struct esp_histogram *histogram, double first_s);
void esp_histogram_add(struct esp_histogram *histogram, int64_t value_ns); /* below 0 counts as 0 */

#endif
