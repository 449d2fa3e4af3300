/* Free memory as the kernel's files tell it, and histograms. */
#include <sys/stat.h>

#include "runtime/memory.h"
#include "runtime/stats.h"
#include "tests/esptest.h"

static char root[] = "/tmp/espalier-memory-XXXXXX";

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s", root);
    for (const char *at = path; (at = strchr(at + 1, '/')) != NULL;) {
        snprintf(full, sizeof full, "%s%.*s", root, (int)(at - path), path);
        mkdir(full, 0700);
    }
    snprintf(full, sizeof full, "%s%s", root, path);
    FILE *file = fopen(full, "w");
    REQUIRE(file != NULL, "%s", full);
    fputs(text, file);
    fclose(file);
}

static void test_available(void)
{
    REQUIRE(mkdtemp(root) != NULL);
    CHECK(esp_memory_available(root) == UINT64_MAX, "nothing can be read");
    put("/proc/meminfo", "MemTotal:  8000 kB\nMemFree:  10 kB\nMemAvailable:    5000 kB\n");
    CHECK(esp_memory_available(root) == 5000 * 1024);
    put("/proc/self/cgroup", "12:cpu:/x\n0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/memory.current", "700\n");
    CHECK(esp_memory_available(root) == 5000 * 1024, "max is no limit");
    put("/sys/fs/cgroup/a/memory.max", "4000\n");
    put("/sys/fs/cgroup/a/memory.current", "1000\n");
    CHECK(esp_memory_available(root) == 3000, "a limit above counts");
    put("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 600\nactive_file 1\n");
    CHECK(esp_memory_available(root) == 3600, "what the kernel gives back is free");
    put("/sys/fs/cgroup/a/b/memory.max", "500\n");
    CHECK(esp_memory_available(root) == 0, "more is used than allowed");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2000\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "100\n");
    CHECK(esp_memory_available(root) == 1900, "version 1");
    CHECK(esp_memory_available("") > 0);
    CHECK(esp_memory_program(root) == 0, "nothing can be read");
    put("/proc/self/status", "VmRSS:\t  900 kB\nRssAnon:\t  700 kB\nRssFile:\t  200 kB\n");
    CHECK(esp_memory_program(root) == 200 * 1024);
    CHECK(esp_memory_program("") > 0);
    char command[256];
    snprintf(command, sizeof command, "rm -r %s", root);
    CHECK(system(command) == 0);
}

static void test_histogram(void)
{
    struct esp_histogram h;
    esp_histogram_init(&h, 1e-3);
    esp_histogram_add(&h, 1000000);        /* 1 ms: the first bound itself */
    esp_histogram_add(&h, 1500000);        /* the second */
    esp_histogram_add(&h, -5);             /* a clock that went back */
    esp_histogram_add(&h, 1ll << 60);      /* beyond all bounds */
    CHECK(h.n == 4 && h.bucket[0] == 2 && h.bucket[1] == 3 && h.bucket[ESP_HISTOGRAM_BUCKETS - 1] == 3);
    CHECK(h.bucket[ESP_HISTOGRAM_BUCKETS] == 4 && h.sum_s > 1e9 && h.first_s == 1e-3);
    for (int i = 1; i <= ESP_HISTOGRAM_BUCKETS; i++) {
        CHECK(h.bucket[i] >= h.bucket[i - 1], "cumulative");
    }
}

static void test_snapshot(void)
{
    struct esp_stats stats;
    struct esp_metrics seen;
    esp_stats_init(&stats);
    stats.now.preemptions = 3;
    esp_stats_read(&stats, &seen);
    CHECK(seen.preemptions == 0 && seen.ttft.first_s > 0, "not published yet");
    esp_stats_publish(&stats);
    esp_stats_read(&stats, &seen);
    CHECK(seen.preemptions == 3);
    esp_stats_finish(&stats);
    esp_stats_finish(&stats);
}

ESP_TEST_MAIN(T(test_available), T(test_histogram), T(test_snapshot))
