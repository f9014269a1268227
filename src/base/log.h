/* Log lines go to one sink, set by the program; without a sink they are dropped. The sink is the
 * only process-wide state of the library. */
#ifndef SOTTO_BASE_LOG_H
#define SOTTO_BASE_LOG_H

enum log_level { LOG_INFO, LOG_WARN, LOG_ERROR };

typedef void log_sink(enum log_level level, const char *line, void *arg);

void log_set(log_sink *sink, void *arg);
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* For errors that end the process before a status can be returned; all other errors are a
 * status. */
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
