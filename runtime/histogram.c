/* Histograms with doubling bounds. See histogram.h. */
#include "runtime/histogram.h"

#include <string.h>

void esp_histogram_init(struct esp_histogram *histogram, double first_s)
{
    memset(histogram, 0, sizeof *histogram);
    histogram->first_s = first_s;
}

void esp_histogram_add(struct esp_histogram *histogram, int64_t value_ns)
{
    double value_s = value_ns > 0 ? (double)value_ns * 1e-9 : 0;
    double bound_s = histogram->first_s;
    for (int i = 0; i < ESP_HISTOGRAM_BUCKETS; i++) {
        histogram->bucket[i] += value_s <= bound_s;
        bound_s *= 2;
    }
    histogram->bucket[ESP_HISTOGRAM_BUCKETS]++;
    histogram->sum_s += value_s;
    histogram->n++;
}
