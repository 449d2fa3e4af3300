/* Log lines through one sink, set by the program. Libraries may report; only the sink prints.
 * Levels: 0 error, 1 warn, 2 info, 3 debug. The default sink drops everything. Thread: any. */
#ifndef ESP_BASE_LOG_H
#define ESP_BASE_LOG_H

enum esp_log_level { ESP_LOG_ERROR, ESP_LOG_WARN, ESP_LOG_INFO, ESP_LOG_DEBUG };

typedef void (*esp_log_sink)(enum esp_log_level level, const char *topic, const char *text);

void esp_log_set(esp_log_sink sink, enum esp_log_level highest); /* NULL = drop */
void esp_log(enum esp_log_level level, const char *topic, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
