#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static log_sink *sink_function;
static void *sink_argument;

void log_set(log_sink *sink, void *arg)
{
    pthread_mutex_lock(&sink_lock);
    sink_function = sink;
    sink_argument = arg;
    pthread_mutex_unlock(&sink_lock);
}

static void emit_line(enum log_level level, const char *format, va_list args)
{
    char line[2048];
    vsnprintf(line, sizeof line, format, args);
    pthread_mutex_lock(&sink_lock);
    if (sink_function)
        sink_function(level, line, sink_argument);
    pthread_mutex_unlock(&sink_lock);
}

void log_info(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    emit_line(LOG_INFO, format, args);
    va_end(args);
}

void log_warn(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    emit_line(LOG_WARN, format, args);
    va_end(args);
}

void log_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    emit_line(LOG_ERROR, format, args);
    va_end(args);
}
